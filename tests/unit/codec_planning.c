/* Plans made step by step are those made at once; each kind of region goes through its own steps. */
#include "codec/codec.h"
#include "codec/onpair/onpair.h"
#include "codec/plan/planning.h"
#include "tests/lib/content.h"
#include "tests/lib/guard.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 300000 };

static uint8_t region[BYTES], sample[SW_SAMPLE_MOST_PARTS * SW_SAMPLE_MAX_BYTES];
static struct sw_frame_dictionary dictionary;

/* Text that longer phrases gain on: v5t's symbols are as long as they can be. */
static void fill_repeated(void) {
    sw_content_fill(region, 512, SW_CONTENT_TEXT, 7);
    for (size_t at = 512; at < BYTES; at++)
        region[at] = region[at - 512];
}

/* Does what a GPU would: gives the symbols that v5t learns from the sample, and the length of its codes. */
static void train(struct sw_planning *p, struct sw_params *ret, size_t *ret_coded_bytes) {
    struct sw_plan plan = {.codec = SW_CODEC_V5T};
    struct sw_frame_layout layout;
    static uint8_t frame[2 * SW_SAMPLE_MAX_BYTES];
    uint64_t frame_bytes = 0;
    const size_t bytes = sw_sample_gather(sample, region, p->raw_bytes, p->piece_bytes);
    sw_plan_learn(&plan, sample, bytes);
    ck_assert_int_eq(sw_codec_encode(&plan, sample, bytes, frame, sizeof frame, &frame_bytes, NULL), 0);
    ck_assert_int_eq(sw_frame_parse(&layout, frame, frame_bytes, frame_bytes, NULL), 0);
    *ret = plan.params;
    *ret_coded_bytes = frame_bytes - layout.data_offset;
}

START_TEST(nothing_to_plan) {
    struct sw_planning p;
    sw_planning_begin(&p, _i ? SW_VALUE_U32 : SW_VALUE_NONE, 0, true, NULL);
    ck_assert_int_eq(p.step, SW_PLANNING_DONE);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_RAW);
}
END_TEST

START_TEST(numbers_take_one_sample) {
    struct sw_planning p;
    struct sw_plan want;
    sw_numbers_fill(region, 0, BYTES, SW_VALUE_I32, SW_NUMBERS_RUNS, 6, 1);
    sw_planning_begin(&p, SW_VALUE_I32, BYTES, _i, NULL);
    ck_assert_int_eq(p.step, SW_PLANNING_SAMPLE);
    ck_assert_uint_eq(p.piece_bytes, SW_SAMPLE_LONG_PIECE_BYTES);
    ck_assert(!p.takes_long);
    (void)sw_sample_gather(sample, region, BYTES, p.piece_bytes);
    sw_planning_learn(&p, sample);
    ck_assert_int_eq(p.step, SW_PLANNING_DONE);
    sw_plan_make(&want, SW_VALUE_I32, region, BYTES, sample);
    ck_assert_int_ne(want.codec, SW_CODEC_RAW);
    ck_assert_mem_eq(&p.plan, &want, sizeof want);
}
END_TEST

START_TEST(incompressible_bytes_are_not_trained_on) {
    struct sw_planning p;
    sw_planning_begin(&p, SW_VALUE_NONE, BYTES, true, NULL);
    ck_assert_int_eq(p.step, SW_PLANNING_PROBE);
    ck_assert_uint_eq(p.piece_bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
    sw_planning_probed(&p, true);
    ck_assert_int_eq(p.step, SW_PLANNING_DONE);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_RAW);
}
END_TEST

START_TEST(trained_bytes_go_on_where_phrases_may_gain) {
    struct sw_planning p;
    struct sw_params trained;
    size_t coded_bytes = 0;
    fill_repeated();
    sw_planning_begin(&p, SW_VALUE_NONE, BYTES, true, NULL);
    sw_planning_probed(&p, false);
    ck_assert_int_eq(p.step, SW_PLANNING_TRAIN);
    train(&p, &trained, &coded_bytes);
    sw_planning_trained(&p, &trained, coded_bytes);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_V5T);
    ck_assert_int_eq(p.step, SW_PLANNING_SAMPLE);
    ck_assert_uint_eq(p.piece_bytes, SW_SAMPLE_LONG_PIECE_BYTES);
    ck_assert(p.takes_long);
    (void)sw_sample_gather(sample, region, BYTES, p.piece_bytes);
    sw_planning_learn(&p, sample);
    ck_assert_int_eq(p.step, SW_PLANNING_DONE);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_PHRASE);
}
END_TEST

START_TEST(training_without_gain_gives_a_raw_plan) {
    struct sw_planning p;
    struct sw_params trained = {.n_symbols = 0};
    sw_planning_begin(&p, SW_VALUE_NONE, BYTES, true, NULL);
    sw_planning_probed(&p, false);
    sw_planning_trained(&p, &trained, SW_SAMPLE_MAX_BYTES);
    ck_assert_int_eq(p.step, SW_PLANNING_SAMPLE); /* its bytes may be worth codes of their own */
    sw_content_fill(sample, sizeof sample, SW_CONTENT_RANDOM, 1);
    sw_planning_learn(&p, sample);
    ck_assert_int_eq(p.step, SW_PLANNING_DONE);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_RAW);
    ck_assert_double_eq(p.plan.expected_ratio, 1);
}
END_TEST

/* A GPU that could not train says that nothing was coded. */
START_TEST(training_that_failed_gives_a_raw_plan) {
    const struct sw_params nothing = {.n_symbols = 0};
    struct sw_plan plan;
    sw_plan_init_trained(&plan, &nothing, 0, SW_SAMPLE_MAX_BYTES, BYTES);
    ck_assert_int_eq(plan.codec, SW_CODEC_RAW);
    ck_assert_double_eq(plan.expected_ratio, 1);
}
END_TEST

/* Samples end with their last byte, and begin with their first. */
START_TEST(learning_reads_nothing_but_its_sample) {
    static const size_t lengths[] = {16, 512, 1024 + 16, SW_SAMPLE_MAX_BYTES};
    const enum sw_codec_id codec = (enum sw_codec_id)_i;
    for (int type = SW_VALUE_NONE; type < SW_VALUE_NR; type++)
        for (size_t i = 0; i < 2 * sizeof lengths / sizeof lengths[0]; i++) {
            struct sw_guard piece = sw_guard_new(lengths[i / 2], i % 2 ? SW_GUARD_AT_END : SW_GUARD_AT_START);
            struct sw_plan plan;
            sw_content_fill(piece.data, piece.bytes, SW_CONTENT_MIXED, i);
            (void)sw_plan_init_by_codec(&plan, codec, (enum sw_value_type)type, piece.data, piece.bytes, &dictionary);
            if (type != SW_VALUE_NONE)
                sw_plan_init_typed(&plan, (enum sw_value_type)type, piece.data, piece.bytes, piece.bytes);
            sw_guard_free(&piece);
        }
}
END_TEST

/* Letters that follow each other by chance have no symbols, but few values. */
START_TEST(bytes_without_symbols_get_codes) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    struct sw_plan plan;
    uint64_t state = 3;
    for (size_t i = 0; i < BYTES; i++)
        region[i] = (uint8_t)letters[sw_random(&state) % 64];
    sw_plan_make(&plan, SW_VALUE_NONE, region, BYTES, sample);
    ck_assert_int_eq(plan.codec, SW_CODEC_HUFFMAN);
    ck_assert_double_ge(plan.expected_ratio, 1.31);
}
END_TEST

/* Values of any length are found, and where their bytes differ. */
START_TEST(bytes_that_are_numbers_get_codes_of_parts) {
    static const struct {
        enum sw_value_type type;
        double ratio;
    } kinds[] = {{SW_VALUE_BF16, 1.47}, {SW_VALUE_F32, 1.17}};
    struct sw_plan plan;
    sw_numbers_fill(region, 0, BYTES, kinds[_i].type, SW_NUMBERS_WEIGHTS, 0, 5);
    sw_plan_make(&plan, SW_VALUE_NONE, region, BYTES, sample);
    ck_assert_int_eq(plan.codec, SW_CODEC_HUFFMAN);
    ck_assert_double_ge(plan.expected_ratio, kinds[_i].ratio);
}
END_TEST

START_TEST(host_samples_twice_where_phrases_may_gain) {
    struct sw_planning p;
    unsigned n_samples = 0;
    fill_repeated();
    sw_planning_begin(&p, SW_VALUE_NONE, BYTES, false, NULL);
    while (p.step != SW_PLANNING_DONE) {
        ck_assert_int_eq(p.step, SW_PLANNING_SAMPLE);
        ck_assert_uint_eq(p.piece_bytes, n_samples++ ? SW_SAMPLE_LONG_PIECE_BYTES : SW_SAMPLE_SHORT_PIECE_BYTES);
        (void)sw_sample_gather(sample, region, BYTES, p.piece_bytes);
        sw_planning_learn(&p, sample);
    }
    ck_assert_uint_eq(n_samples, 2);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_PHRASE);
}
END_TEST

/* A device warms up by these: each codec that a plan may choose, and no other. */
START_TEST(every_codec_that_is_chosen_can_be_tried) {
    static uint8_t spaces[SW_SAMPLE_SHORT_PIECE_BYTES], frame[8192], out[sizeof spaces];
    const enum sw_codec_id codec = (enum sw_codec_id)_i;
    memset(spaces, ' ', sizeof spaces);
    for (int type = SW_VALUE_NONE; type < SW_VALUE_NR; type++) {
        struct sw_plan plan;
        uint64_t bytes = 0;
        const bool is_chosen = codec != SW_CODEC_RAW;
        ck_assert_int_eq(
            sw_plan_init_by_codec(&plan, codec, (enum sw_value_type)type, spaces, sizeof spaces, &dictionary),
            is_chosen && sw_codec_takes(codec, (enum sw_value_type)type));
        if (!is_chosen || !sw_codec_takes(codec, (enum sw_value_type)type))
            continue;
        ck_assert_int_eq(plan.codec, codec);
        ck_assert_int_eq(sw_codec_encode(&plan, spaces, sizeof spaces, frame, sizeof frame, &bytes, NULL), 0);
        ck_assert_int_eq(sw_codec_decode(frame, bytes, out, sizeof out, &bytes, NULL), 0);
        ck_assert_mem_eq(out, spaces, sizeof spaces);
    }
}
END_TEST

/* However long the region is: its frames have 4 MiB of content or more. */
START_TEST(a_long_regions_dictionary_is_in_each_frame) {
    struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .segment_log2 = 10, .dictionary = &dictionary};
    dictionary.bytes = 32 << 10;
    plan.raw_bytes = 4 << 20;
    const double part = sw_plan_head_part(&plan);
    ck_assert_double_gt(part, 32. / 4096);
    plan.raw_bytes = (uint64_t)1 << 36;
    ck_assert_double_eq(sw_plan_head_part(&plan), part);
}
END_TEST

static void make_plan(struct sw_plan *ret, const uint8_t *data, size_t bytes, struct sw_frame_dictionary *room) {
    struct sw_planning p;
    sw_planning_begin(&p, SW_VALUE_NONE, bytes, false, room);
    while (p.step != SW_PLANNING_DONE) {
        size_t at = 0;
        for (unsigned i = 0; i < p.n_parts; i++) {
            const struct sw_sample_part part = sw_sample_part(bytes, p.n_parts, i);
            at += sw_sample_gather(sample + at, data + part.offset, part.bytes, p.piece_bytes);
        }
        sw_planning_learn(&p, sample);
    }
    *ret = p.plan;
}

/* A long region's dictionary is learned from more bytes, of all of its parts, and so shrinks text further. */
START_TEST(a_long_region_has_more_samples) {
    enum { TEXT_BYTES = 64 << 20, CHUNK_BYTES = 16 << 20 };
    uint8_t *text = malloc(TEXT_BYTES), *frame = malloc(sw_frame_bound_bytes(CHUNK_BYTES));
    static struct sw_frame_dictionary of_short;
    double ratios[2];
    ck_assert(text && frame);
    sw_tpch_text_fill(text, 0, TEXT_BYTES, 1);
    for (int i = 0; i < 2; i++) {
        struct sw_plan plan;
        uint64_t frame_bytes;
        make_plan(&plan, text, i ? TEXT_BYTES : CHUNK_BYTES, i ? &dictionary : &of_short);
        ck_assert_int_eq(plan.codec, SW_CODEC_ONPAIR);
        ck_assert_int_eq(sw_codec_encode(&plan, text + TEXT_BYTES / 2, CHUNK_BYTES, frame,
                                         sw_frame_bound_bytes(CHUNK_BYTES), &frame_bytes, NULL),
                         0);
        ratios[i] = (double)CHUNK_BYTES / (double)frame_bytes;
        ck_assert_double_eq_tol(ratios[i], plan.expected_ratio, 0.1 * ratios[i]);
    }
    ck_assert_double_gt(ratios[1], 1.05 * ratios[0]);
    free(text);
    free(frame);
}
END_TEST

/* With room for a dictionary text gets the denser codec, and its estimate is the ratio of a chunk's frame, dictionary
 * included. Bytes that do not shrink get none. */
START_TEST(a_dictionary_is_learned_where_there_is_room_for_one) {
    enum { TEXT_BYTES = 8 << 20, CHUNK_BYTES = 4 << 20 };
    static uint8_t text[TEXT_BYTES];
    struct sw_plan usual, dense, raw;
    const uint64_t cap_bytes = sw_frame_bound_bytes(CHUNK_BYTES);
    uint8_t *frame = aligned_alloc(64, (cap_bytes + 63) / 64 * 64);
    uint64_t frame_bytes = 0;
    sw_tpch_text_fill(text, 0, TEXT_BYTES, 1);
    make_plan(&usual, text, TEXT_BYTES, NULL);
    make_plan(&dense, text, TEXT_BYTES, &dictionary);
    ck_assert_int_eq(usual.codec, SW_CODEC_V5T);
    ck_assert_ptr_null(usual.dictionary);
    ck_assert_int_eq(dense.codec, SW_CODEC_ONPAIR);
    ck_assert_ptr_eq(dense.dictionary, &dictionary);
    ck_assert_uint_gt(dictionary.index_bytes, 0);
    ck_assert_double_gt(dense.expected_ratio, 1.25 * usual.expected_ratio);
    ck_assert_int_eq(sw_codec_encode(&dense, text, CHUNK_BYTES, frame, cap_bytes, &frame_bytes, NULL), 0);
    const double ratio = (double)CHUNK_BYTES / (double)frame_bytes;
    ck_assert_double_eq_tol(ratio, dense.expected_ratio, 0.1 * ratio);
    free(frame);
    sw_content_fill(text, TEXT_BYTES, SW_CONTENT_RANDOM, 1);
    make_plan(&raw, text, TEXT_BYTES, &dictionary);
    ck_assert_int_eq(raw.codec, SW_CODEC_RAW);
}
END_TEST

/* Text of a region, up to the step after training. */
static void train_text(struct sw_planning *p, bool learns) {
    struct sw_params trained;
    size_t coded_bytes = 0;
    sw_tpch_text_fill(region, 0, BYTES, 1);
    sw_planning_begin(p, SW_VALUE_NONE, BYTES, true, &dictionary);
    p->learns = learns;
    sw_planning_probed(p, false);
    train(p, &trained, &coded_bytes);
    sw_planning_trained(p, &trained, coded_bytes);
    ck_assert_int_eq(p->plan.codec, SW_CODEC_V5T);
    ck_assert_uint_eq(p->piece_bytes, SW_SAMPLE_LONG_PIECE_BYTES);
    ck_assert(p->takes_long);
}

/* A device's dictionary is the host's of the same samples. Other pieces judge it. One that makes no sense is not used.
 */
START_TEST(a_device_learns_a_dictionary) {
    static struct sw_onpair_learned learned;
    static struct sw_frame_dictionary want;
    const bool is_sound = _i == 0;
    struct sw_planning p;
    train_text(&p, true);
    ck_assert_int_eq(p.step, SW_PLANNING_LEARN);
    ck_assert_uint_eq(p.n_parts, 1);
    const size_t bytes = sw_sample_gather(sample, region, BYTES, p.piece_bytes);
    ck_assert_int_eq(sw_onpair_learn_symbols(&learned, sample, bytes, SW_ONPAIR_PIECE_BYTES, SW_ONPAIR_MAX_SYMBOLS), 0);
    ck_assert_int_eq(sw_onpair_learn(&want, sample, bytes, SW_ONPAIR_PIECE_BYTES, SW_ONPAIR_MAX_SYMBOLS), 0);
    const struct sw_sample_part judge = sw_planning_judge(&p);
    ck_assert_uint_gt(judge.offset, 0);
    ck_assert_uint_eq(judge.offset + judge.bytes, BYTES);
    (void)sw_sample_gather(sample, region + judge.offset, judge.bytes, p.piece_bytes);
    if (_i == 1)
        learned.n = SW_ONPAIR_MOST_NUMBERS + 1;
    else if (_i == 2)
        learned.symbol[0].bytes = 1u << 24;
    sw_planning_learned(&p, &learned, sample);
    ck_assert_int_eq(p.step, SW_PLANNING_DONE);
    ck_assert_int_eq(p.plan.codec, is_sound ? SW_CODEC_ONPAIR : SW_CODEC_V5T);
    ck_assert_ptr_eq(p.plan.dictionary, is_sound ? &dictionary : NULL);
    if (!is_sound)
        return;
    ck_assert_uint_eq(dictionary.bytes, want.bytes);
    ck_assert_mem_eq(dictionary.data, want.data, want.bytes);
    ck_assert_uint_gt(dictionary.index_bytes, 0);
}
END_TEST

/* A device that cannot learn, or could not, leaves it to the host. */
START_TEST(the_host_learns_what_a_device_does_not) {
    static struct sw_frame_dictionary want;
    struct sw_planning p;
    train_text(&p, _i);
    if (_i)
        sw_planning_learn_on_host(&p);
    ck_assert_int_eq(p.step, SW_PLANNING_SAMPLE);
    const size_t bytes = sw_sample_gather(sample, region, BYTES, p.piece_bytes);
    sw_planning_learn(&p, sample);
    ck_assert_int_eq(p.plan.codec, SW_CODEC_ONPAIR);
    ck_assert_int_eq(sw_onpair_learn(&want, sample, bytes, SW_ONPAIR_PIECE_BYTES, SW_ONPAIR_MAX_SYMBOLS), 0);
    ck_assert_uint_eq(dictionary.bytes, want.bytes); /* from the whole sample, though a part of it judges */
    ck_assert_mem_eq(dictionary.data, want.data, want.bytes);
}
END_TEST

/* From more parts of a long region than a host does; and nothing from bytes that do not shrink. */
START_TEST(a_device_learns_from_many_parts) {
    struct sw_params trained = {.n_symbols = 200};
    for (int i = 0; i < 3; i++) {
        struct sw_planning p;
        sw_planning_begin(&p, SW_VALUE_NONE, (uint64_t)1 << 30, true, &dictionary);
        p.learns = i > 0;
        sw_planning_probed(&p, false);
        sw_planning_trained(&p, &trained, SW_SAMPLE_MAX_BYTES / (i < 2 ? 2 : 1));
        ck_assert_int_eq(p.step, i == 1 ? SW_PLANNING_LEARN : SW_PLANNING_SAMPLE);
        ck_assert_uint_eq(p.n_parts, i == 1 ? SW_SAMPLE_MOST_GPU_PARTS : SW_SAMPLE_MOST_PARTS);
        ck_assert_uint_eq(sw_planning_judge(&p).offset, 0);
    }
}
END_TEST

/* A dictionary is tried on pieces that it was not learned from. The last piece may be short (AddressSanitizer notices
 * where its copy would end). */
START_TEST(samples_whose_last_piece_is_short) {
    struct sw_plan plan;
    unsigned n_refined = 0;
    fill_repeated();
    for (size_t pieces = 3; pieces <= 11; pieces += 4)
        for (size_t more = 0; more < SW_SAMPLE_LONG_PIECE_BYTES; more += 73) {
            const size_t bytes = pieces * SW_SAMPLE_LONG_PIECE_BYTES + more;
            sw_plan_init(&plan, region, bytes, bytes);
            if (sw_plan_may_refine(&plan, true))
                sw_plan_refine(&plan, region, bytes, &dictionary, NULL);
            n_refined += plan.codec != SW_CODEC_RAW;
        }
    ck_assert_uint_gt(n_refined, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("codec_planning");
    TCase *tests = tcase_create("all");
    tcase_add_loop_test(tests, nothing_to_plan, 0, 2);
    tcase_add_test(tests, samples_whose_last_piece_is_short);
    tcase_add_loop_test(tests, numbers_take_one_sample, 0, 2);
    tcase_add_test(tests, incompressible_bytes_are_not_trained_on);
    tcase_add_test(tests, trained_bytes_go_on_where_phrases_may_gain);
    tcase_add_test(tests, training_without_gain_gives_a_raw_plan);
    tcase_add_test(tests, training_that_failed_gives_a_raw_plan);
    tcase_add_loop_test(tests, learning_reads_nothing_but_its_sample, 1, SW_CODEC_NR);
    tcase_add_test(tests, bytes_without_symbols_get_codes);
    tcase_add_test(tests, a_long_regions_dictionary_is_in_each_frame);
    tcase_add_loop_test(tests, bytes_that_are_numbers_get_codes_of_parts, 0, 2);
    tcase_add_test(tests, host_samples_twice_where_phrases_may_gain);
    tcase_add_loop_test(tests, every_codec_that_is_chosen_can_be_tried, 0, SW_CODEC_NR);
    tcase_add_test(tests, a_dictionary_is_learned_where_there_is_room_for_one);
    tcase_add_test(tests, a_long_region_has_more_samples);
    tcase_add_loop_test(tests, a_device_learns_a_dictionary, 0, 3);
    tcase_add_loop_test(tests, the_host_learns_what_a_device_does_not, 0, 2);
    tcase_add_test(tests, a_device_learns_from_many_parts);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
