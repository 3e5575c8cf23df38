/* The power fails at any moment: whatever the disk has kept of the writes that were not flushed, each region that was
 * reported durable is there, whole.
 *
 * Random histories of spills, drops, batches and moves are recorded (lib/power.h), each is cut at a random call, and
 * what the cut may have left is started from: all subsets of the lost writes if these are few, and torn ones.
 * $SW_POWER_HISTORIES: how many histories, a dozen unless it says more; `make soak` has 1,000. $SW_POWER_SEED: the
 * first one's number. */
#include "base/alloc.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "tests/lib/content.h"
#include "tests/lib/lives.h"
#include "tests/lib/power.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    DISK_BYTES = 1 << 20, /* so small that space is used again */
    UID = 1000,
    N_NAMES = 8,
    N_BATCH = 3,
    MOST_BYTES = 90000,
    N_STEPS = 14,
    MOST_CALLS = 120, /* of a history, about */
    ALL_SUBSETS = 4,  /* lost writes of which all subsets are tried */
    N_TORN = 12,
    REWRITTEN_BYTES = 64 << 10 /* files that are longer, if most of it is dead */
};

#define BY_SEED UINT64_MAX /* length of a region */

/* The test's knowledge of a name. The recorder's lock guards the states. */
enum state { GONE, UNSURE, REPORTED };
struct named {
    enum state state;
    uint64_t seed, seed_before; /* of the content; UNSURE: either, or none */
    unsigned batch;             /* UNSURE: built together with others of this number; 0: alone */
    struct sw_region_id id;
    bool is_busy;
};

static struct named names[N_NAMES], at_cut[N_NAMES], of_template[N_NAMES];
static struct sw_life life;
static struct sw_owner *session;
static uint64_t chance;
static unsigned n_batches, n_replays, n_reported;
static struct sw_nvme_folder template;
static bool has_template;

static unsigned pick(unsigned n) {
    return (unsigned)(sw_random(&chance) % n);
}

static const char *name_text(unsigned i) {
    static char text[8];
    (void)snprintf(text, sizeof text, "r%u", i);
    return text;
}

static uint64_t bytes_of(uint64_t seed) {
    return 1 + seed * 7919 % MOST_BYTES;
}

static void fill(uint8_t *to, uint64_t seed) {
    sw_content_fill(to, bytes_of(seed), seed % 3 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, seed);
}

static int no_sync(int fd, bool is_directory) {
    (void)fd;
    (void)is_directory;
    return 0;
}
static const struct sw_nvme_file_ops unflushed = {.sync = no_sync};

static void begin_life(const struct sw_nvme_file_ops *files) {
    if (sw_world.catalogue >= 0)
        (void)close(sw_world.catalogue);
    sw_world.catalogue = -1;
    for (unsigned i = 0; i < sw_world.n_slabs; i++)
        (void)close(sw_world.slabs[i].fd);
    sw_world.n_slabs = 0;
    sw_world.files = files;
    (void)sw_life_next(&life, DISK_BYTES);
    session = sw_life_named_owner(&life, UID, sw_life_token);
}

static void set_state(unsigned i, enum state state) {
    sw_power_lock();
    names[i].state = state;
    sw_power_unlock();
}

static void turn(void) {
    (void)uv_run(&life.loop, UV_RUN_ONCE);
}

static bool is_any_busy(void) {
    for (unsigned i = 0; i < N_NAMES; i++)
        if (names[i].is_busy)
            return true;
    return false;
}

/* Everything that was begun has ended, so what was dropped is gone. */
static void settle(void) {
    while (is_any_busy() || life.engine->keeper.n_changes)
        turn();
    for (unsigned i = 0; i < N_NAMES; i++)
        if (names[i].state == UNSURE)
            set_state(i, GONE);
}

/* ---- steps ---- */

static void on_spilled(const struct sw_outcome *outcome, void *arg) {
    struct named *named = arg;
    sw_power_lock();
    if (!outcome->err.code) {
        ck_assert_int_eq(outcome->durability, SW_DURABILITY_HOST);
        named->state = REPORTED;
        named->id = outcome->region;
    } else {
        ck_assert_int_eq(outcome->err.code, -SW_ENOSPACE);
    }
    sw_power_unlock();
    named->is_busy = false;
}

static struct sw_mem *open_memory(bool once) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(session, &desc, once, &mem, NULL), 0);
    return mem;
}

static void begin_name(unsigned i, unsigned batch) {
    static uint64_t seeds;
    sw_power_lock();
    names[i].seed_before = names[i].seed;
    names[i].seed = ++seeds;
    names[i].state = UNSURE;
    names[i].batch = batch;
    names[i].is_busy = true;
    sw_power_unlock();
}

/* at: where in the memory its bytes are; several may be on their way. bytes: BY_SEED, unless it will be dropped. */
static void spill(unsigned i, uint64_t at, uint64_t bytes) {
    struct sw_mem *mem = open_memory(true);
    struct sw_region_id id;
    begin_name(i, 0);
    fill(sw_world.memory.data + at, names[i].seed);
    struct sw_range range = {.mem = mem, .offset = at, .bytes = bytes};
    if (bytes == BY_SEED)
        range.bytes = bytes_of(names[i].seed);
    const int rc =
        sw_engine_spill(session, SW_TRANSFER(&range, 1, .name = name_text(i), .durability = SW_DURABILITY_HOST),
                        on_spilled, &names[i], &id, NULL);
    ck_assert_int_eq(rc, 0);
    sw_mem_close(mem, NULL, NULL);
}

static void spill_and_wait(unsigned i, uint64_t bytes) {
    spill(i, 0, bytes);
    while (is_any_busy())
        turn();
}

static void spill_some(void) {
    const unsigned n = 1 + pick(3);
    uint64_t at = 0;
    for (unsigned i = pick(N_NAMES), k = 0, begun = 0; k < N_NAMES && begun < n; k++, i = (i + 1) % N_NAMES)
        if (names[i].state != REPORTED && !names[i].is_busy) {
            spill(i, at, BY_SEED);
            at += MOST_BYTES + 4096 - MOST_BYTES % 4096;
            begun++;
        }
    while (is_any_busy())
        turn();
}

static void drop_one(void) {
    const unsigned i = pick(N_NAMES);
    if (names[i].state != REPORTED)
        return;
    sw_power_lock();
    names[i].state = UNSURE;
    names[i].seed_before = names[i].seed;
    names[i].batch = 0;
    sw_power_unlock();
    ck_assert_int_eq(sw_engine_drop(session, names[i].id, NULL), 0);
    if (pick(2))
        settle();
}

static void build_batch(void) {
    struct sw_build *builds[N_BATCH];
    struct sw_build_end ends[N_BATCH];
    unsigned n = 0;
    settle(); /* so that each of them is gone, or new */
    struct sw_mem *mem = open_memory(false);
    n_batches++;
    for (unsigned i = 0; i < N_NAMES && n < N_BATCH; i++) {
        if (names[i].state != GONE)
            continue;
        begin_name(i, n_batches);
        fill(sw_world.memory.data, names[i].seed);
        const uint64_t bytes = bytes_of(names[i].seed);
        const struct sw_build_buffer_config buffer = {.raw_bytes = bytes, .chunk_bytes = 64 << 10};
        const struct sw_build_config config = {
            .buffers = &buffer, .n_buffers = 1, .name = name_text(i), .durability = SW_DURABILITY_HOST};
        const struct sw_range range = {.mem = mem, .bytes = bytes};
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_begin(session, &config, &builds[n], NULL), 0);
        ck_assert_int_eq(sw_build_append(builds[n], &range, 1, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ends[n] = (struct sw_build_end){.build = builds[n], .index = n, .arg = &names[i]};
        n++;
    }
    if (n)
        ck_assert_int_eq(sw_build_commit_batch(ends, n, 7, on_spilled, NULL), 0);
    while (is_any_busy())
        turn();
    sw_mem_close(mem, NULL, NULL);
}

/* Regions that are not durable use the disk, too, and its space again. */
static void fill_and_leave(void) {
    struct sw_mem *mem = open_memory(true);
    const struct sw_range range = {.mem = mem, .bytes = 1 + pick(MOST_BYTES)};
    struct sw_test_op op = {0};
    sw_content_fill(sw_world.memory.data, range.bytes, SW_CONTENT_RANDOM, sw_random(&chance));
    ck_assert_int_eq(sw_engine_spill(session, SW_TRANSFER(&range, 1), sw_test_op_done, &op, &op.id, NULL), 0);
    sw_mem_close(mem, NULL, NULL);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_life_move_to_the_disk(&life);
    if (pick(3))
        ck_assert_int_eq(sw_engine_drop(session, op.id, NULL), 0);
}

static void step(void) {
    const unsigned kind = pick(10);
    if (kind < 4)
        spill_some();
    else if (kind < 7)
        drop_one();
    else if (kind < 8)
        build_batch();
    else
        fill_and_leave();
}

/* ---- a history ---- */

static void copy_states(void *arg) {
    (void)arg;
    memcpy(at_cut, names, sizeof at_cut);
}

static void copy_files(const char *from, const char *to) {
    char text[1300];
    (void)snprintf(text, sizeof text, "cp --sparse=always %s/* %s/", from, to);
    ck_assert_int_eq(system(text), 0);
}

static off_t file_bytes(const char *name) {
    char path[300];
    struct stat st;
    (void)snprintf(path, sizeof path, "%s/%s", sw_world.folder.path, name);
    ck_assert_int_eq(stat(path, &st), 0);
    return st.st_size;
}

/* Files so long that the next changes rewrite them, with two regions that stay. Regions without bytes lengthen only the
 * list of names. */
static void make_template(void) {
    template = sw_nvme_folder_new();
    const struct sw_nvme_folder here = sw_world.folder;
    sw_world.folder = template;
    begin_life(&unflushed);
    for (unsigned i = 0; i < 2; i++)
        spill_and_wait(i, BY_SEED);
    for (unsigned n = 0; file_bytes("names") <= REWRITTEN_BYTES; n++) {
        const unsigned i = 2 + n % (N_NAMES - 2);
        const off_t left = REWRITTEN_BYTES - file_bytes("manifest");
        spill_and_wait(i, left > 2000 ? 8 * 65536 : left > 250 ? 1 : 0);
        ck_assert_int_eq(sw_engine_drop(session, names[i].id, NULL), 0);
        set_state(i, GONE);
        settle();
    }
    memcpy(of_template, names, sizeof of_template);
    sw_life_end(&life, session);
    sw_world.folder = here;
    has_template = true;
}

static void begin_history(bool has_long_files) {
    memset(names, 0, sizeof names);
    if (has_long_files) {
        if (!has_template)
            make_template();
        copy_files(template.path, sw_world.folder.path);
        memcpy(names, of_template, sizeof names);
    }
    sw_power_on(sw_world.folder.path);
    begin_life(&sw_power_files);
    for (unsigned i = 0; i < N_NAMES; i++)
        ck_assert(names[i].state == GONE || sw_engine_adopt(session, name_text(i), &names[i].id, NULL) == 0);
}

static void end_history(void) {
    sw_power_cut();
    settle();
    sw_engine_check(life.engine);
    sw_life_end(&life, session);
}

static void record_history(bool has_long_files) {
    begin_history(has_long_files);
    sw_power_cut_after(1 + pick(MOST_CALLS), copy_states, NULL);
    for (unsigned n = 0; n < N_STEPS && !sw_power_is_cut(); n++)
        step();
    end_history();
}

/* Spills that rewrite the files. Returns false if they make fewer calls. */
static bool record_rewrite(unsigned n_calls) {
    begin_history(true);
    sw_power_cut_after(n_calls, copy_states, NULL);
    for (unsigned i = 2; i < 5; i++)
        spill_and_wait(i, BY_SEED);
    const bool is_cut = sw_power_is_cut();
    ck_assert(is_cut || (file_bytes("names") < REWRITTEN_BYTES / 4 && file_bytes("manifest") < REWRITTEN_BYTES / 4));
    end_history();
    return is_cut;
}

/* ---- after the cut ---- */

static bool has_content(uint64_t seed) {
    uint8_t *expected = sw_alloc(MOST_BYTES);
    fill(expected, seed);
    const bool is_same = memcmp(sw_world.memory.data, expected, bytes_of(seed)) == 0;
    sw_free(expected);
    return is_same;
}

static int restore(struct sw_region_id id) {
    struct sw_mem *mem = open_memory(true);
    const struct sw_range range = {.mem = mem, .bytes = MOST_BYTES};
    struct sw_test_op op = {0};
    memset(sw_world.memory.data, 0, MOST_BYTES);
    const int rc = sw_engine_restore(session, id, SW_TRANSFER(&range, 1), sw_test_op_done, &op, NULL);
    sw_mem_close(mem, NULL, NULL);
    if (rc)
        return rc;
    sw_life_until(&life, &op.done);
    return op.outcome.err.code;
}

static void ck_name(unsigned i, unsigned n_of_batch[]) {
    const struct named *named = &at_cut[i];
    struct sw_region_id id;
    const int found = sw_engine_adopt(session, name_text(i), &id, NULL);
    if (named->state == REPORTED) {
        ck_assert_msg(found == 0, "a reported region is gone: %s", sw_err_name(found));
        const int rc = restore(id);
        ck_assert_msg(rc == 0, "a reported region: %s", sw_err_name(rc));
        ck_assert(has_content(named->seed));
        n_reported++;
    } else if (named->state == GONE) {
        ck_assert_int_eq(found, -SW_ENOENT);
    } else if (found == 0) {
        n_of_batch[named->batch]++;
        if (restore(id) == 0)
            ck_assert(has_content(named->seed) || has_content(named->seed_before));
    }
}

static unsigned n_in_batch(unsigned batch) {
    unsigned n = 0;
    for (unsigned i = 0; i < N_NAMES; i++)
        n += at_cut[i].state == UNSURE && at_cut[i].batch == batch;
    return n;
}

static void replay(uint64_t subset, bool is_torn) {
    unsigned n_of_batch[4096] = {0};
    sw_world.folder = sw_nvme_folder_new();
    sw_power_restore(sw_world.folder.path, subset, is_torn, &chance);
    begin_life(&unflushed);
    for (unsigned i = 0; i < N_NAMES; i++)
        ck_name(i, n_of_batch);
    for (unsigned batch = 1; batch <= n_batches; batch++)
        ck_assert(n_of_batch[batch] == 0 || n_of_batch[batch] == n_in_batch(batch));
    while (life.engine->keeper.n_changes)
        turn();
    sw_engine_check(life.engine);
    sw_life_end(&life, session);
    sw_nvme_folder_free(&sw_world.folder);
    n_replays++;
}

static void forget_history(const struct sw_nvme_folder *recorded) {
    sw_power_off();
    sw_nvme_folder_free(recorded);
    sw_world.folder = sw_nvme_folder_new();
}

static void run_history(bool has_long_files) {
    record_history(has_long_files);
    const struct sw_nvme_folder recorded = sw_world.folder;
    const unsigned n = sw_power_n_lost();
    if (n <= ALL_SUBSETS)
        for (uint64_t subset = 0; subset < UINT64_C(1) << n; subset++)
            replay(subset, false);
    for (unsigned i = 0; i < N_TORN; i++)
        replay(n > ALL_SUBSETS && i % 2 ? sw_random(&chance) : 0, n <= ALL_SUBSETS || i % 2 == 0);
    forget_history(&recorded);
}

/* The cut comes after each call of a rewrite in turn: nothing that was not flushed is kept, all of it, some of it. */
static void cut_each_call_of_a_rewrite(void) {
    bool is_cut = true;
    for (unsigned n_calls = 1; is_cut; n_calls += SW_TEST_EVERY) {
        is_cut = record_rewrite(n_calls);
        const struct sw_nvme_folder recorded = sw_world.folder;
        replay(0, false);
        replay(UINT64_MAX, false);
        replay(0, true);
        forget_history(&recorded);
        ck_assert(is_cut || n_calls > 5);
    }
}

START_TEST(reported_regions_survive_a_power_cut) {
    const char *env = getenv("SW_POWER_HISTORIES"), *seed = getenv("SW_POWER_SEED");
    const unsigned n = env ? (unsigned)atoi(env) : 12 / SW_TEST_EVERY + 1;
    sw_world.method = SW_TIER_NVME_THREADS;
    sw_world.unwanted = true;
    for (unsigned i = 0; i < n; i++) {
        chance = (seed ? strtoull(seed, NULL, 10) : 1) + i;
        run_history(i % 4 == 3);
    }
    cut_each_call_of_a_rewrite();
    ck_assert_uint_gt(n_reported, n);
    (void)fprintf(stderr, "histories=%u replays=%u reported_regions=%u\n", n, n_replays, n_reported);
    if (has_template)
        sw_nvme_folder_free(&template);
}
END_TEST

int main(void) {
    if (chdir("/dev/shm") != 0) /* flushes are recorded, not made: memory does */
        (void)fprintf(stderr, "no /dev/shm: the test is slower\n");
    Suite *suite = suite_create("power_cut");
    TCase *tcase = tcase_create("power_cut");
    tcase_add_checked_fixture(tcase, sw_world_setup, sw_world_teardown);
    tcase_add_test(tcase, reported_regions_survive_a_power_cut);
    tcase_set_timeout(tcase, 7200);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
