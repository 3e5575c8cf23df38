/* Commits of several builds in one packet, with SW_REQ_ALL: all are stored, or none. */
#include "tests/lib/open_builds.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

/* ---- all or none ---- */

/* Two open builds and a whole one; the loop's index says which of them cannot be stored, 3: none. */
START_TEST(all_commits_of_a_packet_are_stored_or_none) {
    for (unsigned i = 0; i < 2; i++) {
        begin(NUMBER + i, 2 * STEP);
        ck_assert_int_eq(append(NUMBER + i, 0, 0, STEP), 0);
    }
    new_packet(SW_REQ_ALL);
    for (unsigned i = 0; i < 3; i++) {
        (void)add(NUMBER + i, i < 2 ? SW_BUILD_COMMIT : SW_BUILD_BEGIN | SW_BUILD_COMMIT);
        if (i == 2)
            add_buffer(STEP, 0);
        add_chunk(0, i < 2 ? STEP : 0, STEP)->mem = (int)i == _i ? 77 : MEM;
    }
    ck_assert_int_eq(call(), _i < 3 ? -SW_ENOENT : 0);
    for (unsigned i = 0; i < 3 && _i == 3; i++)
        ck_assert(code_of(i) == 0 && sw_test_result_id(&rig.reply, i).gen);
    ck_assert(_i == 3 || strstr((const char *)rig.reply.u.error.text, "SW_REQ") == NULL);
    sw_packet_rig_check_rest(&rig, _i == 3 ? 3 : 0, 0);
}
END_TEST

/* One fails late: a build that was already stored is dropped as well. */
START_TEST(all_or_none_when_one_fails_late) {
    begin(NUMBER, STEP);
    ck_assert_int_eq(append(NUMBER, 0, 0, STEP), 0);
    rig.session->tenant->quota.max_bytes = 2 * STEP;
    new_packet(SW_REQ_ALL);
    (void)add(NUMBER, SW_BUILD_COMMIT);
    (void)add(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT);
    add_buffer(8 * STEP, 0);
    (void)add_chunk(0, 0, 8 * STEP);
    ck_assert_int_eq(call(), -SW_ETENANTBYTES);
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
}
END_TEST

static void add_durable(unsigned n, uint64_t raw_bytes) {
    char name[16];
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "all %u", i);
        sw_test_add_build(&packet, name)->build = NUMBER + i;
        add_buffer(raw_bytes, 0);
        (void)add_chunk(0, 0, raw_bytes);
    }
}

/* The loop's index: all succeed; the last one, or one in the middle, is refused; one fails when it is stored. Names of
 * regions that were not stored are free. */
START_TEST(durable_regions_are_stored_all_or_none) {
    enum { N = 5 };
    static const int codes[] = {0, -SW_ENOENT, -SW_EEXIST, -SW_ETENANTBYTES};
    new_packet(SW_REQ_ALL);
    add_durable(N, 2 * STEP);
    if (_i == 1)
        packet.chunks[N - 1].mem = 77;
    if (_i == 2)
        packet.names[2 * strlen("all 0") + 4] = '0'; /* the third build gets the first one's name */
    rig.session->tenant->quota.max_bytes = _i == 3 ? 7 * STEP : 0;
    ck_assert_int_eq(call(), codes[_i]);
    static const char *const texts[] = {"", "request 5 of 5: ", "request 3 of 5: ", " of 5: "};
    ck_assert(_i == 0 || sw_packet_rig_says(&rig, texts[_i]));
    sw_packet_rig_check_rest(&rig, _i ? 0 : N, 0);
    if (_i == 0)
        return;
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    rig.session->tenant->quota.max_bytes = 0;
    new_packet(SW_REQ_ALL);
    add_durable(N, 2 * STEP);
    ck_assert_int_eq(call(), 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert(code_of(i) == 0 && sw_test_result_id(&rig.reply, i).gen);
    sw_packet_rig_check_rest(&rig, N, 0);
}
END_TEST

/* The error of a commit without all bytes names the incomplete build; the others end as well. */
START_TEST(all_or_none_when_bytes_are_missing) {
    for (unsigned i = 0; i < 3; i++) {
        begin(NUMBER + i, 2 * STEP);
        ck_assert_int_eq(append(NUMBER + i, 0, 0, i == 1 ? STEP : 2 * STEP), 0);
    }
    new_packet(SW_REQ_ALL);
    for (unsigned i = 0; i < 3; i++)
        (void)add(NUMBER + i, SW_BUILD_COMMIT);
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "request 2 of 3: "));
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

static int settle(uint32_t seq, uint32_t flags, unsigned n) {
    sw_test_packet(&packet, SW_MSG_SETTLE, flags);
    packet.msg.u.settle.type = SW_MSG_BUILD;
    packet.msg.u.settle.seq = seq;
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, (struct sw_region_id){0});
    return call();
}

/* It is settled by the seq of the packet with the commit, as if the session had come back. Other packets have stored
 * nothing. */
START_TEST(the_packet_that_commits_is_settled) {
    struct sw_region_id ids[2];
    for (unsigned i = 0; i < 2; i++) {
        begin(NUMBER + i, STEP);
        ck_assert_int_eq(append(NUMBER + i, 0, 0, STEP), 0);
    }
    const uint32_t append_seq = rig.last_seq;
    new_packet(_i ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < 2; i++)
        (void)add(NUMBER + i, SW_BUILD_COMMIT);
    ck_assert_int_eq(call(), 0);
    const uint32_t seq = rig.last_seq;
    for (unsigned i = 0; i < 2; i++)
        ids[i] = sw_test_result_id(&rig.reply, i);
    rig.session->may_settle = true;
    ck_assert_int_eq(settle(append_seq, 0, 1), -SW_ERESTARTED);
    ck_assert_int_eq(settle(seq, _i ? SW_REQ_ALL : 0, 2), 0);
    for (unsigned i = 0; i < 2; i++) {
        const struct sw_region_id id = sw_test_result_id(&rig.reply, i);
        ck_assert(code_of(i) == 0 && id.slot == ids[i].slot && id.gen == ids[i].gen);
    }
    sw_packet_rig_check_rest(&rig, 2, 0);
}
END_TEST

START_TEST(all_or_none_applies_to_commits_only) {
    new_packet(SW_REQ_ALL); /* vacuous: each by itself */
    for (unsigned i = 0; i < 3; i++) {
        (void)add(NUMBER + (i ? i : 9), i ? SW_BUILD_BEGIN : 0);
        if (i)
            add_buffer(STEP, STEP);
        (void)add_chunk(0, 0, STEP);
    }
    ck_assert_int_eq(call(), 0);
    ck_assert(code_of(0) == -SW_ENOENT && code_of(1) == 0 && code_of(2) == 0);
    new_packet(SW_REQ_ALL);
    (void)add(NUMBER + 1, SW_BUILD_COMMIT);
    (void)add(NUMBER + 2, SW_BUILD_ABORT);
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "request 2 of 2: "));
    sw_packet_rig_check_rest(&rig, 2, 2);
    packet.builds[1].flags = SW_BUILD_COMMIT;
    ck_assert_int_eq(call(), 0);
    sw_packet_rig_check_rest(&rig, 2, 0);
}
END_TEST

/* ---- cancel ---- */

/* The abort has all numbers of a packet, as the library cancels. */
START_TEST(an_abort_of_all_or_none) {
    sw_packet_rig_add_page(&rig);
    begin(NUMBER, STEP);
    new_packet(SW_REQ_ALL);
    (void)add(NUMBER, SW_BUILD_COMMIT);
    (void)add_chunk(0, 0, STEP);
    (void)add(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT);
    add_buffer(STEP, 0);
    add_chunk(0, 0, STEP)->order_value = 1;
    const uint32_t seq = send_packet();
    sw_packet_rig_idle(&rig);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    (void)add(NUMBER + 1, SW_BUILD_ABORT);
    (void)send_packet();
    bool came = false;
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_ne(sw_packet_rig_await(&rig), 0);
        came |= rig.reply.header.seq == seq;
        ck_assert(rig.reply.header.seq != seq || strcmp((const char *)rig.reply.u.error.name, "ECANCELED") == 0);
    }
    ck_assert(came);
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("open builds, all or none");
    TCase *tcase = tcase_create("open builds, all or none");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, all_commits_of_a_packet_are_stored_or_none, 0, 4);
    tcase_add_test(tcase, all_or_none_when_one_fails_late);
    tcase_add_loop_test(tcase, durable_regions_are_stored_all_or_none, 0, 4);
    tcase_add_test(tcase, all_or_none_when_bytes_are_missing);
    tcase_add_loop_test(tcase, the_packet_that_commits_is_settled, 0, 2);
    tcase_add_test(tcase, all_or_none_applies_to_commits_only);
    tcase_add_test(tcase, an_abort_of_all_or_none);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
