/* A mover in the process whose memory it moves (away_rig.h): sends, fetches, devices and frames that fail, and runs
 * that are canceled. */
#include "spill/mover/mover.h"
#include "tests/mover/away_rig.h"
#include "tests/mover/away_sink.h"
#include "tests/mover/runner.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* ---- what fails ---- */

/* If the other process refuses a buffer at any time, the run ends with that error, once all buffers were reported. */
START_TEST(each_send_and_each_fetch_may_fail) {
    const enum sw_away_how how = _i ? SW_AWAY_INSIDE : SW_AWAY_LATER;
    const uint64_t bytes = 5 * MIB + 1000;
    enum { N_CHUNKS = 2 };
    for (unsigned n_slots = 1; n_slots <= 4; n_slots++)
        for (unsigned nth = 1; nth <= N_CHUNKS; nth++) {
            struct one one;
            rig_open(n_slots, CHUNK_BYTES, how);
            one_init(&one, bytes, MIXED, SW_VALUE_NONE, nth);
            rig.sink.fail_code = -SW_ENOSPACE;
            rig.sink.fail_nth = nth * 3 - 2; /* of six */
            ck_assert_int_eq(spill(&one), -SW_ENOSPACE);
            ck_assert_ptr_null(one.away.run.frames);
            ck_assert_uint_eq(rig.sink.fail_nth, 0);
            sw_away_frames_free(&one.frames);
            ck_assert_int_eq(spill(&one), 0);
            rig.sink.fail_code = -SW_ELIMIT;
            rig.sink.fail_nth = nth * 3 - 2;
            ck_assert_int_eq(restore(&one), -SW_ELIMIT);
            ck_assert_uint_eq(one.away.run.outcome.failed.n, 1);
            ck_assert_int_eq(restore(&one), 0);
            assert_back(&one);
            ck_assert_uint_eq(rig.sink.n_ended, 4);
            one_fini(&one);
            rig_close();
        }
}
END_TEST

START_TEST(a_device_that_refuses_fails_the_run) {
    struct one one;
    rig_open(2, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    one_init(&one, 3 * MIB, TEXT, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    rig.decode_fails = -SW_ENOMEM;
    ck_assert_int_eq(restore(&one), -SW_ENOMEM);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

/* Its first tile lies behind its end. Returns whether the decoder saw that before the tile's hash did. */
static bool is_malformed_frame_disputed(struct sw_away_frame *frame, struct one *one) {
    uint8_t *place = &frame->bytes[frame->layout.records_offset];
    const unsigned before = rig.sink.n_disputed;
    const uint8_t right = place[3];
    place[3] = 0x7F;
    const int code = restore(one);
    place[3] = right;
    ck_assert_msg(code == -SW_ECHECKSUM || code == -SW_EFRAME, "%d", code);
    ck_assert_uint_gt(rig.sink.n_disputed, before);
    return code == -SW_EFRAME;
}

/* This holds for a frame that comes back alone, and for one of several in one step. */
START_TEST(a_damaged_frame_fails_its_restore) {
    unsigned n_malformed = 0;
    struct one one;
    rig_open(1 + (unsigned)_i, 4 * MIB, SW_AWAY_LATER);
    rig.sink.sink.chunk_bytes = MIB;
    one_init(&one, 6 * MIB, MIXED, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    for (size_t i = 0; i < one.frames.n; i++) {
        struct sw_away_frame *frame = &one.frames.frames[i];
        uint8_t *byte = &frame->bytes[frame->layout.records_offset + sizeof(uint32_t)]; /* of a tile's hash */
        *byte ^= 1;
        const int code = restore(&one);
        ck_assert_msg(code == -SW_ECHECKSUM, "%d %s", code, one.away.run.outcome.err.msg);
        const struct sw_failed_chunks *failed = &one.away.run.outcome.failed;
        ck_assert(failed->first <= i && i < failed->first + failed->n);
        *byte ^= 1;
        ck_assert_uint_ge(rig.sink.n_disputed, i + 1);
        n_malformed += is_malformed_frame_disputed(frame, &one);
    }
    ck_assert_uint_gt(n_malformed, 0);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

/* A frame that is spoilt on its way is fetched again, once. */
START_TEST(a_spoilt_frame_is_fetched_again) {
    struct one one;
    rig_open(2, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    one_init(&one, 3 * MIB, TEXT, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    rig.sink.n_to_spoil = 1;
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    ck_assert_uint_eq(rig.sink.n_disputed, 1);
    rig.sink.n_to_spoil = UINT32_MAX;
    const int code = restore(&one);
    ck_assert_msg(code == -SW_ECHECKSUM || code == -SW_EFRAME, "%d", code);
    ck_assert(rig.sink.n_disputed >= 2 && rig.sink.n_disputed <= 3); /* one for each slot */
    one_fini(&one);
    rig_close();
}
END_TEST

/* Nothing is decoded by a layout that is not the chunk's, or that leaves its room. */
START_TEST(a_layout_of_another_chunk_fails_its_restore) {
    struct one one;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&one, 2 * MIB + 5, TEXT, SW_VALUE_NONE, 1);
    ck_assert_int_eq(spill(&one), 0);
    memset(one.back, 0xEE, one.bytes);
    for (size_t i = 0; i < one.frames.n; i++) {
        struct sw_frame_layout *layout = &one.frames.frames[i].layout, right = *layout;
        for (int longer = 0; longer < 2; longer++) {
            uint8_t *short_bytes = one.frames.frames[i].bytes;
            if (longer) { /* the sink copies as much as the layout says */
                layout->frame_bytes = sw_frame_bound_bytes(layout->raw_bytes) + 16;
                one.frames.frames[i].bytes = calloc(1, layout->frame_bytes);
            } else {
                layout->raw_bytes--;
            }
            ck_assert_int_eq(restore(&one), -SW_EFRAME);
            ck_assert_uint_eq(rig.n_wrong, 0);
            if (longer)
                free(one.frames.frames[i].bytes);
            one.frames.frames[i].bytes = short_bytes;
            *layout = right;
        }
    }
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

/* ---- cancellations ---- */

/* Canceled after each number of the mover's looks: it ends as canceled, or as done if all of it was. */
static void cancel_after(struct one *one, unsigned n_steps) {
    for (unsigned i = 0; i < n_steps && rig.n_out > 0; i++)
        step();
    sw_mover_cancel(rig.mover, &one->signals);
    finish();
}

START_TEST(runs_may_be_canceled_at_any_time) {
    const enum sw_away_how how = _i ? SW_AWAY_INSIDE : SW_AWAY_LATER;
    unsigned n_canceled[2] = {0}, n_done[2] = {0};
    struct one one;
    rig_open(2, CHUNK_BYTES, how);
    one_init(&one, 4 * MIB + 1000, TEXT, SW_VALUE_NONE, 1);
    for (unsigned i = 0; i < 30 || !n_done[0]; i++) {
        sw_away_frames_free(&one.frames);
        add_spill(&one, 1);
        cancel_after(&one, i);
        const int code = end(&one);
        ck_assert(code == 0 || code == -SW_ECANCELED);
        *(code ? &n_canceled[0] : &n_done[0]) += 1;
    }
    sw_away_frames_free(&one.frames);
    ck_assert_int_eq(spill(&one), 0);
    for (unsigned i = 0; i < 30 || !n_done[1]; i++) {
        add_restore(&one, 1);
        cancel_after(&one, i);
        const int code = end(&one);
        ck_assert(code == 0 || code == -SW_ECANCELED);
        *(code ? &n_canceled[1] : &n_done[1]) += 1;
    }
    ck_assert(n_canceled[0] > 0 && n_canceled[1] > 0);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
}
END_TEST

static void step_for_ms(unsigned ms) {
    const struct timespec rest = {.tv_nsec = 1000000};
    for (unsigned i = 0; i < ms; i++) {
        while (sw_mover_step(rig.mover, false))
            continue;
        (void)nanosleep(&rest, NULL);
    }
}

/* While the other process has a buffer, its run stays, canceled or not, and keeps the slot; the mover does not wait for
 * it. The sink is told that the run is canceled. A free slot serves other runs meanwhile. */
START_TEST(a_canceled_run_waits_for_the_other_process) {
    struct one held, other;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&held, 900000, TEXT, SW_VALUE_NONE, 1);
    one_init(&other, 3 * MIB, TEXT, SW_VALUE_NONE, 2);
    if (_i) /* a restore */
        ck_assert_int_eq(spill(&held), 0);
    rig.sink.how = SW_AWAY_HELD;
    if (_i)
        add_restore(&held, 1);
    else
        add_spill(&held, 1);
    while (rig.sink.n_out == 0)
        step();
    step_for_ms(1);
    ck_assert(!sw_mover_has_steps(rig.mover) && !sw_mover_wait(rig.mover));
    sw_mover_cancel(rig.mover, &held.signals);
    step_for_ms(20);
    ck_assert_uint_eq(rig.n_out, 1);
    ck_assert_int_eq(held.away.run.outcome.err.code, -SW_ECANCELED);
    ck_assert_uint_eq(held.away.run.n_in_sink, 1);
    ck_assert_uint_gt(rig.sink.n_abandoned, 0);
    rig.sink.how = SW_AWAY_INSIDE; /* for what is new */
    add_spill(&other, 2);
    while (rig.n_out > 1)
        step();
    ck_assert_int_eq(end(&other), 0);
    sw_away_sink_release(&rig.sink);
    finish();
    ck_assert_int_eq(end(&held), -SW_ECANCELED);
    one_fini(&held);
    one_fini(&other);
    rig_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("faults of a mover beside data");
    TCase *tcase = tcase_create("faults of a mover beside data");
    tcase_set_timeout(tcase, 240); /* the machine may be busy */
    tcase_add_loop_test(tcase, each_send_and_each_fetch_may_fail, 0, 2);
    tcase_add_loop_test(tcase, a_device_that_refuses_fails_the_run, 0, 2);
    tcase_add_loop_test(tcase, a_damaged_frame_fails_its_restore, 0, 4);
    tcase_add_loop_test(tcase, a_spoilt_frame_is_fetched_again, 0, 2);
    tcase_add_test(tcase, a_layout_of_another_chunk_fails_its_restore);
    tcase_add_loop_test(tcase, runs_may_be_canceled_at_any_time, 0, 2);
    tcase_add_loop_test(tcase, a_canceled_run_waits_for_the_other_process, 0, 2);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
