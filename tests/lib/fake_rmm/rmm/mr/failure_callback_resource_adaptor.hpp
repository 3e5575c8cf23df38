/* The resource of RMM 26.10 with this name: tries again as long as its callback says so. */
#pragma once

#include <cuda/memory_resource>
#include <cuda/stream_ref>

#include <cstddef>
#include <functional>
#include <new>
#include <utility>

namespace rmm {

struct out_of_memory : std::bad_alloc {};

namespace mr {

using failure_callback_t = std::function<bool(std::size_t, void *)>;

template <typename Exception> class failure_callback_resource_adaptor {
  public:
    failure_callback_resource_adaptor(cuda::mr::any_resource<cuda::mr::device_accessible> upstream,
                                      failure_callback_t callback, void *argument)
        : upstream_{std::move(upstream)}, callback_{std::move(callback)}, argument_{argument} {}

    void *allocate(cuda::stream_ref stream, std::size_t bytes, std::size_t alignment = 256) {
        while (true) {
            try {
                return upstream_.allocate(stream, bytes, alignment);
            } catch (const Exception &) {
                if (!callback_(bytes, argument_))
                    throw;
            }
        }
    }

    void deallocate(cuda::stream_ref stream, void *data, std::size_t bytes, std::size_t alignment = 256) noexcept {
        upstream_.deallocate(stream, data, bytes, alignment);
    }

  private:
    cuda::mr::any_resource<cuda::mr::device_accessible> upstream_;
    failure_callback_t callback_;
    void *argument_;
};

} // namespace mr
} // namespace rmm
