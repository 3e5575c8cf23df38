/* restart.c - GPU memory of every kind while the service is killed, or stopped in order, and started again by a service
 * manager that keeps its descriptors: parked regions come back, the successor unpacks packed ones, the client
 * reconnects by itself, registered memory is handed over again, and no restart costs device memory.
 *
 * Batches of short regions travel by kernels that reach the arena through the host's pointers: that they come back
 * shows that the successor has pinned the slabs it was left. The client is a process of its own, which alone touches
 * CUDA. No other process may use the GPU. $SW_RESTART_ROUNDS: restarts of each kind, for long runs. $SW_TEST_HOST=1: on
 * the host device with memfds, to try the test itself. */
#include "base/assert.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"
#include "tests/lib/parked.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/supervisor.h"

#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N_PLACES = 12, N_BUFFERS = 16, BUFFER_BYTES = 20011, ROUNDS = 5, FLAT_RESTARTS = 20 };
/* Memory that the driver may take for itself, and release at any time. */
#define TOLERANCE_BYTES ((uint64_t)8 << 20)

/* Shared by the two processes. */
static struct shared {
    char socket[96];
    atomic_bool started, stop;
    atomic_bool is_busy;     /* works all the time, else only when asked */
    atomic_uint round, done; /* the round in which all must be compared, and the last one that was */
    atomic_ulong free_bytes; /* of the GPU, then */
    unsigned long n_done, n_restarted, n_lost;
} * shared;

static struct sw_supervisor supervisor;
static bool on_host;
static const char *program;

/* ---- the client -------------------------------------------------------------------------------------------------- */

struct client {
    struct spillway *connection;
    struct sw_parked places[N_PLACES];
    struct sw_parked block; /* registered; its buffers are spilled together */
    struct spillway_buffer buffers[N_BUFFERS];
    struct spillway_request requests[N_BUFFERS]; /* of a region for each of them */
    bool are_out;
    uint64_t random;
};

static struct spillway_error error;

static void count(int rc) {
    shared->n_done += rc == 0;
    shared->n_restarted += rc == -SPILLWAY_ERESTARTED;
    shared->n_lost += rc == -SPILLWAY_ELOST;
}

static enum sw_buffer_kind kind_of(unsigned place) {
    return on_host ? SW_BUFFER_MEMFD
                   : (enum sw_buffer_kind)(SW_BUFFER_CUDA_MALLOC + place % (SW_BUFFER_KIND_NR - SW_BUFFER_CUDA_MALLOC));
}

static void make_buffers(struct client *c) {
    static const uint64_t bytes[] = {33001, 700001, 5000003};
    c->random = 4711;
    for (unsigned i = 0; i < N_PLACES; i++)
        sw_parked_init(&c->places[i], kind_of(i), bytes[i / 4], i);
    sw_parked_init(&c->block, kind_of(0), (uint64_t)N_BUFFERS * BUFFER_BYTES, SW_CONTENT_TEXT);
}

static void connect_to_service(struct client *c) {
    int rc;
    while ((rc = spillway_open(&c->connection, SW_OPTIONS(.socket_path = shared->socket), &error)) == -SPILLWAY_ECONN ||
           rc == -SPILLWAY_ENOSERVICE || rc == -SPILLWAY_ESHUTDOWN)
        sleep_us(1000); /* killed before it had answered */
    MUST(rc == 0, &error);
    while ((rc = spillway_register(c->connection, c->block.buffer->data, c->block.buffer->bytes, &error)) ==
           -SPILLWAY_ERESTARTED)
        continue;
    MUST(rc == 0, &error);
}

static void spill_pieces(struct client *c) {
    struct spillway_result results[N_BUFFERS] = {{.size = sizeof *results}};
    struct spillway_ticket *ticket;
    struct sw_err err;
    for (unsigned i = 0; i < N_BUFFERS; i++) {
        c->buffers[i] = (struct spillway_buffer){.data = (uint8_t *)c->block.buffer->data + (size_t)i * BUFFER_BYTES,
                                                 .bytes = BUFFER_BYTES};
        c->requests[i].region = (struct spillway_region){0};
    }
    sw_requests_of_each(c->requests, c->buffers, N_BUFFERS);
    MUST(spillway_spill(c->connection, c->requests, N_BUFFERS, &ticket, &error) == 0, &error);
    const int rc = spillway_wait(ticket, -1, results, N_BUFFERS, &error);
    spillway_ticket_free(ticket);
    MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    count(rc);
    if (rc < 0) {
        sw_parked_check(&c->block);
        return;
    }
    c->are_out = true;
    sw_requests_take_regions(c->requests, results, N_BUFFERS);
    SW_ASSERT(sw_buffer_fill(c->block.buffer, 0xEE, &err) == 0);
}

static int restore_pieces(struct client *c, unsigned flags) {
    struct spillway_ticket *ticket;
    for (unsigned i = 0; i < N_BUFFERS; i++)
        c->requests[i].flags = flags;
    MUST(spillway_restore(c->connection, c->requests, N_BUFFERS, &ticket, &error) == 0, &error);
    const int rc = spillway_wait(ticket, -1, NULL, 0, &error);
    spillway_ticket_free(ticket);
    MUST(rc == 0 || rc == -SPILLWAY_ERESTARTED, &error);
    count(rc);
    if (rc == 0)
        sw_parked_check(&c->block);
    c->are_out = rc < 0 || flags != 0;
    return rc;
}

static void step(struct client *c, struct sw_parked *p) {
    const uint64_t dice = sw_random(&c->random);
    if (p->state == SW_PARKED_PACKED) {
        count(sw_parked_unpack(c->connection, p));
    } else if (p->state == SW_PARKED_SPILLED) {
        count(sw_parked_restore(c->connection, p, dice % 2));
    } else {
        sw_parked_fill(p, dice >> 8);
        count(dice % 3 ? sw_parked_spill(c->connection, p) : sw_parked_pack(c->connection, p));
    }
}

/* Everything away: a third packed in its place. Until it is, whatever comes between. */
static void park(struct client *c) {
    for (unsigned i = 0; i < N_PLACES; i++)
        while (c->places[i].state == SW_PARKED_IN)
            count(i % 3 ? sw_parked_spill(c->connection, &c->places[i]) : sw_parked_pack(c->connection, &c->places[i]));
    while (!c->are_out)
        spill_pieces(c);
}

/* Everything back, and compared. */
static void bring_back(struct client *c) {
    for (unsigned i = 0; i < N_PLACES; i++)
        while (c->places[i].state != SW_PARKED_IN) {
            struct sw_parked *p = &c->places[i];
            count(p->state == SW_PARKED_PACKED ? sw_parked_unpack(c->connection, p)
                                               : sw_parked_restore(c->connection, p, false));
        }
    while (c->are_out)
        (void)restore_pieces(c, 0);
}

static void compare(struct client *c) {
    for (unsigned i = 0; i < N_PLACES; i++)
        while (c->places[i].state == SW_PARKED_SPILLED && sw_parked_restore(c->connection, &c->places[i], true) < 0)
            count(-SPILLWAY_ERESTARTED);
    while (c->are_out && restore_pieces(c, SPILLWAY_KEEP) < 0)
        continue;
}

static void work(struct client *c) {
    while (!atomic_load(&shared->stop)) {
        const unsigned round = atomic_load(&shared->round);
        if (atomic_load(&shared->done) != round) {
            if (!atomic_load(&shared->is_busy)) { /* this process unpacks what the last one has packed */
                bring_back(c);
                park(c);
            }
            compare(c);
            atomic_store(&shared->free_bytes, sw_buffer_free_bytes());
            atomic_store(&shared->done, round);
        } else if (!atomic_load(&shared->is_busy)) {
            sleep_us(1000);
        } else if (sw_random(&c->random) % N_PLACES == 0) {
            c->are_out ? (void)restore_pieces(c, 0) : spill_pieces(c);
        } else {
            step(c, &c->places[sw_random(&c->random) % N_PLACES]);
        }
    }
}

static __attribute__((noreturn)) void client_main(pid_t parent) {
    static struct client c;
    struct spillway_status status = {.size = sizeof status};
    SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
    while (!atomic_load(&shared->started))
        sleep_us(1000);
    make_buffers(&c);
    connect_to_service(&c);
    work(&c);
    bring_back(&c);
    MUST(spillway_status(c.connection, &status, &error) == 0, &error);
    SW_ASSERT(status.regions == 0 && status.tier_used_bytes == 0);
    spillway_close(c.connection);
    _exit(0);
}

/* ---- the service manager ----------------------------------------------------------------------------------------- */

static pid_t client_pid;

static void start(bool is_busy) {
    static const char *const gpu[] = {"device=cuda", "log_level=warning", "host_tier_bytes=128 MiB", NULL};
    static const char *const host[] = {"log_level=warning", "host_tier_bytes=128 MiB", NULL};
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(shared, MAP_FAILED);
    atomic_store(&shared->is_busy, is_busy);
    const pid_t parent = getpid();
    client_pid = fork();
    ck_assert_int_ge(client_pid, 0);
    if (client_pid == 0)
        client_main(parent);
    sw_supervisor_init(&supervisor, program, on_host ? host : gpu);
    supervisor.handover.watchdog_ms = 4000;
    ck_assert(sw_supervisor_spawn(&supervisor));
    (void)snprintf(shared->socket, sizeof shared->socket, "%s", supervisor.daemon.socket);
    atomic_store(&shared->started, true);
}

/* Waits until the client has compared all that it has parked. Returns the GPU's free memory then. */
static uint64_t await_compared(void) {
    const unsigned round = atomic_fetch_add(&shared->round, 1) + 1;
    while (atomic_load(&shared->done) != round) {
        siginfo_t info = {0};
        ck_assert_int_eq(waitid(P_PID, (id_t)client_pid, &info, WEXITED | WNOHANG | WNOWAIT), 0);
        ck_assert_msg(info.si_pid == 0, "the client has died; it says above, why");
        sleep_us(500);
    }
    return atomic_load(&shared->free_bytes);
}

static void restart(int signal) {
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, signal), signal == SIGKILL ? -SIGKILL : 0);
    ck_assert(sw_supervisor_spawn(&supervisor));
}

static void end(unsigned restarts) {
    int status = -1;
    atomic_store(&shared->stop, true);
    ck_assert_int_eq(waitpid(client_pid, &status, 0), client_pid);
    ck_assert_int_eq(status, 0);
    printf("%u restarts, %lu operations, %lu to be repeated, %lu lost in place\n", restarts, shared->n_done,
           shared->n_restarted, shared->n_lost);
    (void)fflush(stdout);
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGTERM), 0);
    sw_supervisor_end(&supervisor);
    (void)munmap(shared, sizeof *shared);
}

static unsigned rounds_wanted(unsigned rounds) {
    const char *text = getenv("SW_RESTART_ROUNDS");
    return text ? (unsigned)strtoul(text, NULL, 10) : rounds;
}

/* _i: killed, or stopped in order. */
START_TEST(restarted_under_load) {
    const unsigned rounds = rounds_wanted(ROUNDS);
    uint64_t seed = (uint64_t)_i + 1;
    start(true);
    (void)await_compared();
    for (unsigned round = 0; round < rounds; round++) {
        sleep_us(sw_random(&seed) % 200000);
        restart(_i ? SIGTERM : SIGKILL);
        (void)await_compared();
    }
    end(rounds);
}
END_TEST

/* Everything is parked, a third of it packed, by one process, and brought back by the next. */
START_TEST(regions_stay_parked_over_restarts) {
    start(false);
    (void)await_compared();
    for (int i = 0; i < 4; i++) {
        restart(i % 2 ? SIGTERM : SIGKILL);
        (void)await_compared();
    }
    ck_assert_uint_eq(shared->n_lost, 0); /* nothing was under way */
    end(4);
}
END_TEST

START_TEST(device_memory_stays_the_same) {
    const unsigned restarts = rounds_wanted(FLAT_RESTARTS);
    start(false);
    (void)await_compared();
    restart(SIGKILL); /* so that both figures are of a process that has recovered regions */
    const uint64_t before = await_compared();
    for (unsigned i = 0; i < restarts; i++) {
        restart(i % 2 ? SIGTERM : SIGKILL);
        const uint64_t now = await_compared();
        ck_assert_msg(now + TOLERANCE_BYTES >= before, "restart %u: %llu bytes free, were %llu", i,
                      (unsigned long long)now, (unsigned long long)before);
    }
    end(restarts + 1);
}
END_TEST

static unsigned watchdogs(void) {
    (void)pthread_mutex_lock(&supervisor.lock);
    const unsigned n = supervisor.n_watchdog;
    (void)pthread_mutex_unlock(&supervisor.lock);
    return n;
}

/* The watchdog is fed only while the GPU answers the canary: the successor's does, too. */
START_TEST(canary_of_the_successor) {
    start(true);
    for (int i = 0; i < 2; i++) {
        const unsigned before = watchdogs();
        while (watchdogs() < before + 2) /* ends with the test's time limit, if not */
            sleep_us(10000);
        restart(SIGKILL);
    }
    (void)await_compared();
    end(2);
}
END_TEST

int main(int argc, char **argv) {
    on_host = getenv("SW_TEST_HOST") != NULL;
    program = argc > 1 ? argv[1] : SW_SPILLWAYD_PATH;
    if (!on_host && sw_parked_usable_kinds() < SW_BUFFER_KIND_NR) {
        (void)puts("skipped: no GPU that can be used");
        return 77;
    }
    Suite *suite = suite_create("gpu restart");
    TCase *tcase = tcase_create("restart");
    tcase_set_timeout(tcase, 120 + 5 * rounds_wanted(0));
    tcase_add_loop_test(tcase, restarted_under_load, 0, 2);
    tcase_add_test(tcase, regions_stay_parked_over_restarts);
    tcase_add_test(tcase, device_memory_stays_the_same);
    tcase_add_test(tcase, canary_of_the_successor);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
