/* Where frames go: to the first tier that has room for them, in order. On tiers without content. */
#include "spill/store/placement.h"

#include "tests/lib/run.h"

#include <check.h>

#define MIB ((uint64_t)1 << 20)
#define LEAST_CHUNK_BYTES ((uint64_t)32 << 10)

/* rc: of its reservations. */
static struct room {
    struct sw_tier tier;
    struct sw_tier_kind kind;
    uint64_t capacity_bytes, used_bytes;
    int rc;
    unsigned n_asked;
} rooms[3];
static struct sw_placement place;

static struct room *room_of(struct sw_tier *tier) {
    return SW_CONTAINER_OF(tier, struct room, tier);
}

static int reserve(struct sw_tier *tier, uint64_t bytes, struct sw_stored *ret, struct sw_err *err) {
    struct room *room = room_of(tier);
    room->n_asked++;
    if (room->rc)
        return sw_err_set(err, room->rc, SW_SCOPE_REQUEST, "none");
    *ret = (struct sw_stored){.tier = tier, .bytes = bytes};
    return 0;
}

static void stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    *ret = (struct sw_tier_stats){.capacity_bytes = room_of(tier)->capacity_bytes,
                                  .used_bytes = room_of(tier)->used_bytes};
}

static const struct sw_tier_ops ops = {.reserve = reserve, .stats = stats};

static struct sw_tiers tiers_of(unsigned n) {
    struct sw_tiers tiers = {.n = n};
    for (unsigned i = 0; i < n; i++)
        tiers.at[i] = &rooms[i].tier;
    return tiers;
}

/* Memory of 32 MiB, a quarter of it for the way; a disk and a store of 64 MiB. */
static void setup(void) {
    for (unsigned i = 0; i < 3; i++) {
        rooms[i] = (struct room){.kind = {.name = "tier"}, .capacity_bytes = i ? 64 * MIB : 32 * MIB};
        rooms[i].tier = (struct sw_tier){.ops = &ops, .kind = &rooms[i].kind, .rank = i};
    }
    const struct sw_tiers tiers = tiers_of(3);
    sw_placement_init(&place, &tiers, 8 * MIB);
}

START_TEST(test_room_for_the_way_is_taken_from_memory_only) {
    ck_assert_uint_eq(place.limit_bytes[0], 24 * MIB);
    ck_assert_uint_eq(place.limit_bytes[1], 64 * MIB);
    ck_assert_uint_eq(place.limit_bytes[2], 64 * MIB);
    ck_assert_uint_eq(place.capacity_bytes, 160 * MIB);
    ck_assert_uint_eq(place.transit_bytes, 4 * MIB);
}
END_TEST

START_TEST(test_memory_alone_needs_no_room_for_the_way) {
    const struct sw_tiers tiers = tiers_of(1);
    sw_placement_init(&place, &tiers, 8 * MIB);
    ck_assert_uint_eq(place.limit_bytes[0], 32 * MIB);
    ck_assert_uint_eq(place.transit_bytes, 0);
    ck_assert_uint_gt(place.chunk_bytes, 8 * MIB);
    rooms[0].used_bytes = 32 * MIB;
    ck_assert(!sw_placement_goes_out(&place, 1)); /* there is nowhere to go */
}
END_TEST

static uint64_t chunk_bytes(uint64_t disk_bytes, uint64_t store_bytes) {
    const struct sw_tiers tiers = tiers_of(3);
    rooms[1].kind.frame_bytes = disk_bytes;
    rooms[2].kind.frame_bytes = store_bytes;
    sw_placement_init(&place, &tiers, 8 * MIB);
    return place.chunk_bytes;
}

/* The strictest tier counts, and that two frames fit on the way. */
START_TEST(test_chunks_are_as_short_as_any_tier_wants) {
    const uint64_t way = chunk_bytes(0, 0), shorter = chunk_bytes(MIB, 0);
    ck_assert(way < 4 * MIB && way > 4 * MIB - 4 * LEAST_CHUNK_BYTES && way % LEAST_CHUNK_BYTES == 0);
    ck_assert(shorter < MIB && shorter > MIB - 4 * LEAST_CHUNK_BYTES);
    ck_assert_uint_eq(chunk_bytes(MIB, 2 * MIB), shorter);
    ck_assert_uint_eq(chunk_bytes(2 * MIB, MIB), shorter);
    ck_assert_uint_eq(chunk_bytes(64 * MIB, 64 * MIB), way);
    ck_assert_uint_eq(chunk_bytes(1, 0), LEAST_CHUNK_BYTES);
}
END_TEST

START_TEST(test_frames_rest_up_to_the_limit) {
    rooms[0].used_bytes = 24 * MIB - 1000;
    ck_assert(!sw_placement_goes_out(&place, 1000));
    ck_assert(sw_placement_goes_out(&place, 1001));
}
END_TEST

/* Only memory keeps an eighth for frames that are placed at the same time. */
START_TEST(test_room_that_is_told) {
    rooms[0].used_bytes = rooms[1].used_bytes = 5 * MIB;
    ck_assert_uint_eq(sw_placement_room_bytes(&place, 0), 16 * MIB);
    ck_assert_uint_eq(sw_placement_room_bytes(&place, 1), 59 * MIB);
    rooms[0].used_bytes = 22 * MIB;
    rooms[1].used_bytes = 65 * MIB;
    ck_assert_uint_eq(sw_placement_room_bytes(&place, 0), 0);
    ck_assert_uint_eq(sw_placement_room_bytes(&place, 1), 0);
}
END_TEST

/* Returns the rank that both answers name; 0: there is none. */
static unsigned behind(unsigned rank, uint64_t bytes) {
    struct sw_stored stored = {0};
    struct sw_err err = {0};
    const struct sw_tier *next = sw_placement_next_behind(&place, &rooms[rank].tier, bytes);
    const int rc = sw_placement_reserve_behind(&place, &rooms[rank].tier, bytes, &stored, &err);
    ck_assert_int_eq(rc, err.code);
    ck_assert_int_eq(rc, next ? 0 : -SW_ENOSPACE);
    ck_assert_ptr_eq(stored.tier, next);
    return next ? next->rank : 0;
}

/* The last tier is asked even beyond its limit: it decides itself. */
START_TEST(test_the_next_tier_with_room_takes_a_frame) {
    ck_assert_uint_eq(behind(0, MIB), 1);
    ck_assert_uint_eq(behind(1, MIB), 2);
    ck_assert_uint_eq(behind(2, MIB), 0);
    rooms[1].used_bytes = 63 * MIB;
    ck_assert_uint_eq(behind(0, MIB), 1);
    ck_assert_uint_eq(behind(0, MIB + 1), 2);
    rooms[2].used_bytes = 64 * MIB;
    ck_assert_uint_eq(behind(0, MIB + 1), 2);
    ck_assert_uint_eq(behind(1, MIB), 2);
}
END_TEST

static int reserve_behind_memory(struct sw_stored *ret) {
    *ret = (struct sw_stored){0};
    rooms[1].n_asked = rooms[2].n_asked = 0;
    return sw_placement_reserve_behind(&place, &rooms[0].tier, MIB, ret, NULL);
}

/* A tier that turns out to be full passes the frame on; any other failure is the frame's. */
START_TEST(test_a_full_tier_passes_frames_on) {
    struct sw_stored stored;
    rooms[1].rc = -SW_ENOSPACE;
    ck_assert_int_eq(reserve_behind_memory(&stored), 0);
    ck_assert_ptr_eq(stored.tier, &rooms[2].tier);
    rooms[2].rc = -SW_ENOSPACE;
    ck_assert_int_eq(reserve_behind_memory(&stored), -SW_ENOSPACE);
    ck_assert(rooms[1].n_asked == 1 && rooms[2].n_asked == 1);
    rooms[1].rc = -SW_ENOMEM;
    ck_assert_int_eq(reserve_behind_memory(&stored), -SW_ENOMEM);
    ck_assert(rooms[1].n_asked == 1 && rooms[2].n_asked == 0);
    rooms[1].rc = 0;
    ck_assert_int_eq(reserve_behind_memory(&stored), 0);
    ck_assert_uint_eq(rooms[2].n_asked, 0); /* one place is enough */
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("placement");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, test_room_for_the_way_is_taken_from_memory_only);
    tcase_add_test(tests, test_memory_alone_needs_no_room_for_the_way);
    tcase_add_test(tests, test_chunks_are_as_short_as_any_tier_wants);
    tcase_add_test(tests, test_frames_rest_up_to_the_limit);
    tcase_add_test(tests, test_room_that_is_told);
    tcase_add_test(tests, test_the_next_tier_with_room_takes_a_frame);
    tcase_add_test(tests, test_a_full_tier_passes_frames_on);
    Suite *suite = suite_create("placement");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
