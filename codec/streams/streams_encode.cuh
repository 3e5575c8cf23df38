/* streams_encode.cuh - encodes a chunk in one pass, a warp per tile and a thread per segment, without block-wide steps
 * after set-up. The codec defines the meaning of codes: CODE below.
 *
 * It follows V5T (T. Anema, TU Delft 2025: FSST on a GPU, a thread per run of input, one table for many). A warp
 * encodes its tile in three steps:
 *   1. Each lane encodes its segment. Input passes through a thread's ring of words in shared memory. Codes are
 *      gathered in registers, and written as words to the warp's slot in scratch, in the order [word][lane].
 *   2. The lanes' word counts give the tile's size. One atomic operation reserves its place in the frame.
 *   3. Rows that every lane has are copied unchanged, and tails are gathered (v5t/FORMAT.md).
 * Slots are reused tile after tile. So scratch depends on the GPU's size, not on the input's, and stays in L2.
 *
 * struct CODE {
 *     struct lookup;                            in shared memory; 16-byte aligned
 *     RING_WORDS, RING_COPIES                   of a thread's ring
 *     build<THREADS>(lookup &, const sw_params &)   all threads of the block; the caller synchronizes
 *     CODE(const lookup &, const sw_params &)
 *     encode_segment<ALIGN>(ring, threads, in, in_bytes, seed, slot, ret_hash)
 *         encodes one segment into column `slot` of the warp's rows; returns its number of words, or the content's if
 *         coding does not make it shorter; *ret_hash: hash of the input
 * }
 * Each codec's encoder includes this file, and has its own copy of everything in it. */
#ifndef SW_STREAMS_ENCODE_CUH
#define SW_STREAMS_ENCODE_CUH

#include "codec/codec_gpu.cuh"
#include "codec/streams/streams.h"

namespace {

constexpr uint32_t SLOT_SPARE_ROWS = 4;
constexpr uint32_t MIN_THREADS = 128;

template <class CODE> size_t shared_bytes(uint32_t threads) {
    return sizeof(typename CODE::lookup) + (CODE::RING_WORDS + CODE::RING_COPIES) * sizeof(uint32_t) * threads;
}

/* One lane's position in its segment and its output. Positions are in bits, so that shifts by them need no scaling. */
struct cursor {
    uint32_t at, end;       /* next input bit, segment's length */
    uint32_t loaded;        /* bytes of the segment that were put into the ring */
    uint32_t acc, acc_bits; /* codes not yet written, below 32 bits between groups */
    uint32_t row;           /* words written */
    uint32_t hash;
};

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

/* With COPIES 2, words 0 and 1 of the ring are repeated after its end, so that a window never wraps. */
template <uint32_t WORDS, uint32_t COPIES>
__device__ inline void put_unit(uint32_t *ring, uint32_t threads, uint32_t at_bytes, uint4 v) {
    const uint32_t i = at_bytes / 4 % WORDS;
    uint32_t *word = ring + i * threads;
    word[0] = v.x;
    word[threads] = v.y;
    word[2 * threads] = v.z;
    word[3 * threads] = v.w;
    if (COPIES && i == 0) {
        ring[WORDS * threads] = v.x;
        ring[(WORDS + 1) * threads] = v.y;
    }
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

/* Moves a tile from the warp's slot (a row of 32 words per word index) to its place in the frame. If a multiprocessor
 * has few warps, loads are batched, so that their latencies overlap. With many warps, batching costs more instructions
 * than it saves time. */
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

template <class CODE, int ALIGN, uint32_t THREADS, class ITEMS>
__global__ void __launch_bounds__(THREADS, 1)
    encode_tiles(const sw_params *__restrict__ table, const __grid_constant__ ITEMS items, uint8_t *slots,
                 uint32_t slot_bytes) {
    extern __shared__ __align__(16) uint8_t shared[];
    typename CODE::lookup &tables = *(typename CODE::lookup *)shared;
    uint32_t *ring = (uint32_t *)(shared + sizeof tables) + threadIdx.x;
    CODE::template build<THREADS>(tables, *table);
    __syncthreads();
    const CODE code(tables, *table);
    const uint32_t lane = threadIdx.x % SW_WARP;
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
            words = code.template encode_segment<ALIGN>(ring, THREADS, in, in_bytes, sw_hash_segment_seed(tile, lane),
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

/* The launch's shape for the current device; threads 0: the device is too small.
 *
 * The lookup tables take most of a block's shared memory, so blocks are as large as this allows: 256 threads if it is
 * 99 KiB (sm_86, sm_89). If the input is too short to give every multiprocessor a block, blocks are smaller, so that no
 * multiprocessor is idle. They are not as small as would be best for an input that has the device to itself: several
 * chunks are mostly encoded at a time, and only few small blocks fit beside each other. */
struct shape {
    uint32_t threads, blocks;
};

template <class CODE> shape shape_for(uint32_t n_tiles) {
    int device = 0, shared = 0;
    const uint32_t processors = sw_gpu_processors();
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&shared, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    const uint32_t most = (size_t)shared >= shared_bytes<CODE>(1024)  ? 1024
                          : (size_t)shared >= shared_bytes<CODE>(256) ? 256
                                                                      : 0;
    const uint32_t tiles_each = (n_tiles + processors - 1) / processors;
    uint32_t threads = most;
    while (threads > MIN_THREADS && threads / SW_WARP >= 4 * tiles_each)
        threads /= 2;
    return {threads, processors};
}

uint32_t slot_bytes(unsigned segment_log2) {
    return (((1u << segment_log2) / 4) + SLOT_SPARE_ROWS) * SW_WARP * (uint32_t)sizeof(uint32_t);
}

template <class CODE, int ALIGN, uint32_t THREADS, class ITEMS> cudaError_t allow_shared() {
    return cudaFuncSetAttribute(encode_tiles<CODE, ALIGN, THREADS, ITEMS>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                (int)shared_bytes<CODE>(THREADS));
}

template <class CODE, uint32_t THREADS, class ITEMS> cudaError_t allow_shared_all() {
    cudaError_t e = allow_shared<CODE, 16, THREADS, ITEMS>();
    if (e == cudaSuccess)
        e = allow_shared<CODE, 4, THREADS, ITEMS>();
    return e == cudaSuccess ? allow_shared<CODE, 1, THREADS, ITEMS>() : e;
}

template <class CODE, uint32_t THREADS, class ITEMS> void launch(const sw_gpu_encode_job<ITEMS> *job, uint32_t blocks) {
    const uint32_t stride = slot_bytes(job->plan->segment_log2);
    const uint64_t warps = job->slots_bytes / stride, warps_per_block = THREADS / SW_WARP;
    blocks = (uint32_t)min((uint64_t)blocks, warps / warps_per_block);
    blocks = (uint32_t)min((uint64_t)blocks, (job->items.n_units + warps_per_block - 1) / warps_per_block);
    sw_gpu_with_alignment(job->raw_address, [&](auto align) {
        encode_tiles<CODE, align.value, THREADS><<<blocks, THREADS, shared_bytes<CODE>(THREADS), job->stream>>>(
            job->plan->d_params, job->items, job->d_slots, stride);
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

template <class CODE> cudaError_t init_encoder() {
    const uint32_t most = shape_for<CODE>(UINT32_MAX / 2).threads;
    cudaError_t e = most ? cudaSuccess : cudaErrorNotSupported;
    for (uint32_t threads = MIN_THREADS; e == cudaSuccess && threads <= most; threads *= 2)
        with_threads(threads, [&](auto t) {
            e = allow_shared_all<CODE, t.value, sw_gpu_single>();
            if (e == cudaSuccess)
                e = allow_shared_all<CODE, t.value, sw_gpu_batch>();
        });
    return e;
}

template <class CODE> size_t slots_bytes(uint64_t n_tiles, unsigned segment_log2) {
    const shape s = shape_for<CODE>((uint32_t)n_tiles);
    if (!s.threads)
        return 0;
    const uint64_t warps_per_block = s.threads / SW_WARP;
    const uint64_t blocks = min((n_tiles + warps_per_block - 1) / warps_per_block, (uint64_t)s.blocks);
    return blocks * warps_per_block * slot_bytes(segment_log2);
}

/* For segments of any length. */
template <class CODE> size_t most_slots_bytes(uint64_t raw_bytes) {
    size_t most = 0;
    for (unsigned log2 = SW_FRAME_MIN_SEGMENT_LOG2; log2 <= SW_STREAMS_MAX_SEGMENT_LOG2; log2++) {
        const uint64_t tile_bytes = (uint64_t)SW_TILE_SEGMENTS << log2;
        const size_t bytes = slots_bytes<CODE>((raw_bytes + tile_bytes - 1) / tile_bytes, log2);
        most = bytes > most ? bytes : most;
    }
    return most;
}

template <class CODE, class ITEMS> void encode(const sw_gpu_encode_job<ITEMS> *job) {
    shape s = shape_for<CODE>(job->items.n_units);
    while (s.threads > MIN_THREADS && job->slots_bytes / slot_bytes(job->plan->segment_log2) < s.threads / SW_WARP)
        s.threads /= 2; /* a batch of very short inputs: the slots must suffice for at least one block */
    with_threads(s.threads, [&](auto t) { launch<CODE, t.value>(job, s.blocks); });
}

} // namespace

#endif
