/* Regions by their ids and names: which can be discarded, inspected and adopted. */
#include "base/clock.h"
#include "base/log.h"
#include "ipc/spillway.h"
#include "spill/engine_state.h"
#include "tests/lib/builds_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

enum { BYTES = SW_BUILDS_BYTES, N_MEMS = SW_BUILDS_MEMS, MEM = SW_PACKET_RIG_MEM };

static struct sw_packet_rig *const rig = &sw_builds.rig;
static struct sw_test_packet packet, packet_back;

/* ---- ids ---- */

START_TEST(regions_that_can_be_discarded_are) {
    const bool consumes = _i;
    const struct sw_region_id never = {4000, 1};
    struct sw_region_id ids[2];
    sw_builds_make(&packet, 1, 0);
    (void)sw_test_add_build(&packet, "stays");
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, MEM, 0, BYTES);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    for (unsigned i = 0; i < 2; i++)
        ids[i] = sw_test_result_id(&rig->reply, i);
    sw_test_packet(&packet_back, SW_MSG_DISCARD, consumes ? SW_REQ_CONSUME : 0);
    sw_test_add_id(&packet_back, never);
    sw_test_add_id(&packet_back, ids[0]);
    sw_test_add_id(&packet_back, ids[1]);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), 0);
    ck_assert_uint_eq(rig->reply.u.results.n_results, 3);
    for (unsigned i = 0; i < 3; i++)
        ck_assert_int_eq(sw_test_result_code(&rig->reply, i), i ? 0 : -SW_ENOENT);
    ck_assert_uint_eq(sw_test_result_id(&rig->reply, 1).slot, ids[0].slot);
    ck_assert_ptr_nonnull(strstr(rig->reply.u.results.text, "request 1 of 3: "));
    sw_builds_ck_rest(consumes, N_MEMS); /* a durable region stays */
    sw_test_packet(&packet_back, SW_MSG_DISCARD, 0);
    sw_test_add_id(&packet_back, never);
    sw_test_add_id(&packet_back, ids[0]);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), -SW_ENOENT);
    ck_assert(sw_packet_rig_says(rig, "request 1 of 2: "));
    for (unsigned i = 0; i < 2; i++) {
        sw_test_packet(&packet_back, SW_MSG_DISCARD, i ? 4 : 0);
        packet_back.msg.u.discard.reserved = !i;
        sw_test_add_id(&packet_back, ids[1]);
        ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), -SW_EINVAL);
    }
    sw_test_packet(&packet_back, SW_MSG_DISCARD, 0);
    sw_test_add_id(&packet_back, ids[1]);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet_back), consumes ? 0 : -SW_ESTALE);
    sw_builds_ck_rest(0, N_MEMS);
}
END_TEST

static int inspect(struct sw_region_id id, uint32_t what, uint32_t first) {
    struct sw_msg msg = {.header.type = SW_MSG_INSPECT, .u.inspect = {id.slot, id.gen, what, first}};
    const int rc = sw_packet_rig_call_msg(rig, &msg);
    ck_assert(rc || rig->reply.header.type == SW_MSG_DETAILS);
    return rc;
}

START_TEST(a_region_can_be_inspected) {
    const struct sw_msg_details *details = &rig->reply.u.details;
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    for (unsigned i = 0; i < 2; i++) {
        (void)sw_test_add_buffer(&packet, BYTES + 1000u * i, 0);
        (void)sw_test_add_chunk(&packet, MEM, i * 4ul * BYTES, BYTES + 1000u * i);
    }
    (void)sw_test_add_build(&packet, NULL);
    packet.builds[1].flags |= SW_BUILD_IN_PLACE;
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, MEM + 1, 0, BYTES);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region_id id = sw_test_result_id(&rig->reply, 0), packed = sw_test_result_id(&rig->reply, 1);
    ck_assert_int_eq(inspect(id, SW_INSPECT_REGION, 0), 0);
    ck_assert_uint_eq(details->n_results, 1);
    ck_assert_uint_eq(details->n_buffers + details->n_frames + details->n_all, 0);
    ck_assert(details->results[0].slot == id.slot && details->results[0].gen == id.gen);
    ck_assert_uint_eq(details->results[0].raw_bytes, 2 * BYTES + 1000);
    ck_assert_str_eq(sw_test_text(&rig->reply, details->results[0].state), "out");
    ck_assert_str_eq(sw_test_text(&rig->reply, details->results[0].tier), "host");
    ck_assert_int_eq(inspect(id, SW_INSPECT_BUFFERS, 0), 0);
    ck_assert(details->n_buffers == 2 && details->results[0].n_buffers == 2);
    ck_assert(details->buffers[0].raw_bytes == BYTES && details->buffers[1].raw_bytes == BYTES + 1000);
    ck_assert_uint_gt(details->buffers[1].stored_bytes, 0);
    ck_assert_str_ne(sw_test_text(&rig->reply, details->buffers[1].codec), "");
    ck_assert_int_eq(inspect(packed, SW_INSPECT_FRAMES, 0), 0);
    ck_assert(details->n_all == 1 && details->n_frames == 1);
    ck_assert(details->frames[0].offset == 0 && details->frames[0].raw_bytes == BYTES);
    ck_assert_int_eq(inspect(packed, SW_INSPECT_FRAMES, 1), -SW_ERANGE);
    ck_assert_int_eq(inspect(id, SW_INSPECT_FRAMES, 0), -SW_EINVAL); /* it is not packed */
    ck_assert_int_eq(inspect(id, SW_INSPECT_BUFFERS, 1), -SW_EINVAL);
    ck_assert_int_eq(inspect(id, SW_INSPECT_FRAMES + 1, 0), -SW_EINVAL);
    ck_assert_int_eq(inspect((struct sw_region_id){4000, 1}, SW_INSPECT_REGION, 0), -SW_ENOENT);
}
END_TEST

/* A client of version 9 asks. */
static const struct sw_msg *ask_as_9(struct sw_msg msg) {
    msg.header.version = rig->session->version = SW_PROTO_OLDEST_VERSION;
    ck_assert_int_eq(sw_packet_rig_call_msg(rig, &msg), 0);
    rig->session->version = SW_PROTO_VERSION;
    return &rig->reply;
}

/* It learns what a client of version 10 learns. */
START_TEST(a_region_can_be_inspected_by_old_clients) {
    struct sw_wire_buffer buffers[2];
    struct sw_wire_frame frame;
    char reason[32], text[SW_PROTO_REASON_BYTES + 1] = "";
    struct sw_region *region;
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    for (unsigned i = 0; i < 2; i++) {
        (void)sw_test_add_buffer(&packet, BYTES + 1000u * i, 0);
        (void)sw_test_add_chunk(&packet, MEM, i * 4ul * BYTES, BYTES + 1000u * i);
    }
    sw_test_add_build(&packet, NULL)->flags |= SW_BUILD_IN_PLACE;
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, MEM + 1, 0, BYTES);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region_id id = sw_test_result_id(&rig->reply, 0), packed = sw_test_result_id(&rig->reply, 1);
    ck_assert_int_eq(inspect(id, SW_INSPECT_BUFFERS, 0), 0);
    memcpy(buffers, rig->reply.u.details.buffers, sizeof buffers);
    (void)snprintf(reason, sizeof reason, "%s", sw_test_text(&rig->reply, buffers[1].reason));
    const struct sw_msg_region_buffers *old =
        &ask_as_9((struct sw_msg){.header.type = SW_MSG_QUERY_BUFFERS, .u.query_buffers = {id.slot, id.gen}})
             ->u.region_buffers;
    ck_assert_uint_eq(old->count, 2);
    for (unsigned i = 0; i < 2; i++)
        ck_assert(old->raw_bytes[i] == buffers[i].raw_bytes && old->stored_bytes[i] == buffers[i].stored_bytes);
    memcpy(text, old->reasons + SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES);
    ck_assert(text[0] && strcmp(text, reason) == 0);
    ck_assert_int_eq(sw_engine_find(rig->session->owner, packed, &region, NULL), 0);
    region->frames->layouts[0].n_symbols = 77;
    region->frames->layouts[0].value_type = SW_VALUE_I64;
    ck_assert_int_eq(inspect(packed, SW_INSPECT_FRAMES, 0), 0);
    frame = rig->reply.u.details.frames[0];
    ck_assert(frame.value_type == SW_VALUE_I64 && frame.n_symbols == 77);
    const struct sw_msg_region_packed *old_packed =
        &ask_as_9((struct sw_msg){.header.type = SW_MSG_QUERY_PACKED, .u.query_packed = {packed.slot, packed.gen, 0}})
             ->u.region_packed;
    ck_assert(old_packed->bytes[0] == frame.bytes && old_packed->raw_bytes[0] == frame.raw_bytes);
    ck_assert(old_packed->codec[0] == frame.codec && old_packed->type[0] == frame.value_type);
    ck_assert_uint_eq(old_packed->n_symbols[0], frame.n_symbols);
}
END_TEST

static int advise(struct sw_region_id id, uint32_t advice, uint32_t value) {
    struct sw_msg msg = {.header.type = SW_MSG_ADVISE, .u.advise = {id.slot, id.gen, advice, value}};
    return sw_packet_rig_call_msg(rig, &msg);
}

START_TEST(advice_is_taken_or_refused) {
    struct sw_region *region;
    sw_builds_make(&packet, 1, 0);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region_id id = sw_test_result_id(&rig->reply, 0);
    ck_assert_int_eq(sw_engine_find(rig->session->owner, id, &region, NULL), 0);
    ck_assert_int_eq(advise(id, SPILLWAY_ADVICE_PRIORITY, 255), 0);
    ck_assert_int_eq(advise(id, SPILLWAY_ADVICE_PRIORITY, 256), -SW_EINVAL);
    ck_assert_uint_eq(region->priority, 255);
    ck_assert_int_eq(advise(id, SPILLWAY_ADVICE_PIN, 1), 0);
    ck_assert(region->pinned);
    ck_assert_int_eq(advise(id, SPILLWAY_ADVICE_PREFETCH + 1, 0), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(rig, "advice 3 is unknown"));
}
END_TEST

/* A packed region with more chunks than a reply has room for, in both versions: each page says how many there are. */
START_TEST(chunks_are_told_page_by_page) {
    enum { N_CHUNKS = SW_PROTO_MAX_FRAMES + 5, CHUNK = 32768 };
    struct sw_region *region;
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    sw_test_add_build(&packet, NULL)->flags |= SW_BUILD_IN_PLACE;
    (void)sw_test_add_buffer(&packet, BYTES, 0);
    (void)sw_test_add_chunk(&packet, MEM + 1, 0, BYTES);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region_id id = sw_test_result_id(&rig->reply, 0);
    ck_assert_int_eq(sw_engine_find(rig->session->owner, id, &region, NULL), 0);
    struct sw_frames *const short_one = region->frames;
    region->frames = sw_frames_new((uint64_t)N_CHUNKS * CHUNK, CHUNK, true); /* no chunk has shrunk */
    ck_assert_ptr_nonnull(region->frames);
    for (uint32_t first = 0; first < N_CHUNKS; first += SW_PROTO_MAX_FRAMES) {
        const uint32_t n = first ? N_CHUNKS - SW_PROTO_MAX_FRAMES : SW_PROTO_MAX_FRAMES;
        const struct sw_msg_details *details = &rig->reply.u.details;
        const struct sw_msg_region_packed *packed = &rig->reply.u.region_packed;
        struct sw_msg old = {.header.type = SW_MSG_QUERY_PACKED, .u.query_packed = {id.slot, id.gen, first}};
        ck_assert_int_eq(inspect(id, SW_INSPECT_FRAMES, first), 0);
        ck_assert(details->n_all == N_CHUNKS && details->n_frames == n);
        ck_assert_uint_eq(details->frames[0].offset, (uint64_t)first * CHUNK);
        rig->session->version = SW_PROTO_OLDEST_VERSION;
        old.header.version = SW_PROTO_OLDEST_VERSION;
        ck_assert_int_eq(sw_packet_rig_call_msg(rig, &old), 0);
        rig->session->version = SW_PROTO_VERSION;
        ck_assert_uint_eq(rig->reply.header.type, SW_MSG_REGION_PACKED);
        ck_assert(packed->n_chunks == N_CHUNKS && packed->count == n);
        ck_assert_uint_eq(packed->offset[0], (uint64_t)first * CHUNK);
        ck_assert_uint_eq(packed->offset[n - 1], (uint64_t)(first + n - 1) * CHUNK);
    }
    sw_frames_delete(region->frames);
    region->frames = short_one;
}
END_TEST

static unsigned n_lines;

static void count_adopted(enum sw_log_level level, const char *line, void *arg) {
    (void)level;
    (void)arg;
    n_lines += strstr(line, "event=region.adopted") != NULL;
}

static int adopt(const char *name) {
    struct sw_msg msg = {.header.type = SW_MSG_ADOPT};
    sw_msg_set_text(msg.u.adopt.name, sizeof msg.u.adopt.name, name);
    return sw_packet_rig_call_msg(rig, &msg);
}

START_TEST(a_durable_region_is_adopted_by_its_name) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    for (unsigned i = 0; i < 2; i++) {
        (void)sw_test_add_build(&packet, i ? "two" : "one");
        (void)sw_test_add_buffer(&packet, BYTES, 0);
        (void)sw_test_add_chunk(&packet, MEM, 0, BYTES);
    }
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), 0);
    const struct sw_region_id two = sw_test_result_id(&rig->reply, 1);
    ck_assert_int_eq(sw_packet_rig_call(rig, &packet), -SW_EEXIST);
    ck_assert_int_eq(adopt("two"), 0);
    ck_assert_uint_eq(rig->reply.header.type, SW_MSG_RESULTS);
    ck_assert(sw_test_result_id(&rig->reply, 0).slot == two.slot && sw_test_result_id(&rig->reply, 0).gen == two.gen);
    ck_assert_uint_eq(rig->reply.u.results.results[0].raw_bytes, BYTES);
    ck_assert_int_eq(adopt("three"), -SW_ENOENT);
    /* A tenant's lines are limited, also these. */
    struct sw_log_limit *lines = &rig->session->tenant->lines[SW_LINES_OTHER];
    sw_log_set_level(SW_LOG_INFO);
    sw_log_set_tap(count_adopted, NULL);
    ck_assert_int_eq(adopt("one"), 0);
    ck_assert_uint_eq(n_lines, 1);
    *lines = (struct sw_log_limit){.begin_us = sw_clock_us(), .n = 1000000};
    ck_assert_int_eq(adopt("two"), 0);
    ck_assert_uint_eq(n_lines, 1);
    ck_assert_uint_eq(lines->n_left_out, 1);
    sw_log_set_tap(NULL, NULL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("daemon_regions");
    TCase *tcase = tcase_create("regions");
    tcase_add_checked_fixture(tcase, sw_builds_open, sw_builds_close);
    tcase_add_loop_test(tcase, regions_that_can_be_discarded_are, 0, 2);
    tcase_add_test(tcase, a_region_can_be_inspected);
    tcase_add_test(tcase, a_region_can_be_inspected_by_old_clients);
    tcase_add_test(tcase, advice_is_taken_or_refused);
    tcase_add_test(tcase, chunks_are_told_page_by_page);
    tcase_add_test(tcase, a_durable_region_is_adopted_by_its_name);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
