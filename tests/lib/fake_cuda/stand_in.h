/* stand_in.h - a libcuda.so.1 for tests of the client library, which finds the driver that its process has loaded.
 *
 * Its GPU is the one of fake_cuda: a service on the fake can open the memory. Memory lies in memfds, and is read and
 * written by the CPU. Work of streams is done at once, unless the stream waits. The test loads the library, and finds
 * these functions by dlsym(). thread: any, one at a time. */
#ifndef SW_FAKE_CUDA_STAND_IN_H
#define SW_FAKE_CUDA_STAND_IN_H

#include "base/mem_kind.h"
#include <stddef.h>

struct CUstream_st;

/* Memory that a process would have from cudaMalloc(), from an exportable pool, or by cuMemCreate() in two parts; of
 * SW_MEM_MEMFD: managed memory, which cannot be handed over. A multiple of 128 KiB. */
void *sw_stand_in_new(enum sw_mem_kind kind, size_t bytes);
void sw_stand_in_free(void *memory);

/* The one blocking stream of the test: what is queued on it is done by _run(), the given function first. */
struct CUstream_st *sw_stand_in_stream(void (*work)(void *arg), void *arg);
void sw_stand_in_run(struct CUstream_st *stream);

/* Calls of the driver so far; contexts that are pushed or retained, and streams that were made and not destroyed. */
unsigned sw_stand_in_calls(void);
unsigned sw_stand_in_held(void);

#endif
