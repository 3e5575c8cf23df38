/* A process is killed at each of its stores to the catalogue while it commits a batch of builds, and its successor at
 * each of its own stores during recovery. Every later process finds the whole batch or none of it, and the whole batch
 * if its client got the reply. Then each of the batch's records fails in turn. x86-64 only. */
#include "base/assert.h"
#include "base/log.h"
#include "spill/build.h"
#include "spill/engine_state.h"
#include "tests/lib/lives.h"
#include "tests/lib/run.h"
#include "tests/lib/store_trap.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#if !SW_STORE_TRAP
int main(void) {
    (void)fprintf(stderr, "left out: it needs the trap flag of x86-64\n");
    return 77;
}
#else

enum { CHUNK = 64 << 10, N = 3, REQUEST = 77 };

static struct shared {
    unsigned n_points, kill_at;  /* the latter 0: not at all */
    unsigned n_records, fail_at; /* the same */
    unsigned n_told;             /* builds whose commit has called back with success */
    unsigned n_failed;           /* with an error */
    struct sw_region_id alone;   /* a region that was there before */
} * shared;
static bool is_counting;
static struct sw_life life;

/* The builds: one chunk; two buffers; a durable one of several chunks. */
static const struct sw_build_buffer_config buffers[N][2] = {
    {{1000, CHUNK, SW_VALUE_NONE}, {0}},
    {{2 * CHUNK, CHUNK, SW_VALUE_NONE}, {CHUNK, 0, SW_VALUE_U8}},
    {{4 * CHUNK + 3, CHUNK, SW_VALUE_NONE}, {0}}};
static const unsigned n_buffers[N] = {1, 2, 1};

static void point(void) {
    if (is_counting && ++shared->n_points == shared->kill_at)
        (void)kill(getpid(), SIGKILL);
}

static bool fails(void) {
    return is_counting && ++shared->n_records == shared->fail_at;
}

int __real_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_region(struct sw_catalogue *catalogue, const struct sw_catalogue_region *region,
                                   uint32_t replaced, uint32_t *ret, struct sw_err *err) {
    if (fails())
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "catalogue is full: so the test wants it");
    return __real_sw_catalogue_put_region(catalogue, region, replaced, ret, err);
}

int __real_sw_catalogue_put_batch(struct sw_catalogue *catalogue, uint64_t batch, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_batch(struct sw_catalogue *catalogue, uint64_t batch, uint32_t *ret, struct sw_err *err);
int __wrap_sw_catalogue_put_batch(struct sw_catalogue *catalogue, uint64_t batch, uint32_t *ret, struct sw_err *err) {
    if (fails())
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "catalogue is full: so the test wants it");
    return __real_sw_catalogue_put_batch(catalogue, batch, ret, err);
}

/* ---- a process that commits ---- */

static void on_end(const struct sw_outcome *outcome, void *arg) {
    *(bool *)arg = true;
    if (outcome->err.code)
        shared->n_failed++;
    else
        shared->n_told++;
}

static struct sw_build *build(struct sw_owner *owner, struct sw_mem *mem, unsigned i) {
    const struct sw_build_config config = {
        .buffers = buffers[i], .n_buffers = n_buffers[i], .name = i == 2 ? "a durable one" : NULL};
    struct sw_build *build = NULL;
    SW_ASSERT(sw_build_begin(owner, &config, &build, NULL) == 0);
    for (unsigned b = 0; b < n_buffers[i]; b++) {
        const struct sw_range range = {.mem = mem, .offset = b * CHUNK, .bytes = buffers[i][b].raw_bytes, .buffer = b};
        struct sw_test_op op = {0};
        SW_ASSERT(sw_build_append(build, &range, 1, sw_test_op_done, &op, NULL) == 0);
        sw_life_until(&life, &op.done);
        SW_ASSERT(op.outcome.err.code == 0);
    }
    return build;
}

static void commit(struct sw_build *const builds[N]) {
    bool done[N] = {false};
    struct sw_build_end ends[N];
    for (unsigned i = 0; i < N; i++)
        ends[i] = (struct sw_build_end){builds[i], i, &done[i]};
    if (!shared->fail_at)
        sw_store_trap_set(point);
    is_counting = true;
    SW_ASSERT(sw_build_commit_batch(ends, N, REQUEST, on_end, NULL) == 0);
    for (unsigned i = 0; i < N; i++)
        sw_life_until(&life, &done[i]);
    is_counting = false;
}

__attribute__((noreturn)) static void committing(void) {
    struct sw_mem_desc desc = sw_memory_desc(&sw_world.memory);
    struct sw_build *builds[N];
    struct sw_mem *mem;
    (void)sw_life_next(&life, 0);
    struct sw_owner *owner = sw_life_named_owner(&life, 1000, sw_life_token);
    sw_world_fill(sw_world.memory.data, 0);
    SW_ASSERT(sw_life_run(&life, owner, 0, false, false) == 0);
    shared->alone = sw_world.ids[0];
    SW_ASSERT(sw_mem_open(owner, &desc, false, &mem, NULL) == 0);
    for (unsigned i = 0; i < N; i++)
        builds[i] = build(owner, mem, i);
    commit(builds);
    (void)kill(getpid(), SIGKILL);
    abort();
}

/* ---- those that come after ---- */

__attribute__((noreturn)) static void recovering(void) {
    sw_life_open(&life, 0);
    sw_store_trap_set(point);
    is_counting = true;
    SW_ASSERT(sw_engine_recover(life.engine, &life.found, NULL) == 0);
    (void)kill(getpid(), SIGKILL);
    abort();
}

static void run(void (*main)(void), unsigned kill_at, unsigned fail_at) {
    int status;
    const struct sw_region_id alone = shared->alone;
    const unsigned n_told = shared->n_told;
    *shared = (struct shared){.kill_at = kill_at, .fail_at = fail_at, .alone = alone, .n_told = n_told};
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        main();
    }
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", (unsigned)status);
}

static void restore_built(struct sw_owner *owner, struct sw_region_id id, unsigned i) {
    struct sw_memory memory = sw_memory_new(8 * CHUNK);
    struct sw_mem_desc desc = sw_memory_desc(&memory);
    struct sw_test_op op = {0};
    struct sw_range ranges[2];
    struct sw_mem *mem;
    ck_assert_int_eq(sw_mem_open(owner, &desc, false, &mem, NULL), 0);
    for (unsigned b = 0; b < 2; b++)
        ranges[b] = (struct sw_range){.mem = mem, .offset = b * 4 * CHUNK + b * 4096, .bytes = 3 * CHUNK};
    ranges[0].bytes = 4 * CHUNK + 4096;
    ck_assert_int_eq(
        sw_engine_restore(owner, id, SW_TRANSFER(ranges, n_buffers[i], .keep = true), sw_test_op_done, &op, NULL), 0);
    sw_life_until(&life, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    sw_world_fill(sw_world.memory.data, 0);
    for (unsigned b = 0; b < n_buffers[i]; b++)
        ck_assert(memcmp(memory.data + ranges[b].offset, sw_world.memory.data + b * CHUNK, buffers[i][b].raw_bytes) ==
                  0);
    sw_mem_close(mem, NULL, NULL);
    sw_memory_free(&memory);
}

/* Returns how many of the batch are there. */
static unsigned check(unsigned kill_at, bool ends) {
    struct sw_region_id made[N];
    unsigned n = 0;
    struct sw_tier_stats stats;
    (void)sw_life_next(&life, 0);
    ck_assert_uint_eq(life.found.n_damaged + life.found.n_lost, 0);
    sw_engine_check(life.engine);
    struct sw_owner *owner = sw_owner_claim(life.engine, 1000, sw_life_token);
    ck_assert_ptr_nonnull(owner);
    sw_engine_find_by_request(owner, REQUEST, made, N);
    for (unsigned i = 0; i < N; i++)
        n += made[i].gen != 0;
    ck_assert_msg(n == 0 || n == N, "killed at %u: %u of %d are there", kill_at, n, N);
    ck_assert_msg(n == N || !shared->n_told, "killed at %u: the client was told", kill_at);
    ck_assert_uint_eq(life.found.n_regions, 1 + n);
    for (unsigned i = 0; i < n; i++)
        restore_built(owner, made[i], i);
    sw_world.ids[0] = shared->alone;
    sw_life_restore_and_compare(&life, owner, 0, true);
    if (ends) {
        for (unsigned i = 0; i < n; i++)
            ck_assert_int_eq(sw_engine_drop(owner, made[i], NULL), 0);
        sw_life_close_owner(&life, owner, false);
        sw_life_close_owner(&life, life.tenant_owners[0], false);
        life.host->ops->stats(life.host, &stats);
        ck_assert_uint_eq(stats.used_bytes, 0);
        sw_life_close(&life, NULL, false);
    } else {
        sw_life_end(&life, owner);
    }
    return n;
}

static void begin(void) {
    sw_life_open(&life, 0); /* makes catalogue and memory */
    sw_life_await_arena(&life);
    ck_assert_int_eq(sw_engine_recover(life.engine, &life.found, NULL), 0);
    sw_life_close(&life, NULL, false);
}

START_TEST(killed_at_each_store_of_a_commit) {
    unsigned n_whole = 0, n_none = 0;
    begin();
    for (unsigned at = 1;; at++) {
        shared->n_told = 0;
        run(committing, at, 0);
        const bool was_killed = shared->n_points >= at;
        const unsigned n = check(at, false);
        ck_assert_uint_eq(check(at, true), n); /* and later processes find the same */
        n_whole += n > 0;
        n_none += n == 0;
        ck_assert(was_killed || shared->n_told == N);
        if (!was_killed)
            break;
    }
    ck_assert_uint_gt(n_whole, N + 1);
    ck_assert_uint_gt(n_none, N);
}
END_TEST

/* It decides about the batch first; then it lists all free cells, which are very many. */
START_TEST(killed_again_during_recovery) {
    bool was_killed = true;
    begin();
    for (unsigned at = 1; was_killed; at += 4)
        for (unsigned second = 1; second < 12; second += 2) {
            shared->n_told = 0;
            run(committing, at, 0);
            was_killed = shared->n_points >= at;
            run(recovering, second, 0);
            ck_assert_uint_ge(shared->n_points, second);
            (void)check(at, true);
        }
}
END_TEST

/* Each record fails: the client gets the error for all builds, and nothing stays. */
START_TEST(each_record_of_a_batch_fails) {
    begin();
    for (unsigned at = 1; at <= N + 2; at++) {
        shared->n_told = 0;
        run(committing, 0, at);
        ck_assert_uint_eq(shared->n_failed, at <= N + 1 ? N : 0);
        ck_assert_uint_eq(check(at, true), at <= N + 1 ? 0 : N);
    }
}
END_TEST

static void setup(void) {
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ck_assert(shared != MAP_FAILED);
    memset(shared, 0, sizeof *shared);
    sw_world_setup();
}

static void teardown(void) {
    sw_world_teardown();
    (void)munmap(shared, sizeof *shared);
}

int main(void) {
    sw_log_set_level(SW_LOG_ERROR);
    Suite *suite = suite_create("batch_kill");
    TCase *tcase = tcase_create("batch_kill");
    sw_test_slow(tcase, 100);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, killed_at_each_store_of_a_commit);
    tcase_add_test(tcase, killed_again_during_recovery);
    tcase_add_test(tcase, each_record_of_a_batch_fails);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
#endif
