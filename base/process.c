#include "base/process.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

/* Copied from linux/magic.h and linux/proc_ns.h, because older versions of these lack them. */
#define PIDFS_SUPER 0x50494446
#define INITIAL_PID_NAMESPACE UINT64_C(0xEFFFFFFC)

static int open_pidfd(pid_t pid) {
    return (int)syscall(SYS_pidfd_open, pid, 0u);
}

/* Returns a pidfd's inode; 0: not known. Before Linux 6.9 all pidfds had the same inode. */
static uint64_t inode_of(int pidfd) {
    struct statfs fs;
    struct stat st;
    return pidfd >= 0 && fstatfs(pidfd, &fs) == 0 && fs.f_type == PIDFS_SUPER && fstat(pidfd, &st) == 0 ? st.st_ino : 0;
}

static bool has_exited(int pidfd) {
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    return poll(&p, 1, 0) == 1 && p.revents & POLLIN;
}

/* Returns whether /proc shows the pids of this process's own pid namespace. If so, NSpid lists only one pid. A kernel
 * without pid namespaces has no such line. */
static bool proc_is_ours(void) {
    char line[256];
    uint64_t first, second;
    bool is_ours = true;
    FILE *file = fopen("/proc/self/status", "re");
    if (!file)
        return false;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "NSpid: %" SCNu64 " %" SCNu64, &first, &second) == 2)
            is_ours = false;
    (void)fclose(file);
    return is_ours;
}

/* Returns the process's start time; 0: not known. Parsing starts after the last ')': the second field is the program's
 * name in parentheses, which may contain any character. */
static uint64_t start_time_of(pid_t pid) {
    enum { FIELDS_BETWEEN = 19 }; /* the third to the 21st */
    char path[40], line[1024];
    uint64_t start_time = 0;
    (void)snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    FILE *file = proc_is_ours() ? fopen(path, "re") : NULL;
    if (!file)
        return 0;
    line[fread(line, 1, sizeof line - 1, file)] = 0;
    (void)fclose(file);
    const char *at = strrchr(line, ')');
    for (int i = 0; at && i <= FIELDS_BETWEEN; i++)
        at = strchr(at + 1, ' ');
    return at && sscanf(at, "%" SCNu64, &start_time) == 1 ? start_time : 0;
}

/* Returns a number that identifies this pid namespace; 0: not known. A namespace lives as long as its first process, so
 * the inode of that process's pidfd identifies it. On kernels without these inodes, the initial namespace has a fixed
 * number. The numbers of other namespaces are reused, so the first process's start time is added. */
static uint64_t own_namespace(void) {
    struct stat st;
    const int pidfd = open_pidfd(1);
    const uint64_t inode = inode_of(pidfd);
    if (pidfd >= 0)
        (void)close(pidfd);
    if (inode)
        return inode;
    if (stat("/proc/self/ns/pid", &st) < 0)
        return 0;
    if (st.st_ino == INITIAL_PID_NAMESPACE)
        return st.st_ino;
    const uint64_t start_time = start_time_of(1);
    return start_time ? start_time << 32 | (uint32_t)st.st_ino : 0;
}

void sw_process_identify(struct sw_process *ret, pid_t pid, int pidfd) {
    *ret = (struct sw_process){.pid = pid > 0 ? (uint64_t)pid : 0};
    if (pid <= 0)
        return;
    ret->name_space = own_namespace();
    ret->pidfd_inode = inode_of(pidfd);
    ret->start_time = start_time_of(pid);
    if (pidfd >= 0 && has_exited(pidfd))
        ret->start_time = 0; /* another process may have the pid by now */
}

/* Returns whether the pid now belongs to another process. pidfd: of the process that has the pid now. */
static bool is_another(const struct sw_process *process, int pidfd) {
    const uint64_t inode = inode_of(pidfd);
    if (process->pidfd_inode && inode)
        return process->pidfd_inode != inode;
    const uint64_t start_time = process->start_time ? start_time_of((pid_t)process->pid) : 0;
    return start_time && start_time != process->start_time;
}

bool sw_process_has_ended(const struct sw_process *process) {
    if (!process->pid || process->pid > INT32_MAX || !process->name_space || process->name_space != own_namespace())
        return false;
    const pid_t pid = (pid_t)process->pid;
    const int pidfd = open_pidfd(pid);
    if (pidfd < 0 && (errno == ESRCH || errno == EINVAL || errno == ENOENT))
        return true; /* EINVAL, ENOENT: the number belongs to a thread now */
    if (pidfd < 0)   /* the system call does not exist, or is not permitted */
        return kill(pid, 0) < 0 && errno == ESRCH;
    const bool has_ended = has_exited(pidfd) || is_another(process, pidfd);
    (void)close(pidfd);
    return has_ended;
}
