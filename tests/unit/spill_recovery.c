/* The engine across two processes: the second finds all that the first left in the catalogue and the tiers. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { FAILURES = 400 };

static struct sw_life life;
static const uint8_t others_token[SW_TOKEN_BYTES] = "somebody else's.";
static struct sw_region_id *const ids = sw_world.ids;

START_TEST(regions_are_recovered) {
    const uint8_t other[SW_TOKEN_BYTES] = "another token..";
    struct sw_region_info info;
    struct sw_region_id made[2];
    sw_life_open(&life, sw_life_disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    ck_assert_int_eq(sw_engine_advise(owner, ids[2], SW_ADVISE_PRIORITY, 200, NULL), 0);
    ck_assert_int_eq(sw_engine_advise(owner, ids[4], SW_ADVISE_PIN, 1, NULL), 0);
    const struct sw_region_id last = ids[SW_WORLD_REGIONS - 1];
    uint64_t used[SW_WORLD_REGIONS];
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++)
        used[i] = life.engine->store.regions.regions[ids[i].slot].used_us;
    sw_life_close(&life, owner, true);

    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert(life.found.n_sessions == 1 && life.found.n_regions == SW_WORLD_REGIONS && life.found.n_lost == 0);
    ck_assert_uint_eq(life.found.n_damaged + life.found.n_released, 0);
    sw_engine_check(life.engine);
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1001, sw_life_token));
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1000, other));
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1000, sw_life_token));
    sw_engine_find_by_request(owner, 1003, made, 2);
    ck_assert(made[0].slot == ids[3].slot && made[0].gen == ids[3].gen && made[1].gen == 0);
    ck_assert_int_eq(sw_engine_query(owner, ids[2], &info, NULL), 0);
    ck_assert_uint_eq(info.raw_bytes, SW_WORLD_REGION_BYTES);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        const struct sw_region *region = &life.engine->store.regions.regions[ids[i].slot];
        ck_assert(region->priority == (i == 2 ? 200 : 0) && region->pinned == (i == 4));
        ck_assert_uint_eq(region->used_us, used[i]);
    }
    sw_life_restore_all(&life, owner, true);
    sw_life_restore_all(&life, owner, false);
    /* No old id is given out again, not even one of a free slot. */
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    ck_assert_uint_gt(ids[0].gen, last.gen);
    sw_engine_check(life.engine);
    sw_life_close(&life, owner, false);

    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_sessions + life.found.n_regions, 0);
    sw_life_close(&life, NULL, false);
}
END_TEST

/* Requests 1000, 1001 ... have made the regions. Half of all numbers are behind the newest, the others ahead of it. */
static const struct {
    uint32_t newest;
    unsigned first, end; /* of the regions that are found */
} rounds[] = {{1003, 0, 4},
              {1003 + (UINT32_C(1) << 31), 4, SW_WORLD_REGIONS},
              {999, 0, 0},
              {999 + (UINT32_C(1) << 31), 0, SW_WORLD_REGIONS}};

static void ck_found_made(struct sw_owner *owner, int round) {
    struct sw_region_id made;
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i++) {
        const bool is_found = i >= rounds[round].first && i < rounds[round].end;
        sw_engine_find_by_request(owner, 1000 + i, &made, 1);
        ck_assert_uint_eq(made.gen, is_found ? ids[i].gen : 0);
    }
}

START_TEST(requests_of_the_last_round_of_seqs_are_forgotten) {
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    sw_owner_forget_requests(owner, rounds[_i].newest);
    ck_found_made(owner, _i);
    for (unsigned i = 0; i < SW_WORLD_REGIONS; i += 2)
        ck_assert_int_eq(sw_engine_advise(owner, ids[i], SW_ADVISE_PRIORITY, 200, NULL), 0);
    sw_life_close(&life, owner, true);

    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_found_made(owner, _i);
    sw_life_move_to_the_disk(&life);
    sw_life_close(&life, owner, true);

    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_found_made(owner, _i);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(restored_regions_are_in_until_acknowledged) {
    struct sw_region_info info;
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, false), 0);
    sw_owner_acknowledged(owner);
    ck_assert_int_eq(sw_life_run(&life, owner, 1, true, false), 0);
    ck_assert_int_eq(sw_engine_consume(owner, ids[2], NULL), 0);
    ck_assert_int_eq(sw_engine_drop(owner, ids[3], NULL), 0);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS - 2);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), -SW_ENOENT);
    ck_assert_int_eq(sw_engine_query(owner, ids[3], &info, NULL), -SW_ENOENT);
    for (int i = 1; i <= 2; i++) {
        ck_assert_int_eq(sw_engine_query(owner, ids[i], &info, NULL), 0);
        ck_assert_int_eq(info.state, SW_REGION_IN);
        ck_assert_int_eq(sw_life_run(&life, owner, (unsigned)i, true, false), -SW_ESTATE);
    }
    sw_engine_check(life.engine);
    sw_engine_forget_in(owner);
    ck_assert_int_eq(sw_engine_query(owner, ids[1], &info, NULL), -SW_ESTALE);
    sw_life_close(&life, owner, false);
}
END_TEST

#ifndef __SANITIZE_THREAD__
/* A client that has not acknowledged its restore keeps the record; meanwhile a region of another client gets the slot.
 */
START_TEST(a_slot_belongs_to_its_newest_region) {
    static const uint8_t other_token[SW_TOKEN_BYTES] = "another of 16 by";
    struct sw_region_info info;
    struct sw_owner *other;
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    ck_assert_int_eq(sw_owner_open(life.engine, &other, NULL), 0);
    ck_assert_int_eq(sw_owner_name(other, 1001, &(struct sw_process){.pid = 0}, other_token, NULL), 0);
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, false), 0);
    sw_world_fill(sw_world.memory.data, 1);
    for (bool is_same = false; !is_same;) {
        ck_assert_int_eq(sw_life_run(&life, other, 1, false, false), 0);
        is_same = ids[1].slot == ids[0].slot;
        if (!is_same)
            ck_assert_int_eq(sw_engine_drop(other, ids[1], NULL), 0);
        sw_owner_acknowledged(other);
    }
    sw_life_close_owner(&life, owner, true);
    sw_life_close(&life, other, true);
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, 0);
    other = sw_owner_claim(life.engine, 1001, other_token);
    ck_assert_int_eq(sw_engine_query(other, ids[1], &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_OUT);
    ck_assert_int_eq(sw_engine_query(other, ids[0], &info, NULL), -SW_ESTALE);
    /* The client of the older region still gets its answer, now or after another restart. */
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_IN);
    ck_assert_uint_eq(info.raw_bytes, SW_WORLD_REGION_BYTES);
    sw_engine_check(life.engine);
    sw_life_close_owner(&life, owner, true);
    sw_life_close(&life, other, true);
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, false), -SW_ESTATE);
    ck_assert_int_eq(sw_engine_consume(owner, ids[0], NULL), 0);
    ck_assert_int_eq(sw_engine_query(owner, ids[0], &info, NULL), -SW_ENOENT);
    sw_owner_acknowledged(owner);
    sw_life_close(&life, owner, false);
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions + life.found.n_sessions, 0);
    sw_life_close(&life, NULL, false);
}
END_TEST
#endif

/* Fewer regions are allowed than there were: existing ones stay, in any slot, and no new ones are made. */
START_TEST(regions_beyond_the_bound_stay) {
    sw_life_open(&life, sw_life_disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    sw_life_close(&life, owner, true);
    sw_world.max_regions = SW_WORLD_REGIONS / 2;
    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost + life.found.n_released, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    const struct sw_region_id first = ids[0];
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), -SW_ELIMIT);
    ids[0] = first;
    sw_life_restore_all(&life, owner, false);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    sw_engine_check(life.engine);
    sw_life_close(&life, owner, false);
}
END_TEST

START_TEST(unclaimed_sessions_end) {
    struct sw_engine_stats stats;
    sw_life_open(&life, sw_life_disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, NULL, false, NULL), 1);
    do {
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
        sw_engine_stats(life.engine, &stats);
    } while (stats.n_owners);
    ck_assert_uint_eq(stats.n_regions + stats.tiers[0].used_bytes + stats.tiers[1].used_bytes, 0);
    sw_life_close(&life, NULL, false);
    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_sessions + life.found.n_regions + life.found.n_released, 0);
    sw_life_close(&life, NULL, false);
}
END_TEST

/* Where a tenant is short of room, as the service has it: sessions of others may still come back. */
START_TEST(unclaimed_sessions_end_for_one_tenant) {
    (void)sw_life_next(&life, sw_life_disks[_i]);
    struct sw_owner *goes = sw_life_named_owner(&life, 1000, sw_life_token);
    struct sw_owner *stays = sw_life_named_owner(&life, 1001, others_token);
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, goes, 0, false, false), 0);
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_life_run(&life, stays, 1, false, false), 0);
    sw_life_close_owner(&life, goes, true);
    sw_life_end(&life, stays);

    (void)sw_life_next(&life, sw_life_disks[_i]);
    ck_assert_uint_eq(life.quotas[0].n_regions + life.quotas[1].n_regions, 2);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, &life.quotas[0], false, NULL), 1);
    ck_assert_ptr_null(sw_owner_claim(life.engine, 1000, sw_life_token));
    stays = sw_owner_claim(life.engine, 1001, others_token);
    ck_assert_ptr_nonnull(stays);
    sw_life_restore_and_compare(&life, stays, 1, false);
    sw_life_end(&life, stays);
}
END_TEST

/* Each allocation of the start fails in turn: nothing that was recorded is lost by it. */
START_TEST(memory_fails_at_the_start) {
    int rc = -SW_ENOMEM;
    sw_life_open(&life, sw_life_disks[_i]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    sw_life_close(&life, owner, true);
    for (unsigned long nth = 1; rc; nth++) {
        ck_assert_uint_lt(nth, FAILURES);
        sw_life_open(&life, sw_life_disks[_i]);
        sw_alloc_fail_nth(nth);
        rc = sw_engine_recover(life.engine, &life.found, NULL);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SW_ENOMEM);
        sw_life_close(&life, NULL, true);
    }
    sw_life_open(&life, sw_life_disks[_i]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_regions, SW_WORLD_REGIONS);
    ck_assert_uint_eq(life.found.n_lost, 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* ---- durable regions ---- */

START_TEST(durable_regions_stay_without_their_session) {
    static const uint8_t second[SW_TOKEN_BYTES] = "the second one..";
    struct sw_region_id id;
    (void)sw_life_next(&life, sw_life_disks[_i]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    sw_world.spill_as = "orders";
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    sw_world.spill_as = NULL;
    ck_assert_int_eq(sw_life_run(&life, owner, 1, false, false), 0);
    sw_life_end(&life, owner);

    /* Its session may come back, and has it so long. */
    ck_assert_uint_eq(sw_life_next(&life, sw_life_disks[_i]), 0);
    ck_assert_uint_eq(life.found.n_regions, 2);
    ck_assert_uint_eq(life.quotas[0].n_regions, 2);
    owner = sw_life_named_owner(&life, 1000, second);
    ck_assert_int_eq(sw_engine_adopt(owner, "orders", &id, NULL), -SW_EBUSY);
    ck_assert_uint_eq(sw_owners_close_unclaimed(life.engine, NULL, false, NULL), 1);
    ck_assert_int_eq(sw_engine_adopt(owner, "orders", &id, NULL), 0);
    ck_assert_mem_eq(&id, &ids[0], sizeof id);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, false), 0);
    sw_life_end(&life, owner);

    /* The session that has adopted it finds it by its id. */
    ck_assert_uint_eq(sw_life_next(&life, sw_life_disks[_i]), 0);
    owner = sw_owner_claim(life.engine, 1000, second);
    ck_assert_ptr_nonnull(owner);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, false), 0);
    sw_life_close_owner(&life, owner, false);
    ck_assert_uint_eq(life.quotas[0].n_regions, 1);
    sw_life_end(&life, NULL);

    /* No session at all. */
    ck_assert_uint_eq(sw_life_next(&life, sw_life_disks[_i]), 1);
    ck_assert_uint_eq(life.found.n_sessions, 0);
    ck_assert_uint_eq(life.found.n_regions, 1);
    struct sw_owner *stranger = sw_life_named_owner(&life, 1001, sw_life_token);
    ck_assert_int_eq(sw_engine_adopt(stranger, "orders", &id, NULL), -SW_ENOENT);
    sw_life_close_owner(&life, stranger, false);
    owner = sw_life_named_owner(&life, 1000, sw_life_token);
    ck_assert_int_eq(sw_engine_adopt(owner, "orders", &id, NULL), 0);
    sw_life_restore_and_compare(&life, owner, 0, false);
    sw_engine_check(life.engine);
    ck_assert_int_eq(sw_engine_drop(owner, id, NULL), 0);
    ck_assert_uint_eq(atomic_load(&life.quotas[0].bytes), 0);
    sw_life_end(&life, owner);
    (void)sw_life_next(&life, sw_life_disks[_i]);
    ck_assert_uint_eq(life.found.n_regions + life.found.n_released, 0);
    sw_life_end(&life, NULL);
}
END_TEST

/* Opens owners under one name, of which only the last one stays. */
static struct sw_owner *open_many(uint32_t uid, const uint8_t token[SW_TOKEN_BYTES], uint64_t number_to_avoid) {
    enum { MANY = 10 };
    for (unsigned i = 0;; i++) {
        struct sw_owner *owner = sw_life_named_owner(&life, uid, token);
        ck_assert_uint_ne(owner->number, number_to_avoid);
        if (i == MANY)
            return owner;
        sw_life_close_owner(&life, owner, false);
    }
}

/* Numbers of sessions that are gone are in their durable regions' records: no session of another tenant gets one. */
START_TEST(no_session_takes_anothers_durable_region) {
    struct sw_region_id id;
    (void)sw_life_next(&life, 0);
    struct sw_owner *stranger = sw_life_named_owner(&life, 1001, others_token);
    struct sw_owner *owner = open_many(1000, sw_life_token, 0);
    const uint64_t number = owner->number;
    sw_world.spill_as = "orders";
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    sw_world.spill_as = NULL;
    sw_life_close_owner(&life, owner, false);
    sw_life_end(&life, stranger);
    for (int i = 0; i < 3; i++) {
        (void)sw_life_next(&life, 0);
        stranger = open_many(1001, others_token, number); /* numbers go on behind all that are recorded */
        ck_assert_uint_eq(life.quotas[1].n_regions, 0);
        ck_assert_uint_eq(life.quotas[0].n_regions, 1);
        ck_assert_int_eq(sw_engine_adopt(stranger, "orders", &id, NULL), -SW_ENOENT);
        sw_life_end(&life, stranger);
    }
}
END_TEST

/* Sessions' numbers are in packets and records: the next process uses none again, in whatever order it finds them. */
START_TEST(numbers_of_sessions_go_on) {
    enum { N = 3 };
    struct sw_owner *owners[N];
    (void)sw_life_next(&life, 0);
    for (uint8_t i = 0; i < N; i++)
        owners[i] = sw_life_named_owner(&life, 1000, (uint8_t[SW_TOKEN_BYTES]){1, i});
    sw_life_close_owner(&life, owners[0], false); /* the last one's record takes the place of the first one's */
    owners[0] = sw_life_named_owner(&life, 1000, (uint8_t[SW_TOKEN_BYTES]){1, N});
    const uint64_t last = owners[0]->number;
    ck_assert(last > owners[1]->number && last > owners[2]->number);
    for (unsigned i = 1; i < N; i++)
        sw_life_close_owner(&life, owners[i], true);
    sw_life_end(&life, owners[0]);
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_sessions, N);
    struct sw_owner *owner = NULL;
    ck_assert_int_eq(sw_owner_open(life.engine, &owner, NULL), 0);
    ck_assert_uint_gt(owner->number, last);
    sw_life_close(&life, owner, false);
}
END_TEST

/* ---- what the catalogue cannot record, and what it says of packed regions ---- */

/* No file grows from here on, as if the machine had no memory left for the catalogue. */
static void limit_files(void) {
    const off_t bytes = lseek(sw_catalogue_fd(life.catalogue), 0, SEEK_END);
    const struct rlimit limit = {.rlim_cur = (rlim_t)bytes, .rlim_max = (rlim_t)bytes};
    (void)signal(SIGXFSZ, SIG_IGN);
    ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, &limit), 0);
}

/* A move that the catalogue has no room for, or no memory (loop), has failed: the frames stay where they were, and it
 * is not tried again and again. */
START_TEST(a_move_that_cannot_be_recorded_fails) {
    int rc;
    const struct sw_catalogue_session other = {.number = 1000000, .uid = 1001};
    struct sw_engine_stats stats;
    uint32_t record;
    sw_world.high_pct = 100;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    for (unsigned i = 0; i < 3; i++) {
        sw_world_fill(sw_world.memory.data, i);
        ck_assert_int_eq(sw_life_run(&life, owner, i, false, false), 0);
    }
    sw_engine_stats(life.engine, &stats);
    const uint64_t used_bytes = stats.tiers[0].used_bytes;
    if (_i)
        limit_files();
    while ((rc = sw_catalogue_put_session(life.catalogue, &other, &record, NULL)) == 0) /* until it is full */
        continue;
    ck_assert_int_eq(rc, _i ? -SW_ENOMEM : -SW_ELIMIT);
    ck_assert_int_eq(sw_engine_make_room(life.engine, UINT64_MAX, NULL), 0);
    ck_assert_uint_gt(life.engine->balance.n_moves, 0);
    while (life.engine->balance.n_moves > 0) {
        (void)uv_run(&life.loop, UV_RUN_ONCE);
        sw_engine_stats(life.engine, &stats);
        ck_assert_uint_eq(stats.demotions, 0);
    }
    ck_assert_uint_eq(stats.tiers[0].used_bytes, used_bytes);
    for (unsigned i = 0; i < 3; i++)
        sw_life_restore_and_compare(&life, owner, i, false);
    sw_life_close(&life, owner, false);
}
END_TEST

static void note_left(void *arg) {
    *(bool *)arg = true;
}

/* Its last request is under way. */
START_TEST(a_session_that_is_leaving_is_not_asked_for_room) {
    struct sw_test_op op = {0};
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    bool left = false;
    sw_world.high_pct = 100;
    sw_world.host_bytes = 10 << 20;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(sw_engine_restore(owner, ids[0], SW_TRANSFER(&range, 1, .keep = true), sw_test_op_done, &op, NULL),
                     0);
    sw_owner_leave(owner, note_left, &left);
    ck_assert(!left);
    (void)sw_engine_make_room(life.engine, UINT64_MAX, NULL);
    ck_assert_uint_eq(life.engine->balance.n_moves, 0);
    sw_life_until(&life, &left);
    sw_life_close(&life, NULL, false);
}
END_TEST

/* What is under way is canceled, and no other region of it is moved: the service's end does not wait for the disk. */
START_TEST(no_move_begins_for_a_session_that_leaves) {
    struct sw_engine_stats stats;
    sw_world.high_pct = 100;
    sw_world.host_bytes = 10 << 20;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_life_spill_all(&life, owner);
    life.engine->balance.moving_bytes = UINT64_C(1) << 30; /* as if they were long, so that not all are moved at once */
    ck_assert_int_eq(sw_engine_make_room(life.engine, UINT64_MAX, NULL), 0);
    const unsigned n_begun = life.engine->balance.n_moves;
    ck_assert(n_begun > 0 && n_begun < SW_WORLD_REGIONS);
    sw_life_close_owner(&life, owner, true);
    sw_engine_stats(life.engine, &stats);
    ck_assert_uint_eq(life.engine->balance.n_moves, 0);
    ck_assert_uint_le(stats.demotions, n_begun);
    sw_life_close(&life, NULL, true);
    sw_life_open(&life, sw_life_disks[1]);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    sw_life_restore_all(&life, owner, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* A move without memory does not begin, and leaves nothing. */
START_TEST(a_move_without_memory_does_not_begin) {
    unsigned long nth = 1;
    sw_world.high_pct = 100;
    sw_life_open(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    for (const long live = sw_alloc_live();; nth++) {
        sw_alloc_fail_nth(nth);
        ck_assert_int_eq(sw_engine_make_room(life.engine, UINT64_MAX, NULL), 0);
        sw_alloc_fail_nth(0);
        if (life.engine->balance.n_moves > 0)
            break;
        ck_assert_int_eq(sw_alloc_live(), live);
        sw_engine_check(life.engine);
    }
    ck_assert_uint_gt(nth, 3);
    while (life.engine->balance.n_moves > 0)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    sw_life_restore_and_compare(&life, owner, 0, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* A successor could not tell its client that packing was under way, and would have it pack torn bytes again. */
START_TEST(a_pack_that_cannot_be_recorded_does_not_begin) {
    const struct sw_catalogue_session other = {.number = 1000000, .uid = 1001};
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_engine_stats stats;
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    uint32_t record, last = 0;
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    while (sw_catalogue_put_session(life.catalogue, &other, &record, NULL) == 0) /* until it is full */
        last = record;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(
        sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id, NULL),
        -SW_ELIMIT);
    sw_engine_stats(life.engine, &stats);
    ck_assert_uint_eq(stats.n_regions + stats.n_ops, 0);
    sw_engine_check(life.engine);
    sw_catalogue_free(life.catalogue, &last); /* room for one that is marked broken, not for its chunks, too */
    ck_assert_int_eq(
        sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id, NULL), 0);
    ck_assert_uint_ne(life.engine->store.regions.regions[op.id.slot].record, 0);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_life_close(&life, owner, false);
}
END_TEST

/* The client may still have the bytes of a lost region, unless the region was packed or being packed. */
START_TEST(packed_regions_are_recovered_as_packed) {
    struct sw_catalogue_hints broken = {.broken = true};
    struct sw_region_info info;
    struct sw_test_op op = {0};
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(
        sw_engine_spill(owner, SW_TRANSFER(&range, 1, .in_place = true), sw_test_op_done, &op, &op.id, NULL), 0);
    sw_life_until(&life, &op.done);
    ids[1] = op.id;
    /* the state that the beginning of another pack leaves */
    ids[2] = (struct sw_region_id){.slot = 2, .gen = 1};
    const struct sw_catalogue_region begun = {.session = owner->number,
                                              .slot = ids[2].slot,
                                              .gen = ids[2].gen,
                                              .raw_bytes = SW_WORLD_REGION_BYTES,
                                              .hints = broken};
    uint32_t record;
    ck_assert_int_eq(sw_catalogue_put_region(life.catalogue, &begun, 0, &record, NULL), 0);
    for (unsigned i = 0; i < 2; i++)
        sw_catalogue_hint(life.catalogue, life.engine->store.regions.regions[ids[i].slot].record, &broken);
    sw_life_close(&life, owner, true);
    sw_life_open(&life, 0);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert_uint_eq(life.found.n_lost, 3);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_engine_query(owner, ids[i], &info, NULL), 0);
        ck_assert_int_eq(info.state, SW_REGION_LOST);
        ck_assert_int_eq(info.in_place, i > 0);
    }
    sw_life_close(&life, owner, false);
}
END_TEST

/* The next process has no directory of it either, and takes no chunk of it for one that its devices have to decode. */
START_TEST(a_region_that_its_client_has_packed_is_recovered) {
    const struct sw_packed packed = {.raw_bytes = (uint64_t)3 << 30,
                                     .stored_bytes = (uint64_t)1 << 30,
                                     .type = SW_VALUE_U32,
                                     .codec = SW_CODEC_FOR,
                                     .request = 1000,
                                     .batch_index = 5};
    struct sw_outcome outcome;
    struct sw_region_info info;
    struct sw_region_id made[6];
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    ck_assert_int_eq(sw_engine_note_packed(owner, &packed, &outcome, NULL), 0);
    sw_engine_check(life.engine);
    ck_assert_uint_eq(sw_catalogue_longest_chunk(life.catalogue), 0);
    sw_life_close(&life, owner, true);
    for (unsigned i = 0; i < 2; i++) {
        sw_life_open(&life, 0);
        ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
        ck_assert_uint_eq(life.found.n_lost + life.found.n_damaged, 0);
        owner = sw_owner_claim(life.engine, 1000, sw_life_token);
        sw_engine_check(life.engine);
        ck_assert_int_eq(sw_engine_query(owner, outcome.region, &info, NULL), i ? -SW_ENOENT : 0);
        ck_assert(i || (info.state == SW_REGION_OUT && info.in_place && info.codec == SW_CODEC_FOR &&
                        info.raw_bytes == packed.raw_bytes && info.stored_bytes == packed.stored_bytes));
        ck_assert_str_eq(info.coder, "client");
        sw_engine_find_by_request(owner, 1000, made, 6);
        ck_assert_uint_eq(made[5].gen, i ? 0 : outcome.region.gen);
        if (!i)
            ck_assert_int_eq(sw_engine_drop(owner, outcome.region, NULL), 0);
        sw_life_close(&life, owner, true);
    }
}
END_TEST

/* ---- another device ---- */

static struct sw_device_info short_info;

static const struct sw_device_info *short_chunks(const struct sw_device *device) {
    (void)device;
    return &short_info;
}

/* A device of this life may take shorter chunks than the one that made them: as long as its own it has them, and of
 * longer ones it says so, with nothing written and nothing lost. */
START_TEST(chunks_are_no_longer_than_the_device_takes) {
    sw_life_open(&life, 0);
    struct sw_owner *owner = sw_life_new_owner(&life);
    sw_world_fill(sw_world.memory.data, 0);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, false, false), 0);
    const struct sw_frames *frames = life.engine->store.regions.regions[ids[0].slot].frames;
    const struct sw_device_ops *real = life.device->ops;
    struct sw_device_ops ops = *real;
    short_info = *real->info(life.device);
    ops.info = short_chunks;
    life.device->ops = &ops;
    short_info.chunk_bytes = frames->chunk_bytes - 1;
    memset(sw_world.memory.data, 0x5A, SW_WORLD_REGION_BYTES);
    ck_assert_int_eq(sw_life_run(&life, owner, 0, true, false), -SW_ENOTSUP);
    for (size_t i = 0; i < SW_WORLD_REGION_BYTES; i++)
        ck_assert_uint_eq(sw_world.memory.data[i], 0x5A);
    short_info.chunk_bytes = frames->chunk_bytes;
    sw_life_restore_and_compare(&life, owner, 0, true);
    life.device->ops = real;
    sw_life_restore_and_compare(&life, owner, 0, false);
    sw_life_close(&life, owner, false);
}
END_TEST

/* ---- signs of life ---- */

static int dead_canary(struct sw_device *device, struct sw_err *err) {
    (void)device;
    return sw_err_set(err, -SW_EGPULOST, SW_SCOPE_DEVICE, "dead");
}

START_TEST(a_dead_device_is_silent) {
    sw_life_open(&life, 0);
    sw_life_await_arena(&life);
    sw_engine_ask_life(life.engine);
    const uint64_t given_us = life.engine->canaries[0].given_us;
    while (life.engine->canaries[0].given_us == given_us || life.engine->canaries[0].is_out)
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
    ck_assert(!sw_engine_device_lost(life.engine));
    const struct sw_device_ops *real = life.device->ops;
    struct sw_device_ops dead = *real;
    dead.canary = dead_canary;
    life.device->ops = &dead;
    const uint64_t last_us = life.engine->canaries[0].given_us;
    sw_engine_ask_life(life.engine);
    while (life.engine->canaries[0].is_out)
        (void)uv_run(&life.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(life.engine->canaries[0].given_us, last_us);
    ck_assert(sw_engine_device_lost(life.engine));
    life.device->ops = real;
    sw_life_close(&life, NULL, false);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("recovery");
    TCase *tcase = tcase_create("recovery");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(tcase, regions_are_recovered, 0, 2);
    tcase_add_loop_test(tcase, requests_of_the_last_round_of_seqs_are_forgotten, 0,
                        (int)(sizeof rounds / sizeof rounds[0]));
    tcase_add_test(tcase, restored_regions_are_in_until_acknowledged);
#ifndef __SANITIZE_THREAD__ /* thousands of spills until a slot comes round */
    tcase_add_test(tcase, a_slot_belongs_to_its_newest_region);
#endif
    tcase_add_loop_test(tcase, regions_beyond_the_bound_stay, 0, 2);
    tcase_add_loop_test(tcase, unclaimed_sessions_end, 0, 2);
    tcase_add_loop_test(tcase, unclaimed_sessions_end_for_one_tenant, 0, 2);
    tcase_add_loop_test(tcase, memory_fails_at_the_start, 0, 2);
    tcase_add_loop_test(tcase, durable_regions_stay_without_their_session, 0, 2);
    tcase_add_test(tcase, no_session_takes_anothers_durable_region);
    tcase_add_test(tcase, numbers_of_sessions_go_on);
    tcase_add_loop_test(tcase, a_move_that_cannot_be_recorded_fails, 0, 2);
    tcase_add_test(tcase, a_session_that_is_leaving_is_not_asked_for_room);
    tcase_add_test(tcase, no_move_begins_for_a_session_that_leaves);
    tcase_add_test(tcase, a_move_without_memory_does_not_begin);
    tcase_add_test(tcase, a_pack_that_cannot_be_recorded_does_not_begin);
    tcase_add_test(tcase, packed_regions_are_recovered_as_packed);
    tcase_add_test(tcase, a_region_that_its_client_has_packed_is_recovered);
    tcase_add_test(tcase, chunks_are_no_longer_than_the_device_takes);
    tcase_add_test(tcase, a_dead_device_is_silent);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
