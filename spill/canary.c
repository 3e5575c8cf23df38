/* canary.c - signs of life: whether workers, and their devices, still do what they are asked. */
#include "spill/engine_state.h"

#include "base/clock.h"

#include <string.h>

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
