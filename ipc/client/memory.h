/* memory.h - client side: finds out what kind of memory a pointer is, and makes of it what the daemon can open.
 *
 * An export holds descriptors and, for GPU memory, a mark in the caller's stream; it keeps nothing of the client's
 * memory alive. Kinds are told apart here and in the files memory_*.c and cuda_*.c only. Not for the daemon. thread:
 * any, one thread per connection at a time. */
#ifndef SW_IPC_MEMORY_H
#define SW_IPC_MEMORY_H

#include "base/err.h"
#include "base/mem_kind.h"
#include "ipc/client/mark.h"
#include <stdbool.h>
#include <stdint.h>

struct CUstream_st;
struct sw_cuda;       /* one connection's view of the CUDA driver: entry points, marks, retained contexts */
struct sw_cuda_block; /* GPU memory of the library's own, and a stream to copy to it and from it */

/* What MEM_OPEN, MEM_PARTS and the operation after them say about a piece of memory. */
struct sw_export {
    enum sw_mem_kind kind;
    uint8_t device_uuid[SW_DEVICE_UUID_BYTES];
    uint8_t handle[SW_MEM_HANDLE_BYTES];
    uint64_t bytes;       /* of the exported memory, which contains the caller's range */
    uint64_t offset;      /* where the caller's range starts in it */
    uint32_t n_parts;     /* descriptors; 0 for CUDA_IPC */
    int *fds;             /* [n_parts], owned; -1: taken */
    uint64_t *part_bytes; /* [n_parts], owned */
    struct sw_mark *mark; /* a reference, owned until moved or given back; NULL: nothing to wait for */
};

/* Those of one request, none of them twice. */
enum { SW_MARKS_MAX = 64 };
struct sw_marks {
    unsigned n;
    struct sw_mark *marks[SW_MARKS_MAX]; /* references */
};

/* Exports the memory that holds data[0..bytes). *cuda: the connection's, NULL before the first GPU pointer; the caller
 * frees it by sw_cuda_free(). errors: -SW_EMEMKIND, -SW_EUNSEALED, -SW_ERANGE, -SW_ELIMIT, -SW_EGPU, -SW_EIO,
 * -SW_ENOMEM; *ret is then empty. */
int sw_export_find(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err);
/* Whether memory that was refused with this code can be copied in place of being handed over. */
static inline bool sw_export_is_copied(int rc) {
    return rc == -SW_EMEMKIND || rc == -SW_EUNSEALED;
}
/* Orders an operation on exported memory after what the stream has been given: sets e->mark, or does nothing if there
 * is nothing to wait for. known: marks of the same request, of which one serves again where the context is the same;
 * NULL: none. data: in the memory; e->kind is all that is read of e. stream: see spillway.h. Memory of the host has no
 * stream: a no-op. errors: -SW_EMEMKIND (no longer the driver's), -SW_EINVAL (the stream is being captured), -SW_ELIMIT
 * (too many marks wait for their streams, or no descriptor is left), -SW_EGPU, -SW_ENOMEM. */
int sw_export_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                    struct CUstream_st *stream, struct sw_err *err);
/* memory_pages.c: makes the pages of data[0..bytes) that are missing, before the daemon is asked to write there. The
 * daemon makes none: it stops at a hole, and the operation fails with -SW_EUNALLOCATED. Only kind is read of e; a no-op
 * but for memfds. The content stays. errors: -SW_ENOMEM, and before Linux 5.14 those of sw_memfd_export(). */
int sw_export_make_pages(const struct sw_export *e, const void *data, uint64_t bytes, struct sw_err *err);
/* Closes the descriptors, gives the mark back; an empty or half-built export is fine. */
void sw_export_fini(struct sw_export *e);
/* Makes room for n_parts descriptors, all -1. errors: -SW_ENOMEM. */
int sw_export_reserve(struct sw_export *e, uint32_t n_parts, struct sw_err *err);

/* memory_memfd.c: all of data[0..bytes) is memory of this process that can be read (and written to). errors:
 * -SW_EMEMKIND, -SW_ERANGE (the front only), -SW_ELIMIT, -SW_EIO, -SW_ENOMEM. */
int sw_host_check(const void *data, uint64_t bytes, bool writable, struct sw_err *err);
/* memory_memfd.c: data lies in shared mappings of one memfd, not one of huge pages; seals it against shrinking. errors:
 * -SW_EMEMKIND (it does not, or only its front does), -SW_EUNSEALED, -SW_ERANGE (not all of it is there), others. */
int sw_memfd_export(struct sw_export *ret, const void *data, uint64_t bytes, struct sw_err *err);

/* memory_cuda.c, cuda_mark.c and cuda_block.c, or memory_nocuda.c in a build without CUDA. Returns 1 if the pointer is
 * GPU memory and was exported, 0 if it is not GPU memory. */
int sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err);
/* sw_export_order() for GPU memory and page-locked memory of the host. */
int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                  struct CUstream_st *stream, struct sw_err *err);
/* The page that the connection's marks are on, which the daemon has to have before it is told of one; NULL: there are
 * none yet. */
const struct sw_mark_page *sw_cuda_mark_page(const struct sw_cuda *cuda);

/* Whose memory data[0..bytes) is: SW_CUDA_GPU also if it cannot be handed over; *ret_gpu: the GPU's ordinal. errors:
 * -SW_ERANGE (longer than what was allocated there), -SW_EGPU, -SW_EMEMKIND (driver too old). */
enum { SW_CUDA_UNKNOWN, SW_CUDA_GPU, SW_CUDA_PAGE_LOCKED };
int sw_cuda_locate(struct sw_cuda **cuda, const void *data, uint64_t bytes, int *ret_gpu, struct sw_err *err);
/* A block that can be handed over, on the GPU of the memory `near`. owns: the caller, until sw_cuda_block_free().
 * errors: -SW_ENOMEM, -SW_EGPU, -SW_EMEMKIND (`near` is no GPU memory). */
int sw_cuda_block_new(struct sw_cuda_block **ret, struct sw_cuda *cuda, const void *near, uint64_t bytes,
                      struct sw_err *err);
/* The block's memory, and the stream on which its copies run in order. */
uint8_t *sw_cuda_block_data(const struct sw_cuda_block *block);
struct CUstream_st *sw_cuda_block_stream(const struct sw_cuda_block *block);
/* Queues a copy between the block and any memory of that GPU. errors: -SW_EGPU. */
int sw_cuda_block_copy(struct sw_cuda_block *block, void *to, const void *from, uint64_t bytes, struct sw_err *err);
/* Waits for the copies. NULL is a no-op. */
void sw_cuda_block_free(struct sw_cuda_block *block);
/* Whether this build knows CUDA at all, for error texts. */
int sw_cuda_built(void);
/* Releases contexts; all exports and marks of it must be gone or given back. NULL is a no-op. */
void sw_cuda_free(struct sw_cuda *cuda);

#endif
