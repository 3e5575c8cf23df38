/* gpu.h - the CUDA implementation of the frame format, as plain C calls that queue work on the caller's stream.
 *
 * The kernels are in libspillway-kernels.so, which exports these calls and nothing else. A program links sw_gpu (gpu.c)
 * in its place, and calls sw_gpu_codec_init() before any other of them: that loads it.
 *
 * No call allocates, synchronises or touches the default stream. The device of the current context is used; several
 * calls on several streams may run at once if each has its own scratch. Results (struct sw_gpu_result) are written by
 * the GPU: read them after the stream has passed the call. units: bytes. thread: gpu (a thread with the context
 * current). errors of the calls: -SW_EINVAL (argument), -SW_ETOOSMALL (cap or scratch), -SW_EGPU (launch failed,
 * err->cuda set).
 *
 * Frames are those of codec/FORMAT.md: each side decodes the other's. Sources and destinations of raw bytes may have
 * any alignment; frames and scratch must be aligned to 16.
 *
 * Batches do the same for many short inputs in a launch or two, so that what a launch costs in itself is paid once.
 * Their descriptors lie in page-locked memory of the host, which the caller writes before the call and leaves alone
 * until the stream has passed it; the call copies them to the device's scratch. */
#ifndef SW_CODEC_GPU_H
#define SW_CODEC_GPU_H

#include "codec/params.h"
#include "codec/sample.h"

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Lies in memory that the GPU can write to: its own, or page-locked memory of the host, which saves the copy. */
struct sw_gpu_result {
    uint64_t frame_bytes; /* encode: bytes of the frame */
    uint32_t bad_tiles;   /* decode: tiles that were invalid or failed their hash are added; encode sets 0 */
    uint32_t codec;       /* encode: enum sw_codec_id of the frame */
};

/* What a device needs to know about a plan. d_params: device copy of plan->params, made by the caller, which must live
 * until the stream has passed the last call that uses it; NULL for codecs without symbols. */
struct sw_gpu_plan {
    enum sw_codec_id codec;
    unsigned segment_log2;
    enum sw_value_type value_type;
    uint32_t n_symbols;
    uint32_t own[SW_PARAMS_OWN]; /* of the params */
    const struct sw_params *d_params;
};

static inline struct sw_gpu_plan sw_gpu_plan_from(const struct sw_plan *plan, const struct sw_params *d_params) {
    struct sw_gpu_plan ret;
    ret.codec = plan->codec;
    ret.segment_log2 = plan->segment_log2;
    ret.value_type = plan->value_type;
    ret.n_symbols = sw_plan_symbols(plan);
    for (int i = 0; i < SW_PARAMS_OWN; i++)
        ret.own[i] = plan->params.own[i];
    ret.d_params = sw_codec_has_symbols(plan->codec) ? d_params : NULL;
    return ret;
}

/* Loads the kernels, once for the process, and sets their attributes for the current device. errors: -SW_ENOTSUP if
 * libspillway-kernels.so is not found or is another version's (err->msg says which), or if the device's shared memory
 * is too small (below 98 KiB per block); -SW_EGPU. */
int sw_gpu_codec_init(struct sw_err *err);

/* An empty kernel: while the GPU turns from another process to this one, the host can prepare what is to follow. */
int sw_gpu_rouse_async(struct CUstream_st *stream, struct sw_err *err);

/* Segments that it takes to give every multiprocessor of the current device a full warp's work. */
uint32_t sw_gpu_full_segments(void);

/* Device scratch that one encode of up to in_bytes needs, whatever the plan; bounded, however large in_bytes is. */
size_t sw_gpu_encode_scratch_bytes(uint64_t in_bytes);

/* Gathers the sample of a region (sample.h) into d_sample (SW_SAMPLE_MAX_BYTES). piece_bytes: short or long. */
int sw_gpu_sample_async(const void *d_region, uint64_t raw_bytes, unsigned piece_bytes, void *d_sample,
                        struct CUstream_st *stream, struct sw_err *err);

/* Looks at a sample of sw_gpu_sample_async() for less than a tenth of what training takes: *d_hopeless (memory that the
 * GPU can write to) becomes 1 if its bytes show no pattern that a symbol table could use, as random, encrypted and
 * already compressed ones do, else 0. */
int sw_gpu_probe_async(const void *d_sample, size_t sample_bytes, uint32_t *d_hopeless, struct CUstream_st *stream,
                       struct sw_err *err);

/* Outcome of training. */
struct sw_gpu_training {
    uint32_t n_symbols;
    uint32_t coded_bytes; /* what the sample takes in codes: sample_bytes / coded_bytes estimates the ratio */
};

/* Trains the params of v5t on a sample of short pieces and writes them to d_params, without the host. d_sample
 * aligned to 4, at most SW_SAMPLE_MAX_BYTES; d_scratch: sw_gpu_train_scratch_bytes(). */
size_t sw_gpu_train_scratch_bytes(void);
int sw_gpu_train_async(const void *d_sample, size_t sample_bytes, struct sw_params *d_params,
                       struct sw_gpu_training *d_training, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err);

/* Encodes into one frame. d_frame: frame_cap_bytes >= sw_frame_bound_bytes(in_bytes). A v5t plan always makes a v5t
 * frame (segments that do not shrink are stored raw inside it); compare frame_bytes with the raw bound to fall back. */
int sw_gpu_encode_async(const struct sw_gpu_plan *plan, const void *d_in, uint64_t in_bytes, void *d_frame,
                        uint64_t frame_cap_bytes, struct sw_gpu_result *d_result, void *d_scratch, size_t scratch_bytes,
                        struct CUstream_st *stream, struct sw_err *err);

/* Decodes tiles [first_tile, first_tile + n_tiles) of a frame to d_out (the first tile's first byte) and verifies their
 * hashes; result->bad_tiles must be 0 before, and still is on success. layout: parsed by sw_frame_parse() from the same
 * frame on the host. d_out holds the tiles' bytes exactly. The frame is not trusted: nothing outside
 * d_frame[0..layout->frame_bytes) is read, nothing outside d_out written. */
int sw_gpu_decode_async(const struct sw_frame_layout *layout, const void *d_frame, uint32_t first_tile,
                        uint32_t n_tiles, void *d_out, struct sw_gpu_result *d_result, struct CUstream_st *stream,
                        struct sw_err *err);

/* ---- batches ---- */

/* Progress of a launch; the calls' own. */
struct sw_gpu_progress {
    unsigned long long data_units; /* encode: 16-byte units of the data section handed out so far */
    uint32_t next_tile;            /* encode: next tile that no warp has taken; of a batch the first item's counts */
    uint32_t reserved;
};

/* One input and its frame. Encode: the caller sets layout.raw_bytes, d_raw and d_frame, which has room for
 * sw_frame_bound_bytes(raw_bytes); the call sets the rest of layout (frame_bytes to 0 if only the result tells it).
 * Decode: layout is what sw_frame_parse() made of the same frame, d_raw has room for layout.raw_bytes. No two items may
 * write to the same bytes. */
struct sw_gpu_item {
    struct sw_frame_layout layout;
    void *d_raw; /* any alignment; the widest one that all items of a batch share decides its speed */
    void *d_frame;
    /* The call's own. */
    struct sw_gpu_progress progress;
    uint32_t first_unit[SW_CODEC_NR]; /* units of the codec's launch (tiles, blocks) in the items before */
};

/* Device scratch that encoding a batch of up to n items with up to raw_bytes together needs, whatever the plan; a batch
 * of at most as many frames of as many raw bytes decodes with it, too. */
size_t sw_gpu_batch_scratch_bytes(uint32_t n, uint64_t raw_bytes);

/* Encodes n items by one plan, each into a frame of its own; results[i] is that of item i. Two launches, however many
 * items there are. results: memory as of d_result above. errors: -SW_EINVAL also for 2^31 tiles or more. */
int sw_gpu_encode_batch_async(const struct sw_gpu_plan *plan, struct sw_gpu_item *h_items, uint32_t n,
                              struct sw_gpu_result *results, void *d_scratch, size_t scratch_bytes,
                              struct CUstream_st *stream, struct sw_err *err);

/* Decodes n whole frames, of any codecs and tables, and verifies them: a launch per codec that occurs. results[i]
 * counts the bad tiles of item i and must be zero before. What sw_gpu_decode_async() says of untrusted frames holds of
 * each item; the others are decoded whatever one holds. */
int sw_gpu_decode_batch_async(struct sw_gpu_item *h_items, uint32_t n, struct sw_gpu_result *results, void *d_scratch,
                              size_t scratch_bytes, struct CUstream_st *stream, struct sw_err *err);

/* Raw bytes that are hashed where they lie, at any alignment. */
struct sw_gpu_source {
    const void *d_raw;
    uint64_t bytes;
};

/* The identities (identity.h) of n runs of bytes in one launch: identities[i] is that of h_sources[i]. Both arrays lie
 * in page-locked memory of the host and belong to the caller, who leaves them alone until the stream has passed the
 * call. Those at multiples of 8 are faster. */
int sw_gpu_identify_async(const struct sw_gpu_source *h_sources, uint32_t n, uint64_t *identities,
                          struct CUstream_st *stream, struct sw_err *err);

/* Hashes n ranges (0 … SW_GPU_HASH_MAX) in one launch, each tile by tile as the raw frame of its bytes has it: to
 * hashes[0 …], memory as of d_result above, all of the first range, then all of the second ... For frames whose bytes
 * are moved by copy engines, so that the host need not read them (raw_runs.h). The ranges are copied before the call
 * returns. errors: -SW_EINVAL also for 2^31 tiles or more. */
#define SW_GPU_HASH_MAX 16u
int sw_gpu_hash_async(const struct sw_gpu_source *ranges, uint32_t n, uint32_t *hashes, struct CUstream_st *stream,
                      struct sw_err *err);

/* A run of bytes to be copied; both sides and the length are multiples of 16. Either side may be page-locked memory of
 * the host that the device reaches by the host's pointer: from cudaHostAlloc, or registered where the device says
 * cudaDevAttrCanUseHostPointerForRegisteredMem. */
struct sw_gpu_run {
    const void *from;
    void *to;
    uint64_t bytes;
    uint64_t first_piece; /* the call's own */
};

/* Copies n runs in one launch, for runs so short that a copy command each would cost more than its bytes. Runs must not
 * overlap. h_runs as the descriptors above; d_scratch: n * sizeof(struct sw_gpu_run). */
int sw_gpu_copy_async(struct sw_gpu_run *h_runs, uint32_t n, void *d_scratch, size_t scratch_bytes,
                      struct CUstream_st *stream, struct sw_err *err);

#ifdef __cplusplus
}
#endif
#endif
