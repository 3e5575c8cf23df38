/* lz_gpu.cu - codec lz on the GPU: a block of threads per tile, a warp per 4 KiB of it, which is in shared memory.
 *
 * Encoding. Symbols are processed in chunks of 32. Each lane has some of the window's distances. For each of them it
 * compares the 32 symbols of a chunk with the symbols that far back, and gets a mask of unequal symbols. From the masks
 * of a chunk and of the next one, the warp reads the tokens of the chunk from left to right, one step per match. The
 * length for which a distance holds is a count of leading zeros; the best distance is the minimum of all lanes' words.
 * Literals between matches cost nothing. After all tokens are found, their places are known, and they are written
 * without another pass over memory.
 *
 * Decoding. A lane has one symbol of a chunk. Counts of bits give its token and the token's place. Symbols of matches
 * that begin in their own chunk refer to other symbols of the chunk. Up to five rounds resolve these references.
 *
 * A chunk's masks have their first symbol in the highest bit here, but in the lowest bit in the frame. TUNING.md has
 * the instruction counts. */
#include "codec/bitpack/numbers_gpu.cuh"
#include "codec/lz/lz_core.h"

namespace {

constexpr uint32_t ALL = 0xFFFFFFFFu;
constexpr uint32_t CHUNK = 32; /* symbols */
constexpr uint32_t BLOCK_WORDS = SW_LZ_BLOCK_BYTES / 4;
constexpr uint32_t ENCODE_THREADS = SW_LZ_TILE_BLOCKS * SW_WARP;
/* Chunks whose tokens are looked up together, before the first chunk's symbols are copied. */
constexpr uint32_t CHUNKS_AT_ONCE = 4;

static_assert(SW_LZ_SEARCH == CHUNK, "a word has what is looked at");

/* Constants of blocks whose symbols have this many bytes. */
template <unsigned BYTES> struct shape {
    using symbol = std::conditional_t<BYTES == 1, uint8_t, std::conditional_t<BYTES == 2, uint16_t, uint32_t>>;
    static constexpr uint32_t PER_WORD = 4 / BYTES;
    static constexpr uint32_t CHUNK_WORDS = CHUNK / PER_WORD;
    static constexpr uint32_t GROUPS = 4 / BYTES; /* of 32 chunks */
    static constexpr uint32_t CHUNKS = 32 * GROUPS;
};

__device__ inline uint32_t block_symbols(uint32_t bytes, uint32_t symbol_bytes) {
    return (bytes + symbol_bytes - 1) / symbol_bytes;
}

/* Returns the bits of lanes before this one. */
__device__ inline uint32_t lanes_before(uint32_t lane) {
    return (1u << lane) - 1;
}
/* Returns the bits of lanes up to this one. */
__device__ inline uint32_t lanes_up_to(uint32_t lane) {
    return ALL >> (SW_WARP - 1 - lane);
}

/* Returns the bits of symbols from `at` on; 0 for 32 and above. */
__device__ inline uint32_t symbols_from(uint32_t at) {
    return __funnelshift_rc(ALL, 0, at);
}

/* ---- encoding ---- */

/* The distances of a lane: those that begin q words back, for q = lane, lane + 32, ... Each word has as many distances
 * as symbols. */
template <unsigned BYTES, unsigned WORDS_BACK> struct window_shape {
    static constexpr uint32_t DISTANCES = WORDS_BACK * shape<BYTES>::PER_WORD;
    /* The number of chunks to keep: this one, and earlier ones that later chunks may still refer to. */
    static constexpr uint32_t CHUNKS_KEPT = DISTANCES;

    __device__ static inline uint32_t distance(uint32_t i, uint32_t lane) {
        constexpr uint32_t PER_WORD = shape<BYTES>::PER_WORD;
        return (i / PER_WORD * SW_WARP + lane) * PER_WORD + i % PER_WORD + 1;
    }
};

/* A block being encoded. */
template <unsigned BYTES, unsigned WORDS_BACK> struct encode_stage {
    uint32_t before[WORDS_BACK * SW_WARP]; /* compared with by distances that point before the block */
    uint32_t word[BLOCK_WORDS];            /* symbols; later, matches' distances replace their first symbols */
    uint32_t begins[shape<BYTES>::CHUNKS], matches[shape<BYTES>::CHUNKS]; /* as in the frame */
    uint8_t found[window_shape<BYTES, WORDS_BACK>::CHUNKS_KEPT][CHUNK];   /* distances of matches of the last chunks */
};

/* Returns a word that has the top bit of each symbol set that is not zero. */
template <unsigned BYTES> __device__ inline uint32_t nonzero_symbols(uint32_t v) {
    constexpr uint32_t LOW = BYTES == 1 ? 0x7F7F7F7Fu : 0x7FFF7FFFu;
    return (((v & LOW) + LOW) | v) & ~LOW;
}

/* Adds to a chunk's mask which symbols of word w are unequal. For bytes it collects them in `sum`, which is added to
 * the mask after every fourth word. */
template <unsigned BYTES>
__device__ __forceinline__ void add_unequal(uint32_t &mask, uint32_t &sum, unsigned w, uint32_t a, uint32_t b) {
    if constexpr (BYTES == 4) {
        if (a != b)
            mask |= 0x80000000u >> w;
    } else if constexpr (BYTES == 2) {
        const uint32_t bits = nonzero_symbols<2>(a ^ b);
        mask = mask << 2 | (bits >> 14 & 2) | bits >> 31;
    } else { /* a multiplication moves each bit from place 7 to its place in the mask */
        sum = w % 4 == 0 ? 0 : w % 4 == 2 ? sum * 256 : sum;
        sum = __dp4a(nonzero_symbols<1>(a ^ b), w % 2 ? 0x01020408u : 0x10204080u, sum);
        if (w % 4 == 3)
            mask |= w == 3 ? sum << 9 : sum >> 7;
    }
}

/* Compares a chunk with the symbols at each of the lane's distances: masks of symbols that are unequal or do not exist.
 */
template <unsigned BYTES, unsigned WORDS_BACK>
__device__ __forceinline__ void compare_chunk(const encode_stage<BYTES, WORDS_BACK> &stage, uint32_t chunk, uint32_t n,
                                              uint32_t window, uint32_t lane, uint32_t *unequal) {
    using distances = window_shape<BYTES, WORDS_BACK>;
    constexpr uint32_t PER_WORD = shape<BYTES>::PER_WORD;
    const uint32_t first = chunk * CHUNK;
    const uint32_t *now = stage.word + chunk * shape<BYTES>::CHUNK_WORDS, *back = now - lane - 1;
    uint32_t low[WORDS_BACK], sum[distances::DISTANCES] = {};
#pragma unroll
    for (uint32_t g = 0; g < WORDS_BACK; g++)
        low[g] = *(back - g * SW_WARP);
#pragma unroll
    for (uint32_t i = 0; i < distances::DISTANCES; i++)
        unequal[i] = 0;
#pragma unroll
    for (uint32_t w = 0; w < shape<BYTES>::CHUNK_WORDS; w++) {
        const uint32_t a = now[w];
#pragma unroll
        for (uint32_t g = 0; g < WORDS_BACK; g++) {
            const uint32_t high = *(back - g * SW_WARP + w + 1);
#pragma unroll
            for (uint32_t r = 1; r <= PER_WORD; r++) {
                const uint32_t i = g * PER_WORD + r - 1;
                const uint32_t b = r == PER_WORD ? low[g] : __funnelshift_r(low[g], high, 32 - 8 * BYTES * r);
                add_unequal<BYTES>(unequal[i], sum[i], w, a, b);
            }
            low[g] = high;
        }
    }
    if (first < distances::DISTANCES * SW_WARP || first + CHUNK > n)
#pragma unroll
        for (uint32_t i = 0; i < distances::DISTANCES; i++) {
            const uint32_t d = distances::distance(i, lane);
            unequal[i] |= ~symbols_from(d > first ? d - first : 0) | symbols_from(n - first);
        }
    /* The lanes have more distances than the window: one too many, or all distances of some lanes. */
    if (window == SW_LZ_MAX_DISTANCE)
        unequal[distances::DISTANCES - 1] |= lane == SW_WARP - 1 ? ALL : 0;
    else if (lane * PER_WORD >= window)
#pragma unroll
        for (uint32_t i = 0; i < distances::DISTANCES; i++)
            unequal[i] = ALL;
}

/* The input for reading a chunk's tokens: masks of this chunk and of the next one. */
template <unsigned DISTANCES> struct masks {
    uint32_t now[DISTANCES], next[DISTANCES];

    /* Returns the mask of the 32 symbols from `at` (0 ... 31) on. */
    __device__ inline uint32_t from(uint32_t i, uint32_t at) const {
        return __funnelshift_l(next[i], now[i], at);
    }
};

/* Returns the symbols at which a match of sufficient length may begin. */
template <unsigned BYTES, unsigned DISTANCES> __device__ inline uint32_t find_matches(const masks<DISTANCES> &m) {
    uint32_t begins = 0;
#pragma unroll
    for (uint32_t i = 0; i < DISTANCES; i++)
        begins |= ~(BYTES == 1 ? m.now[i] | m.from(i, 1) : m.now[i]);
    return sw_warp_or(begins);
}

/* Returns the number of symbols (0 ... 32) from `at` on for which a distance holds. */
template <unsigned BYTES, unsigned WORDS_BACK, unsigned DISTANCES>
__device__ inline uint32_t run_of(const masks<DISTANCES> &m, uint32_t at, uint32_t distance, uint32_t lane) {
    uint32_t word = 0;
#pragma unroll
    for (uint32_t i = 0; i < DISTANCES; i++)
        if (window_shape<BYTES, WORDS_BACK>::distance(i, lane) == distance)
            word = m.from(i, at);
    return __clz(sw_warp_or(word));
}

/* Returns the distance that holds for most symbols from `at` on; on a tie, the smallest one. */
template <unsigned BYTES, unsigned WORDS_BACK, unsigned DISTANCES>
__device__ inline uint32_t best_distance(const masks<DISTANCES> &m, uint32_t at, uint32_t lane, uint32_t *ret_run) {
    uint32_t word[DISTANCES], least = ALL, nearest = ALL;
#pragma unroll
    for (uint32_t i = 0; i < DISTANCES; i++) {
        word[i] = m.from(i, at);
        least = min(least, word[i]);
    }
    const uint32_t run = __clz(sw_warp_min(least));
    const uint32_t most = symbols_from(run); /* the largest word with as many leading zeros */
#pragma unroll
    for (uint32_t i = DISTANCES; i-- > 0;) /* a lane's distances ascend */
        nearest = word[i] <= most ? window_shape<BYTES, WORDS_BACK>::distance(i, lane) : nearest;
    *ret_run = run;
    return sw_warp_min(nearest);
}

/* The state of reading tokens. The chunk's first `at` symbols belong to an earlier match. open: this match's distance
 * if it may go on, else 0. */
struct reading {
    uint32_t at, open;
};

/* The tokens of a chunk of which `there` symbols exist. */
struct chunk_tokens {
    uint32_t begins, matches, distance; /* distance: the distance of a match that begins at the lane's symbol, else 0 */
};

template <unsigned BYTES, unsigned WORDS_BACK, unsigned DISTANCES>
__device__ __forceinline__ chunk_tokens read_tokens(const masks<DISTANCES> &m, reading &r, uint32_t there,
                                                    uint32_t lane) {
    chunk_tokens t = {0, 0, 0};
    uint32_t run = 0, distance = r.open;
    if (r.open) {
        run = run_of<BYTES, WORDS_BACK>(m, r.at, distance, lane);
        r.at += run;
    }
    uint32_t covered = ~symbols_from(r.at); /* symbols of matches, without their first symbols */
    const uint32_t may_begin = find_matches<BYTES>(m);
    for (uint32_t rest; (rest = may_begin & symbols_from(r.at)) != 0;) {
        const uint32_t match = __clz(rest);
        distance = best_distance<BYTES, WORDS_BACK>(m, match, lane, &run);
        t.matches |= 0x80000000u >> match;
        t.distance = lane == match ? distance : t.distance;
        r.at = match + run;
        covered |= symbols_from(match + 1) & ~symbols_from(r.at);
    }
    t.begins = ~covered & ~symbols_from(there);
    r.open = run == CHUNK ? distance : 0;
    r.at = r.at > CHUNK ? r.at - CHUNK : 0;
    return t;
}

/* Finds the tokens of the n symbols in `stage`. Matches' distances replace their first symbols there. */
template <unsigned BYTES, unsigned WORDS_BACK>
__device__ __forceinline__ void find_tokens(encode_stage<BYTES, WORDS_BACK> &stage, uint32_t n, uint32_t window,
                                            uint32_t lane) {
    using distances = window_shape<BYTES, WORDS_BACK>;
    constexpr uint32_t KEPT = distances::CHUNKS_KEPT;
    auto *symbols = (typename shape<BYTES>::symbol *)stage.word;
    const uint32_t n_chunks = (n + CHUNK - 1) / CHUNK;
    masks<distances::DISTANCES> m = {};
    reading r = {0, 0};
    for (uint32_t i = lane; i < shape<BYTES>::CHUNKS; i += SW_WARP)
        stage.begins[i] = stage.matches[i] = 0;
#pragma unroll
    for (uint32_t k = 0; k < KEPT; k++)
        stage.found[k][lane] = 0;
    for (uint32_t ahead = 0; ahead < n_chunks + KEPT; ahead++) {
        const uint32_t chunk = ahead - 1;
        uint32_t distance = 0;
#pragma unroll
        for (uint32_t i = 0; i < distances::DISTANCES; i++) {
            m.now[i] = m.next[i];
            m.next[i] = ALL;
        }
        if (ahead < n_chunks)
            compare_chunk(stage, ahead, n, window, lane, m.next);
        if (ahead == 0)
            continue;
        if (chunk < n_chunks) {
            const chunk_tokens t = read_tokens<BYTES, WORDS_BACK>(m, r, min(CHUNK, n - chunk * CHUNK), lane);
            if (lane == 0) {
                stage.begins[chunk] = __brev(t.begins);
                stage.matches[chunk] = __brev(t.matches);
            }
            distance = t.distance;
        }
        stage.found[chunk % KEPT][lane] = (uint8_t)distance;
        const uint32_t old = stage.found[ahead % KEPT][lane];
        __syncwarp(); /* all lanes have compared the symbols that are overwritten now */
        if (ahead >= KEPT && old)
            symbols[(ahead - KEPT) * CHUNK + lane] = (typename shape<BYTES>::symbol)old;
    }
    __syncwarp();
}

/* The layout of the tokens in `stage`. */
template <unsigned BYTES, unsigned WORDS_BACK>
__device__ inline sw_lz_parts count_tokens(const encode_stage<BYTES, WORDS_BACK> &stage, uint32_t lane) {
    uint32_t n_masks = 0, n_tokens = 0, n_matches = 0;
    for (uint32_t i = lane; i < shape<BYTES>::CHUNKS; i += SW_WARP) {
        n_masks += stage.begins[i] != 0;
        n_tokens += __popc(stage.begins[i]);
        n_matches += __popc(stage.matches[i]);
    }
    return sw_lz_parts_of(BYTES, sw_warp_sum(n_masks), sw_warp_sum(n_tokens), sw_warp_sum(n_matches));
}

template <unsigned BYTES> __device__ inline void store_masks(const uint32_t *begins, uint8_t *to, uint32_t lane) {
    uint32_t n_masks = shape<BYTES>::GROUPS;
#pragma unroll
    for (uint32_t g = 0; g < shape<BYTES>::GROUPS; g++) {
        const uint32_t mask = begins[g * SW_WARP + lane], there = __ballot_sync(ALL, mask != 0);
        if (lane == 0)
            ((uint32_t *)to)[g] = there;
        if (mask)
            ((uint32_t *)to)[n_masks + __popc(there & lanes_before(lane))] = mask;
        n_masks += __popc(there);
    }
}

/* The words of kinds being filled; the same in all lanes. */
struct kind_writer {
    uint32_t *to;
    uint64_t pending;
    uint32_t n_tokens;

    __device__ inline void put(uint32_t kinds, uint32_t n, uint32_t lane) {
        const uint32_t shift = n_tokens % 32;
        pending |= (uint64_t)kinds << shift;
        if (shift + n >= 32) {
            if (lane == 0)
                to[n_tokens / 32] = (uint32_t)pending;
            pending >>= 32;
        }
        n_tokens += n;
    }
    __device__ inline void finish(uint32_t lane) {
        if (lane == 0 && n_tokens % 32)
            to[n_tokens / 32] = (uint32_t)pending;
    }
};

template <unsigned BYTES, unsigned WORDS_BACK>
__device__ __forceinline__ void store_tokens(const encode_stage<BYTES, WORDS_BACK> &stage, const sw_lz_parts &parts,
                                             uint32_t n, uint8_t *to, uint32_t lane) {
    using symbol = typename shape<BYTES>::symbol;
    const symbol *symbols = (const symbol *)stage.word;
    kind_writer kinds = {(uint32_t *)(to + parts.kinds), 0, 0};
    uint32_t n_matches = 0;
    store_masks<BYTES>(stage.begins, to, lane);
    for (uint32_t chunk = 0; chunk * CHUNK < n; chunk++) {
        const uint32_t begins = stage.begins[chunk], matches = stage.matches[chunk];
        const uint32_t value = symbols[chunk * CHUNK + lane];
        const uint32_t token = __popc(begins & lanes_before(lane)), match = __popc(matches & lanes_before(lane));
        const bool is_match = matches >> lane & 1;
        if (is_match)
            to[parts.distances + n_matches + match] = (uint8_t)value;
        else if (begins >> lane & 1)
            ((symbol *)(to + parts.literals))[kinds.n_tokens - n_matches + token - match] = (symbol)value;
        kinds.put(sw_warp_or(is_match ? 1u << token : 0), __popc(begins), lane);
        n_matches += __popc(matches);
    }
    kinds.finish(lane);
    if (parts.distances + n_matches + lane < parts.literals)
        to[parts.distances + n_matches + lane] = 0;
    if (parts.end + lane < sw_lz_units(parts.end) * SW_UNIT_BYTES)
        to[parts.end + lane] = 0;
}

/* Data that the warps of a tile exchange. */
struct tile_state {
    uint32_t units[SW_LZ_TILE_BLOCKS], first_unit[SW_LZ_TILE_BLOCKS], hash[SW_LZ_TILE_BLOCKS];
    sw_gpu_room room;
};

/* For the first warp: computes the place of each block, and writes the tile's record and counts. */
__device__ inline void place_tile(tile_state &state, const sw_gpu_place &place, sw_gpu_progress *progress,
                                  uint32_t lane) {
    const sw_frame_layout &layout = place.item.layout;
    uint8_t *frame = (uint8_t *)place.item.d_frame;
    const bool is_block = lane < SW_LZ_TILE_BLOCKS;
    const uint32_t units = is_block ? state.units[lane] : 0, first = sw_warp_exclusive_sum(units, lane);
    const uint32_t hash = sw_warp_sum(is_block ? state.hash[lane] : 0);
    if (is_block) {
        state.first_unit[lane] = first;
        ((uint16_t *)(frame + layout.counts_offset + (uint64_t)place.unit * SW_LZ_COUNT_BYTES))[lane] = (uint16_t)units;
    }
    if (lane == SW_WARP - 1)
        state.room = sw_gpu_take_room(progress, layout, first);
    __syncwarp();
    if (lane == 0)
        ((sw_tile_record *)(frame + layout.records_offset))[place.unit] = {(uint32_t)state.room.unit, hash};
}

/* Loads a block into `stage`, with zeros before and after it; returns the hash of its content. */
template <unsigned BYTES, unsigned WORDS_BACK>
__device__ __forceinline__ uint32_t load_block(encode_stage<BYTES, WORDS_BACK> &stage, const uint8_t *from,
                                               uint32_t bytes, uint32_t block, uint32_t lane) {
    using share = sw_share<8>;
    uint32_t x[share::WORDS];
    sw_load_content<share::UNITS>(from, bytes, lane, x);
#pragma unroll
    for (uint32_t u = 0; u < share::UNITS; u++)
        ((uint4 *)stage.word)[u * SW_WARP + lane] = sw_unit_of(x + 4 * u);
#pragma unroll
    for (uint32_t g = 0; g < WORDS_BACK; g++)
        stage.before[g * SW_WARP + lane] = 0;
    __syncwarp();
    return sw_hash_blocks<share::BLOCKS>(x, block, bytes, lane);
}

template <unsigned BYTES, unsigned WORDS_BACK, class ITEMS>
__global__ void __launch_bounds__(ENCODE_THREADS) encode_tile(const __grid_constant__ ITEMS items, uint32_t window) {
    __shared__ __align__(16) encode_stage<BYTES, WORDS_BACK> stages[SW_LZ_TILE_BLOCKS];
    __shared__ tile_state state;
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    if (sw_gpu_is_refused(items.pass, lane))
        return;
    encode_stage<BYTES, WORDS_BACK> &stage = stages[warp];
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    const uint32_t bytes =
        sw_bytes_left(sw_tile_bytes(layout, place.unit), warp * SW_LZ_BLOCK_BYTES, SW_LZ_BLOCK_BYTES);
    const uint32_t n = block_symbols(bytes, BYTES), whole = sw_lz_units(bytes);
    const uint8_t *from =
        (const uint8_t *)place.item.d_raw + (uint64_t)place.unit * SW_NUMBERS_TILE_BYTES + warp * SW_LZ_BLOCK_BYTES;
    sw_lz_parts parts = {0, 0, 0, 0};
    uint32_t units = 0, hash = 0;
    if (bytes) {
        hash = load_block(stage, from, bytes, place.unit * SW_HASH_TILE_BLOCKS + warp, lane);
        find_tokens(stage, n, window, lane);
        parts = count_tokens(stage, lane);
        units = min(sw_lz_units(parts.end), whole);
    }
    if (lane == 0) {
        state.units[warp] = units;
        state.hash[warp] = hash;
    }
    __syncthreads();
    if (warp == 0)
        place_tile(state, place, items.progress(place.index), lane);
    __syncthreads();
    uint8_t *to = (uint8_t *)place.item.d_frame + layout.data_offset +
                  (state.room.unit + state.first_unit[warp]) * (uint64_t)SW_UNIT_BYTES;
    if (units < whole)
        store_tokens(stage, parts, n, to, lane);
    else
        for (uint32_t u = lane; u < units; u += SW_WARP)
            ((uint4 *)to)[u] = sw_load_unit<1>(from, u * SW_UNIT_BYTES, bytes);
    if (warp == 0 && state.room.all_units != SW_GPU_NOT_LAST)
        sw_gpu_finish_frame(items, place.index, state.room.all_units, lane);
}

/* ---- decoding ---- */

/* A block being decoded. */
struct decode_stage {
    uint32_t stored[BLOCK_WORDS], word[BLOCK_WORDS];
    uint32_t begins[SW_LZ_MAX_MASKS];
};

/* Reads a stored block's masks and finds its parts; false: it is malformed. bytes: its stored length. */
template <unsigned BYTES>
__device__ __forceinline__ bool open_block(decode_stage &stage, uint32_t bytes, uint32_t lane, sw_lz_parts *ret) {
    uint32_t n_masks = 0, n_tokens = 0, n_matches = 0;
    bool is_good = bytes > 0;
#pragma unroll
    for (uint32_t g = 0; g < shape<BYTES>::GROUPS; g++) {
        const uint32_t there = bytes ? stage.stored[g] : 0;
        const uint32_t at = shape<BYTES>::GROUPS + n_masks + __popc(there & lanes_before(lane));
        const bool is_there = there >> lane & 1, is_inside = 4 * at < bytes;
        const uint32_t begins = is_there && is_inside ? stage.stored[at] : 0;
        stage.begins[g * SW_WARP + lane] = begins;
        is_good &= (!is_there || is_inside) && (g > 0 || lane > 0 || begins & 1);
        n_masks += __popc(there);
        n_tokens += sw_warp_sum(__popc(begins));
    }
    *ret = sw_lz_parts_of(BYTES, n_masks, n_tokens, 0);
    if (!__all_sync(ALL, is_good) || ret->distances > bytes)
        return false;
    for (uint32_t i = lane; i * 32 < n_tokens; i += SW_WARP)
        n_matches += __popc(stage.stored[ret->kinds / 4 + i] & sw_low_bits(n_tokens - i * 32));
    *ret = sw_lz_parts_of(BYTES, n_masks, n_tokens, sw_warp_sum(n_matches));
    return ret->end <= bytes;
}

/* The numbers of tokens and matches before a chunk. */
struct place_in_block {
    uint32_t n_tokens, n_matches;
};

/* A lane's symbol: its value if it is a literal, else its distance. */
struct found_symbol {
    uint32_t value, distance;
};

/* Looks up the symbol of each lane of a chunk; sets is_bad if it is invalid. */
template <unsigned BYTES>
__device__ __forceinline__ found_symbol find_symbol(const uint32_t *stored, const sw_lz_parts &parts, uint32_t begins,
                                                    uint32_t i, uint32_t n, place_in_block &at, uint32_t lane,
                                                    bool &is_bad) {
    using symbol = typename shape<BYTES>::symbol;
    const uint32_t up_to = lanes_up_to(lane), token = at.n_tokens + __popc(begins & up_to) - 1;
    const bool is_first = begins >> lane & 1;
    const bool is_match = stored[parts.kinds / 4 + token / 32] >> token % 32 & 1;
    const uint32_t matches = __ballot_sync(ALL, is_match && is_first);
    const uint32_t n_matches = at.n_matches + __popc(matches & up_to);
    found_symbol s = {0, 0};
    if (is_match) {
        s.distance = ((const uint8_t *)stored)[parts.distances + n_matches - 1];
        is_bad |= s.distance - 1 >= i && i < n; /* no distance, or it points before the block */
        s.distance = s.distance > i ? 0 : s.distance;
    } else {
        s.value = ((const symbol *)((const uint8_t *)stored + parts.literals))[token - n_matches];
        is_bad |= !is_first && i < n;
    }
    at.n_tokens += __popc(begins);
    at.n_matches += __popc(matches);
    return s;
}

/* Returns the values of the symbols of a chunk that begins at symbol `first`. All symbols before it are decoded. */
template <class SYMBOL>
__device__ __forceinline__ uint32_t resolve(const SYMBOL *symbols, found_symbol s, uint32_t first, uint32_t lane) {
    const bool is_near = s.distance <= lane; /* also true for literals */
    if (!is_near)
        s.value = symbols[first + lane - s.distance];
    uint32_t from = is_near ? lane - s.distance : lane;
    if (!__any_sync(ALL, from != lane))
        return s.value;
    for (;;) {
        const uint32_t next = __shfl_sync(ALL, from, from);
        if (!__any_sync(ALL, next != from))
            break;
        from = next;
    }
    return __shfl_sync(ALL, s.value, from);
}

/* Decodes n symbols; false: the block is malformed. */
template <unsigned BYTES>
__device__ __forceinline__ bool decode_tokens(decode_stage &stage, uint32_t stored_bytes, uint32_t n, uint32_t lane) {
    using symbol = typename shape<BYTES>::symbol;
    symbol *symbols = (symbol *)stage.word;
    sw_lz_parts parts;
    place_in_block at = {0, 0};
    bool is_bad = false;
    if (!open_block<BYTES>(stage, stored_bytes, lane, &parts))
        return false;
    __syncwarp();
    for (uint32_t first = 0; first < n; first += CHUNKS_AT_ONCE * CHUNK) {
        found_symbol found[CHUNKS_AT_ONCE];
#pragma unroll
        for (uint32_t k = 0; k < CHUNKS_AT_ONCE; k++)
            found[k] = find_symbol<BYTES>(stage.stored, parts, stage.begins[first / CHUNK + k],
                                          first + k * CHUNK + lane, n, at, lane, is_bad);
#pragma unroll
        for (uint32_t k = 0; k < CHUNKS_AT_ONCE; k++) {
            symbols[first + k * CHUNK + lane] = (symbol)resolve(symbols, found[k], first + k * CHUNK, lane);
            __syncwarp();
        }
    }
    return !__any_sync(ALL, is_bad);
}

/* Decodes a block into x. `bytes` of its content exist; x is zero after them. If the block is bad all of x is zero,
 * because the stage may hold data of an earlier kernel, of another client. */
template <unsigned BYTES>
__device__ __forceinline__ bool decode_block(decode_stage &stage, const uint8_t *from, uint32_t units, uint32_t bytes,
                                             uint32_t lane, uint32_t *x) {
    using share = sw_share<8>;
    if (units == sw_lz_units(bytes)) {
        sw_load_content<share::UNITS>(from, bytes, lane, x);
        return true;
    }
    for (uint32_t u = lane; u < units; u += SW_WARP)
        ((uint4 *)stage.stored)[u] = __ldg((const uint4 *)from + u);
    __syncwarp();
    const bool is_good = decode_tokens<BYTES>(stage, units * SW_UNIT_BYTES, block_symbols(bytes, BYTES), lane);
#pragma unroll
    for (uint32_t u = 0; u < share::UNITS; u++)
        sw_unit_to(x + 4 * u, is_good ? ((const uint4 *)stage.word)[u * SW_WARP + lane] : make_uint4(0, 0, 0, 0));
    if (bytes < SW_LZ_BLOCK_BYTES)
        sw_fill_tail<8, share::WORDS>(x, bytes, lane, 0);
    __syncwarp();
    return is_good;
}

template <unsigned BYTES, class ITEMS>
__global__ void __launch_bounds__(SW_DECODE_WARPS *SW_WARP, 6)
    decode_tile(const __grid_constant__ ITEMS items, uint32_t first_tile) {
    using share = sw_share<8>;
    __shared__ __align__(16) decode_stage stages[SW_DECODE_WARPS];
    __shared__ uint32_t sums[SW_DECODE_WARPS];
    const uint32_t lane = threadIdx.x % SW_WARP, warp = threadIdx.x / SW_WARP;
    if (sw_gpu_is_refused(items.pass, lane))
        return;
    const sw_gpu_place place = items.find(blockIdx.x, lane);
    const sw_frame_layout &layout = place.item.layout;
    if (sw_lz_symbol_bytes(layout.value_type) != BYTES)
        return; /* in a batch, another launch processes this item */
    const uint32_t tile = first_tile + place.unit, tile_bytes = sw_tile_bytes(layout, tile);
    const uint8_t *frame = (const uint8_t *)place.item.d_frame;
    const sw_tile_record record = ((const sw_tile_record *)(frame + layout.records_offset))[tile];
    const uint64_t data_units = (layout.frame_bytes - layout.data_offset) / SW_UNIT_BYTES;
    const uint32_t units =
        lane < SW_LZ_TILE_BLOCKS
            ? ((const uint16_t *)(frame + layout.counts_offset + (uint64_t)tile * SW_LZ_COUNT_BYTES))[lane]
            : 0;
    const uint32_t whole = sw_lz_units(sw_bytes_left(tile_bytes, lane * SW_LZ_BLOCK_BYTES, SW_LZ_BLOCK_BYTES));
    const uint32_t first_unit = sw_warp_exclusive_sum(units, lane);
    bool is_good = __all_sync(ALL, units <= whole && record.offset16 + (uint64_t)first_unit + units <= data_units);
    uint8_t *out = (uint8_t *)place.item.d_raw + (uint64_t)place.unit * SW_NUMBERS_TILE_BYTES;
    uint32_t hash = 0;
    for (uint32_t b = warp; is_good && b * SW_LZ_BLOCK_BYTES < tile_bytes; b += SW_DECODE_WARPS) {
        const uint32_t bytes = sw_bytes_left(tile_bytes, b * SW_LZ_BLOCK_BYTES, SW_LZ_BLOCK_BYTES);
        const uint64_t unit = record.offset16 + (uint64_t)__shfl_sync(ALL, first_unit, b);
        uint32_t x[share::WORDS];
        is_good = decode_block<BYTES>(stages[warp], frame + layout.data_offset + unit * SW_UNIT_BYTES,
                                      __shfl_sync(ALL, units, b), bytes, lane, x);
        sw_store_content<share::UNITS>(out + b * SW_LZ_BLOCK_BYTES, bytes, lane, x);
        hash += sw_hash_blocks<share::BLOCKS>(x, tile * SW_HASH_TILE_BLOCKS + b, bytes, lane);
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

template <unsigned BYTES, unsigned WORDS_BACK, class ITEMS>
void launch_encode(const sw_gpu_encode_job<ITEMS> *job, uint32_t window) {
    if constexpr (WORDS_BACK * SW_WARP * shape<BYTES>::PER_WORD < SW_LZ_MAX_DISTANCE)
        if (window > WORDS_BACK * SW_WARP * shape<BYTES>::PER_WORD) {
            launch_encode<BYTES, 2 * WORDS_BACK>(job, window);
            return;
        }
    encode_tile<BYTES, WORDS_BACK><<<job->items.n_units, ENCODE_THREADS, 0, job->stream>>>(job->items, window);
}

template <unsigned BYTES, class ITEMS> void launch_decode(const sw_gpu_decode_job<ITEMS> *job) {
    decode_tile<BYTES><<<job->items.n_units, SW_DECODE_WARPS * SW_WARP, 0, job->stream>>>(job->items, job->first_tile);
}

} // namespace

template <class ITEMS> static void sw_lz_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    const unsigned symbol_bytes = sw_lz_symbol_bytes(job->plan->value_type);
    const uint32_t window = sw_lz_window(job->plan->own[SW_LZ_WINDOW], symbol_bytes);
    if (symbol_bytes == 1)
        launch_encode<1, 1>(job, window);
    else if (symbol_bytes == 2)
        launch_encode<2, 1>(job, window);
    else
        launch_encode<4, 1>(job, window);
}

template <class ITEMS> static void sw_lz_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    if (job->value_bits & 8)
        launch_decode<1>(job);
    if (job->value_bits & 16)
        launch_decode<2>(job);
    if (job->value_bits & (32 | 64))
        launch_decode<4>(job);
}

SW_GPU_CODEC(lz, 1);
