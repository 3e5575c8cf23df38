/* Requests that no client should make, to a real daemon: each gets its named error, the daemon goes on serving, and
 * descriptors, mappings, regions and tier bytes are as before. Of memories: bad_memory.c; of several pieces or buffers
 * at once: bad_batch.c. */
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/wired.h"
#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* ---- packets ----------------------------------------------------------------------------------------------------- */

static const struct {
    const char *what;
    size_t offset; /* one byte of a good packet is changed ... */
    uint8_t value;
    size_t bytes; /* ... and its length, if not 0 */
    int code;
    uint32_t seq; /* of the error */
} bad_packets[] = {
    {"magic", 0, 'X', 0, -SW_EPROTO, 77},
    {"version", 4, SW_PROTO_VERSION + 1, 0, -SW_EVERSION, 77},
    {"version, high byte", 5, 1, 0, -SW_EVERSION, 77},
    {"unknown type", 6, 50, 0, -SW_EPROTO, 77},
    {"a reply as request", 6, SW_MSG_OK, 0, -SW_EPROTO, 77},
    {"length in the header", 12, 8, 0, -SW_EPROTO, 77},
    {"huge length in the header", 15, 0xff, 0, -SW_EPROTO, 77},
    {"truncated body", 0, 'S', 19, -SW_EPROTO, 77},
    {"no body", 0, 'S', SW_PROTO_HEADER_BYTES, -SW_EPROTO, 77},
    {"truncated header", 0, 'S', 15, -SW_EPROTO, 0},
    {"one byte", 0, 'S', 1, -SW_EPROTO, 0},
    {"bytes behind the body", 0, 'S', 21, -SW_EPROTO, 77},
    {"longest packet", 0, 'S', SW_PROTO_MAX_PACKET_BYTES, -SW_EPROTO, 77},
    {"oversized by one", 0, 'S', SW_PROTO_MAX_PACKET_BYTES + 1, -SW_EPROTO, 77},
    {"oversized by far", 0, 'S', 60000, -SW_EPROTO, 77},
};

START_TEST(bad_packet_ends_the_session) {
    static uint8_t packet[65536];
    struct sw_msg msg = {.header = {.version = SW_PROTO_OLDEST_VERSION, .type = SW_MSG_STATUS, .seq = 77}};
    const size_t bytes = sw_msg_encode(&msg, packet);
    packet[bad_packets[_i].offset] = bad_packets[_i].value;
    /* The packet carries descriptors, which must not stay open. */
    ck_assert(
        sw_wire_send_raw(&sw_wired, packet, bad_packets[_i].bytes ? bad_packets[_i].bytes : bytes, sw_wired.socket, 3));
    ck_assert_msg(sw_wire_await(&sw_wired, bad_packets[_i].seq, &msg) == bad_packets[_i].code, "%s",
                  bad_packets[_i].what);
    ck_assert(sw_wire_is_closed(&sw_wired));
}
END_TEST

START_TEST(error_reaches_a_peer_that_went_on_sending) {
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS}};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES] = {0};
    ck_assert(sw_wire_send_raw(&sw_wired, packet, 20, -1, 0));
    for (int i = 0; i < 20; i++)
        if (!sw_wire_send_raw(&sw_wired, packet, 20, sw_wired.socket, 2))
            break;
    ck_assert_int_eq(sw_wire_await(&sw_wired, 0, &msg), -SW_EPROTO);
    ck_assert(sw_wire_is_closed(&sw_wired));
}
END_TEST

START_TEST(hello_comes_first_and_once) {
    struct sw_wire other;
    struct sw_msg_status_ok status;
    ck_assert(sw_wire_connect(&other, sw_wired_daemon.socket));
    ck_assert_int_eq(sw_wire_status(&other, &status), -SW_EPROTO);
    ck_assert(sw_wire_is_closed(&other));
    sw_wire_close(&other);
    ck_assert(sw_wire_connect(&other, sw_wired_daemon.socket));
    ck_assert_int_eq(sw_wire_mem_parts(&other, 1, 0, 1, SW_WIRED_BYTES, sw_wired.socket, 1), -SW_EPROTO);
    sw_wire_close(&other);
    ck_assert(sw_wire_connect(&other, sw_wired_daemon.socket));
    ck_assert_int_eq(sw_wire_hello(&other, SW_PROTO_VERSION + 1), -SW_EVERSION);
    ck_assert(sw_wire_is_closed(&other));
    sw_wire_close(&other);
    ck_assert_int_eq(sw_wire_hello(&sw_wired, SW_PROTO_OLDEST_VERSION), -SW_EPROTO);
    ck_assert(sw_wire_is_closed(&sw_wired));
}
END_TEST

START_TEST(seq_is_not_used_twice) {
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    struct sw_msg msg = sw_wire_spill_msg(1, 0, SW_WIRED_BYTES);
    const uint32_t seq = sw_wire_send(&sw_wired, &msg, NULL, 0);
    sw_wired.seq--;
    (void)sw_wire_send(&sw_wired, &msg, NULL, 0);
    /* Either the first has ended before the second was read, or the second is refused. */
    int rc = sw_wire_await(&sw_wired, seq, &msg);
    ck_assert(rc == 0 || rc == -SW_EPROTO);
    ck_assert(rc == 0 || sw_wire_is_closed(&sw_wired));
    (void)close(fd);
}
END_TEST

/* ---- ranges and regions ------------------------------------------------------------------------------------------ */

START_TEST(ranges_beyond_the_memory) {
    static const struct {
        uint64_t offset, bytes;
    } ranges[] = {
        {0, SW_WIRED_BYTES + 1},
        {1, SW_WIRED_BYTES},
        {SW_WIRED_BYTES, 1},
        {SW_WIRED_BYTES + 1, 0},
        {0, UINT64_MAX},
        {UINT64_MAX, 0},
        {UINT64_MAX, 1},
        {UINT64_MAX, UINT64_MAX},
        {1, UINT64_MAX},
        {SW_WIRED_BYTES, UINT64_MAX - SW_WIRED_BYTES + 1},
        {UINT64_C(1) << 63, UINT64_C(1) << 63},
    };
    struct sw_region_id id;
    const struct sw_region_id stored = sw_wired_spill(4);
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    for (unsigned i = 0; i < sizeof ranges / sizeof ranges[0]; i++) {
        ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, ranges[i].offset, ranges[i].bytes, &id), -SW_ERANGE);
        ck_assert_int_eq(sw_wire_restore(&sw_wired, stored, 1, ranges[i].offset, ranges[i].bytes), -SW_ERANGE);
    }
    ck_assert(sw_wire_memfd_holds(fd, SW_WIRED_BYTES, SW_CONTENT_TEXT, 5));
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 1, SW_WIRED_BYTES, 0, &id), 0); /* nothing, at the very end, is fine */
    sw_wired_ck_restores(stored, 4);
    (void)close(fd);
}
END_TEST

static void ck_unreachable(struct sw_wire *by, struct sw_region_id id, int code, int other_code) {
    struct sw_msg_region region;
    const int fd = sw_wire_memfd(NULL, SW_WIRED_BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(by, 900, fd, SW_WIRED_BYTES, false), 0);
    const int codes[] = {sw_wire_restore(by, id, 900, 0, SW_WIRED_BYTES), sw_wire_query(by, id, &region),
                         sw_wire_drop(by, id)};
    for (int i = 0; i < 3; i++)
        ck_assert_msg(codes[i] == code || codes[i] == other_code, "request %d gave %s", i, sw_err_name(codes[i]));
    ck_assert_int_eq(sw_wire_mem_close(by, 900), 0);
    (void)close(fd);
}

START_TEST(ids_of_others_are_refused) {
    struct sw_wire other;
    const struct sw_region_id mine = sw_wired_spill(6);
    sw_wire_open(&other, sw_wired_daemon.socket);
    /* Another session's: its existence is not even confirmed. */
    ck_unreachable(&other, mine, -SW_ENOENT, -SW_ENOENT);
    ck_unreachable(&sw_wired, (struct sw_region_id){mine.slot, mine.gen + 1}, -SW_ENOENT, -SW_ENOENT);
    ck_unreachable(&sw_wired, (struct sw_region_id){mine.slot, mine.gen - 1}, -SW_ESTALE, -SW_ENOENT);
    ck_unreachable(&sw_wired, (struct sw_region_id){0, 0}, -SW_ENOENT, -SW_ENOENT);
    ck_unreachable(&sw_wired, (struct sw_region_id){mine.slot + 1000, 1}, -SW_ENOENT, -SW_ENOENT);
    ck_unreachable(&sw_wired, (struct sw_region_id){UINT32_MAX, UINT32_MAX}, -SW_ENOENT, -SW_ENOENT);
    sw_wired_ck_restores(mine, 6);
    ck_unreachable(&sw_wired, mine, -SW_ESTALE, -SW_ESTALE); /* used up by its restore */
    const struct sw_region_id dropped = sw_wired_spill(7);
    ck_assert_int_eq(sw_wire_drop(&sw_wired, dropped), 0);
    ck_unreachable(&sw_wired, dropped, -SW_ESTALE, -SW_ESTALE);
    sw_wire_close(&other);
}
END_TEST

START_TEST(restores_to_wrong_memory_are_refused) {
    const struct sw_region_id id = sw_wired_spill(8);
    const int fd = sw_wire_memfd(NULL, SW_WIRED_BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 1, 0, SW_WIRED_BYTES - 1), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 1, 0, 0), -SW_ETOOSMALL);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 1, 1, SW_WIRED_BYTES - 1), -SW_ETOOSMALL);
    (void)close(fd);
    /* A memory that cannot be written: the region stays. */
    const int sealed = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK | F_SEAL_WRITE);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, sealed, SW_WIRED_BYTES, true), 0);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 2, 0, SW_WIRED_BYTES), -SW_EACCES);
    (void)close(sealed);
    const int pipe_like = dup(sw_wired.socket);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 2, pipe_like, SW_WIRED_BYTES, true), 0);
    ck_assert_int_eq(sw_wire_restore(&sw_wired, id, 2, 0, SW_WIRED_BYTES), -SW_EFDS);
    (void)close(pipe_like);
    sw_wired_ck_restores(id, 8);
}
END_TEST

START_TEST(unknown_flags_types_and_events) {
    const struct sw_region_id id = sw_wired_spill(9);
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 1, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    struct sw_msg msg = sw_wire_spill_msg(1, 0, SW_WIRED_BYTES);
    msg.u.spill.flags = SW_REQ9_KEEP; /* RESTORE's */
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    msg = sw_wire_spill_msg(1, 0, SW_WIRED_BYTES);
    msg.u.spill.flags = 0x80000000u;
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    msg = sw_wire_spill_msg(1, 0, SW_WIRED_BYTES);
    msg.u.spill.flags = SW_REQ9_ORDER; /* there is no order page */
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    static const uint32_t types[] = {SW_VALUE_NR, 255, 256 + SW_VALUE_I8, 0x80000000u, UINT32_MAX};
    for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++) {
        msg = sw_wire_spill_msg(1, 0, SW_WIRED_BYTES);
        msg.u.spill.value_type = types[i];
        ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    }
    msg = sw_wire_spill_msg(1, 0, SW_WIRED_BYTES - 1); /* and no whole numbers */
    msg.u.spill.value_type = SW_VALUE_U16;
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    msg = (struct sw_msg){.header = {.type = SW_MSG_RESTORE}};
    msg.u.restore =
        (struct sw_msg_restore){.slot = id.slot, .gen = id.gen, .mem = 1, .flags = 8, .bytes = SW_WIRED_BYTES};
    ck_assert_int_eq(sw_wire_call(&sw_wired, &msg, NULL, 0), -SW_EINVAL);
    sw_wired_ck_restores(id, 9);
    (void)close(fd);
}
END_TEST

/* ---- names, tokens, the log ---- */

START_TEST(invalid_names_are_refused) {
    struct sw_msg msg;
    const int fd = sw_wire_content_memfd(SW_WIRED_BYTES, SW_CONTENT_TEXT, 5, F_SEAL_SHRINK);
    ck_assert_int_eq(sw_wire_mem(&sw_wired, 1, fd, SW_WIRED_BYTES, false), 0);
    for (int i = 0; i < 3; i++) { /* without an end, empty, of a region that is packed */
        struct sw_msg spill = {.header = {.type = SW_MSG_SPILL_DURABLE}}, adopt = {.header = {.type = SW_MSG_ADOPT}};
        spill.u.spill_durable = (struct sw_msg_spill_durable){.mem = 1, .bytes = SW_WIRED_BYTES};
        memset(spill.u.spill_durable.name, 'x', i == 0 ? SW_PROTO_NAME_BYTES : i == 1 ? 0 : 1);
        spill.u.spill_durable.flags = i == 2 ? SW_REQ9_IN_PLACE : 0;
        memcpy(adopt.u.adopt.name, spill.u.spill_durable.name, SW_PROTO_NAME_BYTES);
        ck_assert_int_eq(sw_wire_await(&sw_wired, sw_wire_send(&sw_wired, &spill, NULL, 0), &msg), -SW_EINVAL);
        ck_assert_int_eq(sw_wire_await(&sw_wired, sw_wire_send(&sw_wired, &adopt, NULL, 0), &msg),
                         i == 0 ? -SW_EINVAL : -SW_ENOENT);
    }
    ck_assert_int_eq(sw_wire_mem_close(&sw_wired, 1), 0);
    (void)close(fd);
}
END_TEST

START_TEST(nothing_is_settled_without_a_restart) {
    static const uint32_t types[] = {0, SW_MSG_SPILL, SW_MSG_RESTORE_BATCH, SW_MSG_STATUS, 0xFFFFFFFF};
    struct sw_msg msg;
    for (unsigned i = 0; i < sizeof types / sizeof types[0]; i++) {
        struct sw_msg settle = {.header = {.type = SW_MSG_SETTLE9}};
        settle.u.settle9 = (struct sw_msg_settle9){.type = types[i], .seq = 1, .count = i % 2 ? 1 : 0xFFFF};
        ck_assert_int_eq(sw_wire_await(&sw_wired, sw_wire_send(&sw_wired, &settle, NULL, 0), &msg), -SW_EINVAL);
    }
}
END_TEST

/* In the foreground no session survives: there are no tokens, and a client's token is ignored. */
START_TEST(unknown_tokens_make_new_sessions) {
    struct sw_wire other;
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    msg.u.hello.version = SW_PROTO_OLDEST_VERSION;
    memset(msg.u.hello.token, 0x5A, sizeof msg.u.hello.token);
    ck_assert(sw_wire_connect(&other, sw_wired_daemon.socket));
    (void)sw_wire_send(&other, &msg, NULL, 0);
    ck_assert_int_eq(sw_wire_receive(&other, &msg), 1);
    ck_assert_uint_eq(msg.header.type, SW_MSG_HELLO_OK);
    ck_assert_uint_eq(msg.u.hello_ok.resumed + msg.u.hello_ok.reconnect_ms + msg.u.hello_ok.token[0], 0);
    sw_wire_close(&other);
}
END_TEST

/* A session speaks the version of its first packet's header, so that packet must not ask for another one. */
START_TEST(a_hello_is_of_one_version) {
    struct sw_wire other;
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}, .u.hello.version = SW_PROTO_OLDEST_VERSION};
    ck_assert(sw_wire_connect(&other, sw_wired_daemon.socket));
    other.version = SW_PROTO_VERSION;
    ck_assert_int_eq(sw_wire_call(&other, &msg, NULL, 0), -SW_EVERSION);
    ck_assert(sw_wire_is_closed(&other));
    sw_wire_close(&other);
}
END_TEST

START_TEST(failures_are_logged_by_name) {
    struct sw_region_id id;
    const unsigned logged = sw_test_daemon_logged(&sw_wired_daemon, "event=request.failed ");
    ck_assert_int_eq(sw_wire_spill(&sw_wired, 123456, 0, 1, &id), -SW_ENOENT);
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_wired_daemon, "event=request.failed "), logged + 1);
    ck_assert_uint_ge(sw_test_daemon_logged(&sw_wired_daemon, "request=spill seq=2 name=ENOENT scope=request"), 1);
    /* A client's name cannot forge a log line. */
    ck_assert_uint_ge(sw_test_daemon_logged(&sw_wired_daemon, "client=\"test \\\"wire\\\"\\x0a\""), 1);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("bad_input");
    tcase_add_unchecked_fixture(tests, sw_wired_start, sw_wired_stop);
    tcase_add_checked_fixture(tests, sw_wired_before_each, sw_wired_after_each);
    tcase_add_loop_test(tests, bad_packet_ends_the_session, 0, (int)(sizeof bad_packets / sizeof bad_packets[0]));
    tcase_add_test(tests, error_reaches_a_peer_that_went_on_sending);
    tcase_add_test(tests, hello_comes_first_and_once);
    tcase_add_test(tests, seq_is_not_used_twice);
    tcase_add_test(tests, ranges_beyond_the_memory);
    tcase_add_test(tests, ids_of_others_are_refused);
    tcase_add_test(tests, restores_to_wrong_memory_are_refused);
    tcase_add_test(tests, unknown_flags_types_and_events);
    tcase_add_test(tests, invalid_names_are_refused);
    tcase_add_test(tests, nothing_is_settled_without_a_restart);
    tcase_add_test(tests, unknown_tokens_make_new_sessions);
    tcase_add_test(tests, a_hello_is_of_one_version);
    tcase_add_test(tests, failures_are_logged_by_name);
    Suite *suite = suite_create("bad_input");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
