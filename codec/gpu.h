/* gpu.h - the CUDA implementation of the frame format, as plain C calls that queue work on the caller's stream.
 *
 * The kernels are in libspillway-kernels.so, which exports these calls and nothing else. A program links sw_gpu (gpu.c)
 * instead. It must call sw_gpu_codec_init() first, which loads the shared object.
 *
 * - No call allocates memory, synchronizes, or uses the default stream.
 * - Calls use the device of the current context. Several calls may run on several streams at once, if each has its own
 *   scratch. Encodes share a pool.
 * - The GPU writes the results (struct sw_gpu_result): read them after the stream has passed the call.
 * - Host and GPU decode each other's frames (codec/FORMAT.md). Raw bytes may have any alignment; frames and scratch
 *   must be aligned to 16.
 * - A batch processes many short inputs in one or two launches, so that the cost of a launch is paid once. The caller
 *   writes its descriptors to pinned host memory before the call, and must not touch them until the stream has passed
 *   the call. The call copies them to the device's scratch.
 *
 * units: bytes. thread: gpu (a thread with the context current). errors of all calls: -SW_EINVAL (argument),
 * -SW_ETOOSMALL (cap or scratch), -SW_EGPU (launch failed, err->cuda set). */
#ifndef SW_CODEC_GPU_H
#define SW_CODEC_GPU_H

#include "codec/params.h"
#include "codec/sample.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

struct CUstream_st;

/* Lets a caller give up kernels that have not begun because other kernels fill the GPU. The caller closes the gate;
 * then its kernels end at once when they begin, and touch neither raw bytes nor frames. A gate is device memory, which
 * copy engines reach while kernels fill the GPU. It is zero before the first use.
 *
 * The first block and the caller each write a word and then read the other's, so at least one of them sees the other.
 * What the block decides holds for all kernels with its ticket. */
struct sw_gpu_gate {
    uint64_t come;    /* the ticket of the last block that came to an undecided gate */
    uint64_t closed;  /* the ticket that may not pass: the caller writes it */
    uint64_t decided; /* twice the last ticket that was decided on, plus 1 if it may not pass */
};
/* What kernels of a call show at a gate. Tickets of one gate grow, and kernels with different tickets never run at the
 * same time. d_gate NULL: there is no gate. */
struct sw_gpu_pass {
    struct sw_gpu_gate *d_gate;
    uint64_t ticket;
};

enum sw_gpu_decision { SW_GPU_UNDECIDED, SW_GPU_PASSES, SW_GPU_REFUSED };

/* Returns what has become of a ticket, by a copy of its gate that was made after the gate was closed to it. Undecided:
 * a block is at the gate, and another copy will tell. */
static inline enum sw_gpu_decision sw_gpu_decision_of(const struct sw_gpu_gate *copy, uint64_t ticket) {
    if (copy->decided / 2 == ticket)
        return copy->decided % 2 ? SW_GPU_REFUSED : SW_GPU_PASSES;
    return copy->come == ticket ? SW_GPU_UNDECIDED : SW_GPU_REFUSED;
}

/* The result of a call, in memory that the GPU can write to: its own, or pinned host memory, which saves a copy. */
struct sw_gpu_result {
    uint64_t frame_bytes; /* encode: the frame's length */
    uint32_t bad_tiles;   /* decode: adds the number of tiles that are invalid or fail their hash; encode: 0 */
    uint32_t codec;       /* encode: enum sw_codec_id of the frame */
};

/* A plan for a device. d_params: a copy of plan->params in device memory, made by the caller, which must live until the
 * stream has passed the last call that uses it; NULL for codecs without symbols. */
struct sw_gpu_plan {
    enum sw_codec_id codec;
    unsigned segment_log2;
    enum sw_value_type value_type;
    uint32_t n_symbols;
    uint32_t own[SW_PARAMS_OWN]; /* the params' */
    const struct sw_params *d_params;
    /* Codecs with a dictionary; else NULL and 0. The caller sets them: copies in device memory of the plan's
     * dictionary, and of what the codec's encoder makes of it (onpair: sw_onpair_index_new()). Both are aligned to 16,
     * and live as long as d_params. */
    const void *d_dictionary, *d_index;
    uint32_t dictionary_bytes, index_log2;
};

/* Makes a plan for a device. */
static inline struct sw_gpu_plan sw_gpu_plan_from(const struct sw_plan *plan, const struct sw_params *d_params) {
    struct sw_gpu_plan ret;
    ret.codec = plan->codec;
    ret.segment_log2 = plan->segment_log2;
    ret.value_type = plan->value_type;
    ret.n_symbols = sw_plan_symbols(plan);
    for (int i = 0; i < SW_PARAMS_OWN; i++)
        ret.own[i] = plan->params.own[i];
    ret.d_params = sw_codec_has_symbols(plan->codec) ? d_params : NULL;
    ret.d_dictionary = ret.d_index = NULL;
    ret.dictionary_bytes = ret.index_log2 = 0;
    return ret;
}

/* Loads the kernels, once for the process, and sets their attributes for the current device. errors: -SW_ENOTSUP:
 * libspillway-kernels.so is missing or has another version (err->msg says which), or the device has too little shared
 * memory (less than 64 KiB per block); -SW_EGPU. */
int sw_gpu_codec_init(struct sw_err *err);

/* Returns the dynamic shared memory of the largest block that the codec launches on a device where a block may have
 * `limit`; 0: no block fits. Needs no GPU. */
size_t sw_gpu_codec_shared_bytes(enum sw_codec_id codec, size_t limit);

/* Queues an empty kernel, which makes the GPU switch from another process to this one. Meanwhile the host can prepare
 * the next work. */
int sw_gpu_wake_async(struct CUstream_st *stream, struct sw_err *err);

/* Returns true if the current device can encode by any dictionary: its blocks have enough shared memory. */
bool sw_gpu_takes_dictionaries(void);

/* Returns how many segments give every multiprocessor of the current device a full warp's work. */
uint32_t sw_gpu_full_segments(void);

/* Device memory for codes on their way to a frame, one pool for a device. Warps of encodes on any streams take slots of
 * it and give them back. No warp waits for a slot: what does not fit is encoded twice. So a pool of any length will do,
 * even of 0 bytes; only the rate depends on it. d_memory: aligned to 16. */
struct sw_gpu_pool {
    void *d_memory;
    size_t bytes;
};

/* Returns the bytes of a pool that has a slot for each warp when this many bytes are encoded at a time, on all streams
 * together: at most 54 MiB. */
size_t sw_gpu_pool_bytes(uint64_t raw_bytes);
/* Makes all slots free. The caller queues it once, before the first encode. */
int sw_gpu_pool_init_async(const struct sw_gpu_pool *pool, struct CUstream_st *stream, struct sw_err *err);

/* The progress of an encode, in device memory. It is zero before the first encode that uses it, and each encode leaves
 * it zero. Private to the calls. */
struct sw_gpu_progress {
    unsigned long long tiles_units; /* tiles that have a place, and 16-byte units of the data section in use */
    uint32_t next_tile;             /* next tile that no warp has taken; a batch uses the first item's */
    uint32_t reserved;
};

/* Gathers the sample of a region (sample.h) into d_sample, which has room for SW_SAMPLE_MAX_BYTES. piece_bytes: short
 * or long. */
int sw_gpu_sample_async(const void *d_region, uint64_t raw_bytes, unsigned piece_bytes, void *d_sample,
                        struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err);

/* Tests whether training on a sample of sw_gpu_sample_async() would be useless. It takes less than a tenth of
 * training's time. *d_hopeless, in memory that the GPU can write to, becomes 1 if the bytes show no pattern that a
 * symbol table could use, like random, encrypted or compressed bytes; else 0. */
int sw_gpu_probe_async(const void *d_sample, size_t sample_bytes, uint32_t *d_hopeless, struct CUstream_st *stream,
                       struct sw_err *err);

/* The result of training. */
struct sw_gpu_training {
    uint32_t n_symbols;
    uint32_t coded_bytes; /* length of the sample's codes: sample_bytes / coded_bytes estimates the ratio */
};

/* Returns the device scratch that training needs. */
size_t sw_gpu_train_scratch_bytes(void);
/* Trains the params of v5t on a sample of short pieces, on the GPU alone, and writes them to d_params. d_sample:
 * aligned to 4, at most SW_SAMPLE_MAX_BYTES; d_scratch: sw_gpu_train_scratch_bytes(). */
int sw_gpu_train_async(const void *d_sample, size_t sample_bytes, struct sw_params *d_params,
                       struct sw_gpu_training *d_training, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err);

/* Learns a dictionary's symbols on the GPU alone, the same as sw_onpair_learn_symbols() from pieces of 512 bytes, which
 * then go to sw_onpair_write(). At most 1 MiB. d_scratch: sw_gpu_learn_scratch_bytes(). */
size_t sw_gpu_learn_scratch_bytes(void);
struct sw_onpair_learned;
int sw_gpu_learn_async(const void *d_sample, size_t sample_bytes, uint32_t most_symbols,
                       struct sw_onpair_learned *d_learned, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err);

/* Encodes into one frame, in one launch. d_frame: frame_cap_bytes >= sw_frame_bound_bytes(in_bytes). d_progress: no two
 * encodes at a time use it. A v5t plan always makes a v5t
 * frame, in which segments that do not shrink are stored raw. To fall back to a raw frame, the caller compares
 * frame_bytes with the raw frame's length. A frame with a dictionary that would be longer than the raw frame is not
 * written whole: the caller must fall back. errors: -SW_EINVAL also for content that is too short for the plan's
 * dictionary, -SW_ENOTSUP: the device has too little shared memory for the plan's index. */
int sw_gpu_encode_async(const struct sw_gpu_plan *plan, const void *d_in, uint64_t in_bytes, void *d_frame,
                        uint64_t frame_cap_bytes, struct sw_gpu_result *d_result, const struct sw_gpu_pool *pool,
                        struct sw_gpu_progress *d_progress, struct sw_gpu_pass pass, struct CUstream_st *stream,
                        struct sw_err *err);

/* Decodes tiles [first_tile, first_tile + n_tiles) of a frame and verifies their hashes. result->bad_tiles must be 0
 * before the call, and is still 0 on success. layout: the host's sw_frame_parse() of the same frame. d_out: the first
 * tile's first byte; it has room for exactly these tiles. The frame is not trusted: the call reads nothing outside
 * d_frame[0..layout->frame_bytes), and writes nothing outside d_out. */
int sw_gpu_decode_async(const struct sw_frame_layout *layout, const void *d_frame, uint32_t first_tile,
                        uint32_t n_tiles, void *d_out, struct sw_gpu_result *d_result, struct sw_gpu_pass pass,
                        struct CUstream_st *stream, struct sw_err *err);

/* ---- batches ---- */

/* One input of a batch and its frame. No two items may write to the same bytes.
 *
 * Encode: the caller sets layout.raw_bytes, d_raw and d_frame, which has room for sw_frame_bound_bytes(raw_bytes). The
 * call sets the rest of layout; frame_bytes is 0 if it is known only from the result.
 * Decode: layout is the sw_frame_parse() of the same frame, and d_raw has room for layout.raw_bytes. */
struct sw_gpu_item {
    struct sw_frame_layout layout;
    void *d_raw; /* any alignment; the largest one that all items of a batch share determines its speed */
    void *d_frame;
    /* Private to the call. */
    struct sw_gpu_progress progress;
    uint32_t first_unit[SW_CODEC_NR]; /* units of the codec's launch (tiles, blocks) in earlier items */
};

/* Returns the device scratch that a batch of up to n items needs, encoded or decoded. */
size_t sw_gpu_batch_scratch_bytes(uint32_t n);

/* Encodes n items by one plan, each into its own frame, in one launch (two if some are empty). results[i]: the result
 * of item i, in memory that the GPU can write to. errors: -SW_EINVAL also for 2^31 tiles or more. */
int sw_gpu_encode_batch_async(const struct sw_gpu_plan *plan, struct sw_gpu_item *h_items, uint32_t n,
                              struct sw_gpu_result *results, const struct sw_gpu_pool *pool, void *d_scratch,
                              size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream,
                              struct sw_err *err);

/* Decodes n whole frames, of any codecs and symbol tables, and verifies them, in one launch per codec. results[i]
 * counts the bad tiles of item i, and must be zero before the call. Frames are not trusted, as in
 * sw_gpu_decode_async(); a bad frame does not affect the others. */
int sw_gpu_decode_batch_async(struct sw_gpu_item *h_items, uint32_t n, struct sw_gpu_result *results, void *d_scratch,
                              size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream,
                              struct sw_err *err);

/* Raw bytes to be hashed, of any alignment. */
struct sw_gpu_source {
    const void *d_raw;
    uint64_t bytes;
};

/* Computes the identities (identity.h) of n runs of bytes in one launch: identities[i] belongs to h_sources[i]. Both
 * arrays lie in the caller's pinned host memory, which it must not touch until the stream has passed the call. Runs
 * that are aligned to 8 are faster. */
int sw_gpu_identify_async(const struct sw_gpu_source *h_sources, uint32_t n, uint64_t *identities,
                          struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err);

/* Hashes the tiles of n ranges (0 … SW_GPU_HASH_MAX) in one launch, as raw frames store them. For frames whose bytes
 * copy engines move, so that the host need not read them (raw_runs.h). hashes: all of the first range, then all of the
 * second range, and so on, in memory that the GPU can write to. `ranges` is copied before the call returns. errors:
 * -SW_EINVAL also for 2^31 tiles or more. */
#define SW_GPU_HASH_MAX 16u
int sw_gpu_hash_async(const struct sw_gpu_source *ranges, uint32_t n, uint32_t *hashes, struct CUstream_st *stream,
                      struct sw_err *err);

/* A run of bytes to be copied. Both addresses and the length are multiples of 16. Either side may be pinned host memory
 * that the device can address by the host's pointer: memory from cudaHostAlloc(), or registered memory if the device
 * has cudaDevAttrCanUseHostPointerForRegisteredMem. */
struct sw_gpu_run {
    const void *from;
    void *to;
    uint64_t bytes;
    uint64_t first_piece; /* private to the call */
};

/* Copies n runs in one launch. For runs so short that a copy command for each would cost more than its bytes. Runs must
 * not overlap. h_runs: pinned host memory, as the descriptors of batches; d_scratch: n * sizeof(struct sw_gpu_run). */
int sw_gpu_copy_async(struct sw_gpu_run *h_runs, uint32_t n, void *d_scratch, size_t scratch_bytes,
                      struct CUstream_st *stream, struct sw_err *err);

#ifdef __cplusplus
}
#endif
#endif
