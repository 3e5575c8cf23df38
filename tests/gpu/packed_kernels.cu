/* Compiled once for each length of values, SW_PACKED_VALUE_BYTES: kernels that know every codec take long to compile.
 */
#include "tests/gpu/packed_launch.cuh"

#include <type_traits>

static constexpr unsigned BLOCKS = 100;
/* As many warps as shared memory has room for, with a tile, and a stage for each warp. */
template <class T> constexpr unsigned WARPS = sizeof(T) == 8 ? 1 : 2;
template <class T> constexpr unsigned THREADS = 32 * WARPS<T>;

template <class T>
__global__ void __launch_bounds__(THREADS<T>)
    read_tiles(const spillway_column column, T *to, unsigned long long *n_read) {
    __shared__ spillway_stage<T> stages[WARPS<T>];
    __shared__ uint32_t check;
    __shared__ alignas(16) T room[spillway_of<T>::TILE_VALUES];
    for (uint32_t t = blockIdx.x; t < spillway_tiles(column); t += gridDim.x) {
        const uint32_t n = spillway_read_tile<T>(column, t, stages, &check, room);
        for (uint32_t i = threadIdx.x; i < n; i += THREADS<T>)
            to[(uint64_t)t * spillway_of<T>::TILE_VALUES + i] = room[i];
        if (threadIdx.x == 0)
            atomicAdd(n_read, (unsigned long long)n);
        __syncthreads();
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS<T>)
    read_vectors(const spillway_column column, T *to, unsigned long long *n_read) {
    __shared__ spillway_stage<T> stages[WARPS<T>];
    const uint32_t warp = threadIdx.x / 32;
    for (uint64_t v = blockIdx.x * WARPS<T> + warp; v < spillway_vectors<T>(column); v += gridDim.x * WARPS<T>) {
        T value[32];
        const uint32_t n = spillway_read_vector<T>(column, v, &stages[warp], value);
#pragma unroll
        for (unsigned i = 0; i < 32; i++)
            if (spillway_place<T>(i) < n)
                to[v * SW_VECTOR_VALUES + spillway_place<T>(i)] = value[i];
        if (threadIdx.x % 32 == 0)
            atomicAdd(n_read, (unsigned long long)n);
    }
}

template <class T>
__global__ void read_values(const spillway_column column, T *to, uint64_t n, unsigned long long *n_read) {
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS<T> + threadIdx.x; i < n; i += (uint64_t)gridDim.x * THREADS<T>)
        if (spillway_read_value(column, i, to + i))
            atomicAdd(n_read, 1ull);
}

using value =
    std::conditional_t<SW_PACKED_VALUE_BYTES == 1, uint8_t,
                       std::conditional_t<SW_PACKED_VALUE_BYTES == 2, uint16_t,
                                          std::conditional_t<SW_PACKED_VALUE_BYTES == 4, uint32_t, uint64_t>>>;

template <>
void sw_packed_launch<SW_PACKED_VALUE_BYTES>(const spillway_column &column, sw_packed_way way, void *d_to, size_t bytes,
                                             unsigned long long *d_n_read) {
    value *to = (value *)d_to;
    if (way == SW_PACKED_TILES)
        read_tiles<<<BLOCKS, (THREADS<value>)>>>(column, to, d_n_read);
#if SW_PACKED_VALUE_BYTES >= 4
    if (way == SW_PACKED_VECTORS)
        read_vectors<<<BLOCKS, (THREADS<value>)>>>(column, to, d_n_read);
#endif
    if (way == SW_PACKED_VALUES)
        read_values<<<BLOCKS, (THREADS<value>)>>>(column, to, bytes / sizeof(value), d_n_read);
}
