#include "base/descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

void sw_descriptors_begin(void) {
    static const int modes[] = {[STDIN_FILENO] = O_WRONLY, [STDOUT_FILENO] = O_RDONLY, [STDERR_FILENO] = O_RDONLY};
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0)
            (void)open("/dev/null", modes[fd]); /* open() takes the lowest free number, which is fd */
}

bool sw_is_out_of_descriptors(int errno_value) {
    return errno_value == EMFILE || errno_value == ENFILE;
}

bool sw_descriptors_are_used_up(void) {
    const int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    if (fd >= 0)
        (void)close(fd);
    return fd < 0 && sw_is_out_of_descriptors(errno);
}
