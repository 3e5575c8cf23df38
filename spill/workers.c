/* workers.c - all workers at once: holds their jobs back, keeps the loop awake for them, asks them for signs of life.
 */
#include "spill/engine_state.h"

#include "base/clock.h"

#include <string.h>

uint64_t sw_engine_now_us(const struct sw_engine *engine) {
    return engine->now_us ? engine->now_us : sw_clock_us();
}

void sw_engine_hold(struct sw_engine *engine, bool needs_kernels) {
    engine->now_us = sw_clock_us();
    for (unsigned i = 0; i < engine->config.n_devices; i++)
        sw_worker_hold(engine->workers[i], needs_kernels);
}

void sw_engine_release(struct sw_engine *engine) {
    engine->now_us = 0;
    for (unsigned i = 0; i < engine->config.n_devices; i++)
        sw_worker_release(engine->workers[i]);
}

static void on_spin(uv_idle_t *spin) {
    const struct sw_engine *engine = spin->data;
    if (sw_clock_us() >= engine->spin_until_us)
        (void)uv_idle_stop(spin);
}

/* Waking a sleeping thread can take longer than a short operation (50 to 80 us in a virtual machine). So the loop polls
 * its descriptors for as long as workers poll idle devices. */
void sw_engine_keep_awake(struct sw_engine *engine) {
    if (engine->poll_us == 0)
        return;
    engine->spin_until_us = sw_engine_now_us(engine) + engine->poll_us;
    (void)uv_idle_start(&engine->spin, on_spin);
}

void sw_canary_ended(struct sw_job *job) {
    struct sw_canary *canary = SW_CONTAINER_OF(job, struct sw_canary, job);
    canary->is_out = false;
    if (!job->run.outcome.err.code)
        canary->given_us = sw_clock_us();
}

void sw_engine_ask_life(struct sw_engine *engine) {
    for (unsigned i = 0; engine->state == SW_ENGINE_RUNNING && i < engine->config.n_devices; i++) {
        struct sw_canary *canary = &engine->canaries[i];
        if (canary->is_out)
            continue;
        memset(&canary->job, 0, sizeof canary->job);
        canary->job.kind = SW_JOB_CANARY;
        canary->is_out = true;
        sw_worker_submit(engine->workers[i], &canary->job);
    }
}

uint64_t sw_engine_silent_us(const struct sw_engine *engine) {
    const uint64_t now_us = sw_clock_us();
    uint64_t longest = 0;
    for (unsigned i = 0; i < engine->config.n_devices; i++) {
        const uint64_t silent = now_us - engine->canaries[i].given_us;
        longest = silent > longest ? silent : longest;
    }
    return longest;
}

bool sw_engine_device_lost(const struct sw_engine *engine) {
    for (unsigned i = 0; i < engine->config.n_devices; i++)
        if (sw_worker_lost(engine->workers[i]))
            return true;
    return false;
}
