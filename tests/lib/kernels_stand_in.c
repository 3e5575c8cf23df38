/* kernels_stand_in.c - a libspillway-kernels.so without kernels, for unit_codec_gpu. It does not include codec/gpu.h:
 * only the names of most functions matter, since the test never calls them. */
#include <stddef.h>
#include <stdint.h>

struct sw_err;
int sw_gpu_codec_init(struct sw_err *err);
size_t sw_gpu_batch_scratch_bytes(uint32_t n);

int sw_gpu_codec_init(struct sw_err *err) {
    (void)err;
    return 0;
}

size_t sw_gpu_batch_scratch_bytes(uint32_t n) {
    return 100 * (size_t)n;
}

#define NAME(name)                                                                                                     \
    void name(void);                                                                                                   \
    void name(void) {}
NAME(sw_gpu_codec_shared_bytes)
NAME(sw_gpu_wake_async)
NAME(sw_gpu_takes_dictionaries)
NAME(sw_gpu_full_segments)
NAME(sw_gpu_pool_bytes)
NAME(sw_gpu_pool_init_async)
NAME(sw_gpu_sample_async)
NAME(sw_gpu_probe_async)
NAME(sw_gpu_train_scratch_bytes)
NAME(sw_gpu_train_async)
NAME(sw_gpu_learn_scratch_bytes)
NAME(sw_gpu_learn_async)
NAME(sw_gpu_encode_async)
NAME(sw_gpu_decode_async)
NAME(sw_gpu_encode_batch_async)
NAME(sw_gpu_decode_batch_async)
NAME(sw_gpu_identify_async)
NAME(sw_gpu_hash_async)
#ifndef SW_STAND_IN_LACKS_ONE
NAME(sw_gpu_copy_async)
#endif
