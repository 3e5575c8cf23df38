/* v5t_encode.cu - encodes symbols on the GPU: v5t's part of streams_encode.cuh.
 *
 * It follows V5T and FSST (Boncz, Neumann, Leis, PVLDB 13(11), 2020). Three loads and two funnel shifts get a window of
 * 8 bytes at any position of the ring of 16 words. Two lookups in shared memory find the longest symbol: in a hash
 * table with entries of 8 bytes for symbols of 3 or more bytes, and in a 64 KiB table of 2-byte prefixes. On a GPU
 * whose blocks have less than 98 KiB of shared memory another table of prefixes takes 11 KiB. */
#include "codec/streams/streams_encode.cuh"
#include "codec/v5t/pairs_gpu.cuh"
#include "codec/v5t/table.h"
#include "codec/v5t/v5t_gpu.cuh"

namespace {

constexpr uint32_t RING_WORDS = 16; /* 64 bytes: 49 or more are valid when a group of symbols starts */
constexpr uint32_t RING_COPIES = 2; /* words 0 and 1 again, so that a window never wraps */

/* Symbols of 3 and more bytes: one 8-byte entry per hash slot.
 * x: tag 0-12, length - 3 13-15 (7: empty), code 16-23, byte 3 24-31; y: bytes 4 to 7. */
constexpr uint32_t EMPTY_ENTRY = 7u << SW_V5T_TAG_BITS;
static_assert(SW_V5T_TAG_BITS == 13, "the entry has room for 13 bits of tag");

/* First two bytes -> code of 1 or 2 bytes, or the escape. All threads of the block call build(); the caller
 * synchronizes. */
struct prefixes {
    static constexpr uint32_t MOST_THREADS = 640;
    uint8_t code[65536];

    __device__ inline uint32_t find(uint32_t pair) const {
        return code[pair];
    }
    /* The 256 pairs with the same second byte are a row of 256 bytes: all rows begin as the first one. */
    __device__ void build(const sw_params &table, uint32_t threads) {
        constexpr uint32_t ROW_UNITS = 256 / 16;
        if (threadIdx.x < ROW_UNITS)
            ((uint4 *)code)[threadIdx.x] = make_uint4(~0u, ~0u, ~0u, ~0u);
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < table.own[SW_V5T_N1]; c += threads) {
            const uint32_t n = table.own[SW_V5T_N2] + c;
            code[(uint32_t)table.value[n] & 0xFF] = (uint8_t)n;
        }
        __syncthreads();
        const uint4 row = ((const uint4 *)code)[threadIdx.x % ROW_UNITS];
        for (uint32_t i = ROW_UNITS + threadIdx.x; i < sizeof code / 16; i += threads)
            ((uint4 *)code)[i] = row;
        __syncthreads(); /* a 2-byte symbol replaces the 1-byte symbol that it starts with */
        for (uint32_t c = threadIdx.x; c < table.own[SW_V5T_N2]; c += threads)
            code[table.value[c]] = (uint8_t)c;
    }
};
struct small_prefixes {
    static constexpr uint32_t MOST_THREADS = 512; /* what 64 KiB of shared memory have room for */
    sw_v5t_pairs two;
    uint8_t one[256];

    __device__ inline uint32_t find(uint32_t pair) const {
        const uint32_t code = two.find(pair);
        return code != two.NONE ? code : one[pair & 0xFF];
    }
    __device__ void build(const sw_params &table, uint32_t threads) {
        for (uint32_t i = threadIdx.x; i < 256; i += threads)
            one[i] = SW_STREAMS_ESCAPE;
        two.build(table, threads); /* which synchronizes */
        for (uint32_t c = threadIdx.x; c < table.own[SW_V5T_N1]; c += threads)
            one[table.value[table.own[SW_V5T_N2] + c]] = (uint8_t)(table.own[SW_V5T_N2] + c);
    }
};

template <class PREFIXES> struct lookup {
    PREFIXES prefix;
    uint2 longer[1 << SW_V5T_HASH_LOG2];
};

/* Builds the tables. All threads of the block call it; the caller synchronizes. */
template <class PREFIXES>
__device__ void build_lookup(lookup<PREFIXES> &tables, const sw_params &table, uint32_t threads) {
    for (uint32_t i = threadIdx.x; i < 1u << SW_V5T_HASH_LOG2; i += threads)
        tables.longer[i] = make_uint2(EMPTY_ENTRY, 0);
    tables.prefix.build(table, threads); /* which synchronizes */
    const uint32_t n_short = table.own[SW_V5T_N2] + table.own[SW_V5T_N1];
    for (uint32_t c = threadIdx.x; c < table.n_symbols; c += threads) {
        const uint32_t low = (uint32_t)table.value[c], high = (uint32_t)(table.value[c] >> 32);
        if (c >= n_short) {
            const uint32_t tag = sw_v5t_mix3(low) & ((1u << SW_V5T_TAG_BITS) - 1);
            tables.longer[sw_v5t_hash3(low)] =
                make_uint2(tag | (table.length[c] - 3u) << SW_V5T_TAG_BITS | c << 16 | (low & 0xFF000000u), high);
        }
    }
}

struct symbol {
    uint32_t code, code_bits, input_bits;
};

__device__ inline uint2 window(const uint32_t *ring, uint32_t threads, uint32_t at) {
    const uint32_t *word = ring + (at / 32 % RING_WORDS) * threads;
    const uint32_t a = word[0], b = word[threads], c = word[2 * threads];
    return make_uint2(__funnelshift_r(a, b, at), __funnelshift_r(b, c, at));
}

/* Shifts left; a shift by 32 or more gives 0. */
__device__ inline uint32_t shift_left_clamped(uint32_t v, uint32_t bits) {
    return __funnelshift_lc(0, v, bits);
}

/* Finds the longest symbol at the window. TAIL: it must not be longer than left_bits. */
template <bool TAIL, class PREFIXES>
__device__ inline symbol match(const lookup<PREFIXES> &tables, uint32_t n2, uint2 w, uint32_t left_bits) {
    const uint32_t mix = sw_v5t_mix3(w.x);
    const uint2 entry = tables.longer[mix >> SW_V5T_TAG_BITS & ((1u << SW_V5T_HASH_LOG2) - 1)];
    const uint32_t prefix = tables.prefix.find(w.x & 0xFFFF);
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
            code = SW_STREAMS_ESCAPE;
            bits = 8;
        }
    }
    const bool escape = !hit && code == SW_STREAMS_ESCAPE;
    symbol s;
    s.input_bits = hit ? long_bits : bits;
    s.code = hit ? entry.x >> 16 & 0xFF : escape ? __byte_perm(w.x, 0xFF, 0x7704) : code;
    s.code_bits = escape ? 16 : 8;
    return s;
}

/* Encodes from the cursor's position on, until row `stop` or the segment's end (streams_encode.cuh). */
template <class CODE, class SOURCE, class PUT>
__device__ inline void run(const typename CODE::lookup &tables, uint32_t n2, cursor &c, const SOURCE &in, uint32_t stop,
                           PUT put) {
    units_ahead<CODE, SOURCE> ahead(c, in);
    /* Four symbols take at most 32 bytes, so a group needs only one check of the segment's end and of the ring. */
    while (c.at + 4 * 64 <= c.end && c.row < stop) {
#pragma unroll
        for (int pair = 0; pair < 2; pair++) {
            const symbol s = match<false>(tables, n2, window(in.ring, in.threads, c.at), 0);
            c.at += s.input_bits;
            const symbol t = match<false>(tables, n2, window(in.ring, in.threads, c.at), 0);
            c.at += t.input_bits;
            append(c, put, s.code | t.code << s.code_bits, s.code_bits + t.code_bits);
        }
        ahead.refill(c, in);
    }
    while (c.at < c.end && c.row < stop) {
        const symbol s = match<true>(tables, n2, window(in.ring, in.threads, c.at), c.end - c.at);
        c.at += s.input_bits;
        append(c, put, s.code, s.code_bits);
    }
    append_rest(c, put);
}

template <class PREFIXES> struct v5t_code : learned_params {
    using lookup = ::lookup<PREFIXES>;
    static constexpr uint32_t RING_WORDS = ::RING_WORDS, RING_COPIES = ::RING_COPIES;
    static constexpr uint32_t MOST_THREADS = PREFIXES::MOST_THREADS, SLOT_PIECES = 2;
    static constexpr uint32_t SPARE_ROWS = 2; /* run() passes its last row by one, and writes one that is not full */
    const lookup &tables;
    const uint32_t n2;

    template <uint32_t THREADS> static __device__ inline void build(lookup &tables, const sw_params &table) {
        build_lookup(tables, table, THREADS);
    }
    __device__ inline v5t_code(const lookup &tables, const sw_params &table)
        : tables(tables), n2(table.own[SW_V5T_N2]) {}
    template <class SOURCE> static __device__ inline void begin(cursor &c, const SOURCE &in) {
        fill_ring<v5t_code<PREFIXES>>(c, in);
    }
    template <class SOURCE, class PUT>
    __device__ inline void run(cursor &c, const SOURCE &in, uint32_t stop, PUT put) const {
        ::run<v5t_code<PREFIXES>>(tables, n2, c, in, stop, put);
    }
};

using large = v5t_code<prefixes>;
using small = v5t_code<small_prefixes>;

bool is_large(size_t limit) {
    return most_threads<large>(limit);
}

} // namespace

static cudaError_t init() {
    cudaError_t e = is_large(sw_gpu_shared_bytes()) ? init_encoder<large>() : init_encoder<small>();
    if (e == cudaSuccess)
        e = sw_v5t_gpu_init_decoder();
    return e == cudaSuccess ? sw_v5t_gpu_init_training() : e;
}

template <class ITEMS> static void sw_v5t_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    if (is_large(sw_gpu_shared_bytes()))
        encode<large>(job);
    else
        encode<small>(job);
}

static size_t shared_bytes(size_t limit) {
    const size_t encoder = is_large(limit) ? encoder_bytes<large>(limit) : encoder_bytes<small>(limit);
    return sw_gpu_larger(encoder, sw_gpu_larger(sw_v5t_gpu_decoder_bytes(limit), sw_v5t_gpu_training_bytes(limit)));
}

static uint32_t most_pieces_here() {
    return is_large(sw_gpu_shared_bytes()) ? most_pieces<large>() : most_pieces<small>();
}

SW_GPU_CODEC(v5t, SW_STREAMS_UNIT_TILES, init, shared_bytes, most_pieces_here);
