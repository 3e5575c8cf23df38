/* plan.h - how the chunks of a region are to be encoded, chosen by a sample of it.
 *
 * What the rows of the codecs learn and expect is compared here; no codec is known by name. planning.h does the same in
 * steps, for devices. A plan is made of its arguments alone. thread: any. */
#ifndef SW_CODEC_PLAN_H
#define SW_CODEC_PLAN_H

#include "codec/params.h"
#include "codec/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What a region of bytes may be encoded by before there is a sample, the codec that GPUs train, and the most that it
 * may shrink to. */
#define SW_PLAN_BYTES_CODEC SW_CODEC_V5T
#define SW_PLAN_MOST_BYTES_RATIO 8

/* Has every codec of bytes that learns from short pieces (any length, also 0) do so, and takes the one that reaches the
 * best ratio, or raw where none gains enough. Refining may follow. */
void sw_plan_init(struct sw_plan *ret, const void *sample, size_t sample_bytes, uint64_t raw_bytes);
/* The same where a GPU has trained the params of v5t on the sample, which takes coded_bytes in codes. */
void sw_plan_init_trained(struct sw_plan *ret, const struct sw_params *params, size_t coded_bytes, size_t sample_bytes,
                          uint64_t raw_bytes);
/* Whether another codec of bytes may gain over a plan, and makes the plan one of the best that does, by a sample of
 * long pieces. If the plan stays, it promises what it does on that sample. */
bool sw_plan_may_refine(const struct sw_plan *plan);
void sw_plan_refine(struct sw_plan *plan, const void *sample, size_t sample_bytes);
/* Takes that codec of numbers which shrinks a sample of long pieces most, or raw; type: not SW_VALUE_NONE. */
void sw_plan_init_typed(struct sw_plan *ret, enum sw_value_type type, const void *sample, size_t sample_bytes,
                        uint64_t raw_bytes);

/* Makes a plan of numbers that of another codec in its `ratios`: one that takes less time, say. */
void sw_plan_switch(struct sw_plan *plan, enum sw_codec_id codec);

/* The plan of one codec of numbers among those that are chosen from, whatever they are; expected_ratio is 1, and
 * nothing has been learnt. False: codec does not store numbers of that type. */
bool sw_plan_init_numbers(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type);
/* Has the plan's codec learn from a sample what it can: symbols, a dictionary. */
void sw_plan_learn(struct sw_plan *plan, const void *sample, size_t sample_bytes);
/* The plan of one codec, learnt from a sample of one piece, whatever it gains: each that may ever be chosen can be
 * tried out so. False: it is never chosen for values of that type. */
bool sw_plan_init_by_codec(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type, const void *sample,
                           size_t sample_bytes);

#ifdef __cplusplus
}
#endif
#endif
