/* huffman_decode.cu - decodes values by their parts' codes on the GPU: the codec's part of streams_decode.cuh.
 *
 * A table has an entry for the next SW_HUFFMAN_MAX_BITS bits of a stream, so a code takes one look-up in shared memory.
 * All lanes decode the same number of values, and so flush together. */
#include "codec/huffman/huffman_gpu.cuh"
#include "codec/streams/streams_decode.cuh"

namespace {

/* The bits of a stream. */
struct bits_reader {
    const words &in;
    uint64_t acc;
    uint32_t bits, next, taken; /* next: a word that was loaded ahead; taken: words before it */

    __device__ inline explicit bits_reader(const words &stream)
        : in(stream), acc(0), bits(0), next(stream.get(0)), taken(0) {}

    /* Makes sure that acc has 32 bits. */
    __device__ inline void fill() {
        if (bits < 32) {
            acc |= (uint64_t)next << bits;
            bits += 32;
            next = in.get(++taken);
        }
    }
    __device__ inline void skip(uint32_t n) {
        acc >>= n;
        bits -= n;
    }
    __device__ inline uint32_t take(uint32_t n) {
        fill();
        const uint32_t v = (uint32_t)acc & (0xFFFFFFFFu >> (32 - n));
        skip(n);
        return v;
    }
    /* Returns whether all bits that were taken are there. */
    __device__ inline bool is_good() const {
        return 32 * taken - bits <= 32 * in.count;
    }
};

struct huffman_code : small_tables {
    struct lookup {
        uint16_t entry[SW_HUFFMAN_MAX_TABLES][SW_HUFFMAN_ENTRIES];
        sw_huffman_section section;
    };

    template <uint32_t THREADS>
    static __device__ inline void build(lookup &shared, const uint8_t *frame, const sw_frame_layout &layout) {
        for (uint32_t i = threadIdx.x; i < sizeof shared.entry / 16; i += THREADS)
            ((uint4 *)shared.entry)[i] = make_uint4(0, 0, 0, 0);
        sw_huffman_read_section<THREADS>(
            shared.section, (const uint64_t *)(frame + SW_FRAME_HEADER_BYTES), layout.n_symbols,
            [&](uint32_t table, uint32_t symbol, uint32_t start, uint32_t length) {
                const uint16_t entry = sw_huffman_entry(symbol, length);
                for (uint32_t i = sw_huffman_bits(start, length); i < SW_HUFFMAN_ENTRIES; i += 1u << length)
                    shared.entry[table][i] = entry;
            });
    }

    /* Takes a table's next entry; 0: there is no such code. */
    static __device__ inline uint32_t take_entry(const lookup &shared, bits_reader &r, uint32_t table) {
        r.fill();
        const uint32_t entry = shared.entry[table][(uint32_t)r.acc % SW_HUFFMAN_ENTRIES];
        r.skip(entry >> 8 & 15);
        return entry;
    }

    template <uint32_t PARTS> static __device__ inline sw_huffman_value take_escaped(bits_reader &r) {
        sw_huffman_value v = {0, 0};
#pragma unroll
        for (uint32_t part = 0; part < PARTS; part += 4)
            sw_huffman_add_part(&v, part, r.take(PARTS < 4 ? 8 * PARTS : 32));
        return v;
    }

    /* false: there is no such code. */
    template <uint32_t PARTS>
    static __device__ inline bool take_value(const lookup &shared, const sw_huffman_shape &s, bits_reader &r,
                                             sw_huffman_value &ret) {
        bool is_good = true;
        ret = s.constant;
        for (uint32_t table = 0; table < (PARTS == 1 ? 1 : s.n_tables); table++) {
            const uint32_t entry = take_entry(shared, r, table);
            if (entry & SW_HUFFMAN_IS_ESCAPE) {
                ret = take_escaped<PARTS>(r);
                return true;
            }
            sw_huffman_add_part(&ret, PARTS == 1 ? 0 : sw_huffman_coded_part(&s, table), entry & 0xFF);
            is_good = is_good && entry;
        }
        for (uint32_t i = 0; PARTS > 1 && i < s.n_runs; i++) {
            const sw_huffman_run run = sw_huffman_run_of(&s, i);
            sw_huffman_add_part(&ret, run.first, r.take(8 * run.parts));
        }
        return is_good;
    }

    static __device__ inline uint64_t first_bytes(uint64_t v, uint32_t bytes) {
        return bytes < 8 ? v & ~(~0ull << 8 * bytes) : v;
    }

    /* It is not inlined, as in huffman_encode.cu. */
    template <int ALIGN, uint32_t PARTS>
    static __device__ __noinline__ bool decode_values(const lookup &shared, words in, writer &ret, uint32_t out_bytes) {
        const sw_huffman_shape s = shared.section.shape;
        writer w = ret;
        bits_reader r(in);
        bool is_good = true;
        for (uint32_t at = 0; at < out_bytes && is_good; at += PARTS < 8 ? 8 : PARTS) {
            uint64_t low = 0;
            const uint32_t left = out_bytes - at;
#pragma unroll
            for (uint32_t k = 0; k < 8; k += PARTS < 8 ? PARTS : 8) {
                sw_huffman_value v;
                if (k && k >= left)
                    break;
                is_good = take_value<PARTS>(shared, s, r, v) && is_good;
                v = sw_huffman_backward(&s, v);
                low |= v.low << 8 * k;
                if (PARTS == 16) {
                    append(w, first_bytes(low, left), min(8u, left));
                    low = v.high;
                }
            }
            if (PARTS < 16)
                append(w, first_bytes(low, left), min(8u, left));
            else if (left > 8)
                append(w, first_bytes(low, left - 8), min(8u, left - 8));
            flush<ALIGN>(w);
        }
        ret = w;
        return is_good && r.is_good();
    }

    /* Decodes a coded segment; true: it has exactly out_bytes. */
    template <int ALIGN>
    static __device__ inline bool decode_segment(const lookup &shared, const words &in, writer &w, uint32_t out_bytes) {
        if (shared.section.is_bad)
            return false;
        switch (shared.section.shape.parts) {
        case 1:
            return decode_values<ALIGN, 1>(shared, in, w, out_bytes);
        case 2:
            return decode_values<ALIGN, 2>(shared, in, w, out_bytes);
        case 4:
            return decode_values<ALIGN, 4>(shared, in, w, out_bytes);
        case 8:
            return decode_values<ALIGN, 8>(shared, in, w, out_bytes);
        default:
            return decode_values<ALIGN, 16>(shared, in, w, out_bytes);
        }
    }
};

} // namespace

cudaError_t sw_huffman_gpu_init_decoder() {
    return init_decoder<huffman_code>();
}

size_t sw_huffman_gpu_decoder_bytes(size_t limit) {
    return decoder_bytes<huffman_code>(limit);
}

template <class ITEMS> void sw_huffman_gpu_decode(const sw_gpu_decode_job<ITEMS> *job) {
    decode<huffman_code>(job);
}
template void sw_huffman_gpu_decode(const sw_gpu_decode_job<sw_gpu_single> *job);
template void sw_huffman_gpu_decode(const sw_gpu_decode_job<sw_gpu_batch> *job);
