/* Short runs in groups through the codec in an engine's process, on a GPU that is none (tests/lib/fake_cuda): which
 * kernels and events a batch needs, and what becomes of it when frames are bad, or the GPU is full or gone. The test is
 * the engine and the service, which keeps frames. */
#include "base/clock.h"
#include "ipc/client/coder.h"
#include "ipc/client/coder_memory.h"
#include "tests/lib/content.h"
#include "tests/lib/fake_cuda/coder.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include "tests/lib/run.h"

#include <check.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

enum { N = 100, MOST = 40 << 10, BYTES = N * MOST, CHUNK = 1 << 20 };

static struct sw_coder *coder;
static struct sw_coder_user user;
static struct sw_coder_place place;
static uint8_t *data, *original; /* data: on the GPU */
static struct sw_coder_run runs[N];
static unsigned n_used = N; /* runs */
static char owners[2];      /* whose the runs are, by turns */
static unsigned n_owners = 1;
static unsigned n_groups, n_singles, n_disputed;
static bool is_random; /* content that does not shrink, among content that does */
/* What the service has, and does wrong. */
static uint8_t *stored[N];
static struct sw_frame_layout layouts[N];
static unsigned refused, spoilt; /* of the next group, from 1: the frame that it does not take or send, or spoils */

static uint64_t bytes_of(unsigned i) {
    return i % 7 == 0 ? MOST : 1 + i * 131;
}

static void wake(struct sw_coder_user *u) {
    (void)u;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

static void take(const struct sw_coder_event *event, unsigned i, const uint8_t *frames) {
    const unsigned k = event->runs[i]->item;
    ck_assert_uint_eq(event->at[i] % SW_FRAME_STEP_BYTES, 0);
    ck_assert(i == 0 || event->at[i] == event->at[i - 1] + sw_frame_step_bytes(event->bytes[i - 1]));
    layouts[k] = event->runs[i]->run.frames->layouts[0];
    ck_assert_uint_eq(layouts[k].frame_bytes, event->bytes[i]);
    free(stored[k]);
    stored[k] = malloc(event->bytes[i]);
    memcpy(stored[k], frames + event->at[i], event->bytes[i]);
}

/* The last bytes are padding. */
static void spoil(uint8_t *frame, const struct sw_frame_layout *layout) {
    for (unsigned i = 1; i <= 40; i++)
        frame[layout->frame_bytes - i] ^= 0x55;
}

/* The frames follow each other from the first room on. */
static void give(struct sw_coder_event *event, unsigned i, uint8_t *frames, uint64_t *at) {
    const unsigned k = event->runs[i]->item;
    const struct sw_frame_layout *layout = &layouts[k];
    ck_assert_uint_le(*at + layout->frame_bytes, event->at[i] + event->bytes[i]);
    event->at[i] = *at;
    *at += sw_frame_step_bytes(layout->frame_bytes);
    memcpy(frames + event->at[i], stored[k], layout->frame_bytes);
    if (i + 1 == spoilt)
        spoil(frames + event->at[i], layout);
    event->runs[i]->run.frames->layouts[0] = *layout;
    event->runs[i]->run.frames->raw_bytes = layout->raw_bytes;
}

static void carry_out(struct sw_coder_event *event) {
    uint64_t bytes, at = event->at[0];
    int fd;
    uint8_t *frames = sw_coder_frames(coder, &bytes, &fd);
    (event->items ? n_groups++ : n_singles++);
    n_disputed += event->is_disputed;
    for (unsigned i = 0; i < event->n; i++) {
        ck_assert_ptr_eq(event->runs[i]->owner, event->runs[0]->owner);
        if (event->items && i + 1 == refused)
            (void)sw_err_set(&event->runs[i]->refused, -SW_ENOENT, SW_SCOPE_REQUEST, "the service refuses");
        else if (event->kind == SW_CODER_SEND)
            take(event, i, frames);
        else
            give(event, i, frames, &at);
    }
    refused = spoilt = 0;
    sw_coder_event_done(coder, event, NULL);
}

static void take_events(void) {
    for (struct sw_coder_event *event; (event = sw_coder_next_event(coder, &user));)
        carry_out(event);
}

static void serve(struct sw_coder_user *u) {
    (void)u; /* the test's thread takes all events */
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void add_all(enum sw_operation operation) {
    struct sw_coder_run *all[N];
    memset(runs, 0, sizeof runs);
    for (unsigned i = 0; i < n_used; i++) {
        struct sw_coder_run *run = all[i] = &runs[i];
        run->user = &user;
        run->owner = &owners[i % n_owners];
        run->goes_in_groups = true;
        run->item = i;
        run->request = (struct sw_request){.operation = operation, .session = 1};
        run->buffer.chunk_bytes = operation == SW_OP_SPILL ? CHUNK : 0;
        run->buffer.bytes = bytes_of(i);
        run->memory.data = data + (size_t)i * MOST;
        if (operation == SW_OP_RESTORE)
            run->run.frames = sw_frames_new(bytes_of(i), CHUNK, false);
    }
    sw_coder_add(coder, all, n_used);
}

static unsigned n_over(void) {
    unsigned n = 0;
    for (unsigned i = 0; i < n_used; i++)
        n += atomic_load_explicit(&runs[i].is_over, memory_order_acquire);
    return n;
}

/* Returns how many runs have failed; all with the same code. */
static unsigned finish(int *ret_code) {
    unsigned n_failed = 0;
    while (n_over() < n_used) {
        (void)sw_coder_step(coder);
        take_events();
        (void)sched_yield();
    }
    for (unsigned i = 0; i < n_used; i++) {
        const int code = runs[i].run.outcome.err.code;
        ck_assert(!code || !n_failed || code == *ret_code);
        n_failed += code != 0;
        *ret_code = code ? code : *ret_code;
        sw_coder_run_fini(&runs[i]);
    }
    return n_failed;
}

static unsigned move(enum sw_operation operation, int *ret_code) {
    *ret_code = 0;
    if (operation == SW_OP_SPILL)
        memcpy(data, original, BYTES);
    else
        memset(data, 0xEE, BYTES);
    add_all(operation);
    return finish(ret_code);
}

static void ck_back(unsigned but) {
    for (unsigned i = 0; i < N; i++)
        ck_assert_int_eq(i == but || memcmp(data + (size_t)i * MOST, original + (size_t)i * MOST, bytes_of(i)) == 0, 1);
}

static void there_and_back(void) {
    int code;
    ck_assert_msg(move(SW_OP_SPILL, &code) == 0, "%s", sw_err_name(code));
    ck_assert_msg(move(SW_OP_RESTORE, &code) == 0, "%s", sw_err_name(code));
    ck_back(N);
}

static void fill(void) {
    for (unsigned i = 0; i < N; i++)
        sw_content_fill(original + (size_t)i * MOST, MOST,
                        is_random && i % 3 == 0 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, i);
}

static void setup(void) {
    place = (struct sw_coder_place){.context = sw_fake_context()};
    data = sw_fake_memory_new(BYTES);
    original = malloc(BYTES);
    fill();
    coder = sw_fake_coder_get(&place);
    user = (struct sw_coder_user){.wake = wake, .serve = serve};
    sw_list_init(&user.node);
    sw_list_init(&user.events);
    sw_coder_add_user(coder, &user);
    sw_coder_be_patient(coder, true); /* on a busy machine the fake's kernels begin late */
}

static void teardown(void) {
    sw_coder_be_patient(coder, false);
    sw_coder_remove_user(coder, &user);
    sw_coder_put(coder);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->violations), 0);
    for (unsigned i = 0; i < N; i++)
        free(stored[i]);
    free(original);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static int count(enum sw_fake_call call) {
    return atomic_load(&sw_fake_cuda->calls[call]);
}

/* With a plan there are two kernels and one event out, one kernel and one event back. */
START_TEST(a_batch_needs_few_kernels_and_one_event) {
    int code;
    there_and_back();
    n_groups = n_singles = 0;
    const int encoded = count(SW_FAKE_sw_gpu_encode_batch_async), gathered = count(SW_FAKE_sw_gpu_copy_async),
              decoded = count(SW_FAKE_sw_gpu_decode_batch_async);
    ck_assert_uint_eq(move(SW_OP_SPILL, &code), 0);
    ck_assert_uint_eq(n_groups, 1);
    ck_assert_int_le(count(SW_FAKE_sw_gpu_encode_batch_async), encoded + 2); /* the shortest ones do not shrink */
    ck_assert_int_eq(count(SW_FAKE_sw_gpu_copy_async), gathered + 1);
    ck_assert_uint_eq(move(SW_OP_RESTORE, &code), 0);
    ck_assert_uint_eq(n_groups, 2);
    ck_assert_uint_eq(n_singles, 0);
    ck_assert_int_eq(count(SW_FAKE_sw_gpu_decode_batch_async), decoded + 1);
    ck_back(N);
}
END_TEST

/* Without a batch's items, which are copied to the GPU first, and without a kernel that gathers frames. */
START_TEST(a_single_region_takes_one_kernel_each_way) {
    int code;
    n_used = 1;
    ck_assert_int_eq(move(SW_OP_SPILL, &code), 0); /* which makes the plan */
    ck_assert_int_eq(move(SW_OP_RESTORE, &code), 0);
    const int encoded = count(SW_FAKE_sw_gpu_encode_async), decoded = count(SW_FAKE_sw_gpu_decode_async),
              others = count(SW_FAKE_sw_gpu_encode_batch_async) + count(SW_FAKE_sw_gpu_decode_batch_async) +
                       count(SW_FAKE_sw_gpu_copy_async);
    ck_assert_int_eq(move(SW_OP_SPILL, &code), 0);
    ck_assert_int_eq(count(SW_FAKE_sw_gpu_encode_async), encoded + 1);
    ck_assert_int_eq(move(SW_OP_RESTORE, &code), 0);
    ck_assert_int_eq(count(SW_FAKE_sw_gpu_decode_async), decoded + 1);
    ck_assert_int_eq(count(SW_FAKE_sw_gpu_encode_batch_async) + count(SW_FAKE_sw_gpu_decode_batch_async) +
                         count(SW_FAKE_sw_gpu_copy_async),
                     others);
    ck_assert_int_eq(memcmp(data, original, bytes_of(0)), 0);
}
END_TEST

/* A call whose client's connection has ended drops its events, and no other's. */
START_TEST(each_owner_has_events_of_its_own) {
    n_owners = 2;
    there_and_back();
    n_groups = n_singles = 0;
    there_and_back();
    ck_assert_uint_ge(n_groups, 4);
}
END_TEST

START_TEST(contents_of_several_kinds_come_back) {
    is_random = true;
    fill();
    for (unsigned round = 0; round < 4; round++)
        there_and_back();
}
END_TEST

/* The loop's index: a spill, or a restore. */
START_TEST(a_frame_that_is_refused_fails_alone) {
    int code;
    there_and_back();
    refused = 8;
    ck_assert_uint_eq(move(_i ? SW_OP_RESTORE : SW_OP_SPILL, &code), 1);
    ck_assert_int_eq(code, -SW_ENOENT);
    if (_i)
        ck_back(7);
    there_and_back();
}
END_TEST

/* It is fetched again, alone. */
START_TEST(a_frame_that_is_spoilt_on_its_way_comes_back) {
    int code;
    there_and_back();
    n_singles = 0;
    spoilt = 15;
    ck_assert_uint_eq(move(SW_OP_RESTORE, &code), 0);
    ck_assert_uint_eq(n_singles, 1);
    ck_assert_uint_eq(n_disputed, 0);
    ck_back(N);
}
END_TEST

/* The service has it so. */
START_TEST(a_bad_frame_is_disputed_and_fails_alone) {
    int code;
    there_and_back();
    spoil(stored[14], &layouts[14]);
    ck_assert_uint_eq(move(SW_OP_RESTORE, &code), 1);
    ck_assert_int_eq(code, -SW_ECHECKSUM);
    ck_assert_uint_eq(n_disputed, 1);
    ck_back(14);
    for (unsigned i = 0; i < 4; i++) /* in each slot: no other frame is disputed */
        there_and_back();
    ck_assert_uint_eq(n_disputed, 1);
}
END_TEST

/* A layout that is not the frame's, or no layout of such a buffer. */
START_TEST(a_wrong_layout_fails_alone) {
    int code;
    there_and_back();
    layouts[21].raw_bytes = bytes_of(21) + 1;
    ck_assert_uint_eq(move(SW_OP_RESTORE, &code), 1);
    ck_assert_int_eq(code, -SW_EFRAME);
    ck_back(21);
}
END_TEST

static void fill_gpu(bool is_full) {
    atomic_store(&sw_fake_cuda->is_full, is_full);
    if (!is_full) /* waits for all that is queued */
        sw_fake_memory_free(sw_fake_memory_new(1));
}

/* The loop's index: a spill; a restore; a spill whose frames cannot be gathered; a restore whose frames have come. */
START_TEST(a_batch_is_given_up_on_a_full_gpu) {
    const enum sw_operation operation = _i % 2 ? SW_OP_RESTORE : SW_OP_SPILL;
    struct sw_coder_event *event = NULL;
    int code = 0;
    there_and_back();
    memcpy(data, original, BYTES);
    if (_i < 2)
        fill_gpu(true);
    if (_i == 2)
        sw_fake_arm(SW_FAKE_sw_gpu_copy_async, 1, 1 /* invalid value */, SW_FAKE_ONCE);
    add_all(operation);
    const uint64_t begun_us = sw_clock_us();
    sw_coder_be_patient(coder, false);
    if (_i == 3) {
        while (!(event = sw_coder_next_event(coder, &user)))
            (void)sw_coder_step(coder);
        fill_gpu(true);
        carry_out(event);
    }
    ck_assert_uint_eq(finish(&code), N);
    ck_assert_int_eq(code, -SW_EGPU);
    ck_assert_uint_lt(sw_clock_us() - begun_us, 20000000);
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    sw_fake_disarm();
    sw_coder_be_patient(coder, true);
    fill_gpu(false);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->stuck), 0);
    there_and_back();
}
END_TEST

/* The loop's index: 0 before an event, 1 with one under way. */
START_TEST(a_batch_fails_when_the_context_goes) {
    struct sw_coder_event *event = NULL;
    int code = 0;
    memcpy(data, original, BYTES);
    add_all(SW_OP_SPILL);
    while (_i && !(event = sw_coder_next_event(coder, &user)))
        (void)sw_coder_step(coder);
    sw_fake_context_destroy(true);
    if (event)
        sw_coder_event_done(coder, event, NULL);
    const unsigned n_failed = finish(&code);
    ck_assert(n_failed == 0 || code == -SW_EGPULOST);
    ck_assert(_i || n_failed == N);
}
END_TEST

START_TEST(a_canceled_batch_ends) {
    struct sw_coder_event *event = NULL;
    int code = 0;
    memcpy(data, original, BYTES);
    add_all(SW_OP_SPILL);
    while (!(event = sw_coder_next_event(coder, &user)))
        (void)sw_coder_step(coder);
    for (unsigned i = 0; i < N; i++)
        sw_coder_cancel(coder, &runs[i]);
    while (!atomic_load(&runs[0].is_abandoned))
        (void)sw_coder_step(coder);
    ck_assert_uint_lt(n_over(), N); /* the service has the buffer */
    carry_out(event);
    ck_assert_uint_gt(finish(&code), 0);
    ck_assert_int_eq(code, -SW_ECANCELED);
    there_and_back();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("coder's groups");
    TCase *tcase = tcase_create("groups");
    sw_test_slow(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_batch_needs_few_kernels_and_one_event);
    tcase_add_test(tcase, a_single_region_takes_one_kernel_each_way);
    tcase_add_test(tcase, each_owner_has_events_of_its_own);
    tcase_add_test(tcase, contents_of_several_kinds_come_back);
    tcase_add_loop_test(tcase, a_frame_that_is_refused_fails_alone, 0, 2);
    tcase_add_test(tcase, a_frame_that_is_spoilt_on_its_way_comes_back);
    tcase_add_test(tcase, a_bad_frame_is_disputed_and_fails_alone);
    tcase_add_test(tcase, a_wrong_layout_fails_alone);
    tcase_add_loop_test(tcase, a_batch_is_given_up_on_a_full_gpu, 0, 4);
    tcase_add_loop_test(tcase, a_batch_fails_when_the_context_goes, 0, 2);
    tcase_add_test(tcase, a_canceled_batch_ends);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
