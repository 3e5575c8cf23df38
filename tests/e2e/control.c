/* The control socket of a real spillwayd: what its methods show and change. control_peers.c has its connections. */
#include "ipc/spillway.h"
#include "tests/lib/control_rig.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS };

/* ---- looking ----------------------------------------------------------------------------------------------------- */

START_TEST(status_sessions_and_tiers) {
    const struct spillway_region region = sw_rig_spill(SW_RIG_BYTES);
    json_t *status = sw_control_ask(sw_rig.ctl, "status", NULL);
    ck_assert_str_eq(sw_rig_text(status, "version"), SW_VERSION);
    ck_assert_str_eq(sw_rig_text(status, "state"), "serving");
    ck_assert_int_eq(sw_rig_number(status, "pid"), sw_rig.served.pid);
    ck_assert_int_eq(sw_rig_number(status, "sessions"), 1);
    ck_assert_int_eq(sw_rig_number(status, "regions"), 1);
    ck_assert_str_eq(sw_rig_text(status, "control_socket"), sw_rig.served.control);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(status, "devices"), 0)), "host");
    json_decref(status);
    json_t *sessions = sw_control_ask(sw_rig.ctl, "sessions", NULL);
    const json_t *session = json_array_get(json_object_get(sessions, "sessions"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(sessions, "sessions")), 1);
    ck_assert_int_eq(sw_rig_number(session, "pid"), getpid());
    ck_assert_int_eq(sw_rig_number(session, "uid"), (long long)getuid());
    ck_assert_int_eq(sw_rig_number(session, "regions"), 1);
    ck_assert_int_eq(sw_rig_number(session, "raw_bytes"), SW_RIG_BYTES);
    json_decref(sessions);
    json_t *tiers = sw_control_ask(sw_rig.ctl, "tiers", NULL);
    const json_t *host = json_array_get(json_object_get(tiers, "tiers"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(tiers, "tiers")), 1);
    ck_assert_str_eq(sw_rig_text(host, "tier"), "host");
    ck_assert_int_eq(sw_rig_number(host, "capacity_bytes"), 64 << 20);
    ck_assert_int_gt(sw_rig_number(host, "used_bytes"), 0);
    ck_assert_int_eq(sw_rig_number(host, "high_bytes"), (long long)(64 << 20) / 100 * 90);
    json_decref(tiers);
    ck_assert_int_eq(sw_rig_restore(region), 0);
}
END_TEST

START_TEST(stats_count) {
    const struct spillway_region region = sw_rig_spill(SW_RIG_BYTES);
    ck_assert_int_eq(sw_rig_restore(region), 0);
    ck_assert_int_eq(sw_rig_restore(region), -SPILLWAY_ESTALE);
    json_t *stats = sw_control_ask(sw_rig.ctl, "stats", NULL);
    ck_assert_int_eq(sw_rig_number(stats, "spills"), 1);
    ck_assert_int_eq(sw_rig_number(stats, "restores"), 1);
    ck_assert_int_eq(sw_rig_number(stats, "spilled_raw_bytes"), SW_RIG_BYTES);
    ck_assert_int_eq(sw_rig_number(json_object_get(stats, "errors"), "ESTALE"), 1);
    size_t i;
    json_t *row;
    unsigned n_whole = 0, n_flows = 0;
    json_array_foreach(json_object_get(stats, "latency"), i, row) {
        const bool whole = strcmp(sw_rig_text(row, "stage"), "whole") == 0;
        n_whole += whole && sw_rig_number(row, "operations") == 1 && sw_rig_number(row, "mean_us") > 0;
    }
    json_array_foreach(json_object_get(stats, "flows"), i, row) n_flows +=
        strcmp(sw_rig_text(row, "tier"), "host") == 0 && sw_rig_number(row, "raw_bytes") == SW_RIG_BYTES;
    ck_assert_uint_eq(n_whole, 2);
    ck_assert_uint_eq(n_flows, 2);
    json_decref(stats);
}
END_TEST

/* Regions that a filter lets through, over all pages. */
static unsigned count_regions(const char *filter, unsigned limit) {
    char params[128];
    unsigned n = 0;
    for (long long cursor = 0; cursor >= 0;) {
        (void)snprintf(params, sizeof params, "{\"limit\":%u,\"cursor\":%lld%s%s}", limit, cursor, filter[0] ? "," : "",
                       filter);
        json_t *page = sw_control_ask(sw_rig.ctl, "regions", params);
        const size_t size = json_array_size(json_object_get(page, "regions"));
        ck_assert_uint_le(size, limit);
        n += (unsigned)size;
        cursor = json_object_get(page, "next") ? sw_rig_number(page, "next") : -1;
        json_decref(page);
    }
    return n;
}

START_TEST(regions_are_listed_by_page_and_filter) {
    char filter[64];
    for (unsigned i = 0; i < 25; i++)
        (void)sw_rig_spill(1000 + i);
    ck_assert_uint_eq(count_regions("", 1000), 25);
    ck_assert_uint_eq(count_regions("", 25), 25);
    ck_assert_uint_eq(count_regions("", 24), 25);
    ck_assert_uint_eq(count_regions("", 1), 25);
    ck_assert_uint_eq(count_regions("\"tier\":\"host\",\"state\":\"out\"", 7), 25);
    ck_assert_uint_eq(count_regions("\"tier\":\"nvme\"", 7), 0);
    ck_assert_uint_eq(count_regions("\"state\":\"lost\"", 7), 0);
    (void)snprintf(filter, sizeof filter, "\"uid\":%u", (unsigned)getuid());
    ck_assert_uint_eq(count_regions(filter, 7), 25);
    ck_assert_uint_eq(count_regions("\"uid\":4294967294", 7), 0);
    ck_assert_uint_eq(count_regions("\"session\":1", 7), 25);
    ck_assert_uint_eq(count_regions("\"session\":2", 7), 0);
    json_t *page = sw_control_ask(sw_rig.ctl, "regions", "{\"cursor\":1000000}");
    ck_assert(json_array_size(json_object_get(page, "regions")) == 0 && !json_object_get(page, "next"));
    json_decref(page);
}
END_TEST

START_TEST(dropped_regions_are_gone) {
    const struct spillway_region region = sw_rig_spill(SW_RIG_BYTES);
    char params[64];
    (void)snprintf(params, sizeof params, "[\"%u:%u\"]", region.slot, region.generation);
    json_decref(sw_control_ask(sw_rig.ctl, "drop", params));
    (void)sw_control_ck_fails(sw_rig.ctl, "drop", params, SW_ESTALE);
    (void)sw_control_ck_fails(sw_rig.ctl, "drop", "[\"4000000000:1\"]", SW_ENOENT);
    (void)sw_control_ck_fails(sw_rig.ctl, "drop", "[\"0:0\"]", SW_ENOENT);
    ck_assert_int_eq(sw_rig_restore(region), -SPILLWAY_ESTALE);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "status", NULL, "host_used_bytes"), 0);
}
END_TEST

/* It has no session any more, but a name and a uid. */
START_TEST(durable_regions_are_listed_and_dropped) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    char params[80];
    ck_assert_int_eq(spillway_spill(sw_rig.client, SW_REQUEST(SW_ONE(sw_rig.data, 1000), .name = "orders"), 1, &ticket,
                                    &sw_rig.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &sw_rig.error), 0);
    spillway_close(sw_rig.client);
    while (sw_control_number(sw_rig.ctl, "status", NULL, "sessions") > 0)
        ;
    sw_rig.client = sw_served_connect(&sw_rig.served);
    (void)snprintf(params, sizeof params, "{\"uid\":%u}", (unsigned)getuid());
    json_t *page = sw_control_ask(sw_rig.ctl, "regions", params);
    const json_t *found = json_array_get(json_object_get(page, "regions"), 0);
    ck_assert_str_eq(sw_rig_text(found, "name"), "orders");
    ck_assert(json_is_null(json_object_get(found, "session")));
    ck_assert_int_eq(sw_rig_number(found, "uid"), getuid());
    (void)snprintf(params, sizeof params, "[\"%s\"]", sw_rig_text(found, "region"));
    json_decref(page);
    json_decref(sw_control_ask(sw_rig.ctl, "drop", params));
    ck_assert_int_eq(spillway_adopt(sw_rig.client, "orders", &region, &sw_rig.error), -SPILLWAY_ENOENT);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "status", NULL, "host_used_bytes"), 0);
}
END_TEST

/* A region is dropped by its name. Its user's uid is needed only if several users have the name. */
START_TEST(durable_regions_are_dropped_by_name) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    char params[80];
    ck_assert_int_eq(spillway_spill(sw_rig.client, SW_REQUEST(SW_ONE(sw_rig.data, 1000), .name = "orders"), 1, &ticket,
                                    &sw_rig.error),
                     0);
    ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &sw_rig.error), 0);
    spillway_ticket_free(ticket);
    (void)snprintf(params, sizeof params, "{\"name\":\"orders\",\"uid\":%u}", (unsigned)getuid() + 1);
    (void)sw_control_ck_fails(sw_rig.ctl, "drop", params, SW_ENOENT);
    (void)sw_control_ck_fails(sw_rig.ctl, "demote", "{\"name\":\"orders\"}", SW_ENOTSUP); /* no tier behind */
    (void)sw_control_ck_fails(sw_rig.ctl, "spill", "{\"name\":\"orders\"}", SW_ENOTSUP);
    json_decref(sw_control_ask(sw_rig.ctl, "promote", "{\"name\":\"orders\"}"));
    (void)snprintf(params, sizeof params, "{\"name\":\"orders\",\"uid\":%u}", (unsigned)getuid());
    json_decref(sw_control_ask(sw_rig.ctl, "drop", params));
    ck_assert_int_eq(spillway_adopt(sw_rig.client, "orders", &region, &sw_rig.error), -SPILLWAY_ENOENT);
}
END_TEST

static bool has_metric(const char *line) {
    json_t *answer = sw_control_ask(sw_rig.ctl, "metrics", NULL);
    const bool has = strstr(json_string_value(answer), line) != NULL;
    json_decref(answer);
    return has;
}

/* Tenants beyond the cap have no labels of their own. */
START_TEST(metrics_name_few_tenants) {
    const struct spillway_region region = sw_rig_spill(SW_RIG_BYTES);
    char line[96];
    (void)snprintf(line, sizeof line, "\nspillway_tenant_regions{uid=\"%u\"} 1\n", (unsigned)getuid());
    ck_assert(has_metric(line) && has_metric("\nspillway_tenant_regions{uid=\"other\"} 0\n"));
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"metrics_tenants\",0]"));
    ck_assert(!has_metric(line) && has_metric("\nspillway_tenant_regions{uid=\"other\"} 1\n"));
    ck_assert_int_eq(sw_rig_restore(region), 0);
}
END_TEST

static const json_t *find_tenant(const json_t *answer) {
    const json_t *all = json_object_get(answer, "tenants");
    ck_assert_uint_eq(json_array_size(all), 1);
    ck_assert_int_eq(sw_rig_number(json_array_get(all, 0), "uid"), getuid());
    return json_array_get(all, 0);
}

/* A quota is set while the service runs, holds at once, and is shown with what the tenant has. */
START_TEST(tenants_have_quotas) {
    struct spillway_region other, region = sw_rig_spill(SW_RIG_BYTES);
    char params[128];
    json_t *answer = sw_control_ask(sw_rig.ctl, "tenants", NULL);
    const json_t *tenant = find_tenant(answer);
    const long long stored = sw_rig_number(tenant, "stored_bytes");
    ck_assert_int_gt(stored, 0);
    ck_assert_int_eq(sw_rig_number(tenant, "regions"), 1);
    ck_assert_int_eq(sw_rig_number(tenant, "sessions"), 1);
    ck_assert(json_is_null(json_object_get(tenant, "quota")) && json_is_null(json_object_get(tenant, "limit_bytes")));
    ck_assert_int_eq(sw_rig_number(tenant, "limit_durable"), 1024);
    json_decref(answer);
    (void)snprintf(params, sizeof params, "[\"quotas\",[{\"gid\":%u,\"bytes\":%lld,\"durable_regions\":0}]]",
                   (unsigned)getgid(), stored);
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", params));
    answer = sw_control_ask(sw_rig.ctl, "tenants", NULL);
    tenant = find_tenant(answer);
    (void)snprintf(params, sizeof params, "gid %u", (unsigned)getgid());
    ck_assert_str_eq(sw_rig_text(tenant, "quota"), params);
    ck_assert_int_eq(sw_rig_number(tenant, "limit_bytes"), stored);
    ck_assert_int_eq(sw_rig_number(tenant, "limit_durable"), 0);
    json_decref(answer);
    ck_assert_int_eq(sw_rig_try_spill(1000, &other), -SPILLWAY_ETENANTBYTES);
    ck_assert_int_eq(sw_rig_restore(region), 0);
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"quotas\",[]]"));
    ck_assert_int_eq(sw_rig_try_spill(1000, &other), 0);
}
END_TEST

static void ck_event_has_name(struct sw_ctl *watcher, const char *event) {
    json_t *params = sw_control_event(watcher, event);
    ck_assert_str_eq(sw_rig_text(params, "region_name"), "or\"ders");
    json_decref(params);
}

/* An id alone does not say which region it is. */
START_TEST(events_name_durable_regions) {
    struct sw_ctl *watcher = sw_control_connect(&sw_rig.served);
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    json_decref(sw_control_ask(watcher, "events", NULL));
    for (int i = 0; i < 2; i++) { /* the second one finds the name taken */
        ck_assert_int_eq(spillway_spill(sw_rig.client, SW_REQUEST(SW_ONE(sw_rig.data, 1000), .name = "or\"ders"), 1,
                                        &ticket, &sw_rig.error),
                         0);
        ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &sw_rig.error), i ? -SPILLWAY_EEXIST : 0);
        spillway_ticket_free(ticket);
        ck_event_has_name(watcher, i ? "request.failed" : "spill.done");
    }
    ck_assert_int_eq(spillway_adopt(sw_rig.client, "or\"ders", &region, &sw_rig.error), 0);
    ck_event_has_name(watcher, "region.adopted");
    ck_assert_int_eq(sw_rig_restore(region), 0);
    ck_event_has_name(watcher, "restore.done");
    json_t *event;
    (void)sw_rig_spill(1000);
    event = sw_control_event(watcher, "spill.done");
    ck_assert_ptr_null(json_object_get(event, "region_name"));
    json_decref(event);
    sw_ctl_close(watcher);
}
END_TEST

/* ---- changing ---------------------------------------------------------------------------------------------------- */

START_TEST(drained_service_takes_no_spills) {
    struct spillway_region region = sw_rig_spill(SW_RIG_BYTES), other;
    json_decref(sw_control_ask(sw_rig.ctl, "drain", "[\"on\"]"));
    ck_assert_int_eq(sw_rig_try_spill(1000, &other), -SPILLWAY_EDRAINING);
    json_t *status = sw_control_ask(sw_rig.ctl, "status", NULL);
    ck_assert_str_eq(sw_rig_text(status, "state"), "draining");
    json_decref(status);
    ck_assert_int_eq(sw_rig_restore(region), 0);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "drain", NULL, "regions"), 0);
    json_decref(sw_control_ask(sw_rig.ctl, "drain", "{\"mode\":\"off\"}"));
    ck_assert_int_eq(sw_rig_try_spill(1000, &other), 0);
}
END_TEST

/* The configuration's own errors are about the whole service, but one that runs goes on. */
static void ck_refused_alone(const char *request) {
    const char *line;
    struct sw_err err;
    ck_assert_int_eq(sw_ctl_send(sw_rig.ctl, request, &err), 0);
    ck_assert_int_eq(sw_ctl_receive(sw_rig.ctl, WAIT_MS, &line, &err), 0);
    ck_assert_msg(strstr(line, "\"ECONFIG\"") && strstr(line, "\"request\""), "%s", line);
}

START_TEST(options_are_set_at_run_time) {
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", "[\"max_sessions\"]", "max_sessions"), 256);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.set", "[\"max_sessions\",1]", "max_sessions"), 1);
    struct spillway *second = NULL;
    ck_assert_int_eq(spillway_open(&second, SW_OPTIONS(.socket_path = sw_rig.served.socket), &sw_rig.error),
                     -SPILLWAY_ELIMIT);
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"max_session_regions\",2]"));
    (void)sw_rig_spill(1);
    (void)sw_rig_spill(2);
    struct spillway_region region;
    ck_assert_int_eq(sw_rig_try_spill(3, &region), -SPILLWAY_ELIMIT);
    ck_assert_str_eq(sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"slots\",5]", SW_ENOTSUP),
                     "slots: needs a restart");
    ck_assert_str_eq(sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"data_socket\",\"x\"]", SW_ENOTSUP),
                     "data_socket: needs a restart");
    (void)sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"max_sessions\",0]", SW_ECONFIG);
    (void)sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"max_sessions\",true]", SW_ECONFIG);
    (void)sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"nonsense\",0]", SW_ECONFIG);
    (void)sw_control_ck_fails(sw_rig.ctl, "config.get", "[\"nonsense\"]", SW_ECONFIG);
    ck_refused_alone("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"slots\",true]}");
    (void)sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"host_tier_low_pct\",95]", SW_ECONFIG);
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"slots\",2]")); /* as it is */
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "host_tier_low_pct"), 80);
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"host_tier_high_pct\",50]"));
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "host_tier_low_pct"), 50); /* a default */
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"host_tier_low_pct\",40]"));
    (void)sw_control_ck_fails(sw_rig.ctl, "config.set", "[\"host_tier_high_pct\",30]", SW_ECONFIG);
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"host_tier_high_pct\",90]"));
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "host_tier_low_pct"), 40); /* given */
    json_t *level = sw_control_ask(sw_rig.ctl, "log.level", "[\"warning\"]");
    ck_assert_str_eq(sw_rig_text(level, "log_level"), "warning");
    json_decref(level);
    level = sw_control_ask(sw_rig.ctl, "config.get", "[\"log_level\"]");
    ck_assert_str_eq(sw_rig_text(level, "log_level"), "warning");
    json_decref(level);
    const unsigned sets_before = sw_test_daemon_logged(&sw_rig.served, "event=config.set");
    json_decref(sw_control_ask(sw_rig.ctl, "config.set", "[\"max_session_regions\",3]"));
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_rig.served, "event=config.set"), sets_before);
}
END_TEST

/* A line for each operation would fill a disk, so they are logged on demand only. */
START_TEST(operations_are_logged_at_debug_only) {
    ck_assert_int_eq(sw_rig_restore(sw_rig_spill(SW_RIG_BYTES)), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_rig.served, "event=spill.done"), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_rig.served, "event=restore.done"), 0);
    json_decref(sw_control_ask(sw_rig.ctl, "log.level", "[\"debug\"]"));
    ck_assert_int_eq(sw_rig_restore(sw_rig_spill(SW_RIG_BYTES)), 0);
    while (!sw_test_daemon_logged(&sw_rig.served, "event=restore.done")) /* it is written after the reply */
        (void)usleep(1000);
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_rig.served, "level=debug event=spill.done session=1 region="), 1);
    ck_assert_uint_gt(sw_test_daemon_logged(&sw_rig.served, "event=region.move"), 0);
}
END_TEST

static void write_file(const char *path, const char *content) {
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(content, file) >= 0 && fclose(file) == 0);
}

/* A spillwayd with a configuration file, which the helper that starts daemons knows nothing of. */
static void start_with_file(const char *content) {
    char path[160], command[1024];
    sw_rig_stop();
    (void)snprintf(path, sizeof path, "%s/config.json", sw_rig.served.folder);
    write_file(path, content);
    (void)snprintf(command, sizeof command,
                   "exec '%s' --config %s --set data_socket=%s --set device=host --set scratch_bytes=64MiB --set "
                   "host_tier_initial_bytes=0 --set host_tier_slab_bytes=4MiB --set host_tier_bytes=64MiB 2>>%s",
                   SW_SPILLWAYD_PATH, path, sw_rig.served.socket, sw_rig.served.log);
    const unsigned ready_before = sw_test_daemon_logged(&sw_rig.served, "event=service.ready ");
    sw_rig.served.pid = fork();
    if (sw_rig.served.pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    const struct timespec a_little = {.tv_nsec = 10000000};
    while (sw_test_daemon_logged(&sw_rig.served, "event=service.ready ") == ready_before)
        (void)nanosleep(&a_little, NULL);
    sw_rig.ctl = sw_control_connect(&sw_rig.served);
}

START_TEST(configuration_is_read_again) {
    char path[160];
    start_with_file("{\"max_sessions\": 7}");
    (void)snprintf(path, sizeof path, "%s/config.json", sw_rig.served.folder);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_sessions"), 7);
    write_file(path, "{\"max_sessions\": 9, \"slots\": 3, \"host_tier_low_pct\": 10}");
    json_t *report = sw_control_ask(sw_rig.ctl, "config.reload", NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "changed")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "needs_restart")), 1);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(report, "needs_restart"), 0)), "slots");
    json_decref(report);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_sessions"), 9);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "slots"), 0);
    /* Defaults follow options that may change, and stay if they need a restart. */
    write_file(path, "{\"max_sessions\": 9, \"max_regions\": 1000, \"host_tier_high_pct\": 60}");
    report = sw_control_ask(sw_rig.ctl, "config.reload", NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "changed")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "needs_restart")), 1);
    json_decref(report);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "host_tier_low_pct"), 60);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_session_regions"), 65536);
    write_file(path, "{\"max_sessions\": 9, \"host_tier_high_pct\": 60, \"host_tier_low_pct\": 80}");
    ck_assert_ptr_nonnull(
        strstr(sw_control_ck_fails(sw_rig.ctl, "config.reload", NULL, SW_ECONFIG), "host_tier_low_pct"));
    write_file(path, "{\"max_sessions\": 11, \"nonsense\": 1}");
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(sw_rig.ctl, "config.reload", NULL, SW_ECONFIG), "nonsense"));
    ck_refused_alone("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.reload\"}");
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_sessions"), 9);
    write_file(path, "{\"max_sessions\": 12}");
    json_decref(sw_control_ask(sw_rig.ctl, "events", "[\"config\"]"));
    ck_assert_int_eq(kill(sw_rig.served.pid, SIGHUP), 0);
    json_decref(sw_control_event(sw_rig.ctl, "config.reload"));
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_sessions"), 12);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "host_tier_low_pct"), 80);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* A pipe, which a start waits for, would keep all clients waiting. */
START_TEST(a_pipe_is_not_read_again) {
    char path[160];
    start_with_file("{\"max_sessions\": 7}");
    (void)snprintf(path, sizeof path, "%s/config.json", sw_rig.served.folder);
    ck_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(sw_rig.ctl, "config.reload", NULL, SW_ECONFIG),
                                 "config.json: cannot be read again: not a regular file"));
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_sessions"), 7);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(sw_rig.ctl, "config.reload", NULL, SW_EIO),
                                 "config.json: No such file or directory"));
}
END_TEST

static void ck_names(json_t *report, const char *key, const char *names) {
    char found[256] = "";
    size_t i;
    json_t *name;
    json_array_foreach(json_object_get(report, key), i, name) {
        (void)strcat(found, i ? " " : "");
        (void)strcat(found, json_string_value(name));
    }
    ck_assert_str_eq(found, names);
}

/* A file that is right in itself is taken, also if one of its options fits another only after the restart. */
START_TEST(options_may_fit_only_after_a_restart) {
    char path[160];
    start_with_file("{\"max_sessions\": 7}");
    (void)snprintf(path, sizeof path, "%s/config.json", sw_rig.served.folder);
    write_file(path, "{\"max_session_regions\": 1500000, \"max_regions\": 2000000, \"max_sessions\": 9}");
    json_t *report = sw_control_ask(sw_rig.ctl, "config.reload", NULL);
    ck_names(report, "changed", "max_sessions");
    ck_names(report, "needs_restart", "max_regions max_session_regions");
    json_decref(report);
    ck_assert_uint_eq(sw_test_daemon_logged(&sw_rig.served,
                                            "config.json: max_session_regions: 1500000 exceeds max_regions, which is "),
                      1);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_sessions"), 9);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_session_regions"), 65536);
    write_file(path, "{\"max_session_regions\": 70000}");
    report = sw_control_ask(sw_rig.ctl, "config.reload", NULL);
    ck_names(report, "needs_restart", "");
    json_decref(report);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_session_regions"), 70000);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* Running operations continue when options change. */
/* $SW_RELOAD_ROUNDS: so often, for long runs. */
START_TEST(reloaded_under_load) {
    const char *wanted = getenv("SW_RELOAD_ROUNDS");
    for (int i = 0; i < (wanted ? atoi(wanted) : 10); i++) {
        struct spillway_ticket *ticket = NULL;
        struct spillway_result result = {.size = sizeof result};
        char params[64];
        ck_assert_int_eq(
            spillway_spill(sw_rig.client, SW_REQUEST(SW_ONE(sw_rig.data, SW_RIG_BYTES)), 1, &ticket, &sw_rig.error), 0);
        (void)snprintf(params, sizeof params, "[\"max_session_regions\",%d]", 100 + i);
        json_decref(sw_control_ask(sw_rig.ctl, "config.set", params));
        ck_assert_int_eq(kill(sw_rig.served.pid, SIGHUP), 0);
        json_decref(sw_control_ask(sw_rig.ctl, "config.reload", NULL));
        ck_assert_msg(spillway_wait(ticket, WAIT_MS, &result, 1, &sw_rig.error) == 0, "%s: %s", sw_rig.error.name,
                      sw_rig.error.text);
        spillway_ticket_free(ticket);
        ck_assert_int_eq(sw_rig_restore(result.region), 0);
    }
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "stats", NULL, "failed"), 0);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "config.get", NULL, "max_session_regions"), 65536);
}
END_TEST

/* ---- tiers ------------------------------------------------------------------------------------------------------- */

static void await_tier(const char *tier, unsigned n) {
    const struct timespec a_little = {.tv_nsec = 10000000};
    char filter[64];
    (void)snprintf(filter, sizeof filter, "\"tier\":\"%s\",\"state\":\"out\"", tier);
    while (count_regions(filter, 100) != n)
        (void)nanosleep(&a_little, NULL);
}

/* Runs a command of the shell. Returns what it prints, on both streams; owned by this function. */
static const char *shell(int exit_code, const char *format, ...) __attribute__((format(printf, 2, 3)));
static const char *shell(int exit_code, const char *format, ...) {
    static char output[1 << 16];
    char line[1024];
    va_list arguments;
    va_start(arguments, format);
    (void)vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    FILE *program = popen(line, "r");
    ck_assert_ptr_nonnull(program);
    output[fread(output, 1, sizeof output - 1, program)] = 0;
    const int status = pclose(program);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == exit_code, "%s: %s", line, output);
    return output;
}

/* The file that one program writes is read by the other one. */
static void ck_snapshot_is_read(unsigned n_regions) {
    char says[64];
    const char *output = shell(0, "'%s' -s '%s' snapshot | '%s' --set nvme_tier_directory=/x --dry-run - 2>&1",
                               SW_SPILLWAYCTL_PATH, sw_rig.served.control, SW_SPILLWAYD_PATH);
    (void)snprintf(says, sizeof says, "moved to the NVMe tier: 0 of %u regions", n_regions);
    ck_assert_msg(strstr(output, says) && strstr(output, "is in the NVMe tier"), "%s", output);
}

/* With --wait a command ends when the move has ended. */
static void ck_waits(const char *command, const char *region) {
    const char *output =
        shell(0, "'%s' -s '%s' %s %s --wait 2>&1", SW_SPILLWAYCTL_PATH, sw_rig.served.control, command, region);
    ck_assert_msg(strstr(output, region) != NULL, "%s", output);
    ck_assert_int_eq(count_regions("\"tier\":\"host\"", 100), strcmp(command, "promote") == 0);
}

START_TEST(regions_move_between_tiers) {
    char directory[128], name[32], params[64];
    struct spillway_region regions[8];
    struct sw_nvme_folder folder = sw_nvme_folder_new();
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", folder.path);
    const char *const options[] = {directory, "nvme_tier_bytes=64 MiB", NULL};
    sw_rig_start_anew(options);
    sw_rig.client = sw_served_connect(&sw_rig.served);
    for (unsigned i = 0; i < 8; i++)
        regions[i] = sw_rig_spill(SW_RIG_BYTES / 4);
    (void)snprintf(name, sizeof name, "%u:%u", regions[3].slot, regions[3].generation);
    (void)snprintf(params, sizeof params, "[\"%s\"]", name);
    json_decref(sw_control_ask(sw_rig.ctl, "demote", params));
    await_tier("nvme", 1);
    json_decref(sw_control_ask(sw_rig.ctl, "demote", params)); /* it is there */
    json_decref(sw_control_ask(sw_rig.ctl, "promote", params));
    await_tier("host", 8);
    /* Room is made until it is enough, and no further. */
    json_t *page = sw_control_ask(sw_rig.ctl, "regions", "{\"limit\":1}");
    const long long each = sw_rig_number(json_array_get(json_object_get(page, "regions"), 0), "stored_bytes");
    json_decref(page);
    (void)snprintf(params, sizeof params, "[%lld]", each * 5);
    json_decref(sw_control_ask(sw_rig.ctl, "spill", params));
    await_tier("nvme", 5);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "stats", NULL, "demotions"), 6);
    ck_assert_int_eq(sw_control_number(sw_rig.ctl, "stats", NULL, "promotions"), 1);
    json_decref(sw_control_ask(sw_rig.ctl, "spill", "[1000000000]"));
    await_tier("nvme", 8);
    ck_snapshot_is_read(8);
    ck_waits("promote", name);
    ck_waits("demote", name);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(sw_rig_restore(regions[i]), 0);
    sw_rig_start_anew(NULL);
    sw_nvme_folder_free(&folder);
}
END_TEST

START_TEST(without_an_nvme_tier_nothing_moves) {
    const struct spillway_region region = sw_rig_spill(1000);
    char params[64];
    (void)snprintf(params, sizeof params, "[\"%u:%u\"]", region.slot, region.generation);
    (void)sw_control_ck_fails(sw_rig.ctl, "demote", params, SW_ENOTSUP);
    json_decref(sw_control_ask(sw_rig.ctl, "promote", params)); /* it is where it should be */
    (void)sw_control_ck_fails(sw_rig.ctl, "spill", "[1]", SW_ENOTSUP);
}
END_TEST

int main(void) {
    sw_rig.spillwayd = SW_SPILLWAYD_PATH;
    TCase *tests = tcase_create("control");
    tcase_add_checked_fixture(tests, sw_rig_setup, sw_rig_teardown);
    tcase_add_test(tests, status_sessions_and_tiers);
    tcase_add_test(tests, stats_count);
    tcase_add_test(tests, regions_are_listed_by_page_and_filter);
    tcase_add_test(tests, dropped_regions_are_gone);
    tcase_add_test(tests, durable_regions_are_listed_and_dropped);
    tcase_add_test(tests, durable_regions_are_dropped_by_name);
    tcase_add_test(tests, tenants_have_quotas);
    tcase_add_test(tests, metrics_name_few_tenants);
    tcase_add_test(tests, events_name_durable_regions);
    tcase_add_test(tests, operations_are_logged_at_debug_only);
    tcase_add_test(tests, drained_service_takes_no_spills);
    tcase_add_test(tests, options_are_set_at_run_time);
    tcase_add_test(tests, configuration_is_read_again);
    tcase_add_test(tests, a_pipe_is_not_read_again);
    tcase_add_test(tests, options_may_fit_only_after_a_restart);
    tcase_add_test(tests, reloaded_under_load);
    tcase_add_test(tests, regions_move_between_tiers);
    tcase_add_test(tests, without_an_nvme_tier_nothing_moves);
    Suite *suite = suite_create("control");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
