/* The windows through which the host device writes to clients' memory: they stay from one step to the next, end when
 * the memory is unmapped, and never make a page. */
#include "spill/device/device.h"
#include "spill/device/guard.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, BYTES = 2 * CHUNK };

static struct sw_device *device;
static struct sw_err err;
static uint8_t content[CHUNK];

static void setup(void) {
    struct sw_device_config config = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = CHUNK};
    ck_assert_int_eq(sw_device_host_open(&device, &config, &err), 0);
}

static void teardown(void) {
    device->ops->close(device);
}

static int wait_for(unsigned slot) {
    struct sw_slot_result result;
    return device->ops->slot_wait(device, slot, &result, &err);
}

/* Writes a chunk of one byte to the memory. */
static int place(unsigned slot, struct sw_mapping *mapping, uint64_t offset, uint8_t byte) {
    memset(content, byte, CHUNK);
    ck_assert_int_eq(device->ops->load(device, slot, content, 0, CHUNK, &err), 0);
    ck_assert_int_eq(device->ops->place(device, slot, mapping, offset, 0, CHUNK, &err), 0);
    return wait_for(slot);
}

static void ck_bytes(const struct sw_memory *memory, uint64_t offset, uint8_t byte) {
    uint8_t got[CHUNK];
    memset(content, byte, CHUNK);
    ck_assert_int_eq(pread(memory->fd, got, CHUNK, (off_t)offset), CHUNK);
    ck_assert(memcmp(got, content, CHUNK) == 0);
}

START_TEST(a_kept_window_stops_at_holes_that_are_new) {
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    struct stat st;
    ck_assert_int_eq(fallocate(memory.fd, 0, 0, BYTES), 0);
    ck_assert_int_eq(place(0, mapping, 0, 1), 0);
    ck_assert_int_eq(place(0, mapping, CHUNK, 2), 0);
    ck_assert_int_eq(fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
    ck_assert_int_eq(place(0, mapping, 0, 3), -SW_EUNALLOCATED);
    ck_assert_int_eq(place(0, mapping, CHUNK, 3), -SW_EUNALLOCATED);
    ck_assert_int_eq(fstat(memory.fd, &st), 0);
    ck_assert_int_eq(st.st_blocks, 0);
    ck_assert_int_eq(fallocate(memory.fd, 0, 0, BYTES), 0);
    ck_assert_int_eq(place(0, mapping, 0, 4), 0);
    ck_bytes(&memory, 0, 4);
    device->ops->unmap(device, mapping);
    sw_memory_free(&memory);
}
END_TEST

/* A later memory may have the descriptor, and the address, of an earlier one. */
START_TEST(each_window_leads_to_its_own_memory) {
    struct sw_memory memories[3];
    struct sw_mapping *mappings[3] = {NULL};
    for (int i = 0; i < 3; i++) {
        memories[i] = sw_memory_new(BYTES);
        ck_assert_int_eq(fallocate(memories[i].fd, 0, 0, BYTES), 0);
    }
    for (uint8_t round = 1; round <= 20; round++) {
        const int i = round % 3;
        device->ops->unmap(device, mappings[i]);
        mappings[i] = sw_memory_map(device, &memories[i]);
        for (unsigned k = 0; k < 3; k++)
            if (mappings[k])
                ck_assert_int_eq(place(round % 2, mappings[k], round % 2 * CHUNK, (uint8_t)(10 * round + k)), 0);
        for (unsigned k = 0; k < 3; k++)
            if (mappings[k])
                ck_bytes(&memories[k], round % 2 * CHUNK, (uint8_t)(10 * round + k));
    }
    for (int i = 0; i < 3; i++) {
        device->ops->unmap(device, mappings[i]);
        sw_memory_free(&memories[i]);
    }
}
END_TEST

/* Writes a chunk of one byte as a client's frame. */
static int give(unsigned slot, struct sw_mapping *mapping, uint8_t byte, bool may_fill_holes) {
    struct sw_extent extent = {.memory = content, .bytes = CHUNK};
    const struct sw_stored stored = {.extents = &extent, .n_extents = 1, .bytes = CHUNK};
    const struct sw_frame_item item = {.stored = &stored};
    memset(content, byte, CHUNK);
    ck_assert_int_eq(device->ops->give_frames(device, slot, mapping, &item, 1, may_fill_holes, &err), 0);
    return wait_for(slot);
}

/* The same for frames that are handed to their client, of which no other step has written to this memory. */
START_TEST(frames_are_given_to_their_own_memory) {
    struct sw_memory memories[3];
    for (int i = 0; i < 3; i++) {
        memories[i] = sw_memory_new(BYTES);
        ck_assert_int_eq(fallocate(memories[i].fd, 0, 0, BYTES), 0);
    }
    for (uint8_t round = 1; round <= 9; round++) {
        struct sw_mapping *mapping = sw_memory_map(device, &memories[round % 3]);
        ck_assert_int_eq(give(0, mapping, round, false), 0);
        ck_bytes(&memories[round % 3], 0, round);
        device->ops->unmap(device, mapping);
    }
    for (int i = 0; i < 3; i++)
        sw_memory_free(&memories[i]);
}
END_TEST

/* What one step may fill, the next one may not, whatever its kind. */
START_TEST(holes_are_filled_only_by_steps_that_may) {
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mapping *mapping = sw_memory_map(device, &memory);
    for (int i = 0; i < 3; i++) {
        ck_assert_int_eq(fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
        ck_assert_int_eq(give(0, mapping, 1, true), 0);
        ck_bytes(&memory, 0, 1);
        ck_assert_int_eq(fallocate(memory.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, BYTES), 0);
        ck_assert_int_eq(i % 2 ? give(0, mapping, 2, false) : place(0, mapping, 0, 2), -SW_EUNALLOCATED);
    }
    device->ops->unmap(device, mapping);
    sw_memory_free(&memory);
}
END_TEST

static bool is_mapped_here(const struct sw_memory *memory) {
    if (fcntl(memory->fd, F_ADD_SEALS, F_SEAL_WRITE) == 0)
        return false;
    ck_assert_int_eq(errno, EBUSY); /* a memfd that somebody may write to through a mapping */
    return true;
}

/* The window is there until then, or each step would map it again. */
START_TEST(a_window_ends_when_its_memory_is_unmapped) {
    for (int is_busy = 0; is_busy < 2; is_busy++) {
        struct sw_memory memory = sw_memory_new(BYTES);
        struct sw_mapping *mapping = sw_memory_map(device, &memory);
        ck_assert_int_eq(fallocate(memory.fd, 0, 0, BYTES), 0);
        (void)munmap(memory.data, memory.bytes);
        memory.data = NULL;
        for (unsigned slot = 0; slot < 2; slot++)
            ck_assert_int_eq(place(slot, mapping, 0, 1), 0);
        ck_assert(is_mapped_here(&memory));
        for (int i = 0; is_busy && i < 500; i++) /* with steps that write to no memory */
            ck_assert_int_eq(device->ops->load(device, 0, content, 0, CHUNK, &err), 0);
        device->ops->unmap(device, mapping);
        ck_assert(!is_mapped_here(&memory));
        ck_assert_int_eq(wait_for(0), 0);
        (void)close(memory.fd);
    }
}
END_TEST

/* Each slot unmaps what it has touched, beside the others, and not the thread that reports the end of the run. */
START_TEST(a_window_for_one_run_ends_with_each_step) {
    struct sw_memory memory = sw_memory_new(BYTES);
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_mapping *mapping = NULL;
    desc.once = true;
    ck_assert_int_eq(device->ops->map(device, &desc, &mapping, &err), 0);
    ck_assert_int_eq(fallocate(memory.fd, 0, 0, BYTES), 0);
    (void)munmap(memory.data, memory.bytes);
    memory.data = NULL;
    for (unsigned i = 0; i < 4; i++)
        ck_assert_int_eq(place(i % 2, mapping, i / 2 * CHUNK, (uint8_t)i), 0);
    ck_assert(!is_mapped_here(&memory));
    device->ops->unmap(device, mapping);
    sw_mem_desc_fini(&desc);
    (void)close(memory.fd);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("windows of the host device");
    TCase *tests = tcase_create("all");
    if (sw_guard_take())
        sw_guard_give_back();
    else {
        (void)fprintf(stderr, "skipped: userfaultfd() cannot be used here\n");
        return 77;
    }
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, a_kept_window_stops_at_holes_that_are_new);
    tcase_add_test(tests, each_window_leads_to_its_own_memory);
    tcase_add_test(tests, frames_are_given_to_their_own_memory);
    tcase_add_test(tests, holes_are_filled_only_by_steps_that_may);
    tcase_add_test(tests, a_window_ends_when_its_memory_is_unmapped);
    tcase_add_test(tests, a_window_for_one_run_ends_with_each_step);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
