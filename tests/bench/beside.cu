/* beside.cu - spills and restores text while the same process keeps its GPU full of kernels, as a query engine does.
 *
 * For every size it measures, by turns: a plain copy to pinned host memory and back, and a spill and a restore by the
 * service's codec and by the client's. Every restore is compared on the GPU. With --table it prints medians as a
 * multiple of the copy in the same run, and how many kernels the engine finished per second meanwhile. */
#include "spillway.h"
#include "tests/lib/tpch_text.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <cuda_runtime.h>
#include <thread>
#include <time.h>
#include <unistd.h>
#include <vector>

static const char usage[] =
    "usage: bench_beside [--kernel US | --scan] [--column text|random] [--rounds N] SIZE_MIB...\n"
    "Needs a running spillwayd ($SPILLWAY_SOCKET). --kernel: the engine's kernels take so many microseconds;\n"
    "--scan: they read memory. Neither: the GPU is idle.\n";

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const cudaError_t e_ = (call);                                                                                 \
        if (e_ != cudaSuccess)                                                                                         \
            die(#call, cudaGetErrorString(e_));                                                                        \
    } while (0)

[[noreturn]] static void die(const char *what, const char *why) {
    (void)fprintf(stderr, "bench_beside: %s: %s\n", what, why);
    _Exit(1);
}

static double now_s() {
    struct timespec t;
    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- the engine ---- */

enum { QUEUED = 8, THREADS = 256 };

static __device__ uint64_t now_ns() {
    uint64_t ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

static __global__ void __launch_bounds__(THREADS) compute(uint64_t ns, float *sink) {
    const uint64_t start_ns = now_ns();
    float a = (float)threadIdx.x;
    while (now_ns() - start_ns < ns)
        for (int i = 0; i < 64; i++)
            a = a * 1.000001f + 0.5f;
    sink[threadIdx.x] = a;
}

static __global__ void __launch_bounds__(THREADS) scan(const uint4 *from, size_t n, uint4 *sink) {
    uint4 sum = {0, 0, 0, 0};
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < n; i += gridDim.x * (size_t)THREADS) {
        sum.x ^= from[i].x;
        sum.y ^= from[i].y;
        sum.z ^= from[i].z;
        sum.w ^= from[i].w;
    }
    if (sum.x == 0x12345678)
        sink[threadIdx.x] = sum;
}

static struct {
    double kernel_us;
    bool scans;
    std::atomic<bool> stop;
    std::atomic<uint64_t> kernels;
} engine;

static const size_t SCAN_BYTES = (size_t)1 << 30;

static void run_engine() {
    cudaStream_t stream;
    cudaEvent_t done[QUEUED];
    int processors, per_processor;
    void *sink, *memory = NULL;
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CHECK(cudaMalloc(&sink, THREADS * sizeof(uint4)));
    if (engine.scans)
        CHECK(cudaMalloc(&memory, SCAN_BYTES));
    CHECK(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, 0));
    CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_processor, compute, THREADS, 0));
    for (cudaEvent_t &event : done)
        CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync));
    for (uint64_t n = 0; !engine.stop; n++) {
        if (n >= QUEUED)
            CHECK(cudaEventSynchronize(done[n % QUEUED]));
        if (engine.scans)
            scan<<<processors * per_processor, THREADS, 0, stream>>>((const uint4 *)memory, SCAN_BYTES / sizeof(uint4),
                                                                     (uint4 *)sink);
        else
            compute<<<processors * per_processor, THREADS, 0, stream>>>((uint64_t)(engine.kernel_us * 1e3),
                                                                        (float *)sink);
        CHECK(cudaEventRecord(done[n % QUEUED], stream));
        engine.kernels++;
    }
    CHECK(cudaStreamSynchronize(stream));
}

/* ---- what is measured ---- */

static __global__ void compare(const uint4 *a, const uint4 *b, size_t n, unsigned *differ) {
    for (size_t i = blockIdx.x * (size_t)blockDim.x + threadIdx.x; i < n; i += gridDim.x * (size_t)blockDim.x)
        if (a[i].x != b[i].x || a[i].y != b[i].y || a[i].z != b[i].z || a[i].w != b[i].w)
            atomicAdd(differ, 1u);
}

struct measured {
    std::vector<double> seconds[2], kernels[2];
    char coder[8], codec[16];
    double ratio;
};

static double median(std::vector<double> v) {
    std::sort(v.begin(), v.end());
    return v.empty() ? 0 : v[v.size() / 2];
}

static void note(struct measured *m, int back, double begun_s, uint64_t kernels) {
    const double took_s = now_s() - begun_s;
    m->seconds[back].push_back(took_s);
    m->kernels[back].push_back((double)(engine.kernels - kernels) / took_s);
}

static void plain(struct measured *m, void *data, void *host, size_t bytes, cudaStream_t stream) {
    for (int back = 0; back < 2; back++) {
        const double begun_s = now_s();
        const uint64_t kernels = engine.kernels;
        CHECK(cudaMemcpyAsync(back ? data : host, back ? host : data, bytes, cudaMemcpyDefault, stream));
        CHECK(cudaStreamSynchronize(stream));
        note(m, back, begun_s, kernels);
    }
}

static void wait_for(struct spillway_ticket *ticket, struct spillway_result *result) {
    struct spillway_error error;
    if (spillway_wait(ticket, -1, result, 1, &error) < 0)
        die(error.name, error.text);
    spillway_ticket_free(ticket);
}

static void through(struct measured *m, struct spillway *c, void *data, size_t bytes, cudaStream_t stream) {
    struct spillway_buffer buffer = {};
    struct spillway_request request = {};
    struct spillway_result result = {};
    struct spillway_ticket *ticket;
    struct spillway_error error;
    buffer.data = data;
    buffer.bytes = bytes;
    request.size = sizeof request;
    request.buffers = &buffer;
    request.n_buffers = 1;
    request.stream = stream;
    result.size = sizeof result;
    for (int back = 0; back < 2; back++) {
        const double begun_s = now_s();
        const uint64_t kernels = engine.kernels;
        if ((back ? spillway_restore : spillway_spill)(c, &request, 1, &ticket, &error) < 0)
            die(error.name, error.text);
        wait_for(ticket, &result);
        note(m, back, begun_s, kernels);
        if (!back) {
            m->ratio = (double)result.raw_bytes / (double)result.stored_bytes;
            CHECK(cudaMemsetAsync(data, 0xA5, bytes, stream));
            CHECK(cudaStreamSynchronize(stream));
        }
        request.region = result.region;
        memcpy(m->coder, result.coder, sizeof m->coder);
        memcpy(m->codec, result.codec, sizeof m->codec);
    }
}

static void verify(const void *data, const void *original, size_t bytes, cudaStream_t stream) {
    static unsigned *differ;
    unsigned n;
    if (!differ)
        CHECK(cudaMalloc(&differ, sizeof *differ));
    CHECK(cudaMemsetAsync(differ, 0, sizeof *differ, stream));
    compare<<<1024, THREADS, 0, stream>>>((const uint4 *)data, (const uint4 *)original, bytes / sizeof(uint4), differ);
    CHECK(cudaMemcpyAsync(&n, differ, sizeof n, cudaMemcpyDeviceToHost, stream));
    CHECK(cudaStreamSynchronize(stream));
    if (n)
        die("restore", "the bytes differ");
}

static struct spillway *connect_as(uint32_t flags) {
    struct spillway_options options = {};
    struct spillway_error error;
    struct spillway *c;
    options.size = sizeof options;
    options.flags = flags;
    if (spillway_open(&c, &options, &error) < 0)
        die(error.name, error.text);
    return c;
}

static void print(const char *what, const struct measured *m, const struct measured *copy, size_t bytes) {
    for (int back = 0; back < 2; back++) {
        const double s = median(m->seconds[back]), copy_s = median(copy->seconds[back]);
        (void)printf("%6zu MiB %-8s %-4s %8.1f GB/s %6.2f x copy  %9.0f kernels/s  coder=%s codec=%s ratio=%.2f\n",
                     bytes >> 20, what, back ? "back" : "out", (double)bytes / s / 1e9, copy_s / s,
                     median(m->kernels[back]), m->coder, m->codec, m->ratio);
    }
    (void)fflush(stdout);
}

static void fill(uint8_t *host, size_t bytes, bool random) {
    std::vector<std::thread> threads;
    const size_t n = 16, part = (bytes + n - 1) / n;
    for (size_t t = 0; t < n; t++)
        threads.emplace_back([=] {
            const size_t from = std::min(bytes, t * part), to = std::min(bytes, from + part);
            uint64_t word = 0x9E3779B97F4A7C15u * (t + 1);
            if (!random)
                sw_tpch_text_fill(host + from, from, to - from, 1);
            for (size_t i = from; random && i < to; i++) {
                word ^= word << 13, word ^= word >> 7, word ^= word << 17;
                host[i] = (uint8_t)(word >> 32);
            }
        });
    for (std::thread &t : threads)
        t.join();
}

int main(int argc, char **argv) {
    std::vector<size_t> sizes;
    bool random = false;
    int rounds = 7;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--scan") == 0)
            engine.scans = true;
        else if (strcmp(argv[i], "--kernel") == 0 && i + 1 < argc)
            engine.kernel_us = atof(argv[++i]);
        else if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
            rounds = atoi(argv[++i]);
        else if (strcmp(argv[i], "--column") == 0 && i + 1 < argc)
            random = strcmp(argv[++i], "random") == 0;
        else if (atoi(argv[i]) > 0)
            sizes.push_back((size_t)atoi(argv[i]) << 20);
    }
    if (sizes.empty() || rounds < 1) {
        (void)fputs(usage, stderr);
        return 2;
    }
    const size_t most = *std::max_element(sizes.begin(), sizes.end());
    uint8_t *host, *data, *original;
    cudaStream_t stream;
    CHECK(cudaMallocHost((void **)&host, most));
    CHECK(cudaMalloc((void **)&data, most));
    CHECK(cudaMalloc((void **)&original, most));
    CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    fill(host, most, random);
    CHECK(cudaMemcpy(original, host, most, cudaMemcpyHostToDevice));
    struct spillway *service = connect_as(SPILLWAY_CODEC_SERVICE), *client = connect_as(SPILLWAY_CODEC_CLIENT);
    struct spillway_error error;
    if (spillway_register(service, data, most, &error) < 0 || spillway_prepare(client, data, &error) < 0)
        die(error.name, error.text);
    std::thread thread;
    if (engine.scans || engine.kernel_us > 0)
        thread = std::thread(run_engine);
    const double begun_s = now_s();
    const uint64_t begun = engine.kernels;
    usleep(500000);
    (void)printf("engine alone: %.0f kernels/s\n", (double)(engine.kernels - begun) / (now_s() - begun_s));
    for (size_t bytes : sizes) {
        struct measured copy = {}, by_service = {}, by_client = {};
        for (int round = -1; round < rounds; round++) { /* the first is not counted */
            struct measured warm[3] = {};
            CHECK(cudaMemcpyAsync(data, original, bytes, cudaMemcpyDeviceToDevice, stream));
            plain(round < 0 ? &warm[0] : &copy, data, host, bytes, stream);
            through(round < 0 ? &warm[1] : &by_service, service, data, bytes, stream);
            verify(data, original, bytes, stream);
            through(round < 0 ? &warm[2] : &by_client, client, data, bytes, stream);
            verify(data, original, bytes, stream);
        }
        print("copy", &copy, &copy, bytes);
        print("service", &by_service, &copy, bytes);
        print("client", &by_client, &copy, bytes);
    }
    engine.stop = true;
    if (thread.joinable())
        thread.join();
    spillway_close(client);
    spillway_close(service);
    return 0;
}
