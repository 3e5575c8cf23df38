/* Memory for frames on the way to and from a tier behind memory: which tenants get it beside others. */
#include "base/clock.h"
#include "spill/worker/transit.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"
#include "tests/lib/sim_device.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
#define WAY_BYTES (8 * MIB) /* in each direction */

static const int a, b; /* tenants */
static struct sw_frames frames = {.chunk_bytes = MIB};
static struct sw_tiers tiers;
static struct sw_placement place;
static struct sw_transit way;

static void setup(void) {
    tiers = (struct sw_tiers){.at = {sw_sim_tier_new(), sw_sim_tier_new()}, .n = 2};
    tiers.at[1]->rank = 1;
    sw_placement_init(&place, &tiers, 2 * WAY_BYTES);
    sw_transit_init(&way, &place);
}

static void teardown(void) {
    ck_assert_uint_eq(atomic_load(&place.out_bytes) + atomic_load(&place.in_bytes), 0);
    sw_transit_fini(&way);
    for (unsigned i = 0; i < tiers.n; i++)
        tiers.at[i]->ops->close(tiers.at[i]);
}

/* A job with a frame on its way, or that wants one. */
struct traveller {
    struct sw_one_run one;
    struct sw_stored staged;
};

static void begin(struct traveller *t, const void *tenant, enum sw_operation operation) {
    *t = (struct traveller){.staged = {.tier = NULL}};
    sw_one_run_init(&t->one, operation, NULL, MIB, &frames);
    t->one.request.tenant = tenant;
}

static int stage(struct traveller *t, uint64_t bytes) {
    return sw_transit_reserve(&way, &t->one.job, bytes, &t->staged, NULL);
}

static void unstage(struct traveller *t) {
    sw_transit_release(&way, &t->one.job, &t->staged);
}

static void end(struct traveller *t) {
    sw_transit_leave(&way, &t->one.job);
}

static const enum sw_operation operations[] = {SW_OP_SPILL, SW_OP_RESTORE};

/* Whatever its length, the first frame in its direction gets on, or its job would wait for ever: a predecessor may have
 * made longer ones. Others wait until it has arrived. */
START_TEST(the_first_frame_may_exceed_the_limit) {
    struct traveller first, second;
    begin(&first, &a, operations[_i]);
    begin(&second, &b, operations[_i]);
    ck_assert_int_eq(stage(&second, MIB), 0); /* there is another tenant */
    unstage(&second);
    ck_assert_int_eq(stage(&first, WAY_BYTES + MIB), 0);
    ck_assert_int_eq(stage(&second, 2 * MIB), -SW_EAGAIN);
    unstage(&first);
    ck_assert_int_eq(stage(&second, 2 * MIB), 0);
    ck_assert_int_eq(stage(&first, WAY_BYTES), -SW_EAGAIN);
    unstage(&second);
    ck_assert_int_eq(stage(&first, WAY_BYTES), 0);
    unstage(&first);
    end(&first);
    end(&second);
}
END_TEST

/* An eighth is kept for short frames of a tenant that has none there; a single tenant may use all of it. */
START_TEST(an_eighth_is_kept_for_short_newcomers) {
    struct traveller hog[2], light[2];
    for (int i = 0; i < 2; i++) {
        begin(&hog[i], &a, operations[_i]);
        begin(&light[i], &b, operations[_i]);
    }
    ck_assert_int_eq(stage(&hog[0], 7 * MIB), 0);
    ck_assert_int_eq(stage(&hog[1], MIB), 0);
    unstage(&hog[1]);
    ck_assert_int_eq(stage(&light[0], MIB / 2), 0);
    ck_assert_int_eq(stage(&light[1], MIB / 2), -SW_EAGAIN); /* its tenant has one there */
    ck_assert_int_eq(stage(&hog[1], MIB / 2), -SW_EAGAIN);   /* and this one's, too */
    unstage(&light[0]);
    ck_assert_int_eq(stage(&light[1], 2 * MIB), -SW_EAGAIN); /* not short */
    ck_assert_int_eq(stage(&light[1], MIB), 0);
    unstage(&light[1]);
    unstage(&hog[0]);
    for (int i = 0; i < 2; i++) {
        end(&hog[i]);
        end(&light[i]);
    }
}
END_TEST

/* The two directions take nothing from each other. */
START_TEST(each_direction_has_its_own_limit) {
    struct traveller first, second;
    begin(&first, &a, operations[_i]);
    begin(&second, &b, operations[!_i]);
    ck_assert_int_eq(stage(&second, MIB), 0);
    unstage(&second);
    ck_assert_int_eq(stage(&first, WAY_BYTES), 0);
    ck_assert_int_eq(stage(&second, WAY_BYTES), 0);
    unstage(&first);
    unstage(&second);
    end(&first);
    end(&second);
}
END_TEST

static int reserve_nothing(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    (void)tier;
    (void)bytes;
    (void)ret;
    return sw_err_set(err, -SW_ENOSPACE, SW_SCOPE_REQUEST, "full");
}

/* A frame that comes back waits for room as long as frames of either direction are about to leave some. Without any it
 * would wait for ever. Loop: the direction of the frame on its way. */
START_TEST(room_is_waited_for_while_others_leave_some) {
    struct sw_tier_ops full;
    struct traveller first, second;
    begin(&first, &a, operations[_i]);
    begin(&second, &a, SW_OP_RESTORE);
    ck_assert_int_eq(stage(&first, MIB), 0);
    full = *tiers.at[0]->ops;
    full.reserve = reserve_nothing;
    const struct sw_tier_ops *ops = tiers.at[0]->ops;
    tiers.at[0]->ops = &full;
    ck_assert_int_eq(stage(&second, MIB), -SW_EAGAIN);
    unstage(&first);
    ck_assert_int_eq(stage(&second, MIB), -SW_ENOSPACE);
    tiers.at[0]->ops = ops;
    ck_assert_int_eq(stage(&second, MIB), 0);
    unstage(&second);
    end(&first);
    end(&second);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("way");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, the_first_frame_may_exceed_the_limit, 0, 2);
    tcase_add_loop_test(tcase, an_eighth_is_kept_for_short_newcomers, 0, 2);
    tcase_add_loop_test(tcase, each_direction_has_its_own_limit, 0, 2);
    tcase_add_loop_test(tcase, room_is_waited_for_while_others_leave_some, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
