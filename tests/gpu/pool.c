/* pool.c - the buffer manager on a GPU: streams, a GPU that is nearly full, memory of stream-ordered pools; all bytes
 * are compared.
 *
 * pool [SPILLWAYD] */
#include "ipc/spillway_pool.h"
#include "tests/lib/buffer.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/spillwayd.h"

#include <check.h>
#include <cuda_runtime.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MIB = 1 << 20, BYTES = 32 * MIB, N = 12 };

static struct sw_test_daemon daemon_process;
static struct spillway_pool *pool;
static struct spillway_error error;
static struct spillway_handle *handles[N];
static cudaStream_t streams[2];
static uint8_t *h_content, *h_got; /* page-locked, N buffers; one */

static void cuda_ok(cudaError_t e, const char *call) {
    ck_assert_msg(e == cudaSuccess, "%s: %s", call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
}

static void open_pool(struct spillway_allocator allocator, int wait_ms) {
    const struct spillway_options connection = {.size = sizeof connection, .socket_path = daemon_process.socket};
    const struct spillway_pool_options options = {
        .size = sizeof options, .connection = &connection, .allocator = allocator, .wait_ms = wait_ms};
    ok(spillway_pool_create(&pool, &options, &error));
    for (unsigned i = 0; i < 2; i++)
        CUDA(cudaStreamCreateWithFlags(&streams[i], cudaStreamNonBlocking));
}

static void close_pool(void) {
    spillway_pool_close(pool);
    for (unsigned i = 0; i < 2; i++)
        CUDA(cudaStreamDestroy(streams[i]));
}

static void new_handle(unsigned i) {
    const struct spillway_handle_options options = {.size = sizeof options, .bytes = BYTES};
    ok(spillway_pool_new(pool, &options, &handles[i], &error));
}

/* Queues what fills the buffer, and unpins it at once. */
static void fill(unsigned i) {
    void *d_data;
    const cudaStream_t stream = streams[i % 2];
    ok(spillway_handle_pin(handles[i], stream, &d_data, &error));
    CUDA(cudaMemcpyAsync(d_data, h_content + (size_t)i * BYTES, BYTES, cudaMemcpyHostToDevice, stream));
    ok(spillway_handle_unpin(handles[i], stream, &error));
}

static void ck(unsigned i) {
    void *d_data;
    const cudaStream_t stream = streams[(i + 1) % 2];
    ok(spillway_handle_pin(handles[i], stream, &d_data, &error));
    CUDA(cudaMemcpyAsync(h_got, d_data, BYTES, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    ok(spillway_handle_unpin(handles[i], stream, &error));
    ck_assert_msg(memcmp(h_got, h_content + (size_t)i * BYTES, BYTES) == 0, "buffer %u differs", i);
}

static struct spillway_pool_stats stats(void) {
    struct spillway_pool_stats s = {.size = sizeof s};
    ok(spillway_pool_stats(pool, &s, &error));
    return s;
}

START_TEST(buffers_come_back) {
    uint64_t freed;
    open_pool((struct spillway_allocator){0}, 0);
    for (unsigned i = 0; i < N; i++) {
        new_handle(i);
        fill(i);
    }
    ok(spillway_pool_make_room(pool, (uint64_t)N * BYTES, &freed, &error)); /* after their streams */
    ck_assert_uint_eq(freed, (uint64_t)N * BYTES);
    for (unsigned i = 0; i < N; i += 2)
        ok(spillway_handle_prefetch(handles[i], NULL, &error));
    for (unsigned i = 0; i < N; i++)
        ck(i);
    ck_assert_uint_eq(stats().restores, N);
    close_pool();
}
END_TEST

static void CUDART_CB sleep_on_stream(void *arg) {
    (void)arg;
    (void)usleep(300000);
}

START_TEST(stays_until_its_stream_has_passed) {
    void *d_data;
    uint64_t freed = 1;
    open_pool((struct spillway_allocator){0}, -1);
    new_handle(0);
    ok(spillway_handle_pin(handles[0], streams[0], &d_data, &error));
    CUDA(cudaLaunchHostFunc(streams[0], sleep_on_stream, NULL));
    CUDA(cudaMemcpyAsync(d_data, h_content, BYTES, cudaMemcpyHostToDevice, streams[0]));
    ok(spillway_handle_unpin(handles[0], streams[0], &error));
    ck_assert_int_eq(spillway_pool_make_room(pool, 1, &freed, &error), -SPILLWAY_ENOMEM);
    ck_assert_uint_eq(freed, 0);
    CUDA(cudaStreamSynchronize(streams[0]));
    ok(spillway_pool_make_room(pool, 1, &freed, &error));
    ck(0);
    close_pool();
}
END_TEST

/* Twice as much as is free. */
START_TEST(a_full_gpu_holds_more) {
    size_t free_bytes, total_bytes;
    void *d_ballast = NULL;
    open_pool((struct spillway_allocator){0}, 0);
    CUDA(cudaMemGetInfo(&free_bytes, &total_bytes));
    CUDA(cudaMalloc(&d_ballast, free_bytes - (size_t)(N / 2) * BYTES));
    for (unsigned i = 0; i < N; i++) {
        new_handle(i);
        fill(i);
    }
    ck_assert_uint_gt(stats().evictions, 0);
    for (unsigned round = 0; round < 3; round++)
        for (unsigned i = 0; i < N; i++)
            ck(i);
    ck_assert_uint_gt(stats().restores, N);
    CUDA(cudaFree(d_ballast));
    close_pool();
}
END_TEST

static void *alloc_async(void *user, uint64_t bytes, struct CUstream_st *stream) {
    void *data = NULL;
    (void)user;
    return cudaMallocAsync(&data, bytes, stream) == cudaSuccess ? data : NULL;
}

static void free_async(void *user, void *data, uint64_t bytes) {
    (void)user, (void)bytes;
    (void)cudaFreeAsync(data, NULL);
}

/* Memory that cannot be shared, and that is only the stream's at first: reused, it may still be another stream's. */
START_TEST(stream_ordered_memory_comes_back) {
    uint64_t freed;
    open_pool((struct spillway_allocator){alloc_async, free_async, NULL}, 0);
    for (unsigned round = 0; round < 3; round++) {
        for (unsigned i = 0; i < N; i++) {
            if (round == 0)
                new_handle(i);
            fill(i);
        }
        ok(spillway_pool_make_room(pool, (uint64_t)N / 2 * BYTES, &freed, &error));
        for (unsigned i = 0; i < N; i++)
            ck(i);
    }
    ck_assert_uint_ge(stats().restores, 3 * N / 2);
    close_pool();
}
END_TEST

static Suite *make_suite(void) {
    Suite *suite = suite_create("gpu_pool");
    TCase *tcase = tcase_create("pool");
    sw_test_slow(tcase, 60);
    tcase_add_test(tcase, buffers_come_back);
    tcase_add_test(tcase, stays_until_its_stream_has_passed);
    tcase_add_test(tcase, a_full_gpu_holds_more);
    tcase_add_test(tcase, stream_ordered_memory_comes_back);
    suite_add_tcase(suite, tcase);
    return suite;
}

static bool make_content(void) {
    if (cudaHostAlloc((void **)&h_content, (size_t)N * BYTES, cudaHostAllocDefault) != cudaSuccess ||
        cudaHostAlloc((void **)&h_got, BYTES, cudaHostAllocDefault) != cudaSuccess)
        return false;
    sw_content_fill(h_content, (size_t)N * BYTES, SW_CONTENT_MIXED, 1);
    return true;
}

int main(int argc, char **argv) {
    static const char *const options[] = {"device=auto", "host_tier_bytes=1 GiB", "host_tier_initial_bytes=512 MiB",
                                          NULL};
    const char *reason = NULL;
    sw_test_daemon_start(&daemon_process, argc > 1 ? argv[1] : SW_SPILLWAYD_PATH, options);
    int failed = 1;
    if (sw_buffer_usable_kinds(&reason) < SW_BUFFER_KIND_NR) {
        (void)printf("skipped: %s\n", reason);
        failed = 77;
    } else if (make_content()) {
        failed = sw_test_run(make_suite(), CK_NOFORK); /* one CUDA context for all tests */
    }
    if (daemon_process.pid && sw_test_daemon_stop(&daemon_process, SIGTERM) != 0)
        failed = 1;
    if (failed)
        (void)printf("the log is %s\n", daemon_process.log);
    else
        sw_test_daemon_clean(&daemon_process);
    return failed;
}
