/* The control methods on a service without its sockets: whatever a line holds, the service is as sound as before. And
 * the control socket, turn by turn of the loop. */
#include "base/clock.h"
#include "base/log.h"
#include "daemon/control/control.h"
#include "daemon/control/metrics.h"
#include "spill/engine_state.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/service.h"

#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

static struct sw_test_service service;
static struct sw_test_control control;

static void setup_large(void) {
    sw_log_set_level(SW_LOG_ERROR);
    sw_test_service_start_large(&service);
    sw_test_control_start(&control, &service);
}

static void setup(void) {
    sw_log_set_level(SW_LOG_ERROR);
    sw_test_service_start(&service);
    sw_test_control_start(&control, &service);
}

static bool is_answered(const char *line, const char *part) {
    char *answer = sw_test_control_line(&control, line, strlen(line));
    const bool found = answer && strstr(answer, part);
    free(answer);
    return found;
}

START_TEST(every_method_answers) {
    char line[256];
    for (unsigned i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        const struct sw_control_row *row = &sw_control_rows[i];
        (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"%s\"}", row->name);
        const bool needs = (row->params[0].name && row->params[0].required) ||
                           (row->params[1].name && row->params[1].by_name && i != SW_CONTROL_DRAIN); /* a region */
        /* There is no configuration to read again, and no remote tier. */
        const bool cannot =
            needs || i == SW_CONTROL_CONFIG_RELOAD || i == SW_CONTROL_REMOTE_GC || i == SW_CONTROL_REMOTE_REWRAP;
        ck_assert_msg(is_answered(line, cannot ? "\"error\"" : "\"result\""), "%s", row->name);
    }
}
END_TEST

/* A restart may find a region that had been restored, and whose client has not been told so. If an operator dropped it,
 * the client would take its bytes for lost. */
START_TEST(what_is_in_is_not_dropped) {
    struct sw_engine *engine = service.service.engine;
    struct sw_owner *owner;
    char line[128];
    ck_assert_int_eq(sw_owner_open(engine, &owner, NULL), 0);
    struct sw_region *region = sw_region_acquire(&engine->store.regions, owner);
    ck_assert_ptr_nonnull(region);
    ck_assert_int_eq(region->state, SW_REGION_IN);
    (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drop\",\"params\":[\"%u:%u\"]}",
                   region->id.slot, region->id.gen);
    for (int i = 0; i < 2; i++)
        ck_assert(is_answered(line, "ESTATE"));
    ck_assert_uint_eq(engine->store.regions.n_used, 1);
}
END_TEST

START_TEST(what_subscribers_have_no_room_for_is_counted) {
    ck_assert(is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\"}", "true"));
    for (int i = 0; i < 10; i++)
        sw_log(SW_LOG_INFO, "news", "n=%d", i);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_ge(control.n_told, 10);
    ck_assert_uint_gt(sw_events_dropped(control.context.events), 0);
    ck_assert_uint_lt(sw_events_dropped(control.context.events), 10);
    /* More at once than wait for the loop. */
    for (int i = 0; i < 2000; i++)
        sw_log(SW_LOG_INFO, "news", "n=%d", i);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_gt(sw_events_dropped(control.context.events), 900);
    ck_assert(
        is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\",\"params\":[\"session\",\"off\"]}", "false"));
    const unsigned told = control.n_told;
    sw_log(SW_LOG_INFO, "news", "n=1");
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    ck_assert_uint_eq(control.n_told, told);
}
END_TEST

/* ---- events ------------------------------------------------------------------------------------------------------ */

/* A reader that has room for events, or for counts of those that it missed, or not. */
static struct reader {
    struct sw_subscriber subscriber;
    bool takes_events, takes_counts;
    char told[2048]; /* all lines */
} reader;

static bool tell(struct sw_subscriber *subscriber, const char *line) {
    struct reader *r = SW_CONTAINER_OF(subscriber, struct reader, subscriber);
    if (!(strstr(line, "\"dropped\"") ? r->takes_counts : r->takes_events))
        return false;
    ck_assert_uint_lt(strlen(r->told) + strlen(line), sizeof r->told);
    (void)strcat(r->told, line);
    return true;
}

static void read_events(const char *only) {
    reader.takes_events = reader.takes_counts = true;
    sw_subscriber_init(&reader.subscriber, control.context.events, tell);
    sw_subscribe(&reader.subscriber, only);
}

/* An event happens, and the loop has its turn. */
static void happen(const char *event, int n) {
    sw_log(SW_LOG_INFO, event, "n=%d", n);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
}

static bool was_told(int n) {
    char text[16];
    (void)snprintf(text, sizeof text, "\"n\":%d", n);
    return strstr(reader.told, text) != NULL;
}

/* A reader learns that it missed some, and how many, before it is told what comes after them. */
START_TEST(events_go_on_behind_the_count_of_those_missed) {
    read_events(NULL);
    happen("news", 1);
    ck_assert(was_told(1));
    reader.takes_events = reader.takes_counts = false;
    happen("news", 2);
    reader.takes_events = true; /* for its short line there is room, for the count there is none */
    happen("news", 3);
    ck_assert(!was_told(2) && !was_told(3) && !strstr(reader.told, "dropped"));
    reader.takes_counts = true;
    happen("news", 4);
    const char *count = strstr(reader.told, "\"method\":\"dropped\",\"params\":{\"events\":2}"),
               *event = strstr(reader.told, "\"n\":4");
    ck_assert_msg(count && event && count < event, "%s", reader.told);
    sw_unsubscribe(&reader.subscriber);
}
END_TEST

/* Lines for which the queue had no room are counted once, and at once: perhaps nothing else happens. */
START_TEST(lost_events_are_told_though_no_other_follows) {
    read_events("other");
    for (int i = 0; i < 1024 + 5; i++)
        sw_log(SW_LOG_INFO, "news", "n=%d", i);
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    const char *count = strstr(reader.told, "\"method\":\"dropped\",\"params\":{\"events\":5}");
    ck_assert_msg(count != NULL, "%s", reader.told);
    happen("other", 1);
    ck_assert(was_told(1));
    ck_assert_msg(!strstr(strchr(count, ','), "dropped"), "%s", reader.told);
    sw_unsubscribe(&reader.subscriber);
}
END_TEST

/* The subscription that ended, and what happened before the next one, is none of its business. */
START_TEST(a_subscription_begins_anew) {
    read_events(NULL);
    reader.takes_events = reader.takes_counts = false;
    happen("news", 1);
    sw_unsubscribe(&reader.subscriber);
    reader.takes_events = reader.takes_counts = true;
    sw_log(SW_LOG_INFO, "news", "n=2");
    sw_subscribe(&reader.subscriber, NULL);
    happen("news", 3);
    ck_assert(was_told(3));
    ck_assert_msg(!was_told(1) && !was_told(2) && !strstr(reader.told, "dropped"), "%s", reader.told);
    sw_unsubscribe(&reader.subscriber);
}
END_TEST

/* The last filter counts. A name's beginning up to a dot will do, and no other. */
START_TEST(a_filter_can_be_changed) {
    read_events("news");
    happen("news", 1);
    happen("news.done", 2);
    happen("newsletter", 3);
    happen("spill.done", 4);
    sw_subscribe(&reader.subscriber, "other,spill");
    happen("news", 5);
    happen("spill.done", 6);
    sw_subscribe(&reader.subscriber, NULL);
    happen("news", 7);
    for (int n = 1; n <= 7; n++)
        ck_assert_msg(was_told(n) == (n != 3 && n != 4 && n != 5), "%d: %s", n, reader.told);
    sw_unsubscribe(&reader.subscriber);
}
END_TEST

START_TEST(a_filter_has_names_of_events) {
    ck_assert(is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\",\"params\":[\"session,spil\"]}",
                          "there is no event 'spil'"));
    ck_assert(!control.subscriber.is_on);
    ck_assert(
        is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"events\",\"params\":[\"session,spill\"]}", "true"));
    ck_assert(control.subscriber.is_on);
}
END_TEST

static uint64_t wall_ms(void) {
    struct timespec now;
    ck_assert_int_eq(clock_gettime(CLOCK_REALTIME, &now), 0);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

START_TEST(events_tell_when_they_happened) {
    const uint64_t before_ms = wall_ms();
    read_events(NULL);
    happen("news", 1);
    const char *time = strstr(reader.told, "\"time_ms\":");
    ck_assert_ptr_nonnull(time);
    const uint64_t time_ms = strtoull(time + strlen("\"time_ms\":"), NULL, 10);
    ck_assert_msg(before_ms <= time_ms && time_ms <= wall_ms(), "%s", reader.told);
    sw_unsubscribe(&reader.subscriber);
}
END_TEST

static void note_closed(void *arg) {
    *(bool *)arg = true;
}

/* What happened before the end is told, such as why the service stops. */
START_TEST(the_last_events_are_told) {
    bool is_closed = false;
    read_events(NULL);
    sw_log(SW_LOG_INFO, "news", "n=1");
    sw_events_close(control.context.events, note_closed, &is_closed);
    ck_assert(was_told(1));
    sw_log(SW_LOG_INFO, "news", "n=2");
    while (!is_closed)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert(!was_told(2));
}
END_TEST

/* Events tell an operator which user changed what, and which one tried to. Questions are no events. */
START_TEST(changes_are_told_whether_they_succeed_or_not) {
    static const struct {
        const char *line, *event;
    } rows[] = {
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drop\",\"params\":[\"0:1\"]}",
         "\"event\":\"control.failed\",\"method\":\"drop\",\"uid\":0,\"name\":\"ENOENT\""},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\",\"params\":[\"on\"]}",
         "\"event\":\"control.done\",\"method\":\"drain\",\"uid\":0"},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\"}", NULL},
        {"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}", NULL},
    };
    read_events("control");
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        reader.told[0] = 0;
        ck_assert(is_answered(rows[i].line, rows[i].event && i == 0 ? "ENOENT" : "\"result\""));
        (void)uv_run(&service.loop, UV_RUN_NOWAIT);
        ck_assert_msg(rows[i].event ? strstr(reader.told, rows[i].event) != NULL : !reader.told[0], "%s: %s",
                      rows[i].line, reader.told);
    }
    sw_unsubscribe(&reader.subscriber);
}
END_TEST

/* ---- regions ----------------------------------------------------------------------------------------------------- */

START_TEST(a_region_is_shown_as_it_is) {
    static const char *const fields[] = {"\"priority\":7",    "\"pinned\":false", "\"moving\":false",
                                         "\"session\":null",  "\"state\":\"in\"", "\"codec\":\"none\"",
                                         "\"coder\":\"none\""};
    struct sw_engine *engine = service.service.engine;
    struct sw_owner *owner;
    ck_assert_int_eq(sw_owner_open(engine, &owner, NULL), 0);
    struct sw_region *region = sw_region_acquire(&engine->store.regions, owner);
    ck_assert_ptr_nonnull(region);
    region->priority = 7;
    region->used_us = sw_clock_us() - 5000000;
    static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"regions\"}";
    char *answer = sw_test_control_line(&control, line, sizeof line - 1);
    ck_assert_ptr_nonnull(answer);
    for (size_t i = 0; i < sizeof fields / sizeof fields[0]; i++)
        ck_assert_msg(strstr(answer, fields[i]) != NULL, "no %s in %s", fields[i], answer);
    const char *idle = strstr(answer, "\"idle_us\":");
    ck_assert(idle != NULL && strtoull(idle + 10, NULL, 10) >= 5000000 && strtoull(idle + 10, NULL, 10) < 60000000);
    free(answer);
    region->pinned = true;
    region->priority = 0;
    ck_assert(is_answered(line, "\"priority\":0,\"pinned\":true"));
}
END_TEST

static struct sw_region *add_region(struct sw_owner *owner, struct sw_owner *tenant_owner, const char *name) {
    struct sw_region *region = sw_region_acquire(&service.service.engine->store.regions, owner);
    ck_assert_ptr_nonnull(region);
    if (tenant_owner)
        sw_owner_set_tenant_owner(owner, tenant_owner);
    if (name)
        ck_assert_int_eq(sw_region_set_name(region, name), 0);
    return region;
}

static struct sw_owner *add_owner(uint32_t uid) {
    struct sw_owner *ret;
    ck_assert_int_eq(sw_owner_open(service.service.engine, &ret, NULL), 0);
    if (uid)
        sw_owner_become_tenant_owner(ret, uid);
    return ret;
}

/* A region is named by its id, or by a name that only one user has, or by a name and a uid. */
START_TEST(one_region_is_meant_or_none) {
    static const struct {
        const char *params, *answer;
    } rows[] = {
        {"{}", "give a region or a name\""},
        {"{\"region\":\"0:1\",\"name\":\"a\"}", "not both"},
        {"{\"region\":\"0:1\",\"uid\":1001}", "belongs to a name"},
        {"{\"uid\":1001}", "give a region or a name\""},
        {"{\"name\":\"a\"}", "several users"},
        {"{\"name\":\"a\",\"uid\":1001}", "\"region\":\"0:1\""},
        {"{\"name\":\"a\",\"uid\":1002}", "\"region\":\"1:1\""},
        {"{\"name\":\"a\",\"uid\":1003}", "no durable region of this name"},
        {"{\"name\":\"b\"}", "\"region\":\"2:1\""},
        {"{\"name\":\"b\",\"uid\":1002}", "\"region\":\"2:1\""},
        {"{\"name\":\"b\",\"uid\":1001}", "no durable region of this name"},
        {"{\"name\":\"c\"}", "no durable region of this name"},
        {"{\"region\":\"2:1\"}", "\"region\":\"2:1\""},
        {"{\"region\":\"2:2\"}", "ENOENT"},
        {"{\"region\":\"3:1\"}", "ENOENT"},
    };
    static const char head[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":";
    struct sw_owner *first = add_owner(1001), *second = add_owner(1002);
    struct sw_region *regions[] = {add_region(first, NULL, "a"), add_region(second, NULL, "a"),
                                   add_region(add_owner(0), second, "b")};
    char line[300];
    for (size_t i = 0; i < 3; i++) {
        regions[i]->frames = sw_frames_new(1, 1, false);
        regions[i]->state = SW_REGION_OUT;
    }
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        (void)snprintf(line, sizeof line, "%s\"promote\",\"params\":%s}", head, rows[i].params);
        ck_assert_msg(is_answered(line, rows[i].answer), "%s", rows[i].params);
    }
    (void)snprintf(line, sizeof line, "%s\"spill\",\"params\":{\"name\":\"b\",\"bytes\":4096}}", head);
    ck_assert(is_answered(line, "not both"));
    (void)snprintf(line, sizeof line, "%s\"spill\"}", head);
    ck_assert(is_answered(line, "give bytes or a name\""));
}
END_TEST

/* While a region moves to another tier, its row shows how far it has come. */
START_TEST(a_region_that_moves_is_shown) {
    static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"regions\"}";
    const atomic_ullong moved_bytes = 77;
    struct sw_move move = {.moved_bytes = &moved_bytes};
    struct sw_region *region = add_region(add_owner(1001), NULL, "a");
    ck_assert(is_answered(line, "\"moving\":false") && !is_answered(line, "\"moved_bytes\""));
    region->move = &move;
    ck_assert(is_answered(line, "\"moving\":true") && is_answered(line, "\"moved_bytes\":77"));
    region->move = NULL;
}
END_TEST

/* Returns the number of regions on a page, and the cursor of the next. */
static size_t page_of(const char *params, json_int_t *ret_next) {
    char line[300];
    (void)snprintf(line, sizeof line, "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"regions\",\"params\":%s}", params);
    char *text = sw_test_control_line(&control, line, strlen(line));
    json_t *answer = json_loads(text, 0, NULL), *result = json_object_get(answer, "result"),
           *next = json_object_get(result, "next");
    const size_t n = json_array_size(json_object_get(result, "regions"));
    *ret_next = next ? json_integer_value(next) : -1;
    json_decref(answer);
    free(text);
    return n;
}

START_TEST(regions_are_shown_page_by_page) {
    enum { N = 7 };
    struct sw_owner *first = add_owner(1001), *second = add_owner(1002);
    char params[100], name[8];
    json_int_t next;
    for (unsigned i = 0; i < N; i++) {
        (void)snprintf(name, sizeof name, "%u", i);
        struct sw_region *region = add_region(i < 2 ? first : second, NULL, name);
        if (i == 3)
            region->state = SW_REGION_LOST;
    }
    ck_assert_uint_eq(page_of("{}", &next), N);
    ck_assert_int_eq(next, -1);
    ck_assert_uint_eq(page_of("{\"uid\":1001}", &next), 2);
    ck_assert_uint_eq(page_of("{\"uid\":1002}", &next), N - 2);
    ck_assert_uint_eq(page_of("{\"uid\":1003}", &next), 0);
    ck_assert_uint_eq(page_of("{\"state\":\"lost\"}", &next), 1);
    ck_assert_uint_eq(page_of("{\"state\":\"lost\",\"uid\":1001}", &next), 0);
    ck_assert_uint_eq(page_of("{\"session\":1}", &next), 0);
    for (unsigned limit = 1; limit <= N; limit++) {
        size_t n = 0;
        next = 0;
        for (unsigned page = 0; next >= 0; page++) {
            (void)snprintf(params, sizeof params, "{\"limit\":%u,\"cursor\":%lld}", limit, (long long)next);
            const size_t more = page_of(params, &next);
            ck_assert(more <= limit && (more == limit || next < 0) && page < N);
            n += more;
        }
        ck_assert_uint_eq(n, N);
    }
    ck_assert_uint_eq(page_of("{\"limit\":1,\"cursor\":2,\"uid\":1001}", &next), 0);
}
END_TEST

/* All pages together have each stored region once, and no other. */
START_TEST(a_snapshot_has_pages) {
    enum { REGIONS = 3501, PAGE = 1000 };
    static unsigned seen[REGIONS];
    static const enum sw_region_state states[] = {SW_REGION_OUT, SW_REGION_LOST, SW_REGION_RESTORING};
    static uint32_t slots[REGIONS];
    struct sw_owner *owner = add_owner(1001);
    json_int_t next = 0;
    unsigned n_pages = 0, n_seen = 0, slot, gen;
    char line[200];
    for (unsigned i = 0; i < REGIONS; i++) {
        struct sw_region *region = add_region(owner, NULL, NULL);
        region->state = states[i % 3];
        slots[i] = region->id.slot;
    }
    while (next >= 0) {
        (void)snprintf(line, sizeof line,
                       "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"snapshot\",\"params\":{\"cursor\":%lld}}",
                       (long long)next);
        char *text = sw_test_control_line(&control, line, strlen(line));
        json_t *answer = json_loads(text, 0, NULL), *result = json_object_get(answer, "result"),
               *regions = json_object_get(result, "regions"), *more = json_object_get(result, "next");
        ck_assert_uint_le(json_array_size(regions), PAGE);
        for (size_t i = 0; i < json_array_size(regions); i++) {
            const char *id = json_string_value(json_object_get(json_array_get(regions, i), "region"));
            ck_assert_int_eq(sscanf(id, "%u:%u", &slot, &gen), 2);
            for (unsigned at = 0; at < REGIONS; at++)
                seen[at] += slots[at] == slot;
        }
        n_seen += (unsigned)json_array_size(regions);
        ck_assert_uint_le(++n_pages, 10);
        next = more ? json_integer_value(more) : -1;
        ck_assert(more || json_array_size(regions) < PAGE);
        json_decref(answer);
        free(text);
    }
    ck_assert_uint_eq(n_pages, 3);
    ck_assert_uint_eq(n_seen, (REGIONS + 1) / 3 * 2);
    for (unsigned i = 0; i < REGIONS; i++)
        ck_assert_uint_eq(seen[i], i % 3 != 1);
}
END_TEST

/* ---- options ----------------------------------------------------------------------------------------------------- */

/* Each option that other parts have copies of comes to them, too. */
START_TEST(options_that_are_set_come_into_force) {
    static const struct {
        const char *name;
        unsigned value;
    } settings[] = {{"host_tier_low_pct", 31}, {"host_tier_high_pct", 62}, {"max_session_regions", 15}};
    const struct sw_engine *engine = service.service.engine;
    char line[200];
    for (size_t i = 0; i < sizeof settings / sizeof settings[0]; i++) {
        (void)snprintf(line, sizeof line,
                       "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"%s\",%u]}",
                       settings[i].name, settings[i].value);
        ck_assert_msg(is_answered(line, "\"result\""), "%s", settings[i].name);
    }
    ck_assert_uint_eq(engine->balance.low_pct, 31);
    ck_assert_uint_eq(engine->balance.high_pct, 62);
    ck_assert_uint_eq(engine->config.max_owner_regions, 15);
}
END_TEST

/* Each option that a running service cannot change: it is refused, and the old value stays. */
START_TEST(options_that_need_a_restart_are_not_set) {
    struct sw_config_option option;
    char line[300];
    unsigned n = 0;
    for (unsigned i = 0; sw_config_describe(i, &option); i++) {
        const struct sw_config before = service.config;
        if (option.live || !strstr(option.accepted, "a whole number"))
            continue;
        (void)snprintf(line, sizeof line,
                       "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"%s\",%u]}", option.name,
                       5000 + i);
        n += is_answered(line, "needs a restart");
        ck_assert_msg(!sw_config_differs(&service.config, &before, i), "%s", option.name);
    }
    ck_assert_uint_gt(n, 0);
    ck_assert(is_answered("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"max_sessions\",77]}",
                          "\"result\""));
    ck_assert_uint_eq(service.config.max_sessions, 77);
}
END_TEST

/* ---- lines ------------------------------------------------------------------------------------------------------- */

static uint64_t state = 1;
static uint64_t next(uint64_t below) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    return state % below;
}

static const char *const seeds[] = {
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"regions\",\"params\":{\"session\":1,\"uid\":0,\"tier\":\"host\","
    "\"limit\":9}}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"max_session_regions\",3]}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"host_tier_low_pct\",\"3\"]}",
    "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drop\",\"params\":[\"0:1\"]}",
    "[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"drain\",\"params\":[\"off\"]},{\"jsonrpc\":\"2.0\",\"method\":"
    "\"stats\"}]",
    "{\"jsonrpc\":\"2.0\",\"id\":\"x\",\"method\":\"events\",\"params\":{\"only\":\"config,drain\",\"mode\":\"on\"}}",
    "{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"log.level\",\"params\":[\"error\"]}",
    "{\"jsonrpc\":\"2.0\",\"id\":1e3,\"method\":\"spill\",\"params\":{\"bytes\":4096}}",
};

START_TEST(mutated_lines) {
    char line[512];
    for (int i = 0; i < 10000; i++) {
        const char *seed = seeds[next(sizeof seeds / sizeof seeds[0])];
        size_t bytes = (size_t)snprintf(line, sizeof line, "%s", seed);
        for (uint64_t n = next(4); n > 0; n--) {
            const size_t at = next(bytes);
            if (next(3) == 0)
                memmove(line + at, line + at + 1, --bytes - at);
            else
                line[at] = next(2) ? (char)next(256) : "{}[]\",:0189e-\\"[next(14)];
        }
        char *answer = sw_test_control_line(&control, line, bytes);
        if (answer) {
            json_t *parsed = json_loads(answer, 0, NULL);
            ck_assert_msg(parsed != NULL, "%s", answer);
            json_decref(parsed);
        }
        free(answer);
        if (i % 100 == 0)
            (void)uv_run(&service.loop, UV_RUN_NOWAIT);
    }
    sw_engine_check(service.service.engine);
}
END_TEST

/* ---- turns ------------------------------------------------------------------------------------------------------- */

static struct sw_control *listen_in(const char *folder) {
    struct sw_control *ret = NULL;
    struct sw_err err;
    (void)snprintf(service.config.control_socket, sizeof service.config.control_socket, "%s/control.sock", folder);
    ck_assert_msg(sw_control_open(&ret, &service.service, &err) == 0, "%s", err.msg);
    return ret;
}

static void turn(void) {
    (void)uv_run(&service.loop, UV_RUN_NOWAIT);
}

/* A peer that has sent its lines by the loop's next turn. */
static int peer_with(const char *lines) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", service.config.control_socket);
    ck_assert(fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0);
    turn(); /* accepted */
    ck_assert_int_eq(send(fd, lines, strlen(lines), 0), (ssize_t)strlen(lines));
    return fd;
}

/* Lines that have come from there by now. */
static unsigned answers_to(int fd) {
    char in[4096];
    unsigned n_lines = 0;
    for (ssize_t n; (n = recv(fd, in, sizeof in, 0)) > 0;)
        for (ssize_t i = 0; i < n; i++)
            n_lines += in[i] == '\n';
    return n_lines;
}

/* Makes the most requests that a batch may have, in one line or in a line each. They leave a trace: each sets the
 * option to its own number, from 1. */
static const char *settings(bool is_batch) {
    static char lines[16384];
    size_t at = 0;
    for (unsigned i = 1; i <= SW_RPC_MAX_BATCH; i++) {
        const char *before = !is_batch ? "\n" : i == 1 ? "[" : ",";
        at += (size_t)snprintf(lines + at, sizeof lines - at,
                               "%s{\"jsonrpc\":\"2.0\",\"method\":\"config.set\","
                               "\"params\":[\"max_session_regions\",%u]}",
                               before, i);
    }
    (void)snprintf(lines + at, sizeof lines - at, "%s\n", is_batch ? "]" : "");
    return lines;
}

/* If a peer sends many requests, in one line or in many, a few are done in each turn, and others are answered
 * meanwhile. */
START_TEST(much_is_done_a_few_requests_a_turn) {
    char folder[SW_TEST_PATH_BYTES];
    sw_test_folder(folder);
    (void)listen_in(folder);
    service.config.max_session_regions = 0;
    const int busy = peer_with(settings(_i));
    const uint64_t *n_done = &service.config.max_session_regions;
    unsigned n_turns = 0, n_answers = 0;
    int other = -1;
    while (*n_done < SW_RPC_MAX_BATCH) {
        const uint64_t n_before = *n_done;
        turn();
        ck_assert_uint_le(*n_done, n_before + SW_CONTROL_REQUESTS_PER_TURN);
        if (*n_done < SW_RPC_MAX_BATCH / 2 && other >= 0)
            n_answers += answers_to(other);
        if (*n_done && other < 0)
            other = peer_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n");
        ck_assert_uint_lt(n_turns++, 100);
    }
    ck_assert_uint_eq(n_answers, 1);
    (void)close(busy);
    (void)close(other);
}
END_TEST

/* Many peers get no more done in a turn than one, and it is each one's turn. */
START_TEST(a_turn_is_for_all_peers_together) {
    enum { PEERS = 3 * SW_CONTROL_REQUESTS_PER_TURN };
    static const char lines[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n"
                                "{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"status\"}\n";
    char folder[SW_TEST_PATH_BYTES];
    unsigned answers[PEERS] = {0};
    int peers[PEERS];
    sw_test_folder(folder);
    (void)listen_in(folder);
    for (unsigned i = 0; i < PEERS; i++)
        peers[i] = peer_with("");
    for (unsigned i = 0; i < PEERS; i++)
        ck_assert_int_eq(send(peers[i], lines, sizeof lines - 1, 0), (ssize_t)sizeof lines - 1);
    for (unsigned n_turns = 0, n_all = 0; n_all < 2 * PEERS; n_turns++) {
        const unsigned n_before = n_all;
        turn();
        for (unsigned i = 0; i < PEERS; i++) {
            const unsigned n = answers_to(peers[i]);
            answers[i] += n;
            n_all += n;
        }
        ck_assert_uint_le(n_all, n_before + SW_CONTROL_REQUESTS_PER_TURN);
        for (unsigned i = 0; n_all < PEERS && i < PEERS; i++)
            ck_assert_uint_le(answers[i], 1);
        ck_assert_uint_lt(n_turns, 100);
    }
    for (unsigned i = 0; i < PEERS; i++)
        (void)close(peers[i]);
}
END_TEST

static void on_closed(void *arg) {
    *(bool *)arg = true;
}

/* Lines, or one batch, from a peer that then has nothing more to say: it gets every answer before the end. */
START_TEST(a_peer_that_has_said_all_is_answered) {
    char folder[SW_TEST_PATH_BYTES], lines[8192], c;
    size_t at = 0;
    unsigned n_answers = 0;
    sw_test_folder(folder);
    struct sw_control *control_socket = listen_in(folder);
    for (unsigned i = 0; i < SW_RPC_MAX_BATCH; i++)
        at += (size_t)snprintf(lines + at, sizeof lines - at, "%s{\"jsonrpc\":\"2.0\",\"id\":%u,\"method\":\"status\"}",
                               !_i ? "\n"
                               : i ? ","
                                   : "[",
                               i);
    (void)snprintf(lines + at, sizeof lines - at, "%s\n", _i ? "]" : "");
    const int fd = peer_with(lines);
    ck_assert_int_eq(shutdown(fd, SHUT_WR), 0);
    do {
        turn();
        n_answers += answers_to(fd);
    } while (recv(fd, &c, 1, MSG_PEEK) != 0);
    ck_assert_uint_eq(n_answers, _i ? 1 : SW_RPC_MAX_BATCH);
    (void)close(fd);
    bool closed = false;
    sw_control_close(control_socket, on_closed, &closed);
    while (!closed)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
}
END_TEST

/* The end of a peer that has left answers unread is an error of the socket. It leaves no connection behind. */
START_TEST(a_peer_that_reads_nothing_leaves_nothing) {
    char folder[SW_TEST_PATH_BYTES];
    unsigned n_answers = 0;
    sw_test_folder(folder);
    (void)listen_in(folder);
    for (unsigned i = 0; i < SW_CONTROL_MAX_CONNECTIONS; i++) {
        const int fd = peer_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n");
        for (char c; recv(fd, &c, 1, MSG_PEEK) < 0;)
            turn();
        (void)close(fd);
    }
    turn();
    const int fd =
        peer_with("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"config.set\",\"params\":[\"max_sessions\",77]}\n");
    for (unsigned i = 0; !n_answers && i < 100; i++) {
        turn();
        n_answers = answers_to(fd);
    }
    ck_assert_uint_eq(service.config.max_sessions, 77);
    (void)close(fd);
}
END_TEST

static unsigned n_not_read;

static void count_not_read(enum sw_log_level level, const char *line, void *arg) {
    (void)level, (void)arg;
    n_not_read += strstr(line, "event=control.close ") && strstr(line, "answers are not read");
}

/* A batch whose answer takes more memory than a peer may have is not finished: the peer is told nothing, and hung up.
 * The others notice nothing. */
START_TEST(an_answer_has_a_greatest_length) {
    enum { REGIONS = 1000 };
    char folder[SW_TEST_PATH_BYTES], lines[8192], name[16], c;
    struct sw_owner *owner = add_owner(1001);
    size_t at = 0;
    for (unsigned i = 0; i < REGIONS; i++) {
        (void)snprintf(name, sizeof name, "%u", i);
        (void)add_region(owner, NULL, name);
    }
    for (unsigned i = 0; i < SW_RPC_MAX_BATCH; i++)
        at += (size_t)snprintf(lines + at, sizeof lines - at,
                               "%s{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"regions\",\"params\":{\"limit\":1000}}",
                               i ? "," : "[");
    (void)snprintf(lines + at, sizeof lines - at, "]\n");
    sw_test_folder(folder);
    (void)listen_in(folder);
    sw_log_set_level(SW_LOG_INFO);
    sw_log_set_tap(count_not_read, NULL);
    const int other = peer_with(""), much = peer_with(lines);
    for (unsigned n_turns = 0; recv(much, &c, 1, MSG_PEEK) != 0; n_turns++) {
        ck_assert_uint_eq(answers_to(much), 0);
        ck_assert_uint_lt(n_turns, 1000);
        turn();
    }
    ck_assert_uint_eq(n_not_read, 1);
    sw_log_set_tap(NULL, NULL);
    static const char line[] = "{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"status\"}\n";
    ck_assert_int_eq(send(other, line, sizeof line - 1, 0), (ssize_t)sizeof line - 1);
    for (unsigned n_turns = 0; answers_to(other) == 0; n_turns++) {
        ck_assert_uint_lt(n_turns, 100);
        turn();
    }
    (void)close(much);
    (void)close(other);
}
END_TEST

/* The service ends in the middle of a batch, its peer being there or gone. */
START_TEST(batches_may_stay_half_done) {
    char folder[SW_TEST_PATH_BYTES];
    sw_test_folder(folder);
    struct sw_control *control_socket = listen_in(folder);
    service.config.max_session_regions = 0;
    const int busy = peer_with(settings(true));
    while (service.config.max_session_regions == 0)
        turn();
    if (_i)
        (void)close(busy);
    bool closed = false;
    sw_control_close(control_socket, on_closed, &closed);
    while (!closed)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_lt(service.config.max_session_regions, SW_RPC_MAX_BATCH);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("daemon_control");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, every_method_answers);
    tcase_add_test(tests, what_is_in_is_not_dropped);
    tcase_add_test(tests, what_subscribers_have_no_room_for_is_counted);
    tcase_add_test(tests, events_go_on_behind_the_count_of_those_missed);
    tcase_add_test(tests, lost_events_are_told_though_no_other_follows);
    tcase_add_test(tests, a_subscription_begins_anew);
    tcase_add_test(tests, a_filter_can_be_changed);
    tcase_add_test(tests, a_filter_has_names_of_events);
    tcase_add_test(tests, events_tell_when_they_happened);
    tcase_add_test(tests, the_last_events_are_told);
    tcase_add_test(tests, changes_are_told_whether_they_succeed_or_not);
    tcase_add_test(tests, a_region_is_shown_as_it_is);
    tcase_add_test(tests, one_region_is_meant_or_none);
    tcase_add_test(tests, options_that_are_set_come_into_force);
    tcase_add_test(tests, options_that_need_a_restart_are_not_set);
    tcase_add_test(tests, a_region_that_moves_is_shown);
    tcase_add_test(tests, regions_are_shown_page_by_page);
    tcase_add_test(tests, mutated_lines);
    tcase_add_loop_test(tests, much_is_done_a_few_requests_a_turn, 0, 2);
    tcase_add_test(tests, a_turn_is_for_all_peers_together);
    tcase_add_loop_test(tests, a_peer_that_has_said_all_is_answered, 0, 2);
    tcase_add_test(tests, a_peer_that_reads_nothing_leaves_nothing);
    tcase_add_loop_test(tests, batches_may_stay_half_done, 0, 2);
    TCase *large = tcase_create("large");
    tcase_add_checked_fixture(large, setup_large, NULL);
    tcase_add_test(large, an_answer_has_a_greatest_length);
    tcase_add_test(large, a_snapshot_has_pages);
    Suite *suite = suite_create("daemon_control");
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, large);
    return sw_test_run(suite, CK_FORK);
}
