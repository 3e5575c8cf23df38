/* How runs of the mover fail, and what becomes of the others. On the host device. */
#include "spill/mover/mover.h"
#include "spill/store/frames.h"
#include "spill/tier/host/tier_host.h"
#include "spill/worker/transfer.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { BYTES = 100000, MOST = 3 };

static struct {
    struct sw_device *device;
    struct sw_device_ops ops, real;
    struct sw_tier *tier;
    struct sw_placement place;
    struct sw_tier_sink sink;
    struct sw_mover *mover;
    struct sw_memory memory;
    struct sw_run_memory mems[MOST];
    struct sw_one_run runs[MOST];
    unsigned n_finished, n_maps;
    bool was_once; /* the memory mapped last */
    int map_code;
} rig;

static int map(struct sw_device *device, const struct sw_mem_desc *desc, struct sw_mapping **ret, struct sw_err *err) {
    rig.n_maps++;
    rig.was_once = desc->once;
    return rig.map_code ? sw_err_set(err, rig.map_code, SW_SCOPE_DEVICE, "it is dead")
                        : rig.real.map(device, desc, ret, err);
}

static int canary(struct sw_device *device, struct sw_err *err) {
    (void)device;
    return sw_err_set(err, -SW_EGPULOST, SW_SCOPE_DEVICE, "it is dead");
}

static void on_finished(struct sw_run *run, void *arg) {
    (void)run, (void)arg;
    rig.n_finished++;
}

static void on_event(void *arg) {
    (void)arg;
}

static void setup(void) {
    const struct sw_device_config config = {.scratch_bytes = 16 << 20, .n_slots = 1, .chunk_bytes = 128 << 10};
    const struct sw_mover_host host = {.finished = on_finished, .progress = on_event};
    memset(&rig, 0, sizeof rig);
    ck_assert_int_eq(sw_fixture_open_device(&rig.device, &config, NULL), 0);
    rig.ops = rig.real = *rig.device->ops;
    rig.ops.map = map;
    rig.device->ops = &rig.ops;
    const struct sw_tier_host_config memory = {
        .capacity_bytes = 16 << 20, .slab_bytes = 2 << 20, .devices = &rig.device, .n_devices = 1};
    ck_assert_int_eq(sw_tier_host_open(&rig.tier, &memory, NULL), 0);
    sw_placement_init(&rig.place, &(struct sw_tiers){.at = {rig.tier}, .n = 1}, 0);
    sw_tier_sink_init(&rig.sink, &rig.place, on_event, NULL);
    ck_assert_int_eq(sw_mover_new(&rig.mover, rig.device, &rig.sink.sink, &host, NULL), 0);
    rig.memory = sw_memory_new(BYTES);
    for (unsigned i = 0; i < MOST; i++) {
        rig.mems[i] = (struct sw_run_memory){.desc = sw_memory_desc(&rig.memory), .once = true};
        sw_one_run_init(&rig.runs[i], SW_OP_SPILL, &rig.mems[i], BYTES, NULL);
    }
}

static void teardown(void) {
    sw_mover_free(rig.mover);
    for (unsigned i = 0; i < MOST; i++) {
        sw_mem_desc_fini(&rig.mems[i].desc);
        sw_frames_free(rig.runs[i].job.run.frames);
    }
    sw_tier_sink_fini(&rig.sink);
    sw_memory_free(&rig.memory);
    rig.tier->ops->close(rig.tier);
    rig.device->ops->close(rig.device);
}

static struct sw_run *run_of(unsigned i) {
    return &rig.runs[i].job.run;
}

static void add(unsigned i) {
    sw_mover_add(rig.mover, run_of(i));
}

static void finish(unsigned n) {
    while (rig.n_finished < n)
        (void)sw_mover_step(rig.mover, false);
}

static int code_of(unsigned i) {
    return run_of(i)->outcome.err.code;
}

START_TEST(runs_end) {
    for (unsigned i = 0; i < MOST; i++)
        add(i);
    finish(MOST);
    for (unsigned i = 0; i < MOST; i++)
        ck_assert_int_eq(code_of(i), 0);
    ck_assert_uint_eq(rig.n_maps, MOST);
    ck_assert_uint_eq(sw_mover_mapped(rig.mover), 0);
}
END_TEST

/* The mover has looked for canceled runs before it comes. */
START_TEST(a_run_may_be_canceled_before_it_comes) {
    sw_mover_cancel(rig.mover, &rig.runs[0].job.signals);
    (void)sw_mover_step(rig.mover, false);
    add(0);
    finish(1);
    ck_assert_int_eq(code_of(0), -SW_ECANCELED);
    ck_assert_uint_eq(rig.n_maps, 0);
}
END_TEST

/* Others follow from it. */
START_TEST(the_first_error_stands) {
    const struct sw_err first = {.code = -SW_ECHECKSUM, .scope = SW_SCOPE_REGION},
                        second = {.code = -SW_EIO, .scope = SW_SCOPE_REQUEST};
    add(0);
    sw_mover_fail_at(rig.mover, run_of(0), 3, 2, &first);
    sw_mover_fail_at(rig.mover, run_of(0), 5, 1, &second);
    sw_mover_fail(rig.mover, run_of(0), &second);
    finish(1);
    ck_assert_int_eq(code_of(0), -SW_ECHECKSUM);
    ck_assert_uint_eq(run_of(0)->outcome.failed.first, 3);
    ck_assert_uint_eq(run_of(0)->outcome.failed.n, 2);
}
END_TEST

/* Whatever finds out first (_i): a step, a mapping, a sign of life. No call reaches the device any more. */
START_TEST(a_dead_context_fails_runs_that_wait_and_later_ones) {
    const struct sw_err dead = {.code = -SW_EGPULOST, .scope = SW_SCOPE_DEVICE};
    struct sw_err err = {0};
    add(0);
    add(1);
    rig.map_code = -SW_EGPULOST;
    rig.ops.canary = canary;
    if (_i == 0)
        sw_mover_fail(rig.mover, run_of(0), &dead);
    else if (_i == 1)
        ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[2], &err), -SW_EGPULOST);
    else
        ck_assert_int_eq(sw_mover_canary(rig.mover, &err), -SW_EGPULOST);
    ck_assert(sw_mover_lost(rig.mover));
    rig.map_code = 0;
    rig.n_maps = 0;
    add(2);
    finish(MOST);
    for (unsigned i = 0; i < MOST; i++)
        ck_assert_int_eq(code_of(i), -SW_EGPULOST);
    ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[2], &err), -SW_EGPULOST);
    ck_assert_uint_eq(rig.n_maps, 0);
}
END_TEST

/* Descriptors are scarce. _i: it is for one operation. */
START_TEST(mapped_memory_keeps_no_descriptor) {
    const unsigned n_fds = sw_count_fds();
    rig.mems[0].once = _i;
    ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[0], NULL), 0);
    ck_assert_ptr_null(rig.mems[0].desc.fds);
    ck_assert_int_eq(rig.was_once, _i);
    ck_assert_int_eq(sw_mover_map(rig.mover, &rig.mems[0], NULL), 0);
    ck_assert_uint_eq(rig.n_maps, 1); /* it is mapped already */
    sw_mover_unmap(rig.mover, &rig.mems[0]);
    ck_assert_uint_lt(sw_count_fds(), n_fds);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("runs");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, runs_end);
    tcase_add_test(tests, a_run_may_be_canceled_before_it_comes);
    tcase_add_test(tests, the_first_error_stands);
    tcase_add_loop_test(tests, a_dead_context_fails_runs_that_wait_and_later_ones, 0, 3);
    tcase_add_loop_test(tests, mapped_memory_keeps_no_descriptor, 0, 2);
    Suite *suite = suite_create("runs");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
