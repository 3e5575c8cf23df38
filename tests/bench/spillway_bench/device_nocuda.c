/* device_nocuda.c - what a build without CUDA has in place of device_cuda.cu. */
#include "tests/bench/spillway_bench/device.h"

#include <stddef.h>

const struct sw_bench_device *sw_bench_gpu(void) {
    return NULL;
}
