/* Idle buffers leave where a resource of RMM runs out of memory: rmm [SOCKET]. Over tests/lib/fake_rmm; package.sh runs
 * it. */
#include <spillway_rmm.hpp>

#include <rmm/mr/failure_callback_resource_adaptor.hpp>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace {

constexpr std::size_t mib = 1 << 20, limit = 8 * mib, buffers = 8;

/* A resource with a limit. Copies share the count, as those of RMM do. */
struct limited {
    std::size_t *used;

    void *allocate(cuda::stream_ref, std::size_t bytes, std::size_t alignment) {
        if (*used + bytes > limit)
            throw rmm::out_of_memory{};
        *used += bytes;
        return std::aligned_alloc(alignment, bytes);
    }

    void deallocate(cuda::stream_ref, void *data, std::size_t bytes, std::size_t) noexcept {
        *used -= bytes;
        std::free(data);
    }
};

[[noreturn]] void fail(const char *what, const spillway_error *error = nullptr) {
    std::fprintf(stderr, "rmm: %s: %s\n", what, error ? error->text : "");
    std::exit(1);
}

void check(bool holds, const char *what) {
    if (!holds)
        fail(what);
}

/* Writes a buffer, or returns whether it has what was written. */
bool use(spillway_handle *handle, int content, bool writes) {
    void *data;
    spillway_error error;
    if (spillway_handle_pin(handle, nullptr, &data, &error) < 0)
        fail("pin", &error);
    auto *bytes = static_cast<unsigned char *>(data);
    bool is_right = true;
    for (std::size_t i = 0; i < mib; i++)
        if (writes)
            bytes[i] = static_cast<unsigned char>(content + i % 7);
        else
            is_right &= bytes[i] == content + i % 7;
    if (spillway_handle_unpin(handle, nullptr, &error) < 0)
        fail("unpin", &error);
    return is_right;
}

void run(spillway_pool *pool, limited below, const std::size_t &used) {
    using adaptor = rmm::mr::failure_callback_resource_adaptor<rmm::out_of_memory>;
    adaptor above{below, spillway_rmm::failure_callback{pool}, nullptr};
    const cuda::stream_ref stream{nullptr};
    spillway_handle *handles[buffers];
    spillway_handle_options options{};
    spillway_error error;
    options.size = sizeof options;
    options.bytes = mib;
    for (std::size_t i = 0; i < buffers; i++) {
        if (spillway_pool_new(pool, &options, &handles[i], &error) < 0)
            fail("new", &error);
        use(handles[i], static_cast<int>(i), true);
    }
    check(used == limit, "the buffers have memory of the resource");
    void *data = above.allocate(stream, 3 * mib);
    check(used == limit, "as much has left as was missing");
    std::memset(data, 0, 3 * mib);
    above.deallocate(stream, data, 3 * mib);
    for (std::size_t i = 0; i < buffers; i++)
        check(use(handles[i], static_cast<int>(i), false), "every byte is back");
    try {
        (void)above.allocate(stream, limit + 1);
        fail("more than the limit was allocated");
    } catch (const rmm::out_of_memory &) {
        check(used == 0, "everything has left in vain");
    }
}

} // namespace

int main(int argc, char **argv) {
    std::size_t used = 0;
    spillway_error error;
    spillway_pool *pool = nullptr;
    spillway_options connection{};
    connection.size = sizeof connection;
    connection.socket_path = argc > 1 ? argv[1] : nullptr;
    spillway_rmm::allocator allocator{limited{&used}};
    spillway_pool_options options{};
    options.size = sizeof options;
    options.connection = &connection;
    options.allocator = allocator.callbacks();
    if (spillway_pool_create(&pool, &options, &error) < 0)
        fail("pool", &error);
    run(pool, limited{&used}, used);
    spillway_pool_close(pool);
    check(used == 0, "all memory is freed");
    std::puts("every byte is back");
    return 0;
}
