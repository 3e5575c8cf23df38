/* codec_gpu.cu - the calls of codec/gpu.h: argument checks, launches, and the parts that all frames have. */
#include "codec/codec_gpu.cuh"
#include "codec/streams/streams.h"

namespace {

__global__ void do_nothing() {}

const sw_gpu_codec *const codecs[SW_CODEC_NR] = {
#define SW_CODEC(id, NAME, name, ...) &sw_##name##_gpu,
#include "codec/codecs.def"
};

void encode(const sw_gpu_encode_job<sw_gpu_single> *job) {
    codecs[job->plan->codec]->encode_single(job);
}

void encode(const sw_gpu_encode_job<sw_gpu_batch> *job) {
    codecs[job->plan->codec]->encode_batch(job);
}

/* Finishes the frames of items without bytes, which have no tile. A warp for each item. */
template <class ITEMS>
__global__ void __launch_bounds__(SW_WARP) finish_empty_frames(const __grid_constant__ ITEMS items) {
    if (!items.get(blockIdx.x).layout.n_tiles)
        sw_gpu_finish_frame(items, blockIdx.x, 0, threadIdx.x);
}

/* Gathers a sample, a block per piece. The host has computed the offsets by sw_sample_offset(). */
struct piece_offsets {
    uint64_t at[SW_SAMPLE_MAX_PIECES];
};

__global__ void gather_pieces(const uint8_t *region, uint64_t raw_bytes, piece_offsets offsets, uint8_t *sample,
                              sw_gpu_pass pass) {
    if (sw_gpu_is_refused(pass, threadIdx.x % SW_WARP))
        return;
    const uint64_t from = offsets.at[blockIdx.x] + threadIdx.x;
    if (from < raw_bytes)
        sample[blockIdx.x * blockDim.x + threadIdx.x] = region[from];
}

/* With it, four slots of a device for chunks of 64 MiB take 312 MiB, everything counted. */
constexpr size_t POOL_MOST_BYTES = (size_t)54 << 20;
constexpr size_t POOL_HEAD_BYTES = 4096; /* the bits of free pieces */
constexpr uint32_t ROW_BYTES = SW_WARP * sizeof(uint32_t);
constexpr uint32_t MOST_PIECE_ROWS = (1u << SW_STREAMS_MAX_SEGMENT_LOG2) / 8 + 2; /* any tile fits into two */

/* Returns how many pieces are in use at a time. */
uint32_t most_pieces() {
    uint32_t most = 1;
    for (const sw_gpu_codec *codec : codecs)
        most = max(most, codec->most_pieces ? codec->most_pieces() : 0);
    return most;
}

/* Returns the rows of a piece on the current device: so few that each warp has a slot. */
uint32_t piece_rows() {
    const size_t rows = (POOL_MOST_BYTES - POOL_HEAD_BYTES) / ((size_t)most_pieces() * ROW_BYTES);
    return (uint32_t)min(rows, (size_t)MOST_PIECE_ROWS);
}

sw_gpu_slots slots_of(const sw_gpu_pool *pool) {
    const uint32_t rows = piece_rows();
    const size_t word_bytes = 32 * (size_t)rows * ROW_BYTES;
    const size_t n_words = pool->bytes > POOL_HEAD_BYTES ? (pool->bytes - POOL_HEAD_BYTES) / word_bytes : 0;
    return {(uint32_t *)pool->d_memory, (uint8_t *)pool->d_memory + POOL_HEAD_BYTES,
            (uint32_t)min(n_words, POOL_HEAD_BYTES / sizeof(uint32_t)), rows};
}

} // namespace

size_t sw_gpu_shared_bytes() {
    int device = 0, bytes = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    static const char *const kib = secure_getenv("SPILLWAY_TEST_SHARED_KIB");
    static const size_t most = kib ? strtoul(kib, nullptr, 10) << 10 : SIZE_MAX;
    return min((size_t)bytes, most);
}

cudaError_t sw_gpu_allow_shared(const void *kernel, size_t bytes) {
    cudaFuncAttributes attributes;
    const cudaError_t e = cudaFuncGetAttributes(&attributes, kernel);
    if (e != cudaSuccess)
        return e;
    if (bytes + attributes.sharedSizeBytes > sw_gpu_shared_bytes())
        return cudaErrorNotSupported;
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

size_t sw_gpu_codec_shared_bytes(enum sw_codec_id codec, size_t limit) {
    return codecs[codec]->shared_bytes ? codecs[codec]->shared_bytes(limit) : 1;
}

int sw_gpu_codec_init(struct sw_err *err) {
    for (int i = 0; i < SW_CODEC_NR; i++) {
        const size_t limit = sw_gpu_shared_bytes();
        if (!sw_gpu_codec_shared_bytes((enum sw_codec_id)i, limit))
            return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE,
                              "device has %zu KiB of shared memory per block, too little for codec %s", limit >> 10,
                              sw_codec_name((enum sw_codec_id)i));
        const int rc = codecs[i]->init ? sw_gpu_check(codecs[i]->init(), err, "cudaFuncSetAttribute") : 0;
        if (rc < 0)
            return rc;
    }
    return 0;
}

bool sw_gpu_takes_dictionaries(void) {
    for (int i = 0; i < SW_CODEC_NR; i++) {
        sw_gpu_plan plan = {};
        plan.codec = (enum sw_codec_id)i;
        plan.index_log2 = SW_DICTIONARY_INDEX_LOG2;
        if (sw_codec_has_dictionary(plan.codec) && codecs[i]->can_encode && !codecs[i]->can_encode(&plan))
            return false;
    }
    return true;
}

uint32_t sw_gpu_full_segments(void) {
    return sw_gpu_processors() * SW_WARP;
}

size_t sw_gpu_pool_bytes(uint64_t raw_bytes) {
    const uint64_t tile_bytes = (uint64_t)SW_TILE_SEGMENTS << SW_STREAMS_MAX_SEGMENT_LOG2;
    const uint64_t pieces = min(2 * ((raw_bytes + tile_bytes - 1) / tile_bytes), (uint64_t)most_pieces());
    return POOL_HEAD_BYTES + (pieces + 31) / 32 * 32 * piece_rows() * ROW_BYTES;
}

int sw_gpu_pool_init_async(const struct sw_gpu_pool *pool, struct CUstream_st *stream, struct sw_err *err) {
    const sw_gpu_slots slots = slots_of(pool);
    return sw_gpu_check(cudaMemsetAsync(slots.d_free, 0xFF, slots.n_words * sizeof *slots.d_free, stream), err,
                        "cudaMemsetAsync of a pool");
}

int sw_gpu_sample_async(const void *d_region, uint64_t raw_bytes, unsigned piece_bytes, void *d_sample,
                        struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err) {
    piece_offsets offsets;
    const unsigned n = sw_sample_pieces(raw_bytes, piece_bytes);
    for (unsigned i = 0; i < n; i++)
        offsets.at[i] = sw_sample_offset(raw_bytes, piece_bytes, i);
    if (!n)
        return 0;
    gather_pieces<<<n, piece_bytes, 0, stream>>>((const uint8_t *)d_region, raw_bytes, offsets, (uint8_t *)d_sample,
                                                 pass);
    return sw_gpu_launched(err, "gather_pieces");
}

static int check_plan(const struct sw_gpu_plan *plan, uint64_t in_bytes, const void *d_frame, struct sw_err *err) {
    if (!sw_codec_takes(plan->codec, plan->value_type) || in_bytes > SW_FRAME_MAX_RAW_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "codec %d, values of type %d, %llu bytes",
                          (int)plan->codec, (int)plan->value_type, (unsigned long long)in_bytes);
    if ((uintptr_t)d_frame % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "frame is not aligned to %d", SW_FRAME_ALIGN);
    if (sw_codec_has_dictionary(plan->codec) != (plan->d_dictionary && plan->d_index && plan->dictionary_bytes))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a plan by codec %s %s a dictionary",
                          sw_codec_name(plan->codec), plan->dictionary_bytes ? "has" : "lacks");
    if (codecs[plan->codec]->can_encode && !codecs[plan->codec]->can_encode(plan))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST,
                          "the device has too little shared memory for a dictionary of 2^%u symbols", plan->index_log2);
    return 0;
}

static int check_scratch(const void *d_scratch, size_t scratch_bytes, size_t needed_bytes, struct sw_err *err) {
    if ((uintptr_t)d_scratch % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "scratch is not aligned to %d", SW_FRAME_ALIGN);
    if (scratch_bytes < needed_bytes)
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "scratch of %zu bytes, %zu needed", scratch_bytes,
                          needed_bytes);
    return 0;
}

static unsigned layout_value_bits(const struct sw_frame_layout &layout) {
    return layout.value_type == SW_VALUE_NONE ? 0 : sw_value_bits(layout.value_type);
}

/* Computes the layout of a plan's frame. errors: -SW_EINVAL: the head alone would be longer than a raw frame, which
 * only a dictionary can cause. */
static int init_layout(struct sw_frame_layout *ret, const struct sw_gpu_plan *plan, uint64_t raw_bytes,
                       struct sw_err *err) {
    sw_frame_layout_init(ret, plan->codec,
                         sw_codec_has_segments(plan->codec) ? plan->segment_log2 : SW_RAW_SEGMENT_LOG2, raw_bytes,
                         sw_codec_has_symbols(plan->codec) ? plan->n_symbols : 0);
    ret->value_type = plan->value_type;
    sw_frame_layout_add_dictionary(ret, plan->dictionary_bytes);
    if (plan->dictionary_bytes && ret->data_offset > sw_gpu_raw_frame_bytes(raw_bytes))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%llu bytes are too short for a dictionary of %u bytes",
                          (unsigned long long)raw_bytes, plan->dictionary_bytes);
    return 0;
}

template <class ITEMS>
static int queue_encode(const sw_gpu_encode_job<ITEMS> *job, uint32_t n_items, bool some_are_empty,
                        struct sw_err *err) {
    if (job->items.n_units) {
        encode(job);
        const int rc = sw_gpu_launched(err, "encode_tiles");
        if (rc < 0)
            return rc;
    }
    if (!some_are_empty)
        return 0;
    finish_empty_frames<<<n_items, SW_WARP, 0, job->stream>>>(job->items);
    return sw_gpu_launched(err, "finish_empty_frames");
}

int sw_gpu_encode_async(const struct sw_gpu_plan *plan, const void *d_in, uint64_t in_bytes, void *d_frame,
                        uint64_t frame_cap_bytes, struct sw_gpu_result *d_result, const struct sw_gpu_pool *pool,
                        struct sw_gpu_progress *d_progress, struct sw_gpu_pass pass, struct CUstream_st *stream,
                        struct sw_err *err) {
    int rc = check_plan(plan, in_bytes, d_frame, err);
    if (rc == 0 && frame_cap_bytes < sw_frame_bound_bytes(in_bytes))
        rc = sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "frame buffer of %llu bytes, %llu needed",
                        (unsigned long long)frame_cap_bytes, (unsigned long long)sw_frame_bound_bytes(in_bytes));
    if (rc < 0)
        return rc;
    sw_gpu_single items = {};
    rc = init_layout(&items.item.layout, plan, in_bytes, err);
    if (rc < 0)
        return rc;
    items.item.d_raw = (void *)d_in;
    items.item.d_frame = d_frame;
    items.d_progress = d_progress;
    items.results = d_result;
    items.n_units = items.item.layout.n_tiles;
    items.d_params = plan->d_params;
    items.d_dictionary = (const uint4 *)plan->d_dictionary;
    items.pass = pass;
    const sw_gpu_encode_job<sw_gpu_single> job = {items, (uintptr_t)d_in, plan, slots_of(pool), stream};
    return queue_encode(&job, 1, !in_bytes, err);
}

int sw_gpu_decode_async(const struct sw_frame_layout *layout, const void *d_frame, uint32_t first_tile,
                        uint32_t n_tiles, void *d_out, struct sw_gpu_result *d_result, struct sw_gpu_pass pass,
                        struct CUstream_st *stream, struct sw_err *err) {
    if (first_tile > layout->n_tiles || n_tiles > layout->n_tiles - first_tile)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "tiles %u + %u of %u", first_tile, n_tiles,
                          layout->n_tiles);
    if ((uintptr_t)d_frame % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "frame is not aligned to %d", SW_FRAME_ALIGN);
    if (!n_tiles)
        return 0;
    sw_gpu_single items = {};
    items.item.layout = *layout;
    items.item.layout.n_tiles = first_tile + n_tiles;
    items.item.d_raw = d_out;
    items.item.d_frame = (void *)d_frame;
    items.results = d_result;
    items.n_units = n_tiles;
    items.pass = pass;
    const sw_gpu_decode_job<sw_gpu_single> job = {items, (uintptr_t)d_out, first_tile, layout_value_bits(*layout),
                                                  stream};
    codecs[layout->codec]->decode_single(&job);
    return sw_gpu_launched(err, "decode_tiles");
}

/* ---- batches ---- */

size_t sw_gpu_batch_scratch_bytes(uint32_t n) {
    return n * sizeof(sw_gpu_item);
}

/* Distributes the units of the launches to the items. A unit is a tile, or the decoder's own unit. units[codec]: the
 * number of all units. */
static int count_units(struct sw_gpu_item *items, uint32_t n, bool are_tiles, uint32_t units[SW_CODEC_NR],
                       struct sw_err *err) {
    uint64_t sum[SW_CODEC_NR] = {};
    for (uint32_t i = 0; i < n; i++) {
        for (int codec = 0; codec < SW_CODEC_NR; codec++)
            items[i].first_unit[codec] = (uint32_t)sum[codec];
        const struct sw_frame_layout *layout = &items[i].layout;
        const uint32_t unit_tiles = are_tiles ? 1 : codecs[layout->codec]->unit_tiles;
        sum[layout->codec] += ((uint64_t)layout->n_tiles + unit_tiles - 1) / unit_tiles;
        if (sum[layout->codec] > INT32_MAX)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "batch has too many tiles");
    }
    for (int codec = 0; codec < SW_CODEC_NR; codec++)
        units[codec] = (uint32_t)sum[codec];
    return 0;
}

/* Returns the or-ed addresses of the raw bytes of one codec's items. */
static uintptr_t raw_addresses(const struct sw_gpu_item *items, uint32_t n, unsigned codec) {
    uintptr_t address = 0;
    for (uint32_t i = 0; i < n; i++)
        address |= items[i].layout.codec == codec ? (uintptr_t)items[i].d_raw : 0;
    return address;
}

static unsigned all_value_bits(const struct sw_gpu_item *items, uint32_t n, unsigned codec) {
    unsigned bits = 0;
    for (uint32_t i = 0; i < n; i++)
        bits |= items[i].layout.codec == codec ? layout_value_bits(items[i].layout) : 0;
    return bits;
}

static int copy_items(sw_gpu_batch *ret, const struct sw_gpu_item *h_items, uint32_t n, struct sw_gpu_result *results,
                      void *d_scratch, cudaStream_t stream, struct sw_err *err) {
    *ret = {};
    ret->d_items = (sw_gpu_item *)d_scratch;
    ret->n = n;
    ret->codec = SW_CODEC_RAW;
    ret->results = results;
    return sw_gpu_check(cudaMemcpyAsync(d_scratch, h_items, n * sizeof *h_items, cudaMemcpyHostToDevice, stream), err,
                        "cudaMemcpyAsync of a batch's descriptors");
}

int sw_gpu_encode_batch_async(const struct sw_gpu_plan *plan, struct sw_gpu_item *h_items, uint32_t n,
                              struct sw_gpu_result *results, const struct sw_gpu_pool *pool, void *d_scratch,
                              size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream,
                              struct sw_err *err) {
    uint32_t units[SW_CODEC_NR];
    bool some_are_empty = false;
    int rc = 0;
    for (uint32_t i = 0; rc == 0 && i < n; i++) {
        some_are_empty |= !h_items[i].layout.raw_bytes;
        rc = check_plan(plan, h_items[i].layout.raw_bytes, h_items[i].d_frame, err);
        if (rc == 0)
            rc = init_layout(&h_items[i].layout, plan, h_items[i].layout.raw_bytes, err);
        h_items[i].progress = {};
    }
    if (rc == 0)
        rc = check_scratch(d_scratch, scratch_bytes, sw_gpu_batch_scratch_bytes(n), err);
    if (rc == 0)
        rc = count_units(h_items, n, true, units, err);
    if (rc < 0 || !n)
        return rc;
    sw_gpu_encode_job<sw_gpu_batch> job = {{}, raw_addresses(h_items, n, plan->codec), plan, slots_of(pool), stream};
    rc = copy_items(&job.items, h_items, n, results, d_scratch, stream, err);
    job.items.codec = plan->codec;
    job.items.n_units = units[plan->codec];
    job.items.d_params = plan->d_params;
    job.items.d_dictionary = (const uint4 *)plan->d_dictionary;
    job.items.pass = pass;
    return rc < 0 ? rc : queue_encode(&job, n, some_are_empty, err);
}

int sw_gpu_wake_async(struct CUstream_st *stream, struct sw_err *err) {
    do_nothing<<<1, 1, 0, stream>>>();
    return sw_gpu_launched(err, "do_nothing");
}

int sw_gpu_decode_batch_async(struct sw_gpu_item *h_items, uint32_t n, struct sw_gpu_result *results, void *d_scratch,
                              size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream,
                              struct sw_err *err) {
    uint32_t units[SW_CODEC_NR];
    int rc = check_scratch(d_scratch, scratch_bytes, n * sizeof *h_items, err);
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        if ((uintptr_t)h_items[i].d_frame % SW_FRAME_ALIGN)
            rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "frame is not aligned to %d", SW_FRAME_ALIGN);
    if (rc == 0)
        rc = count_units(h_items, n, false, units, err);
    if (rc < 0 || !n)
        return rc;
    sw_gpu_decode_job<sw_gpu_batch> job = {{}, 0, 0, 0, stream};
    rc = copy_items(&job.items, h_items, n, results, d_scratch, stream, err);
    job.items.pass = pass;
    for (int codec = 0; rc == 0 && codec < SW_CODEC_NR; codec++) {
        if (!units[codec])
            continue;
        job.items.codec = (enum sw_codec_id)codec;
        job.items.n_units = units[codec];
        job.raw_address = raw_addresses(h_items, n, (unsigned)codec);
        job.value_bits = all_value_bits(h_items, n, (unsigned)codec);
        codecs[codec]->decode_batch(&job);
        rc = sw_gpu_launched(err, "decode_tiles");
    }
    return rc;
}
