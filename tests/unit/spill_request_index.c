/* The regions that a request has made are found in any order, by one look at all regions. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>

enum { REGIONS = 1000, REGIONS_OF_REQUEST = 3 };

static struct sw_fixture f;

static void setup(void) {
    struct sw_fixture_config config = sw_fixture_defaults;
    config.max_regions = config.max_owner_regions = REGIONS + REGIONS_OF_REQUEST;
    sw_fixture_open(&f, &config);
}

static void teardown(void) {
    sw_engine_forget_in(f.owner);
    sw_fixture_close(&f);
}

/* Adds a region as recovery does. It is IN: nothing has to be stored for it. */
static struct sw_region_id add_region(uint32_t request, uint32_t batch_index) {
    struct sw_region *region = sw_region_acquire(&f.engine->store.regions, f.owner);
    ck_assert_ptr_nonnull(region);
    region->request = request;
    region->batch_index = batch_index;
    sw_list_append(&f.owner->regions, &region->node);
    f.owner->n_regions++;
    return region->id;
}

static void ck_found(uint32_t request, uint32_t batch_index, struct sw_region_id id) {
    struct sw_region_id found[REGIONS_OF_REQUEST];
    sw_engine_find_by_request(f.owner, request, found, REGIONS_OF_REQUEST);
    ck_assert_mem_eq(&found[batch_index], &id, sizeof id);
}

/* With and without memory for the index. */
START_TEST(regions_are_found_by_request) {
    static const uint32_t requests[] = {7, 4000000000, 1, 0, 8};
    const struct sw_region_id none = {0};
    struct sw_region_id ids[5][REGIONS_OF_REQUEST], alone[REGIONS_OF_REQUEST];
    for (unsigned i = 0; i < 5; i++)
        for (uint32_t k = REGIONS_OF_REQUEST; k-- > 0;)
            ids[i][k] = add_region(requests[i], k);
    for (unsigned i = 0; i < 5; i++)
        for (uint32_t k = 0; k < REGIONS_OF_REQUEST; k++) {
            if (_i)
                sw_alloc_fail_nth(1);
            ck_found(requests[i], k, requests[i] ? ids[i][k] : none);
        }
    if (_i)
        sw_alloc_fail_nth(1);
    memset(alone, 0xAB, sizeof alone);
    sw_engine_find_by_request(f.owner, 8, alone, 1);
    sw_alloc_fail_nth(0);
    ck_assert_mem_eq(&alone[0], &ids[4][0], sizeof alone[0]);
    ck_assert_uint_eq(alone[1].gen, 0xABABABAB); /* there is room for one answer */
    ck_found(2, 0, none);
    ck_assert_int_eq(sw_engine_drop(f.owner, ids[0][1], NULL), 0);
    ck_found(7, 1, none);
    ck_found(7, 2, ids[0][2]);
    (void)add_region(1000, 0); /* in the same slot, but no answer to the request */
    ck_found(7, 1, none);
    sw_engine_forget_in(f.owner);
    ck_found(7, 2, none);
    ck_found(9, 0, none);
}
END_TEST

/* A region that is being stored is no answer yet. _i: without memory for the index. */
START_TEST(busy_regions_are_not_found) {
    const struct sw_region_id none = {0}, id = add_region(7, 1);
    struct sw_region *region = &f.engine->store.regions.regions[id.slot];
    static struct sw_series series;
    region->series = &series;
    if (_i)
        sw_alloc_fail_nth(1);
    ck_found(7, 1, none);
    region->series = NULL;
    if (_i)
        sw_alloc_fail_nth(1);
    ck_found(7, 1, id);
    sw_alloc_fail_nth(0);
}
END_TEST

/* A session that asks without end must not cause a visit of all its regions for each question: regions made after the
 * first question are not found. */
START_TEST(all_regions_are_indexed_once) {
    const struct sw_region_id none = {0};
    for (uint32_t i = 1; i <= REGIONS; i++)
        (void)add_region(i, 0);
    const struct sw_region_id second = add_region(REGIONS, 1);
    ck_found(REGIONS, 1, second);
    const struct sw_region_id late = add_region(REGIONS, 2);
    ck_found(REGIONS, 2, none);
    sw_owner_free_request_index(f.owner);
    ck_found(REGIONS, 2, late);
    sw_owner_forget_requests(f.owner, REGIONS - 1); /* the last ones are of the round before, then */
    ck_found(REGIONS, 1, none);
    sw_owner_free_request_index(f.owner);
    ck_found(REGIONS, 1, none);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("made");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, regions_are_found_by_request, 0, 2);
    tcase_add_loop_test(tests, busy_regions_are_not_found, 0, 2);
    tcase_add_test(tests, all_regions_are_indexed_once);
    Suite *suite = suite_create("spill_request_index");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
