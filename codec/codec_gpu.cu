/* codec_gpu.cu - the calls of codec/gpu.h: checks, launches, and the parts of a frame that all codecs have. */
#include "codec/v5t/v5t_gpu.cuh"

namespace {

constexpr uint32_t FINISH_THREADS = 256;
constexpr uint32_t MAX_TABLE_WORDS = (SW_FRAME_HEAD_MAX_BYTES - SW_FRAME_HEADER_BYTES) / 4;

struct gpu_codec {
    void (*encode)(const struct sw_gpu_encode_job *job);
    void (*decode)(const struct sw_gpu_decode_job *job);
};
const gpu_codec codecs[SW_CODEC_NR] = {
    {sw_raw_gpu_encode, sw_raw_gpu_decode},  /* SW_CODEC_RAW */
    {sw_v5t_gpu_encode, sw_gsst_gpu_decode}, /* SW_CODEC_V5T */
};

/* Byte i of the symbol table section. */
__device__ inline uint32_t table_byte(const sw_v5t_table *table, uint32_t n_symbols, uint32_t i) {
    if (i < 8 * n_symbols)
        return (uint32_t)(table->value[i / 8] >> 8 * (i % 8)) & 0xFF;
    return i < 9 * n_symbols ? table->length[i - 8 * n_symbols] : 0;
}

/* Zeroes [from, to), padding of at most a word per thread. */
__device__ inline void zero_words(uint8_t *frame, uint64_t from, uint64_t to) {
    const uint64_t at = from + 4 * threadIdx.x;
    if (at < to)
        *(uint32_t *)(frame + at) = 0;
}

/* Header, symbol table and padding of the sections, when the size of the data section is known. One block. */
__global__ void __launch_bounds__(FINISH_THREADS)
    finish_frame(sw_frame_layout layout, const sw_v5t_table *table, const sw_gpu_progress *progress, uint8_t *frame,
                 sw_gpu_result *result) {
    __shared__ uint32_t section[MAX_TABLE_WORDS];
    const uint32_t table_words = (uint32_t)(layout.records_offset - SW_FRAME_HEADER_BYTES) / 4;
    for (uint32_t i = threadIdx.x; i < table_words; i += FINISH_THREADS) {
        uint32_t word = 0;
        for (uint32_t b = 0; b < 4; b++)
            word |= table_byte(table, layout.n_symbols, 4 * i + b) << 8 * b;
        section[i] = word;
        ((uint32_t *)(frame + SW_FRAME_HEADER_BYTES))[i] = word;
    }
    zero_words(frame, layout.records_offset + sizeof(sw_tile_record) * layout.n_tiles, layout.counts_offset);
    zero_words(frame, layout.counts_offset + (layout.codec == SW_CODEC_V5T ? SW_TILE_SEGMENTS * layout.n_tiles : 0),
               layout.data_offset);
    __syncthreads();
    if (threadIdx.x)
        return;
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
        layout.frame_bytes ? layout.frame_bytes : layout.data_offset + progress->data_units * (uint64_t)SW_FRAME_ALIGN;
    h.header.n_tiles = layout.n_tiles;
    h.header.n_symbols = layout.n_symbols;
    uint32_t hash = 0;
    for (uint32_t i = 0; i < SW_FRAME_HEADER_BYTES / 4 - 1; i++)
        hash = sw_hash_word(hash, h.word[i]);
    for (uint32_t i = 0; i < table_words; i++)
        hash = sw_hash_word(hash, section[i]);
    h.header.header_hash = sw_hash_finish(hash);
    for (uint32_t i = 0; i < SW_FRAME_HEADER_BYTES / 4; i++)
        ((uint32_t *)frame)[i] = h.word[i];
    result->frame_bytes = h.header.frame_bytes;
    result->bad_tiles = 0;
    result->codec = (uint32_t)layout.codec;
}

/* A block per piece; offsets are those of sw_sample_offset(), computed on the host. */
struct piece_offsets {
    uint64_t at[SW_SAMPLE_PIECES];
};

__global__ void gather_pieces(const uint8_t *region, uint64_t raw_bytes, piece_offsets offsets, uint8_t *sample) {
    const uint64_t from = offsets.at[blockIdx.x] + threadIdx.x;
    if (from < raw_bytes)
        sample[blockIdx.x * SW_SAMPLE_PIECE_BYTES + threadIdx.x] = region[from];
}

size_t progress_bytes() {
    return (sizeof(sw_gpu_progress) + 255) / 256 * 256;
}

} // namespace

int sw_gpu_codec_init(struct sw_err *err) {
    const cudaError_t e = sw_v5t_gpu_init();
    if (e == cudaErrorNotSupported)
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "device has less than 99 KiB of shared memory per block");
    int rc = sw_gpu_check(e, err, "cudaFuncSetAttribute");
    if (rc == 0)
        rc = sw_gpu_check(sw_gsst_gpu_init(), err, "cudaFuncSetAttribute");
    if (rc == 0)
        rc = sw_gpu_check(sw_v5t_train_gpu_init(), err, "cudaFuncSetAttribute");
    return rc;
}

uint32_t sw_gpu_full_segments(void) {
    return sw_gpu_processors() * SW_WARP;
}

size_t sw_gpu_encode_scratch_bytes(uint64_t in_bytes) {
    size_t most = 0;
    for (unsigned log2 = 8; log2 <= 10; log2++) {
        const size_t bytes = sw_v5t_gpu_slots_bytes(in_bytes, log2);
        most = bytes > most ? bytes : most;
    }
    return progress_bytes() + most;
}

int sw_gpu_sample_async(const void *d_region, uint64_t raw_bytes, void *d_sample, struct CUstream_st *stream,
                        struct sw_err *err) {
    piece_offsets offsets;
    const unsigned n = sw_sample_pieces(raw_bytes);
    for (unsigned i = 0; i < n; i++)
        offsets.at[i] = sw_sample_offset(raw_bytes, i);
    if (!n)
        return 0;
    gather_pieces<<<n, SW_SAMPLE_PIECE_BYTES, 0, stream>>>((const uint8_t *)d_region, raw_bytes, offsets,
                                                           (uint8_t *)d_sample);
    return sw_gpu_launched(err, "gather_pieces");
}

static int check_encode(const struct sw_gpu_plan *plan, uint64_t in_bytes, const void *d_frame, uint64_t cap,
                        const void *d_scratch, size_t scratch_bytes, struct sw_err *err) {
    if ((unsigned)plan->codec >= SW_CODEC_NR || in_bytes > SW_FRAME_MAX_RAW_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "codec %d, %llu bytes", (int)plan->codec,
                          (unsigned long long)in_bytes);
    if ((uintptr_t)d_frame % SW_FRAME_ALIGN || (uintptr_t)d_scratch % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "frame or scratch is not aligned to %d", SW_FRAME_ALIGN);
    if (cap < sw_frame_bound_bytes(in_bytes))
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "frame buffer of %llu bytes, %llu needed",
                          (unsigned long long)cap, (unsigned long long)sw_frame_bound_bytes(in_bytes));
    if (scratch_bytes < sw_gpu_encode_scratch_bytes(in_bytes))
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "scratch of %zu bytes, %zu needed", scratch_bytes,
                          sw_gpu_encode_scratch_bytes(in_bytes));
    return 0;
}

int sw_gpu_encode_async(const struct sw_gpu_plan *plan, const void *d_in, uint64_t in_bytes, void *d_frame,
                        uint64_t frame_cap_bytes, struct sw_gpu_result *d_result, void *d_scratch, size_t scratch_bytes,
                        struct CUstream_st *stream, struct sw_err *err) {
    int rc = check_encode(plan, in_bytes, d_frame, frame_cap_bytes, d_scratch, scratch_bytes, err);
    if (rc < 0)
        return rc;
    struct sw_gpu_encode_job job = {};
    job.plan = plan;
    job.d_in = (const uint8_t *)d_in;
    job.d_frame = (uint8_t *)d_frame;
    job.d_progress = (struct sw_gpu_progress *)d_scratch;
    job.d_slots = (uint8_t *)d_scratch + progress_bytes();
    job.slots_bytes = scratch_bytes - progress_bytes();
    job.stream = stream;
    const bool raw = plan->codec == SW_CODEC_RAW;
    sw_frame_layout_init(&job.layout, plan->codec, raw ? SW_RAW_SEGMENT_LOG2 : plan->segment_log2, in_bytes,
                         raw ? 0 : plan->n_symbols);
    rc = sw_gpu_check(cudaMemsetAsync(job.d_progress, 0, sizeof *job.d_progress, stream), err, "cudaMemsetAsync");
    if (rc < 0)
        return rc;
    if (job.layout.n_tiles) {
        codecs[plan->codec].encode(&job);
        rc = sw_gpu_launched(err, "encode_tiles");
        if (rc < 0)
            return rc;
    }
    finish_frame<<<1, FINISH_THREADS, 0, stream>>>(job.layout, plan->d_table, job.d_progress, job.d_frame, d_result);
    return sw_gpu_launched(err, "finish_frame");
}

int sw_gpu_decode_async(const struct sw_frame_layout *layout, const void *d_frame, uint32_t first_tile,
                        uint32_t n_tiles, void *d_out, struct sw_gpu_result *d_result, struct CUstream_st *stream,
                        struct sw_err *err) {
    if (first_tile > layout->n_tiles || n_tiles > layout->n_tiles - first_tile)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "tiles %u + %u of %u", first_tile, n_tiles,
                          layout->n_tiles);
    if ((uintptr_t)d_frame % SW_FRAME_ALIGN)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "frame is not aligned to %d", SW_FRAME_ALIGN);
    if (!n_tiles)
        return 0;
    struct sw_gpu_decode_job job = {layout, (const uint8_t *)d_frame, first_tile, n_tiles, (uint8_t *)d_out, d_result,
                                    stream};
    codecs[layout->codec].decode(&job);
    return sw_gpu_launched(err, "decode_tiles");
}
