/* gsst_decode.cu - decodes symbols on the GPU: v5t's part of streams_decode.cuh.
 *
 * Rows are decoded without checks only while 32 more bytes fit, the most that four codes can produce. */
#include "codec/streams/streams_decode.cuh"
#include "codec/v5t/table.h"
#include "codec/v5t/v5t_gpu.cuh"

namespace {

constexpr uint32_t ROWS_AHEAD = 4;
/* The length of an invalid code. It stays visible in acc_bytes, because this code and each later code lower that by at
 * most
 * 8. So a check a whole round of rows later still finds it. */
constexpr uint32_t UNKNOWN_CODE_BYTES = 255;
static_assert(UNKNOWN_CODE_BYTES >= 8 + 8 * 4 * ROWS_AHEAD, "else other codes could make up for it");
/* Added to a code after an escape: the second half of the tables maps every byte to itself. */
constexpr uint32_t LITERAL = 256;

/* If lanes check only every second row, twice as many of them are ready for the same instructions. */
constexpr uint32_t ROWS_PER_FLUSH = 2;
static_assert(8 * STAGE_PAIRS >= FLUSH_BYTES - 8 + 7 + ROWS_PER_FLUSH * 32, "left over, in acc, and from each row");

struct v5t_code : small_tables {
    struct lookup {
        uint2 value[2 * LITERAL];
        uint8_t length[2 * LITERAL];
    };

    template <uint32_t THREADS>
    static __device__ inline void build(lookup &shared, const uint8_t *frame, const sw_frame_layout &layout) {
        const uint8_t *section = frame + SW_FRAME_HEADER_BYTES;
        const uint32_t n_symbols = layout.n_symbols;
        for (uint32_t c = threadIdx.x; c < LITERAL; c += THREADS) {
            uint2 v = make_uint2(0, 0);
            uint32_t length = c == SW_STREAMS_ESCAPE ? 0 : UNKNOWN_CODE_BYTES;
            if (c < n_symbols) {
                v = ((const uint2 *)section)[c];
                length = section[8 * n_symbols + c];
                if (length < 1 || length > SW_V5T_MAX_SYMBOL_BYTES)
                    length = UNKNOWN_CODE_BYTES;
            }
            /* Bytes above the length would leak into what follows. */
            if (length < 4)
                v = make_uint2(length ? v.x & (0xFFFFFFFFu >> (32 - 8 * length)) : 0, 0);
            else if (length < 8)
                v.y = length == 4 ? 0 : v.y & (0xFFFFFFFFu >> (64 - 8 * length));
            shared.value[c] = v;
            shared.length[c] = (uint8_t)length;
            shared.value[LITERAL + c] = make_uint2(c, 0);
            shared.length[LITERAL + c] = 1;
        }
    }

    /* escaped: 0, or LITERAL after an escape. */
    static __device__ inline void decode_code(const lookup &shared, writer &w, uint32_t code, uint32_t &escaped) {
        code |= escaped;
        const uint2 v = shared.value[code];
        append(w, (uint64_t)v.y << 32 | v.x, shared.length[code]);
        escaped = code == SW_STREAMS_ESCAPE ? LITERAL : 0;
    }

    /* Decodes a coded segment; true: it has exactly out_bytes. */
    template <int ALIGN>
    static __device__ inline bool decode_segment(const lookup &shared, const words &in, writer &w, uint32_t out_bytes) {
        uint32_t ahead[ROWS_AHEAD], i = 0, escaped = 0;
        bool room = true;
#pragma unroll
        for (uint32_t k = 0; k < ROWS_AHEAD; k++)
            ahead[k] = in.get(k);
        while (room) {
#pragma unroll
            for (uint32_t k = 0; k < ROWS_AHEAD; k++) {
                room = room && i < in.count && w.done + w.acc_bytes + 32 <= out_bytes;
                if (room) {
                    const uint32_t word = ahead[k];
                    ahead[k] = in.get(i + ROWS_AHEAD);
                    i++;
#pragma unroll
                    for (int b = 0; b < 4; b++)
                        decode_code(shared, w, word >> 8 * b & 0xFF, escaped);
                }
                if (k % ROWS_PER_FLUSH == ROWS_PER_FLUSH - 1)
                    flush<ALIGN>(w);
            }
            room = room && w.acc_bytes < 8;
        }
        if (w.acc_bytes >= 8)
            return false;
        while (i < in.count && w.done + w.acc_bytes < out_bytes) {
            const uint32_t word = in.get(i++);
            for (int b = 0; b < 4 && w.done + w.acc_bytes < out_bytes; b++) {
                const uint32_t code = word >> 8 * b & 0xFF;
                if (shared.length[code | escaped] > out_bytes - w.done - w.acc_bytes)
                    return false;
                decode_code(shared, w, code, escaped);
            }
            flush<ALIGN>(w);
        }
        return w.done + w.acc_bytes == out_bytes && w.acc_bytes < 8;
    }
};

} // namespace

cudaError_t sw_v5t_gpu_init_decoder() {
    return init_decoder<v5t_code>();
}

size_t sw_v5t_gpu_decoder_bytes(size_t limit) {
    return decoder_bytes<v5t_code>(limit);
}

template <class ITEMS> void sw_v5t_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    decode<v5t_code>(job);
}
template void sw_v5t_gpu_decode(const sw_gpu_decode_job<sw_gpu_single> *job);
template void sw_v5t_gpu_decode(const sw_gpu_decode_job<sw_gpu_batch> *job);
