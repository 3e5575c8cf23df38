#include "ipc/client/cuda_driver.h"

#include "base/alloc.h"
#include <dlfcn.h>
#include <link.h>
#include <stdatomic.h>
#include <string.h>

_Static_assert(sizeof(CUuuid) == SW_DEVICE_UUID_BYTES, "handles fit the wire's fields");

int sw_driver_fail(const struct sw_cuda *cuda, struct sw_err *err, int code, CUresult result, const char *fact,
                   const char *call) {
    const char *name = NULL;
    (void)cuda->error_name(result, &name);
    (void)sw_err_set(err, code, SW_SCOPE_REQUEST, "%s: %s", fact, name ? name : "unknown CUDA error");
    (void)sw_err_detail(err, "%s", call);
    if (err)
        err->cuda = (int)result;
    return code;
}

static int load(struct sw_cuda **ret, void *library, struct sw_err *err) {
    PFN_cuGetProcAddress_v12000 get = NULL;
    void *symbol = dlsym(library, "cuGetProcAddress_v2");
    memcpy(&get, &symbol, sizeof get); /* ISO C has no cast from object to function pointers */
    struct sw_cuda *cuda = sw_alloc(sizeof *cuda);
    if (!cuda)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for the CUDA driver's entry points");
    sw_list_init(&cuda->stand_ins);
    const char *missing = get ? NULL : "cuGetProcAddress_v2";
#define DRIVER_LOAD(member, name, version)                                                                             \
    if (!missing && (get(#name, &symbol, version, CU_GET_PROC_ADDRESS_DEFAULT, NULL) != CUDA_SUCCESS || !symbol))      \
        missing = #name;                                                                                               \
    memcpy(&cuda->member, &symbol, sizeof symbol);
    SW_DRIVER_FUNCTIONS(DRIVER_LOAD)
#undef DRIVER_LOAD
    if (missing) {
        sw_free(cuda);
        return sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "the CUDA driver is too old: it has no %s", missing);
    }
    cuda->library = library;
    *ret = cuda;
    return 0;
}

static int take_loaded(struct dl_phdr_info *info, size_t bytes, void *ret) {
    (void)bytes;
    *(unsigned long long *)ret = info->dlpi_adds;
    return 1;
}

/* Returns how many objects this process has loaded until now. */
static unsigned long long count_loaded(void) {
    unsigned long long n = 0;
    (void)dl_iterate_phdr(take_loaded, &n);
    return n;
}

int sw_cuda_find_driver(struct sw_cuda **cuda, struct sw_err *err) {
    /* Objects that were loaded when the driver was not there. dlopen() looks for its file in all folders each time. */
    static atomic_ullong n_without;
    if (*cuda)
        return 1;
    const unsigned long long n_loaded = count_loaded();
    if (n_loaded == atomic_load(&n_without))
        return 0;
    void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!library) {
        atomic_store(&n_without, n_loaded);
        return 0;
    }
    const int rc = load(cuda, library, err);
    if (rc < 0)
        (void)dlclose(library);
    return rc < 0 ? rc : 1;
}

bool sw_cuda_look_up(struct sw_cuda *cuda, CUdeviceptr address, struct sw_cuda_pointer *ret) {
    CUpointer_attribute names[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                   CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                   CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                   CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_CONTEXT,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                                   CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                   CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    memset(ret, 0, sizeof *ret);
    void *values[] = {&ret->type,    &ret->managed, &ret->legacy_ipc,  &ret->ordinal,
                      &ret->context, &ret->range,   &ret->range_bytes, &ret->pool};
    return cuda->attributes(sizeof names / sizeof *names, names, values, address) == CUDA_SUCCESS;
}

bool sw_cuda_is_gpu(const struct sw_cuda_pointer *p) {
    return p->type == CU_MEMORYTYPE_DEVICE || p->managed;
}

int sw_cuda_find_context(struct sw_cuda *cuda, struct sw_cuda_pointer *p, struct sw_err *err) {
    CUdevice device, current_device;
    CUcontext current;
    if (p->context)
        return 0;
    CUresult result = cuda->device_get(&device, p->ordinal);
    if (result != CUDA_SUCCESS || p->ordinal < 0 || p->ordinal >= SW_CUDA_MAX_DEVICES)
        return sw_driver_fail(cuda, err, -SW_EGPU, result, "device of the memory", "cuDeviceGet");
    if (cuda->current(&current) == CUDA_SUCCESS && current && cuda->current_device(&current_device) == CUDA_SUCCESS &&
        current_device == device) {
        p->context = current;
        return 0;
    }
    if (!cuda->primary[p->ordinal]) {
        result = cuda->primary_retain(&cuda->primary[p->ordinal], device);
        if (result != CUDA_SUCCESS) {
            cuda->primary[p->ordinal] = NULL;
            return sw_driver_fail(cuda, err, -SW_EGPU, result, "context of the memory", "cuDevicePrimaryCtxRetain");
        }
    }
    p->context = cuda->primary[p->ordinal];
    return 0;
}
