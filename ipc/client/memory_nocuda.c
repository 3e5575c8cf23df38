/* memory_nocuda.c - replaces memory_cuda.c in a build without CUDA: no pointer is GPU memory. */
#include "ipc/client/memory.h"

#include <stddef.h>

int sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err) {
    (void)ret, (void)cuda, (void)data, (void)bytes, (void)err;
    return 0;
}

int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                  struct CUstream_st *stream, struct sw_err *err) {
    (void)e, (void)cuda, (void)known, (void)data, (void)stream, (void)err;
    return 0;
}

int sw_cuda_built(void) {
    return 0;
}

const struct sw_mark_page *sw_cuda_mark_page(const struct sw_cuda *cuda) {
    (void)cuda;
    return NULL;
}

void sw_cuda_free(struct sw_cuda *cuda) {
    (void)cuda;
}

int sw_cuda_locate(struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_cuda_place *ret,
                   struct sw_err *err) {
    (void)cuda, (void)data, (void)bytes, (void)ret, (void)err;
    return SW_CUDA_UNKNOWN;
}

int sw_cuda_block_new(struct sw_cuda_block **ret, struct sw_cuda *cuda, const void *near, uint64_t bytes,
                      struct sw_err *err) {
    (void)ret, (void)cuda, (void)bytes;
    return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "%p is no GPU memory", near);
}

uint8_t *sw_cuda_block_data(const struct sw_cuda_block *block) {
    (void)block;
    return NULL;
}

struct CUstream_st *sw_cuda_block_stream(const struct sw_cuda_block *block) {
    (void)block;
    return NULL;
}

int sw_cuda_block_copy(struct sw_cuda_block *block, void *to, const void *from, uint64_t bytes, struct sw_err *err) {
    (void)block, (void)to, (void)from, (void)bytes, (void)err;
    return 0;
}

void sw_cuda_block_free(struct sw_cuda_block *block) {
    (void)block;
}
