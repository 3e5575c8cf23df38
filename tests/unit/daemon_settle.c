/* Packets of another version, and the answers to a client that asks for its builds and reads after a restart. */
#include "spill/engine_state.h"
#include "tests/lib/builds_rig.h"
#include "tests/lib/run.h"

#include <check.h>

enum { MOST = SW_PROTO_MAX_ITEMS, BYTES = SW_BUILDS_BYTES, N_MEMS = SW_BUILDS_MEMS };

static struct sw_packet_rig *const rig = &sw_builds.rig;
static struct sw_test_packet packet;

/* ---- versions ---- */

/* A session keeps the version that it has begun with: in the other one, no message is served. */
START_TEST(a_packet_of_the_other_version_ends_the_session) {
    static const struct {
        uint16_t session, header, type;
    } cases[] = {{10, 9, SW_MSG_STATUS}, {10, 9, SW_MSG_QUERY},   {10, 9, SW_MSG_DISCARD}, {10, 10, SW_MSG_QUERY},
                 {9, 10, SW_MSG_STATUS}, {9, 10, SW_MSG_DISCARD}, {9, 10, SW_MSG_QUERY},   {9, 9, SW_MSG_DISCARD}};
    struct sw_msg msg = {.header = {.version = cases[_i].header, .type = cases[_i].type}};
    rig->session->version = cases[_i].session;
    ck_assert_int_eq(sw_packet_rig_call_msg(rig, &msg), -SW_EPROTO);
    ck_assert(rig->session->closing);
}
END_TEST

START_TEST(a_hello_is_answered_in_its_version) {
    const unsigned version = (unsigned)(SW_PROTO_OLDEST_VERSION + _i % 2), claimed = version + (unsigned)(_i / 2);
    struct sw_msg msg = {.header = {.version = (uint16_t)version, .type = SW_MSG_HELLO}, .u.hello.version = claimed};
    rig->session->version = SW_PROTO_OLDEST_VERSION; /* as before a HELLO */
    rig->session->greeted = false;
    (void)sw_packet_rig_send(rig, &msg, NULL, 0);
    const int rc = sw_packet_rig_await(rig);
    if (claimed != version) {
        ck_assert_int_eq(rc, -SW_EVERSION);
        ck_assert(rig->session->closing);
        return;
    }
    ck_assert_int_eq(rc, 0);
    ck_assert_uint_eq(rig->reply.header.version, version);
    ck_assert_uint_eq(rig->reply.u.hello_ok.version, version);
    ck_assert_uint_eq(rig->session->version, version);
}
END_TEST

/* While there was no service, the client went on counting. Only then are large steps refused. */
START_TEST(a_hello_begins_with_any_number) {
    struct sw_msg hello = {.header.type = SW_MSG_HELLO, .u.hello.version = SW_PROTO_VERSION},
                  status = {.header.type = SW_MSG_STATUS};
    rig->session->greeted = false;
    rig->last_seq = UINT32_C(3) << 29;
    ck_assert_int_eq(sw_packet_rig_call_msg(rig, &hello), 0);
    ck_assert_int_eq(sw_packet_rig_call_msg(rig, &status), 0);
    rig->last_seq += 1 << 20;
    ck_assert_int_eq(sw_packet_rig_call_msg(rig, &status), -SW_EPROTO);
    ck_assert(rig->session->closing);
}
END_TEST

/* A successor takes about as long to start, and then waits. */
START_TEST(a_hello_tells_how_long_a_restart_may_take) {
    static const uint8_t none[SW_PROTO_TOKEN_BYTES];
    struct sw_service *service = rig->session->service;
    struct sw_msg msg = {.header = {.version = SW_PROTO_VERSION, .type = SW_MSG_HELLO},
                         .u.hello = {.version = SW_PROTO_VERSION, .token = {1, 2, 3}}}; /* nobody's */
    ck_assert_int_eq(sw_catalogue_open(&service->catalogue, -1, 10, NULL), 0);
    rig->session->greeted = false;
    service->start_us = 7000000;
    rig->service.config.reconnect_grace_s = 5;
    rig->service.config.max_session_operations = 77;
    (void)sw_packet_rig_send(rig, &msg, NULL, 0);
    ck_assert_int_eq(sw_packet_rig_await(rig), 0);
    const struct sw_msg_hello_ok *ok = &rig->reply.u.hello_ok;
    ck_assert_uint_eq(ok->reconnect_ms, 12000);
    ck_assert(!ok->resumed && memcmp(ok->token, none, sizeof none) != 0);
    ck_assert(memcmp(ok->token, msg.u.hello.token, sizeof none) != 0);
    ck_assert(ok->max_in_flight == 77 && ok->session == rig->session->id);
    sw_catalogue_close(service->catalogue);
    service->catalogue = NULL;
}
END_TEST

/* ---- after a restart ---- */

static int settle(uint32_t type, uint32_t seq, uint32_t flags, const struct sw_region_id *ids, unsigned n) {
    sw_test_packet(&packet, SW_MSG_SETTLE, flags);
    packet.msg.u.settle.type = type;
    packet.msg.u.settle.seq = seq;
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, ids ? ids[i] : (struct sw_region_id){0});
    return sw_packet_rig_call(rig, &packet);
}

static void move(struct sw_region_id id, enum sw_region_state state) {
    sw_region_move(&rig->service.service.engine->store.regions.regions[id.slot], state);
}

/* What the region's reply said. */
static void describe(char ret[160], unsigned i) {
    const struct sw_wire_result *result = &rig->reply.u.results.results[i];
    const uint8_t texts[] = {result->codec, result->tier, result->reason, result->coder};
    size_t n = (size_t)snprintf(ret, 160, "%u, %llu bytes", (unsigned)result->durability,
                                (unsigned long long)result->stored_bytes);
    for (unsigned k = 0; k < sizeof texts; k++)
        n += (size_t)snprintf(ret + n, 160 - n, ", %s", sw_test_text(&rig->reply, texts[k]));
}

/* One of three builds is lost, or was taken back: with `all` nothing was stored, and so it is made. */
START_TEST(builds_are_settled_by_seq_and_index) {
    const bool all = _i % 2, is_lost = _i / 2;
    struct sw_region_id ids[3];
    char said[3][160], again[160];
    sw_builds_make(&packet, 3, all ? SW_REQ_ALL : 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const uint32_t seq = rig->last_seq;
    for (unsigned i = 0; i < 3; i++) {
        ids[i] = sw_test_result_id(&rig->reply, i);
        describe(said[i], i);
    }
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, all ? SW_REQ_ALL : 0, NULL, 3), -SW_EINVAL); /* it has not come back */
    rig->session->may_settle = true;
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, all ? SW_REQ_ALL : 0, NULL, 3), 0);
    ck_assert_uint_eq(rig->reply.u.results.service_us, 0);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), 0);
        ck_assert(sw_test_result_id(&rig->reply, i).slot == ids[i].slot &&
                  sw_test_result_id(&rig->reply, i).gen == ids[i].gen);
        ck_assert_uint_eq(rig->reply.u.results.results[i].raw_bytes, BYTES);
        describe(again, i);
        ck_assert_str_eq(again, said[i]);
    }
    if (is_lost)
        move(ids[1], SW_REGION_LOST);
    else
        ck_assert_int_eq(sw_engine_drop(rig->session->owner, ids[1], NULL), 0);
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, all ? SW_REQ_ALL : 0, NULL, 3), all ? -SW_ERESTARTED : 0);
    for (unsigned i = 0; !all && i < 3; i++)
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), i == 1 ? -SW_ERESTARTED : 0);
    sw_builds_ck_rest(all ? 0 : 2, N_MEMS);
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq + 1000, 0, NULL, 1), -SW_ERESTARTED);
    ck_assert_int_eq(settle(0, 0, 0, NULL, 0), 0);
    ck_assert_uint_eq(rig->reply.header.type, SW_MSG_OK);
    ck_assert(!rig->session->may_settle);
}
END_TEST

/* The bytes of a pack that a restart has torn are lost, whichever of a packet's builds it was. */
START_TEST(a_torn_pack_is_told) {
    struct sw_region_id ids[3];
    sw_builds_make(&packet, 3, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const uint32_t seq = rig->last_seq;
    for (unsigned i = 0; i < 3; i++)
        ids[i] = sw_test_result_id(&rig->reply, i);
    rig->session->may_settle = true;
    rig->service.service.engine->store.regions.regions[ids[_i].slot].in_place = true;
    move(ids[_i], SW_REGION_LOST);
    ck_assert_int_eq(settle(SW_MSG_BUILD, seq, SW_REQ_ALL, NULL, 3), -SW_ELOST);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

/* The second of three is back. With `all` it speaks for the others. */
START_TEST(reads_are_settled_by_their_ids) {
    const bool all = _i;
    struct sw_region_id ids[4];
    sw_builds_make(&packet, 4, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    for (unsigned i = 0; i < 4; i++)
        ids[i] = sw_test_result_id(&rig->reply, i);
    rig->session->may_settle = true;
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, ids, 3), -SW_ERESTARTED);
    ck_assert(all ? !sw_packet_rig_says(rig, "request") : sw_packet_rig_says(rig, "request 1 of 3: "));
    move(ids[1], SW_REGION_RESTORING);
    move(ids[1], SW_REGION_IN);
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, ids, 3), 0);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), all || i == 1 ? 0 : -SW_ERESTARTED);
    sw_builds_ck_rest(all ? 1 : 3, N_MEMS);
    ck_assert_int_eq(settle(SW_MSG_READ, 7, 0, &ids[1], 1), -SW_ESTALE);
    move(ids[3], SW_REGION_LOST);
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, &ids[3], 1), -SW_ELOST);
    const struct sw_region_id both[] = {ids[3], ids[1]}; /* lost, and gone: of all together the worst is told */
    ck_assert_int_eq(settle(SW_MSG_READ, 7, all ? SW_REQ_ALL : 0, both, 2), all ? -SW_ESTALE : -SW_ELOST);
    ck_assert(!all || sw_packet_rig_says(rig, "some of the regions do not exist"));
}
END_TEST

START_TEST(invalid_settle_requests_are_refused) {
    const struct sw_region_id id = {1, 1};
    rig->session->may_settle = true;
    ck_assert_int_eq(settle(SW_MSG_DISCARD, 7, 0, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_SPILL, 7, 0, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_BUILD, 7, 2, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_BUILD, 7, 0, NULL, 0), -SW_EINVAL);
    ck_assert_int_eq(settle(SW_MSG_BUILD, 7, 0, NULL, MOST + 1), -SW_EINVAL);
    ck_assert_int_eq(settle(0, 0, 0, &id, 1), -SW_EINVAL);
    ck_assert_int_eq(settle(0, 7, 0, NULL, 0), -SW_EINVAL);
    sw_test_packet(&packet, SW_MSG_SETTLE, 0);
    packet.msg.u.settle.reserved = 1;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EINVAL);
    ck_assert(rig->session->may_settle);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_settle");
    TCase *tcase = tcase_create("settle");
    tcase_add_checked_fixture(tcase, sw_builds_open, sw_builds_close);
    tcase_add_loop_test(tcase, a_packet_of_the_other_version_ends_the_session, 0, 8);
    tcase_add_loop_test(tcase, a_hello_is_answered_in_its_version, 0, 4);
    tcase_add_test(tcase, a_hello_tells_how_long_a_restart_may_take);
    tcase_add_test(tcase, a_hello_begins_with_any_number);
    tcase_add_loop_test(tcase, builds_are_settled_by_seq_and_index, 0, 4);
    tcase_add_loop_test(tcase, a_torn_pack_is_told, 0, 3);
    tcase_add_loop_test(tcase, reads_are_settled_by_their_ids, 0, 2);
    tcase_add_test(tcase, invalid_settle_requests_are_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
