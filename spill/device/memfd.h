/* memfd.h - a client's shared memory, checked, read and written.
 *
 * By system calls, never by instructions on a mapping. A client may write to its memory, or punch holes into it, while
 * we work: an encoder that gets a copy still sees bytes that stand still, a decoder's half-made or bad output never
 * reaches the client, a missing page is an error code and not SIGBUS.
 *
 * No page is made that would be charged to us, whatever the client does meanwhile. Reading is pread(), for which a hole
 * costs nothing and reads as zeros. pwrite() would make the page, so writing goes through a guarded mapping (guard.h),
 * the writer's window, and ends at a hole: a client has its memory allocated before. Where there are no guarded
 * mappings, or holes may be filled, it is pwrite() all the same. */
#ifndef SW_SPILL_MEMFD_H
#define SW_SPILL_MEMFD_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* Refuses what is not a memfd of at least `bytes` that can never shrink.
 * errors: -SW_EFDS (not open, not a regular file, hugetlbfs), -SW_EUNSEALED, -SW_ERANGE. thread: any. */
int sw_memfd_check(int fd, uint64_t bytes, struct sw_err *err);

/* Copies bytes of a checked memfd from `offset`; holes are zeros. errors: -SW_EACCES (the descriptor does not allow
 * it), -SW_ENOMEM, -SW_EIMPORT; part may have been copied. thread: any. */
int sw_memfd_read(int fd, void *to, uint64_t bytes, uint64_t offset, struct sw_err *err);

/* Zero at first, but for is_guarded: whoever sets it has taken the guard. The window stays where it is as long as
 * writes fall into it: one step of a slot writes to many places of the same memfd. */
struct sw_memfd_writer {
    bool is_guarded;
    bool may_fill_holes; /* the next writes: by pwrite() all the same */
    int fd;
    uint8_t *window; /* NULL: none */
    uint64_t offset, bytes;
};
/* Copies bytes to `offset` of a checked memfd. errors: -SW_EUNALLOCATED (a hole), -SW_EACCES (sealed against writing,
 * or the descriptor does not allow it), -SW_ENOMEM, -SW_EIMPORT; part may have been copied. thread: the writer's. */
int sw_memfd_write(struct sw_memfd_writer *writer, int fd, const void *from, uint64_t bytes, uint64_t offset,
                   struct sw_err *err);
/* Unmaps the window, and holes may not be filled any more; before any memfd that was written to is closed. */
void sw_memfd_writer_end(struct sw_memfd_writer *writer);

#endif
