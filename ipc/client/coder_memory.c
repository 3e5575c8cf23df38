#include "ipc/client/coder_memory.h"

#include "base/descriptors.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The service writes to no page that the memfd lacks, so all are allocated now. */
static int fill_memfd(int fd, uint64_t bytes) {
    int rc;
    if (ftruncate(fd, (off_t)bytes) < 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return -1;
    do
        rc = fallocate(fd, 0, 0, (off_t)bytes);
    while (rc < 0 && errno == EINTR);
    return rc;
}

static int allocate_host(struct sw_coder_memory *ret, uint64_t bytes, struct sw_err *err) {
    const int fd = memfd_create("spillway-frames", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *data = MAP_FAILED;
    if (fd >= 0 && fill_memfd(fd, bytes) == 0)
        data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data != MAP_FAILED) {
        *ret = (struct sw_coder_memory){.data = data, .bytes = bytes, .fd = fd};
        return 0;
    }
    const int cause = errno;
    if (fd >= 0)
        (void)close(fd);
    return sw_err_set(err, sw_is_out_of_descriptors(cause) ? -SW_ELIMIT : -SW_ENOMEM, SW_SCOPE_REQUEST,
                      "frame buffers of %llu bytes: %s", (unsigned long long)bytes, strerror(cause));
}

int sw_coder_memory_init(struct sw_coder_memory *ret, struct CUctx_st *context, int ordinal, uint64_t bytes,
                         struct sw_err *err) {
    return context ? sw_coder_cuda_allocate(ret, ordinal, bytes, err) : allocate_host(ret, bytes, err);
}

void sw_coder_memory_fini(struct sw_coder_memory *memory) {
    if (memory->data && memory->fd < 0)
        sw_coder_cuda_free(memory);
    else if (memory->data)
        (void)munmap(memory->data, memory->bytes);
    if (memory->fd >= 0)
        (void)close(memory->fd);
    *memory = (struct sw_coder_memory){.fd = -1};
}

uint64_t sw_coder_context_id(struct CUctx_st *context) {
    return context ? sw_coder_cuda_id(context) : 0;
}

int sw_coder_context_enter(struct sw_coder_context *ret, struct CUctx_st *context, uint64_t id, struct sw_err *err) {
    const int rc = context ? sw_coder_cuda_push(context, id, &ret->capture_mode, err) : 0;
    ret->is_pushed = context && !rc;
    return rc;
}

void sw_coder_context_leave(const struct sw_coder_context *outer) {
    if (outer->is_pushed)
        sw_coder_cuda_pop(outer->capture_mode);
}
