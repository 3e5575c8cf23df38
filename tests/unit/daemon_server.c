/* How many sessions there may be: the configuration's bound, and what the process's descriptors allow; and how their
 * requests are numbered. */
#include "base/closer.h"
#include "base/log.h"
#include "daemon/descriptors.h"
#include "daemon/session/server.h"
#include "daemon/watchdog.h"
#include "ipc/proto.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/service.h"

#include <check.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static struct sw_test_service service;

static void setup(void) {
    sw_log_set_level(SW_LOG_ERROR);
    sw_test_service_start(&service);
}

/* ---- descriptors ------------------------------------------------------------------------------------------------- */

static struct sw_fd_budget share(unsigned had, uint32_t max_sessions) {
    service.config.max_sessions = max_sessions;
    service.service.n_descriptors = had;
    service.service.fds = (struct sw_fd_budget){0};
    sw_descriptors_share(&service.service);
    return service.service.fds;
}

/* The rest of the service, all sessions, memories and what waits to be closed never need more than there are. */
START_TEST(no_more_are_promised_than_there_are) {
    const uint64_t own = 256 + SW_PROTO_MAX_FDS; /* and there is no tier that needs some */
    for (unsigned had = 1024; had <= 1 << 20; had += had / 16)
        for (uint32_t max_sessions = 1; max_sessions <= 4096; max_sessions *= 4) {
            const struct sw_fd_budget b = share(had, max_sessions);
            const uint32_t sessions = b.max_sessions < max_sessions ? b.max_sessions : max_sessions;
            ck_assert_uint_ge(b.limit, 96); /* some for memories in any case */
            ck_assert_uint_eq(b.max_closing, (b.limit + b.max_closing) / 4);
            ck_assert_uint_ge(b.max_sessions, had / 8);
            if (had >= own + 128 + had / 8)
                ck_assert_uint_le(own + sessions + b.limit + b.max_closing, had);
            if (had > own + max_sessions + 128) {
                ck_assert_uint_eq(sessions, max_sessions);
                ck_assert_uint_eq(own + sessions + b.limit + b.max_closing, had);
            }
        }
}
END_TEST

/* ---- sessions ---------------------------------------------------------------------------------------------------- */

static char folder[SW_TEST_PATH_BYTES];
static struct sw_server *server;

static int client(void) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)strcpy(address.sun_path, service.config.data_socket);
    const int ret = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(connect(ret, (const struct sockaddr *)(const void *)&address, sizeof address), 0);
    return ret;
}

static void await_sessions(unsigned n) {
    while (service.service.n_sessions != n)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
}

static void ck_refused(int code, const char *text) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg;
    const unsigned before = service.service.n_sessions;
    const uint64_t *n_errors = &service.service.n_errors[sw_err_index(code)], n_before = *n_errors;
    const int peer = client();
    ssize_t n;
    while ((n = recv(peer, packet, sizeof packet, MSG_DONTWAIT)) < 0)
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(service.service.n_sessions, before);
    ck_assert_uint_eq(*n_errors, n_before + 1);
    ck_assert_int_gt(n, 0);
    ck_assert_int_eq(sw_msg_decode(&msg, packet, (size_t)n, NULL), 0);
    ck_assert_uint_eq(msg.header.type, SW_MSG_ERROR);
    ck_assert_uint_eq(msg.header.version, SW_PROTO_OLDEST_VERSION); /* which all clients read */
    ck_assert_ptr_nonnull(memmem(packet, (size_t)n, text, strlen(text)));
    ck_assert_ptr_nonnull(memmem(packet, (size_t)n, sw_err_name(code), strlen(sw_err_name(code))));
    ck_assert_int_eq(recv(peer, packet, sizeof packet, 0), 0);
    (void)close(peer);
}

static const struct {
    uint32_t max_sessions, fds, tenant_sessions;
    int code;
    const char *text;
} limits[] = {
    {3, 100, 100, -SW_ELIMIT, "max_sessions"},
    {100, 3, 100, -SW_ELIMIT, "LimitNOFILE"},
    {100, 100, 3, -SW_ETENANTSESSIONS, "tenant_sessions"},
};

/* One that ends makes room. Each refusal is counted. */
START_TEST(sessions_are_limited_to_the_last_one) {
    int peers[3];
    sw_test_folder(folder);
    (void)snprintf(service.config.data_socket, sizeof service.config.data_socket, "%s/data", folder);
    service.config.tenant_sessions = limits[_i].tenant_sessions;
    service.config.max_sessions = limits[_i].max_sessions;
    service.service.fds.max_sessions = limits[_i].fds;
    ck_assert_int_eq(sw_server_open(&server, &service.service, NULL), 0);
    for (unsigned i = 0; i < 3; i++)
        peers[i] = client();
    await_sessions(3);
    ck_refused(limits[_i].code, limits[_i].text);
    (void)close(peers[1]);
    await_sessions(2);
    peers[1] = client();
    await_sessions(3);
    ck_refused(limits[_i].code, limits[_i].text);
    for (unsigned i = 0; i < 3; i++)
        (void)close(peers[i]);
    await_sessions(0);
    sw_server_abandon(server);
    sw_test_remove(folder);
}
END_TEST

static sem_t is_stuck, go_on;

static void get_stuck(int fd) {
    (void)sem_post(&is_stuck);
    (void)sem_wait(&go_on);
    (void)close(fd);
}

/* While too many descriptors wait to be closed, connections wait, too: nobody is refused. */
START_TEST(connections_wait_for_closed_descriptors) {
    sw_test_folder(folder);
    (void)snprintf(service.config.data_socket, sizeof service.config.data_socket, "%s/data", folder);
    service.config.tenant_sessions = service.config.max_sessions = service.service.fds.max_sessions = 1;
    service.service.fds.max_closing = 0;
    ck_assert_int_eq(sw_server_open(&server, &service.service, NULL), 0);
    ck_assert(sem_init(&is_stuck, 0, 0) == 0 && sem_init(&go_on, 0, 0) == 0);
    ck_assert_int_eq(sw_closer_start(100, NULL), 0);
    sw_closer_end(dup(STDERR_FILENO), 1000000, get_stuck);
    (void)sem_wait(&is_stuck);
    const int peer = client();
    for (unsigned i = 0; i < 3; i++)
        (void)uv_run(&service.loop, i < 2 ? UV_RUN_ONCE : UV_RUN_NOWAIT);
    ck_assert_uint_eq(service.service.n_sessions, 0);
    (void)sem_post(&go_on);
    await_sessions(1);
    (void)close(peer);
    await_sessions(0);
    sw_closer_stop();
    sw_server_abandon(server);
    sw_test_remove(folder);
}
END_TEST

/* ---- the numbers of requests ------------------------------------------------------------------------------------- */

static void request(struct sw_session *session, uint32_t seq) {
    _Alignas(SW_PROTO_ALIGN) uint8_t sent[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE, .seq = seq, .version = session->version}};
    sw_session_packet(session, sent, sw_msg_encode(&msg, sent), NULL, 0);
}

/* They rise by at most 2^20, and wrap around. Lower ones are of requests that are sent again. */
START_TEST(numbers_of_requests_rise_by_small_steps) {
    const uint32_t most = 1 << 20;
    int peer;
    bool closed;
    struct sw_session *session = sw_test_service_session(&service, &peer, &closed);
    uint32_t seq = 0;
    for (unsigned i = 0; i < 6144; i++) {
        uint8_t reply[256];
        request(session, seq += most);
        while (recv(peer, reply, sizeof reply, MSG_DONTWAIT) > 0)
            continue;
    }
    request(session, seq - most);
    request(session, seq);
    ck_assert(!session->closing);
    request(session, seq + most + 1);
    ck_assert(session->closing);
    (void)close(peer);
    sw_test_service_end(&service, session, &closed);
}
END_TEST

/* ---- the watchdog ------------------------------------------------------------------------------------------------ */

enum { PATIENCE_US = 20000 };

static unsigned n_silent;

static void count_silent(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    n_silent += strstr(line, "event=device.silent") != NULL;
}

/* Receives what the service manager is told; returns whether it is a sign of life. */
static bool is_told(int manager) {
    char text[64] = "";
    (void)recv(manager, text, sizeof text - 1, MSG_DONTWAIT);
    return strcmp(text, "WATCHDOG=1") == 0;
}

/* Counts timers by their turn; the watchdog's is a quarter of the time after which the manager gives up. */
static void count_timers(uv_handle_t *handle, void *arg) {
    unsigned *n_turns = arg;
    if (handle->type == UV_TIMER && uv_timer_get_repeat((const uv_timer_t *)handle) == PATIENCE_US / 1000 / 4)
        (*n_turns)++;
}

static atomic_bool is_hung;

static int canary(struct sw_device *device, struct sw_err *err) {
    (void)device;
    return atomic_load(&is_hung) ? sw_err_set(err, -SW_EGPU, SW_SCOPE_DEVICE, "no answer") : 0;
}

/* The device does not answer, for the n-th time, which is logged once. */
static void ck_silent(int manager, unsigned n) {
    while (n_silent < n)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    while (is_told(manager)) /* before it was silent */
        ck_assert_uint_gt(n, 1);
    for (unsigned turns = 0; turns < 4; turns++) {
        (void)uv_run(&service.loop, UV_RUN_ONCE);
        ck_assert_uint_eq(n_silent, n);
        ck_assert(!is_told(manager));
    }
}

/* No sign of life while a device owes one for half of the time after which the manager gives up; then one again. */
START_TEST(a_silent_device_is_not_vouched_for) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    struct sw_watchdog *watchdog = NULL;
    unsigned n_turns = 0;
    char text[24];
    sw_test_folder(folder);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s/notify", folder);
    const int manager = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(manager, (const struct sockaddr *)&address, sizeof address), 0);
    (void)snprintf(text, sizeof text, "%d", PATIENCE_US);
    ck_assert(setenv("NOTIFY_SOCKET", address.sun_path, 1) == 0 && setenv("WATCHDOG_USEC", text, 1) == 0);
    struct sw_device *device = service.service.devices[0];
    struct sw_device_ops ops = *device->ops;
    ops.canary = canary;
    device->ops = &ops;
    atomic_store(&is_hung, true);
    sw_log_set_tap(count_silent, NULL);
    while (sw_engine_silent_us(service.service.engine) <= PATIENCE_US) /* since the start */
        (void)usleep(1000);
    ck_assert_int_eq(sw_watchdog_open(&watchdog, &service.service, NULL), 0);
    ck_assert_ptr_nonnull(watchdog);
    uv_walk(&service.loop, count_timers, &n_turns);
    ck_assert_uint_eq(n_turns, 1);
    for (unsigned n = 1; n <= 2; n++) {
        ck_silent(manager, n);
        atomic_store(&is_hung, false);
        while (!is_told(manager))
            (void)uv_run(&service.loop, UV_RUN_ONCE);
        atomic_store(&is_hung, true);
    }
    sw_log_set_tap(NULL, NULL);
    sw_watchdog_close(watchdog);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    (void)close(manager);
    sw_test_remove(folder);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_server");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, no_more_are_promised_than_there_are);
    tcase_add_loop_test(tests, sessions_are_limited_to_the_last_one, 0, sizeof limits / sizeof limits[0]);
    tcase_add_test(tests, connections_wait_for_closed_descriptors);
    tcase_add_test(tests, numbers_of_requests_rise_by_small_steps);
    tcase_add_test(tests, a_silent_device_is_not_vouched_for);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
