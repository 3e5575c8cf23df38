/* coder_cuda.c - a coder's memory on a GPU, and its context.
 *
 * The driver's entry points come from the runtime, which the device of spill/device uses as well. Only a process that
 * holds GPU memory comes here, so the driver is there. */
#include "ipc/client/coder_memory.h"

#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <string.h>

/* clang-format off */
/* X(member, entry point, version of its type) */
#define FUNCTIONS(X) \
    X(error_name, cuGetErrorName, 6000) X(capture_mode, cuThreadExchangeStreamCaptureMode, 10010) X(push, cuCtxPushCurrent, 4000) X(pop, cuCtxPopCurrent, 4000) \
    X(granularity, cuMemGetAllocationGranularity, 10020) X(create, cuMemCreate, 10020) \
    X(release, cuMemRelease, 10020) X(reserve, cuMemAddressReserve, 10020) X(unreserve, cuMemAddressFree, 10020) \
    X(map, cuMemMap, 10020) X(unmap, cuMemUnmap, 10020) X(set_access, cuMemSetAccess, 10020)
/* clang-format on */

static struct {
#define MEMBER(member, name, version) PFN_##name##_v##version member;
    FUNCTIONS(MEMBER)
#undef MEMBER
    PFN_cuCtxGetId_v12000 context_id; /* NULL: the driver is older */
} driver;
static bool is_complete;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static bool find(const char *name, unsigned version, void *ret) {
    enum cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
    void *entry = NULL;
#if CUDART_VERSION >= 12050
    const cudaError_t e = cudaGetDriverEntryPointByVersion(name, &entry, version, cudaEnableDefault, &found);
#else
    (void)version;
    const cudaError_t e = cudaGetDriverEntryPoint(name, &entry, cudaEnableDefault, &found);
#endif
    memcpy(ret, &entry, sizeof entry);
    return e == cudaSuccess && found == cudaDriverEntryPointSuccess && entry;
}

static void load(void) {
    is_complete = true;
#define LOAD(member, name, version) is_complete &= find(#name, version, &driver.member);
    FUNCTIONS(LOAD)
#undef LOAD
    if (!find("cuCtxGetId", 12000, &driver.context_id))
        driver.context_id = NULL;
}

static int check_driver(struct sw_err *err) {
    (void)pthread_once(&once, load);
    return is_complete ? 0
                       : sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "the CUDA driver is too old for a codec here");
}

static int fail(CUresult result, const char *call, struct sw_err *err) {
    const char *name = NULL;
    (void)driver.error_name(result, &name);
    (void)sw_err_set(err, result == CUDA_ERROR_OUT_OF_MEMORY ? -SW_ENOMEM : -SW_EGPU, SW_SCOPE_REQUEST,
                     "frame buffers on the GPU: %s of %s", name ? name : "an unknown error", call);
    if (err)
        err->cuda = (int)result;
    return err ? err->code : -SW_EGPU;
}

static CUdeviceptr address_of(const void *data) {
    CUdeviceptr address;
    memcpy(&address, &data, sizeof address);
    return address;
}

static int map(struct sw_coder_memory *memory, const CUmemAllocationProp *properties, struct sw_err *err) {
    const CUmemAccessDesc access = {.location = properties->location, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    CUdeviceptr address = 0;
    const char *call = "cuMemAddressReserve";
    CUresult result = driver.reserve(&address, memory->bytes, 0, 0, 0);
    if (result == CUDA_SUCCESS) {
        call = "cuMemMap";
        result = driver.map(address, memory->bytes, 0, memory->handle, 0);
        if (result != CUDA_SUCCESS)
            (void)driver.unreserve(address, memory->bytes);
    }
    if (result != CUDA_SUCCESS)
        return fail(result, call, err);
    memcpy(&memory->data, &address, sizeof memory->data);
    result = driver.set_access(address, memory->bytes, &access, 1);
    return result == CUDA_SUCCESS ? 0 : fail(result, "cuMemSetAccess", err);
}

int sw_coder_cuda_allocate(struct sw_coder_memory *ret, int ordinal, uint64_t bytes, struct sw_err *err) {
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = ordinal}};
    struct sw_coder_memory memory = {.fd = -1};
    CUmemGenericAllocationHandle handle;
    size_t unit = 0;
    int rc = check_driver(err);
    if (rc)
        return rc;
    CUresult result = driver.granularity(&unit, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
    memory.bytes = unit ? (bytes + unit - 1) / unit * unit : bytes;
    if (result == CUDA_SUCCESS)
        result = driver.create(&handle, memory.bytes, &properties, 0);
    if (result != CUDA_SUCCESS)
        return fail(result, "cuMemCreate", err);
    memory.handle = handle;
    rc = map(&memory, &properties, err);
    if (rc && !memory.data)
        (void)driver.release(handle);
    else if (rc)
        sw_coder_cuda_free(&memory);
    else
        *ret = memory;
    return rc;
}

void sw_coder_cuda_free(struct sw_coder_memory *memory) {
    const CUdeviceptr address = address_of(memory->data);
    (void)driver.unmap(address, memory->bytes);
    (void)driver.unreserve(address, memory->bytes);
    (void)driver.release(memory->handle);
}

uint64_t sw_coder_cuda_id(struct CUctx_st *context) {
    unsigned long long id = 0;
    if (check_driver(NULL) || !driver.context_id || driver.context_id(context, &id) != CUDA_SUCCESS)
        return 0;
    return id;
}

static int gone(struct sw_err *err) {
    return sw_err_set(err, -SW_EGPULOST, SW_SCOPE_DEVICE, "the CUDA context was destroyed");
}

int sw_coder_cuda_push(struct CUctx_st *context, uint64_t id, int *ret_capture_mode, struct sw_err *err) {
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    const int rc = check_driver(err);
    if (rc)
        return rc;
    if (sw_coder_cuda_id(context) != id)
        return gone(err);
    const CUresult result = driver.push(context);
    if (result == CUDA_ERROR_INVALID_CONTEXT || result == CUDA_ERROR_CONTEXT_IS_DESTROYED)
        return gone(err);
    if (result != CUDA_SUCCESS)
        return fail(result, "cuCtxPushCurrent", err);
    (void)driver.capture_mode(&mode);
    *ret_capture_mode = (int)mode;
    return 0;
}

void sw_coder_cuda_pop(int capture_mode) {
    CUstreamCaptureMode mode = (CUstreamCaptureMode)capture_mode;
    CUcontext popped;
    (void)driver.capture_mode(&mode);
    (void)driver.pop(&popped);
}
