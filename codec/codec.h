/* codec.h - encode and decode chunks on the host, and choose how.
 *
 * A *plan* says how the chunks of one region are encoded: by which codec, and with what that has learnt (v5t its symbol
 * table, phrase its phrases, dict its values). It is made from a sample and is plain data: copy it freely, use it from
 * several threads at once. Every frame carries what is needed to decode it, so a plan is needed for encoding only. All
 * functions: thread any, no hidden state, caller owns all buffers.
 *
 * Must not be used for input that changes while it is read (the checksum would not match the codes): snapshot it first.
 */
#ifndef SW_CODEC_CODEC_H
#define SW_CODEC_CODEC_H

#include "codec/frame.h"
#include "codec/v5t/table.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A sample is pieces of a region, spread over it. Short ones come from many places, for symbol tables: text that is
 * sorted is alike within a piece (v5t/TUNING.md). Long ones are for numbers, whose neighbours matter, and phrases. */
#define SW_SAMPLE_MAX_BYTES ((size_t)64 << 10)
#define SW_SAMPLE_SHORT_PIECE_BYTES 128
#define SW_SAMPLE_LONG_PIECE_BYTES 512
#define SW_SAMPLE_MAX_PIECES (SW_SAMPLE_MAX_BYTES / SW_SAMPLE_SHORT_PIECE_BYTES)

struct sw_plan {
    enum sw_codec_id codec;
    unsigned segment_log2;         /* segment length of the frames */
    enum sw_value_type value_type; /* codecs of numbers only */
    unsigned lz_window;            /* lz only: symbols back, 32, 64, 128 or 255; 0: 255 for bytes, 32 for others */
    uint64_t raw_bytes;            /* of the region that it was made for; 0: for none */
    double expected_ratio;         /* raw bytes per frame byte of that one, estimated from the sample; 1 for raw */
    double ratios[SW_CODEC_NR];    /* the same of each codec of numbers that would do; 0: it would not */
    struct sw_v5t_table
        table; /* v5t, phrase; dict, if it would do: its dictionary, of values by their length, ascending */
};

/* Number of pieces and the byte offset of piece i in a region of raw_bytes; regions up to SW_SAMPLE_MAX_BYTES are one
 * run of adjacent pieces (the last may be short). Host and device samplers share this. */
unsigned sw_sample_pieces(uint64_t raw_bytes, unsigned piece_bytes);
uint64_t sw_sample_offset(uint64_t raw_bytes, unsigned piece_bytes, unsigned piece);
/* Copies the sample of a host region; returns its bytes. ret: SW_SAMPLE_MAX_BYTES. */
size_t sw_sample_gather(void *ret, const void *region, uint64_t raw_bytes, unsigned piece_bytes);

/* Has every codec of bytes that can be chosen learn from a sample of short pieces (any length, also 0) and takes the
 * one that reaches the best ratio on it, or raw where none gains enough. What may gain by longer phrases is to be
 * lengthened then (below). */
void sw_plan_init(struct sw_plan *ret, const void *sample, size_t sample_bytes, uint64_t raw_bytes);
/* The plan of v5t for a table that was trained elsewhere (on a GPU) on a sample of sample_bytes, which takes
 * coded_bytes in codes; or raw, where that does not gain enough. */
void sw_plan_init_trained(struct sw_plan *ret, const struct sw_v5t_table *table, size_t coded_bytes,
                          size_t sample_bytes, uint64_t raw_bytes);
/* What a plan promises of the data sections alone: the table and the header, which are part of expected_ratio, weigh
 * differently in regions of other lengths. */
double sw_plan_data_ratio(const struct sw_plan *plan);
/* Whether a plan of bytes may gain by longer phrases, and makes it one of the codec `phrase` if it does, by a sample of
 * long pieces: in short ones phrases are cut off. If it stays, it promises what it does on that sample. */
bool sw_plan_may_lengthen(const struct sw_plan *plan);
void sw_plan_lengthen(struct sw_plan *plan, const void *sample, size_t sample_bytes);
/* Takes that codec of numbers which shrinks a sample of long pieces most, or raw; type: not SW_VALUE_NONE. */
void sw_plan_init_typed(struct sw_plan *ret, enum sw_value_type type, const void *sample, size_t sample_bytes,
                        uint64_t raw_bytes);
/* All of it for a region in the host's memory, of any type; sample: SW_SAMPLE_MAX_BYTES of room. */
void sw_plan_make(struct sw_plan *ret, enum sw_value_type type, const void *region, uint64_t raw_bytes, void *sample);
/* Makes a plan of numbers that of another codec in its `ratios`: one that takes less time, say. */
void sw_plan_switch(struct sw_plan *plan, enum sw_codec_id codec);
/* The plan of one codec of numbers among those that are chosen from, whatever they are; expected_ratio is 1, and
 * nothing has been learnt. False: codec does not store numbers of that type. */
bool sw_plan_init_numbers(struct sw_plan *ret, enum sw_codec_id codec, enum sw_value_type type);
/* Has the plan's codec learn from a sample what it can: symbols, a dictionary. */
void sw_plan_learn(struct sw_plan *plan, const void *sample, size_t sample_bytes);
/* The plan of lz, with matches that reach `window` symbols back (lz_window); expected_ratio is 1. type: not
 * SW_VALUE_NONE. */
void sw_plan_init_lz(struct sw_plan *ret, enum sw_value_type type, unsigned window);
/* The plan that stores bytes as they are. */
void sw_plan_init_raw(struct sw_plan *ret);

/* Encodes in[0..in_bytes) into one frame. What would not be smaller than the raw frame, by whichever codec, is stored
 * raw. out_cap_bytes: at least sw_frame_bound_bytes(in_bytes). units: bytes; any alignment of `in`, `out` aligned
 * to 16. errors: -SW_ETOOSMALL (out untouched), -SW_EINVAL (in_bytes above SW_FRAME_MAX_RAW_BYTES, unknown codec),
 * -SW_ENOMEM.
 */
int sw_codec_encode(const struct sw_plan *plan, const void *in, uint64_t in_bytes, void *out, uint64_t out_cap_bytes,
                    uint64_t *ret_frame_bytes, struct sw_err *err);

/* Decodes a whole frame and verifies every tile. Never reads outside frame[0..frame_bytes) nor writes outside
 * out[0..out_cap_bytes), whatever the frame holds; any alignment of both.
 * errors: -SW_EFRAME, -SW_EVERSION, -SW_ECHECKSUM, -SW_ETOOSMALL (out untouched); out's content is undefined else. */
int sw_codec_decode(const void *frame, uint64_t frame_bytes, void *out, uint64_t out_cap_bytes, uint64_t *ret_raw_bytes,
                    struct sw_err *err);

/* Random access: decodes segment number `segment` alone into out (1 << segment_log2 bytes of room) without reading
 * other segments' codes. Its bytes are checked for shape only: the hash covers whole tiles.
 * errors: as sw_codec_decode, and -SW_ERANGE for a segment that is not there. */
int sw_codec_decode_segment(const void *frame, uint64_t frame_bytes, uint64_t segment, void *out,
                            uint64_t out_cap_bytes, size_t *ret_bytes, struct sw_err *err);

/* Random access with proof: decodes tile number `tile` (32 segments) and verifies its hash. errors: as above. */
int sw_codec_decode_tile(const void *frame, uint64_t frame_bytes, uint32_t tile, void *out, uint64_t out_cap_bytes,
                         size_t *ret_bytes, struct sw_err *err);

#ifdef __cplusplus
}
#endif
#endif
