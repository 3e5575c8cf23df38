/* onpair_learn.cu - learns a dictionary's symbols on the GPU, without the host: the same ones as learn.c.
 *
 * A round:
 *   - count: the pieces of the sample are coded by the symbols so far, each by one thread; symbols and pairs of
 *     neighbors are counted by atomic operations;
 *   - gather: pairs and symbols become candidates; a hash map adds up the counts of equal texts;
 *   - rank: a histogram of the candidates' gains;
 *   - find_gain: the least gain that is kept;
 *   - collect: candidates above it are the next symbols;
 *   - settle: of those with just this gain, the ones of the highest rank; the index for the next round.
 * Candidates are counted on the device, and the host knows no number of them. So no sort of CUB, which wants one from
 * the host, is used: it would sort the whole map. */
#include "codec/onpair/learn_core.h"
#include "codec/onpair/onpair_gpu.cuh"

namespace {

constexpr uint32_t NUMBERS = SW_ONPAIR_MOST_NUMBERS, PIECE_BYTES = 512;
constexpr uint32_t SLOTS_LOG2 = 13, SLOTS = 1u << SLOTS_LOG2, FREE = ~0u, NUMBER_BITS = 13;
constexpr uint32_t BEGINNINGS_LOG2 = 13, BEGINNINGS = 1u << BEGINNINGS_LOG2;
constexpr uint32_t PAIRS_LOG2 = 20, PAIRS = 1u << PAIRS_LOG2, TEXTS_LOG2 = 18, TEXTS = 1u << TEXTS_LOG2;
constexpr uint32_t MAX_PROBES = 256, NO_NUMBER = 0xFFFF;
constexpr uint32_t COUNT_THREADS = 256, PIECES = 16; /* of a block; two lanes of a warp, because their steps differ */
constexpr uint32_t BLOCKS = 264, THREADS = 256, ONE_BLOCK = 1024;
constexpr uint32_t GAINS = SW_ONPAIR_MOST_GAIN + 1, DIGIT_BITS = 12, DIGITS = 1u << DIGIT_BITS;
static_assert(NUMBERS < (1u << NUMBER_BITS) - 1, "a number fits, and FREE is none");
static_assert(GAINS % ONE_BLOCK == 0 && DIGITS % ONE_BLOCK == 0, "each thread has as many bins");
static_assert(48 % DIGIT_BITS == 0, "a rank's hash is cut into digits");

/* What coding needs to know of the symbols. */
struct index {
    uint64_t text[NUMBERS + 1][2]; /* to 16 bytes */
    uint32_t slot[SLOTS];          /* symbols of two and more bytes: the number, and bits of the text's hash above it */
    uint32_t lengths[BEGINNINGS];  /* of symbols that begin with two bytes of this hash: bit `bytes` - 1 */
    uint16_t one[256];             /* the number of a byte */
    uint8_t bytes[NUMBERS + 1];    /* to 16 bytes */
};
static_assert(sizeof(index) % 16 == 0, "copied in units");

struct near {
    index ix;
    uint32_t piece[PIECES * PIECE_BYTES / 4 + 8];
};

/* Zeroed at the beginning, and the maps before each round. */
struct state {
    index ix;
    uint32_t n, n_kept, n_listed, n_level, gain, left;
    uint32_t is_there[256];
    uint32_t count[NUMBERS + 1];
    uint32_t histogram[GAINS];
    struct sw_onpair_symbol kept[SW_ONPAIR_MAX_SYMBOLS + 1];
    uint32_t list[TEXTS], level[TEXTS]; /* candidates in use; those of the least gain, by their place in the list */
    unsigned long long rank[TEXTS];
    struct sw_onpair_symbol candidate[TEXTS]; /* their counts are apart */
    struct {
        uint32_t numbers[PAIRS], count[PAIRS]; /* numbers: 1 more; 0: free */
    } pairs;
    struct {
        unsigned long long print[TEXTS]; /* 0: free */
        uint32_t count[TEXTS];
    } texts;
};

__device__ inline uint32_t hash_beginning(uint32_t two_bytes) {
    return two_bytes * 0x9E3779B1u >> (32 - BEGINNINGS_LOG2);
}

/* A slot's content; `print` without its highest bits, which choose the slot. */
__device__ inline uint32_t slot_of(uint64_t print, uint32_t number) {
    return (uint32_t)print << NUMBER_BITS | number;
}

/* ---- the index ---- */

__device__ void add_symbol(index &ix, uint32_t number, const sw_onpair_symbol &symbol) {
    const uint64_t print = sw_onpair_print(&symbol);
    ix.text[number][0] = symbol.text[0];
    ix.text[number][1] = symbol.text[1];
    ix.bytes[number] = (uint8_t)symbol.bytes;
    if (symbol.bytes == 1) {
        ix.one[symbol.text[0]] = (uint16_t)number;
        return;
    }
    atomicOr(&ix.lengths[hash_beginning((uint32_t)symbol.text[0] & 0xFFFF)], 1u << (symbol.bytes - 1));
    uint32_t i = (uint32_t)(print >> (64 - SLOTS_LOG2));
    while (atomicCAS(&ix.slot[i], FREE, slot_of(print, number)) != FREE)
        i = (i + 1) % SLOTS;
}

/* Makes the symbols that were kept findable, adds the bytes that are no symbols, and forgets the counts. One block. */
__device__ void make_index(state *s) {
    index &ix = s->ix;
    const uint32_t n_kept = min(s->n_kept, (uint32_t)SW_ONPAIR_MAX_SYMBOLS);
    for (uint32_t i = threadIdx.x; i < SLOTS; i += ONE_BLOCK)
        ix.slot[i] = FREE;
    for (uint32_t i = threadIdx.x; i < BEGINNINGS; i += ONE_BLOCK)
        ix.lengths[i] = 0;
    for (uint32_t i = threadIdx.x; i < NUMBERS; i += ONE_BLOCK)
        s->count[i] = 0;
    if (threadIdx.x < 256)
        ix.one[threadIdx.x] = NO_NUMBER;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n_kept; i += ONE_BLOCK)
        add_symbol(ix, i, s->kept[i]);
    __syncthreads();
    if (threadIdx.x)
        return;
    uint32_t n = n_kept;
    for (uint32_t c = 0; c < 256; c++)
        if (s->is_there[c] && ix.one[c] == NO_NUMBER)
            add_symbol(ix, n++, sw_onpair_cut(c, 0, 1));
    s->n = n;
    s->n_listed = s->n_level = s->n_kept = 0;
}

__global__ void __launch_bounds__(THREADS) note_bytes(state *s, const uint8_t *sample, uint32_t sample_bytes) {
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < sample_bytes; i += BLOCKS * THREADS)
        s->is_there[sample[i]] = 1;
}

__global__ void __launch_bounds__(ONE_BLOCK) begin(state *s) {
    make_index(s);
}

/* ---- count ---- */

/* Returns the number of a text, or NO_NUMBER. */
__device__ inline uint32_t find_text(const index &ix, const sw_onpair_symbol &text) {
    const uint64_t print = sw_onpair_print(&text);
    const uint32_t tag = slot_of(print, 0) >> NUMBER_BITS;
    for (uint32_t i = (uint32_t)(print >> (64 - SLOTS_LOG2));; i = (i + 1) % SLOTS) {
        const uint32_t slot = ix.slot[i], number = slot % (1u << NUMBER_BITS);
        if (slot == FREE)
            return NO_NUMBER;
        if (slot >> NUMBER_BITS == tag && ix.bytes[number] == text.bytes && ix.text[number][0] == text.text[0] &&
            ix.text[number][1] == text.text[1])
            return number;
    }
}

/* Returns the number of the longest symbol at a place of the pieces; `left` bytes of its piece are left. */
__device__ inline uint32_t find_longest(const index &ix, const uint32_t *piece, uint32_t at, uint32_t left) {
    const uint32_t *word = piece + at / 4, shift = at % 4 * 8;
    uint32_t v[4];
    for (uint32_t i = 0; i < 4; i++)
        v[i] = __funnelshift_r(word[i], word[i + 1], shift);
    uint32_t lengths = left < 2 ? 0 : ix.lengths[hash_beginning(v[0] & 0xFFFF)];
    if (left < SW_ONPAIR_MAX_BYTES)
        lengths &= (1u << left) - 1;
    while (lengths) {
        const uint32_t bytes = 32 - __clz((int)lengths);
        const uint32_t number =
            find_text(ix, sw_onpair_cut((uint64_t)v[1] << 32 | v[0], (uint64_t)v[3] << 32 | v[2], bytes));
        if (number != NO_NUMBER)
            return number;
        lengths &= ~(1u << (bytes - 1));
    }
    return ix.one[v[0] & 0xFF];
}

__device__ void count_pair(state *s, uint32_t numbers) {
    uint32_t i = numbers * 0x9E3779B1u >> (32 - PAIRS_LOG2);
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++, i = (i + 1) % PAIRS) {
        uint32_t there = *(volatile uint32_t *)&s->pairs.numbers[i];
        if (!there)
            there = atomicCAS(&s->pairs.numbers[i], 0u, numbers + 1);
        if (there && there != numbers + 1)
            continue;
        atomicAdd(&s->pairs.count[i], 1u);
        return;
    }
}

__device__ void count_piece(state *s, const index &ix, const uint32_t *piece, uint32_t at, uint32_t end,
                            bool with_pairs) {
    for (uint32_t before = NO_NUMBER; at < end;) {
        const uint32_t number = find_longest(ix, piece, at, end - at);
        atomicAdd(&s->count[number], 1u);
        if (with_pairs && before != NO_NUMBER)
            count_pair(s, before << NUMBER_BITS | number);
        before = number;
        at += ix.bytes[number];
    }
}

/* Codes the sample, and counts its symbols, and pairs if asked. The index is copied to shared memory if that has room.
 */
template <bool IS_NEAR>
__global__ void __launch_bounds__(COUNT_THREADS)
    count_sample(state *s, const uint8_t *sample, uint32_t sample_bytes, bool with_pairs) {
    extern __shared__ __align__(16) uint8_t shared[];
    near &my = *(near *)shared;
    uint32_t *piece = IS_NEAR ? my.piece : (uint32_t *)shared;
    const uint32_t first = blockIdx.x * PIECES * PIECE_BYTES, bytes = min(sample_bytes - first, PIECES * PIECE_BYTES);
    for (uint32_t i = threadIdx.x; IS_NEAR && i < sizeof(index) / 16; i += COUNT_THREADS)
        ((uint4 *)&my.ix)[i] = ((const uint4 *)&s->ix)[i];
    for (uint32_t i = threadIdx.x; i < sizeof my.piece; i += COUNT_THREADS)
        ((uint8_t *)piece)[i] = i < bytes ? sample[first + i] : 0;
    __syncthreads();
    const uint32_t at = threadIdx.x / (COUNT_THREADS / PIECES) * PIECE_BYTES;
    if (threadIdx.x % (COUNT_THREADS / PIECES) == 0 && at < bytes)
        count_piece(s, IS_NEAR ? my.ix : s->ix, piece, at, min(bytes, at + PIECE_BYTES), with_pairs);
}

/* ---- candidates ---- */

__device__ void add_candidate(state *s, const sw_onpair_symbol &symbol, uint32_t count) {
    const unsigned long long print = sw_onpair_print(&symbol) | 1;
    uint32_t i = (uint32_t)(print >> (64 - TEXTS_LOG2));
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++, i = (i + 1) % TEXTS) {
        const unsigned long long there = atomicCAS(&s->texts.print[i], 0ull, print);
        if (there && there != print)
            continue;
        if (!there) {
            s->candidate[i] = symbol;
            s->list[atomicAdd(&s->n_listed, 1u)] = i;
        }
        atomicAdd(&s->texts.count[i], count);
        return;
    }
}

__device__ inline sw_onpair_symbol symbol_of(const index &ix, uint32_t number) {
    return {{ix.text[number][0], ix.text[number][1]}, ix.bytes[number], 0};
}

__global__ void __launch_bounds__(THREADS) gather(state *s) {
    const uint32_t thread = blockIdx.x * THREADS + threadIdx.x;
    if (thread < s->n && s->count[thread] >= SW_ONPAIR_LEAST_COUNT)
        add_candidate(s, symbol_of(s->ix, thread), s->count[thread]);
    for (uint32_t i = thread; i < PAIRS; i += BLOCKS * THREADS) {
        const uint32_t count = s->pairs.count[i], numbers = s->pairs.numbers[i] - 1;
        if (count < SW_ONPAIR_LEAST_COUNT)
            continue;
        const sw_onpair_symbol first = symbol_of(s->ix, numbers >> NUMBER_BITS),
                               second = symbol_of(s->ix, numbers % (1u << NUMBER_BITS));
        if (first.bytes < SW_ONPAIR_MAX_BYTES)
            add_candidate(s, sw_onpair_join(&first, &second), count);
    }
}
static_assert(BLOCKS * THREADS >= NUMBERS, "a thread for each symbol");

/* In the last passes the symbols themselves are the candidates. */
__global__ void __launch_bounds__(THREADS) list_symbols(state *s) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i == 0)
        s->n_listed = s->n;
    if (i >= s->n)
        return;
    s->candidate[i] = symbol_of(s->ix, i);
    s->texts.count[i] = s->count[i];
    s->list[i] = i;
}

/* ---- the best ones ---- */

__device__ inline sw_onpair_symbol listed(const state *s, uint32_t i) {
    sw_onpair_symbol symbol = s->candidate[s->list[i]];
    symbol.count = s->texts.count[s->list[i]];
    return symbol;
}

__device__ void keep(state *s, uint32_t i) {
    const uint32_t at = atomicAdd(&s->n_kept, 1u);
    if (at < SW_ONPAIR_MAX_SYMBOLS)
        s->kept[at] = listed(s, i);
}

__global__ void __launch_bounds__(THREADS) rank(state *s, bool keeps_bytes) {
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < s->n_listed; i += BLOCKS * THREADS) {
        const sw_onpair_symbol symbol = listed(s, i);
        s->rank[i] = sw_onpair_rank(&symbol, keeps_bytes);
        if (s->rank[i])
            atomicAdd(&s->histogram[s->rank[i] >> 48], 1u);
    }
}

struct scan {
    uint32_t sums[ONE_BLOCK / SW_WARP], level, above;
};

/* Returns the highest bin that `wanted` are reached with, counted from above; 0 if there are fewer. ret_above: how many
 * are above it. One block; each thread has `each` bins. */
__device__ uint32_t find_level(scan &shared, const uint32_t *bins, uint32_t each, uint32_t wanted,
                               uint32_t *ret_above) {
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP,
                   first = (ONE_BLOCK - 1 - threadIdx.x) * each;
    uint32_t sum = 0;
    for (uint32_t i = 0; i < each; i++)
        sum += bins[first + i];
    uint32_t before = sw_warp_exclusive_sum(sum, lane);
    if (lane == SW_WARP - 1)
        shared.sums[warp] = before + sum;
    if (threadIdx.x == 0)
        shared.level = shared.above = 0;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++)
        before += shared.sums[w];
    if (before < wanted && wanted <= before + sum) {
        uint32_t bin = first + each - 1;
        for (; before + bins[bin] < wanted; bin--)
            before += bins[bin];
        shared.level = bin;
        shared.above = before;
    }
    __syncthreads();
    *ret_above = shared.above;
    const uint32_t level = shared.level;
    __syncthreads();
    return level;
}

/* Finds the least gain that is kept, and how many of this gain; empties the histogram. */
__global__ void __launch_bounds__(ONE_BLOCK) find_gain(state *s, uint32_t most) {
    __shared__ scan shared;
    uint32_t above;
    const uint32_t gain = find_level(shared, s->histogram, GAINS / ONE_BLOCK, most, &above);
    for (uint32_t i = threadIdx.x; i < GAINS; i += ONE_BLOCK)
        s->histogram[i] = 0;
    if (threadIdx.x == 0) {
        s->gain = gain;
        s->left = most - above;
    }
}

__global__ void __launch_bounds__(THREADS) collect(state *s) {
    for (uint32_t i = blockIdx.x * THREADS + threadIdx.x; i < s->n_listed; i += BLOCKS * THREADS) {
        const uint32_t gain = (uint32_t)(s->rank[i] >> 48);
        if (gain > s->gain)
            keep(s, i);
        else if (gain == s->gain && gain)
            s->level[atomicAdd(&s->n_level, 1u)] = i;
    }
}

/* Keeps those of the least gain that have the highest ranks: finds the least one's hash, a digit at a time. */
__global__ void __launch_bounds__(ONE_BLOCK) settle(state *s) {
    __shared__ scan shared;
    __shared__ uint32_t bins[DIGITS];
    constexpr uint64_t HASH = (1ull << 48) - 1;
    uint64_t least = 0;
    uint32_t wanted = s->left, above;
    for (uint32_t shift = 48 - DIGIT_BITS; s->n_level > s->left; shift -= DIGIT_BITS) {
        for (uint32_t i = threadIdx.x; i < DIGITS; i += ONE_BLOCK)
            bins[i] = 0;
        __syncthreads();
        for (uint32_t i = threadIdx.x; i < s->n_level; i += ONE_BLOCK) {
            const uint64_t hash = s->rank[s->level[i]] & HASH;
            if (hash >> shift >> DIGIT_BITS == least)
                atomicAdd(&bins[(uint32_t)(hash >> shift) % DIGITS], 1u);
        }
        __syncthreads();
        least = least << DIGIT_BITS | find_level(shared, bins, DIGITS / ONE_BLOCK, wanted, &above);
        wanted -= above;
        if (!shift)
            break;
    }
    for (uint32_t i = threadIdx.x; i < s->n_level; i += ONE_BLOCK)
        if ((s->rank[s->level[i]] & HASH) >= least)
            keep(s, s->level[i]);
    __syncthreads();
    make_index(s);
}

__global__ void __launch_bounds__(THREADS) write(const state *s, struct sw_onpair_learned *ret) {
    const uint32_t i = blockIdx.x * THREADS + threadIdx.x;
    if (i == 0)
        ret->n = s->n;
    if (i >= s->n)
        return;
    ret->symbol[i] = symbol_of(s->ix, i);
    ret->symbol[i].count = s->count[i];
}

} // namespace

/* ---- launches ---- */

static size_t count_bytes(bool is_near) {
    return is_near ? sizeof(near) : sizeof(near::piece);
}

static bool is_near() {
    return count_bytes(true) <= sw_gpu_shared_bytes();
}

cudaError_t sw_onpair_gpu_init_learning() {
    return is_near() ? sw_gpu_allow_shared((const void *)count_sample<true>, count_bytes(true)) : cudaSuccess;
}

static void count(state *s, const uint8_t *sample, uint32_t bytes, bool with_pairs, struct CUstream_st *stream) {
    const uint32_t blocks = (bytes - 1) / (PIECES * PIECE_BYTES) + 1;
    if (is_near())
        count_sample<true><<<blocks, COUNT_THREADS, count_bytes(true), stream>>>(s, sample, bytes, with_pairs);
    else
        count_sample<false><<<blocks, COUNT_THREADS, count_bytes(false), stream>>>(s, sample, bytes, with_pairs);
}

static void keep_best(state *s, uint32_t most, bool keeps_bytes, struct CUstream_st *stream) {
    rank<<<BLOCKS, THREADS, 0, stream>>>(s, keeps_bytes);
    find_gain<<<1, ONE_BLOCK, 0, stream>>>(s, most);
    collect<<<BLOCKS, THREADS, 0, stream>>>(s);
    settle<<<1, ONE_BLOCK, 0, stream>>>(s);
}

size_t sw_gpu_learn_scratch_bytes(void) {
    return sizeof(state);
}

int sw_gpu_learn_async(const void *d_sample, size_t sample_bytes, uint32_t most_symbols,
                       struct sw_onpair_learned *d_learned, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err) {
    if (scratch_bytes < sizeof(state) || !sample_bytes || sample_bytes > SW_ONPAIR_MOST_SAMPLE || !most_symbols ||
        most_symbols > SW_ONPAIR_MAX_SYMBOLS || (uintptr_t)d_scratch % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "learning from %zu bytes with %zu bytes of scratch",
                          sample_bytes, scratch_bytes);
    state *s = (state *)d_scratch;
    const uint8_t *sample = (const uint8_t *)d_sample;
    const uint32_t bytes = (uint32_t)sample_bytes;
    int rc = sw_gpu_check(cudaMemsetAsync(s, 0, offsetof(state, list), stream), err, "cudaMemsetAsync");
    note_bytes<<<BLOCKS, THREADS, 0, stream>>>(s, sample, bytes);
    begin<<<1, ONE_BLOCK, 0, stream>>>(s);
    for (uint32_t round = 0; rc == 0 && round < SW_ONPAIR_ROUNDS; round++) {
        rc = sw_gpu_check(cudaMemsetAsync(&s->pairs, 0, sizeof s->pairs + sizeof s->texts, stream), err,
                          "cudaMemsetAsync");
        count(s, sample, bytes, true, stream);
        gather<<<BLOCKS, THREADS, 0, stream>>>(s);
        keep_best(s, most_symbols, false, stream);
    }
    /* Then all bytes of the sample have a symbol, and symbols that are not used make room. */
    for (uint32_t pass = 0; pass < SW_ONPAIR_LAST_PASSES; pass++) {
        count(s, sample, bytes, false, stream);
        list_symbols<<<NUMBERS / THREADS + 1, THREADS, 0, stream>>>(s);
        keep_best(s, most_symbols, true, stream);
    }
    count(s, sample, bytes, false, stream);
    write<<<NUMBERS / THREADS + 1, THREADS, 0, stream>>>(s, d_learned);
    return rc < 0 ? rc : sw_gpu_launched(err, "learning a dictionary");
}
