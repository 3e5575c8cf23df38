/* streams_decode.cuh - decodes tiles directly to the destination, a warp per tile and a thread per segment. The codec
 * defines the meaning of codes: CODE below.
 *
 * It follows GSST (R. Vonk, J. Hoozemans, Z. Al-Ars, "GSST: Parallel string decompression at 191 GB/s on GPU", 2025),
 * in which a thread decodes a split of constant uncompressed size. Here a tile's code words are stored in rows
 * (v5t/FORMAT.md): all lanes load a row in one coalesced access, and then decode four codes each, in step.
 *
 * The frame is not trusted. A lane never leaves its segment's bytes and never reads past the data section. The result
 * counts tiles that are malformed or fail their hash.
 *
 * struct CODE {
 *     struct lookup;                                          in shared memory; 16-byte aligned
 *     MOST_WARPS                                              of a block: FEW_WARPS, 16 or 32
 *     MANY_TILES                                              for each multiprocessor: blocks have 16 warps
 *     IS_PERSISTENT                                           then a block decodes more than a tile for each warp
 *     build<THREADS>(lookup &, frame, layout)                 all threads of the block; the caller synchronizes
 *     decode_segment<ALIGN>(lookup &, words &, writer &, out_bytes)
 *         decodes a coded segment; true if it has exactly out_bytes; the caller then writes the writer's last bytes
 * }
 * Each codec's decoder includes this file, and has its own copy of everything in it. */
#ifndef SW_STREAMS_DECODE_CUH
#define SW_STREAMS_DECODE_CUH

#include "codec/codec_gpu.cuh"
#include "codec/streams/streams.h"

namespace {

/* Warps of a block. Smaller blocks spread short inputs on every multiprocessor. */
constexpr uint32_t MANY_WARPS = 16, FEW_WARPS = SW_STREAMS_UNIT_TILES;

/* For a CODE with tables so small that three blocks of 16 warps have room on a multiprocessor of an sm_90. */
struct small_tables {
    static constexpr uint32_t MOST_WARPS = MANY_WARPS, MANY_TILES = 3 * MANY_WARPS;
    static constexpr bool IS_PERSISTENT = false;
};

/* Output waits in the stage until a lane has 64 bytes, two full sectors, which are stored at once. With stores of 16
 * bytes all lanes together would have 200,000 half-written lines, more than the L2 cache holds (measured: 377 GB/s). */
constexpr uint32_t FLUSH_BYTES = 64;
constexpr uint32_t STAGE_PAIRS = 16; /* of 8 bytes */

template <class CODE, uint32_t WARPS> struct shared_state {
    typename CODE::lookup tables;
    uint64_t stage[WARPS * STAGE_PAIRS * SW_WARP]; /* [warp][pair][lane]: without bank conflicts */
};

/* Writes the bytes of one segment: from acc, eight at a time, to the stage, and from there to memory. */
struct writer {
    uint8_t *to;
    uint64_t *stage;    /* this lane's column */
    uint32_t done;      /* bytes that left acc, a multiple of 8 */
    uint32_t flushed;   /* bytes in memory, a multiple of FLUSH_BYTES */
    uint32_t acc_bytes; /* 0 ... 7 while the segment is good */
    uint64_t acc;
    uint32_t hash;
};

__device__ inline void append(writer &w, uint64_t value, uint32_t length) {
    const uint32_t shift = 8 * w.acc_bytes;
    w.acc |= value << shift;
    w.acc_bytes += length;
    if (w.acc_bytes >= 8) {
        w.hash = sw_hash_word(sw_hash_word(w.hash, (uint32_t)w.acc), (uint32_t)(w.acc >> 32));
        w.stage[w.done / 8 % STAGE_PAIRS * SW_WARP] = w.acc;
        w.done += 8;
        w.acc = shift ? value >> (64 - shift) : 0;
        w.acc_bytes -= 8;
    }
}

__device__ inline uint4 staged_unit(const writer &w, uint32_t at) {
    const uint64_t a = w.stage[at / 8 % STAGE_PAIRS * SW_WARP], b = w.stage[(at / 8 + 1) % STAGE_PAIRS * SW_WARP];
    return make_uint4((uint32_t)a, (uint32_t)(a >> 32), (uint32_t)b, (uint32_t)(b >> 32));
}

/* Flushes the stage. Must be called before more than STAGE_PAIRS * 8 bytes wait. */
template <int ALIGN> __device__ inline void flush(writer &w) {
    if (w.done - w.flushed >= FLUSH_BYTES) {
#pragma unroll
        for (uint32_t i = 0; i < FLUSH_BYTES; i += 16)
            sw_store_unit<ALIGN>(w.to + w.flushed + i, staged_unit(w, w.flushed + i));
        w.flushed += FLUSH_BYTES;
    }
}

/* Writes the last bytes of a complete segment. */
template <int ALIGN> __device__ inline void finish(writer &w) {
    flush<ALIGN>(w);
    for (; w.flushed < w.done; w.flushed += 16)
        sw_store_tail(w.to + w.flushed, staged_unit(w, w.flushed), min(16u, w.done - w.flushed));
    sw_store_tail(w.to + w.done, make_uint4((uint32_t)w.acc, (uint32_t)(w.acc >> 32), 0, 0), w.acc_bytes);
    if (w.acc_bytes > 0)
        w.hash = sw_hash_word(w.hash, (uint32_t)w.acc);
    if (w.acc_bytes > 4)
        w.hash = sw_hash_word(w.hash, (uint32_t)(w.acc >> 32));
}

/* A segment's words: from the rows, which the lanes load together, and then from its own tail. */
struct words {
    const uint32_t *base;
    uint32_t count, rows, row_words, lane, tail_at;

    __device__ inline uint32_t get(uint32_t i) const {
        return i >= count ? 0 : __ldg(base + (i < rows ? i * row_words + lane : tail_at + i - rows));
    }
};

template <int ALIGN> __device__ void copy_segment(const words &in, writer &w, uint32_t out_bytes) {
    for (uint32_t i = 0; i < in.count; i++) {
        const uint32_t left = out_bytes - 4 * i;
        const uint32_t word = in.get(i);
        append(w, left < 4 ? word & (0xFFFFFFFFu >> (32 - 8 * left)) : word, min(left, 4u));
        flush<ALIGN>(w);
    }
}

/* Decodes tile first_tile + index, whose content is the index-th of those at d_raw. A warp calls it. */
template <class CODE, int ALIGN, uint32_t WARPS, class ITEMS>
__device__ inline void decode_tile(shared_state<CODE, WARPS> &shared, const ITEMS &items, const sw_gpu_place &place,
                                   uint32_t first_tile, uint32_t index, uint32_t lane) {
    const sw_frame_layout &layout = place.item.layout;
    const uint8_t *frame = (const uint8_t *)place.item.d_frame;
    const uint32_t tile = first_tile + index;
    const uint32_t segment_bytes = 1u << layout.segment_log2;
    const uint64_t at = ((uint64_t)tile * SW_TILE_SEGMENTS + lane) << layout.segment_log2;
    const uint32_t out_bytes =
        at >= layout.raw_bytes ? 0 : (uint32_t)min((uint64_t)segment_bytes, layout.raw_bytes - at);
    const sw_tile_record record = ((const sw_tile_record *)(frame + layout.records_offset))[tile];
    const uint32_t count = frame[layout.counts_offset + (uint64_t)tile * SW_TILE_SEGMENTS + lane];
    const uint32_t n_raw_words = (out_bytes + 3) / 4;
    const uint32_t n_words = count ? count : n_raw_words;
    words in;
    in.count = n_words;
    in.lane = lane;
    in.row_words = __popc(__ballot_sync(0xFFFFFFFFu, out_bytes > 0));
    in.rows = sw_warp_min(out_bytes ? n_words : 0xFFFFFFFFu);
    in.tail_at = in.rows * in.row_words + sw_warp_exclusive_sum(out_bytes ? n_words - in.rows : 0, lane);
    in.base = (const uint32_t *)(frame + layout.data_offset + (uint64_t)record.offset16 * SW_FRAME_ALIGN);
    const uint64_t end = (uint64_t)record.offset16 * SW_FRAME_ALIGN + 4ull * sw_warp_sum(out_bytes ? n_words : 0);
    /* A tile whose words do not lie in the data section is not read. */
    bool good = end <= layout.frame_bytes - layout.data_offset;
    good = good && (out_bytes ? count < n_raw_words || count == 0 : count == 0);
    good = __all_sync(0xFFFFFFFFu, good);
    writer w = {};
    w.to = (uint8_t *)place.item.d_raw + (((uint64_t)index * SW_TILE_SEGMENTS + lane) << layout.segment_log2);
    w.stage = shared.stage + threadIdx.x / SW_WARP * STAGE_PAIRS * SW_WARP + lane;
    w.hash = sw_hash_segment_seed(tile, lane);
    if (good && out_bytes) {
        if (count)
            good = CODE::template decode_segment<ALIGN>(shared.tables, in, w, out_bytes);
        else
            copy_segment<ALIGN>(in, w, out_bytes);
        if (good)
            finish<ALIGN>(w);
    }
    const uint32_t sum = sw_warp_sum(good && out_bytes ? sw_hash_finish(w.hash) : 0);
    good = __all_sync(0xFFFFFFFFu, good);
    if (lane == 0 && (!good || sum != record.hash))
        atomicAdd(&items.results[place.index].bad_tiles, 1);
}

/* A block decodes WARPS tiles of one item, or, if it is persistent, every so many-th WARPS tiles. */
template <class CODE, int ALIGN, uint32_t WARPS, class ITEMS>
__global__ void __launch_bounds__(WARPS *SW_WARP)
    decode_tiles(const __grid_constant__ ITEMS items, uint32_t first_tile) {
    extern __shared__ __align__(16) uint8_t shared_bytes[];
    shared_state<CODE, WARPS> &shared = *(shared_state<CODE, WARPS> *)shared_bytes;
    const uint32_t lane = threadIdx.x % SW_WARP;
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    CODE::template build<WARPS * SW_WARP>(shared.tables, (const uint8_t *)place.item.d_frame, layout);
    __syncthreads();
    if (sw_gpu_is_refused(items.pass, lane))
        return;
    uint32_t index = place.unit * WARPS + threadIdx.x / SW_WARP;
    if constexpr (CODE::IS_PERSISTENT && std::is_same_v<ITEMS, sw_gpu_single>) {
        for (; first_tile + index < layout.n_tiles; index += gridDim.x * WARPS)
            decode_tile<CODE, ALIGN, WARPS>(shared, items, place, first_tile, index, lane);
    } else if (first_tile + index < layout.n_tiles) {
        decode_tile<CODE, ALIGN, WARPS>(shared, items, place, first_tile, index, lane);
    }
}

template <class CODE, int ALIGN, uint32_t WARPS, class ITEMS> cudaError_t allow_shared() {
    return sw_gpu_allow_shared((const void *)decode_tiles<CODE, ALIGN, WARPS, ITEMS>,
                               sizeof(shared_state<CODE, WARPS>));
}

template <class CODE, uint32_t WARPS, class ITEMS> cudaError_t allow_shared_all() {
    cudaError_t e = allow_shared<CODE, 16, WARPS, ITEMS>();
    if (e == cudaSuccess)
        e = allow_shared<CODE, 4, WARPS, ITEMS>();
    return e == cudaSuccess ? allow_shared<CODE, 1, WARPS, ITEMS>() : e;
}

template <class CODE, uint32_t WARPS, class ITEMS> void launch(const sw_gpu_decode_job<ITEMS> *job, uint32_t blocks) {
    sw_gpu_with_alignment(job->raw_address, [&](auto align) {
        decode_tiles<CODE, align.value, WARPS>
            <<<blocks, WARPS * SW_WARP, sizeof(shared_state<CODE, WARPS>), job->stream>>>(job->items, job->first_tile);
    });
}

/* Launches blocks of WARPS warps for a single item. If the blocks are large and persistent, each multiprocessor has
 * one. */
template <class CODE, uint32_t WARPS> void launch_single(const sw_gpu_decode_job<sw_gpu_single> *job) {
    const uint32_t blocks = (job->items.n_units + WARPS - 1) / WARPS;
    launch<CODE, WARPS>(job, CODE::IS_PERSISTENT && WARPS != FEW_WARPS ? min(blocks, sw_gpu_processors()) : blocks);
}

/* Returns the shared memory of the largest block that is at most `limit`; 0: there is none. */
template <class CODE> size_t decoder_bytes(size_t limit) {
    const size_t most = sizeof(shared_state<CODE, CODE::MOST_WARPS>), few = sizeof(shared_state<CODE, FEW_WARPS>);
    const size_t many = CODE::MOST_WARPS > MANY_WARPS ? sizeof(shared_state<CODE, MANY_WARPS>) : few;
    return most <= limit ? most : many <= limit ? many : few <= limit ? few : 0;
}

/* Returns whether blocks of WARPS warps fit on the current device. */
template <class CODE, uint32_t WARPS> bool fits() {
    return sizeof(shared_state<CODE, WARPS>) <= sw_gpu_shared_bytes();
}

template <class CODE> void decode(const sw_gpu_decode_job<sw_gpu_single> *job) {
    const uint32_t n_tiles = job->items.n_units, processors = sw_gpu_processors();
    if constexpr (CODE::MOST_WARPS > MANY_WARPS)
        if (n_tiles >= 2 * CODE::MOST_WARPS * processors && fits<CODE, CODE::MOST_WARPS>())
            return launch_single<CODE, CODE::MOST_WARPS>(job);
    [[maybe_unused]] const bool has_many = n_tiles >= CODE::MANY_TILES * processors;
    if constexpr (CODE::MOST_WARPS >= MANY_WARPS)
        if (has_many && fits<CODE, MANY_WARPS>())
            return launch_single<CODE, MANY_WARPS>(job);
    launch_single<CODE, FEW_WARPS>(job);
}

template <class CODE> void decode(const sw_gpu_decode_job<sw_gpu_batch> *job) {
    launch<CODE, FEW_WARPS>(job, job->items.n_units);
}

/* A no-op if no block fits. */
template <class CODE> cudaError_t init_decoder() {
    cudaError_t e = cudaSuccess;
    if (!fits<CODE, FEW_WARPS>())
        return e;
    if constexpr (CODE::MOST_WARPS > MANY_WARPS)
        if (fits<CODE, CODE::MOST_WARPS>())
            e = allow_shared_all<CODE, CODE::MOST_WARPS, sw_gpu_single>();
    if constexpr (CODE::MOST_WARPS >= MANY_WARPS)
        if (e == cudaSuccess && fits<CODE, MANY_WARPS>())
            e = allow_shared_all<CODE, MANY_WARPS, sw_gpu_single>();
    if (e == cudaSuccess)
        e = allow_shared_all<CODE, FEW_WARPS, sw_gpu_single>();
    return e == cudaSuccess ? allow_shared_all<CODE, FEW_WARPS, sw_gpu_batch>() : e;
}

} // namespace

#endif
