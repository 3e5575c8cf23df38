/* The records of regions that tiers keep: what a later process learns from them, on a tier that has only records. */
#include "spill/journal/kept.h"

#include "base/alloc.h"
#include "spill/journal/keeper.h"
#include "spill/store/owner.h"
#include "spill/store/store.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { MOST = 3, EPOCH = 77 };

static long live_before;
static struct sw_frames *frames;
static struct sw_catalogue_content contents[MOST];
static struct sw_tier_record records[MOST];
static unsigned n_records;

static int visit_kept(struct sw_tier *tier,
                      int (*visit)(void *arg, const struct sw_tier_record *record, struct sw_err *err), void *arg,
                      struct sw_err *err) {
    int rc = 0;
    (void)tier;
    for (unsigned i = 0; !rc && i < n_records; i++)
        rc = visit(arg, &records[i], err);
    return rc;
}

static const struct sw_tier_ops ops = {.visit_kept = visit_kept};
static const struct sw_tier_kind memory_kind = {.durability = SW_DURABILITY_SERVICE},
                                 disk_kind = {.durability = SW_DURABILITY_HOST};
static struct sw_tier memory = {.kind = &memory_kind}, disk = {.kind = &disk_kind, .ops = &ops};
static const struct sw_tiers tiers = {.at = {&memory, &disk}, .n = 2};

static void setup(void) {
    live_before = sw_alloc_live();
    frames = sw_frames_new(0, 65536, false);
    ck_assert_ptr_nonnull(frames);
}

static void teardown(void) {
    for (unsigned i = 0; i < n_records; i++)
        sw_free(contents[i].bytes);
    sw_frames_delete(frames);
    ck_assert_int_eq(sw_alloc_live(), live_before);
}

static void add(const char *name, uint64_t epoch, uint32_t generation, uint32_t n_entries) {
    const struct sw_kept_ids ids = {.epoch = epoch, .generation = generation, .n_entries = n_entries};
    const struct sw_catalogue_region region = {.session = 5,
                                               .slot = 3,
                                               .gen = 2,
                                               .request = 9,
                                               .batch_index = 4,
                                               .hints = {.priority = 6},
                                               .name = name,
                                               .uid = 1000,
                                               .frames = frames};
    struct sw_catalogue_content *content = &contents[n_records];
    ck_assert_int_eq(sw_kept_encode(content, &ids, &region), 0);
    records[n_records++] = (struct sw_tier_record){.number = 1, .content = content->bytes, .bytes = content->n};
}

/* Ids go on after the highest that any record knows, whatever their order. */
START_TEST(the_highest_ids_count) {
    struct sw_kept_ids ids;
    ck_assert_int_eq(sw_kept_ids(&tiers, &ids, NULL), 0);
    ck_assert_uint_eq(ids.n + ids.generation + ids.n_entries, 0);
    add("a", EPOCH, 5, 30);
    add("b", EPOCH, 9, 20);
    add("c", EPOCH, 7, 10);
    ck_assert_int_eq(sw_kept_ids(&tiers, &ids, NULL), 0);
    ck_assert_uint_eq(ids.n, 3);
    ck_assert_uint_eq(ids.epoch, EPOCH);
    ck_assert_uint_eq(ids.generation, 9);
    ck_assert_uint_eq(ids.n_entries, 30);
}
END_TEST

START_TEST(two_services_are_told_apart) {
    struct sw_kept_ids ids;
    add("a", EPOCH, 1, 1);
    add("b", EPOCH + 1, 1, 1);
    ck_assert_int_eq(sw_kept_ids(&tiers, &ids, NULL), -SW_ECONFIG);
}
END_TEST

START_TEST(a_record_says_what_it_was_told) {
    struct sw_catalogue_region found;
    char name[SW_REGION_NAME_BYTES];
    add("a", EPOCH, 1, 1);
    ck_assert_int_eq(sw_kept_decode(&records[0], &found, name, NULL), 0);
    ck_assert_str_eq(found.name, "a");
    ck_assert(found.session == 5 && found.slot == 3 && found.gen == 2);
    ck_assert(found.request == 9 && found.batch_index == 4 && found.batch == 0);
    ck_assert(found.hints.priority == 6 && found.uid == 1000);
    sw_catalogue_frames_free(found.frames);
}
END_TEST

/* ---- what the service tells a tier ---- */

enum { N_REGIONS = 2, KEPT = 40, GEN = 12, N_ENTRIES = 6, PRIORITY = 9, REQUEST = 77 };

static struct {
    struct sw_store store;
    struct sw_keeper keeper;
    struct sw_owner owner, tenant_owner;
    struct sw_region regions[N_REGIONS];
    struct sw_run_outcome sums[N_REGIONS];
    unsigned n_woken, n_ended;
    int ended_code;
    struct sw_catalogue_region found[N_REGIONS];
    char found_names[N_REGIONS][SW_REGION_NAME_BYTES];
    struct sw_kept_ids ids;
} rig;

static void wake(void *arg) {
    (void)arg;
    rig.n_woken++;
}

static void ended(const struct sw_err *cause, void *arg) {
    ck_assert_ptr_eq(arg, &rig);
    rig.n_ended++;
    rig.ended_code = cause->code;
}

/* Reads the records as a later process would. */
static void change(struct sw_tier *tier, struct sw_tier_change *c) {
    (void)tier;
    ck_assert_uint_le(c->n, N_REGIONS);
    for (unsigned i = 0; i < c->n; i++) {
        c->records[i].number = KEPT + i;
        ck_assert_int_eq(sw_kept_decode(&c->records[i], &rig.found[i], rig.found_names[i], NULL), 0);
        ck_assert_uint_eq(c->records[i].uid, 1000);
        ck_assert_str_eq(c->records[i].name, rig.found_names[i]);
        sw_catalogue_frames_free(rig.found[i].frames);
        records[0] = c->records[i];
        n_records = 1;
        ck_assert_int_eq(sw_kept_ids(&tiers, &rig.ids, NULL), 0);
        n_records = 0;
    }
    if (tier->rank == 2)
        c->err.code = -SW_EIO;
    c->done(c, c->arg);
}

static const struct sw_tier_ops keeping_ops = {.visit_kept = visit_kept, .change = change};
static const struct sw_tier_kind store_kind = {.durability = SW_DURABILITY_REMOTE};
static struct sw_tier store_tier = {.kind = &store_kind, .ops = &keeping_ops},
                      full_tier = {.kind = &store_kind, .ops = &keeping_ops, .rank = 2};

static void rig_open(struct sw_tier *last) {
    static char names[N_REGIONS][8] = {"first", "second"};
    memset(&rig, 0, sizeof rig);
    rig.store.place.tiers = (struct sw_tiers){.at = {&memory, last}, .n = 2};
    rig.store.place.epoch = EPOCH;
    rig.store.regions.n_touched = N_ENTRIES;
    rig.tenant_owner.uid = 1000;
    rig.owner = (struct sw_owner){.number = 5, .tenant_owner = &rig.tenant_owner}; /* it has no record, so no uid */
    for (unsigned i = 0; i < N_REGIONS; i++) {
        rig.regions[i] = (struct sw_region){.id = {.slot = 3 + i, .gen = GEN + i},
                                            .owner = &rig.owner,
                                            .priority = PRIORITY,
                                            .stored_bytes = 400 + i,
                                            .codec = SW_CODEC_V5T,
                                            .reason = SW_COST_ROOM,
                                            .frames = frames,
                                            .durability = SW_DURABILITY_HOST,
                                            .name = names[i],
                                            .request = REQUEST,
                                            .batch_index = 1 + i};
        rig.sums[i] = (struct sw_run_outcome){.stored_bytes = 400 + i, .reason = SW_COST_ROOM};
        rig.sums[i].codec_raw_bytes[SW_CODEC_V5T] = 1000;
    }
    sw_keeper_init(&rig.keeper, &rig.store, NULL, wake, NULL);
}

static void ck_found(unsigned i, const struct sw_catalogue_region *found) {
    ck_assert(found->session == 5 && found->slot == 3 + i && found->gen == GEN + i);
    ck_assert(found->request == REQUEST && found->batch_index == 1 + i && found->hints.priority == PRIORITY);
    ck_assert_uint_eq(found->stored_bytes, 400 + i);
    ck_assert(found->codec == SW_CODEC_V5T && found->reason == SW_COST_ROOM && found->uid == 1000);
}

/* A service without a catalogue counts generations by its regions. A tier may keep them better than was asked. */
START_TEST(a_tier_is_told_all_about_its_regions) {
    const struct sw_completion all[N_REGIONS] = {{&rig.regions[0], frames, &rig.sums[0]},
                                                 {&rig.regions[1], frames, &rig.sums[1]}};
    rig_open(&store_tier);
    ck_assert_int_eq(sw_keeper_keep(&rig.keeper, all, N_REGIONS, ended, &rig, NULL), 0);
    ck_assert(rig.n_woken == 1 && rig.n_ended == 0 && rig.keeper.n_changes == 1);
    ck_assert_uint_eq(rig.regions[0].kept, 0); /* not before it is taken */
    sw_keeper_take(&rig.keeper);
    ck_assert(rig.n_ended == 1 && rig.ended_code == 0 && rig.keeper.n_changes == 0);
    ck_assert(rig.ids.epoch == EPOCH && rig.ids.generation == GEN + 1 && rig.ids.n_entries == N_ENTRIES);
    for (unsigned i = 0; i < N_REGIONS; i++) {
        ck_found(i, &rig.found[i]);
        ck_assert_uint_eq(rig.regions[i].kept, KEPT + i);
        ck_assert_ptr_eq(rig.regions[i].keeper, &store_tier);
        ck_assert_int_eq(rig.regions[i].durability, SW_DURABILITY_REMOTE);
    }
    sw_keeper_fini(&rig.keeper);
}
END_TEST

/* The next keeper learns the same of a region that moves. */
START_TEST(a_moved_regions_record_is_the_same) {
    rig_open(&store_tier);
    ck_assert_int_eq(sw_keeper_move(&rig.keeper, &rig.regions[1], &store_tier, ended, &rig, NULL), 0);
    sw_keeper_take(&rig.keeper);
    ck_found(1, &rig.found[0]);
    ck_assert_uint_eq(rig.regions[1].kept, KEPT);
    ck_assert_ptr_eq(rig.regions[1].keeper, &store_tier);
    sw_keeper_fini(&rig.keeper);
}
END_TEST

START_TEST(a_region_that_is_not_kept_stays_as_it_was) {
    const struct sw_completion one = {&rig.regions[0], frames, &rig.sums[0]};
    rig_open(&full_tier);
    ck_assert_int_eq(sw_keeper_keep(&rig.keeper, &one, 1, ended, &rig, NULL), 0);
    sw_keeper_take(&rig.keeper);
    ck_assert(rig.n_ended == 1 && rig.ended_code == -SW_EIO);
    ck_assert(rig.regions[0].kept == 0 && !rig.regions[0].keeper);
    ck_assert_int_eq(rig.regions[0].durability, SW_DURABILITY_HOST);
    sw_keeper_fini(&rig.keeper);
}
END_TEST

/* One that is cut off, of a later version, or of a region without a name. */
START_TEST(impossible_records_are_refused) {
    struct sw_catalogue_region found;
    struct sw_kept_ids ids;
    char name[SW_REGION_NAME_BYTES];
    add("a", EPOCH, 1, 1);
    const size_t bytes = records[0].bytes;
    records[0].bytes = 23; /* of a head of 24 */
    ck_assert_int_eq(sw_kept_ids(&tiers, &ids, NULL), -SW_EFRAME);
    ck_assert_int_eq(sw_kept_decode(&records[0], &found, name, NULL), -SW_EFRAME);
    for (records[0].bytes = 24; records[0].bytes < bytes; records[0].bytes++)
        ck_assert_int_eq(sw_kept_decode(&records[0], &found, name, NULL), -SW_EFRAME);
    contents[0].bytes[0]++;
    ck_assert_int_eq(sw_kept_ids(&tiers, &ids, NULL), -SW_EVERSION);
    ck_assert_int_eq(sw_kept_decode(&records[0], &found, name, NULL), -SW_EVERSION);
    add(NULL, EPOCH, 1, 1);
    ck_assert_int_eq(sw_kept_decode(&records[1], &found, name, NULL), -SW_EFRAME);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("records");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, the_highest_ids_count);
    tcase_add_test(tests, two_services_are_told_apart);
    tcase_add_test(tests, a_record_says_what_it_was_told);
    tcase_add_test(tests, impossible_records_are_refused);
    tcase_add_test(tests, a_tier_is_told_all_about_its_regions);
    tcase_add_test(tests, a_moved_regions_record_is_the_same);
    tcase_add_test(tests, a_region_that_is_not_kept_stays_as_it_was);
    Suite *suite = suite_create("kept records");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
