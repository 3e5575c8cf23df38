#include "ipc/client/coder_memory.h"

static int no_cuda(struct sw_err *err) {
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "this libspillway was built without CUDA");
}

int sw_coder_cuda_allocate(struct sw_coder_memory *ret, int ordinal, uint64_t bytes, struct sw_err *err) {
    (void)ret, (void)ordinal, (void)bytes;
    return no_cuda(err);
}

void sw_coder_cuda_free(struct sw_coder_memory *memory) {
    (void)memory;
}

uint64_t sw_coder_cuda_id(struct CUctx_st *context) {
    (void)context;
    return 0;
}

int sw_coder_cuda_push(struct CUctx_st *context, uint64_t id, int *ret_capture_mode, struct sw_err *err) {
    (void)context, (void)id, (void)ret_capture_mode;
    return no_cuda(err);
}

void sw_coder_cuda_pop(int capture_mode) {
    (void)capture_mode;
}
