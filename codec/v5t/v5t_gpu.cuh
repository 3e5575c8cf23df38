/* v5t_gpu.cuh - functions of v5t's row that are in other files. */
#ifndef SW_V5T_GPU_CUH
#define SW_V5T_GPU_CUH

#include "codec/codec_gpu.cuh"

/* gsst_decode.cu */
cudaError_t sw_v5t_gpu_init_decoder();
size_t sw_v5t_gpu_decoder_bytes(size_t limit);
template <class ITEMS> void sw_v5t_gpu_decode(const sw_gpu_decode_job<ITEMS> *job);
/* v5t_train.cu */
cudaError_t sw_v5t_gpu_init_training();
size_t sw_v5t_gpu_training_bytes(size_t limit);

#endif
