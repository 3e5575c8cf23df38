/* How the client library marks the caller's stream, on a CUDA driver that the test plays call by call. */
#include "tests/lib/played_cuda.h"
#include "tests/lib/run.h"

#include <stdatomic.h>
#include <string.h>

/* ---- the played driver ------------------------------------------------------------------------------------------- */

enum { DATA = 0x1000, CONTEXT = 0x10, OTHER_CONTEXT = 0x20, STREAM = 0x100, STAND_IN = 0x200 };

static struct driver {
    CUresult captures, writes, launches, registers;
    CUstreamCaptureStatus status;
    unsigned flags;     /* of streams */
    bool is_idle;       /* streams are */
    bool is_registered; /* the page is */
    CUstreamCaptureMode mode;
    uintptr_t stream_context;
    unsigned n_queried, n_registered, n_writes, n_launches, n_created, n_destroyed, n_pushed;
    CUstream stream; /* of the last write or launch */
    CUdeviceptr address;
    uint64_t value;
    CUhostFn callback;
    void *callback_arg;
} driver;

static CUresult attributes(unsigned n, CUpointer_attribute *names, void **values, CUdeviceptr address) {
    for (unsigned i = 0; i < n; i++) {
        if (names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)values[i] = CU_MEMORYTYPE_DEVICE;
        if (names[i] == CU_POINTER_ATTRIBUTE_CONTEXT)
            *(CUcontext *)values[i] = sw_played_context(CONTEXT);
    }
    return address == DATA ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult push(CUcontext context) {
    ck_assert(context == sw_played_context(driver.stream_context));
    driver.n_pushed++;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret) {
    *ret = sw_played_context(CONTEXT);
    driver.n_pushed--;
    return CUDA_SUCCESS;
}

static CUresult stream_context(CUstream stream, CUcontext *ret) {
    ck_assert(stream == sw_played_stream(STREAM));
    *ret = sw_played_context(driver.stream_context);
    return CUDA_SUCCESS;
}

static CUresult stream_flags(CUstream stream, unsigned *ret) {
    *ret = stream == sw_played_stream(STREAM) ? driver.flags : CU_STREAM_DEFAULT;
    return CUDA_SUCCESS;
}

static CUresult stream_query(CUstream stream) {
    ck_assert(stream == sw_played_stream(STREAM));
    driver.n_queried++;
    return driver.is_idle ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}

static CUresult stream_captures(CUstream stream, CUstreamCaptureStatus *ret) {
    (void)stream;
    *ret = driver.status;
    return driver.captures;
}

static CUresult capture_mode(CUstreamCaptureMode *mode) {
    const CUstreamCaptureMode before = driver.mode;
    driver.mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags) {
    ck_assert_uint_eq(flags, CU_STREAM_DEFAULT); /* a blocking one */
    ck_assert_int_eq(driver.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    *ret = sw_played_stream(STAND_IN + driver.n_created++);
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream) {
    (void)stream;
    driver.n_destroyed++;
    return CUDA_SUCCESS;
}

static CUresult host_register(void *page, size_t bytes, unsigned flags) {
    (void)page;
    ck_assert_uint_eq(bytes, SW_MARK_PAGE_WORDS * sizeof(uint64_t));
    ck_assert(flags & CU_MEMHOSTREGISTER_PORTABLE);
    ck_assert_int_eq(driver.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    driver.n_registered++;
    driver.is_registered = driver.registers == CUDA_SUCCESS;
    return driver.registers;
}

static CUresult host_pointer(CUdeviceptr *ret, void *page, unsigned flags) {
    ck_assert_uint_eq(flags, 0);
    *ret = (uintptr_t)page;
    return driver.is_registered ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult write_value(CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags) {
    ck_assert_uint_eq(flags, CU_STREAM_WRITE_VALUE_DEFAULT); /* with its barrier */
    ck_assert_int_eq(driver.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    ck_assert_uint_eq(driver.n_pushed, 1);
    driver.n_writes++;
    driver.stream = stream;
    driver.address = address;
    driver.value = value;
    return driver.writes;
}

static CUresult launch_host(CUstream stream, CUhostFn callback, void *arg) {
    driver.n_launches++;
    driver.stream = stream;
    driver.callback = callback;
    driver.callback_arg = arg;
    return driver.launches;
}

static CUresult stream_synchronize(CUstream stream) {
    (void)stream;
    ck_abort_msg("nothing is waited for");
    return CUDA_SUCCESS;
}

static struct sw_cuda *cuda;

static void setup(void) {
    driver = (struct driver){.flags = CU_STREAM_NON_BLOCKING,
                             .mode = CU_STREAM_CAPTURE_MODE_GLOBAL,
                             .stream_context = CONTEXT,
                             .is_registered = true};
    cuda = sw_played_cuda(&(struct sw_cuda){.attributes = attributes,
                                            .push = push,
                                            .pop = pop,
                                            .stream_context = stream_context,
                                            .stream_flags = stream_flags,
                                            .stream_query = stream_query,
                                            .stream_captures = stream_captures,
                                            .capture_mode = capture_mode,
                                            .stream_create = stream_create,
                                            .stream_destroy = stream_destroy,
                                            .stream_synchronize = stream_synchronize,
                                            .host_register = host_register,
                                            .host_pointer = host_pointer,
                                            .write_value = write_value,
                                            .launch_host = launch_host});
}

static void teardown(void) {
    ck_assert_int_eq(driver.mode, CU_STREAM_CAPTURE_MODE_GLOBAL); /* as it was */
    ck_assert_uint_eq(driver.n_pushed, 0);
    sw_cuda_free(cuda);
    ck_assert_uint_eq(driver.n_destroyed, driver.n_created);
}

static struct sw_err err;

/* Returns the mark, which is the caller's; NULL: there is none. */
static struct sw_mark *order(CUstream stream, const struct sw_marks *known, int code) {
    struct sw_export e = {.kind = SW_MEM_CUDA_IPC};
    const void *data;
    const uintptr_t address = DATA;
    memcpy(&data, &address, sizeof data);
    ck_assert_int_eq(sw_cuda_order(&e, &cuda, known, data, stream, &err), code);
    ck_assert(code == 0 || !e.mark);
    return e.mark;
}

static void ck_written(struct sw_mark *mark) {
    ck_assert_ptr_nonnull(mark);
    ck_assert(!sw_mark_is_reached(mark));
    ck_assert(driver.address == (uintptr_t)sw_mark_address(mark));
    ck_assert_uint_eq(driver.value, sw_mark_value(mark));
    sw_mark_write(mark);
    sw_mark_unref(mark);
}

/* ---- what is marked ---------------------------------------------------------------------------------------------- */

START_TEST(a_stream_writes_its_mark) {
    const CUstream streams[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD, sw_played_stream(STREAM)};
    for (unsigned i = 0; i < 4; i++) {
        ck_written(order(streams[i], NULL, 0));
        ck_assert(driver.stream == streams[i]);
        ck_assert_uint_eq(driver.n_writes, i + 1);
    }
    ck_assert_uint_eq(driver.n_registered + driver.n_launches, 0);
}
END_TEST

START_TEST(an_idle_stream_needs_no_mark) {
    driver.is_idle = true;
    ck_assert_ptr_null(order(sw_played_stream(STREAM), NULL, 0));
    ck_assert_ptr_null(cuda->page); /* not even a page */
    ck_written(order(NULL, NULL, 0));
    driver.flags = CU_STREAM_DEFAULT; /* may wait for others */
    ck_written(order(sw_played_stream(STREAM), NULL, 0));
    ck_assert_uint_eq(driver.n_queried, 1);
}
END_TEST

/* The page is registered when it is first needed, and again when that has gone with its context. */
START_TEST(the_page_is_registered_once) {
    driver.is_registered = false;
    for (unsigned i = 0; i < 3; i++)
        ck_written(order(NULL, NULL, 0));
    ck_assert_uint_eq(driver.n_registered, 1);
    driver.is_registered = false;
    ck_written(order(NULL, NULL, 0));
    ck_assert_uint_eq(driver.n_registered, 2);
}
END_TEST

static void ck_called_back(void) {
    struct sw_mark *mark = order(sw_played_stream(STREAM), NULL, 0);
    ck_assert(!sw_mark_is_reached(mark));
    ck_assert(driver.stream == sw_played_stream(STREAM));
    driver.callback(driver.callback_arg);
    ck_assert(sw_mark_is_reached(mark));
    sw_mark_unref(mark);
}

START_TEST(without_stream_writes_the_driver_calls_back) {
    driver.writes = CUDA_ERROR_NOT_SUPPORTED;
    ck_called_back();
    driver.writes = CUDA_SUCCESS;
    driver.is_registered = false; /* nor can the page be had on the GPU */
    driver.registers = CUDA_ERROR_OUT_OF_MEMORY;
    ck_called_back();
    ck_assert_uint_eq(driver.n_launches, 2);
    ck_assert_uint_eq(driver.n_writes, 1);
}
END_TEST

/* Its word is not lost: no stream will write it. */
START_TEST(a_mark_that_cannot_be_queued_is_an_error) {
    driver.writes = driver.launches = CUDA_ERROR_LAUNCH_FAILED;
    for (unsigned i = 0; i < 2 * SW_MARK_PAGE_WORDS; i++)
        ck_assert_ptr_null(order(NULL, NULL, -SW_EGPU));
    ck_assert_int_eq(err.cuda, CUDA_ERROR_LAUNCH_FAILED);
    driver.writes = CUDA_SUCCESS;
    ck_written(order(NULL, NULL, 0));
}
END_TEST

/* A word of the host's memory can be written from any GPU: nothing is waited for. */
START_TEST(a_stream_of_another_gpu_writes_its_mark) {
    driver.stream_context = OTHER_CONTEXT;
    ck_written(order(sw_played_stream(STREAM), NULL, 0));
}
END_TEST

START_TEST(one_mark_stands_for_all_in_its_context) {
    struct sw_marks known = {.n = 1};
    known.marks[0] = order(NULL, NULL, 0);
    struct sw_mark *again = order(NULL, &known, 0);
    ck_assert_ptr_eq(again, known.marks[0]);
    ck_assert_uint_eq(driver.n_writes, 1);
    driver.stream_context = OTHER_CONTEXT;
    struct sw_mark *other = order(sw_played_stream(STREAM), &known, 0);
    ck_assert_ptr_ne(other, again);
    ck_written(other);
    sw_mark_write(again);
    sw_mark_unref(again);
    sw_mark_unref(known.marks[0]);
}
END_TEST

/* ---- captures ---------------------------------------------------------------------------------------------------- */

START_TEST(a_captured_stream_is_refused) {
    driver.status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    ck_assert_ptr_null(order(sw_played_stream(STREAM), NULL, -SW_EINVAL));
    driver.status = CU_STREAM_CAPTURE_STATUS_INVALIDATED;
    ck_assert_ptr_null(order(sw_played_stream(STREAM), NULL, -SW_EINVAL));
    ck_assert_uint_eq(driver.n_writes + driver.n_launches, 0);
}
END_TEST

/* One for each context, however often. */
START_TEST(a_stream_stands_in_for_the_default_one_beside_a_capture) {
    driver.captures = CUDA_ERROR_STREAM_CAPTURE_IMPLICIT;
    for (unsigned i = 0; i < 3; i++) {
        ck_written(order(NULL, NULL, 0));
        ck_assert(driver.stream == sw_played_stream(STAND_IN));
    }
    ck_assert_uint_eq(driver.n_created, 1);
    driver.captures = CUDA_SUCCESS;
    ck_written(order(NULL, NULL, 0));
    ck_assert(driver.stream == NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_mark");
    TCase *tcase = tcase_create("cuda_mark");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_stream_writes_its_mark);
    tcase_add_test(tcase, an_idle_stream_needs_no_mark);
    tcase_add_test(tcase, the_page_is_registered_once);
    tcase_add_test(tcase, without_stream_writes_the_driver_calls_back);
    tcase_add_test(tcase, a_mark_that_cannot_be_queued_is_an_error);
    tcase_add_test(tcase, a_stream_of_another_gpu_writes_its_mark);
    tcase_add_test(tcase, one_mark_stands_for_all_in_its_context);
    tcase_add_test(tcase, a_captured_stream_is_refused);
    tcase_add_test(tcase, a_stream_stands_in_for_the_default_one_beside_a_capture);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
