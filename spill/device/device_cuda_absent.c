/* device_cuda_absent.c - replaces device_cuda.c in a build without CUDA. */
#include "spill/device/device.h"

#include <unistd.h>

int sw_device_cuda_count(void) {
    return 0;
}

int sw_device_cuda_check_driver(struct sw_err *err) {
    if (access("/dev/nvidiactl", F_OK) < 0)
        return 0;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "this build has no CUDA kernels: build it with nvcc");
}

int sw_device_cuda_check_free(struct sw_err *err) {
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "this build has no CUDA");
}

int sw_device_cuda_open(struct sw_device **ret, int ordinal, const struct sw_device_config *config,
                        struct sw_err *err) {
    (void)config;
    *ret = NULL;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "GPU %d: this build has no CUDA", ordinal);
}
