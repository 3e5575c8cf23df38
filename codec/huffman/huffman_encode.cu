/* huffman_encode.cu - encodes values by their parts' codes on the GPU: the codec's part of streams_encode.cuh.
 *
 * A unit of 16 bytes has whole values of any length, so a lane needs no ring: it encodes a unit from registers, while
 * it loads the next one. */
#include "codec/huffman/huffman_gpu.cuh"
#include "codec/streams/streams_encode.cuh"

namespace {

struct huffman_code : learned_params {
    struct lookup {
        uint16_t code[SW_HUFFMAN_MAX_TABLES][SW_HUFFMAN_SYMBOLS + 7]; /* 16-byte aligned rows */
        sw_huffman_section section;
        uint32_t padding;
    };
    static constexpr uint32_t RING_WORDS = 0, RING_COPIES = 0;
    static constexpr uint32_t MOST_THREADS = 512, SLOT_PIECES = 2;
    static constexpr uint32_t SPARE_ROWS = 11; /* of a unit of escapes, and a word that is not full */
    const lookup &tables;
    const sw_huffman_shape shape;

    template <uint32_t THREADS> static __device__ inline void build(lookup &tables, const sw_params &params) {
        for (uint32_t i = threadIdx.x; i < sizeof tables.code / 16; i += THREADS)
            ((uint4 *)tables.code)[i] = make_uint4(0, 0, 0, 0);
        sw_huffman_read_section<THREADS>(tables.section, params.value, params.n_symbols,
                                         [&](uint32_t table, uint32_t symbol, uint32_t start, uint32_t length) {
                                             tables.code[table][symbol] = sw_huffman_code(start, length);
                                         });
    }

    __device__ inline explicit huffman_code(const lookup &tables) : tables(tables), shape(tables.section.shape) {}
    __device__ inline huffman_code(const lookup &tables, const sw_params &) : huffman_code(tables) {}

    template <class SOURCE> static __device__ inline void begin(cursor &c, const SOURCE &) {
        c.loaded = c.at / 8;
    }

    /* Adds up to 64 bits. */
    template <class PUT> static __device__ inline void add(cursor &c, PUT &put, uint64_t bits, uint32_t n_bits) {
        append(c, put, (uint32_t)bits, min(n_bits, 32u));
        if (n_bits > 32)
            append(c, put, (uint32_t)(bits >> 32), n_bits - 32);
    }

    /* A value's codes, at most 64 bits with its raw parts if it has up to 4 parts, else without them. */
    struct codes {
        uint64_t bits;
        uint32_t n_bits;
        bool are_there; /* else it needs an escape */
    };

    template <uint32_t PARTS> __device__ inline codes codes_of(sw_huffman_value v) const {
        codes ret = {0, 0,
                     ((v.low & shape.is_constant.low) ^ shape.constant.low) == 0 &&
                         ((v.high & shape.is_constant.high) ^ shape.constant.high) == 0};
        for (uint32_t table = 0; table < (PARTS == 1 ? 1 : shape.n_tables); table++) {
            const uint32_t part = PARTS == 1 ? 0 : sw_huffman_coded_part(&shape, table);
            const uint32_t code = tables.code[table][sw_huffman_part(v, part)];
            ret.are_there = ret.are_there && code;
            ret.bits |= (uint64_t)(code & 0xFFF) << ret.n_bits;
            ret.n_bits += code >> 12;
        }
        return ret;
    }

    __device__ inline uint32_t escape() const {
        return tables.code[0][SW_HUFFMAN_ESCAPE] & 0xFFF;
    }

    template <class PUT> __device__ inline void put_runs(cursor &c, PUT &put, sw_huffman_value v) const {
        for (uint32_t i = 0; i < shape.n_runs; i++) {
            const sw_huffman_run run = sw_huffman_run_of(&shape, i);
            append(c, put, sw_huffman_run_bits(v, run), 8 * run.parts);
        }
    }

    template <uint32_t PARTS, class PUT>
    __device__ inline void put_value(cursor &c, PUT &put, sw_huffman_value v) const {
        const codes code = codes_of<PARTS>(v);
        if constexpr (PARTS > 4) {
            add(c, put, code.are_there ? code.bits : escape(), code.are_there ? code.n_bits : shape.escape_bits);
            if (code.are_there) {
                put_runs(c, put, v);
                return;
            }
#pragma unroll 1
            for (uint32_t part = 0; part < PARTS; part += 4)
                append(c, put, sw_huffman_run_bits(v, {(uint8_t)part, 4}), 32);
        } else {
            put_short_value<PARTS>(c, put, v, code);
        }
    }

    /* Puts a value of up to 4 parts, codes and raw parts together. */
    template <uint32_t PARTS, class PUT>
    __device__ inline void put_short_value(cursor &c, PUT &put, sw_huffman_value v, codes code) const {
        for (uint32_t i = 0; PARTS > 1 && i < shape.n_runs; i++) {
            const sw_huffman_run run = sw_huffman_run_of(&shape, i);
            code.bits |= (uint64_t)sw_huffman_run_bits(v, run) << code.n_bits;
            code.n_bits += 8 * run.parts;
        }
        if (!code.are_there)
            code = {v.low << shape.escape_bits | escape(), shape.escape_bits + 8 * PARTS, true};
        if (PARTS == 4)
            add(c, put, code.bits, code.n_bits);
        else /* at most 27 bits */
            append(c, put, (uint32_t)code.bits, code.n_bits);
    }

    template <uint32_t PARTS, class PUT>
    __device__ inline void put_unit(cursor &c, PUT &put, uint4 unit, uint32_t bytes) const {
        uint64_t low = (uint64_t)unit.y << 32 | unit.x, high = (uint64_t)unit.w << 32 | unit.z;
#pragma unroll(PARTS < 4 ? 4 : 1)
        for (uint32_t at = 0; at < bytes; at += PARTS) {
            sw_huffman_value v = {low, PARTS == 16 ? high : 0};
            if (PARTS < 8) {
                v.low &= ~(~0ull << 8 * (PARTS % 8));
                low = low >> 8 * (PARTS % 8) | high << (64 - 8 * (PARTS % 8)) % 64;
                high >>= 8 * (PARTS % 8);
            } else {
                low = high;
            }
            put_value<PARTS>(c, put, sw_huffman_forward(&shape, v));
        }
    }

    /* It is not inlined, which saves a third of the compiler's time. */
    template <uint32_t PARTS, class SOURCE, class PUT>
    __device__ __noinline__ static cursor run_values(const lookup &tables, cursor c, SOURCE in, uint32_t stop,
                                                     PUT put) {
        const huffman_code code(tables);
        uint4 next = in.load(c.loaded);
        while (c.at < c.end && c.row < stop) {
            const uint4 unit = next;
            const uint32_t bytes = min(16u, in.in_bytes - c.loaded);
            c.hash = in.hash(c.hash, unit, c.loaded);
            c.loaded += 16;
            next = in.load(c.loaded);
            code.put_unit<PARTS>(c, put, unit, bytes);
            c.at += 8 * bytes;
        }
        append_rest(c, put);
        return c;
    }

    template <class SOURCE, class PUT>
    __device__ inline void run(cursor &c, const SOURCE &in, uint32_t stop, PUT put) const {
        switch (tables.section.is_bad ? 0 : shape.parts) {
        case 0:
            c.row = stop; /* nothing was learned: every segment is stored raw */
            break;
        case 1:
            c = run_values<1>(tables, c, in, stop, put);
            break;
        case 2:
            c = run_values<2>(tables, c, in, stop, put);
            break;
        case 4:
            c = run_values<4>(tables, c, in, stop, put);
            break;
        case 8:
            c = run_values<8>(tables, c, in, stop, put);
            break;
        default:
            c = run_values<16>(tables, c, in, stop, put);
        }
    }
};

} // namespace

static cudaError_t init() {
    const cudaError_t e = init_encoder<huffman_code>();
    return e == cudaSuccess ? sw_huffman_gpu_init_decoder() : e;
}

template <class ITEMS> static void sw_huffman_gpu_encode(const sw_gpu_encode_job<ITEMS> *job) {
    encode<huffman_code>(job);
}

static size_t shared_bytes(size_t limit) {
    return sw_gpu_larger(encoder_bytes<huffman_code>(limit), sw_huffman_gpu_decoder_bytes(limit));
}

SW_GPU_CODEC(huffman, SW_STREAMS_UNIT_TILES, init, shared_bytes, most_pieces<huffman_code>);
