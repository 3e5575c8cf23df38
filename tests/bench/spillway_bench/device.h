/* device.h - the benchmark's own dealings with the memory that is spilled: fill it, wipe it, compare it, and copy it
 * plainly for comparison. On the host, and on the GPU, where the bytes never leave it.
 *
 * All functions return when the work is done, and return NULL or what failed (static text). thread: any. */
#ifndef SW_BENCH_DEVICE_H
#define SW_BENCH_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* GB/s of plain copies. Out: from the memory that is spilled to memory of the host that is no client's. */
struct sw_bench_raw {
    uint64_t piece_bytes; /* of one copy */
    unsigned threads;     /* host only; 0 on a GPU, which copies by itself */
    unsigned per_sync; /* copies between two synchronisations, as an engine has under way; host: looks at the clock */
    double out_gbps, back_gbps;
    double both_gbps; /* both ways at once (GPU), or in turn (host): the sum */
};

struct CUstream_st;

struct sw_bench_device {
    struct CUstream_st *(*stream)(void); /* that the calling thread's work was done on; NULL: no GPU */
    const char *(*copy)(void *to, const void *from, uint64_t bytes);
    const char *(*set)(void *to, uint8_t value, uint64_t bytes);
    /* a and b are aligned to 16 bytes. */
    const char *(*equal)(const void *a, const void *b, uint64_t bytes, bool *ret);
    /* per_sync: at least 1; the host may do with fewer. */
    const char *(*raw)(struct sw_bench_raw *ret, uint64_t piece_bytes, unsigned per_sync, unsigned threads);
};

extern const struct sw_bench_device sw_bench_host;
/* NULL in a build without CUDA. */
const struct sw_bench_device *sw_bench_gpu(void);

#ifdef __cplusplus
}
#endif
#endif
