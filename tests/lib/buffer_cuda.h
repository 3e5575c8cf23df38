/* buffer_cuda.h - the GPU kinds of buffer.h. In a build without CUDA (buffer_nocuda.c) there are none. Private to
 * buffer.c; the calls return as those of buffer.h do. */
#ifndef SW_TEST_BUFFER_CUDA_H
#define SW_TEST_BUFFER_CUDA_H

#include "tests/lib/buffer.h"
#include <stdbool.h>

/* NULL if GPU 0 can be used, else why not, static. */
const char *sw_buffer_cuda_absent(void);
uint64_t sw_buffer_cuda_free_bytes(void);
/* Fills in data for buffer->kind and buffer->bytes; frees what it found. */
int sw_buffer_cuda_new(struct sw_buffer *buffer, struct sw_err *err);
void sw_buffer_cuda_free(struct sw_buffer *buffer);
int sw_buffer_cuda_copy(void *to, const void *from, uint64_t bytes, bool to_gpu, struct sw_err *err);
/* VMM only: see sw_buffer_drop_tail() and _regain_tail(). */
uint64_t sw_buffer_cuda_drop_tail(struct sw_buffer *buffer, uint64_t kept_bytes);
int sw_buffer_cuda_regain_tail(struct sw_buffer *buffer, struct sw_err *err);
int sw_buffer_cuda_fill(struct sw_buffer *buffer, uint8_t value, struct sw_err *err);

#endif
