/* awake.c - keeps the loop from sleeping while something is about to end. */
#include "spill/engine_state.h"

#include "base/clock.h"

static void on_spin(uv_idle_t *spin) {
    const struct sw_engine *engine = spin->data;
    if (sw_clock_us() >= engine->spin_until_us)
        (void)uv_idle_stop(spin);
}

/* Something has begun or ended, or will end soon. Waking a thread that sleeps can take longer than a short operation
 * itself (50 to 80 us in a virtual machine), so for as long as workers poll idle devices the loop polls its
 * descriptors. */
void sw_engine_keep_awake(struct sw_engine *engine) {
    if (engine->poll_us == 0)
        return;
    engine->spin_until_us = sw_clock_us() + engine->poll_us;
    (void)uv_idle_start(&engine->spin, on_spin);
}
