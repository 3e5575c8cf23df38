/* memory.h - finds the kind of a pointer, and exports the memory so that the daemon can open it.
 *
 * An export has descriptors and, for GPU memory, a mark in the caller's stream. It does not keep the client's memory
 * alive. Only this header and the files memory_*.c and cuda_*.c know the kinds of memory. Not for the daemon. thread:
 * any, one at a time for each connection. */
#ifndef SW_IPC_MEMORY_H
#define SW_IPC_MEMORY_H

#include "base/err.h"
#include "base/mem_kind.h"
#include "ipc/client/mark.h"
#include <stdbool.h>
#include <stdint.h>

struct CUctx_st;
struct CUstream_st;
struct sw_cuda;       /* the CUDA driver of a connection: entry points, marks, retained contexts */
struct sw_cuda_block; /* GPU memory of the library's own, with a stream for copies */

/* The description of a memory for MEM_OPEN, MEM_PARTS and the operation that follows. */
struct sw_export {
    enum sw_mem_kind kind;
    uint8_t device_uuid[SW_DEVICE_UUID_BYTES];
    uint8_t handle[SW_MEM_HANDLE_BYTES];
    uint64_t bytes;       /* length of the exported memory, which contains the caller's range */
    uint64_t offset;      /* of the caller's range in it */
    uint32_t n_parts;     /* descriptors; 0 for CUDA_IPC */
    int *fds;             /* [n_parts], owned; -1: taken */
    uint64_t *part_bytes; /* [n_parts], owned */
    struct sw_mark *mark; /* a reference, owned until moved or given back; NULL: do not wait */
};

/* The marks of one request, without duplicates. */
enum { SW_MARKS_MAX = 64 };
struct sw_marks {
    unsigned n;
    struct sw_mark *marks[SW_MARKS_MAX]; /* references */
};

/* Exports the memory that holds data[0..bytes). *cuda: the connection's, NULL before the first GPU pointer; the caller
 * frees it by sw_cuda_free(). errors: -SW_EMEMKIND, -SW_EUNSEALED, -SW_ERANGE, -SW_ELIMIT, -SW_EGPU, -SW_EIO,
 * -SW_ENOMEM; *ret is then empty. */
int sw_export_find(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err);
/* Returns whether memory that was refused with this code can be copied instead. */
static inline bool sw_export_is_copied(int rc) {
    return rc == -SW_EMEMKIND || rc == -SW_EUNSEALED;
}
/* Orders an operation on exported memory behind the stream's queued work: sets e->mark, unless there is no work to wait
 * for. A no-op for host memory that is not page-locked.
 *
 * - known: marks of the same request, which serve again in the same context; NULL: none.
 * - data: an address in the memory. Of e only the kind is read. stream: see spillway.h.
 * - errors: -SW_EMEMKIND (the driver no longer knows the memory), -SW_EINVAL (the stream is being captured), -SW_ELIMIT
 *   (too many marks wait for their streams, or there is no free descriptor), -SW_EGPU, -SW_ENOMEM. */
int sw_export_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                    struct CUstream_st *stream, struct sw_err *err);
/* Makes the missing pages of data[0..bytes), before the daemon writes there (memory_pages.c). A no-op except for
 * memfds.
 *
 * - The daemon makes no pages: an operation that meets a hole fails with -SW_EUNALLOCATED.
 * - The content stays. Of e only the kind is read.
 * - errors: -SW_ENOMEM, and before Linux 5.14 those of sw_memfd_export(). */
int sw_export_make_pages(const struct sw_export *e, const void *data, uint64_t bytes, struct sw_err *err);
/* Closes the descriptors and gives the mark back. The export may be empty or incomplete. */
void sw_export_fini(struct sw_export *e);
/* Makes room for n_parts descriptors, all -1. errors: -SW_ENOMEM. */
int sw_export_reserve(struct sw_export *e, uint32_t n_parts, struct sw_err *err);

/* Checks that data[0..bytes) is readable, or writable, memory of this process (memory_memfd.c). ret_end: where such
 * memory ends, if bytes > 0; NULL: no matter. errors: -SW_EMEMKIND, -SW_ERANGE (only the front is), -SW_ELIMIT,
 * -SW_EIO, -SW_ENOMEM. */
int sw_host_check(const void *data, uint64_t bytes, bool writable, uintptr_t *ret_end, struct sw_err *err);
/* Exports memory in shared mappings of one memfd, and seals the memfd against shrinking (memory_memfd.c). errors:
 * -SW_EMEMKIND (other memory, huge pages, or only the front is such a mapping), -SW_EUNSEALED, -SW_ERANGE (not all of
 * it is mapped), others. */
int sw_memfd_export(struct sw_export *ret, const void *data, uint64_t bytes, struct sw_err *err);

/* ---- memory_cuda.c, cuda_mark.c and cuda_block.c ---- */

/* Exports GPU memory. Returns 1, or 0 if the pointer is not GPU memory. */
int sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err);
/* Does sw_export_order() for GPU memory and page-locked host memory. */
int sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                  struct CUstream_st *stream, struct sw_err *err);
/* Returns the page of the connection's marks, which the daemon must have before the first mark; NULL: there are none.
 */
const struct sw_mark_page *sw_cuda_mark_page(const struct sw_cuda *cuda);

/* Where memory of a GPU lies. */
struct sw_cuda_place {
    struct CUctx_st *context; /* in which to work on it */
    int ordinal;
    uint8_t device_uuid[SW_DEVICE_UUID_BYTES];
    uintptr_t end; /* of the memory around the bytes; 0: not known */
};
/* Finds what data[0..bytes) is. GPU memory is SW_CUDA_GPU even if it cannot be handed over; *ret then says where it
 * lies. errors: -SW_ERANGE (longer than the allocation), -SW_EGPU, -SW_EMEMKIND (driver too old). */
enum { SW_CUDA_UNKNOWN, SW_CUDA_GPU, SW_CUDA_PAGE_LOCKED };
int sw_cuda_locate(struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_cuda_place *ret,
                   struct sw_err *err);
/* Makes a block that can be handed over, on the GPU of the memory `near`. owns: the caller, until sw_cuda_block_free().
 * errors: -SW_ENOMEM, -SW_EGPU, -SW_EMEMKIND (`near` is not GPU memory). */
int sw_cuda_block_new(struct sw_cuda_block **ret, struct sw_cuda *cuda, const void *near, uint64_t bytes,
                      struct sw_err *err);
/* Return the block's memory, and the stream of its copies. */
uint8_t *sw_cuda_block_data(const struct sw_cuda_block *block);
struct CUstream_st *sw_cuda_block_stream(const struct sw_cuda_block *block);
/* Queues a copy between the block and any memory of that GPU. errors: -SW_EGPU. */
int sw_cuda_block_copy(struct sw_cuda_block *block, void *to, const void *from, uint64_t bytes, struct sw_err *err);
/* Waits for the copies, and frees the block. NULL: no-op. */
void sw_cuda_block_free(struct sw_cuda_block *block);
/* Releases the contexts. All exports and marks must be gone or given back. NULL: no-op. */
void sw_cuda_free(struct sw_cuda *cuda);

#endif
