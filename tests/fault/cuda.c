/* The CUDA device on a fake GPU (tests/lib/fake_cuda). Each of its calls into the runtime, the driver and the codec's
 * kernels fails in turn, while it opens, and while an engine on it maps, spills, restores, packs and unpacks. An error
 * that the GPU survives has a name, costs one operation, and leaves nothing behind. One that kills the context is
 * reported as such, and parked regions are whole.
 *
 * Lines that begin with "row" are rows of ../FAULTS.md. */
#include "base/alloc.h"
#include "tests/lib/content.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include "tests/lib/fake_cuda/fixture.h"
#include "tests/lib/run.h"
#include "tests/lib/transfer.h"

#include <check.h>
#include <stdio.h>
#include <string.h>

/* The runtime's numbers; its header is not installed everywhere. */
enum { OUT_OF_MEMORY = 2, INVALID_VALUE = 1, LAUNCH_FAILURE = 719 };

/* Chunks of 64 KiB; whole pages, as VMM memory has, and a range at an odd place in them. */
enum { MEMORY_BYTES = 5 * SW_FAKE_PAGE_BYTES, OFFSET = 77, REGION_BYTES = 250001, PIECES = 5, PIECE_BYTES = 9001 };

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__) /* slower: the first calls have to do */
enum { MAX_RUNS = 2 };
#else
enum { MAX_RUNS = 12 };
#endif

static const struct {
    const char *name;
    int error;
    enum sw_fake_way way;
} errors[] = {{"out of GPU memory", OUT_OF_MEMORY, SW_FAKE_ONCE},
              {"invalid value", INVALID_VALUE, SW_FAKE_ONCE},
              {"context dies", LAUNCH_FAILURE, SW_FAKE_DEAD},
              {"context dies by what was queued", LAUNCH_FAILURE, SW_FAKE_LATER}};
enum { N_ERRORS = sizeof errors / sizeof errors[0], N_SURVIVED = 2 };

static struct sw_fixture f;
static struct sw_memory from, to;
static uint8_t *original;

static bool is_dead(void) {
    return atomic_load(&sw_fake_cuda->dead) != 0;
}

static unsigned arm(enum sw_fake_call call, unsigned nth, int error) {
    sw_fake_arm(call, (int)nth, errors[error].error, errors[error].way);
    return nth;
}

static bool has_fired(void) {
    return atomic_load(&sw_fake_cuda->fired) > 0;
}

/* Whether this error may cause the code. A launch that runs out of memory is reported as a failed launch. */
static bool is_named(int rc, int error) {
    if (errors[error].way != SW_FAKE_ONCE)
        return rc == -SW_EGPULOST || rc == -SW_ELOST;
    return rc == -SW_EGPU || rc == -SW_EIMPORT || (rc == -SW_ENOMEM && errors[error].error == OUT_OF_MEMORY);
}

static void ck_held(const int before[SW_FAKE_THING_NR]) {
    for (int thing = 0; thing < SW_FAKE_THING_NR; thing++) {
        const int held = atomic_load(&sw_fake_cuda->held[thing]);
        const bool stays = thing == SW_FAKE_REGISTERED && is_dead(); /* until the process ends */
        if (!stays)
            ck_assert_msg(held == before[thing], "%s: %d, were %d", sw_fake_thing_name((enum sw_fake_thing)thing), held,
                          before[thing]);
    }
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->violations), 0);
}

static void hold_now(int ret[SW_FAKE_THING_NR]) {
    for (int thing = 0; thing < SW_FAKE_THING_NR; thing++)
        ret[thing] = atomic_load(&sw_fake_cuda->held[thing]);
}

/* ---- rows ---- */

struct seen {
    unsigned n_codes, times[16], n, lost_bytes;
    int codes[16];
};

static void note(struct seen *seen, int rc) {
    unsigned i = 0;
    while (i < seen->n_codes && seen->codes[i] != rc)
        i++;
    if (i == seen->n_codes)
        seen->codes[seen->n_codes++] = rc;
    ck_assert_uint_lt(i, 15);
    seen->times[i]++;
    seen->n++;
    seen->lost_bytes += rc == -SW_ELOST ? REGION_BYTES : 0; /* half packed, in the client's own memory */
}

static void print_row(const char *fault, const char *where, const struct seen *seen, const char *then) {
    if (seen->n == 0)
        return;
    printf("row | %s | %s | %u | ", fault, where, seen->n);
    for (unsigned i = 0; i < seen->n_codes; i++)
        printf("%s%s %u×", i ? ", " : "", seen->codes[i] ? sw_err_name(seen->codes[i]) : "nothing noticed",
               seen->times[i]);
    printf("; %s | %u\n", then, seen->lost_bytes);
    (void)fflush(stdout);
}

/* The interface that a call belongs to. */
enum { RUNTIME, DRIVER, KERNELS, N_SIDES };
static const char *const sides[] = {"each call of the CUDA runtime, at work", "each call of the CUDA driver, at work",
                                    "each launch of a kernel, at work"};

static unsigned side_of(enum sw_fake_call call) {
    const char *name = sw_fake_call_name(call);
    return strncmp(name, "sw_", 3) == 0 ? KERNELS : strncmp(name, "cuda", 4) == 0 ? RUNTIME : DRIVER;
}

/* ---- opening ---- */

static const struct sw_device_config small = {.scratch_bytes = 64 << 20, .n_slots = 2, .chunk_bytes = 64 << 10};

static bool is_named_at_open(int rc, int error) {
    return rc == -SW_EGPU || rc == -SW_EGPULOST || rc == -SW_ENOTSUP || rc == -SW_EDEVICE ||
           (rc == -SW_ENOMEM && errors[error].error == OUT_OF_MEMORY);
}

/* Every one of the first calls, then fewer and fewer, because most are those of the self-test, codec by codec. */
START_TEST(opening) {
    const unsigned every = SW_TEST_EVERY > 1 ? 12 : 25;
    const int nothing[SW_FAKE_THING_NR] = {0};
    struct seen seen = {0};
    const long live = sw_alloc_live();
    for (unsigned nth = 1;; nth += 1 + nth / every) {
        struct sw_device *device = NULL;
        struct sw_err err = {0};
        arm(SW_FAKE_ANY_CALL, nth, _i);
        const int rc = sw_device_cuda_open(&device, 0, &small, &err);
        const bool fired = has_fired();
        sw_fake_disarm();
        if (rc == 0)
            device->ops->close(device);
        ck_held(nothing);
        ck_assert_int_eq(sw_alloc_live(), live);
        sw_fake_revive();
        if (!fired)
            break;
        ck_assert_msg(rc == 0 || (is_named_at_open(rc, _i) && err.msg[0]), "call %u: %s", nth, sw_err_name(rc));
        note(&seen, rc);
    }
    ck_assert_uint_gt(seen.n, 50);
    print_row(errors[_i].name, "each CUDA call while a GPU is opened", &seen, "nothing is left of it");
}
END_TEST

/* ---- an engine at work ---- */

static void open_all(enum sw_mem_kind kind) {
    sw_fake_kind = kind;
    sw_fixture_open(&f, NULL);
    from = sw_memory_new(MEMORY_BYTES);
    to = sw_memory_new(MEMORY_BYTES);
    original = sw_alloc(MEMORY_BYTES);
    ck_assert_ptr_nonnull(original);
    /* A chunk and some pieces do not shrink: they are encoded anew, as raw ones. */
    sw_content_fill(original, MEMORY_BYTES, SW_CONTENT_TEXT, 42);
    sw_content_fill(original + (size_t)2 * PIECE_BYTES, PIECE_BYTES, SW_CONTENT_RANDOM, 43);
    sw_content_fill(original + 128000, 80000, SW_CONTENT_RANDOM, 44);
    memcpy(from.data, original, MEMORY_BYTES);
}

static void close_all(void) {
    const int nothing[SW_FAKE_THING_NR] = {0};
    sw_fake_disarm();
    sw_memory_free(&from);
    sw_memory_free(&to);
    sw_free(original);
    sw_fixture_close(&f);
    ck_held(nothing);
    sw_fake_revive();
}

static void ck_from(void) {
    ck_assert_int_eq(memcmp(from.data, original, MEMORY_BYTES), 0);
}

static void ck_to(uint64_t bytes) {
    ck_assert_int_eq(memcmp(to.data + OFFSET, original + OFFSET, bytes), 0);
    memset(to.data, 0xEE, MEMORY_BYTES);
}

/* A failed operation must succeed when nothing fails; on a dead GPU the region stays where it is. */
static void bring_back(struct sw_region_id id) {
    struct sw_test_op op;
    sw_fake_disarm();
    ck_assert_int_eq(sw_fixture_state(&f, id), SW_REGION_OUT);
    if (is_dead()) {
        ck_assert_int_eq(sw_fixture_restore(&f, id, &to, OFFSET, REGION_BYTES, false, &op), -SW_EGPULOST);
        ck_assert_int_eq(sw_fixture_state(&f, id), SW_REGION_OUT);
        ck_assert_int_eq(sw_engine_drop(f.owner, id, NULL), 0);
        return;
    }
    ck_assert_int_eq(sw_fixture_restore(&f, id, &to, OFFSET, REGION_BYTES, false, &op), 0);
    ck_to(REGION_BYTES);
}

static int round_trip(void) {
    struct sw_test_op op, back;
    int rc = sw_fixture_spill(&f, &from, OFFSET, REGION_BYTES, &op);
    ck_from();
    if (rc < 0) {
        ck_assert_int_eq(sw_fixture_state(&f, op.id), -SW_ESTALE);
        return rc;
    }
    rc = sw_fixture_restore(&f, op.id, &to, OFFSET, REGION_BYTES, true, &back);
    if (rc == 0)
        ck_to(REGION_BYTES);
    bring_back(op.id);
    return rc;
}

static int in_place(void) {
    struct sw_test_op op, back;
    int rc = sw_fixture_pack(&f, &from, OFFSET, REGION_BYTES, &op);
    if (rc < 0) {
        if (!is_dead()) /* regions that a dead GPU has half packed are lost, and reported as lost */
            ck_from();
        return rc;
    }
    rc = sw_fixture_unpack(&f, op.id, &from, OFFSET, REGION_BYTES, &back);
    sw_fake_disarm();
    if (rc < 0 && is_dead()) {
        ck_assert_int_eq(sw_engine_drop(f.owner, op.id, NULL), 0);
        return rc;
    }
    if (rc < 0) /* goes on from where it failed */
        ck_assert_int_eq(sw_fixture_unpack(&f, op.id, &from, OFFSET, REGION_BYTES, &back), 0);
    ck_from();
    return rc;
}

/* Regions of a registered memory that are spilled together: short ones form a group, one has numbers. */
struct together {
    struct sw_mem *mem;
    struct sw_range ranges[PIECES];
    struct sw_test_op ops[PIECES], back[PIECES];
};

static void lay_out(struct together *t) {
    for (unsigned i = 0; i < PIECES; i++)
        t->ranges[i] =
            (struct sw_range){.mem = t->mem, .offset = OFFSET + (uint64_t)i * PIECE_BYTES, .bytes = PIECE_BYTES};
    t->ranges[2].type = SW_VALUE_I32;
    t->ranges[2].bytes = (uint64_t)PIECE_BYTES / 4 * 4;
}

static int await_all(struct sw_test_op *ops) {
    int rc = 0;
    for (unsigned i = 0; i < PIECES; i++) {
        sw_fixture_until(&f, &ops[i].done);
        rc = rc ? rc : ops[i].outcome.err.code;
    }
    return rc;
}

static int restore_all(struct together *t, struct sw_mem *mem) {
    sw_engine_hold(f.engine, true);
    for (unsigned i = 0; i < PIECES; i++) {
        struct sw_range range = t->ranges[i];
        range.mem = mem;
        t->back[i] = (struct sw_test_op){.done = t->ops[i].outcome.err.code != 0};
        if (!t->back[i].done)
            ck_assert_int_eq(sw_engine_restore(f.owner, t->ops[i].id, SW_TRANSFER(&range, 1, .keep = true),
                                               sw_test_op_done, &t->back[i], NULL),
                             0);
    }
    sw_engine_release(f.engine);
    return await_all(t->back);
}

static int pieces(void) {
    struct together t = {.mem = sw_fixture_mem(&f, f.owner, &from, false)};
    struct sw_mem *mem = sw_fixture_mem(&f, f.owner, &to, false);
    lay_out(&t);
    sw_engine_hold(f.engine, true);
    for (unsigned i = 0; i < PIECES; i++)
        ck_assert_int_eq(
            sw_engine_spill(f.owner, SW_TRANSFER(&t.ranges[i], 1), sw_test_op_done, &t.ops[i], &t.ops[i].id, NULL), 0);
    sw_engine_release(f.engine);
    int rc = await_all(t.ops);
    ck_from();
    const int back = restore_all(&t, mem);
    rc = rc ? rc : back;
    sw_fake_disarm();
    ck_assert(is_dead() || restore_all(&t, mem) == 0);
    for (unsigned i = 0; i < PIECES; i++) {
        if (t.ops[i].outcome.err.code)
            continue;
        if (!is_dead())
            ck_assert_int_eq(memcmp(to.data + t.ranges[i].offset, original + t.ranges[i].offset, t.ranges[i].bytes), 0);
        ck_assert_int_eq(sw_fixture_state(&f, t.ops[i].id), SW_REGION_OUT);
        ck_assert_int_eq(sw_engine_drop(f.owner, t.ops[i].id, NULL), 0);
    }
    sw_fixture_close_mem(&f, t.mem);
    sw_fixture_close_mem(&f, mem);
    return rc;
}

static int (*const works[])(void) = {round_trip, in_place, pieces};
static const char *const work_names[] = {"spill and restore", "pack and unpack", "several at once"};
static const enum sw_mem_kind kinds[] = {SW_MEM_CUDA_IPC, SW_MEM_CUDA_VMM, SW_MEM_CUDA_POOL};
enum { N_WORKS = 3, N_KINDS = 3 };

static void ck_idle(void) {
    struct sw_engine_stats stats;
    sw_engine_check(f.engine);
    sw_engine_stats(f.engine, &stats);
    ck_assert_uint_eq(stats.n_mapped + stats.n_ops + stats.n_mems + stats.n_regions, 0);
    ck_assert_uint_eq(stats.tiers[0].used_bytes, 0);
}

/* How often each call is made by each work, when all goes well; the second time, for the first one makes the arena. */
static unsigned made[N_WORKS][SW_FAKE_CALL_NR];

static void count_calls(void) {
    for (int round = 0; round < 2; round++)
        for (int work = 0; work < N_WORKS; work++) {
            for (int call = 0; call < SW_FAKE_CALL_NR; call++)
                atomic_store(&sw_fake_cuda->calls[call], 0);
            ck_assert_int_eq(works[work](), 0);
            for (int call = 0; call < SW_FAKE_CALL_NR; call++)
                made[work][call] = (unsigned)atomic_load(&sw_fake_cuda->calls[call]);
        }
}

/* One engine for all: it goes on. */
static void survived(enum sw_fake_call call, int error, int work, struct seen *seen) {
    int before[SW_FAKE_THING_NR];
    hold_now(before);
    for (unsigned nth = 1; nth <= made[work][call] && nth <= MAX_RUNS; nth++) {
        arm(call, nth, error);
        const int rc = works[work]();
        const bool fired = has_fired();
        sw_fake_disarm();
        ck_assert_msg(rc == 0 || is_named(rc, error), "%s: %s, call %u: %s", work_names[work], sw_fake_call_name(call),
                      nth, sw_err_name(rc));
        ck_assert(!is_dead() && !sw_engine_device_lost(f.engine));
        ck_idle();
        ck_held(before);
        if (fired) /* the number of polls of a stream varies */
            note(seen, rc);
    }
}

START_TEST(each_call_fails_once) {
    struct seen seen[N_SIDES] = {0};
    for (int kind = 0; kind < N_KINDS; kind++) {
        open_all(kinds[kind]);
        count_calls();
        for (int call = 0; call < SW_FAKE_CALL_NR; call++)
            for (int work = 0; work < N_WORKS; work++)
                survived((enum sw_fake_call)call, _i, work, &seen[side_of((enum sw_fake_call)call)]);
        for (int work = 0; work < N_WORKS; work++)
            ck_assert_int_eq(works[work](), 0);
        close_all();
    }
    for (int side = 0; side < N_SIDES; side++) {
        ck_assert_uint_gt(seen[side].n, 10);
        print_row(errors[_i].name, sides[side], &seen[side], "memory or stored copy whole, service up");
    }
}
END_TEST

/* A new engine for each call, because the device is lost. Regions that were parked before stay. */
static void killed(enum sw_mem_kind kind, enum sw_fake_call call, unsigned nth, int error, int work,
                   struct seen *seen) {
    struct sw_test_op kept, op;
    open_all(kind);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, 0, MEMORY_BYTES, &kept), 0);
    arm(call, nth, error);
    int rc = works[work]();
    const bool fired = has_fired(), dead = is_dead();
    sw_fake_disarm();
    ck_assert_msg(!fired || rc == 0 || is_named(rc, error), "%s: %s, call %u: %s", work_names[work],
                  sw_fake_call_name(call), nth, sw_err_name(rc));
    if (dead) {
        if (rc == 0) /* the call released something, or nobody waited for it: the next operation gets the error */
            rc = sw_fixture_spill(&f, &to, OFFSET, REGION_BYTES, &op);
        ck_assert_int_lt(rc, 0);
        ck_assert(sw_engine_device_lost(f.engine));
        note(seen, rc);
    }
    ck_assert_int_eq(sw_fixture_state(&f, kept.id), SW_REGION_OUT);
    sw_engine_check(f.engine);
    close_all();
}

/* The 1st, 2nd, 4th and 8th of n calls are tried. Each needs an engine, which opens slowly under a sanitizer: there
 * only the 1st or the 2nd is tried, by turns. */
static unsigned first_killed(unsigned n, int turn) {
    return SW_TEST_EVERY > 1 && n > 1 ? 1 + (unsigned)turn % 2 : 1;
}

START_TEST(each_call_kills_the_context) {
    const int error = N_SURVIVED + _i;
    struct seen seen[N_SIDES] = {0};
    for (int kind = 0; kind < N_KINDS; kind++) {
        open_all(kinds[kind]);
        count_calls();
        close_all();
        for (int call = 0; call < SW_FAKE_CALL_NR; call++)
            for (int work = 0; work < N_WORKS; work++)
                for (unsigned nth = first_killed(made[work][call], kind + call + work);
                     nth <= made[work][call] && nth <= MAX_RUNS; nth += SW_TEST_EVERY > 1 ? MAX_RUNS : nth)
                    killed(kinds[kind], (enum sw_fake_call)call, nth, error, work,
                           &seen[side_of((enum sw_fake_call)call)]);
    }
    for (int side = 0; side < N_SIDES; side++) {
        ck_assert_uint_gt(seen[side].n, 10);
        print_row(errors[error].name, sides[side], &seen[side],
                  "exit, for a new process; what was parked is whole, what was half packed is said to be lost");
    }
}
END_TEST

/* Errors after which every call of the process fails, by the runtime's numbers. */
START_TEST(each_error_of_a_dead_context_is_recognized) {
    static const int ends[] = {LAUNCH_FAILURE, 700, 709, 721, 810, 911, 999};
    struct sw_test_op op;
    open_all(kinds[0]);
    sw_fake_arm(SW_FAKE_cudaStreamQuery, 2, ends[_i], SW_FAKE_DEAD);
    ck_assert_int_eq(sw_fixture_spill(&f, &from, OFFSET, REGION_BYTES, &op), -SW_EGPULOST);
    ck_assert(sw_engine_device_lost(f.engine));
    close_all();
}
END_TEST

START_TEST(a_context_that_dies_while_a_pack_is_undone_is_lost) {
    struct sw_test_op op;
    open_all(kinds[0]);
    sw_device_faulty_arm(f.device, "place", 3, -SW_EGPU, SW_FAULT_AT_ONCE);
    sw_fake_arm(SW_FAKE_sw_gpu_decode_async, 1, LAUNCH_FAILURE, SW_FAKE_DEAD);
    ck_assert_int_eq(sw_fixture_pack(&f, &from, OFFSET, REGION_BYTES, &op), -SW_ELOST);
    ck_assert(is_dead() && sw_engine_device_lost(f.engine));
    close_all();
}
END_TEST

int main(void) {
    Suite *suite = suite_create("CUDA faults");
    TCase *tcase = tcase_create("CUDA faults");
    sw_test_slow(tcase, 120);
    tcase_add_loop_test(tcase, opening, 0, N_ERRORS);
    tcase_add_loop_test(tcase, each_call_fails_once, 0, N_SURVIVED);
    tcase_add_loop_test(tcase, each_call_kills_the_context, 0, N_ERRORS - N_SURVIVED);
    tcase_add_loop_test(tcase, each_error_of_a_dead_context_is_recognized, 0, 7);
    tcase_add_test(tcase, a_context_that_dies_while_a_pack_is_undone_is_lost);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
