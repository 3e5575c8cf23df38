#include "codec/plan/plan.h"

#include "base/alloc.h"
#include "codec/codec_ops.h"

#include <string.h>

/* A codec with a smaller ratio is not worth its time. */
#define MIN_RATIO 1.05

/* A codec with a least gain must save this part of the content. */
#define LEAST_SAVED 0.001

/* The codec that GPUs train (sw_gpu_train_async()). */
#define TRAINED SW_CODEC_V5T

static size_t min_size(size_t a, size_t b) {
    return a < b ? a : b;
}

/* Estimates a frame's ratio by encoding the sample; 0: out of memory. */
static double estimate_ratio(const struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes) {
    const struct sw_codec_ops *ops = sw_codec_ops(plan->codec);
    const size_t tile_bytes = (size_t)SW_TILE_SEGMENTS << plan->segment_log2;
    void *encoder = ops->encoder_new(plan);
    uint8_t *scratch = sw_alloc(tile_bytes + sw_codec_format_of(plan->codec)->count_bytes);
    size_t data_bytes = 0;
    for (size_t at = 0; encoder && scratch && at < sample_bytes; at += tile_bytes)
        data_bytes += ops->encode_tile(encoder, sample + at, min_size(sample_bytes - at, tile_bytes),
                                       plan->segment_log2, scratch, scratch + tile_bytes);
    sw_free(scratch);
    ops->encoder_free(encoder);
    return data_bytes ? 1 / (sw_plan_head_part(plan) + (double)data_bytes / (double)sample_bytes) : 0;
}

void sw_plan_init(struct sw_plan *ret, const void *sample, size_t sample_bytes, uint64_t raw_bytes) {
    sw_plan_init_raw(ret);
    for (unsigned codec = 0; sample_bytes && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan = {.codec = (enum sw_codec_id)codec};
        if (!sw_codec_takes(plan.codec, SW_VALUE_NONE) || !sw_codec_ops(plan.codec)->learn ||
            sw_codec_ops(plan.codec)->refine)
            continue;
        sw_plan_learn(&plan, sample, sample_bytes);
        plan.raw_bytes = raw_bytes;
        plan.expected_ratio = estimate_ratio(&plan, sample, sample_bytes);
        if (plan.expected_ratio >= MIN_RATIO && plan.expected_ratio > ret->expected_ratio)
            *ret = plan;
    }
}

void sw_plan_init_trained(struct sw_plan *ret, const struct sw_params *params, size_t coded_bytes, size_t sample_bytes,
                          uint64_t raw_bytes) {
    struct sw_plan plan = {
        .codec = TRAINED, .segment_log2 = SW_RAW_SEGMENT_LOG2, .raw_bytes = raw_bytes, .params = *params};
    sw_plan_init_raw(ret);
    if (!coded_bytes)
        return;
    /* The last word of a segment's codes is half full on average. */
    const double padding = 2.0 / (double)(1u << plan.segment_log2);
    const double data_per_byte = (double)coded_bytes / (double)sample_bytes + padding;
    plan.expected_ratio = 1 / (sw_plan_head_part(&plan) + data_per_byte);
    if (plan.expected_ratio >= MIN_RATIO)
        *ret = plan;
}

/* ---- refining ---- */

/* Bytes that no symbols shrink have no long ones either. */
static bool may_refine(enum sw_codec_id codec, const struct sw_plan *plan, bool has_dictionary) {
    const struct sw_codec_ops *ops = sw_codec_ops(codec);
    if (ops->learn_dictionary)
        return has_dictionary && plan->codec != SW_CODEC_RAW;
    return ops->may_refine && ops->may_refine(plan);
}

bool sw_plan_may_refine(const struct sw_plan *plan, bool has_dictionary) {
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        if (may_refine((enum sw_codec_id)codec, plan, has_dictionary))
            return true;
    return false;
}

/* Copies a sample with each one_in-th piece moved to the end. Returns the length before these pieces. */
static size_t set_apart(uint8_t *ret, const uint8_t *sample, size_t sample_bytes, size_t one_in) {
    const size_t piece = SW_SAMPLE_LONG_PIECE_BYTES, n_apart = sample_bytes / piece / one_in;
    size_t first = 0, last = sample_bytes - n_apart * piece;
    for (size_t at = 0; at < sample_bytes; at += piece) {
        const bool is_apart = at / piece % one_in == one_in - 1 && at + piece <= sample_bytes;
        size_t *to = is_apart ? &last : &first;
        memcpy(ret + *to, sample + at, min_size(sample_bytes - at, piece));
        *to += min_size(sample_bytes - at, piece);
    }
    return first;
}

/* Lets a plan learn its dictionary, and estimates its ratio. A dictionary fits the bytes from which it was learned too
 * well: by a sixth for text and 64 KB. So one that was learned without a fourth of the sample is tried on that fourth,
 * and then learned again from all. From a large sample it is learned without an eighth, and once.
 * If there is no memory, expected_ratio is 0. */
static void learn_dictionary(struct sw_plan *plan, const uint8_t *sample, size_t sample_bytes,
                             struct sw_frame_dictionary *dictionary) {
    const struct sw_codec_ops *ops = sw_codec_ops(plan->codec);
    uint8_t *apart = sw_alloc(sample_bytes);
    if (!apart)
        return;
    const bool is_large = sample_bytes > SW_SAMPLE_MAX_BYTES;
    const size_t bytes = set_apart(apart, sample, sample_bytes, is_large ? 8 : 4);
    if (ops->learn_dictionary(dictionary, apart, bytes) == 0)
        plan->expected_ratio = bytes < sample_bytes ? estimate_ratio(plan, apart + bytes, sample_bytes - bytes)
                                                    : estimate_ratio(plan, sample, sample_bytes);
    sw_free(apart);
    if (!is_large && ops->learn_dictionary(dictionary, sample, sample_bytes) < 0)
        plan->expected_ratio = 0;
}

/* If there is no memory to learn, expected_ratio is 0. */
static void refine_by(enum sw_codec_id codec, struct sw_plan *ret, const struct sw_plan *plan, const void *sample,
                      size_t sample_bytes, struct sw_frame_dictionary *dictionary, void *learned) {
    const struct sw_codec_ops *ops = sw_codec_ops(codec);
    memset(ret, 0, sizeof *ret);
    ret->codec = codec;
    ret->raw_bytes = plan->raw_bytes;
    if (ops->learn_dictionary) {
        ret->segment_log2 = sw_codec_format_of(codec)->min_segment_log2;
        ret->dictionary = dictionary;
    } else {
        ops->refine(ret, plan, sample, sample_bytes);
    }
    if (ops->learn_dictionary && !learned)
        learn_dictionary(ret, sample, sample_bytes, dictionary);
    else if (!ops->learn_dictionary || ops->write_dictionary(dictionary, learned) == 0)
        ret->expected_ratio = estimate_ratio(ret, sample, sample_bytes);
}

void sw_plan_refine(struct sw_plan *plan, const void *sample, size_t sample_bytes,
                    struct sw_frame_dictionary *dictionary, void *learned) {
    struct sw_plan best = *plan, finer;
    for (int codec = 0; codec < SW_CODEC_NR; codec++) {
        if (!may_refine((enum sw_codec_id)codec, plan, dictionary))
            continue;
        refine_by((enum sw_codec_id)codec, &finer, plan, sample, sample_bytes, dictionary, learned);
        if (finer.expected_ratio >= sw_codec_ops(finer.codec)->refine_gain * plan->expected_ratio &&
            (best.codec == plan->codec || finer.expected_ratio > best.expected_ratio))
            best = finer;
    }
    const bool stays = best.codec == plan->codec && plan->codec != SW_CODEC_RAW;
    const double ratio = stays ? estimate_ratio(plan, sample, sample_bytes) : 0;
    if (ratio > 0) /* 0: out of memory, or another plan is better */
        best.expected_ratio = ratio;
    *plan = best;
}

/* ---- numbers ---- */

/* Returns whether the codec could save more bits than the plan does already. */
static bool may_win(const struct sw_codec_ops *ops, enum sw_value_type type, const struct sw_plan *plan) {
    const unsigned bits = sw_value_bits(type);
    return !ops->saved_bits || plan->expected_ratio * (bits - ops->saved_bits) < bits;
}

/* Returns whether a codec gains enough over the plan's. */
static bool gains(const struct sw_codec_ops *ops, const struct sw_plan *plan, double ratio) {
    if (ratio <= plan->expected_ratio)
        return false;
    if (ops->least_gain <= 0 || plan->codec == SW_CODEC_RAW)
        return true;
    return ratio >= ops->least_gain * plan->expected_ratio && 1 / plan->expected_ratio - 1 / ratio >= LEAST_SAVED;
}

/* Returns whether a codec with symbols gets the plan's room for them. The codec that had it can then no longer be
 * chosen. */
static bool takes_symbols(struct sw_plan *plan, const struct sw_codec_ops *ops, double ratio) {
    for (unsigned other = 0; other < SW_CODEC_NR; other++) {
        if (plan->ratios[other] <= 0 || !sw_codec_has_symbols((enum sw_codec_id)other))
            continue;
        if (plan->codec == other ? !gains(ops, plan, ratio) : ratio <= plan->ratios[other])
            return false;
        plan->ratios[other] = 0;
    }
    return true;
}

void sw_plan_init_typed(struct sw_plan *ret, enum sw_value_type type, const void *sample, size_t sample_bytes,
                        uint64_t raw_bytes) {
    struct sw_frame_layout layout;
    sw_plan_init_raw(ret);
    for (unsigned codec = 0; sample_bytes && codec < SW_CODEC_NR; codec++) {
        struct sw_plan plan;
        if (!sw_plan_init_numbers(&plan, (enum sw_codec_id)codec, type) ||
            !may_win(sw_codec_ops(plan.codec), type, ret))
            continue;
        plan.params = ret->params;
        sw_plan_learn(&plan, sample, sample_bytes);
        const bool has_symbols = sw_codec_has_symbols(plan.codec);
        if (has_symbols && !plan.params.n_symbols)
            continue; /* there was nothing to learn */
        sw_frame_layout_init(&layout, plan.codec, plan.segment_log2, raw_bytes, sw_plan_symbols(&plan));
        const double data_per_byte = sw_codec_ops(plan.codec)->estimate(&plan, sample, sample_bytes, raw_bytes);
        const double ratio = (double)raw_bytes / ((double)layout.data_offset + (double)raw_bytes * data_per_byte);
        if (ratio < MIN_RATIO)
            continue;
        if (has_symbols && !takes_symbols(ret, sw_codec_ops(plan.codec), ratio))
            continue;
        ret->value_type = type;
        ret->raw_bytes = raw_bytes;
        ret->ratios[codec] = ratio;
        ret->params = plan.params; /* one codec's symbols, and another one's own numbers */
        if (gains(sw_codec_ops(plan.codec), ret, ratio))
            sw_plan_switch(ret, plan.codec);
    }
}

void sw_plan_try_slow(struct sw_plan *plan, enum sw_value_type type, const void *sample, size_t sample_bytes,
                      uint64_t raw_bytes) {
    for (unsigned codec = 0; sample_bytes && codec < SW_CODEC_NR; codec++) {
        const struct sw_codec_ops *ops = sw_codec_ops((enum sw_codec_id)codec);
        struct sw_plan slow = {.codec = (enum sw_codec_id)codec, .value_type = type, .raw_bytes = raw_bytes};
        if (!ops->is_slow || !sw_codec_takes(slow.codec, type))
            continue;
        slow.segment_log2 = sw_codec_format_of(codec)->min_segment_log2;
        slow.params = plan->params;
        sw_plan_learn(&slow, sample, sample_bytes);
        const double ratio = estimate_ratio(&slow, sample, sample_bytes);
        if (ratio < MIN_RATIO || !gains(ops, plan, ratio))
            continue;
        plan->params = slow.params;
        plan->ratios[codec] = ratio;
        plan->value_type = type;
        plan->raw_bytes = raw_bytes;
        sw_plan_switch(plan, slow.codec);
    }
}

void sw_plan_switch(struct sw_plan *plan, enum sw_codec_id codec) {
    plan->codec = codec;
    plan->segment_log2 = sw_codec_format_of(codec)->min_segment_log2;
    plan->expected_ratio = plan->ratios[codec];
}

bool sw_plan_init_numbers(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type) {
    const struct sw_codec_format *format = sw_codec_format_of((unsigned)codec);
    if (type == SW_VALUE_NONE || !sw_codec_takes(codec, type) || !sw_codec_ops(codec)->estimate)
        return false;
    *ret = (struct sw_plan){
        .codec = codec, .segment_log2 = format->min_segment_log2, .value_type = type, .expected_ratio = 1};
    return true;
}

void sw_plan_learn(struct sw_plan *plan, const void *sample, size_t sample_bytes) {
    const struct sw_codec_ops *ops = sw_codec_ops(plan->codec);
    if (ops->learn)
        ops->learn(plan, sample, sample_bytes);
}

bool sw_plan_init_by_codec(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type, const void *sample,
                           size_t sample_bytes, struct sw_frame_dictionary *dictionary) {
    const struct sw_codec_ops *ops = sw_codec_ops(codec);
    const bool refines = ops->refine || (ops->learn_dictionary && dictionary);
    struct sw_plan first = {.codec = TRAINED, .raw_bytes = sample_bytes};
    *ret = (struct sw_plan){.codec = codec, .expected_ratio = 1};
    if (type != SW_VALUE_NONE && ops->is_slow && dictionary && sw_codec_takes(codec, type)) {
        ret->value_type = type;
        ret->segment_log2 = sw_codec_format_of(codec)->min_segment_log2;
    } else if (type != SW_VALUE_NONE && !sw_plan_init_numbers(ret, codec, type)) {
        return false;
    }
    if (type == SW_VALUE_NONE && (!sw_codec_takes(codec, type) || (!ops->learn && !refines)))
        return false;
    if (type == SW_VALUE_NONE && !ops->learn) {
        sw_plan_learn(&first, sample, sample_bytes);
        refine_by(codec, ret, &first, sample, sample_bytes, dictionary, NULL);
    }
    sw_plan_learn(ret, sample, sample_bytes);
    return true;
}
