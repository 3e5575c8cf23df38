/* A session from the inside: deferred replies, the queue of replies and its bound, the failure of every allocation. */
#include "base/alloc.h"
#include "base/closer.h"
#include "spill/engine_state.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"
#include <check.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

static struct sw_test_service service;
static struct sw_session *session;
static int peer;
static bool closed;

static void setup(void) {
    sw_test_service_start(&service);
    session = sw_test_service_session(&service, &peer, &closed);
}

static void teardown(void) {
    sw_test_service_end(&service, session, &closed);
    (void)close(peer);
}

/* Next reply, or its absence (-1); runs the loop in between. */
static int receive(struct sw_msg *ret) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    const int rc = sw_packet_receive(peer, packet, &bytes, fds, &n_fds);
    if (rc < 0 || bytes == 0)
        return -1;
    ck_assert_int_eq(sw_msg_decode(ret, packet, bytes, NULL), 0);
    return 0;
}

static bool is_hung_up(void) {
    struct pollfd end = {.fd = peer, .events = POLLRDHUP};
    return poll(&end, 1, 0) == 1;
}

/* Defers and sends `n` replies, from seq 1; the peer reads none. */
static void answer(uint32_t n) {
    for (uint32_t seq = 1; seq <= n && !session->closing; seq++) {
        struct sw_msg request = {.header = {.type = SW_MSG_MEM_CLOSE, .seq = seq}};
        struct sw_msg ok = {.header = {.type = SW_MSG_OK}};
        struct sw_deferred_reply *deferred = NULL;
        ck_assert_int_eq(sw_session_defer_reply(session, &request, &deferred, NULL), 0);
        sw_session_finish_reply(deferred, &ok, NULL);
    }
}

START_TEST(queued_replies_arrive_in_order) {
    enum { REPLIES = 2000 };
    struct sw_msg msg;
    answer(REPLIES);
    ck_assert(!session->closing);
    ck_assert_uint_gt(session->queued_bytes, 0); /* more than the socket holds */
    for (uint32_t seq = 1; seq <= REPLIES;) {
        if (receive(&msg) < 0) {
            ck_assert_int_ge(uv_run(&service.loop, UV_RUN_NOWAIT), 0);
            continue;
        }
        ck_assert_uint_eq(msg.header.seq, seq);
        seq++;
    }
    ck_assert_uint_eq(session->queued_bytes, 0);
}
END_TEST

static unsigned n_acknowledged;

void __real_sw_owner_acknowledged(struct sw_owner *owner);
void __wrap_sw_owner_acknowledged(struct sw_owner *owner);
void __wrap_sw_owner_acknowledged(struct sw_owner *owner) {
    n_acknowledged++;
    __real_sw_owner_acknowledged(owner);
}

/* What a reply reports is forgotten only when the socket has all replies. */
START_TEST(replies_that_wait_acknowledge_nothing) {
    enum { REPLIES = 2000 };
    struct sw_msg msg;
    answer(REPLIES);
    const unsigned n = n_acknowledged;
    ck_assert(n > 0 && n < REPLIES);
    for (uint32_t seq = 1; seq <= REPLIES; seq++) {
        while (receive(&msg) < 0)
            ck_assert_int_ge(uv_run(&service.loop, UV_RUN_NOWAIT), 0);
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
        ck_assert_uint_eq(n_acknowledged, session->queued_bytes ? n : n + 1);
    }
    ck_assert_uint_eq(n_acknowledged, n + 1);
}
END_TEST

/* As many replies wait as the peer may have requests in flight: no more requests are read, until it has read one. */
START_TEST(requests_wait_for_replies_that_are_not_read) {
    enum { MOST = 3 };
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE, .seq = 5000, .version = SW_PROTO_OLDEST_VERSION}};
    service.config.max_session_operations = MOST;
    while (session->n_queued < MOST)
        answer(1);
    ck_assert_int_eq(sw_packet_send(peer, packet, sw_msg_encode(&msg, packet), NULL, 0), 0);
    for (int i = 0; i < 20; i++)
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(session->n_requests, 0);
    while (receive(&msg) == 0)
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    while (session->n_requests == 0)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
}
END_TEST

START_TEST(the_queue_is_limited) {
    answer(UINT32_MAX);
    ck_assert(session->closing);
    ck_assert_uint_eq(session->queued_bytes, 0); /* dropped with the session */
}
END_TEST

START_TEST(deferred_reply_outlives_the_peer) {
    struct sw_msg request = {.header = {.type = SW_MSG_SPILL, .seq = 1}}, ok = {.header = {.type = SW_MSG_OK}};
    struct sw_deferred_reply *deferred = NULL, *same = NULL;
    struct sw_err err;
    ck_assert_int_eq(sw_session_defer_reply(session, &request, &deferred, &err), 0);
    ck_assert_int_eq(sw_session_defer_reply(session, &request, &same, &err), -SW_EPROTO);
    ck_assert_int_eq(err.scope, SW_SCOPE_SESSION);
    sw_session_close(session, "test");
    for (int i = 0; i < 10; i++)
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert(!closed && !is_hung_up()); /* the session waits for its deferred reply, and so does the client */
    sw_session_finish_reply(deferred, &ok, NULL);
    ck_assert(closed && is_hung_up());
}
END_TEST

/* Hands over a memfd for one operation and asks for a spill of it. */
static void hand_over_and_spill(uint32_t mem) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msgs[3] = {{.header = {.type = SW_MSG_MEM_OPEN, .seq = 1}},
                             {.header = {.type = SW_MSG_MEM_PARTS, .seq = 2}},
                             {.header = {.type = SW_MSG_SPILL, .seq = 3}}};
    msgs[0].u.mem_open =
        (struct sw_msg_mem_open){.mem = mem, .kind = SW_MEM_MEMFD, .n_parts = 1, .once = 1, .bytes = 9};
    msgs[1].u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {9}};
    msgs[2].u.spill = (struct sw_msg_spill){.mem = mem, .bytes = 9};
    for (int i = 0; i < 3 && !session->closing; i++) {
        int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        ck_assert_int_eq(ftruncate(fd, 9), 0);
        ck_assert_int_ge(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK), 0);
        if (i != 1)
            (void)close(fd);
        msgs[i].header.version = SW_PROTO_OLDEST_VERSION;
        sw_session_packet(session, packet, sw_msg_encode(&msgs[i], packet), &fd, i == 1);
    }
}

/* The same; every request is answered, or the session has ended. */
static void spill_once(uint32_t mem) {
    hand_over_and_spill(mem);
    for (int replies = 0; replies < 3 && !session->closing;) {
        struct sw_msg msg;
        if (receive(&msg) == 0)
            replies++;
        else
            (void)uv_run(&service.loop, UV_RUN_ONCE);
    }
}

static void ignore(void *arg) {
    (void)arg;
}

/* A refused memory waits for its close, an unused one for its unmapping. Nothing of either may stay. */
static void close_memory(uint32_t mem) {
    struct sw_engine_stats stats;
    struct sw_err err;
    (void)sw_memtable_close(&session->mems, mem, ignore, NULL, &err);
    for (sw_engine_stats(service.service.engine, &stats); stats.n_mems && !closed;) {
        (void)uv_run(&service.loop, UV_RUN_ONCE);
        sw_engine_stats(service.service.engine, &stats);
    }
}

START_TEST(every_allocation_may_fail) {
    for (unsigned long n = 1; n <= 16; n++) {
        if (session->closing) { /* it could not go on without the memory; the next one can */
            teardown();
            session = sw_test_service_session(&service, &peer, &closed);
        }
        sw_alloc_fail_nth(n);
        spill_once((uint32_t)n);
        sw_alloc_fail_nth(0);
        close_memory((uint32_t)n);
    }
}
END_TEST

/* A spill that is refused gives its memory back to the worker, which may be busy: until it has closed the descriptor
 * that counts, or a client that goes on like this fills the table. */
static void set_flag(struct sw_session *other, void *flag) {
    (void)other;
    *(bool *)flag = true;
}

/* What its opening has counted for the tenant is given back, whichever allocation fails. */
START_TEST(a_session_that_cannot_open_costs_nothing) {
    struct sw_tenant *tenant = session->tenant;
    const unsigned long long kept_bytes = atomic_load(&tenant->quota.kept.used_bytes);
    const unsigned fds = sw_count_fds();
    struct sw_session *other = NULL;
    struct sw_err err;
    int pair[2], rc = -1;
    unsigned long n = 0;
    bool has_ended = false;
    while (rc < 0) {
        ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
        sw_alloc_fail_nth(++n);
        rc = sw_session_open(&other, &service.service, pair[0], 2, set_flag, &has_ended, &err);
        sw_alloc_fail_nth(0);
        if (rc == 0)
            break;
        ck_assert_int_eq(rc, -SW_ENOMEM);
        (void)close(pair[1]);
        ck_assert_uint_eq(atomic_load(&tenant->quota.kept.used_bytes), kept_bytes);
        ck_assert_uint_eq(tenant->n_sessions, 1);
    }
    ck_assert_uint_gt(n, 2);
    sw_session_close(other, "end of test");
    while (!has_ended)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    (void)close(pair[1]);
    ck_assert_uint_eq(atomic_load(&tenant->quota.kept.used_bytes), kept_bytes);
    while (sw_closer_waiting_all() > 0)
        (void)usleep(1000);
    ck_assert_uint_eq(sw_count_fds(), fds);
}
END_TEST

START_TEST(descriptors_of_refused_memories_count_until_closed) {
    const struct sw_fd_budget *budget = &service.service.fds;
    const uint64_t most = service.config.max_session_operations;
    service.config.max_session_operations = 0;
    for (uint32_t mem = 1; mem <= 2; mem++) {
        hand_over_and_spill(mem);
        ck_assert_uint_eq(budget->used, mem);
        ck_assert_uint_eq(session->tenant->fds.used, mem);
    }
    close_memory(1);
    ck_assert_uint_eq(budget->used, 0);
    ck_assert_uint_eq(session->tenant->fds.used, 0);
    /* The same if the session ends before. */
    hand_over_and_spill(3);
    sw_session_close(session, "test");
    ck_assert_uint_eq(budget->used, 1);
    while (!closed)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(budget->used, 0);
    service.config.max_session_operations = most;
}
END_TEST

/* Sends the message as a peer would, with copies of a memfd. */
static void send_from_peer(struct sw_msg *msg, uint32_t seq, int fd, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = fd;
    msg->header.version = SW_PROTO_OLDEST_VERSION;
    msg->header.seq = seq;
    ck_assert_int_eq(sw_packet_send(peer, packet, sw_msg_encode(msg, packet), fds, n_fds), 0);
}

static void ck_answer(uint32_t seq, int code, enum sw_scope scope) {
    struct sw_msg msg;
    struct sw_err err = {0};
    while (receive(&msg) < 0)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    if (msg.header.type == SW_MSG_ERROR)
        sw_msg_to_err(&err, &msg.u.error);
    ck_assert_uint_eq(msg.header.seq, seq);
    ck_assert_int_eq(err.code, code);
    ck_assert_int_eq(err.scope, scope);
}

/* The table of descriptors is full. A request with descriptors is then refused, but its session and regions stay. */
START_TEST(a_full_descriptor_table_fails_only_the_request) {
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}},
                  spill = {.header = {.type = SW_MSG_SPILL}}, status = {.header = {.type = SW_MSG_STATUS}};
    const int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(ftruncate(fd, 4096) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    open.u.mem_open = (struct sw_msg_mem_open){.mem = 1, .kind = SW_MEM_MEMFD, .n_parts = 1, .once = 1, .bytes = 4096};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = 1, .count = 1, .part_bytes = {4096}};
    spill.u.spill = (struct sw_msg_spill){.mem = 1, .bytes = 4096};
    sw_leave_fds(0);
    send_from_peer(&open, 1, -1, 0);
    send_from_peer(&parts, 2, fd, 1);
    send_from_peer(&spill, 3, -1, 0); /* without waiting, as the library does */
    ck_answer(1, 0, SW_SCOPE_REQUEST);
    ck_answer(2, -SW_ELIMIT, SW_SCOPE_REQUEST);
    ck_answer(3, -SW_ELIMIT, SW_SCOPE_REQUEST);
    send_from_peer(&status, 4, fd, 1); /* which takes none */
    ck_answer(4, -SW_EFDS, SW_SCOPE_REQUEST);
    ck_assert(!session->closing && session->mems.mems.n == 0 && service.service.fds.used == 0);
    sw_leave_all_fds();
    send_from_peer(&open, 5, -1, 0);
    send_from_peer(&parts, 6, fd, 1);
    send_from_peer(&spill, 7, -1, 0);
    for (uint32_t seq = 5; seq <= 7; seq++)
        ck_answer(seq, 0, SW_SCOPE_REQUEST);
    send_from_peer(&parts, 8, fd, SW_PROTO_MAX_FDS); /* as many as may be: they are of no memory, that is all */
    ck_answer(8, -SW_ENOENT, SW_SCOPE_REQUEST);
    (void)close(fd);
}
END_TEST

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static void send_msg(struct sw_msg *msg, uint32_t seq, int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = SW_PROTO_OLDEST_VERSION;
    msg->header.seq = seq;
    sw_session_packet(session, packet, sw_msg_encode(msg, packet), fds, n_fds);
}

static struct sw_region_id ids[SW_PROTO_MAX_BATCH]; /* of the last batch that succeeded */

/* The code of the next reply. */
static int await(void) {
    struct sw_msg msg;
    struct sw_err err;
    while (receive(&msg) < 0) {
        if (session->closing)
            return -SW_ECONN;
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    }
    for (uint32_t i = 0; msg.header.type == SW_MSG_RESULT_BATCH && i < msg.u.result_batch.count; i++)
        ids[i] = (struct sw_region_id){msg.u.result_batch.slot[i], msg.u.result_batch.gen[i]};
    if (msg.header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &msg.u.error);
    return err.code;
}

/* Memory 1, to stay, of 4096 bytes. */
static int open_memory(void) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}};
    ck_assert(ftruncate(fd, 4096) == 0 && fallocate(fd, 0, 0, 4096) == 0);
    ck_assert(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    open.u.mem_open = (struct sw_msg_mem_open){.mem = 1, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = 4096};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = 1, .count = 1, .part_bytes = {4096}};
    send_msg(&open, 1001, NULL, 0);
    const int rc = await();
    send_msg(&parts, 1002, &fd, 1);
    return rc < 0 ? rc : await();
}

static int spill_batch(uint32_t n) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BATCH}};
    msg.u.spill_batch.mem = 1;
    msg.u.spill_batch.count = n;
    for (uint32_t i = 0; i < n; i++)
        msg.u.spill_batch.bytes[i] = 100 + i;
    send_msg(&msg, n, NULL, 0);
    return await();
}

static int restore_batch(uint32_t first, uint32_t n) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BATCH}};
    msg.u.restore_batch.mem = 1;
    msg.u.restore_batch.count = n;
    for (uint32_t i = 0; i < n; i++) {
        msg.u.restore_batch.slot[i] = ids[first + i].slot;
        msg.u.restore_batch.gen[i] = ids[first + i].gen;
        msg.u.restore_batch.offset[i] = 512ul * i;
        msg.u.restore_batch.bytes[i] = 512;
    }
    send_msg(&msg, n, NULL, 0);
    return await();
}

static enum sw_region_state state_of(struct sw_region_id id) {
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_query(session->owner, id, &info, NULL), 0);
    return info.state;
}

static void ck_regions(unsigned n) {
    struct sw_engine_stats stats;
    sw_engine_check(service.service.engine);
    sw_engine_stats(service.service.engine, &stats);
    ck_assert_uint_eq(stats.n_regions, n);
    ck_assert_uint_eq(stats.n_ops, 0);
    ck_assert(n || stats.tiers[0].used_bytes == 0);
    ck_assert(session->n_operations == 0 && session->n_buffers == 0 && session->deferred.n == 0);
}

/* A session may have 16 regions: the 17th buffer undoes the others. */
START_TEST(a_refused_buffer_undoes_the_batch) {
    ck_assert_int_eq(open_memory(), 0);
    ck_assert_int_eq(spill_batch(17), -SW_ELIMIT);
    ck_regions(0);
    ck_assert_int_eq(spill_batch(16), 0);
    ck_regions(16);
}
END_TEST

START_TEST(buffers_in_flight_are_limited) {
    ck_assert_int_eq(open_memory(), 0);
    session->n_buffers = SW_SESSION_MAX_BUFFERS - 5; /* as if so many were */
    ck_assert_int_eq(spill_batch(6), -SW_ELIMIT);
    ck_assert_int_eq(spill_batch(5), 0);
    session->n_buffers = 0;
    ck_regions(5);
}
END_TEST

/* One stored copy is bad: that is found after the first pieces are back, which therefore must be kept until then. */
START_TEST(a_damaged_buffer_loses_only_its_region) {
    enum { N = 8, BAD = 5 };
    struct sw_region_id before[N];
    ck_assert_int_eq(open_memory(), 0);
    ck_assert_int_eq(spill_batch(N), 0);
    memcpy(before, ids, sizeof before);
    const struct sw_frames *frames = service.service.engine->store.regions.regions[ids[BAD].slot].frames;
    *(uint8_t *)frames->stored[0].extents[0].memory ^= 1;
    const int rc = restore_batch(0, N);
    ck_assert(rc == -SW_ECHECKSUM || rc == -SW_EFRAME);
    ck_regions(N);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(state_of(before[i]), i == BAD ? SW_REGION_LOST : SW_REGION_OUT);
    ck_assert_int_eq(restore_batch(0, N), -SW_ELOST);
    ck_assert_int_eq(restore_batch(0, BAD), 0);
    ck_regions(N - BAD);
}
END_TEST

START_TEST(every_allocation_of_a_batch_may_fail) {
    ck_assert_int_eq(open_memory(), 0);
    int rc = -1;
    for (unsigned long n = 1; rc < 0; n++) {
        ck_assert_uint_lt(n, 100);
        sw_alloc_fail_nth(n);
        rc = spill_batch(4);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        ck_regions(rc == 0 ? 4 : 0);
    }
}
END_TEST

START_TEST(a_session_ends_during_a_batch) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BATCH}};
    ck_assert_int_eq(open_memory(), 0);
    msg.u.spill_batch.mem = 1;
    msg.u.spill_batch.count = 8;
    for (uint32_t i = 0; i < 8; i++)
        msg.u.spill_batch.bytes[i] = 4096;
    send_msg(&msg, 1, NULL, 0);
    sw_session_close(session, "test"); /* the teardown finds leaks */
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("session");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, queued_replies_arrive_in_order);
    tcase_add_test(tests, replies_that_wait_acknowledge_nothing);
    tcase_add_test(tests, the_queue_is_limited);
    tcase_add_test(tests, requests_wait_for_replies_that_are_not_read);
    tcase_add_test(tests, deferred_reply_outlives_the_peer);
    tcase_add_test(tests, every_allocation_may_fail);
    tcase_add_test(tests, a_session_that_cannot_open_costs_nothing);
    tcase_add_test(tests, descriptors_of_refused_memories_count_until_closed);
    tcase_add_test(tests, a_full_descriptor_table_fails_only_the_request);
    tcase_add_test(tests, a_refused_buffer_undoes_the_batch);
    tcase_add_test(tests, buffers_in_flight_are_limited);
    tcase_add_test(tests, a_damaged_buffer_loses_only_its_region);
    tcase_add_test(tests, every_allocation_of_a_batch_may_fail);
    tcase_add_test(tests, a_session_ends_during_a_batch);
    Suite *suite = suite_create("daemon");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
