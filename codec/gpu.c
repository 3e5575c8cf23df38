/* gpu.c - passes the calls of codec/gpu.h on to libspillway-kernels.so, which the first sw_gpu_codec_init() loads.
 *
 * So a program starts even if the kernels are not installed. The exported symbols carry the project's version, because
 * another version may have other structs. */
#include "codec/gpu.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define FILE_NAME "libspillway-kernels.so.0"
#define SYMBOL_VERSION "SPILLWAY_KERNELS_" SW_VERSION

/* CALL(type, name, parameters, arguments) for every call except sw_gpu_codec_init(). */
#define CALLS(CALL)                                                                                                    \
    CALL(int, sw_gpu_wake_async, (struct CUstream_st * stream, struct sw_err * err), (stream, err))                    \
    CALL(size_t, sw_gpu_codec_shared_bytes, (enum sw_codec_id codec, size_t limit), (codec, limit))                    \
    CALL(bool, sw_gpu_takes_dictionaries, (void), ())                                                                  \
    CALL(uint32_t, sw_gpu_full_segments, (void), ())                                                                   \
    CALL(size_t, sw_gpu_pool_bytes, (uint64_t raw_bytes), (raw_bytes))                                                 \
    CALL(int, sw_gpu_pool_init_async,                                                                                  \
         (const struct sw_gpu_pool *pool, struct CUstream_st *stream, struct sw_err *err), (pool, stream, err))        \
    CALL(int, sw_gpu_sample_async,                                                                                     \
         (const void *d_region, uint64_t raw_bytes, unsigned piece_bytes, void *d_sample, struct sw_gpu_pass pass,     \
          struct CUstream_st *stream, struct sw_err *err),                                                             \
         (d_region, raw_bytes, piece_bytes, d_sample, pass, stream, err))                                              \
    CALL(int, sw_gpu_probe_async,                                                                                      \
         (const void *d_sample, size_t sample_bytes, uint32_t *d_hopeless, struct CUstream_st *stream,                 \
          struct sw_err *err),                                                                                         \
         (d_sample, sample_bytes, d_hopeless, stream, err))                                                            \
    CALL(size_t, sw_gpu_train_scratch_bytes, (void), ())                                                               \
    CALL(int, sw_gpu_train_async,                                                                                      \
         (const void *d_sample, size_t sample_bytes, struct sw_params *d_params, struct sw_gpu_training *d_training,   \
          void *d_scratch, size_t scratch_bytes, struct CUstream_st *stream, struct sw_err *err),                      \
         (d_sample, sample_bytes, d_params, d_training, d_scratch, scratch_bytes, stream, err))                        \
    CALL(size_t, sw_gpu_learn_scratch_bytes, (void), ())                                                               \
    CALL(int, sw_gpu_learn_async,                                                                                      \
         (const void *d_sample, size_t sample_bytes, uint32_t most_symbols, struct sw_onpair_learned *d_learned,       \
          void *d_scratch, size_t scratch_bytes, struct CUstream_st *stream, struct sw_err *err),                      \
         (d_sample, sample_bytes, most_symbols, d_learned, d_scratch, scratch_bytes, stream, err))                     \
    CALL(int, sw_gpu_encode_async,                                                                                     \
         (const struct sw_gpu_plan *plan, const void *d_in, uint64_t in_bytes, void *d_frame,                          \
          uint64_t frame_cap_bytes, struct sw_gpu_result *d_result, const struct sw_gpu_pool *pool,                    \
          struct sw_gpu_progress *d_progress, struct sw_gpu_pass pass, struct CUstream_st *stream,                     \
          struct sw_err *err),                                                                                         \
         (plan, d_in, in_bytes, d_frame, frame_cap_bytes, d_result, pool, d_progress, pass, stream, err))              \
    CALL(int, sw_gpu_decode_async,                                                                                     \
         (const struct sw_frame_layout *layout, const void *d_frame, uint32_t first_tile, uint32_t n_tiles,            \
          void *d_out, struct sw_gpu_result *d_result, struct sw_gpu_pass pass, struct CUstream_st *stream,            \
          struct sw_err *err),                                                                                         \
         (layout, d_frame, first_tile, n_tiles, d_out, d_result, pass, stream, err))                                   \
    CALL(size_t, sw_gpu_batch_scratch_bytes, (uint32_t n), (n))                                                        \
    CALL(int, sw_gpu_encode_batch_async,                                                                               \
         (const struct sw_gpu_plan *plan, struct sw_gpu_item *h_items, uint32_t n, struct sw_gpu_result *results,      \
          const struct sw_gpu_pool *pool, void *d_scratch, size_t scratch_bytes, struct sw_gpu_pass pass,              \
          struct CUstream_st *stream, struct sw_err *err),                                                             \
         (plan, h_items, n, results, pool, d_scratch, scratch_bytes, pass, stream, err))                               \
    CALL(int, sw_gpu_decode_batch_async,                                                                               \
         (struct sw_gpu_item * h_items, uint32_t n, struct sw_gpu_result * results, void *d_scratch,                   \
          size_t scratch_bytes, struct sw_gpu_pass pass, struct CUstream_st *stream, struct sw_err *err),              \
         (h_items, n, results, d_scratch, scratch_bytes, pass, stream, err))                                           \
    CALL(int, sw_gpu_identify_async,                                                                                   \
         (const struct sw_gpu_source *h_sources, uint32_t n, uint64_t *identities, struct sw_gpu_pass pass,            \
          struct CUstream_st *stream, struct sw_err *err),                                                             \
         (h_sources, n, identities, pass, stream, err))                                                                \
    CALL(int, sw_gpu_hash_async,                                                                                       \
         (const struct sw_gpu_source *ranges, uint32_t n, uint32_t *hashes, struct CUstream_st *stream,                \
          struct sw_err *err),                                                                                         \
         (ranges, n, hashes, stream, err))                                                                             \
    CALL(int, sw_gpu_copy_async,                                                                                       \
         (struct sw_gpu_run * h_runs, uint32_t n, void *d_scratch, size_t scratch_bytes, struct CUstream_st *stream,   \
          struct sw_err *err),                                                                                         \
         (h_runs, n, d_scratch, scratch_bytes, stream, err))

/* load() writes `calls` and `problem`, once. */
static struct {
    __typeof__(sw_gpu_codec_init) *sw_gpu_codec_init;
#define MEMBER(type, name, parameters, arguments) __typeof__(name) *name;
    CALLS(MEMBER)
#undef MEMBER
} calls;
static char problem[160]; /* empty if all calls were loaded */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Looks up a symbol and stores it in *ret, a pointer to a function; false: the library lacks it. */
static bool find(void *library, const char *name, void *ret) {
    void *symbol = dlvsym(library, name, SYMBOL_VERSION);
    memcpy(ret, &symbol, sizeof symbol); /* ISO C has no cast from object pointers to function pointers */
    return symbol != NULL;
}

static void load(void) {
    /* The library is never closed: other threads may be inside a call at any time. */
    void *library = dlopen(FILE_NAME, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        (void)snprintf(problem, sizeof problem, "%s", dlerror());
        return;
    }
    bool is_whole = find(library, "sw_gpu_codec_init", &calls.sw_gpu_codec_init);
#define FIND(type, name, parameters, arguments) is_whole = find(library, #name, &calls.name) && is_whole;
    CALLS(FIND)
#undef FIND
    if (!is_whole)
        (void)snprintf(problem, sizeof problem,
                       FILE_NAME " is not of version " SW_VERSION ": install both from one package");
}

int sw_gpu_codec_init(struct sw_err *err) {
    (void)pthread_once(&once, load);
    if (problem[0])
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DEVICE, "cannot load the GPU kernels: %s", problem);
    return calls.sw_gpu_codec_init(err);
}

#define FORWARD(type, name, parameters, arguments)                                                                     \
    type name parameters {                                                                                             \
        return calls.name arguments;                                                                                   \
    }
CALLS(FORWARD)
