/* busy_gpu.cu - keeps GPU 0 full of kernels, as a query engine at work does, to measure others beside it.
 *
 * Each kernel fills every multiprocessor and computes for about the given time; the next one is always queued. */
#include <cuda_runtime.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define QUEUED 8 /* kernels: there is always one to go on with */
#define THREADS 256

static const char usage[] = "usage: bench_busy_gpu SECONDS [KERNEL_US]\n"
                            "Keeps GPU 0 full of kernels of KERNEL_US microseconds (default 1000) for SECONDS.\n";

static __device__ uint64_t now_ns(void) {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void __launch_bounds__(THREADS) compute(uint64_t ns, float *sink) {
    const uint64_t start_ns = now_ns();
    float a = (float)threadIdx.x, b = 1.000001f;
    while (now_ns() - start_ns < ns)
        for (int i = 0; i < 64; i++)
            a = a * b + 0.5f;
    sink[threadIdx.x] = a;
}

static double now_s(void) {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static int failed(cudaError_t e) {
    (void)fprintf(stderr, "bench_busy_gpu: %s\n", cudaGetErrorString(e));
    return 1;
}

int main(int argc, char **argv) {
    const double seconds = argc > 1 ? atof(argv[1]) : 0, kernel_us = argc > 2 ? atof(argv[2]) : 1000;
    if (argc > 3 || seconds <= 0 || kernel_us <= 0) {
        (void)fputs(usage, stderr);
        return 2;
    }
    float *sink = NULL;
    int processors = 0, per_processor = 0;
    cudaEvent_t done[QUEUED];
    cudaError_t e = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0);
    if (e == cudaSuccess)
        e = cudaMalloc((void **)&sink, THREADS * sizeof *sink);
    if (e == cudaSuccess)
        e = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, compute, THREADS, 0);
    for (int i = 0; e == cudaSuccess && i < QUEUED; i++)
        e = cudaEventCreateWithFlags(&done[i], cudaEventDisableTiming | cudaEventBlockingSync);
    const double end_s = now_s() + seconds;
    uint64_t n = 0;
    for (; e == cudaSuccess && now_s() < end_s; n++) {
        if (n >= QUEUED)
            e = cudaEventSynchronize(done[n % QUEUED]);
        if (e != cudaSuccess)
            break;
        compute<<<processors * per_processor, THREADS>>>((uint64_t)(kernel_us * 1e3), sink);
        e = cudaEventRecord(done[n % QUEUED]);
    }
    if (e == cudaSuccess)
        e = cudaDeviceSynchronize();
    if (e != cudaSuccess)
        return failed(e);
    (void)printf("%llu kernels of %.0f us in %.1f s\n", (unsigned long long)n, kernel_us, seconds);
    return 0;
}
