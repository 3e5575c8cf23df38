/* Damaged stored bytes: in the disk's manifest, from which the next process salvages whole frames; and in a running
 * process, which reports the place. */
#include "spill/engine_state.h"
#include "spill/mover/frames.h"
#include "spill/store/damage.h"
#include "spill/tier/frame_key.h"
#include "spill/tier/nvme/manifest_format.h"
#include "tests/lib/catalogue_v1.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sw_life life;
static struct sw_region_id *const ids = sw_world.ids;

/* ---- what is heard ---- */

static struct {
    unsigned n_bad, n_lost;
    struct sw_bad_frame bad; /* the last one; its error's code is in `code` */
    int code;
    char text[256]; /* of its error */
    struct sw_lost_region lost[SW_WORLD_REGIONS];
    char name[SW_REGION_NAME_BYTES];
} heard;

static void on_bad_frame(const struct sw_bad_frame *frame, void *arg) {
    (void)arg;
    heard.n_bad++;
    heard.bad = *frame;
    heard.code = frame->err->code;
    (void)snprintf(heard.text, sizeof heard.text, "%s", frame->err->msg);
}

static void on_lost_region(const struct sw_lost_region *lost, void *arg) {
    (void)arg;
    ck_assert_uint_lt(heard.n_lost, SW_WORLD_REGIONS);
    if (lost->name)
        (void)strcpy(heard.name, lost->name);
    heard.lost[heard.n_lost++] = *lost;
}

static void setup(void) {
    sw_world_setup();
    memset(&heard, 0, sizeof heard);
    sw_world.observer = (struct sw_observer){.bad_frame = on_bad_frame, .lost_region = on_lost_region};
}

/* ---- files ---- */

static char *path_of(const char *name) {
    static char path[SW_TEST_PATH_BYTES + 32];
    (void)snprintf(path, sizeof path, "%s/%s", sw_world.folder.path, name);
    return path;
}

static void flip(const char *name, off_t at) {
    uint8_t byte;
    const int fd = open(path_of(name), O_RDWR | O_CLOEXEC);
    ck_assert_int_eq(pread(fd, &byte, 1, at), 1);
    byte ^= 0x10;
    ck_assert_int_eq(pwrite(fd, &byte, 1, at), 1);
    ck_assert_int_eq(close(fd), 0);
}

static void overwrite(const char *name, off_t at, size_t bytes) {
    static uint8_t nonsense[1 << 20];
    const int fd = open(path_of(name), O_RDWR | O_CLOEXEC);
    memset(nonsense, 0x5A, sizeof nonsense);
    ck_assert_uint_le(bytes, sizeof nonsense);
    ck_assert_int_eq(pwrite(fd, nonsense, bytes, at), (ssize_t)bytes);
    ck_assert_int_eq(close(fd), 0);
}

/* Flips a bit in records of the manifest: in all of a kind, or in the commit of one chunk of a region. Returns how
 * many.
 */
static unsigned damage_records(enum sw_manifest_kind kind, const struct sw_region_id *id, uint64_t chunk) {
    static uint8_t image[1 << 20];
    const int fd = open(path_of("manifest"), O_RDWR | O_CLOEXEC);
    const ssize_t bytes = pread(fd, image, sizeof image, 0);
    unsigned n = 0;
    ck_assert_int_eq(close(fd), 0);
    for (size_t at = sizeof(struct sw_manifest_header); at + sizeof(struct sw_manifest_head) <= (size_t)bytes;) {
        struct sw_manifest_head head;
        struct sw_tier_key key;
        memcpy(&head, image + at, sizeof head);
        memcpy(&key, image + at + sizeof head, sizeof key);
        if (head.kind == kind && (!id || (key.slot == id->slot && key.gen == id->gen && key.chunk == chunk))) {
            flip("manifest", (off_t)(at + 20));
            n++;
        }
        at += sizeof head + head.body_bytes;
    }
    return n;
}

/* ---- lives ---- */

static struct sw_owner *begin(void) {
    sw_world.high_pct = 100; /* nothing moves by itself */
    sw_life_open(&life, sw_life_disks[1]);
    return sw_life_new_owner(&life);
}

static struct sw_owner *go_on(struct sw_owner *owner) {
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_engine_check(life.engine);
    return sw_owner_claim(life.engine, 1000, sw_life_token);
}

static void spill_to_the_disk(struct sw_owner *owner, unsigned i) {
    sw_world_fill(sw_world.memory.data, i);
    ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
    sw_life_move_to_the_disk(&life);
}

static void move(struct sw_owner *owner, unsigned i, enum sw_advice advice) {
    ck_assert_int_eq(sw_engine_advise(owner, ids[i], advice, 0, NULL), 0);
    while (life.engine->balance.n_moves)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
}

static struct sw_frames *frames_of(unsigned i) {
    return life.engine->store.regions.regions[ids[i].slot].frames;
}

static size_t damaged_places(void) {
    struct sw_tier_nvme_info info;
    sw_tier_nvme_info(life.nvme, &info);
    return info.damage.n_places;
}

/* ---- the manifest ---- */

START_TEST(a_damaged_record_costs_one_region) {
    struct sw_owner *owner = begin();
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        spill_to_the_disk(owner, i);
    sw_life_close(&life, owner, true);
    ck_assert_uint_eq(damage_records(SW_MANIFEST_COMMIT, &ids[4], 7), 1);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_uint_eq(damaged_places(), 1);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost, 1);
    ck_assert_uint_eq(heard.n_lost, 1);
    ck_assert_mem_eq(&heard.lost[0].region, &ids[4], sizeof ids[4]);
    ck_assert_uint_eq(heard.lost[0].n_chunks, 10);
    ck_assert_uint_eq(heard.lost[0].n_away, 1);
    ck_assert_uint_eq(heard.lost[0].n_gone, 0);
    ck_assert_uint_eq(heard.lost[0].uid, 1000);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        if (i == 4)
            ck_assert_int_eq(sw_life_run(&life, owner, i, true, true), -SW_ELOST);
        else
            sw_life_restore_and_compare(&life, owner, i, true);
    owner = go_on(owner);
    ck_assert_uint_eq(damaged_places(), 0);
    ck_assert_uint_eq(life.found.n_lost, 1);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        if (i != 4)
            sw_life_restore_and_compare(&life, owner, i, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* Makes the catalogue as the earlier version recorded it: without the frames' places on the disk. */
static void make_catalogue_old(void) {
    const int old = sw_catalogue_v1_of(sw_world.catalogue);
    (void)close(sw_world.catalogue);
    sw_world.catalogue = old;
}

/* A region was on the disk twice, and the release of its first frame is lost, so it is found twice. The first place may
 * hold anything by now. */
START_TEST(the_later_of_two_frames_of_a_chunk_counts) {
    struct sw_owner *owner = begin();
    struct sw_stored taken;
    spill_to_the_disk(owner, 5);
    const size_t n = frames_of(5)->n_chunks;
    uint64_t first_bytes = 0;
    for (size_t i = 0; i < n; i++) {
        const struct sw_extent *extent = &frames_of(5)->stored[i].extents[0];
        first_bytes = extent->offset + extent->bytes > first_bytes ? extent->offset + extent->bytes : first_bytes;
    }
    move(owner, 5, SW_ADVISE_PREFETCH);
    ck_assert_int_eq(life.nvme->ops->reserve(life.nvme, first_bytes, &taken, NULL), 0); /* so that it lies elsewhere */
    ck_assert_uint_eq(taken.extents[0].offset, 0);
    move(owner, 5, SW_ADVISE_DEMOTE);
    for (size_t i = 0; i < n; i++)
        ck_assert_uint_ge(frames_of(5)->stored[i].extents[0].offset, first_bytes);
    life.nvme->ops->release(life.nvme, &taken);
    sw_life_close(&life, owner, true);
    ck_assert_uint_eq(damage_records(SW_MANIFEST_RELEASE, NULL, 0), n);
    overwrite("data-0000", 0, first_bytes);
    if (_i)
        make_catalogue_old();
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, 0);
    ck_assert_uint_eq(life.found.n_released, n);
    sw_engine_check(life.engine);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_and_compare(&life, owner, 5, true);
    if (!_i) {                /* else the memory of this catalogue is not the world's */
        owner = go_on(owner); /* those of before are gone from the manifest, too */
        ck_assert_uint_eq(life.found.n_released, 0);
    }
    sw_life_restore_and_compare(&life, owner, 5, false);
    sw_life_close(&life, owner, false);
}
END_TEST

static const struct sw_tier_ops *disk_ops;

static void submit_unchecked(struct sw_tier *tier, struct sw_tier_io *io) {
    struct sw_tier_key key;
    memcpy(&key, io->key, sizeof key);
    key.check = SW_WORLD_REGION_BYTES; /* as an earlier version has it */
    memcpy(io->key, &key, sizeof key);
    disk_ops->submit(tier, io);
}

/* Frames of an earlier version cannot be told apart. They count while the manifest is whole, and behind damage. If
 * their release may be lost, they do not count. */
START_TEST(ambiguous_frames_are_not_salvaged) {
    struct sw_owner *owner = begin();
    struct sw_tier_ops ops = *life.nvme->ops;
    disk_ops = life.nvme->ops;
    ops.submit = submit_unchecked;
    life.nvme->ops = &ops;
    spill_to_the_disk(owner, 0);
    life.nvme->ops = disk_ops;
    spill_to_the_disk(owner, 1);
    spill_to_the_disk(owner, 5);
    life.nvme->ops = &ops;
    spill_to_the_disk(owner, 4);
    life.nvme->ops = disk_ops;
    owner = go_on(owner);
    ck_assert_uint_eq(life.found.n_lost, 0);
    sw_life_close(&life, owner, true);
    ck_assert_uint_eq(damage_records(SW_MANIFEST_COMMIT, &ids[5], 9), 1);
    if (_i)
        make_catalogue_old();
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_uint_eq(life.found.n_lost, _i ? 2 : 1);
    if (_i)
        ck_assert_int_eq(sw_life_run(&life, owner, 0, true, true), -SW_ELOST);
    else /* the record says where it lies */
        sw_life_restore_and_compare(&life, owner, 0, false);
    ck_assert_int_eq(sw_life_run(&life, owner, 5, true, true), -SW_ELOST);
    sw_life_restore_and_compare(&life, owner, 1, false);
    sw_life_restore_and_compare(&life, owner, 4, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* A durable region is named, whichever session has it. */
START_TEST(a_lost_region_is_named) {
    (void)sw_life_next(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1001, sw_life_token);
    sw_world.spill_as = "orders";
    spill_to_the_disk(owner, 1);
    sw_world.spill_as = NULL;
    spill_to_the_disk(owner, 5);
    sw_life_end(&life, owner);
    ck_assert_uint_eq(damage_records(SW_MANIFEST_COMMIT, &ids[1], 0), 1);
    (void)sw_life_next(&life, sw_life_disks[1]);
    ck_assert_uint_eq(heard.n_lost, 1);
    ck_assert_str_eq(heard.name, "orders");
    ck_assert_uint_eq(heard.lost[0].uid, 1001);
    ck_assert_uint_eq(heard.lost[0].raw_bytes, SW_WORLD_REGION_BYTES);
    sw_life_end(&life, NULL);
}
END_TEST

/* ---- under a life ---- */

enum { RESTORED, FETCHED };

/* Region 1 is one buffer, region 6 several; the last chunk is not the first. */
static void restore_bad(struct sw_owner *owner, unsigned i, int way, int code) {
    heard.n_bad = 0;
    if (way == FETCHED)
        move(owner, i, SW_ADVISE_PREFETCH);
    else
        ck_assert_int_ne(sw_life_run(&life, owner, i, true, true), 0);
    ck_assert_uint_eq(heard.n_bad, 1);
    ck_assert(heard.code == code || (code == -SW_ECHECKSUM && heard.code == -SW_EFRAME)); /* what it breaks */
    ck_assert_mem_eq(&heard.bad.region, &ids[i], sizeof ids[i]);
}

START_TEST(a_bad_frame_on_the_disk_is_named) {
    const unsigned i = _i % 2 ? 6 : 1;
    struct sw_owner *owner = begin();
    spill_to_the_disk(owner, 0);
    spill_to_the_disk(owner, i);
    const size_t chunk = frames_of(i)->n_chunks - 1;
    const struct sw_extent *extent = &frames_of(i)->stored[chunk].extents[0];
    ck_assert_uint_gt(extent->offset, 0);
    flip("data-0000",
         (off_t)extent->offset + (_i < 2 ? 9 : (off_t)extent->bytes - 17)); /* its beginning; its last tile */
    restore_bad(owner, i, _i < 2 ? FETCHED : RESTORED, -SW_ECHECKSUM);
    ck_assert_str_eq(heard.bad.tier, "nvme");
    ck_assert_str_eq(heard.bad.file, "data-0000");
    ck_assert_uint_eq(heard.bad.offset, extent->offset);
    ck_assert_uint_eq(heard.bad.chunk, chunk);
    sw_life_close(&life, owner, false);
}
END_TEST

/* Several that are read at once: the one that is named has the error that is reported. */
START_TEST(the_first_of_several_bad_frames_is_named) {
    struct sw_owner *owner = begin();
    char chunk[32];
    spill_to_the_disk(owner, 1);
    for (unsigned i = 1; i < 6; i++)
        flip("data-0000", (off_t)frames_of(1)->stored[i].extents[0].offset + 9);
    restore_bad(owner, 1, RESTORED, -SW_ECHECKSUM);
    (void)snprintf(chunk, sizeof chunk, "chunk %zu is", heard.bad.chunk);
    ck_assert_msg(strstr(heard.text, chunk), "%s: %s", chunk, heard.text);
    ck_assert_uint_eq(heard.bad.offset, frames_of(1)->stored[heard.bad.chunk].extents[0].offset);
    sw_life_close(&life, owner, false);
}
END_TEST

/* The disk cannot be read: its place is named, and the region stays. */
START_TEST(a_frame_that_cannot_be_read_is_named) {
    struct sw_owner *owner = begin();
    struct stat st;
    spill_to_the_disk(owner, 1);
    ck_assert_int_eq(stat(path_of("data-0000"), &st), 0);
    const struct sw_extent *extent = &frames_of(1)->stored[9].extents[0];
    ck_assert_int_eq(truncate(path_of("data-0000"), (off_t)extent->offset), 0);
    restore_bad(owner, 1, RESTORED, -SW_EIO);
    ck_assert_uint_eq(heard.bad.offset, extent->offset);
    ck_assert_int_eq(life.engine->store.regions.regions[ids[1].slot].state, SW_REGION_OUT);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(a_bad_frame_in_memory_is_named) {
    const unsigned i = _i ? 6 : 1;
    struct sw_owner *owner = begin();
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    sw_world_fill(sw_world.memory.data, i);
    ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
    const size_t chunk = frames_of(i)->n_chunks - 1;
    const struct sw_stored *stored = &frames_of(i)->stored[chunk];
    uint8_t *memory = stored->extents[0].memory;
    memory[stored->extents[0].bytes - 17] ^= 1;
    restore_bad(owner, i, RESTORED, -SW_ECHECKSUM);
    ck_assert_str_eq(heard.bad.tier, "host");
    /* Raw chunks come back several by a step, of which the first one's place is named. */
    ck_assert(heard.bad.chunk <= chunk && chunk < heard.bad.chunk + heard.bad.n_chunks);
    const struct sw_stored *named = &frames_of(i)->stored[heard.bad.chunk];
    ck_assert_uint_eq(heard.bad.bytes, named->bytes);
    unsigned long long slab;
    ck_assert_int_eq(sscanf(heard.bad.file, "arena-%llx", &slab), 1);
    ck_assert_uint_eq(slab + heard.bad.offset, named->extents[0].offset);
    ck_assert_uint_lt(heard.bad.offset, 2 << 20);
    sw_life_close(&life, owner, false);
}
END_TEST

static void locate_anywhere(struct sw_tier *tier, const struct sw_stored *stored, char ret_file[SW_TIER_FILE_BYTES],
                            uint64_t *ret_offset) {
    (void)tier, (void)stored;
    (void)snprintf(ret_file, SW_TIER_FILE_BYTES, "file");
    *ret_offset = 0;
}

/* A tier is blamed for frames that it has damaged or cannot read, and for no other failure. A client may have made its
 * frames bad, but it does not make reads fail; and packed frames lie in its own memory. */
START_TEST(only_a_tiers_damage_is_reported) {
    static const struct sw_tier_kind kind = {.name = "some"};
    static const struct sw_tier_ops ops = {.locate = locate_anywhere};
    static const struct {
        int code;
        bool are_clients, is_packed, is_reported;
        size_t first, n;
    } cases[] = {
        {-SW_ECHECKSUM, false, false, true, 1, 1},  {-SW_EFRAME, false, false, true, 0, 2},
        {-SW_EVERSION, false, false, true, 1, 1},   {-SW_EIO, false, false, true, 1, 1},
        {-SW_EIO, true, false, true, 1, 1},         {-SW_ECHECKSUM, true, false, false, 1, 1},
        {-SW_ECHECKSUM, false, true, false, 1, 1},  {-SW_ENOMEM, false, false, false, 1, 1},
        {-SW_ECANCELED, false, false, false, 1, 1}, {-SW_ECHECKSUM, false, false, false, 0, 0},
        {-SW_ECHECKSUM, false, false, false, 2, 1},
    };
    struct sw_tier tier = {.ops = &ops, .kind = &kind};
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        struct sw_frames *frames = sw_frames_new(200, 100, cases[k].is_packed);
        struct sw_run_outcome outcome = {.failed = {.first = cases[k].first, .n = cases[k].n}};
        for (size_t i = 0; i < 2; i++) {
            frames->stored[i].tier = &tier;
            frames->are_clients[i] = cases[k].are_clients;
        }
        outcome.err.code = cases[k].code;
        heard.n_bad = 0;
        sw_damage_report(&sw_world.observer, (struct sw_region_id){1, 1}, frames, &outcome);
        ck_assert_msg(heard.n_bad == cases[k].is_reported, "case %zu", k);
        ck_assert(!cases[k].is_reported || (heard.code == cases[k].code && heard.bad.chunk == cases[k].first &&
                                            heard.bad.n_chunks == cases[k].n));
        sw_frames_delete(frames);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("salvage");
    TCase *tcase = tcase_create("salvage");
    tcase_add_checked_fixture(tcase, setup, sw_world_teardown);
    tcase_add_test(tcase, a_damaged_record_costs_one_region);
    tcase_add_loop_test(tcase, the_later_of_two_frames_of_a_chunk_counts, 0, 2);
    tcase_add_loop_test(tcase, ambiguous_frames_are_not_salvaged, 0, 2);
    tcase_add_test(tcase, a_lost_region_is_named);
    tcase_add_loop_test(tcase, a_bad_frame_on_the_disk_is_named, 0, 4);
    tcase_add_test(tcase, the_first_of_several_bad_frames_is_named);
    tcase_add_test(tcase, a_frame_that_cannot_be_read_is_named);
    tcase_add_loop_test(tcase, a_bad_frame_in_memory_is_named, 0, 2);
    tcase_add_test(tcase, only_a_tiers_damage_is_reported);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
