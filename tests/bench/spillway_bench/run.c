#include "tests/bench/spillway_bench/run.h"

#include "base/clock.h"

void sw_bench_run_begin(struct sw_bench_run *run) {
    run->deadline_us = sw_clock_us() + (uint64_t)(run->options.duration_s * 1e6);
}

bool sw_bench_is_over(const struct sw_bench_run *run, uint64_t n_spills) {
    if (atomic_load(&run->stop))
        return true;
    return run->options.count ? n_spills >= run->options.count : sw_clock_us() >= run->deadline_us;
}

bool sw_bench_is_full(const struct spillway_error *error) {
    const int code = error->code;
    return code == -SPILLWAY_ENOSPACE || code == -SPILLWAY_EDRAINING || code == -SPILLWAY_ELIMIT ||
           code == -SPILLWAY_ETENANTBYTES || code == -SPILLWAY_ETENANTREGIONS || code == -SPILLWAY_ETENANTOPS;
}

bool sw_bench_may_repeat(const struct spillway_error *error) {
    return sw_bench_is_full(error) || (error->code == -SPILLWAY_ERESTARTED && error->scope == SPILLWAY_SCOPE_REQUEST);
}
