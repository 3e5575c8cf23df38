/* plan.h - chooses from a sample of a region how its chunks are encoded.
 *
 * It lets the codecs' rows learn, and compares the ratios that they expect. It knows no codec by name. planning.h does
 * the same in steps, for devices. A plan depends only on the function's arguments. thread: any. */
#ifndef SW_CODEC_PLAN_H
#define SW_CODEC_PLAN_H

#include "codec/params.h"
#include "codec/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The codec that GPUs train, and a limit of its ratio: assumptions about a region of bytes before there is a sample. */
#define SW_PLAN_BYTES_CODEC SW_CODEC_V5T
#define SW_PLAN_MOST_BYTES_RATIO 8
/* The codec with a dictionary that may be chosen instead. */
#define SW_PLAN_DENSE_CODEC SW_CODEC_ONPAIR

/* Makes the plan for a region of bytes from a sample of short pieces, of any length from 0. All codecs of bytes that
 * learn from such a sample do so, and the codec with the best ratio is taken; raw if none gains enough. The plan may
 * then be refined. */
void sw_plan_init(struct sw_plan *ret, const void *sample, size_t sample_bytes, uint64_t raw_bytes);
/* Makes a plan like sw_plan_init(), but a GPU has trained the params of v5t on the sample. coded_bytes: length of the
 * sample's codes. */
void sw_plan_init_trained(struct sw_plan *ret, const struct sw_params *params, size_t coded_bytes, size_t sample_bytes,
                          uint64_t raw_bytes);
/* Returns whether another codec of bytes may gain over a plan. has_dictionary: codecs with a dictionary count, too. */
bool sw_plan_may_refine(const struct sw_plan *plan, bool has_dictionary);
/* Replaces a plan by the best plan of the other codecs of bytes that gain, learned from a sample of long pieces. If
 * none gains, the plan stays, and its expected ratio becomes its ratio on this sample. dictionary: room for one; the
 * plan may borrow it. NULL: codecs with a dictionary, which encode more slowly, are left out. learned: what a GPU has
 * learned of other bytes (sw_gpu_learn_async()), so that the sample only judges the dictionary; NULL: it is learned
 * from the sample. */
void sw_plan_refine(struct sw_plan *plan, const void *sample, size_t sample_bytes,
                    struct sw_frame_dictionary *dictionary, void *learned);
/* Makes the plan for a region of numbers: takes the codec that shrinks a sample of long pieces most, or raw. type: not
 * SW_VALUE_NONE. */
void sw_plan_init_typed(struct sw_plan *ret, enum sw_value_type type, const void *sample, size_t sample_bytes,
                        uint64_t raw_bytes);

/* Switches a plan of numbers to a slow codec (lz) if it shrinks the same sample by more. */
void sw_plan_try_slow(struct sw_plan *plan, enum sw_value_type type, const void *sample, size_t sample_bytes,
                      uint64_t raw_bytes);

/* Switches a plan of numbers to another codec in its `ratios`, for example to a faster one. */
void sw_plan_switch(struct sw_plan *plan, enum sw_codec_id codec);

/* Makes a plan by one codec of numbers. expected_ratio is 1, and the codec has learned nothing. False: the codec is
 * never chosen for numbers of that type. */
bool sw_plan_init_numbers(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type);
/* Lets the plan's codec learn from a sample: symbols, or a dictionary. */
void sw_plan_learn(struct sw_plan *plan, const void *sample, size_t sample_bytes);
/* Makes a plan by one codec, learned from a sample of one piece, whatever it gains. For tests and benchmarks of every
 * codec that may be chosen. dictionary: as for sw_plan_refine(). False: the codec is never chosen for values of that
 * type. */
bool sw_plan_init_by_codec(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type, const void *sample,
                           size_t sample_bytes, struct sw_frame_dictionary *dictionary);

#ifdef __cplusplus
}
#endif
#endif
