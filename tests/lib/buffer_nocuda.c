/* buffer_nocuda.c - stands for buffer_cuda.c in a build without CUDA. */
#include "tests/lib/buffer_cuda.h"

static int refuse(struct sw_err *err) {
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "%s", sw_buffer_cuda_absent());
}

const char *sw_buffer_cuda_absent(void) {
    return "this build has no CUDA";
}

uint64_t sw_buffer_cuda_free_bytes(void) {
    return 0;
}

int sw_buffer_cuda_new(struct sw_buffer *buffer, struct sw_err *err) {
    (void)buffer;
    return refuse(err);
}

void sw_buffer_cuda_free(struct sw_buffer *buffer) {
    (void)buffer;
}

int sw_buffer_cuda_copy(void *to, const void *from, uint64_t bytes, bool to_gpu, struct sw_err *err) {
    (void)to;
    (void)from;
    (void)bytes;
    (void)to_gpu;
    return refuse(err);
}

uint64_t sw_buffer_cuda_drop_tail(struct sw_buffer *buffer, uint64_t kept_bytes) {
    (void)buffer;
    (void)kept_bytes;
    return 0;
}

int sw_buffer_cuda_regain_tail(struct sw_buffer *buffer, struct sw_err *err) {
    (void)buffer;
    return refuse(err);
}

int sw_buffer_cuda_fill(struct sw_buffer *buffer, uint8_t value, struct sw_err *err) {
    (void)buffer;
    (void)value;
    return refuse(err);
}
