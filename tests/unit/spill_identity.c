/* Frames that are exchanged while the service is away: its successor refuses them, in host memory, on the disk, and
 * where they are packed; and frames that version 1 of the catalogue has recorded come back without an identity. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/catalogue_v1.h"
#include "tests/lib/content.h"
#include "tests/lib/lives.h"
#include "tests/lib/numbers.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FRAMES = 256, BLOCK = 4096, SLAB_BYTES = 2 << 20 };

static struct sw_life life;
static struct sw_region_id *const ids = sw_world.ids;

/* ---- frames in memory that is kept, and on the disk ---- */

struct frame {
    unsigned region;
    bool on_disk;
    struct sw_extent *extents;
    unsigned n_extents;
    uint64_t bytes;
    uint8_t *content; /* as it was stored */
};
static struct frame frames[MAX_FRAMES];
static unsigned n_frames;

/* The slab that has a byte of the tier. */
static int slab_of(uint64_t offset, off_t *ret_at) {
    for (unsigned i = 0; i < sw_world.n_slabs; i++)
        if (offset >= sw_world.slabs[i].offset && offset < sw_world.slabs[i].offset + SLAB_BYTES) {
            *ret_at = (off_t)(offset - sw_world.slabs[i].offset);
            return sw_world.slabs[i].fd;
        }
    ck_abort_msg("no slab has byte %llu", (unsigned long long)offset);
}

static void copy(const struct frame *frame, uint8_t *data, uint64_t bytes, bool to_tier) {
    const int disk = frame->on_disk ? sw_nvme_open_data(&sw_world.folder) : -1;
    for (unsigned e = 0; e < frame->n_extents; e++)
        for (uint64_t at = 0, n; at < frame->extents[e].bytes && bytes > 0; at += n, data += n, bytes -= n) {
            const uint64_t left = frame->extents[e].bytes - at;
            off_t place = (off_t)(frame->extents[e].offset + at);
            const int fd = disk >= 0 ? disk : slab_of((uint64_t)place, &place);
            n = left < BLOCK ? left : BLOCK;
            n = n < bytes ? n : bytes;
            ck_assert_int_eq(to_tier ? pwrite(fd, data, n, place) : pread(fd, data, n, place), (ssize_t)n);
        }
    if (disk >= 0)
        (void)close(disk);
}

static void find_frames(void) {
    n_frames = 0;
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        const struct sw_frames *of = life.engine->store.regions.regions[ids[i].slot].frames;
        for (size_t c = 0; c < of->n_chunks; c++) {
            const struct sw_stored *stored = &of->stored[c];
            struct frame *frame = &frames[n_frames++];
            ck_assert_uint_lt(n_frames, MAX_FRAMES);
            *frame = (struct frame){.region = i,
                                    .on_disk = sw_stored_is_away(stored),
                                    .extents = sw_alloc_array(stored->n_extents, sizeof stored->extents[0]),
                                    .n_extents = stored->n_extents,
                                    .bytes = stored->bytes,
                                    .content = sw_alloc(stored->bytes)};
            ck_assert(frame->extents && frame->content);
            memcpy(frame->extents, stored->extents, stored->n_extents * sizeof stored->extents[0]);
            copy(frame, frame->content, frame->bytes, false);
        }
    }
}

static void free_frames(void) {
    for (unsigned i = 0; i < n_frames; i++) {
        sw_free(frames[i].extents);
        sw_free(frames[i].content);
    }
}

static void exchange(const struct frame *a, const struct frame *b, bool back) {
    const uint64_t bytes = a->bytes < b->bytes ? a->bytes : b->bytes;
    copy(a, back ? a->content : b->content, bytes, true);
    copy(b, back ? b->content : a->content, bytes, true);
}

/* ---- lives ---- */

static struct sw_owner *next_life(uint64_t nvme_bytes) {
    sw_life_open(&life, nvme_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released + life.found.n_damaged, 0);
    struct sw_owner *owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    return owner;
}

static void spill_all(uint64_t nvme_bytes) {
    sw_life_open(&life, nvme_bytes);
    struct sw_owner *owner = sw_life_new_owner(&life);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        sw_world_fill(sw_world.memory.data, i);
        ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
        if (nvme_bytes)
            sw_life_move_to_the_disk(&life);
    }
    find_frames();
    sw_life_close(&life, owner, true);
}

/* The catalogue as it was, since a region that was refused is recorded as lost. */
static void copy_catalogue(uint8_t *bytes, size_t n, bool back) {
    ck_assert_int_eq(back ? pwrite(sw_world.catalogue, bytes, n, 0) : pread(sw_world.catalogue, bytes, n, 0),
                     (ssize_t)n);
}

static void check_refused(const struct frame *a, const struct frame *b, uint64_t nvme_bytes) {
    exchange(a, b, false);
    struct sw_owner *owner = next_life(nvme_bytes);
    ck_assert_int_eq(sw_life_run(&life, owner, a->region, true, true), -SW_ECHECKSUM);
    if (a->region != b->region)
        ck_assert_int_eq(sw_life_run(&life, owner, b->region, true, true), -SW_ECHECKSUM);
    ck_assert_int_eq(life.engine->store.regions.regions[ids[a->region].slot].state, SW_REGION_LOST);
    sw_life_close(&life, owner, true);
    exchange(a, b, true);
}

/* Each frame with its neighbour, which is mostly another chunk of its region, and with one far from it. */
START_TEST(exchanged_frames_are_refused_after_a_restart) {
    struct stat catalogue;
    sw_world.host_bytes = 8 << 20;
    sw_world.high_pct = 100;
    spill_all(sw_life_disks[_i]);
    ck_assert_int_eq(fstat(sw_world.catalogue, &catalogue), 0);
    const size_t n = (size_t)catalogue.st_size;
    uint8_t *kept = sw_alloc(n);
    ck_assert_ptr_nonnull(kept);
    copy_catalogue(kept, n, false);
    for (unsigned a = 0; a < n_frames; a++) {
        ck_assert(frames[a].on_disk == (_i == 1));
        for (unsigned k = 0; k < 2; k++) {
            check_refused(&frames[a], &frames[(a + (k ? n_frames / 2 : 1)) % n_frames], sw_life_disks[_i]);
            copy_catalogue(kept, n, true);
        }
    }
    struct sw_owner *owner = next_life(sw_life_disks[_i]);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
    free_frames();
    sw_free(kept);
}
END_TEST

/* Version 1 recorded no identities. Its regions come back, also after they were moved. */
START_TEST(regions_of_version_1_come_back) {
    sw_world.host_bytes = 8 << 20;
    sw_world.high_pct = 100;
    spill_all(sw_life_disks[_i]);
    const int old = sw_catalogue_v1_of(sw_world.catalogue);
    (void)close(sw_world.catalogue);
    sw_world.catalogue = old;
    struct sw_owner *owner = next_life(sw_life_disks[_i]);
    ck_assert(sw_catalogue_is_copy(life.catalogue));
    (void)close(sw_world.catalogue);
    sw_world.catalogue = fcntl(sw_catalogue_fd(life.catalogue), F_DUPFD_CLOEXEC, 0);
    sw_life_restore_all(&life, owner, true);
    sw_life_close(&life, owner, true);
    owner = next_life(sw_life_disks[1]);
    sw_life_move_to_the_disk(&life);
    sw_life_close(&life, owner, true);
    owner = next_life(sw_life_disks[1]);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        ck_assert_str_eq(life.engine->store.regions.regions[ids[i].slot].tier->kind->name, "nvme");
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
    free_frames();
}
END_TEST

/* ---- packed ---- */

enum { N_PACKED = 3, PACKED_BYTES = 5 * 65536 };

static void fill_packed(uint8_t *to, unsigned i) {
    sw_numbers_fill(to, 0, PACKED_BYTES, SW_VALUE_U32, SW_NUMBERS_UNIFORM, 9, i + 1);
}

static int run_packed(struct sw_owner *owner, unsigned i, const struct sw_memory *memory, bool unpacks) {
    struct sw_mem_desc desc = sw_memory_desc(memory);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, true, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = PACKED_BYTES, .type = SW_VALUE_U32};
    const int rc =
        unpacks ? sw_engine_restore(owner, ids[i], SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, NULL)
                : sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &ids[i], NULL);
    ck_assert_int_eq(rc, 0);
    sw_mem_close(mem, NULL, NULL);
    sw_life_until(&life, &op.done);
    return op.outcome.err.code;
}

START_TEST(packed_frames_are_compared_after_a_restart) {
    static uint8_t image[N_PACKED][PACKED_BYTES], expected[PACKED_BYTES];
    struct sw_memory memories[N_PACKED];
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    for (unsigned i = 0; i < N_PACKED; i++) {
        memories[i] = sw_memory_new(PACKED_BYTES);
        fill_packed(memories[i].data, i);
        ck_assert_int_eq(run_packed(owner, i, &memories[i], false), 0);
        memcpy(image[i], memories[i].data, PACKED_BYTES);
    }
    sw_life_close(&life, owner, true);
    for (unsigned a = 0; a < N_PACKED; a++)
        for (unsigned b = 0; b < N_PACKED; b++) {
            if (a == b)
                continue;
            memcpy(memories[a].data, image[b], PACKED_BYTES);
            owner = next_life(0);
            ck_assert_int_eq(run_packed(owner, a, &memories[a], true), -SW_ECHECKSUM);
            ck_assert_int_eq(life.engine->store.regions.regions[ids[a].slot].state, SW_REGION_OUT);
            ck_assert_mem_eq(memories[a].data, image[b], PACKED_BYTES);
            memcpy(memories[a].data, image[a], PACKED_BYTES);
            sw_life_close(&life, owner, true);
        }
    owner = next_life(0); /* and it was not recorded as broken */
    for (unsigned i = 0; i < N_PACKED; i++) {
        ck_assert_int_eq(run_packed(owner, i, &memories[i], true), 0);
        fill_packed(expected, i);
        ck_assert_mem_eq(memories[i].data, expected, PACKED_BYTES);
        sw_memory_free(&memories[i]);
    }
    sw_life_close(&life, owner, false);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("identity of what is stored");
    TCase *tcase = tcase_create("identity of what is stored");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, exchanged_frames_are_refused_after_a_restart, 0, 2);
    tcase_add_loop_test(tcase, regions_of_version_1_come_back, 0, 2);
    tcase_add_test(tcase, packed_frames_are_compared_after_a_restart);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
