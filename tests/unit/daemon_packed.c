/* Regions that their client has packed: the session tells the service, which has them as any packed region, but does
 * not know their chunks. */
#include "spill/engine_state.h"
#include "tests/lib/builds_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

static struct sw_packet_rig *const rig = &sw_builds.rig;
static struct sw_test_packet packet;
enum { RAW_BYTES = 5000000 * 8, STORED_BYTES = 1234567, N_MEMS = SW_BUILDS_MEMS, N = SW_PROTO_MAX_ITEMS };

static struct sw_wire_buffer *add_packed(void) {
    sw_test_add_build(&packet, NULL)->flags |= SW_BUILD_IN_PLACE | SW_BUILD_PACKED;
    struct sw_wire_buffer *buffer = sw_test_add_buffer(&packet, RAW_BYTES, SW_VALUE_I64);
    buffer->stored_bytes = STORED_BYTES;
    buffer->codec = SW_CODEC_FOR;
    return buffer;
}

static struct sw_wire_buffer *make_packed(void) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    return add_packed();
}

static int inspect(struct sw_region_id id, enum sw_inspect what) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_INSPECT);
    msg.u.inspect = (struct sw_msg_inspect){.slot = id.slot, .gen = id.gen, .what = what};
    return sw_packet_rig_call_msg(rig, &msg);
}

static int discard(struct sw_region_id id, uint32_t flags) {
    sw_test_packet(&packet, SW_MSG_DISCARD, flags);
    sw_test_add_id(&packet, id);
    const int rc = sw_packet_rig_call(rig, &packet);
    return rc ? rc : sw_test_result_code(&rig->reply, 0);
}

static void ck_result(const struct sw_wire_result *result) {
    ck_assert(result->raw_bytes == RAW_BYTES && result->stored_bytes == STORED_BYTES);
    ck_assert_str_eq(sw_test_text(&rig->reply, result->tier), SW_PACKED_TIER_NAME);
    ck_assert_str_eq(sw_test_text(&rig->reply, result->codec), "for");
    ck_assert_str_eq(sw_test_text(&rig->reply, result->coder), "client");
}

static int read_by_service(struct sw_region_id id, unsigned flags) {
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, id, flags);
    (void)sw_test_add_room(&packet, SW_PACKET_RIG_MEM, 0, RAW_BYTES);
    return sw_packet_rig_call(rig, &packet);
}

/* It takes no room in the tiers, and no memory is opened. */
START_TEST(a_region_that_its_client_has_packed_is_there) {
    struct sw_engine_stats stats;
    (void)make_packed();
    packet.builds[0].keep_priority = 7;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    ck_assert_int_eq(sw_test_result_code(&rig->reply, 0), 0);
    ck_result(&rig->reply.u.results.results[0]);
    const struct sw_region_id id = sw_test_result_id(&rig->reply, 0);
    ck_assert_int_eq(inspect(id, SW_INSPECT_REGION), 0);
    ck_result(&rig->reply.u.details.results[0]);
    ck_assert_str_eq(
        sw_msg_text((char[33]){0}, 33,
                    (const uint8_t *)rig->reply.u.details.texts[rig->reply.u.details.results[0].state - 1].text, 32),
        "out");
    stats = sw_packet_rig_stats(rig);
    ck_assert(stats.n_regions == 1 && stats.tiers[0].used_bytes == 0 && stats.packs == 1 && stats.spills == 1);
    ck_assert_int_eq(inspect(id, SW_INSPECT_BUFFERS), 0);
    ck_assert(rig->reply.u.details.n_buffers == 1 && rig->reply.u.details.buffers[0].raw_bytes == RAW_BYTES);
    ck_assert_int_eq(inspect(id, SW_INSPECT_FRAMES), -SW_ENOTSUP);
    ck_assert_int_eq(read_by_service(id, SW_READ_IN_PLACE), -SW_ENOTSUP);
    ck_assert_int_eq(read_by_service(id, 0), -SW_EINVAL);
    ck_assert_int_eq(discard(id, _i ? SW_REQ_CONSUME : 0), 0);
    stats = sw_packet_rig_stats(rig);
    ck_assert(stats.n_regions == 0 && stats.restores == (unsigned)_i);
    ck_assert_uint_eq(stats.restored_raw_bytes, _i ? RAW_BYTES : 0);
    ck_assert_int_eq(inspect(id, SW_INSPECT_REGION), -SW_ESTALE);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

START_TEST(many_go_in_one_packet) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    for (unsigned i = 0; i < N; i++)
        (void)add_packed();
    packet.buffers[3].codec = SW_CODEC_NR;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    struct sw_region_id ids[N];
    for (unsigned i = 0; i < N; i++) {
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), i == 3 ? -SW_EINVAL : 0);
        ids[i] = sw_test_result_id(&rig->reply, i);
    }
    sw_packet_rig_check_rest(rig, N - 1, 0);
    sw_test_packet(&packet, SW_MSG_SETTLE, 0); /* each is found in its place */
    packet.msg.u.settle.type = SW_MSG_BUILD;
    packet.msg.u.settle.seq = rig->last_seq;
    for (unsigned i = 0; i < N; i++)
        sw_test_add_id(&packet, (struct sw_region_id){0});
    rig->session->may_settle = true;
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    for (unsigned i = 0; i < N; i++) {
        const struct sw_region_id id = sw_test_result_id(&rig->reply, i);
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), i == 3 ? -SW_ERESTARTED : 0);
        ck_assert(i == 3 || (id.slot == ids[i].slot && id.gen == ids[i].gen));
    }
    sw_packet_rig_check_rest(rig, N - 1, 0);
    sw_builds_drop_all();
}
END_TEST

/* ---- what is refused ---- */

static void without_in_place(void) {
    packet.builds[0].flags = SW_BUILD_BEGIN | SW_BUILD_COMMIT | SW_BUILD_PACKED;
}
static void without_commit(void) {
    packet.builds[0].flags = SW_BUILD_BEGIN | SW_BUILD_IN_PLACE | SW_BUILD_PACKED;
}
static void with_a_chunk(void) {
    (void)sw_test_add_chunk(&packet, SW_PACKET_RIG_MEM, 0, RAW_BYTES);
}
static void longer_than_before(void) {
    packet.buffers[0].stored_bytes = RAW_BYTES + 1;
}
static void empty(void) {
    packet.buffers[0].raw_bytes = packet.buffers[0].stored_bytes = 0;
}
static void half_a_value(void) {
    packet.buffers[0].raw_bytes--;
}
static void unknown_type(void) {
    packet.buffers[0].value_type = SW_VALUE_NR;
}
static void unknown_codec(void) {
    packet.buffers[0].codec = SW_CODEC_NR;
}
static void with_a_reason(void) {
    packet.buffers[0].reason = 1;
}
static void with_chunks(void) {
    packet.buffers[0].chunk_bytes = 32768;
}
static void durable(void) {
    packet.builds[0].durability = 1;
}

START_TEST(wrong_records_are_refused) {
    static void (*const spoil[])(void) = {
        without_in_place, without_commit, with_a_chunk,  longer_than_before, empty,  half_a_value,
        unknown_type,     unknown_codec,  with_a_reason, with_chunks,        durable};
    for (size_t i = 0; i < sizeof spoil / sizeof spoil[0]; i++) {
        (void)make_packed();
        spoil[i]();
        ck_assert_msg(sw_packet_rig_call(rig, &packet) == -SW_EINVAL, "%zu", i);
        sw_builds_ck_rest(0, N_MEMS);
    }
    sw_test_packet(&packet, SW_MSG_BUILD, SW_REQ_ALL);
    (void)add_packed();
    (void)add_packed();
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_ENOTSUP);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_packed");
    TCase *tcase = tcase_create("packed by the client");
    tcase_add_checked_fixture(tcase, sw_builds_open, sw_builds_close);
    tcase_add_loop_test(tcase, a_region_that_its_client_has_packed_is_there, 0, 2);
    tcase_add_test(tcase, many_go_in_one_packet);
    tcase_add_test(tcase, wrong_records_are_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
