/* buffer.h - memory that a client could hand to spillwayd, of every kind, for tests, benchmarks and the demo.
 *
 * A buffer is `bytes` long at `data`, in host memory or in the memory of GPU 0. Reach its content only through the
 * functions here: they work for every kind, and have finished when they return. Nothing is written outside data[0 ..
 * bytes). The header needs no CUDA header; in a build without CUDA all kinds but one are refused. CUDA is first touched
 * by sw_buffer_usable_kinds() and by sw_buffer_new() of a GPU kind: not before a fork(). thread: one at a time. */
#ifndef SW_TEST_BUFFER_H
#define SW_TEST_BUFFER_H

#include "base/err.h"
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Ordered by what they need: kinds below sw_buffer_usable_kinds() can be tried. */
enum sw_buffer_kind {
    SW_BUFFER_MEMFD,       /* a memfd, sealed against shrinking, mapped MAP_SHARED */
    SW_BUFFER_CUDA_MALLOC, /* a cudaMalloc block of its own */
    SW_BUFFER_CUDA_MIDDLE, /* a piece at an odd offset in the middle of a larger cudaMalloc block */
    SW_BUFFER_CUDA_VMM,    /* up to 8 cuMemCreate allocations of different sizes, exportable, mapped side by side */
    SW_BUFFER_CUDA_POOL,   /* cudaMallocAsync from a pool of its own, made with POSIX descriptor export */
    SW_BUFFER_KIND_NR,
    /* Kinds that no other process can open, for measurements. */
    SW_BUFFER_CUDA_MANAGED = SW_BUFFER_KIND_NR, /* cudaMallocManaged */
    SW_BUFFER_CUDA_ASYNC,                       /* cudaMallocAsync from the device's default pool */
    SW_BUFFER_CUDA_SEGMENTS,                    /* as VMM, not exportable: PyTorch's expandable segments */
    SW_BUFFER_ALL_KIND_NR
};

struct sw_buffer {
    enum sw_buffer_kind kind;
    void *data; /* an address of the host for SW_BUFFER_MEMFD, else of GPU 0 */
    uint64_t bytes;
};

/* "memfd", "cudaMalloc", "cudaMalloc middle", "VMM", "cudaMallocAsync", ...; any value is legal. */
const char *sw_buffer_kind_name(enum sw_buffer_kind kind);

/* SW_BUFFER_KIND_NR where GPU 0 can be used by this build, else 1. *ret_reason (may be NULL): why there is no GPU, as a
 * part of a sentence, or NULL; static. */
unsigned sw_buffer_usable_kinds(const char **ret_reason);

/* Unused memory of GPU 0, in bytes; 0: it cannot be used. */
uint64_t sw_buffer_free_bytes(void);

/* Any length, also 0 (data is then valid to hand over, too). Content is undefined. owns: the caller, until
 * sw_buffer_free(). errors: -SW_ENOMEM, -SW_ENOTSUP (no CUDA in this build, kind unknown to the driver), -SW_EGPU;
 * nothing is left behind then. */
int sw_buffer_new(struct sw_buffer **ret, enum sw_buffer_kind kind, uint64_t bytes, struct sw_err *err);
/* Gives the memory back to the system or the driver at once. NULL is a no-op. */
void sw_buffer_free(struct sw_buffer *buffer);

/* Copy bytes between plain host memory and [offset, offset + bytes) of the buffer. errors: -SW_ERANGE, -SW_EGPU. */
int sw_buffer_upload(struct sw_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes, struct sw_err *err);
int sw_buffer_download(const struct sw_buffer *buffer, uint64_t offset, void *to, uint64_t bytes, struct sw_err *err);
/* Unmaps and releases each allocation of a SW_BUFFER_CUDA_VMM that lies wholly behind the first kept_bytes. Returns how
 * many bytes the driver got back. The second fills the hole with new memory of undefined content. errors: -SW_ENOMEM,
 * -SW_EGPU. */
uint64_t sw_buffer_drop_tail(struct sw_buffer *buffer, uint64_t kept_bytes);
int sw_buffer_regain_tail(struct sw_buffer *buffer, struct sw_err *err);
/* Sets every byte. errors: -SW_EGPU. */
int sw_buffer_fill(struct sw_buffer *buffer, uint8_t value, struct sw_err *err);

#ifdef __cplusplus
}
#endif
#endif
