/* huffman_gpu.cuh - reads a frame's or a plan's tables in a block's shared memory, for encoder and decoder. */
#ifndef SW_HUFFMAN_GPU_CUH
#define SW_HUFFMAN_GPU_CUH

#include "codec/codec_gpu.cuh"
#include "codec/huffman/huffman_core.h"

/* huffman_decode.cu, for the row. */
cudaError_t sw_huffman_gpu_init_decoder();
size_t sw_huffman_gpu_decoder_bytes(size_t limit);
template <class ITEMS> void sw_huffman_gpu_decode(const sw_gpu_decode_job<ITEMS> *job);

/* A section in shared memory. */
struct sw_huffman_section {
    static constexpr uint32_t MAX_WORDS = SW_HUFFMAN_TABLES + SW_HUFFMAN_MAX_TABLES * SW_HUFFMAN_TABLE_WORDS;
    uint64_t words[MAX_WORDS];
    uint8_t length[SW_HUFFMAN_MAX_TABLES][SW_HUFFMAN_SYMBOLS];
    sw_huffman_shape shape; /* without parts: there are no tables, or they are invalid */
    uint32_t is_bad;
};

/* Reads a section of n_symbols, which is not trusted. Calls use(table, symbol, start, length) for each code, in any
 * order. All threads of the block call it; the caller synchronizes. `volatile` makes sure that words are read only
 * once: the client can still write to the memory of a packed frame. */
template <uint32_t THREADS, class F>
__device__ void sw_huffman_read_section(sw_huffman_section &s, const uint64_t *words, uint32_t n_symbols, F use) {
    for (uint32_t i = threadIdx.x; i < n_symbols && i < s.MAX_WORDS; i += THREADS)
        s.words[i] = ((const volatile uint64_t *)words)[i];
    __syncthreads();
    if (threadIdx.x == 0) {
        s.is_bad = n_symbols < SW_HUFFMAN_TABLES || n_symbols > s.MAX_WORDS ||
                   !sw_huffman_shape_read(&s.shape, s.words, n_symbols);
        if (s.is_bad)
            s.shape.parts = s.shape.n_tables = 0;
    }
    __syncthreads();
    const uint32_t n = s.shape.n_tables * SW_HUFFMAN_SYMBOLS;
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const uint32_t table = i / SW_HUFFMAN_SYMBOLS, symbol = i % SW_HUFFMAN_SYMBOLS;
        s.length[table][symbol] =
            symbol != SW_HUFFMAN_ESCAPE
                ? sw_huffman_length(s.words + SW_HUFFMAN_TABLES + table * SW_HUFFMAN_TABLE_WORDS, symbol)
            : table ? 0
                    : s.shape.escape_bits;
    }
    __syncthreads();
    for (uint32_t i = threadIdx.x; i < n; i += THREADS) {
        const uint32_t table = i / SW_HUFFMAN_SYMBOLS, symbol = i % SW_HUFFMAN_SYMBOLS;
        const uint32_t length = s.length[table][symbol];
        uint32_t start = 0; /* where its code begins: behind those of shorter codes, and of lower symbols */
        for (uint32_t k = 0; length && k < SW_HUFFMAN_SYMBOLS; k++) {
            const uint32_t other = s.length[table][k];
            if (other && (other < length || (other == length && k < symbol)))
                start += SW_HUFFMAN_ENTRIES >> other;
        }
        if (length > SW_HUFFMAN_MAX_BITS || start + (SW_HUFFMAN_ENTRIES >> length) > SW_HUFFMAN_ENTRIES)
            s.is_bad = 1;
        else if (length)
            use(table, symbol, start, length);
    }
}

#endif
