/* handle.h - what the fake's handles of memory of other processes consist of, on either side. */
#ifndef SW_FAKE_CUDA_HANDLE_H
#define SW_FAKE_CUDA_HANDLE_H

#include "base/mem_kind.h"
#include <stdint.h>
#include <string.h>
#include <unistd.h>

/* fd: of IPC handles, in the process; else -1. */
struct sw_fake_handle {
    int pid, fd;
    uint64_t bytes;
};

static inline void sw_fake_handle_make(uint8_t ret[SW_MEM_HANDLE_BYTES], int fd, uint64_t bytes) {
    const struct sw_fake_handle handle = {.pid = (int)getpid(), .fd = fd, .bytes = bytes};
    memset(ret, 0, SW_MEM_HANDLE_BYTES);
    memcpy(ret, &handle, sizeof handle);
}

#define SW_FAKE_UUID "fake GPU number"

#endif
