/* The order of records and other events: space is reused only when no valid record names it, and the end of an
 * operation is reported only when its record is valid. A kill in between is one instruction wide, and its damage shows
 * only if the space is reused at once, so each of these moments is checked here. */
#include "spill/engine_state.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static struct sw_life life;
static struct sw_region_id *const ids = sw_world.ids;

/* ---- what a successor would find now ---- */

struct looking {
    const struct sw_stored *space; /* looked for in records; NULL: a region is */
    struct sw_tier *tier;
    struct sw_region_id id;
    unsigned n_naming, n_regions;
    bool is_in, is_broken;
};

static bool on_session(void *arg, const struct sw_catalogue_session *session, uint32_t record) {
    (void)arg;
    (void)session;
    (void)record;
    return true;
}

static bool names(const struct sw_stored *recorded, const struct looking *l) {
    if (recorded->awaits != l->tier->kind->id)
        return false;
    for (unsigned i = 0; i < recorded->n_extents; i++)
        for (unsigned k = 0; k < l->space->n_extents; k++)
            if (recorded->extents[i].offset < l->space->extents[k].offset + l->space->extents[k].bytes &&
                l->space->extents[k].offset < recorded->extents[i].offset + recorded->extents[i].bytes)
                return true;
    return false;
}

/* A region that is IN, or is being packed, does not have its bytes where its record says. */
static bool on_region(void *arg, struct sw_catalogue_region *region, uint32_t record) {
    struct looking *l = arg;
    (void)record;
    if (region->slot == l->id.slot && region->gen == l->id.gen) {
        l->n_regions++;
        l->is_in = region->hints.is_in;
        l->is_broken = region->hints.broken;
    }
    for (size_t i = 0;
         l->space && region->frames && !region->hints.is_in && !region->hints.broken && i < region->frames->n_chunks;
         i++)
        l->n_naming += names(&region->frames->stored[i], l);
    sw_catalogue_frames_free(region->frames);
    return true;
}

/* Reads a copy of the catalogue, as it is now. */
static void look(struct looking *l) {
    const struct sw_catalogue_visitor visitor = {.session = on_session, .found = on_region, .arg = l};
    struct sw_catalogue *copy = NULL;
    struct stat st;
    unsigned n_damaged = 0;
    const int from = sw_catalogue_fd(life.catalogue), to = memfd_create("copy", MFD_CLOEXEC);
    ck_assert(fstat(from, &st) == 0 && ftruncate(to, st.st_size) == 0);
    void *source = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_SHARED, from, 0);
    ck_assert(source != MAP_FAILED && pwrite(to, source, (size_t)st.st_size, 0) == st.st_size);
    (void)munmap(source, (size_t)st.st_size);
    ck_assert_int_eq(sw_catalogue_open(&copy, to, 100, NULL), 0);
    ck_assert_int_eq(sw_catalogue_recover(copy, &visitor, &n_damaged, NULL), 0);
    ck_assert_uint_eq(n_damaged, 0);
    sw_catalogue_close(copy);
}

/* ---- tiers that look before they take space back ---- */

static struct {
    const struct sw_tier_ops *ops;
    struct sw_tier_ops watched;
} tiers[2];
static unsigned n_releases;

static void release_watched(struct sw_tier *tier, struct sw_stored *stored) {
    struct looking l = {.space = stored, .tier = tier};
    if (stored->committed && stored->n_extents) {
        look(&l);
        ck_assert_msg(l.n_naming == 0, "space in %s is given back while a record names it", tier->kind->name);
        n_releases++;
    }
    tiers[tier == life.nvme].ops->release(tier, stored);
}

static void watch(void) {
    struct sw_tier *both[] = {life.host, life.nvme};
    for (unsigned i = 0; i < 2 && both[i]; i++) {
        tiers[i].ops = both[i]->ops;
        tiers[i].watched = *both[i]->ops;
        tiers[i].watched.release = release_watched;
        both[i]->ops = &tiers[i].watched;
    }
    n_releases = 0;
}

static void stop_watching(void) {
    struct sw_tier *both[] = {life.host, life.nvme};
    for (unsigned i = 0; i < 2 && both[i]; i++)
        both[i]->ops = tiers[i].ops;
}

static struct sw_owner *begin(uint64_t disk_bytes) {
    sw_world.high_pct = 100; /* nothing moves by itself */
    sw_life_open(&life, disk_bytes);
    struct sw_owner *owner = sw_life_new_owner(&life);
    watch();
    return owner;
}

static void spill(struct sw_owner *owner, unsigned i) {
    sw_world_fill(sw_world.memory.data, i);
    ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
}

static void move(struct sw_owner *owner, unsigned i, enum sw_advice advice) {
    ck_assert_int_eq(sw_engine_advise(owner, ids[i], advice, 0, NULL), 0);
    while (life.engine->balance.n_moves)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
}

static void end(struct sw_owner *owner) {
    sw_life_close_owner(&life, owner, false);
    stop_watching();
    sw_life_close(&life, NULL, false);
}

START_TEST(space_is_free_only_when_no_record_names_it) {
    struct sw_owner *owner = begin(sw_life_disks[_i]);
    for (unsigned i = 0; i < 4; i++)
        spill(owner, i);
    if (_i) {
        move(owner, 1, SW_ADVISE_DEMOTE);
        move(owner, 2, SW_ADVISE_DEMOTE);
        move(owner, 1, SW_ADVISE_PREFETCH);
        move(owner, 1, SW_ADVISE_DEMOTE);
    }
    ck_assert_int_eq(sw_engine_drop(owner, ids[0], NULL), 0);
    sw_life_restore_and_compare(&life, owner, 1, false);
    ck_assert_int_eq(sw_engine_consume(owner, ids[2], NULL), 0);
    spill(owner, 5);
    sw_owner_acknowledged(owner);
    ck_assert_uint_gt(n_releases, 25);
    const unsigned before = n_releases;
    end(owner); /* which has two more */
    ck_assert_uint_gt(n_releases, before + 10);
}
END_TEST

/* ---- what is recorded when the end is told ---- */

struct told {
    bool done;
    int code;
    struct looking found;
};

static void on_told(const struct sw_outcome *outcome, void *arg) {
    struct told *told = arg;
    told->done = true;
    told->code = outcome->err.code;
    told->found = (struct looking){.id = outcome->region};
    look(&told->found);
}

static struct sw_mem *open_memory(struct sw_owner *owner) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    return mem;
}

static struct told run_spill(struct sw_owner *owner, const struct sw_transfer *transfer, struct sw_region_id *ret) {
    struct told told = {0};
    ck_assert_int_eq(sw_engine_spill(owner, transfer, on_told, &told, ret, NULL), 0);
    sw_life_until(&life, &told.done);
    return told;
}

static struct told run_restore(struct sw_owner *owner, struct sw_region_id id, const struct sw_transfer *transfer) {
    struct told told = {0};
    ck_assert_int_eq(sw_engine_restore(owner, id, transfer, on_told, &told, NULL), 0);
    struct looking meanwhile = {.id = id};
    look(&meanwhile);
    ck_assert_uint_eq(meanwhile.n_regions, 1);
    ck_assert_int_eq(meanwhile.is_broken, transfer->in_place); /* from before its first byte moves */
    ck_assert(!meanwhile.is_in);
    sw_life_until(&life, &told.done);
    return told;
}

START_TEST(an_end_is_reported_after_its_record) {
    const bool in_place = _i;
    struct sw_owner *owner = begin(0);
    struct sw_region_id id;
    sw_world_fill(sw_world.memory.data, 0);
    const struct sw_range range = {.mem = open_memory(owner), .bytes = SW_WORLD_REGION_BYTES};
    struct told told = run_spill(owner, SW_TRANSFER(&range, 1, .in_place = in_place, .request = 7), &id);
    ck_assert_int_eq(told.code, 0);
    ck_assert_uint_eq(told.found.n_regions, 1);
    ck_assert(!told.found.is_broken && !told.found.is_in);
    if (!in_place) {
        told = run_restore(owner, id, SW_TRANSFER(&range, 1, .keep = true));
        ck_assert(told.code == 0 && told.found.n_regions == 1 && !told.found.is_in && !told.found.is_broken);
    }
    told = run_restore(owner, id, SW_TRANSFER(&range, 1, .in_place = in_place));
    ck_assert(told.code == 0 && told.found.n_regions == 1 && told.found.is_in);
    sw_owner_acknowledged(owner);
    struct looking after = {.id = id};
    look(&after);
    ck_assert_uint_eq(after.n_regions, 0);
    sw_mem_close(range.mem, NULL, NULL);
    end(owner);
}
END_TEST

/* A pack is recorded as broken before it begins, and damage found by a restore before the client gets the error. */
START_TEST(broken_regions_are_recorded_as_broken) {
    struct sw_owner *owner = begin(0);
    struct sw_region_id id;
    struct told told = {0};
    sw_world_fill(sw_world.memory.data, 0);
    const struct sw_range range = {.mem = open_memory(owner), .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = true), on_told, &told, &id, NULL), 0);
    struct looking begun = {.id = id};
    look(&begun);
    ck_assert(begun.n_regions == 1 && begun.is_broken);
    sw_life_until(&life, &told.done);
    told = run_restore(owner, id, SW_TRANSFER(&range, 1, .in_place = true));
    ck_assert_int_eq(told.code, 0);
    told = run_spill(owner, SW_TRANSFER(&range, 1), &id);
    uint8_t *stored = life.engine->store.regions.regions[id.slot].frames->stored[2].extents[0].memory;
    stored[100] ^= 1;
    told = run_restore(owner, id, SW_TRANSFER(&range, 1, .keep = true));
    ck_assert(told.code != 0 && told.found.n_regions == 1 && told.found.is_broken);
    sw_mem_close(range.mem, NULL, NULL);
    end(owner);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("records");
    TCase *tcase = tcase_create("records");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, space_is_free_only_when_no_record_names_it, 0, 2);
    tcase_add_loop_test(tcase, an_end_is_reported_after_its_record, 0, 2);
    tcase_add_test(tcase, broken_regions_are_recorded_as_broken);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
