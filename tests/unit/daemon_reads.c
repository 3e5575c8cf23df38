/* Reads of several packets: begin, chunks and end in every division into packets; failures, cancels, and clients that
 * go silent or hang up. */
#include "base/alloc.h"
#include "spill/engine_state.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

enum {
    STEP = SW_BUILD_CHUNK_STEP_BYTES,
    N_STEPS = 8,
    TAIL = 1000, /* of the last chunk */
    RAW_BYTES = (N_STEPS - 1) * STEP + TAIL,
    MEMORY_BYTES = 2 * N_STEPS * STEP,
    MEM = SW_PACKET_RIG_MEM,
    BUILD = 1,
    NUMBER = 7000 /* of the first read */
};

static struct sw_packet_rig rig;
static struct sw_test_packet packet;

static void setup(void) {
    sw_packet_rig_open(&rig, MEMORY_BYTES);
}

static void teardown(void) {
    sw_packet_rig_close(&rig);
}

/* ---- packets ---- */

static int call(void) {
    return sw_packet_rig_call(&rig, &packet);
}

static int code_of(unsigned i) {
    return sw_test_result_code(&rig.reply, i);
}

/* A region of one buffer, the memory's first bytes, in chunks of a step. */
static struct sw_region_id build(uint32_t number, const char *name) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    sw_test_add_build(&packet, name)->build = number;
    sw_test_add_buffer(&packet, RAW_BYTES, SW_VALUE_NONE)->chunk_bytes = STEP;
    (void)sw_test_add_chunk(&packet, MEM, 0, RAW_BYTES);
    ck_assert_int_eq(call(), 0);
    return sw_test_result_id(&rig.reply, 0);
}

static void new_packet(uint32_t flags) {
    sw_test_packet(&packet, SW_MSG_READ, flags);
}

static void add(uint32_t number, unsigned flags, struct sw_region_id id) {
    struct sw_wire_read *read = sw_test_add_read(&packet, id, 0);
    read->read = number;
    read->flags = (uint16_t)flags;
}

/* Room for bytes of a buffer, where they were when the region was built. */
static struct sw_wire_chunk *add_room(uint64_t at, uint64_t raw_bytes) {
    struct sw_wire_chunk *chunk = sw_test_add_room(&packet, MEM, at, raw_bytes);
    chunk->buffer = 0;
    chunk->at = at;
    return chunk;
}

static const struct sw_region_id none = {0};

static int begin(uint32_t number, struct sw_region_id id) {
    new_packet(0);
    add(number, SW_READ_BEGIN, id);
    return call();
}

static int end(uint32_t number, unsigned flags) {
    new_packet(0);
    add(number, SW_READ_END | flags, none);
    return call();
}

static int ask(uint32_t number, unsigned flags, uint64_t at, uint64_t raw_bytes) {
    new_packet(0);
    add(number, flags, none);
    (void)add_room(at, raw_bytes);
    return call();
}

static void wipe(void) {
    memset(rig.memory, 0, MEMORY_BYTES);
}

static void ck_bytes(uint64_t at, uint64_t raw_bytes) {
    ck_assert_mem_eq(rig.memory + at, rig.original + at, raw_bytes);
}

static void ck_rest(unsigned n_regions, unsigned n_open) {
    sw_packet_rig_check_rest(&rig, n_regions, n_open);
}

/* ---- reads in every division ---- */

/* The loop's index: the first chunks go with the begin, the end with the last ones, the region is kept, or durable. */
START_TEST(a_region_is_read_by_packets) {
    const bool with_begin = _i & 1, with_end = _i & 2, keeps = _i & 4, durable = _i & 8;
    const unsigned end_flags = SW_READ_END | (keeps ? SW_READ_KEEP : 0);
    const struct sw_region_id id = build(BUILD, durable ? "a name" : NULL);
    wipe();
    if (!with_begin)
        ck_assert_int_eq(begin(NUMBER, id), 0);
    for (uint64_t at = 0; at < RAW_BYTES; at += 3 * STEP) {
        const bool is_first = at == 0 && with_begin, is_last = at + 3 * STEP >= RAW_BYTES && with_end;
        new_packet(0);
        add(NUMBER, (is_first ? SW_READ_BEGIN : 0) | (is_last ? end_flags : 0), is_first ? id : none);
        for (unsigned i = 0; i < 3 && at + i * STEP < RAW_BYTES; i++)
            (void)add_room(at + i * STEP, STEP);
        ck_assert_int_eq(call(), 0);
        const struct sw_wire_result *result = &rig.reply.u.results.results[0];
        ck_assert_uint_eq(result->number, NUMBER);
        const uint64_t moved = RAW_BYTES - at < 3 * STEP ? RAW_BYTES - at : 3 * STEP;
        ck_assert_uint_eq(result->raw_bytes, is_last ? (uint64_t)RAW_BYTES : moved);
        ck_assert_uint_gt(result->stored_bytes, 0);
        ck_assert_uint_eq(result->n_buffers, is_first);
        ck_assert_uint_eq(rig.reply.u.results.n_buffers, is_first);
        ck_bytes(at, moved);
    }
    if (!with_end)
        ck_assert_int_eq(end(NUMBER, end_flags), 0);
    ck_assert_uint_eq(rig.reply.u.results.results[0].raw_bytes, RAW_BYTES);
    ck_rest(keeps || durable, 0);
}
END_TEST

/* The reply to the begin has the lengths of buffers and of their chunks. */
START_TEST(a_begin_reports_the_buffers) {
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    (void)sw_test_add_build(&packet, NULL);
    for (unsigned i = 0; i < 3; i++) {
        sw_test_add_buffer(&packet, i * 2 * STEP, i == 2 ? SW_VALUE_F64 : 0)->chunk_bytes = i * STEP;
        if (i)
            (void)sw_test_add_chunk(&packet, MEM, 0, i * 2ul * STEP);
    }
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0), other = build(BUILD + 1, NULL);
    new_packet(0);
    add(NUMBER, SW_READ_BEGIN, (struct sw_region_id){4000, 1});
    add(NUMBER + 1, SW_READ_BEGIN, other);
    add(NUMBER + 2, SW_READ_BEGIN, id);
    ck_assert_int_eq(call(), 0);
    const struct sw_msg_results *m = &rig.reply.u.results;
    ck_assert(code_of(0) == -SW_ENOENT && code_of(1) == 0 && code_of(2) == 0);
    ck_assert(m->results[0].n_buffers == 0 && m->results[1].n_buffers == 1 && m->results[2].n_buffers == 3);
    ck_assert_uint_eq(m->n_buffers, 4);
    ck_assert(m->buffers[0].raw_bytes == RAW_BYTES && m->buffers[0].chunk_bytes == STEP);
    for (unsigned i = 0; i < 3; i++) {
        const struct sw_wire_buffer *buffer = &m->buffers[1 + i];
        ck_assert_uint_eq(buffer->raw_bytes, i * 2ul * STEP);
        ck_assert(i == 0 || buffer->chunk_bytes == i * STEP);
        ck_assert(i == 0 || buffer->stored_bytes > 0);
        ck_assert_str_ne(sw_test_text(&rig.reply, buffer->codec), "");
    }
    ck_assert(sw_test_result_id(&rig.reply, 2).slot == id.slot && m->results[2].gen == id.gen);
    ck_rest(2, 2);
}
END_TEST

/* Reads that exceed the room of a reply are not begun. */
START_TEST(a_reply_has_room_for_256_buffers) {
    struct sw_region_id ids[5];
    for (unsigned n = 0; n < 5; n++) {
        sw_test_packet(&packet, SW_MSG_BUILD, 0);
        sw_test_add_build(&packet, NULL)->build = BUILD + n;
        for (unsigned i = 0; i < (n < 4 ? SW_PROTO_MAX_BUFFERS : 1); i++) { /* the last one is one too many */
            (void)sw_test_add_buffer(&packet, 100, 0);
            (void)sw_test_add_chunk(&packet, MEM, i * 100, 100);
        }
        ck_assert_int_eq(call(), 0);
        ids[n] = sw_test_result_id(&rig.reply, 0);
    }
    new_packet(0);
    for (unsigned n = 0; n < 5; n++)
        add(NUMBER + n, SW_READ_BEGIN, ids[n]);
    ck_assert_int_eq(call(), 0);
    for (unsigned n = 0; n < 5; n++)
        ck_assert_int_eq(code_of(n), n < 4 ? 0 : -SW_EINVAL);
    ck_assert_uint_eq(rig.reply.u.results.n_buffers, 4 * SW_PROTO_MAX_BUFFERS);
    ck_rest(5, 4);
    ck_assert_int_eq(begin(NUMBER + 4, ids[4]), 0);
    ck_rest(5, 5);
}
END_TEST

/* Chunks may come in any order, more than once, to any place, and as many as have room. */
START_TEST(chunks_are_read_in_any_order) {
    const struct sw_region_id id = build(BUILD, NULL);
    wipe();
    ck_assert_int_eq(begin(NUMBER, id), 0);
    for (int at = N_STEPS - 1; at > 0; at--)
        ck_assert_int_eq(ask(NUMBER, 0, (uint64_t)at * STEP, STEP), 0);
    ck_bytes(STEP, RAW_BYTES - STEP);
    ck_assert_int_eq(end(NUMBER, 0), -SW_EINVAL); /* the first one is missing: it stays */
    ck_rest(1, 1);
    new_packet(0);
    add(NUMBER, 0, none);
    add_room(0, 2 * STEP + STEP / 2)->offset = N_STEPS * STEP;
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.results[0].raw_bytes, 2 * STEP);
    ck_assert_mem_eq(rig.memory + N_STEPS * STEP, rig.original, 2 * STEP);
    ck_assert_int_eq(end(NUMBER, 0), 0);
    ck_rest(0, 0);
}
END_TEST

/* The end goes with the last chunk, which is not there yet. */
START_TEST(packets_need_not_wait_for_replies) {
    sw_packet_rig_add_page(&rig);
    const struct sw_region_id id = build(BUILD, NULL);
    wipe();
    ck_assert_int_eq(begin(NUMBER, id), 0);
    new_packet(0);
    add(NUMBER, 0, none);
    add_room(0, 4 * STEP)->order_value = 1;
    const uint32_t first = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    new_packet(0);
    add(NUMBER, SW_READ_END, none);
    (void)add_room(4 * STEP, 4 * STEP);
    const uint32_t last = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    ck_assert_int_eq(ask(NUMBER, 0, 0, STEP), -SW_EINVAL); /* it was ended */
    sw_packet_rig_idle(&rig);
    atomic_store(&rig.words[0], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, first), 0);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, last), 0);
    ck_bytes(0, RAW_BYTES);
    ck_rest(0, 0);
}
END_TEST

/* In one packet, a chunk need not begin at the buffer's start, as in an open read. */
START_TEST(a_read_of_one_packet_and_several_chunks) {
    const struct sw_region_id id = build(BUILD, NULL);
    wipe();
    new_packet(0);
    add(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)add_room(0, 4 * STEP);
    (void)add_room(5 * STEP, 3 * STEP);
    ck_assert_int_eq(call(), -SW_EINVAL); /* one chunk is missing: in one packet the read ends nevertheless */
    ck_rest(1, 0);
    (void)add_room(4 * STEP, STEP);
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(rig.reply.u.results.n_buffers, 0);
    ck_bytes(0, RAW_BYTES);
    ck_rest(0, 0);
}
END_TEST

/* ---- what goes wrong ---- */

/* An invalid read changes nothing. */
START_TEST(invalid_reads_are_refused) {
    static const struct {
        uint64_t at, raw_bytes, offset;
        uint32_t mem, frame_bytes, order_value;
        uint16_t buffer;
        int code;
    } rows[] = {{STEP / 2, STEP, 0, MEM, 0, 0, 0, -SW_EINVAL},
                {0, STEP - 1, 0, MEM, 0, 0, 0, -SW_ETOOSMALL},
                {N_STEPS * STEP, STEP, 0, MEM, 0, 0, 0, -SW_EINVAL},
                {0, STEP, MEMORY_BYTES, MEM, 0, 0, 0, -SW_ERANGE},
                {0, STEP, 0, 77, 0, 0, 0, -SW_ENOENT},
                {0, STEP, 0, MEM, 1, 0, 0, -SW_ETOOSMALL},
                {0, STEP, 0, MEM, 0, 1, 0, -SW_EINVAL},
                {0, STEP, 0, MEM, 0, 0, 1, -SW_EINVAL}};
    const struct sw_region_id id = build(BUILD, NULL);
    wipe();
    ck_assert_int_eq(begin(NUMBER, id), 0);
    for (unsigned i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        new_packet(0);
        add(NUMBER, i % 2 ? SW_READ_END : 0, none);
        struct sw_wire_chunk *chunk = add_room(rows[i / 2].at, rows[i / 2].raw_bytes);
        chunk->offset = rows[i / 2].offset;
        chunk->mem = rows[i / 2].mem;
        chunk->frame_bytes = rows[i / 2].frame_bytes;
        chunk->order_value = rows[i / 2].order_value;
        chunk->buffer = rows[i / 2].buffer;
        const int rc = call();
        ck_assert_msg(rc == rows[i / 2].code, "row %u: %s", i / 2, sw_err_name(rc));
        ck_rest(1, 1);
    }
    ck_assert_int_eq(ask(NUMBER, SW_READ_END | SW_READ_KEEP, STEP / 2, STEP), -SW_EINVAL);
    ck_rest(1, 0); /* an end that keeps the region ends the read in any case */
    ck_assert_int_eq(begin(NUMBER, id), 0);
    ck_assert_int_eq(ask(NUMBER, SW_READ_END, 0, RAW_BYTES), 0);
    ck_bytes(0, RAW_BYTES);
    ck_rest(0, 0);
}
END_TEST

START_TEST(invalid_packets_of_a_read_are_refused) {
    static const unsigned flags[] = {0, SW_READ_KEEP, SW_READ_IN_PLACE, SW_READ_END | SW_READ_IN_PLACE, 16};
    const struct sw_region_id id = build(BUILD, NULL);
    ck_assert_int_eq(begin(NUMBER, id), 0);
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        new_packet(0);
        add(NUMBER, flags[i], none);
        ck_assert_int_eq(call(), -SW_EINVAL);
    }
    const struct sw_region_id again[] = {id, {5, 0}, {0, id.gen}};
    for (unsigned i = 0; i < sizeof again / sizeof again[0]; i++) {
        new_packet(0);
        add(NUMBER, SW_READ_END | SW_READ_KEEP, again[i]); /* names the region again, or half of it */
        ck_assert_int_eq(call(), -SW_EINVAL);
    }
    ck_assert_int_eq(begin(NUMBER, id), -SW_EEXIST);
    ck_assert_int_eq(begin(NUMBER + 1, id), -SW_EBUSY);
    ck_assert_int_eq(begin(NUMBER + 1, (struct sw_region_id){4000, 1}), -SW_ENOENT);
    ck_assert_int_eq(ask(NUMBER + 1, 0, 0, STEP), -SW_ENOENT);
    ck_assert_int_eq(end(NUMBER + 1, SW_READ_KEEP), -SW_ENOENT);
    ck_rest(1, 1);
    ck_assert_int_eq(end(NUMBER, SW_READ_KEEP), 0);
    ck_rest(1, 0);
}
END_TEST

/* A chunk whose stored bytes are bad: the read has failed until it is ended, and the region is lost. */
/* Each buffer with bytes needs a chunk, also the last one; an empty one does not. */
START_TEST(buffers_without_a_chunk) {
    enum { N = 4, EMPTY = 2 };
    char text[80];
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    sw_test_add_build(&packet, NULL)->build = BUILD;
    for (unsigned i = 0; i < N; i++) {
        (void)sw_test_add_buffer(&packet, i == EMPTY ? 0 : 100 + i, 0);
        (void)sw_test_add_chunk(&packet, MEM, i * 200, i == EMPTY ? 0 : 100 + i);
    }
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0);
    for (unsigned missing = 0; missing <= N; missing++) {
        if (missing == EMPTY)
            continue;
        new_packet(0);
        add(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
        for (unsigned i = 0; i < N; i++)
            if (i != missing && i != EMPTY)
                sw_test_add_room(&packet, MEM, i * 200, 100 + i)->buffer = (uint16_t)i;
        ck_assert_int_eq(call(), missing < N ? -SW_EINVAL : 0);
        (void)snprintf(text, sizeof text, "buffer %u of 4 has %u bytes, but no chunk", missing + 1, 100 + missing);
        ck_assert(missing == N || sw_packet_rig_says(&rig, text));
        ck_rest(missing < N, 0);
    }
}
END_TEST

/* Flags that contradict each other, or the rest of the packet. The region is as it was. */
START_TEST(reads_that_contradict_themselves_are_refused) {
    enum { WHOLE = SW_READ_BEGIN | SW_READ_END, UNPACK = WHOLE | SW_READ_IN_PLACE };
    static const struct {
        uint32_t packet;
        unsigned flags[2]; /* of one read, or two; their chunks: */
        unsigned n_chunks;
        int code;
    } rows[] = {
        {0, {SW_READ_BEGIN | SW_READ_KEEP}, 0, -SW_EINVAL},
        {0, {SW_READ_BEGIN | SW_READ_IN_PLACE}, 1, -SW_EINVAL},
        {0, {UNPACK}, 0, -SW_EINVAL},
        {0, {UNPACK}, 2, -SW_EINVAL},
        {SW_REQ_ALL, {WHOLE, UNPACK}, 1, -SW_ENOTSUP},
        {SW_REQ_ALL, {WHOLE, WHOLE | SW_READ_KEEP}, 1, -SW_EINVAL},
        {SW_REQ_ALL, {WHOLE | SW_READ_KEEP, WHOLE}, 1, -SW_EINVAL},
        {SW_REQ_ALL, {WHOLE, SW_READ_BEGIN}, 1, -SW_EINVAL},
    };
    const struct sw_region_id ids[] = {build(BUILD, NULL), build(BUILD + 1, NULL)};
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        new_packet(rows[i].packet);
        for (unsigned k = 0; k < 2 && rows[i].flags[k]; k++) {
            add(NUMBER + k, rows[i].flags[k], ids[k]);
            for (unsigned n = 0; n < rows[i].n_chunks; n++)
                (void)sw_test_add_room(&packet, MEM, (k + n) * RAW_BYTES, RAW_BYTES);
        }
        const int rc = call();
        ck_assert_msg((rc ? rc : code_of(0)) == rows[i].code, "row %zu: %d", i, rc ? rc : code_of(0));
        sw_packet_rig_check_rest(&rig, 2, 0);
    }
    for (unsigned k = 0; k < 2; k++)
        ck_assert_int_eq(sw_engine_drop(rig.session->owner, ids[k], NULL), 0);
}
END_TEST

/* A packed region comes back as a whole, to the place where it is. */
START_TEST(an_unpack_has_one_chunk) {
    enum { UNPACK = SW_READ_BEGIN | SW_READ_END | SW_READ_IN_PLACE };
    sw_test_packet(&packet, SW_MSG_BUILD, 0);
    sw_test_add_build(&packet, NULL)->flags |= SW_BUILD_IN_PLACE;
    (void)sw_test_add_buffer(&packet, RAW_BYTES, SW_VALUE_NONE);
    (void)sw_test_add_chunk(&packet, MEM, 0, RAW_BYTES);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 0);
    for (unsigned k = 0; k < 4; k++) {
        static const unsigned counts[] = {0, 2, 3, 1}; /* 3: two of one buffer */
        const unsigned n = counts[k];
        new_packet(0);
        add(NUMBER, UNPACK, id);
        for (unsigned i = 0; i < n && i < 2; i++)
            sw_test_add_room(&packet, MEM, i * RAW_BYTES, RAW_BYTES)->buffer = n == 3 ? 0 : (uint16_t)i;
        ck_assert_int_eq(call(), n == 1 ? 0 : -SW_EINVAL);
        ck_rest(n != 1, 0);
    }
    ck_bytes(0, RAW_BYTES);
}
END_TEST

/* More chunks than a region can have buffers. The memory with it is used up all the same. */
START_TEST(too_many_chunks_of_a_read) {
    const struct sw_region_id id = build(BUILD, NULL);
    sw_packet_rig_add_memory(&rig, MEM + 1, dup(rig.fd), MEMORY_BYTES, true);
    new_packet(0);
    add(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    for (unsigned i = 0; i <= SW_PROTO_MAX_BUFFERS; i++)
        (void)sw_test_add_room(&packet, MEM + 1, 8 * i, 8);
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "65 chunks, must be at most 64"));
    ck_rest(1, 0);
    new_packet(0);
    add(NUMBER, SW_READ_BEGIN | SW_READ_END, id);
    (void)sw_test_add_room(&packet, MEM + 1, 0, RAW_BYTES);
    ck_assert_int_eq(call(), -SW_ENOENT);
}
END_TEST

/* No operation may be begun any more: a cancel may, but not a read of chunks that ends like one. */
START_TEST(only_cancels_have_no_limit) {
    const struct sw_region_id id = build(BUILD, NULL);
    ck_assert_int_eq(begin(NUMBER, id), 0);
    rig.service.config.max_session_operations = 0;
    ck_assert_int_eq(ask(NUMBER, SW_READ_END | SW_READ_KEEP, 0, STEP), -SW_ELIMIT);
    ck_rest(1, 1);
    ck_assert_int_eq(end(NUMBER, SW_READ_KEEP), 0);
    ck_rest(1, 0);
}
END_TEST

/* The buffers of all packets together have a limit. */
START_TEST(buffers_of_reads_have_a_limit) {
    const struct sw_region_id id = build(BUILD, NULL);
    ck_assert_int_eq(begin(NUMBER, id), 0);
    rig.session->n_buffers = SW_SESSION_MAX_BUFFERS - 2;
    for (unsigned n = 3; n >= 2; n--) {
        new_packet(0);
        add(NUMBER, 0, none);
        for (unsigned i = 0; i < n; i++)
            (void)add_room(i * STEP, STEP);
        ck_assert_int_eq(call(), n > 2 ? -SW_ELIMIT : 0);
    }
    rig.session->n_buffers = 0;
    ck_assert_int_eq(end(NUMBER, SW_READ_KEEP), 0);
    ck_rest(1, 0);
}
END_TEST

START_TEST(a_failed_read_refuses_packets_until_its_end) {
    const struct sw_region_id id = build(BUILD, NULL);
    struct sw_region *region = &rig.service.service.engine->store.regions.regions[id.slot];
    ck_assert_int_eq(begin(NUMBER, id), 0);
    *(uint8_t *)region->frames->stored[2].extents[0].memory ^= 1;
    const int rc = ask(NUMBER, 0, 0, RAW_BYTES);
    ck_assert(rc == -SW_EFRAME || rc == -SW_ECHECKSUM);
    ck_assert_int_eq(ask(NUMBER, 0, 0, STEP), rc);
    ck_rest(1, 1);
    ck_assert_int_eq(end(NUMBER, _i ? SW_READ_KEEP : 0), rc);
    ck_rest(1, 0);
    ck_assert_int_eq(begin(NUMBER, id), -SW_ELOST);
}
END_TEST

/* ---- all or none ---- */

/* Two open reads and a whole one; the loop's index: one has chunks missing; one has no memory; all are well, kept or
 * not. */
START_TEST(all_ends_of_a_packet_are_restored_or_none) {
    const unsigned keep = _i == 3 ? SW_READ_KEEP : 0, short_one = _i == 0 ? 1 : _i == 4 ? 0 : 9;
    struct sw_region_id ids[3];
    for (unsigned i = 0; i < 3; i++)
        ids[i] = build(BUILD + i, NULL);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(begin(NUMBER + i, ids[i]), 0);
        ck_assert_int_eq(ask(NUMBER + i, 0, 0, (i == short_one ? 3 : 4) * STEP), 0);
        ck_assert_int_eq(ask(NUMBER + i, 0, 4 * STEP, 4 * STEP), 0);
    }
    wipe();
    new_packet(SW_REQ_ALL);
    for (unsigned i = 0; i < 2; i++)
        add(NUMBER + i, SW_READ_END | keep, none);
    add(NUMBER + 2, SW_READ_BEGIN | SW_READ_END | keep, ids[2]);
    add_room(0, RAW_BYTES)->mem = _i == 1 ? 77 : MEM;
    ck_assert_int_eq(call(), short_one < 2 ? -SW_EINVAL : _i == 1 ? -SW_ENOENT : 0);
    if (_i == 2 || _i == 3)
        ck_bytes(0, RAW_BYTES);
    else
        ck_assert_ptr_null(strstr((const char *)rig.reply.u.error.text, "SW_REQ"));
    if (short_one < 2) { /* that with missing chunks has not ended, unlike the others */
        ck_rest(3, 1);
        ck_assert_int_eq(end(NUMBER + short_one, SW_READ_KEEP), 0);
    }
    ck_rest(_i == 2 ? 0 : 3, 0);
}
END_TEST

START_TEST(all_or_none_applies_to_ends_only) {
    const struct sw_region_id ids[] = {build(BUILD, NULL), build(BUILD + 1, NULL)};
    new_packet(SW_REQ_ALL);
    for (unsigned i = 0; i < 2; i++)
        add(NUMBER + i, SW_READ_BEGIN, ids[i]);
    ck_assert_int_eq(call(), 0);
    new_packet(SW_REQ_ALL);
    add(NUMBER, SW_READ_END | SW_READ_KEEP, none);
    add(NUMBER + 1, 0, none);
    (void)add_room(0, STEP);
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "request 2 of 2: "));
    ck_rest(2, 2);
}
END_TEST

/* ---- cancel ---- */

/* The loop's index: chunks are being read, or the end was sent as well. The reply to its own packet has the result. */
START_TEST(an_end_cancels_a_read_that_is_ending) {
    sw_packet_rig_add_page(&rig);
    const struct sw_region_id id = build(BUILD, NULL);
    ck_assert_int_eq(begin(NUMBER, id), 0);
    new_packet(0);
    add(NUMBER, _i ? SW_READ_END : 0, none);
    add_room(0, RAW_BYTES)->order_value = 1;
    const uint32_t seq = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    sw_packet_rig_idle(&rig);
    if (_i) { /* one with chunks is no cancel */
        ck_assert_int_eq(ask(NUMBER, SW_READ_END | SW_READ_KEEP, 0, STEP), -SW_EINVAL);
        ck_assert(sw_packet_rig_says(&rig, "was ended already"));
    }
    rig.service.config.max_session_operations = 1; /* no limit holds it up */
    new_packet(0);
    add(NUMBER, SW_READ_END | SW_READ_KEEP, none);
    const uint32_t last = sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    if (_i == 0) { /* it waits for running chunks */
        sw_packet_rig_idle(&rig);
        atomic_store(&rig.words[0], 1);
    }
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_packet_rig_await(&rig), _i ? -SW_ECANCELED : 0);
        ck_assert(rig.reply.header.seq == seq || rig.reply.header.seq == last);
    }
    rig.service.config.max_session_operations = 100;
    ck_rest(1, 0);
    ck_assert_int_eq(begin(NUMBER, id), 0);
}
END_TEST

/* ---- a client that says nothing more ---- */

START_TEST(an_idle_read_expires) {
    struct sw_open *open;
    const struct sw_region_id id = build(BUILD, NULL);
    rig.service.service.open_ms = 30;
    ck_assert_int_eq(begin(NUMBER, id), 0);
    ck_assert_int_eq(ask(NUMBER, 0, 0, STEP), 0);
    ck_assert_int_eq(sw_opens_find(rig.session, NUMBER, true, &open, NULL), 0);
    while (sw_read_state(open->read) != SW_READ_FAILED)
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    ck_rest(1, 1);
    rig.service.service.open_ms = 0;
    ck_assert_int_eq(begin(NUMBER + 1, id), 0); /* the region is free for others */
    ck_assert_int_eq(ask(NUMBER, 0, 0, STEP), -SW_ETIMEDOUT);
    ck_assert_int_eq(end(NUMBER, _i ? SW_READ_KEEP : 0), -SW_ETIMEDOUT);
    ck_assert(sw_packet_rig_says(&rig, "the read was idle"));
    ck_rest(1, 1);
}
END_TEST

/* The loop's index: it is idle, works on a chunk, waits for its end. */
START_TEST(a_session_ends_during_a_read) {
    sw_packet_rig_add_page(&rig);
    const struct sw_region_id id = build(BUILD, NULL);
    ck_assert_int_eq(begin(NUMBER, id), 0);
    new_packet(0);
    add(NUMBER, _i == 2 ? SW_READ_END : 0, none);
    add_room(0, RAW_BYTES)->order_value = 1;
    if (_i)
        (void)sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
    sw_session_close(rig.session, "test");
}
END_TEST

/* A read by three packets, of which any allocation fails once: the region stays. */
START_TEST(an_allocation_that_fails_leaves_nothing_behind) {
    const struct sw_region_id id = build(BUILD, NULL);
    unsigned n_failed = 0;
    long live = 0;
    for (unsigned long nth = 0;; nth++) { /* not at first: the device keeps its first allocations */
        sw_alloc_fail_nth(nth);
        int rc = begin(NUMBER, id);
        rc = rc ? rc : ask(NUMBER, 0, 0, 3 * STEP);
        rc = rc ? rc : ask(NUMBER, SW_READ_END | SW_READ_KEEP, 3 * STEP, 5 * STEP);
        sw_alloc_fail_nth(0);
        ck_assert_msg(rc == 0 || rc == -SW_ENOMEM, "%s", sw_err_name(rc));
        (void)end(NUMBER, SW_READ_KEEP);
        ck_rest(1, 0);
        live = nth ? live : sw_alloc_live();
        ck_assert_int_eq(sw_alloc_live(), live);
        n_failed += rc != 0;
        if (nth && !rc)
            break;
    }
    ck_assert_uint_gt(n_failed, 8);
    ck_assert_int_eq(begin(NUMBER, id), 0);
    ck_assert_int_eq(ask(NUMBER, SW_READ_END, 0, RAW_BYTES), 0);
    ck_bytes(0, RAW_BYTES);
    ck_rest(0, 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("reads");
    TCase *tcase = tcase_create("reads");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_region_is_read_by_packets, 0, 16);
    tcase_add_test(tcase, a_begin_reports_the_buffers);
    tcase_add_test(tcase, a_reply_has_room_for_256_buffers);
    tcase_add_test(tcase, chunks_are_read_in_any_order);
    tcase_add_test(tcase, packets_need_not_wait_for_replies);
    tcase_add_test(tcase, a_read_of_one_packet_and_several_chunks);
    tcase_add_test(tcase, invalid_reads_are_refused);
    tcase_add_test(tcase, invalid_packets_of_a_read_are_refused);
    tcase_add_test(tcase, reads_that_contradict_themselves_are_refused);
    tcase_add_test(tcase, an_unpack_has_one_chunk);
    tcase_add_test(tcase, too_many_chunks_of_a_read);
    tcase_add_test(tcase, only_cancels_have_no_limit);
    tcase_add_test(tcase, buffers_of_reads_have_a_limit);
    tcase_add_test(tcase, buffers_without_a_chunk);
    tcase_add_loop_test(tcase, a_failed_read_refuses_packets_until_its_end, 0, 2);
    tcase_add_loop_test(tcase, all_ends_of_a_packet_are_restored_or_none, 0, 5);
    tcase_add_test(tcase, all_or_none_applies_to_ends_only);
    tcase_add_loop_test(tcase, an_end_cancels_a_read_that_is_ending, 0, 2);
    tcase_add_loop_test(tcase, an_idle_read_expires, 0, 2);
    tcase_add_loop_test(tcase, a_session_ends_during_a_read, 0, 3);
    tcase_add_test(tcase, an_allocation_that_fails_leaves_nothing_behind);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
