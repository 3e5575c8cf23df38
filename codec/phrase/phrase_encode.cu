/* phrase_encode.cu - encodes phrases on the GPU: the codec's part of streams_encode.cuh.
 *
 * The index of phrase_core.h is in shared memory. A search takes eight steps that are the same in all lanes, and a few
 * more if phrases begin alike. The ring of 32 words has 64 bytes from any position on. A code takes at most these
 * bytes. Then four units of 16 bytes replace them, which were loaded one code earlier. */
#include "codec/phrase/phrase_gpu.cuh"
#include "codec/streams/streams_encode.cuh"

namespace {

constexpr uint32_t UNITS = SW_PHRASE_MAX_BYTES / 16; /* loaded at a time */

/* The text in a lane's ring from a position on. */
struct window {
    const uint32_t *ring;
    uint32_t threads, at, ring_words; /* at: in bits */

    __device__ inline uint32_t get(uint32_t i) const {
        return ring[(at / 32 + i) % ring_words * threads];
    }
};

__device__ inline uint64_t window_word(const void *p, uint32_t i) {
    const window *w = (const window *)p;
    const uint32_t a = w->get(2 * i), b = w->get(2 * i + 1), c = w->get(2 * i + 2);
    const uint32_t low = __funnelshift_r(a, b, w->at), high = __funnelshift_r(b, c, w->at);
    return (uint64_t)__byte_perm(low, 0, 0x0123) << 32 | __byte_perm(high, 0, 0x0123);
}

struct phrase_code : learned_params {
    using lookup = sw_phrase_index;
    static constexpr uint32_t RING_WORDS = 2 * SW_PHRASE_MAX_BYTES / 4, RING_COPIES = 0;
    static constexpr uint32_t MOST_THREADS = 1024, SLOT_PIECES = 1; /* phrases are chosen for much shorter frames */
    static constexpr uint32_t SPARE_ROWS = 2; /* run() passes its last row by one, and writes one that is not full */
    const lookup &index;

    /* First expand the texts as bytes. Then convert their words to numbers that are ordered like the bytes. */
    template <uint32_t THREADS> static __device__ inline void build(lookup &index, const sw_params &table) {
        sw_phrase_write_out<THREADS>(index.word, index.length, table.value, table.length, table.n_symbols);
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < 256; c += THREADS)
            for (uint32_t i = 0; i < SW_PHRASE_WORDS; i++) {
                const uint64_t v = index.word[c][i];
                const uint64_t swapped =
                    (uint64_t)__byte_perm((uint32_t)v, 0, 0x0123) << 32 | __byte_perm((uint32_t)(v >> 32), 0, 0x0123);
                index.word[c][i] = c < table.n_symbols ? swapped : ~0ull;
            }
        if (threadIdx.x == 0)
            index.n = table.n_symbols;
        __syncthreads();
        for (uint32_t c = threadIdx.x; c < table.n_symbols; c += THREADS)
            sw_phrase_index_one(&index, c);
    }

    __device__ inline phrase_code(const lookup &index, const sw_params &) : index(index) {}

    /* Puts as many units into the ring as there is room for. It never overwrites bytes that are still to be coded. */
    template <class SOURCE> static __device__ inline void refill(cursor &c, const SOURCE &in) {
        const uint32_t n = (c.at / 32 * 4 + 4 * RING_WORDS - c.loaded) / 16;
        uint4 v[UNITS];
#pragma unroll
        for (uint32_t u = 0; u < UNITS; u++)
            if (u < n)
                v[u] = in.load(c.loaded + 16 * u);
#pragma unroll
        for (uint32_t u = 0; u < UNITS; u++) {
            if (u >= n)
                continue;
            put_unit<RING_WORDS, RING_COPIES>(in.ring, in.threads, c.loaded, v[u]);
            if (c.loaded < in.in_bytes)
                c.hash = in.hash(c.hash, v[u], c.loaded);
            c.loaded += 16;
        }
    }

    template <class SOURCE> static __device__ inline void begin(cursor &c, const SOURCE &in) {
        c.loaded = c.at / 8 / 16 * 16;
        refill(c, in);
    }

    template <class SOURCE, class PUT>
    __device__ inline void run(cursor &c, const SOURCE &in, uint32_t stop, PUT put) const {
        while (c.at < c.end && c.row < stop) {
            /* If one lane must refill its ring, all lanes refill together, which costs no more than that one lane. */
            const bool must = c.loaded - c.at / 8 < SW_PHRASE_MAX_BYTES && c.loaded < in.in_bytes;
            if (__any_sync(__activemask(), must))
                refill(c, in);
            const window w = {in.ring, in.threads, c.at, RING_WORDS};
            const uint32_t left = min((c.end - c.at) / 8, (uint32_t)SW_PHRASE_MAX_BYTES);
            const uint32_t code = sw_phrase_find(&index, window_word, &w, left);
            const bool escape = code == SW_PHRASE_MAX;
            const uint32_t literal = w.get(0) >> (c.at % 32) & 0xFF;
            append(c, put, escape ? SW_STREAMS_ESCAPE | literal << 8 : code, escape ? 16 : 8);
            c.at += escape ? 8 : 8 * index.length[code];
        }
        append_rest(c, put);
    }
};

} // namespace

static cudaError_t init() {
    const cudaError_t e = init_encoder<phrase_code>();
    return e == cudaSuccess ? sw_phrase_gpu_init_decoder() : e;
}

template <class ITEMS> static void sw_phrase_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    encode<phrase_code>(job);
}

static size_t shared_bytes(size_t limit) {
    return sw_gpu_larger(encoder_bytes<phrase_code>(limit), sw_phrase_gpu_decoder_bytes(limit));
}

SW_GPU_CODEC(phrase, SW_STREAMS_UNIT_TILES, init, shared_bytes, most_pieces<phrase_code>);
