#include "tests/lib/descriptors.h"

#include "base/assert.h"
#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

unsigned sw_count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    SW_ASSERT(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}

static struct rlimit before;

/* Numbers are given from the lowest on: the limit is the one that would come after n. */
void sw_leave_fds(unsigned n) {
    int fds[16];
    struct rlimit limit;
    SW_ASSERT(n < sizeof fds / sizeof fds[0] && getrlimit(RLIMIT_NOFILE, &before) == 0);
    for (unsigned i = 0; i <= n; i++)
        SW_ASSERT((fds[i] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0);
    limit = before;
    limit.rlim_cur = (rlim_t)fds[n];
    for (unsigned i = 0; i <= n; i++)
        (void)close(fds[i]);
    SW_ASSERT(setrlimit(RLIMIT_NOFILE, &limit) == 0);
}

void sw_leave_all_fds(void) {
    SW_ASSERT(setrlimit(RLIMIT_NOFILE, &before) == 0);
}
