/* played_cuda.h - what tests share that play the CUDA driver call by call (ipc/client/cuda_driver.h): handles that are
 * numbers, the driver's names of errors, and a driver without a library. */
#ifndef SW_TEST_PLAYED_CUDA_H
#define SW_TEST_PLAYED_CUDA_H

#include "base/alloc.h"
#include "ipc/client/cuda_driver.h"

#include <check.h>
#include <dlfcn.h>
#include <string.h>

static inline CUcontext sw_played_context(uintptr_t number) {
    CUcontext context;
    memcpy(&context, &number, sizeof context);
    return context;
}

static inline CUstream sw_played_stream(uintptr_t number) {
    CUstream stream;
    memcpy(&stream, &number, sizeof stream);
    return stream;
}

static inline CUresult sw_played_error_name(CUresult error, const char **ret) {
    (void)error;
    *ret = "played";
    return CUDA_SUCCESS;
}

/* Returns a driver of these calls; sw_cuda_free() frees it. */
static inline struct sw_cuda *sw_played_cuda(const struct sw_cuda *calls) {
    struct sw_cuda *cuda = sw_alloc(sizeof *cuda);
    ck_assert_ptr_nonnull(cuda);
    *cuda = *calls;
    cuda->library = dlopen(NULL, RTLD_NOW);
    cuda->error_name = sw_played_error_name;
    sw_list_init(&cuda->stand_ins);
    return cuda;
}

#endif
