/* cuda_block.c - a block of GPU memory of the library's own, with a stream for copies. */
#include "ipc/client/cuda_driver.h"

#include "base/alloc.h"
#include <stdio.h>
#include <string.h>

struct sw_cuda_block {
    struct sw_cuda *cuda;
    CUcontext context;
    CUdeviceptr address;
    CUstream stream;
};

/* Needs the block's context as the current one. */
static int fill_block(struct sw_cuda_block *block, uint64_t bytes, int gpu, struct sw_err *err) {
    struct sw_cuda *cuda = block->cuda;
    CUresult result = cuda->allocate(&block->address, bytes);
    if (result != CUDA_SUCCESS) {
        char fact[96];
        block->address = 0;
        (void)snprintf(fact, sizeof fact, "GPU %d has no room for the staging arena of %llu bytes", gpu,
                       (unsigned long long)bytes);
        return sw_driver_fail(cuda, err, result == CUDA_ERROR_OUT_OF_MEMORY ? -SW_ENOMEM : -SW_EGPU, result, fact,
                              "cuMemAlloc");
    }
    result = cuda->stream_create(&block->stream, CU_STREAM_NON_BLOCKING);
    if (result == CUDA_SUCCESS)
        return 0;
    block->stream = NULL;
    return sw_driver_fail(cuda, err, -SW_EGPU, result, "stream for the staging arena", "cuStreamCreate");
}

int sw_cuda_block_new(struct sw_cuda_block **ret, struct sw_cuda *cuda, const void *near, uint64_t bytes,
                      struct sw_err *err) {
    struct sw_cuda_pointer p;
    CUcontext popped;
    if (!sw_cuda_look_up(cuda, (uintptr_t)near, &p) || !sw_cuda_is_gpu(&p))
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "%p is no GPU memory any more; was it freed?", near);
    int rc = sw_cuda_find_context(cuda, &p, err);
    if (rc < 0)
        return rc;
    const CUresult result = cuda->push(p.context);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "context of the memory", "cuCtxPushCurrent");
    struct sw_cuda_block *block = sw_alloc(sizeof *block);
    if (block) {
        *block = (struct sw_cuda_block){.cuda = cuda, .context = p.context};
        rc = fill_block(block, bytes, p.ordinal, err);
    } else {
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a staging arena");
    }
    (void)cuda->pop(&popped);
    if (rc < 0)
        sw_cuda_block_free(block);
    else
        *ret = block;
    return rc;
}

uint8_t *sw_cuda_block_data(const struct sw_cuda_block *block) {
    uint8_t *data; /* a device address, as a host pointer */
    memcpy(&data, &block->address, sizeof data);
    return data;
}

struct CUstream_st *sw_cuda_block_stream(const struct sw_cuda_block *block) {
    return block->stream;
}

int sw_cuda_block_copy(struct sw_cuda_block *block, void *to, const void *from, uint64_t bytes, struct sw_err *err) {
    struct sw_cuda *cuda = block->cuda;
    CUcontext popped;
    if (!bytes)
        return 0;
    CUresult result = cuda->push(block->context);
    if (result != CUDA_SUCCESS)
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "context of the staging arena", "cuCtxPushCurrent");
    result = cuda->copy((uintptr_t)to, (uintptr_t)from, bytes, block->stream);
    (void)cuda->pop(&popped);
    return result == CUDA_SUCCESS
               ? 0
               : sw_driver_fail(cuda, err, -SW_EGPU, result, "copy between memory and staging arena", "cuMemcpyAsync");
}

void sw_cuda_block_free(struct sw_cuda_block *block) {
    CUcontext popped;
    if (!block)
        return;
    struct sw_cuda *cuda = block->cuda;
    if (cuda->push(block->context) == CUDA_SUCCESS) { /* otherwise the context is gone, and the block with it */
        if (block->stream) {
            (void)cuda->stream_synchronize(block->stream);
            (void)cuda->stream_destroy(block->stream);
        }
        if (block->address)
            (void)cuda->free(block->address);
        (void)cuda->pop(&popped);
    }
    sw_free(block);
}
