#include "daemon/control/metrics.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "daemon/session/coder.h"
#include "daemon/session/tenant.h"
#include "daemon/tiers/tiers.h"
#include "spill/operator.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

enum kind { GAUGE, COUNTER, HISTOGRAM };

static void begin(FILE *out, const char *name, enum kind kind, const char *help) {
    static const char *const kinds[] = {"gauge", "counter", "histogram"};
    (void)fprintf(out, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kinds[kind]);
}

/* Writes a metric without labels. */
static void put(FILE *out, const char *name, enum kind kind, const char *help, uint64_t value) {
    begin(out, name, kind, help);
    (void)fprintf(out, "%s %" PRIu64 "\n", name, value);
}

static void put_service(FILE *out, const struct sw_service *service, const struct sw_events *events) {
    begin(out, "spillway_build_info", GAUGE, "Always 1; the labels describe the build.");
    (void)fprintf(out, "spillway_build_info{version=\"%s\"} 1\n", SW_VERSION);
    begin(out, "spillway_uptime_seconds", GAUGE, "Time since the service started.");
    (void)fprintf(out, "spillway_uptime_seconds %.6f\n", (double)(sw_clock_us() - service->started_us) / 1e6);
    put(out, "spillway_draining", GAUGE, "1 while the service accepts no new spills.", service->draining);
    put(out, "spillway_sessions", GAUGE, "Connected clients.", service->n_sessions);
    put(out, "spillway_sessions_limit", GAUGE, "Most clients at once (max_sessions).", service->config->max_sessions);
    put(out, "spillway_client_frame_bytes", GAUGE,
        "Frame buffers granted to clients (gpu_frame_bytes), on all devices.", sw_coder_granted_bytes(service));
    put(out, "spillway_gpus", GAUGE, "GPUs in use.", service->n_gpus);
    put(out, "spillway_event_subscribers", GAUGE, "Connections that receive events.", sw_events_subscribers(events));
    put(out, "spillway_events_dropped_total", COUNTER, "Events that slow readers missed.", sw_events_dropped(events));
    begin(out, "spillway_errors_total", COUNTER, "Failed requests and sessions, by name of the error.");
    for (int i = 0; i < SW_ERR_COUNT; i++)
        (void)fprintf(out, "spillway_errors_total{name=\"%s\"} %" PRIu64 "\n", sw_err_name_at(i), service->n_errors[i]);
}

static void put_engine(FILE *out, const struct sw_engine_stats *stats, uint64_t scratch_limit_bytes) {
    put(out, "spillway_regions", GAUGE, "Regions of all sessions.", stats->n_regions);
    put(out, "spillway_memories", GAUGE, "Client memories known to the service.", stats->n_mems);
    put(out, "spillway_mapped_memories", GAUGE, "Client memories that are mapped.", stats->n_mapped);
    put(out, "spillway_operations_in_flight", GAUGE, "Spills and restores that wait or run.", stats->n_ops);
    put(out, "spillway_operations_failed_total", COUNTER, "Spills and restores that failed.", stats->failed_ops);
    put(out, "spillway_operations_canceled_total", COUNTER, "Spills and restores that were canceled.",
        stats->canceled_ops);
    put(out, "spillway_packs_total", COUNTER, "Spills that were packed in place.", stats->packs);
    put(out, "spillway_demotions_total", COUNTER, "Regions moved from a tier to one behind it.", stats->demotions);
    put(out, "spillway_promotions_total", COUNTER, "Regions moved back to the first tier.", stats->promotions);
    put(out, "spillway_scratch_bytes", GAUGE, "Device memory that the service holds for its work, on all GPUs.",
        stats->scratch_bytes);
    put(out, "spillway_scratch_limit_bytes", GAUGE, "Limit of spillway_scratch_bytes.", scratch_limit_bytes);
    begin(out, "spillway_compression_ratio", GAUGE,
          "Raw bytes divided by stored bytes of all spills; 1 before the first.");
    (void)fprintf(out, "spillway_compression_ratio %.6f\n",
                  stats->spilled_stored_bytes ? (double)stats->spilled_raw_bytes / (double)stats->spilled_stored_bytes
                                              : 1.0);
    begin(out, "spillway_spill_reasons_total", COUNTER, "Spills by the reason why they were compressed, or were not.");
    for (int i = 0; i < SW_COST_REASON_NR; i++)
        (void)fprintf(out, "spillway_spill_reasons_total{reason=\"%s\"} %" PRIu64 "\n",
                      sw_cost_reason_text((enum sw_cost_reason)i), stats->reasons[i]);
}

static uint64_t number_at(const void *record, size_t offset) {
    return *(const uint64_t *)(const void *)((const char *)record + offset);
}

/* Metrics of tiers in a store behind a network. */
static void put_stores(FILE *out, const struct sw_service *service) {
    static const struct {
        const char *name, *help;
        enum kind kind;
        size_t offset;
    } rows[] = {
        {"spillway_store_puts_total", "Objects that were sent, or attempts of it.", COUNTER,
         offsetof(struct sw_tier_store_stats, puts)},
        {"spillway_store_gets_total", "Parts of objects that were asked for.", COUNTER,
         offsetof(struct sw_tier_store_stats, gets)},
        {"spillway_store_lists_total", "Requests for lists of names.", COUNTER,
         offsetof(struct sw_tier_store_stats, lists)},
        {"spillway_store_deletes_total", "Requests to delete objects.", COUNTER,
         offsetof(struct sw_tier_store_stats, deletes)},
        {"spillway_store_failed_requests_total", "Requests that failed; most are repeated.", COUNTER,
         offsetof(struct sw_tier_store_stats, failed_requests)},
        {"spillway_store_sent_bytes_total", "Bytes of objects that were sent.", COUNTER,
         offsetof(struct sw_tier_store_stats, sent_bytes)},
        {"spillway_store_received_bytes_total", "Bytes of objects that were received.", COUNTER,
         offsetof(struct sw_tier_store_stats, received_bytes)},
        {"spillway_store_backlog_bytes", "Bytes of frames that are to be sent or received.", GAUGE,
         offsetof(struct sw_tier_store_stats, backlog_bytes)},
        {"spillway_store_buffer_used_bytes", "Memory for objects on their way (remote_tier_buffer_bytes).", GAUGE,
         offsetof(struct sw_tier_store_stats, buffer_used_bytes)},
        {"spillway_store_orphans", "Objects that could not be deleted; the next start deletes them.", GAUGE,
         offsetof(struct sw_tier_store_stats, orphans)},
        {"spillway_store_out", "1 while the store does not answer, or refuses everything.", GAUGE,
         offsetof(struct sw_tier_store_stats, is_out)},
    };
    struct sw_tier_shown tier;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(out, rows[i].name, rows[i].kind, rows[i].help);
        for (unsigned k = 0; sw_tiers_show(service, k, &tier); k++)
            if (tier.has_store)
                (void)fprintf(out, "%s{tier=\"%s\"} %" PRIu64 "\n", rows[i].name, tier.name,
                              number_at(&tier.store, rows[i].offset));
    }
}

static void put_tiers(FILE *out, const struct sw_service *service, const struct sw_engine_stats *stats) {
    static const struct {
        const char *name, *help;
        size_t offset;
    } rows[] = {
        {"spillway_tier_capacity_bytes", "Configured size of the tier; 0: the tier does not exist.",
         offsetof(struct sw_tier_stats, capacity_bytes)},
        {"spillway_tier_backed_bytes", "Bytes taken from the system so far.",
         offsetof(struct sw_tier_stats, backed_bytes)},
        {"spillway_tier_used_bytes", "Bytes occupied by frames.", offsetof(struct sw_tier_stats, used_bytes)},
        {"spillway_tier_largest_free_bytes", "Bytes of the longest free run.",
         offsetof(struct sw_tier_stats, largest_free_bytes)},
        {"spillway_tier_frames", "Stored frames.", offsetof(struct sw_tier_stats, committed_frames)},
        {"spillway_tier_write_bytes_per_second", "Recent rate while writing; 0: not known.",
         offsetof(struct sw_tier_stats, write_bytes_per_s)},
        {"spillway_tier_read_bytes_per_second", "Recent rate while reading; 0: not known.",
         offsetof(struct sw_tier_stats, read_bytes_per_s)},
    };
    struct sw_tier_shown tier;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        begin(out, rows[i].name, GAUGE, rows[i].help);
        for (unsigned k = 0; sw_tiers_show(service, k, &tier); k++)
            if (tier.flows != SW_STATISTICS_PACKED)
                (void)fprintf(out, "%s{tier=\"%s\"} %" PRIu64 "\n", rows[i].name, tier.name,
                              number_at(&tier.stats, rows[i].offset));
    }
    const struct sw_engine_marks marks = sw_engine_marks(service->engine, 0);
    put(out, "spillway_tier_waiting", GAUGE, "Reservations that wait for the first tier to grow.",
        stats->tiers[0].n_waiting);
    put(out, "spillway_tier_limit_bytes", GAUGE,
        "Room of the first tier for frames at rest; the watermarks are percentages of it.",
        sw_engine_limit_bytes(service->engine, 0));
    begin(out, "spillway_tier_watermark_bytes", GAUGE,
          "Above high, regions leave the first tier until low is reached.");
    (void)fprintf(out,
                  "spillway_tier_watermark_bytes{mark=\"high\"} %" PRIu64
                  "\nspillway_tier_watermark_bytes{mark=\"low\"} %" PRIu64 "\n",
                  marks.high_bytes, marks.low_bytes);
}

static void put_flow(FILE *out, const struct sw_service *service, const char *name, const char *help, size_t offset) {
    static const struct sw_flow none[SW_CODEC_NR];
    const struct sw_op_statistics *statistics = sw_engine_op_statistics(service->engine);
    struct sw_tier_shown tier;
    begin(out, name, COUNTER, help);
    for (unsigned kind = 0; kind < SW_OP_KIND_NR; kind++)
        for (unsigned i = 0; sw_tiers_show(service, i, &tier); i++) {
            const struct sw_flow *flows =
                tier.flows < SW_STATISTICS_TIER_NR ? statistics->flows[kind][tier.flows] : none;
            for (unsigned codec = 0; codec < SW_CODEC_NR; codec++)
                (void)fprintf(out, "%s{kind=\"%s\",tier=\"%s\",codec=\"%s\"} %" PRIu64 "\n", name,
                              sw_op_kind_name(kind), tier.name, sw_codec_name(codec), number_at(&flows[codec], offset));
        }
}

static void put_histogram(FILE *out, const char *labels, const struct sw_histogram *histogram) {
    uint64_t sum = 0;
    for (unsigned i = 0; i + 1 < SW_HISTOGRAM_BUCKETS; i++) {
        sum += histogram->buckets[i];
        (void)fprintf(out, "spillway_latency_seconds_bucket{%s,le=\"%g\"} %" PRIu64 "\n", labels,
                      (double)sw_histogram_bound_us(i) / 1e6, sum);
    }
    (void)fprintf(out,
                  "spillway_latency_seconds_bucket{%s,le=\"+Inf\"} %" PRIu64
                  "\nspillway_latency_seconds_sum{%s} %.6f\nspillway_latency_seconds_count{%s} %" PRIu64 "\n",
                  labels, histogram->count, labels, (double)histogram->sum_us / 1e6, labels, histogram->count);
}

static void put_statistics(FILE *out, const struct sw_service *service) {
    const struct sw_op_statistics *statistics = sw_engine_op_statistics(service->engine);
    char labels[64];
    put_flow(out, service, "spillway_operations_total", "Spills and restores that succeeded.",
             offsetof(struct sw_flow, operations));
    put_flow(out, service, "spillway_raw_bytes_total", "Clients' bytes that were spilled and restored.",
             offsetof(struct sw_flow, raw_bytes));
    put_flow(out, service, "spillway_stored_bytes_total",
             "Bytes that these operations stored in the tier, or read from it.",
             offsetof(struct sw_flow, stored_bytes));
    begin(out, "spillway_latency_seconds", HISTOGRAM,
          "Time of operations that succeeded, by stage: waiting until memory is mapped, planning, moving, the whole.");
    for (unsigned kind = 0; kind < SW_OP_KIND_NR; kind++)
        for (unsigned stage = 0; stage < SW_OP_STAGE_NR; stage++) {
            (void)snprintf(labels, sizeof labels, "kind=\"%s\",stage=\"%s\"", sw_op_kind_name(kind),
                           sw_op_stage_name(stage));
            put_histogram(out, labels, &statistics->latency[kind][stage]);
        }
}

/* ---- tenants ----------------------------------------------------------------------------------------------------- */

struct shown_tenant {
    const struct sw_tenant *tenant; /* NULL: the sum of the others */
    uint64_t values[SW_TENANT_STATS_NR];
};

static int by_bytes(const void *a, const void *b) {
    const uint64_t x = ((const struct shown_tenant *)a)->values[SW_TENANT_BYTES],
                   y = ((const struct shown_tenant *)b)->values[SW_TENANT_BYTES];
    return (y > x) - (y < x);
}

/* Gets the tenants with the most stored bytes, at most `most`, and after them the sum of the others. NULL: no memory.
 */
static struct shown_tenant *collect(const struct sw_service *service, size_t most, size_t *ret_n) {
    size_t n = 0;
    for (const struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next)
        n++;
    struct shown_tenant *all = sw_alloc_array(n + 1, sizeof *all);
    if (!all)
        return NULL;
    n = 0;
    for (const struct sw_list *at = service->tenants.next; at != &service->tenants; at = at->next, n++) {
        all[n].tenant = SW_CONTAINER_OF(at, const struct sw_tenant, node);
        sw_tenant_stats(all[n].tenant, all[n].values);
    }
    qsort(all, n, sizeof *all, by_bytes);
    struct shown_tenant others = {.tenant = NULL};
    for (; n > most; n--)
        for (unsigned i = 0; i < SW_TENANT_STATS_NR; i++)
            others.values[i] += all[n - 1].values[i];
    all[n] = others;
    *ret_n = n + 1;
    return all;
}

static void put_tenants(FILE *out, const struct sw_service *service) {
    static const struct {
        const char *name, *help;
    } rows[SW_TENANT_STATS_NR] = {
        [SW_TENANT_BYTES] = {"spillway_tenant_stored_bytes", "Bytes that the tenant's regions occupy in all tiers."},
        [SW_TENANT_REGIONS] = {"spillway_tenant_regions", "Regions of the tenant."},
        [SW_TENANT_DURABLE] = {"spillway_tenant_durable_regions", "Durable regions of the tenant."},
        [SW_TENANT_SESSIONS] = {"spillway_tenant_sessions", "Connected clients of the tenant."},
        [SW_TENANT_OPERATIONS] = {"spillway_tenant_operations", "Spills and restores of the tenant in flight."},
        [SW_TENANT_BOOKKEEPING] = {"spillway_tenant_bookkeeping_bytes", "Memory for bookkeeping of the tenant."},
    };
    size_t n;
    struct shown_tenant *shown = collect(service, service->config->metrics_tenants, &n);
    for (unsigned i = 0; shown && i < SW_TENANT_STATS_NR; i++) {
        begin(out, rows[i].name, GAUGE, rows[i].help);
        for (size_t k = 0; k < n; k++)
            if (shown[k].tenant)
                (void)fprintf(out, "%s{uid=\"%u\"} %" PRIu64 "\n", rows[i].name, (unsigned)shown[k].tenant->uid,
                              shown[k].values[i]);
            else
                (void)fprintf(out, "%s{uid=\"other\"} %" PRIu64 "\n", rows[i].name, shown[k].values[i]);
    }
    sw_free(shown);
}

char *sw_metrics_text(const struct sw_service *service, const struct sw_events *events) {
    struct sw_engine_stats stats;
    char *text = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&text, &bytes);
    if (!out)
        return NULL;
    sw_engine_stats(service->engine, &stats);
    put_service(out, service, events);
    put_engine(out, &stats, service->config->scratch_bytes * service->n_gpus);
    put_tiers(out, service, &stats);
    put_stores(out, service);
    put_statistics(out, service);
    put_tenants(out, service);
    const bool failed = ferror(out) != 0;
    if (fclose(out) != 0 || failed) {
        free(text);
        return NULL;
    }
    return text;
}
