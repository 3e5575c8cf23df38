/* guard.h - clients' memory that is mapped, without a page of it ever being made at our expense.
 *
 * Whoever first touches a hole of a memfd through a mapping, be it to read, has a page made, which is charged to its
 * own control group; write() does the same. So a client that hands over memory without pages, or punches holes into it
 * while we work, would have us pay for it. A mapping that is registered with userfaultfd (SIGBUS, missing pages of
 * shared memory) has none made: a system call that copies there stops at the hole. Check and access are one step, so
 * that no moment between them can be used. Only such calls may touch the mapping: an instruction would get a SIGBUS. */
#ifndef SW_SPILL_DEVICE_GUARD_H
#define SW_SPILL_DEVICE_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* For code that makes guarded mappings: opens the process's one descriptor for them, if nobody has, and closes it when
 * all have given it back. False: errno says why there are none: a kernel before 5.11, or something that forbids
 * userfaultfd() to this process. thread: any. */
bool sw_guard_take(void);
void sw_guard_give_back(void);

/* mmap() of whole pages of a memfd, guarded; the caller has taken the guard. NULL: errno says why. munmap() undoes it.
 * thread: any. */
void *sw_guard_map(int fd, size_t bytes, off_t offset);

/* Copies to a guarded mapping. Returns the bytes before the first hole, at least 1, or -1: errno is EFAULT where there
 * is a hole at the beginning. thread: any. */
ssize_t sw_guard_copy_to(void *to, const void *from, size_t bytes);

#endif
