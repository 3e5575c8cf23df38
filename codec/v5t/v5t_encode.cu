/* v5t_encode.cu - encodes a chunk in one pass: a thread per segment, a warp per tile, no block-wide step after set-up.
 *
 * After V5T (T. Anema, TU Delft 2025: FSST on a GPU, a thread per run of input, one table for many) and FSST itself
 * (Boncz, Neumann, Leis, PVLDB 13(11), 2020). What a warp does with its tile:
 *   1. each lane encodes its segment. Input passes through a ring of 16 words per thread in shared memory, from which
 *      a window of 8 bytes at any position is three loads and two funnel shifts; two lookups in shared memory give the
 *      longest symbol (8-byte hash entries for 3 bytes and more, a 64 KiB table of 2-byte prefixes for the rest);
 *      codes are gathered in registers and written as words to the warp's slot in scratch, laid out [word][lane];
 *   2. the lanes' word counts give the tile's size; one atomic reserves its place in the frame;
 *   3. rows that every lane has are copied as they are, tails are gathered (v5t/FORMAT.md).
 * Slots are reused tile after tile, so scratch depends on the GPU's size and not on the input's, and stays in L2. */
#include "codec/v5t/v5t_gpu.cuh"

namespace {

constexpr uint32_t RING_WORDS = 16; /* 64 bytes: 49 or more are valid when a group of symbols starts */
constexpr uint32_t RING_COPIES = 2; /* words 0 and 1 again, so that a window never wraps */
constexpr uint32_t SLOT_SPARE_ROWS = 4;
constexpr uint32_t MIN_THREADS = 128;

/* Symbols of 3 and more bytes: one 8-byte entry per hash slot.
 * x: tag 0-12, length - 3 13-15 (7: empty), code 16-23, byte 3 24-31; y: bytes 4 to 7. */
constexpr uint32_t EMPTY_ENTRY = 7u << SW_V5T_TAG_BITS;
static_assert(SW_V5T_TAG_BITS == 13, "the entry has room for 13 bits of tag");

struct lookup {
    uint8_t prefix[65536]; /* first two bytes -> code of 1 or 2 bytes, or the escape */
    uint2 longer[1 << SW_V5T_HASH_LOG2];
};

size_t shared_bytes(uint32_t threads) {
    return sizeof(lookup) + (RING_WORDS + RING_COPIES) * sizeof(uint32_t) * threads;
}

/* All threads of the block; the caller synchronises. */
__device__ void build_lookup(lookup &tables, const sw_v5t_table &table, uint32_t threads) {
    for (uint32_t i = threadIdx.x; i < sizeof tables.prefix / 16; i += threads)
        ((uint4 *)tables.prefix)[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
    for (uint32_t i = threadIdx.x; i < 1u << SW_V5T_HASH_LOG2; i += threads)
        tables.longer[i] = make_uint2(EMPTY_ENTRY, 0);
    __syncthreads();
    const uint32_t n_short = table.n2 + table.n1;
    for (uint32_t c = threadIdx.x / 64; c < table.n1; c += threads / 64) {
        const uint32_t code = table.n2 + c, byte = (uint32_t)table.value[code];
        for (uint32_t b = threadIdx.x % 64; b < 256; b += 64)
            tables.prefix[byte | b << 8] = (uint8_t)code;
    }
    __syncthreads(); /* a 2-byte symbol replaces the 1-byte symbol that it starts with */
    for (uint32_t c = threadIdx.x; c < table.n_symbols; c += threads) {
        const uint32_t low = (uint32_t)table.value[c], high = (uint32_t)(table.value[c] >> 32);
        if (c < table.n2) {
            tables.prefix[low] = (uint8_t)c;
        } else if (c >= n_short) {
            const uint32_t tag = sw_v5t_mix3(low) & ((1u << SW_V5T_TAG_BITS) - 1);
            tables.longer[sw_v5t_hash3(low)] =
                make_uint2(tag | (table.length[c] - 3u) << SW_V5T_TAG_BITS | c << 16 | (low & 0xFF000000u), high);
        }
    }
}

/* One lane's position in its segment and its output. Positions are in bits: shifts by them need no scaling. */
struct cursor {
    uint32_t at, end;       /* next input bit, segment's length */
    uint32_t loaded;        /* bytes of the segment that were put into the ring */
    uint32_t acc, acc_bits; /* codes not yet written, below 32 bits between groups */
    uint32_t row;           /* words written */
    uint32_t hash;
};

struct symbol {
    uint32_t code, code_bits, input_bits;
};

__device__ inline uint2 window(const uint32_t *ring, uint32_t threads, uint32_t at) {
    const uint32_t *word = ring + (at / 32 % RING_WORDS) * threads;
    const uint32_t a = word[0], b = word[threads], c = word[2 * threads];
    return make_uint2(__funnelshift_r(a, b, at), __funnelshift_r(b, c, at));
}

/* Shift left where a shift by 32 or more gives 0. */
__device__ inline uint32_t shift_left_clamped(uint32_t v, uint32_t bits) {
    return __funnelshift_lc(0, v, bits);
}

/* Longest symbol at the window. TAIL: it must not be longer than left_bits. */
template <bool TAIL> __device__ inline symbol match(const lookup &tables, uint32_t n2, uint2 w, uint32_t left_bits) {
    const uint32_t mix = sw_v5t_mix3(w.x);
    const uint2 entry = tables.longer[mix >> SW_V5T_TAG_BITS & ((1u << SW_V5T_HASH_LOG2) - 1)];
    const uint32_t prefix = tables.prefix[w.x & 0xFFFF];
    const uint32_t more = entry.x >> SW_V5T_TAG_BITS & 7; /* bytes past the third */
    uint32_t differ = (mix ^ entry.x) & ((1u << SW_V5T_TAG_BITS) - 1);
    differ |= shift_left_clamped(w.y ^ entry.y, 40 - 8 * more);
    const uint32_t byte3 = (w.x ^ entry.x) & 0xFF000000u;
    differ |= more ? byte3 : 0;
    bool hit = differ == 0 && more < 6;
    const uint32_t long_bits = 24 + 8 * more;
    uint32_t code = prefix, bits = prefix < n2 ? 16 : 8;
    if (TAIL) {
        hit = hit && long_bits <= left_bits;
        if (bits > left_bits) {
            code = SW_V5T_ESCAPE;
            bits = 8;
        }
    }
    const bool escape = !hit && code == SW_V5T_ESCAPE;
    symbol s;
    s.input_bits = hit ? long_bits : bits;
    s.code = hit ? entry.x >> 16 & 0xFF : escape ? __byte_perm(w.x, 0xFF, 0x7704) : code;
    s.code_bits = escape ? 16 : 8;
    return s;
}

/* Adds up to 32 bits of codes; writes a word when one is full. */
__device__ inline void append(cursor &c, uint32_t *slot, uint32_t bits, uint32_t n_bits) {
    c.acc |= bits << c.acc_bits;
    const uint32_t carry = __funnelshift_l(bits, 0, c.acc_bits);
    c.acc_bits += n_bits;
    if (c.acc_bits >= 32) {
        slot[c.row * SW_WARP] = c.acc;
        c.acc = carry;
        c.acc_bits -= 32;
        c.row++;
    }
}

__device__ inline void put_unit(uint32_t *ring, uint32_t threads, uint32_t at_bytes, uint4 v) {
    const uint32_t i = at_bytes / 4 % RING_WORDS;
    uint32_t *word = ring + i * threads;
    word[0] = v.x;
    word[threads] = v.y;
    word[2 * threads] = v.z;
    word[3 * threads] = v.w;
    if (i == 0) {
        ring[RING_WORDS * threads] = v.x;
        ring[(RING_WORDS + 1) * threads] = v.y;
    }
}

/* Puts the segment's next unit into the ring if there is one and there is room. */
__device__ inline bool refill(cursor &c, uint32_t *ring, uint32_t threads, uint4 unit, uint32_t in_bytes) {
    if (c.loaded >= in_bytes || c.loaded - c.at / 8 > 4 * RING_WORDS - 16)
        return false;
    put_unit(ring, threads, c.loaded, unit);
    c.hash = sw_hash_partial_unit(c.hash, unit, min(16u, in_bytes - c.loaded));
    c.loaded += 16;
    return true;
}

/* Encodes one segment into column `slot` of the warp's rows. Returns its words, or n_raw_words if coding does not make
 * it shorter; *ret_hash: hash of the input. */
template <int ALIGN>
__device__ uint32_t encode_segment(const lookup &tables, uint32_t n2, uint32_t *ring, uint32_t threads,
                                   const uint8_t *in, uint32_t in_bytes, uint32_t seed, uint32_t *slot,
                                   uint32_t *ret_hash) {
    const uint32_t n_raw_words = (in_bytes + 3) / 4;
    cursor c = {0, 8 * in_bytes, 0, 0, 0, 0, seed};
#pragma unroll
    for (uint32_t u = 0; u < RING_WORDS / 4; u++) {
        const uint4 v = sw_load_unit<ALIGN>(in, 16 * u, in_bytes);
        put_unit(ring, threads, 16 * u, v);
        if (16 * u < in_bytes)
            c.hash = sw_hash_partial_unit(c.hash, v, min(16u, in_bytes - 16 * u));
    }
    c.loaded = 4 * RING_WORDS;
    /* Two units ahead, loaded a group of symbols before they are put into the ring: as much as a group may take. */
    uint4 next = sw_load_unit<ALIGN>(in, c.loaded, in_bytes);
    uint4 after_next = sw_load_unit<ALIGN>(in, c.loaded + 16, in_bytes);
    /* Four symbols take at most 32 bytes, so they are matched without looking at the segment's end or at the ring. */
    while (c.at + 4 * 64 <= c.end && c.row < n_raw_words) {
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const symbol s = match<false>(tables, n2, window(ring, threads, c.at), 0);
            c.at += s.input_bits;
            const symbol t = match<false>(tables, n2, window(ring, threads, c.at), 0);
            c.at += t.input_bits;
            append(c, slot, s.code | t.code << s.code_bits, s.code_bits + t.code_bits);
        }
        if (refill(c, ring, threads, next, in_bytes)) {
            const bool both = refill(c, ring, threads, after_next, in_bytes);
            next = both ? sw_load_unit<ALIGN>(in, c.loaded, in_bytes) : after_next;
            after_next = sw_load_unit<ALIGN>(in, c.loaded + 16, in_bytes);
        }
    }
    while (c.at < c.end && c.row < n_raw_words) {
        const symbol s = match<true>(tables, n2, window(ring, threads, c.at), c.end - c.at);
        c.at += s.input_bits;
        append(c, slot, s.code, s.code_bits);
    }
    for (; c.loaded < in_bytes; c.loaded += 16) /* only after giving up early: the hash needs the rest */
        c.hash =
            sw_hash_partial_unit(c.hash, sw_load_unit<ALIGN>(in, c.loaded, in_bytes), min(16u, in_bytes - c.loaded));
    if (c.acc_bits)
        slot[c.row++ * SW_WARP] = c.acc;
    *ret_hash = sw_hash_finish(c.hash);
    return c.at < c.end || c.row >= n_raw_words ? n_raw_words : c.row;
}

template <int ALIGN> __device__ void copy_raw_segment(const uint8_t *in, uint32_t in_bytes, uint32_t *slot) {
    for (uint32_t at = 0; at < in_bytes; at += 16) {
        const uint4 v = sw_load_unit<ALIGN>(in, at, in_bytes);
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (at + 4 * i < in_bytes)
                slot[(at / 4 + i) * SW_WARP] = w[i];
    }
}

/* Copies n items from L2, BATCH at a time. Strides in items. */
template <uint32_t BATCH, class T>
__device__ inline void copy_batched(const T *from, uint32_t from_stride, T *to, uint32_t to_stride, uint32_t n) {
    T v[BATCH];
    for (uint32_t i = 0; i < n; i += BATCH) {
#pragma unroll
        for (uint32_t k = 0; k < BATCH; k++)
            if (i + k < n)
                v[k] = __ldcg(from + (i + k) * from_stride);
#pragma unroll
        for (uint32_t k = 0; k < BATCH; k++)
            if (i + k < n)
                to[(i + k) * to_stride] = v[k];
    }
}

/* Moves a tile from the warp's slot (row of 32 words per word index) to its place in the frame. Where a multiprocessor
 * has few warps, loads are batched, so that one does not wait for the other; where it has many, that costs more
 * instructions than it saves time. */
template <uint32_t THREADS>
__device__ void place_tile(const uint32_t *slot_rows, uint32_t *out, uint32_t lane, uint32_t lanes, uint32_t words,
                           uint32_t total_words) {
    const uint32_t shortest = __reduce_min_sync(0xFFFFFFFFu, lane < lanes ? words : 0xFFFFFFFFu);
    const uint32_t tail = lane < lanes ? words - shortest : 0;
    const uint32_t tail_at = shortest * lanes + sw_warp_exclusive_sum(tail, lane);
    constexpr uint32_t BATCH = THREADS < 1024 ? 4 : 1;
    if (lanes == SW_WARP)
        copy_batched<BATCH>((const uint4 *)slot_rows + lane, SW_WARP, (uint4 *)out + lane, SW_WARP,
                            (shortest * (SW_WARP / 4) + SW_WARP - 1 - lane) / SW_WARP);
    else if (lane < lanes)
        copy_batched<BATCH>(slot_rows + lane, SW_WARP, out + lane, lanes, shortest);
    copy_batched<2 * BATCH>(slot_rows + shortest * SW_WARP + lane, SW_WARP, out + tail_at, 1, tail);
    if (lane < (0u - total_words) % 4)
        out[total_words + lane] = 0; /* padding to 16 bytes */
}

template <int ALIGN, uint32_t THREADS, class ITEMS>
__global__ void __launch_bounds__(THREADS, 1)
    encode_tiles(const sw_v5t_table *__restrict__ table, const __grid_constant__ ITEMS items, uint8_t *slots,
                 uint32_t slot_bytes) {
    extern __shared__ __align__(16) uint8_t shared[];
    lookup &tables = *(lookup *)shared;
    uint32_t *ring = (uint32_t *)(shared + sizeof(lookup)) + threadIdx.x;
    build_lookup(tables, *table, THREADS);
    __syncthreads();
    const uint32_t n2 = table->n2, lane = threadIdx.x % SW_WARP;
    const uint32_t warp = (blockIdx.x * THREADS + threadIdx.x) / SW_WARP;
    uint32_t *slot_rows = (uint32_t *)(slots + (size_t)warp * slot_bytes);
    for (;;) {
        uint32_t next = lane == 0 ? atomicAdd(&items.progress(0)->next_tile, 1) : 0;
        next = __shfl_sync(0xFFFFFFFFu, next, 0);
        if (next >= items.n_units)
            return;
        const sw_gpu_place place = items.find(next, lane);
        const sw_frame_layout &layout = place.item.layout;
        const uint32_t tile = place.unit, segment_bytes = 1u << layout.segment_log2;
        const uint64_t segment = (uint64_t)tile * SW_TILE_SEGMENTS + lane, at = segment << layout.segment_log2;
        const uint8_t *in = (const uint8_t *)place.item.d_raw + at;
        uint8_t *frame = (uint8_t *)place.item.d_frame;
        const uint32_t in_bytes =
            at >= layout.raw_bytes ? 0 : (uint32_t)min((uint64_t)segment_bytes, layout.raw_bytes - at);
        const uint32_t n_raw_words = (in_bytes + 3) / 4;
        uint32_t words = 0, hash = 0;
        if (in_bytes) {
            words = encode_segment<ALIGN>(tables, n2, ring, THREADS, in, in_bytes, sw_hash_segment_seed(tile, lane),
                                          slot_rows + lane, &hash);
            if (words == n_raw_words)
                copy_raw_segment<ALIGN>(in, in_bytes, slot_rows + lane);
        }
        __syncwarp();
        const uint32_t total = sw_warp_sum(words), lanes = __popc(__ballot_sync(0xFFFFFFFFu, in_bytes > 0));
        const uint32_t tile_hash = sw_warp_sum(hash);
        unsigned long long unit =
            lane == 0 ? atomicAdd(&items.progress(place.index)->data_units, (unsigned long long)(total + 3) / 4) : 0;
        unit = __shfl_sync(0xFFFFFFFFu, unit, 0);
        if (lane == 0)
            ((sw_tile_record *)(frame + layout.records_offset))[tile] = {(uint32_t)unit, tile_hash};
        frame[layout.counts_offset + tile * SW_TILE_SEGMENTS + lane] = (uint8_t)(words == n_raw_words ? 0 : words);
        place_tile<THREADS>(slot_rows, (uint32_t *)(frame + layout.data_offset + unit * SW_FRAME_ALIGN), lane, lanes,
                            words, total);
        __syncwarp(); /* the slot is free for the next tile */
    }
}

/* Launch shape for the current device. The lookup tables take the larger part of a block's shared memory, so blocks are
 * as big as that holds - 256 threads where it is 99 KiB (sm_86, sm_89) - unless the input is too short to give every
 * multiprocessor one: then smaller ones, since a segment takes its time and idle multiprocessors none. Not as small as
 * that would be best for an input that has the device to itself: chunks are mostly encoded side by side, and few small
 * blocks fit beside each other. threads 0: the device is too small. */
struct shape {
    uint32_t threads, blocks;
};

shape shape_for(uint32_t n_tiles) {
    int device = 0, shared = 0;
    const uint32_t processors = sw_gpu_processors();
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    const uint32_t most = (size_t)shared >= shared_bytes(1024) ? 1024 : (size_t)shared >= shared_bytes(256) ? 256 : 0;
    const uint32_t tiles_each = (n_tiles + processors - 1) / processors;
    uint32_t threads = most;
    while (threads > MIN_THREADS && threads / SW_WARP >= 4 * tiles_each)
        threads /= 2;
    return {threads, processors};
}

uint32_t slot_bytes(unsigned segment_log2) {
    return (((1u << segment_log2) / 4) + SLOT_SPARE_ROWS) * SW_WARP * (uint32_t)sizeof(uint32_t);
}

template <int ALIGN, uint32_t THREADS, class ITEMS> cudaError_t allow_shared() {
    return cudaFuncSetAttribute(encode_tiles<ALIGN, THREADS, ITEMS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes(THREADS));
}

template <uint32_t THREADS, class ITEMS> cudaError_t allow_shared_all() {
    cudaError_t e = allow_shared<16, THREADS, ITEMS>();
    if (e == cudaSuccess)
        e = allow_shared<4, THREADS, ITEMS>();
    return e == cudaSuccess ? allow_shared<1, THREADS, ITEMS>() : e;
}

template <uint32_t THREADS, class ITEMS> void launch(const sw_gpu_encode_job<ITEMS> *job, uint32_t blocks) {
    const uint32_t stride = slot_bytes(job->plan->segment_log2);
    const uint64_t warps = job->slots_bytes / stride, warps_per_block = THREADS / SW_WARP;
    blocks = (uint32_t)min((uint64_t)blocks, warps / warps_per_block);
    blocks = (uint32_t)min((uint64_t)blocks, (job->items.n_units + warps_per_block - 1) / warps_per_block);
    sw_gpu_with_alignment(job->raw_address, [&](auto align) {
        encode_tiles<align.value, THREADS><<<blocks, THREADS, shared_bytes(THREADS), job->stream>>>(
            job->plan->d_table, job->items, job->d_slots, stride);
    });
}

/* Calls `use` with a compile-time number of threads. */
template <class F> void with_threads(uint32_t threads, F use) {
    switch (threads) {
    case 1024:
        use(std::integral_constant<uint32_t, 1024>());
        break;
    case 512:
        use(std::integral_constant<uint32_t, 512>());
        break;
    case 256:
        use(std::integral_constant<uint32_t, 256>());
        break;
    default:
        use(std::integral_constant<uint32_t, MIN_THREADS>());
    }
}

} // namespace

cudaError_t sw_v5t_gpu_init() {
    const uint32_t most = shape_for(UINT32_MAX / 2).threads;
    cudaError_t e = most ? cudaSuccess : cudaErrorNotSupported;
    for (uint32_t threads = MIN_THREADS; e == cudaSuccess && threads <= most; threads *= 2)
        with_threads(threads, [&](auto t) {
            e = allow_shared_all<t.value, sw_gpu_single>();
            if (e == cudaSuccess)
                e = allow_shared_all<t.value, sw_gpu_batch>();
        });
    return e;
}

size_t sw_v5t_gpu_slots_bytes(uint64_t n_tiles, unsigned segment_log2) {
    const shape s = shape_for((uint32_t)n_tiles);
    if (!s.threads)
        return 0;
    const uint64_t warps_per_block = s.threads / SW_WARP;
    const uint64_t blocks = min((n_tiles + warps_per_block - 1) / warps_per_block, (uint64_t)s.blocks);
    return blocks * warps_per_block * slot_bytes(segment_log2);
}

template <class ITEMS> void sw_v5t_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    shape s = shape_for(job->items.n_units);
    while (s.threads > MIN_THREADS && job->slots_bytes / slot_bytes(job->plan->segment_log2) < s.threads / SW_WARP)
        s.threads /= 2; /* of a batch of very short inputs: one block must have its slots */
    with_threads(s.threads, [&](auto t) { launch<t.value>(job, s.blocks); });
}
template void sw_v5t_gpu_encode(const sw_gpu_encode_job<sw_gpu_single> *job);
template void sw_v5t_gpu_encode(const sw_gpu_encode_job<sw_gpu_batch> *job);
