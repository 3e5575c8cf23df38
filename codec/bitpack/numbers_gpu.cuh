/* numbers_gpu.cuh - the common part of the codecs of numbers on the GPU.
 *
 * Encoding and decoding are one pass over memory. A block of threads processes a tile, and a warp processes 4 KiB of
 * it, or a vector of 64-bit values. Values stay in registers from the load to the store.
 *
 * A codec is a struct CODEC, derived from sw_integer_codec (values of any length) or sw_float_codec (of 32 and 64
 * bits). These define some of the constants; the codec defines the others:
 *   uint32_t KINDS           number of kinds of bases: 0, 1 or 2
 *   bool HAS_SIZES           whether the counts section has vectors' sizes
 *   bool HAS_TAGS            whether it has vectors' tags instead, from which units() computes the sizes
 *   bool TAGS_ALONE          whether it has no widths beside the tags: the width is 0, or with tag 0 BITS
 *   uint32_t MAX_VECTORS     of a tile
 *   uint32_t LEAST_BITS      of a value; kernels for shorter values are not compiled
 *   bool IN_ORDER            whether measure() and store() get values in a row instead of units by turns (vectors.cuh)
 *   bool HAS_STAGE           whether decode() uses its stage
 *   uint32_t DECODE_BLOCKS   decoding blocks that must fit on a multiprocessor, for values of up to 32 bits
 *
 * Its members are static. The first three and begin_*() are templates of <unsigned BITS>, and all lanes of a warp call
 * them:
 *   sw_gpu_head measure(const uint32_t *x, const sw_gpu_content &content, uint32_t lane)
 *       Returns a vector's head; the head of lane 0 is used. Missing values are replaced by the first value.
 *   void store(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content, uint8_t *to,
 *              sw_stage<BITS> &stage, uint32_t lane)
 *       Writes all head.units of a head from measure(), as the host does. It may change x. The stage is the warp's own
 *       if IN_ORDER, else it must not be used.
 *   bool decode(const sw_gpu_head &head, const uint8_t *from, sw_stage<BITS> &stage, uint32_t lane, uint32_t *x)
 *       Decodes a full vector into x, units by turns; false: it is malformed. The head, which is the same in all lanes,
 *       and the stored vector are untrusted, as on the host. All lanes must return the same value at the same place,
 *       because callers stop on false, and lanes that went on would wait for the others in shuffles. So decide by data
 *       that all lanes have, or by a vote. The stage is the warp's own if HAS_STAGE, else it must not be used.
 *   uint32_t units(unsigned bits, const sw_gpu_head &head)
 *       If HAS_TAGS: returns a vector's length from its width and tag; more than any content if it is malformed.
 *   void begin_encode(const uint64_t *values, uint32_t n_values), begin_decode(likewise)
 *       All threads of a block call it first, with the values of the plan's or the frame's symbol table.
 *
 * The names on the host (numbers.h) correspond to these:
 *   n_bases, max_vectors, has_sizes    KINDS, MAX_VECTORS, HAS_SIZES
 *   units, NULL or not                 units(), HAS_TAGS
 *   tags_alone                         TAGS_ALONE
 *   head.base[0], head.base[1]         head.base, head.step; decode() gets 0 for a base that KINDS does not have
 *   head.dictionary                    the data that begin_encode() and begin_decode() have kept
 *   the value type's sign              content.flip
 *   v->grid                            content.grid
 *   has_runs, chooses_by_vector        none: only estimates use them
 *
 * Internal to codec/. */
#ifndef SW_NUMBERS_GPU_CUH
#define SW_NUMBERS_GPU_CUH

#include "codec/bitpack/bitpack_gpu.cuh"
#include "codec/pfor/grid.h"

/* Warps of a decoding block: fewer than a tile has shares, so that each warp has more loads in flight. */
constexpr uint32_t SW_DECODE_WARPS = 4;

/* A vector's content, for a warp. */
struct sw_gpu_content {
    uint32_t bytes, n_values; /* without missing values; the last value may be cut */
    uint32_t vector;          /* its number in the tile */
    uint64_t flip;            /* the sign bit of signed types */
    const sw_grid &grid;      /* the plan's */
};

/* The plan of a launch. */
struct sw_gpu_numbers {
    uint64_t flip;
    const uint64_t *symbols;
    sw_grid grid; /* of values of 32 and 64 bits */
};

/* ---- values in a row ---- */

/* Converts units by turns to values in a row; sw_put_by_turns() does the reverse. */
template <unsigned BITS>
__device__ __forceinline__ void sw_put_in_order(uint32_t *x, sw_stage<BITS> &stage, uint32_t lane) {
#pragma unroll
    for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
        stage.by_turns(u, lane) = sw_unit_of(x + 4 * u);
    __syncwarp();
#pragma unroll
    for (uint32_t u = 0; u < stage.LANE_UNITS; u++)
        sw_unit_to(x + 4 * u, stage.unit[lane][u]);
    __syncwarp();
}

/* Returns the value before this lane's first value; undefined in lane 0. */
template <unsigned BITS> __device__ __forceinline__ uint64_t sw_value_before(const uint32_t *x) {
    const uint64_t last = sw_get_value<BITS>(x, 31);
    return BITS == 64 ? __shfl_up_sync(0xFFFFFFFFu, (unsigned long long)last, 1)
                      : __shfl_up_sync(0xFFFFFFFFu, (uint32_t)last, 1);
}

/* ---- encoding ---- */

/* Data that the warps of a tile exchange. */
struct sw_tile_state {
    sw_gpu_head head[SW_TILE_MAX_VECTORS];
    uint32_t first_unit[SW_TILE_MAX_VECTORS];
    uint32_t hash[SW_HASH_TILE_BLOCKS];
    sw_gpu_room room;
};

__device__ inline uint32_t sw_tile_bytes(const sw_frame_layout &layout, uint32_t tile) {
    const uint64_t at = (uint64_t)tile * SW_NUMBERS_TILE_BYTES;
    return (uint32_t)min((uint64_t)SW_NUMBERS_TILE_BYTES, layout.raw_bytes - at);
}

/* For the first warp: computes the place of each vector, and writes the tile's record and counts. */
template <class CODEC, unsigned BITS>
__device__ void sw_place_tile(sw_tile_state &state, const sw_gpu_place &place, sw_gpu_progress *progress,
                              uint32_t tile_bytes, uint32_t lane) {
    constexpr uint32_t VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const sw_frame_layout &layout = place.item.layout;
    uint8_t *frame = (uint8_t *)place.item.d_frame;
    uint8_t *counts = frame + layout.counts_offset + (uint64_t)place.unit * sw_count_bytes<CODEC>;
    const bool is_there = lane * VECTOR_BYTES < tile_bytes;
    const sw_gpu_head head = is_there ? state.head[lane] : sw_gpu_head{};
    const uint32_t first = sw_warp_exclusive_sum(head.units, lane);
    state.first_unit[lane] = first;
    if (lane < sw_share<BITS>::TILE_VECTORS && CODEC::KINDS) {
        sw_store_value<BITS>(counts, lane, head.base);
        if (CODEC::KINDS == 2)
            sw_store_value<BITS>(counts + SW_TILE_BASES_BYTES, lane, head.step);
    }
    counts += CODEC::KINDS * SW_TILE_BASES_BYTES;
    if (lane < CODEC::MAX_VECTORS) {
        if (!CODEC::TAGS_ALONE)
            counts[lane] = (uint8_t)head.width;
        if (sw_has_more<CODEC>)
            sw_tags<CODEC>(counts)[lane] = (uint16_t)(CODEC::HAS_TAGS ? head.tag : head.units);
    }
    const uint32_t hash = sw_warp_sum(lane < sw_share<BITS>::PER_TILE ? state.hash[lane] : 0);
    if (lane == SW_WARP - 1)
        state.room = sw_gpu_take_room(progress, layout, first + head.units);
    __syncwarp();
    if (lane == 0)
        ((sw_tile_record *)(frame + layout.records_offset))[place.unit] = {(uint32_t)state.room.unit, hash};
}

/* Replaces a vector's missing values by its first value. */
template <unsigned BITS> __device__ __forceinline__ void sw_fill_vector(uint32_t *x, uint32_t n_values, uint32_t lane) {
    const uint32_t low = __shfl_sync(0xFFFFFFFFu, x[0], 0);
    const uint64_t first =
        BITS == 64 ? (uint64_t)__shfl_sync(0xFFFFFFFFu, x[1], 0) << 32 | low : low & sw_low_bits(BITS);
    sw_fill_tail<BITS, sw_share<BITS>::VECTOR_WORDS>(x, n_values * (BITS / 8), lane, first);
}

/* Puts x into the order that the codec needs, and returns the vector's head. */
template <class CODEC, unsigned BITS>
__device__ __forceinline__ sw_gpu_head sw_measure_vector(uint32_t *x, const sw_gpu_content &content,
                                                         sw_stage<BITS> &stage, uint32_t lane) {
    if (content.n_values < SW_VECTOR_VALUES)
        sw_fill_vector<BITS>(x, content.n_values, lane);
    if (CODEC::IN_ORDER)
        sw_put_in_order<BITS>(x, stage, lane);
    const sw_gpu_head head = CODEC::template measure<BITS>(x, content, lane);
    const uint32_t whole = sw_packed_units(BITS, BITS, content.bytes);
    return head.units < whole ? head : sw_gpu_head{0, 0, BITS, whole, 0};
}

template <class CODEC, unsigned BITS>
__device__ __forceinline__ void sw_store_vector(uint32_t *x, const sw_gpu_head &head, const sw_gpu_content &content,
                                                uint8_t *to, sw_stage<BITS> &stage, uint32_t lane) {
    constexpr uint32_t WORDS = sw_share<BITS>::VECTOR_WORDS;
    if (head.width < BITS || head.units < sw_packed_units(BITS, BITS, content.bytes)) {
        CODEC::template store<BITS>(x, head, content, to, stage, lane);
        return;
    }
    if (CODEC::IN_ORDER)
        sw_put_by_turns<BITS>(x, stage, lane);
    if (content.n_values < SW_VECTOR_VALUES)
        sw_fill_tail<BITS, WORDS>(x, content.bytes, lane, 0);
    sw_store_content<WORDS / SW_UNIT_WORDS>(to, head.units * SW_UNIT_BYTES, lane, x);
}

template <class CODEC, unsigned BITS, class ITEMS>
__global__ void __launch_bounds__(sw_share<BITS>::PER_TILE *SW_WARP)
    sw_encode_numbers(const __grid_constant__ ITEMS items, const __grid_constant__ sw_gpu_numbers plan) {
    using share = sw_share<BITS>;
    constexpr uint32_t VECTOR_BYTES = share::BYTES / share::VECTORS;
    __shared__ sw_tile_state state;
    __shared__ sw_stage<BITS> stages[CODEC::IN_ORDER ? share::PER_TILE : 1];
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    sw_stage<BITS> &stage = stages[CODEC::IN_ORDER ? warp : 0]; /* only these codecs encode with a stage */
    if (sw_gpu_is_refused(items.pass, lane))
        return;
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    CODEC::template begin_encode<BITS>(plan.symbols, layout.n_symbols);
    const uint32_t tile_bytes = sw_tile_bytes(layout, place.unit);
    const uint32_t bytes = sw_bytes_left(tile_bytes, warp * share::BYTES, share::BYTES);
    const uint64_t at = (uint64_t)place.unit * SW_NUMBERS_TILE_BYTES + warp * share::BYTES;
    uint32_t x[share::WORDS];
    if (bytes)
        sw_load_content<share::UNITS>((const uint8_t *)place.item.d_raw + at, bytes, lane, x);
    const uint32_t block = place.unit * SW_HASH_TILE_BLOCKS + warp * share::BLOCKS;
    const uint32_t hash = bytes ? sw_hash_blocks<share::BLOCKS>(x, block, bytes, lane) : 0;
    if (lane == 0)
        state.hash[warp] = hash;
    const auto content_of = [&](uint32_t v) {
        const uint32_t there = sw_bytes_left(bytes, v * VECTOR_BYTES, VECTOR_BYTES);
        return sw_gpu_content{there, (there + BITS / 8 - 1) / (BITS / 8), warp * share::VECTORS + v, plan.flip,
                              plan.grid};
    };
#pragma unroll
    for (uint32_t v = 0; v < share::VECTORS; v++) {
        const sw_gpu_content content = content_of(v);
        if (!content.bytes)
            continue;
        const sw_gpu_head head = sw_measure_vector<CODEC, BITS>(x + v * share::VECTOR_WORDS, content, stage, lane);
        if (lane == 0)
            state.head[warp * share::VECTORS + v] = head;
    }
    __syncthreads();
    if (warp == 0)
        sw_place_tile<CODEC, BITS>(state, place, items.progress(place.index), tile_bytes, lane);
    __syncthreads();
    uint8_t *data = (uint8_t *)place.item.d_frame + layout.data_offset + state.room.unit * SW_FRAME_ALIGN;
#pragma unroll
    for (uint32_t v = 0; v < share::VECTORS; v++) {
        const sw_gpu_content content = content_of(v);
        const uint32_t vector = warp * share::VECTORS + v;
        if (content.bytes)
            sw_store_vector<CODEC, BITS>(x + v * share::VECTOR_WORDS, state.head[vector], content,
                                         data + state.first_unit[vector] * SW_UNIT_BYTES, stage, lane);
    }
    if (warp == 0 && state.room.all_units != SW_GPU_NOT_LAST)
        sw_gpu_finish_frame(items, place.index, state.room.all_units, lane);
}

/* ---- decoding ---- */

template <class CODEC, unsigned BITS, class ITEMS>
__global__ void __launch_bounds__(SW_DECODE_WARPS *SW_WARP, BITS == 64 ? 4 : CODEC::DECODE_BLOCKS)
    sw_decode_numbers(const __grid_constant__ ITEMS items, uint32_t first_tile) {
    using share = sw_share<BITS>;
    constexpr uint32_t VECTOR_BYTES = share::BYTES / share::VECTORS;
    __shared__ uint32_t sums[SW_DECODE_WARPS];
    __shared__ sw_stage<BITS> stages[CODEC::HAS_STAGE ? SW_DECODE_WARPS : 1];
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    if (sw_value_bits(layout.value_type) != BITS)
        return; /* in a batch, another launch processes this item */
    if (sw_gpu_is_refused(items.pass, lane))
        return;
    const uint32_t tile = first_tile + place.unit, tile_bytes = sw_tile_bytes(layout, tile);
    const uint8_t *frame = (const uint8_t *)place.item.d_frame;
    CODEC::template begin_decode<BITS>((const uint64_t *)(frame + SW_FRAME_HEADER_BYTES), layout.n_symbols);
    const sw_tile_record record = ((const sw_tile_record *)(frame + layout.records_offset))[tile];
    const uint64_t data_units = (layout.frame_bytes - layout.data_offset) / SW_UNIT_BYTES;
    const sw_stored_vectors vectors =
        sw_load_vectors<CODEC, BITS>(frame + layout.counts_offset + (uint64_t)tile * sw_count_bytes<CODEC>, tile_bytes,
                                     record.offset16 < data_units ? data_units - record.offset16 : 0, lane);
    const uint8_t *data = frame + layout.data_offset + (uint64_t)record.offset16 * SW_FRAME_ALIGN;
    uint8_t *out = (uint8_t *)place.item.d_raw + (uint64_t)place.unit * SW_NUMBERS_TILE_BYTES;
    uint32_t hash = 0;
    bool is_good = vectors.are_good;
    for (uint32_t s = warp; is_good && s * share::BYTES < tile_bytes; s += SW_DECODE_WARPS) {
        const uint32_t bytes = sw_bytes_left(tile_bytes, s * share::BYTES, share::BYTES);
        uint32_t x[share::WORDS] = {};
#pragma unroll
        for (uint32_t v = 0; v < share::VECTORS; v++) {
            const uint32_t there = sw_bytes_left(bytes, v * VECTOR_BYTES, VECTOR_BYTES);
            if (there)
                is_good &=
                    sw_decode_vector<BITS>(CODEC(), vectors, s * share::VECTORS + v, data, there,
                                           stages[CODEC::HAS_STAGE ? warp : 0], lane, x + v * share::VECTOR_WORDS);
        }
        sw_store_content<share::UNITS>(out + s * share::BYTES, bytes, lane, x);
        hash += sw_hash_blocks<share::BLOCKS>(x, tile * SW_HASH_TILE_BLOCKS + s * share::BLOCKS, bytes, lane);
    }
    if (lane == 0)
        sums[warp] = hash;
    const bool is_bad = __syncthreads_or(!is_good);
    if (threadIdx.x)
        return;
    for (uint32_t i = 1; i < SW_DECODE_WARPS; i++)
        hash += sums[i];
    if (is_bad || hash != record.hash)
        atomicAdd(&items.results[place.index].bad_tiles, 1);
}

/* ---- launches ---- */

/* Calls use(integral_constant) for a type's bits. */
template <class F> void sw_with_bits(unsigned bits, F use) {
    switch (bits) {
    case 8:
        use(std::integral_constant<unsigned, 8>());
        break;
    case 16:
        use(std::integral_constant<unsigned, 16>());
        break;
    case 32:
        use(std::integral_constant<unsigned, 32>());
        break;
    default:
        use(std::integral_constant<unsigned, 64>());
    }
}

template <class CODEC, class ITEMS> void sw_launch_encode_numbers(const sw_gpu_encode_job<ITEMS> *job) {
    const unsigned type = job->plan->value_type;
    sw_with_bits(sw_value_bits(type), [&](auto b) {
        constexpr unsigned BITS = decltype(b)::value;
        sw_gpu_numbers plan = {sw_value_is_signed(type) ? 1ull << (BITS - 1) : 0,
                               job->plan->d_params ? job->plan->d_params->value : nullptr,
                               {}};
        sw_grid_init(&plan.grid, job->plan->own, BITS);
        if constexpr (BITS >= CODEC::LEAST_BITS)
            sw_encode_numbers<CODEC, BITS>
                <<<job->items.n_units, sw_share<BITS>::PER_TILE * SW_WARP, 0, job->stream>>>(job->items, plan);
    });
}

template <class CODEC, class ITEMS> void sw_launch_decode_numbers(const sw_gpu_decode_job<ITEMS> *job) {
    for (unsigned bits = CODEC::LEAST_BITS; bits <= 64; bits *= 2)
        if (job->value_bits & bits)
            sw_with_bits(bits, [&](auto b) {
                constexpr unsigned BITS = decltype(b)::value;
                if constexpr (BITS >= CODEC::LEAST_BITS)
                    sw_decode_numbers<CODEC, BITS><<<job->items.n_units, SW_DECODE_WARPS * SW_WARP, 0, job->stream>>>(
                        job->items, job->first_tile);
            });
}

/* A codec's row. */
#define SW_NUMBERS_LAUNCHERS(id, codec)                                                                                \
    template <class ITEMS> static void sw_##id##_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {                     \
        sw_launch_encode_numbers<codec>(job);                                                                          \
    }                                                                                                                  \
    template <class ITEMS> static void sw_##id##_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {                     \
        sw_launch_decode_numbers<codec>(job);                                                                          \
    }                                                                                                                  \
    SW_GPU_CODEC(id, 1)

#endif
