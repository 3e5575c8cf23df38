#include "tests/lib/fake_cuda/stand_in.h"

#include "base/assert.h"
#include "ipc/client/cuda_driver.h"
#include "tests/lib/fake_cuda/handle.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_MEMORIES = 16, PARTS = 2 };

static struct memory {
    enum sw_mem_kind kind;
    uint8_t *data; /* NULL: free */
    size_t bytes;
    int fds[PARTS]; /* all but of VMM have one */
    unsigned n_parts;
} memories[MAX_MEMORIES];

struct CUstream_st {
    void (*work)(void *arg);
    void *arg;
    uint64_t *word, value; /* to be written when the work is done; NULL: none */
};

struct CUctx_st {
    char unused;
};
static struct CUctx_st primary;

static atomic_uint n_calls, n_held;

/* ---- memory ------------------------------------------------------------------------------------------------------ */

void *sw_stand_in_new(enum sw_mem_kind kind, size_t bytes) {
    struct memory *m = memories;
    while (m->data)
        SW_ASSERT(++m < memories + MAX_MEMORIES);
    *m = (struct memory){.kind = kind, .bytes = bytes, .n_parts = kind == SW_MEM_CUDA_VMM ? PARTS : 1};
    const size_t part = bytes / m->n_parts;
    m->data = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    SW_ASSERT(m->data != MAP_FAILED);
    for (unsigned i = 0; i < m->n_parts; i++) {
        m->fds[i] = memfd_create("memory of a GPU that is none", MFD_CLOEXEC);
        SW_ASSERT(m->fds[i] >= 0 && ftruncate(m->fds[i], (off_t)part) == 0);
        SW_ASSERT(mmap(m->data + i * part, part, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, m->fds[i], 0) !=
                  MAP_FAILED);
    }
    return m->data;
}

static struct memory *find(CUdeviceptr address) {
    for (struct memory *m = memories; m < memories + MAX_MEMORIES; m++)
        if (m->data && address - (uintptr_t)m->data < m->bytes)
            return m;
    return NULL;
}

void sw_stand_in_free(void *memory) {
    struct memory *m = find((uintptr_t)memory);
    SW_ASSERT(m && m->data == memory && munmap(m->data, m->bytes) == 0);
    for (unsigned i = 0; i < m->n_parts; i++)
        (void)close(m->fds[i]);
    m->data = NULL;
}

static CUresult found(bool is_found) {
    atomic_fetch_add(&n_calls, 1);
    return is_found ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult hold(int change) {
    SW_ASSERT((int)atomic_fetch_add(&n_held, (unsigned)change) + change >= 0);
    return found(true);
}

static CUresult do_error_name(CUresult result, const char **ret) {
    (void)result;
    *ret = "an error of the stand-in";
    return found(true);
}

/* As the driver: what it does not know has attributes of 0. */
static CUresult do_attributes(unsigned n, CUpointer_attribute *names, void **values, CUdeviceptr address) {
    const struct memory *m = find(address);
    for (unsigned i = 0; m && i < n; i++) {
        if (names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)values[i] = CU_MEMORYTYPE_DEVICE;
        else if (names[i] == CU_POINTER_ATTRIBUTE_IS_MANAGED)
            *(unsigned *)values[i] = m->kind == SW_MEM_MEMFD;
        else if (names[i] == CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE)
            *(unsigned *)values[i] = m->kind == SW_MEM_CUDA_IPC;
        else if (names[i] == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
            *(CUdeviceptr *)values[i] = (uintptr_t)m->data;
        else if (names[i] == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
            *(size_t *)values[i] = m->bytes;
        else if (names[i] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE && m->kind == SW_MEM_CUDA_POOL)
            memcpy(values[i], &m, sizeof m);
    }
    return found(true);
}

/* Of VMM memory: the part. */
static CUresult do_address_range(CUdeviceptr *ret, size_t *ret_bytes, CUdeviceptr address) {
    const struct memory *m = find(address);
    if (m) {
        *ret_bytes = m->bytes / m->n_parts;
        *ret = (uintptr_t)m->data + (address - (uintptr_t)m->data) / *ret_bytes * *ret_bytes;
    }
    return found(m);
}

static CUresult do_ipc_handle(CUipcMemHandle *ret, CUdeviceptr address) {
    const struct memory *m = find(address);
    if (m)
        sw_fake_handle_make((uint8_t *)ret, m->fds[0], m->bytes);
    return found(m && m->kind == SW_MEM_CUDA_IPC);
}

static CUresult do_retain_allocation(CUmemGenericAllocationHandle *ret, void *address) {
    const struct memory *m = find((uintptr_t)address);
    if (!m || m->kind != SW_MEM_CUDA_VMM)
        return found(false);
    *ret = (CUmemGenericAllocationHandle)m->fds[(size_t)((uint8_t *)address - m->data) / (m->bytes / m->n_parts)];
    return hold(1);
}

static CUresult do_release_allocation(CUmemGenericAllocationHandle handle) {
    (void)handle;
    return hold(-1);
}

static CUresult do_allocation_properties(CUmemAllocationProp *ret, CUmemGenericAllocationHandle handle) {
    (void)handle;
    *ret = (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    return found(true);
}

static CUresult do_export_allocation(void *ret, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type,
                                     unsigned long long flags) {
    const int fd = fcntl((int)handle, F_DUPFD_CLOEXEC, 0);
    memcpy(ret, &fd, sizeof fd);
    return found(fd >= 0 && type == CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR && !flags);
}

static CUresult do_export_pool(void *ret, CUmemoryPool pool, CUmemAllocationHandleType type, unsigned long long flags) {
    const struct memory *m;
    memcpy(&m, &pool, sizeof m);
    return do_export_allocation(ret, (CUmemGenericAllocationHandle)m->fds[0], type, flags);
}

static CUresult do_export_pointer(CUmemPoolPtrExportData *ret, CUdeviceptr address) {
    const struct memory *m = find(address);
    if (m)
        sw_fake_handle_make((uint8_t *)ret, -1, m->bytes);
    return found(m && m->kind == SW_MEM_CUDA_POOL);
}

static CUresult do_allocate(CUdeviceptr *ret, size_t bytes) {
    *ret = (uintptr_t)sw_stand_in_new(SW_MEM_CUDA_IPC, bytes);
    return hold(1);
}

static CUresult do_free(CUdeviceptr address) {
    sw_stand_in_free(find(address)->data);
    return hold(-1);
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static CUresult do_device_get(CUdevice *ret, int ordinal) {
    *ret = ordinal;
    return found(ordinal == 0);
}

static CUresult do_device_uuid(CUuuid *ret, CUdevice device) {
    memcpy(ret, SW_FAKE_UUID, sizeof *ret);
    return found(device == 0);
}

static CUresult do_primary_retain(CUcontext *ret, CUdevice device) {
    (void)device;
    *ret = &primary;
    return hold(1);
}

static CUresult do_primary_release(CUdevice device) {
    (void)device;
    return hold(-1);
}

static CUresult do_push(CUcontext context) {
    return context == &primary ? hold(1) : found(false);
}

static CUresult do_pop(CUcontext *ret) {
    *ret = &primary;
    return hold(-1);
}

static CUresult do_current_device(CUdevice *ret) {
    *ret = 0;
    return found(true);
}

/* No context is the thread's: so the primary one is used. */
static CUresult do_current(CUcontext *ret) {
    *ret = NULL;
    return found(true);
}

/* ---- streams ----------------------------------------------------------------------------------------------------- */

struct CUstream_st *sw_stand_in_stream(void (*work)(void *arg), void *arg) {
    static struct CUstream_st stream;
    stream = (struct CUstream_st){.work = work, .arg = arg};
    return &stream;
}

static void write_word(uint64_t *word, uint64_t value) {
    __atomic_store_n(word, value, __ATOMIC_RELEASE);
}

void sw_stand_in_run(struct CUstream_st *stream) {
    stream->work(stream->arg);
    stream->work = NULL;
    if (stream->word)
        write_word(stream->word, stream->value);
    stream->word = NULL;
}

static CUresult do_stream_create(CUstream *ret, unsigned flags) {
    (void)flags;
    *ret = calloc(1, sizeof **ret);
    return *ret ? hold(1) : found(false);
}

static CUresult do_stream_destroy(CUstream stream) {
    free(stream);
    return hold(-1);
}

static CUresult do_stream_context(CUstream stream, CUcontext *ret) {
    (void)stream;
    *ret = &primary;
    return found(true);
}

static CUresult do_stream_flags(CUstream stream, unsigned *ret) {
    (void)stream;
    *ret = CU_STREAM_DEFAULT;
    return found(true);
}

static CUresult do_stream_query(CUstream stream) {
    atomic_fetch_add(&n_calls, 1);
    return stream && stream->work ? CUDA_ERROR_NOT_READY : CUDA_SUCCESS;
}

static CUresult do_stream_captures(CUstream stream, CUstreamCaptureStatus *ret) {
    (void)stream;
    *ret = CU_STREAM_CAPTURE_STATUS_NONE;
    return found(true);
}

static CUresult do_capture_mode(CUstreamCaptureMode *mode) {
    (void)mode;
    return found(true);
}

static CUresult do_stream_synchronize(CUstream stream) {
    return found(!stream || !stream->work);
}

static CUresult do_write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    uint64_t *word; /* a device address, as the host pointer that it is here */
    memcpy(&word, &address, sizeof word);
    if (stream && stream->work) {
        SW_ASSERT(!stream->word);
        stream->word = word;
        stream->value = value;
    } else {
        write_word(word, value);
    }
    return found(flags == CU_STREAM_WRITE_VALUE_DEFAULT);
}

static CUresult do_launch_host(CUstream stream, CUhostFn function, void *arg) {
    (void)stream, (void)function, (void)arg;
    return found(false); /* streams can write */
}

static CUresult do_host_register(void *page, size_t bytes, unsigned flags) {
    return found(page && bytes && flags == (CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP));
}

static CUresult do_host_pointer(CUdeviceptr *ret, void *page, unsigned flags) {
    *ret = (uintptr_t)page;
    return found(!flags);
}

static CUresult do_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    void *target;
    const void *source;
    memcpy(&target, &to, sizeof target);
    memcpy(&source, &from, sizeof source);
    memcpy(target, source, bytes);
    return found(!stream || !stream->work);
}

/* ---- the library ------------------------------------------------------------------------------------------------- */

unsigned sw_stand_in_calls(void) {
    return atomic_load(&n_calls);
}

unsigned sw_stand_in_held(void) {
    return atomic_load(&n_held);
}

/* A table of the driver's functions, in the client's order, so that none is forgotten. */
static const struct sw_cuda functions = {
#define ROW(member, name, version) .member = do_##member,
    SW_DRIVER_FUNCTIONS(ROW)
#undef ROW
};

CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status);
CUresult cuGetProcAddress_v2(const char *name, void **ret, int version, uint64_t flags,
                             CUdriverProcAddressQueryResult *status) {
    (void)flags, (void)status;
    *ret = NULL;
#define FIND(member, function, function_version)                                                                       \
    if (strcmp(name, #function) == 0 && version >= (function_version))                                                 \
        memcpy(ret, &functions.member, sizeof *ret);
    SW_DRIVER_FUNCTIONS(FIND)
#undef FIND
    return *ret ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
