/* coder_memory.h - inside of libspillway: memory for a coder's frame buffers, which the service can open, and the CUDA
 * context in which a coder works. Not installed. thread: any. */
#ifndef SW_IPC_CODER_MEMORY_H
#define SW_IPC_CODER_MEMORY_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct CUctx_st;

struct sw_coder_memory {
    void *data;
    uint64_t bytes;
    int fd;          /* of the host's memory: a memfd; else -1 */
    uint64_t handle; /* of a GPU's memory: the driver's allocation */
};

/* Allocates memory: a memfd with all its pages, or GPU memory with an exportable handle. context: entered, or NULL for
 * the host's. errors: -SW_ENOMEM, -SW_ELIMIT, -SW_EGPU, -SW_ENOTSUP (no CUDA in this build, or the driver is too old).
 * Nothing is left after an error. */
int sw_coder_memory_init(struct sw_coder_memory *ret, struct CUctx_st *context, int ordinal, uint64_t bytes,
                         struct sw_err *err);
/* Frees the memory. Empty memory is a no-op. */
void sw_coder_memory_fini(struct sw_coder_memory *memory);

/* The calling thread's state before. */
struct sw_coder_context {
    bool is_pushed;
    int capture_mode; /* the driver's */
};
/* Returns the number of a context, which no other context of the process ever has; handles are used again. 0: it has
 * none, or the driver is too old to know it. */
uint64_t sw_coder_context_id(struct CUctx_st *context);
/* Makes a context the calling thread's current one until it is left again, and lets calls of the driver that are not
 * allowed while streams of the thread are captured pass: no stream of the coder's is. NULL: nothing to do. id: its
 * number. errors: -SW_EGPU, -SW_EGPULOST (the context is gone, and perhaps another one has its handle). */
int sw_coder_context_enter(struct sw_coder_context *ret, struct CUctx_st *context, uint64_t id, struct sw_err *err);
void sw_coder_context_leave(const struct sw_coder_context *outer);

/* coder_cuda.c, or coder_nocuda.c in a build without CUDA: the same for a GPU. */
int sw_coder_cuda_allocate(struct sw_coder_memory *ret, int ordinal, uint64_t bytes, struct sw_err *err);
void sw_coder_cuda_free(struct sw_coder_memory *memory);
uint64_t sw_coder_cuda_id(struct CUctx_st *context);
int sw_coder_cuda_push(struct CUctx_st *context, uint64_t id, int *ret_capture_mode, struct sw_err *err);
void sw_coder_cuda_pop(int capture_mode);

#endif
