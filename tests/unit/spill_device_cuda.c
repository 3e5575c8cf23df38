/* The CUDA device by its own contract, on a GPU that is none (tests/lib/fake_cuda): what gpu_device cannot arrange. */
#include "tests/lib/content.h"
#include "tests/lib/fake_cuda/fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

enum { KIB = 1 << 10, BYTES = 300001, ARENA_BYTES = 1 << 20 };

static struct sw_device *device;
static struct sw_err err;

static void ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", sw_err_name(rc), err.msg);
}

static void open_device(uint64_t chunk_bytes) {
    const struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = chunk_bytes};
    ok(sw_fixture_open_device(&device, &config, &err));
}

/* What the device says of a slot's buffer holds to the last byte, whatever the bound of a chunk's frame is. */
START_TEST(a_slots_buffer_is_as_long_as_told) {
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

/* Restores the frame; while that goes on, somebody else may write to where its bytes arrive. */
static int restore(struct sw_mapping *mapping, const struct sw_raw_item *item, struct sw_memory *to, bool disturbed) {
    struct sw_slot_result result;
    int rc;
    ok(device->ops->restore_raw(device, 0, mapping, item, 1, 0, &err));
    while ((rc = device->ops->slot_poll(device, 0, &result, &err)) == -SW_EAGAIN)
        if (disturbed)
            memset(to->data, 0xA5, BYTES);
    return rc;
}

START_TEST(a_stored_frame_is_not_judged_by_what_arrives) {
    struct sw_memory from = sw_memory_new(BYTES), to = sw_memory_new(BYTES);
    struct sw_mapping *source = NULL, *target = NULL;
    struct sw_slot_result result;
    uint8_t *arena = aligned_alloc(4096, ARENA_BYTES);
    open_device(512 * KIB);
    sw_content_fill(from.data, BYTES, SW_CONTENT_RANDOM, 1);
    struct sw_mem_desc descs[] = {sw_fixture_describe(&from), sw_fixture_describe(&to)};
    ok(device->ops->map(device, &descs[0], &source, &err));
    ok(device->ops->map(device, &descs[1], &target, &err));
    ok(device->ops->pin(device, arena, ARENA_BYTES, &err));
    struct sw_raw_item item = {.offset = 0};
    sw_frame_layout_init(&item.frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, BYTES, 0);
    struct sw_extent extent = {.memory = arena, .bytes = item.frame.frame_bytes};
    const struct sw_stored stored = {.extents = &extent, .n_extents = 1, .bytes = item.frame.frame_bytes};
    item.stored = &stored;
    ok(device->ops->spill_raw(device, 0, source, &item, 1, 0, &err));
    ok(device->ops->slot_wait(device, 0, &result, &err));
    ck_assert_int_eq(restore(target, &item, &to, true), -SW_EGPU);
    ck_assert_int_eq(err.scope, SW_SCOPE_REQUEST);
    ck_assert_int_eq(restore(target, &item, &to, false), 0);
    ck_assert_mem_eq(to.data, from.data, BYTES);
    arena[item.frame.data_offset + BYTES / 2] ^= 1;
    ck_assert_int_eq(restore(target, &item, &to, false), -SW_ECHECKSUM);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    device->ops->unpin(device, arena, ARENA_BYTES);
    device->ops->close(device);
    free(arena);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("device_cuda");
    tcase_set_timeout(tests, 60);
    tcase_add_test(tests, a_slots_buffer_is_as_long_as_told);
    tcase_add_test(tests, a_stored_frame_is_not_judged_by_what_arrives);
    Suite *suite = suite_create("device_cuda");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
