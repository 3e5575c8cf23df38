/* The CUDA device against its contract, on a fake GPU (tests/lib/fake_cuda): cases that gpu_device cannot arrange. */
#include "base/alloc.h"
#include "base/clock.h"
#include "codec/identity.h"
#include "codec/onpair/onpair.h"
#include "tests/lib/content.h"
#include "tests/lib/dense_device.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include "tests/lib/fake_cuda/fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { CUDA_ERROR_UNKNOWN = 999, KIB = 1 << 10, BYTES = 300001, ARENA_BYTES = 1 << 20 };

static struct sw_device *device;
static struct sw_err err;

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", sw_err_name(rc), err.msg);
}

static void open_device(uint64_t chunk_bytes) {
    const struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = chunk_bytes};
    ok(sw_fixture_open_device(&device, &config, &err));
}

/* A slot's buffer has exactly the room that the device states, whatever the bound of a chunk's frame is. */
START_TEST(a_slots_buffer_has_its_stated_length) {
    uint8_t *frame = aligned_alloc(4096, 4096);
    struct sw_slot_result result;
    unsigned n_longer = 0;
    for (unsigned i = 1; i <= 16; i++) {
        open_device(i * 32 * KIB);
        const struct sw_device_info *info = device->ops->info(device);
        n_longer += info->buffer_bytes > sw_frame_bound_bytes(info->chunk_bytes);
        ok(device->ops->pin(device, frame, 4096, &err));
        ok(device->ops->load(device, 0, frame, info->buffer_bytes - 1024, 1024, &err));
        ok(device->ops->slot_wait(device, 0, &result, &err));
        device->ops->unpin(device, frame, 4096);
        device->ops->close(device);
    }
    ck_assert_uint_gt(n_longer, 0);
    free(frame);
}
END_TEST

/* All is done in the context that the device was opened with; the primary one is held as long as that is the one. */
START_TEST(a_device_works_in_its_context) {
    struct sw_device *other;
    const struct sw_device_config config = {
        .scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 * KIB, .cuda_context = sw_fake_context()};
    struct sw_slot_result result;
    open_device(64 * KIB);
    ck_assert_int_eq(sw_fake_retained(), 1);
    ck_assert_ptr_ne(sw_fake_current(), sw_fake_context());
    ok(sw_fixture_open_device(&other, &config, &err));
    ck_assert_int_eq(sw_fake_retained(), 1);
    ck_assert_ptr_eq(sw_fake_current(), sw_fake_context());
    ok(device->ops->canary(device, &err));
    ck_assert_ptr_ne(sw_fake_current(), sw_fake_context());
    ok(other->ops->slot_wait(other, 0, &result, &err));
    ck_assert_ptr_eq(sw_fake_current(), sw_fake_context());
    other->ops->close(other);
    device->ops->close(device);
    ck_assert_int_eq(sw_fake_retained(), 0);
}
END_TEST

/* In an engine's process: the memory and the frame buffers are the engine's, and kernels go before its own. */
START_TEST(a_guest_works_in_given_memory) {
    enum { SLOTS = 2, CHUNK = 2048 * KIB };
    const uint64_t stride = sw_device_frame_stride(CHUNK);
    uint8_t *frames = sw_fake_memory_new(SLOTS * stride), *data = sw_fake_memory_new(2 * CHUNK);
    struct sw_device_config config = {.scratch_bytes = 64 << 20,
                                      .n_slots = SLOTS,
                                      .chunk_bytes = CHUNK,
                                      .frames = frames,
                                      .frames_bytes = SLOTS * stride,
                                      .is_guest = true};
    struct sw_mapping *mapping = NULL;
    struct sw_slot_result result, ignored;
    struct sw_frame_layout layout;
    open_device(CHUNK);
    const uint64_t scratch_bytes = device->ops->info(device)->scratch_bytes;
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->calls[SW_FAKE_cudaStreamCreateWithPriority]), 0);
    device->ops->close(device);
    ok(sw_fixture_open_device(&device, &config, &err));
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->calls[SW_FAKE_cudaStreamCreateWithPriority]), SLOTS);
    ck_assert_uint_le(device->ops->info(device)->scratch_bytes, scratch_bytes - CHUNK);
    ck_assert_uint_eq(device->ops->info(device)->buffer_bytes, stride);
    ck_assert(device->ops->info(device)->learns_dictionaries);
    sw_content_fill(data, CHUNK, SW_CONTENT_TEXT, 1);
    ok(device->ops->adopt(device, data, 2 * CHUNK, &mapping, &err));
    ok(device->ops->make_plan(device, 1, SW_VALUE_NONE, false, mapping, 0, CHUNK, &err));
    ok(device->ops->slot_wait(device, 1, &ignored, &err));
    const struct sw_plan plan = *device->ops->plan(device, 1);
    ok(device->ops->encode(device, 1, &plan, mapping, 0, CHUNK, &err));
    ok(device->ops->slot_wait(device, 1, &result, &err));
    const uint64_t bytes = result.frame.frame_bytes;
    ck_assert_uint_lt(bytes, CHUNK);
    ok(sw_frame_parse(&layout, frames + stride, bytes, bytes, &err));
    const struct sw_decode_item item = {
        .layout = &layout, .frame_at = (stride - bytes) / SW_FRAME_ALIGN * SW_FRAME_ALIGN, .offset = CHUNK};
    memcpy(frames + item.frame_at, frames + stride, bytes); /* at the end of slot 0's */
    ok(device->ops->decode(device, 0, mapping, &item, 1, &err));
    ok(device->ops->slot_wait(device, 0, &ignored, &err));
    ck_assert_int_eq(memcmp(data, data + CHUNK, CHUNK), 0);
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    data[0] = frames[0] = 1; /* still there */
    config.frames_bytes--;
    ck_assert_int_eq(sw_fixture_open_device(&device, &config, &err), -SW_EINVAL);
    sw_fake_memory_free(frames);
    sw_fake_memory_free(data);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->held[SW_FAKE_DEVICE_MEMORY]), 0);
}
END_TEST

/* Its frame buffers have room to learn in. */
enum { LEARNING_CHUNK = 2048 * KIB };

/* It is copied to the slot that encodes by it. */
START_TEST(a_dictionary_goes_to_the_device) {
    enum { CHUNK = 1024 * KIB, TEXT_BYTES = 4 * CHUNK };
    uint8_t *text = sw_fake_memory_new(TEXT_BYTES), *out = sw_fake_memory_new(CHUNK);
    uint8_t *arena = aligned_alloc(4096, 2 * CHUNK);
    struct sw_mapping *from = NULL, *to = NULL;
    open_device(_i ? LEARNING_CHUNK : CHUNK);
    ck_assert(device->ops->info(device)->takes_dictionaries);
    ck_assert_int_eq(device->ops->info(device)->learns_dictionaries, _i);
    ok(device->ops->adopt(device, text, TEXT_BYTES, &from, &err));
    ok(device->ops->adopt(device, out, CHUNK, &to, &err));
    ok(device->ops->pin(device, arena, 2 * CHUNK, &err));
    sw_tpch_text_fill(text, 0, TEXT_BYTES, 1);
    sw_dense_device_ck(device, from, to, text, TEXT_BYTES, CHUNK, arena);
    ck_assert_int_eq(memcmp(out, text, CHUNK), 0);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->calls[SW_FAKE_sw_gpu_learn_async]), _i ? 3 : 0); /* the self-test's */
    device->ops->unpin(device, arena, 2 * CHUNK);
    device->ops->unmap(device, from);
    device->ops->unmap(device, to);
    device->ops->close(device);
    free(arena);
    sw_fake_memory_free(text);
    sw_fake_memory_free(out);
}
END_TEST

/* Makes a plan for all of a text on slot 0. */
static int plan_text(struct sw_mapping *mapping, uint64_t bytes) {
    struct sw_slot_result result;
    const int rc = device->ops->make_plan(device, 0, SW_VALUE_NONE, true, mapping, 0, bytes, &err);
    const int waited = device->ops->slot_wait(device, 0, &result, &err);
    return rc < 0 ? rc : waited;
}

/* Of the samples of all parts it learns the same dictionary as a host. */
START_TEST(a_gpu_learns_as_a_host_does) {
    enum { TEXT_BYTES = 48 << 20, PERIOD = 2 << 20, PARTS = 3 };
    static struct sw_frame_dictionary want;
    uint8_t *text = sw_fake_memory_new(TEXT_BYTES), *samples = malloc(PARTS * SW_SAMPLE_MAX_BYTES), *to = samples;
    struct sw_mapping *mapping = NULL;
    open_device(LEARNING_CHUNK);
    ok(device->ops->adopt(device, text, TEXT_BYTES, &mapping, &err));
    sw_tpch_text_fill(text, 0, PERIOD, 1);
    for (size_t at = PERIOD; at < TEXT_BYTES; at += PERIOD)
        memcpy(text + at, text, PERIOD);
    ok(plan_text(mapping, TEXT_BYTES));
    const struct sw_plan *plan = device->ops->plan(device, 0);
    ck_assert_int_eq(plan->codec, SW_CODEC_ONPAIR);
    for (unsigned i = 0; i < PARTS; i++) {
        const struct sw_sample_part part = sw_sample_part(TEXT_BYTES, PARTS, i);
        to += sw_sample_gather(to, text + part.offset, part.bytes, SW_SAMPLE_LONG_PIECE_BYTES);
    }
    ok(sw_onpair_learn(&want, samples, (size_t)(to - samples), SW_ONPAIR_PIECE_BYTES, SW_ONPAIR_MAX_SYMBOLS));
    ck_assert_uint_eq(plan->dictionary->bytes, want.bytes);
    ck_assert_mem_eq(plan->dictionary->data, want.data, want.bytes);
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    free(samples);
    sw_fake_memory_free(text);
}
END_TEST

/* Opens a guest that can learn in its frame buffer, *ret_frames, on slot 0. */
static void open_learning_guest(uint8_t **ret_frames) {
    const uint64_t stride = sw_device_frame_stride(LEARNING_CHUNK);
    *ret_frames = sw_fake_memory_new(stride);
    const struct sw_device_config config = {.scratch_bytes = 64 << 20,
                                            .n_slots = 1,
                                            .chunk_bytes = LEARNING_CHUNK,
                                            .frames = *ret_frames,
                                            .frames_bytes = stride,
                                            .is_guest = true};
    ok(sw_fixture_open_device(&device, &config, &err));
}

static atomic_ullong now_us = 1000000;

static uint64_t test_clock(void) {
    return atomic_load(&now_us);
}

/* Learns from a region that is the engine's again afterwards. Others fill the GPU from this poll on, counted from the
 * first sample for the dictionary on. */
static int learn_on_gpu_that_fills(const uint8_t *text, uint64_t bytes, unsigned full_from) {
    atomic_int *n_samples = &sw_fake_cuda->calls[SW_FAKE_sw_gpu_sample_async];
    uint8_t *region = sw_fake_memory_new(bytes);
    const int before = atomic_load(n_samples);
    struct sw_mapping *mapping = NULL;
    struct sw_slot_result result;
    int rc = -SW_EAGAIN;
    memcpy(region, text, bytes);
    ok(device->ops->adopt(device, region, bytes, &mapping, &err));
    ok(device->ops->make_plan(device, 0, SW_VALUE_NONE, true, mapping, 0, bytes, &err));
    for (unsigned n = 0; rc == -SW_EAGAIN; n += atomic_load(n_samples) > before + 1) { /* one is the probe's */
        atomic_store(&sw_fake_cuda->is_full, n > full_from);
        rc = device->ops->slot_poll(device, 0, &result, &err);
        atomic_fetch_add(&now_us, n > full_from ? 1000 : 1);
    }
    device->ops->unmap(device, mapping);
    sw_fake_memory_free(region);
    atomic_store(&sw_fake_cuda->is_full, false);
    sw_fake_memory_free(sw_fake_memory_new(1)); /* waits for all that is queued */
    return rc;
}

/* Whenever that is, the guest gives up, and touches the region no more. The loop's index: the GPU cannot learn, and a
 * host is to do it. */
START_TEST(a_guest_gives_up_learning_on_a_full_gpu) {
    enum { TEXT_BYTES = 32 << 20, PERIOD = 2 << 20 };
    uint8_t *frames, *text = malloc(TEXT_BYTES);
    unsigned n_given_up = 0;
    open_learning_guest(&frames);
    sw_clock_set(test_clock);
    sw_tpch_text_fill(text, 0, PERIOD, 1);
    for (size_t at = PERIOD; at < TEXT_BYTES; at += PERIOD)
        memcpy(text + at, text, PERIOD);
    for (int rc = -SW_EGPU; rc < 0; n_given_up += rc < 0) {
        if (_i)
            sw_fake_arm(SW_FAKE_sw_gpu_learn_async, 1, 1 /* cudaErrorInvalidValue */, SW_FAKE_ONCE);
        rc = learn_on_gpu_that_fills(text, TEXT_BYTES, n_given_up);
        sw_fake_disarm();
        ck_assert(rc == 0 || rc == -SW_EGPU);
        ck_assert_uint_lt(n_given_up, 30);
    }
    ck_assert_int_eq(device->ops->plan(device, 0)->codec, SW_CODEC_ONPAIR);
    ck_assert_uint_gt(n_given_up, 4); /* three samples, and the learning */
    sw_clock_set(NULL);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->violations), 0);
    device->ops->close(device);
    sw_fake_memory_free(frames);
    free(text);
}
END_TEST

/* Each call that fails while a dictionary is learned has a name, or the host learns it. Nothing is left behind. */
START_TEST(a_host_learns_what_a_gpu_could_not) {
    static const enum sw_fake_call calls[] = {SW_FAKE_sw_gpu_learn_async, SW_FAKE_sw_gpu_sample_async,
                                              SW_FAKE_cudaMemcpyAsync};
    enum { TEXT_BYTES = 1 << 20 };
    uint8_t *text = sw_fake_memory_new(TEXT_BYTES);
    struct sw_mapping *mapping = NULL;
    unsigned n = 0, n_named = 0;
    bool fired = true;
    open_device(LEARNING_CHUNK);
    ok(device->ops->adopt(device, text, TEXT_BYTES, &mapping, &err));
    sw_tpch_text_fill(text, 0, TEXT_BYTES, 1);
    ok(plan_text(mapping, TEXT_BYTES));
    const long live = sw_alloc_live();
    for (int nth = 1; fired; nth++) {
        sw_fake_arm(calls[_i], nth, 1 /* cudaErrorInvalidValue */, SW_FAKE_ONCE);
        const int rc = plan_text(mapping, TEXT_BYTES);
        fired = atomic_load(&sw_fake_cuda->fired) > 0;
        sw_fake_disarm();
        ck_assert(rc == 0 || (rc == -SW_EGPU && err.msg[0]));
        ck_assert(rc < 0 || device->ops->plan(device, 0)->codec == SW_CODEC_ONPAIR);
        ck_assert_int_eq(sw_alloc_live(), live);
        n += fired;
        n_named += rc < 0;
    }
    ck_assert_uint_eq(n, _i == 0 ? 1 : _i == 1 ? 3 : 4); /* probe, learn, judge; two of training, two of learning */
    ck_assert_uint_eq(n_named, (unsigned)_i);            /* before the learning; training brings two */
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->violations), 0);
    if (_i == 0) {
        sw_fake_arm(calls[_i], 1, 719 /* cudaErrorLaunchFailure */, SW_FAKE_LATER);
        ck_assert_int_eq(plan_text(mapping, TEXT_BYTES), -SW_EGPULOST);
        device->ops->forget(device);
    }
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    sw_fake_disarm();
    sw_fake_memory_free(text);
}
END_TEST

/* Raw frames, one for each slot, and the memories that they are of and go back to. */
enum { N = 2 };
static struct {
    struct sw_memory from, to;
    struct sw_mapping *source, *target;
    uint8_t *arena;
    struct sw_raw_item items[N];
    struct sw_extent extents[N];
    struct sw_stored stored[N];
} raw;

static void raw_open(void) {
    raw.from = sw_memory_new(N * BYTES);
    raw.to = sw_memory_new(N * BYTES);
    raw.arena = aligned_alloc(4096, N * ARENA_BYTES);
    sw_content_fill(raw.from.data, N * BYTES, SW_CONTENT_RANDOM, 1);
    open_device(512 * KIB);
    struct sw_mem_desc descs[] = {sw_fixture_describe(&raw.from), sw_fixture_describe(&raw.to)};
    ok(device->ops->map(device, &descs[0], &raw.source, &err));
    ok(device->ops->map(device, &descs[1], &raw.target, &err));
    ok(device->ops->pin(device, raw.arena, N * ARENA_BYTES, &err));
    for (unsigned s = 0; s < N; s++) {
        raw.items[s] = (struct sw_raw_item){.offset = (uint64_t)s * BYTES, .stored = &raw.stored[s]};
        sw_frame_layout_init(&raw.items[s].frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, BYTES, 0);
        raw.extents[s] =
            (struct sw_extent){.memory = raw.arena + s * ARENA_BYTES, .bytes = raw.items[s].frame.frame_bytes};
        raw.stored[s] = (struct sw_stored){.extents = &raw.extents[s], .n_extents = 1, .bytes = raw.extents[s].bytes};
    }
}

static void raw_close(void) {
    device->ops->unmap(device, raw.source);
    device->ops->unmap(device, raw.target);
    device->ops->unpin(device, raw.arena, N * ARENA_BYTES);
    device->ops->close(device);
    free(raw.arena);
    sw_memory_free(&raw.from);
    sw_memory_free(&raw.to);
}

static int poll_until_ended(unsigned slot) {
    struct sw_slot_result result;
    int rc;
    while ((rc = device->ops->slot_poll(device, slot, &result, &err)) == -SW_EAGAIN)
        continue;
    return rc;
}

/* Restores the first frame; meanwhile another thread may write to its destination. */
static int restore(bool disturbed) {
    struct sw_slot_result result;
    int rc;
    ok(device->ops->restore_raw(device, 0, raw.target, raw.items, 1, 0, &err));
    while ((rc = device->ops->slot_poll(device, 0, &result, &err)) == -SW_EAGAIN)
        if (disturbed)
            memset(raw.to.data, 0xA5, BYTES);
    return rc;
}

START_TEST(a_bad_copy_does_not_condemn_the_stored_frame) {
    raw_open();
    ok(device->ops->spill_raw(device, 0, raw.source, raw.items, 1, 0, &err));
    ok(poll_until_ended(0));
    ck_assert_int_eq(restore(true), -SW_EGPU);
    ck_assert_int_eq(err.scope, SW_SCOPE_REQUEST);
    ck_assert_int_eq(restore(false), 0);
    ck_assert_mem_eq(raw.to.data, raw.from.data, BYTES);
    raw.arena[raw.items[0].frame.data_offset + BYTES / 2] ^= 1;
    ck_assert_int_eq(restore(false), -SW_ECHECKSUM);
    raw_close();
}
END_TEST

/* Copies of all slots use the link in the order in which they were queued: when the last one has ended, all have, even
 * if they were not polled. */
START_TEST(copies_of_all_slots_keep_their_order) {
    raw_open();
    for (unsigned s = 0; s < N; s++)
        ok(device->ops->spill_raw(device, s, raw.source, &raw.items[s], 1, 1, &err));
    ok(poll_until_ended(1));
    ck_assert_mem_eq(raw.arena + raw.items[0].frame.data_offset, raw.from.data, BYTES);
    ok(poll_until_ended(0));
    for (unsigned s = 0; s < N; s++)
        ok(device->ops->restore_raw(device, s, raw.target, &raw.items[s], 1, 1, &err));
    ok(poll_until_ended(1));
    ck_assert_mem_eq(raw.to.data, raw.from.data, N * BYTES);
    ok(poll_until_ended(0));
    raw_close();
}
END_TEST

/* Looks at a slot until it has ended. */
static unsigned looks(unsigned slot) {
    struct sw_slot_result result;
    unsigned n = 1;
    int rc;
    while ((rc = device->ops->slot_poll(device, slot, &result, &err)) == -SW_EAGAIN)
        n++;
    ok(rc);
    return n;
}

/* On a GPU that others keep busy the kernel that wakes it has to wait: no step does. */
START_TEST(no_step_waits_for_the_wake_kernel) {
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mapping *mapping;
    unsigned n[2];
    open_device(512 * KIB);
    struct sw_mem_desc desc = sw_fixture_describe(&memory);
    ok(device->ops->map(device, &desc, &mapping, &err));
    for (unsigned slot = 0; slot < 2; slot++)
        for (int woken = 0; woken < 2; woken++) {
            struct sw_head_item head = {.bytes = 64};
            if (woken)
                device->ops->wake(device);
            ok(device->ops->identify(device, slot, mapping, &head, 1, &err));
            n[woken] = looks(slot);
            ck_assert_uint_eq(n[woken], n[0]);
        }
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    sw_memory_free(&memory);
}
END_TEST

/* A copy for each frame would take the CPU 5 us. */
START_TEST(many_frames_are_identified_by_one_kernel) {
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mapping *mapping;
    struct sw_head_item heads[SW_HEAD_MAX];
    open_device(512 * KIB);
    struct sw_mem_desc desc = sw_fixture_describe(&memory);
    ok(device->ops->map(device, &desc, &mapping, &err));
    sw_content_fill(memory.data, BYTES, SW_CONTENT_TEXT, 1);
    for (unsigned n = 1; n <= SW_HEAD_MAX; n += n < 8 ? 1 : 28) {
        const int kernels = atomic_load(&sw_fake_cuda->calls[SW_FAKE_sw_gpu_identify_async]),
                  copies = atomic_load(&sw_fake_cuda->calls[SW_FAKE_cudaMemcpyAsync]);
        for (unsigned i = 0; i < n; i++)
            heads[i] = (struct sw_head_item){.at = 77 * i, .bytes = 16 + 48 * (uint64_t)i};
        ok(device->ops->identify(device, n % 2, mapping, heads, n, &err));
        (void)looks(n % 2);
        for (unsigned i = 0; i < n; i++)
            ck_assert_uint_eq(heads[i].identity, sw_identity_of(memory.data + heads[i].at, heads[i].bytes));
        const bool are_few = n <= 4;
        ck_assert_int_eq(atomic_load(&sw_fake_cuda->calls[SW_FAKE_sw_gpu_identify_async]) - kernels, !are_few);
        ck_assert_int_eq(atomic_load(&sw_fake_cuda->calls[SW_FAKE_cudaMemcpyAsync]) - copies, are_few ? (int)n : 0);
    }
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    sw_memory_free(&memory);
}
END_TEST

/* If the driver cannot open memory because of the client's pid namespace, the error says how to fix it. */
START_TEST(memory_of_another_pid_namespace_has_its_own_error) {
    static const struct {
        int error;
        const char *text;
    } cases[] = {{304 /* CUDA_ERROR_OPERATING_SYSTEM */, "mount /proc anew in the client's pid namespace"},
                 {201 /* CUDA_ERROR_INVALID_CONTEXT */, "the same process id in different pid namespaces"}};
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mapping *mapping = NULL;
    open_device(64 * KIB);
    sw_fake_arm(SW_FAKE_cuIpcOpenMemHandle, 1, cases[_i].error, SW_FAKE_ONCE);
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), -SW_EIMPORT);
    ck_assert_ptr_nonnull(strstr(err.msg, cases[_i].text));
    sw_fake_disarm();
    ok(device->ops->map(device, &desc, &mapping, &err));
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    sw_mem_desc_fini(&desc);
    sw_memory_free(&memory);
}
END_TEST

START_TEST(a_full_descriptor_table_has_its_own_error) {
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mapping *mapping = NULL;
    open_device(512 * KIB);
    struct sw_mem_desc desc = sw_fixture_describe(&memory);
    sw_fake_arm(SW_FAKE_cuIpcOpenMemHandle, 1, CUDA_ERROR_UNKNOWN, SW_FAKE_ONCE);
    sw_leave_fds(0);
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), -SW_ELIMIT);
    sw_leave_all_fds();
    sw_fake_arm(SW_FAKE_cuIpcOpenMemHandle, 1, CUDA_ERROR_UNKNOWN, SW_FAKE_ONCE);
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), -SW_EIMPORT);
    ok(device->ops->map(device, &desc, &mapping, &err));
    device->ops->unmap(device, mapping);
    device->ops->close(device);
    sw_memory_free(&memory);
}
END_TEST

/* Its GPUs are not counted: to the runtime, such a driver has none. */
START_TEST(an_old_driver_is_named) {
    sw_fake_driver_version = 0;
    ck_assert_int_eq(sw_device_cuda_check_driver(&err), 0);
    sw_fake_driver_version = 13010;
    ck_assert_int_eq(sw_device_cuda_check_driver(&err), 0);
    sw_fake_driver_version = 12080;
    ck_assert_int_eq(sw_device_cuda_check_driver(&err), -SW_ENOTSUP);
    ck_assert_str_eq(err.msg, "the NVIDIA driver runs CUDA 12.8, but 13.0 is needed: install driver 580 or later");
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("device_cuda");
    tcase_add_test(tests, an_old_driver_is_named);
    tcase_add_test(tests, a_slots_buffer_has_its_stated_length);
    tcase_add_test(tests, a_device_works_in_its_context);
    tcase_add_test(tests, a_guest_works_in_given_memory);
    tcase_add_loop_test(tests, a_dictionary_goes_to_the_device, 0, 2);
    tcase_add_test(tests, a_gpu_learns_as_a_host_does);
    tcase_add_loop_test(tests, a_guest_gives_up_learning_on_a_full_gpu, 0, 2);
    tcase_add_loop_test(tests, a_host_learns_what_a_gpu_could_not, 0, 3);
    tcase_add_test(tests, a_bad_copy_does_not_condemn_the_stored_frame);
    tcase_add_test(tests, a_full_descriptor_table_has_its_own_error);
    tcase_add_loop_test(tests, memory_of_another_pid_namespace_has_its_own_error, 0, 2);
    tcase_add_test(tests, copies_of_all_slots_keep_their_order);
    tcase_add_test(tests, no_step_waits_for_the_wake_kernel);
    tcase_add_test(tests, many_frames_are_identified_by_one_kernel);
    Suite *suite = suite_create("device_cuda");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
