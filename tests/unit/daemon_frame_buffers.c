/* How much GPU memory for frame buffers the daemon grants to clients: by tenant, by process, by device. */
#include "daemon/session/coder.h"
#include "tests/lib/client_frames.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <unistd.h>

/* ---- frame buffers of clients ---- */

enum { MIB = 1 << 20 };

/* Asks for frame buffers on the host device. Returns what the session has then. */
static uint64_t ask_coder(struct sw_session *session, int peer, uint64_t bytes) {
    _Alignas(SW_PROTO_ALIGN) uint8_t buffer[SW_PROTO_MAX_PACKET_BYTES];
    static uint32_t seq = 1000;
    struct sw_msg msg = {.header = {.type = SW_MSG_CODER, .version = SW_PROTO_VERSION, .seq = ++seq},
                         .u.coder.bytes = bytes};
    size_t n = 0;
    unsigned n_fds = 0;
    sw_session_packet(session, buffer, sw_msg_encode(&msg, buffer), NULL, 0);
    ck_assert_int_eq(sw_packet_receive(peer, buffer, &n, NULL, &n_fds), 0);
    ck_assert_int_eq(sw_msg_decode(&msg, buffer, n, NULL), 0);
    ck_assert_uint_eq(msg.header.type, SW_MSG_CODER_OK);
    ck_assert_uint_eq(msg.u.coder_ok.codecs, (UINT64_C(1) << SW_CODEC_NR) - 1);
    ck_assert_uint_eq(msg.u.coder_ok.chunk_bytes, MIB);
    return msg.u.coder_ok.bytes;
}

static uint64_t ask(uint64_t bytes) {
    return ask_coder(rig.session, rig.peer, bytes);
}

static void end_session(struct sw_session *session, const bool *closed, int peer) {
    sw_session_close(session, "test");
    while (!*closed)
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    (void)close(peer);
}

/* Another session, as if of another process. */
static struct sw_session *open_other(int *ret_peer, bool *closed, int32_t pid) {
    struct sw_session *other = sw_test_service_session(&rig.service, ret_peer, closed);
    other->version = SW_PROTO_VERSION;
    other->peer.pid = pid;
    return other;
}

START_TEST(a_client_gets_frame_buffers_as_long_as_there_are_some) {
    struct sw_service *service = &rig.service.service;
    int peer;
    bool closed = false;
    service->config->gpu_frame_bytes = 160 * MIB;
    ck_assert_uint_eq(ask(30 * MIB), 30 * MIB);
    ck_assert_uint_eq(ask(200 * MIB), 90 * MIB); /* instead of the first: 3/4 of the tenant's 3/4 */
    ck_assert_uint_eq(ask(0), 0);
    ck_assert_uint_eq(ask(60 * MIB), 60 * MIB);
    struct sw_session *other = open_other(&peer, &closed, 1); /* of the same tenant */
    ck_assert_uint_eq(ask_coder(other, peer, 60 * MIB), 45 * MIB);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 105 * MIB);
    ck_assert_uint_eq(rig.session->tenant->grants.bytes[0], 105 * MIB);
    service->config->gpu_frame_bytes = 50 * MIB;
    ck_assert_uint_eq(ask_coder(other, peer, 60 * MIB), 0); /* the first session has more than all */
    ck_assert_uint_eq(ask(60 * MIB), 50 * MIB * 9 / 16);
    service->config->gpu_frame_bytes = 160 * MIB;
    end_session(other, &closed, peer);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 50 * MIB * 9 / 16);
    ck_assert_uint_eq(ask(90 * MIB), 90 * MIB);
    ck_assert_uint_eq(ask(0), 0);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
}
END_TEST

/* Sessions of one process hand over the same memory: it counts once. */
START_TEST(sessions_of_a_process_share_a_grant) {
    struct sw_service *service = &rig.service.service;
    struct sw_list sessions;
    int peers[2];
    bool closed[2];
    struct sw_session *same = open_other(&peers[0], &closed[0], rig.session->peer.pid),
                      *unknown = open_other(&peers[1], &closed[1], 0);
    sw_list_init(&sessions);
    sw_list_append(&sessions, &rig.session->node);
    sw_list_append(&sessions, &same->node);
    sw_list_append(&sessions, &unknown->node);
    service->sessions = &sessions;
    service->config->gpu_frame_bytes = 64 * MIB;
    ck_assert_uint_eq(ask(30 * MIB), 30 * MIB);
    ck_assert_uint_eq(ask_coder(same, peers[0], 30 * MIB), 30 * MIB);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 30 * MIB);
    ck_assert_uint_eq(ask_coder(same, peers[0], 64 * MIB), 36 * MIB);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 36 * MIB);
    ck_assert_uint_eq(ask_coder(unknown, peers[1], 64 * MIB), 9 * MIB); /* perhaps of another process */
    ck_assert_uint_eq(ask_coder(unknown, peers[1], 0), 0);
    ck_assert_uint_eq(ask_coder(same, peers[0], 0), 0);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 30 * MIB);
    ck_assert_uint_eq(ask_coder(same, peers[0], 10 * MIB), 10 * MIB);
    sw_coder_release(rig.session);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 10 * MIB);
    end_session(same, &closed[0], peers[0]);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
    end_session(unknown, &closed[1], peers[1]);
    service->sessions = NULL;
}
END_TEST

/* A tenant that has much leaves something to others, and less once it asks anew. A process of another tenant is
 * another, even if it has the same number, in a pid namespace of its own. */
START_TEST(tenants_share_the_frame_buffers) {
    struct sw_service *service = &rig.service.service;
    struct sw_tenant stranger = *rig.session->tenant, *own = rig.session->tenant;
    struct sw_list sessions;
    int peer;
    bool closed = false;
    service->config->gpu_frame_bytes = 160 * MIB;
    ck_assert_uint_eq(ask(160 * MIB), 90 * MIB);
    struct sw_session *other = open_other(&peer, &closed, rig.session->peer.pid);
    sw_list_init(&sessions);
    sw_list_append(&sessions, &rig.session->node);
    sw_list_append(&sessions, &other->node);
    service->sessions = &sessions;
    stranger.grants = (struct sw_frame_grants){{0}};
    other->tenant = &stranger;
    ck_assert_uint_eq(ask_coder(other, peer, 160 * MIB), 70 * MIB * 9 / 16);
    const uint64_t left = 160 * MIB - 70 * MIB * 9 / 16;
    ck_assert_uint_le(ask(160 * MIB), left * 9 / 16);
    for (unsigned i = 0; i < 20; i++) { /* to equal shares */
        (void)ask_coder(other, peer, 160 * MIB);
        (void)ask(160 * MIB);
    }
    ck_assert_uint_le(rig.session->grants.bytes[0] - other->grants.bytes[0], 16);
    ck_assert_uint_eq(ask(0), 0);
    ck_assert_uint_eq(ask_coder(other, peer, 160 * MIB), 90 * MIB);
    ck_assert_uint_eq(ask_coder(other, peer, 0), 0);
    other->tenant = own;
    end_session(other, &closed, peer);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
    service->sessions = NULL;
}
END_TEST

/* What a session has on each device counts, and goes with it. */
START_TEST(grants_on_all_devices_are_counted_and_released) {
    struct sw_service *service = &rig.service.service;
    ck_assert_uint_eq(ask(3 * MIB), 3 * MIB);
    service->devices[1] = service->devices[0];
    service->n_devices = 2;
    rig.session->grants.bytes[1] = rig.session->tenant->grants.bytes[1] = service->grants.bytes[1] = 5 * MIB;
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 8 * MIB);
    sw_coder_release(rig.session);
    ck_assert_uint_eq(sw_coder_granted_bytes(service), 0);
    ck_assert_uint_eq(rig.session->tenant->grants.bytes[1], 0);
    service->n_devices = 1;
}
END_TEST

START_TEST(a_device_that_is_not_in_use_has_no_frame_buffers) {
    struct sw_msg msg = {.header.type = SW_MSG_CODER, .u.coder = {.device_uuid = {1}, .bytes = MIB}};
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, sw_packet_rig_send(&rig, &msg, NULL, 0)), -SW_EDEVICE);
    ck_assert_uint_eq(sw_coder_granted_bytes(&rig.service.service), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("frame buffers of clients");
    TCase *tcase = tcase_create("frame buffers of clients");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_client_gets_frame_buffers_as_long_as_there_are_some);
    tcase_add_test(tcase, sessions_of_a_process_share_a_grant);
    tcase_add_test(tcase, tenants_share_the_frame_buffers);
    tcase_add_test(tcase, grants_on_all_devices_are_counted_and_released);
    tcase_add_test(tcase, a_device_that_is_not_in_use_has_no_frame_buffers);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
