/* How much an asynchronous tier is asked for at a time: by tenants that use it together, by one alone, and by moves. */
#include "spill/store/tier_share.h"
#include "tests/lib/run.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
#define SECOND_US UINT64_C(1000000)

static const int a, b, c; /* tenants */
static struct sw_tier_share share;
static bool has_some; /* the worker has asked the tier for something */

static void setup(void) {
    sw_tier_share_init(&share);
    has_some = true;
}

static bool take_of(unsigned rank, const void *tenant, enum sw_tier_io_kind kind, uint64_t bytes, uint64_t now_us) {
    const struct sw_tier_ask ask = {.rank = rank, .kind = kind, .bytes = bytes};
    const bool is_shared = sw_tier_share_note(&share, tenant, now_us);
    if (!sw_tier_share_has_room(&share, &ask, is_shared && has_some, now_us))
        return false;
    sw_tier_share_take(&share, &ask, false);
    return true;
}

static bool take(const void *tenant, enum sw_tier_io_kind kind, uint64_t bytes, uint64_t now_us) {
    return take_of(1, tenant, kind, bytes, now_us);
}

static void give(enum sw_tier_io_kind kind, uint64_t bytes) {
    sw_tier_share_give(&share, &(struct sw_tier_ask){.rank = 1, .kind = kind, .bytes = bytes});
}

static bool move(const void *tenant, uint64_t bytes, uint64_t now_us) {
    const struct sw_tier_ask ask = {.rank = 1, .kind = SW_TIER_WRITE, .bytes = bytes};
    if (!sw_tier_share_may_move(&share, &ask, tenant, now_us))
        return false;
    sw_tier_share_take(&share, &ask, true);
    return true;
}

START_TEST(test_a_single_tenant_has_no_limit) {
    for (int i = 0; i < 100; i++)
        ck_assert(take(&a, SW_TIER_WRITE, 26 * MIB, 1));
    ck_assert(move(&a, 26 * MIB, 1)); /* its own */
}
END_TEST

START_TEST(test_several_tenants_have_limits) {
    ck_assert(take(&a, SW_TIER_READ, 26 * MIB, 1));
    ck_assert(!take(&b, SW_TIER_READ, 1, 2)); /* also one of another worker's */
    ck_assert(!take(&a, SW_TIER_READ, 1, 3));
    give(SW_TIER_READ, 26 * MIB);
    ck_assert(take(&a, SW_TIER_READ, 15 * MIB, 4));
    ck_assert(take(&b, SW_TIER_READ, MIB, 5));
    ck_assert(!take(&b, SW_TIER_READ, 1, 6));
    /* of three transfers the last two count, and one that has gone, for a second */
    ck_assert(!take(&c, SW_TIER_READ, 1, 7));
    ck_assert(!take(&c, SW_TIER_READ, 1, 5 + SECOND_US));
    ck_assert(take(&c, SW_TIER_READ, 1, 6 + SECOND_US));
}
END_TEST

/* Jobs without a tenant count as one, however often they come: they do not push out a tenant. */
START_TEST(test_jobs_without_a_tenant_count_as_one) {
    ck_assert(!sw_tier_share_note(&share, &a, 1));
    for (uint64_t now_us = 2; now_us < 10; now_us++)
        ck_assert(sw_tier_share_note(&share, NULL, now_us));
    ck_assert(sw_tier_share_note(&share, &a, 10));
    ck_assert(!sw_tier_share_note(&share, &a, 9 + SECOND_US));
}
END_TEST

START_TEST(test_each_tier_has_its_own_limit) {
    ck_assert(take_of(1, &a, SW_TIER_READ, 26 * MIB, 1));
    ck_assert(take_of(2, &b, SW_TIER_READ, 15 * MIB, 2));
    ck_assert(!take_of(2, &b, SW_TIER_READ, 2 * MIB, 3)); /* users of another tier count, too */
    ck_assert(take_of(2, &b, SW_TIER_WRITE, 2 * MIB, 4)); /* a quarter beside restores */
    ck_assert(!take_of(2, &b, SW_TIER_WRITE, 3 * MIB, 5));
    ck_assert(take_of(3, &b, SW_TIER_WRITE, 16 * MIB, 6));
    ck_assert(!take_of(1, &b, SW_TIER_READ, 1, 7));
}
END_TEST

START_TEST(test_each_worker_may_have_a_frame_there) {
    ck_assert(take(&a, SW_TIER_READ, 26 * MIB, 1));
    has_some = false;
    ck_assert(take(&b, SW_TIER_READ, 26 * MIB, 2));
    has_some = true;
    ck_assert(!take(&b, SW_TIER_READ, 1, 3));
}
END_TEST

START_TEST(test_writes_give_way_to_reads) {
    ck_assert(take(&a, SW_TIER_READ, MIB, 1));
    ck_assert(take(&b, SW_TIER_WRITE, 2 * MIB, 2));
    ck_assert(take(&b, SW_TIER_WRITE, 2 * MIB, 3));
    ck_assert(!take(&b, SW_TIER_WRITE, MIB, 4));
    ck_assert(take(&b, SW_TIER_READ, 15 * MIB, 5));
    give(SW_TIER_READ, 16 * MIB);
    ck_assert(take(&b, SW_TIER_WRITE, 12 * MIB, 6));
}
END_TEST

START_TEST(test_a_move_takes_the_rest_and_gets_its_turn) {
    uint64_t now_us = 1;
    ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, now_us));
    ck_assert(!move(&b, 8 * MIB, now_us));
    for (int i = 1; i < 4; i++) {
        give(SW_TIER_WRITE, 16 * MIB);
        ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, ++now_us));
        ck_assert(!move(&b, 8 * MIB, now_us));
    }
    give(SW_TIER_WRITE, 16 * MIB);
    ck_assert(!take(&a, SW_TIER_WRITE, 16 * MIB, ++now_us));
    ck_assert(take(&c, SW_TIER_WRITE, MIB, now_us)); /* short ones do not wait for it */
    ck_assert(move(&b, 8 * MIB, now_us));
    give(SW_TIER_WRITE, 9 * MIB);
    ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, ++now_us));
}
END_TEST

/* A move that has begun is waited for no more, and the next one only when as many bytes have passed again. */
START_TEST(test_each_move_waits_for_its_own_turn) {
    ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, 1));
    for (int i = 0; i < 3; i++) {
        ck_assert(!move(&b, 8 * MIB, 1));
        give(SW_TIER_WRITE, 16 * MIB);
        ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, 1));
    }
    ck_assert(!move(&b, 8 * MIB, 1));
    give(SW_TIER_WRITE, 16 * MIB);
    ck_assert(!take(&a, SW_TIER_WRITE, 16 * MIB, 1));
    ck_assert(move(&b, 8 * MIB, 1));
    give(SW_TIER_WRITE, 8 * MIB);
    ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, 1));
    ck_assert(!move(&b, 8 * MIB, 1)); /* asks for the next one */
    give(SW_TIER_WRITE, 16 * MIB);
    ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, 1));
    give(SW_TIER_WRITE, 16 * MIB);
    ck_assert(move(&b, 8 * MIB, 1));
    give(SW_TIER_WRITE, 8 * MIB);
    for (int i = 0; i < 10; i++) {
        ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, 1));
        give(SW_TIER_WRITE, 16 * MIB);
    }
}
END_TEST

/* A tenant counts whenever it came. */
START_TEST(test_a_clock_may_begin_at_zero) {
    ck_assert(!sw_tier_share_note(&share, &a, 0));
    ck_assert(sw_tier_share_note(&share, &b, 1));
    ck_assert(sw_tier_share_has_others(&share, &b, 1));
}
END_TEST

START_TEST(test_short_frames_do_not_keep_a_move_waiting_for_ever) {
    unsigned n = 0;
    ck_assert(take(&a, SW_TIER_WRITE, MIB, 1)); /* there is always one */
    while (!move(&b, 26 * MIB, 2) && take(&a, SW_TIER_WRITE, MIB, 2)) {
        give(SW_TIER_WRITE, MIB);
        ck_assert_uint_lt(++n, 200);
    }
    give(SW_TIER_WRITE, MIB);
    ck_assert(move(&b, 26 * MIB, 2));
}
END_TEST

START_TEST(test_nothing_waits_for_a_canceled_move) {
    ck_assert(take(&a, SW_TIER_WRITE, 64 * MIB, 1));
    ck_assert(!move(&b, 8 * MIB, 2));
    give(SW_TIER_WRITE, 64 * MIB);
    ck_assert(!take(&a, SW_TIER_WRITE, 16 * MIB, 3));
    ck_assert(take(&a, SW_TIER_WRITE, 16 * MIB, 2 + 1000));
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tier_share");
    TCase *tcase = tcase_create("all");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_a_single_tenant_has_no_limit);
    tcase_add_test(tcase, test_several_tenants_have_limits);
    tcase_add_test(tcase, test_jobs_without_a_tenant_count_as_one);
    tcase_add_test(tcase, test_each_tier_has_its_own_limit);
    tcase_add_test(tcase, test_each_worker_may_have_a_frame_there);
    tcase_add_test(tcase, test_writes_give_way_to_reads);
    tcase_add_test(tcase, test_a_move_takes_the_rest_and_gets_its_turn);
    tcase_add_test(tcase, test_each_move_waits_for_its_own_turn);
    tcase_add_test(tcase, test_a_clock_may_begin_at_zero);
    tcase_add_test(tcase, test_short_frames_do_not_keep_a_move_waiting_for_ever);
    tcase_add_test(tcase, test_nothing_waits_for_a_canceled_move);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
