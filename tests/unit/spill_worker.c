/* The worker's thread: when it asks its device again and again, and when it sleeps. On the host device, whose slots
 * seem to be at work for some milliseconds after each step. */
#include "spill/worker/worker.h"

#include "base/clock.h"
#include "spill/tier/host/tier_host.h"
#include "tests/lib/content.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/one_run.h"
#include "tests/lib/run.h"

#include <check.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#define MIB ((uint64_t)1 << 20)
/* SOON_US: less than what a worker polls for; a thread that had no processor for so long may sleep then. */
enum { STEP_US = 5000, SOON_US = 40000 };

static struct {
    struct sw_device *device;
    struct sw_device_ops ops, real;
    struct sw_device_info info;
    struct sw_tier *tier;
    struct sw_placement place;
    struct sw_worker *worker;
    sem_t woken;
    unsigned n_announced;   /* jobs that were said to end soon */
    uint64_t busy_since_us; /* of the slot; 0: it has not been looked at since its last step ended */
    unsigned n_waits;       /* soon after that */
    atomic_uint n_device_wakes;
} rig;

static const struct sw_device_info *info(const struct sw_device *device) {
    (void)device;
    return &rig.info;
}

static int slot_poll(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    const uint64_t now_us = sw_clock_us();
    if (!rig.busy_since_us)
        rig.busy_since_us = now_us;
    if (now_us - rig.busy_since_us < STEP_US)
        return -SW_EAGAIN;
    const int rc = rig.real.slot_poll(device, s, ret, err);
    if (rc != -SW_EAGAIN)
        rig.busy_since_us = 0;
    return rc;
}

static int slot_wait(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    rig.n_waits += rig.busy_since_us && sw_clock_us() - rig.busy_since_us < SOON_US;
    rig.busy_since_us = 0;
    return rig.real.slot_wait(device, s, ret, err);
}

static void wake(void *arg) {
    (void)sem_post(arg);
}

static void wake_device(struct sw_device *device) {
    (void)device;
    atomic_fetch_add(&rig.n_device_wakes, 1);
}

static void rig_open(unsigned poll_us) {
    const struct sw_device_config config = {.scratch_bytes = 16 * MIB, .n_slots = 1, .chunk_bytes = MIB / 8};
    memset(&rig, 0, sizeof rig);
    ck_assert_int_eq(sem_init(&rig.woken, 0, 0), 0);
    ck_assert_int_eq(sw_fixture_open_device(&rig.device, &config, NULL), 0);
    rig.ops = rig.real = *rig.device->ops;
    rig.info = *rig.device->ops->info(rig.device);
    rig.info.poll_us = poll_us;
    rig.ops.info = info;
    rig.ops.slot_poll = slot_poll;
    rig.ops.slot_wait = slot_wait;
    rig.ops.wake = wake_device;
    rig.device->ops = &rig.ops;
    const struct sw_tier_host_config host = {
        .capacity_bytes = 16 * MIB, .slab_bytes = 2 * MIB, .devices = &rig.device, .n_devices = 1};
    ck_assert_int_eq(sw_tier_host_open(&rig.tier, &host, NULL), 0);
    sw_placement_init(&rig.place, &(struct sw_tiers){.at = {rig.tier}, .n = 1}, 0);
    ck_assert_int_eq(sw_worker_new(&rig.worker, rig.device, &rig.place, wake, &rig.woken, NULL), 0);
}

static void rig_close(void) {
    sw_worker_free(rig.worker);
    rig.tier->ops->close(rig.tier);
    rig.device->ops->close(rig.device);
    (void)sem_destroy(&rig.woken);
}

/* Spills the memory, or restores it from frames; returns its frames. */
static struct sw_frames *move(const struct sw_memory *memory, struct sw_frames *frames) {
    struct sw_run_memory mem = {.desc = sw_memory_desc(memory), .once = true};
    struct sw_one_run one;
    sw_one_run_init(&one, frames ? SW_OP_RESTORE : SW_OP_SPILL, &mem, memory->bytes, frames);
    struct sw_list taken;
    sw_list_init(&taken);
    sw_worker_submit(rig.worker, &one.job);
    while (sw_list_empty(&taken)) {
        while (sem_wait(&rig.woken) != 0)
            continue;
        rig.n_announced += sw_worker_ends_soon(rig.worker);
        sw_worker_take(rig.worker, &taken);
    }
    ck_assert_msg(!one.job.run.outcome.err.code, "%s", one.job.run.outcome.err.msg);
    sw_mem_desc_fini(&mem.desc);
    return one.job.run.frames;
}

/* A region goes out and comes back; returns how often the worker soon slept until a step was done. */
static unsigned count_waits(unsigned poll_us) {
    struct sw_memory memory = sw_memory_new(MIB / 2);
    sw_content_fill(memory.data, memory.bytes, SW_CONTENT_TEXT, 3);
    rig_open(poll_us);
    struct sw_frames *frames = move(&memory, NULL);
    (void)move(&memory, frames);
    sw_frames_free(frames);
    rig_close();
    sw_memory_free(&memory);
    return rig.n_waits;
}

/* An event wakes a sleeping worker late, so a step that takes longer than poll_us is polled nevertheless. */
START_TEST(test_a_worker_does_not_oversleep_the_end_of_a_step) {
    ck_assert_uint_eq(count_waits(500), 0);
}
END_TEST

/* A device without a link needs no low latency. */
START_TEST(test_a_worker_sleeps_on_a_device_that_needs_no_polling) {
    ck_assert_uint_gt(count_waits(0), 0);
}
END_TEST

/* A job is steady if it takes about as long as the last two. On any machine one does, sooner or later. */
START_TEST(test_the_end_of_a_steady_job_is_announced) {
    struct sw_memory memory = sw_memory_new(MIB / 2);
    rig_open(500);
    for (int i = 0; rig.n_announced == 0; i++) {
        sw_frames_free(move(&memory, NULL));
        ck_assert(i > 1 || rig.n_announced == 0); /* nothing is known of the first two */
    }
    ck_assert_uint_eq(rig.n_announced, 1); /* and not again until it ends */
    rig_close();
    sw_memory_free(&memory);
}
END_TEST

/* The loop does not stay awake for it. */
START_TEST(test_a_device_that_needs_no_polling_announces_nothing) {
    struct sw_memory memory = sw_memory_new(MIB / 2);
    rig_open(0);
    for (int i = 0; i < 12; i++)
        sw_frames_free(move(&memory, NULL));
    ck_assert_uint_eq(rig.n_announced, 0);
    rig_close();
    sw_memory_free(&memory);
}
END_TEST

/* Jobs that are about to come and need no kernels leave the device asleep, also after some that did. */
START_TEST(test_a_device_is_woken_for_kernels_only) {
    rig_open(500);
    for (unsigned i = 0; i < 5; i++) {
        sw_worker_hold(rig.worker, i % 2);
        while (i % 2 && atomic_load(&rig.n_device_wakes) <= i / 2)
            (void)usleep(100);
        (void)usleep(2000);
        sw_worker_release(rig.worker);
    }
    ck_assert_uint_eq(atomic_load(&rig.n_device_wakes), 2);
    rig_close();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("worker");
    tcase_add_test(tests, test_a_worker_does_not_oversleep_the_end_of_a_step);
    tcase_add_test(tests, test_a_worker_sleeps_on_a_device_that_needs_no_polling);
    tcase_add_test(tests, test_the_end_of_a_steady_job_is_announced);
    tcase_add_test(tests, test_a_device_that_needs_no_polling_announces_nothing);
    tcase_add_test(tests, test_a_device_is_woken_for_kernels_only);
    Suite *suite = suite_create("worker");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
