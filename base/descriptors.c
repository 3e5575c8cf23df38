#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

bool sw_is_out_of_descriptors(int errno_value) {
    return errno_value == EMFILE || errno_value == ENFILE;
}

bool sw_descriptors_are_used_up(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
    return fd < 0 && sw_is_out_of_descriptors(errno);
}
