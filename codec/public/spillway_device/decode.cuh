/* spillway_device/decode.cuh - decodes vectors of numbers from packed chunks into a warp's registers
 * (codec/bitpack/FORMAT.md): all codecs.
 *
 *     memory, warp <- vectors <- for, exceptions <- alp, patched, dictionary
 *
 * The codecs' kernels and spillway_device.cuh share it. It is no part of the API. */
#ifndef SPILLWAY_DEVICE_DECODE_CUH
#define SPILLWAY_DEVICE_DECODE_CUH

#include "alp.cuh"
#include "dictionary.cuh"
#include "for.cuh"
#include "patched.cuh"

#endif
