#include "spill/planner/dense.h"

#include "codec/plan/rates.h"
#include "codec/sample.h"

/* Shorter runs are not worth a dictionary of tens of KB, or not the 20 ms that learning takes. */
#define LEAST_BYTES ((uint64_t)2 << 20)
#define LEAST_UNASKED_BYTES ((uint64_t)16 << 20)
/* What is expected while nothing is known: the median of nine columns (codec/onpair/TUNING.md), the usual codec's
 * ratio, and how many times higher the denser one's is with a sample of 64 KB. */
#define USUAL_RATIO 2.1
#define GAIN 1.2
#define GPU_GAIN 1.3  /* with one of 1 MB */
#define LONG_PRICES 2 /* a region that takes so many times as long as learning does not wait for it */
/* How many times as fast a short region to memory must be. Without such a margin regions of 64 MiB got dictionaries,
 * and were not faster by them (H200). */
#define SHORT_TOLERANCE 1.15
#define PLAN_S 0.03  /* on a CPU of 2026 (codec/onpair/TUNING.md) */
#define PART_S 0.015 /* for each further part of the region (codec/sample.h) */
#define GPU_PLAN_S                                                                                                     \
    0.008 /* on a GPU beside the chunks: 2.8 to 6.0 ms to learn (tests/gpu/learn.c), and the rest of the plan */

/* The denser encoder's rate by the usual one's, of one chunk of 64 MiB that has a GPU to itself: 360 and 330 GB/s
 * (l_comment, H200); other text is less even. */
#define DENSE_SHARE 0.8

/* The question needs both encoders' rates. Another program slows both down alike: what was measured before it began
 * does not count. */
static void fill_rates(struct sw_cost_rates *rates) {
    double *usual = &rates->encode[SW_PLAN_BYTES_CODEC], *dense = &rates->encode[SW_PLAN_DENSE_CODEC];
    if (*usual <= 0 && *dense <= 0)
        *usual = sw_codec_rates_of(SW_PLAN_BYTES_CODEC)->encode;
    if (*usual <= 0)
        *usual = *dense / DENSE_SHARE;
    if (*dense <= 0)
        *dense = *usual * DENSE_SHARE;
    if (*dense > *usual)
        *dense = *usual;
}

static double ratio_of(const struct sw_planner *p, uint64_t key, double unknown) {
    const double estimate = sw_plan_cache_estimate(&p->plans, key);
    return estimate > 1 ? estimate : unknown;
}

/* Returns the plan kept for regions of this length. NULL: there is none. */
static const struct sw_plan *kept_plan(const struct sw_planner *p, uint64_t key, uint64_t raw_bytes) {
    struct sw_plan_choice choice = {0};
    return sw_plan_cache_find(&p->plans, key, raw_bytes, &choice);
}

bool sw_dense_is_kept(const struct sw_planner *p, uint64_t key, uint64_t raw_bytes) {
    return kept_plan(p, key | SW_PLAN_KEY_DENSE, raw_bytes) != NULL;
}

/* Returns the time that the slowest stages take less by the denser codec, out and back if both are known. 0: it is not
 * clearly less. */
static double gain_s(const struct sw_cost_question *usual, const struct sw_cost_question *dense, double tolerance) {
    struct sw_cost_time a = sw_cost_time_of(usual, usual->codec), b = sw_cost_time_of(dense, dense->codec);
    if (!sw_cost_knows_back(usual) || !sw_cost_knows_back(dense))
        a.back_s = b.back_s = 0;
    const double before_s = sw_cost_round_trip_s(&a), after_s = sw_cost_round_trip_s(&b);
    return before_s > tolerance * after_s ? before_s - after_s : 0;
}

bool sw_dense_pays(struct sw_planner *p, const struct sw_workload *what, const struct sw_plan *usual,
                   const struct sw_plan *dense) {
    if (!p->has_link) /* room is all that counts */
        return dense->expected_ratio > SW_COST_TOLERANCE * usual->expected_ratio;
    struct sw_cost_question before = sw_planner_ask(p, what, usual->codec, usual->expected_ratio),
                            after = sw_planner_ask(p, what, dense->codec, dense->expected_ratio);
    fill_rates(&before.rates);
    fill_rates(&after.rates);
    return gain_s(&before, &after, SW_COST_TOLERANCE) > 0;
}

/* Returns true if the plan will come long before the region's end. */
static bool outlasts_learning(const struct sw_planner *p, double out_s, double price_s) {
    return p->n_slots > 1 && out_s >= LONG_PRICES * price_s;
}

/* Returns true if the run waits for the plan. To a tier behind memory a long one does, too, if the first chunks of all
 * slots take longer than learning: waiting takes less time than they would lose without it. */
static bool waits(const struct sw_planner *p, const struct sw_cost_question *usual, double price_s) {
    const double out_s = sw_cost_time_of(usual, usual->codec).out_s;
    return !outlasts_learning(p, out_s, price_s) ||
           (usual->to_disk && out_s * p->n_slots > price_s * (double)usual->n_chunks);
}

double sw_dense_learning_s(const struct sw_planner *p, uint64_t raw_bytes) {
    if (p->plan_s[true] > 0)
        return p->plan_s[true];
    return p->learns_dictionaries ? GPU_PLAN_S
                                  : PLAN_S + PART_S * (sw_sample_parts(raw_bytes, SW_SAMPLE_MOST_PARTS) - 1);
}

/* Returns the question about the denser plan. kept: NULL: it is to be learned. */
static struct sw_cost_question ask_dense(struct sw_planner *p, uint64_t key, const struct sw_workload *what,
                                         double usual_ratio, const struct sw_plan *kept) {
    const double gain = p->learns_dictionaries ? GPU_GAIN : GAIN;
    struct sw_cost_question dense =
        kept ? sw_planner_ask(p, what, kept->codec, kept->expected_ratio)
             : sw_planner_ask(p, what, SW_PLAN_DENSE_CODEC, ratio_of(p, key | SW_PLAN_KEY_DENSE, gain * usual_ratio));
    fill_rates(&dense.rates);
    return dense;
}

static enum sw_dense choose_for_time(struct sw_planner *p, uint64_t key, const struct sw_workload *what,
                                     const struct sw_cost_question *usual, const struct sw_plan *kept) {
    const struct sw_cost_question dense = ask_dense(p, key, what, usual->expected_ratio, kept);
    const double s = gain_s(usual, &dense, SW_COST_TOLERANCE), price_s = sw_dense_learning_s(p, what->raw_bytes);
    const bool must_wait = waits(p, usual, price_s);
    if (s <= 0)
        return SW_DENSE_NOT;
    if (kept)
        return must_wait ? SW_DENSE_WAITS : SW_DENSE_KEPT;
    /* A region that does not wait lacks one slot meanwhile. */
    if (!sw_plan_cache_wish(&p->plans, key | SW_PLAN_KEY_DENSE, s, must_wait ? price_s : price_s / p->n_slots))
        return SW_DENSE_NOT;
    return must_wait ? SW_DENSE_WAITS : SW_DENSE_LATER;
}

/* choice: of the usual plan that is to be tried first: the region is expected to be of its column. */
static enum sw_dense choose_for_column(struct sw_planner *p, uint64_t key, const struct sw_workload *what,
                                       const struct sw_cost_question *usual, const struct sw_plan_choice *choice,
                                       double *ret_gain_s) {
    const struct sw_plan *denser = sw_plan_cache_denser(&p->plans, key, choice);
    const struct sw_cost_question dense = ask_dense(p, key, what, usual->expected_ratio, denser);
    *ret_gain_s = gain_s(usual, &dense, SHORT_TOLERANCE);
    return *ret_gain_s > 0 ? SW_DENSE_COLUMN : SW_DENSE_NOT;
}

/* If the session has had no region of text yet, the rates and the ratio of the first chunks decide. */
static enum sw_dense choose_for_memory(struct sw_planner *p, uint64_t key, const struct sw_workload *what,
                                       struct sw_cost_question *usual, const struct sw_plan *kept, double *ret_gain_s) {
    struct sw_plan_choice choice = {0};
    const struct sw_plan *kept_usual = sw_plan_cache_find(&p->plans, key, what->raw_bytes, &choice);
    if (!kept && !kept_usual)
        return p->n_slots > 1 ? SW_DENSE_LATER : SW_DENSE_NOT;
    if (kept_usual)
        *usual = sw_planner_ask(p, what, kept_usual->codec, kept_usual->expected_ratio);
    fill_rates(&usual->rates);
    if (!waits(p, usual, sw_dense_learning_s(p, what->raw_bytes)))
        return choose_for_time(p, key, what, usual, kept);
    return kept_usual ? choose_for_column(p, key, what, usual, &choice, ret_gain_s) : SW_DENSE_NOT;
}

enum sw_dense_rest sw_dense_ask_rest(struct sw_planner *p, uint64_t key, const struct sw_workload *rest,
                                     const struct sw_plan *plan) {
    const struct sw_cost_question usual = sw_planner_ask(p, rest, plan->codec, plan->expected_ratio);
    if (usual.to_disk)
        return SW_DENSE_REST_LEARNS; /* this was decided when the run began */
    if (!sw_cost_knows_out(&usual))
        return SW_DENSE_REST_UNKNOWN;
    const struct sw_cost_question dense = ask_dense(p, key, rest, usual.expected_ratio, NULL);
    const double price_s = sw_dense_learning_s(p, rest->raw_bytes), out_s = sw_cost_time_of(&usual, usual.codec).out_s,
                 part_left = 1 - price_s / out_s;
    /* A dictionary that is to be replaced has been worth it. */
    const bool pays = plan->dictionary || part_left * gain_s(&usual, &dense, SW_COST_TOLERANCE) > price_s / p->n_slots;
    return pays && outlasts_learning(p, out_s, price_s) ? SW_DENSE_REST_LEARNS : SW_DENSE_REST_NOT;
}

enum sw_dense sw_dense_choose(struct sw_planner *p, uint64_t key, const struct sw_snapshot *now, double *ret_gain_s) {
    const struct sw_workload what = {.raw_bytes = now->raw_bytes,
                                     .chunk_bytes = now->n_chunks > 1 ? now->chunk_bytes : now->raw_bytes,
                                     .n_chunks = now->n_chunks,
                                     .room = &now->room,
                                     .shares_slots = now->shares_slots};
    if (!p->takes_dictionaries || now->is_pack || now->raw_bytes < LEAST_BYTES)
        return SW_DENSE_NOT;
    if (now->room.prefer == SW_PREFER_ROOM)
        return SW_DENSE_WAITS;
    struct sw_cost_question usual = sw_planner_ask(p, &what, SW_PLAN_BYTES_CODEC, ratio_of(p, key, USUAL_RATIO));
    const struct sw_plan *kept = kept_plan(p, key | SW_PLAN_KEY_DENSE, now->raw_bytes);
    if (now->room.prefer != SW_PREFER_TIME && (usual.room_is_short || (usual.to_disk && !p->has_link)))
        return kept || now->raw_bytes >= LEAST_UNASKED_BYTES ? SW_DENSE_WAITS : SW_DENSE_NOT;
    const bool is_slow = usual.rates.disk_write > 0 && usual.rates.disk_write < usual.rates.link_out;
    if (!p->has_link || !(usual.to_disk ? is_slow : p->learns_dictionaries) || now->type != SW_VALUE_NONE)
        return SW_DENSE_NOT;
    if (!usual.to_disk)
        return choose_for_memory(p, key, &what, &usual, kept, ret_gain_s);
    fill_rates(&usual.rates);
    return choose_for_time(p, key, &what, &usual, kept);
}
