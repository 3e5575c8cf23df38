/* guard.h - maps clients' memory so that writing to it never allocates pages at the daemon's expense.
 *
 * A process that touches a hole of a memfd through a mapping, even by reading, allocates a page, which is charged to
 * its own control group; so does write(). A client could hand over memory without pages, or punch holes while the
 * daemon works, and the daemon would pay. A guarded mapping is registered with userfaultfd (SIGBUS, missing pages of
 * shared memory): a system call that copies there stops at the hole. Check and access are one step, so a client cannot
 * act between them. Only such system calls may touch the mapping: an instruction would get a SIGBUS. */
#ifndef SW_SPILL_DEVICE_GUARD_H
#define SW_SPILL_DEVICE_GUARD_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

/* Take and release the process's one userfaultfd, which is open while it has users. Returns false, with errno, if there
 * can be no guarded mappings: the kernel is older than 5.11, or the process may not use userfaultfd(). thread: any. */
bool sw_guard_take(void);
void sw_guard_give_back(void);

/* Maps whole pages of a memfd, guarded. The caller has taken the guard, and unmaps by munmap(). NULL: failed, with
 * errno. thread: any. */
void *sw_guard_map(int fd, size_t bytes, off_t offset);

/* Copies to a guarded mapping. Returns how many bytes were copied before the first hole. -1: failed, with errno;
 * EFAULT: the first byte lies in a hole. thread: any. */
ssize_t sw_guard_copy_to(void *to, const void *from, size_t bytes);

#endif
