/* memfd.h - checks, reads and writes a client's shared memory.
 *
 * System calls do this, never instructions on a mapping, because a client may write to its memory, or punch holes into
 * it, at any time. So an encoder gets a copy that does not change, bad output of a decoder never reaches the client,
 * and a missing page gives an error code instead of SIGBUS.
 *
 * No page is allocated at the daemon's expense, whatever the client does. pread() reads holes as zeros and allocates
 * nothing. pwrite() would allocate a page, so writing uses a guarded mapping (guard.h), the writer's window, and fails
 * at a hole: clients must allocate their memory before. If there are no guarded mappings, or holes may be filled,
 * pwrite() is used. */
#ifndef SW_SPILL_MEMFD_H
#define SW_SPILL_MEMFD_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

/* Checks that a descriptor is a memfd of at least `bytes` bytes that can never shrink. errors: -SW_EFDS (not open, not
 * a regular file, hugetlbfs), -SW_EUNSEALED, -SW_ERANGE. thread: any. */
int sw_memfd_check(int fd, uint64_t bytes, struct sw_err *err);

/* Copies bytes from a checked memfd; holes read as zeros. errors: -SW_EACCES (the descriptor does not allow it),
 * -SW_ENOMEM, -SW_EIMPORT; a part may have been copied. thread: any. */
int sw_memfd_read(int fd, void *to, uint64_t bytes, uint64_t offset, struct sw_err *err);

/* A writer. All zero at first, apart from is_guarded: set it if you have taken the guard. The window stays as long as
 * writes fall into it: mapping it takes longer than a write of 64 KiB. */
struct sw_memfd_writer {
    bool is_guarded;
    bool may_fill_holes; /* the next writes use pwrite() */
    int fd;
    uint8_t *window; /* NULL: none */
    uint64_t offset, bytes;
};
/* Copies bytes to a checked memfd. errors: -SW_EUNALLOCATED (a hole), -SW_EACCES (sealed against writing, or the
 * descriptor does not allow it), -SW_ENOMEM, -SW_EIMPORT; a part may have been copied. thread: the writer's. */
int sw_memfd_write(struct sw_memfd_writer *writer, int fd, const void *from, uint64_t bytes, uint64_t offset,
                   struct sw_err *err);
/* Unmaps the window, and clears may_fill_holes. Call it before a memfd that was written to is closed, since the next
 * one may have the same descriptor. */
void sw_memfd_writer_end(struct sw_memfd_writer *writer);

#endif
