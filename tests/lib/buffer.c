#include "tests/lib/buffer.h"

#include "tests/lib/buffer_cuda.h"

#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* The memory of sw_buffer_new(). The descriptor of a memfd is kept: without CAP_SYS_ADMIN the client library finds the
 * file behind a mapping only by an open descriptor. */
struct owned {
    struct sw_buffer buffer; /* first */
    int fd;
};

const char *sw_buffer_kind_name(enum sw_buffer_kind kind) {
    static const char *const names[SW_BUFFER_ALL_KIND_NR] = {
        [SW_BUFFER_MEMFD] = "memfd",
        [SW_BUFFER_CUDA_MALLOC] = "cudaMalloc",
        [SW_BUFFER_CUDA_MIDDLE] = "cudaMalloc middle",
        [SW_BUFFER_CUDA_VMM] = "VMM",
        [SW_BUFFER_CUDA_POOL] = "cudaMallocAsync",
        [SW_BUFFER_CUDA_MANAGED] = "managed",
        [SW_BUFFER_CUDA_ASYNC] = "cudaMallocAsync, default pool",
        [SW_BUFFER_CUDA_SEGMENTS] = "VMM, not exportable",
    };
    return (unsigned)kind < SW_BUFFER_ALL_KIND_NR ? names[kind] : "unknown";
}

unsigned sw_buffer_usable_kinds(const char **ret_reason) {
    const char *reason = sw_buffer_cuda_absent();
    if (ret_reason)
        *ret_reason = reason;
    return reason ? SW_BUFFER_MEMFD + 1 : SW_BUFFER_KIND_NR;
}

uint64_t sw_buffer_free_bytes(void) {
    return sw_buffer_cuda_free_bytes();
}

/* A mapping of no bytes does not exist, so an empty buffer has one that is not used. */
static uint64_t mapped_bytes(const struct sw_buffer *buffer) {
    return buffer->bytes ? buffer->bytes : 1;
}

static int memfd_new(struct sw_buffer *buffer, int *ret_fd, struct sw_err *err) {
    const int fd = memfd_create("spillway-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    void *data = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, (off_t)mapped_bytes(buffer)) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0)
        data = mmap(NULL, mapped_bytes(buffer), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (data == MAP_FAILED) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "memfd of %llu bytes: %s",
                         (unsigned long long)buffer->bytes, strerror(errno));
        if (fd >= 0)
            (void)close(fd);
        return -SW_ENOMEM;
    }
    buffer->data = data;
    *ret_fd = fd;
    return 0;
}

int sw_buffer_new(struct sw_buffer **ret, enum sw_buffer_kind kind, uint64_t bytes, struct sw_err *err) {
    struct owned *owned = sw_alloc(sizeof *owned);
    if (!owned)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a buffer");
    struct sw_buffer *buffer = &owned->buffer;
    buffer->kind = kind;
    buffer->bytes = bytes;
    const int rc = kind == SW_BUFFER_MEMFD ? memfd_new(buffer, &owned->fd, err) : sw_buffer_cuda_new(buffer, err);
    if (rc < 0) {
        sw_free(owned);
        return rc;
    }
    *ret = buffer;
    return 0;
}

void sw_buffer_free(struct sw_buffer *buffer) {
    if (!buffer)
        return;
    if (buffer->kind == SW_BUFFER_MEMFD) {
        (void)munmap(buffer->data, mapped_bytes(buffer));
        (void)close(((struct owned *)buffer)->fd);
    } else {
        sw_buffer_cuda_free(buffer);
    }
    sw_free(buffer);
}

static int check_range(const struct sw_buffer *buffer, uint64_t offset, uint64_t bytes, struct sw_err *err) {
    if (offset <= buffer->bytes && bytes <= buffer->bytes - offset)
        return 0;
    return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%llu bytes at %llu of a buffer of %llu",
                      (unsigned long long)bytes, (unsigned long long)offset, (unsigned long long)buffer->bytes);
}

int sw_buffer_upload(struct sw_buffer *buffer, uint64_t offset, const void *from, uint64_t bytes, struct sw_err *err) {
    int rc = check_range(buffer, offset, bytes, err);
    if (rc < 0 || !bytes)
        return rc;
    if (buffer->kind != SW_BUFFER_MEMFD)
        return sw_buffer_cuda_copy((uint8_t *)buffer->data + offset, from, bytes, true, err);
    memcpy((uint8_t *)buffer->data + offset, from, bytes);
    return 0;
}

int sw_buffer_download(const struct sw_buffer *buffer, uint64_t offset, void *to, uint64_t bytes, struct sw_err *err) {
    int rc = check_range(buffer, offset, bytes, err);
    if (rc < 0 || !bytes)
        return rc;
    if (buffer->kind != SW_BUFFER_MEMFD)
        return sw_buffer_cuda_copy(to, (const uint8_t *)buffer->data + offset, bytes, false, err);
    memcpy(to, (const uint8_t *)buffer->data + offset, bytes);
    return 0;
}

uint64_t sw_buffer_drop_tail(struct sw_buffer *buffer, uint64_t kept_bytes) {
    return buffer->kind == SW_BUFFER_CUDA_VMM ? sw_buffer_cuda_drop_tail(buffer, kept_bytes) : 0;
}

int sw_buffer_regain_tail(struct sw_buffer *buffer, struct sw_err *err) {
    return buffer->kind == SW_BUFFER_CUDA_VMM ? sw_buffer_cuda_regain_tail(buffer, err) : 0;
}

int sw_buffer_fill(struct sw_buffer *buffer, uint8_t value, struct sw_err *err) {
    if (!buffer->bytes)
        return 0;
    if (buffer->kind != SW_BUFFER_MEMFD)
        return sw_buffer_cuda_fill(buffer, value, err);
    memset(buffer->data, value, buffer->bytes);
    return 0;
}
