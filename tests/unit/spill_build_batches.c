/* Builds that are committed together: all or none, and what they count as for their tenant. */
#include "base/alloc.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "tests/lib/appends.h"
#include "tests/lib/numbers.h"
#include "tests/lib/pair_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

static void open_with_busy_disk(void) {
    sw_pair_open_busy_disk(N * BUFFER_BYTES);
    sw_numbers_fill(sw_pair.from.data + BUFFER_BYTES, 0, BUFFER_BYTES, SW_VALUE_U32, SW_NUMBERS_SORTED, 3, 1);
}

/* ---- batches ---- */

enum { MANY = 5 };

static void commit_all(struct sw_build *const *builds, unsigned n, struct sw_test_op *ops) {
    struct sw_build_end ends[MANY];
    for (unsigned i = 0; i < n; i++) {
        ops[i] = (struct sw_test_op){0};
        ends[i] = (struct sw_build_end){builds[i], 10 + i, &ops[i]};
    }
    ck_assert_int_eq(sw_build_commit_batch(ends, n, 7, sw_test_op_done, NULL), 0);
    sw_engine_check(sw_pair.f.engine);
}

/* All appends of all builds are under way. No region is there before all are. */
START_TEST(builds_are_committed_together) {
    struct sw_test_op ops[MANY][N_APPENDS], ends[MANY];
    struct sw_build *builds[MANY];
    struct sw_region_id made[10 + MANY];
    for (unsigned i = 0; i < MANY; i++) {
        builds[i] = begin();
        for (unsigned k = 0; k < N_APPENDS; k++)
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
    }
    commit_all(builds, MANY, ends);
    ck_assert_int_eq(sw_build_commit(builds[0], 8, 0, sw_test_op_done, &ops[0][0], NULL), -SW_EINVAL);
    while (!ends[0].done) { /* then the builds are no more */
        unsigned n_out = 0;
        for (unsigned i = 0; i < MANY; i++)
            n_out += builds[i]->series.region == NULL;
        ck_assert(n_out == 0);
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
    }
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(sw_pair_wait(&ends[i]), 0);
    sw_engine_find_by_request(sw_pair.f.owner, 7, made, 10 + MANY);
    for (unsigned i = 0; i < MANY; i++) {
        ck_assert(made[10 + i].slot == ends[i].id.slot && made[10 + i].gen == ends[i].id.gen);
        restore_and_compare(ends[i].id);
    }
    ck_nothing_left();
}
END_TEST

/* One fails: before the commit, or after it; by an append, or because it is not wanted any more. */
START_TEST(one_failure_fails_the_batch) {
    struct sw_test_op ops[MANY][N_APPENDS], ends[MANY];
    struct sw_build *builds[MANY];
    for (unsigned i = 0; i < MANY; i++) {
        builds[i] = begin();
        if (_i == 2 && i == 3)
            sw_device_faulty_arm(sw_pair.f.device, "store", 3, -SW_EGPU, SW_FAULT_LATE);
        for (unsigned k = 0; k < N_APPENDS; k++)
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
    }
    if (_i == 0)
        sw_build_fail(builds[3], &expired);
    commit_all(builds, MANY, ends);
    if (_i == 1)
        sw_build_fail(builds[3], &expired);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert_int_eq(sw_pair_wait(&ends[i]), _i == 2 ? -SW_EGPU : -SW_ETIMEDOUT);
    for (unsigned i = 0; i < MANY; i++)
        for (unsigned k = 0; k < N_APPENDS; k++)
            (void)sw_pair_wait(&ops[i][k]);
    sw_device_faulty_arm(sw_pair.f.device, "store", 0, 0, SW_FAULT_LATE);
    ck_nothing_left();
}
END_TEST

START_TEST(invalid_batches_are_refused) {
    struct sw_test_op op, ends[MANY] = {0};
    struct sw_owner *other;
    struct sw_build *builds[2] = {begin(), begin()}, *others = NULL;
    for (unsigned k = 0; k < N_APPENDS; k++)
        for (unsigned i = 0; i < 2; i++) {
            const struct sw_build_end two[] = {{builds[0], 0, NULL}, {builds[1], 1, NULL}};
            ck_assert_int_eq(sw_build_commit_batch(two, 2, 7, sw_test_op_done, NULL), -SW_EINVAL);
            ck_assert_int_eq(append(builds[i], k, &op), 0);
            ck_assert_int_eq(sw_pair_wait(&op), 0);
        }
    ck_assert_int_eq(sw_owner_open(sw_pair.f.engine, &other, NULL), 0);
    const struct sw_build_config nothing = {.buffers = &buffers[2], .n_buffers = 1};
    ck_assert_int_eq(sw_build_begin(other, &nothing, &others, NULL), 0);
    const struct sw_build_end twice[] = {{builds[0], 0, NULL}, {builds[0], 1, NULL}},
                              mixed[] = {{builds[0], 0, NULL}, {others, 1, NULL}};
    struct sw_build_end *many = sw_alloc_array(SW_SERIES_MAX_BATCH + 1, sizeof *many);
    for (unsigned i = 0; i <= SW_SERIES_MAX_BATCH; i++)
        many[i] = (struct sw_build_end){builds[0], 0, NULL};
    ck_assert_int_eq(sw_build_commit_batch(twice, 2, 7, sw_test_op_done, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit_batch(mixed, 2, 7, sw_test_op_done, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit_batch(many, 0, 7, sw_test_op_done, NULL), -SW_EINVAL);
    ck_assert_int_eq(sw_build_commit_batch(many, SW_SERIES_MAX_BATCH + 1, 7, sw_test_op_done, NULL), -SW_EINVAL);
    sw_free(many);
    commit_all(builds, 2, ends);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_pair_wait(&ends[i]), 0);
        restore_and_compare(ends[i].id);
    }
    sw_fixture_close_owner(&sw_pair.f, other);
    ck_nothing_left();
}
END_TEST

START_TEST(no_memory_for_a_batch) {
    for (unsigned nth = 1; nth < 20; nth++) {
        struct sw_test_op op, ends[2] = {0};
        struct sw_build *builds[2] = {begin(), begin()};
        for (unsigned k = 0; k < N_APPENDS; k++)
            for (unsigned i = 0; i < 2; i++) {
                ck_assert_int_eq(append(builds[i], k, &op), 0);
                ck_assert_int_eq(sw_pair_wait(&op), 0);
            }
        const struct sw_build_end two[] = {{builds[0], 0, &ends[0]}, {builds[1], 1, &ends[1]}};
        sw_alloc_fail_nth(nth);
        int rc = sw_build_commit_batch(two, 2, 7, sw_test_op_done, NULL);
        sw_alloc_fail_nth(0);
        if (rc) {
            ck_assert_int_eq(rc, -SW_ENOMEM);
            ck_assert_int_eq(sw_build_commit_batch(two, 2, 7, sw_test_op_done, NULL), 0);
        }
        rc = sw_pair_wait(&ends[0]);
        ck_assert_int_eq(sw_pair_wait(&ends[1]), rc);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        for (unsigned i = 0; !rc && i < 2; i++)
            restore_and_compare(ends[i].id);
        ck_nothing_left();
    }
}
END_TEST

/* Its callbacks run, and the memory of the batch is given back. */
START_TEST(a_batch_ends_with_its_owner) {
    struct sw_test_op ops[MANY][N_APPENDS], ends[MANY];
    struct sw_build *builds[MANY];
    bool closed = false;
    for (unsigned i = 0; i < MANY; i++) {
        builds[i] = begin();
        for (unsigned k = 0; k < N_APPENDS && i != 1; k++)
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
        for (unsigned k = 0; k < N_APPENDS && i == 1; k++) {
            ck_assert_int_eq(append(builds[i], k, &ops[i][k]), 0);
            ck_assert_int_eq(sw_pair_wait(&ops[i][k]), 0);
        }
    }
    commit_all(builds, MANY, ends);
    sw_owner_close(sw_pair.f.owner, set_flag, &closed);
    sw_pair.f.owner = NULL;
    sw_pair_release_until(&closed);
    for (unsigned i = 0; i < MANY; i++)
        ck_assert(ends[i].calls == 1 && ends[i].outcome.err.code == -SW_ECANCELED);
}
END_TEST

/* ---- what counts ---- */

START_TEST(an_open_build_counts_for_its_tenant) {
    static struct sw_quota quota;
    struct sw_test_op op, end;
    memset(&quota, 0, sizeof quota);
    sw_owner_set_quota(sw_pair.f.owner, &quota);
    const uint64_t kept = atomic_load(&quota.kept.used_bytes);
    struct sw_build *build = begin();
    ck_assert_uint_eq(quota.n_regions, 1);
    ck_assert_uint_ge(atomic_load(&quota.kept.used_bytes),
                      kept + SW_REGION_KEPT_BYTES + sw_frames_kept_bytes(buffers[0].raw_bytes, CHUNK, false));
    uint64_t stored = 0;
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
        ck_assert_int_eq(append(build, i, &op), 0);
        ck_assert_int_eq(sw_pair_wait(&op), 0);
        stored += op.outcome.stored_bytes;
    }
    ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
    if (_i) {
        ck_assert_int_eq(commit(build, &end), 0);
        ck_assert_uint_eq(end.outcome.stored_bytes, stored);
        ck_assert_uint_eq(atomic_load(&quota.bytes), stored);
        ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes),
                          kept + SW_REGION_KEPT_BYTES + sw_frames_kept_bytes(buffers[0].raw_bytes, CHUNK, false) +
                              3 * sw_frames_kept_bytes(0, CHUNK, false) +
                              sw_frames_kept_bytes(9 * CHUNK, CHUNK, false) - sw_frames_kept_bytes(0, CHUNK, false));
        restore_and_compare(end.id);
    } else {
        sw_build_fail(build, &expired); /* the small record stays, and counts, until the client ends the build */
        ck_assert_uint_eq(atomic_load(&quota.bytes) + quota.n_regions, 0);
        ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes),
                          kept + sizeof(struct sw_build) + N * sizeof(struct sw_build_buffer));
        ck_assert_int_eq(commit(build, &end), -SW_ETIMEDOUT);
    }
    ck_assert_uint_eq(atomic_load(&quota.bytes) + quota.n_regions, 0);
    ck_assert_uint_eq(atomic_load(&quota.kept.used_bytes), kept);
    ck_nothing_left();
}
END_TEST

START_TEST(limits_of_a_tenant) {
    static struct sw_quota quota;
    struct sw_build *build, *second = NULL;
    struct sw_test_op op, end;
    memset(&quota, 0, sizeof quota);
    quota.max_regions = 1;
    quota.max_bytes = CHUNK;
    sw_owner_set_quota(sw_pair.f.owner, &quota);
    build = begin();
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &second, NULL), -SW_ETENANTREGIONS);
    int rc = 0;
    for (unsigned i = 0; !rc && i < N_APPENDS; i++) {
        ck_assert_int_eq(append(build, i, &op), 0);
        rc = sw_pair_wait(&op);
    }
    ck_assert_int_eq(rc, -SW_ETENANTBYTES);
    ck_assert_uint_eq(atomic_load(&quota.bytes), 0);
    ck_assert_int_eq(commit(build, &end), -SW_ETENANTBYTES);
    ck_nothing_left();
}
END_TEST

START_TEST(as_many_regions_as_an_owner_may_have) {
    struct sw_build *builds[N_REGIONS] = {NULL}, *more = NULL;
    struct sw_test_op op;
    unsigned n = 0;
    while (n < N_REGIONS)
        builds[n++] = begin();
    ck_assert_int_eq(sw_build_begin(sw_pair.f.owner, &config, &more, NULL), -SW_ELIMIT);
    while (n > 0)
        ck_assert_int_eq(abort_build(builds[--n], &op), -SW_ECANCELED);
    ck_nothing_left();
}
END_TEST

/* Once it is there it may have to leave memory, although nothing else begins or ends. */
START_TEST(committed_regions_move_between_tiers) {
    struct sw_test_op ops[N_APPENDS], end;
    struct sw_region_info info;
    struct sw_build *build = begin();
    for (unsigned i = 0; i < N_APPENDS; i++) {
        ck_assert_int_eq(append(build, i, &ops[i]), 0);
        ck_assert_int_eq(sw_pair_wait(&ops[i]), 0);
    }
    ck_assert_int_eq(commit(build, &end), 0);
    do {
        (void)uv_run(&sw_pair.f.loop, UV_RUN_NOWAIT);
        ck_assert_int_eq(sw_engine_query(sw_pair.f.owner, end.id, &info, NULL), 0);
    } while (strcmp(info.tier, "nvme") != 0);
    restore_and_compare(end.id);
    ck_nothing_left();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("batches of builds");
    TCase *all = tcase_create("all"), *busy = tcase_create("busy");
    tcase_add_checked_fixture(all, open_fixture, sw_pair_close);
    tcase_add_test(all, builds_are_committed_together);
    tcase_add_loop_test(all, one_failure_fails_the_batch, 0, 3);
    tcase_add_test(all, invalid_batches_are_refused);
    tcase_add_test(all, no_memory_for_a_batch);
    tcase_add_test(all, a_batch_ends_with_its_owner);
    tcase_add_loop_test(all, an_open_build_counts_for_its_tenant, 0, 2);
    tcase_add_test(all, limits_of_a_tenant);
    tcase_add_test(all, as_many_regions_as_an_owner_may_have);
    tcase_add_checked_fixture(busy, open_with_busy_disk, sw_pair_close);
    tcase_add_test(busy, committed_regions_move_between_tiers);
    suite_add_tcase(suite, busy);
    suite_add_tcase(suite, all);
    return sw_test_run(suite, CK_FORK);
}
