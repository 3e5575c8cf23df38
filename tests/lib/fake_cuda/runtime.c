/* runtime.c - the CUDA runtime's calls on devices and memory; those on streams and events are in state.c. */
#include "tests/lib/fake_cuda/state.h"

#include "base/assert.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGN = 256 };

cudaError_t cudaGetDeviceCount(int *ret) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaGetDeviceCount);
    *ret = 1;
    return sw_fake_leave(e);
}

int sw_fake_driver_version = 13000;

cudaError_t cudaDriverGetVersion(int *ret) {
    *ret = sw_fake_driver_version;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *ret, int ordinal) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaGetDeviceProperties);
    (void)ordinal;
    (void)snprintf(ret->name, sizeof ret->name, "none");
    return sw_fake_leave(e);
}

cudaError_t cudaDeviceGetAttribute(int *ret, enum cudaDeviceAttr attribute, int ordinal) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaDeviceGetAttribute);
    SW_ASSERT(attribute == cudaDevAttrCanUseHostPointerForRegisteredMem && ordinal == 0);
    *ret = 1;
    return sw_fake_leave(e);
}

cudaError_t cudaGetDriverEntryPointByVersion(const char *name, void **ret, unsigned version, unsigned long long flags,
                                             enum cudaDriverEntryPointQueryResult *ret_found) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaGetDriverEntryPointByVersion);
    (void)version;
    (void)flags;
    *ret = e == cudaSuccess ? sw_fake_driver_entry(name) : NULL;
    *ret_found = *ret ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return sw_fake_leave(e);
}

cudaError_t cudaGetLastError(void) {
    const cudaError_t dead = (cudaError_t)atomic_load(&sw_fake_cuda->dead), last = sw_fake_take_last_error();
    return dead != cudaSuccess ? dead : last;
}

const char *cudaGetErrorName(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "cudaErrorMemoryAllocation" : "cudaErrorOfTheFake";
}

const char *cudaGetErrorString(cudaError_t error) {
    return error == cudaErrorMemoryAllocation ? "out of memory" : "an error that was asked for";
}

static cudaError_t take(enum sw_fake_call call, enum sw_fake_thing thing, void **ret, size_t bytes) {
    const cudaError_t e = sw_fake_enter(call);
    if (e != cudaSuccess)
        return sw_fake_leave(e);
    const size_t whole = (bytes + ALIGN - 1) / ALIGN * ALIGN;
    void *memory = aligned_alloc(ALIGN, whole ? whole : ALIGN);
    SW_ASSERT(memory);
    memset(memory, 0xDD, bytes);
    sw_fake_range_add(thing, memory, bytes);
    *ret = memory;
    return sw_fake_leave(e);
}

/* Waits for the whole GPU, as the runtime does. */
static cudaError_t give_back(enum sw_fake_call call, enum sw_fake_thing thing, void *memory) {
    const cudaError_t e = sw_fake_enter(call);
    sw_fake_run_all();
    if (memory) {
        SW_ASSERT(sw_fake_range_remove(thing, memory) > 0);
        free(memory);
    }
    return sw_fake_leave(e);
}

cudaError_t cudaMalloc(void **ret, size_t bytes) {
    return take(SW_FAKE_cudaMalloc, SW_FAKE_DEVICE_MEMORY, ret, bytes);
}

cudaError_t cudaFree(void *memory) {
    return give_back(SW_FAKE_cudaFree, SW_FAKE_DEVICE_MEMORY, memory);
}

cudaError_t cudaHostAlloc(void **ret, size_t bytes, unsigned flags) {
    (void)flags;
    return take(SW_FAKE_cudaHostAlloc, SW_FAKE_PINNED, ret, bytes);
}

cudaError_t cudaFreeHost(void *memory) {
    return give_back(SW_FAKE_cudaFreeHost, SW_FAKE_PINNED, memory);
}

cudaError_t cudaHostRegister(void *memory, size_t bytes, unsigned flags) {
    cudaError_t e = sw_fake_enter(SW_FAKE_cudaHostRegister);
    (void)flags;
    if (e == cudaSuccess && sw_fake_range_find(memory, 1))
        e = cudaErrorHostMemoryAlreadyRegistered;
    if (e == cudaSuccess)
        sw_fake_range_add(SW_FAKE_REGISTERED, memory, bytes);
    return sw_fake_leave(e);
}

cudaError_t cudaHostUnregister(void *memory) {
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaHostUnregister);
    const bool was = sw_fake_range_remove(SW_FAKE_REGISTERED, memory) > 0;
    return sw_fake_leave(e != cudaSuccess || was ? e : cudaErrorHostMemoryNotRegistered);
}

/* The driver fills so much by a kernel, and less by a copy engine. */
#define KERNEL_FILL_BYTES ((size_t)64 << 10)

struct fill {
    void *memory;
    int value;
    size_t bytes;
};

static void do_fill(const void *args) {
    const struct fill *fill = args;
    if (sw_fake_reach(fill->memory, fill->bytes))
        memset(fill->memory, fill->value, fill->bytes);
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream) {
    const struct fill fill = {.memory = memory, .value = value, .bytes = bytes};
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaMemsetAsync);
    if (e != cudaSuccess)
        return sw_fake_leave(e);
    return sw_fake_leave(bytes < KERNEL_FILL_BYTES
                             ? sw_fake_queue(stream, do_fill, &fill, sizeof fill)
                             : sw_fake_queue_kernel(stream, do_fill, &fill, sizeof fill, (struct sw_gpu_pass){0}));
}

struct copy {
    void *to;
    const void *from;
    size_t bytes;
};

static void do_copy(const void *args) {
    const struct copy *copy = args;
    if (sw_fake_reach(copy->from, copy->bytes) && sw_fake_reach(copy->to, copy->bytes))
        memcpy(copy->to, copy->from, copy->bytes);
}

/* Memory of the host that is not page-locked is copied before the call returns. */
static cudaError_t copy_pageable(const struct copy *copy, bool to_host, cudaStream_t stream) {
    const cudaError_t e = sw_fake_run(stream);
    if (e == cudaSuccess && sw_fake_reach(to_host ? copy->from : copy->to, copy->bytes))
        memcpy(copy->to, copy->from, copy->bytes);
    return (cudaError_t)atomic_load(&sw_fake_cuda->dead);
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream) {
    const struct copy copy = {.to = to, .from = from, .bytes = bytes};
    const cudaError_t e = sw_fake_enter(SW_FAKE_cudaMemcpyAsync);
    if (e != cudaSuccess)
        return sw_fake_leave(e);
    const bool to_host = kind == cudaMemcpyDeviceToHost;
    if ((to_host && !sw_fake_range_find(to, bytes)) ||
        (kind == cudaMemcpyHostToDevice && !sw_fake_range_find(from, bytes)))
        return sw_fake_leave(copy_pageable(&copy, to_host, stream));
    return sw_fake_leave(sw_fake_queue(stream, do_copy, &copy, sizeof copy));
}

void *sw_fake_memory_new(uint64_t bytes) {
    void *memory = NULL;
    SW_ASSERT(cudaMalloc(&memory, bytes) == cudaSuccess);
    return memory;
}

void sw_fake_memory_free(void *memory) {
    (void)cudaFree(memory);
}
