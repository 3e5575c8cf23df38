/* The answers of a restarted service to a client that asks for its spills, builds and reads. */
#include "codec/plan/planning.h"
#include "tests/lib/content.h"
#include "tests/lib/packets.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/supervisor.h"
#include "tests/lib/wire.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const in_memory[] = {"log_level=warning", NULL};

/* A spill has reached the disk, but its reply was lost; then the disk is away. Its client has the bytes, and may repeat
 * the spill. */
START_TEST(a_spill_whose_reply_was_lost) {
    enum { BYTES = 1000001 };
    static struct sw_supervisor s;
    char folder[SW_TEST_PATH_BYTES], option[SW_TEST_PATH_BYTES + 32];
    struct sw_msg msg = {.header = {.type = SW_MSG_SETTLE9}};
    struct sw_msg_region info;
    struct sw_region_id id;
    struct sw_wire wire;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_test_folder_here(folder);
    (void)snprintf(option, sizeof option, "nvme_tier_directory=%s/nvme", folder);
    const char *options[] = {"log_level=error",
                             option,
                             "nvme_tier_bytes=16MiB",
                             "host_tier_bytes=8MiB",
                             "host_tier_high_pct=1",
                             "host_tier_low_pct=0",
                             "host_tier_slab_bytes=2MiB",
                             "host_tier_initial_bytes=0",
                             NULL};
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, options);
    sw_wire_open(&wire, s.daemon.socket);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &id), 0);
    msg.u.settle9 = (struct sw_msg_settle9){.type = SW_MSG_SPILL, .seq = wire.seq, .count = 1};
    do
        ck_assert_int_eq(sw_wire_query(&wire, id, &info), 0);
    while (strcmp((char *)info.tier, "nvme") != 0); /* ends with the test's time limit, if not */
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    options[1] = "nvme_tier_directory=none";
    ck_assert(sw_supervisor_spawn(&s));
    sw_wire_close(&wire);
    ck_assert(sw_wire_resume(&wire, s.daemon.socket));
    ck_assert_int_eq(sw_wire_query(&wire, id, &info), 0);
    ck_assert_str_eq((char *)info.state, "lost");
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ERESTARTED);
    ck_assert_int_eq(sw_wire_query(&wire, id, &info), -SW_ESTALE); /* or it would stay for ever */
    sw_wire_close(&wire);
    (void)close(fd);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* Three builds, each by itself or all or nothing: a restart later they are found by seq and index. Then they are read
 * back. Once the reply is in the socket nothing is left of them, or soon after it. */
START_TEST(packets_are_settled) {
    enum { N = 3, BYTES = 100000 };
    const uint32_t flags = _i ? SW_REQ_ALL : 0;
    static struct sw_test_packet packet;
    static struct sw_supervisor s;
    struct sw_region_id ids[N];
    struct sw_wire wire = {0};
    const int fd = sw_wire_content_memfd(N * BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open_version(&wire, s.daemon.socket, SW_PROTO_VERSION);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, N * BYTES, false), 0);
    for (int is_read = 0; is_read < 2; is_read++) {
        sw_test_packet(&packet, is_read ? SW_MSG_READ : SW_MSG_BUILD, flags);
        for (unsigned i = 0; i < N; i++) {
            if (is_read) {
                (void)sw_test_add_read(&packet, ids[i], 0);
                (void)sw_test_add_room(&packet, 1, i * (uint64_t)BYTES, BYTES);
                continue;
            }
            (void)sw_test_add_build(&packet, NULL);
            (void)sw_test_add_buffer(&packet, BYTES, 0);
            (void)sw_test_add_chunk(&packet, 1, i * (uint64_t)BYTES, BYTES);
        }
        ck_assert_int_eq(sw_wire_call(&wire, &packet.msg, NULL, 0), 0);
        const uint32_t seq = wire.seq;
        ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
        ck_assert(sw_supervisor_spawn(&s));
        sw_wire_close(&wire);
        ck_assert(sw_wire_resume(&wire, s.daemon.socket));
        ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, N * BYTES, false), 0);
        sw_test_packet(&packet, SW_MSG_SETTLE, flags);
        packet.msg.u.settle.type = is_read ? SW_MSG_READ : SW_MSG_BUILD;
        packet.msg.u.settle.seq = seq;
        for (unsigned i = 0; i < N; i++)
            sw_test_add_id(&packet, is_read ? ids[i] : (struct sw_region_id){0});
        const int rc = sw_wire_call(&wire, &packet.msg, NULL, 0);
        ck_assert(rc == 0 || (is_read && rc == -SW_ESTALE));
        for (unsigned i = 0; !is_read && i < N; i++) {
            ck_assert_int_eq(sw_test_result_code(&packet.msg, i), 0);
            ids[i] = sw_test_result_id(&packet.msg, i);
        }
        sw_test_packet(&packet, SW_MSG_SETTLE, 0);
        ck_assert_int_eq(sw_wire_call(&wire, &packet.msg, NULL, 0), 0);
    }
    ck_assert(sw_wire_memfd_holds(fd, N * BYTES, SW_CONTENT_RANDOM, 1));
    sw_wire_close(&wire);
    (void)close(fd);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

/* A client of version 10 that has a memory and a region open. */
struct opener {
    struct sw_supervisor s;
    struct sw_wire wire;
    struct sw_test_packet packet;
    int fd;
};
enum { OPEN_CHUNK = 64 << 10, OPEN_BYTES = 3 * OPEN_CHUNK };

static int opener_call(struct opener *o) {
    return sw_wire_call(&o->wire, &o->packet.msg, NULL, 0);
}

static void opener_restart(struct opener *o) {
    ck_assert_int_eq(sw_supervisor_stop(&o->s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&o->s));
    sw_wire_close(&o->wire);
    ck_assert(sw_wire_resume(&o->wire, o->s.daemon.socket));
    ck_assert_int_eq(sw_wire_mem(&o->wire, 1, o->fd, OPEN_BYTES, false), 0);
}

/* A durable build's part of a packet: with the begin the first chunk, with the commit the others. */
static int opener_build(struct opener *o, const char *name, uint32_t number, unsigned flags) {
    const bool begins = flags & SW_BUILD_BEGIN;
    sw_test_packet(&o->packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&o->packet, begins ? name : NULL);
    build->build = number;
    (void)sw_test_add_buffer(&o->packet, OPEN_BYTES, 0);
    o->packet.buffers[0].chunk_bytes = OPEN_CHUNK;
    struct sw_wire_chunk *chunk =
        sw_test_add_chunk(&o->packet, 1, begins ? 0 : OPEN_CHUNK, begins ? OPEN_CHUNK : OPEN_BYTES - OPEN_CHUNK);
    chunk->at = chunk->offset;
    build->flags = (uint16_t)flags;
    build->n_buffers = o->packet.msg.u.build.n_buffers = begins;
    return opener_call(o);
}

static int opener_read(struct opener *o, struct sw_region_id id, uint32_t number, unsigned flags, bool has_chunk) {
    sw_test_packet(&o->packet, SW_MSG_READ, 0);
    struct sw_wire_read *read = sw_test_add_read(&o->packet, flags & SW_READ_BEGIN ? id : (struct sw_region_id){0}, 0);
    read->read = number;
    read->flags = (uint16_t)flags;
    if (has_chunk)
        (void)sw_test_add_room(&o->packet, 1, 0, OPEN_BYTES);
    return opener_call(o);
}

static int opener_settle(struct opener *o, uint32_t type, uint32_t seq, struct sw_region_id id) {
    sw_test_packet(&o->packet, SW_MSG_SETTLE, 0);
    o->packet.msg.u.settle.type = type;
    o->packet.msg.u.settle.seq = seq;
    if (type)
        sw_test_add_id(&o->packet, id);
    return opener_call(o);
}

/* An open build leaves nothing, not even its name. A build that its last packet committed is there, and this packet is
 * settled. An open read leaves its region, however far it was; a client that has all of its chunks consumes it. */
START_TEST(open_builds_and_reads_are_settled) {
    static struct opener o;
    o.fd = sw_wire_content_memfd(OPEN_BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_supervisor_start(&o.s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open_version(&o.wire, o.s.daemon.socket, SW_PROTO_VERSION);
    ck_assert_int_eq(sw_wire_mem(&o.wire, 1, o.fd, OPEN_BYTES, false), 0);
    ck_assert_int_eq(opener_build(&o, "open", 1, SW_BUILD_BEGIN), 0);
    ck_assert_int_eq(opener_build(&o, NULL, 2, SW_BUILD_BEGIN), 0);
    ck_assert_int_eq(opener_build(&o, NULL, 2, SW_BUILD_COMMIT), 0);
    const uint32_t seq = o.wire.seq;
    opener_restart(&o);
    ck_assert_int_eq(opener_settle(&o, SW_MSG_BUILD, seq - 2, (struct sw_region_id){0}), -SW_ERESTARTED);
    ck_assert_int_eq(opener_settle(&o, SW_MSG_BUILD, seq, (struct sw_region_id){0}), 0);
    const struct sw_region_id id = sw_test_result_id(&o.packet.msg, 0);
    ck_assert_uint_eq(o.packet.msg.u.results.results[0].raw_bytes, OPEN_BYTES);
    ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
    ck_assert_int_eq(opener_build(&o, NULL, 1, SW_BUILD_COMMIT), -SW_ENOENT);
    ck_assert_int_eq(opener_build(&o, "open", 3, SW_BUILD_BEGIN), 0); /* the name is free */
    static const uint8_t zeros[OPEN_BYTES];
    ck_assert_int_eq(pwrite(o.fd, zeros, sizeof zeros, 0), sizeof zeros);
    ck_assert_int_eq(opener_read(&o, id, 4, SW_READ_BEGIN, true), 0);
    if (_i == 0)
        ck_assert_int_eq(opener_read(&o, id, 4, SW_READ_END, false), 0);
    const uint32_t read_seq = o.wire.seq;
    opener_restart(&o);
    ck_assert(sw_wire_memfd_holds(o.fd, OPEN_BYTES, SW_CONTENT_RANDOM, 1));
    if (_i == 0) {
        const int rc = opener_settle(&o, SW_MSG_READ, read_seq, id);
        ck_assert(rc == 0 || rc == -SW_ESTALE);
        ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
    } else {
        ck_assert_int_eq(opener_settle(&o, SW_MSG_READ, read_seq + 1, id), -SW_ERESTARTED);
        ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
        sw_test_packet(&o.packet, SW_MSG_DISCARD, SW_REQ_CONSUME);
        sw_test_add_id(&o.packet, id);
        ck_assert_int_eq(opener_call(&o), 0);
    }
    const int rc = opener_read(&o, id, 5, SW_READ_BEGIN, false);
    ck_assert(rc == -SW_ENOENT || rc == -SW_ESTALE);
    sw_wire_close(&o.wire);
    (void)close(o.fd);
    ck_assert_int_eq(sw_supervisor_stop(&o.s, SIGTERM), 0);
    sw_supervisor_end(&o.s);
}
END_TEST

/* Frames of three chunks, each at its chunk's place in the memory. */
static void opener_encode(const struct opener *o, const uint8_t *raw, uint64_t ret_bytes[3]) {
    static _Alignas(16) uint8_t frame[2 * OPEN_CHUNK];
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    struct sw_plan plan;
    sw_plan_make(&plan, SW_VALUE_NONE, raw, OPEN_BYTES, sample);
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(
            sw_codec_encode(&plan, raw + i * OPEN_CHUNK, OPEN_CHUNK, frame, sizeof frame, &ret_bytes[i], NULL), 0);
        ck_assert_uint_le(ret_bytes[i], OPEN_CHUNK);
        ck_assert_int_eq(pwrite(o->fd, frame, ret_bytes[i], i * OPEN_CHUNK), (ssize_t)ret_bytes[i]);
    }
}

/* Frames 0 to n - 1, in a build that begins and does or does not commit. */
static int opener_build_frames(struct opener *o, uint32_t number, const uint64_t *bytes, unsigned n) {
    sw_test_packet(&o->packet, SW_MSG_BUILD, 0);
    struct sw_wire_build *build = sw_test_add_build(&o->packet, NULL);
    build->build = number;
    build->flags = n == 3 ? SW_BUILD_BEGIN | SW_BUILD_COMMIT : SW_BUILD_BEGIN;
    sw_test_add_buffer(&o->packet, OPEN_BYTES, 0)->chunk_bytes = OPEN_CHUNK;
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_chunk *chunk = sw_test_add_chunk(&o->packet, 1, i * OPEN_CHUNK, OPEN_CHUNK);
        chunk->at = chunk->offset;
        chunk->frame_bytes = (uint32_t)bytes[i];
    }
    return opener_call(o);
}

/* A region of frames that a client has made outlives the service: the successor says that the client made them, and
 * sends them. Frames of an open build are gone. */
START_TEST(frames_of_a_client_outlive_the_service) {
    static struct opener o;
    static uint8_t raw[OPEN_BYTES], stored[OPEN_CHUNK], out[OPEN_CHUNK];
    uint64_t bytes[3];
    sw_content_fill(raw, sizeof raw, SW_CONTENT_TEXT, 3);
    o.fd = sw_wire_memfd(NULL, OPEN_BYTES, F_SEAL_SHRINK);
    ck_assert_int_eq(fallocate(o.fd, 0, 0, OPEN_BYTES), 0);
    sw_supervisor_start(&o.s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open_version(&o.wire, o.s.daemon.socket, SW_PROTO_VERSION);
    ck_assert_int_eq(sw_wire_mem(&o.wire, 1, o.fd, OPEN_BYTES, false), 0);
    opener_encode(&o, raw, bytes);
    ck_assert_int_eq(opener_build_frames(&o, 1, bytes, 2), 0);
    ck_assert_int_eq(opener_build_frames(&o, 2, bytes, 3), 0);
    const uint32_t seq = o.wire.seq;
    opener_restart(&o);
    ck_assert_int_eq(opener_settle(&o, SW_MSG_BUILD, seq, (struct sw_region_id){0}), 0);
    const struct sw_region_id id = sw_test_result_id(&o.packet.msg, 0);
    ck_assert_str_eq(sw_test_text(&o.packet.msg, o.packet.msg.u.results.results[0].coder), "client");
    ck_assert_int_eq(opener_settle(&o, 0, 0, (struct sw_region_id){0}), 0);
    struct sw_msg_status_ok status;
    ck_assert_int_eq(sw_wire_status(&o.wire, &status), 0);
    ck_assert_uint_eq(status.regions, 1);
    static const uint8_t zeros[OPEN_BYTES];
    ck_assert_int_eq(pwrite(o.fd, zeros, sizeof zeros, 0), sizeof zeros);
    sw_test_packet(&o.packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&o.packet, id, 0);
    for (unsigned i = 0; i < 3; i++) {
        struct sw_wire_chunk *chunk = sw_test_add_room(&o.packet, 1, i * OPEN_CHUNK, OPEN_CHUNK);
        chunk->at = chunk->offset;
        chunk->buffer = 0;
        chunk->frame_bytes = OPEN_CHUNK;
    }
    ck_assert_int_eq(opener_call(&o), 0);
    ck_assert_uint_eq(o.packet.msg.u.results.n_frames, 3);
    for (unsigned i = 0; i < 3; i++) {
        const struct sw_wire_frame *frame = &o.packet.msg.u.results.frames[i];
        uint64_t raw_bytes = 0;
        ck_assert(frame->offset == i * OPEN_CHUNK && frame->bytes == bytes[i]);
        ck_assert_int_eq(pread(o.fd, stored, frame->bytes, (off_t)frame->offset), (ssize_t)frame->bytes);
        ck_assert_int_eq(sw_codec_decode(stored, frame->bytes, out, sizeof out, &raw_bytes, NULL), 0);
        ck_assert_mem_eq(out, raw + i * OPEN_CHUNK, OPEN_CHUNK);
    }
    sw_wire_close(&o.wire);
    (void)close(o.fd);
    ck_assert_int_eq(sw_supervisor_stop(&o.s, SIGTERM), 0);
    sw_supervisor_end(&o.s);
}
END_TEST

/* A client has used up all seqs, before the service is killed or while it is away, and starts again. Regions of the
 * last round's seqs must not be taken for those of this round. */
START_TEST(seqs_wrap_around) {
    enum { BYTES = 100000, STEP = 1 << 20, STEPS = 4096 };
    static struct sw_supervisor s;
    struct sw_msg_status_ok status;
    struct sw_msg_region info;
    struct sw_region_id old, new;
    struct sw_wire wire;
    struct sw_msg msg = {.header = {.type = SW_MSG_SETTLE9}}, newer = msg;
    const int fd = sw_wire_content_memfd(BYTES, SW_CONTENT_RANDOM, 1, F_SEAL_SHRINK);
    sw_supervisor_start(&s, SW_SPILLWAYD_PATH, in_memory);
    sw_wire_open(&wire, s.daemon.socket);
    ck_assert_int_eq(sw_wire_mem(&wire, 1, fd, BYTES, false), 0);
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &old), 0);
    msg.u.settle9 = (struct sw_msg_settle9){.type = SW_MSG_SPILL, .seq = wire.seq, .count = 1};
    for (int i = 0; _i && i < STEPS; i++) {
        wire.seq += STEP - 1;
        ck_assert_int_eq(sw_wire_status(&wire, &status), 0);
    }
    ck_assert_int_eq(sw_wire_spill(&wire, 1, 0, BYTES, &new), 0);
    newer.u.settle9 = (struct sw_msg_settle9){.type = SW_MSG_SPILL, .seq = wire.seq, .count = 1};
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&s));
    sw_wire_close(&wire);
    if (!_i)
        wire.seq = msg.u.settle9.seq - 3;
    ck_assert(sw_wire_resume(&wire, s.daemon.socket)); /* its first one may be any */
    ck_assert_int_eq(sw_wire_query(&wire, old, &info), 0);
    ck_assert_int_eq(sw_wire_call(&wire, &msg, NULL, 0), -SW_ERESTARTED);
    ck_assert_int_eq(sw_wire_query(&wire, old, &info), 0);
    ck_assert_int_eq(sw_wire_call(&wire, &newer, NULL, 0), _i ? 0 : -SW_ERESTARTED);
    ck_assert(!_i || newer.u.result.slot == new.slot);
    wire.seq += STEP;
    ck_assert_int_eq(sw_wire_status(&wire, &status), -SW_EPROTO); /* not on the way */
    sw_wire_close(&wire);
    (void)close(fd);
    ck_assert_int_eq(sw_supervisor_stop(&s, SIGTERM), 0);
    sw_supervisor_end(&s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("settled_after_restart");
    TCase *tcase = tcase_create("settled_after_restart");
    sw_test_slow(tcase, 90);
    tcase_add_test(tcase, a_spill_whose_reply_was_lost);
    tcase_add_loop_test(tcase, packets_are_settled, 0, 2);
    tcase_add_loop_test(tcase, open_builds_and_reads_are_settled, 0, 2);
    tcase_add_test(tcase, frames_of_a_client_outlive_the_service);
    tcase_add_loop_test(tcase, seqs_wrap_around, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
