/* codec_gpu.cuh - the common part of the room's CUDA files: launches, word loads of any alignment, error reporting, and
 * the codecs' rows on the GPU. Internal to codec/; the contract is codec/gpu.h. */
#ifndef SW_CODEC_GPU_CUH
#define SW_CODEC_GPU_CUH

#include "codec/checksum.h"
#include "codec/gpu.h"
#include "codec/public/spillway_device/decode.cuh"

static inline int sw_gpu_check(cudaError_t cuda, struct sw_err *err, const char *call) {
    if (cuda == cudaSuccess)
        return 0;
    (void)cudaGetLastError(); /* else this thread's next launch would report it again */
    int rc = sw_err_set(err, -SW_EGPU, SW_SCOPE_DEVICE, "%s", cudaGetErrorString(cuda));
    sw_err_detail(err, "%s", call);
    if (err)
        err->cuda = (int)cuda;
    return rc;
}

/* Reports a launch's own error. Errors of the running kernel are found by the next call that synchronizes. */
static inline int sw_gpu_launched(struct sw_err *err, const char *kernel) {
    return sw_gpu_check(cudaGetLastError(), err, kernel);
}

/* Returns the number of multiprocessors of the current device. */
static inline uint32_t sw_gpu_processors() {
    int device = 0, processors = 1;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    return (uint32_t)processors;
}

/* Returns the shared memory that a block may have on the current device. $SPILLWAY_TEST_SHARED_KIB, for tests, makes it
 * less: sm_75 has 64 KiB; sm_86, sm_89 and sm_120 have 99 KiB. */
size_t sw_gpu_shared_bytes();
/* Lets the kernel's blocks have so many bytes of dynamic shared memory. cudaErrorNotSupported: more than
 * sw_gpu_shared_bytes() with the kernel's own. */
cudaError_t sw_gpu_allow_shared(const void *kernel, size_t bytes);

/* Returns the larger of two blocks, or 0 if one of them does not fit. */
static inline size_t sw_gpu_larger(size_t a, size_t b) {
    return !a || !b ? 0 : a < b ? b : a;
}

/* Returns the length of the raw frame of some content, as sw_frame_layout_init() computes it. */
__host__ __device__ static inline uint64_t sw_gpu_raw_frame_bytes(uint64_t raw_bytes) {
    const uint64_t tile_bytes = (uint64_t)SW_TILE_SEGMENTS << SW_RAW_SEGMENT_LOG2;
    const uint64_t counts_offset =
        sw_frame_counts_offset(sw_frame_records_offset(0), (raw_bytes + tile_bytes - 1) / tile_bytes);
    return sw_frame_data_offset(counts_offset, 0, 0) +
           (raw_bytes + SW_FRAME_ALIGN - 1) / SW_FRAME_ALIGN * SW_FRAME_ALIGN;
}

/* Returns how wide the memory at an address, or at several or-ed addresses, may be accessed. An alignment of 2 bytes
 * counts as none. */
static inline int sw_gpu_alignment(uintptr_t a) {
    return a % 16 == 0 ? 16 : a % 4 == 0 ? 4 : 1;
}

/* Calls `launch` with a compile-time alignment of 16, 4 or 1. */
template <class F> static inline void sw_gpu_with_alignment(uintptr_t address, F launch) {
    switch (sw_gpu_alignment(address)) {
    case 16:
        launch(std::integral_constant<int, 16>());
        break;
    case 4:
        launch(std::integral_constant<int, 4>());
        break;
    default:
        launch(std::integral_constant<int, 1>());
    }
}

__device__ inline uint32_t sw_hash_unit(uint32_t h, uint4 v) {
    return sw_hash_word(sw_hash_word(sw_hash_word(sw_hash_word(h, v.x), v.y), v.z), v.w);
}

/* Hashes the words of a unit, of which `bytes` (1 ... 16) belong to the segment. */
__device__ inline uint32_t sw_hash_partial_unit(uint32_t h, uint4 v, uint32_t bytes) {
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
#pragma unroll
    for (int i = 0; i < 4; i++)
        if (4u * i < bytes)
            h = sw_hash_word(h, w[i]);
    return h;
}

/* Returns the index of the last of n > 0 ascending numbers that is at most `at`; the first one must be. All lanes of a
 * warp call it together. Each round divides the range by 32. */
template <class F> __device__ inline uint32_t sw_warp_find_last(uint32_t n, uint64_t at, uint32_t lane, F number) {
    uint32_t from = 0;
    while (n > 1) {
        const uint32_t step = (n + SW_WARP - 1) / SW_WARP, i = lane * step;
        const uint32_t behind = __popc(__ballot_sync(0xFFFFFFFFu, i < n && number(from + i) <= at)) - 1;
        from += behind * step;
        n = min(step, n - behind * step);
    }
    return from;
}

/* Decides on a ticket at an undecided gate (gpu.h). Returns the gate's word. */
__device__ inline unsigned long long sw_gpu_decide(const sw_gpu_pass &pass, unsigned long long before) {
    *(volatile uint64_t *)&pass.d_gate->come = pass.ticket;
    __threadfence_system(); /* sequentially consistent: the caller's copies are in the order of its stream */
    const bool is_closed = *(volatile uint64_t *)&pass.d_gate->closed == pass.ticket;
    const unsigned long long mine = 2 * pass.ticket + is_closed;
    const unsigned long long old = atomicCAS((unsigned long long *)&pass.d_gate->decided, before, mine);
    return old == before ? mine : old;
}

/* Returns whether the kernel has to end at once. Every warp asks before it touches raw bytes or a frame; all get one
 * answer. */
__device__ inline bool sw_gpu_is_refused(const sw_gpu_pass &pass, uint32_t lane) {
    if (!pass.d_gate)
        return false;
    unsigned long long decided = 0;
    if (lane == 0) {
        decided = *(volatile uint64_t *)&pass.d_gate->decided;
        if (decided / 2 != pass.ticket)
            decided = sw_gpu_decide(pass, decided);
    }
    return __shfl_sync(0xFFFFFFFFu, decided, 0) & 1;
}

/* The work of a warp or a block: unit `unit` of an item. */
struct sw_gpu_place {
    const sw_gpu_item &item;
    uint32_t index, unit;
};

/* The items of a launch, to which its units are distributed. A single item is a kernel argument, so its fields are
 * constants of the launch, and looking it up costs nothing. The items of a batch are in device memory, and are looked
 * up once per unit. results: one for each item, in their order. */
struct sw_gpu_single {
    sw_gpu_item item;
    sw_gpu_progress *d_progress;
    sw_gpu_result *results;
    uint32_t n_units;
    const sw_params *d_params; /* encode: of the plan */
    const uint4 *d_dictionary;
    sw_gpu_pass pass;

    __device__ inline sw_gpu_place find(uint32_t unit, uint32_t) const {
        return {item, 0, unit};
    }
    __device__ inline const sw_gpu_item &get(uint32_t) const {
        return item;
    }
    __device__ inline sw_gpu_progress *progress(uint32_t) const {
        return d_progress;
    }
};
struct sw_gpu_batch {
    sw_gpu_item *d_items;
    uint32_t n;
    enum sw_codec_id codec; /* items of another codec have no units */
    sw_gpu_result *results;
    uint32_t n_units;
    const sw_params *d_params; /* encode: of the plan */
    const uint4 *d_dictionary;
    sw_gpu_pass pass;

    __device__ inline sw_gpu_place find(uint32_t unit, uint32_t lane) const {
        const uint32_t i = sw_warp_find_last(n, unit, lane, [&](uint32_t k) { return d_items[k].first_unit[codec]; });
        return {d_items[i], i, unit - d_items[i].first_unit[codec]};
    }
    __device__ inline const sw_gpu_item &get(uint32_t i) const {
        return d_items[i];
    }
    __device__ inline sw_gpu_progress *progress(uint32_t i) const {
        return &d_items[i].progress;
    }
};

/* ---- the end of an encode ---- */

/* The place of a tile's data in its frame, and whether the frame is complete with it. A kernel of its own that finished
 * frames would wait once more for other processes' and the engine's kernels. */
struct sw_gpu_room {
    uint64_t unit;      /* of the data section: the tile's first */
    uint64_t all_units; /* the frame's, if no other tile has still to take its place; else SW_GPU_NOT_LAST */
};
constexpr uint64_t SW_GPU_NOT_LAST = ~0ull;
constexpr unsigned SW_GPU_UNIT_BITS = 40; /* of sw_gpu_progress.tiles_units; the rest counts tiles */
static_assert(SW_FRAME_MAX_RAW_BYTES < 1ull << SW_GPU_UNIT_BITS, "data units and tiles fit into a word");

/* Takes the place of a tile's data. One thread for each tile calls it, once. */
__device__ inline sw_gpu_room sw_gpu_take_room(sw_gpu_progress *progress, const sw_frame_layout &layout,
                                               uint64_t units) {
    const uint64_t one = 1ull << SW_GPU_UNIT_BITS;
    const uint64_t before = atomicAdd(&progress->tiles_units, (unsigned long long)(one + units));
    const uint64_t unit = before & (one - 1);
    return {unit, (before >> SW_GPU_UNIT_BITS) + 1 == layout.n_tiles ? unit + units : SW_GPU_NOT_LAST};
}

/* Returns word i of the symbol table section: values, then lengths, which are zero from n_symbols on. */
__device__ inline uint32_t sw_gpu_table_word(const sw_params *params, uint32_t n_symbols, uint32_t i) {
    if (i < 2 * n_symbols)
        return ((const uint32_t *)params->value)[i];
    i -= 2 * n_symbols;
    return i < sizeof params->length / 4 ? ((const uint32_t *)params->length)[i] : 0;
}

__device__ inline void sw_gpu_zero_words(uint8_t *frame, uint64_t from, uint64_t to, uint32_t lane) {
    for (uint64_t at = from + 4 * lane; at < to; at += 4 * SW_WARP)
        *(uint32_t *)(frame + at) = 0;
}

/* Writes the symbol table to the frame, and hashes it. The hash is a chain through all words, for which the frame
 * waits: so all words are loaded before it begins. */
__device__ inline uint32_t sw_gpu_put_table(const sw_params *params, const sw_frame_layout &layout, uint8_t *frame,
                                            uint32_t hash, uint32_t lane) {
    constexpr uint32_t ROUNDS = (9 * SW_FRAME_MAX_SYMBOLS + SW_FRAME_ALIGN) / 4 / SW_WARP + 1;
    const uint32_t n_words = (uint32_t)(layout.records_offset - SW_FRAME_HEADER_BYTES) / 4;
    uint32_t word[ROUNDS] = {};
#pragma unroll
    for (uint32_t r = 0; r < ROUNDS; r++)
        if (r * SW_WARP + lane < n_words)
            word[r] = sw_gpu_table_word(params, layout.n_symbols, r * SW_WARP + lane);
#pragma unroll
    for (uint32_t r = 0; r < ROUNDS; r++) {
        if (r * SW_WARP >= n_words)
            break;
        const uint32_t left = n_words - r * SW_WARP;
        if (lane < left)
            ((uint32_t *)(frame + SW_FRAME_HEADER_BYTES))[r * SW_WARP + lane] = word[r];
#pragma unroll 8
        for (uint32_t i = 0; i < SW_WARP; i++) {
            const uint32_t next = __shfl_sync(0xFFFFFFFFu, word[r], i);
            hash = i < left ? sw_hash_word(hash, next) : hash;
        }
    }
    return hash;
}

/* Copies a tile's part of the dictionary to the frame. All lanes of its warp call it. */
template <class ITEMS>
__device__ inline void sw_gpu_put_dictionary(const ITEMS &items, const sw_gpu_place &place, uint32_t lane) {
    const sw_frame_layout &layout = place.item.layout;
    uint4 *to = (uint4 *)((uint8_t *)place.item.d_frame + layout.dictionary_offset);
    for (uint32_t i = place.unit * SW_WARP + lane; i < layout.dictionary_bytes / SW_FRAME_ALIGN;
         i += layout.n_tiles * SW_WARP)
        to[i] = items.d_dictionary[i];
}

/* Writes header, symbol table and padding of an item's frame, and its result. The warp that has taken the last place
 * calls it with all lanes; data_units: sw_gpu_room.all_units. */
template <class ITEMS>
__device__ void sw_gpu_finish_frame(const ITEMS &items, uint32_t index, uint64_t data_units, uint32_t lane) {
    const sw_frame_layout &layout = items.get(index).layout;
    uint8_t *frame = (uint8_t *)items.get(index).d_frame;
    union {
        sw_frame_header header;
        uint32_t word[SW_FRAME_HEADER_BYTES / 4];
    } h = {};
    h.header.magic = SW_FRAME_MAGIC;
    h.header.version = SW_FRAME_VERSION;
    h.header.codec = (uint8_t)layout.codec;
    h.header.segment_log2 = (uint8_t)layout.segment_log2;
    h.header.raw_bytes = layout.raw_bytes;
    h.header.frame_bytes =
        layout.frame_bytes ? layout.frame_bytes : layout.data_offset + data_units * (uint64_t)SW_FRAME_ALIGN;
    h.header.n_tiles = layout.n_tiles;
    h.header.n_symbols = layout.n_symbols;
    h.header.value_type = (uint8_t)layout.value_type;
    h.header.dictionary16 = (uint16_t)(layout.dictionary_bytes / SW_FRAME_ALIGN);
    uint32_t hash = 0;
#pragma unroll
    for (uint32_t i = 0; i < SW_FRAME_HEADER_BYTES / 4 - 1; i++)
        hash = sw_hash_word(hash, h.word[i]);
    h.header.header_hash = sw_hash_finish(sw_gpu_put_table(items.d_params, layout, frame, hash, lane));
    sw_gpu_zero_words(frame, layout.records_offset + sizeof(sw_tile_record) * layout.n_tiles, layout.counts_offset,
                      lane);
    sw_gpu_zero_words(frame, layout.counts_offset + (uint64_t)layout.count_bytes * layout.n_tiles,
                      layout.dictionary_offset, lane);
    sw_gpu_zero_words(frame, layout.dictionary_offset + layout.dictionary_bytes, layout.data_offset, lane);
    if (lane)
        return;
#pragma unroll
    for (uint32_t i = 0; i < SW_FRAME_HEADER_BYTES / 4; i++)
        ((uint32_t *)frame)[i] = h.word[i];
    items.results[index] = {h.header.frame_bytes, 0, (uint32_t)layout.codec};
    items.progress(index)->tiles_units = 0; /* for the next encode */
}

/* A pool (gpu.h): pieces, which have rows of a word for each lane. A slot is one piece or two neighbouring ones. */
struct sw_gpu_slots {
    uint32_t *d_free; /* a bit of each piece: it is free */
    uint8_t *d_rows;
    uint32_t n_words; /* of d_free; 0: the pool is empty */
    uint32_t piece_rows;

    /* Returns the rows of a slot by its first piece. */
    __device__ inline uint32_t *rows(uint32_t piece) const {
        return (uint32_t *)(d_rows + (size_t)piece * piece_rows * SW_WARP * sizeof(uint32_t));
    }
};

/* The arguments of a launcher, as in codec/gpu.h and already checked. ITEMS is one of the two classes above. */
template <class ITEMS> struct sw_gpu_encode_job {
    ITEMS items;           /* units are tiles; frame_bytes is not set; progress is zero, and is again after it */
    uintptr_t raw_address; /* the addresses of all sources, or-ed */
    const struct sw_gpu_plan *plan;
    sw_gpu_slots slots;
    cudaStream_t stream;
};
template <class ITEMS> struct sw_gpu_decode_job {
    ITEMS items; /* units are runs of the row's unit_tiles; decoding ends before tile layout.n_tiles */
    uintptr_t raw_address;
    uint32_t first_tile; /* the tile that d_raw begins with, for each item */
    unsigned value_bits; /* codecs of numbers: the lengths of the items' values, or-ed */
    cudaStream_t stream;
};

/* A codec's row on the GPU, `sw_<name>_gpu`. The codec's folder defines it by the macro below. */
struct sw_gpu_codec {
    void (*encode_single)(const sw_gpu_encode_job<sw_gpu_single> *job);
    void (*encode_batch)(const sw_gpu_encode_job<sw_gpu_batch> *job);
    void (*decode_single)(const sw_gpu_decode_job<sw_gpu_single> *job);
    void (*decode_batch)(const sw_gpu_decode_job<sw_gpu_batch> *job);
    /* Tiles of a unit in the decoding of a batch, where a block has one item's tables. A single item's units are tiles.
     */
    uint32_t unit_tiles;
    /* Sets attributes of the kernels; nullptr: there are none. */
    cudaError_t (*init)() = nullptr;
    /* Returns the dynamic shared memory of the largest block that is launched on a device where blocks may have
     * `limit`; 0: no block fits. nullptr: no launch has any. */
    size_t (*shared_bytes)(size_t limit) = nullptr;
    /* Returns how many pieces of a pool the encoder's warps can have at a time on the current device; nullptr: none. */
    uint32_t (*most_pieces)() = nullptr;
    /* Whether the current device can encode by a plan of this codec; nullptr: by any. */
    bool (*can_encode)(const sw_gpu_plan *plan) = nullptr;
};

/* Defines the row from the function templates sw_<name>_gpu_encode and sw_<name>_gpu_decode. The further arguments are
 * the row's members from unit_tiles on. */
#define SW_GPU_CODEC(name, ...)                                                                                        \
    const sw_gpu_codec sw_##name##_gpu = {sw_##name##_gpu_encode<sw_gpu_single>, sw_##name##_gpu_encode<sw_gpu_batch>, \
                                          sw_##name##_gpu_decode<sw_gpu_single>, sw_##name##_gpu_decode<sw_gpu_batch>, \
                                          __VA_ARGS__}

#define SW_CODEC(id, NAME, name, ...) extern const sw_gpu_codec sw_##name##_gpu;
#include "codec/codecs.def"

#endif
