/* fused.cu - two stages of a plan decoded by one kernel, as the codecs of numbers do it, against a kernel for each.
 *
 * Columns of 32-bit values: a dictionary of 64 values whose codes are packed (`dict`), and values whose differences
 * are (`dfor`). Unfused, the codes or differences are a column of bytes, packed by `for`; it is decoded to the device's
 * memory, and a second kernel makes the values: a look-up, or CUB's scan. The frames' hashes are verified within the
 * time, and every output is compared with the original. */
#include "codec/gpu.h"
#include "codec/plan/plan.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cub/device/device_scan.cuh>
#include <functional>
#include <thrust/device_vector.h>
#include <thrust/equal.h>
#include <thrust/execution_policy.h>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/scan.h>
#include <thrust/transform.h>
#include <vector>

namespace {

constexpr size_t VALUES = (size_t)1 << 28;
constexpr int WARM_UPS = 3, REPEATS = 11;
constexpr unsigned THREADS = 256, CODES = 64, GAP_BITS = 4;

[[noreturn]] void fail(const char *what, const char *why) {
    (void)fprintf(stderr, "bench_fused: %s: %s\n", what, why);
    exit(1);
}

void cuda_ok(cudaError_t e, const char *call) {
    if (e != cudaSuccess)
        fail(call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

void sw_ok(int rc, const struct sw_err &err) {
    if (rc < 0)
        fail(sw_err_name(rc), err.msg);
}

/* Any 32 bits of a number, by the finalizer of MurmurHash3. */
__host__ __device__ uint32_t mixed(uint64_t n) {
    n = (n ^ n >> 33) * 0xFF51AFD7ED558CCDu;
    n = (n ^ n >> 33) * 0xC4CEB9FE1A85EC53u;
    return (uint32_t)(n ^ n >> 33);
}

struct small_number {
    unsigned below;
    __host__ __device__ uint8_t operator()(size_t i) const {
        return (uint8_t)(mixed(i) % below);
    }
};

struct looked_up {
    const uint32_t *dictionary;
    __host__ __device__ uint32_t operator()(uint8_t code) const {
        return dictionary[code];
    }
};

struct widened {
    __host__ __device__ uint32_t operator()(uint8_t value) const {
        return value;
    }
};

/* The second stage as a kernel of its own: four codes a thread, whole sectors on both sides. */
__global__ void __launch_bounds__(THREADS) look_up(const uint8_t *codes, const uint32_t *dictionary, uint32_t *values) {
    __shared__ uint32_t entries[CODES];
    if (threadIdx.x < CODES)
        entries[threadIdx.x] = dictionary[threadIdx.x];
    __syncthreads();
    const size_t at = ((size_t)blockIdx.x * THREADS + threadIdx.x) * 4;
    const uchar4 code = *(const uchar4 *)(codes + at);
    *(uint4 *)(values + at) = make_uint4(entries[code.x], entries[code.y], entries[code.z], entries[code.w]);
}

/* A column as one frame. */
class packed_column {
    thrust::device_vector<uint8_t> frame;
    thrust::device_vector<sw_gpu_result> result{1};
    struct sw_frame_layout layout;

  public:
    size_t raw_bytes;

    packed_column(const struct sw_plan &plan, const void *d_values, size_t bytes) : raw_bytes(bytes) {
        struct sw_err err;
        thrust::device_vector<sw_params> table(1, plan.params);
        thrust::device_vector<sw_gpu_progress> progress(1);
        const struct sw_gpu_pool no_pool = {}; /* of the codecs of numbers none uses it */
        const struct sw_gpu_plan gpu = sw_gpu_plan_from(&plan, table.data().get());
        frame.resize(sw_frame_bound_bytes(bytes));
        sw_ok(sw_gpu_encode_async(&gpu, d_values, bytes, frame.data().get(), frame.size(), result.data().get(),
                                  &no_pool, progress.data().get(), sw_gpu_pass{}, nullptr, &err),
              err);
        const sw_gpu_result done = result[0];
        std::vector<uint8_t> head(std::min<size_t>(done.frame_bytes, 1 << 16));
        CUDA(cudaMemcpy(head.data(), frame.data().get(), head.size(), cudaMemcpyDeviceToHost));
        sw_ok(sw_frame_parse(&layout, head.data(), head.size(), done.frame_bytes, &err), err);
        if (layout.codec != plan.codec)
            fail("encode", "the column does not shrink");
    }
    void decode(void *d_values) {
        struct sw_err err;
        sw_ok(sw_gpu_decode_async(&layout, frame.data().get(), 0, layout.n_tiles, d_values, result.data().get(),
                                  sw_gpu_pass{}, nullptr, &err),
              err);
    }
    bool is_whole() const {
        const sw_gpu_result done = result[0];
        return done.bad_tiles == 0;
    }
    double ratio() const {
        return (double)raw_bytes / (double)layout.frame_bytes;
    }
};

struct sw_plan plan_of(enum sw_codec_id codec, enum sw_value_type type, const void *d_values) {
    std::vector<uint8_t> sample(SW_SAMPLE_MAX_BYTES);
    struct sw_plan plan;
    CUDA(cudaMemcpy(sample.data(), d_values, sample.size(), cudaMemcpyDeviceToHost));
    if (!sw_plan_init_numbers(&plan, codec, type))
        fail("plan", "no such codec of that type");
    sw_plan_learn(&plan, sample.data(), sample.size());
    return plan;
}

/* Milliseconds, the median. */
double timed(const std::function<void()> &work) {
    std::vector<float> ms(REPEATS);
    cudaEvent_t from, to;
    CUDA(cudaEventCreate(&from));
    CUDA(cudaEventCreate(&to));
    for (int i = -WARM_UPS; i < REPEATS; i++) {
        CUDA(cudaEventRecord(from));
        work();
        CUDA(cudaEventRecord(to));
        CUDA(cudaEventSynchronize(to));
        CUDA(cudaEventElapsedTime(&ms[(size_t)std::max(i, 0)], from, to));
    }
    CUDA(cudaEventDestroy(from));
    CUDA(cudaEventDestroy(to));
    std::sort(ms.begin(), ms.end());
    return ms[REPEATS / 2];
}

void report(const char *name, const thrust::device_vector<uint32_t> &values, thrust::device_vector<uint32_t> &out,
            const packed_column &column, const std::function<void()> &work) {
    thrust::fill(out.begin(), out.end(), 0xEEEEEEEEu);
    const double ms = timed(work);
    if (!column.is_whole() || !thrust::equal(values.begin(), values.end(), out.begin()))
        fail(name, "what came back is not what went in");
    (void)printf("%-32s %8.1f GB/s\n", name, (double)(values.size() * sizeof(uint32_t)) / ms / 1e6);
}

/* A column of small numbers. */
void fill(thrust::device_vector<uint8_t> &small, unsigned below) {
    thrust::transform(thrust::counting_iterator<size_t>(0), thrust::counting_iterator<size_t>(small.size()),
                      small.begin(), small_number{below});
}

template <class T>
packed_column packed(enum sw_codec_id codec, enum sw_value_type type, const thrust::device_vector<T> &values) {
    const T *d_values = values.data().get();
    return packed_column(plan_of(codec, type, d_values), d_values, values.size() * sizeof(T));
}

void dictionaries(thrust::device_vector<uint32_t> &values, thrust::device_vector<uint8_t> &small,
                  thrust::device_vector<uint32_t> &out) {
    std::vector<uint32_t> entries(CODES);
    for (unsigned i = 0; i < CODES; i++)
        entries[i] = mixed(1000 + i);
    const thrust::device_vector<uint32_t> dictionary(entries);
    const looked_up entry = {dictionary.data().get()};
    fill(small, CODES);
    thrust::transform(small.begin(), small.end(), values.begin(), entry);
    packed_column fused = packed(SW_CODEC_DICT, SW_VALUE_U32, values), codes = packed(SW_CODEC_FOR, SW_VALUE_U8, small);
    (void)printf("dictionary, packed codes: ratio %.3f, of the codes alone %.3f\n", fused.ratio(), codes.ratio());
    report("fused (dict)", values, out, fused, [&] { fused.decode(out.data().get()); });
    report("unfused (for, look-up)", values, out, codes, [&] {
        codes.decode(small.data().get());
        look_up<<<VALUES / 4 / THREADS, THREADS>>>(small.data().get(), entry.dictionary, out.data().get());
        CUDA(cudaGetLastError());
    });
}

void differences(thrust::device_vector<uint32_t> &values, thrust::device_vector<uint8_t> &small,
                 thrust::device_vector<uint32_t> &out) {
    size_t temporary_bytes = 0;
    const auto gaps = thrust::make_transform_iterator(small.data().get(), widened());
    fill(small, 1u << GAP_BITS);
    thrust::inclusive_scan(thrust::device, gaps, gaps + VALUES, values.begin());
    CUDA(cub::DeviceScan::InclusiveSum(nullptr, temporary_bytes, gaps, out.data().get(), (int64_t)VALUES));
    thrust::device_vector<uint8_t> temporary(temporary_bytes);
    packed_column fused = packed(SW_CODEC_DFOR, SW_VALUE_U32, values), steps = packed(SW_CODEC_FOR, SW_VALUE_U8, small);
    (void)printf("differences, packed: ratio %.3f, of the differences alone %.3f\n", fused.ratio(), steps.ratio());
    report("fused (dfor)", values, out, fused, [&] { fused.decode(out.data().get()); });
    report("unfused (for, scan)", values, out, steps, [&] {
        steps.decode(small.data().get());
        CUDA(cub::DeviceScan::InclusiveSum(temporary.data().get(), temporary_bytes, gaps, out.data().get(),
                                           (int64_t)VALUES));
    });
}

} // namespace

int main(void) {
    struct sw_err err;
    sw_ok(sw_gpu_codec_init(&err), err);
    thrust::device_vector<uint32_t> values(VALUES), out(VALUES);
    thrust::device_vector<uint8_t> small(VALUES);
    dictionaries(values, small, out);
    differences(values, small, out);
    return 0;
}
