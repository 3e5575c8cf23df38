/* onpair_decode.cu - decodes by a dictionary on the GPU: onpair's part of streams_decode.cuh.
 *
 * The symbols' texts are in shared memory, 16 bytes each, so that a code takes one wide load. If a block has less than
 * 85 KiB, only their places are there, and texts come from the frame's dictionary. Lanes decode a code each
 * in step, so they are at nearly the same place of their streams, and load neighboring words. */
#include "codec/onpair/onpair_gpu.cuh"
#include "codec/streams/streams_decode.cuh"

namespace {

constexpr uint32_t NUMBERS = SW_ONPAIR_MAX_SYMBOLS + 1; /* symbols, the escape, and numbers that are neither */
constexpr uint32_t NO_SYMBOL_BYTES = 255;
/* Codes between two looks whether the stage can be flushed. */
constexpr uint32_t CODES_PER_FLUSH = 3;
static_assert(8 * STAGE_PAIRS >= FLUSH_BYTES - 8 + 7 + CODES_PER_FLUSH * SW_ONPAIR_MAX_BYTES,
              "left over, in acc, and from each code");

/* Codes of a class: in the low 4 bits how many raw bits they have, above them the first one's number. */
__device__ inline uint32_t class_of(const uint8_t *section, uint32_t c) {
    uint32_t first = 0, raw_bits = 0;
    for (uint32_t i = 0; i <= c; i++) {
        first += i ? 1u << raw_bits : 0;
        raw_bits = min(section[8 + i / 2] >> 4 * (i % 2) & 15u, (uint32_t)SW_ONPAIR_MAX_RAW_BITS);
    }
    return raw_bits | first << 4;
}

/* Returns 16 bytes at any place of a section, which continues after them or ends at a multiple of 16. */
__device__ inline uint4 load_text(const uint8_t *section, uint32_t at) {
    const uint32_t *word = (const uint32_t *)(section + at / 4 * 4), shift = at % 4 * 8;
    uint32_t v[5];
#pragma unroll
    for (uint32_t i = 0; i < 5; i++)
        v[i] = i < 4 || shift ? word[i] : 0;
    return make_uint4(__funnelshift_r(v[0], v[1], shift), __funnelshift_r(v[1], v[2], shift),
                      __funnelshift_r(v[2], v[3], shift), __funnelshift_r(v[3], v[4], shift));
}

/* Returns a text's first `bytes` bytes, padded with zeros. */
__device__ inline uint4 cut_text(uint4 v, uint32_t bytes) {
    const auto cut = [&](uint32_t word, uint32_t from) {
        return bytes <= from ? 0 : bytes - from < 4 ? word & ((1u << 8 * (bytes - from)) - 1) : word;
    };
    return make_uint4(cut(v.x, 0), cut(v.y, 4), cut(v.z, 8), cut(v.w, 12));
}

/* A text is padded with zeros: its surplus bytes would otherwise change the bytes after it. */
struct near_texts {
    uint4 text[NUMBERS];

    __device__ inline void begin(const uint8_t *) {}
    __device__ inline void put(const uint8_t *section, uint32_t number, uint32_t at, uint32_t length) {
        text[number] = length ? cut_text(load_text(section, at), length) : make_uint4(0, 0, 0, 0);
    }
    __device__ inline uint4 get(uint32_t number, uint32_t) const {
        return text[number];
    }
};
struct far_texts {
    const uint8_t *section;
    uint32_t at[NUMBERS];

    __device__ inline void begin(const uint8_t *frames_section) {
        section = frames_section;
    }
    __device__ inline void put(const uint8_t *, uint32_t number, uint32_t where, uint32_t) {
        at[number] = where;
    }
    __device__ inline uint4 get(uint32_t number, uint32_t length) const {
        if (length - 1 >= SW_ONPAIR_MAX_BYTES)
            return make_uint4(0, 0, 0, 0);
        return cut_text(load_text(section, at[number]), length);
    }
};

template <class TEXTS, uint32_t MOST> struct onpair_code {
    struct lookup {
        TEXTS texts;
        uint32_t classes[SW_ONPAIR_CLASSES];
        uint32_t sums[SW_WARP];
        uint8_t length[NUMBERS + 16]; /* 0: the escape; the last ones: of all greater numbers */
    };
    static constexpr uint32_t MOST_WARPS = MOST, MANY_TILES = 8;
    static constexpr bool IS_PERSISTENT = true;

    /* Reads the dictionary, which is not trusted: any text lies in the section, and any length is valid or
     * NO_SYMBOL_BYTES. `volatile` makes sure that a length is read only once. */
    template <uint32_t THREADS>
    static __device__ inline void build(lookup &shared, const uint8_t *frame, const sw_frame_layout &layout) {
        constexpr uint32_t EACH = NUMBERS / THREADS;
        static_assert(NUMBERS % THREADS == 0, "neighboring symbols for each thread");
        const uint8_t *section = frame + layout.dictionary_offset;
        const uint32_t bytes = (uint32_t)layout.dictionary_bytes, lane = threadIdx.x % SW_WARP,
                       warp = threadIdx.x / SW_WARP;
        const uint32_t said = bytes < SW_ONPAIR_HEAD_BYTES ? 0 : *(const volatile uint16_t *)section;
        const uint32_t text_offset = SW_ONPAIR_HEAD_BYTES + (said + 15) / 16 * 16;
        const bool is_good = bytes >= text_offset && said < NUMBERS;
        const uint32_t n = is_good ? said : 0, first = threadIdx.x * EACH;
        if (threadIdx.x < SW_ONPAIR_CLASSES)
            shared.classes[threadIdx.x] = is_good ? class_of(section, threadIdx.x) : 0;
        if (threadIdx.x == 0)
            shared.texts.begin(section);
        if (threadIdx.x < 16)
            shared.length[NUMBERS + threadIdx.x] = NO_SYMBOL_BYTES;
        uint32_t length[EACH], sum = 0;
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            length[i] = first + i < n ? ((const volatile uint8_t *)section)[SW_ONPAIR_HEAD_BYTES + first + i] : 0;
            sum += length[i];
        }
        const uint32_t before_lane = sw_warp_exclusive_sum(sum, lane);
        if (lane == SW_WARP - 1)
            shared.sums[warp] = before_lane + sum;
        __syncthreads();
        uint32_t at = text_offset + before_lane;
        for (uint32_t i = 0; i < warp; i++)
            at += shared.sums[i];
#pragma unroll
        for (uint32_t i = 0; i < EACH; i++) {
            const bool is_symbol =
                first + i < n && length[i] - 1 < SW_ONPAIR_MAX_BYTES && at + SW_ONPAIR_MAX_BYTES <= bytes;
            shared.length[first + i] = is_symbol                   ? (uint8_t)length[i]
                                       : is_good && first + i == n ? 0
                                                                   : (uint8_t)NO_SYMBOL_BYTES;
            shared.texts.put(section, first + i, at, is_symbol ? length[i] : 0);
            at += length[i];
        }
    }

    /* Decodes a coded segment; true: it has exactly out_bytes. */
    template <int ALIGN>
    static __device__ inline bool decode_segment(const lookup &shared, const words &in, writer &w, uint32_t out_bytes) {
        /* The stream's bits from `at` on: of two words, and of the word after them, which is loaded early. */
        uint32_t low = in.get(0), high = in.get(1), next = in.get(2), i = 3, at = 0, left = out_bytes;
        while (left) {
#pragma unroll
            for (uint32_t k = 0; k < CODES_PER_FLUSH; k++) {
                if (!left)
                    break;
                const uint32_t bits = __funnelshift_r(low, high, at);
                const uint32_t cls = shared.classes[bits % SW_ONPAIR_CLASSES], raw_bits = cls % 16;
                const uint32_t raw = bits >> SW_ONPAIR_CLASS_BITS & ((1u << raw_bits) - 1);
                const uint32_t number = min((cls >> 4) + raw, NUMBERS);
                uint32_t length = shared.length[number];
                uint4 text = shared.texts.get(number % NUMBERS, length);
                at += SW_ONPAIR_CLASS_BITS + raw_bits;
                if (length == 0) { /* the escape: a byte follows */
                    text.x = bits >> (SW_ONPAIR_CLASS_BITS + raw_bits) & 0xFF;
                    length = 1;
                    at += 8;
                }
                if (length > min(left, (uint32_t)SW_ONPAIR_MAX_BYTES)) /* too long, or not a symbol */
                    return false;
                append(w, (uint64_t)text.y << 32 | text.x, min(length, 8u));
                if (length > 8)
                    append(w, (uint64_t)text.w << 32 | text.z, length - 8);
                left -= length;
                if (at >= 32) {
                    low = high;
                    high = next;
                    next = in.get(i++);
                    at -= 32;
                }
            }
            flush<ALIGN>(w);
        }
        /* Words before `low`: i - 3. */
        return 32 * (i - 3) + at <= 32 * in.count;
    }
};

using large = onpair_code<near_texts, 2 * MANY_WARPS>;
using small = onpair_code<far_texts, FEW_WARPS>;

} // namespace

cudaError_t sw_onpair_gpu_init_decoder() {
    return fits<large, FEW_WARPS>() ? init_decoder<large>() : init_decoder<small>();
}

size_t sw_onpair_gpu_decoder_bytes(size_t limit) {
    const size_t bytes = decoder_bytes<large>(limit);
    return bytes ? bytes : decoder_bytes<small>(limit);
}

template <class ITEMS> void sw_onpair_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    if (fits<large, FEW_WARPS>())
        decode<large>(job);
    else
        decode<small>(job);
}
template void sw_onpair_gpu_decode(const sw_gpu_decode_job<sw_gpu_single> *job);
template void sw_onpair_gpu_decode(const sw_gpu_decode_job<sw_gpu_batch> *job);
