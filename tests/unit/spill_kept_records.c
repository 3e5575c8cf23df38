/* The records of regions that tiers keep: what a later process learns from them, on a tier that has only records. */
#include "spill/journal/kept.h"

#include "base/alloc.h"
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
    Suite *suite = suite_create("kept records");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
