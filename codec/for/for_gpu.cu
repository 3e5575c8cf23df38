/* for_gpu.cu - frame of reference on the GPU, one pass over memory in both directions: a block of threads per tile, a
 * warp per 4 KiB of it (per vector of 64-bit values), whose values stay in registers from the load to the store. */
#include "codec/bitpack/bitpack_gpu.cuh"

namespace {

/* Decoding needs few registers and many loads under way: fewer warps take a tile, each of them more of it. */
constexpr uint32_t DECODE_WARPS = 4;

__device__ inline uint32_t vector_bytes_left(uint32_t tile_bytes, uint32_t at, uint32_t bytes) {
    return at >= tile_bytes ? 0 : min(bytes, tile_bytes - at);
}

__device__ inline uint32_t bytes_of_tile(const sw_frame_layout &layout, uint32_t tile) {
    const uint64_t at = (uint64_t)tile * SW_NUMBERS_TILE_BYTES;
    return (uint32_t)min((uint64_t)SW_NUMBERS_TILE_BYTES, layout.raw_bytes - at);
}

/* Entry `vector` of an array of values of BITS. */
template <unsigned BITS> __device__ inline uint64_t load_base(const uint8_t *bases, uint32_t vector) {
    return BITS == 8    ? bases[vector]
           : BITS == 16 ? ((const uint16_t *)bases)[vector]
           : BITS == 32 ? ((const uint32_t *)bases)[vector]
                        : ((const uint64_t *)bases)[vector];
}

template <unsigned BITS> __device__ inline void store_base(uint8_t *bases, uint32_t vector, uint64_t base) {
    if (BITS == 8)
        bases[vector] = (uint8_t)base;
    else if (BITS == 16)
        ((uint16_t *)bases)[vector] = (uint16_t)base;
    else if (BITS == 32)
        ((uint32_t *)bases)[vector] = (uint32_t)base;
    else
        ((uint64_t *)bases)[vector] = base;
}

/* ---- encoding ---- */

/* What the warps of a tile tell each other; widths and bases by vector. */
struct tile_state {
    uint32_t width[SW_TILE_MAX_VECTORS], first_unit[SW_TILE_MAX_VECTORS];
    uint64_t base[SW_TILE_MAX_VECTORS];
    uint32_t hash[SW_HASH_TILE_BLOCKS];
    unsigned long long unit; /* of the data section: the tile's first */
};

/* Base and width of a vector of which `bytes` are there. All lanes. */
template <unsigned BITS>
__device__ inline void measure_vector(const uint32_t *x, uint32_t bytes, uint64_t flip, uint64_t &base,
                                      uint32_t &width) {
    const sw_gpu_range range = sw_vector_range<BITS>(x, flip);
    base = range.base;
    width = sw_width_of(range.range);
    if (sw_packed_units(BITS, width, bytes) < sw_packed_units(BITS, BITS, bytes))
        return;
    base = 0;
    width = BITS;
}

/* The first warp: where each vector goes, and all that the frame holds of the tile but its data. */
template <unsigned BITS>
__device__ void place_tile(tile_state &state, const sw_gpu_place &place, sw_gpu_progress *progress, uint32_t tile_bytes,
                           uint32_t lane) {
    constexpr uint32_t VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const sw_frame_layout &layout = place.item.layout;
    uint8_t *frame = (uint8_t *)place.item.d_frame;
    uint8_t *counts = frame + layout.counts_offset + (uint64_t)place.unit * SW_FOR_COUNT_BYTES;
    const uint32_t bytes = vector_bytes_left(tile_bytes, lane * VECTOR_BYTES, VECTOR_BYTES);
    const uint32_t width = bytes ? state.width[lane] : 0;
    const uint32_t units = bytes ? sw_packed_units(BITS, width, bytes) : 0;
    const uint32_t first = sw_warp_exclusive_sum(units, lane);
    state.first_unit[lane] = first;
    counts[SW_TILE_BASES_BYTES + lane] = (uint8_t)width;
    if (lane < sw_share<BITS>::TILE_VECTORS)
        store_base<BITS>(counts, lane, bytes ? state.base[lane] : 0);
    const uint32_t hash = sw_warp_sum(lane < sw_share<BITS>::PER_TILE ? state.hash[lane] : 0);
    if (lane == SW_WARP - 1)
        state.unit = atomicAdd(&progress->data_units, (unsigned long long)(first + units));
    __syncwarp();
    if (lane == 0)
        ((sw_tile_record *)(frame + layout.records_offset))[place.unit] = {(uint32_t)state.unit, hash};
}

template <unsigned BITS, class ITEMS>
__global__ void __launch_bounds__(sw_share<BITS>::PER_TILE *SW_WARP)
    encode_tiles(const __grid_constant__ ITEMS items, uint64_t flip) {
    using share = sw_share<BITS>;
    __shared__ tile_state state;
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    const uint32_t tile_bytes = bytes_of_tile(layout, place.unit);
    const uint32_t bytes = vector_bytes_left(tile_bytes, warp * share::BYTES, share::BYTES);
    const uint64_t at = (uint64_t)place.unit * SW_NUMBERS_TILE_BYTES + warp * share::BYTES;
    constexpr uint32_t VECTOR_BYTES = share::BYTES / share::VECTORS;
    uint32_t x[share::WORDS];
    if (bytes) {
        sw_load_content<share::UNITS>((const uint8_t *)place.item.d_raw + at, bytes, lane, x);
        const uint32_t hash =
            sw_hash_blocks<share::BLOCKS>(x, place.unit * SW_HASH_TILE_BLOCKS + warp * share::BLOCKS, bytes, lane);
        if (lane == 0)
            state.hash[warp] = hash;
    } else if (lane == 0) {
        state.hash[warp] = 0;
    }
#pragma unroll
    for (uint32_t v = 0; v < share::VECTORS; v++) {
        const uint32_t there = vector_bytes_left(bytes, v * VECTOR_BYTES, VECTOR_BYTES);
        uint32_t *words = x + v * share::VECTOR_WORDS;
        if (!there)
            continue;
        if (there < VECTOR_BYTES) {
            const uint32_t low = __shfl_sync(0xFFFFFFFFu, words[0], 0);
            const uint64_t first =
                BITS == 64 ? (uint64_t)__shfl_sync(0xFFFFFFFFu, words[1], 0) << 32 | low : low & sw_low_bits(BITS);
            sw_fill_tail<BITS, share::VECTOR_WORDS>(words, (there + BITS / 8 - 1) / (BITS / 8) * (BITS / 8), lane,
                                                    first);
        }
        uint64_t base;
        uint32_t width;
        measure_vector<BITS>(words, there, flip, base, width);
        if (lane == 0) {
            state.width[warp * share::VECTORS + v] = width;
            state.base[warp * share::VECTORS + v] = base;
        }
    }
    __syncthreads();
    if (warp == 0)
        place_tile<BITS>(state, place, items.progress(place.index), tile_bytes, lane);
    __syncthreads();
    uint8_t *data = (uint8_t *)place.item.d_frame + layout.data_offset + state.unit * SW_FRAME_ALIGN;
#pragma unroll
    for (uint32_t v = 0; v < share::VECTORS; v++) {
        const uint32_t there = vector_bytes_left(bytes, v * VECTOR_BYTES, VECTOR_BYTES);
        const uint32_t width = state.width[warp * share::VECTORS + v];
        uint8_t *to = data + state.first_unit[warp * share::VECTORS + v] * SW_UNIT_BYTES;
        uint32_t *words = x + v * share::VECTOR_WORDS;
        if (!there)
            continue;
        if (width < BITS) {
            sw_subtract_base<BITS, share::VECTOR_WORDS>(words, state.base[warp * share::VECTORS + v]);
            sw_pack_vector<BITS>(width, words, to, lane);
        } else {
            if (there < VECTOR_BYTES)
                sw_fill_tail<BITS, share::VECTOR_WORDS>(words, there, lane, 0);
            sw_store_content<share::VECTOR_WORDS / SW_UNIT_WORDS>(
                to, (there + SW_UNIT_BYTES - 1) / SW_UNIT_BYTES * SW_UNIT_BYTES, lane, words);
        }
    }
}

/* ---- decoding ---- */

/* Vector `vector` of a tile as it is stored, in the lane of its number. */
struct stored_vector {
    uint64_t base;
    uint32_t width, first_unit;
    bool is_good; /* of the tile: all its vectors have a width and lie in the frame */
};

template <unsigned BITS>
__device__ inline stored_vector load_vectors(const uint8_t *counts, uint32_t tile_bytes, uint64_t data_units,
                                             uint32_t lane) {
    constexpr uint32_t VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const uint32_t bytes = vector_bytes_left(tile_bytes, lane * VECTOR_BYTES, VECTOR_BYTES);
    stored_vector v = {};
    if (bytes) {
        v.width = counts[SW_TILE_BASES_BYTES + lane];
        v.base = load_base<BITS>(counts, lane);
    }
    const uint32_t units = bytes ? sw_packed_units(BITS, v.width, bytes) : 0;
    v.first_unit = sw_warp_exclusive_sum(units, lane);
    v.is_good = __all_sync(0xFFFFFFFFu, v.width <= BITS && v.first_unit + units <= data_units);
    return v;
}

/* Decodes one vector into x, of which `bytes` are there; zeros behind them. */
template <unsigned BITS>
__device__ __forceinline__ void decode_vector(const stored_vector &mine, uint32_t vector, const uint8_t *data,
                                              uint32_t bytes, uint32_t lane, uint32_t *x) {
    constexpr uint32_t WORDS = sw_share<BITS>::VECTOR_WORDS, VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const uint32_t width = __shfl_sync(0xFFFFFFFFu, mine.width, vector);
    const uint64_t base = BITS == 64 ? __shfl_sync(0xFFFFFFFFu, (unsigned long long)mine.base, vector)
                                     : __shfl_sync(0xFFFFFFFFu, (uint32_t)mine.base, vector);
    const uint8_t *from = data + __shfl_sync(0xFFFFFFFFu, mine.first_unit, vector) * SW_UNIT_BYTES;
    if (width < BITS) {
        sw_unpack_vector<BITS>(width, from, lane, x);
        sw_add_base<BITS, WORDS>(x, base);
    } else {
        sw_load_content<WORDS / SW_UNIT_WORDS>(from, bytes, lane, x);
    }
    if (bytes < VECTOR_BYTES)
        sw_fill_tail<BITS, WORDS>(x, bytes, lane, 0);
}

template <unsigned BITS, class ITEMS>
__global__ void __launch_bounds__(DECODE_WARPS *SW_WARP, BITS == 64 ? 4 : 8)
    decode_tiles(const __grid_constant__ ITEMS items, uint32_t first_tile) {
    using share = sw_share<BITS>;
    constexpr uint32_t VECTOR_BYTES = share::BYTES / share::VECTORS;
    __shared__ uint32_t sums[DECODE_WARPS];
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    if (sw_value_bits(layout.value_type) != BITS)
        return; /* of a batch: there is a launch for those */
    const uint32_t tile = first_tile + place.unit, tile_bytes = bytes_of_tile(layout, tile);
    const uint8_t *frame = (const uint8_t *)place.item.d_frame;
    const sw_tile_record record = ((const sw_tile_record *)(frame + layout.records_offset))[tile];
    const uint64_t data_units = (layout.frame_bytes - layout.data_offset) / SW_UNIT_BYTES;
    const stored_vector mine =
        load_vectors<BITS>(frame + layout.counts_offset + (uint64_t)tile * SW_FOR_COUNT_BYTES, tile_bytes,
                           record.offset16 < data_units ? data_units - record.offset16 : 0, lane);
    const uint8_t *data = frame + layout.data_offset + (uint64_t)record.offset16 * SW_FRAME_ALIGN;
    uint8_t *out = (uint8_t *)place.item.d_raw + (uint64_t)place.unit * SW_NUMBERS_TILE_BYTES;
    uint32_t hash = 0;
    for (uint32_t s = warp; mine.is_good && s < share::PER_TILE; s += DECODE_WARPS) {
        const uint32_t bytes = vector_bytes_left(tile_bytes, s * share::BYTES, share::BYTES);
        uint32_t x[share::WORDS] = {};
        if (!bytes)
            break;
#pragma unroll
        for (uint32_t v = 0; v < share::VECTORS; v++) {
            const uint32_t there = vector_bytes_left(bytes, v * VECTOR_BYTES, VECTOR_BYTES);
            if (there)
                decode_vector<BITS>(mine, s * share::VECTORS + v, data, there, lane, x + v * share::VECTOR_WORDS);
        }
        sw_store_content<share::UNITS>(out + s * share::BYTES, bytes, lane, x);
        hash += sw_hash_blocks<share::BLOCKS>(x, tile * SW_HASH_TILE_BLOCKS + s * share::BLOCKS, bytes, lane);
    }
    if (lane == 0)
        sums[warp] = hash;
    __syncthreads();
    if (threadIdx.x)
        return;
    for (uint32_t i = 1; i < DECODE_WARPS; i++)
        hash += sums[i];
    if (!mine.is_good || hash != record.hash)
        atomicAdd(&items.results[place.index].bad_tiles, 1);
}

/* Calls use(integral_constant) for a type's bits. */
template <class F> void with_bits(unsigned bits, F use) {
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

} // namespace

template <class ITEMS> void sw_for_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    const unsigned type = job->plan->value_type;
    with_bits(sw_value_bits(type), [&](auto bits) {
        const uint64_t flip = sw_value_is_signed(type) ? 1ull << (bits.value - 1) : 0;
        encode_tiles<bits.value>
            <<<job->items.n_units, sw_share<bits.value>::PER_TILE * SW_WARP, 0, job->stream>>>(job->items, flip);
    });
}
template void sw_for_gpu_encode(const sw_gpu_encode_job<sw_gpu_single> *job);
template void sw_for_gpu_encode(const sw_gpu_encode_job<sw_gpu_batch> *job);

template <class ITEMS> void sw_for_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    for (unsigned bits = 8; bits <= 64; bits *= 2)
        if (job->value_bits & bits)
            with_bits(bits, [&](auto b) {
                decode_tiles<b.value>
                    <<<job->items.n_units, DECODE_WARPS * SW_WARP, 0, job->stream>>>(job->items, job->first_tile);
            });
}
template void sw_for_gpu_decode(const sw_gpu_decode_job<sw_gpu_single> *job);
template void sw_for_gpu_decode(const sw_gpu_decode_job<sw_gpu_batch> *job);
