#include "tests/gpu/packed_kernels.h"

#include <cuda_runtime.h>
#include <spillway_device.cuh>
#include <stdio.h>
#include <stdlib.h>

static constexpr unsigned BLOCKS = 100;
/* As many as a tile, and a stage for each warp, have room for in shared memory. */
template <class T> constexpr unsigned WARPS = sizeof(T) == 8 ? 1 : 2;
template <class T> constexpr unsigned THREADS = 32 * WARPS<T>;

static void cuda_ok(cudaError_t e, const char *call) {
    if (e == cudaSuccess)
        return;
    (void)fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(e));
    abort();
}
#define CUDA(call) cuda_ok((call), #call)

template <class T>
__global__ void __launch_bounds__(THREADS<T>)
    read_tiles(const spillway_column column, T *to, unsigned long long *n_read) {
    __shared__ spillway_stage<T> stages[WARPS<T>];
    __shared__ uint32_t check;
    __shared__ alignas(16) T room[spillway_of<T>::TILE_VALUES];
    for (uint32_t t = blockIdx.x; t < spillway_tiles(column); t += gridDim.x) {
        const uint32_t n = spillway_read_tile<T>(column, t, stages, &check, room);
        for (uint32_t i = threadIdx.x; i < n; i += THREADS<T>)
            to[(uint64_t)t * spillway_of<T>::TILE_VALUES + i] = room[i];
        if (threadIdx.x == 0)
            atomicAdd(n_read, (unsigned long long)n);
        __syncthreads();
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS<T>)
    read_vectors(const spillway_column column, T *to, unsigned long long *n_read) {
    __shared__ spillway_stage<T> stages[WARPS<T>];
    const uint32_t warp = threadIdx.x / 32;
    for (uint64_t v = blockIdx.x * WARPS<T> + warp; v < spillway_vectors<T>(column); v += gridDim.x * WARPS<T>) {
        T value[32];
        const uint32_t n = spillway_read_vector<T>(column, v, &stages[warp], value);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            if (spillway_place<T>(i) < n)
                to[v * SW_VECTOR_VALUES + spillway_place<T>(i)] = value[i];
        if (threadIdx.x % 32 == 0)
            atomicAdd(n_read, (unsigned long long)n);
    }
}

template <class T>
__global__ void read_values(const spillway_column column, T *to, uint64_t n, unsigned long long *n_read) {
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS<T> + threadIdx.x; i < n; i += (uint64_t)gridDim.x * THREADS<T>)
        if (spillway_read_value(column, i, to + i))
            atomicAdd(n_read, 1ull);
}

template <class T>
static void launch(const spillway_column &column, sw_packed_way way, void *d_to, size_t bytes,
                   unsigned long long *d_n_read) {
    T *to = (T *)d_to;
    if (way == SW_PACKED_TILES)
        read_tiles<<<BLOCKS, (THREADS<T>)>>>(column, to, d_n_read);
    if constexpr (sizeof(T) >= 4)
        if (way == SW_PACKED_VECTORS)
            read_vectors<<<BLOCKS, (THREADS<T>)>>>(column, to, d_n_read);
    if (way == SW_PACKED_VALUES)
        read_values<<<BLOCKS, (THREADS<T>)>>>(column, to, bytes / sizeof(T), d_n_read);
    CUDA(cudaGetLastError());
}

static void launch_for(unsigned value_bytes, const spillway_column &column, sw_packed_way way, void *d_to, size_t bytes,
                       unsigned long long *d_n_read) {
    if (value_bytes == 1)
        launch<uint8_t>(column, way, d_to, bytes, d_n_read);
    else if (value_bytes == 2)
        launch<uint16_t>(column, way, d_to, bytes, d_n_read);
    else if (value_bytes == 4)
        launch<uint32_t>(column, way, d_to, bytes, d_n_read);
    else
        launch<uint64_t>(column, way, d_to, bytes, d_n_read);
}

uint32_t sw_packed_values_codecs(void) {
    return SPILLWAY_READS_VALUES;
}

bool sw_packed_read(const void *d_data, const spillway_packed_chunk *chunks, uint32_t n, unsigned value_bytes,
                    sw_packed_way way, void *ret, size_t bytes, uint64_t *ret_values) {
    spillway_packed_chunk *d_chunks;
    unsigned long long *d_n_read, n_read = 0;
    spillway_column column;
    void *d_to;
    const uint32_t codecs = way == SW_PACKED_VALUES ? SPILLWAY_READS_VALUES : SPILLWAY_READS_ALL;
    CUDA(cudaMalloc(&d_chunks, n * sizeof *chunks));
    CUDA(cudaMalloc(&d_n_read, sizeof *d_n_read));
    CUDA(cudaMalloc(&d_to, bytes));
    CUDA(cudaMemcpy(d_chunks, chunks, n * sizeof *chunks, cudaMemcpyHostToDevice));
    CUDA(cudaMemset(d_n_read, 0, sizeof *d_n_read));
    CUDA(cudaMemset(d_to, 0xEE, bytes));
    const bool is_read = spillway_column_init(&column, d_data, chunks, n, d_chunks, value_bytes, codecs);
    if (is_read) {
        launch_for(value_bytes, column, way, d_to, bytes, d_n_read);
        CUDA(cudaMemcpy(ret, d_to, bytes, cudaMemcpyDeviceToHost));
        CUDA(cudaMemcpy(&n_read, d_n_read, sizeof n_read, cudaMemcpyDeviceToHost));
    }
    *ret_values = n_read;
    CUDA(cudaFree(d_chunks));
    CUDA(cudaFree(d_n_read));
    CUDA(cudaFree(d_to));
    return is_read;
}
