/* Builds of a process that was killed: the next process frees the uncommitted ones, and finds the committed ones. */
#include "spill/build.h"
#include "spill/engine_state.h"
#include "tests/lib/appends.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sw_life life;

static struct sw_build *life_begin(struct sw_owner *owner, unsigned n_appends, const char *name, bool is_committed) {
    static const struct sw_build_buffer_config two[2] = {{SW_WORLD_REGION_BYTES, CHUNK, SW_VALUE_NONE},
                                                         {SW_WORLD_REGION_BYTES, CHUNK, SW_VALUE_NONE}};
    const struct sw_build_config durable = {.buffers = two, .n_buffers = 2, .name = name};
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_build *build = NULL;
    struct sw_mem *mem;
    sw_world_fill(sw_world.memory.data, 1);
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    ck_assert_int_eq(sw_build_begin(owner, &durable, &build, NULL), 0);
    for (unsigned i = 0; i < n_appends; i++) {
        const uint64_t at = i / 2 * UINT64_C(2) * CHUNK, left = SW_WORLD_REGION_BYTES - at;
        const struct sw_range range = {
            .mem = mem, .offset = at, .bytes = left < 2 * CHUNK ? left : 2 * CHUNK, .buffer = i % 2, .at = at};
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_append(build, &range, 1, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, 0);
    }
    sw_mem_close(mem, NULL, NULL);
    if (is_committed) {
        struct sw_test_op op = {0};
        ck_assert_int_eq(sw_build_commit(build, 5, 0, sw_test_op_done, &op, NULL), 0);
        sw_life_until(&life, &op.done);
        ck_assert_int_eq(op.outcome.err.code, 0);
        sw_world.ids[0] = op.outcome.region;
    }
    return build;
}

static struct sw_tier_stats stats_of(struct sw_tier *tier) {
    struct sw_tier_stats stats = {0};
    if (tier)
        tier->ops->stats(tier, &stats);
    return stats;
}

/* Makes the state that outlives the process, as the service manager keeps it. */
static void make_world(uint64_t disk_bytes) {
    sw_world.host_bytes = 2 << 20; /* of which one half is for frames on their way to the disk */
    sw_life_open(&life, disk_bytes);
    sw_life_await_arena(&life);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_life_close(&life, NULL, false);
}

/* Left in order, or killed with all or some chunks stored. */
START_TEST(the_next_process_frees_uncommitted_builds) {
    const uint64_t disk_bytes = sw_life_disks[_i % 2];
    const unsigned n_appends = disk_bytes ? 9 : 5;
    int status;
    make_world(disk_bytes);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        sw_life_open(&life, disk_bytes);
        struct sw_owner *owner = sw_life_new_owner(&life);
        (void)life_begin(owner, n_appends, NULL, false);
        ck_assert_uint_gt(stats_of(life.host).used_bytes, 0);
        ck_assert(!disk_bytes || stats_of(life.nvme).used_bytes > 0);
        if (_i < 2)
            (void)kill(getpid(), SIGKILL);
        sw_life_close(&life, owner, true);
        _exit(0);
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert(_i < 2 ? WIFSIGNALED(status) : WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sw_life_open(&life, disk_bytes);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    ck_assert(life.found.n_sessions == 1 && life.found.n_regions == 0 && life.found.n_damaged == 0);
    ck_assert(_i < 2 && disk_bytes ? life.found.n_released > 0 : life.found.n_released == 0);
    ck_assert_uint_eq(stats_of(life.host).used_bytes + stats_of(life.nvme).used_bytes, 0);
    sw_engine_check(life.engine);
    sw_life_close(&life, NULL, false);
}
END_TEST

static void restore_two(struct sw_owner *owner, struct sw_region_id id) {
    struct sw_memory two = sw_memory_new(2 * SW_WORLD_REGION_BYTES);
    struct sw_mem_desc desc = sw_memory_desc(&two);
    struct sw_test_op op = {0};
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    const struct sw_range ranges[2] = {{.mem = mem, .bytes = SW_WORLD_REGION_BYTES},
                                       {.mem = mem, .offset = SW_WORLD_REGION_BYTES, .bytes = SW_WORLD_REGION_BYTES}};
    ck_assert_int_eq(sw_engine_restore(owner, id, SW_TRANSFER(ranges, 2), sw_test_op_done, &op, NULL), 0);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_world_fill(sw_world.memory.data, 1);
    for (unsigned i = 0; i < 2; i++)
        ck_assert(memcmp(two.data + i * SW_WORLD_REGION_BYTES, sw_world.memory.data, SW_WORLD_REGION_BYTES) == 0);
    sw_mem_close(mem, NULL, NULL);
    sw_memory_free(&two);
}

/* Frames that went to the disk append by append are found there as the region's. */
START_TEST(the_next_process_finds_committed_builds) {
    struct sw_region_id made;
    make_world(sw_life_disks[1]);
    (void)sw_life_next(&life, sw_life_disks[1]);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    (void)life_begin(owner, 10, "a durable one", true);
    struct sw_build *second = NULL;
    const struct sw_build_config same = {.buffers = buffers, .n_buffers = N, .name = "a durable one"},
                                 other = {.buffers = buffers, .n_buffers = N, .name = "another"};
    ck_assert_int_eq(sw_build_begin(owner, &same, &second, NULL), -SW_EEXIST);
    ck_assert_int_eq(sw_build_begin(owner, &other, &second, NULL), 0);
    ck_assert_int_eq(sw_build_begin(owner, &other, &second, NULL), -SW_EEXIST); /* the name is the open build's */
    ck_assert_int_eq(sw_engine_adopt(owner, "another", &made, NULL), -SW_EBUSY);
    ck_assert_uint_gt(stats_of(life.nvme).used_bytes, 0);
    sw_life_end(&life, owner);

    (void)sw_life_next(&life, sw_life_disks[1]);
    ck_assert(life.found.n_regions == 1 && life.found.n_lost == 0 && life.found.n_released == 0);
    owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    sw_engine_find_by_request(owner, 5, &made, 1);
    ck_assert(made.slot == sw_world.ids[0].slot && made.gen == sw_world.ids[0].gen);
    restore_two(owner, made);
    ck_assert_int_eq(sw_engine_drop(owner, made, NULL), 0);
    while (life.engine->balance.n_moves) /* one may have the frames */
        (void)uv_run(&life.loop, UV_RUN_ONCE);
    ck_assert_uint_eq(stats_of(life.host).used_bytes + stats_of(life.nvme).used_bytes, 0);
    sw_life_end(&life, owner);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("builds across lives");
    TCase *lives = tcase_create("builds across lives");
    tcase_add_checked_fixture(lives, sw_world_setup, sw_world_teardown);
    tcase_add_loop_test(lives, the_next_process_frees_uncommitted_builds, 0, 4);
    tcase_add_test(lives, the_next_process_finds_committed_builds);
    suite_add_tcase(suite, lives);
    return sw_test_run(suite, CK_FORK);
}
