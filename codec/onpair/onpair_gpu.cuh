/* onpair_gpu.cuh - what onpair's encoder needs of the other files, for the row. */
#ifndef SW_ONPAIR_GPU_CUH
#define SW_ONPAIR_GPU_CUH

#include "codec/codec_gpu.cuh"
#include "codec/onpair/onpair_core.h"

/* onpair_learn.cu */
cudaError_t sw_onpair_gpu_init_learning();
/* onpair_decode.cu */
cudaError_t sw_onpair_gpu_init_decoder();
size_t sw_onpair_gpu_decoder_bytes(size_t limit);
template <class ITEMS> void sw_onpair_gpu_decode(const sw_gpu_decode_job<ITEMS> *job);

#endif
