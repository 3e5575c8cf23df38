/* packed_filter.cu - see packed_filter.h. Kernels are compiled for the codecs that such columns are packed by; of
 * another one a column is refused, and would have to be unpacked. */
#include "packed_filter.h"

#include <cuda_runtime.h>
#include <new>
#include <spillway_device.cuh>
#include <stdio.h>
#include <vector>

static constexpr uint32_t DAY_CODECS = SPILLWAY_READS_PLAIN | SPILLWAY_READS(SPILLWAY_CODEC_RFOR),
                          QUANTITY_CODECS = SPILLWAY_READS_PLAIN | SPILLWAY_READS(SPILLWAY_CODEC_DICT) |
                                            SPILLWAY_READS(SPILLWAY_CODEC_RADIX);
static constexpr unsigned THREADS = 128, WARPS = THREADS / 32;

struct packed_column {
    spillway_column column;
    spillway_packed_chunk *d_chunks;
};

/* ---- the columns ------------------------------------------------------------------------------------------------- */

static packed_column *refuse(spillway_error *error, const char *why) {
    if (error) {
        *error = {};
        error->code = -SPILLWAY_ENOTSUP;
        (void)snprintf(error->name, sizeof error->name, "%s", spillway_error_name(error->code));
        (void)snprintf(error->text, sizeof error->text, "%s", why);
    }
    return NULL;
}

packed_column *packed_column_new(spillway *connection, spillway_region region, const void *d_data,
                                 packed_filter_role role, spillway_error *error) {
    const unsigned value_bytes = role == PACKED_SHIPDATE ? sizeof(int32_t) : sizeof(int64_t);
    const uint32_t codecs = role == PACKED_SHIPDATE ? DAY_CODECS : QUANTITY_CODECS;
    uint32_t n = 0;
    if (spillway_query_packed(connection, region, NULL, 0, &n, error) < 0)
        return NULL;
    std::vector<spillway_packed_chunk> chunks(n + 1);
    if (spillway_query_packed(connection, region, chunks.data(), n, &n, error) < 0)
        return NULL;
    packed_column *column = new (std::nothrow) packed_column();
    if (!column)
        return refuse(error, "no memory");
    const size_t bytes = chunks.size() * sizeof chunks[0];
    const char *why = NULL;
    if (cudaMalloc(&column->d_chunks, bytes) != cudaSuccess ||
        cudaMemcpy(column->d_chunks, chunks.data(), bytes, cudaMemcpyHostToDevice) != cudaSuccess)
        why = "no GPU memory for a directory";
    else if (!spillway_column_init(&column->column, d_data, chunks.data(), n, column->d_chunks, value_bytes, codecs))
        why = "the column cannot be read where it lies";
    if (!why)
        return column;
    packed_column_free(column);
    return refuse(error, why);
}

void packed_column_free(packed_column *column) {
    if (!column)
        return;
    (void)cudaFree(column->d_chunks);
    delete column;
}

/* ---- the query --------------------------------------------------------------------------------------------------- */

__device__ static void add_up(packed_filter_result *ret, const packed_filter_result &mine) {
    unsigned long long v[] = {mine.sum, mine.selected, mine.rows};
    unsigned long long *to[] = {&ret->sum, &ret->selected, &ret->rows};
#pragma unroll
    for (int i = 0; i < 3; i++) {
#pragma unroll
        for (int d = 16; d; d /= 2)
            v[i] += __shfl_xor_sync(0xFFFFFFFFu, v[i], d);
        if (threadIdx.x % 32 == 0)
            atomicAdd(to[i], v[i]);
    }
}

/* A warp's: it reads one vector after the other. */
union stage {
    spillway_stage<int32_t> days;
    spillway_stage<int64_t> quantities;
};

/* A warp takes 4096 rows at a time: a tile of quantities, and half a tile of days. Days are half as long, so that a
 * lane has those of other rows: spillway_regroup() tells each which of its quantities count. Quantities are read only
 * where a row of a vector is selected. */
__global__ void __launch_bounds__(THREADS) sum_packed(const spillway_column shipdate, const spillway_column quantity,
                                                      int32_t before, packed_filter_result *ret) {
    __shared__ stage stages[WARPS];
    stage &room = stages[threadIdx.x / 32];
    constexpr uint32_t VECTORS = spillway_of<int64_t>::TILE_VECTORS;
    constexpr uint32_t HALVES = spillway_of<int32_t>::TILE_VECTORS / VECTORS;
    packed_filter_result mine = {0, 0, 0};
    for (uint32_t t = blockIdx.x * WARPS + threadIdx.x / 32; t < spillway_tiles(quantity); t += gridDim.x * WARPS) {
        const spillway_tile<int32_t, DAY_CODECS> days(shipdate, t / HALVES);
        const spillway_tile<int64_t, QUANTITY_CODECS> quantities(quantity, t);
#pragma unroll 1
        for (uint32_t v = 0; v < VECTORS; v++) {
            int32_t day[32];
            const uint32_t n = days.read(t % HALVES * VECTORS + v, &room.days, day);
            uint32_t selected = 0;
#pragma unroll
            for (unsigned i = 0; i < 32; i++)
                selected |= (uint32_t)(spillway_place<int32_t>(i) < n && day[i] < before) << i;
            mine.rows += threadIdx.x % 32 == 0 ? n : 0;
            mine.selected += __popc(selected);
            if (!__any_sync(0xFFFFFFFFu, selected))
                continue;
            selected = spillway_regroup<int32_t, int64_t>(selected);
            int64_t value[32];
            if (quantities.read(v, &room.quantities, value) != n)
                mine.rows = 0; /* malformed: the caller sees that rows are missing */
#pragma unroll
            for (unsigned i = 0; i < 32; i++)
                mine.sum += selected >> i & 1 ? (unsigned long long)value[i] : 0;
        }
    }
    add_up(ret, mine);
}

__global__ void __launch_bounds__(THREADS) sum_plain(const int32_t *shipdate, const int64_t *quantity, uint64_t rows,
                                                     int32_t before, packed_filter_result *ret) {
    packed_filter_result mine = {0, 0, 0};
    for (uint64_t i = (uint64_t)blockIdx.x * THREADS + threadIdx.x; i < rows; i += (uint64_t)gridDim.x * THREADS) {
        const bool is_selected = shipdate[i] < before;
        mine.sum += is_selected ? (unsigned long long)quantity[i] : 0;
        mine.selected += is_selected;
        mine.rows++;
    }
    add_up(ret, mine);
}

/* Blocks for n pieces of work, of which a block does WARPS or THREADS at once: as many as the GPU holds, or fewer. */
static unsigned blocks_for(uint64_t n, unsigned at_once, const void *kernel) {
    int device = 0, processors = 1, fit = 1;
    (void)cudaGetDevice(&device);
    (void)cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
    (void)cudaOccupancyMaxActiveBlocksPerMultiprocessor(&fit, kernel, THREADS, 0);
    const uint64_t needed = (n + at_once - 1) / at_once, most = (uint64_t)processors * (unsigned)fit;
    return (unsigned)(needed < 1 ? 1 : needed < most ? needed : most);
}

int packed_filter(const packed_column *shipdate, const packed_column *quantity, int32_t before,
                  packed_filter_result *d_ret, CUstream_st *stream) {
    const cudaError_t rc = cudaMemsetAsync(d_ret, 0, sizeof *d_ret, stream);
    if (rc != cudaSuccess)
        return rc;
    const unsigned blocks = blocks_for(spillway_tiles(quantity->column), WARPS, (const void *)sum_packed);
    sum_packed<<<blocks, THREADS, 0, stream>>>(shipdate->column, quantity->column, before, d_ret);
    return cudaGetLastError();
}

int plain_filter(const int32_t *d_shipdate, const int64_t *d_quantity, uint64_t rows, int32_t before,
                 packed_filter_result *d_ret, CUstream_st *stream) {
    const cudaError_t rc = cudaMemsetAsync(d_ret, 0, sizeof *d_ret, stream);
    if (rc != cudaSuccess)
        return rc;
    sum_plain<<<blocks_for(rows, THREADS, (const void *)sum_plain), THREADS, 0, stream>>>(d_shipdate, d_quantity, rows,
                                                                                          before, d_ret);
    return cudaGetLastError();
}
