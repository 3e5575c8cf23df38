/* A mover with the host device and a sink of the test, linked with nothing else of the engine: regions come back, alone
 * and in groups, from near and far places; failures leave nothing behind. */
#include "base/alloc.h"
#include "spill/mover/mover_state.h"
#include "tests/mover/memory_sink.h"
#include "tests/mover/runner.h"

#include <check.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
enum { N_SLOTS = 3, N_SHORT = 20, SHORT_BYTES = 64 << 10 };

static struct {
    struct sw_device *device;
    struct sw_memory_sink sink;
    struct sw_mover *mover;
    unsigned n_out;
} rig;

static void finished(struct sw_run *run, void *arg) {
    (void)run, (void)arg;
    rig.n_out--;
}

static void progress(void *arg) {
    (void)arg;
}

static void rig_open(uint64_t capacity_bytes, uint64_t near_bytes) {
    const struct sw_device_config config = {.scratch_bytes = 64 * MIB, .n_slots = N_SLOTS, .chunk_bytes = MIB};
    const struct sw_mover_host host = {.finished = finished, .progress = progress};
    memset(&rig, 0, sizeof rig);
    ck_assert_int_eq(sw_device_host_open(&rig.device, &config, NULL), 0);
    sw_memory_sink_init(&rig.sink, capacity_bytes, near_bytes);
    ck_assert_int_eq(sw_mover_new(&rig.mover, rig.device, &rig.sink.sink, &host, NULL), 0);
}

static void rig_close(void) {
    ck_assert_uint_eq(rig.sink.used_bytes, 0);
    ck_assert_uint_eq(rig.sink.n_pending, 0);
    ck_assert_uint_eq(sw_mover_mapped(rig.mover), 0);
    sw_mover_free(rig.mover);
    rig.device->ops->close(rig.device);
}

/* ---- a client's memory ---- */

struct area {
    struct sw_run_memory memory;
    int fd;
    uint8_t *data;
    uint64_t bytes;
};

static struct area area_new(uint64_t bytes) {
    struct area a = {.fd = memfd_create("area", MFD_CLOEXEC | MFD_ALLOW_SEALING), .bytes = bytes};
    ck_assert_int_ge(a.fd, 0);
    ck_assert_int_eq(fallocate(a.fd, 0, 0, (off_t)bytes), 0); /* the host device writes to no hole */
    ck_assert_int_eq(fcntl(a.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW), 0);
    a.data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, a.fd, 0);
    ck_assert_ptr_ne(a.data, MAP_FAILED);
    return a;
}

/* Words that shrink, and every fourth MiB bytes that do not. */
static void fill(struct area *a) {
    static const char text[] = "the quick brown fox jumps over the lazy dog and runs away from it; ";
    uint64_t random = 88172645463325252u;
    for (uint64_t i = 0; i < a->bytes; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        a->data[i] = i / MIB % 4 == 3 ? (uint8_t)random : (uint8_t)text[(i + random % 3) % (sizeof text - 1)];
    }
}

/* The description, which the mover ends with its mapping. */
static void describe(struct area *a) {
    a->memory = (struct sw_run_memory){.desc = {.kind = SW_MEM_MEMFD, .bytes = a->bytes, .n_parts = 1}};
    a->memory.desc.fds = sw_alloc_array(1, sizeof(int));
    a->memory.desc.part_bytes = sw_alloc_array(1, sizeof(uint64_t));
    a->memory.desc.fds[0] = dup(a->fd);
    a->memory.desc.part_bytes[0] = a->bytes;
}

static void area_free(struct area *a) {
    (void)munmap(a->data, a->bytes);
    (void)close(a->fd);
}

/* ---- runs ---- */

struct one {
    struct sw_request request;
    struct sw_buffer buffer;
    struct sw_signals signals;
    struct sw_run run;
};

static void add(struct one *one, enum sw_operation operation, struct area *area, uint64_t offset, uint64_t bytes,
                struct sw_frames *frames) {
    *one = (struct one){.request = {.operation = operation, .session = 1, .n_buffers = 1, .buffers = &one->buffer},
                        .buffer = {.memory = &area->memory, .offset = offset, .bytes = bytes}};
    sw_run_init(&one->run, &one->request, 0, &one->signals);
    one->run.frames = frames;
    rig.n_out++;
    sw_mover_add(rig.mover, &one->run);
}

static void finish(void) {
    const struct timespec rest = {.tv_nsec = 10000};
    while (rig.n_out > 0)
        if (!sw_mover_step(rig.mover, false) && !sw_mover_wait(rig.mover))
            (void)nanosleep(&rest, NULL);
}

/* Moves one run in an area of its own, and unmaps the area. */
static int move(struct one *one, enum sw_operation operation, struct area *area, struct sw_frames *frames) {
    describe(area);
    add(one, operation, area, 0, area->bytes, frames);
    finish();
    sw_mover_unmap(rig.mover, &area->memory);
    return one->run.outcome.err.code;
}

static void spill_and_restore(uint64_t bytes, uint64_t near_bytes, bool goes_far) {
    struct area from = area_new(bytes), to = area_new(bytes);
    struct one out, back;
    rig_open(64 * MIB, near_bytes);
    fill(&from);
    ck_assert_int_eq(move(&out, SW_OP_SPILL, &from, NULL), 0);
    ck_assert_uint_eq(rig.sink.used_bytes, out.run.outcome.stored_bytes);
    ck_assert_uint_lt(out.run.outcome.stored_bytes, bytes);
    ck_assert_int_eq(rig.sink.n_put > 0, goes_far);
    ck_assert_int_eq(move(&back, SW_OP_RESTORE, &to, out.run.frames), 0);
    ck_assert_uint_eq(rig.sink.n_got, rig.sink.n_put);
    ck_assert_int_eq(memcmp(from.data, to.data, bytes), 0);
    sw_memory_sink_free(&rig.sink, out.run.frames);
    rig_close();
    area_free(&from);
    area_free(&to);
}

START_TEST(a_region_comes_back) {
    spill_and_restore(9 * MIB + 12345, UINT64_MAX, false);
}
END_TEST

/* Frames that do not shrink are moved on; the others stay. */
START_TEST(frames_come_back_after_they_were_moved) {
    spill_and_restore(9 * MIB + 12345, MIB / 2, true);
    spill_and_restore(9 * MIB + 12345, 0, true);
}
END_TEST

START_TEST(short_regions_come_back_in_groups) {
    struct area from = area_new((uint64_t)N_SHORT * SHORT_BYTES), to = area_new(from.bytes);
    struct one out[N_SHORT], back[N_SHORT];
    rig_open(64 * MIB, UINT64_MAX);
    fill(&from);
    describe(&from);
    describe(&to);
    for (unsigned i = 0; i < N_SHORT; i++)
        add(&out[i], SW_OP_SPILL, &from, (uint64_t)i * SHORT_BYTES, SHORT_BYTES, NULL);
    finish();
    for (unsigned i = 0; i < N_SHORT; i++)
        add(&back[i], SW_OP_RESTORE, &to, (uint64_t)i * SHORT_BYTES, SHORT_BYTES, out[i].run.frames);
    finish();
    sw_mover_unmap(rig.mover, &from.memory);
    sw_mover_unmap(rig.mover, &to.memory);
    ck_assert_int_eq(memcmp(from.data, to.data, from.bytes), 0);
    for (unsigned i = 0; i < N_SHORT; i++)
        sw_memory_sink_free(&rig.sink, out[i].run.frames);
    rig_close();
    area_free(&from);
    area_free(&to);
}
END_TEST

START_TEST(a_region_is_packed_in_place) {
    struct area area = area_new(9 * MIB + 12345), copy = area_new(area.bytes);
    struct one pack, unpack;
    rig_open(64 * MIB, UINT64_MAX);
    fill(&area);
    memcpy(copy.data, area.data, area.bytes);
    ck_assert_int_eq(move(&pack, SW_OP_PACK, &area, NULL), 0);
    ck_assert_uint_lt(pack.run.outcome.stored_bytes, area.bytes);
    ck_assert_int_eq(move(&unpack, SW_OP_UNPACK, &area, pack.run.frames), 0);
    ck_assert_int_eq(memcmp(copy.data, area.data, area.bytes), 0);
    sw_memory_sink_free(&rig.sink, pack.run.frames);
    rig_close();
    area_free(&area);
    area_free(&copy);
}
END_TEST

START_TEST(a_full_sink_fails_the_run_and_keeps_nothing) {
    struct area from = area_new(9 * MIB);
    struct one out;
    rig_open(2 * MIB, _i ? 0 : UINT64_MAX);
    fill(&from);
    ck_assert_int_eq(move(&out, SW_OP_SPILL, &from, NULL), -SW_ENOSPACE);
    ck_assert_ptr_null(out.run.frames);
    rig_close();
    area_free(&from);
}
END_TEST

START_TEST(a_damaged_frame_fails_its_restore) {
    struct area from = area_new(3 * MIB), to = area_new(from.bytes);
    struct one out, back;
    rig_open(64 * MIB, UINT64_MAX);
    fill(&from);
    ck_assert_int_eq(move(&out, SW_OP_SPILL, &from, NULL), 0);
    struct sw_extent *extent = &out.run.frames->stored[1].extents[0];
    ((uint8_t *)extent->memory)[extent->bytes / 2] ^= 1;
    ck_assert_int_eq(move(&back, SW_OP_RESTORE, &to, out.run.frames), -SW_ECHECKSUM);
    ck_assert_ptr_eq(back.run.frames, out.run.frames);
    sw_memory_sink_free(&rig.sink, out.run.frames);
    rig_close();
    area_free(&from);
    area_free(&to);
}
END_TEST

/* Returns the mover's copy of a dictionary with this content. */
static const struct sw_frame_dictionary *keep_dictionary(uint8_t content) {
    static struct sw_frame_dictionary dictionary;
    struct sw_plan plan = {.codec = SW_CODEC_ONPAIR, .dictionary = &dictionary};
    memset(dictionary.data, content, sizeof dictionary.data);
    ck_assert_int_eq(sw_mover_keep_dictionary(rig.mover, &plan, NULL), 0);
    ck_assert_ptr_ne(plan.dictionary, &dictionary);
    return plan.dictionary;
}

/* The run has another plan by now, and the planner, too. The dictionary goes when the slot has ended. */
START_TEST(a_slot_has_its_dictionary_until_it_has_encoded) {
    rig_open(64 * MIB, UINT64_MAX);
    const long live = sw_alloc_live();
    const struct sw_frame_dictionary *in_use = keep_dictionary(1);
    rig.mover->slots[N_SLOTS - 1].dictionary = in_use;
    for (uint8_t i = 2; i < 5; i++) {
        (void)keep_dictionary(i); /* frees the one before */
        ck_assert_uint_eq(in_use->data[SW_FRAME_MAX_DICTIONARY_BYTES - 1], 1);
        ck_assert_int_eq(sw_alloc_live(), live + 2);
    }
    rig.mover->slots[N_SLOTS - 1].dictionary = NULL;
    (void)keep_dictionary(5);
    ck_assert_int_eq(sw_alloc_live(), live + 1);
    rig_close();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("mover alone");
    TCase *tcase = tcase_create("memory sink");
    tcase_set_timeout(tcase, 120); /* the machine may be busy */
    tcase_add_test(tcase, a_region_comes_back);
    tcase_add_test(tcase, frames_come_back_after_they_were_moved);
    tcase_add_test(tcase, short_regions_come_back_in_groups);
    tcase_add_test(tcase, a_region_is_packed_in_place);
    tcase_add_loop_test(tcase, a_full_sink_fails_the_run_and_keeps_nothing, 0, 2);
    tcase_add_test(tcase, a_damaged_frame_fails_its_restore);
    tcase_add_test(tcase, a_slot_has_its_dictionary_until_it_has_encoded);
    suite_add_tcase(suite, tcase);
    return run_suite(suite);
}
