/* process.h - identifies a process, so that this or another process can tell later whether it has ended.
 *
 * A pid alone does not identify it: the kernel reuses pids, and a pid means another process in another pid namespace.
 * thread: any, no state. */
#ifndef SW_BASE_PROCESS_H
#define SW_BASE_PROCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* A process, as far as it is known; 0 in a field: not known. The catalogue stores this struct as it is. */
struct sw_process {
    uint64_t pid;
    uint64_t start_time;  /* field 22 of /proc/PID/stat */
    uint64_t pidfd_inode; /* inode of its pidfd, if every pidfd has its own inode (Linux 6.9) */
    uint64_t name_space;  /* the pid's namespace: a number that no other pid namespace has until the next boot */
};

/* Identifies a process as well as possible. pidfd: of the same process (borrowed), or -1. pid 0 stands for a process
 * that this pid namespace cannot see: nothing is known. */
void sw_process_identify(struct sw_process *ret, pid_t pid, int pidfd);

/* Returns whether the process has certainly ended. False if it runs, or if that is not known: it may belong to another
 * pid namespace, or only its pid is known and some process has this pid. */
bool sw_process_has_ended(const struct sw_process *process);

#endif
