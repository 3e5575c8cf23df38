/* process.h - names a process so that it can be looked for later, also by another process: a pid is used again, and
 * means another process in another pid namespace.
 *
 * thread: any, no state. */
#ifndef SW_BASE_PROCESS_H
#define SW_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What is known of a process; 0: not known. The catalogue records it as it is. */
struct sw_process {
    uint64_t pid;
    uint64_t start_time;  /* field 22 of /proc/PID/stat */
    uint64_t pidfd_inode; /* of its pidfd, where these have inodes of their own (Linux 6.9) */
    uint64_t name_space;  /* in which the pid counts: a number that no other pid namespace has until the next boot */
};

/* Fills in what can be found out of a process of this pid. pidfd: of the same process (borrowed), or -1. pid 0, as the
 * kernel has it for a process that this pid namespace cannot see: nothing is known. */
void sw_process_identify(struct sw_process *ret, pid_t pid, int pidfd);

/* Whether the process has certainly ended. False if it runs, and if that cannot be told: it is of another pid
 * namespace, say, or nothing but its pid is known, and some process has that. */
bool sw_process_has_ended(const struct sw_process *process);

#endif
