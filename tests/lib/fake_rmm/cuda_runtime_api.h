/* cuda_runtime_api.h - what spillway_rmm.hpp uses of CUDA, on a machine without it. */
#pragma once

typedef struct CUstream_st *cudaStream_t;
typedef int cudaError_t;
enum { cudaSuccess = 0, cudaStreamNonBlocking = 1 };

inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t *ret, unsigned flags) {
    static char stream;
    *ret = flags == cudaStreamNonBlocking ? (cudaStream_t)&stream : nullptr;
    return cudaSuccess;
}

inline cudaError_t cudaStreamDestroy(cudaStream_t) {
    return cudaSuccess;
}
