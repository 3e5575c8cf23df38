/* memfd.h - a client's shared memory, checked, read and written.
 *
 * By pread and pwrite, never by a mapping. A client may write to its memory, or punch holes into it, while we work: an
 * encoder that gets a copy still sees bytes that stand still, a decoder's half-made or bad output never reaches the
 * client, a missing page is an error code and not SIGBUS, and reading a sparse file costs no page of ours. The extra
 * copy is small beside what the codec costs on a CPU, and about what the page faults of a fresh mapping cost. */
#ifndef SW_SPILL_MEMFD_H
#define SW_SPILL_MEMFD_H

#include "base/err.h"
#include <stdint.h>

/* Refuses what is not a memfd of at least `bytes` that can never shrink.
 * errors: -SW_EFDS (not open, not a regular file, hugetlbfs), -SW_EUNSEALED, -SW_ERANGE. thread: any. */
int sw_memfd_check(int fd, uint64_t bytes, struct sw_err *err);

/* Copy bytes of a checked memfd from or to `offset`. errors: -SW_EACCES (sealed against writing, or the descriptor
 * does not allow it), -SW_ENOMEM (no page to be had), -SW_EIMPORT; part may have been copied. thread: any. */
int sw_memfd_read(int fd, void *to, uint64_t bytes, uint64_t offset, struct sw_err *err);
int sw_memfd_write(int fd, const void *from, uint64_t bytes, uint64_t offset, struct sw_err *err);

#endif
