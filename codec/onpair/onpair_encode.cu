/* onpair_encode.cu - encodes by a dictionary on the GPU: onpair's part of streams_encode.cuh.
 *
 * The index of onpair_core.h is in shared memory: 148 KiB for 4095 symbols, 75 KiB for 2047. The host has made it. A
 * search takes four probes of two buckets, and compares one text. */
#include "codec/onpair/onpair_gpu.cuh"
#include "codec/streams/streams_encode.cuh"

namespace {

template <uint32_t LOG2> struct onpair_code {
    struct lookup {
        uint4 units[(36u << LOG2) / 16 + 32];
    };
    static constexpr uint32_t RING_WORDS = 16,
                              RING_COPIES = 4; /* the first four words again, for windows of 16 bytes */
    static constexpr uint32_t MOST_THREADS = 512, SLOT_PIECES = 2;
    static constexpr uint32_t SPARE_ROWS = 2; /* two symbols make 48 bits at most; and a row that is not full */
    static constexpr bool HAS_DICTIONARY = true;
    using source_t = uint4;
    sw_onpair_index index;

    static const uint4 *source_of(const sw_gpu_plan *plan) {
        return (const uint4 *)plan->d_index;
    }

    template <uint32_t THREADS> static __device__ inline void build(lookup &shared, const uint4 &first) {
        const uint4 *from = &first;
        for (uint32_t i = threadIdx.x; i < sizeof shared / sizeof(uint4); i += THREADS)
            shared.units[i] = __ldg(from + i);
    }

    __device__ inline onpair_code(const lookup &shared, const uint4 &)
        : index(sw_onpair_index_at((void *)shared.units, LOG2)) {}

    template <class SOURCE> static __device__ inline void begin(cursor &c, const SOURCE &in) {
        fill_ring<onpair_code>(c, in);
    }

    /* Encodes the next symbol. left: bytes to the segment's end; 16 or more count the same. */
    template <class SOURCE, class PUT>
    __device__ inline void encode_one(cursor &c, const SOURCE &in, uint32_t left, PUT &put) const {
        const uint32_t *word = in.ring + (c.at / 32 % RING_WORDS) * in.threads;
        uint32_t next = word[0], text[4];
#pragma unroll
        for (uint32_t i = 0; i < 4; i++) {
            const uint32_t low = next;
            next = word[(i + 1) * in.threads];
            text[i] = __funnelshift_r(low, next, c.at);
        }
        const uint32_t code = sw_onpair_find(&index, text, left), bytes = sw_onpair_symbol_bytes(code);
        const uint32_t code_bits = sw_onpair_code_bits(code), literal = bytes ? 0 : text[0] & 0xFF; /* 0: the escape */
        append(c, put, (code & 0xFFFF) | literal << code_bits, code_bits + (bytes ? 0 : 8));
        c.at += bytes ? 8 * bytes : 8;
    }

    template <class SOURCE, class PUT>
    __device__ inline void run(cursor &c, const SOURCE &in, uint32_t stop, PUT put) const {
        units_ahead<onpair_code, SOURCE> ahead(c, in);
        /* Two symbols take at most 32 bytes, so both need only one check of the segment's end and of the ring. */
        while (c.at + 2 * 8 * SW_ONPAIR_MAX_BYTES <= c.end && c.row < stop) {
            encode_one(c, in, SW_ONPAIR_MAX_BYTES, put);
            encode_one(c, in, SW_ONPAIR_MAX_BYTES, put);
            ahead.refill(c, in);
        }
        while (c.at < c.end && c.row < stop)
            encode_one(c, in, (c.end - c.at) / 8, put);
        append_rest(c, put);
    }
};

using small = onpair_code<SW_ONPAIR_MIN_LOG2>;
using large = onpair_code<SW_ONPAIR_MAX_LOG2>;
static_assert(SW_ONPAIR_MAX_LOG2 == SW_ONPAIR_MIN_LOG2 + 1, "two shapes");

} // namespace

static cudaError_t init() {
    cudaError_t e = init_encoder<small>();
    if (e == cudaSuccess)
        e = init_encoder<large>();
    if (e == cudaSuccess)
        e = sw_onpair_gpu_init_learning();
    return e == cudaSuccess ? sw_onpair_gpu_init_decoder() : e;
}

static bool can_encode(const sw_gpu_plan *plan) {
    if (plan->index_log2 == SW_ONPAIR_MAX_LOG2)
        return shape_for<large>(UINT32_MAX / 2).threads;
    return plan->index_log2 == SW_ONPAIR_MIN_LOG2 && shape_for<small>(UINT32_MAX / 2).threads;
}

static uint32_t most_pieces_of_both() {
    return max(most_pieces<small>(), most_pieces<large>());
}

template <class ITEMS> static void sw_onpair_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    if (job->plan->index_log2 == SW_ONPAIR_MAX_LOG2)
        encode<large>(job);
    else
        encode<small>(job);
}

/* Encoding may fit for no dictionary (can_encode). */
static size_t shared_bytes(size_t limit) {
    const size_t decoder = sw_onpair_gpu_decoder_bytes(limit);
    return decoder ? max(decoder, max(encoder_bytes<small>(limit), encoder_bytes<large>(limit))) : 0;
}

SW_GPU_CODEC(onpair, SW_STREAMS_UNIT_TILES, init, shared_bytes, most_pieces_of_both, can_encode);
