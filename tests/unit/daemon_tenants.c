/* Tenants: limits over all sessions of a uid, which users are served, and that a foreign region looks like an unknown
 * one. */
#include "base/alloc.h"
#include "base/log.h"
#include "base/memory.h"
#include "daemon/descriptors.h"
#include "daemon/memory.h"
#include "daemon/reload.h"
#include "ipc/spillway.h"
#include "spill/engine_state.h"
#include "spill/operator.h"
#include "tests/lib/run.h"
#include "tests/lib/service.h"
#include <check.h>
#include <fcntl.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { MEMORY_BYTES = 8192, OTHERS_UID = 77777 };

static struct sw_test_service service;
static struct sw_list sessions; /* as the server has them */

struct client {
    struct sw_session *session;
    int peer;
    bool closed;
    uint32_t seq;
};

static void open_client(struct client *ret) {
    memset(ret, 0, sizeof *ret);
    ret->session = sw_test_service_session(&service, &ret->peer, &ret->closed);
}

static void setup(void) {
    sw_test_service_start(&service);
}

static void close_clients(struct client *clients, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (!clients[i].closed)
            sw_session_close(clients[i].session, "test");
    for (unsigned i = 0; i < n; i++) {
        while (!clients[i].closed)
            (void)uv_run(&service.loop, UV_RUN_ONCE);
        (void)close(clients[i].peer);
    }
    sw_engine_check(service.service.engine);
    sw_tenants_close(&service.service);
    while (!sw_list_empty(&service.service.tenants))
        (void)uv_run(&service.loop, UV_RUN_ONCE);
}

static void send_msg(struct client *c, struct sw_msg *msg, int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = SW_PROTO_OLDEST_VERSION;
    msg->header.seq = ++c->seq;
    sw_session_packet(c->session, packet, sw_msg_encode(msg, packet), fds, n_fds);
}

/* The next packet that the client finds, and its length. */
static size_t receive(int peer, uint8_t packet[SW_PROTO_MAX_PACKET_BYTES]) {
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    while (sw_packet_receive(peer, packet, &bytes, fds, &n_fds) == -SW_EAGAIN)
        (void)uv_run(&service.loop, UV_RUN_ONCE);
    ck_assert_uint_gt(bytes, 0);
    return bytes;
}

/* Code of the next reply, which stays in *ret. */
static int await(const struct client *c, struct sw_msg *ret) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_err err;
    ck_assert_int_eq(sw_msg_decode(ret, packet, receive(c->peer, packet), NULL), 0);
    if (ret->header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &ret->u.error);
    return err.code;
}

/* Memory 1, to stay. */
static void open_memory(struct client *c) {
    int fd = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    struct sw_msg open = {.header = {.type = SW_MSG_MEM_OPEN}}, parts = {.header = {.type = SW_MSG_MEM_PARTS}};
    ck_assert(ftruncate(fd, MEMORY_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    open.u.mem_open = (struct sw_msg_mem_open){.mem = 1, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = MEMORY_BYTES};
    parts.u.mem_parts = (struct sw_msg_mem_parts){.mem = 1, .count = 1, .part_bytes = {MEMORY_BYTES}};
    send_msg(c, &open, NULL, 0);
    ck_assert_int_eq(await(c, &open), 0);
    send_msg(c, &parts, &fd, 1);
    ck_assert_int_eq(await(c, &parts), 0);
}

static void send_spill(struct client *c, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL}};
    msg.u.spill = (struct sw_msg_spill){.mem = 1, .bytes = bytes};
    send_msg(c, &msg, NULL, 0);
}

static int spill(struct client *c, uint64_t bytes, struct sw_region_id *ret) {
    struct sw_msg msg;
    send_spill(c, bytes);
    const int rc = await(c, &msg);
    if (rc == 0)
        *ret = (struct sw_region_id){.slot = msg.u.result.slot, .gen = msg.u.result.gen};
    return rc;
}

/* ---- limits ------------------------------------------------------------------------------------------------------ */

START_TEST(operations_of_all_sessions_are_counted) {
    struct client clients[2];
    struct sw_msg msg;
    struct sw_region_id id;
    service.config.tenant_operations = 3;
    for (int i = 0; i < 2; i++) {
        open_client(&clients[i]);
        open_memory(&clients[i]);
    }
    /* All before the loop runs: none of them can end. */
    send_spill(&clients[0], 100);
    send_spill(&clients[0], 100);
    send_spill(&clients[1], 100);
    send_spill(&clients[1], 100);
    ck_assert_int_eq(await(&clients[1], &msg), -SW_ETENANTOPS);
    ck_assert_int_eq(await(&clients[1], &msg), 0);
    ck_assert_int_eq(await(&clients[0], &msg), 0);
    ck_assert_int_eq(await(&clients[0], &msg), 0);
    ck_assert_uint_eq(clients[0].session->tenant->n_operations, 0);
    ck_assert_int_eq(spill(&clients[1], 100, &id), 0);
    close_clients(clients, 2);
}
END_TEST

/* The first row that fits applies; for values that it omits, the limits of every tenant apply. A new table applies at
 * once. */
START_TEST(quotas_of_users_and_groups) {
    struct client c;
    char table[256];
    const unsigned uid = geteuid(), gid = getegid();
    (void)snprintf(table, sizeof table,
                   "quotas=[{\"uid\": %u, \"bytes\": 1}, {\"gid\": %u, \"operations\": 2, \"bytes\": \"1 MiB\"},"
                   " {\"uid\": %u, \"operations\": 5, \"durable_regions\": 0}]",
                   (unsigned)OTHERS_UID, gid, uid);
    ck_assert_int_eq(sw_config_set(&service.config, table, NULL), 0);
    service.config.tenant_sessions = 7;
    open_client(&c);
    const struct sw_tenant *tenant = c.session->tenant;
    ck_assert_uint_eq(tenant->row, 1);
    ck_assert_uint_eq(tenant->limits[SW_LIMIT_OPERATIONS], 2);
    ck_assert_uint_eq(tenant->limits[SW_LIMIT_SESSIONS], 7);
    ck_assert_uint_eq(atomic_load(&tenant->quota.max_bytes), 1 << 20);
    ck_assert_uint_eq(tenant->quota.max_durable, 4);
    (void)snprintf(table, sizeof table, "[{\"uid\": %u, \"durable_regions\": 0, \"regions\": 3}]", uid);
    struct json_t *text = json_string(table), *none = json_array();
    struct sw_err err = {0};
    ck_assert_msg(sw_reload_option(&service.service, "quotas", text, &err) == -SW_ECONFIG, "a string is no table");
    json_decref(text);
    text = json_loads(table, 0, NULL);
    ck_assert_msg(sw_reload_option(&service.service, "quotas", text, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(tenant->row, 0);
    ck_assert_uint_eq(tenant->limits[SW_LIMIT_OPERATIONS], 0);
    ck_assert_uint_eq(atomic_load(&tenant->quota.max_bytes), 0);
    ck_assert_uint_eq(tenant->quota.max_durable, 0);
    ck_assert_uint_eq(tenant->quota.max_regions, 3);
    ck_assert_int_eq(sw_reload_option(&service.service, "quotas", none, &err), 0);
    ck_assert_uint_eq(tenant->row, SW_QUOTA_ROWS);
    ck_assert_uint_eq(tenant->quota.max_durable, 4);
    json_decref(text);
    json_decref(none);
    close_clients(&c, 1);
}
END_TEST

/* Sets an option: by the request for it, or in the file that is read again. */
static char assignment[128];
static int load(struct sw_config *ret, void *arg, struct sw_err *err) {
    (void)arg;
    *ret = service.config;
    return sw_config_set(ret, assignment, err);
}

static void set(bool in_file, const char *name, const char *value) {
    struct json_t *json = json_loads(value, JSON_DECODE_ANY, NULL);
    struct sw_reload_report report;
    struct sw_err err = {0};
    (void)snprintf(assignment, sizeof assignment, "%s=%s", name, value);
    service.service.load = load;
    const int rc =
        in_file ? sw_reload(&service.service, &report, &err) : sw_reload_option(&service.service, name, json, &err);
    ck_assert_msg(rc == 0, "%s: %s", name, err.msg);
    json_decref(json);
}

/* A tier that exceeds the memory was lowered at the start, and the file still says more: nothing differs. */
START_TEST(a_reload_lowers_the_tier_like_a_start) {
    struct sw_reload_report report;
    struct sw_err err = {0};
    (void)snprintf(assignment, sizeof assignment, "host_tier_bytes=8TiB");
    service.service.load = load;
    ck_assert_int_eq(sw_config_set(&service.config, assignment, &err), 0);
    ck_assert(sw_memory_fit_tier(&service.config, sw_memory_bytes("")));
    ck_assert_msg(sw_reload(&service.service, &report, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(report.n_restart, 0);
}
END_TEST

/* An option that contradicts another one is refused. Only the request has failed, and nothing changes. */
START_TEST(options_that_contradict_others_are_refused) {
    struct json_t *low = json_integer(95);
    const uint64_t before = service.config.host_tier_low_pct;
    struct sw_err err = {0};
    ck_assert_uint_lt(service.config.host_tier_high_pct, 95);
    ck_assert_int_eq(sw_reload_option(&service.service, "host_tier_low_pct", low, &err), -SW_ECONFIG);
    ck_assert_int_eq(err.scope, SW_SCOPE_REQUEST);
    ck_assert_uint_eq(service.config.host_tier_low_pct, before);
    json_decref(low);
}
END_TEST

static int load_several(struct sw_config *ret, void *arg, struct sw_err *err) {
    (void)arg;
    *ret = service.config;
    ret->max_sessions++;
    ret->tenant_operations++;
    return sw_config_set(ret, "host_tier_low_pct=95", err);
}

/* What contradicts an option that keeps its value waits for the restart. The others change, and are reported. */
START_TEST(a_reload_changes_what_it_can) {
    const struct sw_config before = service.config;
    struct sw_reload_report report;
    struct sw_err err = {0};
    service.service.load = load_several;
    ck_assert_msg(sw_reload(&service.service, &report, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(service.config.host_tier_low_pct, before.host_tier_low_pct);
    ck_assert_uint_eq(service.config.max_sessions, before.max_sessions + 1);
    ck_assert_uint_eq(service.config.tenant_operations, before.tenant_operations + 1);
    ck_assert_uint_eq(report.n_restart, 1);
    ck_assert_str_eq(report.restart[0], "host_tier_low_pct");
    ck_assert_uint_eq(report.n_changed, 2);
    for (unsigned i = 0; i < 2; i++)
        ck_assert(strcmp(report.changed[i], "max_sessions") == 0 ||
                  strcmp(report.changed[i], "tenant_operations") == 0);
    ck_assert_str_ne(report.changed[0], report.changed[1]);
}
END_TEST

static char last_line[512];

static void keep_line(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    (void)snprintf(last_line, sizeof last_line, "%s", line);
}

/* An option that is to change without a restart, and one that needs it, in one file. */
START_TEST(a_reload_reports_each_option_that_differs) {
    struct sw_reload_report report;
    struct sw_err err = {0};
    json_t *value = json_integer(77);
    sw_log_set_tap(keep_line, NULL);
    ck_assert_int_eq(sw_reload_option(&service.service, "max_sessions", value, &err), 0);
    ck_assert_str_eq(last_line, "level=info event=config.set option=max_sessions");
    json_decref(value);
    (void)snprintf(assignment, sizeof assignment, "max_sessions=%u", (unsigned)service.config.max_sessions + 1);
    service.service.load = load;
    ck_assert_msg(sw_reload(&service.service, &report, &err) == 0, "%s", err.msg);
    ck_assert_str_eq(last_line, "level=info event=config.reload changed=1 needs_restart=0");
    sw_log_set_tap(NULL, NULL);
    ck_assert_uint_eq(report.n_changed, 1);
    ck_assert_str_eq(report.changed[0], "max_sessions");
    ck_assert_uint_eq(report.n_restart, 0);
    (void)snprintf(assignment, sizeof assignment, "max_regions=%u", (unsigned)service.config.max_regions + 1);
    ck_assert_msg(sw_reload(&service.service, &report, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(report.n_changed, 0);
    ck_assert_uint_ge(report.n_restart, 1);
}
END_TEST

static int spill_named(struct client *c, const char *name) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_DURABLE}};
    msg.u.spill_durable = (struct sw_msg_spill_durable){.mem = 1, .bytes = 100};
    sw_msg_set_text(msg.u.spill_durable.name, sizeof msg.u.spill_durable.name, name);
    send_msg(c, &msg, NULL, 0);
    return await(c, &msg);
}

static int refusal(void);

/* Options that other parts have copies of are obeyed at once, also by sessions that are there. Loop: by the request, by
 * the file. */
START_TEST(options_are_obeyed_at_once) {
    struct sw_engine *engine = service.service.engine;
    const uint64_t limit_bytes = sw_engine_limit_bytes(engine, 0);
    struct client c;
    struct sw_msg msg;
    struct sw_region_id id;
    open_client(&c);
    open_memory(&c);
    set(_i, "host_tier_low_pct", "30");
    set(_i, "host_tier_high_pct", "60");
    ck_assert_uint_eq(sw_engine_marks(engine, 0).high_bytes, limit_bytes / 100 * 60);
    ck_assert_uint_eq(sw_engine_marks(engine, 0).low_bytes, limit_bytes / 100 * 30);
    set(_i, "max_session_regions", "1");
    ck_assert_int_eq(spill(&c, 100, &id), 0);
    ck_assert_int_eq(spill(&c, 100, &id), -SW_ELIMIT);
    set(_i, "max_session_regions", "10");
    set(_i, "tenant_regions", "2");
    ck_assert_int_eq(spill(&c, 100, &id), 0);
    ck_assert_int_eq(spill(&c, 100, &id), -SW_ETENANTREGIONS);
    set(_i, "tenant_regions", "0");
    set(_i, "tenant_bytes", "1");
    ck_assert_int_eq(spill(&c, 100, &id), -SW_ETENANTBYTES);
    set(_i, "tenant_bytes", "0");
    set(_i, "tenant_durable_regions", "1");
    ck_assert_int_eq(spill_named(&c, "a"), 0);
    ck_assert_int_eq(spill_named(&c, "b"), -SW_ETENANTREGIONS);
    set(_i, "tenant_operations", "1");
    send_spill(&c, 100);
    send_spill(&c, 100);
    ck_assert_int_eq(await(&c, &msg), -SW_ETENANTOPS);
    ck_assert_int_eq(await(&c, &msg), 0);
    set(_i, "tenant_bookkeeping_bytes", "1");
    ck_assert_int_eq(spill(&c, 100, &id), -SW_ETENANTMEMORY);
    set(_i, "tenant_bookkeeping_bytes", "0");
    set(_i, "tenant_sessions", "1");
    ck_assert_int_eq(refusal(), -SW_ETENANTSESSIONS);
    set(_i, "tenant_prefer", "\"room\"");
    ck_assert_uint_eq(atomic_load(&c.session->tenant->quota.prefer), SW_PREFER_ROOM);
    ck_assert_int_eq(sw_engine_find_name(engine, "a", geteuid(), &id, NULL), 0);
    ck_assert_int_eq(sw_engine_drop(c.session->owner, id, NULL), 0);
    close_clients(&c, 1);
}
END_TEST

/* Groups of all connections of a tenant count: the first row that fits one of them applies. Those of other tenants do
 * not, nor of sessions that are being closed. */
START_TEST(rows_of_several_connections) {
    struct client clients[2];
    struct sw_tenant *own, *other = NULL;
    sw_list_init(&sessions);
    service.service.sessions = &sessions;
    for (int i = 0; i < 2; i++) {
        open_client(&clients[i]);
        clients[i].session->peer.gid = 5000 + (gid_t)i;
        sw_list_append(&sessions, &clients[i].session->node);
    }
    own = clients[0].session->tenant;
    set(false, "quotas", "[{\"gid\": 5001, \"operations\": 2}, {\"gid\": 5000, \"operations\": 3}]");
    ck_assert_uint_eq(own->limits[SW_LIMIT_OPERATIONS], 2);
    set(false, "quotas", "[{\"gid\": 5000, \"operations\": 4}, {\"gid\": 5001, \"operations\": 5}]");
    ck_assert_uint_eq(own->limits[SW_LIMIT_OPERATIONS], 4);
    const struct sw_peer member = {.uid = OTHERS_UID, .gid = 5000}, late = {.uid = OTHERS_UID, .gid = 5001};
    ck_assert_int_eq(sw_tenant_join(&service.service, &member, -1, &other, NULL), 0);
    ck_assert_int_eq(sw_tenant_join(&service.service, &late, -1, &other, NULL), 0);
    ck_assert_uint_eq(other->limits[SW_LIMIT_OPERATIONS], 4); /* of its first connection */
    clients[1].session->tenant = other;
    set(false, "quotas", "[{\"gid\": 5001, \"operations\": 6}, {\"gid\": 5000, \"operations\": 7}]");
    ck_assert_uint_eq(own->limits[SW_LIMIT_OPERATIONS], 7);
    ck_assert_uint_eq(other->limits[SW_LIMIT_OPERATIONS], 6);
    clients[1].session->tenant = own;
    clients[1].session->closing = true;
    set(false, "quotas", "[{\"gid\": 5001, \"operations\": 8}, {\"gid\": 5000, \"operations\": 9}]");
    ck_assert_uint_eq(own->limits[SW_LIMIT_OPERATIONS], 9);
    clients[1].session->closing = false;
    service.service.sessions = NULL;
    sw_tenant_leave(other);
    sw_tenant_leave(other);
    close_clients(clients, 2);
}
END_TEST

START_TEST(operations_of_another_tenant_are_not_counted) {
    struct client clients[2];
    struct sw_tenant *other = NULL, *own;
    struct sw_msg msg;
    service.config.tenant_operations = 1;
    for (int i = 0; i < 2; i++) {
        open_client(&clients[i]);
        open_memory(&clients[i]);
    }
    ck_assert_int_eq(sw_tenant_join(&service.service, &(struct sw_peer){.uid = OTHERS_UID}, -1, &other, NULL), 0);
    own = clients[1].session->tenant;
    clients[1].session->tenant = other;
    send_spill(&clients[0], 100);
    send_spill(&clients[1], 100);
    ck_assert_int_eq(await(&clients[0], &msg), 0);
    ck_assert_int_eq(await(&clients[1], &msg), 0);
    clients[1].session->tenant = own;
    sw_tenant_leave(other);
    close_clients(clients, 2);
}
END_TEST

START_TEST(limits_of_regions_and_bytes_have_their_own_errors) {
    struct client c;
    struct sw_region_id id;
    service.config.tenant_bytes = 3000; /* the memory is all zeros: some hundred bytes a frame */
    service.config.tenant_regions = 4;
    open_client(&c);
    open_memory(&c);
    int rc = 0;
    for (int i = 0; i < 4; i++)
        ck_assert_int_eq(spill(&c, 100, &id), 0);
    ck_assert_int_eq(spill(&c, 100, &id), -SW_ETENANTREGIONS);
    c.session->tenant->quota.max_regions = 0;
    for (int i = 0; i < 100 && rc == 0; i++)
        rc = spill(&c, 100, &id);
    ck_assert_int_eq(rc, -SW_ETENANTBYTES);
    close_clients(&c, 1);
}
END_TEST

/* A refused peer receives an error of seq 0, then the end. */
static int refusal(void) {
    struct sw_session *session = NULL;
    struct sw_err err = {0}, told;
    struct sw_msg msg;
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int pair[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair), 0);
    const int rc = sw_session_open(&session, &service.service, pair[0], 1, NULL, NULL, &err);
    ck_assert_int_lt(rc, 0);
    ck_assert_int_eq(sw_msg_decode(&msg, packet, receive(pair[1], packet), NULL), 0);
    ck_assert_uint_eq(msg.header.seq, 0);
    sw_msg_to_err(&told, &msg.u.error);
    ck_assert_int_eq(told.code, rc);
    ck_assert_int_eq(recv(pair[1], packet, sizeof packet, 0), 0);
    (void)close(pair[1]);
    return rc;
}

START_TEST(sessions_are_counted) {
    struct client clients[2];
    service.config.tenant_sessions = 2;
    for (int i = 0; i < 2; i++)
        open_client(&clients[i]);
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(refusal(), -SW_ETENANTSESSIONS);
    close_clients(clients, 2);
    open_client(&clients[0]);
    close_clients(clients, 1);
}
END_TEST

/* Clients' memories get only descriptors that nothing else can need, or one tenant could cost another its session. */
START_TEST(descriptors_of_memories_leave_room_for_all_else) {
    struct sw_config config = service.config;
    struct json_t *more = json_integer((json_int_t)config.max_sessions + 500);
    service.service.n_descriptors = 20000;
    sw_descriptors_share(&service.service);
    const unsigned limit = service.service.fds.limit;
    ck_assert_uint_lt(limit, 20000 - config.max_sessions);
    ck_assert_int_eq(sw_reload_option(&service.service, "max_sessions", more, NULL), 0);
    ck_assert_uint_eq(service.service.fds.limit, limit - 375); /* three quarters: the others wait to be closed */
    ck_assert_int_eq(sw_config_set(&service.config, "nvme_tier_directory=/disk", NULL), 0);
    ck_assert_int_eq(sw_config_set(&service.config, "nvme_tier_bytes=4TiB", NULL), 0);
    sw_descriptors_share(&service.service);
    ck_assert_uint_eq(service.service.fds.limit, limit - 375 - 768);
    json_decref(more);
    /* The limit is below the number in use: no session gets another one. */
    struct client client;
    struct sw_msg msg = {.header.type = SW_MSG_MEM_OPEN};
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    open_client(&client);
    service.service.fds = (struct sw_fd_budget){.limit = 4, .used = 10};
    msg.u.mem_open = (struct sw_msg_mem_open){.mem = 1, .kind = SW_MEM_MEMFD, .n_parts = 1, .bytes = MEMORY_BYTES};
    send_msg(&client, &msg, NULL, 0);
    ck_assert_int_eq(sw_msg_decode(&msg, packet, receive(client.peer, packet), NULL), 0);
    ck_assert_uint_eq(msg.header.type, SW_MSG_ERROR);
    service.service.fds.used = 0;
    close_clients(&client, 1);
}
END_TEST

/* Bounds that are changed while the service runs hold at once, for tenants that are there, too. */
START_TEST(limits_of_memory_can_be_changed) {
    struct client client;
    struct json_t *own = json_integer(12345678), *all = json_integer(INT64_C(2) << 30);
    open_client(&client);
    struct sw_tenant *tenant = SW_CONTAINER_OF(service.service.tenants.next, struct sw_tenant, node);
    sw_tenants_set_limits(&service.service);
    const uint64_t before_bytes = atomic_load(&service.service.kept.limit_bytes);
    ck_assert_int_eq(sw_reload_option(&service.service, "tenant_bookkeeping_bytes", own, NULL), 0);
    ck_assert_uint_eq(atomic_load(&tenant->quota.kept.limit_bytes), 12345678);
    ck_assert_uint_eq(atomic_load(&service.service.kept.limit_bytes), before_bytes);
    ck_assert_int_eq(sw_reload_option(&service.service, "bookkeeping_bytes", all, NULL), 0);
    ck_assert_uint_eq(atomic_load(&service.service.kept.limit_bytes), before_bytes + (UINT64_C(1) << 30));
    service.config.host_tier_bytes *= 2; /* more regions need more of it */
    sw_tenants_set_limits(&service.service);
    ck_assert_uint_gt(atomic_load(&service.service.kept.limit_bytes), before_bytes + (UINT64_C(1) << 30));
    service.service.memory_bytes = UINT64_C(1) << 30;
    sw_tenants_set_limits(&service.service);
    ck_assert_uint_eq(atomic_load(&service.service.kept.limit_bytes),
                      sw_memory_for_bookkeeping(&service.config, service.service.memory_bytes));
    json_decref(own);
    json_decref(all);
    close_clients(&client, 1);
}
END_TEST

/* A session that was not resumed in time ends when its resources are needed, and only then: by any session if the tiers
 * are full, by its own tenant if that has reached a limit. Loop: another tenant's session, its own. */
START_TEST(overdue_sessions_end_if_another_needs_their_resources) {
    static const struct {
        int code;
        unsigned request;
        bool for_own, for_others;
    } cases[] = {{-SW_ENOSPACE, SW_MSG_SPILL, true, true},        {-SW_ETENANTBYTES, SW_MSG_SPILL, true, false},
                 {-SW_ETENANTREGIONS, SW_MSG_SPILL, true, false}, {-SW_EBUSY, SW_MSG_ADOPT, true, false},
                 {-SW_EBUSY, SW_MSG_SPILL, false, false},         {-SW_ELIMIT, SW_MSG_SPILL, false, false},
                 {-SW_ETENANTOPS, SW_MSG_SPILL, false, false},    {0, SW_MSG_ADOPT, false, false}};
    struct client c;
    struct sw_tenant *other;
    open_client(&c);
    ck_assert_int_eq(sw_tenant_join(&service.service, &(struct sw_peer){.uid = OTHERS_UID}, -1, &other, NULL), 0);
    struct sw_tenant *asks = _i ? c.session->tenant : other;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const bool goes = _i ? cases[i].for_own : cases[i].for_others;
        struct sw_owner *owner;
        ck_assert_int_eq(sw_owner_open(service.service.engine, &owner, NULL), 0);
        sw_owner_set_quota(owner, &c.session->tenant->quota);
        c.session->tenant->n_owners++;
        owner->state = SW_OWNER_UNCLAIMED;
        service.service.n_overdue = 1;
        service.service.is_stopping = true; /* the next process finds it */
        sw_tenants_reclaim(&service.service, asks, cases[i].request, cases[i].code);
        ck_assert(owner->state == SW_OWNER_UNCLAIMED);
        service.service.is_stopping = false;
        sw_tenants_reclaim(&service.service, asks, cases[i].request, cases[i].code);
        ck_assert_msg((owner->state == SW_OWNER_UNCLAIMED) == !goes, "case %zu", i);
        ck_assert_uint_eq(service.service.n_overdue, goes ? 0 : 1);
        if (!goes)
            ck_assert_uint_eq(sw_tenants_expire(&service.service, false), 1);
        while (c.session->tenant->n_owners > 0)
            (void)uv_run(&service.loop, UV_RUN_ONCE);
    }
    service.service.n_overdue = 0;
    sw_tenant_leave(other);
    close_clients(&c, 1);
}
END_TEST

/* The kernel keeps replies that are not read: this memory counts, too. */
START_TEST(a_session_counts_with_its_socket) {
    struct client c;
    int bytes = 0;
    socklen_t length = sizeof bytes;
    open_client(&c);
    ck_assert_int_eq(getsockopt(c.session->socket, SOL_SOCKET, SO_SNDBUF, &bytes, &length), 0);
    ck_assert(bytes > 0);
    ck_assert_uint_eq(c.session->kept_bytes, sizeof *c.session + (size_t)bytes);
    ck_assert_uint_ge(atomic_load(&c.session->tenant->quota.kept.used_bytes), c.session->kept_bytes);
    close_clients(&c, 1);
}
END_TEST

/* A user whose sessions a restart has left behind has the limits of its row before it comes back, and its own tenant
 * owner for durable regions. */
START_TEST(found_owners_have_the_limits_of_their_user) {
    char table[100];
    struct sw_owner *owner;
    (void)snprintf(table, sizeof table, "quotas=[{\"uid\": %u, \"regions\": 3}]", (unsigned)OTHERS_UID);
    ck_assert_int_eq(sw_config_set(&service.config, table, NULL), 0);
    ck_assert_int_eq(sw_owner_open(service.service.engine, &owner, NULL), 0);
    owner->state = SW_OWNER_UNCLAIMED;
    owner->uid = OTHERS_UID;
    ck_assert_int_eq(sw_tenants_recover(&service.service, NULL), 0);
    struct sw_tenant *tenant = SW_CONTAINER_OF(service.service.tenants.next, struct sw_tenant, node);
    ck_assert(tenant->uid == OTHERS_UID && tenant->node.next == &service.service.tenants);
    ck_assert_uint_eq(tenant->quota.max_regions, 3);
    ck_assert_ptr_eq(owner->quota, &tenant->quota);
    ck_assert_ptr_nonnull(tenant->owner);
    ck_assert_ptr_eq(owner->tenant_owner, tenant->owner);
    ck_assert_uint_eq(tenant->n_owners, 2);
    ck_assert_uint_eq(sw_tenants_expire(&service.service, false), 1);
    while (!sw_list_empty(&service.service.tenants))
        (void)uv_run(&service.loop, UV_RUN_ONCE);
}
END_TEST

START_TEST(allocations_fail) {
    const long live = sw_alloc_live();
    for (unsigned long nth = 1; nth <= 3; nth++) {
        sw_alloc_fail_nth(nth);
        ck_assert_int_eq(refusal(), -SW_ENOMEM);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(sw_alloc_live(), live);
    }
    ck_assert(sw_list_empty(&service.service.tenants));
}
END_TEST

START_TEST(lists_name_the_served_users) {
    const uint32_t uid = getuid(), gid = getgid();
    struct sw_config_ids *uids = &service.config.allowed_uids, *gids = &service.config.allowed_gids;
    struct client c;
    *uids = (struct sw_config_ids){.n = 1, .ids = {uid + 1}};
    ck_assert_int_eq(refusal(), -SW_EACCES);
    *gids = (struct sw_config_ids){.n = 1, .ids = {gid + 1000000}};
    ck_assert_int_eq(refusal(), -SW_EACCES);
    uids->n = 0;
    ck_assert_int_eq(refusal(), -SW_EACCES);
    *uids = (struct sw_config_ids){.n = 2, .ids = {uid + 1, uid}};
    open_client(&c);
    close_clients(&c, 1);
    uids->n = 0;
    *gids = (struct sw_config_ids){.n = 2, .ids = {gid + 1000000, gid}};
    open_client(&c);
    close_clients(&c, 1);
    gid_t own[64];
    const int n = getgroups(64, own);
    for (int i = 0; i < n; i++) { /* supplementary ones, where this user has some */
        *gids = (struct sw_config_ids){.n = 1, .ids = {own[i]}};
        open_client(&c);
        close_clients(&c, 1);
    }
}
END_TEST

/* ---- ids --------------------------------------------------------------------------------------------------------- */

/* The reply without the values that the client sent: its seq and the id. */
static size_t reply_to(struct client *c, uint16_t type, struct sw_region_id id,
                       uint8_t ret[SW_PROTO_MAX_PACKET_BYTES]) {
    struct sw_msg msg = {.header = {.type = type}}, reply;
    char named[32];
    switch (type) {
    case SW_MSG_RESTORE:
        msg.u.restore = (struct sw_msg_restore){.slot = id.slot, .gen = id.gen, .mem = 1, .bytes = MEMORY_BYTES};
        break;
    case SW_MSG_DROP:
        msg.u.drop = (struct sw_msg_drop){.slot = id.slot, .gen = id.gen};
        break;
    case SW_MSG_QUERY:
        msg.u.query = (struct sw_msg_query){.slot = id.slot, .gen = id.gen};
        break;
    case SW_MSG_ADVISE:
        msg.u.advise =
            (struct sw_msg_advise){.slot = id.slot, .gen = id.gen, .advice = SPILLWAY_ADVICE_PIN, .value = 1};
        break;
    case SW_MSG_RESTORE_BATCH:
        msg.u.restore_batch = (struct sw_msg_restore_batch){
            .mem = 1, .count = 1, .slot = {id.slot}, .gen = {id.gen}, .bytes = {MEMORY_BYTES}};
        break;
    default:
        msg.u.drop_batch = (struct sw_msg_drop_batch){.count = 1, .slot = {id.slot}, .gen = {id.gen}};
        break;
    }
    send_msg(c, &msg, NULL, 0);
    ck_assert_int_eq(await(c, &reply), -SW_ENOENT);
    reply.header.seq = 0;
    (void)snprintf(named, sizeof named, "%u:%u", id.slot, id.gen);
    char *at = strstr((char *)reply.u.error.text, named);
    ck_assert_ptr_nonnull(at);
    const size_t length = strlen(named), rest = strlen(at + length) + 1;
    memmove(at, at + length, rest);
    memset(at + rest, 0, length); /* what followed was zeros */
    return sw_msg_encode(&reply, ret);
}

START_TEST(ids_of_others_look_unknown) {
    static const uint16_t types[] = {SW_MSG_RESTORE, SW_MSG_DROP,          SW_MSG_QUERY,
                                     SW_MSG_ADVISE,  SW_MSG_RESTORE_BATCH, SW_MSG_DROP_BATCH};
    struct client clients[2], *owner = &clients[0], *stranger = &clients[1];
    struct sw_region_id others, dead;
    for (int i = 0; i < 2; i++) {
        open_client(&clients[i]);
        open_memory(&clients[i]);
    }
    ck_assert_int_eq(spill(owner, MEMORY_BYTES, &others), 0);
    ck_assert_int_eq(spill(owner, MEMORY_BYTES, &dead), 0);
    struct sw_msg drop = {.header = {.type = SW_MSG_DROP}};
    drop.u.drop = (struct sw_msg_drop){.slot = dead.slot, .gen = dead.gen};
    send_msg(owner, &drop, NULL, 0);
    ck_assert_int_eq(await(owner, &drop), 0);
    const struct sw_region_id never[] = {
        dead,                          /* was, and is gone */
        {others.slot, others.gen + 1}, /* will be */
        {others.slot, 4000000000},
        {dead.slot + 1, 1}, /* a slot that nobody has used */
        {63, 1},            /* the table's last */
    };
    for (size_t t = 0; t < sizeof types / sizeof types[0]; t++) {
        uint8_t expected[SW_PROTO_MAX_PACKET_BYTES], found[SW_PROTO_MAX_PACKET_BYTES];
        const size_t bytes = reply_to(stranger, types[t], others, expected);
        for (size_t i = 0; i < sizeof never / sizeof never[0]; i++) {
            ck_assert_uint_eq(reply_to(stranger, types[t], never[i], found), bytes);
            ck_assert_mem_eq(found, expected, bytes);
        }
    }
    /* Nothing of this has touched it. */
    struct sw_region_info info;
    ck_assert_int_eq(sw_engine_query(owner->session->owner, others, &info, NULL), 0);
    ck_assert_int_eq(info.state, SW_REGION_OUT);
    close_clients(clients, 2);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("tenants");
    tcase_add_checked_fixture(tests, setup, NULL);
    tcase_add_test(tests, operations_of_all_sessions_are_counted);
    tcase_add_test(tests, operations_of_another_tenant_are_not_counted);
    tcase_add_test(tests, quotas_of_users_and_groups);
    tcase_add_test(tests, rows_of_several_connections);
    tcase_add_loop_test(tests, options_are_obeyed_at_once, 0, 2);
    tcase_add_test(tests, a_reload_lowers_the_tier_like_a_start);
    tcase_add_test(tests, limits_of_regions_and_bytes_have_their_own_errors);
    tcase_add_test(tests, sessions_are_counted);
    tcase_add_test(tests, descriptors_of_memories_leave_room_for_all_else);
    tcase_add_test(tests, limits_of_memory_can_be_changed);
    tcase_add_loop_test(tests, overdue_sessions_end_if_another_needs_their_resources, 0, 2);
    tcase_add_test(tests, options_that_contradict_others_are_refused);
    tcase_add_test(tests, a_reload_changes_what_it_can);
    tcase_add_test(tests, a_reload_reports_each_option_that_differs);
    tcase_add_test(tests, a_session_counts_with_its_socket);
    tcase_add_test(tests, found_owners_have_the_limits_of_their_user);
    tcase_add_test(tests, allocations_fail);
    tcase_add_test(tests, lists_name_the_served_users);
    tcase_add_test(tests, ids_of_others_look_unknown);
    Suite *suite = suite_create("tenants");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
