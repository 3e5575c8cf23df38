/* Which regions leave the host tier, and when: decisions of the policy for snapshots. */
#include "spill/balance/policy.h"
#include "tests/lib/run.h"

#include <check.h>

enum { MAX = 8 };

struct snapshot {
    struct sw_policy_level level; /* limit 1000 bytes where none is given, watermarks 80 and 50 % */
    struct sw_policy_candidate all[MAX];
    size_t n, most; /* most victims; 0: any number */
    size_t victims[MAX], n_victims;
};

#define RESTS(bytes, used, prio)                                                                                       \
    { .stored_bytes = (bytes), .used_us = (used), .priority = (prio), .rests = true }
#define PINNED(bytes, used, prio)                                                                                      \
    { .stored_bytes = (bytes), .used_us = (used), .priority = (prio), .rests = true, .pinned = true }
#define IN_USE(bytes, used, prio)                                                                                      \
    { .stored_bytes = (bytes), .used_us = (used), .priority = (prio) }

static const struct snapshot snapshots[] = {
    /* nothing to do */
    {.level = {.used_bytes = 0}},
    {.level = {.used_bytes = 800}, .all = {RESTS(800, 1, 0)}, .n = 1},
    {.level = {.used_bytes = 500, .moving = true}, .all = {RESTS(500, 1, 0)}, .n = 1},
    /* above high, or above low and under way */
    {.level = {.used_bytes = 801}, .all = {RESTS(801, 1, 0)}, .n = 1, .victims = {0}, .n_victims = 1},
    {.level = {.used_bytes = 501, .moving = true}, .all = {RESTS(501, 1, 0)}, .n = 1, .victims = {0}, .n_victims = 1},
    /* the oldest, as many as it takes */
    {.level = {.used_bytes = 900},
     .all = {RESTS(300, 50, 0), RESTS(300, 30, 0), RESTS(300, 40, 0)},
     .n = 3,
     .victims = {1, 2},
     .n_victims = 2},
    {.level = {.used_bytes = 900},
     .all = {RESTS(500, 50, 0), RESTS(400, 30, 0)},
     .n = 2,
     .victims = {1},
     .n_victims = 1},
    /* the lowest priority before the oldest; of equals, the first */
    {.level = {.used_bytes = 900},
     .all = {RESTS(200, 1, 9), RESTS(200, 50, 1), RESTS(200, 40, 1), RESTS(300, 45, 0)},
     .n = 4,
     .victims = {3, 2},
     .n_victims = 2},
    {.level = {.used_bytes = 900}, .all = {RESTS(450, 7, 3), RESTS(450, 7, 3)}, .n = 2, .victims = {0}, .n_victims = 1},
    /* pinned ones and those in use never, even if no others are left */
    {.level = {.used_bytes = 900},
     .all = {PINNED(300, 1, 0), IN_USE(300, 2, 0), RESTS(300, 3, 255)},
     .n = 3,
     .victims = {2},
     .n_victims = 1},
    {.level = {.used_bytes = 900}, .all = {PINNED(900, 1, 0)}, .n = 1},
    /* as many as the caller takes */
    {.level = {.used_bytes = 900},
     .all = {RESTS(300, 3, 0), RESTS(300, 2, 0), RESTS(300, 1, 0)},
     .n = 3,
     .most = 1,
     .victims = {2},
     .n_victims = 1},
    /* no region can leave: the tier is full of frames under way */
    {.level = {.used_bytes = 900}},
    /* a low watermark of 0 empties it */
    {.level = {.used_bytes = 900, .limit_bytes = 900, .high_pct = 90},
     .all = {RESTS(450, 2, 0), RESTS(450, 1, 0)},
     .n = 2,
     .victims = {1, 0},
     .n_victims = 2},
};

START_TEST(test_snapshots) {
    const struct snapshot *s = &snapshots[_i];
    struct sw_policy_level level = s->level;
    size_t victims[MAX];
    if (!level.limit_bytes) {
        level.limit_bytes = 1000;
        level.high_pct = 80;
        level.low_pct = 50;
    }
    ck_assert_uint_eq(sw_policy_victims(&level, s->all, s->n, victims, s->most ? s->most : MAX), s->n_victims);
    for (size_t i = 0; i < s->n_victims; i++)
        ck_assert_uint_eq(victims[i], s->victims[i]);
}
END_TEST

START_TEST(test_moving_begins_above_high_and_ends_at_low) {
    struct sw_policy_level level = {.limit_bytes = 1000, .high_pct = 80, .low_pct = 50};
    for (unsigned used = 0; used <= 1100; used++) {
        level.used_bytes = used;
        level.moving = false;
        ck_assert_uint_eq(sw_policy_excess_bytes(&level), used > 800 ? used - 500 : 0);
        level.moving = true;
        ck_assert_uint_eq(sw_policy_excess_bytes(&level), used > 500 ? used - 500 : 0);
    }
}
END_TEST

int main(void) {
    Suite *suite = suite_create("victims");
    TCase *tcase = tcase_create("victims");
    tcase_add_loop_test(tcase, test_snapshots, 0, (int)(sizeof snapshots / sizeof snapshots[0]));
    tcase_add_test(tcase, test_moving_begins_above_high_and_ends_at_low);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
