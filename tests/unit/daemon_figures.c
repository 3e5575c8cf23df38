/* The figures that operators see: each is shown under its own name and in its unit, in metrics and in the control
 * methods. All figures that a test sets differ. */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/control/metrics.h"
#include "daemon/damage.h"
#include "daemon/session/results.h"
#include "daemon/tiers/row.h"
#include "daemon/tiers/tiers.h"
#include "spill/engine_state.h"
#include "spill/tier/nvme/tier_nvme.h"
#include "tests/lib/packets.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static struct sw_test_service service;
static struct sw_test_control control;

static void setup(void) {
    sw_log_set_level(SW_LOG_ERROR);
    sw_test_service_start(&service);
    sw_test_control_start(&control, &service);
}

/* Returns the result of a method without parameters. */
static json_t *ask(const char *method) {
    char line[100];
    (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}", method);
    char *text = sw_test_control_line(&control, line, strlen(line));
    json_t *answer = json_loads(text, 0, NULL), *result = json_incref(json_object_get(answer, "result"));
    ck_assert_ptr_nonnull(result);
    json_decref(answer);
    free(text);
    return result;
}

/* Checks that an object has all members of the expected one, and in its arrays the same. */
static void ck_has(const json_t *found, const char *expected) {
    json_t *members = json_loads(expected, 0, NULL), *value;
    const char *name;
    ck_assert_msg(members != NULL, "no JSON: %s", expected);
    json_object_foreach(members, name, value) {
        const json_t *its = json_object_get(found, name);
        char *text = its ? json_dumps(its, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;
        ck_assert_msg(its && json_equal((json_t *)its, value), "%s is %s", name, text ? text : "not there");
        free(text);
    }
    json_decref(members);
}

static void ck_answers(const char *method, const char *expected) {
    json_t *result = ask(method);
    ck_has(result, expected);
    json_decref(result);
}

/* The same for the only element of the result's array. */
static void ck_lists_one(const char *method, const char *expected) {
    json_t *result = ask(method);
    const json_t *all = json_object_get(result, method);
    ck_assert_uint_eq(json_array_size(all), 1);
    ck_has(json_array_get(all, 0), expected);
    json_decref(result);
}

static void ck_metrics(const char *const *lines, size_t n) {
    char line[200];
    char *text = sw_metrics_text(&service.service, control.context.events);
    ck_assert_ptr_nonnull(text);
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(line, sizeof line, "\n%s\n", lines[i]);
        ck_assert_msg(strstr(text, line) != NULL, "no %s", lines[i]);
    }
    free(text);
}

/* ---- the engine -------------------------------------------------------------------------------------------------- */

START_TEST(counts_of_the_engine) {
    static const char *const metrics[] = {
        "spillway_demotions_total 3",
        "spillway_promotions_total 5",
        "spillway_operations_failed_total 7",
        "spillway_operations_canceled_total 11",
        "spillway_packs_total 13",
        "spillway_compression_ratio 4.000000",
        "spillway_sessions 17",
        "spillway_sessions_limit 256",
        "spillway_draining 1",
        "spillway_gpus 2",
        "spillway_client_frame_bytes 19",
        "spillway_scratch_limit_bytes 536870912",
        "spillway_regions 23",
        "spillway_memories 29",
        "spillway_operations_in_flight 31",
        "spillway_errors_total{name=\"ESTALE\"} 47",
        "spillway_errors_total{name=\"ELOST\"} 53",
    };
    struct sw_engine *engine = service.service.engine;
    struct sw_engine_stats *counters = &engine->counters;
    engine->balance.demotions = 3;
    engine->balance.promotions = 5;
    *counters = (struct sw_engine_stats){.failed_ops = 7,
                                         .canceled_ops = 11,
                                         .packs = 13,
                                         .spills = 37,
                                         .restores = 41,
                                         .spilled_raw_bytes = 4000,
                                         .spilled_stored_bytes = 1000,
                                         .restored_raw_bytes = 43};
    service.service.n_sessions = 17;
    service.service.draining = true;
    service.service.n_gpus = 2;
    service.service.grants.bytes[0] = 19;
    engine->store.regions.n_used = 23;
    engine->n_mems = 29;
    engine->n_ops = 31;
    for (int i = 0; i < SW_ERR_COUNT; i++) {
        service.service.n_errors[i] += strcmp(sw_err_name_at(i), "ESTALE") == 0 ? 47 : 0;
        service.service.n_errors[i] += strcmp(sw_err_name_at(i), "ELOST") == 0 ? 53 : 0;
    }
    for (int i = 0; i < SW_COST_REASON_NR; i++)
        counters->reasons[i] = 100 + (uint64_t)i;
    ck_metrics(metrics, sizeof metrics / sizeof metrics[0]);
    ck_answers("stats", "{\"spills\":37,\"restores\":41,\"packs\":13,\"failed\":7,\"canceled\":11,\"demotions\":3,"
                        "\"promotions\":5,\"spilled_raw_bytes\":4000,\"spilled_stored_bytes\":1000,"
                        "\"restored_raw_bytes\":43,\"operations\":31,\"client_frame_bytes\":19,"
                        "\"errors\":{\"ESTALE\":47,\"ELOST\":53}}");
    ck_answers("status", "{\"state\":\"draining\",\"gpus\":2,\"sessions\":17,\"regions\":23,\"operations\":31,"
                         "\"mapped_memories\":0}");
    ck_answers("drain", "{\"draining\":true,\"sessions\":17,\"regions\":23,\"operations\":31}");
    json_t *answer = ask("stats"), *reasons = json_object_get(answer, "reasons");
    for (int i = 0; i < SW_COST_REASON_NR; i++) {
        const char *text = sw_cost_reason_text((enum sw_cost_reason)i);
        char line[200];
        const char *const lines[] = {line};
        (void)snprintf(line, sizeof line, "spillway_spill_reasons_total{reason=\"%s\"} %d", text, 100 + i);
        ck_metrics(lines, 1);
        ck_assert_int_eq(json_integer_value(json_object_get(reasons, text)), 100 + i);
    }
    json_decref(answer);
}
END_TEST

START_TEST(the_time_since_the_start) {
    service.service.started_us = sw_clock_us() - 5000000;
    char *text = sw_metrics_text(&service.service, control.context.events);
    ck_assert_ptr_nonnull(text);
    const char *seconds = strstr(text, "\nspillway_uptime_seconds ");
    ck_assert_ptr_nonnull(seconds);
    const double uptime_s = strtod(strchr(seconds, ' '), NULL);
    ck_assert_msg(uptime_s >= 5 && uptime_s < 60, "%f", uptime_s);
    free(text);
    json_t *answer = ask("status");
    const json_int_t uptime_us = json_integer_value(json_object_get(answer, "uptime_us"));
    ck_assert(uptime_us >= 5000000 && uptime_us < 60000000);
    json_decref(answer);
}
END_TEST

START_TEST(latencies_and_flows) {
    static const char *const metrics[] = {
        "spillway_latency_seconds_bucket{kind=\"restore\",stage=\"plan\",le=\"5e-05\"} 50",
        "spillway_latency_seconds_bucket{kind=\"restore\",stage=\"plan\",le=\"0.0001\"} 98",
        "spillway_latency_seconds_bucket{kind=\"restore\",stage=\"plan\",le=\"0.00025\"} 100",
        "spillway_latency_seconds_bucket{kind=\"restore\",stage=\"plan\",le=\"+Inf\"} 100",
        "spillway_latency_seconds_sum{kind=\"restore\",stage=\"plan\"} 0.007500",
        "spillway_latency_seconds_count{kind=\"restore\",stage=\"plan\"} 100",
        "spillway_latency_seconds_count{kind=\"spill\",stage=\"plan\"} 0",
        "spillway_operations_total{kind=\"spill\",tier=\"host\",codec=\"raw\"} 3",
        "spillway_raw_bytes_total{kind=\"spill\",tier=\"host\",codec=\"raw\"} 500",
        "spillway_stored_bytes_total{kind=\"spill\",tier=\"host\",codec=\"raw\"} 70",
        "spillway_operations_total{kind=\"restore\",tier=\"device\",codec=\"dict\"} 11",
        "spillway_raw_bytes_total{kind=\"restore\",tier=\"device\",codec=\"dict\"} 1300",
        "spillway_stored_bytes_total{kind=\"restore\",tier=\"device\",codec=\"dict\"} 170",
        "spillway_operations_total{kind=\"restore\",tier=\"host\",codec=\"dict\"} 0",
    };
    struct sw_op_statistics *statistics = &service.service.engine->statistics;
    statistics->latency[SW_OP_KIND_RESTORE][SW_OP_STAGE_PLAN] =
        (struct sw_histogram){.buckets = {50, 48, 2}, .count = 100, .sum_us = 7500};
    statistics->flows[SW_OP_KIND_SPILL][0][SW_CODEC_RAW] = (struct sw_flow){3, 500, 70};
    statistics->flows[SW_OP_KIND_RESTORE][SW_STATISTICS_PACKED][SW_CODEC_DICT] = (struct sw_flow){11, 1300, 170};
    ck_metrics(metrics, sizeof metrics / sizeof metrics[0]);
    ck_answers("stats", "{\"flows\":[{\"kind\":\"spill\",\"tier\":\"host\",\"codec\":\"raw\",\"operations\":3,"
                        "\"raw_bytes\":500,\"stored_bytes\":70},{\"kind\":\"restore\",\"tier\":\"device\","
                        "\"codec\":\"dict\",\"operations\":11,\"raw_bytes\":1300,\"stored_bytes\":170}]}");
    json_t *answer = ask("stats");
    const json_t *latency = json_object_get(answer, "latency");
    ck_has(json_array_get(latency, SW_OP_STAGE_NR + SW_OP_STAGE_PLAN),
           "{\"kind\":\"restore\",\"stage\":\"plan\",\"operations\":100,\"mean_us\":75,\"p50_us\":50,\"p99_us\":250}");
    json_decref(answer);
}
END_TEST

/* ---- tiers ------------------------------------------------------------------------------------------------------- */

static void shown_stats(struct sw_tier *tier, struct sw_tier_stats *ret) {
    const uint64_t first = tier->rank ? 1000 : 100;
    *ret = (struct sw_tier_stats){.capacity_bytes = first + 1,
                                  .backed_bytes = first + 2,
                                  .used_bytes = first + 3,
                                  .held_bytes = first + 4,
                                  .largest_free_bytes = first + 5,
                                  .huge_bytes = first + 6,
                                  .wasted_bytes = first + 11,
                                  .committed_frames = first + 7,
                                  .n_waiting = (unsigned)first + 8,
                                  .growing = true,
                                  .write_bytes_per_s = first + 9,
                                  .read_bytes_per_s = first + 10};
}

static void shown_store(struct sw_tier *tier, struct sw_tier_store_stats *ret) {
    (void)tier;
    *ret = (struct sw_tier_store_stats){.puts = 201,
                                        .gets = 202,
                                        .lists = 203,
                                        .deletes = 204,
                                        .failed_requests = 205,
                                        .repeated_requests = 206,
                                        .sent_bytes = 207,
                                        .received_bytes = 208,
                                        .backlog_frames = 209,
                                        .backlog_bytes = 210,
                                        .buffer_bytes = 211,
                                        .buffer_used_bytes = 212,
                                        .buffer_peak_bytes = 213,
                                        .orphans = 214,
                                        .foreign = 215,
                                        .is_out = 1};
    (void)sw_err_set(&ret->last, -SW_EIO, SW_SCOPE_DAEMON, "it is out");
}

/* Adds a tier behind the first, in a store behind a network, and gives both figures of their own. */
static void show_tiers(void) {
    static struct sw_tier_ops first_ops, store_ops = {.stats = shown_stats, .store_stats = shown_store};
    static struct sw_tier store = {.ops = &store_ops, .rank = 1};
    struct sw_placement *place = &service.service.engine->store.place;
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        if (sw_tier_rows[i]->kind->capabilities & SW_TIER_SHARED)
            store.kind = sw_tier_rows[i]->kind;
    ck_assert_ptr_nonnull(store.kind);
    first_ops = *place->tiers.at[0]->ops;
    first_ops.stats = shown_stats;
    place->tiers.at[0]->ops = &first_ops;
    place->tiers.at[place->tiers.n++] = &store;
    place->limit_bytes[0] = 5000;
    service.service.engine->balance.room_bytes = 301;
}

/* What status and snapshot say for the dry run and for old clients: all that is behind the first tier, and the room in
 * the first one for frames on their way. Packed regions are in no tier. */
START_TEST(tiers_behind_the_first) {
    static struct sw_tier_ops ops = {.stats = shown_stats};
    static struct sw_tier third = {.ops = &ops, .rank = 2, .kind = &sw_tier_nvme_kind};
    struct sw_placement *place = &service.service.engine->store.place;
    char expected[64];
    json_t *alone = ask("tiers");
    ck_has(json_array_get(json_object_get(alone, "tiers"), 0), "{\"tier\":\"host\"}");
    ck_assert_ptr_null(json_object_get(json_array_get(json_object_get(alone, "tiers"), 0), "leaving_bytes"));
    json_decref(alone); /* nothing can leave it */
    show_tiers();
    ck_answers("status", "{\"nvme_used_bytes\":1003,\"nvme_capacity_bytes\":1001}");
    place->tiers.at[place->tiers.n++] = &third;
    ck_answers("status", "{\"nvme_used_bytes\":2006,\"nvme_capacity_bytes\":2002}");
    service.service.tiers = place->tiers;
    ck_assert_uint_gt(sw_tiers_staging_bytes(&service.service), 0);
    (void)snprintf(expected, sizeof expected, "{\"staging_bytes\":%llu}",
                   (unsigned long long)sw_tiers_staging_bytes(&service.service));
    json_t *snapshot = ask("snapshot");
    ck_has(json_object_get(snapshot, "host_tier"), expected);
    json_decref(snapshot);
    char *text = sw_metrics_text(&service.service, control.context.events);
    ck_assert(text && !strstr(text, "spillway_tier_capacity_bytes{tier=\"device\"}"));
    free(text);
}
END_TEST

START_TEST(tiers_and_stores) {
    static const char *const metrics[] = {
        "spillway_tier_capacity_bytes{tier=\"host\"} 101",
        "spillway_tier_backed_bytes{tier=\"host\"} 102",
        "spillway_tier_used_bytes{tier=\"host\"} 103",
        "spillway_tier_largest_free_bytes{tier=\"host\"} 105",
        "spillway_tier_frames{tier=\"host\"} 107",
        "spillway_tier_write_bytes_per_second{tier=\"remote\"} 1009",
        "spillway_tier_read_bytes_per_second{tier=\"remote\"} 1010",
        "spillway_tier_capacity_bytes{tier=\"remote\"} 1001",
        "spillway_tier_capacity_bytes{tier=\"nvme\"} 0",
        "spillway_tier_waiting 108",
        "spillway_operations_total{kind=\"spill\",tier=\"remote\",codec=\"raw\"} 17",
        "spillway_operations_total{kind=\"spill\",tier=\"nvme\",codec=\"raw\"} 0",
        "spillway_tier_limit_bytes 5000",
        "spillway_tier_watermark_bytes{mark=\"high\"} 4500",
        "spillway_tier_watermark_bytes{mark=\"low\"} 4000",
        "spillway_store_puts_total{tier=\"remote\"} 201",
        "spillway_store_gets_total{tier=\"remote\"} 202",
        "spillway_store_lists_total{tier=\"remote\"} 203",
        "spillway_store_deletes_total{tier=\"remote\"} 204",
        "spillway_store_failed_requests_total{tier=\"remote\"} 205",
        "spillway_store_sent_bytes_total{tier=\"remote\"} 207",
        "spillway_store_received_bytes_total{tier=\"remote\"} 208",
        "spillway_store_backlog_bytes{tier=\"remote\"} 210",
        "spillway_store_buffer_used_bytes{tier=\"remote\"} 212",
        "spillway_store_orphans{tier=\"remote\"} 214",
        "spillway_store_out{tier=\"remote\"} 1",
    };
    show_tiers();
    service.service.engine->statistics.flows[SW_OP_KIND_SPILL][1][SW_CODEC_RAW].operations = 17;
    ck_metrics(metrics, sizeof metrics / sizeof metrics[0]);
    json_t *answer = ask("tiers");
    const json_t *tiers = json_object_get(answer, "tiers"), *stores = json_object_get(answer, "stores");
    ck_assert(json_array_size(tiers) == 2 && json_array_size(stores) == 1);
    ck_has(json_array_get(tiers, 0),
           "{\"tier\":\"host\",\"capacity_bytes\":101,\"backed_bytes\":102,\"used_bytes\":103,"
           "\"largest_free_bytes\":105,\"frames\":107,\"limit_bytes\":5000,"
           "\"high_bytes\":4500,\"low_bytes\":4000,\"leaving_bytes\":301,\"waiting\":108,"
           "\"growing\":true}");
    ck_has(json_array_get(tiers, 1), "{\"tier\":\"remote\",\"capacity_bytes\":1001,\"backed_bytes\":1002,"
                                     "\"used_bytes\":1003,\"largest_free_bytes\":1005,\"frames\":1007,"
                                     "\"write_bytes_per_s\":1009,\"read_bytes_per_s\":1010}");
    ck_assert_ptr_null(json_object_get(json_array_get(tiers, 1), "limit_bytes"));
    ck_has(json_array_get(stores, 0),
           "{\"tier\":\"remote\",\"out\":true,\"writers\":\"single\",\"backlog_bytes\":210,\"puts\":201,\"gets\":202,"
           "\"lists\":203,\"deletes\":204,\"failed\":205,\"repeated\":206,\"sent_bytes\":207,\"received_bytes\":208,"
           "\"buffer_used_bytes\":212,\"buffer_peak_bytes\":213,\"wasted_bytes\":1011,\"orphans\":214,\"foreign\":215,"
           "\"last_error\":\"it is out\"}");
    json_decref(answer);
    ck_answers("status", "{\"host_used_bytes\":103,\"host_capacity_bytes\":101,\"nvme_used_bytes\":1003,"
                         "\"nvme_capacity_bytes\":1001}");
}
END_TEST

/* ---- sessions, tenants, regions ---------------------------------------------------------------------------------- */

static struct sw_list sessions;

/* A session as the server has it. */
static struct sw_session *add_session(void) {
    static bool closed;
    int peer;
    struct sw_session *ret = sw_test_service_session(&service, &peer, &closed);
    sw_list_init(&sessions);
    sw_list_append(&sessions, &ret->node);
    service.service.sessions = &sessions;
    return ret;
}

START_TEST(sessions_and_tenants) {
    char expected[600];
    struct sw_session *session = add_session();
    session->n_requests = 7;
    (void)strcpy(session->client, "engine");
    session->opened_us = sw_clock_us() - 5000000;
    session->owner->n_ops = 11;
    session->owner->n_regions = 13;
    session->owner->n_mems = 17;
    session->owner->raw_bytes = 1900;
    session->owner->stored_bytes = 230;
    (void)snprintf(expected, sizeof expected,
                   "{\"session\":1,\"pid\":%d,\"uid\":%u,\"client\":\"engine\",\"requests\":7,\"operations\":11,"
                   "\"regions\":13,\"memories\":17,\"raw_bytes\":1900,\"stored_bytes\":230}",
                   (int)getpid(), (unsigned)geteuid());
    ck_lists_one("sessions", expected);
    json_t *answer = ask("sessions");
    const json_int_t open_us =
        json_integer_value(json_object_get(json_array_get(json_object_get(answer, "sessions"), 0), "open_us"));
    ck_assert(open_us >= 5000000 && open_us < 60000000);
    json_decref(answer);
    struct sw_tenant *tenant = session->tenant;
    atomic_store(&tenant->quota.bytes, 31);
    tenant->quota.n_regions = 37;
    tenant->n_operations = 41;
    tenant->n_sessions = 43;
    atomic_store(&tenant->quota.kept.used_bytes, 47);
    const uint64_t limits[SW_LIMIT_NR] = {[SW_LIMIT_BYTES] = 131,
                                          [SW_LIMIT_REGIONS] = 137,
                                          [SW_LIMIT_DURABLE_REGIONS] = 0,
                                          [SW_LIMIT_SESSIONS] = 143,
                                          [SW_LIMIT_OPERATIONS] = 141,
                                          [SW_LIMIT_BOOKKEEPING_BYTES] = 147,
                                          [SW_LIMIT_PREFER] = SW_PREFER_ROOM};
    memcpy(tenant->limits, limits, sizeof limits);
    (void)snprintf(expected, sizeof expected,
                   "{\"uid\":%u,\"quota\":null,\"stored_bytes\":31,\"regions\":37,\"durable\":0,\"sessions\":43,"
                   "\"operations\":41,\"bookkeeping_bytes\":47,\"limit_bytes\":131,\"limit_regions\":137,"
                   "\"limit_durable\":0,\"limit_sessions\":143,\"limit_operations\":141,"
                   "\"limit_bookkeeping_bytes\":147,\"prefer\":\"room\"}",
                   (unsigned)geteuid());
    ck_lists_one("tenants", expected);
    memset(tenant->limits, 0, sizeof tenant->limits);
    ck_lists_one("tenants", "{\"limit_bytes\":null,\"limit_regions\":null,\"limit_durable\":0,\"limit_sessions\":null,"
                            "\"limit_operations\":null,\"limit_bookkeeping_bytes\":null,\"prefer\":\"none\"}");
    service.config.quotas.n = 2;
    service.config.quotas.rows[0] = (struct sw_quota_row){.id = 1234, .is_group = true};
    service.config.quotas.rows[1] = (struct sw_quota_row){.id = 1234};
    tenant->row = 0;
    ck_lists_one("tenants", "{\"quota\":\"gid 1234\"}");
    tenant->row = 1;
    ck_lists_one("tenants", "{\"quota\":\"uid 1234\"}");
    session->closing = true; /* it has no owner any more */
    answer = ask("sessions");
    ck_assert_uint_eq(json_array_size(json_object_get(answer, "sessions")), 0);
    json_decref(answer);
}
END_TEST

/* Checks a metric of the tenants: of each uid, and of the others together. rest 0: "other" is 0. */
static void ck_tenants(unsigned most, const uint64_t *bytes, unsigned n) {
    char line[100];
    const char *const lines[] = {line};
    uint64_t rest = 0;
    service.config.metrics_tenants = most;
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(line, sizeof line, "spillway_tenant_stored_bytes{uid=\"%u\"} %llu", 1000 + i,
                       (unsigned long long)bytes[i]);
        unsigned n_more = 0;
        for (unsigned k = 0; k < n; k++)
            n_more += bytes[k] > bytes[i];
        char *text = sw_metrics_text(&service.service, control.context.events);
        ck_assert_msg((strstr(text, line) != NULL) == (n_more < most), "%u: %s", most, line);
        free(text);
        rest += n_more < most ? 0 : bytes[i];
    }
    (void)snprintf(line, sizeof line, "spillway_tenant_stored_bytes{uid=\"other\"} %llu", (unsigned long long)rest);
    ck_metrics(lines, 1);
}

/* The tenants with the most bytes have figures of their own, as many as the option says. */
START_TEST(tenants_in_metrics) {
    static const uint64_t bytes[] = {10, 400, 2000, 30};
    enum { N = sizeof bytes / sizeof bytes[0] };
    for (unsigned i = 0; i < N; i++) {
        struct sw_tenant *tenant;
        ck_assert_int_eq(sw_tenant_join(&service.service, &(struct sw_peer){.uid = 1000 + i}, -1, &tenant, NULL), 0);
        atomic_store(&tenant->quota.bytes, bytes[i]);
        tenant->quota.n_regions = 50 + i;
        tenant->n_operations = 60 + i;
        atomic_store(&tenant->quota.kept.used_bytes, 70 + i);
    }
    for (unsigned most = 0; most <= N + 1; most++)
        ck_tenants(most, bytes, N);
    static const char *const metrics[] = {
        "spillway_tenant_regions{uid=\"1002\"} 52",           "spillway_tenant_durable_regions{uid=\"1002\"} 0",
        "spillway_tenant_sessions{uid=\"1002\"} 1",           "spillway_tenant_operations{uid=\"1002\"} 62",
        "spillway_tenant_bookkeeping_bytes{uid=\"1002\"} 72", "spillway_tenant_sessions{uid=\"other\"} 0",
    };
    ck_metrics(metrics, sizeof metrics / sizeof metrics[0]);
    service.config.metrics_tenants = 1;
    static const char *const sums[] = {
        "spillway_tenant_regions{uid=\"other\"} 154", "spillway_tenant_sessions{uid=\"other\"} 3",
        "spillway_tenant_operations{uid=\"other\"} 184", "spillway_tenant_bookkeeping_bytes{uid=\"other\"} 214"};
    ck_metrics(sums, sizeof sums / sizeof sums[0]);
}
END_TEST

static struct sw_region *add_region(struct sw_owner *owner, enum sw_region_state state, uint64_t first) {
    struct sw_region *ret = sw_region_acquire(&service.service.engine->store.regions, owner);
    ck_assert_ptr_nonnull(ret);
    ret->state = state;
    ret->raw_bytes = first;
    ret->stored_bytes = first + 1;
    ret->used_us = first + 2;
    ret->priority = (uint8_t)(first + 3);
    ret->codec = SW_CODEC_DICT;
    ret->reason = SW_COST_CLIENT;
    return ret;
}

/* A snapshot has what is stored: also what is being restored. Codecs are shown of that, too. */
START_TEST(regions_and_snapshots) {
    struct sw_session *session = add_session();
    for (int i = 0; i < SW_REGION_STATE_NR; i++)
        (void)add_region(session->owner, (enum sw_region_state)i, 100 + 10 * (uint64_t)i);
    json_t *answer = ask("regions"), *snapshot = ask("snapshot");
    const json_t *all = json_object_get(answer, "regions"), *stored = json_object_get(snapshot, "regions");
    size_t n_stored = 0;
    char expected[400];
    ck_assert_uint_eq(json_array_size(all), SW_REGION_STATE_NR);
    for (unsigned i = 0; i < SW_REGION_STATE_NR; i++) {
        const bool is_stored = i == SW_REGION_OUT || i == SW_REGION_RESTORING;
        const unsigned first = 100 + 10 * i;
        (void)snprintf(
            expected, sizeof expected,
            "{\"region\":\"%u:1\",\"session\":1,\"uid\":%u,\"state\":\"%s\",\"tier\":\"host\",\"raw_bytes\":%u,"
            "\"stored_bytes\":%u,\"codec\":\"%s\",\"coder\":\"%s\",\"priority\":%u,\"pinned\":false,"
            "\"moving\":false}",
            i, (unsigned)geteuid(), sw_region_state_name((enum sw_region_state)i), first, first + 1,
            is_stored ? "dict" : "none", is_stored ? "client" : "none", first + 3);
        ck_has(json_array_get(all, i), expected);
        if (!is_stored)
            continue;
        (void)snprintf(expected, sizeof expected,
                       "{\"region\":\"%u:1\",\"stored_bytes\":%u,\"used_us\":%u,\"tier\":\"host\",\"priority\":%u,"
                       "\"pinned\":false}",
                       i, first + 1, first + 2, first + 3);
        ck_has(json_array_get(stored, n_stored++), expected);
    }
    ck_assert_uint_eq(json_array_size(stored), n_stored);
    json_decref(answer);
    json_decref(snapshot);
}
END_TEST

/* ---- the rest ---------------------------------------------------------------------------------------------------- */

/* A drain to a tier behind is a drain: no new spills either. If it has failed, it says why. */
START_TEST(a_drain_to_a_tier) {
    char line[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\",\"params\":{\"to\":\"remote\"}}";
    show_tiers();
    free(sw_test_control_line(&control, line, sizeof line - 1));
    ck_answers("drain", "{\"draining\":true,\"to\":\"remote\",\"left_bytes\":0}");
    ck_answers("status", "{\"state\":\"draining\"}");
    ck_assert(service.service.draining);
    json_t *result = ask("drain");
    ck_assert_ptr_null(json_object_get(result, "error"));
    json_decref(result);
    (void)sw_err_set(&service.service.engine->balance.drain_err, -SW_EIO, SW_SCOPE_REQUEST, "the store is down");
    ck_answers("drain", "{\"draining\":true,\"error\":\"the store is down\"}");
    char both[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\",\"params\":{\"mode\":\"off\",\"to\":\"remote\"}}",
         off[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\",\"params\":[\"off\"]}";
    char *answer = sw_test_control_line(&control, both, sizeof both - 1);
    ck_assert(answer && strstr(answer, "not with mode off"));
    free(answer);
    ck_answers("drain", "{\"draining\":true,\"to\":\"remote\"}");
    free(sw_test_control_line(&control, off, sizeof off - 1));
    result = ask("drain");
    ck_assert(json_is_false(json_object_get(result, "draining")));
    ck_assert(!json_object_get(result, "to") && !json_object_get(result, "error"));
    json_decref(result);
}
END_TEST

/* A reply has 32 bits for the microseconds; in version 9 it has 64. */
START_TEST(long_operations) {
    static const uint64_t times_us[] = {7, UINT32_MAX - 1, UINT32_MAX, UINT64_C(5000000000), UINT64_MAX};
    static struct sw_results_reply reply;
    struct sw_result result = {.raw_bytes = 1};
    for (size_t i = 0; i < sizeof times_us / sizeof times_us[0]; i++) {
        const struct sw_results results = {.all = &result, .n = 1, .service_us = times_us[i]};
        sw_results_fill(&reply, SW_PROTO_VERSION, SW_MSG_BUILD, &results);
        ck_assert_uint_eq(reply.msg.u.results.service_us, times_us[i] < UINT32_MAX ? times_us[i] : UINT32_MAX);
        sw_results_fill(&reply, SW_PROTO_OLDEST_VERSION, SW_MSG_SPILL, &results);
        ck_assert_uint_eq(reply.msg.u.result.service_us, times_us[i]);
        sw_results_fill(&reply, SW_PROTO_OLDEST_VERSION, SW_MSG_SPILL_BATCH, &results);
        ck_assert_uint_eq(reply.msg.u.result_batch.service_us, times_us[i]);
    }
}
END_TEST

/* Results of a packet share texts. If one differs, in any of them, each result has its own. */
START_TEST(results_that_differ_in_one_text) {
    static struct sw_results_reply reply;
    static const char *const texts[] = {"a", "b", "c", "d", "e"};
    const struct sw_result same = {
        .codec = texts[0], .tier = texts[1], .reason = texts[2], .coder = texts[3], .state = texts[4]};
    for (int i = 0; i < 5; i++) {
        struct sw_result all[] = {same, same, same};
        const char **fields[] = {&all[1].codec, &all[1].tier, &all[1].reason, &all[1].coder, &all[1].state};
        *fields[i] = "other";
        sw_results_fill(&reply, SW_PROTO_VERSION, SW_MSG_BUILD, &(struct sw_results){.all = all, .n = 3});
        ck_assert_uint_eq(reply.msg.u.results.n_texts, 6);
        for (unsigned k = 0; k < 3; k++) {
            const struct sw_wire_result *wire = &reply.msg.u.results.results[k];
            const uint8_t numbers[] = {wire->codec, wire->tier, wire->reason, wire->coder, wire->state};
            for (int j = 0; j < 5; j++)
                ck_assert_str_eq(sw_test_text(&reply.msg, numbers[j]), k == 1 && j == i ? "other" : texts[j]);
        }
    }
}
END_TEST

/* Each result that failed has its own error, and says what it makes unusable. */
START_TEST(results_that_failed) {
    static struct sw_results_reply reply;
    struct sw_result all[3] = {{.raw_bytes = 1}, {.raw_bytes = 2}, {.raw_bytes = 3}};
    struct sw_results results = {.all = all, .n = 3};
    sw_results_fail(&results, 1, &(struct sw_err){.code = -SW_ELOST, .scope = SW_SCOPE_REGION});
    sw_results_fail(&results, 2, &(struct sw_err){.code = -SW_EGPU, .scope = SW_SCOPE_DEVICE});
    sw_results_fill(&reply, SW_PROTO_VERSION, SW_MSG_BUILD, &results);
    static const int codes[] = {0, -SW_ELOST, -SW_EGPU};
    static const enum sw_scope scopes[] = {SW_SCOPE_REQUEST, SW_SCOPE_REGION, SW_SCOPE_DEVICE};
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_test_result_code(&reply.msg, i), codes[i]);
        ck_assert_uint_eq(reply.msg.u.results.results[i].scope, scopes[i]);
    }
}
END_TEST

static unsigned n_lost_lines, n_last_lines;
static char last_line[1024];

static void count_lost(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    (void)snprintf(last_line, sizeof last_line, "%s", line);
    n_lost_lines += strstr(line, "event=region.lost") != NULL;
    n_last_lines += strstr(line, "further lost regions") != NULL;
}

/* 200 lines name lost regions, and the last one says that there are more. */
START_TEST(many_lost_regions) {
    const struct sw_observer observer = sw_damage_observer(&service.service);
    const struct sw_lost_region lost = {.name = "a", .raw_bytes = 1, .n_chunks = 1, .n_gone = 1};
    sw_log_set_tap(count_lost, NULL);
    for (unsigned i = 1; i <= 205; i++) {
        observer.lost_region(&lost, observer.arg);
        ck_assert_uint_eq(n_lost_lines, i < 200 ? i : 200);
        ck_assert_uint_eq(n_last_lines, i >= 200);
    }
    sw_log_set_tap(NULL, NULL);
}
END_TEST

/* Damage is described so that it can be found, in a folder or in the service's memory. */
START_TEST(damage_is_described) {
    const struct sw_observer observer = sw_damage_observer(&service.service);
    const struct sw_err cause = {.code = -SW_ECHECKSUM, .msg = "it is not what was written"};
    sw_log_set_tap(count_lost, NULL);
    observer.lost_region(
        &(struct sw_lost_region){
            .region = {3, 4}, .uid = 5, .name = "orders", .raw_bytes = 6, .n_chunks = 9, .n_gone = 7, .n_away = 8},
        observer.arg);
    ck_assert_ptr_nonnull(strstr(last_line, " region=3:4 uid=5 name=\"orders\" bytes=6 chunks=9 not_in_memory=7 "
                                            "not_on_disk=8"));
    observer.bad_frame(&(struct sw_bad_frame){.tier = "nvme",
                                              .file = "data-1",
                                              .offset = 4096,
                                              .bytes = 100,
                                              .region = {3, 4},
                                              .chunk = 5,
                                              .n_chunks = 6,
                                              .err = &cause},
                       observer.arg);
    ck_assert_ptr_nonnull(strstr(last_line, " tier=nvme file=data-1 offset=4096 bytes=100 region=3:4 chunk=5 chunks=6 "
                                            "name=ECHECKSUM text=\"it is not what was written\""));
    sw_log_set_tap(NULL, NULL);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_figures");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, counts_of_the_engine);
    tcase_add_test(tests, the_time_since_the_start);
    tcase_add_test(tests, latencies_and_flows);
    tcase_add_test(tests, tiers_and_stores);
    tcase_add_test(tests, tiers_behind_the_first);
    tcase_add_test(tests, sessions_and_tenants);
    tcase_add_test(tests, tenants_in_metrics);
    tcase_add_test(tests, regions_and_snapshots);
    tcase_add_test(tests, a_drain_to_a_tier);
    tcase_add_test(tests, long_operations);
    tcase_add_test(tests, results_that_differ_in_one_text);
    tcase_add_test(tests, results_that_failed);
    tcase_add_test(tests, many_lost_regions);
    tcase_add_test(tests, damage_is_described);
    Suite *suite = suite_create("daemon_figures");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
