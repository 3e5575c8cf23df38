/* The bytes that the service keeps for a tenant are limited. For each kind of memory a client fills its budget with
 * that kind alone. Then the heap has grown by no more than was counted, another tenant still has room, and all of it is
 * given back at the end. */
#include "base/log.h"
#include "spill/engine_state.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"
#include "tests/lib/transfer.h"
#include <check.h>
#include <fcntl.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { OTHERS_UID = 77777, MEMORY_BYTES = 1 << 20, MOST_SESSIONS = 64, POOL_BYTES = 8 << 20, SLACK_BYTES = 1 << 20 };

static struct sw_test_service service;
static size_t heap_before;

struct client {
    struct sw_session *session;
    int peer;
    bool closed;
    uint32_t seq;
};
static struct client clients[MOST_SESSIONS];
static unsigned n_clients;

static void setup(void) {
    sw_test_service_start(&service);
    service.config.max_sessions = MOST_SESSIONS;
    service.config.tenant_sessions = MOST_SESSIONS;
    service.config.max_session_memories = 100000;
    service.config.max_session_operations = 60000;
    service.service.engine->config.max_owner_mems = 100000;
    service.service.engine->config.max_owner_regions = 100000;
    service.service.fds = (struct sw_fd_budget){.limit = 100000, .max_closing = 1000};
    atomic_store(&service.service.kept.limit_bytes, POOL_BYTES);
    n_clients = 0;
}

static void open_client(struct client *ret) {
    memset(ret, 0, sizeof *ret);
    ret->session = sw_test_service_session(&service, &ret->peer, &ret->closed);
}

static struct client *add_client(void) {
    struct client *client = &clients[n_clients++];
    open_client(client);
    return client;
}

static void send_msg(struct client *c, struct sw_msg *msg, int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = SW_PROTO_OLDEST_VERSION;
    msg->header.seq = ++c->seq;
    sw_session_packet(c->session, packet, sw_msg_encode(msg, packet), fds, n_fds);
}

/* Returns the code of the next reply. */
static int await(const struct client *c) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg;
    struct sw_err err;
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    while (sw_packet_receive(c->peer, packet, &bytes, fds, &n_fds) == -SW_EAGAIN) {
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
        (void)usleep(50);
    }
    ck_assert_uint_gt(bytes, 0);
    ck_assert_int_eq(sw_msg_decode(&msg, packet, bytes, NULL), 0);
    if (msg.header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &msg.u.error);
    return err.code;
}

static int call(struct client *c, struct sw_msg *msg, int *fds, unsigned n_fds) {
    send_msg(c, msg, fds, n_fds);
    return await(c);
}

static int open_memory(struct client *c, uint32_t mem, uint32_t n_parts) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_OPEN}};
    msg.u.mem_open = (struct sw_msg_mem_open){
        .mem = mem, .kind = n_parts > 1 ? SW_MEM_CUDA_VMM : SW_MEM_MEMFD, .n_parts = n_parts, .bytes = MEMORY_BYTES};
    return call(c, &msg, NULL, 0);
}

/* Hands over a memory of one part, which is mapped then. */
static int hand_over(struct client *c, uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_PARTS}};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(ftruncate(fd, MEMORY_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    msg.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {MEMORY_BYTES}};
    const int rc = open_memory(c, mem, 1);
    if (rc == 0)
        return call(c, &msg, &fd, 1);
    (void)close(fd);
    return rc;
}

static void send_spill(struct client *c, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL}};
    msg.u.spill = (struct sw_msg_spill){.mem = 1, .bytes = bytes};
    send_msg(c, &msg, NULL, 0);
}

static uint64_t used_bytes(void) {
    return atomic_load(&service.service.kept.used_bytes);
}

/* Another tenant, as one of the service's, without a session. */
static void ck_others_have_room(void) {
    struct sw_tenant *other = NULL;
    ck_assert_int_eq(sw_tenant_join(&service.service, &(struct sw_peer){.uid = OTHERS_UID}, -1, &other, NULL), 0);
    ck_assert_int_eq(sw_budget_take(&other->quota.kept, POOL_BYTES / 8, "others", NULL), 0);
    sw_budget_give(&other->quota.kept, POOL_BYTES / 8);
    sw_tenant_leave(other);
}

static void ck_brimful(void) {
    const size_t heap = mallinfo2().uordblks + mallinfo2().hblkhd;
    ck_assert_uint_gt(used_bytes(), POOL_BYTES / 2);
    ck_assert_uint_le(used_bytes(), POOL_BYTES * 3 / 4);
    ck_assert_msg(heap <= heap_before + used_bytes() + SLACK_BYTES, "heap grew by %zu bytes, %" PRIu64 " counted",
                  heap - heap_before, used_bytes());
    sw_engine_check(service.service.engine);
    ck_others_have_room();
}

/* Ends all sessions: nothing is left. */
static void ck_given_back(void) {
    for (unsigned i = 0; i < n_clients; i++)
        if (!clients[i].closed)
            sw_session_close(clients[i].session, "test");
    for (unsigned i = 0; i < n_clients; i++) {
        while (!clients[i].closed)
            (void)uv_run(&service.loop, UV_RUN_ONCE);
        (void)close(clients[i].peer);
    }
    sw_engine_check(service.service.engine);
    sw_tenants_close(&service.service);
    while (!sw_list_empty(&service.service.tenants))
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(used_bytes(), 0);
    ck_assert_uint_eq(service.service.fds.used, 0);
}

static struct client *begin(void) {
    struct client *client = add_client();
    heap_before = mallinfo2().uordblks + mallinfo2().hblkhd;
    return client;
}

START_TEST(memories_whose_parts_never_arrive) {
    struct client *c = begin();
    int rc = 0;
    uint32_t n = 0;
    while (rc == 0)
        rc = open_memory(c, ++n, SW_MEM_MAX_PARTS);
    ck_assert_int_eq(rc, -SW_ETENANTMEMORY);
    ck_brimful();
    /* Refused memories stay by name, and count, too. */
    while ((rc = open_memory(c, ++n, SW_MEM_MAX_PARTS)) == -SW_ETENANTMEMORY && n < 100000)
        ;
    ck_assert_uint_le(used_bytes(), POOL_BYTES * 3 / 4);
    ck_given_back();
}
END_TEST

START_TEST(announced_memories_are_counted) {
    struct client *c = begin();
    int rc = 0;
    for (uint32_t mem = 1; rc == 0; mem++)
        rc = open_memory(c, mem, 1);
    ck_assert_int_eq(rc, -SW_ETENANTMEMORY);
    ck_brimful();
    ck_given_back();
}
END_TEST

/* What an operation on one buffer takes. */
enum { OP_BYTES = sizeof(struct sw_op) + sizeof(struct sw_job) + sizeof(struct sw_buffer) };

/* Uses the tenant's share up but for `left` bytes, as if by memories; to be given back. */
static uint64_t use_up(const struct client *c, uint64_t left) {
    struct sw_budget *kept = &c->session->tenant->quota.kept;
    const uint64_t bytes = POOL_BYTES * 3 / 4 - used_bytes() - left;
    ck_assert_int_eq(sw_budget_take(kept, bytes, "test", NULL), 0);
    return bytes;
}

static void spill_batch(struct client *c) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BATCH}};
    sw_msg_init(&msg, SW_MSG_SPILL_BATCH);
    msg.u.spill_batch.mem = 1;
    msg.u.spill_batch.count = SW_PROTO_MAX_BATCH;
    send_msg(c, &msg, NULL, 0);
}

/* All before the worker begins: none of them can end, and not all of them are accepted. */
START_TEST(operations_in_flight) {
    enum { N = 8, RECORDS_BYTES = 1024 };
    struct client *c = begin();
    struct sw_budget *kept = &c->session->tenant->quota.kept;
    unsigned n_refused = 0;
    ck_assert_int_eq(hand_over(c, 1), 0);
    const uint64_t bytes = use_up(c, 4 * OP_BYTES), before = used_bytes();
    sw_engine_hold(c->session->service->engine, true);
    for (unsigned i = 0; i < N; i++)
        send_spill(c, 1000);
    ck_assert_uint_gt(used_bytes(), before + 2 * OP_BYTES);
    ck_brimful();
    sw_budget_give(kept, RECORDS_BYTES); /* for the records of chunks of at least one */
    sw_engine_release(c->session->service->engine);
    for (unsigned i = 0; i < N; i++) {
        const int rc = await(c);
        ck_assert(rc == 0 || rc == -SW_ETENANTMEMORY);
        n_refused += rc != 0;
    }
    ck_assert(n_refused >= N - 4 && n_refused < N);
    sw_budget_give(kept, bytes - RECORDS_BYTES);
    ck_given_back();
}
END_TEST

/* Their records are allocated when the worker makes them, so accepted operations fail then. */
START_TEST(records_of_chunks) {
    struct client *c = begin();
    ck_assert_int_eq(hand_over(c, 1), 0);
    const uint64_t before = used_bytes();
    sw_engine_hold(c->session->service->engine, true); /* the worker does not get it yet */
    send_spill(c, 1000);
    const uint64_t accepted_bytes = used_bytes() - before;
    sw_engine_release(c->session->service->engine);
    ck_assert_int_eq(await(c), 0);
    const uint64_t bytes = use_up(c, accepted_bytes + 50);
    send_spill(c, 1000);
    ck_assert_uint_eq(c->session->n_operations, 1);
    ck_assert_int_eq(await(c), -SW_ETENANTMEMORY);
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    send_spill(c, 1000);
    ck_assert_int_eq(await(c), 0);
    ck_given_back();
}
END_TEST

START_TEST(open_memories_are_counted) {
    struct client *c = begin();
    ck_assert_int_eq(hand_over(c, 1), 0);
    const uint64_t bytes = use_up(c, 2 * sizeof(struct sw_mem));
    ck_assert_int_eq(hand_over(c, 2), 0);
    ck_assert_int_eq(hand_over(c, 3), -SW_ETENANTMEMORY);
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
    msg.u.mem_close.mem = 2;
    ck_assert_int_eq(call(c, &msg, NULL, 0), 0);
    ck_assert_int_eq(hand_over(c, 4), 0);
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    ck_given_back();
}
END_TEST

static int hand_over_order_page(struct client *c) {
    struct sw_msg msg = {.header = {.type = SW_MSG_ORDER_PAGE}};
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(ftruncate(fd, (off_t)SW_ORDER_MAX_BYTES) == 0 &&
              fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    msg.u.order_page.bytes = SW_ORDER_MAX_BYTES;
    return call(c, &msg, &fd, 1);
}

static void send_spill_that_waits(struct client *c) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL}};
    msg.u.spill = (struct sw_msg_spill){.mem = 1, .bytes = 1000, .flags = SW_REQ9_ORDER, .order_value = 1};
    send_msg(c, &msg, NULL, 0);
}

/* A page takes the place of the one before, which stays as long as an operation waits by it. */
START_TEST(order_pages_by_which_operations_wait) {
    struct client *c = begin();
    int rc = 0;
    unsigned n = 0;
    ck_assert_int_eq(hand_over(c, 1), 0);
    const uint64_t before = used_bytes();
    ck_assert_int_eq(hand_over_order_page(c), 0);
    const uint64_t with_one = used_bytes();
    ck_assert_uint_ge(with_one - before, SW_ORDER_MAX_BYTES);
    ck_assert_int_eq(hand_over_order_page(c), 0);
    ck_assert_uint_eq(used_bytes(), with_one);
    const uint64_t bytes = use_up(c, 1 << 20);
    for (; rc == 0; n++) {
        send_spill_that_waits(c);
        rc = hand_over_order_page(c);
    }
    ck_assert_int_eq(rc, -SW_ETENANTMEMORY);
    ck_assert_uint_le(n, (1 << 20) / SW_ORDER_MAX_BYTES);
    ck_brimful();
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    ck_given_back();
}
END_TEST

START_TEST(batches_in_flight) {
    struct client *c = begin();
    ck_assert_int_eq(hand_over(c, 1), 0);
    const uint64_t bytes = use_up(c, 100000); /* fewer than one batch is operations */
    spill_batch(c);
    ck_assert_int_eq(await(c), -SW_ETENANTMEMORY);
    ck_assert_uint_le(used_bytes(), POOL_BYTES * 3 / 4);
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    ck_given_back();
}
END_TEST

/* The peer reads none of them. */
START_TEST(replies_that_are_not_read) {
    struct client *c = begin();
    const uint64_t bytes = use_up(c, 200000);
    for (unsigned i = 0; !c->session->closing; i++) {
        struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
        send_msg(c, &msg, NULL, 0);
        ck_assert_uint_le(used_bytes(), POOL_BYTES * 3 / 4);
        ck_assert_uint_lt(i, 10000);
    }
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    ck_given_back();
}
END_TEST

START_TEST(regions_and_their_names) {
    struct client *c = begin();
    struct sw_msg msg;
    int rc = 0;
    ck_assert_int_eq(hand_over(c, 1), 0);
    const uint64_t before = used_bytes(), bytes = use_up(c, 8000);
    for (unsigned i = 0; rc == 0; i++) {
        msg = (struct sw_msg){.header = {.type = i < 2 ? SW_MSG_SPILL_DURABLE : SW_MSG_SPILL}};
        if (i < 2) {
            msg.u.spill_durable = (struct sw_msg_spill_durable){.mem = 1, .bytes = 10};
            (void)snprintf((char *)msg.u.spill_durable.name, SW_PROTO_NAME_BYTES, "name %u", i);
        } else {
            msg.u.spill = (struct sw_msg_spill){.mem = 1, .bytes = 10};
        }
        rc = call(c, &msg, NULL, 0);
    }
    ck_assert_int_eq(rc, -SW_ETENANTMEMORY);
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    ck_assert_uint_gt(used_bytes(), before + 2 * sizeof(struct sw_region));
    ck_others_have_room();
    sw_session_close(c->session, "test"); /* durable ones stay, and count */
    while (!c->closed)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_ge(used_bytes(), 2 * sizeof(struct sw_region));
    sw_tenants_close(&service.service);
    while (!sw_list_empty(&service.service.tenants))
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(used_bytes(), 0);
}
END_TEST

/* A refused peer receives an error of seq 0. */
static int refusal(void) {
    struct sw_session *session = NULL;
    struct sw_err err = {0};
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    const int rc = sw_session_open(&session, &service.service, pair[0], 1, NULL, NULL, &err);
    ck_assert_int_lt(rc, 0);
    ck_assert_int_eq(err.scope, SW_SCOPE_SESSION);
    (void)close(pair[1]);
    return rc;
}

START_TEST(sessions) {
    struct client *c = begin();
    const uint64_t session_bytes = used_bytes(), bytes = use_up(c, 2 * session_bytes);
    ck_assert_uint_ge(session_bytes, sizeof(struct sw_session));
    (void)add_client();
    (void)add_client();
    ck_assert_int_eq(refusal(), -SW_ETENANTMEMORY);
    sw_budget_give(&c->session->tenant->quota.kept, bytes);
    (void)add_client();
    ck_given_back();
}
END_TEST

/* ---- shares ------------------------------------------------------------------------------------------------------ */

START_TEST(one_tenant_leaves_sessions_to_others) {
    struct sw_tenant *other = NULL;
    service.config.max_sessions = 8;
    service.config.tenant_sessions = 0;
    for (int i = 0; i < 6; i++) {
        (void)add_client();
        service.service.n_sessions++; /* as the server counts */
    }
    ck_assert_int_eq(refusal(), -SW_ETENANTSESSIONS);
    ck_assert_int_eq(sw_tenant_join(&service.service, &(struct sw_peer){.uid = OTHERS_UID}, -1, &other, NULL), 0);
    sw_tenant_leave(other);
    service.config.tenant_sessions = 8;
    (void)add_client();
    ck_given_back();
}
END_TEST

START_TEST(one_tenant_leaves_regions_to_others) {
    struct client *c = begin();
    struct sw_quota others = {0};
    struct sw_owner *owner;
    int rc = 0;
    unsigned n = 0;
    ck_assert_int_eq(hand_over(c, 1), 0);
    for (; rc == 0; n++) {
        send_spill(c, 10);
        rc = await(c);
    }
    ck_assert_int_eq(rc, -SW_ETENANTREGIONS);
    ck_assert_uint_eq(n - 1, 48); /* of 64 */
    ck_assert_int_eq(sw_owner_open(service.service.engine, &owner, NULL), 0);
    sw_owner_set_quota(owner, &others);
    struct sw_err err = {0};
    struct sw_op *op = NULL;
    struct sw_mem *mem =
        c->session->owner->mems.next ? SW_CONTAINER_OF(c->session->owner->mems.next, struct sw_mem, node) : NULL;
    const struct sw_range range = {.mem = mem, .bytes = 10};
    ck_assert_int_eq(sw_admit_spill(owner, SW_TRANSFER(&range, 1), &op, &err), 0);
    sw_op_free(op);
    sw_owner_close(owner, NULL, NULL);
    ck_given_back();
}
END_TEST

/* ---- time and lines ---------------------------------------------------------------------------------------------- */

START_TEST(a_session_without_hello_ends) {
    struct client *c;
    service.service.hello_ms = 20;
    c = add_client(); /* counts as greeted */
    struct client *silent = add_client();
    silent->session->greeted = false;
    ck_assert_int_eq(await(silent), -SW_ELIMIT);
    while (!silent->closed)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert(!c->closed);
    /* One whose HELLO waits while the loop is held up is served. */
    struct client *late = add_client();
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO, .seq = 1}};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    late->session->greeted = false;
    msg.header.version = SW_PROTO_OLDEST_VERSION;
    msg.u.hello.version = SW_PROTO_OLDEST_VERSION;
    ck_assert_int_eq(sw_packet_send(late->peer, packet, sw_msg_encode(&msg, packet), NULL, 0), 0);
    (void)usleep(50000);
    ck_assert_int_eq(await(late), 0);
    ck_assert(late->session->greeted && !late->session->closing);
    ck_given_back();
}
END_TEST

static unsigned n_failed, n_left_out;

static void count_lines(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    n_failed += strstr(line, "event=request.failed") != NULL;
    n_left_out += strstr(line, "event=log.left_out") != NULL;
}

START_TEST(failures_do_not_fill_the_log) {
    struct client *c = begin();
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
    n_failed = n_left_out = 0;
    sw_log_set_tap(count_lines, NULL);
    for (int i = 0; i < 1000; i++)
        ck_assert_int_eq(call(c, &msg, NULL, 0), -SW_ENOENT);
    sw_log_set_tap(NULL, NULL);
    ck_assert_uint_eq(n_failed, 10);
    ck_given_back();
}
END_TEST

int main(void) {
    TCase *brims = tcase_create("brims");
    tcase_add_checked_fixture(brims, setup, NULL);
    tcase_add_test(brims, memories_whose_parts_never_arrive);
    tcase_add_test(brims, announced_memories_are_counted);
    tcase_add_test(brims, open_memories_are_counted);
    tcase_add_test(brims, records_of_chunks);
    tcase_add_test(brims, operations_in_flight);
    tcase_add_test(brims, order_pages_by_which_operations_wait);
    tcase_add_test(brims, batches_in_flight);
    tcase_add_test(brims, replies_that_are_not_read);
    tcase_add_test(brims, regions_and_their_names);
    tcase_add_test(brims, sessions);
    TCase *shares = tcase_create("shares");
    tcase_add_checked_fixture(shares, setup, NULL);
    tcase_add_test(shares, one_tenant_leaves_sessions_to_others);
    tcase_add_test(shares, one_tenant_leaves_regions_to_others);
    tcase_add_test(shares, a_session_without_hello_ends);
    tcase_add_test(shares, failures_do_not_fill_the_log);
    Suite *suite = suite_create("budget");
    suite_add_tcase(suite, brims);
    suite_add_tcase(suite, shares);
    return sw_test_run(suite, CK_FORK);
}
