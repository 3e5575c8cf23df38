/* A mover in the process whose memory it moves (away_rig.h): what goes out comes back, in runs of every kind, by plans
 * that are kept as long as they fit. */
#include "base/clock.h"
#include "spill/mover/mover_state.h"
#include "tests/lib/tpch_text.h"
#include "tests/mover/away_rig.h"
#include "tests/mover/away_sink.h"
#include "tests/mover/runner.h"

#include <check.h>
#include <string.h>

enum { MAX_RUNS = 48 };

/* ---- what goes out comes back ---- */

static const struct content_case {
    enum content content;
    enum sw_value_type type;
} contents[] = {{TEXT, SW_VALUE_NONE},   {NUMBERS, SW_VALUE_U32}, {NUMBERS, SW_VALUE_I64}, {NUMBERS, SW_VALUE_F32},
                {RANDOM, SW_VALUE_NONE}, {RANDOM, SW_VALUE_F64},  {MIXED, SW_VALUE_NONE},  {MIXED, SW_VALUE_U16}};
enum { N_CONTENTS = sizeof contents / sizeof contents[0] };

static void there_and_back(const struct content_case *c, uint64_t bytes) {
    struct one one;
    one_init(&one, bytes, c->content, c->type, bytes);
    ck_assert_int_eq(spill(&one), 0);
    const struct sw_run_outcome *outcome = &one.away.run.outcome;
    uint64_t stored_bytes = 0;
    for (size_t i = 0; i < one.frames.n; i++)
        stored_bytes += one.frames.frames[i].layout.frame_bytes;
    ck_assert_uint_eq(outcome->stored_bytes, stored_bytes);
    if (c->content == TEXT && bytes >= MIB)
        ck_assert_uint_lt(stored_bytes, bytes * 2 / 3);
    if (c->content == RANDOM)
        ck_assert_uint_eq(outcome->codec_raw_bytes[SW_CODEC_RAW], bytes);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    ck_assert_uint_eq(rig.sink.n_ended, 2);
    ck_assert_uint_eq(rig.sink.n_sent, one.frames.n);
    ck_assert_uint_eq(rig.sink.n_chunks_fetched, one.frames.n);
    one_fini(&one);
}

/* Each content and each length on one to four slots. */
START_TEST(regions_come_back) {
    static const uint64_t lengths[] = {1, 4096, 300000, MIB, MIB + 1, 5 * MIB, 9 * MIB + 12345};
    for (unsigned i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const unsigned n = (unsigned)_i + i;
        rig_open(1 + n % 4, CHUNK_BYTES, n / 4 % 2 ? SW_AWAY_INSIDE : SW_AWAY_LATER);
        there_and_back(&contents[_i], lengths[i]);
        rig_close();
    }
}
END_TEST

/* A step's frames have rooms of one length, so what fits depends on the chunks. The first step of a spill is one chunk,
 * and the next ones grow, unless the device is as slow as a busy GPU. A restore that fits into all slots leaves none
 * without a step. */
START_TEST(a_step_takes_as_many_chunks_as_have_room) {
    static const struct {
        unsigned n_slots;
        uint64_t device_chunk, bytes, most_out, sends, most, fetches;
    } cases[] = {{1, 9 * MIB, 13 * MIB, SW_DECODE_MAX, 3, SW_DECODE_MAX, 2}, /* by number */
                 {1, MIB, 9 * MIB, 1, 9, 1, 9}, /* by room: of 2 MiB, each wants a little more than one */
                 {1, 2 * MIB, 9 * MIB, 3, 4, 3, 3},
                 {3, 4 * MIB, 9 * MIB, 4, 4, 4, 3}, /* by share */
                 {4, 4 * MIB, 3 * MIB, 2, 2, 1, 3}};
    for (unsigned i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct one one;
        rig_open(cases[i].n_slots, cases[i].device_chunk, SW_AWAY_LATER);
        rig.sink.sink.chunk_bytes = MIB;
        one_init(&one, cases[i].bytes, TEXT, SW_VALUE_NONE, 1);
        ck_assert_int_eq(spill(&one), 0);
        ck_assert_uint_eq(one.chunk_bytes, MIB);
        ck_assert_int_eq(restore(&one), 0);
        assert_back(&one);
        ck_assert_uint_eq(rig.sink.max_sent, cases[i].most_out);
        ck_assert_uint_eq(rig.sink.n_sends, cases[i].sends);
        ck_assert_uint_eq(rig.sink.max_step, cases[i].most);
        ck_assert_uint_eq(rig.sink.n_fetched, cases[i].fetches);
        one_fini(&one);
        rig_close();
    }
}
END_TEST

/* ---- many ---- */

/* The buffers of one request, each with its own type. */
START_TEST(several_buffers_come_back) {
    enum { N = 5 };
    struct one ones[N];
    struct sw_buffer buffers[N];
    struct sw_request request;
    rig_open(3, CHUNK_BYTES, SW_AWAY_LATER);
    for (unsigned i = 0; i < N; i++)
        one_init(&ones[i], (i + 1) * MIB - i * 1000, contents[i].content, contents[i].type, i);
    for (int back = 0; back < 2; back++) {
        request = (struct sw_request){.operation = back ? SW_OP_RESTORE : SW_OP_SPILL,
                                      .session = 1,
                                      .number = 1 + (uint64_t)back,
                                      .n_buffers = N,
                                      .buffers = buffers};
        for (unsigned i = 0; i < N; i++) {
            describe(&ones[i], request.operation, 1);
            buffers[i] = ones[i].buffer;
            buffers[i].number = i + 1;
        }
        for (unsigned i = 0; i < N; i++)
            begin(&ones[i], &request, i, back ? ones[i].chunk_bytes : 0);
        finish();
        for (unsigned i = 0; i < N; i++)
            ck_assert_int_eq(end(&ones[i]), 0);
    }
    for (unsigned i = 0; i < N; i++) {
        assert_back(&ones[i]);
        one_fini(&ones[i]);
    }
    rig_close();
}
END_TEST

/* Runs of several tenants and sessions, both ways at once. */
START_TEST(many_runs_go_both_ways_at_once) {
    static const char tenants[3];
    static struct one ones[MAX_RUNS];
    rig_open(4, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < MAX_RUNS; i++) {
            const bool is_back = i % 2 == round % 2; /* each goes out, and comes back in the next round */
            if (round == 0 && is_back)
                continue;
            if (!is_back && round < 2) {
                const struct content_case *c = &contents[i % N_CONTENTS];
                one_init(&ones[i], 1 + (i * 7919u % 23) * 100000, c->content, c->type, i);
            }
            if (round == 2 && !is_back)
                continue;
            describe(&ones[i], is_back ? SW_OP_RESTORE : SW_OP_SPILL, 1 + i % 5);
            ones[i].request.tenant = &tenants[i % 3];
            begin(&ones[i], &ones[i].request, 0, is_back ? ones[i].chunk_bytes : 0);
        }
        finish();
        for (unsigned i = 0; i < MAX_RUNS; i++) {
            const bool is_back = i % 2 == round % 2;
            if ((round == 0 && is_back) || (round == 2 && !is_back))
                continue;
            ck_assert_int_eq(end(&ones[i]), 0);
            if (is_back) {
                assert_back(&ones[i]);
                one_fini(&ones[i]);
            }
        }
    }
    if (!_i)
        ck_assert_uint_gt(rig.sink.n_out_of_order, 0);
    rig_close();
}
END_TEST

/* ---- plans ---- */

/* By a clock that stands still, no rate is known, and no plan too dear. */
static uint64_t still(void) {
    return 1000000;
}

/* Plans are kept for the session's next region of the type; bytes of another kind get one of their own. */
START_TEST(plans_are_kept) {
    struct one text, again, numbers, other;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&text, 2 * MIB, TEXT, SW_VALUE_NONE, 1);
    one_init(&again, 2 * MIB, TEXT, SW_VALUE_NONE, 2);
    one_init(&numbers, 2 * MIB, NUMBERS, SW_VALUE_U32, 3);
    one_init(&other, 2 * MIB, TEXT, SW_VALUE_NONE, 4);
    struct one *const ones[] = {&text, &again, &numbers, &other};
    const unsigned n_plans[] = {1, 1, 2, 3}, sessions[] = {1, 1, 1, 2};
    for (int i = 0; i < 4; i++) {
        add_spill(ones[i], sessions[i]);
        finish();
        ck_assert_int_eq(end(ones[i]), 0);
        ck_assert_uint_eq(rig.n_plans, n_plans[i]);
        ck_assert_uint_eq(ones[i]->away.run.outcome.codec_raw_bytes[SW_CODEC_RAW], 0);
        ck_assert_int_eq(restore(ones[i]), 0);
        assert_back(ones[i]);
        one_fini(ones[i]);
    }
    rig_close();
}
END_TEST

/* Bytes that a kept plan does not match: they are encoded again, by a plan of their own, before anything is sent. */
START_TEST(bytes_that_match_no_plan_are_planned_anew) {
    struct one text, zeros;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&text, 2 * MIB, TEXT, SW_VALUE_NONE, 1);
    one_init(&zeros, 2 * MIB, TEXT, SW_VALUE_NONE, 2);
    for (uint64_t i = 0; i < zeros.bytes; i++)
        zeros.data[i] = (uint8_t) "0123456789ABCDEFGHIJKLMN"[(i * i + i / 7) % 23];
    ck_assert_int_eq(spill(&text), 0);
    const unsigned n_plans = rig.n_plans, n_encoded = rig.n_encoded;
    rig.sink.n_sent = 0;
    ck_assert_int_eq(spill(&zeros), 0);
    ck_assert_uint_gt(rig.n_plans, n_plans);
    ck_assert_uint_gt(rig.n_encoded - n_encoded, zeros.frames.n);
    ck_assert_uint_eq(rig.sink.n_sent, zeros.frames.n);
    ck_assert_int_eq(restore(&zeros), 0);
    assert_back(&zeros);
    one_fini(&text);
    one_fini(&zeros);
    rig_close();
}
END_TEST

static struct sw_device_info info_that_learns;

static const struct sw_device_info *get_info(const struct sw_device *device) {
    (void)device;
    return &info_that_learns;
}

static enum { AS_THEY_COME, LEARNING_LAST, LEARNING_FIRST } order;

static bool holds_two(void) {
    return rig.sink.how == SW_AWAY_HELD && rig.sink.n_out == 2;
}

/* A slot that learns is slower than all chunks, or than all but the first ones. The sink holds no more than two back.
 */
static int poll_slot(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    bool learns = false;
    for (unsigned i = 0; i < rig.mover->n_slots; i++)
        learns |= rig.mover->slots[i].learns;
    const bool is_late = order == LEARNING_LAST
                             ? rig.mover->slots[s].learns
                             : order == LEARNING_FIRST && learns && rig.sink.n_sent > 3 && !rig.mover->slots[s].learns;
    return is_late || holds_two() ? -SW_EAGAIN : rig.real->slot_poll(device, s, ret, err);
}

/* Without a wait, which would not be for what poll_slot() holds back. */
static void poll_once(void) {
    const struct timespec rest = {.tv_nsec = 100000};
    if (!sw_mover_step(rig.mover, false))
        (void)nanosleep(&rest, NULL);
}

static void finish_polling(void) {
    while (rig.n_out > 0)
        poll_once();
    order = AS_THEY_COME;
}

/* As a GPU in the engine's process that learns dictionaries: it encodes 10 GB/s, and the link takes 40 MB/s. */
static void rig_open_learning(unsigned n_slots) {
    const struct sw_mover_host host = {.finished = finished, .progress = progress};
    sw_clock_set(still);
    rig_open(n_slots, CHUNK_BYTES, SW_AWAY_LATER);
    sw_mover_free(rig.mover);
    info_that_learns = *rig.real->info(rig.device);
    info_that_learns.learns_dictionaries = true;
    rig.ops.info = get_info;
    rig.ops.slot_poll = poll_slot;
    ck_assert_int_eq(sw_mover_new(&rig.mover, rig.device, &rig.sink.sink, &host, NULL), 0);
    struct sw_cost_class *costs = sw_planner_costs(&rig.mover->planner, CHUNK_BYTES, false);
    costs->encode[SW_CODEC_V5T] = (struct sw_meter){.bytes = 1e17, .us = 1e13, .is_warm = true};
    costs->link_out = (struct sw_meter){.bytes = 4e14, .us = 1e13, .is_warm = true};
}

static void rig_close_learning(void) {
    rig_close();
    sw_clock_set(NULL);
}

/* Chunks go by the usual codec while a slot learns, and by the dictionary from then on. It is kept: the session's next
 * region is made by it as a whole. */
START_TEST(a_long_text_learns_a_dictionary) {
    struct one first, next;
    rig_open_learning(3);
    one_init(&first, 8 * MIB + 12345, TEXT, SW_VALUE_NONE, 1);
    one_init(&next, 8 * MIB + 100, TEXT, SW_VALUE_NONE, 2);
    sw_tpch_text_fill(first.data, 0, first.bytes, 1);
    sw_tpch_text_fill(next.data, 0, next.bytes, 2);
    order = LEARNING_FIRST;
    add_spill(&first, 1);
    finish_polling();
    ck_assert_int_eq(end(&first), 0);
    const uint64_t *raw_bytes = first.away.run.outcome.codec_raw_bytes;
    ck_assert_uint_gt(raw_bytes[SW_CODEC_V5T], 0);
    ck_assert_uint_gt(raw_bytes[SW_CODEC_ONPAIR], 0);
    for (size_t i = 1; i < first.frames.n; i++)
        ck_assert(first.frames.frames[i - 1].layout.codec != SW_CODEC_ONPAIR ||
                  first.frames.frames[i].layout.codec != SW_CODEC_V5T);
    ck_assert_uint_eq(rig.n_plans, 2);
    ck_assert_int_eq(spill(&next), 0);
    ck_assert_uint_eq(next.away.run.outcome.codec_raw_bytes[SW_CODEC_V5T], 0);
    ck_assert_uint_gt(next.away.run.outcome.codec_raw_bytes[SW_CODEC_ONPAIR], 7 * MIB);
    ck_assert_int_eq(restore(&first), 0);
    ck_assert_int_eq(restore(&next), 0);
    assert_back(&first);
    assert_back(&next);
    one_fini(&first);
    one_fini(&next);
    rig_close_learning();
}
END_TEST

/* Two slots are with the sink, one learns: the last one keeps the link busy. */
START_TEST(chunks_go_on_while_a_slot_learns) {
    struct one one;
    rig_open_learning(4);
    rig.sink.how = SW_AWAY_HELD;
    order = LEARNING_LAST;
    one_init(&one, 12 * MIB, TEXT, SW_VALUE_NONE, 1);
    sw_tpch_text_fill(one.data, 0, one.bytes, 1);
    add_spill(&one, 1);
    while (rig.sink.n_sent < 6) {
        poll_once();
        if (holds_two())
            rig.sink.how = SW_AWAY_LATER;
    }
    ck_assert_int_eq(one.away.run.course.learning, SW_LEARNING_UNDER_WAY);
    order = LEARNING_FIRST;
    sw_away_sink_release(&rig.sink);
    finish_polling();
    ck_assert_int_eq(end(&one), 0);
    ck_assert_uint_gt(one.away.run.outcome.codec_raw_bytes[SW_CODEC_ONPAIR], 0);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close_learning();
}
END_TEST

/* Every chunk, whatever the rates. The last one is too short for a dictionary. */
START_TEST(text_gets_a_dictionary_if_room_is_preferred) {
    struct one one;
    rig_open(2, CHUNK_BYTES, _i ? SW_AWAY_INSIDE : SW_AWAY_LATER);
    one_init(&one, 4 * MIB + 600, TEXT, SW_VALUE_NONE, 1);
    sw_tpch_text_fill(one.data, 0, one.bytes, 1);
    rig.sink.prefer = SW_PREFER_ROOM;
    ck_assert_int_eq(spill(&one), 0);
    const uint64_t dense_bytes = one.away.run.outcome.stored_bytes;
    ck_assert_uint_eq(one.away.run.outcome.codec_raw_bytes[SW_CODEC_ONPAIR], 4 * MIB);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    sw_away_frames_free(&one.frames);
    rig.sink.prefer = SW_PREFER_NONE;
    ck_assert_int_eq(spill(&one), 0);
    ck_assert_uint_eq(one.away.run.outcome.codec_raw_bytes[SW_CODEC_ONPAIR], 0);
    ck_assert_uint_lt(10 * dense_bytes, 8 * one.away.run.outcome.stored_bytes);
    one_fini(&one);
    rig_close();
}
END_TEST

/* Spaces, and from the middle on digits. */
START_TEST(bytes_that_drift_are_planned_anew) {
    struct one one;
    sw_clock_set(still);
    rig_open(1, CHUNK_BYTES, SW_AWAY_LATER);
    one_init(&one, 12 * MIB, TEXT, SW_VALUE_NONE, 1);
    memset(one.data, ' ', 6 * MIB);
    for (uint64_t i = 6 * MIB, random = 1; i < one.bytes; i++) {
        random = random * 6364136223846793005u + 1442695040888963407u;
        one.data[i] = (uint8_t)('0' + (random >> 33) % 10);
    }
    ck_assert_int_eq(spill(&one), 0);
    ck_assert_uint_ge(rig.n_plans, 2);
    ck_assert_int_eq(restore(&one), 0);
    assert_back(&one);
    one_fini(&one);
    rig_close();
    sw_clock_set(NULL);
}
END_TEST

/* A session whose bytes do not shrink makes no plan for each region. */
START_TEST(bytes_that_do_not_shrink_need_no_plans) {
    struct one one;
    rig_open(2, CHUNK_BYTES, SW_AWAY_LATER);
    for (unsigned i = 0; i < 12; i++) {
        one_init(&one, 2 * MIB, RANDOM, SW_VALUE_NONE, i);
        ck_assert_int_eq(spill(&one), 0);
        one_fini(&one);
    }
    ck_assert_uint_ge(rig.n_plans, 4);
    ck_assert_uint_lt(rig.n_plans, 12);
    rig_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mover beside data");
    TCase *tcase = tcase_create("mover beside data");
    tcase_set_timeout(tcase, 240); /* the machine may be busy */
    tcase_add_loop_test(tcase, regions_come_back, 0, N_CONTENTS);
    tcase_add_test(tcase, a_step_takes_as_many_chunks_as_have_room);
    tcase_add_test(tcase, several_buffers_come_back);
    tcase_add_loop_test(tcase, many_runs_go_both_ways_at_once, 0, 2);
    tcase_add_test(tcase, plans_are_kept);
    tcase_add_test(tcase, bytes_that_match_no_plan_are_planned_anew);
    tcase_add_test(tcase, a_long_text_learns_a_dictionary);
    tcase_add_test(tcase, chunks_go_on_while_a_slot_learns);
    tcase_add_loop_test(tcase, text_gets_a_dictionary_if_room_is_preferred, 0, 2);
    tcase_add_test(tcase, bytes_that_drift_are_planned_anew);
    tcase_add_test(tcase, bytes_that_do_not_shrink_need_no_plans);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
