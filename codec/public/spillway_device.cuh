/* spillway_device.cuh - lets an engine's own kernels read packed regions in place.
 *
 * A spill with SPILLWAY_IN_PLACE and a type leaves a column of numbers compressed at the front of its memory. These
 * functions decode it there into registers or shared memory: a value, a vector or a tile at a time. They do not unpack
 * the region, and do not write to it. Values come back bit by bit, also of signed and floating types.
 *
 *   host     spillway_query_packed() gives the directory of chunks. spillway_column_init() makes a column from it,
 *            which a kernel takes by value.
 *   vector   A warp reads 1024 values; each lane gets 32 of them in registers. Value i of the calling lane is the
 *            vector's value spillway_place<T>(i). Places are the same for all types of one length, so a lane has the
 *            same rows of such columns. spillway_regroup() converts a selection to another length.
 *   tile     A block reads 32 KiB of values, in order, into shared or global memory, and verifies their checksum.
 *   value    A thread reads one value, from chunks of SPILLWAY_READS_VALUES only.
 *
 * Rules:
 *   - The region's address must be a multiple of 16 bytes, as cudaMalloc's are.
 *   - Between the first and the last read, do not unpack or drop the region, and do not write to its front.
 *   - Launch a reading kernel only after spillway_wait() has reported that the region was packed.
 *   - Any number of kernels may read a region at the same time.
 *
 * Checks:
 *   - A read never leaves the chunk that the directory names, whatever is stored there. The directory is trusted.
 *   - The result is 0 or false if data is malformed or missing, or has another length of values or another codec.
 *   - A code that is not in its dictionary gives a value with all bits set.
 *   - Only reading a tile verifies its checksum. RAW chunks have no checksum in the region's memory.
 *
 * CODECS is a set of SPILLWAY_READS(codec): the codecs that the kernel is compiled for. A kernel for only the codecs of
 * its columns is smaller. SPILLWAY_READS_PLAIN needs no shared memory.
 *
 * Needs CUDA with compute capability 7.5 or above, C++17, and the files beside it. */
#ifndef SPILLWAY_DEVICE_CUH
#define SPILLWAY_DEVICE_CUH

#include "spillway_device/decode.cuh"
#include "spillway_packed.h"

#define SPILLWAY_READS(codec) (1u << (codec))
#define SPILLWAY_READS_PLAIN (SPILLWAY_READS(SPILLWAY_CODEC_RAW) | SPILLWAY_READS(SPILLWAY_CODEC_FOR))
/* Codecs in which a value can be found without decoding the values before it. */
#define SPILLWAY_READS_VALUES                                                                                          \
    (SPILLWAY_READS_PLAIN | SPILLWAY_READS(SPILLWAY_CODEC_RFOR) | SPILLWAY_READS(SPILLWAY_CODEC_SFOR) |                \
     SPILLWAY_READS(SPILLWAY_CODEC_DICT) | SPILLWAY_READS(SPILLWAY_CODEC_ALP) | SPILLWAY_READS(SPILLWAY_CODEC_ALPRD) | \
     SPILLWAY_READS(SPILLWAY_CODEC_PFOR) | SPILLWAY_READS(SPILLWAY_CODEC_RADIX))
#define SPILLWAY_READS_ALL                                                                                             \
    (SPILLWAY_READS_VALUES | SPILLWAY_READS(SPILLWAY_CODEC_DFOR) | SPILLWAY_READS(SPILLWAY_CODEC_PDFOR) |              \
     SPILLWAY_READS(SPILLWAY_CODEC_DRADIX))

/* A packed region, for kernels. */
struct spillway_column {
    const uint8_t *data;                        /* the region */
    const struct spillway_packed_chunk *chunks; /* its directory, in memory that the kernel can read */
    uint64_t raw_bytes;                         /* length of all values */
    uint32_t n_chunks, chunk_tiles;             /* chunk_tiles: tiles of each chunk except the last */
};

/* Makes a column from the directory chunks[0 ... n) in host memory. d_chunks: a copy of the directory that the kernel
 * can read; it must live as long as the column. False: data is not aligned, or a chunk has another codec or values of
 * another length, so unpack the region instead. thread: any. */
static inline bool spillway_column_init(struct spillway_column *ret, const void *data,
                                        const struct spillway_packed_chunk *chunks, uint32_t n,
                                        const struct spillway_packed_chunk *d_chunks, unsigned value_bytes,
                                        uint32_t codecs = SPILLWAY_READS_ALL) {
    struct spillway_column column = {(const uint8_t *)data, d_chunks, 0, n, 0xFFFFFFFFu};
    for (uint32_t i = 0; i < n; i++) {
        const struct spillway_packed_chunk *chunk = &chunks[i];
        const bool is_read = chunk->codec < 32 && (codecs & SPILLWAY_READS_ALL) >> chunk->codec & 1;
        if (!is_read || (chunk->codec != SPILLWAY_CODEC_RAW && sw_value_bits(chunk->type) != 8 * value_bytes))
            return false;
        column.raw_bytes += chunk->raw_bytes;
    }
    if (n > 1)
        column.chunk_tiles = (uint32_t)(chunks[0].raw_bytes / SW_NUMBERS_TILE_BYTES);
    if ((uintptr_t)data % SW_UNIT_BYTES || column.chunk_tiles == 0)
        return false;
    *ret = column;
    return true;
}

template <class T> struct spillway_of {
    static constexpr unsigned BITS = 8 * sizeof(T);
    static constexpr uint32_t VECTOR_BYTES = sizeof(T) * SW_VECTOR_VALUES;
    static constexpr uint32_t TILE_VECTORS = SW_NUMBERS_TILE_BYTES / VECTOR_BYTES;
    static constexpr uint32_t TILE_VALUES = TILE_VECTORS * SW_VECTOR_VALUES;
    static_assert(sizeof(T) == 1 || sizeof(T) == 2 || sizeof(T) == 4 || sizeof(T) == 8, "a type of numbers");
};

/* Returns the number of vectors in the column. The last one may not be full. */
template <class T> __host__ __device__ inline uint64_t spillway_vectors(const spillway_column &column) {
    return (column.raw_bytes + spillway_of<T>::VECTOR_BYTES - 1) / spillway_of<T>::VECTOR_BYTES;
}
/* Returns the number of tiles in the column. The last one may not be full. */
__host__ __device__ static inline uint32_t spillway_tiles(const spillway_column &column) {
    return (uint32_t)((column.raw_bytes + SW_NUMBERS_TILE_BYTES - 1) / SW_NUMBERS_TILE_BYTES);
}

/* The shared memory that a warp needs to read vectors: 4.5 KiB for 32-bit values, 8.5 KiB for 64-bit values. */
template <class T> using spillway_stage = sw_stage<8 * sizeof(T)>;

__device__ static inline uint32_t spillway_lane() {
    return threadIdx.x % SW_WARP;
}

/* Returns the place in the vector of the lane's value i (0 ... 31). */
template <class T> __device__ __forceinline__ uint32_t spillway_place(unsigned i) {
    return sw_value_place(8 * sizeof(T), i, spillway_lane());
}

/* ---- internal ---- */

/* The position of a tile in memory. thread: any. */
struct spillway_tile_place {
    const uint8_t *counts, *data; /* of the tile; RAW: no counts */
    uint64_t data_units;          /* units from `data` to the end of the chunk */
    uint32_t bytes;               /* of content; 0: the tile does not exist, or cannot be read */
    uint32_t codec, number, hash; /* number: the tile's number in its chunk */
    sw_stored_dictionary dictionary;
};

/* Calls use() with the decoder of the tile's codec, and returns its result; false: the codec is not in CODECS, or does
 * not store values of BITS. */
template <uint32_t CODECS, unsigned BITS, class F>
__device__ __forceinline__ bool spillway_with_codec(const spillway_tile_place &place, F use) {
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_FOR))
        if (place.codec == SPILLWAY_CODEC_FOR)
            return use(sw_for_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_DFOR))
        if (place.codec == SPILLWAY_CODEC_DFOR)
            return use(sw_dfor_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_RFOR))
        if (place.codec == SPILLWAY_CODEC_RFOR)
            return use(sw_rfor_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_SFOR))
        if (place.codec == SPILLWAY_CODEC_SFOR)
            return use(sw_sfor_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_DICT))
        if (place.codec == SPILLWAY_CODEC_DICT)
            return use(sw_dict_decoder(place.dictionary));
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_ALP) && BITS >= sw_float_codec::LEAST_BITS)
        if (place.codec == SPILLWAY_CODEC_ALP)
            return use(sw_alp_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_ALPRD) && BITS >= sw_float_codec::LEAST_BITS)
        if (place.codec == SPILLWAY_CODEC_ALPRD)
            return use(sw_alprd_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_PFOR) && BITS >= sw_patched_codec::LEAST_BITS)
        if (place.codec == SPILLWAY_CODEC_PFOR)
            return use(sw_pfor_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_PDFOR) && BITS >= sw_patched_codec::LEAST_BITS)
        if (place.codec == SPILLWAY_CODEC_PDFOR)
            return use(sw_pdfor_decoder());
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_RADIX) && BITS >= sw_radix_codec::LEAST_BITS)
        if (place.codec == SPILLWAY_CODEC_RADIX)
            return use(sw_radix_decoder(place.dictionary));
    if constexpr (CODECS & SPILLWAY_READS(SPILLWAY_CODEC_DRADIX) && BITS >= sw_radix_codec::LEAST_BITS)
        if (place.codec == SPILLWAY_CODEC_DRADIX)
            return use(sw_dradix_decoder(place.dictionary));
    return false;
}

__device__ static inline uint32_t spillway_count_bytes(uint32_t codec) {
    return codec == SPILLWAY_CODEC_FOR      ? sw_count_bytes<sw_for_decoder>
           : codec == SPILLWAY_CODEC_DFOR   ? sw_count_bytes<sw_dfor_decoder>
           : codec == SPILLWAY_CODEC_RFOR   ? sw_count_bytes<sw_rfor_decoder>
           : codec == SPILLWAY_CODEC_SFOR   ? sw_count_bytes<sw_sfor_decoder>
           : codec == SPILLWAY_CODEC_DICT   ? sw_count_bytes<sw_dict_codec>
           : codec == SPILLWAY_CODEC_ALP    ? sw_count_bytes<sw_alp_decoder>
           : codec == SPILLWAY_CODEC_ALPRD  ? sw_count_bytes<sw_alprd_decoder>
           : codec == SPILLWAY_CODEC_PFOR   ? sw_count_bytes<sw_pfor_decoder>
           : codec == SPILLWAY_CODEC_RADIX  ? sw_count_bytes<sw_radix_codec>
           : codec == SPILLWAY_CODEC_DRADIX ? sw_count_bytes<sw_dradix_codec>
                                            : sw_count_bytes<sw_pdfor_decoder>;
}

__device__ static inline spillway_tile_place spillway_find_tile(const spillway_column &column, uint32_t tile,
                                                                uint32_t codecs, unsigned value_bits) {
    spillway_tile_place place = {};
    const uint32_t at = tile / column.chunk_tiles;
    if (at >= column.n_chunks)
        return place;
    const spillway_packed_chunk chunk = column.chunks[at];
    const uint64_t start = (uint64_t)(tile - at * column.chunk_tiles) * SW_NUMBERS_TILE_BYTES;
    const bool is_read = chunk.codec < 32 && (codecs & SPILLWAY_READS_ALL) >> chunk.codec & 1;
    if (!is_read || start >= chunk.raw_bytes)
        return place;
    const uint8_t *frame = column.data + chunk.offset;
    const uint32_t bytes = (uint32_t)min((uint64_t)SW_NUMBERS_TILE_BYTES, chunk.raw_bytes - start);
    place.codec = chunk.codec;
    place.number = tile - at * column.chunk_tiles;
    if (chunk.codec == SPILLWAY_CODEC_RAW) {
        place.data = frame + start;
        place.bytes = start + bytes <= chunk.bytes ? bytes : 0;
        return place;
    }
    const uint64_t n_tiles = (chunk.raw_bytes + SW_NUMBERS_TILE_BYTES - 1) / SW_NUMBERS_TILE_BYTES;
    const uint32_t count_bytes = spillway_count_bytes(chunk.codec);
    const uint64_t records_offset = sw_frame_records_offset(chunk.n_symbols),
                   counts_offset = sw_frame_counts_offset(records_offset, n_tiles),
                   data_offset = sw_frame_data_offset(counts_offset, count_bytes, n_tiles);
    if (sw_value_bits(chunk.type) != value_bits || chunk.bytes < data_offset)
        return place;
    const sw_tile_record record = ((const sw_tile_record *)(frame + records_offset))[place.number];
    const uint64_t data_units = (chunk.bytes - data_offset) / SW_UNIT_BYTES;
    place.counts = frame + counts_offset + (uint64_t)place.number * count_bytes;
    place.data = frame + data_offset + (uint64_t)record.offset16 * SW_FRAME_ALIGN;
    place.data_units = record.offset16 < data_units ? data_units - record.offset16 : 0;
    place.hash = record.hash;
    place.dictionary = {(const uint64_t *)(frame + SW_FRAME_HEADER_BYTES), chunk.n_symbols};
    place.bytes = bytes;
    return place;
}

template <class T> __device__ __forceinline__ T spillway_value_of(uint64_t bits) {
    T value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* ---- vectors ---- */

/* A tile from which a warp reads vectors. It looks up the vectors' common data only once. All lanes of the warp must
 * call it together, with the same arguments. */
template <class T, uint32_t CODECS = SPILLWAY_READS_ALL> class spillway_tile {
  public:
    /* tile: its number in the column. A tile that cannot be read has no values. */
    __device__ inline spillway_tile(const spillway_column &column, uint32_t tile)
        : place(spillway_find_tile(column, tile, CODECS, BITS)), vectors() {
        const auto load = [&](auto codec) {
            vectors =
                sw_load_vectors<decltype(codec), BITS>(place.counts, place.bytes, place.data_units, spillway_lane());
            return vectors.are_good;
        };
        if (place.codec != SPILLWAY_CODEC_RAW && place.bytes && !spillway_with_codec<CODECS, BITS>(place, load))
            place.bytes = 0;
    }

    __device__ inline uint32_t values() const {
        return place.bytes / (uint32_t)sizeof(T);
    }

    /* Reads vector `vector` of the tile, 0 ... spillway_of<T>::TILE_VECTORS - 1, into the lanes' registers. Returns its
     * number of values; values at places from this number on are 0. Returns 0 if the vector does not exist or is
     * malformed; `ret` is then undefined. stage: the warp's own; may be NULL for SPILLWAY_READS_PLAIN. */
    __device__ __forceinline__ uint32_t read(uint32_t vector, spillway_stage<T> *stage, T (&ret)[32]) const {
        uint32_t x[sw_share<BITS>::VECTOR_WORDS];
        const uint32_t bytes = read_words(vector, stage, x);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            ret[i] = spillway_value_of<T>(sw_get_value<BITS>(x, i));
        return bytes / (uint32_t)sizeof(T);
    }

    /* Reads like read(), but returns the words that hold the values, and their length in bytes. */
    __device__ __forceinline__ uint32_t read_words(uint32_t vector, spillway_stage<T> *stage, uint32_t *x) const {
        const uint32_t bytes = sw_bytes_left(place.bytes, vector * VECTOR_BYTES, VECTOR_BYTES);
        if (!bytes)
            return 0;
        if (place.codec == SPILLWAY_CODEC_RAW && CODECS & SPILLWAY_READS(SPILLWAY_CODEC_RAW)) {
            sw_load_content<sw_share<BITS>::VECTOR_WORDS / SW_UNIT_WORDS>(place.data + vector * VECTOR_BYTES, bytes,
                                                                          spillway_lane(), x);
            return bytes;
        }
        const bool is_good = spillway_with_codec<CODECS, BITS>(place, [&](auto codec) {
            return sw_decode_vector<BITS>(codec, vectors, vector, place.data, bytes, *stage, spillway_lane(), x);
        });
        return is_good ? bytes : 0;
    }

    __device__ inline const spillway_tile_place &where() const {
        return place;
    }

  private:
    static constexpr unsigned BITS = spillway_of<T>::BITS;
    static constexpr uint32_t VECTOR_BYTES = spillway_of<T>::VECTOR_BYTES;
    spillway_tile_place place;
    sw_stored_vectors vectors;
};

/* Reads one vector, by its number in the column. */
template <class T, uint32_t CODECS = SPILLWAY_READS_ALL>
__device__ __forceinline__ uint32_t spillway_read_vector(const spillway_column &column, uint64_t vector,
                                                         spillway_stage<T> *stage, T (&ret)[32]) {
    constexpr uint32_t IN_TILE = spillway_of<T>::TILE_VECTORS;
    const spillway_tile<T, CODECS> tile(column, (uint32_t)(vector / IN_TILE));
    return vector < spillway_vectors<T>(column) ? tile.read((uint32_t)(vector % IN_TILE), stage, ret) : 0;
}

/* Converts a selection of rows from columns of type FROM to columns of type TO. Bit i of a lane's selection stands for
 * the lane's value i. All lanes of the warp must call it together. */
template <class FROM, class TO> __device__ __forceinline__ uint32_t spillway_regroup(uint32_t selection) {
    constexpr uint32_t A = SW_UNIT_BYTES / sizeof(FROM), B = SW_UNIT_BYTES / sizeof(TO); /* values of a unit */
    constexpr uint32_t N = A > B ? A / B : B / A;                                        /* lanes to ask */
    const uint32_t lane = spillway_lane();
    uint32_t from[N], ret = 0;
    if constexpr (A == B)
        return selection;
#pragma unroll
    for (uint32_t n = 0; n < N; n++)
        from[n] = __shfl_sync(0xFFFFFFFFu, selection, A > B ? n * (SW_WARP / N) + lane / N : lane * N % SW_WARP + n);
#pragma unroll
    for (uint32_t row = 0; row < 32 / B; row++) {
        if constexpr (A > B) {
            ret |= (from[row % N] >> (row / N * A + lane % N * B) & sw_low_bits(B)) << row * B;
        } else {
#pragma unroll
            for (uint32_t n = 0; n < N; n++)
                ret |= (from[n] >> (row * N + lane * N / SW_WARP) * A & sw_low_bits(A)) << (row * B + n * A);
        }
    }
    return ret;
}

/* ---- tiles ---- */

/* Reads a tile into to[0 ... spillway_of<T>::TILE_VALUES), in order, and verifies it. Returns its number of values; 0:
 * the tile does not exist, is malformed, or fails its checksum; `to` is then undefined.
 *
 * All threads of a block of whole warps must call it together. They must not use `to` any more before the call; after
 * it all of them see the whole tile. to: aligned to 16 bytes, in shared or global memory; stages: one for each warp;
 * check: a word of shared memory. */
template <class T, uint32_t CODECS = SPILLWAY_READS_ALL>
__device__ __forceinline__ uint32_t spillway_read_tile(const spillway_column &column, uint32_t tile,
                                                       spillway_stage<T> *stages, uint32_t *check, T *to) {
    using share = sw_share<8 * sizeof(T)>;
    const uint32_t lane = spillway_lane(), warp = threadIdx.x / SW_WARP;
    const spillway_tile<T, CODECS> t(column, tile);
    const spillway_tile_place &place = t.where();
    bool is_good = place.bytes > 0;
    uint32_t hash = 0;
    if (threadIdx.x == 0)
        *check = 0;
    __syncthreads();
    for (uint32_t s = warp; s * share::BYTES < place.bytes; s += blockDim.x / SW_WARP) {
        const uint32_t bytes = sw_bytes_left(place.bytes, s * share::BYTES, share::BYTES);
        uint32_t x[share::WORDS] = {};
#pragma unroll
        for (uint32_t v = 0; v < share::VECTORS; v++)
            if (v * spillway_of<T>::VECTOR_BYTES < bytes)
                is_good &= t.read_words(s * share::VECTORS + v, stages + warp, x + v * share::VECTOR_WORDS) > 0;
        sw_store_content<share::UNITS>((uint8_t *)to + s * share::BYTES, bytes, lane, x);
        hash += sw_hash_blocks<share::BLOCKS>(x, place.number * SW_HASH_TILE_BLOCKS + s * share::BLOCKS, bytes, lane);
    }
    if (lane == 0)
        atomicAdd(check, hash);
    const bool is_bad = __syncthreads_or(!is_good);
    const bool is_proved = place.codec == SPILLWAY_CODEC_RAW || *check == place.hash;
    __syncthreads(); /* before the next call */
    return is_bad || !is_proved ? 0 : t.values();
}

/* ---- values ---- */

/* Returns the offset of a lane's packed word `row` in a vector of `width` bits (sw_load_rows). */
__device__ static inline uint32_t spillway_packed_word(uint32_t width, uint32_t row, uint32_t lane) {
    const uint32_t fours = width / 4 * 4;
    if (row < fours)
        return row / 4 * 4 * SW_WARP * 4 + lane * 16 + row % 4 * 4;
    if (width % 4 >= 2 && row < fours + 2)
        return fours * SW_WARP * 4 + lane * 8 + (row - fours) * 4;
    return (width - 1) * SW_WARP * 4 + lane * 4;
}

/* Unpacks row `row` of a lane's words, from the two packed words that may hold it. */
template <unsigned BITS>
__device__ inline uint32_t spillway_packed_row(const uint8_t *packed, uint32_t width, uint32_t row, uint32_t lane) {
    if (width == 0)
        return 0;
    const uint32_t at = sw_row_word(BITS, width, row);
    const uint32_t word = *(const uint32_t *)(packed + spillway_packed_word(width, at, lane));
    const uint32_t next =
        sw_row_is_split(BITS, width, row) ? *(const uint32_t *)(packed + spillway_packed_word(width, at + 1, lane)) : 0;
    return sw_unpack_row(BITS, width, row, word, next);
}

/* The lane that holds value n of a vector, and the value's number in the lane. */
struct spillway_owner {
    uint32_t lane, i;
};
template <unsigned BITS> __device__ inline spillway_owner spillway_owner_of(uint32_t n) {
    constexpr uint32_t IN_UNIT = 128 / BITS;
    return {n / IN_UNIT % SW_WARP, n / IN_UNIT / SW_WARP * IN_UNIT + n % IN_UNIT};
}

/* Unpacks value n of a vector whose values keep `width` bits, less than all, and begin at `packed`. */
template <unsigned BITS>
__device__ inline uint64_t spillway_packed_value(const uint8_t *packed, uint32_t width, uint32_t n) {
    const auto [lane, i] = spillway_owner_of<BITS>(n);
    if constexpr (BITS == 64) {
        const uint32_t low = min(width, 32u);
        return (uint64_t)spillway_packed_row<32>(packed + low * SW_WARP * 4, width - low, i, lane) << 32 |
               spillway_packed_row<32>(packed, low, i, lane);
    } else {
        return spillway_packed_row<BITS>(packed, width, i * BITS / 32, lane) >> i * BITS % 32 & sw_low_bits(BITS);
    }
}

/* Decodes value n of an encoded vector, by the rules of its codec's decode(). Bits above the type's are undefined. */
template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_for_decoder &, const sw_gpu_head &head, const uint8_t *from,
                                              uint32_t n, uint64_t *ret) {
    *ret = head.base + spillway_packed_value<BITS>(from, head.width, n);
    return true;
}

/* The position of value n in a vector of runs. */
struct spillway_run {
    uint32_t number, since;    /* the run's number; the number of values before it in the run */
    uint32_t n_starts, n_runs; /* of the vector; n_starts: words after the mask that mark the beginnings of runs */
};

/* Finds the run of value n; false: words are missing, or the first value begins no run. */
__device__ static inline bool spillway_find_run(spillway_run *ret, const uint32_t *words, uint32_t n_words,
                                                uint32_t n) {
    const uint32_t mask = n_words ? __ldg(words) : 0;
    uint32_t begun = 0;
    *ret = {0, 0, 0, 0};
    if (1 + __popc(mask) > n_words || !(mask & __ldg(words + 1) & 1))
        return false;
    for (uint32_t lanes = mask; lanes; lanes &= lanes - 1) {
        const uint32_t lane = __ffs((int)lanes) - 1, starts = __ldg(words + ++ret->n_starts);
        const uint32_t before = lane == n / 32 ? starts & sw_low_bits(n % 32 + 1) : lane < n / 32 ? starts : 0;
        ret->n_runs += __popc(starts);
        ret->number += __popc(before);
        begun = before ? 32 * lane + 31 - (uint32_t)__clz((int)before) : begun;
    }
    ret->since = n - begun;
    return ret->number-- > 0; /* the first value begins a run, unless the memory has changed meanwhile */
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_rfor_decoder &, const sw_gpu_head &head, const uint8_t *from,
                                              uint32_t n, uint64_t *ret) {
    if (!sw_rfor_decoder::is_runs<BITS>(head))
        return spillway_encoded_value<BITS>(sw_for_decoder(), head, from, n, ret);
    const uint32_t *words = (const uint32_t *)from;
    spillway_run run;
    if (!spillway_find_run(&run, words, 4 * head.units, n) ||
        1 + run.n_starts + sw_run_value_words(run.n_runs, head.width) > 4 * head.units)
        return false;
    *ret = head.base + sw_load_bits<BITS>(words + 1 + run.n_starts, run.number, head.width);
    return true;
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_sfor_decoder &, const sw_gpu_head &head, const uint8_t *from,
                                              uint32_t n, uint64_t *ret) {
    const uint32_t *words = (const uint32_t *)from;
    spillway_run run;
    if (!spillway_find_run(&run, words, 4 * head.units, n) ||
        sw_sfor_decoder::words<BITS>(run.n_starts, run.n_runs, head.width) > 4 * head.units)
        return false;
    *ret = sw_sfor_decoder::start<BITS>(head, words + 1 + run.n_starts, run.number) + run.since;
    return true;
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_dict_decoder &codec, const sw_gpu_head &head,
                                              const uint8_t *from, uint32_t n, uint64_t *ret) {
    const sw_stored_exceptions<sw_dict_codec::shape<BITS>::STORED> rest(from + head.width * SW_WARP * 4, head.tag);
    if (!rest.find(n, ret))
        *ret = codec.dictionary.get<BITS>((uint32_t)spillway_packed_value<BITS>(from, head.width, n));
    return true;
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_alp_decoder &, const sw_gpu_head &head, const uint8_t *from,
                                              uint32_t n, uint64_t *ret) {
    const sw_stored_exceptions<BITS> rest(from + head.width * SW_WARP * 4, sw_alp_exceptions(head.tag));
    const sw_alp_down<BITS> s(sw_alp_choice(head.tag));
    if (!rest.find(n, ret))
        *ret = s.value(spillway_packed_value<BITS>(from, head.width, n) + head.base);
    return true;
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_alprd_decoder &, const sw_gpu_head &head, const uint8_t *from,
                                              uint32_t n, uint64_t *ret) {
    const sw_alprd_left left(head, from);
    const spillway_owner owner = spillway_owner_of<BITS>(n);
    uint64_t part;
    if (!left.rest.find(n, &part))
        part =
            left.entries.entry(spillway_packed_row<32>(left.codes, sw_alprd_code_width(head.tag), owner.i, owner.lane));
    *ret = spillway_packed_value<BITS>(from, head.width, n) | part << head.width;
    return true;
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_pfor_decoder &, const sw_gpu_head &head, const uint8_t *from,
                                              uint32_t n, uint64_t *ret) {
    const sw_patched_rest<BITS> rest(head, from, 1);
    if (!rest.exceptions.find(n, ret))
        *ret = head.base + spillway_packed_value<BITS>(from, head.width, n) * rest.step;
    return true;
}

template <unsigned BITS>
__device__ inline bool spillway_encoded_value(const sw_radix_decoder &codec, const sw_gpu_head &head,
                                              const uint8_t *from, uint32_t n, uint64_t *ret) {
    const uint32_t base = sw_radix_base(head.tag), digits = sw_radix_digits(base);
    const spillway_owner owner = spillway_owner_of<BITS>(n);
    uint32_t number = sw_radix_codec::number(base, from, owner.i / digits, owner.lane);
    for (uint32_t i = owner.i % digits; i > 0; i--)
        number /= base;
    if (!sw_radix_codec::rest<BITS>(head, from).find(n, ret))
        *ret = codec.dictionary.get<BITS>(number % base);
    return true;
}

/* Decodes value n of vector `vector` of a tile of any codec except RAW. */
template <class CODEC, unsigned BITS>
__device__ inline bool spillway_stored_value(const CODEC &codec, const spillway_tile_place &place, uint32_t vector,
                                             uint32_t n, uint64_t *ret) {
    constexpr uint32_t VECTOR_BYTES = SW_VECTOR_VALUES / 8 * BITS;
    const auto bytes_of = [&](uint32_t v) { return sw_bytes_left(place.bytes, v * VECTOR_BYTES, VECTOR_BYTES); };
    uint32_t first_unit = 0;
    sw_gpu_head head;
    bool is_good = true;
    for (uint32_t v = 0; v < vector; v++) {
        is_good &= sw_load_head<CODEC, BITS>(&head, place.counts, v, bytes_of(v));
        first_unit += head.units;
    }
    is_good &= sw_load_head<CODEC, BITS>(&head, place.counts, vector, bytes_of(vector));
    if (!is_good || first_unit + head.units > place.data_units)
        return false;
    const uint8_t *from = place.data + first_unit * SW_UNIT_BYTES;
    if (sw_is_encoded<BITS>(head, bytes_of(vector)))
        return spillway_encoded_value<BITS>(codec, head, from, n, ret);
    *ret = sw_load_value<BITS>(from, n);
    return true;
}

/* Reads value n of the column, in a time that does not depend on n. False: the value does not exist, is malformed, or
 * its chunk's codec is not in both CODECS and SPILLWAY_READS_VALUES. A single thread may call it. */
template <class T, uint32_t CODECS = SPILLWAY_READS_VALUES>
__device__ inline bool spillway_read_value(const spillway_column &column, uint64_t n, T *ret) {
    using of = spillway_of<T>;
    constexpr uint32_t READ = CODECS & SPILLWAY_READS_VALUES;
    const spillway_tile_place place = spillway_find_tile(column, (uint32_t)(n / of::TILE_VALUES), READ, of::BITS);
    const uint32_t at = (uint32_t)(n % of::TILE_VALUES);
    if (n >= column.raw_bytes / sizeof(T) || (at + 1) * sizeof(T) > place.bytes)
        return false;
    if (place.codec == SPILLWAY_CODEC_RAW) {
        *ret = ((const T *)place.data)[at];
        return true;
    }
    uint64_t bits = 0;
    const bool is_good = spillway_with_codec<READ, of::BITS>(place, [&](auto codec) {
        return spillway_stored_value<decltype(codec), of::BITS>(codec, place, at / SW_VECTOR_VALUES,
                                                                at % SW_VECTOR_VALUES, &bits);
    });
    if (is_good)
        *ret = spillway_value_of<T>(bits);
    return is_good;
}

#endif
