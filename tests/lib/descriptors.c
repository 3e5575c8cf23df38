#include "tests/lib/descriptors.h"

#include "base/assert.h"
#include <dirent.h>

unsigned sw_count_fds(void) {
    DIR *dir = opendir("/proc/self/fd");
    unsigned n = 0;
    SW_ASSERT(dir);
    while (readdir(dir))
        n++;
    (void)closedir(dir);
    return n;
}
