/* The control socket of a real spillwayd: every method, every refusal, and misuse that must not harm it. */
#include "tests/lib/control.h"
#include "ipc/spillway.h"
#include "tests/lib/content.h"
#include "tests/lib/nvme_fixture.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/served.h"

#include <check.h>
#include <grp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { WAIT_MS = SW_TEST_WAIT_MS, NOBODY = 65534, GROUP = 54321, OTHER_GROUP = 54322 };

static struct sw_test_daemon served;
static struct spillway *client;
static struct sw_ctl *ctl;
static struct spillway_error error;
static uint8_t *data;
static const size_t data_bytes = 1 << 20;

static void start(const char *const *options) {
    sw_test_daemon_start(&served, SW_SPILLWAYD_PATH, options);
    ctl = sw_control_connect(&served);
}

static void setup(void) {
    const int fd = memfd_create("control", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, (off_t)data_bytes) == 0);
    data = mmap(NULL, data_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    sw_content_fill(data, data_bytes, SW_CONTENT_MIXED, 1);
    start(NULL);
    client = sw_served_connect(&served);
}

static void stop(void) {
    sw_ctl_close(ctl);
    spillway_close(client);
    ctl = NULL;
    client = NULL;
    if (served.pid)
        ck_assert_int_eq(sw_test_daemon_stop(&served, SIGTERM), 0);
}

/* Starts another daemon, for one test or for those that follow. */
static void start_anew(const char *const *options) {
    stop();
    sw_test_daemon_clean(&served);
    start(options);
}

static void teardown(void) {
    stop();
    ck_assert_msg(access(served.control, F_OK) != 0, "the socket file is left");
    sw_test_daemon_clean(&served);
}

/* ---- clients ----------------------------------------------------------------------------------------------------- */

static int try_spill(size_t bytes, struct spillway_region *ret) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    int rc = spillway_spill(client, SW_REQUEST(SW_ONE(data, bytes)), 1, &ticket, &error);
    if (rc == 0)
        rc = spillway_wait(ticket, WAIT_MS, &result, 1, &error);
    spillway_ticket_free(ticket);
    if (rc == 0)
        *ret = result.region;
    return rc;
}

static struct spillway_region spill(size_t bytes) {
    struct spillway_region region = {0};
    const int rc = try_spill(bytes, &region);
    ck_assert_msg(rc == 0, "%s: %s", error.name, error.text);
    return region;
}

static int restore(struct spillway_region region) {
    struct spillway_ticket *ticket = NULL;
    int rc = spillway_restore(client, SW_REQUEST(SW_ONE(data, data_bytes), .region = region), 1, &ticket, &error);
    if (rc == 0)
        rc = spillway_wait(ticket, WAIT_MS, NULL, 0, &error);
    spillway_ticket_free(ticket);
    return rc;
}

/* ---- looking ----------------------------------------------------------------------------------------------------- */

static const char *text(const json_t *object, const char *name) {
    const char *value = json_string_value(json_object_get(object, name));
    return value ? value : "(none)";
}

static long long number(const json_t *object, const char *name) {
    ck_assert_msg(json_is_integer(json_object_get(object, name)), "no number %s", name);
    return json_integer_value(json_object_get(object, name));
}

START_TEST(status_sessions_and_tiers) {
    const struct spillway_region region = spill(data_bytes);
    json_t *status = sw_control_ask(ctl, "status", NULL);
    ck_assert_str_eq(text(status, "version"), SW_VERSION);
    ck_assert_str_eq(text(status, "state"), "serving");
    ck_assert_int_eq(number(status, "pid"), served.pid);
    ck_assert_int_eq(number(status, "sessions"), 1);
    ck_assert_int_eq(number(status, "regions"), 1);
    ck_assert_str_eq(text(status, "control_socket"), served.control);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(status, "devices"), 0)), "host");
    json_decref(status);
    json_t *sessions = sw_control_ask(ctl, "sessions", NULL);
    const json_t *session = json_array_get(json_object_get(sessions, "sessions"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(sessions, "sessions")), 1);
    ck_assert_int_eq(number(session, "pid"), getpid());
    ck_assert_int_eq(number(session, "uid"), (long long)getuid());
    ck_assert_int_eq(number(session, "regions"), 1);
    ck_assert_int_eq(number(session, "raw_bytes"), (long long)data_bytes);
    json_decref(sessions);
    json_t *tiers = sw_control_ask(ctl, "tiers", NULL);
    const json_t *host = json_array_get(json_object_get(tiers, "tiers"), 0);
    ck_assert_uint_eq(json_array_size(json_object_get(tiers, "tiers")), 1);
    ck_assert_str_eq(text(host, "tier"), "host");
    ck_assert_int_eq(number(host, "capacity_bytes"), 64 << 20);
    ck_assert_int_gt(number(host, "used_bytes"), 0);
    ck_assert_int_eq(number(host, "high_bytes"), (long long)(64 << 20) / 100 * 90);
    json_decref(tiers);
    ck_assert_int_eq(restore(region), 0);
}
END_TEST

START_TEST(stats_count) {
    const struct spillway_region region = spill(data_bytes);
    ck_assert_int_eq(restore(region), 0);
    ck_assert_int_eq(restore(region), -SPILLWAY_ESTALE);
    json_t *stats = sw_control_ask(ctl, "stats", NULL);
    ck_assert_int_eq(number(stats, "spills"), 1);
    ck_assert_int_eq(number(stats, "restores"), 1);
    ck_assert_int_eq(number(stats, "spilled_raw_bytes"), (long long)data_bytes);
    ck_assert_int_eq(number(json_object_get(stats, "errors"), "ESTALE"), 1);
    size_t i;
    json_t *row;
    unsigned n_whole = 0, n_flows = 0;
    json_array_foreach(json_object_get(stats, "latency"), i, row) {
        const bool whole = strcmp(text(row, "stage"), "whole") == 0;
        n_whole += whole && number(row, "operations") == 1 && number(row, "mean_us") > 0;
    }
    json_array_foreach(json_object_get(stats, "flows"), i, row) n_flows +=
        strcmp(text(row, "tier"), "host") == 0 && number(row, "raw_bytes") == (long long)data_bytes;
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
        json_t *page = sw_control_ask(ctl, "regions", params);
        const size_t size = json_array_size(json_object_get(page, "regions"));
        ck_assert_uint_le(size, limit);
        n += (unsigned)size;
        cursor = json_object_get(page, "next") ? number(page, "next") : -1;
        json_decref(page);
    }
    return n;
}

START_TEST(regions_are_listed_by_page_and_filter) {
    char filter[64];
    for (unsigned i = 0; i < 25; i++)
        (void)spill(1000 + i);
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
    json_t *page = sw_control_ask(ctl, "regions", "{\"cursor\":1000000}");
    ck_assert(json_array_size(json_object_get(page, "regions")) == 0 && !json_object_get(page, "next"));
    json_decref(page);
}
END_TEST

START_TEST(dropped_regions_are_gone) {
    const struct spillway_region region = spill(data_bytes);
    char params[64];
    (void)snprintf(params, sizeof params, "[\"%u:%u\"]", region.slot, region.generation);
    json_decref(sw_control_ask(ctl, "drop", params));
    (void)sw_control_ck_fails(ctl, "drop", params, SW_ESTALE);
    (void)sw_control_ck_fails(ctl, "drop", "[\"4000000000:1\"]", SW_ENOENT);
    (void)sw_control_ck_fails(ctl, "drop", "[\"0:0\"]", SW_ENOENT);
    ck_assert_int_eq(restore(region), -SPILLWAY_ESTALE);
    ck_assert_int_eq(sw_control_number(ctl, "status", NULL, "host_used_bytes"), 0);
}
END_TEST

/* It has no session any more, but a name and a uid. */
START_TEST(durable_regions_are_listed_and_dropped) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    char params[80];
    ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, 1000), .name = "orders"), 1, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &error), 0);
    spillway_close(client);
    while (sw_control_number(ctl, "status", NULL, "sessions") > 0)
        ;
    client = sw_served_connect(&served);
    (void)snprintf(params, sizeof params, "{\"uid\":%u}", (unsigned)getuid());
    json_t *page = sw_control_ask(ctl, "regions", params);
    const json_t *found = json_array_get(json_object_get(page, "regions"), 0);
    ck_assert_str_eq(text(found, "name"), "orders");
    ck_assert(json_is_null(json_object_get(found, "session")));
    ck_assert_int_eq(number(found, "uid"), getuid());
    (void)snprintf(params, sizeof params, "[\"%s\"]", text(found, "region"));
    json_decref(page);
    json_decref(sw_control_ask(ctl, "drop", params));
    ck_assert_int_eq(spillway_adopt(client, "orders", &region, &error), -SPILLWAY_ENOENT);
    ck_assert_int_eq(sw_control_number(ctl, "status", NULL, "host_used_bytes"), 0);
}
END_TEST

/* By its name; its user's uid is needed only if several users have the name. */
START_TEST(durable_regions_are_dropped_by_name) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    char params[80];
    ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, 1000), .name = "orders"), 1, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &error), 0);
    spillway_ticket_free(ticket);
    (void)snprintf(params, sizeof params, "{\"name\":\"orders\",\"uid\":%u}", (unsigned)getuid() + 1);
    (void)sw_control_ck_fails(ctl, "drop", params, SW_ENOENT);
    (void)sw_control_ck_fails(ctl, "demote", "{\"name\":\"orders\"}", SW_ENOTSUP); /* no tier behind */
    (void)sw_control_ck_fails(ctl, "spill", "{\"name\":\"orders\"}", SW_ENOTSUP);
    json_decref(sw_control_ask(ctl, "promote", "{\"name\":\"orders\"}"));
    (void)snprintf(params, sizeof params, "{\"name\":\"orders\",\"uid\":%u}", (unsigned)getuid());
    json_decref(sw_control_ask(ctl, "drop", params));
    ck_assert_int_eq(spillway_adopt(client, "orders", &region, &error), -SPILLWAY_ENOENT);
}
END_TEST

static bool has_metric(const char *line) {
    json_t *answer = sw_control_ask(ctl, "metrics", NULL);
    const bool has = strstr(json_string_value(answer), line) != NULL;
    json_decref(answer);
    return has;
}

/* Tenants beyond the cap have no labels of their own. */
START_TEST(metrics_name_few_tenants) {
    const struct spillway_region region = spill(data_bytes);
    char line[96];
    (void)snprintf(line, sizeof line, "\nspillway_tenant_regions{uid=\"%u\"} 1\n", (unsigned)getuid());
    ck_assert(has_metric(line) && has_metric("\nspillway_tenant_regions{uid=\"other\"} 0\n"));
    json_decref(sw_control_ask(ctl, "config.set", "[\"metrics_tenants\",0]"));
    ck_assert(!has_metric(line) && has_metric("\nspillway_tenant_regions{uid=\"other\"} 1\n"));
    ck_assert_int_eq(restore(region), 0);
}
END_TEST

static const json_t *find_tenant(const json_t *answer) {
    const json_t *all = json_object_get(answer, "tenants");
    ck_assert_uint_eq(json_array_size(all), 1);
    ck_assert_int_eq(number(json_array_get(all, 0), "uid"), getuid());
    return json_array_get(all, 0);
}

/* A quota is set while the service runs, holds at once, and is shown with what the tenant has. */
START_TEST(tenants_have_quotas) {
    struct spillway_region other, region = spill(data_bytes);
    char params[128];
    json_t *answer = sw_control_ask(ctl, "tenants", NULL);
    const json_t *tenant = find_tenant(answer);
    const long long stored = number(tenant, "stored_bytes");
    ck_assert_int_gt(stored, 0);
    ck_assert_int_eq(number(tenant, "regions"), 1);
    ck_assert_int_eq(number(tenant, "sessions"), 1);
    ck_assert(json_is_null(json_object_get(tenant, "quota")) && json_is_null(json_object_get(tenant, "limit_bytes")));
    ck_assert_int_eq(number(tenant, "limit_durable"), 1024);
    json_decref(answer);
    (void)snprintf(params, sizeof params, "[\"quotas\",[{\"gid\":%u,\"bytes\":%lld,\"durable_regions\":0}]]",
                   (unsigned)getgid(), stored);
    json_decref(sw_control_ask(ctl, "config.set", params));
    answer = sw_control_ask(ctl, "tenants", NULL);
    tenant = find_tenant(answer);
    (void)snprintf(params, sizeof params, "gid %u", (unsigned)getgid());
    ck_assert_str_eq(text(tenant, "quota"), params);
    ck_assert_int_eq(number(tenant, "limit_bytes"), stored);
    ck_assert_int_eq(number(tenant, "limit_durable"), 0);
    json_decref(answer);
    ck_assert_int_eq(try_spill(1000, &other), -SPILLWAY_ETENANTBYTES);
    ck_assert_int_eq(restore(region), 0);
    json_decref(sw_control_ask(ctl, "config.set", "[\"quotas\",[]]"));
    ck_assert_int_eq(try_spill(1000, &other), 0);
}
END_TEST

static void ck_event_has_name(struct sw_ctl *watcher, const char *event) {
    json_t *params = sw_control_event(watcher, event);
    ck_assert_str_eq(text(params, "region_name"), "or\"ders");
    json_decref(params);
}

/* An id alone does not say which region it is. */
START_TEST(events_name_durable_regions) {
    struct sw_ctl *watcher = sw_control_connect(&served);
    struct spillway_ticket *ticket = NULL;
    struct spillway_region region;
    json_decref(sw_control_ask(watcher, "events", NULL));
    for (int i = 0; i < 2; i++) { /* the second one finds the name taken */
        ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, 1000), .name = "or\"ders"), 1, &ticket, &error),
                         0);
        ck_assert_int_eq(spillway_wait(ticket, WAIT_MS, NULL, 0, &error), i ? -SPILLWAY_EEXIST : 0);
        spillway_ticket_free(ticket);
        ck_event_has_name(watcher, i ? "request.failed" : "spill.done");
    }
    ck_assert_int_eq(spillway_adopt(client, "or\"ders", &region, &error), 0);
    ck_event_has_name(watcher, "region.adopted");
    ck_assert_int_eq(restore(region), 0);
    ck_event_has_name(watcher, "restore.done");
    json_t *event;
    (void)spill(1000);
    event = sw_control_event(watcher, "spill.done");
    ck_assert_ptr_null(json_object_get(event, "region_name"));
    json_decref(event);
    sw_ctl_close(watcher);
}
END_TEST

/* ---- changing ---------------------------------------------------------------------------------------------------- */

START_TEST(drained_service_takes_no_spills) {
    struct spillway_region region = spill(data_bytes), other;
    json_decref(sw_control_ask(ctl, "drain", "[\"on\"]"));
    ck_assert_int_eq(try_spill(1000, &other), -SPILLWAY_EDRAINING);
    json_t *status = sw_control_ask(ctl, "status", NULL);
    ck_assert_str_eq(text(status, "state"), "draining");
    json_decref(status);
    ck_assert_int_eq(restore(region), 0);
    ck_assert_int_eq(sw_control_number(ctl, "drain", NULL, "regions"), 0);
    json_decref(sw_control_ask(ctl, "drain", "{\"mode\":\"off\"}"));
    ck_assert_int_eq(try_spill(1000, &other), 0);
}
END_TEST

/* The configuration's own errors are about the whole service, but one that runs goes on. */
static void ck_refused_alone(const char *request) {
    const char *line;
    struct sw_err err;
    ck_assert_int_eq(sw_ctl_send(ctl, request, &err), 0);
    ck_assert_int_eq(sw_ctl_receive(ctl, WAIT_MS, &line, &err), 0);
    ck_assert_msg(strstr(line, "\"ECONFIG\"") && strstr(line, "\"request\""), "%s", line);
}

START_TEST(options_are_set_at_run_time) {
    ck_assert_int_eq(sw_control_number(ctl, "config.get", "[\"max_sessions\"]", "max_sessions"), 256);
    ck_assert_int_eq(sw_control_number(ctl, "config.set", "[\"max_sessions\",1]", "max_sessions"), 1);
    struct spillway *second = NULL;
    ck_assert_int_eq(spillway_open(&second, SW_OPTIONS(.socket_path = served.socket), &error), -SPILLWAY_ELIMIT);
    json_decref(sw_control_ask(ctl, "config.set", "[\"max_session_regions\",2]"));
    (void)spill(1);
    (void)spill(2);
    struct spillway_region region;
    ck_assert_int_eq(try_spill(3, &region), -SPILLWAY_ELIMIT);
    ck_assert_str_eq(sw_control_ck_fails(ctl, "config.set", "[\"slots\",5]", SW_ENOTSUP), "slots: needs a restart");
    ck_assert_str_eq(sw_control_ck_fails(ctl, "config.set", "[\"data_socket\",\"x\"]", SW_ENOTSUP),
                     "data_socket: needs a restart");
    (void)sw_control_ck_fails(ctl, "config.set", "[\"max_sessions\",0]", SW_ECONFIG);
    (void)sw_control_ck_fails(ctl, "config.set", "[\"max_sessions\",true]", SW_ECONFIG);
    (void)sw_control_ck_fails(ctl, "config.set", "[\"nonsense\",0]", SW_ECONFIG);
    (void)sw_control_ck_fails(ctl, "config.get", "[\"nonsense\"]", SW_ECONFIG);
    ck_refused_alone("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"slots\",true]}");
    (void)sw_control_ck_fails(ctl, "config.set", "[\"host_tier_low_pct\",95]", SW_ECONFIG);
    json_decref(sw_control_ask(ctl, "config.set", "[\"slots\",2]")); /* as it is */
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "host_tier_low_pct"), 80);
    json_decref(sw_control_ask(ctl, "config.set", "[\"host_tier_high_pct\",50]"));
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "host_tier_low_pct"), 50); /* a default */
    json_decref(sw_control_ask(ctl, "config.set", "[\"host_tier_low_pct\",40]"));
    (void)sw_control_ck_fails(ctl, "config.set", "[\"host_tier_high_pct\",30]", SW_ECONFIG);
    json_decref(sw_control_ask(ctl, "config.set", "[\"host_tier_high_pct\",90]"));
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "host_tier_low_pct"), 40); /* given */
    json_t *level = sw_control_ask(ctl, "log.level", "[\"warning\"]");
    ck_assert_str_eq(text(level, "log_level"), "warning");
    json_decref(level);
    level = sw_control_ask(ctl, "config.get", "[\"log_level\"]");
    ck_assert_str_eq(text(level, "log_level"), "warning");
    json_decref(level);
    const unsigned sets_before = sw_test_daemon_logged(&served, "event=config.set");
    json_decref(sw_control_ask(ctl, "config.set", "[\"max_session_regions\",3]"));
    ck_assert_uint_eq(sw_test_daemon_logged(&served, "event=config.set"), sets_before);
}
END_TEST

/* A line for each operation would fill a disk, so they are logged on demand only. */
START_TEST(operations_are_logged_at_debug_only) {
    ck_assert_int_eq(restore(spill(data_bytes)), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&served, "event=spill.done"), 0);
    ck_assert_uint_eq(sw_test_daemon_logged(&served, "event=restore.done"), 0);
    json_decref(sw_control_ask(ctl, "log.level", "[\"debug\"]"));
    ck_assert_int_eq(restore(spill(data_bytes)), 0);
    while (!sw_test_daemon_logged(&served, "event=restore.done")) /* it is written after the reply */
        (void)usleep(1000);
    ck_assert_uint_eq(sw_test_daemon_logged(&served, "level=debug event=spill.done session=1 region="), 1);
    ck_assert_uint_gt(sw_test_daemon_logged(&served, "event=region.move"), 0);
}
END_TEST

static void write_file(const char *path, const char *content) {
    FILE *file = fopen(path, "w");
    ck_assert(file && fputs(content, file) >= 0 && fclose(file) == 0);
}

/* A spillwayd with a configuration file, which the helper that starts daemons knows nothing of. */
static void start_with_file(const char *content) {
    char path[160], command[1024];
    stop();
    (void)snprintf(path, sizeof path, "%s/config.json", served.folder);
    write_file(path, content);
    (void)snprintf(command, sizeof command,
                   "exec '%s' --config %s --set data_socket=%s --set device=host --set scratch_bytes=64MiB --set "
                   "host_tier_initial_bytes=0 --set host_tier_slab_bytes=4MiB --set host_tier_bytes=64MiB 2>>%s",
                   SW_SPILLWAYD_PATH, path, served.socket, served.log);
    const unsigned ready_before = sw_test_daemon_logged(&served, "event=service.ready ");
    served.pid = fork();
    if (served.pid == 0) {
        (void)execl("/bin/sh", "sh", "-c", command, NULL);
        _exit(127);
    }
    const struct timespec a_little = {.tv_nsec = 10000000};
    while (sw_test_daemon_logged(&served, "event=service.ready ") == ready_before)
        (void)nanosleep(&a_little, NULL);
    ctl = sw_control_connect(&served);
}

START_TEST(configuration_is_read_again) {
    char path[160];
    start_with_file("{\"max_sessions\": 7}");
    (void)snprintf(path, sizeof path, "%s/config.json", served.folder);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_sessions"), 7);
    write_file(path, "{\"max_sessions\": 9, \"slots\": 3, \"host_tier_low_pct\": 10}");
    json_t *report = sw_control_ask(ctl, "config.reload", NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "changed")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "needs_restart")), 1);
    ck_assert_str_eq(json_string_value(json_array_get(json_object_get(report, "needs_restart"), 0)), "slots");
    json_decref(report);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_sessions"), 9);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "slots"), 0);
    /* Defaults follow options that may change, and stay if they need a restart. */
    write_file(path, "{\"max_sessions\": 9, \"max_regions\": 1000, \"host_tier_high_pct\": 60}");
    report = sw_control_ask(ctl, "config.reload", NULL);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "changed")), 2);
    ck_assert_uint_eq(json_array_size(json_object_get(report, "needs_restart")), 1);
    json_decref(report);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "host_tier_low_pct"), 60);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_session_regions"), 65536);
    write_file(path, "{\"max_sessions\": 9, \"host_tier_high_pct\": 60, \"host_tier_low_pct\": 80}");
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(ctl, "config.reload", NULL, SW_ECONFIG), "host_tier_low_pct"));
    write_file(path, "{\"max_sessions\": 11, \"nonsense\": 1}");
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(ctl, "config.reload", NULL, SW_ECONFIG), "nonsense"));
    ck_refused_alone("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.reload\"}");
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_sessions"), 9);
    write_file(path, "{\"max_sessions\": 12}");
    json_decref(sw_control_ask(ctl, "events", "[\"config\"]"));
    ck_assert_int_eq(kill(served.pid, SIGHUP), 0);
    json_decref(sw_control_event(ctl, "config.reload"));
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_sessions"), 12);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "host_tier_low_pct"), 80);
    ck_assert_int_eq(unlink(path), 0);
}
END_TEST

/* A pipe, which a start waits for, would keep all clients waiting. */
START_TEST(a_pipe_is_not_read_again) {
    char path[160];
    start_with_file("{\"max_sessions\": 7}");
    (void)snprintf(path, sizeof path, "%s/config.json", served.folder);
    ck_assert(unlink(path) == 0 && mkfifo(path, 0600) == 0);
    ck_assert_ptr_nonnull(strstr(sw_control_ck_fails(ctl, "config.reload", NULL, SW_ECONFIG),
                                 "config.json: cannot be read again: not a regular file"));
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_sessions"), 7);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_ptr_nonnull(
        strstr(sw_control_ck_fails(ctl, "config.reload", NULL, SW_EIO), "config.json: No such file or directory"));
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
    (void)snprintf(path, sizeof path, "%s/config.json", served.folder);
    write_file(path, "{\"max_session_regions\": 1500000, \"max_regions\": 2000000, \"max_sessions\": 9}");
    json_t *report = sw_control_ask(ctl, "config.reload", NULL);
    ck_names(report, "changed", "max_sessions");
    ck_names(report, "needs_restart", "max_regions max_session_regions");
    json_decref(report);
    ck_assert_uint_eq(
        sw_test_daemon_logged(&served, "config.json: max_session_regions: 1500000 exceeds max_regions, which is "), 1);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_sessions"), 9);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_session_regions"), 65536);
    write_file(path, "{\"max_session_regions\": 70000}");
    report = sw_control_ask(ctl, "config.reload", NULL);
    ck_names(report, "needs_restart", "");
    json_decref(report);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_session_regions"), 70000);
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
        ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, data_bytes)), 1, &ticket, &error), 0);
        (void)snprintf(params, sizeof params, "[\"max_session_regions\",%d]", 100 + i);
        json_decref(sw_control_ask(ctl, "config.set", params));
        ck_assert_int_eq(kill(served.pid, SIGHUP), 0);
        json_decref(sw_control_ask(ctl, "config.reload", NULL));
        ck_assert_msg(spillway_wait(ticket, WAIT_MS, &result, 1, &error) == 0, "%s: %s", error.name, error.text);
        spillway_ticket_free(ticket);
        ck_assert_int_eq(restore(result.region), 0);
    }
    ck_assert_int_eq(sw_control_number(ctl, "stats", NULL, "failed"), 0);
    ck_assert_int_eq(sw_control_number(ctl, "config.get", NULL, "max_session_regions"), 65536);
}
END_TEST

/* ---- events ------------------------------------------------------------------------------------------------------ */

START_TEST(events_are_sent) {
    struct sw_ctl *watcher = sw_control_connect(&served);
    json_decref(sw_control_ask(watcher, "events", NULL));
    json_decref(sw_control_ask(ctl, "log.level", "[\"error\"]")); /* events do not depend on it */
    struct spillway *second = sw_served_connect(&served);
    json_t *event = sw_control_event(watcher, "session.open");
    ck_assert_int_eq(number(event, "session"), 2);
    ck_assert_int_eq(number(event, "pid"), getpid());
    ck_assert_int_gt(number(event, "time_ms"), 0);
    json_decref(event);
    const struct spillway_region region = spill(data_bytes);
    event = sw_control_event(watcher, "spill.done");
    ck_assert_int_eq(number(event, "bytes"), (long long)data_bytes);
    ck_assert_str_eq(text(event, "tier"), "host");
    json_decref(event);
    ck_assert_int_eq(restore(region), 0);
    json_decref(sw_control_event(watcher, "restore.done"));
    ck_assert_int_eq(restore(region), -SPILLWAY_ESTALE);
    event = sw_control_event(watcher, "request.failed");
    ck_assert_str_eq(text(event, "name"), "ESTALE");
    json_decref(event);
    json_decref(sw_control_ask(ctl, "drain", "[\"on\"]"));
    json_decref(sw_control_event(watcher, "drain.set"));
    json_decref(sw_control_ask(watcher, "events", "{\"only\":\"session,tier.held\"}"));
    json_decref(sw_control_ask(ctl, "drain", "[\"off\"]"));
    spillway_close(second);
    const char *line;
    struct sw_err err;
    ck_assert_int_eq(sw_ctl_receive(watcher, WAIT_MS, &line, &err), 0);
    ck_assert_msg(strstr(line, "\"session.close\""), "%s", line);
    json_decref(sw_control_ask(watcher, "events", "{\"mode\":\"off\"}"));
    ck_assert_int_eq(sw_test_daemon_stop(&served, SIGTERM), 0);
    ck_assert_int_eq(sw_ctl_receive(watcher, WAIT_MS, &line, &err), -SW_ECONN);
    sw_ctl_close(watcher);
    start_anew(NULL);
}
END_TEST

START_TEST(the_end_of_the_service_is_sent) {
    const char *line;
    struct sw_err err;
    json_decref(sw_control_ask(ctl, "events", "[\"service.stopping\"]"));
    ck_assert_int_eq(sw_test_daemon_stop(&served, SIGTERM), 0);
    ck_assert_int_eq(sw_ctl_receive(ctl, WAIT_MS, &line, &err), 0);
    ck_assert_msg(strstr(line, "\"service.stopping\""), "%s", line);
    start_anew(NULL);
}
END_TEST

static long long count_dropped(void) {
    static const char name[] = "\nspillway_events_dropped_total ";
    json_t *metrics = sw_control_ask(ctl, "metrics", NULL);
    const char *at = strstr(json_string_value(metrics), name);
    ck_assert_ptr_nonnull(at);
    const long long dropped = strtoll(at + strlen(name), NULL, 10);
    json_decref(metrics);
    return dropped;
}

/* A subscriber that does not read gets a count of the events it missed, and nothing waits for it. */
START_TEST(events_left_out_are_counted) {
    struct sw_ctl *watcher = sw_control_connect(&served);
    json_decref(sw_control_ask(watcher, "events", "[\"drain\"]"));
    const char *line;
    struct sw_err err;
    /* A socket, and the service's queue behind it, hold a few hundred KiB; an event has 100 bytes. */
    for (int i = 0; i < 200 && !count_dropped(); i++)
        for (int j = 0; j < 100; j++)
            json_decref(sw_control_ask(ctl, "drain", "[\"off\"]"));
    ck_assert_int_gt(count_dropped(), 0);
    const long long dropped = count_dropped(); /* the last event came before this was asked */
    long long told = 0, events = 0;
    while (told == 0) {
        ck_assert_int_eq(sw_ctl_receive(watcher, WAIT_MS, &line, &err), 0);
        json_t *message = json_loads(line, 0, NULL);
        if (strcmp(text(message, "method"), "dropped") == 0)
            told = number(json_object_get(message, "params"), "events");
        events++;
        json_decref(message);
    }
    ck_assert_int_eq(told, dropped);
    ck_assert_int_gt(events, 1000);
    sw_ctl_close(watcher);
}
END_TEST

/* ---- harm -------------------------------------------------------------------------------------------------------- */

static void ck_sound(void) {
    ck_assert_int_eq(sw_control_number(ctl, "status", NULL, "pid"), served.pid);
    ck_assert_int_eq(restore(spill(data_bytes)), 0);
}

static const char *const bad_lines[] = {
    "{",
    "[[[[[[[[",
    "nonsense",
    "{\"jsonrpc\":\"2.0\",\"method\":\"\",\"id\":1}",
    "[]",
    "{}",
    "\"\\ud800\"",
    "1e400",
    "{\"jsonrpc\":\"2.0\",\"method\":\"regions\",\"params\":{\"limit\":1e99},\"id\":1}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"regions\",\"params\":{\"limit\":1,\"limit\":1},\"id\":1}",
    "{\"jsonrpc\":\"2.0\",\"method\":\"drop\",\"params\":[\"99999999999999999999999:1\"],\"id\":1}",
    "\xff\xfe\xfd",
};

START_TEST(bad_lines_are_answered) {
    const char *line;
    struct sw_err err;
    for (size_t i = 0; i < sizeof bad_lines / sizeof bad_lines[0]; i++) {
        ck_assert_int_eq(sw_ctl_send(ctl, bad_lines[i], &err), 0);
        ck_assert_int_eq(sw_ctl_receive(ctl, WAIT_MS, &line, &err), 0);
        ck_assert_msg(strstr(line, "\"error\""), "%s: %s", bad_lines[i], line);
    }
    ck_assert_int_eq(sw_ctl_send(ctl, "\n\r\n\n", &err), 0); /* nothing is asked */
    ck_sound();
}
END_TEST

START_TEST(lines_are_limited) {
    static char line[(256 << 10) + 2];
    const char *answer;
    struct sw_err err;
    struct sw_ctl *other = sw_control_connect(&served);
    memset(line, ' ', sizeof line - 1);
    line[(256 << 10) - 1] = 0;
    (void)memcpy(line, "{}", 2);
    ck_assert_int_eq(sw_ctl_send(other, line, &err), 0);
    ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &answer, &err), 0);
    ck_assert_ptr_nonnull(strstr(answer, "-32600"));
    memset(line, 'x', sizeof line - 1);
    (void)sw_ctl_send(other, line, &err);
    ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &answer, &err), 0);
    ck_assert_ptr_nonnull(strstr(answer, "ELIMIT"));
    ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &answer, &err), -SW_ECONN);
    sw_ctl_close(other);
    ck_sound();
}
END_TEST

START_TEST(connections_are_limited) {
    struct sw_ctl *others[40];
    const unsigned fds = sw_test_daemon_fds(&served);
    unsigned n_served = 0;
    for (unsigned i = 0; i < 40; i++) {
        json_t *result = NULL;
        struct sw_err err;
        others[i] = sw_control_connect(&served);
        const int rc = sw_ctl_call(others[i], "status", NULL, &result, &err);
        ck_assert_msg(rc == 0 || rc == -SW_ELIMIT, "%s", err.msg);
        n_served += rc == 0;
        json_decref(result);
    }
    ck_assert_uint_eq(n_served, 31);
    for (unsigned i = 0; i < 40; i++)
        sw_ctl_close(others[i]);
    const struct timespec a_little = {.tv_nsec = 10000000};
    while (sw_test_daemon_fds(&served) > fds)
        (void)nanosleep(&a_little, NULL);
    ck_sound();
}
END_TEST

/* A peer asks for much and reads nothing: the service stops reading from it, and others notice nothing. */
START_TEST(answers_that_are_not_read) {
    struct sw_ctl *other = sw_control_connect(&served);
    static char batch[16 << 10];
    struct sw_err err;
    size_t n = 0;
    for (int i = 0; i < 64; i++)
        n += (size_t)snprintf(batch + n, sizeof batch - n, "%s{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":1}",
                              i ? "," : "[");
    (void)snprintf(batch + n, sizeof batch - n, "]");
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(sw_ctl_send(other, batch, &err), 0);
    ck_sound();
    const char *line;
    for (int i = 0; i < 4; i++) {
        ck_assert_int_eq(sw_ctl_receive(other, WAIT_MS, &line, &err), 0);
        ck_assert_int_eq(line[0], '[');
    }
    sw_ctl_close(other);
    ck_sound();
}
END_TEST

START_TEST(peers_that_hang_up_during_a_request) {
    for (int i = 0; i < 20; i++) {
        struct sw_ctl *other = sw_control_connect(&served);
        struct sw_err err;
        json_decref(sw_control_ask(other, "events", NULL));
        ck_assert_int_eq(sw_ctl_send(other, "{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":1}", &err), 0);
        sw_ctl_close(other);
    }
    ck_sound();
}
END_TEST

static int connect_raw(void) {
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", served.control);
    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    return fd;
}

START_TEST(requests_sent_at_once_all_get_answers) {
    const int fd = connect_raw();
    const char *line = "{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":1}\n";
    for (int i = 0; i < 20; i++)
        ck_assert_int_eq(send(fd, line, strlen(line), 0), (ssize_t)strlen(line));
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    static char in[1 << 16];
    unsigned n_lines = 0;
    for (ssize_t n; (n = recv(fd, in, sizeof in, 0)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            n_lines += in[i] == '\n';
    ck_assert_uint_eq(n_lines, 20);
    (void)close(fd);
}
END_TEST

/* Lines that end with the stream, as `printf | nc -N` sends them, and the lines that come back. */
static const struct {
    const char *said;
    unsigned n_answers;
    const char *last;
} last_lines[] = {
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7}", 1, "\"id\":7}"},
    {"\n{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7}\r", 1, "\"id\":7}"},
    {"{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7}\n{\"jsonrpc\":\"2.0\",\"method\":\"metrics\",\"id\":8}", 2,
     "\"id\":8"},
    {"[{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":7},{\"jsonrpc\":\"2.0\",\"method\":\"status\",\"id\":9}]", 1,
     "\"id\":9"},
    {"{\"jsonrpc\":\"2.0\",\"met", 1, "-32700"},
    {"\r\n", 0, ""},
    {"", 0, ""},
};

START_TEST(the_last_line_needs_no_newline) {
    static char in[1 << 16];
    const char *said = last_lines[_i].said;
    const int fd = connect_raw();
    size_t bytes = 0;
    unsigned n_lines = 0;
    ck_assert_int_eq(send(fd, said, strlen(said), 0), (ssize_t)strlen(said));
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    for (ssize_t n; (n = recv(fd, in + bytes, sizeof in - 1 - bytes, 0)) > 0;)
        bytes += (size_t)n;
    for (size_t i = 0; i < bytes; i++)
        n_lines += in[i] == '\n';
    ck_assert_uint_eq(n_lines, last_lines[_i].n_answers);
    ck_assert_msg(strstr(in, last_lines[_i].last) != NULL, "%s", in);
    (void)close(fd);
    ck_sound();
}
END_TEST

START_TEST(stale_socket_is_replaced) {
    sw_ctl_close(ctl);
    ck_assert_int_eq(sw_test_daemon_stop(&served, SIGKILL), -SIGKILL);
    spillway_close(client);
    ck_assert_int_eq(access(served.control, F_OK), 0);
    int exit_code;
    ck_assert(sw_test_daemon_try(&served, SW_SPILLWAYD_PATH, NULL, &exit_code));
    ctl = sw_control_connect(&served);
    client = sw_served_connect(&served);
    ck_sound();
}
END_TEST

/* ---- rights ------------------------------------------------------------------------------------------------------ */

/* The result of `method` for another user with that group among its own: 0, or its error; -SW_ECONN: no connection. */
static int as_other(gid_t group, bool primary, const char *method, const char *params) {
    const pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (pid == 0) {
        struct sw_ctl *other = NULL;
        json_t *result = NULL;
        struct sw_err err;
        if (setgroups(group && !primary, &group) < 0 || setgid(primary ? group : NOBODY) < 0 || setuid(NOBODY) < 0)
            _exit(99);
        int rc = sw_ctl_open(&other, served.control, &err);
        if (rc == 0)
            rc = sw_ctl_call(other, method, params ? json_loads(params, 0, NULL) : NULL, &result, &err);
        _exit(rc == 0 ? 0 : 1 + sw_err_index(rc));
    }
    int status;
    ck_assert(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    ck_assert_int_ne(WEXITSTATUS(status), 99);
    return WEXITSTATUS(status) ? sw_err_from_name(sw_err_name_at(WEXITSTATUS(status) - 1)) : 0;
}

START_TEST(others_are_refused) {
    if (getuid() != 0)
        return;
    struct stat found;
    ck_assert_int_eq(chmod(served.folder, 0755), 0);
    ck_assert(stat(served.control, &found) == 0 && (found.st_mode & 0777) == 0660);
    ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES); /* by the file */
    ck_assert_int_eq(chmod(served.control, 0666), 0);
    ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES); /* by the service */
    ck_assert_int_eq(as_other(GROUP, false, "status", NULL), -SW_EACCES);
    ck_sound();
}
END_TEST

/* Repeated refusals do not fill the log. */
START_TEST(logged_refusals_are_limited) {
    enum { N = 40, LINES = 10 };
    if (getuid() != 0)
        return;
    const char *const options[] = {"control_socket_mode=0666", NULL};
    start_anew(options);
    ck_assert_int_eq(chmod(served.folder, 0755), 0);
    for (int i = 0; i < N; i++)
        ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES);
    const unsigned n = sw_test_daemon_logged(&served, "event=control.refused ");
    ck_assert_uint_ge(n, LINES);
    ck_assert_uint_le(n, 2 * LINES); /* a slow machine's time for it may be over in between */
    ck_assert_uint_ge(sw_test_daemon_logged(&served, " left_out=0"), LINES);
}
END_TEST

START_TEST(groups_have_their_rights) {
    if (getuid() != 0)
        return;
    char all[48], read[48];
    struct stat found;
    (void)snprintf(all, sizeof all, "control_group=%d", GROUP);
    (void)snprintf(read, sizeof read, "control_read_group=%d", OTHER_GROUP);
    const char *const options[] = {all, read, "control_socket_mode=0666", NULL};
    start_anew(options);
    ck_assert_int_eq(chmod(served.folder, 0755), 0);
    ck_assert(stat(served.control, &found) == 0 && found.st_gid == GROUP && (found.st_mode & 0777) == 0666);
    for (int primary = 0; primary < 2; primary++) {
        ck_assert_int_eq(as_other(GROUP, primary, "status", NULL), 0);
        ck_assert_int_eq(as_other(GROUP, primary, "drain", "[\"off\"]"), 0);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "status", NULL), 0);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "events", NULL), 0);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "drain", "[\"off\"]"), -SW_EACCES);
        ck_assert_int_eq(as_other(OTHER_GROUP, primary, "config.set", "[\"log_level\",\"debug\"]"), -SW_EACCES);
    }
    ck_assert_int_eq(as_other(0, false, "status", NULL), -SW_EACCES);
}
END_TEST

static const struct {
    const char *option, *says;
} refused[] = {
    {"control_group=there-is-no-such-group", "control_group: there is no group there-is-no-such-group"},
    {"control_read_group=4294967295", "control_read_group: there is no group"},
    {"control_socket=/nonexistent/folder/control.sock", "No such file or directory"},
    {"control_socket=/dev/null", "exists and is no socket"},
};

START_TEST(start_fails_on_bad_options) {
    const char *const options[] = {refused[_i].option, NULL};
    int exit_code = 0;
    stop();
    sw_test_daemon_clean(&served);
    ck_assert(!sw_test_daemon_try(&served, SW_SPILLWAYD_PATH, options, &exit_code));
    ck_assert_int_eq(exit_code, 1);
    ck_assert_uint_eq(sw_test_daemon_logged(&served, refused[_i].says), 1);
    start_anew(NULL);
}
END_TEST

START_TEST(no_control_socket) {
    const char *const options[] = {"control_socket=none", NULL};
    stop();
    sw_test_daemon_clean(&served);
    sw_test_daemon_start(&served, SW_SPILLWAYD_PATH, options);
    ck_assert_int_ne(access(served.control, F_OK), 0);
    start_anew(NULL);
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

/* What one program writes the other one reads. */
static void ck_snapshot_is_read(unsigned n_regions) {
    char says[64];
    const char *output = shell(0, "'%s' -s '%s' snapshot | '%s' --set nvme_tier_directory=/x --dry-run - 2>&1",
                               SW_SPILLWAYCTL_PATH, served.control, SW_SPILLWAYD_PATH);
    (void)snprintf(says, sizeof says, "moved to the NVMe tier: 0 of %u regions", n_regions);
    ck_assert_msg(strstr(output, says) && strstr(output, "is in the NVMe tier"), "%s", output);
}

/* With --wait a command ends when the move has ended. */
static void ck_waits(const char *command, const char *region) {
    const char *output =
        shell(0, "'%s' -s '%s' %s %s --wait 2>&1", SW_SPILLWAYCTL_PATH, served.control, command, region);
    ck_assert_msg(strstr(output, region) != NULL, "%s", output);
    ck_assert_int_eq(count_regions("\"tier\":\"host\"", 100), strcmp(command, "promote") == 0);
}

START_TEST(regions_move_between_tiers) {
    char directory[128], name[32], params[64];
    struct spillway_region regions[8];
    struct sw_nvme_folder folder = sw_nvme_folder_new();
    (void)snprintf(directory, sizeof directory, "nvme_tier_directory=%s", folder.path);
    const char *const options[] = {directory, "nvme_tier_bytes=64 MiB", NULL};
    start_anew(options);
    client = sw_served_connect(&served);
    for (unsigned i = 0; i < 8; i++)
        regions[i] = spill(data_bytes / 4);
    (void)snprintf(name, sizeof name, "%u:%u", regions[3].slot, regions[3].generation);
    (void)snprintf(params, sizeof params, "[\"%s\"]", name);
    json_decref(sw_control_ask(ctl, "demote", params));
    await_tier("nvme", 1);
    json_decref(sw_control_ask(ctl, "demote", params)); /* it is there */
    json_decref(sw_control_ask(ctl, "promote", params));
    await_tier("host", 8);
    /* Room is made until it is enough, and no further. */
    json_t *page = sw_control_ask(ctl, "regions", "{\"limit\":1}");
    const long long each = number(json_array_get(json_object_get(page, "regions"), 0), "stored_bytes");
    json_decref(page);
    (void)snprintf(params, sizeof params, "[%lld]", each * 5);
    json_decref(sw_control_ask(ctl, "spill", params));
    await_tier("nvme", 5);
    ck_assert_int_eq(sw_control_number(ctl, "stats", NULL, "demotions"), 6);
    ck_assert_int_eq(sw_control_number(ctl, "stats", NULL, "promotions"), 1);
    json_decref(sw_control_ask(ctl, "spill", "[1000000000]"));
    await_tier("nvme", 8);
    ck_snapshot_is_read(8);
    ck_waits("promote", name);
    ck_waits("demote", name);
    for (unsigned i = 0; i < 8; i++)
        ck_assert_int_eq(restore(regions[i]), 0);
    start_anew(NULL);
    sw_nvme_folder_free(&folder);
}
END_TEST

START_TEST(without_an_nvme_tier_nothing_moves) {
    const struct spillway_region region = spill(1000);
    char params[64];
    (void)snprintf(params, sizeof params, "[\"%u:%u\"]", region.slot, region.generation);
    (void)sw_control_ck_fails(ctl, "demote", params, SW_ENOTSUP);
    json_decref(sw_control_ask(ctl, "promote", params)); /* it is where it should be */
    (void)sw_control_ck_fails(ctl, "spill", "[1]", SW_ENOTSUP);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("control");
    tcase_add_checked_fixture(tests, setup, teardown);
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
    tcase_add_test(tests, events_are_sent);
    tcase_add_test(tests, the_end_of_the_service_is_sent);
    tcase_add_test(tests, events_left_out_are_counted);
    tcase_add_test(tests, bad_lines_are_answered);
    tcase_add_test(tests, lines_are_limited);
    tcase_add_test(tests, connections_are_limited);
    tcase_add_test(tests, answers_that_are_not_read);
    tcase_add_test(tests, peers_that_hang_up_during_a_request);
    tcase_add_test(tests, requests_sent_at_once_all_get_answers);
    tcase_add_loop_test(tests, the_last_line_needs_no_newline, 0, (int)(sizeof last_lines / sizeof last_lines[0]));
    tcase_add_test(tests, stale_socket_is_replaced);
    tcase_add_test(tests, others_are_refused);
    tcase_add_test(tests, logged_refusals_are_limited);
    tcase_add_test(tests, groups_have_their_rights);
    tcase_add_loop_test(tests, start_fails_on_bad_options, 0, (int)(sizeof refused / sizeof refused[0]));
    tcase_add_test(tests, no_control_socket);
    tcase_add_test(tests, regions_move_between_tiers);
    tcase_add_test(tests, without_an_nvme_tier_nothing_moves);
    Suite *suite = suite_create("control");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
