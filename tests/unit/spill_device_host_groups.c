/* Groups of short chunks, and raw items, on the host device: what goes out comes back, damage and holes are found. */
#include "codec/identity.h"
#include "spill/device/device.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/host_device.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { N_ITEMS = 5 };
static const uint64_t item_bytes[N_ITEMS] = {1, 50000, 4096, 10001, 8192};

/* Where an item's frame goes, in two pieces. */
struct place {
    uint8_t bytes[64 << 10];
    struct sw_extent extents[2];
    struct sw_stored stored;
};

static void place_init(struct place *place, uint64_t frame_bytes) {
    const uint64_t first = frame_bytes / 2;
    memset(place->bytes, 0xEE, sizeof place->bytes);
    place->extents[0] = (struct sw_extent){.memory = place->bytes, .bytes = first};
    place->extents[1] = (struct sw_extent){.memory = place->bytes + first, .bytes = frame_bytes - first};
    place->stored = (struct sw_stored){.extents = place->extents, .n_extents = 2, .bytes = frame_bytes};
}

/* Items from two memories, one of which is not stored. */
static void spill_group(struct sw_mapping *const mappings[2], struct sw_group_item items[N_ITEMS],
                        struct place places[N_ITEMS], unsigned left_out) {
    static const struct sw_stored nowhere;
    struct sw_slot_result result;
    struct sw_plan plan;
    ck_assert_int_eq(device->ops->make_plan(device, 0, SW_VALUE_NONE, false, mappings[1], 0, CHUNK, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    plan = *device->ops->plan(device, 0);
    for (uint64_t i = 0, at = 0; i < N_ITEMS; at += item_bytes[i++])
        items[i] = (struct sw_group_item){.mapping = mappings[i % 2], .offset = at, .bytes = item_bytes[i]};
    ck_assert_int_eq(device->ops->encode_group(device, 0, &plan, items, N_ITEMS, &err), 0);
    memset(&plan, 0xEE, sizeof plan); /* it was copied */
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        ck_assert_uint_eq(items[i].frame.raw_bytes, item_bytes[i]);
        place_init(&places[i], items[i].frame.frame_bytes);
        items[i].stored = i == left_out ? &nowhere : &places[i].stored;
    }
    ck_assert_int_eq(device->ops->store_group(device, 0, items, N_ITEMS, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        ck_assert_uint_eq(places[i].bytes[items[i].frame.frame_bytes], 0xEE);
        if (i != left_out)
            ck_assert_uint_eq(items[i].identity, sw_identity_of(places[i].bytes, items[i].frame.counts_offset));
    }
}

START_TEST(test_groups_go_out_and_come_back) {
    enum { LEFT_OUT = 2, DAMAGED = 3 };
    struct sw_memory from[2] = {sw_memory_new(CHUNK), sw_memory_new(CHUNK)}, to = sw_memory_new(2 * CHUNK);
    struct sw_mapping *sources[2] = {sw_memory_map(device, &from[0]), sw_memory_map(device, &from[1])},
                      *target = sw_memory_map(device, &to);
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    struct sw_slot_result result;
    sw_content_fill(from[0].data, CHUNK, SW_CONTENT_RANDOM, 1);
    sw_content_fill(from[1].data, CHUNK, SW_CONTENT_TEXT, 2);
    spill_group(sources, items, places, LEFT_OUT);
    ck_assert_uint_eq(places[LEFT_OUT].bytes[0], 0xEE);
    places[DAMAGED].bytes[items[DAMAGED].frame.frame_bytes - 100] ^= 1;
    items[LEFT_OUT] = items[N_ITEMS - 1];
    for (unsigned i = 0; i < N_ITEMS - 1; i++)
        items[i].mapping = target;
    ck_assert_int_eq(device->ops->restore_group(device, 1, items, N_ITEMS - 1, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
    for (unsigned i = 0; i < N_ITEMS - 1; i++) {
        const unsigned source = i == LEFT_OUT ? N_ITEMS - 1 : i;
        const uint64_t at = items[i].offset;
        ck_assert_int_eq(items[i].is_damaged, i == DAMAGED);
        ck_assert(i == DAMAGED || memcmp(to.data + at, from[source % 2].data + at, items[i].bytes) == 0);
        ck_assert(i != DAMAGED || to.data[at] == 0); /* nothing of it was written */
    }
    for (int i = 0; i < 2; i++) {
        device->ops->unmap(device, sources[i]);
        sw_memory_free(&from[i]);
    }
    device->ops->unmap(device, target);
    sw_memory_free(&to);
    free(places);
}
END_TEST

/* A group's frame equals that of its chunk encoded alone. */
START_TEST(test_a_groups_frames_equal_those_of_chunks) {
    struct sw_memory from[2] = {sw_memory_new(CHUNK), sw_memory_new(CHUNK)};
    struct sw_mapping *sources[2] = {sw_memory_map(device, &from[0]), sw_memory_map(device, &from[1])};
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    struct sw_slot_result result;
    sw_content_fill(from[1].data, CHUNK, SW_CONTENT_TEXT, 2);
    spill_group(sources, items, places, N_ITEMS);
    ck_assert_int_eq(device->ops->make_plan(device, 1, SW_VALUE_NONE, false, sources[1], 0, CHUNK, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
    const struct sw_plan plan = *device->ops->plan(device, 1);
    for (unsigned i = 0; i < N_ITEMS; i++) {
        ck_assert_int_eq(device->ops->encode(device, 1, &plan, items[i].mapping, items[i].offset, items[i].bytes, &err),
                         0);
        ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
        ck_assert_mem_eq(&result.frame, &items[i].frame, sizeof result.frame);
        ck_assert_int_eq(device->ops->store(device, 1, frame, 0, result.frame.frame_bytes, &err), 0);
        ck_assert_int_eq(device->ops->slot_wait(device, 1, &result, &err), 0);
        ck_assert_mem_eq(frame, places[i].bytes, items[i].frame.frame_bytes);
    }
    for (int i = 0; i < 2; i++) {
        device->ops->unmap(device, sources[i]);
        sw_memory_free(&from[i]);
    }
    free(places);
    free(frame);
}
END_TEST

enum { MAX_RAW_EXTENTS = 5, RAW_BYTES = 200001 };

/* Room for one raw frame, in pieces. */
struct raw_place {
    uint8_t *bytes;
    struct sw_extent extents[MAX_RAW_EXTENTS];
    struct sw_stored stored;
};

/* n pieces, the first ones so short that header, records and content are cut; 1: all in one. */
static void raw_place_init(struct raw_place *place, uint64_t frame_bytes, unsigned n) {
    static const uint64_t cuts[MAX_RAW_EXTENTS] = {40, 70, 4096, 100000, UINT64_MAX};
    uint64_t at = 0;
    place->bytes = malloc(frame_bytes + 1);
    memset(place->bytes, 0xEE, frame_bytes + 1);
    for (unsigned i = 0; i < n; i++) {
        const uint64_t left = frame_bytes - at, bytes = i == n - 1 || left < cuts[i] ? left : cuts[i];
        place->extents[i] = (struct sw_extent){.memory = place->bytes + at, .bytes = bytes};
        at += bytes;
    }
    place->stored = (struct sw_stored){.extents = place->extents, .n_extents = n, .bytes = frame_bytes};
}

static struct sw_raw_item raw_item(uint64_t offset, uint64_t bytes, const struct sw_stored *stored) {
    struct sw_raw_item item = {.offset = offset, .stored = stored};
    sw_frame_layout_init(&item.frame, SW_CODEC_RAW, SW_RAW_SEGMENT_LOG2, bytes, 0);
    return item;
}

static int spill_raw(unsigned s, const struct sw_mapping *mapping, const struct sw_raw_item *items, unsigned n) {
    struct sw_slot_result result;
    ck_assert_int_eq(device->ops->spill_raw(device, s, mapping, items, n, 0, &err), 0);
    return device->ops->slot_wait(device, s, &result, &err);
}

static int restore_raw(unsigned s, struct sw_mapping *mapping, const struct sw_raw_item *items, unsigned n) {
    struct sw_slot_result result;
    ck_assert_int_eq(device->ops->restore_raw(device, s, mapping, items, n, 0, &err), 0);
    return device->ops->slot_wait(device, s, &result, &err);
}

/* _i: in how many pieces the frame lies, less one. */
START_TEST(test_raw_frames_equal_encoded_ones) {
    static const uint64_t lengths[] = {1, 4096, RAW_BYTES, CHUNK};
    struct sw_memory from = sw_memory_new(CHUNK + 100), to = sw_memory_new(CHUNK + 100);
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    uint8_t *frame = malloc(sw_frame_bound_bytes(CHUNK));
    sw_content_fill(from.data, from.bytes, SW_CONTENT_RANDOM, 1); /* make_plan chooses raw */
    for (size_t i = 0; i < sizeof lengths / sizeof lengths[0]; i++) {
        const uint64_t frame_bytes = encode(0, source, 7, lengths[i], frame);
        struct raw_place place;
        raw_place_init(&place, frame_bytes, (unsigned)_i + 1);
        struct sw_raw_item item = raw_item(7, lengths[i], &place.stored);
        ck_assert_int_eq(spill_raw(1, source, &item, 1), 0);
        struct sw_frame_layout parsed = {0};
        ck_assert_int_eq(sw_frame_parse(&parsed, frame, frame_bytes, frame_bytes, &err), 0);
        ck_assert_mem_eq(&item.frame, &parsed, sizeof parsed);
        ck_assert_mem_eq(place.bytes, frame, frame_bytes);
        ck_assert_uint_eq(place.bytes[frame_bytes], 0xEE);
        memset(to.data, 0x11, to.bytes);
        item.offset = 3;
        ck_assert_int_eq(restore_raw(0, target, &item, 1), 0);
        ck_assert_mem_eq(to.data + 3, from.data + 7, lengths[i]);
        ck_assert_uint_eq(to.data[2], 0x11);
        ck_assert_uint_eq(to.data[3 + lengths[i]], 0x11);
        free(place.bytes);
    }
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
    free(frame);
}
END_TEST

/* Several chunks in one step: neither a damaged one nor those behind it are written. */
START_TEST(test_damaged_raw_frames_are_not_written) {
    enum { N = 3 };
    static const uint8_t zeros[RAW_BYTES];
    struct sw_memory from = sw_memory_new(N * RAW_BYTES), to = sw_memory_new(N * RAW_BYTES);
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    struct raw_place places[N];
    struct sw_raw_item items[N];
    sw_content_fill(from.data, from.bytes, SW_CONTENT_TEXT, 1);
    for (unsigned i = 0; i < N; i++) {
        items[i] = raw_item((uint64_t)i * RAW_BYTES, RAW_BYTES, &places[i].stored);
        raw_place_init(&places[i], items[i].frame.frame_bytes, MAX_RAW_EXTENTS - i);
    }
    ck_assert_int_eq(spill_raw(0, source, items, N), 0);
    const struct sw_frame_layout *layout = &items[1].frame;
    const uint64_t spots[] = {layout->records_offset, layout->data_offset, layout->data_offset + RAW_BYTES - 1};
    for (size_t i = 0; i < sizeof spots / sizeof spots[0]; i++) {
        places[1].bytes[spots[i]] ^= 1;
        ck_assert_int_eq(restore_raw(1, target, items, N), -SW_ECHECKSUM);
        ck_assert_int_eq(err.code, -SW_ECHECKSUM);
        places[1].bytes[spots[i]] ^= 1;
        ck_assert_mem_eq(to.data, from.data, RAW_BYTES);
        ck_assert_mem_eq(to.data + RAW_BYTES, zeros, RAW_BYTES);
        ck_assert_mem_eq(to.data + 2 * RAW_BYTES, zeros, RAW_BYTES);
    }
    ck_assert_int_eq(restore_raw(1, target, items, N), 0);
    ck_assert_mem_eq(to.data, from.data, from.bytes);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
    for (unsigned i = 0; i < N; i++)
        free(places[i].bytes);
}
END_TEST

START_TEST(test_raw_steps_can_be_failed) {
    struct sw_memory memory = sw_memory_new(RAW_BYTES);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct sw_device *faulty = NULL;
    struct sw_slot_result result;
    struct raw_place place;
    const struct sw_raw_item item = raw_item(0, RAW_BYTES, &place.stored);
    raw_place_init(&place, item.frame.frame_bytes, 2);
    ck_assert_int_eq(sw_device_faulty_open(&faulty, device, &err), 0);
    const struct sw_device_ops *ops = faulty->ops;
    for (int n = 0; n < 2; n++) { /* the first time it fails */
        if (n == 0)
            sw_device_faulty_arm(faulty, "spill_raw", 1, -SW_EGPU, SW_FAULT_LATE);
        ck_assert_int_eq(ops->spill_raw(faulty, 0, mapping, &item, 1, 0, &err), 0);
        ck_assert_int_eq(ops->slot_wait(faulty, 0, &result, &err), n == 0 ? -SW_EGPU : 0);
        ck_assert_int_eq(place.bytes[0] == 0xEE, n == 0);
    }
    sw_device_faulty_arm(faulty, "restore_raw", 1, -SW_EGPU, SW_FAULT_AT_ONCE);
    ck_assert_int_eq(ops->restore_raw(faulty, 0, mapping, &item, 1, 0, &err), -SW_EGPU);
    ck_assert_int_eq(ops->restore_raw(faulty, 0, mapping, &item, 1, 0, &err), 0);
    ck_assert_int_eq(ops->slot_wait(faulty, 0, &result, &err), 0);
    device->ops->unmap(device, mapping);
    /* Owns the device, which teardown closes. */
    ops->close(faulty);
    struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = CHUNK};
    ck_assert_int_eq(sw_device_host_open(&device, &config, &err), 0);
    sw_memory_free(&memory);
    free(place.bytes);
}
END_TEST

START_TEST(test_unwritable_memory_fails_its_group) {
    struct sw_memory from[2] = {sw_memory_new(CHUNK), sw_memory_new(CHUNK)}, sealed = sw_memory_new(CHUNK);
    struct sw_mapping *sources[2] = {sw_memory_map(device, &from[0]), sw_memory_map(device, &from[1])};
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    struct sw_slot_result result;
    spill_group(sources, items, places, N_ITEMS);
    (void)munmap(sealed.data, sealed.bytes);
    sealed.data = NULL;
    ck_assert_int_eq(fcntl(sealed.fd, F_ADD_SEALS, F_SEAL_WRITE), 0);
    struct sw_mapping *writable = items[2].mapping;
    items[2].mapping = sw_memory_map(device, &sealed);
    ck_assert_int_eq(device->ops->restore_group(device, 0, items, N_ITEMS, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_EACCES);
    device->ops->unmap(device, items[2].mapping);
    items[2].mapping = writable;
    ck_assert_int_eq(device->ops->restore_group(device, 0, items, N_ITEMS, &err), 0);
    ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), 0);
    for (int i = 0; i < 2; i++) {
        device->ops->unmap(device, sources[i]);
        sw_memory_free(&from[i]);
    }
    sw_memory_free(&sealed);
    free(places);
}
END_TEST

static void punch(const struct sw_memory *memory) {
    ck_assert_int_eq(fallocate(memory->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, (off_t)memory->bytes), 0);
}

static bool has_pages(const struct sw_memory *memory) {
    struct stat st;
    ck_assert_int_eq(fstat(memory->fd, &st), 0);
    return st.st_blocks > 0;
}

/* The permission ends with the item: neither the next item nor the next step of the slot may fill holes. */
START_TEST(test_holes_are_filled_for_raw_items_that_allow_it) {
    enum { HALF = CHUNK / 2 };
    struct sw_memory from = sw_memory_new(CHUNK), to = sw_memory_new(CHUNK);
    struct sw_mapping *source = sw_memory_map(device, &from), *target = sw_memory_map(device, &to);
    struct raw_place places[2];
    struct sw_raw_item items[2];
    struct sw_slot_result result;
    sw_content_fill(from.data, CHUNK, SW_CONTENT_RANDOM, 1);
    for (unsigned i = 0; i < 2; i++) {
        items[i] = raw_item(i * HALF, HALF, &places[i].stored);
        raw_place_init(&places[i], items[i].frame.frame_bytes, 2);
    }
    ck_assert_int_eq(spill_raw(0, source, items, 2), 0);
    punch(&to);
    if (!device->ops->info(device)->is_unguarded) {
        ck_assert_int_eq(restore_raw(0, target, items, 2), -SW_EUNALLOCATED);
        ck_assert(!has_pages(&to));
        items[0].may_fill_holes = true;
        ck_assert_int_eq(restore_raw(0, target, items, 2), -SW_EUNALLOCATED);
        ck_assert_mem_eq(to.data, from.data, HALF);
        punch(&to);
        ck_assert_int_eq(restore_raw(0, target, items, 1), 0);
        ck_assert_int_eq(device->ops->place(device, 0, target, HALF, 0, 1, &err), 0);
        ck_assert_int_eq(device->ops->slot_wait(device, 0, &result, &err), -SW_EUNALLOCATED);
        punch(&to);
    }
    items[0].may_fill_holes = items[1].may_fill_holes = true;
    ck_assert_int_eq(restore_raw(0, target, items, 2), 0);
    ck_assert_mem_eq(to.data, from.data, CHUNK);
    for (unsigned i = 0; i < 2; i++)
        free(places[i].bytes);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
}
END_TEST

static int restore_group(struct sw_group_item items[N_ITEMS]) {
    struct sw_slot_result result;
    ck_assert_int_eq(device->ops->restore_group(device, 0, items, N_ITEMS, &err), 0);
    return device->ops->slot_wait(device, 0, &result, &err);
}

START_TEST(test_holes_are_filled_for_group_items_that_allow_it) {
    struct sw_memory from = sw_memory_new(CHUNK), to = sw_memory_new(CHUNK);
    struct sw_mapping *source = sw_memory_map(device, &from),
                      *target = sw_memory_map(device, &to), *const sources[2] = {source, source};
    struct sw_group_item items[N_ITEMS];
    struct place *places = malloc(N_ITEMS * sizeof *places);
    const uint64_t first_bytes = item_bytes[0] + item_bytes[1];
    sw_content_fill(from.data, CHUNK, SW_CONTENT_TEXT, 1);
    spill_group(sources, items, places, N_ITEMS);
    punch(&to);
    for (unsigned i = 0; i < N_ITEMS; i++)
        items[i].mapping = target;
    if (!device->ops->info(device)->is_unguarded) {
        ck_assert_int_eq(restore_group(items), -SW_EUNALLOCATED);
        ck_assert(!has_pages(&to));
        items[0].may_fill_holes = items[1].may_fill_holes = items[4].may_fill_holes = true;
        ck_assert_int_eq(restore_group(items), -SW_EUNALLOCATED); /* the third one's second page */
        ck_assert_mem_eq(to.data, from.data, first_bytes);
        punch(&to);
    }
    for (unsigned i = 0; i < N_ITEMS; i++)
        items[i].may_fill_holes = true;
    ck_assert_int_eq(restore_group(items), 0);
    ck_assert_mem_eq(to.data, from.data, items[N_ITEMS - 1].offset + items[N_ITEMS - 1].bytes);
    device->ops->unmap(device, source);
    device->ops->unmap(device, target);
    sw_memory_free(&from);
    sw_memory_free(&to);
    free(places);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("groups on the host device");
    TCase *tcase = tcase_create("groups on the host device");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, test_groups_go_out_and_come_back);
    tcase_add_test(tcase, test_a_groups_frames_equal_those_of_chunks);
    tcase_add_test(tcase, test_unwritable_memory_fails_its_group);
    tcase_add_test(tcase, test_holes_are_filled_for_raw_items_that_allow_it);
    tcase_add_test(tcase, test_holes_are_filled_for_group_items_that_allow_it);
    tcase_add_loop_test(tcase, test_raw_frames_equal_encoded_ones, 0, MAX_RAW_EXTENTS);
    tcase_add_test(tcase, test_damaged_raw_frames_are_not_written);
    tcase_add_test(tcase, test_raw_steps_can_be_failed);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
