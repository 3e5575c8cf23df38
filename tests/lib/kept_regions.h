/* kept_regions.h - a service inside the test whose disk keeps regions, and its successors (lib/lives.h).
 *
 * For one test program each: its state is static. What does not fit fails the test. thread: one, the loop's. */
#ifndef SW_TEST_KEPT_REGIONS_H
#define SW_TEST_KEPT_REGIONS_H

#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/lives.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

enum { DISK_BYTES = 16 << 20, UID = 1000 };

static struct sw_life life;
static struct sw_owner *session;

static inline void begin_life(void) {
    (void)sw_life_next(&life, DISK_BYTES);
    session = sw_owner_claim(life.engine, UID, sw_life_token);
    if (!session)
        session = sw_life_named_owner(&life, UID, sw_life_token);
}

static inline void end_life(void) {
    sw_engine_check(life.engine);
    sw_life_end(&life, session);
}

/* Neither the manager's memory nor the session is there any more. */
static inline void reboot(void) {
    (void)close(sw_world.catalogue);
    sw_world.catalogue = -1;
    for (unsigned i = 0; i < sw_world.n_slabs; i++)
        (void)close(sw_world.slabs[i].fd);
    sw_world.n_slabs = 0;
}

static struct sw_err error;

static inline int spill_as(const char *name, enum sw_durability durability, unsigned i, struct sw_test_op *op) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    sw_world_fill(sw_world.memory.data, i);
    ck_assert_int_eq(sw_mem_open(session, &desc, true, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    *op = (struct sw_test_op){0};
    memset(&error, 0, sizeof error);
    const int rc = sw_engine_spill(session, SW_TRANSFER(&range, 1, .name = name, .durability = durability),
                                   sw_test_op_done, op, &op->id, &error);
    sw_mem_close(mem, NULL, NULL);
    if (rc)
        return rc;
    sw_life_until(&life, &op->done);
    return op->outcome.err.code;
}

static enum sw_durability wanted = SW_DURABILITY_HOST; /* of regions that are looked for */

static inline void spill_host(const char *name, unsigned i) {
    struct sw_test_op op;
    ck_assert_int_eq(spill_as(name, SW_DURABILITY_HOST, i, &op), 0);
    ck_assert_int_eq(op.outcome.durability, SW_DURABILITY_HOST);
    ck_assert_str_eq(op.outcome.tier, "nvme");
    sw_world.ids[i] = op.id;
}

/* Finds the region by its name, and compares its bytes. */
static inline void ck_there(const char *name, unsigned i) {
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_adopt(session, name, &sw_world.ids[i], NULL), 0);
    ck_assert_int_eq(sw_engine_query(session, sw_world.ids[i], &info, NULL), 0);
    ck_assert_int_eq(info.durability, wanted);
    const struct sw_region *region = &life.engine->store.regions.regions[sw_world.ids[i].slot];
    ck_assert(!region->kept || region->durability == wanted); /* its next move goes by this */
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    struct sw_test_op op = {0};
    uint8_t *expected = sw_alloc(SW_WORLD_REGION_BYTES);
    memset(sw_world.memory.data, 0, SW_WORLD_REGION_BYTES);
    sw_world_fill(expected, i);
    ck_assert_int_eq(sw_mem_open(session, &desc, true, &mem, NULL), 0);
    const struct sw_range range = {.mem = mem, .bytes = SW_WORLD_REGION_BYTES};
    ck_assert_int_eq(sw_engine_restore(session, sw_world.ids[i], SW_TRANSFER(&range, 1), sw_test_op_done, &op, NULL),
                     0);
    sw_mem_close(mem, NULL, NULL);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_mem_eq(sw_world.memory.data, expected, SW_WORLD_REGION_BYTES);
    sw_free(expected);
}

static inline bool is_there(const char *name) {
    struct sw_region_id id;
    return sw_engine_adopt(session, name, &id, NULL) == 0;
}

static inline void drop(unsigned i) {
    ck_assert_int_eq(sw_engine_drop(session, sw_world.ids[i], NULL), 0);
    while (life.engine->keeper.n_changes)
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    sw_engine_check(life.engine);
}

/* Takes all cells of the catalogue, or gives them back. Returns how many were taken. */
static inline size_t fill_catalogue(bool takes) {
    static uint32_t records[100000];
    static size_t n;
    if (!takes)
        while (n > 0)
            sw_catalogue_free(life.catalogue, &records[--n]);
    while (takes && sw_catalogue_put_batch(life.catalogue, 1, &records[n], NULL) == 0)
        ck_assert_uint_lt(++n, sizeof records / sizeof records[0]);
    return n;
}

#endif
