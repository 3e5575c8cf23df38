/* The buffer manager and streams, on a GPU that is none (lib/fake_cuda) and a daemon that the test plays. Work that is
 * queued there is done in steps, one with each look at it. */
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "ipc/proto.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include "tests/lib/play.h"
#include "tests/lib/pooled.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { BYTES = 10000, STEPS = 3, CUDA_ERROR = 999 };

static struct spillway_handle *handle;
static struct CUstream_st *streams[2];

/* Spills and restores go well. */
static void serve(int socket) {
    struct sw_msg msg;
    sw_play_greet(socket);
    while (sw_play_get(socket, &msg)) {
        if (msg.header.type == SW_MSG_BUILD)
            sw_play_put_result(socket, msg.header.seq, 3, msg.u.build.buffers[0].raw_bytes);
        else if (msg.header.type == SW_MSG_READ)
            sw_play_put_result(socket, msg.header.seq, 3, BYTES);
        else if (msg.header.type == SW_MSG_DISCARD)
            sw_play_put_discarded(socket, msg.header.seq, 1);
        else
            sw_play_put_ok(socket, msg.header.seq);
    }
}

static void begin(int wait_ms) {
    sw_fake_load_driver(true);
    for (unsigned i = 0; i < 2; i++)
        streams[i] = sw_fake_stream_new();
    sw_play_start(serve);
    sw_pooled_open(sw_play.address.sun_path, .wait_ms = wait_ms);
    handle = sw_pooled_new(BYTES);
}

static void end(void) {
    sw_pooled_close();
    sw_play_stop();
    for (unsigned i = 0; i < 2; i++)
        sw_fake_stream_free(streams[i]);
    ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_EVENT], 0);
    ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_DEVICE_MEMORY], 0);
    ck_assert_int_le(sw_fake_cuda->held[SW_FAKE_STREAM], 1); /* the default one */
    ck_assert_int_eq(sw_fake_retained(), 0);
    sw_mark_page_put(sw_play.gpu.page);
    ck_assert_int_eq(sw_alloc_live(), sw_play.gpu.page != NULL); /* the page, which the process keeps */
}

static void pin(struct CUstream_st *stream) {
    void *data;
    sw_pooled_ok(spillway_handle_pin(handle, stream, &data, &sw_pooled_error));
}

static void unpin(struct CUstream_st *stream) {
    sw_pooled_ok(spillway_handle_unpin(handle, stream, &sw_pooled_error));
}

static void ck_stays(void) {
    uint64_t freed = 1;
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error), SPILLWAY_ENOMEM, "idle");
    ck_assert_uint_eq(freed, 0);
    ck_assert(sw_pooled_is(handle, "live"));
}

static void ck_leaves(void) {
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert(sw_pooled_is(handle, "spilled"));
}

START_TEST(stays_until_its_stream_has_passed) {
    begin(-1);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    unpin(streams[0]);
    for (unsigned i = 0; i < STEPS; i++)
        ck_stays();
    ck_leaves();
    end();
}
END_TEST

START_TEST(later_work_does_not_count) {
    begin(-1);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], 1);
    unpin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    ck_stays();
    ck_leaves();
    end();
}
END_TEST

/* The last unpin of each stream counts, and those of all streams. */
START_TEST(every_stream_has_to_pass) {
    begin(-1);
    for (unsigned i = 0; i < 3; i++) {
        pin(streams[i % 2]);
        sw_fake_stream_work(streams[i % 2], 1);
        unpin(streams[i % 2]);
    }
    ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_EVENT], 3);
    sw_fake_stream_run(streams[0]);
    ck_stays();
    ck_leaves();
    for (unsigned i = 0; i < 100; i++) { /* events are used again */
        pin(streams[0]);
        sw_fake_stream_work(streams[0], 1);
        unpin(streams[0]);
    }
    ck_assert_int_le(sw_fake_cuda->held[SW_FAKE_EVENT], 3);
    sw_fake_stream_run(streams[0]);
    ck_leaves();
    end();
}
END_TEST

/* With patience, make_room looks again until the stream has passed. */
START_TEST(waits_for_streams_if_it_may) {
    begin(SW_TEST_WAIT_MS);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], 20);
    unpin(streams[0]);
    ck_leaves();
    end();
}
END_TEST

/* The usual wait is long enough for work that takes some milliseconds. */
START_TEST(waits_for_streams_by_itself) {
    begin(0);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], 30);
    unpin(streams[0]);
    ck_leaves();
    end();
}
END_TEST

/* A stream is waited for though another buffer was tried since; and when nothing is left, the search ends. */
START_TEST(waits_for_streams_as_long_as_that_helps) {
    uint64_t freed = 0;
    begin(SW_TEST_WAIT_MS);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    unpin(streams[0]);
    sw_pooled_use(sw_pooled_new(BYTES / 2)); /* idle, too small, and used later */
    const uint64_t begun_us = sw_clock_us();
    ck_assert_uint_eq(sw_pooled_make_room(BYTES), BYTES + BYTES / 2);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    unpin(streams[0]);
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 2 * BYTES, &freed, &sw_pooled_error), SPILLWAY_ENOMEM,
                        "10000 bytes of 20000 were freed: no other buffer is idle");
    ck_assert_uint_eq(freed, BYTES);
    ck_assert_uint_lt(sw_clock_us() - begun_us, SW_TEST_WAIT_MS * UINT64_C(500));
    end();
}
END_TEST

START_TEST(the_default_stream_counts) {
    begin(-1);
    pin(NULL);
    unpin(NULL);
    ck_assert_int_eq(sw_fake_cuda->calls[SW_FAKE_cudaEventRecord], 0); /* host memory, in a thread without CUDA */
    struct spillway_handle *h = NULL;
    void *memory = sw_fake_memory_new(BYTES);
    const struct spillway_handle_options options = {
        .size = sizeof options, .bytes = BYTES, .flags = SPILLWAY_HANDLE_STAYS, .allocator = sw_pooled_allocator};
    sw_pooled_ok(spillway_pool_watch(sw_pooled, memory, &options, &h, &sw_pooled_error));
    ck_assert_int_eq(sw_fake_cuda->calls[SW_FAKE_cudaEventRecord], 1); /* in the context of the memory */
    sw_fake_capture(streams[0]);
    sw_pooled_use(h); /* by the stand-in of the default stream */
    ck_assert_int_eq(sw_fake_cuda->calls[SW_FAKE_cudaEventRecord], 2);
    sw_fake_capture(NULL);
    sw_pooled_ok(spillway_handle_free(h, &sw_pooled_error));
    sw_fake_memory_free(memory);
    end();
}
END_TEST

/* The engine destroys the context of a stream. Another one may get its handle. */
START_TEST(work_of_a_context_that_is_gone_does_not_count) {
    begin(-1);
    sw_fake_set_current(sw_fake_context());
    pin(NULL);
    unpin(NULL);
    pin(NULL);
    unpin(NULL);
    ck_leaves();
    pin(NULL);
    unpin(NULL);
    sw_fake_context_destroy(_i == 1);
    const int n_queries = sw_fake_cuda->calls[SW_FAKE_cudaEventQuery];
    ck_leaves();
    ck_assert_int_eq(sw_fake_cuda->calls[SW_FAKE_cudaEventQuery], n_queries);
    const int n_streams = sw_fake_cuda->held[SW_FAKE_STREAM], n_events = sw_fake_cuda->held[SW_FAKE_EVENT];
    if (_i == 1) { /* it has streams and events of its own */
        pin(NULL);
        unpin(NULL);
        ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_STREAM], n_streams + 2);
        ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_EVENT], n_events + 1);
    }
    sw_fake_set_current(NULL);
    sw_pooled_close();
    ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_STREAM], n_streams); /* nothing of the context that is gone was named */
    ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_EVENT], n_events);
    sw_play_stop();
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(captured_streams_are_refused) {
    begin(-1);
    pin(streams[0]);
    sw_fake_capture(streams[0]);
    sw_pooled_ck_failed(spillway_handle_unpin(handle, streams[0], &sw_pooled_error), SPILLWAY_EINVAL, "captured");
    sw_fake_capture(NULL);
    ck_assert_uint_eq(sw_pooled_info(handle).pins, 1);
    ck_stays();
    unpin(streams[0]);
    ck_leaves();
    end();
}
END_TEST

START_TEST(calls_that_fail_keep_the_pin) {
    static const struct {
        enum sw_fake_call call;
        int nth;
    } calls[] = {{SW_FAKE_cudaStreamCreateWithFlags, 1},
                 {SW_FAKE_cudaStreamCreateWithFlags, 2},
                 {SW_FAKE_cudaEventCreateWithFlags, 1},
                 {SW_FAKE_cudaEventRecord, 1}};
    begin(-1);
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        pin(streams[0]);
        sw_fake_arm(calls[i].call, calls[i].nth, CUDA_ERROR, SW_FAKE_ONCE);
        const int n_streams = sw_fake_cuda->held[SW_FAKE_STREAM];
        const int rc = spillway_handle_unpin(handle, streams[0], &sw_pooled_error);
        sw_fake_disarm();
        ck_assert(calls[i].call != SW_FAKE_cudaStreamCreateWithFlags ||
                  sw_fake_cuda->held[SW_FAKE_STREAM] == n_streams);
        ck_assert_int_lt(rc, 0);
        ck_assert_int_eq(rc == -SPILLWAY_EGPU, sw_pooled_error.cuda == CUDA_ERROR);
        ck_assert_uint_eq(sw_pooled_info(handle).pins, i + 1);
    }
    for (unsigned i = 0; i < sizeof calls / sizeof calls[0]; i++)
        unpin(streams[0]);
    end();
}
END_TEST

/* The memory of a freed handle stays until the stream has passed. */
START_TEST(freed_memory_waits_for_its_stream) {
    begin(-1);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    unpin(streams[0]);
    sw_pooled_ok(spillway_handle_free(handle, &sw_pooled_error));
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, BYTES);
    ck_assert_uint_eq(sw_pooled_stats().held_bytes, BYTES);
    sw_fake_stream_run(streams[0]);
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
    handle = sw_pooled_new(BYTES);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    unpin(streams[0]);
    end(); /* waits for it */
}
END_TEST

/* Room comes from freed handles, too; nothing is left to wait for then. */
START_TEST(waits_for_streams_of_freed_memory) {
    uint64_t freed = 0;
    begin(SW_TEST_WAIT_MS);
    pin(streams[0]);
    sw_fake_stream_work(streams[0], STEPS);
    unpin(streams[0]);
    sw_pooled_ok(spillway_handle_free(handle, &sw_pooled_error));
    ck_assert_uint_eq(sw_pooled_make_room(1), BYTES);
    const uint64_t begun_us = sw_clock_us();
    sw_pooled_ck_failed(spillway_pool_make_room(sw_pooled, 1, &freed, &sw_pooled_error), SPILLWAY_ENOMEM, "idle");
    ck_assert_uint_lt(sw_clock_us() - begun_us, SW_TEST_WAIT_MS * UINT64_C(500));
    end();
}
END_TEST

START_TEST(adopted_memory_waits_for_its_stream) {
    begin(-1);
    struct spillway_handle_options options = {.size = sizeof options, .bytes = BYTES, .stream = streams[1]};
    void *data = sw_pooled_allocator.alloc(&sw_pooled_memory, BYTES, NULL);
    sw_fake_stream_work(streams[1], 1);
    sw_fake_capture(streams[1]);
    sw_pooled_ck_failed(spillway_pool_adopt(sw_pooled, data, &options, &handle, &sw_pooled_error), SPILLWAY_EINVAL,
                        "captured");
    sw_fake_capture(NULL);
    sw_pooled_ok(spillway_pool_adopt(sw_pooled, data, &options, &handle, &sw_pooled_error));
    ck_stays();
    ck_leaves();
    end();
}
END_TEST

START_TEST(the_allocator_gets_the_stream) {
    begin(-1);
    pin(streams[1]);
    ck_assert_ptr_eq(sw_pooled_memory.stream, streams[1]);
    end();
}
END_TEST

static void begin_anew(struct spillway_allocator allocator) {
    begin(-1);
    sw_pooled_close();
    sw_play_stop();
    sw_play_start(serve);
    const struct spillway_options connection = {.size = sizeof connection, .socket_path = sw_play.address.sun_path};
    const struct spillway_pool_options options = {.size = sizeof options,
                                                  .connection = &connection,
                                                  .allocator = allocator,
                                                  .flags = SPILLWAY_POOL_UNPREPARED,
                                                  .wait_ms = -1};
    sw_pooled_open_with(&options);
}

/* The default allocator is the driver's. */
START_TEST(memory_comes_from_the_gpu) {
    void *data;
    begin_anew((struct spillway_allocator){0});
    handle = sw_pooled_new(BYTES);
    pin(streams[0]);
    ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_DEVICE_MEMORY], 1);
    struct spillway_handle *other = sw_pooled_new(BYTES);
    sw_fake_arm(SW_FAKE_cudaMalloc, 1, CUDA_ERROR, SW_FAKE_DEAD);
    sw_pooled_ck_failed(spillway_handle_pin(other, NULL, &data, &sw_pooled_error), SPILLWAY_ENOMEM, "allocator");
    sw_fake_disarm();
    sw_fake_revive();
    end();
}
END_TEST

/* Calls of a pool that takes the driver's memory leave the thread in its own context. */
START_TEST(the_thread_keeps_its_context) {
    begin_anew((struct spillway_allocator){0});
    sw_fake_set_current(sw_fake_context());
    for (unsigned i = 0; i < 2; i++) {
        handle = sw_pooled_new(BYTES);
        pin(streams[0]);
        ck_assert_ptr_eq(sw_fake_current(), sw_fake_context());
        unpin(streams[0]);
        ck_assert_ptr_eq(sw_fake_current(), sw_fake_context());
        sw_pooled_ok(spillway_handle_free(handle, &sw_pooled_error));
        ck_assert_int_eq(sw_fake_cuda->held[SW_FAKE_DEVICE_MEMORY], 0);
        ck_assert_ptr_eq(sw_fake_current(), sw_fake_context());
    }
    sw_fake_set_current(NULL);
    end();
}
END_TEST

START_TEST(a_gpu_of_a_pool_that_does_not_exist) {
    static const int gpus[] = {1, 63, 64, 1000000};
    const struct spillway_options connection = {.size = sizeof connection, .socket_path = "/nonexistent/s"};
    sw_fake_load_driver(true);
    for (unsigned i = 0; i < sizeof gpus / sizeof gpus[0]; i++) {
        const struct spillway_pool_options options = {
            .size = sizeof options, .connection = &connection, .flags = SPILLWAY_POOL_UNPREPARED, .gpu = gpus[i]};
        struct spillway_pool *pool = NULL;
        sw_pooled_ck_failed(spillway_pool_create(&pool, &options, &sw_pooled_error), SPILLWAY_EGPU, "GPU of the pool");
        ck_assert_ptr_null(pool);
    }
}
END_TEST

/* Memory of an allocator that knows streams is the stream's: a restore waits for what is queued there. That of the
 * driver is nobody's. Loop: of the default allocator, of the pool's, of the buffer's. */
START_TEST(a_restore_follows_the_stream_of_the_allocator) {
    const struct spillway_allocator none = {0};
    begin_anew(_i == 1 ? sw_pooled_allocator : none);
    ck_assert_int_eq(sw_mark_page_get(&sw_play.gpu.page, NULL), 0);
    sw_play.gpu.on = true;
    handle = sw_pooled_new(BYTES, .allocator = _i == 2 ? sw_pooled_allocator : none);
    pin(streams[0]);
    unpin(streams[0]);
    ck_leaves();
    pin(streams[1]);
    ck_assert(_i > 0 ? sw_play.gpu.stream == streams[1] : sw_play.gpu.stream && sw_play.gpu.stream != streams[1]);
    unpin(streams[1]);
    end();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_pool_streams");
    TCase *streams_case = tcase_create("streams");
    tcase_add_test(streams_case, stays_until_its_stream_has_passed);
    tcase_add_test(streams_case, later_work_does_not_count);
    tcase_add_test(streams_case, every_stream_has_to_pass);
    tcase_add_test(streams_case, waits_for_streams_if_it_may);
    tcase_add_test(streams_case, waits_for_streams_by_itself);
    tcase_add_test(streams_case, waits_for_streams_as_long_as_that_helps);
    tcase_add_test(streams_case, the_default_stream_counts);
    tcase_add_loop_test(streams_case, work_of_a_context_that_is_gone_does_not_count, 0, 2);
    tcase_add_test(streams_case, captured_streams_are_refused);
    tcase_add_test(streams_case, calls_that_fail_keep_the_pin);
    tcase_add_test(streams_case, freed_memory_waits_for_its_stream);
    tcase_add_test(streams_case, waits_for_streams_of_freed_memory);
    tcase_add_test(streams_case, adopted_memory_waits_for_its_stream);
    tcase_add_test(streams_case, the_allocator_gets_the_stream);
    tcase_add_test(streams_case, memory_comes_from_the_gpu);
    tcase_add_test(streams_case, the_thread_keeps_its_context);
    tcase_add_test(streams_case, a_gpu_of_a_pool_that_does_not_exist);
    tcase_add_loop_test(streams_case, a_restore_follows_the_stream_of_the_allocator, 0, 3);
    suite_add_tcase(suite, streams_case);
    return sw_test_run(suite, CK_FORK);
}
