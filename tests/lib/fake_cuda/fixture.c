#include "tests/lib/fake_cuda/fixture.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "tests/lib/fake_cuda/fake_cuda.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum sw_mem_kind sw_fake_kind = SW_MEM_CUDA_IPC;

/* After each operation the worker and the loop poll for as long as the device says. For a test that does thousands of
 * short ones the device's 500 us are a quarter of its processor time, and hinder the threads that stand for the GPU. */
enum { POLL_US = 20 };

static int open_device(struct sw_device **ret, const struct sw_device_config *config, struct sw_err *err) {
    const int rc = sw_device_cuda_open(ret, 0, config, err);
    if (rc == 0)
        ((struct sw_device_info *)(uintptr_t)(*ret)->ops->info(*ret))->poll_us = POLL_US;
    return rc;
}

/* A descriptor with a position of its own: there the part begins. */
static int part_fd(int fd, uint64_t at) {
    char path[32];
    (void)snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    const int part = open(path, O_RDWR | O_CLOEXEC);
    SW_ASSERT(part >= 0 && lseek(part, (off_t)at, SEEK_SET) == (off_t)at);
    return part;
}

static struct sw_mem_desc describe(const struct sw_memory *memory) {
    const bool is_vmm = sw_fake_kind == SW_MEM_CUDA_VMM;
    struct sw_mem_desc desc = {.kind = sw_fake_kind, .bytes = memory->bytes};
    memcpy(desc.device_uuid, sw_fake_uuid, sizeof desc.device_uuid);
    if (sw_fake_kind == SW_MEM_CUDA_IPC) {
        sw_fake_ipc_handle(desc.handle, memory->fd, memory->bytes);
        return desc;
    }
    sw_fake_pool_handle(desc.handle, memory->bytes);
    desc.n_parts = is_vmm && memory->bytes > SW_FAKE_PAGE_BYTES ? 2 : 1;
    desc.fds = sw_alloc_array(2, sizeof *desc.fds);
    desc.part_bytes = sw_alloc_array(2, sizeof *desc.part_bytes);
    SW_ASSERT(desc.fds && desc.part_bytes);
    for (uint64_t i = 0, at = 0; i < desc.n_parts; at += desc.part_bytes[i++]) {
        desc.fds[i] = part_fd(memory->fd, at);
        desc.part_bytes[i] = i + 1 == desc.n_parts ? memory->bytes - at : SW_FAKE_PAGE_BYTES;
    }
    return desc;
}

static __attribute__((constructor)) void replace(void) {
    sw_fixture_open_device = open_device;
    sw_fixture_describe = describe;
}
