/* copy_gpu.cu - copies many short runs of bytes in one launch, to and from pinned host memory.
 *
 * A warp copies a piece at a time. It issues all loads of the piece before the first store: the link's latency is long,
 * so many loads must be in flight. The grid is bounded to a block per multiprocessor. A warp then has 4 KiB in flight,
 * and room is left for other streams' kernels. */
#include "codec/codec_gpu.cuh"

namespace {

constexpr uint32_t WARPS = 8, THREADS = WARPS * SW_WARP;
constexpr uint32_t UNITS = 8; /* units of 16 bytes that a lane has in flight */
constexpr uint32_t PIECE_UNITS = UNITS * SW_WARP, PIECE_BYTES = 16 * PIECE_UNITS;

__global__ void __launch_bounds__(THREADS) copy_runs(const sw_gpu_run *runs, uint32_t n, uint64_t n_pieces) {
    const uint32_t lane = threadIdx.x % SW_WARP;
    for (uint64_t piece = blockIdx.x * WARPS + threadIdx.x / SW_WARP; piece < n_pieces;
         piece += (uint64_t)gridDim.x * WARPS) {
        const sw_gpu_run &run =
            runs[sw_warp_find_last(n, piece, lane, [&](uint32_t i) { return runs[i].first_piece; })];
        const uint64_t at = (piece - run.first_piece) * PIECE_UNITS + lane, units = run.bytes / 16;
        const uint4 *from = (const uint4 *)run.from;
        uint4 *to = (uint4 *)run.to;
        uint4 v[UNITS];
#pragma unroll
        for (uint32_t k = 0; k < UNITS; k++)
            if (at + k * SW_WARP < units)
                v[k] = __ldcs(from + at + k * SW_WARP);
#pragma unroll
        for (uint32_t k = 0; k < UNITS; k++)
            if (at + k * SW_WARP < units)
                __stcs(to + at + k * SW_WARP, v[k]);
    }
}

} // namespace

int sw_gpu_copy_async(struct sw_gpu_run *h_runs, uint32_t n, void *d_scratch, size_t scratch_bytes,
                      struct CUstream_st *stream, struct sw_err *err) {
    uint64_t n_pieces = 0;
    if (scratch_bytes < n * sizeof *h_runs)
        return sw_err_set(err, -SW_ETOOSMALL, SW_SCOPE_REQUEST, "scratch of %zu bytes, %zu needed", scratch_bytes,
                          n * sizeof *h_runs);
    for (uint32_t i = 0; i < n; i++) {
        if (((uintptr_t)h_runs[i].from | (uintptr_t)h_runs[i].to | h_runs[i].bytes) % 16)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "run is not aligned to 16");
        h_runs[i].first_piece = n_pieces;
        n_pieces += (h_runs[i].bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    }
    if (!n_pieces)
        return 0;
    const int rc = sw_gpu_check(cudaMemcpyAsync(d_scratch, h_runs, n * sizeof *h_runs, cudaMemcpyHostToDevice, stream),
                                err, "cudaMemcpyAsync of a copy's runs");
    if (rc < 0)
        return rc;
    const uint64_t blocks = min((n_pieces + WARPS - 1) / WARPS, (uint64_t)sw_gpu_processors());
    copy_runs<<<(uint32_t)blocks, THREADS, 0, stream>>>((const sw_gpu_run *)d_scratch, n, n_pieces);
    return sw_gpu_launched(err, "copy_runs");
}
