/* memory_find.c - finds the kind of a pointer, and orders its operations. */
#include "ipc/client/memory.h"

#include <string.h>

int sw_export_find(struct sw_export *ret, struct sw_cuda **cuda, const void *data, uint64_t bytes, struct sw_err *err) {
    memset(ret, 0, sizeof *ret);
    if (!data)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory is NULL");
    if (bytes > UINT64_MAX - (uintptr_t)data)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "%p and %llu bytes wrap around the address space", data,
                          (unsigned long long)bytes);
    /* CUDA first: its answer is fast, and without a loaded driver nothing is asked. */
    int rc = sw_cuda_export(ret, cuda, data, bytes, err);
    if (!rc)
        rc = sw_memfd_export(ret, data, bytes, err);
    if (rc < 0)
        sw_export_fini(ret);
    return rc < 0 ? rc : 0;
}

int sw_export_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *data,
                    struct CUstream_st *stream, struct sw_err *err) {
    return e->kind == SW_MEM_MEMFD ? 0 : sw_cuda_order(e, cuda, known, data, stream, err);
}
