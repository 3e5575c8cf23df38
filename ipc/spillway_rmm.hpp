/* spillway_rmm.hpp - where RMM runs out of memory, idle buffers of a pool leave the GPU, and RMM tries again.
 *
 *     #include <rmm/mr/failure_callback_resource_adaptor.hpp>
 *
 *     rmm::mr::pool_memory_resource below{rmm::mr::cuda_memory_resource{}, initial_bytes};
 *     spillway_rmm::allocator allocator{below};                // the pool's buffers have memory of RMM, too
 *     spillway_pool_options options{};
 *     options.size = sizeof options;
 *     options.allocator = allocator.callbacks();
 *     spillway_pool_create(&pool, &options, &error);           // takes now what spills need on the GPU
 *
 *     rmm::mr::failure_callback_resource_adaptor<rmm::out_of_memory> above{
 *         below, spillway_rmm::failure_callback{pool}, nullptr};
 *     rmm::mr::set_current_device_resource(above);
 *
 * The adaptor must lie above RMM's own pool. Below it, what the callback frees would go to that pool, whose upstream
 * stays as full as it was: the callback would spill everything in vain.
 *
 * Needs C++17, the CCCL that RMM 26.10 brings along, and the CUDA runtime. Header only. */
#ifndef SPILLWAY_RMM_HPP
#define SPILLWAY_RMM_HPP

#include "spillway_pool.h"

#include <cuda/memory_resource>
#include <cuda/stream_ref>
#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <utility>

namespace spillway_rmm {

/* Spills idle buffers of a pool, least recently used first, until at least the bytes that RMM had no room for are free.
 *
 * - Returns whether anything was freed: RMM then tries again, and calls again if that was too little.
 * - Allocates no GPU memory. borrows: the pool, as long as the adaptor allocates. thread: any. */
class failure_callback {
  public:
    explicit failure_callback(struct spillway_pool *pool) noexcept : pool_{pool} {}

    bool operator()(std::size_t bytes, void *) const noexcept {
        std::uint64_t freed = 0;
        (void)spillway_pool_make_room(pool_, bytes, &freed, nullptr);
        return freed > 0;
    }

  private:
    struct spillway_pool *pool_;
};

/* Memory of an RMM resource for spillway_pool_options.allocator, or for the allocator of a handle.
 *
 * - upstream: any resource of CCCL, the one below the failure callback. The pool evicts by itself when it is full.
 * - Memory comes on the stream of the pin. It goes on a stream of its own that never has work, because the pool frees
 *   only what no stream uses any more. The pin's stream may be destroyed by then.
 * - errors: the constructor throws std::bad_alloc if the GPU makes no stream.
 * - Make it while the GPU of the resource is the current one. It must live longer than the pool. thread: any, if the
 *   resource allows that. */
class allocator {
  public:
    explicit allocator(cuda::mr::any_resource<cuda::mr::device_accessible> upstream) : upstream_{std::move(upstream)} {
        if (cudaStreamCreateWithFlags(&quiet_, cudaStreamNonBlocking) != cudaSuccess)
            throw std::bad_alloc{};
    }

    ~allocator() {
        (void)cudaStreamDestroy(quiet_);
    }

    allocator(const allocator &) = delete; /* the callbacks have its address */
    allocator &operator=(const allocator &) = delete;

    struct spillway_allocator callbacks() noexcept {
        return {alloc, free, this};
    }

  private:
    static void *alloc(void *user, std::uint64_t bytes, struct CUstream_st *stream) noexcept {
        try {
            return static_cast<allocator *>(user)->upstream_.allocate(cuda::stream_ref{stream}, bytes, alignment);
        } catch (...) { /* rmm::out_of_memory: the pool evicts, and tries again */
            return nullptr;
        }
    }

    static void free(void *user, void *data, std::uint64_t bytes) noexcept {
        auto *self = static_cast<allocator *>(user);
        self->upstream_.deallocate(cuda::stream_ref{self->quiet_}, data, bytes, alignment);
    }

    static constexpr std::size_t alignment = 256; /* RMM's, and cudaMalloc's */
    cuda::mr::any_resource<cuda::mr::device_accessible> upstream_;
    cudaStream_t quiet_ = nullptr;
};

} // namespace spillway_rmm

#endif
