/* Plans that are reused: the cache, when a plan counts as stale, and the effect on small regions. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/planner/plan_cache.h"
#include "spill/planner/rules.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>

static struct sw_plan plan_of(enum sw_codec_id codec, double ratio) {
    struct sw_plan plan;
    sw_plan_init_raw(&plan);
    plan.codec = codec;
    plan.expected_ratio = ratio;
    return plan;
}

enum { KEY = 7, ANY = 1 << 20 /* bytes, as many as any long region */ };

/* The codec for a region that begins; 0: no plan. */
static double expected(const struct sw_plan_cache *cache, uint64_t key) {
    struct sw_plan_choice choice = {0};
    const struct sw_plan *plan = sw_plan_cache_find(cache, key, ANY, &choice);
    return plan ? plan->expected_ratio : 0;
}

static void put(struct sw_plan_cache *cache, uint64_t key, enum sw_codec_id codec, double ratio) {
    struct sw_plan_choice choice = {0};
    const struct sw_plan plan = plan_of(codec, ratio);
    (void)sw_plan_cache_find(cache, key, ANY, &choice);
    sw_plan_cache_put(cache, key, ANY, &choice, &plan);
}

/* A region to which the plan of that ratio alone is suited. False: there is none. */
static bool spill(struct sw_plan_cache *cache, double ratio, unsigned *n_tried) {
    struct sw_plan_choice choice = {0};
    const struct sw_plan *plan;
    *n_tried = 0;
    while ((plan = sw_plan_cache_find(cache, KEY, ANY, &choice)) != NULL) {
        ck_assert(sw_plan_cache_use(cache, KEY, &choice, 0));
        if (plan->expected_ratio == ratio) {
            sw_plan_cache_note_match(cache, KEY, &choice);
            return true;
        }
        sw_plan_cache_note_mismatch(&choice);
        ++*n_tried;
    }
    (void)sw_plan_cache_add_regret(cache, KEY, &choice, false, 0);
    return false;
}

START_TEST(test_the_least_recently_used_key_makes_room) {
    struct sw_plan_cache *cache = sw_alloc(sizeof *cache);
    struct sw_plan_choice choice = {0};
    ck_assert_ptr_nonnull(cache);
    for (uint64_t key = 1; key <= SW_PLAN_CACHE_KEYS; key++)
        put(cache, key, SW_CODEC_V5T, 1 + (double)key);
    ck_assert_ptr_nonnull(sw_plan_cache_find(cache, 1, ANY, &choice));
    ck_assert(sw_plan_cache_use(cache, 1, &choice, 0)); /* now the second one is the oldest */
    put(cache, SW_PLAN_CACHE_KEYS + 1, SW_CODEC_V5T, 99);
    for (uint64_t key = 1; key <= SW_PLAN_CACHE_KEYS; key++)
        ck_assert_double_eq(expected(cache, key), key == 2 ? 0 : 1 + (double)key);
    ck_assert_double_eq(expected(cache, SW_PLAN_CACHE_KEYS + 1), 99);
    sw_free(cache);
}
END_TEST

/* From the second round on, the cache knows which plan comes next. A new plan is expected to be used again. */
START_TEST(test_plans_in_turn_are_found_at_once) {
    struct sw_plan_cache cache = {0};
    unsigned n_tried;
    for (int i = 0; i < SW_PLANS_KEPT; i++) {
        ck_assert(!spill(&cache, 2 + i, &n_tried));
        put(&cache, KEY, SW_CODEC_V5T, 2 + i);
    }
    for (int i = 0; i < 3 * SW_PLANS_KEPT; i++) {
        ck_assert(spill(&cache, 2 + i % SW_PLANS_KEPT, &n_tried));
        ck_assert(i == 0 || n_tried == 0); /* that it begins anew is seen once */
    }
    for (int i = 0; i < 20; i++) { /* in an order of their own */
        ck_assert(spill(&cache, i % 2 ? 2 : 9, &n_tried));
        ck_assert(i < 3 || n_tried == 0);
    }
}
END_TEST

/* If nothing is tried, the region after two mismatches begins with another plan. */
START_TEST(test_repeated_mismatches_end_a_plans_expectation) {
    struct sw_plan_cache cache = {0};
    put(&cache, KEY, SW_CODEC_V5T, 2);
    put(&cache, KEY, SW_CODEC_V5T, 3);
    for (int i = 0; i < 3; i++) {
        struct sw_plan_choice choice = {0};
        const struct sw_plan *plan = sw_plan_cache_find(&cache, KEY, ANY, &choice);
        ck_assert_double_eq(plan->expected_ratio, i < 2 ? 3 : 2);
        ck_assert(sw_plan_cache_use(&cache, KEY, &choice, 0));
        sw_plan_cache_note_mismatch(&choice);
        ck_assert(!sw_plan_cache_add_regret(&cache, KEY, &choice, false, 0));
    }
}
END_TEST

/* One region of another kind, then one that the plan suits: that was no second one in a row. */
START_TEST(test_a_match_restores_a_plans_expectation) {
    struct sw_plan_cache cache = {0};
    put(&cache, KEY, SW_CODEC_V5T, 2);
    put(&cache, KEY, SW_CODEC_V5T, 3);
    for (int i = 0; i < 8; i++) {
        struct sw_plan_choice choice = {0};
        const struct sw_plan *plan = sw_plan_cache_find(&cache, KEY, ANY, &choice);
        ck_assert_double_eq(plan->expected_ratio, 3);
        ck_assert(sw_plan_cache_use(&cache, KEY, &choice, 0));
        if (i % 2) {
            sw_plan_cache_note_match(&cache, KEY, &choice);
        } else {
            sw_plan_cache_note_mismatch(&choice);
            ck_assert(!sw_plan_cache_add_regret(&cache, KEY, &choice, false, 0));
        }
    }
}
END_TEST

/* A new plan clears the regret that led to it, which does not make the next plan come early. */
START_TEST(test_a_new_plan_clears_the_regret) {
    struct sw_plan_cache cache = {0};
    for (int i = 0; i < 4; i++) {
        struct sw_plan_choice choice = {0};
        put(&cache, KEY, SW_CODEC_V5T, 3 + i);
        ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &choice));
        sw_plan_cache_note_mismatch(&choice);
        ck_assert(!sw_plan_cache_add_regret(&cache, KEY, &choice, false, 0.6));
    }
}
END_TEST

/* A plan that is due is made once, and not again and again if its bytes turn out not to shrink. */
START_TEST(test_a_plan_is_due_once) {
    struct sw_plan_cache cache = {0};
    const struct sw_plan raw = plan_of(SW_CODEC_RAW, 1);
    struct sw_plan_choice first = {0}, second = {0};
    put(&cache, KEY, SW_CODEC_V5T, 3);
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &first));
    ck_assert(!sw_plan_cache_use(&cache, KEY, &first, 1));
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &second)); /* while it is being made */
    ck_assert(sw_plan_cache_use(&cache, KEY, &second, 0.1));
    sw_plan_cache_put(&cache, KEY, ANY, &first, &raw);
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &second));
    ck_assert(sw_plan_cache_use(&cache, KEY, &second, 0.1));
}
END_TEST

START_TEST(test_the_least_recently_used_plan_makes_room) {
    struct sw_plan_cache cache = {0};
    unsigned n_tried;
    for (int i = 0; i < SW_PLANS_KEPT; i++)
        put(&cache, KEY, SW_CODEC_V5T, 2 + i);
    ck_assert(spill(&cache, 2, &n_tried));
    put(&cache, KEY, SW_CODEC_V5T, 99);
    for (int i = 0; i < SW_PLANS_KEPT; i++)
        ck_assert_int_eq(spill(&cache, 2 + i, &n_tried), i != 1);
    ck_assert(spill(&cache, 99, &n_tried));
}
END_TEST

/* Each region pays a tenth of the price. The new plan replaces the old one, but not another column's. */
START_TEST(test_a_plan_is_replaced_when_its_uses_have_paid_for_it) {
    for (int alike = 0; alike < 2; alike++) {
        struct sw_plan_cache cache = {0};
        struct sw_plan_choice choice = {0};
        struct sw_plan plan = plan_of(SW_CODEC_V5T, alike ? 3.1 : 6);
        unsigned n_tried;
        put(&cache, KEY, SW_CODEC_V5T, 3);
        for (int i = 0; i < 10; i++) {
            ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &choice));
            ck_assert_int_eq(sw_plan_cache_use(&cache, KEY, &choice, 0.101), i < 9);
        }
        sw_plan_cache_put(&cache, KEY, ANY, &choice, &plan);
        ck_assert_int_eq(spill(&cache, 3, &n_tried), !alike);
        ck_assert(spill(&cache, plan.expected_ratio, &n_tried));
    }
}
END_TEST

/* A few plans are made in advance. Then one is made for as much regret as it costs, and for more if the last one was
 * useless. */
START_TEST(test_a_plan_is_made_when_the_regret_reaches_its_price) {
    struct sw_plan_cache cache = {0};
    const struct sw_plan_choice choice = {0};
    put(&cache, KEY, SW_CODEC_V5T, 3);
    for (int i = 0; i < 10; i++)
        ck_assert(!sw_plan_cache_add_regret(&cache, KEY, &choice, false, 0)); /* it would not pay */
    for (int i = 0; i < SW_PLANS_KEPT; i++)
        ck_assert(sw_plan_cache_add_regret(&cache, KEY, &choice, true, 0));
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(sw_plan_cache_add_regret(&cache, KEY, &choice, true, 0.251), i == 3);
    for (int i = 0; i < 2 * SW_PLANS_KEPT; i++)
        put(&cache, KEY, SW_CODEC_V5T, 4 + i);
    ck_assert(!sw_plan_cache_add_regret(&cache, KEY, &choice, true, 1.5));
    ck_assert(sw_plan_cache_add_regret(&cache, KEY + 1, &choice, true, 0)); /* it has been forgotten meanwhile */
}
END_TEST

/* Tries that hardly ever win may cost a hundredth of the possible gain; a try that has won pays for others. */
START_TEST(test_gains_of_tries_pay_for_more_tries) {
    struct sw_plan_cache cache = {0};
    struct sw_plan_choice choice = {0};
    put(&cache, KEY, SW_CODEC_V5T, 3);
    put(&cache, KEY, SW_CODEC_V5T, 5);
    for (int i = 0; i < 10; i++)
        ck_assert_int_eq(sw_plan_cache_may_try(&cache, KEY, &choice, 0.0999, 1), i == 9);
    ck_assert(!sw_plan_cache_may_try(&cache, KEY, &choice, 0.0999, 1));
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &choice));
    sw_plan_cache_note_mismatch(&choice);
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, ANY, &choice));
    sw_plan_cache_note_match(&cache, KEY, &choice);
    for (int i = 0; i < 10; i++)
        ck_assert(sw_plan_cache_may_try(&cache, KEY, &choice, 0.0999, 1));
    ck_assert(!sw_plan_cache_may_try(&cache, KEY + 1, &choice, 0, 1));
}
END_TEST

START_TEST(test_plans_with_a_low_estimate_are_not_kept) {
    struct sw_plan_cache cache = {0};
    put(&cache, KEY, SW_CODEC_V5T, 1.2);
    ck_assert_double_eq(expected(&cache, KEY), 0);
    put(&cache, KEY, SW_CODEC_V5T, 3);
    put(&cache, KEY, SW_CODEC_RAW, 1);
    ck_assert_double_eq(expected(&cache, KEY), 3);
}
END_TEST

START_TEST(test_a_plan_is_for_regions_of_its_length) {
    struct sw_plan_cache cache = {0};
    struct sw_plan_choice choice = {0};
    const struct sw_plan of_short = plan_of(SW_CODEC_V5T, 2), of_long = plan_of(SW_CODEC_V5T, 3);
    sw_plan_cache_put(&cache, KEY, 1000, &choice, &of_short);
    choice = (struct sw_plan_choice){0};
    ck_assert_ptr_null(sw_plan_cache_find(&cache, KEY, ANY, &choice));
    ck_assert_ptr_null(sw_plan_cache_find(&cache, KEY, 2001, &choice));
    ck_assert_ptr_null(sw_plan_cache_find(&cache, KEY, 499, &choice));
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, 2000, &choice));
    ck_assert_ptr_nonnull(sw_plan_cache_find(&cache, KEY, 500, &choice));
    choice = (struct sw_plan_choice){0};
    sw_plan_cache_put(&cache, KEY, ANY, &choice, &of_long);
    choice = (struct sw_plan_choice){0};
    ck_assert_double_eq(sw_plan_cache_find(&cache, KEY, 2 * ANY, &choice)->expected_ratio, 3); /* as long a sample */
    ck_assert_double_eq(sw_plan_cache_find(&cache, KEY, 1000, &choice)->expected_ratio, 2);
    ck_assert_double_eq(sw_plan_cache_estimate(&cache, KEY), 0);
    for (int i = 1; i < SW_PLAN_ESTIMATES; i++)
        put(&cache, KEY, SW_CODEC_V5T, 3);
    sw_plan_cache_put(&cache, KEY, 1000, &choice, &of_short);
    ck_assert_double_eq(sw_plan_cache_estimate(&cache, KEY), 3); /* short ones say nothing of long ones */
}
END_TEST

START_TEST(test_the_last_estimates_are_remembered) {
    struct sw_plan_cache cache = {0};
    put(&cache, KEY, SW_CODEC_V5T, 3);
    for (int i = 1; i < SW_PLAN_ESTIMATES; i++) {
        ck_assert_double_eq(sw_plan_cache_estimate(&cache, KEY), 0); /* too few to tell */
        put(&cache, KEY, SW_CODEC_RAW, 1);
    }
    ck_assert_double_eq(sw_plan_cache_estimate(&cache, KEY), 3); /* the best of them */
    put(&cache, KEY, SW_CODEC_RAW, 1);
    ck_assert_double_eq(sw_plan_cache_estimate(&cache, KEY), 1);
    ck_assert_double_eq(sw_plan_cache_estimate(&cache, KEY + 1), 0);
}
END_TEST

START_TEST(test_each_type_and_buffer_has_a_plan_of_its_own) {
    const uint64_t keys[] = {sw_plan_key(1, SW_VALUE_NONE, 0), sw_plan_key(2, SW_VALUE_NONE, 0),
                             sw_plan_key(1, SW_VALUE_U8, 0),   sw_plan_key(1, SW_VALUE_I64, 0),
                             sw_plan_key(1, SW_VALUE_NONE, 1), sw_plan_key(1, SW_VALUE_U8, 64)};
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        ck_assert_uint_ne(keys[i], 0);
        for (size_t k = 0; k < i; k++)
            ck_assert_uint_ne(keys[i], keys[k]);
    }
}
END_TEST

/* Equal numbers take no data. Their plan's estimated data ratio is infinite, and other numbers still do not match it.
 */
START_TEST(test_equal_numbers_are_told_from_others) {
    static uint64_t numbers[8192];
    struct sw_plan plan;
    sw_plan_init_typed(&plan, SW_VALUE_U64, numbers, SW_SAMPLE_MAX_BYTES, sizeof numbers);
    ck_assert_int_ne(plan.codec, SW_CODEC_RAW);
    const double promise = sw_plan_data_ratio(&plan);
    ck_assert(!sw_rules_plan_is_stale(promise, sizeof numbers, 0, true));
    ck_assert(!sw_rules_plan_is_stale(promise, sizeof numbers, sizeof numbers / 100, true));
    ck_assert(sw_rules_plan_is_stale(promise, sizeof numbers, sizeof numbers / 4, true));
    sw_plan_init_typed(&plan, SW_VALUE_U8, numbers, 5001, 5001); /* mostly a header */
    ck_assert_int_ne(plan.codec, SW_CODEC_RAW);
    ck_assert(!sw_rules_plan_is_stale(sw_plan_data_ratio(&plan), 5001, 0, true));
}
END_TEST

/* A header and a table are much of a short region, and little of a long one. */
START_TEST(test_the_estimated_data_ratio_holds_for_all_lengths) {
    enum { SHORT = 16 << 10, LONG = 1 << 20 };
    uint8_t *bytes = sw_alloc(LONG);
    struct sw_plan of_short, of_long, raw = plan_of(SW_CODEC_RAW, 1);
    ck_assert_ptr_nonnull(bytes);
    sw_content_fill(bytes, LONG, SW_CONTENT_HEX, 1);
    sw_plan_init(&of_short, bytes, SHORT, SHORT);
    sw_plan_init(&of_long, bytes, SHORT, LONG);
    ck_assert_double_gt(of_long.expected_ratio, 1.2 * of_short.expected_ratio);
    ck_assert_double_eq_tol(sw_plan_data_ratio(&of_short) / sw_plan_data_ratio(&of_long), 1, 0.01);
    ck_assert_double_eq(sw_plan_data_ratio(&raw), 1);
    sw_free(bytes);
}
END_TEST

START_TEST(test_segments_are_short_where_they_are_few) {
    ck_assert_uint_eq(sw_rules_segment_log2(27 << 20, 4224, 10), 10);
    ck_assert_uint_eq(sw_rules_segment_log2(4 << 20, 4224, 10), 9);
    ck_assert_uint_eq(sw_rules_segment_log2(1 << 20, 4224, 10), 8);
    ck_assert_uint_eq(sw_rules_segment_log2(1, 4224, 10), 8);
    ck_assert_uint_eq(sw_rules_segment_log2(1, 0, 10), 10);
}
END_TEST

START_TEST(test_a_stale_plan_clearly_misses_its_estimate) {
    ck_assert(!sw_rules_plan_is_stale(3.0, 30000, 10000, false));
    ck_assert(!sw_rules_plan_is_stale(3.0, 30000, 11500, false));
    ck_assert(sw_rules_plan_is_stale(3.0, 30000, 12000, false));
    ck_assert(!sw_rules_plan_is_stale(2.0, 30000, 10000, false)); /* shrinks better than promised */
    ck_assert(sw_rules_plan_is_stale(2.0, 30000, 10000, true));
    ck_assert(!sw_rules_plan_is_stale(1.0, 30000, 30150, false));
    ck_assert(!sw_rules_plan_is_stale(3.0, 16, 16, false));
}
END_TEST

/* A new plan in the middle of a region has to have something left to be for, and sampling ends: data that defy it would
 * be sampled for ever. */
START_TEST(test_regions_are_sampled_again_within_limits) {
    const struct sw_rules_drift drift = {.expected_ratio = 3,
                                         .raw_bytes = 30000,
                                         .data_bytes = 15000,
                                         .rest_bytes = 60000,
                                         .chunk_bytes = 30000,
                                         .n_retrained = 15};
    struct sw_rules_drift other = drift;
    ck_assert(sw_rules_retrain(&drift));
    other.n_retrained++;
    ck_assert(!sw_rules_retrain(&other));
    other = drift;
    other.rest_bytes--;
    ck_assert(!sw_rules_retrain(&other));
    other = drift;
    other.data_bytes = 10000;
    ck_assert(!sw_rules_retrain(&other));
    other.data_bytes = 11000; /* a small drift */
    ck_assert(!sw_rules_retrain(&other));
    other.is_beside = true;
    ck_assert(sw_rules_retrain(&other));
}
END_TEST

/* Small regions of two columns in turn: none is stored longer than with a table of its own. */
START_TEST(test_small_regions_of_changing_content) {
    enum { BYTES = 60000, N = 12 };
    struct sw_fixture f;
    struct sw_memory memory = sw_memory_new(BYTES), to = sw_memory_new(BYTES);
    uint64_t words[40], seed = 5, alone[2] = {0};
    struct sw_test_op op;
    for (int i = 0; i < 40; i++)
        words[i] = sw_random(&seed);
    for (int i = 0; i < N; i++) {
        const bool is_text = i % 3 == 0;
        if (i < 2) { /* each alone, in an engine that has seen nothing */
            sw_fixture_open(&f, NULL);
        }
        for (size_t b = 0; b + 8 <= BYTES; b += 8)
            memcpy(memory.data + b, &words[sw_random(&seed) % 40], 8);
        if (is_text)
            sw_content_fill(memory.data, BYTES, SW_CONTENT_TEXT, (uint64_t)i);
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, BYTES, &op), 0);
        if (i < 2)
            alone[is_text] = op.outcome.stored_bytes;
        ck_assert_uint_le(op.outcome.stored_bytes * 100, alone[is_text] * 118);
        ck_assert_int_eq(sw_fixture_restore(&f, op.id, &to, 0, BYTES, false, &op), 0);
        ck_assert_int_eq(memcmp(to.data, memory.data, BYTES), 0);
        if (i == 0)
            sw_fixture_close(&f);
    }
    sw_fixture_close(&f);
    sw_memory_free(&memory);
    sw_memory_free(&to);
}
END_TEST

/* Bytes that a region takes behind others of the same session, of the same content. */
static uint64_t stored_behind(enum sw_content content, const size_t *bytes, unsigned n) {
    struct sw_fixture f;
    struct sw_test_op op = {.done = false};
    sw_fixture_open(&f, NULL);
    for (unsigned i = 0; i < n; i++) {
        struct sw_memory memory = sw_memory_new(bytes[i]);
        sw_content_fill(memory.data, bytes[i], content, 1);
        ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, bytes[i], &op), 0);
        sw_memory_free(&memory);
    }
    sw_fixture_close(&f);
    return op.outcome.stored_bytes;
}

/* A plan is kept for lengths that it suits: a region takes no more room for shorter, or longer, ones before it. */
START_TEST(test_regions_of_changing_length) {
    static const enum sw_content contents[] = {SW_CONTENT_ZEROS, SW_CONTENT_TEXT, SW_CONTENT_HEX, SW_CONTENT_MIXED};
    static const size_t lengths[] = {64, 512, 4096, 10000, 30000, 100000, 1 << 20};
    enum { N = sizeof lengths / sizeof lengths[0] };
    const enum sw_content content = contents[_i];
    for (unsigned i = 0; i < N; i++) {
        const uint64_t alone = stored_behind(content, &lengths[i], 1);
        for (unsigned before = 0; before < N; before++) {
            const size_t both[] = {lengths[before], lengths[i]};
            const uint64_t behind = stored_behind(content, both, 2);
            ck_assert_msg(behind * 100 <= alone * 112, "content %d, %zu bytes behind %zu: %llu in place of %llu",
                          (int)content, both[1], both[0], (unsigned long long)behind, (unsigned long long)alone);
        }
    }
}
END_TEST

/* Regions that are spilled together use one plan: the longest region's. */
START_TEST(test_a_group_uses_the_plan_of_its_longest_region) {
    static const size_t bytes[] = {512, 200000, 512};
    enum { N = sizeof bytes / sizeof bytes[0] };
    const uint64_t alone = stored_behind(SW_CONTENT_ZEROS, &bytes[1], 1);
    struct sw_memory memory = sw_memory_new(1 << 20);
    struct sw_fixture f;
    struct sw_test_op ops[N] = {{.done = false}};
    struct sw_err err;
    sw_fixture_open(&f, NULL);
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &memory, false);
    for (unsigned i = 0; i < N; i++) {
        const struct sw_range range = {.mem = mem, .offset = i * 300000, .bytes = bytes[i]};
        ck_assert_int_eq(sw_engine_spill(f.owner, SW_TRANSFER(&range, 1), sw_test_op_done, &ops[i], &ops[i].id, &err),
                         0);
    }
    for (unsigned i = 0; i < N; i++)
        sw_fixture_until(&f, &ops[i].done);
    ck_assert_uint_le(ops[1].outcome.stored_bytes * 100, alone * 112);
    sw_fixture_close_mem(&f, mem);
    sw_fixture_close(&f);
    sw_memory_free(&memory);
}
END_TEST

/* The estimate for a plan's own bytes is its first frame's ratio, until the plan is replaced. */
START_TEST(test_a_kept_plan_remembers_its_own_frame) {
    struct sw_plan_cache *cache = sw_alloc(sizeof *cache);
    struct sw_plan_choice choice = {0};
    const struct sw_plan plan = plan_of(SW_CODEC_V5T, 3), other = plan_of(SW_CODEC_V5T, 1.2);
    ck_assert_ptr_nonnull(cache);
    ck_assert(sw_plan_cache_seen(cache, KEY, &choice) == 0);
    sw_plan_cache_put(cache, KEY, ANY, &choice, &plan);
    ck_assert(sw_plan_cache_seen(cache, KEY, &choice) == 0);
    sw_plan_cache_saw(cache, KEY, &choice, &other, 1.2); /* is not kept: it has no place */
    ck_assert(sw_plan_cache_seen(cache, KEY, &choice) == 0);
    sw_plan_cache_saw(cache, KEY, &choice, &plan, 3.1);
    sw_plan_cache_saw(cache, KEY, &choice, &plan, 2.9);
    ck_assert(sw_plan_cache_seen(cache, KEY, &choice) == 3.1);
    choice.is_due = true;
    sw_plan_cache_put(cache, KEY, ANY, &choice, &plan);
    ck_assert(sw_plan_cache_seen(cache, KEY, &choice) == 0);
    sw_free(cache);
}
END_TEST

/* A pack saves room: a region takes no more of it because of the regions packed before. */
START_TEST(test_packs_of_changing_content) {
    static const enum sw_content contents[] = {SW_CONTENT_TEXT, SW_CONTENT_HEX, SW_CONTENT_ZEROS};
    enum { BYTES = 2 << 20, N_CONTENTS = 3, N = 9 };
    struct sw_memory memory = sw_memory_new(BYTES);
    uint64_t alone[N_CONTENTS] = {0};
    for (int i = 0; i < N_CONTENTS + N; i++) { /* each alone first */
        static struct sw_fixture f;
        struct sw_test_op op, unpack;
        const int which = i % N_CONTENTS;
        if (i <= N_CONTENTS)
            sw_fixture_open(&f, NULL);
        sw_content_fill(memory.data, BYTES, contents[which], 1);
        ck_assert_int_eq(sw_fixture_pack(&f, &memory, 0, BYTES, &op), 0);
        if (i < N_CONTENTS)
            alone[which] = op.outcome.stored_bytes;
        ck_assert_uint_le(op.outcome.stored_bytes * 100, alone[which] * 103);
        ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &memory, 0, BYTES, &unpack), 0);
        if (i < N_CONTENTS || i == N_CONTENTS + N - 1)
            sw_fixture_close(&f);
    }
    sw_memory_free(&memory);
}
END_TEST

/* How often chunks have been encoded. */
static struct {
    struct sw_device_ops ops;
    const struct sw_device_ops *real;
    atomic_uint n;
} encodes;

static int counted_encode(struct sw_device *device, unsigned s, const struct sw_plan *plan,
                          const struct sw_mapping *mapping, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    atomic_fetch_add(&encodes.n, 1);
    return encodes.real->encode(device, s, plan, mapping, offset, bytes, err);
}

enum { N_CHUNKS = 8, CHUNKS_BYTES = N_CHUNKS * 65536 };

static void spill_column(struct sw_fixture *f, const struct sw_memory *memory, enum sw_content content,
                         struct sw_test_op *ret) {
    sw_content_fill(memory->data, memory->bytes, content, 1);
    ck_assert_int_eq(sw_fixture_spill(f, memory, 0, memory->bytes, ret), 0);
}

/* The time of a column that follows itself and another one. The slots report in turn: all have chunks by the other
 * column's plan before any has one by its own. */
static uint64_t stored_after_another(unsigned n_slots) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_memory memory = sw_memory_new(CHUNKS_BYTES);
    struct sw_fixture f;
    struct sw_test_op op;
    config.n_slots = n_slots;
    sw_fixture_open(&f, &config);
    spill_column(&f, &memory, SW_CONTENT_TEXT, &op); /* the worker rests now, its steps can be changed */
    encodes.real = f.device->ops;
    encodes.ops = *encodes.real;
    encodes.ops.encode = counted_encode;
    encodes.ops.slot_poll = encodes.real->slot_wait;
    f.device->ops = &encodes.ops;
    spill_column(&f, &memory, SW_CONTENT_HEX, &op);
    atomic_store(&encodes.n, 0);
    spill_column(&f, &memory, SW_CONTENT_TEXT, &op);
    f.device->ops = encodes.real;
    sw_fixture_close(&f);
    sw_memory_free(&memory);
    return op.outcome.stored_bytes;
}

/* Chunks under way by a plan that turns out to mismatch are encoded again, as is the chunk that showed it. */
START_TEST(test_no_chunk_keeps_a_mismatched_plan) {
    enum { SLOTS = 4 };
    const uint64_t alone = stored_after_another(1);
    const unsigned n_alone = atomic_load(&encodes.n);
    const uint64_t stored = stored_after_another(SLOTS);
    const unsigned n = atomic_load(&encodes.n);
    ck_assert_uint_le(stored * 100, alone * 103);
    ck_assert_uint_eq(n_alone, N_CHUNKS + 1);
    ck_assert_uint_eq(n, N_CHUNKS + SLOTS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("plans");
    TCase *tcase = tcase_create("plans");
    tcase_add_test(tcase, test_the_least_recently_used_key_makes_room);
    tcase_add_test(tcase, test_plans_in_turn_are_found_at_once);
    tcase_add_test(tcase, test_repeated_mismatches_end_a_plans_expectation);
    tcase_add_test(tcase, test_a_match_restores_a_plans_expectation);
    tcase_add_test(tcase, test_a_new_plan_clears_the_regret);
    tcase_add_test(tcase, test_a_plan_is_due_once);
    tcase_add_test(tcase, test_the_least_recently_used_plan_makes_room);
    tcase_add_test(tcase, test_a_plan_is_replaced_when_its_uses_have_paid_for_it);
    tcase_add_test(tcase, test_a_plan_is_made_when_the_regret_reaches_its_price);
    tcase_add_test(tcase, test_gains_of_tries_pay_for_more_tries);
    tcase_add_test(tcase, test_plans_with_a_low_estimate_are_not_kept);
    tcase_add_test(tcase, test_the_last_estimates_are_remembered);
    tcase_add_test(tcase, test_each_type_and_buffer_has_a_plan_of_its_own);
    tcase_add_test(tcase, test_equal_numbers_are_told_from_others);
    tcase_add_test(tcase, test_the_estimated_data_ratio_holds_for_all_lengths);
    tcase_add_test(tcase, test_segments_are_short_where_they_are_few);
    tcase_add_test(tcase, test_a_stale_plan_clearly_misses_its_estimate);
    tcase_add_test(tcase, test_regions_are_sampled_again_within_limits);
    tcase_add_test(tcase, test_small_regions_of_changing_content);
    tcase_add_test(tcase, test_no_chunk_keeps_a_mismatched_plan);
    tcase_add_test(tcase, test_a_kept_plan_remembers_its_own_frame);
    tcase_add_test(tcase, test_packs_of_changing_content);
    tcase_add_loop_test(tcase, test_regions_of_changing_length, 0, 4);
    tcase_add_test(tcase, test_a_group_uses_the_plan_of_its_longest_region);
    tcase_add_test(tcase, test_a_plan_is_for_regions_of_its_length);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
