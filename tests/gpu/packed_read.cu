#include "tests/gpu/packed_launch.cuh"

#include <cuda_runtime.h>
#include <stdio.h>
#include <stdlib.h>

static void cuda_ok(cudaError_t e, const char *call) {
    if (e == cudaSuccess)
        return;
    (void)fprintf(stderr, "%s: %s\n", call, cudaGetErrorString(e));
    abort();
}
#define CUDA(call) cuda_ok((call), #call)

static void launch_for(unsigned value_bytes, const spillway_column &column, sw_packed_way way, void *d_to, size_t bytes,
                       unsigned long long *d_n_read) {
    if (value_bytes == 1)
        sw_packed_launch<1>(column, way, d_to, bytes, d_n_read);
    else if (value_bytes == 2)
        sw_packed_launch<2>(column, way, d_to, bytes, d_n_read);
    else if (value_bytes == 4)
        sw_packed_launch<4>(column, way, d_to, bytes, d_n_read);
    else
        sw_packed_launch<8>(column, way, d_to, bytes, d_n_read);
    CUDA(cudaGetLastError());
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
