/* Durable regions of real processes: a client is killed, the service is killed, and the next client of the same user
 * finds the stored regions by name, every byte of them. Other users do not. The tenant's regions count all along. */
#include "base/assert.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/supervisor.h"

#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { REGION_BYTES = 3000001, OTHERS_UID = 12345 };

static struct sw_supervisor supervisor;
static struct spillway_error error;

static void start(const char *const *options) {
    sw_supervisor_start(&supervisor, SW_SPILLWAYD_PATH, options);
}

static void stop(void) {
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGTERM), 0);
    sw_supervisor_end(&supervisor);
}

static void sleep_ms(long ms) {
    const struct timespec time = {.tv_nsec = ms * 1000000};
    (void)nanosleep(&time, NULL);
}

static struct spillway *connect_to_it(void) {
    struct spillway *connection = NULL;
    ck_assert_msg(spillway_open(&connection, SW_OPTIONS(.socket_path = supervisor.daemon.socket), &error) == 0,
                  "%s: %s", error.name, error.text);
    return connection;
}

static uint8_t *new_memory(void) {
    const int fd = memfd_create("durable", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, REGION_BYTES) == 0);
    uint8_t *memory = mmap(NULL, REGION_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    SW_ASSERT(memory != MAP_FAILED);
    return memory; /* the descriptor stays: another user could not open the mapping's file again */
}

static void fill(uint8_t *to) {
    sw_content_fill(to, REGION_BYTES, SW_CONTENT_TEXT, 3);
}

static int spill(struct spillway *connection, const char *name, const void *memory) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    const struct spillway_request *request = SW_REQUEST(SW_ONE(memory, REGION_BYTES), .name = name);
    int rc = spillway_spill(connection, request, 1, &ticket, &error);
    if (rc == 0 && name)
        rc = spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error); /* a name is enough to know it by */
    else if (rc == 0)
        rc = spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error);
    spillway_ticket_free(ticket);
    return rc;
}

/* A process that stores a durable region, and an ordinary one, and is killed. */
static void store_and_die(const char *name) {
    int status = 0;
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct spillway *connection = NULL;
        uint8_t *memory = new_memory();
        SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        SW_ASSERT(spillway_open(&connection, SW_OPTIONS(.socket_path = supervisor.daemon.socket), &error) == 0);
        fill(memory);
        SW_ASSERT(spill(connection, name, memory) == 0 && spill(connection, NULL, memory) == 0);
        (void)raise(SIGKILL);
    }
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
}

/* The service may not have noticed yet that its client is gone. */
static struct spillway_region adopt(struct spillway *connection, const char *name) {
    struct spillway_region region = {0};
    int rc;
    while ((rc = spillway_adopt(connection, name, &region, &error)) == -SPILLWAY_EBUSY)
        sleep_ms(5);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return region;
}

static void restore(struct spillway *connection, struct spillway_region region, uint8_t *memory) {
    struct spillway_ticket *ticket = NULL;
    uint8_t *expected = malloc(REGION_BYTES);
    fill(expected);
    ck_assert_int_eq(
        spillway_restore(connection, SW_REQUEST(SW_ONE(memory, REGION_BYTES), .region = region), 1, &ticket, &error),
        0);
    ck_assert_msg(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error) == 0, "%s: %s", error.name, error.text);
    ck_assert_mem_eq(memory, expected, REGION_BYTES);
    spillway_ticket_free(ticket);
    free(expected);
}

/* Into memory that is handed over, and into memory that the library copies to. */
static void check_bytes(struct spillway *connection, struct spillway_region region) {
    uint8_t *memory = new_memory(), *private = malloc(REGION_BYTES);
    restore(connection, region, memory);
    restore(connection, region, private);
    (void)munmap(memory, REGION_BYTES);
    free(private);
}

static void await_regions(struct spillway *connection, uint32_t n) {
    struct spillway_status status = {.size = sizeof status, .regions = n + 1};
    while (status.regions != n) { /* ends with the test's time limit, if not */
        ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
        sleep_ms(5);
    }
}

static const char *const plain[] = {"log_level=info", "reconnect_grace_s=30", NULL};
static const char *const impatient[] = {"log_level=info", "tenant_regions=2", "reconnect_grace_s=1", NULL};

START_TEST(a_client_dies_and_the_next_one_goes_on) {
    struct spillway_region_info info = {.size = sizeof info};
    start(plain);
    store_and_die("orders");
    struct spillway *connection = connect_to_it();
    struct spillway_region region = adopt(connection, "orders");
    ck_assert_int_eq(spillway_query(connection, region, &info, &error), 0);
    ck_assert_uint_eq(info.raw_bytes, REGION_BYTES);
    check_bytes(connection, region);
    await_regions(connection, 1);
    /* The service dies, with the region in a session, and then without one. */
    for (int has_session = 1; has_session >= 0; has_session--) {
        if (!has_session)
            spillway_close(connection);
        ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGKILL), -SIGKILL);
        ck_assert(sw_supervisor_spawn(&supervisor));
        if (!has_session) {
            connection = connect_to_it();
            ck_assert_int_eq(spillway_adopt(connection, "orders", &region, &error), 0);
        }
        check_bytes(connection, region);
    }
    ck_assert_int_eq(spillway_drop(connection, &region, 1, &error), 0);
    ck_assert_int_eq(spillway_adopt(connection, "orders", &region, &error), -SPILLWAY_ENOENT);
    await_regions(connection, 0);
    spillway_close(connection);
    stop();
}
END_TEST

/* Client and service die at once: the region is there when the time to come back is over. */
START_TEST(client_and_service_die) {
    start(impatient);
    struct spillway *connection = connect_to_it();
    uint8_t *memory = new_memory();
    fill(memory);
    ck_assert_int_eq(spill(connection, "orders", memory), 0);
    spillway_set_reconnect(connection, 0);
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&supervisor));
    struct spillway *next = connect_to_it();
    check_bytes(next, adopt(next, "orders"));
    spillway_close(connection);
    spillway_close(next);
    stop();
}
END_TEST

static void *close_in_a_thread(void *connection) {
    spillway_close(connection);
    return NULL;
}

/* The service does not notice that a client has ended, since it is killed first: its next process knows. */
static pid_t begin_client_that_stores(const char *name) {
    int stored[2];
    char c;
    ck_assert_int_eq(pipe(stored), 0);
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0);
        struct spillway *connection = connect_to_it();
        uint8_t *memory = new_memory();
        fill(memory);
        SW_ASSERT(spill(connection, name, memory) == 0 && write(stored[1], "x", 1) == 1);
        for (;;)
            (void)pause();
    }
    (void)close(stored[1]);
    ck_assert_int_eq(read(stored[0], &c, 1), 1);
    (void)close(stored[0]);
    return pid;
}

START_TEST(a_client_ends_unnoticed) {
    struct spillway_region region;
    uint8_t *memory = new_memory();
    pthread_t closing;
    start(plain);
    struct spillway *idle = connect_to_it(), *closed = connect_to_it();
    fill(memory);
    ck_assert_int_eq(spill(idle, "idle", memory), 0);
    ck_assert_int_eq(spill(closed, "closed", memory), 0);
    const pid_t dead = begin_client_that_stores("dead");
    sw_test_daemon_pause(&supervisor.daemon);
    ck_assert(kill(dead, SIGKILL) == 0 && waitpid(dead, NULL, 0) == dead);
    ck_assert_int_eq(pthread_create(&closing, NULL, close_in_a_thread, closed), 0);
    sleep_ms(100); /* its last packets lie in the socket */
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&supervisor));
    ck_assert_int_eq(pthread_join(closing, NULL), 0);
    struct spillway *next = connect_to_it();
    ck_assert_int_eq(spillway_adopt(next, "idle", &region, &error), -SPILLWAY_EBUSY); /* it may come back */
    ck_assert_msg(spillway_adopt(next, "dead", &region, &error) == 0, "dead: %s: %s", error.name, error.text);
    check_bytes(next, region);
    ck_assert_msg(spillway_adopt(next, "closed", &region, &error) == 0, "closed: %s: %s", error.name, error.text);
    check_bytes(next, region);
    check_bytes(idle, adopt(idle, "idle"));
    spillway_close(idle);
    spillway_close(next);
    stop();
}
END_TEST

/* A batch of several packets: the library keeps its regions until the last one is back. */
START_TEST(a_batch_restores_and_keeps_it) {
    uint8_t *memory[] = {new_memory(), new_memory()};
    struct spillway_buffer buffers[2];
    struct spillway_request requests[2] = {0};
    struct spillway_result result = {.size = sizeof result};
    struct spillway_ticket *ticket = NULL;
    start(plain);
    struct spillway *connection = connect_to_it();
    fill(memory[0]);
    ck_assert_int_eq(spill(connection, "orders", memory[0]), 0);
    for (int i = 0; i < 2; i++) {
        ck_assert_int_eq(spillway_register(connection, memory[i], REGION_BYTES, &error), 0);
        buffers[i] = (struct spillway_buffer){.data = memory[i], .bytes = REGION_BYTES};
    }
    sw_requests_of_each(requests, buffers, 2);
    requests[0].region = adopt(connection, "orders");
    ck_assert_int_eq(spillway_spill(connection, &requests[1], 1, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error), 0);
    spillway_ticket_free(ticket);
    requests[1].region = result.region;
    ck_assert_int_eq(spillway_restore(connection, requests, 2, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, NULL, 0, &error), 0);
    spillway_ticket_free(ticket);
    await_regions(connection, 1); /* the other one is used up */
    check_bytes(connection, adopt(connection, "orders"));
    spillway_close(connection);
    stop();
}
END_TEST

START_TEST(invalid_durable_spills_are_refused) {
    start(plain);
    struct spillway *connection = connect_to_it();
    struct spillway_region region;
    char name[65];
    uint8_t *memory = new_memory(), *private = calloc(1, REGION_BYTES);
    memset(name, 'x', sizeof name);
    name[64] = 0;
    ck_assert_int_eq(spill(connection, name, memory), -SPILLWAY_EINVAL);
    ck_assert_int_eq(spill(connection, "", memory), -SPILLWAY_EINVAL);
    ck_assert_int_eq(spillway_adopt(connection, "", &region, &error), -SPILLWAY_EINVAL);
    name[63] = 0;
    ck_assert_int_eq(spill(connection, name, memory), 0);
    ck_assert_int_eq(spill(connection, name, memory), -SPILLWAY_EEXIST);
    ck_assert_int_eq(error.scope, SPILLWAY_SCOPE_REQUEST);
    spillway_close(connection);
    free(private);
    stop();
}
END_TEST

/* Its region is dropped when its id is known. A client that asks for the name just then does not get it. */
START_TEST(a_canceled_spill_is_not_found) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    start(plain);
    struct spillway *connection = connect_to_it();
    struct pollfd answer = {.fd = spillway_fd(connection), .events = POLLIN};
    uint8_t *memory = new_memory();
    int rc;
    fill(memory);
    ck_assert_int_eq(
        spillway_spill(connection, SW_REQUEST(SW_ONE(memory, REGION_BYTES), .name = "orders"), 1, &ticket, &error), 0);
    spillway_ticket_free(ticket);
    ck_assert_int_eq(poll(&answer, 1, 10000), 1);
    while ((rc = spillway_adopt(connection, "orders", &region, &error)) == -SPILLWAY_EBUSY)
        sleep_ms(5);
    ck_assert_int_eq(rc, -SPILLWAY_ENOENT);
    ck_assert_int_eq(spill(connection, "orders", memory), 0); /* the name is free */
    check_bytes(connection, adopt(connection, "orders"));
    spillway_close(connection);
    stop();
}
END_TEST

/* The answers to another user, as a process of its own: for the name, and for an unknown one. */
static void ask_as_another(struct spillway_error answers[2]) {
    struct spillway *connection = NULL;
    struct spillway_region region;
    SW_ASSERT(setgid(OTHERS_UID) == 0 && setuid(OTHERS_UID) == 0);
    SW_ASSERT(spillway_open(&connection, SW_OPTIONS(.socket_path = supervisor.daemon.socket), &error) == 0);
    SW_ASSERT(spillway_adopt(connection, "orders", &region, &answers[0]) < 0);
    SW_ASSERT(spillway_adopt(connection, "lineitem", &region, &answers[1]) < 0);
    uint8_t *memory = new_memory();
    SW_ASSERT(spill(connection, "orders", memory) == 0); /* the name is free for others */
    spillway_close(connection);
    _exit(0);
}

START_TEST(another_user_finds_nothing) {
    static const char *const open_to_all[] = {"data_socket_mode=\"0666\"", NULL};
    struct spillway_error *answers =
        mmap(NULL, 2 * sizeof *answers, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    int status = -1;
    if (getuid() != 0)
        return; /* only root can be two users */
    start(open_to_all);
    ck_assert_int_eq(chmod(supervisor.daemon.folder, 0755), 0);
    store_and_die("orders");
    struct spillway *connection = connect_to_it();
    await_regions(connection, 1); /* it is its tenant's now */
    const pid_t pid = fork();
    if (pid == 0)
        ask_as_another(answers);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    ck_assert_int_eq(status, 0);
    ck_assert_int_eq(answers[0].code, -SPILLWAY_ENOENT);
    ck_assert_mem_eq(&answers[0], &answers[1], sizeof answers[0]);
    check_bytes(connection, adopt(connection, "orders"));
    spillway_close(connection);
    stop();
}
END_TEST

/* ---- what counts ------------------------------------------------------------------------------------------------- */

START_TEST(durable_regions_count_without_a_session) {
    static const char *const options[] = {"tenant_regions=2", "tenant_durable_regions=1", NULL};
    start(options);
    store_and_die("orders");
    struct spillway *connection = connect_to_it();
    uint8_t *memory = new_memory();
    await_regions(connection, 1);
    ck_assert_int_eq(spill(connection, "lineitem", memory), -SPILLWAY_ETENANTREGIONS);
    ck_assert_int_eq(spill(connection, NULL, memory), 0);
    ck_assert_int_eq(spill(connection, NULL, memory), -SPILLWAY_ETENANTREGIONS);
    spillway_close(connection);
    stop();
}
END_TEST

/* After a restart, before its session is back. */
START_TEST(parked_regions_count_before_their_session_is_back) {
    static const char *const options[] = {"tenant_regions=2", NULL};
    start(options);
    struct spillway *connection = connect_to_it(), *next;
    uint8_t *memory = new_memory();
    ck_assert_int_eq(spill(connection, NULL, memory), 0);
    ck_assert_int_eq(spill(connection, NULL, memory), 0);
    spillway_set_reconnect(connection, 0);
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&supervisor));
    next = connect_to_it();
    ck_assert_int_eq(spill(next, NULL, memory), -SPILLWAY_ETENANTREGIONS);
    spillway_close(next);
    supervisor.options = impatient;
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGTERM), 0);
    ck_assert(sw_supervisor_spawn(&supervisor));
    next = connect_to_it();
    int rc;
    while ((rc = spill(next, NULL, memory)) == -SPILLWAY_ETENANTREGIONS) /* until the time to come back is over */
        sleep_ms(5);
    ck_assert_int_eq(rc, 0);
    await_regions(next, 1);
    spillway_close(next);
    spillway_close(connection);
    stop();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("durable");
    TCase *tcase = tcase_create("durable");
    tcase_add_test(tcase, a_client_dies_and_the_next_one_goes_on);
    tcase_add_test(tcase, client_and_service_die);
    tcase_add_test(tcase, a_client_ends_unnoticed);
    tcase_add_test(tcase, a_batch_restores_and_keeps_it);
    tcase_add_test(tcase, invalid_durable_spills_are_refused);
    tcase_add_test(tcase, a_canceled_spill_is_not_found);
    tcase_add_test(tcase, another_user_finds_nothing);
    tcase_add_test(tcase, durable_regions_count_without_a_session);
    tcase_add_test(tcase, parked_regions_count_before_their_session_is_back);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
