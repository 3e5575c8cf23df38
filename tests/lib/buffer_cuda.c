#include "tests/lib/buffer_cuda.h"

#include "base/alloc.h"
#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <string.h>

/* Where the middle piece starts in its block: odd, and past the first granule. */
#define MIDDLE_OFFSET ((uint64_t)(3 << 20) + 12345)
enum { MAX_VMM_PARTS = 8 };

/* clang-format off */
/* Driver functions, looked up through the runtime: X(member, function, version of its type). */
#define DRIVER_FUNCTIONS(X) \
    X(granularity, cuMemGetAllocationGranularity, 10020) X(create, cuMemCreate, 10020) \
    X(reserve, cuMemAddressReserve, 10020) X(map, cuMemMap, 10020) X(set_access, cuMemSetAccess, 10020) \
    X(unmap, cuMemUnmap, 10020) X(unreserve, cuMemAddressFree, 10020) X(release, cuMemRelease, 10020)
/* clang-format on */

static struct driver {
#define MEMBER(member, name, version) PFN_##name##_v##version member;
    DRIVER_FUNCTIONS(MEMBER)
#undef MEMBER
} driver;

/* The buffer as this file sees it; nothing of it is on the GPU. */
struct gpu_memory {
    struct gpu_memory *next;
    void *data, *block; /* block: what cudaMalloc gave */
    cudaMemPool_t pool;
    CUdeviceptr range;
    bool is_private; /* the parts cannot be exported */
    uint64_t range_bytes, part_bytes[MAX_VMM_PARTS];
    int n_parts, n_mapped; /* the first n_mapped of them are there */
};
static struct gpu_memory *memories;

static int fail(struct sw_err *err, cudaError_t e, const char *call) {
    const int rc = sw_err_set(err, e == cudaErrorMemoryAllocation ? -SW_ENOMEM : -SW_EGPU, SW_SCOPE_REQUEST, "%s: %s",
                              call, cudaGetErrorString(e));
    (void)cudaGetLastError();
    return rc;
}

static bool load_driver(void) {
    enum cudaDriverEntryPointQueryResult found;
    void *symbol = NULL;
#define LOAD(member, name, version)                                                                                    \
    if (cudaGetDriverEntryPointByVersion(#name, &symbol, version, cudaEnableDefault, &found) != cudaSuccess ||         \
        found != cudaDriverEntryPointSuccess)                                                                          \
        return false;                                                                                                  \
    memcpy(&driver.member, &symbol, sizeof symbol); /* ISO C has no cast from object to function pointers */
    DRIVER_FUNCTIONS(LOAD)
#undef LOAD
    return true;
}

const char *sw_buffer_cuda_absent(void) {
    int n = 0;
    if (cudaGetDeviceCount(&n) != cudaSuccess || n == 0) {
        (void)cudaGetLastError();
        return "no CUDA GPU was found";
    }
    if (cudaSetDevice(0) != cudaSuccess || !load_driver())
        return "the CUDA driver is too old";
    return NULL;
}

uint64_t sw_buffer_cuda_free_bytes(void) {
    size_t available = 0, total = 0;
    if (sw_buffer_cuda_absent() || cudaMemGetInfo(&available, &total) != cudaSuccess)
        (void)cudaGetLastError();
    return available;
}

static int malloc_new(struct gpu_memory *m, uint64_t bytes, uint64_t offset, struct sw_err *err) {
    const cudaError_t e = cudaMalloc(&m->block, bytes + 2 * offset + 1);
    if (e != cudaSuccess)
        return fail(err, e, "cudaMalloc");
    m->data = (uint8_t *)m->block + offset;
    return 0;
}

/* of cudaMalloc's family: cudaFree() takes all of them. */
static int block_new(struct gpu_memory *m, cudaError_t e, const char *call, struct sw_err *err) {
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(NULL);
    if (e != cudaSuccess)
        return fail(err, e, call);
    m->data = m->block;
    return 0;
}

static int pool_new(struct gpu_memory *m, uint64_t bytes, struct sw_err *err) {
    const struct cudaMemPoolProps props = {.allocType = cudaMemAllocationTypePinned,
                                           .handleTypes = cudaMemHandleTypePosixFileDescriptor,
                                           .location = {.type = cudaMemLocationTypeDevice, .id = 0}};
    cudaError_t e = cudaMemPoolCreate(&m->pool, &props);
    if (e != cudaSuccess) {
        m->pool = NULL;
        return fail(err, e, "cudaMemPoolCreate");
    }
    e = cudaMallocFromPoolAsync(&m->data, bytes ? bytes : 1, m->pool, NULL);
    if (e == cudaSuccess)
        e = cudaStreamSynchronize(NULL);
    return e == cudaSuccess ? 0 : fail(err, e, "cudaMallocFromPoolAsync");
}

/* One physical allocation of part_bytes, mapped `at` bytes into the range. */
static CUresult map_part(const struct gpu_memory *m, const CUmemAllocationProp *prop, uint64_t at,
                         uint64_t part_bytes) {
    CUmemGenericAllocationHandle handle;
    CUresult e = driver.create(&handle, part_bytes, prop, 0);
    if (e != CUDA_SUCCESS)
        return e;
    e = driver.map(m->range + at, part_bytes, 0, handle, 0);
    (void)driver.release(handle); /* the mapping holds the memory */
    return e;
}

static CUmemAllocationProp part_prop(const struct gpu_memory *m) {
    return (CUmemAllocationProp){.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .requestedHandleTypes =
                                     m->is_private ? CU_MEM_HANDLE_TYPE_NONE : CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
}

/* Maps all parts that are not there. */
static int map_parts(struct gpu_memory *m, struct sw_err *err) {
    const CUmemAllocationProp prop = part_prop(m);
    const CUmemAccessDesc access = {.location = prop.location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUresult e = CUDA_SUCCESS;
    uint64_t at = 0;
    for (int i = 0; e == CUDA_SUCCESS && i < m->n_parts; i++) {
        if (i >= m->n_mapped) {
            e = map_part(m, &prop, at, m->part_bytes[i]);
            m->n_mapped += e == CUDA_SUCCESS;
        }
        at += m->part_bytes[i];
    }
    if (e == CUDA_SUCCESS)
        e = driver.set_access(m->range, m->range_bytes, &access, 1);
    return e == CUDA_SUCCESS ? 0 : fail(err, (cudaError_t)e, "cuMemCreate, cuMemMap, cuMemSetAccess");
}

/* Parts of 1, 2, 3, ... granules, the last one takes the rest. */
static int vmm_new(struct gpu_memory *m, uint64_t bytes, struct sw_err *err) {
    const CUmemAllocationProp prop = part_prop(m);
    size_t granule = 0;
    CUresult e = driver.granularity(&granule, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    const uint64_t granules = granule ? (bytes + granule - 1) / granule + (bytes == 0) : 0;
    if (e == CUDA_SUCCESS)
        e = driver.reserve(&m->range, granules * granule, 0, 0, 0);
    if (e != CUDA_SUCCESS)
        return fail(err, (cudaError_t)e, "cuMemAddressReserve");
    m->range_bytes = granules * granule;
    for (uint64_t left = m->range_bytes; left > 0; left -= m->part_bytes[m->n_parts++]) {
        const uint64_t wanted = granule * (uint64_t)(m->n_parts + 1);
        m->part_bytes[m->n_parts] = m->n_parts == MAX_VMM_PARTS - 1 || wanted > left ? left : wanted;
    }
    m->data = (void *)(uintptr_t)m->range; /* NOLINT(performance-no-int-to-ptr): the driver's integer */
    return map_parts(m, err);
}

static uint64_t parts_bytes(const struct gpu_memory *m, int n_parts) {
    uint64_t bytes = 0;
    for (int i = 0; i < n_parts; i++)
        bytes += m->part_bytes[i];
    return bytes;
}

static void unmap_last(struct gpu_memory *m) {
    m->n_mapped--;
    (void)driver.unmap(m->range + parts_bytes(m, m->n_mapped), m->part_bytes[m->n_mapped]);
}

static void release(struct gpu_memory *m) {
    (void)cudaDeviceSynchronize(); /* nothing may be in use by work that the caller queued */
    while (m->n_mapped > 0)
        unmap_last(m);
    if (m->range)
        (void)driver.unreserve(m->range, m->range_bytes);
    if (m->pool && m->data)
        (void)cudaFree(m->data);
    if (m->pool)
        (void)cudaMemPoolDestroy(m->pool);
    (void)cudaFree(m->block);
    (void)cudaGetLastError();
    sw_free(m);
}

int sw_buffer_cuda_new(struct sw_buffer *buffer, struct sw_err *err) {
    struct gpu_memory *m = sw_alloc(sizeof *m);
    int rc = -SW_ENOTSUP;
    if (!m)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a buffer");
    const char *absent = sw_buffer_cuda_absent();
    m->is_private = buffer->kind == SW_BUFFER_CUDA_SEGMENTS;
    if (absent)
        rc = sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "%s", absent);
    else if (buffer->kind == SW_BUFFER_CUDA_MALLOC)
        rc = malloc_new(m, buffer->bytes, 0, err);
    else if (buffer->kind == SW_BUFFER_CUDA_MIDDLE)
        rc = malloc_new(m, buffer->bytes, MIDDLE_OFFSET, err);
    else if (buffer->kind == SW_BUFFER_CUDA_MANAGED)
        rc = block_new(m, cudaMallocManaged(&m->block, buffer->bytes + 1, cudaMemAttachGlobal), "cudaMallocManaged",
                       err);
    else if (buffer->kind == SW_BUFFER_CUDA_ASYNC)
        rc = block_new(m, cudaMallocAsync(&m->block, buffer->bytes + 1, NULL), "cudaMallocAsync", err);
    else if (buffer->kind == SW_BUFFER_CUDA_VMM || buffer->kind == SW_BUFFER_CUDA_SEGMENTS)
        rc = vmm_new(m, buffer->bytes, err);
    else
        rc = pool_new(m, buffer->bytes, err);
    if (rc < 0) {
        release(m);
        return rc;
    }
    buffer->data = m->data;
    m->next = memories;
    memories = m;
    return 0;
}

void sw_buffer_cuda_free(struct sw_buffer *buffer) {
    for (struct gpu_memory **at = &memories; *at; at = &(*at)->next) {
        struct gpu_memory *m = *at;
        if (m->data == buffer->data) {
            *at = m->next;
            release(m);
            return;
        }
    }
}

static struct gpu_memory *memory_of(const struct sw_buffer *buffer) {
    struct gpu_memory *m = memories;
    while (m->data != buffer->data)
        m = m->next;
    return m;
}

uint64_t sw_buffer_cuda_drop_tail(struct sw_buffer *buffer, uint64_t kept_bytes) {
    struct gpu_memory *m = memory_of(buffer);
    const uint64_t before = parts_bytes(m, m->n_mapped);
    (void)cudaDeviceSynchronize();
    while (m->n_mapped > 0 && parts_bytes(m, m->n_mapped - 1) >= kept_bytes)
        unmap_last(m);
    return before - parts_bytes(m, m->n_mapped);
}

int sw_buffer_cuda_regain_tail(struct sw_buffer *buffer, struct sw_err *err) {
    return map_parts(memory_of(buffer), err);
}

int sw_buffer_cuda_copy(void *to, const void *from, uint64_t bytes, bool to_gpu, struct sw_err *err) {
    const cudaError_t e = cudaMemcpy(to, from, bytes, to_gpu ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost);
    return e == cudaSuccess ? 0 : fail(err, e, "cudaMemcpy");
}

int sw_buffer_cuda_fill(struct sw_buffer *buffer, uint8_t value, struct sw_err *err) {
    cudaError_t e = cudaMemset(buffer->data, value, buffer->bytes);
    if (e == cudaSuccess)
        e = cudaDeviceSynchronize();
    return e == cudaSuccess ? 0 : fail(err, e, "cudaMemset");
}
