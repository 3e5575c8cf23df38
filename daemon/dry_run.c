#include "daemon/dry_run.h"

#include "base/alloc.h"
#include "daemon/snapshot.h"
#include "daemon/tiers/row.h"
#include "daemon/tiers/tiers.h"
#include "spill/balance/policy.h"
#include <inttypes.h>
#include <string.h>

struct dry_run {
    struct sw_snapshot snapshot;
    struct sw_policy_candidate *all; /* [snapshot.n_regions] */
    struct sw_policy_level level;
    const struct sw_tier_row *first,
        *behind; /* behind: the next configured tier; otherwise the one that could be configured */
    bool has_behind;
    size_t *moved; /* indices, in order */
    size_t n_moved;
    uint64_t moved_bytes;
};

static bool is_in(const struct sw_snapshot_region *region, const struct sw_tier_row *row) {
    return strcmp(region->tier, row->kind->name) == 0;
}

static void find_tiers(struct dry_run *run, const struct sw_config *config) {
    run->first = sw_tier_rows[0];
    run->behind = sw_tier_rows[sw_tier_n_rows > 1 ? 1 : 0];
    for (unsigned i = 1; !run->has_behind && i < sw_tier_n_rows; i++)
        if (sw_tier_rows[i]->bytes(config)) {
            run->behind = sw_tier_rows[i];
            run->has_behind = true;
        }
}

static int prepare(struct dry_run *run, const struct sw_config *config, struct sw_err *err) {
    const struct sw_snapshot *snapshot = &run->snapshot;
    const size_t n = snapshot->n_regions;
    run->all = sw_alloc_array(n ? n : 1, sizeof *run->all);
    run->moved = sw_alloc_array(n ? n : 1, sizeof *run->moved);
    if (!run->all || !run->moved)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for %zu regions", n);
    find_tiers(run, config);
    run->level = (struct sw_policy_level){.used_bytes = snapshot->first.used_bytes,
                                          .limit_bytes = snapshot->first.capacity_bytes -
                                                         (run->has_behind ? snapshot->first.staging_bytes : 0),
                                          .high_pct = sw_tiers_marks(config).high_pct,
                                          .low_pct = sw_tiers_marks(config).low_pct};
    for (size_t i = 0; i < n; i++) {
        const struct sw_snapshot_region *region = &snapshot->regions[i];
        run->all[i] = (struct sw_policy_candidate){.index = i,
                                                   .stored_bytes = region->stored_bytes,
                                                   .used_us = region->used_us,
                                                   .priority = (unsigned)region->priority,
                                                   .pinned = region->pinned,
                                                   .rests = is_in(region, run->first)};
    }
    return 0;
}

/* Works like the engine: choose, move, choose again. */
static void decide(struct dry_run *run) {
    size_t victim;
    while (run->has_behind && sw_policy_victims(&run->level, run->all, run->snapshot.n_regions, &victim, 1) > 0) {
        const uint64_t bytes = run->all[victim].stored_bytes;
        run->all[victim].rests = false;
        run->moved[run->n_moved++] = victim;
        run->moved_bytes += bytes;
        run->level.used_bytes -= bytes < run->level.used_bytes ? bytes : run->level.used_bytes;
        run->level.moving = true;
    }
}

static bool is_moved(const struct dry_run *run, size_t i) {
    return !run->all[i].rests && is_in(&run->snapshot.regions[i], run->first);
}

/* Returns the lowest priority among regions that could have been moved and stay; UINT8_MAX + 1: there is none. */
static unsigned staying_priority(const struct dry_run *run) {
    unsigned lowest = UINT8_MAX + 1;
    for (size_t i = 0; i < run->snapshot.n_regions; i++)
        if (run->all[i].rests && !run->all[i].pinned && run->all[i].priority < lowest)
            lowest = run->all[i].priority;
    return lowest;
}

static const char *why_moved(const struct sw_policy_candidate *candidate, unsigned staying) {
    if (staying > UINT8_MAX)
        return "every region that may be moved is moved";
    return candidate->priority < staying ? "lower priority than the regions that stay" : "least recently used";
}

/* Returns where a region is that is not in the first tier. */
static const char *where(const struct dry_run *run, size_t i, char *ret, size_t ret_bytes) {
    for (unsigned k = 1; k < sw_tier_n_rows; k++)
        if (is_in(&run->snapshot.regions[i], sw_tier_rows[k])) {
            (void)snprintf(ret, ret_bytes, "is in the %s tier", sw_tier_rows[k]->title);
            return ret;
        }
    return "is packed in its client's memory";
}

static const char *why_not(const struct dry_run *run, size_t i, char *text, size_t text_bytes) {
    if (!run->all[i].rests)
        return where(run, i, text, text_bytes);
    if (!run->has_behind) {
        (void)snprintf(text, text_bytes, "there is no %s tier", run->behind->title);
        return text;
    }
    if (run->all[i].pinned)
        return "pinned";
    return run->n_moved > 0 ? "the low watermark is reached earlier" : "the high watermark is not exceeded";
}

static void print_region(const struct dry_run *run, size_t i, const char *order, const char *why, FILE *out) {
    const struct sw_snapshot_region *region = &run->snapshot.regions[i];
    (void)fprintf(out, "%5s  %-15s  %15" PRIu64 "  %8" PRIu64 "  %16" PRIu64 "  %s\n", order, region->region,
                  region->stored_bytes, region->priority, region->used_us, why);
}

static void print_regions(const struct dry_run *run, FILE *out) {
    const unsigned staying = staying_priority(run);
    char order[24], why[64];
    (void)fprintf(out, "\n%5s  %-15s  %15s  %8s  %16s  %s\n", "order", "region", "stored bytes", "priority", "used, us",
                  "why");
    for (size_t k = 0; k < run->n_moved; k++) {
        (void)snprintf(order, sizeof order, "%zu", k + 1);
        print_region(run, run->moved[k], order, why_moved(&run->all[run->moved[k]], staying), out);
    }
    for (size_t i = 0; i < run->snapshot.n_regions; i++)
        if (!is_moved(run, i))
            print_region(run, i, "stays", why_not(run, i, why, sizeof why), out);
}

static void print_level(const struct dry_run *run, const char *when, uint64_t used_bytes, FILE *out) {
    const uint64_t limit_bytes = run->level.limit_bytes;
    (void)fprintf(out, "%s: %" PRIu64 " of %" PRIu64 " bytes of the %s tier in use (%.1f %%)\n", when, used_bytes,
                  limit_bytes, run->first->title, limit_bytes ? 100.0 * (double)used_bytes / (double)limit_bytes : 0.0);
}

static void print(const struct dry_run *run, FILE *out) {
    print_level(run, "now", run->snapshot.first.used_bytes, out);
    if (run->has_behind)
        (void)fprintf(out, "moving begins above %u %% and ends at %u %%\n", run->level.high_pct, run->level.low_pct);
    else
        (void)fprintf(out, "%s is none: nothing is moved\n", run->behind->option);
    print_regions(run, out);
    (void)fprintf(out, "\nmoved to the %s tier: %zu of %zu regions, %" PRIu64 " bytes\n", run->behind->title,
                  run->n_moved, run->snapshot.n_regions, run->moved_bytes);
    print_level(run, "then", run->level.used_bytes, out);
    if (run->has_behind && sw_policy_excess_bytes(&run->level) > 0)
        (void)fprintf(out, "%" PRIu64 " bytes too many: no other region may be moved\n",
                      sw_policy_excess_bytes(&run->level));
}

int sw_dry_run(const struct sw_config *config, const char *path, FILE *out, struct sw_err *err) {
    struct dry_run run = {.n_moved = 0};
    int rc = sw_snapshot_load(&run.snapshot, path, sw_tier_rows[0]->bytes(config), err);
    if (rc == 0)
        rc = prepare(&run, config, err);
    if (rc == 0) {
        decide(&run);
        print(&run, out);
    }
    sw_free(run.moved);
    sw_free(run.all);
    sw_snapshot_fini(&run.snapshot);
    return rc;
}
