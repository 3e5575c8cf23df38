/* streams_encode.cuh - encodes a chunk in one pass, a warp per tile and a thread per segment, without block-wide steps
 * after set-up. The codec defines the meaning of codes: CODE below.
 *
 * It follows V5T (T. Anema, TU Delft 2025: FSST on a GPU, a thread per run of input, one table for many). A warp
 * encodes its tile in three steps:
 *   1. Each lane encodes its segment. Input passes through a thread's ring of words in shared memory. Codes are
 *      gathered in registers, and written as words to the warp's slot in the pool, in the order [word][lane].
 *   2. The lanes' word counts give the tile's size. One atomic operation reserves its place in the frame.
 *   3. Rows that every lane has are copied unchanged, and tails are gathered (v5t/FORMAT.md).
 *
 * A slot has fewer rows than a tile can need. A lane whose codes do not fit notes where it is, and goes on without
 * writing words, to learn their number. After step 2 it encodes from there again, straight to the frame. Segments that
 * are stored raw are copied from the input. So a warp never waits for a slot: without one, it encodes its tile twice.
 *
 * struct CODE {
 *     struct lookup;                            in shared memory; 16-byte aligned
 *     source_t, source_of(plan)                 what the lookup is built from, in device memory
 *     HAS_DICTIONARY                            the frame may be too long: then it is not written whole
 *     RING_WORDS, RING_COPIES                   of a thread's ring
 *     MOST_THREADS                              of a block: 512, 640 or 1024
 *     SLOT_PIECES                               pieces of a warp's slot: 1 or 2
 *     SPARE_ROWS                                of a slot: run() passes row `stop` by at most so many
 *     build<THREADS>(lookup &, const source_t &)    all threads of the block; the caller synchronizes
 *     CODE(const lookup &, const source_t &)
 *     begin(cursor &, source)                   fills the ring from the cursor's position on
 *     run(cursor &, source, stop, put)
 *         encodes until the segment's end, or until row `stop`; calls put(row, word) for each word, at the segment's
 *         end also for the last one, which is not full
 * }
 * Each codec's encoder includes this file, and has its own copy of everything in it. */
#ifndef SW_STREAMS_ENCODE_CUH
#define SW_STREAMS_ENCODE_CUH

#include "codec/codec_gpu.cuh"
#include "codec/streams/streams.h"

namespace {

/* For a CODE whose lookup is built from a plan's params. */
struct learned_params {
    static constexpr bool HAS_DICTIONARY = false;
    using source_t = sw_params;
    static const sw_params *source_of(const sw_gpu_plan *plan) {
        return plan->d_params;
    }
};

constexpr uint32_t ALL_LANES = 0xFFFFFFFFu;
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

/* A lane's segment, and its column of the ring. IS_WHOLE: it is of full length, so that no unit of it is cut. */
template <int ALIGN, bool IS_WHOLE> struct source {
    const uint8_t *in;
    uint32_t in_bytes;
    uint32_t *ring;
    uint32_t threads;

    /* Loads 16 bytes; bytes behind the segment are zero. */
    __device__ inline uint4 load(uint32_t at) const {
        if (!IS_WHOLE)
            return sw_load_unit<ALIGN>(in, at, in_bytes);
        return at < in_bytes ? sw_load_whole_unit<ALIGN>(in + at) : make_uint4(0, 0, 0, 0);
    }
    /* Hashes the unit at `at`, which must lie before the segment's end. */
    __device__ inline uint32_t hash(uint32_t h, uint4 unit, uint32_t at) const {
        return IS_WHOLE ? sw_hash_unit(h, unit) : sw_hash_partial_unit(h, unit, min(16u, in_bytes - at));
    }
};

/* Adds up to 32 bits of codes; puts a word when one is full. */
template <class PUT> __device__ inline void append(cursor &c, PUT &put, uint32_t bits, uint32_t n_bits) {
    c.acc |= bits << c.acc_bits;
    const uint32_t carry = __funnelshift_l(bits, 0, c.acc_bits);
    c.acc_bits += n_bits;
    if (c.acc_bits >= 32) {
        put(c.row, c.acc);
        c.acc = carry;
        c.acc_bits -= 32;
        c.row++;
    }
}

/* Puts the last codes of a complete segment. */
template <class PUT> __device__ inline void append_rest(cursor &c, PUT &put) {
    if (c.at >= c.end && c.acc_bits) {
        put(c.row++, c.acc);
        c.acc_bits = 0;
    }
}

/* The ring's first COPIES words (0, 2 or 4) are repeated after its end, so that a window never wraps. */
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
        if (COPIES > 2) {
            ring[(WORDS + 2) * threads] = v.z;
            ring[(WORDS + 3) * threads] = v.w;
        }
    }
}

/* Fills a ring of 16 words from the cursor's position on. */
template <class CODE, class SOURCE> __device__ inline void fill_ring(cursor &c, const SOURCE &in) {
    c.loaded = c.at / 8 / 16 * 16;
#pragma unroll
    for (uint32_t u = 0; u < CODE::RING_WORDS / 4; u++) {
        const uint4 v = in.load(c.loaded);
        put_unit<CODE::RING_WORDS, CODE::RING_COPIES>(in.ring, in.threads, c.loaded, v);
        if (c.loaded < in.in_bytes)
            c.hash = in.hash(c.hash, v, c.loaded);
        c.loaded += 16;
    }
}

/* Refills a ring. Two units are loaded ahead, a group of symbols before they are put into the ring. A group takes at
 * most two units. */
template <class CODE, class SOURCE> struct units_ahead {
    uint4 next, after_next;

    __device__ inline units_ahead(const cursor &c, const SOURCE &in)
        : next(in.load(c.loaded)), after_next(in.load(c.loaded + 16)) {}

    /* Puts the segment's next unit into the ring, if there is a unit and room for it. */
    static __device__ inline bool put(cursor &c, const SOURCE &in, uint4 unit) {
        if (c.loaded >= in.in_bytes || c.loaded - c.at / 8 > 4 * CODE::RING_WORDS - 16)
            return false;
        put_unit<CODE::RING_WORDS, CODE::RING_COPIES>(in.ring, in.threads, c.loaded, unit);
        c.hash = in.hash(c.hash, unit, c.loaded);
        c.loaded += 16;
        return true;
    }

    __device__ inline void refill(cursor &c, const SOURCE &in) {
        if (!put(c, in, next))
            return;
        const bool both = put(c, in, after_next);
        next = both ? in.load(c.loaded) : after_next;
        after_next = in.load(c.loaded + 16);
    }
};

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

/* ---- slots ---- */

constexpr uint32_t NO_SLOT = ~0u;

/* Takes a slot: 1 or 2 neighbouring pieces, the first of which is returned; NO_SLOT: none is free. The search begins at
 * the word of the multiprocessor and at the bits of the warp, where few other warps look. All lanes of a warp call it.
 */
template <uint32_t PIECES> __device__ uint32_t take_slot(const sw_gpu_slots &slots, uint32_t lane) {
    constexpr uint32_t MASK = PIECES == 2 ? 3 : 1;
    const uint32_t own = threadIdx.x / SW_WARP * PIECES;
    uint32_t processor;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(processor));
    for (uint32_t from = 0; from < slots.n_words; from += SW_WARP) {
        const uint32_t at = (processor + from + lane) % slots.n_words;
        const auto whole = [](uint32_t bits) { return PIECES == 2 ? bits & bits >> 1 & 0x55555555u : bits; };
        uint32_t bits = from + lane < slots.n_words ? __ldcg(&slots.d_free[at]) : 0, found = NO_SLOT;
        for (uint32_t rest = __ballot_sync(ALL_LANES, whole(bits)); rest; rest &= rest - 1) {
            const uint32_t who = __ffs(rest) - 1;
            while (lane == who && whole(bits) && found == NO_SLOT) {
                const uint32_t turned = __funnelshift_r(whole(bits), whole(bits), own);
                const uint32_t bit = (__ffs(turned) - 1 + own) % 32, mask = MASK << bit;
                const uint32_t before = atomicAnd(&slots.d_free[at], ~mask);
                if ((before & mask) == mask)
                    found = at * 32 + bit;
                else if (before & mask)
                    atomicOr(&slots.d_free[at], before & mask);
                bits = before & ~mask;
            }
            found = __shfl_sync(ALL_LANES, found, who);
            if (found != NO_SLOT) {
                __threadfence(); /* its last user is done with it */
                return found;
            }
        }
    }
    return NO_SLOT;
}

template <uint32_t PIECES> __device__ void give_slot_back(const sw_gpu_slots &slots, uint32_t slot, uint32_t lane) {
    __syncwarp();
    if (lane == 0 && slot != NO_SLOT) {
        __threadfence();
        atomicOr(&slots.d_free[slot / 32], (PIECES == 2 ? 3u : 1u) << slot % 32);
    }
}

/* A tile's place in the frame: rows of a word of each lane, and from row `shortest` on a tail for each lane. */
struct tile_place {
    uint32_t *out;
    uint32_t lanes, lane, shortest, tail_at;

    __device__ inline void operator()(uint32_t row, uint32_t word) const {
        out[row < shortest ? row * lanes + lane : tail_at + row - shortest] = word;
    }
};

/* A lane's column of a slot. */
struct slot_place {
    uint32_t *rows;
    uint32_t lane;
    bool writes; /* else the words are only counted */

    __device__ inline void operator()(uint32_t row, uint32_t word) const {
        if (writes)
            rows[row * SW_WARP + lane] = word;
    }
};

/* Moves the words of a slot to their place; `have`: how many of them the lane has written. If a multiprocessor has few
 * warps, loads are batched, so that their latencies overlap. With many warps, batching costs more instructions than it
 * saves time. */
template <uint32_t THREADS> __device__ void place_words(const uint32_t *rows, const tile_place &place, uint32_t have) {
    constexpr uint32_t BATCH = THREADS < 1024 ? 4 : 1;
    const uint32_t lane = place.lane, lanes = place.lanes, shortest = place.shortest;
    uint32_t from = 0;
    if (lanes == SW_WARP) { /* rows that all lanes have are moved as they are */
        from = sw_warp_min(min(have, shortest));
        copy_batched<BATCH>((const uint4 *)rows + lane, SW_WARP, (uint4 *)place.out + lane, SW_WARP,
                            (from * (SW_WARP / 4) + SW_WARP - 1 - lane) / SW_WARP);
    }
    if (from < min(have, shortest))
        copy_batched<BATCH>(rows + from * SW_WARP + lane, SW_WARP, place.out + from * lanes + lane, lanes,
                            min(have, shortest) - from);
    if (shortest < have)
        copy_batched<2 * BATCH>(rows + shortest * SW_WARP + lane, SW_WARP, place.out + place.tail_at, 1,
                                have - shortest);
}

template <class SOURCE> __device__ void place_raw_segment(const tile_place &place, const SOURCE &in) {
    for (uint32_t at = 0; at < in.in_bytes; at += 16) {
        const uint4 v = in.load(at);
        const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
        for (uint32_t i = 0; i < 4; i++)
            if (at + 4 * i < in.in_bytes)
                place(at / 4 + i, w[i]);
    }
}

/* What a lane's coding has come to: its words and hash, and where it has to encode again, straight to the frame. */
struct coded {
    uint32_t words, hash;
    bool is_raw, is_again;
    cursor again;
    uint32_t in_slot; /* words in the slot */
};

/* Encodes a lane's segment to its column of the slot, of most_rows rows; 0: the words are only counted. */
template <class CODE, class SOURCE>
__device__ inline coded encode_segment(const CODE &code, const SOURCE &in, cursor c, uint32_t *rows, uint32_t lane,
                                       uint32_t most_rows) {
    const uint32_t n_raw_words = (in.in_bytes + 3) / 4;
    code.begin(c, in);
    cursor again = c; /* where the lane begins if it has to encode again */
    bool writes = most_rows > 0, is_again = !writes;
    for (;;) {
        code.run(c, in, writes ? min(most_rows, n_raw_words) : n_raw_words, slot_place{rows, lane, writes});
        const bool is_cut = c.at < c.end && c.row < n_raw_words;
        if (!__any_sync(ALL_LANES, is_cut))
            break;
        writes = false;
        is_again = is_cut;
        again = c;
    }
    for (; c.loaded < in.in_bytes; c.loaded += 16) /* only if coding was given up early: the hash needs the rest */
        c.hash = in.hash(c.hash, in.load(c.loaded), c.loaded);
    coded ret;
    ret.is_raw = c.at < c.end || c.row >= n_raw_words;
    ret.is_again = is_again && !ret.is_raw;
    ret.words = ret.is_raw ? n_raw_words : c.row;
    ret.hash = in.in_bytes ? sw_hash_finish(c.hash) : 0;
    ret.again = again;
    ret.in_slot = is_again ? again.row : ret.words;
    return ret;
}

/* Puts a tile's words, and the padding to 16 bytes, into the frame. All lanes of a warp call it. */
template <class CODE, uint32_t THREADS, class SOURCE>
__device__ inline void put_tile(const CODE &code, const SOURCE &in, const coded &c, const tile_place &to,
                                uint32_t total, const uint32_t *rows, uint32_t most_rows) {
    if (to.lane < (0u - total) % 4)
        to.out[total + to.lane] = 0;
    /* A raw segment takes part in the moves of whole rows with any words. They are replaced after that. */
    const uint32_t any = __all_sync(ALL_LANES, c.is_raw) || !in.in_bytes ? 0 : min(to.shortest, most_rows);
    if (most_rows)
        place_words<THREADS>(rows, to, c.is_raw ? any : c.in_slot);
    __syncwarp();
    if (c.is_raw)
        place_raw_segment(to, in);
    if (c.is_again) {
        cursor again = c.again;
        code.begin(again, in);
        code.run(again, in, (in.in_bytes + 3) / 4, to);
    }
}

/* Encodes a tile to its place in the frame. All lanes of a warp call it. */
template <class CODE, uint32_t THREADS, class SOURCE, class ITEMS>
__device__ inline void encode_tile(const CODE &code, const SOURCE &in, const ITEMS &items, const sw_gpu_place &place,
                                   uint32_t *rows, uint32_t most_rows, uint32_t lane) {
    const sw_frame_layout &layout = place.item.layout;
    const uint32_t tile = place.unit;
    uint8_t *frame = (uint8_t *)place.item.d_frame;
    const cursor start = {0, 8 * in.in_bytes, 0, 0, 0, 0, sw_hash_segment_seed(tile, lane)};
    const coded c = encode_segment(code, in, start, rows, lane, most_rows);
    __syncwarp();
    const uint32_t total = sw_warp_sum(c.words), lanes = __popc(__ballot_sync(ALL_LANES, in.in_bytes > 0));
    const uint32_t tile_hash = sw_warp_sum(c.hash);
    sw_gpu_room room = {};
    if (lane == 0)
        room = sw_gpu_take_room(items.progress(place.index), layout, (total + 3) / 4);
    const uint64_t unit = __shfl_sync(ALL_LANES, (unsigned long long)room.unit, 0);
    if (lane == 0)
        ((sw_tile_record *)(frame + layout.records_offset))[tile] = {(uint32_t)unit, tile_hash};
    frame[layout.counts_offset + tile * SW_TILE_SEGMENTS + lane] = (uint8_t)(c.is_raw ? 0 : c.words);
    bool has_room = true;
    if (CODE::HAS_DICTIONARY) { /* a frame buffer may have no room for more than a raw frame */
        sw_gpu_put_dictionary(items, place, lane);
        has_room =
            layout.data_offset + (unit + (total + 3) / 4) * SW_FRAME_ALIGN <= sw_gpu_raw_frame_bytes(layout.raw_bytes);
    }
    if (has_room) {
        const uint32_t shortest = sw_warp_min(lane < lanes ? c.words : ALL_LANES);
        const tile_place to = {(uint32_t *)(frame + layout.data_offset + unit * SW_FRAME_ALIGN), lanes, lane, shortest,
                               shortest * lanes + sw_warp_exclusive_sum(lane < lanes ? c.words - shortest : 0, lane)};
        put_tile<CODE, THREADS>(code, in, c, to, total, rows, most_rows);
    }
    const uint64_t all_units = __shfl_sync(ALL_LANES, (unsigned long long)room.all_units, 0);
    if (all_units != SW_GPU_NOT_LAST)
        sw_gpu_finish_frame(items, place.index, all_units, lane);
    __syncwarp(); /* the slot is free for the next tile */
}

template <class CODE, int ALIGN, uint32_t THREADS, class ITEMS>
__global__ void __launch_bounds__(THREADS, 1)
    encode_tiles(const typename CODE::source_t *__restrict__ table, const __grid_constant__ ITEMS items,
                 const __grid_constant__ sw_gpu_slots slots) {
    extern __shared__ __align__(16) uint8_t shared[];
    typename CODE::lookup &tables = *(typename CODE::lookup *)shared;
    CODE::template build<THREADS>(tables, *table);
    __syncthreads();
    const CODE code(tables, *table);
    const uint32_t lane = threadIdx.x % SW_WARP;
    if (sw_gpu_is_refused(items.pass, lane))
        return;
    uint32_t slot = NO_SLOT;
    for (;;) {
        uint32_t next = lane == 0 ? atomicAdd(&items.progress(0)->next_tile, 1) : 0;
        next = __shfl_sync(ALL_LANES, next, 0);
        if (next >= items.n_units) { /* each warp comes here once */
            if (lane == 0 && next == items.n_units + gridDim.x * (THREADS / SW_WARP) - 1)
                items.progress(0)->next_tile = 0; /* for the next encode */
            break;
        }
        if (slot == NO_SLOT)
            slot = take_slot<CODE::SLOT_PIECES>(slots, lane);
        const uint32_t most_rows = slot == NO_SLOT ? 0 : CODE::SLOT_PIECES * slots.piece_rows - CODE::SPARE_ROWS;
        const sw_gpu_place place = items.find(next, lane);
        const sw_frame_layout &layout = place.item.layout;
        const uint32_t segment_bytes = 1u << layout.segment_log2;
        const uint64_t at = ((uint64_t)place.unit * SW_TILE_SEGMENTS + lane) << layout.segment_log2;
        const uint8_t *in = (const uint8_t *)place.item.d_raw + at;
        const uint32_t in_bytes =
            at >= layout.raw_bytes ? 0 : (uint32_t)min((uint64_t)segment_bytes, layout.raw_bytes - at);
        uint32_t *ring = (uint32_t *)(shared + sizeof tables) + threadIdx.x;
        if (__all_sync(ALL_LANES, in_bytes == segment_bytes))
            encode_tile<CODE, THREADS>(code, source<ALIGN, true>{in, in_bytes, ring, THREADS}, items, place,
                                       slots.rows(slot), most_rows, lane);
        else
            encode_tile<CODE, THREADS>(code, source<ALIGN, false>{in, in_bytes, ring, THREADS}, items, place,
                                       slots.rows(slot), most_rows, lane);
    }
    give_slot_back<CODE::SLOT_PIECES>(slots, slot, lane);
}

/* Returns the next smaller size of a block: the sizes are MOST_THREADS, and powers of two that are no more than half.
 */
constexpr uint32_t smaller_block(uint32_t threads) {
    return threads == 640 ? 256 : threads / 2;
}

/* Returns the threads of the largest block whose shared memory is at most `limit`; 0: even the smallest one has more.
 */
template <class CODE> uint32_t most_threads(size_t limit) {
    uint32_t threads = CODE::MOST_THREADS;
    while (threads >= MIN_THREADS && shared_bytes<CODE>(threads) > limit)
        threads = smaller_block(threads);
    return threads >= MIN_THREADS ? threads : 0;
}

/* Returns the shared memory of that block; 0: there is none. */
template <class CODE> size_t encoder_bytes(size_t limit) {
    const uint32_t threads = most_threads<CODE>(limit);
    return threads ? shared_bytes<CODE>(threads) : 0;
}

/* The launch's shape for the current device; threads 0: the device is too small.
 *
 * The lookup tables take most of a block's shared memory, so blocks are as large as this allows. If the input is too
 * short to give every multiprocessor a block, blocks are smaller, so that no multiprocessor is idle. They are not as
 * small as would be best for an input that has the device to itself: several chunks are mostly encoded at a time, and
 * only few small blocks fit beside each other. */
struct shape {
    uint32_t threads, blocks;
};

template <class CODE> shape shape_for(uint32_t n_tiles) {
    const uint32_t processors = sw_gpu_processors(), tiles_each = (n_tiles + processors - 1) / processors;
    uint32_t threads = most_threads<CODE>(sw_gpu_shared_bytes());
    while (threads > MIN_THREADS && threads / SW_WARP >= 4 * tiles_each)
        threads = smaller_block(threads);
    return {threads, processors};
}

template <class CODE, int ALIGN, uint32_t THREADS, class ITEMS> cudaError_t allow_shared() {
    return sw_gpu_allow_shared((const void *)encode_tiles<CODE, ALIGN, THREADS, ITEMS>, shared_bytes<CODE>(THREADS));
}

template <class CODE, uint32_t THREADS, class ITEMS> cudaError_t allow_shared_all() {
    cudaError_t e = allow_shared<CODE, 16, THREADS, ITEMS>();
    if (e == cudaSuccess)
        e = allow_shared<CODE, 4, THREADS, ITEMS>();
    return e == cudaSuccess ? allow_shared<CODE, 1, THREADS, ITEMS>() : e;
}

template <class CODE, uint32_t THREADS, class ITEMS> void launch(const sw_gpu_encode_job<ITEMS> *job, uint32_t blocks) {
    constexpr uint32_t WARPS = THREADS / SW_WARP;
    blocks = min(blocks, (job->items.n_units + WARPS - 1) / WARPS);
    sw_gpu_with_alignment(job->raw_address, [&](auto align) {
        encode_tiles<CODE, align.value, THREADS><<<blocks, THREADS, shared_bytes<CODE>(THREADS), job->stream>>>(
            CODE::source_of(job->plan), job->items, job->slots);
    });
}

/* Calls `use` with a compile-time number of threads. */
template <class CODE, class F> void with_threads(uint32_t threads, F use) {
    if (threads == CODE::MOST_THREADS)
        return use(std::integral_constant<uint32_t, CODE::MOST_THREADS>());
    if constexpr (CODE::MOST_THREADS == 1024)
        if (threads == smaller_block(1024))
            return use(std::integral_constant<uint32_t, smaller_block(1024)>());
    if (threads == 256)
        return use(std::integral_constant<uint32_t, 256>());
    use(std::integral_constant<uint32_t, MIN_THREADS>());
}

/* A no-op if no block fits. */
template <class CODE> cudaError_t init_encoder() {
    const uint32_t most = most_threads<CODE>(sw_gpu_shared_bytes());
    cudaError_t e = cudaSuccess;
    for (uint32_t threads = most; e == cudaSuccess && threads >= MIN_THREADS; threads = smaller_block(threads))
        with_threads<CODE>(threads, [&](auto t) {
            e = allow_shared_all<CODE, t.value, sw_gpu_single>();
            if (e == cudaSuccess)
                e = allow_shared_all<CODE, t.value, sw_gpu_batch>();
        });
    return e;
}

/* Returns how many pieces the warps have that are on the device at a time, of encodes on any number of streams: the
 * tables leave room for one block of full size, or for smaller blocks with no more warps. */
template <class CODE> uint32_t most_pieces() {
    const shape s = shape_for<CODE>(UINT32_MAX / 2);
    return s.blocks * (s.threads / SW_WARP) * CODE::SLOT_PIECES;
}

template <class CODE, class ITEMS> void encode(const sw_gpu_encode_job<ITEMS> *job) {
    const shape s = shape_for<CODE>(job->items.n_units);
    with_threads<CODE>(s.threads, [&](auto t) { launch<CODE, t.value>(job, s.blocks); });
}

} // namespace

#endif
