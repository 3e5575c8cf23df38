/* Builds and reads that end without a commit: canceled, expired, with their session, or for lack of memory. */
#include "base/alloc.h"
#include "tests/lib/open_builds.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

/* ---- limits of what is in flight ---- */

/* Where there are more chunks than buffers, each counts like a buffer. */
START_TEST(appended_chunks_are_limited_like_buffers) {
    begin(NUMBER, N_STEPS * STEP);
    for (unsigned n_more = 0; n_more < 2; n_more++) {
        new_packet(0);
        (void)add(NUMBER, 0);
        for (unsigned i = 0; i < 2 + n_more; i++)
            (void)add_chunk(0, i * STEP, STEP);
        rig.session->n_buffers = SW_SESSION_MAX_BUFFERS - 2; /* as if so many were */
        ck_assert_int_eq(call(), n_more ? -SW_ELIMIT : 0);
        ck_assert_uint_eq(rig.session->n_buffers, SW_SESSION_MAX_BUFFERS - 2);
        rig.session->n_buffers = 0;
    }
    ck_assert_int_eq(say(NUMBER, SW_BUILD_ABORT), -SW_ECANCELED);
}
END_TEST

/* Only packets that cancel, and do nothing else, are free of limits. */
START_TEST(a_packet_that_also_cancels_is_limited) {
    for (unsigned i = 0; i < 3; i++)
        begin(NUMBER + i, STEP);
    rig.service.config.max_session_operations = 0; /* as if so many were in flight */
    for (unsigned other = 0; other < 2; other++) {
        new_packet(0);
        (void)add(NUMBER, other ? SW_BUILD_ABORT : 0);
        if (!other)
            (void)add_chunk(0, 0, STEP);
        (void)add(NUMBER + 1, SW_BUILD_ABORT);
        ck_assert_int_eq(call(), other ? -SW_ECANCELED : -SW_ELIMIT);
    }
    ck_assert_int_eq(say(NUMBER + 2, SW_BUILD_ABORT), -SW_ECANCELED);
    rig.service.config.max_session_operations = 100;
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

/* ---- cancel ---- */

static uint32_t wait_for_word(uint32_t number, unsigned flags, uint64_t raw_bytes) {
    new_packet(0);
    (void)add(number, flags);
    if (flags & SW_BUILD_BEGIN)
        add_buffer(raw_bytes, 0);
    add_chunk(0, 0, raw_bytes)->order_value = 1;
    return send_packet();
}

/* 0: an open build, 1: a committed one, 2: a whole one. The reply to its own packet has the result. */
START_TEST(an_abort_cancels_running_appends) {
    sw_packet_rig_add_page(&rig);
    if (_i < 2)
        begin(NUMBER, STEP);
    const unsigned flags[] = {0, SW_BUILD_COMMIT, SW_BUILD_BEGIN | SW_BUILD_COMMIT};
    const uint32_t seq = wait_for_word(NUMBER, flags[_i], STEP);
    sw_packet_rig_idle(&rig);
    rig.service.config.max_session_operations = 1; /* no limit holds it up */
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    const uint32_t abort_seq = send_packet();
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_packet_rig_await(&rig), -SW_ECANCELED);
        ck_assert(rig.reply.header.seq == seq || rig.reply.header.seq == abort_seq);
    }
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_ABORT), -SW_ENOENT);
    rig.service.config.max_session_operations = 100;
    ck_assert_mem_eq(rig.memory, rig.original, MEMORY_BYTES);
}
END_TEST

START_TEST(a_read_is_canceled_by_its_end) {
    sw_packet_rig_add_page(&rig);
    make_append(NUMBER, SW_BUILD_BEGIN | SW_BUILD_COMMIT, 0, STEP);
    add_buffer(STEP, 0);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = last_id();
    sw_test_packet(&packet, SW_MSG_READ, 0);
    sw_test_add_read(&packet, id, 0)->read = NUMBER + 1;
    sw_test_add_room(&packet, MEM, 0, STEP)->order_value = 1;
    const uint32_t seq = send_packet();
    sw_packet_rig_idle(&rig);
    ck_assert_int_eq(say(NUMBER + 1, SW_BUILD_ABORT), -SW_ENOENT); /* it is no build */
    rig.service.config.max_session_operations = 1;
    sw_test_packet(&packet, SW_MSG_READ, 0);
    struct sw_wire_read *end = sw_test_add_read(&packet, (struct sw_region_id){0}, 0);
    end->read = NUMBER + 1;
    end->flags = SW_READ_END | SW_READ_KEEP;
    ck_assert_int_eq(call(), -SW_ECANCELED);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), -SW_ECANCELED);
    ck_assert_int_eq(call(), -SW_ENOENT);
    rig.service.config.max_session_operations = 100;
    sw_packet_rig_check_rest(&rig, 1, 0);
    ck_restored(id, STEP);
}
END_TEST

/* ---- a client that says nothing more ---- */

static void await_expiry(uint32_t number) {
    for (struct sw_open *open;;) {
        ck_assert_int_eq(sw_opens_find(rig.session, number, false, &open, NULL), 0);
        if (sw_build_state(open->build) == SW_BUILD_FAILED)
            return;
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    }
}

/* Its stored frames are freed; a small record stays until its client ends it. A build with running appends does not
 * expire. */
START_TEST(a_build_without_appends_expires) {
    sw_packet_rig_add_page(&rig);
    rig.service.service.open_ms = 30;
    begin(NUMBER, 4 * STEP);
    ck_assert_int_eq(append(NUMBER, 0, 0, STEP), 0);
    begin(NUMBER + 1, STEP);
    const uint32_t seq = wait_for_word(NUMBER + 1, 0, STEP);
    const uint64_t used = rig.session->tenant->quota.bytes;
    ck_assert_uint_gt(used, 0);
    await_expiry(NUMBER);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    ck_assert_uint_eq(rig.session->opens.n_open, 2);
    ck_assert_int_eq(append(NUMBER, 0, STEP, STEP), -SW_ETIMEDOUT);
    ck_assert_int_eq(say(NUMBER, _i ? SW_BUILD_COMMIT : SW_BUILD_ABORT), -SW_ETIMEDOUT);
    ck_assert(sw_packet_rig_says(&rig, "the build was idle"));
    (void)usleep(2 * 30000);
    sw_packet_rig_idle(&rig);
    atomic_store(&rig.words[0], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), 0);
    ck_assert_int_eq(say(NUMBER + 1, SW_BUILD_COMMIT), 0);
    sw_packet_rig_check_rest(&rig, 1, 0);
}
END_TEST

/* Each expires at its own time, whichever was begun last. */
START_TEST(a_build_expires_before_a_later_one) {
    struct sw_open *later;
    rig.service.service.open_ms = 200;
    begin(NUMBER, 4 * STEP);
    (void)usleep(20000);
    ck_assert_int_eq(append(NUMBER, 0, 0, STEP), 0); /* it is not due when it is first looked at */
    (void)usleep(140000);
    begin(NUMBER + 1, STEP);
    await_expiry(NUMBER);
    ck_assert_int_eq(sw_opens_find(rig.session, NUMBER + 1, false, &later, NULL), 0);
    ck_assert_int_eq(sw_build_state(later->build), SW_BUILD_OPEN);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_ABORT), -SW_ETIMEDOUT);
    ck_assert_int_eq(say(NUMBER + 1, SW_BUILD_ABORT), -SW_ECANCELED);
}
END_TEST

/* The loop's index: it is idle, works on a chunk, waits for its commit, or for its abort. */
START_TEST(a_session_ends_during_a_build) {
    sw_packet_rig_add_page(&rig);
    begin(NUMBER, STEP);
    begin(NUMBER + 1, STEP);
    ck_assert_int_eq(append(NUMBER + 1, 0, 0, STEP), 0);
    if (_i)
        (void)wait_for_word(NUMBER, _i == 2 ? SW_BUILD_COMMIT : 0, STEP);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    if (_i == 3)
        (void)send_packet();
    sw_session_close(rig.session, "test");
}
END_TEST

/* Two builds in three packets, all or none; each allocation fails once. Either both regions are there or none. A packet
 * that is refused as a whole leaves the builds unchanged, so the next packets find a gap. */
START_TEST(an_allocation_that_fails_leaves_nothing_behind) {
    unsigned n_failed = 0;
    long live = 0;
    for (unsigned long nth = 0;; nth++) { /* not at first: the device keeps its first allocations */
        sw_alloc_fail_nth(nth);
        for (unsigned step = 0; step < 3; step++) {
            new_packet(step == 2 ? SW_REQ_ALL : 0);
            for (unsigned i = 0; i < 2; i++) {
                struct sw_wire_build *build = sw_test_add_build(&packet, step == 0 && i ? "a name" : NULL);
                build->build = NUMBER + i;
                build->flags = (uint16_t[]){SW_BUILD_BEGIN, 0, SW_BUILD_COMMIT}[step];
                if (step == 0)
                    add_buffer(2 * STEP, STEP);
                else
                    (void)add_chunk(0, (step - 1) * STEP, STEP);
            }
            const int rc = call();
            ck_assert_msg(rc == 0 || rc == -SW_ENOMEM || (step && (rc == -SW_ENOENT || rc == -SW_EINVAL)), "%s",
                          sw_err_name(rc));
        }
        sw_alloc_fail_nth(0);
        const bool is_stored = rig.reply.header.type == SW_MSG_RESULTS;
        const struct sw_region_id ids[] = {is_stored ? sw_test_result_id(&rig.reply, 0) : (struct sw_region_id){0},
                                           is_stored ? sw_test_result_id(&rig.reply, 1) : (struct sw_region_id){0}};
        for (unsigned i = 0; i < 2; i++)
            (void)say(NUMBER + i, SW_BUILD_ABORT); /* what a packet that was refused as a whole has left */
        sw_packet_rig_check_rest(&rig, is_stored ? 2 : 0, 0);
        sw_test_packet(&packet, SW_MSG_DISCARD, 0);
        for (unsigned i = 0; i < 2; i++)
            sw_test_add_id(&packet, ids[i]);
        ck_assert_int_eq(call(), is_stored ? 0 : -SW_ENOENT);
        live = nth ? live : sw_alloc_live();
        ck_assert_int_eq(sw_alloc_live(), live);
        n_failed += !is_stored;
        if (nth && is_stored)
            break;
    }
    ck_assert_uint_gt(n_failed, 10);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ends of open builds");
    TCase *tcase = tcase_create("ends of open builds");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, appended_chunks_are_limited_like_buffers);
    tcase_add_test(tcase, a_packet_that_also_cancels_is_limited);
    tcase_add_loop_test(tcase, an_abort_cancels_running_appends, 0, 3);
    tcase_add_test(tcase, a_read_is_canceled_by_its_end);
    tcase_add_loop_test(tcase, a_build_without_appends_expires, 0, 2);
    tcase_add_test(tcase, a_build_expires_before_a_later_one);
    tcase_add_loop_test(tcase, a_session_ends_during_a_build, 0, 4);
    tcase_add_test(tcase, an_allocation_that_fails_leaves_nothing_behind);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
