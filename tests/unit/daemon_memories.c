/* Memories that a client hands over: which ones are refused, for what, and that a refused one takes nothing and is
 * refused until it is closed. */
#include "tests/lib/descriptors.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 200000, MEM = 7, MOST_FDS = 4 };

static struct sw_packet_rig rig;
static unsigned fds_before, used_before;

static void setup(void) {
    sw_packet_rig_open(&rig, BYTES);
    fds_before = sw_count_fds();
    used_before = rig.service.service.fds.used;
}

static void teardown(void) {
    sw_packet_rig_check_rest(&rig, 0, 0);
    sw_packet_rig_close(&rig);
}

static int call(struct sw_msg *msg, unsigned n_fds) {
    int fds[MOST_FDS];
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = fcntl(rig.fd, F_DUPFD_CLOEXEC, 0);
    return sw_packet_rig_await_seq(&rig, sw_packet_rig_send(&rig, msg, fds, n_fds));
}

static int open_mem(unsigned kind, uint32_t n_parts, uint32_t once, uint64_t bytes) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_OPEN,
                         .u.mem_open = {.mem = MEM, .kind = kind, .n_parts = n_parts, .once = once, .bytes = bytes}};
    return call(&msg, 0);
}

static int send_parts(uint32_t first, uint32_t count, uint64_t part_bytes, unsigned n_fds) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_PARTS, .u.mem_parts = {.mem = MEM, .first = first, .count = count}};
    for (unsigned i = 0; i < MOST_FDS; i++)
        msg.u.mem_parts.part_bytes[i] = part_bytes;
    return call(&msg, n_fds);
}

static int close_mem(void) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = MEM};
    return sw_packet_rig_call_msg(&rig, &msg);
}

/* A spill from it. */
static int use(uint32_t mem) {
    static struct sw_test_packet packet;
    sw_test_packet(&packet, SW_MSG_BUILD, SW_REQ_ALL);
    (void)sw_test_add_build(&packet, NULL);
    (void)sw_test_add_buffer(&packet, 1000, SW_VALUE_NONE);
    (void)sw_test_add_chunk(&packet, mem, 0, 1000);
    const int rc = sw_packet_rig_call(&rig, &packet);
    return rc ? rc : sw_test_result_code(&rig.reply, 0);
}

/* Nothing of what was sent is left. Descriptors are closed by a thread of their own. */
static void ck_nothing_taken(void) {
    for (unsigned i = 0; i < 1000 && sw_count_fds() != fds_before; i++)
        (void)usleep(1000);
    ck_assert_uint_eq(sw_count_fds(), fds_before);
    ck_assert_uint_eq(rig.service.service.fds.used, used_before);
}

/* It has failed with that error: whatever names it does, too, until it is closed. */
static void ck_failed(int code, const char *text) {
    ck_assert_msg(sw_packet_rig_says(&rig, text), "%s", text);
    ck_nothing_taken();
    ck_assert_int_eq(send_parts(0, 1, BYTES, 1), code);
    ck_assert_int_eq(use(MEM), code);
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), -SW_EEXIST);
    ck_nothing_taken();
    ck_assert_int_eq(close_mem(), 0);
    ck_assert_int_eq(close_mem(), -SW_ENOENT);
    ck_assert_int_eq(send_parts(0, 1, BYTES, 1), -SW_ENOENT);
    ck_assert_int_eq(use(MEM), -SW_ENOENT);
}

static const struct {
    unsigned kind;
    uint32_t n_parts, once;
    const char *text;
} shapes[] = {
    {SW_MEM_KIND_NR, 1, 0, "is unknown"},
    {SW_MEM_MEMFD, 0, 0, "parts, not 0"},
    {SW_MEM_MEMFD, 2, 0, "parts, not 2"},
    {SW_MEM_MEMFD, 1, 2, "once is 2"},
    {SW_MEM_CUDA_IPC, 1, 0, "parts, not 1"},
    {SW_MEM_CUDA_VMM, 0, 0, "parts, not 0"},
    {SW_MEM_CUDA_VMM, SW_MEM_MAX_PARTS + 1, 0, "parts, not"},
    {SW_MEM_CUDA_POOL, 0, 0, "parts, not 0"},
    {SW_MEM_CUDA_POOL, 2, 0, "parts, not 2"},
};

START_TEST(no_memory_has_another_shape_than_its_kind) {
    ck_assert_int_eq(open_mem(shapes[_i].kind, shapes[_i].n_parts, shapes[_i].once, BYTES), -SW_EINVAL);
    ck_failed(-SW_EINVAL, shapes[_i].text);
}
END_TEST

static const struct {
    uint32_t first, count;
    uint64_t part_bytes;
    unsigned n_fds;
    int code;
    const char *text;
} wrong_parts[] = {
    {1, 1, BYTES, 1, -SW_EINVAL, "part 0 is due"},      {0, 0, BYTES, 0, -SW_EINVAL, "must be 1 to 1"},
    {0, 2, BYTES, 2, -SW_EINVAL, "must be 1 to 1"},     {0, 1, BYTES, 0, -SW_EFDS, "0 descriptors came"},
    {0, 1, BYTES, 2, -SW_EFDS, "2 descriptors came"},   {0, 1, BYTES - 1, 1, -SW_ERANGE, "were announced"},
    {0, 1, BYTES + 1, 1, -SW_ERANGE, "were announced"},
};

START_TEST(parts_are_those_that_are_due) {
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), 0);
    ck_assert_int_eq(use(MEM), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "only 0 of 1 parts"));
    ck_assert_int_eq(
        send_parts(wrong_parts[_i].first, wrong_parts[_i].count, wrong_parts[_i].part_bytes, wrong_parts[_i].n_fds),
        wrong_parts[_i].code);
    ck_failed(wrong_parts[_i].code, wrong_parts[_i].text);
}
END_TEST

/* The descriptors are lost on the way, since the service may not have one more. */
START_TEST(parts_that_cannot_be_received_fail_their_memory) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_PARTS,
                         .u.mem_parts = {.mem = MEM, .count = 1, .part_bytes = {BYTES}}};
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), 0);
    _Alignas(SW_PROTO_ALIGN) uint8_t sent[SW_PROTO_MAX_PACKET_BYTES];
    msg.header.version = SW_PROTO_VERSION;
    msg.header.seq = ++rig.last_seq;
    ck_assert_int_eq(sw_packet_send(rig.peer, sent, sw_msg_encode(&msg, sent), &rig.fd, 1), 0);
    sw_leave_fds(0);
    const int rc = sw_packet_rig_await_seq(&rig, rig.last_seq);
    sw_leave_all_fds();
    ck_assert_int_eq(rc, -SW_ELIMIT);
    ck_failed(-SW_ELIMIT, "no free descriptors to receive it");
}
END_TEST

/* Parts that come in several packets. _i: what is wrong with the last one. */
START_TEST(parts_go_on_where_the_last_packet_ended) {
    static const struct {
        uint32_t first, count;
        uint64_t part_bytes;
        int code;
        const char *text;
    } last[] = {{1, 2, 100, -SW_EINVAL, "part 2 is due"},
                {3, 1, 100, -SW_EINVAL, "part 2 is due"},
                {2, 3, 100, -SW_EINVAL, "must be 1 to 2"},
                {2, 2, UINT64_MAX - 100, -SW_ERANGE, "overflow at part 2"},
                {2, 2, 101, -SW_ERANGE, "have 402 bytes, 400 were announced"}};
    ck_assert_int_eq(open_mem(SW_MEM_CUDA_VMM, 4, 0, 400), 0);
    ck_assert_int_eq(send_parts(0, 2, 100, 2), 0);
    ck_assert_uint_eq(rig.service.service.fds.used, used_before + 2);
    ck_assert_int_eq(use(MEM), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "only 2 of 4 parts"));
    ck_assert_int_eq(send_parts(last[_i].first, last[_i].count, last[_i].part_bytes, last[_i].count), last[_i].code);
    ck_failed(last[_i].code, last[_i].text);
}
END_TEST

/* What is there is not harmed by packets that come again. */
START_TEST(a_memory_that_is_there_stays) {
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), 0);
    ck_assert_int_eq(send_parts(0, 1, BYTES, 1), 0);
    ck_assert_uint_eq(rig.service.service.fds.used, used_before + 1);
    ck_assert_int_eq(send_parts(0, 1, BYTES, 1), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "has all its parts"));
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), -SW_EEXIST);
    ck_assert_int_eq(use(MEM), 0);
    ck_assert_int_eq(sw_engine_drop(rig.session->owner, sw_test_result_id(&rig.reply, 0), NULL), 0);
    ck_assert_int_eq(close_mem(), 0);
    ck_nothing_taken();
    ck_assert_int_eq(use(SW_PACKET_RIG_MEM), 0); /* and others do */
    ck_assert_int_eq(sw_engine_drop(rig.session->owner, sw_test_result_id(&rig.reply, 0), NULL), 0);
}
END_TEST

/* Of all descriptors one user may have half, and all users together no more than there are. A limit may come to lie
 * below what is in use. */
START_TEST(descriptors_have_limits) {
    static const struct {
        unsigned limit, others; /* others: in use by other users */
        int code;
    } rows[] = {{12, 0, 0},          {10, 0, -SW_ELIMIT}, {12, 6, 0},
                {12, 7, -SW_ELIMIT}, {1, 0, -SW_ELIMIT},  {0, 7, -SW_ELIMIT}};
    struct sw_fd_budget *fds = &rig.service.service.fds;
    const unsigned limit = fds->limit;
    ck_assert_uint_eq(used_before, 1); /* and 5 more are wanted */
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        fds->limit = rows[i].limit;
        fds->used += rows[i].others;
        const int rc = open_mem(SW_MEM_CUDA_VMM, 5, 0, 500);
        ck_assert_msg(rc == rows[i].code, "row %zu: %d", i, rc);
        fds->used -= rows[i].others;
        ck_assert_int_eq(close_mem(), 0);
    }
    fds->limit = limit;
    ck_assert_int_eq(open_mem(SW_MEM_CUDA_VMM, 5, 0, 500), 0);
    fds->limit = 9;
    ck_assert_int_eq(send_parts(0, 3, 100, 3), 0);
    ck_assert_int_eq(send_parts(3, 1, 100, 1), -SW_ELIMIT); /* there is no room any more */
    fds->limit = limit;
    ck_failed(-SW_ELIMIT, "needs 1 descriptors");
}
END_TEST

/* A memory that has failed keeps no more than its error, however many parts it was to have. */
START_TEST(a_failed_memory_keeps_little) {
    struct sw_budget *kept = &rig.session->tenant->quota.kept;
    const uint64_t before = kept->used_bytes;
    ck_assert_int_eq(open_mem(SW_MEM_CUDA_VMM, 100, 0, 10000), 0);
    ck_assert_uint_gt(kept->used_bytes, before + 100 * sizeof(uint64_t));
    ck_assert_int_eq(send_parts(1, 1, 100, 1), -SW_EINVAL);
    ck_assert_uint_lt(kept->used_bytes, before + 100 * sizeof(uint64_t));
    ck_failed(-SW_EINVAL, "memory");
    ck_assert_uint_eq(kept->used_bytes, before);
}
END_TEST

/* A refused request does not use up a memory whose parts are still to come. */
START_TEST(a_memory_for_one_request_waits_for_its_parts) {
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 1, BYTES), 0);
    ck_assert_int_eq(use(MEM), -SW_EINVAL);
    ck_assert_int_eq(send_parts(0, 1, BYTES, 1), 0);
    ck_assert_int_eq(use(MEM), 0);
    ck_assert_int_eq(sw_engine_drop(rig.session->owner, sw_test_result_id(&rig.reply, 0), NULL), 0);
    ck_assert_int_eq(use(MEM), -SW_ENOENT);
    while (rig.service.service.fds.used > used_before)
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    ck_nothing_taken();
}
END_TEST

/* The error of a memory for which there was no room is that of whatever names it, and of nothing else. */
START_TEST(a_session_has_a_most_of_memories) {
    rig.session->mems.max_mems = rig.session->mems.mems.n;
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), -SW_ELIMIT);
    ck_assert_int_eq(use(MEM), -SW_ELIMIT);
    ck_assert_int_eq(use(MEM + 1), -SW_ENOENT);
    rig.session->mems.max_mems++;
    ck_assert_int_eq(open_mem(SW_MEM_MEMFD, 1, 0, BYTES), 0);
    ck_assert_int_eq(close_mem(), 0);
    ck_assert_int_eq(use(MEM), -SW_ENOENT);
}
END_TEST

/* An empty buffer has no memory, so the service makes a page for it, whose descriptor counts. */
START_TEST(pages_for_empty_buffers_count) {
    static struct sw_test_packet packet;
    sw_packet_rig_add_page(&rig);
    used_before = rig.service.service.fds.used;
    sw_test_packet(&packet, SW_MSG_BUILD, SW_REQ_ALL);
    (void)sw_test_add_build(&packet, NULL);
    (void)sw_test_add_buffer(&packet, 0, SW_VALUE_NONE);
    (void)sw_test_add_buffer(&packet, 1000, SW_VALUE_NONE);
    sw_test_add_chunk(&packet, SW_PACKET_RIG_MEM, 0, 1000)->order_value = 1;
    const uint32_t seq = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    sw_packet_rig_idle(&rig);
    ck_assert_uint_eq(rig.service.service.fds.used, used_before + 1);
    rig.words[0] = 1;
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), 0);
    ck_assert_uint_eq(rig.service.service.fds.used, used_before);
    ck_assert_int_eq(sw_engine_drop(rig.session->owner, sw_test_result_id(&rig.reply, 0), NULL), 0);
}
END_TEST

/* A page that is refused is no page: what waits for its words fails as it did. */
START_TEST(an_order_page_has_one_descriptor) {
    static struct sw_test_packet packet;
    for (unsigned i = 0; i < 3; i++) { /* first none at all was sent */
        struct sw_msg msg = {.header.type = SW_MSG_ORDER_PAGE, .u.order_page.bytes = 4096};
        if (i > 0)
            ck_assert_int_eq(call(&msg, i == 1 ? 0 : 2), -SW_EFDS);
        ck_nothing_taken();
        sw_test_packet(&packet, SW_MSG_BUILD, SW_REQ_ALL);
        (void)sw_test_add_build(&packet, NULL);
        (void)sw_test_add_buffer(&packet, 1000, SW_VALUE_NONE);
        sw_test_add_chunk(&packet, SW_PACKET_RIG_MEM, 0, 1000)->order_value = 1;
        const int rc = sw_packet_rig_call(&rig, &packet);
        ck_assert_int_eq(rc ? rc : sw_test_result_code(&rig.reply, 0), i == 0 ? -SW_EINVAL : -SW_EFDS);
    }
    sw_packet_rig_add_page(&rig);
    rig.words[0] = 1;
    packet.chunks[0].order_value = 1;
    ck_assert_int_eq(sw_packet_rig_call(&rig, &packet), 0);
    ck_assert_int_eq(sw_engine_drop(rig.session->owner, sw_test_result_id(&rig.reply, 0), NULL), 0);
    struct sw_msg msg = {.header.type = SW_MSG_ORDER_PAGE, .u.order_page.bytes = 4096};
    ck_assert_int_eq(call(&msg, 2), -SW_EFDS); /* instead of the good one */
    ck_assert_int_eq(sw_packet_rig_call(&rig, &packet), -SW_EFDS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_memories");
    TCase *tests = tcase_create("all");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, no_memory_has_another_shape_than_its_kind, 0, (int)(sizeof shapes / sizeof shapes[0]));
    tcase_add_loop_test(tests, parts_are_those_that_are_due, 0, (int)(sizeof wrong_parts / sizeof wrong_parts[0]));
    tcase_add_test(tests, parts_that_cannot_be_received_fail_their_memory);
    tcase_add_loop_test(tests, parts_go_on_where_the_last_packet_ended, 0, 5);
    tcase_add_test(tests, a_memory_that_is_there_stays);
    tcase_add_test(tests, descriptors_have_limits);
    tcase_add_test(tests, a_failed_memory_keeps_little);
    tcase_add_test(tests, a_memory_for_one_request_waits_for_its_parts);
    tcase_add_test(tests, a_session_has_a_most_of_memories);
    tcase_add_test(tests, pages_for_empty_buffers_count);
    tcase_add_test(tests, an_order_page_has_one_descriptor);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
