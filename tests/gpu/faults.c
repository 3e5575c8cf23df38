/* faults.c - the CUDA device on a real GPU while calls of the runtime fail: the error has a name, the GPU has as much
 * free memory afterwards, and the device works on.
 *
 * The linker sends the calls by way of this test (CMakeLists.txt). What fails is refused, not broken: kernels that
 * really fault would end the context for all that follow. tests/fault/cuda.c, on a fake, does the same to the driver's
 * calls and with dead contexts. Nobody else may use the GPU. One process, one CUDA context. */
#include "spill/device/device_cuda_map.h"
#include "spill/tier/tier.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"

#include <check.h>
#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CHUNK_BYTES = 64 << 10, BYTES = 50001, ROOM_BYTES = 128 << 10 };

/* ---- calls that fail ---- */

static unsigned nth, fired; /* the nth call from now on */
static cudaError_t error;

static cudaError_t hit(void) {
    if (nth == 0 || --nth > 0)
        return cudaSuccess;
    fired++;
    return error;
}

#define FAILS(name, parameters, arguments)                                                                             \
    cudaError_t __real_##name parameters;                                                                              \
    cudaError_t __wrap_##name parameters;                                                                              \
    cudaError_t __wrap_##name parameters {                                                                             \
        const cudaError_t e = hit();                                                                                   \
        return e != cudaSuccess ? e : __real_##name arguments;                                                         \
    }
FAILS(cudaMalloc, (void **ret, size_t bytes), (ret, bytes))
FAILS(cudaHostAlloc, (void **ret, size_t bytes, unsigned flags), (ret, bytes, flags))
FAILS(cudaHostRegister, (void *memory, size_t bytes, unsigned flags), (memory, bytes, flags))
FAILS(cudaMemsetAsync, (void *memory, int value, size_t bytes, cudaStream_t stream), (memory, value, bytes, stream))
FAILS(cudaMemcpyAsync, (void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind, cudaStream_t stream),
      (to, from, bytes, kind, stream))
FAILS(cudaStreamCreateWithFlags, (cudaStream_t * ret, unsigned flags), (ret, flags))
FAILS(cudaStreamQuery, (cudaStream_t stream), (stream))
FAILS(cudaStreamSynchronize, (cudaStream_t stream), (stream))
FAILS(cudaStreamWaitEvent, (cudaStream_t stream, cudaEvent_t event, unsigned flags), (stream, event, flags))
FAILS(cudaEventCreateWithFlags, (cudaEvent_t * ret, unsigned flags), (ret, flags))
FAILS(cudaEventRecord, (cudaEvent_t event, cudaStream_t stream), (event, stream))
FAILS(cudaEventSynchronize, (cudaEvent_t event), (event))
FAILS(cudaGetLastError, (void), ()) /* by which launches tell */

static const struct {
    const char *name;
    cudaError_t error;
} errors[] = {{"out of memory", cudaErrorMemoryAllocation}, {"invalid value", cudaErrorInvalidValue}};
enum { N_ERRORS = sizeof errors / sizeof errors[0] };

static void arm(unsigned call, int i) {
    error = errors[i].error;
    fired = 0;
    nth = call;
}

static void disarm(void) {
    nth = 0;
}

static bool is_named(int rc, int i) {
    return rc == -SW_EGPU || (rc == -SW_ENOMEM && errors[i].error == cudaErrorMemoryAllocation);
}

static void cuda_ok(cudaError_t e, const char *call) {
    ck_assert_msg(e == cudaSuccess, "%s: %s", call, cudaGetErrorString(e));
}
#define CUDA(call) cuda_ok((call), #call)

static size_t free_bytes(void) {
    size_t available = 0, total = 0;
    CUDA(cudaMemGetInfo(&available, &total));
    return available;
}

static int open_device(struct sw_device **ret) {
    const struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = CHUNK_BYTES};
    struct sw_err err = {0};
    const int rc = sw_device_cuda_open(ret, 0, &config, &err);
    ck_assert(rc == 0 || err.msg[0]);
    return rc;
}

/* All of the first calls, then fewer and fewer, because most are those of the self-test, codec by codec. */
START_TEST(opening) {
    struct sw_device *device;
    unsigned failed = 0;
    ck_assert_int_eq(open_device(&device), 0); /* lasting allocations are made */
    device->ops->close(device);
    const size_t before = free_bytes();
    for (unsigned call = 1;; call += 1 + call / 10) {
        arm(call, _i);
        const int rc = open_device(&device);
        disarm();
        if (rc == 0)
            device->ops->close(device);
        ck_assert_msg(rc == 0 || is_named(rc, _i), "call %u: %s", call, sw_err_name(rc));
        ck_assert_msg(free_bytes() == before, "call %u: %zu bytes free, were %zu", call, free_bytes(), before);
        failed += rc != 0;
        if (!fired)
            break;
    }
    ck_assert_uint_gt(failed, 20);
}
END_TEST

/* ---- a device at work ---- */

static struct sw_device *device;
static struct sw_mapping from, to;
static uint8_t *content, *room; /* room: an arena */

static void open_all(void) {
    void *d_from, *d_to;
    struct sw_err err;
    ck_assert_int_eq(open_device(&device), 0);
    CUDA(cudaMalloc(&d_from, BYTES));
    CUDA(cudaMalloc(&d_to, BYTES));
    from = (struct sw_mapping){.address = (uintptr_t)d_from, .bytes = BYTES};
    to = (struct sw_mapping){.address = (uintptr_t)d_to, .bytes = BYTES};
    content = malloc(BYTES);
    room = aligned_alloc(4096, ROOM_BYTES);
    ck_assert(content && room);
    sw_content_fill(content, BYTES, SW_CONTENT_TEXT, 3);
    CUDA(cudaMemcpy(d_from, content, BYTES, cudaMemcpyHostToDevice));
    CUDA(cudaDeviceSynchronize());
    ck_assert_int_eq(device->ops->pin(device, room, ROOM_BYTES, &err), 0);
}

static void close_all(void) {
    device->ops->unpin(device, room, ROOM_BYTES);
    device->ops->close(device);
    CUDA(cudaFree(sw_cuda_at(&from, 0)));
    CUDA(cudaFree(sw_cuda_at(&to, 0)));
    free(content);
    free(room);
}

/* Waits whatever the step has returned: a part of it may run. */
static int end(int rc, struct sw_slot_result *ret) {
    struct sw_err err;
    const int waited = device->ops->slot_wait(device, 0, ret, &err);
    return rc < 0 ? rc : waited;
}

static int ck_to(int rc) {
    static uint8_t found[BYTES];
    if (rc < 0)
        return rc;
    disarm();
    CUDA(cudaMemcpy(found, sw_cuda_at(&to, 0), BYTES, cudaMemcpyDeviceToHost));
    ck_assert_int_eq(memcmp(found, content, BYTES), 0);
    CUDA(cudaMemset(sw_cuda_at(&to, 0), 0xEE, BYTES));
    CUDA(cudaDeviceSynchronize());
    return 0;
}

/* Out and back by the codec. */
static int encoded(void) {
    const struct sw_device_ops *ops = device->ops;
    struct sw_slot_result made = {0}, result;
    struct sw_frame_layout layout;
    struct sw_plan plan;
    struct sw_err err;
    int rc = end(ops->make_plan(device, 0, SW_VALUE_NONE, false, &from, 0, BYTES, &err), &result);
    plan = *ops->plan(device, 0);
    if (rc == 0)
        rc = end(ops->encode(device, 0, &plan, &from, 0, BYTES, &err), &made);
    if (rc == 0)
        rc = end(ops->store(device, 0, room, 0, made.frame.frame_bytes, &err), &result);
    if (rc < 0)
        return rc;
    ck_assert_int_eq(sw_frame_parse(&layout, room, made.frame.frame_bytes, made.frame.frame_bytes, &err), 0);
    rc = end(ops->load(device, 0, room, 0, layout.frame_bytes, &err), &result);
    if (rc == 0)
        rc = end(ops->decode(device, 0, &to, &(struct sw_decode_item){.layout = &layout}, 1, &err), &result);
    return ck_to(rc);
}

/* Out and back by the copy engines. */
static int raw(void) {
    const struct sw_device_ops *ops = device->ops;
    struct sw_raw_item item = {.offset = 0};
    struct sw_slot_result result;
    struct sw_err err;
    sw_frame_layout_init(&item.frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, BYTES, 0);
    struct sw_extent extent = {.memory = room, .bytes = item.frame.frame_bytes};
    const struct sw_stored stored = {.extents = &extent, .n_extents = 1, .bytes = extent.bytes};
    item.stored = &stored;
    int rc = end(ops->spill_raw(device, 0, &from, &item, 1, 0, &err), &result);
    if (rc == 0)
        rc = end(ops->restore_raw(device, 0, &to, &item, 1, 0, &err), &result);
    return ck_to(rc);
}

static int (*const works[])(void) = {encoded, raw};

START_TEST(at_work) {
    open_all();
    const size_t before = free_bytes();
    for (int work = 0; work < 2; work++) {
        unsigned failed = 0;
        ck_assert_int_eq(works[work](), 0);
        for (unsigned call = 1;; call++) {
            arm(call, _i);
            const int rc = works[work]();
            disarm();
            ck_assert_msg(rc == 0 || is_named(rc, _i), "work %d, call %u: %s", work, call, sw_err_name(rc));
            failed += rc != 0;
            ck_assert_int_eq(works[work](), 0);
            if (!fired)
                break;
        }
        ck_assert_uint_gt(failed, 5);
    }
    ck_assert_uint_eq(free_bytes(), before);
    close_all();
}
END_TEST

int main(void) {
    if (sw_device_cuda_count() == 0) {
        (void)puts("skipped: no GPU");
        return 77;
    }
    TCase *cases = tcase_create("faults");
    tcase_set_timeout(cases, 0);
    tcase_add_loop_test(cases, opening, 0, N_ERRORS);
    tcase_add_loop_test(cases, at_work, 0, N_ERRORS);
    Suite *suite = suite_create("gpu faults");
    suite_add_tcase(suite, cases);
    return sw_test_run(suite, CK_NOFORK);
}
