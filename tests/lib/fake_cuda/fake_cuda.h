/* fake_cuda.h - a GPU that is none: the CUDA runtime, the driver and the kernels of codec/gpu.h, done by the CPU, so
 * that the device in spill/device/device_cuda*.c runs, and can be made to fail, where there is no GPU.
 *
 * It is strict where a GPU is: what is queued on a stream is done later, in order, a piece with each look at the
 * stream; work that reaches memory that is not there (freed, unmapped, unpinned) kills the context, as it does on a
 * GPU; a dead context refuses every call. Client memory is memfds: imported ones for VMM and pools, a process and its
 * descriptor for IPC handles. It says nothing of speed, of kernels, or of what the driver takes for itself.
 *
 * Each call can be made to fail: the control block may lie in memory that processes share, so that a test can arm a
 * daemon that it has forked, and count what that holds. thread: any. */
#ifndef SW_TEST_FAKE_CUDA_H
#define SW_TEST_FAKE_CUDA_H

#include "base/mem_kind.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* clang-format off */
/* Calls that take or do something. Those that give back (R) do it even when they are made to fail. */
#define SW_FAKE_CUDA_CALLS(X, R) \
    X(cudaGetDeviceCount) X(cudaGetDeviceProperties) X(cudaDeviceGetAttribute) \
    X(cudaGetDriverEntryPointByVersion) X(cudaMalloc) R(cudaFree) X(cudaHostAlloc) R(cudaFreeHost) \
    X(cudaHostRegister) R(cudaHostUnregister) X(cudaMemsetAsync) X(cudaMemcpyAsync) X(cudaStreamCreateWithFlags) \
    X(cudaDeviceGetStreamPriorityRange) X(cudaStreamCreateWithPriority) \
    R(cudaStreamDestroy) X(cudaStreamQuery) X(cudaStreamSynchronize) X(cudaStreamWaitEvent) \
    X(cudaEventCreateWithFlags) R(cudaEventDestroy) X(cudaEventRecord) X(cudaEventQuery) X(cudaEventSynchronize) \
    X(cuDeviceGet) X(cuCtxSetCurrent) X(cuCtxGetId) X(cuMemCreate) X(cuDevicePrimaryCtxRetain) R(cuDevicePrimaryCtxRelease) X(cuDeviceGetUuid) X(cuMemGetAddressRange) X(cuPointerGetAttribute) X(cuIpcOpenMemHandle) \
    R(cuIpcCloseMemHandle) X(cuMemImportFromShareableHandle) R(cuMemRelease) X(cuMemGetAllocationGranularity) \
    X(cuMemAddressReserve) R(cuMemAddressFree) X(cuMemMap) R(cuMemUnmap) X(cuMemSetAccess) \
    X(cuMemPoolImportFromShareableHandle) X(cuMemPoolImportPointer) R(cuMemPoolDestroy) X(cuMemPoolGetAccess) \
    X(cuMemPoolSetAccess) R(cuMemFreeAsync) X(cuStreamSynchronize) \
    X(sw_gpu_codec_init) X(sw_gpu_pool_init_async) X(sw_gpu_wake_async) X(sw_gpu_sample_async) X(sw_gpu_probe_async) \
    X(sw_gpu_train_async) X(sw_gpu_learn_async) \
    X(sw_gpu_encode_async) X(sw_gpu_decode_async) X(sw_gpu_encode_batch_async) X(sw_gpu_decode_batch_async) \
    X(sw_gpu_hash_async) X(sw_gpu_copy_async) X(sw_gpu_identify_async)
/* clang-format on */

enum sw_fake_call {
#define SW_FAKE_ENUM(name) SW_FAKE_##name,
    SW_FAKE_CUDA_CALLS(SW_FAKE_ENUM, SW_FAKE_ENUM)
#undef SW_FAKE_ENUM
        SW_FAKE_CALL_NR,
    SW_FAKE_ANY_CALL = SW_FAKE_CALL_NR,
    SW_FAKE_NO_CALL
};

/* The kinds of things that a process holds on the GPU. */
enum sw_fake_thing {
    SW_FAKE_DEVICE_MEMORY,
    SW_FAKE_PINNED,
    SW_FAKE_REGISTERED,
    SW_FAKE_STREAM,
    SW_FAKE_EVENT,
    SW_FAKE_IPC_MEMORY,
    SW_FAKE_HANDLE,
    SW_FAKE_RESERVED,
    SW_FAKE_PART,
    SW_FAKE_POOL,
    SW_FAKE_POOL_MEMORY,
    SW_FAKE_THING_NR
};

enum sw_fake_way {
    SW_FAKE_ONCE, /* the call returns the error and has done nothing, but given back */
    SW_FAKE_DEAD, /* and so does every call from then on: the context is dead */
    SW_FAKE_LATER /* the call goes well, and what it has queued kills the context; of others: as SW_FAKE_DEAD */
};

struct sw_fake_cuda {
    atomic_int armed;      /* enum sw_fake_call; set last */
    atomic_int nth;        /* the nth call of that kind from now on fails */
    atomic_int fired;      /* calls that failed by it */
    atomic_int dead;       /* the error that killed the context, or 0 */
    atomic_int violations; /* times that work reached memory that was not there */
    atomic_bool is_full;   /* no kernel begins; copies do */
    atomic_int stuck;      /* times that a call would have waited for one of them */
    int error;             /* cudaError_t */
    enum sw_fake_way way;
    atomic_int calls[SW_FAKE_CALL_NR]; /* made so far */
    atomic_int held[SW_FAKE_THING_NR];
};

/* The one in use; to be replaced before the first call. */
extern struct sw_fake_cuda *sw_fake_cuda;

const char *sw_fake_call_name(enum sw_fake_call call);
const char *sw_fake_thing_name(enum sw_fake_thing thing);
void sw_fake_arm(enum sw_fake_call call, int nth, int error, enum sw_fake_way way);
void sw_fake_disarm(void);
/* Frees everything of the context, as if the process had ended. For a test that opens devices one after the other. */
void sw_fake_revive(void);

/* The handle that a client would send for memory that is its own memfd (SW_MEM_HANDLE_BYTES); the GPU's UUID; the
 * length of which memory is a multiple. */
enum { SW_FAKE_PAGE_BYTES = 64 << 10 };
extern const uint8_t sw_fake_uuid[SW_DEVICE_UUID_BYTES];
void sw_fake_ipc_handle(uint8_t ret[SW_MEM_HANDLE_BYTES], int fd, uint64_t bytes);
void sw_fake_pool_handle(uint8_t ret[SW_MEM_HANDLE_BYTES], uint64_t bytes);

/* Device memory of this process, from cudaMalloc(); also read and written by the CPU. */
void *sw_fake_memory_new(uint64_t bytes);
void sw_fake_memory_free(void *memory);

struct CUctx_st;
/* A context that is not the primary one, for a device to work in; the one that is current on this thread; how often the
 * primary one is retained. */
struct CUctx_st *sw_fake_context(void);
struct CUctx_st *sw_fake_current(void);
void sw_fake_set_current(struct CUctx_st *context);
int sw_fake_retained(void);
/* The context is destroyed; with is_replaced another one has its handle from now on. Calls other than cuCtxGetId
 * are the test's to count: a process that knows makes none. */
void sw_fake_context_destroy(bool is_replaced);
/* As a driver that is too old to know cuCtxGetId. Before the first look for entry points. */
void sw_fake_hide_context_ids(void);

/* Streams of this process; work of so many steps, each a piece; and all that is queued done. */
struct CUstream_st;
struct CUstream_st *sw_fake_stream_new(void);
void sw_fake_stream_free(struct CUstream_st *stream);
void sw_fake_stream_work(struct CUstream_st *stream, unsigned steps);
void sw_fake_stream_run(struct CUstream_st *stream);

/* The stream that is being captured; NULL: none. */
void sw_fake_capture(struct CUstream_st *stream);

/* The driver for sources that look for the library that the process has loaded: they are compiled with these names in
 * place of dlopen(), dlsym() and dlclose(). Not loaded at first. */
void sw_fake_load_driver(bool loaded);
void *sw_fake_dlopen(const char *name, int flags);
void *sw_fake_dlsym(void *library, const char *name);
int sw_fake_dlclose(void *library);

/* The version that the driver reports; 0: there is no driver. */
extern int sw_fake_driver_version;

#endif
