/* raw_gpu.cu - codec raw on the GPU: copies content and hashes it, or only hashes it. A warp processes a tile, and a
 * thread a segment. */
#include "codec/codec_gpu.cuh"

namespace {

constexpr uint32_t WARPS = 8, THREADS = WARPS * SW_WARP;
constexpr uint32_t SEGMENT_BYTES = 1u << SW_RAW_SEGMENT_LOG2;
constexpr uint64_t TILE_BYTES = (uint64_t)SW_TILE_SEGMENTS * SEGMENT_BYTES;
/* A warp moves 128 bytes of each of its 32 segments at a time. Eight lanes move a line, so that memory is read and
 * written in full lines. Through the stage each lane gets its own segment's line, and hashes it. */
constexpr uint32_t LINE_UNITS = 8, LINE_BYTES = 16 * LINE_UNITS, LINES_AT_ONCE = SW_WARP / LINE_UNITS;

/* Used instead of a destination's alignment: there is no destination, and the bytes are only hashed. */
constexpr int NOWHERE = 0;

struct stage {
    uint4 unit[SW_TILE_SEGMENTS][LINE_UNITS + 1]; /* the odd stride avoids bank conflicts */
};

/* Processes one line of every segment of a full tile, from byte `at` of each segment. */
template <int LOAD, int STORE>
__device__ uint32_t move_lines(const uint8_t *from, uint8_t *to, uint32_t at, stage &s, uint32_t lane, uint32_t hash) {
    const uint32_t unit = lane % LINE_UNITS;
    uint4 v[LINE_UNITS];
#pragma unroll
    for (uint32_t k = 0; k < LINE_UNITS; k++) {
        const uint32_t segment = k * LINES_AT_ONCE + lane / LINE_UNITS;
        v[k] = sw_load_unit<LOAD>(from, segment * SEGMENT_BYTES + at + 16 * unit, (uint32_t)TILE_BYTES);
    }
#pragma unroll
    for (uint32_t k = 0; k < LINE_UNITS; k++) {
        const uint32_t segment = k * LINES_AT_ONCE + lane / LINE_UNITS;
        if constexpr (STORE != NOWHERE)
            sw_store_unit<STORE>(to + segment * SEGMENT_BYTES + at + 16 * unit, v[k]);
        s.unit[segment][unit] = v[k];
    }
    __syncwarp();
#pragma unroll
    for (uint32_t k = 0; k < LINE_UNITS; k++)
        hash = sw_hash_unit(hash, s.unit[lane][k]);
    __syncwarp();
    return hash;
}

template <int STORE> __device__ void store_part(uint8_t *to, uint4 v, uint32_t bytes) {
    if (bytes == 16)
        sw_store_unit<STORE>(to, v);
    else
        sw_store_tail(to, v, bytes);
}

/* Processes any other tile: each lane copies and hashes its own segment. */
template <int LOAD, int STORE>
__device__ uint32_t move_segment(const uint8_t *from, uint8_t *to, uint32_t bytes, uint32_t hash) {
    for (uint32_t i = 0; i < bytes; i += 16) {
        const uint32_t n = min(16u, bytes - i);
        const uint4 v = sw_load_unit<LOAD>(from, i, bytes);
        if constexpr (STORE != NOWHERE)
            store_part<STORE>(to + i, v, n);
        hash = sw_hash_partial_unit(hash, v, n);
    }
    return hash;
}

/* Copies tile `tile` of raw_bytes from `from` to `to`, unless that is NOWHERE; returns its hash, in every lane. */
template <int LOAD, int STORE>
__device__ uint32_t copy_tile(const uint8_t *from, uint8_t *to, uint32_t tile, uint64_t raw_bytes, uint32_t lane) {
    __shared__ stage stages[WARPS];
    const uint64_t at = tile * TILE_BYTES + (uint64_t)lane * SEGMENT_BYTES;
    const uint32_t bytes = at >= raw_bytes ? 0 : (uint32_t)min((uint64_t)SEGMENT_BYTES, raw_bytes - at);
    uint32_t hash = sw_hash_segment_seed(tile, lane);
    if (raw_bytes - tile * TILE_BYTES >= TILE_BYTES) {
        for (uint32_t i = 0; i < SEGMENT_BYTES; i += LINE_BYTES)
            hash = move_lines<LOAD, STORE>(from, to, i, stages[threadIdx.x / SW_WARP], lane, hash);
    } else {
        hash = move_segment<LOAD, STORE>(from + lane * SEGMENT_BYTES, STORE == NOWHERE ? to : to + lane * SEGMENT_BYTES,
                                         bytes, hash);
    }
    return sw_warp_sum(bytes ? sw_hash_finish(hash) : 0);
}

template <int ALIGN, class ITEMS>
__global__ void __launch_bounds__(THREADS) encode_tiles(const __grid_constant__ ITEMS items) {
    const uint32_t lane = threadIdx.x % SW_WARP, index = blockIdx.x * WARPS + threadIdx.x / SW_WARP;
    if (index >= items.n_units || sw_gpu_is_refused(items.pass, lane))
        return;
    const sw_gpu_place place = items.find(index, lane);
    const sw_frame_layout &layout = place.item.layout;
    const uint8_t *in = (const uint8_t *)place.item.d_raw;
    uint8_t *frame = (uint8_t *)place.item.d_frame;
    const uint32_t tile = place.unit;
    const uint64_t at = tile * TILE_BYTES;
    const uint32_t hash = copy_tile<ALIGN, 16>(in + at, frame + layout.data_offset + at, tile, layout.raw_bytes, lane);
    if (lane == 0)
        ((sw_tile_record *)(frame + layout.records_offset))[tile] = {(uint32_t)(at / SW_FRAME_ALIGN), hash};
    const uint32_t padding = (uint32_t)(0 - layout.raw_bytes) % SW_FRAME_ALIGN;
    if (tile == layout.n_tiles - 1 && lane < padding)
        frame[layout.data_offset + layout.raw_bytes + lane] = 0;
    if (tile == 0) /* the frame's length is known */
        sw_gpu_finish_frame(items, place.index, 0, lane);
}

template <int ALIGN, class ITEMS>
__global__ void __launch_bounds__(THREADS) decode_tiles(const __grid_constant__ ITEMS items, uint32_t first_tile) {
    const uint32_t lane = threadIdx.x % SW_WARP, index = blockIdx.x * WARPS + threadIdx.x / SW_WARP;
    if (index >= items.n_units || sw_gpu_is_refused(items.pass, lane))
        return;
    const sw_gpu_place place = items.find(index, lane);
    const sw_frame_layout &layout = place.item.layout;
    const uint8_t *frame = (const uint8_t *)place.item.d_frame;
    const uint32_t tile = first_tile + place.unit;
    const uint64_t at = tile * TILE_BYTES;
    const sw_tile_record record = ((const sw_tile_record *)(frame + layout.records_offset))[tile];
    /* sw_frame_parse() has checked that the data section holds raw_bytes; only the record is unchecked. */
    const uint32_t hash =
        copy_tile<16, ALIGN>(frame + layout.data_offset + at, (uint8_t *)place.item.d_raw + place.unit * TILE_BYTES,
                             tile, layout.raw_bytes, lane);
    if (lane == 0 && (hash != record.hash || record.offset16 != at / SW_FRAME_ALIGN))
        atomicAdd(&items.results[place.index].bad_tiles, 1);
}

/* The ranges are a kernel argument, because a copy to the device would be a step of its own. */
struct hash_job {
    sw_gpu_source ranges[SW_GPU_HASH_MAX];
    uint32_t first_tile[SW_GPU_HASH_MAX]; /* the number of tiles in earlier ranges */
    uint32_t n, n_tiles;
    uint32_t *hashes;
};

template <int ALIGN> __global__ void __launch_bounds__(THREADS) hash_tiles(const __grid_constant__ hash_job job) {
    const uint32_t lane = threadIdx.x % SW_WARP, index = blockIdx.x * WARPS + threadIdx.x / SW_WARP;
    if (index >= job.n_tiles)
        return;
    /* Find the last range that begins at or before this tile. An empty range is never the last one. */
    const uint32_t i = __popc(__ballot_sync(0xFFFFFFFFu, lane < job.n && job.first_tile[lane] <= index)) - 1;
    const uint32_t tile = index - job.first_tile[i];
    const uint8_t *from = (const uint8_t *)job.ranges[i].d_raw + tile * TILE_BYTES;
    const uint32_t hash = copy_tile<ALIGN, NOWHERE>(from, nullptr, tile, job.ranges[i].bytes, lane);
    if (lane == 0)
        job.hashes[index] = hash;
}

uint32_t blocks_for(uint32_t n_tiles) {
    return (n_tiles + WARPS - 1) / WARPS;
}

} // namespace

template <class ITEMS> static void sw_raw_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    sw_gpu_with_alignment(job->raw_address, [&](auto align) {
        encode_tiles<align.value><<<blocks_for(job->items.n_units), THREADS, 0, job->stream>>>(job->items);
    });
}

template <class ITEMS> static void sw_raw_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    sw_gpu_with_alignment(job->raw_address, [&](auto align) {
        decode_tiles<align.value>
            <<<blocks_for(job->items.n_units), THREADS, 0, job->stream>>>(job->items, job->first_tile);
    });
}

SW_GPU_CODEC(raw, 1);

int sw_gpu_hash_async(const struct sw_gpu_source *ranges, uint32_t n, uint32_t *hashes, struct CUstream_st *stream,
                      struct sw_err *err) {
    hash_job job = {};
    uint64_t n_tiles = 0;
    uintptr_t addresses = 0;
    static_assert(SW_GPU_HASH_MAX <= SW_WARP, "a lane looks at a range");
    for (uint32_t i = 0; i < n && i < SW_GPU_HASH_MAX; i++) {
        job.ranges[i] = ranges[i];
        job.first_tile[i] = (uint32_t)n_tiles;
        n_tiles += (ranges[i].bytes + TILE_BYTES - 1) / TILE_BYTES;
        addresses |= (uintptr_t)ranges[i].d_raw;
        if (n_tiles > INT32_MAX)
            break;
    }
    if (n > SW_GPU_HASH_MAX || n_tiles > INT32_MAX)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u ranges to hash, or too many tiles", n);
    if (!n_tiles)
        return 0;
    job.n = n;
    job.n_tiles = (uint32_t)n_tiles;
    job.hashes = hashes;
    sw_gpu_with_alignment(
        addresses, [&](auto align) { hash_tiles<align.value><<<blocks_for(job.n_tiles), THREADS, 0, stream>>>(job); });
    return sw_gpu_launched(err, "hash_tiles");
}
