#include "tests/lib/input_file.h"

#include "base/assert.h"
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

void sw_test_input_file_init(struct sw_test_input_file *ret, const void *data, size_t bytes) {
    ret->fd = memfd_create("input", MFD_CLOEXEC);
    SW_ASSERT(ret->fd >= 0);
    SW_ASSERT(bytes == 0 || pwrite(ret->fd, data, bytes, 0) == (ssize_t)bytes);
    (void)snprintf(ret->path, sizeof ret->path, "/proc/self/fd/%d", ret->fd);
}

void sw_test_input_file_fini(struct sw_test_input_file *file) {
    (void)close(file->fd);
}
