/* control_stats.c - totals and tiers, as JSON. */
#include "daemon/control/control_handlers.h"
#include "daemon/session/coder.h"
#include "daemon/tiers/tiers.h"
#include "spill/operator.h"
#include <jansson.h>

static json_t *flow_to_json(const char *kind, const char *tier, const char *codec, const struct sw_flow *flow) {
    return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "kind", kind, "tier", tier, "codec", codec, "operations",
                     (json_int_t)flow->operations, "raw_bytes", (json_int_t)flow->raw_bytes, "stored_bytes",
                     (json_int_t)flow->stored_bytes);
}

static json_t *flows_to_json(const struct sw_service *service) {
    const struct sw_op_statistics *statistics = sw_engine_op_statistics(service->engine);
    struct sw_tier_shown tier;
    json_t *array = json_array();
    for (unsigned kind = 0; kind < SW_OP_KIND_NR; kind++)
        for (unsigned i = 0; sw_tiers_show(service, i, &tier); i++)
            for (unsigned codec = 0; tier.flows < SW_STATISTICS_TIER_NR && codec < SW_CODEC_NR; codec++) {
                const struct sw_flow *flow = &statistics->flows[kind][tier.flows][codec];
                if (flow->operations)
                    (void)json_array_append_new(
                        array, flow_to_json(sw_op_kind_name(kind), tier.name, sw_codec_name(codec), flow));
            }
    return array;
}

/* The last bucket has no bound: null. */
static json_t *percentile(const struct sw_histogram *histogram, unsigned pct) {
    const uint64_t us = sw_histogram_percentile_us(histogram, pct);
    return us == UINT64_MAX ? json_null() : json_integer((json_int_t)us);
}

static json_t *latency_to_json(const struct sw_op_statistics *statistics) {
    json_t *array = json_array();
    for (unsigned kind = 0; kind < SW_OP_KIND_NR; kind++)
        for (unsigned stage = 0; stage < SW_OP_STAGE_NR; stage++) {
            const struct sw_histogram *histogram = &statistics->latency[kind][stage];
            (void)json_array_append_new(
                array, json_pack("{s:s, s:s, s:I, s:I, s:o, s:o}", "kind", sw_op_kind_name(kind), "stage",
                                 sw_op_stage_name(stage), "operations", (json_int_t)histogram->count, "mean_us",
                                 (json_int_t)(histogram->count ? histogram->sum_us / histogram->count : 0), "p50_us",
                                 percentile(histogram, 50), "p99_us", percentile(histogram, 99)));
        }
    return array;
}

static json_t *errors_to_json(const struct sw_service *service) {
    json_t *object = json_object();
    for (int i = 0; i < SW_ERR_COUNT; i++)
        if (service->n_errors[i])
            (void)json_object_set_new(object, sw_err_name_at(i), json_integer((json_int_t)service->n_errors[i]));
    return object;
}

static json_t *reasons_to_json(const struct sw_engine_stats *stats) {
    json_t *object = json_object();
    for (int i = 0; i < SW_COST_REASON_NR; i++)
        (void)json_object_set_new(object, sw_cost_reason_text((enum sw_cost_reason)i),
                                  json_integer((json_int_t)stats->reasons[i]));
    return object;
}

int sw_on_control_stats(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                        json_t **ret_result, struct sw_err *err) {
    const struct sw_service *service = ((struct sw_control_context *)context)->service;
    const struct sw_op_statistics *statistics = sw_engine_op_statistics(service->engine);
    struct sw_engine_stats stats;
    (void)caller;
    (void)args;
    (void)err;
    sw_engine_stats(service->engine, &stats);
    *ret_result = json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", //
                            "spills", (json_int_t)stats.spills,                                                 //
                            "restores", (json_int_t)stats.restores,                                             //
                            "packs", (json_int_t)stats.packs,                                                   //
                            "failed", (json_int_t)stats.failed_ops,                                             //
                            "canceled", (json_int_t)stats.canceled_ops,                                         //
                            "demotions", (json_int_t)stats.demotions,                                           //
                            "promotions", (json_int_t)stats.promotions,                                         //
                            "spilled_raw_bytes", (json_int_t)stats.spilled_raw_bytes,                           //
                            "spilled_stored_bytes", (json_int_t)stats.spilled_stored_bytes,                     //
                            "restored_raw_bytes", (json_int_t)stats.restored_raw_bytes,                         //
                            "operations", (json_int_t)stats.n_ops,                                              //
                            "client_frame_bytes", (json_int_t)sw_coder_granted_bytes(service),                  //
                            "reasons", reasons_to_json(&stats),                                                 //
                            "errors", errors_to_json(service),                                                  //
                            "flows", flows_to_json(service),                                                    //
                            "latency", latency_to_json(statistics));
    return 0;
}

static void add(json_t *object, const char *name, uint64_t value) {
    (void)json_object_set_new(object, name, json_integer((json_int_t)value));
}

/* Watermarks are shown for the first tier in any case, and for other tiers that have one behind them. */
static json_t *tier_to_json(const struct sw_engine *engine, const struct sw_tier_shown *shown) {
    const struct sw_tier_stats *stats = &shown->stats;
    const unsigned rank = shown->tier->rank;
    json_t *tier = json_pack("{s:s, s:I, s:I, s:I, s:I, s:I}",                            //
                             "tier", shown->name,                                         //
                             "capacity_bytes", (json_int_t)stats->capacity_bytes,         //
                             "backed_bytes", (json_int_t)stats->backed_bytes,             //
                             "used_bytes", (json_int_t)stats->used_bytes,                 //
                             "largest_free_bytes", (json_int_t)stats->largest_free_bytes, //
                             "frames", (json_int_t)stats->committed_frames);
    if (rank == 0 || rank + 1 < sw_engine_tiers(engine)->n) {
        const struct sw_engine_marks marks = sw_engine_marks(engine, rank);
        add(tier, "limit_bytes", sw_engine_limit_bytes(engine, rank));
        add(tier, "high_bytes", marks.high_bytes);
        add(tier, "low_bytes", marks.low_bytes);
    }
    if (rank == 0 && sw_engine_tiers(engine)->n > 1) {
        add(tier, "leaving_bytes", sw_engine_room_bytes(engine)); /* an operator's spill that has not begun */
    }
    if (sw_tier_can(shown->tier, SW_TIER_ADDRESSABLE)) {
        add(tier, "waiting", stats->n_waiting);
        (void)json_object_set_new(tier, "growing", json_boolean(stats->growing));
    } else {
        add(tier, "write_bytes_per_s", stats->write_bytes_per_s);
        add(tier, "read_bytes_per_s", stats->read_bytes_per_s);
    }
    return tier;
}

static json_t *store_to_json(const struct sw_tier_shown *shown) {
    const struct sw_tier_store_stats *stats = &shown->store;
    json_t *store = json_pack("{s:s, s:b, s:s}", "tier", shown->name, "out", (int)stats->is_out, "writers",
                              stats->is_exclusive ? "several" : "single");
    add(store, "backlog_bytes", stats->backlog_bytes);
    add(store, "puts", stats->puts);
    add(store, "gets", stats->gets);
    add(store, "lists", stats->lists);
    add(store, "deletes", stats->deletes);
    add(store, "failed", stats->failed_requests);
    add(store, "repeated", stats->repeated_requests);
    add(store, "sent_bytes", stats->sent_bytes);
    add(store, "received_bytes", stats->received_bytes);
    add(store, "buffer_used_bytes", stats->buffer_used_bytes);
    add(store, "buffer_peak_bytes", stats->buffer_peak_bytes);
    add(store, "wasted_bytes", shown->stats.wasted_bytes);
    add(store, "orphans", stats->orphans);
    add(store, "foreign", stats->foreign);
    (void)json_object_set_new(store, "last_error", stats->last.code ? json_string(stats->last.msg) : json_null());
    return store;
}

int sw_on_control_tiers(void *context, struct sw_rpc_caller *caller, const struct sw_control_args *args,
                        json_t **ret_result, struct sw_err *err) {
    const struct sw_service *service = ((struct sw_control_context *)context)->service;
    struct sw_tier_shown shown;
    (void)caller;
    (void)args;
    (void)err;
    json_t *array = json_array(), *stores = json_array();
    for (unsigned i = 0; sw_tiers_show(service, i, &shown); i++) {
        if (shown.tier)
            (void)json_array_append_new(array, tier_to_json(service->engine, &shown));
        if (shown.tier && shown.has_store)
            (void)json_array_append_new(stores, store_to_json(&shown));
    }
    *ret_result = json_pack("{s:o}", "tiers", array);
    if (json_array_size(stores))
        (void)json_object_set(*ret_result, "stores", stores);
    json_decref(stores);
    return 0;
}
