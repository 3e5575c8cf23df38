/* memory_nocuda.c - stands in for memory_cuda.c in a build without CUDA: no pointer is GPU memory. */
#include "ipc/memory.h"

#include <stddef.h>

int sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err) {
    (void)ret, (void)cuda, (void)data, (void)bytes, (void)err;
    return 0;
}

int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const void *data, struct CUstream_st *stream,
                  struct sw_err *err) {
    (void)e, (void)cuda, (void)data, (void)stream, (void)err;
    return 0;
}

int sw_cuda_built(void) {
    return 0;
}

const uint8_t *sw_cuda_event_handle(const struct sw_cuda_event *event) {
    (void)event;
    return NULL;
}

void sw_cuda_event_release(struct sw_cuda_event *event) {
    (void)event;
}

void sw_cuda_free(struct sw_cuda *cuda) {
    (void)cuda;
}
