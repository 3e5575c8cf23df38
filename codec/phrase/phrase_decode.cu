/* phrase_decode.cu - decodes phrases on the GPU: the codec's part of streams_decode.cuh. */
#include "codec/phrase/phrase_gpu.cuh"
#include "codec/streams/streams_decode.cuh"

namespace {

/* Whenever a phrase finds no room, at least FLUSH_BYTES are in the stage, so that they can be flushed. */
static_assert(8 * STAGE_PAIRS - 8 - SW_PHRASE_MAX_BYTES >= FLUSH_BYTES - 8,
              "else nothing could go, and it had no room");

struct phrase_code : small_tables {
    struct lookup {
        uint64_t word[256][SW_PHRASE_STRIDE];
        uint8_t length[256]; /* 0: not a phrase */
    };

    template <uint32_t THREADS>
    static __device__ inline void build(lookup &shared, const uint8_t *frame, const sw_frame_layout &layout) {
        const uint8_t *section = frame + SW_FRAME_HEADER_BYTES;
        const uint32_t n_symbols = layout.n_symbols;
        sw_phrase_write_out<THREADS>(shared.word, shared.length, (const uint64_t *)section, section + 8 * n_symbols,
                                     n_symbols);
    }

    /* Decodes a coded segment; true: it has exactly out_bytes. */
    template <int ALIGN>
    static __device__ inline bool decode_segment(const lookup &shared, const words &in, writer &w, uint32_t out_bytes) {
        uint32_t next = in.get(0), left = out_bytes;
        bool escaped = false;
        for (uint32_t i = 0; i < in.count && left; i++) {
            const uint32_t word = next;
            next = in.get(i + 1);
            for (uint32_t b = 0; b < 32 && left; b += 8) {
                const uint32_t code = word >> b & 0xFF;
                const bool escapes = code == SW_STREAMS_ESCAPE && !escaped;
                const uint32_t length = escapes ? 0 : escaped ? 1 : shared.length[code];
                if (!escapes && length - 1 >= left) /* not a phrase, or too long */
                    return false;
                /* If one lane has no room, all lanes with enough bytes flush together with it. */
                if (__any_sync(__activemask(), w.done - w.flushed + length + 8 > 8 * STAGE_PAIRS))
                    flush<ALIGN>(w);
                for (uint32_t at = 0; at < length; at += 8)
                    append(w, escaped ? code : shared.word[code][at / 8], min(8u, length - at));
                left -= length;
                escaped = escapes;
            }
        }
        return left == 0;
    }
};

} // namespace

cudaError_t sw_phrase_gpu_init_decoder() {
    return init_decoder<phrase_code>();
}

size_t sw_phrase_gpu_decoder_bytes(size_t limit) {
    return decoder_bytes<phrase_code>(limit);
}

template <class ITEMS> void sw_phrase_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    decode<phrase_code>(job);
}
template void sw_phrase_gpu_decode(const sw_gpu_decode_job<sw_gpu_single> *job);
template void sw_phrase_gpu_decode(const sw_gpu_decode_job<sw_gpu_batch> *job);
