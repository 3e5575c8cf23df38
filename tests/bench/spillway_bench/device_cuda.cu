/* device_cuda.cu - memory of GPU 0. Each thread works on a stream of its own. */
#include "tests/bench/spillway_bench/device.h"

#include <cuda_runtime.h>
#include <string.h>
#include <time.h>

#define BLOCKS 1024
#define THREADS 256
#define RAW_S 0.3
#define PIECE_ALIGNMENT 256                     /* cudaMalloc()'s, which an engine's buffers have */
#define LEAST_MEMORY_BYTES ((uint64_t)64 << 20) /* more than caches hold, if there are as many pieces */

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const cudaError_t try_rc = (call);                                                                             \
        if (try_rc != cudaSuccess)                                                                                     \
            return cudaGetErrorString(try_rc);                                                                         \
    } while (0)

/* A stream as engines have one: a default stream cannot be asked whether it is idle. It is made with a thread's first
 * work, and goes with the process. */
static thread_local cudaStream_t work_stream;

static const char *need_stream(void) {
    if (!work_stream)
        TRY(cudaStreamCreateWithFlags(&work_stream, cudaStreamNonBlocking));
    return NULL;
}

/* NULL if none can be made: the default one. */
static struct CUstream_st *stream(void) {
    (void)need_stream();
    return work_stream;
}

static const char *copy(void *to, const void *from, uint64_t bytes) {
    const char *failed = need_stream();
    if (failed)
        return failed;
    TRY(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, work_stream));
    TRY(cudaStreamSynchronize(work_stream));
    return NULL;
}

static const char *set(void *to, uint8_t value, uint64_t bytes) {
    const char *failed = need_stream();
    if (failed)
        return failed;
    TRY(cudaMemsetAsync(to, value, bytes, work_stream));
    TRY(cudaStreamSynchronize(work_stream));
    return NULL;
}

static __global__ void find_difference(const uint8_t *a, const uint8_t *b, uint64_t bytes, int *ret) {
    const uint64_t step = (uint64_t)gridDim.x * blockDim.x, first = (uint64_t)blockIdx.x * blockDim.x + threadIdx.x;
    const uint64_t vectors = bytes / sizeof(uint4);
    const uint4 *va = (const uint4 *)a, *vb = (const uint4 *)b;
    bool differs = false;
    for (uint64_t i = first; i < vectors; i += step) {
        const uint4 x = va[i], y = vb[i];
        differs |= x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w;
    }
    for (uint64_t i = vectors * sizeof(uint4) + first; i < bytes; i += step)
        differs |= a[i] != b[i];
    if (differs)
        *ret = 1;
}

static const char *equal(const void *a, const void *b, uint64_t bytes, bool *ret) {
    const char *failed = need_stream();
    if (failed)
        return failed;
    static thread_local int *d_differs; /* one for each thread; goes with the process */
    int differs = 1;
    if (!d_differs)
        TRY(cudaMalloc((void **)&d_differs, sizeof *d_differs));
    TRY(cudaMemsetAsync(d_differs, 0, sizeof *d_differs, work_stream));
    find_difference<<<BLOCKS, THREADS, 0, work_stream>>>((const uint8_t *)a, (const uint8_t *)b, bytes, d_differs);
    TRY(cudaGetLastError());
    TRY(cudaMemcpyAsync(&differs, d_differs, sizeof differs, cudaMemcpyDeviceToHost, work_stream));
    TRY(cudaStreamSynchronize(work_stream));
    *ret = !differs;
    return NULL;
}

/* ---- the plain copy ---------------------------------------------------------------------------------------------- */

struct copier {
    uint8_t *d_memory, *h_memory; /* `places` pieces side by side */
    uint64_t piece_bytes, stride;
    unsigned places, per_sync;
    cudaStream_t stream;
};

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static const char *queue_copies(const struct copier *c, bool out) {
    for (unsigned i = 0; i < c->per_sync; i++) {
        uint8_t *device = c->d_memory + i % c->places * c->stride, *host = c->h_memory + i % c->places * c->stride;
        TRY(out ? cudaMemcpyAsync(host, device, c->piece_bytes, cudaMemcpyDeviceToHost, c->stream)
                : cudaMemcpyAsync(device, host, c->piece_bytes, cudaMemcpyHostToDevice, c->stream));
    }
    return NULL;
}

/* out, back: whether each direction is used. */
static const char *measure(const struct copier copiers[2], bool out, bool back, double *ret_gbps) {
    const double round_bytes = (double)copiers[0].piece_bytes * copiers[0].per_sync * ((out ? 1 : 0) + (back ? 1 : 0));
    const double start_s = now_s();
    double s = 0, copied_bytes = 0;
    while (s < RAW_S) {
        const char *failed = out ? queue_copies(&copiers[0], true) : NULL;
        if (!failed && back)
            failed = queue_copies(&copiers[1], false);
        if (failed)
            return failed;
        TRY(cudaStreamSynchronize(copiers[0].stream));
        TRY(cudaStreamSynchronize(copiers[1].stream));
        copied_bytes += round_bytes;
        s = now_s() - start_s;
    }
    *ret_gbps = copied_bytes / s / 1e9;
    return NULL;
}

static const char *prepare(struct copier *c, uint64_t piece_bytes, unsigned per_sync) {
    c->piece_bytes = piece_bytes;
    c->stride = (piece_bytes + PIECE_ALIGNMENT - 1) / PIECE_ALIGNMENT * PIECE_ALIGNMENT;
    c->per_sync = per_sync;
    const uint64_t most_places = (LEAST_MEMORY_BYTES + c->stride - 1) / c->stride;
    c->places = most_places < per_sync ? (unsigned)most_places : per_sync;
    const uint64_t bytes = c->places * c->stride;
    TRY(cudaStreamCreateWithFlags(&c->stream, cudaStreamNonBlocking));
    TRY(cudaMalloc((void **)&c->d_memory, bytes));
    TRY(cudaMallocHost((void **)&c->h_memory, bytes));
    memset(c->h_memory, 1, bytes);
    return NULL;
}

static void release(struct copier *c) {
    (void)cudaFreeHost(c->h_memory);
    (void)cudaFree(c->d_memory);
    if (c->stream)
        (void)cudaStreamDestroy(c->stream);
}

static const char *raw(struct sw_bench_raw *ret, uint64_t piece_bytes, unsigned per_sync, unsigned threads) {
    struct copier copiers[2];
    (void)threads;
    memset(copiers, 0, sizeof copiers);
    memset(ret, 0, sizeof *ret);
    ret->piece_bytes = piece_bytes;
    ret->per_sync = per_sync;
    const char *failed = prepare(&copiers[0], piece_bytes, per_sync);
    if (!failed)
        failed = prepare(&copiers[1], piece_bytes, per_sync);
    if (!failed)
        failed = measure(copiers, true, false, &ret->out_gbps);
    if (!failed)
        failed = measure(copiers, false, true, &ret->back_gbps);
    if (!failed)
        failed = measure(copiers, true, true, &ret->both_gbps);
    release(&copiers[0]);
    release(&copiers[1]);
    return failed;
}

static const struct sw_bench_device gpu = {stream, copy, set, equal, raw};

const struct sw_bench_device *sw_bench_gpu(void) {
    return &gpu;
}
