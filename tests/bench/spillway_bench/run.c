#include "tests/bench/spillway_bench/run.h"

#include "base/clock.h"
#include <inttypes.h>
#include <stdio.h>

enum { PATIENCE_S = 10 }; /* other clients may make room */

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

bool sw_bench_is_hopeless(const struct sw_bench_run *run, struct sw_bench_refused *refused) {
    const uint64_t now_us = sw_clock_us(), n_done = atomic_load(&run->n_done);
    if (!refused->since_us || refused->n_done != n_done || atomic_load(&run->n_held))
        *refused = (struct sw_bench_refused){.n_done = n_done, .since_us = now_us};
    return run->options.count && now_us - refused->since_us >= (uint64_t)PATIENCE_S * 1000000;
}

const char *sw_bench_give_up_text(char ret[SW_BENCH_TEXT_BYTES], const struct sw_bench_run *run,
                                  const struct spillway_error *error, uint64_t n_spills) {
    (void)snprintf(ret, SW_BENCH_TEXT_BYTES, "%s; refused for %d s: gives up after %" PRIu64 " of %" PRIu64 " spills",
                   error->text, PATIENCE_S, n_spills, run->options.count);
    return ret;
}
