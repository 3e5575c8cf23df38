/* Recovery with changed tiers: a slab or the disk is gone, away for a while, or another one; or a tier was added or
 * made smaller. Only frames that lay there are lost, and only while it is away. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "spill/tier/frame_key.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { EPOCH_AT = 24 }; /* in a catalogue */

static struct sw_life life;
static struct sw_region_id *const ids = sw_world.ids;

/* The machine is restarted: memory is lost, and ids start again. */
static void restart_machine(void) {
    (void)close(sw_world.catalogue);
    sw_world.catalogue = -1;
    while (sw_world.n_slabs)
        (void)close(sw_world.slabs[--sw_world.n_slabs].fd);
}

static void spill_to_the_disk(struct sw_owner *owner, unsigned i) {
    sw_world_fill(sw_world.memory.data, i);
    ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
    sw_life_move_to_the_disk(&life);
}

/* Neither all in memory nor all on the disk. */
static bool is_parted(struct sw_region_id id) {
    const struct sw_frames *frames = life.engine->store.regions.regions[id.slot].frames;
    size_t n_on_disk = 0;
    for (size_t i = 0; i < frames->n_chunks; i++)
        n_on_disk += frames->stored[i].tier == life.nvme;
    return n_on_disk > 0 && n_on_disk < frames->n_chunks;
}

/* Asks for the buffers of a region, which is lost or not: it is never busy, or a client would ask for ever. Returns
 * whether they are told: of a lost region they are known as long as its frames may come back. */
static bool tells_buffers(struct sw_owner *owner, struct sw_region_id id, bool is_lost) {
    struct sw_buffer_info infos[SW_FRAMES_MAX_BUFFERS];
    unsigned n;
    const int rc = sw_engine_query_buffers(owner, id, infos, &n, NULL);
    ck_assert_msg(rc == 0 || (is_lost && rc == -SW_ELOST), "%s", sw_err_name(rc));
    return rc == 0;
}

/* A slab or the disk is gone: regions with frames there are reported as lost, the others are not. */
START_TEST(incomplete_regions_are_lost) {
    unsigned n_lost = 0, n_untold = 0;
    sw_life_open(&life, sw_life_disks[_i]);
    sw_life_await_arena(&life); /* so that the first slab is filled before the second */
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    sw_life_close(&life, owner, true);
    if (_i == 0) {
        ck_assert_uint_eq(sw_world.n_slabs, 2);
        /* The second: of the first one every region may have a piece, by what is left of it. */
        (void)close(sw_world.slabs[--sw_world.n_slabs].fd);
    } else {
        sw_nvme_folder_free(&sw_world.folder);
        sw_world.folder = sw_nvme_folder_new();
    }
    sw_life_open(&life, sw_life_disks[_i]);
    sw_life_await_arena(&life); /* a new slab in the place of the old one holds nothing of it */
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_gt(life.found.n_lost, 0);
    ck_assert_uint_lt(life.found.n_lost, SW_WORLD_REGIONS);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        const int rc = sw_life_run(&life, owner, i, true, true);
        ck_assert(rc == 0 || rc == -SW_ELOST);
        n_lost += rc != 0;
        n_untold += !tells_buffers(owner, ids[i], rc != 0);
    }
    ck_assert_uint_eq(n_lost, life.found.n_lost);
    ck_assert(_i > 0 || n_untold == n_lost); /* nothing of a slab comes back */
    sw_life_close(&life, owner, false);
}
END_TEST

/* Started without its disk, or with another one, as by a mistake in the configuration. */
START_TEST(regions_come_back_with_their_disk) {
    const struct sw_nvme_folder right = sw_world.folder, other = sw_nvme_folder_new();
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        spill_to_the_disk(owner, i);
    sw_life_close(&life, owner, true);
    sw_world.folder = other;
    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, SW_WORLD_REGIONS);
    sw_engine_check(life.engine);
    sw_life_close(&life, NULL, true);
    sw_world.folder = right;
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        sw_life_restore_and_compare(&life, owner, i, false);
    sw_life_close(&life, owner, false);
    sw_world.folder = other;
    sw_nvme_folder_free(&sw_world.folder);
    sw_world.folder = right;
}
END_TEST

/* Meanwhile the service works with another disk, and is restarted with it more than once. Regions stored there wait in
 * their turn. */
START_TEST(regions_wait_for_their_disk_without_limit) {
    const struct sw_nvme_folder right = sw_world.folder, other = sw_nvme_folder_new();
    const struct sw_nvme_folder *const folders[] = {&other, &other, &other, &right, &other};
    enum { FIRST = 4 };
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    for (unsigned i = 0; i < FIRST; i++)
        spill_to_the_disk(owner, i);
    sw_life_close(&life, owner, true);
    for (unsigned k = 0; k < sizeof folders / sizeof folders[0]; k++) {
        const bool is_right = folders[k] == &right;
        const unsigned n = k == 0 ? FIRST : FIRST + 1;
        sw_world.folder = *folders[k];
        sw_life_open(&life, sw_life_disks[1]);
        ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
        ck_assert_uint_eq(life.found.n_regions, n);
        ck_assert_uint_eq(life.found.n_lost, is_right ? 1 : FIRST);
        ck_assert_uint_eq(life.found.n_released, 0);
        sw_engine_check(life.engine);
        owner = sw_owner_claim(life.engine, 1000, sw_life_token);
        for (unsigned i = 0; i < n; i++) {
            if (is_right == (i < FIRST))
                sw_life_restore_and_compare(&life, owner, i, true);
            else
                ck_assert_int_eq(sw_life_run(&life, owner, i, true, true), -SW_ELOST);
        }
        if (k == 0)
            spill_to_the_disk(owner, FIRST);
        sw_life_close(&life, owner, true);
    }
    sw_nvme_folder_free(&sw_world.folder);
    sw_world.folder = right;
}
END_TEST

/* Some have a part in memory, which is not reused meanwhile. */
START_TEST(a_region_waits_for_the_part_that_is_on_its_disk) {
    const struct sw_nvme_folder right = sw_world.folder, other = sw_nvme_folder_new();
    struct sw_engine_stats before, after;
    unsigned n_parted = 0;
    sw_world.high_pct = 100; /* nothing is moved: only frames without room go to the disk */
    (void)sw_life_next(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    sw_life_spill_all(&life, owner);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        n_parted += is_parted(ids[i]);
    ck_assert_uint_gt(n_parted, 0);
    sw_life_end(&life, owner);
    sw_world.folder = other;
    for (int k = 0; k < 2; k++) {
        (void)sw_life_next(&life, sw_life_disks[_i]);
        ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
        ck_assert_uint_ge(life.found.n_lost, n_parted);
        ck_assert_uint_lt(life.found.n_lost, SW_WORLD_REGIONS);
        sw_engine_check(life.engine);
        sw_engine_stats(life.engine, k ? &after : &before);
        owner = sw_owner_claim(life.engine, 1000, sw_life_token);
        sw_life_end(&life, owner);
    }
    ck_assert_uint_eq(before.tiers[0].used_bytes, after.tiers[0].used_bytes);
    sw_world.folder = right;
    (void)sw_life_next(&life, sw_life_disks[1]);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released, 0);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_all(&life, owner, false);
    sw_life_close_owner(&life, owner, false);
    ck_assert_uint_eq(atomic_load(&life.quotas[0].bytes), 0);
    sw_life_end(&life, NULL);
    sw_world.folder = other;
    sw_nvme_folder_free(&sw_world.folder);
    sw_world.folder = right;
}
END_TEST

/* A disk that was not mounted when the machine started comes back while the service runs. It has frames of regions with
 * the same ids, chunks and lengths, which belonged to clients that ended long ago. */
START_TEST(frames_of_an_earlier_boot_belong_to_no_region) {
    const struct sw_nvme_folder right = sw_world.folder, other = sw_nvme_folder_new();
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    spill_to_the_disk(owner, 1);
    sw_life_close(&life, owner, true);
    restart_machine();
    sw_world.folder = other;
    sw_life_open(&life, sw_life_disks[1]);
    owner = sw_life_new_owner(&life);
    spill_to_the_disk(owner, 5);
    ck_assert_mem_eq(&ids[5], &ids[1], sizeof ids[1]);
    sw_life_close(&life, owner, true);
    sw_world.folder = right;
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, 1);
    ck_assert_uint_eq(life.found.n_lost, 1);
    ck_assert_uint_gt(life.found.n_released, 0);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_int_eq(sw_life_run(&life, owner, 5, true, true), -SW_ELOST);
    sw_life_close(&life, owner, true);
    sw_world.folder = other;
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_and_compare(&life, owner, 5, false);
    sw_life_close(&life, owner, false);
    sw_nvme_folder_free(&sw_world.folder);
    sw_world.folder = right;
}
END_TEST

static struct sw_region_id predecessor;
static const struct sw_tier_ops *disk_ops;

static void submit_as_the_predecessors(struct sw_tier *tier, struct sw_tier_io *io) {
    struct sw_tier_key key;
    memcpy(&key, io->key, sizeof key);
    key.slot = predecessor.slot;
    key.gen = predecessor.gen;
    memcpy(io->key, &key, sizeof key);
    disk_ops->submit(tier, io);
}

/* The disk still has the frames of a dropped region, because the service was killed before it released them there, and
 * equally long frames of the next region in the slot. Each is identified by its own name. */
START_TEST(frames_of_a_slots_previous_region_belong_to_no_region) {
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    spill_to_the_disk(owner, 1);
    spill_to_the_disk(owner, 5);
    predecessor = ids[5];
    sw_life_close(&life, owner, false);
    restart_machine(); /* ids begin anew, so the second region's is known before there is one */
    sw_life_open(&life, sw_life_disks[1]);
    owner = sw_life_new_owner(&life);
    struct sw_tier_ops ops = *life.nvme->ops;
    disk_ops = life.nvme->ops;
    ops.submit = submit_as_the_predecessors;
    life.nvme->ops = &ops;
    predecessor.gen--;
    spill_to_the_disk(owner, 1);
    life.nvme->ops = disk_ops;
    predecessor.gen++;
    spill_to_the_disk(owner, 5);
    ck_assert_mem_eq(&ids[5], &predecessor, sizeof predecessor);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, 2);
    ck_assert_uint_gt(life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_and_compare(&life, owner, 5, false);
    sw_life_close(&life, owner, false);
}
END_TEST

enum elsewhere { OTHER_BYTES, OTHER_OFFSET, SHORTER_EXTENT, LONGER_EXTENT, OTHER_TIER, ELSEWHERE_NR };
static enum elsewhere elsewhere;
static const struct sw_tier_recovery *wanted;

/* Reports a frame that the disk has found one unit beside the place that the record names, or as another tier's. */
static bool take_elsewhere(void *arg, const uint8_t key[SW_TIER_KEY_BYTES], const struct sw_stored *stored,
                           bool doubtful) {
    struct sw_stored found = *stored;
    struct sw_extent extent = stored->extents[0], *place = found.extents;
    found.bytes += elsewhere == OTHER_BYTES;
    found.tier = elsewhere == OTHER_TIER ? life.host : found.tier;
    place->offset += elsewhere == OTHER_OFFSET ? 4096 : 0;
    place->bytes -= elsewhere == SHORTER_EXTENT;
    place->bytes += elsewhere == LONGER_EXTENT;
    (void)arg;
    const bool taken = wanted->take(wanted->arg, key, &found, doubtful);
    *place = extent;
    return taken;
}

static int recover_elsewhere(struct sw_tier *tier, const struct sw_tier_recovery *what, struct sw_err *err) {
    struct sw_tier_recovery other = *what;
    wanted = what;
    other.take = take_elsewhere;
    return disk_ops->recover(tier, &other, err);
}

/* Loop: the difference between the place of a frame and that in its region's record. */
START_TEST(a_frame_at_another_place_belongs_to_no_region) {
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    spill_to_the_disk(owner, 1);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[1]);
    elsewhere = (enum elsewhere)_i;
    struct sw_tier_ops ops = *life.nvme->ops;
    disk_ops = life.nvme->ops;
    ops.recover = recover_elsewhere;
    life.nvme->ops = &ops;
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    life.nvme->ops = disk_ops;
    ck_assert_uint_eq(life.found.n_regions, 1);
    ck_assert_uint_eq(life.found.n_lost, 1);
    ck_assert_uint_gt(life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_int_eq(sw_life_run(&life, owner, 1, true, true), -SW_ELOST);
    sw_life_close(&life, owner, false);
}
END_TEST

/* A catalogue as an earlier version made it, with its frames on the disk. */
START_TEST(a_catalogue_without_an_epoch_finds_its_frames) {
    static const uint8_t none[sizeof(uint64_t)];
    sw_life_open(&life, sw_life_disks[1]);
    sw_life_close(&life, NULL, false);
    ck_assert_int_eq(pwrite(sw_world.catalogue, none, sizeof none, EPOCH_AT), sizeof none);
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* Adopted meanwhile, a durable one is lost only for as long, too. */
START_TEST(a_durable_region_comes_back_with_its_disk) {
    static const uint8_t second[SW_TOKEN_BYTES] = "the second one..";
    const struct sw_nvme_folder right = sw_world.folder, other = sw_nvme_folder_new();
    char names[SW_WORLD_REGIONS][8];
    (void)sw_life_next(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        (void)snprintf(names[i], sizeof names[i], "part-%u", i);
        sw_world.spill_as = names[i];
        sw_world_fill(sw_world.memory.data, i);
        ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
        sw_life_move_to_the_disk(&life);
    }
    sw_world.spill_as = NULL;
    sw_life_end(&life, owner);
    sw_world.folder = other;
    (void)sw_life_next(&life, sw_life_disks[1]);
    ck_assert_uint_eq(life.found.n_lost, SW_WORLD_REGIONS);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, NULL, false, NULL), 1);
    owner = sw_life_named_owner(&life, 1000, second);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        ck_assert_int_eq(sw_engine_adopt(owner, names[i], &ids[i], NULL), 0);
    sw_life_end(&life, owner);
    sw_world.folder = right;
    (void)sw_life_next(&life, sw_life_disks[1]);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost, 0);
    sw_life_end(&life, NULL);
    sw_world.folder = other;
    sw_nvme_folder_free(&sw_world.folder);
    sw_world.folder = right;
}
END_TEST

/* The host tier is full, so the operator has added a disk: no room must be made by hand. */
START_TEST(a_disk_is_added_to_a_full_host_tier) {
    struct sw_region_id first;
    unsigned n = 0;
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 1);
    for (; sw_life_run(&life, owner, 1, false, false) == 0; n++)
        first = n ? first : ids[1];
    ck_assert_uint_gt(n, 3);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert(life.found.n_regions == n && life.found.n_lost == 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    for (unsigned i = 0; i < n; i++)
        ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    ids[1] = first;
    sw_life_restore_and_compare(&life, owner, 1, true);
    sw_life_close(&life, owner, false);
}
END_TEST

/* The same if its limit is now below its content; frames on the disk are available, too. */
START_TEST(the_host_tier_is_made_smaller) {
    struct sw_region_id on_disk;
    sw_world.host_bytes = 8 << 20;
    sw_world.high_pct = 100;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    on_disk = ids[1];
    sw_life_move_to_the_disk(&life);
    for (int i = 0; i < 9; i++)
        ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    sw_life_close(&life, owner, true);
    sw_world.host_bytes = 4 << 20;
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_gt(life.engine->balance.n_moves, 0); /* at once: nothing has to be spilled before */
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ids[1] = on_disk;
    sw_life_restore_and_compare(&life, owner, 1, true);
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    sw_life_close(&life, owner, false);
}
END_TEST

/* All of the disk; back to what it was, if `image` says so: every write since was lost. */
static void copy_disk(uint8_t *image, bool back) {
    char path[SW_TEST_PATH_BYTES + 16];
    (void)snprintf(path, sizeof path, "%s/data-0000", sw_world.folder.path);
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    const size_t bytes = sw_life_disks[1];
    ck_assert_int_eq(back ? pwrite(fd, image, bytes, 0) : pread(fd, image, bytes, 0), (ssize_t)bytes);
    (void)close(fd);
}

/* A disk says that it has written, and has not; in its place lies a whole frame of the same length, another tenant's of
 * before. It is not given out: not at once, not when it is fetched ahead, not after a restart. */
START_TEST(a_lost_write_is_noticed) {
    enum { AT_ONCE, FETCHED, AFTER_RESTART };
    uint8_t *image = sw_alloc(sw_life_disks[1]), *expected = sw_alloc(SW_WORLD_REGION_BYTES);
    sw_world.high_pct = 100;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life), *other = NULL;
    ck_assert_int_eq(sw_owner_open(life.engine, &other, NULL), 0);
    spill_to_the_disk(other, 1);
    copy_disk(image, false);
    ck_assert_int_eq(sw_engine_drop(other, ids[1], NULL), 0);
    sw_life_close_owner(&life, other, false);
    spill_to_the_disk(owner, 5);
    spill_to_the_disk(owner, 7);
    if (_i == AFTER_RESTART) {
        sw_life_close(&life, owner, true);
        sw_life_open(&life, sw_life_disks[1]);
        ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
        ck_assert_uint_eq(life.found.n_lost, 0);
        owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    }
    sw_life_restore_and_compare(&life, owner, 5, true); /* so far nothing is wrong with it */
    copy_disk(image, true);
    if (_i == FETCHED) {
        ck_assert_int_eq(sw_engine_advise(owner, ids[5], SW_ADVISE_PREFETCH, 0, NULL), 0);
        while (life.engine->balance.n_moves)
            (void)uv_run(&life.loop, UV_RUN_ONCE);
    }
    sw_world_fill(expected, 1);
    memset(sw_world.memory.data, 0, SW_WORLD_REGION_BYTES);
    ck_assert_int_eq(sw_life_run(&life, owner, 5, true, true), -SW_ECHECKSUM);
    ck_assert_int_ne(memcmp(sw_world.memory.data, expected, 65536), 0);
    ck_assert_int_eq(life.engine->store.regions.regions[ids[5].slot].state, SW_REGION_LOST);
    ck_assert_int_eq(sw_life_run(&life, owner, 5, true, true), -SW_ELOST);
    sw_engine_check(life.engine);
    sw_life_close(&life, owner, false);
    sw_free(expected);
    sw_free(image);
}
END_TEST

/* The check covers the frame's beginning, in however many extents. Frames of an earlier version have no check. */
START_TEST(a_check_covers_one_frame) {
    static uint8_t bytes[3 * 4096];
    struct sw_extent one = {.memory = bytes, .bytes = sizeof bytes},
                     two[] = {{.memory = bytes, .bytes = 4096}, {.memory = bytes + 4096, .bytes = 2 * 4096}};
    const struct sw_stored whole = {.extents = &one, .n_extents = 1, .bytes = sizeof bytes},
                           parted = {.extents = two, .n_extents = 2, .bytes = sizeof bytes},
                           shorter = {.extents = &one, .n_extents = 1, .bytes = 4096};
    struct sw_frame_layout layout = {.counts_offset = 5000};
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)(i * 7 + i / 256);
    const uint64_t check = sw_tier_key_check(&whole, &layout);
    ck_assert_uint_eq(check, sw_tier_key_check(&parted, &layout));
    ck_assert(sw_tier_key_matches(&whole, check) && sw_tier_key_matches(&parted, check));
    ck_assert(!sw_tier_key_matches(&shorter, check));
    for (size_t i = 0; i < 5100; i++) {
        bytes[i] ^= 1;
        ck_assert(sw_tier_key_matches(&parted, check) == (i >= 5000));
        bytes[i] ^= 1;
    }
    layout.counts_offset = 1 << 20; /* never beyond the frame */
    ck_assert(sw_tier_key_matches(&shorter, sw_tier_key_check(&shorter, &layout)));
    ck_assert(sw_tier_key_matches(&whole, 0) && sw_tier_key_matches(&whole, UINT64_MAX >> 1));
}
END_TEST

/* A move goes by the region's record, whatever has become of its owner's: frames go once no valid record names them. */
START_TEST(a_move_is_recorded_where_the_region_is) {
    sw_world.high_pct = 100;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    const uint32_t record = owner->record;
    owner->record = 0;
    sw_life_move_to_the_disk(&life);
    owner->record = record;
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_eq(life.engine->store.regions.regions[ids[1].slot].tier, life.nvme);
    sw_life_restore_and_compare(&life, owner, 1, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* Writes wherever no frame lies, as the kernel may for a process that was killed during a read. The bytes and their
 * number are another tenant's. */
static void write_late(const struct sw_region *region, uint8_t byte) {
    static uint8_t noise[4096];
    memset(noise, byte, sizeof noise);
    for (unsigned i = 0; i < sw_world.n_slabs && sw_world.slabs[i].offset < sw_world.host_bytes; i++)
        for (uint64_t at = 0; at < 2 << 20; at += sizeof noise) {
            bool is_frame = false;
            for (size_t c = 0; c < region->frames->n_chunks; c++)
                for (unsigned e = 0; e < region->frames->stored[c].n_extents; e++) {
                    const struct sw_extent *x = &region->frames->stored[c].extents[e];
                    const uint64_t block = sw_world.slabs[i].offset + at;
                    is_frame |= block >= x->offset && block < x->offset + x->bytes;
                }
            if (!is_frame)
                ck_assert_int_eq(pwrite(sw_world.slabs[i].fd, noise, sizeof noise, (off_t)at), sizeof noise);
        }
}

/* A process is killed during a disk read; the next one starts without that disk. The late bytes hit no frame, and all
 * frames are still there. */
START_TEST(the_disk_is_still_at_work_for_a_predecessor) {
    struct sw_tier_stats stats;
    int ends[2];
    ck_assert_int_eq(pipe2(ends, O_CLOEXEC), 0);
    sw_life_open(&life, 0);
    sw_life_await_arena(&life);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    sw_life_close(&life, owner, true);
    sw_world.io_pipe = ends[0];
    sw_world.host_bytes += 2 << 20;
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    sw_world_fill(sw_world.memory.data, 3);
    ck_assert_int_eq(sw_life_run(&life, owner, 3, false, false), 0);
    sw_engine_check(life.engine);
    sw_world.host_bytes -= 2 << 20; /* what was there before */
    write_late(&life.engine->store.regions.regions[ids[1].slot], 0xA5);
    sw_life_restore_and_compare(&life, owner, 1, true);
    sw_life_restore_and_compare(&life, owner, 3, true);
    life.host->ops->stats(life.host, &stats);
    ck_assert_uint_gt(stats.held_bytes, 2 << 20);
    (void)close(ends[1]);
    sw_engine_check(life.engine);
    life.host->ops->stats(life.host, &stats);
    ck_assert_uint_eq(stats.held_bytes, 0);
    (void)close(ends[0]);
    sw_life_close(&life, owner, false);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("recovery_tiers");
    TCase *tcase = tcase_create("recovery_tiers");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, incomplete_regions_are_lost, 0, 2);
    tcase_add_loop_test(tcase, regions_come_back_with_their_disk, 0, 2);
    tcase_add_test(tcase, regions_wait_for_their_disk_without_limit);
    tcase_add_loop_test(tcase, a_region_waits_for_the_part_that_is_on_its_disk, 0, 2);
    tcase_add_test(tcase, frames_of_an_earlier_boot_belong_to_no_region);
    tcase_add_test(tcase, frames_of_a_slots_previous_region_belong_to_no_region);
    tcase_add_loop_test(tcase, a_frame_at_another_place_belongs_to_no_region, 0, ELSEWHERE_NR);
    tcase_add_test(tcase, a_catalogue_without_an_epoch_finds_its_frames);
    tcase_add_test(tcase, a_durable_region_comes_back_with_its_disk);
    tcase_add_test(tcase, a_disk_is_added_to_a_full_host_tier);
    tcase_add_test(tcase, the_host_tier_is_made_smaller);
    tcase_add_loop_test(tcase, a_lost_write_is_noticed, 0, 3);
    tcase_add_test(tcase, a_check_covers_one_frame);
    tcase_add_test(tcase, a_move_is_recorded_where_the_region_is);
    tcase_add_test(tcase, the_disk_is_still_at_work_for_a_predecessor);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
