/* pool_nocuda.c - replaces pool_cuda.c in a build without CUDA: streams are ignored. */
#include "ipc/pool/pool_gpu.h"

int sw_pool_gpu_open(struct sw_pool_gpu **ret, int ordinal, struct spillway_error *error) {
    (void)ordinal, (void)error;
    *ret = NULL;
    return 0;
}

void sw_pool_gpu_close(struct sw_pool_gpu *gpu) {
    (void)gpu;
}

void *sw_pool_gpu_alloc(struct sw_pool_gpu *gpu, uint64_t bytes) {
    (void)gpu, (void)bytes;
    return NULL;
}

void sw_pool_gpu_free(struct sw_pool_gpu *gpu, void *data) {
    (void)gpu, (void)data;
}

struct CUstream_st *sw_pool_gpu_stream(struct sw_pool_gpu *gpu, const void *data) {
    (void)gpu, (void)data;
    return NULL;
}

int sw_pool_event_record(struct sw_pool_gpu *gpu, struct CUstream_st *stream, const void *memory,
                         struct sw_pool_event **ret, struct spillway_error *error) {
    (void)gpu, (void)stream, (void)memory, (void)error;
    *ret = NULL;
    return 0;
}

void sw_pool_event_add(struct sw_list *events, struct sw_pool_event *event, struct sw_list *replaced) {
    (void)events, (void)event, (void)replaced;
}

bool sw_pool_events_passed(struct sw_pool_gpu *gpu, struct sw_list *events) {
    (void)gpu, (void)events;
    return true;
}

void sw_pool_events_await(struct sw_pool_gpu *gpu, struct sw_list *events) {
    (void)gpu, (void)events;
}

void sw_pool_events_put(struct sw_pool_gpu *gpu, struct sw_list *events) {
    (void)gpu, (void)events;
}
