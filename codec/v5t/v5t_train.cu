/* v5t_train.cu - trains a symbol table on the GPU, without the host, by a parallel form of the algorithm in train.c.
 *
 * A round takes three launches:
 *   - count: many short parses of the sample run at once, and count symbols and pairs by atomic operations;
 *   - gather: every pair that occurs becomes a candidate; a hash map adds up the gains of equal strings;
 *   - select: the best 255 candidates become the next table.
 *
 * There are two differences from train.c. Several threads parse a piece, each from its own start, so the result differs
 * from a single parse. And select considers only the best SORTED candidates. The tables are as good (TUNING.md), but
 * not the same. */
#include "codec/v5t/pairs_gpu.cuh"
#include "codec/v5t/table.h"
#include "codec/v5t/v5t_gpu.cuh"

namespace {

constexpr uint32_t ROUNDS = 7;
/* If two tables have not made the sample 1 % shorter, further rounds will not help, and are skipped. */
constexpr uint32_t HOPELESS_ROUND = 2, HOPELESS_PCT = 99;
constexpr uint32_t NONE = 255, LITERAL = 256, IDS = 512; /* ids: codes, then LITERAL + byte */
constexpr uint32_t PARSE_BYTES = 128;                    /* start to start of two parses */
constexpr uint32_t COUNT_THREADS = 256, PARSES_PER_BLOCK = 16;
constexpr uint32_t GATHER_THREADS = 256, GATHER_BLOCKS = IDS * IDS / GATHER_THREADS / 16;
constexpr uint32_t SORTED = 1024; /* threads of select, one candidate each */
constexpr uint32_t MAP_LOG2 = 15, MAP_SLOTS = 1u << MAP_LOG2, MAX_PROBES = 64;
constexpr uint32_t HASH3_SLOTS = 1u << SW_V5T_HASH_LOG2;
/* The key of a string of 8 bytes fills a word. One value must mean "empty", so the string with this value is not
 * learned. */
constexpr unsigned long long EMPTY = 0, KEY8_MASK = 0x9E3779B97F4A7C15ull;

/* Zeroed before the first round. Every round zeroes counts and maps again at its end. */
struct state {
    sw_params table, best;
    uint32_t coded, best_coded, hopeless, reserved;
    uint32_t count1[IDS];
    uint32_t count2[IDS * IDS];
    unsigned long long key[2 * MAP_SLOTS]; /* first half: up to 7 bytes and the length; second half: 8 bytes */
    uint32_t gain[2 * MAP_SLOTS];          /* 0: slot not in use */
};

/* Symbols of two bytes. GPUs whose blocks have no room for them use sw_v5t_pairs. */
struct pairs {
    uint8_t code[65536];

    __device__ inline uint32_t find(uint32_t pair) const {
        return code[pair];
    }
    __device__ void build(const sw_params &table, uint32_t threads) {
        for (uint32_t i = threadIdx.x; i < sizeof code / 16; i += threads)
            ((uint4 *)code)[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < table.n_symbols; c += threads)
            if (table.length[c] == 2)
                code[table.value[c]] = (uint8_t)c;
    }
};
static_assert(sw_v5t_pairs::NONE == NONE, "both name it alike");

template <class PAIRS> struct symbol_index {
    PAIRS two;
    uint8_t one[256], longer[HASH3_SLOTS];
    uint64_t value[256];
    uint8_t length[256];
};

template <class PAIRS> __device__ void build_index(symbol_index<PAIRS> &ix, const sw_params &table) {
    for (uint32_t i = threadIdx.x; i < (sizeof ix.one + sizeof ix.longer) / 16; i += blockDim.x)
        ((uint4 *)ix.one)[i] = make_uint4(~0u, ~0u, ~0u, ~0u);
    ix.two.build(table, blockDim.x); /* which synchronizes */
    for (uint32_t c = threadIdx.x; c < table.n_symbols; c += blockDim.x) {
        const uint64_t value = table.value[c];
        const uint32_t length = table.length[c];
        ix.value[c] = value;
        ix.length[c] = (uint8_t)length;
        if (length == 1)
            ix.one[value] = (uint8_t)c;
        else if (length > 2)
            ix.longer[sw_v5t_hash3((uint32_t)value)] = (uint8_t)c;
    }
    __syncthreads();
}

__device__ inline uint64_t length_mask(uint32_t length) {
    return length >= 8 ? ~0ull : (1ull << 8 * length) - 1;
}

/* Loads up to 8 bytes at p; bytes from `left` on are zero. */
__device__ inline uint64_t load_window(const uint8_t *p, uint32_t left) {
    if (left < 12) {
        uint64_t w = 0;
        for (uint32_t i = 0; i < min(left, 8u); i++)
            w |= (uint64_t)p[i] << 8 * i;
        return w;
    }
    const uint32_t shift = (uint32_t)((uintptr_t)p % 4 * 8);
    const uint32_t *word = (const uint32_t *)(p - shift / 8);
    const uint32_t a = word[0], b = word[1], c = word[2];
    return (uint64_t)__funnelshift_r(b, c, shift) << 32 | __funnelshift_r(a, b, shift);
}

/* Returns the id of the symbol at the window, and its length, as match() in train.c does. */
template <class PAIRS>
__device__ inline uint32_t match(const symbol_index<PAIRS> &ix, uint64_t window, uint32_t left, uint32_t *ret_length) {
    /* Look up all tables at once, so that their latencies overlap. */
    const uint32_t c = ix.longer[sw_v5t_hash3((uint32_t)window)], two = ix.two.find((uint32_t)window & 0xFFFF);
    const uint32_t one = ix.one[window & 0xFF], length = ix.length[c];
    if (c != NONE && length <= left && ((window ^ ix.value[c]) & length_mask(length)) == 0) {
        *ret_length = length;
        return c;
    }
    if (two != NONE && left >= 2) {
        *ret_length = 2;
        return two;
    }
    *ret_length = 1;
    return one != NONE ? one : LITERAL + (uint32_t)(window & 0xFF);
}

/* Parses from `at` until past `stop`; the last symbol may reach up to `end`. Returns the length of the codes. */
template <class PAIRS>
__device__ uint32_t count_parse(const symbol_index<PAIRS> &ix, state *s, const uint8_t *sample, uint32_t at,
                                uint32_t stop, uint32_t end) {
    uint32_t previous = IDS, coded = 0, length;
    for (; at < stop; at += length) {
        const uint64_t window = load_window(sample + at, end - at);
        const uint32_t id = match(ix, window, end - at, &length), first = LITERAL + (uint32_t)(window & 0xFF);
        atomicAdd(&s->count1[id], 1);
        if (length > 1)
            atomicAdd(&s->count1[first], 1);
        if (previous < IDS) {
            atomicAdd(&s->count2[previous * IDS + id], 1);
            if (length > 1)
                atomicAdd(&s->count2[previous * IDS + first], 1);
        }
        coded += id < LITERAL ? 1 : 2;
        previous = id;
    }
    return coded;
}

template <class PAIRS>
__global__ void __launch_bounds__(COUNT_THREADS)
    count_symbols(state *s, const uint8_t *sample, uint32_t sample_bytes, uint32_t piece_bytes) {
    extern __shared__ __align__(16) uint8_t shared[];
    if (s->hopeless)
        return;
    symbol_index<PAIRS> &ix = *(symbol_index<PAIRS> *)shared;
    build_index(ix, s->table);
    /* Only two lanes of each warp parse, because their steps differ, and more lanes would wait for each other. */
    constexpr uint32_t STRIDE = COUNT_THREADS / PARSES_PER_BLOCK;
    if (threadIdx.x % STRIDE)
        return;
    const uint32_t parse = blockIdx.x * PARSES_PER_BLOCK + threadIdx.x / STRIDE, at = parse * PARSE_BYTES;
    if (at >= sample_bytes)
        return;
    const uint32_t end = min(sample_bytes, (at / piece_bytes + 1) * piece_bytes);
    atomicAdd(&s->coded, count_parse(ix, s, sample, at, min(end, at + PARSE_BYTES), end));
}

__device__ void add_gain(state *s, uint64_t value, uint32_t length, uint32_t gain) {
    const unsigned long long key = length < 8 ? value | (uint64_t)length << 56 : value ^ KEY8_MASK;
    if (key == EMPTY)
        return;
    const uint32_t half = length < 8 ? 0 : MAP_SLOTS;
    uint32_t slot = (uint32_t)(key * 0x9E3779B97F4A7C15ull >> (64 - MAP_LOG2));
    for (uint32_t probe = 0; probe < MAX_PROBES; probe++, slot = (slot + 1) % MAP_SLOTS) {
        const unsigned long long old = atomicCAS(&s->key[half + slot], EMPTY, key);
        if (old != EMPTY && old != key)
            continue;
        atomicAdd(&s->gain[half + slot], gain);
        return;
    }
}

__device__ inline void id_symbol(const state *s, uint32_t id, uint64_t *ret_value, uint32_t *ret_length) {
    *ret_value = id < LITERAL ? s->table.value[id] : id - LITERAL;
    *ret_length = id < LITERAL ? s->table.length[id] : 1;
}

__global__ void __launch_bounds__(GATHER_THREADS) gather_candidates(state *s, uint32_t min_count) {
    const uint32_t thread = blockIdx.x * GATHER_THREADS + threadIdx.x;
    uint64_t va, vb;
    uint32_t la, lb;
    if (s->hopeless)
        return;
    if (thread < IDS && s->count1[thread] >= min_count) {
        id_symbol(s, thread, &va, &la);
        add_gain(s, va, la, s->count1[thread] * la * (la == 1 ? 8 : 1));
    }
    for (uint32_t i = thread; i < IDS * IDS; i += GATHER_BLOCKS * GATHER_THREADS) {
        const uint32_t n = s->count2[i], a = i / IDS;
        if (!n)
            continue;
        s->count2[i] = 0;
        id_symbol(s, a, &va, &la);
        if (n < min_count || s->count1[a] < min_count || la >= SW_V5T_MAX_SYMBOL_BYTES)
            continue;
        id_symbol(s, i % IDS, &vb, &lb);
        const uint32_t length = min(la + lb, (uint32_t)SW_V5T_MAX_SYMBOL_BYTES);
        add_gain(s, (va | vb << 8 * la) & length_mask(length), length, n * length);
    }
}

/* The order is train.c's: by gain, then length, then value, the largest first. rank: gain and length in one word. */
struct scored {
    uint64_t value;
    uint32_t rank, reserved;
};

__device__ inline bool is_better(const scored &a, const scored &b) {
    return a.rank != b.rank ? a.rank > b.rank : a.value > b.value;
}

__device__ inline scored load_candidate(const state *s, uint32_t slot, uint32_t gain) {
    const bool eight = slot >= MAP_SLOTS;
    const uint64_t key = s->key[slot];
    const uint32_t length = eight ? 8 : (uint32_t)(key >> 56);
    return {eight ? key ^ KEY8_MASK : key & length_mask(7), gain << 4 | length, 0};
}

/* Returns a gain's bucket, on a scale with 32 steps per doubling. */
__device__ inline uint32_t bucket(uint32_t gain) {
    if (gain < 32)
        return gain;
    const uint32_t log2 = 31 - __clz((int)gain);
    return (log2 - 4) * 32 + (gain >> (log2 - 5)) % 32;
}
constexpr uint32_t BUCKETS = 1024;
static_assert((31 - 4) * 32 + 31 < BUCKETS, "every 32-bit gain has a bucket");

/* Returns the number of earlier threads of the block with the flag set. *ret_total: the number of all such threads. */
__device__ uint32_t block_rank(bool flag, uint32_t *warp_sums, uint32_t *ret_total) {
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    const uint32_t ballot = __ballot_sync(0xFFFFFFFFu, flag);
    __syncthreads();
    if (lane == 0)
        warp_sums[warp] = __popc(ballot);
    __syncthreads();
    uint32_t before = 0, total = 0;
    for (uint32_t w = 0; w < SORTED / SW_WARP; w++) {
        before += w < warp ? warp_sums[w] : 0;
        total += warp_sums[w];
    }
    *ret_total = total;
    return before + __popc(ballot & ((1u << lane) - 1));
}

struct selection {
    scored sorted[SORTED];
    uint32_t histogram[BUCKETS], first[HASH3_SLOTS], warp_sums[SORTED / SW_WARP], n, lowest;
    sw_v5t_row row[256];
};

/* Returns the lowest bucket for which this bucket and all above hold at most SORTED candidates. */
__device__ void find_lowest(selection &sel) {
    const uint32_t i = threadIdx.x, b = BUCKETS - 1 - i; /* thread 0 has the highest bucket */
    const uint32_t lane = i % SW_WARP, warp = i / SW_WARP;
    uint32_t sum = sel.histogram[b];
    sum += sw_warp_exclusive_sum(sum, lane);
    if (lane == SW_WARP - 1)
        sel.warp_sums[warp] = sum;
    __syncthreads();
    for (uint32_t w = 0; w < warp; w++)
        sum += sel.warp_sums[w];
    if (sum <= SORTED)
        atomicMin(&sel.lowest, b);
}

/* Collects the candidates of the highest buckets, at most SORTED, in any order; empties the maps. */
__device__ void take_best(state *s, selection &sel) {
    constexpr uint32_t QUADS = 2 * MAP_SLOTS / 4;
    uint4 *gains = (uint4 *)s->gain;
    sel.histogram[threadIdx.x] = 0;
    sel.sorted[threadIdx.x] = {0, 0, 0};
    if (threadIdx.x == 0) {
        sel.n = 0;
        sel.lowest = BUCKETS;
    }
    __syncthreads();
#pragma unroll 8
    for (uint32_t q = threadIdx.x; q < QUADS; q += SORTED) {
        const uint4 v = gains[q];
        const uint32_t gain[4] = {v.x, v.y, v.z, v.w};
        for (uint32_t k = 0; k < 4; k++)
            if (gain[k])
                atomicAdd(&sel.histogram[bucket(gain[k])], 1);
    }
    __syncthreads();
    find_lowest(sel);
    __syncthreads();
#pragma unroll 8
    for (uint32_t q = threadIdx.x; q < QUADS; q += SORTED) {
        const uint4 v = gains[q];
        if (!(v.x | v.y | v.z | v.w))
            continue;
        const uint32_t gain[4] = {v.x, v.y, v.z, v.w};
        for (uint32_t k = 0; k < 4; k++)
            if (gain[k] && bucket(gain[k]) >= sel.lowest)
                sel.sorted[atomicAdd(&sel.n, 1)] = load_candidate(s, 4 * q + k, gain[k]);
        gains[q] = make_uint4(0, 0, 0, 0);
        ((ulonglong2 *)s->key)[2 * q] = ((ulonglong2 *)s->key)[2 * q + 1] = make_ulonglong2(EMPTY, EMPTY);
    }
    __syncthreads();
}

static_assert(SW_V5T_ROWS * (SW_V5T_ROWS + 1) <= SORTED, "whole rows are chosen among all candidates");

/* Prefers whole rows, as train.c does, in the first round, whose candidates are single bytes and pairs. */
__device__ void prefer_whole_rows(const state *s, selection &sel) {
    const uint32_t i = threadIdx.x, a = (uint32_t)sel.sorted[i].value & 0xFF;
    const bool is_candidate = i < sel.n, is_pair = (sel.sorted[i].rank & 15) == 2;
    uint32_t n_rows;
    if (i < 256)
        sel.row[i] = {0, 0};
    __syncthreads();
    if (is_candidate && is_pair)
        atomicAdd(&sel.row[a].n_pairs, 1);
    else if (is_candidate)
        sel.row[a].count = s->count1[LITERAL + a];
    block_rank(i < 256 && s->count1[LITERAL + i % 256] >= 2, sel.warp_sums,
               &n_rows); /* some bytes may be no candidates */
    if (n_rows > SW_V5T_ROWS || !is_candidate)
        return;
    if (sw_v5t_row_is_whole(sel.row, a) == is_pair)
        sel.sorted[i].rank += SW_V5T_NEEDED_GAIN << 4;
    else if (!is_pair)
        sel.sorted[i].rank = 1; /* no gain, length 1 */
}

/* Bitonic sort, the best first (K. Batcher, "Sorting networks and their applications", 1968). */
__device__ void sort(scored *v) {
    const uint32_t i = threadIdx.x;
    for (uint32_t size = 2; size <= SORTED; size *= 2)
        for (uint32_t d = size / 2; d > 0; d /= 2) {
            const uint32_t j = i ^ d;
            if (j > i && is_better(v[j], v[i]) == ((i & size) == 0)) {
                const scored t = v[i];
                v[i] = v[j];
                v[j] = t;
            }
            __syncthreads();
        }
}

/* Makes the table from the first 255 candidates that obey the rules of table.h. */
__device__ void choose(sw_params *table, selection &sel) {
    const uint32_t i = threadIdx.x;
    const scored mine = sel.sorted[i];
    const uint32_t length = mine.rank & 15, slot = sw_v5t_hash3((uint32_t)mine.value);
    uint32_t total, n_group[3], rank_in_group = 0;
    for (uint32_t k = i; k < HASH3_SLOTS; k += SORTED)
        sel.first[k] = SORTED;
    __syncthreads();
    if (length > 2)
        atomicMin(&sel.first[slot], i);
    __syncthreads();
    bool keep = mine.rank != 0 && (length <= 2 || sel.first[slot] == i);
    keep = block_rank(keep, sel.warp_sums, &total) < SW_FRAME_MAX_SYMBOLS && keep;
    const uint32_t group = length == 2 ? 0 : length == 1 ? 1 : 2;
    for (uint32_t g = 0; g < 3; g++) {
        const uint32_t rank = block_rank(keep && group == g, sel.warp_sums, &n_group[g]);
        if (group == g)
            rank_in_group = rank;
    }
    const uint32_t n = n_group[0] + n_group[1] + n_group[2];
    if (i < 256 && i >= n) {
        table->value[i] = 0;
        table->length[i] = 0;
    }
    if (keep) {
        const uint32_t code = rank_in_group + (group > 0 ? n_group[0] : 0) + (group > 1 ? n_group[1] : 0);
        table->value[code] = mine.value;
        table->length[code] = (uint8_t)length;
    }
    if (i == 0) {
        table->n_symbols = n;
        table->own[SW_V5T_N2] = n_group[0];
        table->own[SW_V5T_N1] = n_group[1];
    }
}

/* Keeps the table that was just measured, if it is the best so far, and makes the next table. After the last round it
 * writes the results. Runs in one block. */
__global__ void __launch_bounds__(SORTED) select_symbols(state *s, uint32_t round, uint32_t sample_bytes,
                                                         sw_params *ret_table, sw_gpu_training *ret_training) {
    __shared__ selection sel;
    if (s->hopeless && round < ROUNDS)
        return;
    const bool better = !s->hopeless && (round == 0 || s->coded < s->best_coded);
    __syncthreads();
    for (uint32_t i = threadIdx.x; better && i < sizeof s->best / 8; i += SORTED)
        ((uint64_t *)&s->best)[i] = ((const uint64_t *)&s->table)[i];
    if (better && threadIdx.x == 0)
        s->best_coded = s->coded;
    __syncthreads();
    if (round == ROUNDS) {
        for (uint32_t i = threadIdx.x; i < sizeof *ret_table / 8; i += SORTED)
            ((uint64_t *)ret_table)[i] = ((const uint64_t *)&s->best)[i];
        if (threadIdx.x == 0)
            *ret_training = {s->best.n_symbols, s->best_coded};
        return;
    }
    take_best(s, sel);
    if (round == 0)
        prefer_whole_rows(s, sel);
    __syncthreads();
    sort(sel.sorted);
    choose(&s->table, sel);
    if (threadIdx.x < IDS)
        s->count1[threadIdx.x] = 0;
    if (threadIdx.x == 0) {
        s->coded = 0;
        s->hopeless = round == HOPELESS_ROUND && (uint64_t)s->best_coded * 100 >= (uint64_t)sample_bytes * HOPELESS_PCT;
    }
}

/* Tests whether a sample has any pattern. In bytes without a pattern all pairs are equally frequent, so equal pairs
 * meet by chance only. A useful table needs symbols that are more frequent; then some pairs are more frequent, too.
 * Instead of 65536 pairs it counts the buckets of a hash of the pair. Runs in one block. */
constexpr uint32_t PROBE_THREADS = 1024, PAIR_BUCKETS_LOG2 = 14;
constexpr size_t PROBE_SHARED_BYTES = sizeof(uint32_t) << PAIR_BUCKETS_LOG2;
/* A shorter sample may show a pattern by chance, or hide one. Training on it is quick anyway. */
constexpr uint32_t MIN_PROBED_BYTES = 16384;
constexpr double HOPELESS_MEETINGS = 2; /* times the number by chance; random bytes: 0.95 to 1.05, text: more than 50 */

__global__ void __launch_bounds__(PROBE_THREADS)
    count_meetings(const uint8_t *sample, uint32_t sample_bytes, uint32_t *ret_hopeless) {
    extern __shared__ __align__(16) uint8_t shared[];
    uint32_t *count = (uint32_t *)shared;
    unsigned long long *meetings = (unsigned long long *)shared; /* in the end, in their place */
    for (uint32_t i = threadIdx.x; i < 1u << PAIR_BUCKETS_LOG2; i += PROBE_THREADS)
        count[i] = 0;
    __syncthreads();
    for (uint32_t i = threadIdx.x; i + 1 < sample_bytes; i += PROBE_THREADS) {
        const uint32_t pair = sample[i] | (uint32_t)sample[i + 1] << 8;
        atomicAdd(&count[pair * 0x9E3779B1u >> (32 - PAIR_BUCKETS_LOG2)], 1);
    }
    __syncthreads();
    unsigned long long mine = 0;
    for (uint32_t i = threadIdx.x; i < 1u << PAIR_BUCKETS_LOG2; i += PROBE_THREADS)
        mine += (unsigned long long)count[i] * (count[i] - 1ull);
    __syncthreads();
    if (threadIdx.x == 0)
        *meetings = 0;
    __syncthreads();
    atomicAdd(meetings, mine);
    __syncthreads();
    if (threadIdx.x)
        return;
    const double pairs = sample_bytes - 1.0, by_chance = pairs * (pairs - 1) / (1u << PAIR_BUCKETS_LOG2);
    *ret_hopeless = sample_bytes >= MIN_PROBED_BYTES && (double)*meetings < HOPELESS_MEETINGS * by_chance;
}

} // namespace

/* Returns whether a block has room for all pairs. */
static bool is_large(size_t limit) {
    return sizeof(symbol_index<pairs>) <= limit;
}

size_t sw_v5t_gpu_training_bytes(size_t limit) {
    const size_t index = is_large(limit) ? sizeof(symbol_index<pairs>) : sizeof(symbol_index<sw_v5t_pairs>);
    return PROBE_SHARED_BYTES <= limit ? sw_gpu_larger(index, PROBE_SHARED_BYTES) : 0;
}

cudaError_t sw_v5t_gpu_init_training() {
    const cudaError_t e =
        is_large(sw_gpu_shared_bytes())
            ? sw_gpu_allow_shared((const void *)count_symbols<pairs>, sizeof(symbol_index<pairs>))
            : sw_gpu_allow_shared((const void *)count_symbols<sw_v5t_pairs>, sizeof(symbol_index<sw_v5t_pairs>));
    return e == cudaSuccess ? sw_gpu_allow_shared((const void *)count_meetings, PROBE_SHARED_BYTES) : e;
}

/* Launches count_symbols() by the larger index that fits. */
static void count(state *s, const uint8_t *sample, uint32_t bytes, struct CUstream_st *stream) {
    const uint32_t blocks = bytes / (PARSE_BYTES * PARSES_PER_BLOCK) + 1;
    if (is_large(sw_gpu_shared_bytes()))
        count_symbols<pairs><<<blocks, COUNT_THREADS, sizeof(symbol_index<pairs>), stream>>>(
            s, sample, bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
    else
        count_symbols<sw_v5t_pairs><<<blocks, COUNT_THREADS, sizeof(symbol_index<sw_v5t_pairs>), stream>>>(
            s, sample, bytes, SW_SAMPLE_SHORT_PIECE_BYTES);
}

int sw_gpu_probe_async(const void *d_sample, size_t sample_bytes, uint32_t *d_hopeless, struct CUstream_st *stream,
                       struct sw_err *err) {
    if (sample_bytes > SW_SAMPLE_MAX_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "sample of %zu bytes", sample_bytes);
    count_meetings<<<1, PROBE_THREADS, PROBE_SHARED_BYTES, stream>>>((const uint8_t *)d_sample, (uint32_t)sample_bytes,
                                                                     d_hopeless);
    return sw_gpu_launched(err, "count_meetings");
}

size_t sw_gpu_train_scratch_bytes(void) {
    return sizeof(state);
}

int sw_gpu_train_async(const void *d_sample, size_t sample_bytes, struct sw_params *d_params,
                       struct sw_gpu_training *d_training, void *d_scratch, size_t scratch_bytes,
                       struct CUstream_st *stream, struct sw_err *err) {
    if (scratch_bytes < sizeof(state) || sample_bytes > SW_SAMPLE_MAX_BYTES || (uintptr_t)d_sample % 4 ||
        (uintptr_t)d_scratch % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "training on %zu bytes with %zu bytes of scratch",
                          sample_bytes, scratch_bytes);
    state *s = (state *)d_scratch;
    const uint32_t bytes = (uint32_t)sample_bytes;
    int rc = sw_gpu_check(cudaMemsetAsync(s, 0, sizeof *s, stream), err, "cudaMemsetAsync");
    for (uint32_t round = 0; rc == 0 && round <= ROUNDS; round++) {
        count(s, (const uint8_t *)d_sample, bytes, stream);
        if (round < ROUNDS)
            gather_candidates<<<GATHER_BLOCKS, GATHER_THREADS, 0, stream>>>(s, 2 + 2 * round);
        select_symbols<<<1, SORTED, 0, stream>>>(s, round, bytes, d_params, d_training);
        rc = sw_gpu_launched(err, "table training");
    }
    return rc;
}
