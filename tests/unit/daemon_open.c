/* Builds of several packets: begin, append, commit and abort in every division into packets; failures, cancels, and
 * clients that go silent or hang up. */
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
    N_STEPS = 16,
    TAIL = 1000, /* of the last chunk */
    MEMORY_BYTES = N_STEPS * STEP,
    MEM = SW_PACKET_RIG_MEM,
    ONCE = 50,
    NUMBER = 7000 /* of the first build */
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

static void new_packet(uint32_t flags) {
    sw_test_packet(&packet, SW_MSG_BUILD, flags);
}

static struct sw_wire_build *add(uint32_t number, unsigned flags) {
    struct sw_wire_build *build = sw_test_add_build(&packet, NULL);
    build->build = number;
    build->flags = (uint16_t)flags;
    return build;
}

static void add_buffer(uint64_t raw_bytes, uint32_t chunk_bytes) {
    sw_test_add_buffer(&packet, raw_bytes, 0)->chunk_bytes = chunk_bytes;
}

/* The bytes of a buffer are those of the memory at the same place; one buffer lies behind the other. */
static struct sw_wire_chunk *add_chunk(unsigned buffer, uint64_t at, uint64_t raw_bytes) {
    struct sw_wire_chunk *chunk = &packet.chunks[packet.msg.u.build.n_chunks++];
    packet.builds[packet.msg.u.build.n_builds - 1].n_chunks++;
    *chunk =
        (struct sw_wire_chunk){.at = at, .raw_bytes = raw_bytes, .offset = at, .mem = MEM, .buffer = (uint16_t)buffer};
    return chunk;
}

static int call(void) {
    return sw_packet_rig_call(&rig, &packet);
}

static uint32_t send_packet(void) {
    return sw_packet_rig_send(&rig, &packet.msg, NULL, 0);
}

static int code_of(unsigned i) {
    return sw_test_result_code(&rig.reply, i);
}

/* Begins a build of one buffer, which has chunks of a step each. */
static void begin(uint32_t number, uint64_t raw_bytes) {
    new_packet(0);
    (void)add(number, SW_BUILD_BEGIN);
    add_buffer(raw_bytes, STEP);
    ck_assert_int_eq(call(), 0);
}

static void make_append(uint32_t number, unsigned flags, uint64_t at, uint64_t raw_bytes) {
    new_packet(0);
    (void)add(number, flags);
    (void)add_chunk(0, at, raw_bytes);
}

static int append(uint32_t number, unsigned flags, uint64_t at, uint64_t raw_bytes) {
    make_append(number, flags, at, raw_bytes);
    return call();
}

static int say(uint32_t number, unsigned flags) {
    new_packet(0);
    (void)add(number, flags);
    return call();
}

static struct sw_region_id last_id(void) {
    return sw_test_result_id(&rig.reply, 0);
}

/* Restores a region of one buffer. */
static void ck_restored(struct sw_region_id id, uint64_t raw_bytes) {
    memset(rig.memory, 0, MEMORY_BYTES);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, id, 0);
    (void)sw_test_add_room(&packet, MEM, 0, raw_bytes);
    ck_assert_int_eq(call(), 0);
    ck_assert_mem_eq(rig.memory, rig.original, raw_bytes);
    memcpy(rig.memory, rig.original, MEMORY_BYTES);
}

/* ---- builds in every division ---- */

/* The loop's index: the first chunks go with the begin, the last ones with the commit, or neither. */
START_TEST(a_region_is_built_by_packets) {
    const bool with_begin = _i & 1, with_commit = _i & 2;
    const unsigned n_each = _i & 4 ? 3 : 1; /* chunks in a packet */
    const uint64_t raw_bytes = (N_STEPS - 1) * STEP + TAIL;
    bool has_begun = false;
    if (!with_begin) {
        begin(NUMBER, raw_bytes);
        ck_assert_uint_eq(last_id().gen, 0);
        has_begun = true;
    }
    for (uint64_t at = 0; at < raw_bytes;) {
        new_packet(0);
        struct sw_wire_build *build = add(NUMBER, has_begun ? 0 : SW_BUILD_BEGIN);
        if (!has_begun)
            add_buffer(raw_bytes, STEP);
        uint64_t moved = 0;
        for (unsigned i = 0; i < n_each && at < raw_bytes; i++) {
            const uint64_t bytes = raw_bytes - at < STEP ? raw_bytes - at : STEP;
            (void)add_chunk(0, at, bytes);
            moved += bytes;
            at += bytes;
        }
        build->flags |= with_commit && at == raw_bytes ? SW_BUILD_COMMIT : 0;
        ck_assert_int_eq(call(), 0);
        has_begun = true;
        ck_assert_uint_eq(rig.reply.u.results.n_results, 1);
        const struct sw_wire_result *result = &rig.reply.u.results.results[0];
        ck_assert_uint_eq(result->number, NUMBER);
        ck_assert_uint_eq(result->raw_bytes, build->flags & SW_BUILD_COMMIT ? raw_bytes : moved);
        ck_assert(result->stored_bytes > 0 && (result->gen != 0) == ((build->flags & SW_BUILD_COMMIT) != 0));
        ck_assert_uint_eq(rig.session->opens.n_open, !(build->flags & SW_BUILD_COMMIT));
    }
    if (!with_commit)
        ck_assert_int_eq(say(NUMBER, SW_BUILD_COMMIT), 0);
    ck_assert_uint_eq(rig.reply.u.results.results[0].raw_bytes, raw_bytes);
    sw_packet_rig_check_rest(&rig, 1, 0);
    ck_restored(last_id(), raw_bytes);
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

/* Nothing is waited for: the client's numbers are enough. */
START_TEST(packets_need_not_wait_for_replies) {
    uint32_t first, last;
    make_append(NUMBER, SW_BUILD_BEGIN, 0, STEP);
    add_buffer(N_STEPS * STEP, STEP);
    first = send_packet();
    for (unsigned i = 1; i < N_STEPS; i++) {
        make_append(NUMBER, i == N_STEPS - 1 ? SW_BUILD_COMMIT : 0, i * STEP, STEP);
        last = send_packet();
    }
    unsigned n_ids = 0;
    for (uint32_t n = first; n <= last; n++) {
        ck_assert_int_eq(sw_packet_rig_await(&rig), 0);
        n_ids += last_id().gen != 0;
        ck_assert(last_id().gen == 0 || rig.reply.header.seq == last);
    }
    ck_assert_uint_eq(n_ids, 1);
    sw_packet_rig_check_rest(&rig, 1, 0);
}
END_TEST

/* Buffers of several lengths and types, one without bytes; chunks in any order of the buffers, from memory that stays
 * and memory for one packet. */
START_TEST(several_buffers_of_several_memories) {
    sw_packet_rig_add_memory(&rig, ONCE, rig.fd, MEMORY_BYTES, true);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_BEGIN);
    add_buffer(3 * STEP, STEP);
    packet.buffers[0].value_type = SW_VALUE_F64;
    add_buffer(0, 0);
    add_buffer(2 * STEP + TAIL, 2 * STEP);
    (void)add_chunk(2, 0, 2 * STEP);
    add_chunk(0, 0, STEP)->mem = ONCE;
    add_chunk(0, STEP, STEP)->mem = ONCE;
    ck_assert_int_eq(call(), 0);
    ck_assert_uint_eq(sw_packet_rig_stats(&rig).n_mems, 1);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_COMMIT);
    (void)add_chunk(2, 2 * STEP, TAIL);
    (void)add_chunk(0, 2 * STEP, STEP);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = last_id();
    sw_packet_rig_check_rest(&rig, 1, 0);
    memset(rig.memory, 0, MEMORY_BYTES);
    sw_test_packet(&packet, SW_MSG_READ, 0);
    (void)sw_test_add_read(&packet, id, 0);
    (void)sw_test_add_room(&packet, MEM, 0, 3 * STEP);
    (void)sw_test_add_room(&packet, MEM, MEMORY_BYTES, 0);
    (void)sw_test_add_room(&packet, MEM, 4 * STEP, 2 * STEP + TAIL);
    ck_assert_int_eq(call(), 0);
    ck_assert_mem_eq(rig.memory, rig.original, 3 * STEP);
    ck_assert_mem_eq(rig.memory + 4 * STEP, rig.original, 2 * STEP + TAIL);
}
END_TEST

/* Several builds of one packet, each at another point of its life; each has its own result, in order. */
START_TEST(builds_side_by_side_in_a_packet) {
    begin(NUMBER, STEP);
    begin(NUMBER + 1, STEP);
    begin(NUMBER + 2, STEP);
    new_packet(0);
    (void)add(NUMBER, 0);
    (void)add_chunk(0, 0, STEP);
    (void)add(NUMBER + 1, SW_BUILD_COMMIT);
    (void)add_chunk(0, 0, STEP);
    (void)add(NUMBER + 2, SW_BUILD_ABORT);
    (void)add(NUMBER + 3, SW_BUILD_BEGIN | SW_BUILD_COMMIT);
    add_buffer(STEP, 0);
    (void)add_chunk(0, 0, STEP);
    (void)add(NUMBER + 4, SW_BUILD_BEGIN);
    add_buffer(STEP, STEP);
    (void)add(NUMBER + 9, 0); /* there is none */
    (void)add_chunk(0, 0, STEP);
    ck_assert_int_eq(call(), 0);
    static const int codes[] = {0, 0, -SW_ECANCELED, 0, 0, -SW_ENOENT};
    ck_assert_uint_eq(rig.reply.u.results.n_results, 6);
    for (unsigned i = 0; i < 6; i++) {
        ck_assert_int_eq(code_of(i), codes[i]);
        ck_assert_uint_eq(rig.reply.u.results.results[i].number, NUMBER + (i < 5 ? i : 9));
        ck_assert_int_eq(sw_test_result_id(&rig.reply, i).gen != 0, i == 1 || i == 3);
    }
    sw_packet_rig_check_rest(&rig, 4, 2);
}
END_TEST

/* The client wishes, the service takes a divisor of 32 KiB and more that its devices take. */
START_TEST(chunks_are_no_longer_than_devices_take) {
    static const struct {
        uint32_t wish, chunk_bytes;
    } rows[] = {{STEP, STEP},
                {12 * STEP, 12 * STEP},
                {(1u << 20) + STEP, 11 * STEP}, /* 33 = 3 x 11 */
                {37 * STEP, STEP},              /* a prime */
                {4u << 20, 32 * STEP}};
    const struct sw_device *device = rig.service.service.devices[0];
    ck_assert_uint_eq(device->ops->info(device)->chunk_bytes, 32 * STEP);
    for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        new_packet(0);
        (void)add(NUMBER + i, SW_BUILD_BEGIN);
        add_buffer(100 * STEP, rows[i].wish);
        ck_assert_int_eq(call(), 0);
    }
    for (struct sw_list *node = rig.session->opens.open.next; node != &rig.session->opens.open; node = node->next) {
        const struct sw_open *open = SW_CONTAINER_OF(node, struct sw_open, list);
        ck_assert_uint_eq(open->build->buffers[0].chunk_bytes, rows[open->node.id - NUMBER].chunk_bytes);
    }
    new_packet(0);
    (void)add(NUMBER + 9, SW_BUILD_BEGIN);
    add_buffer(STEP, STEP + 512);
    ck_assert_int_eq(call(), -SW_EINVAL);
}
END_TEST

START_TEST(an_append_waits_for_its_word) {
    sw_packet_rig_add_page(&rig);
    begin(NUMBER, 2 * STEP);
    make_append(NUMBER, 0, 0, STEP);
    packet.chunks[0].order_word = 3;
    packet.chunks[0].order_value = 1;
    const uint32_t seq = send_packet();
    make_append(NUMBER, SW_BUILD_COMMIT, STEP, STEP);
    const uint32_t last = send_packet(); /* while the one before is under way */
    memset(rig.memory, 0, STEP);
    sw_packet_rig_idle(&rig);
    memcpy(rig.memory, rig.original, STEP);
    atomic_store(&rig.words[3], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), 0);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, last), 0);
    ck_restored(last_id(), 2 * STEP);
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

START_TEST(a_durable_region_by_packets) {
    new_packet(0);
    struct sw_wire_build *build = sw_test_add_build(&packet, "slowly");
    build->build = NUMBER;
    build->flags = SW_BUILD_BEGIN;
    build->keep_priority = 9;
    add_buffer(2 * STEP, STEP);
    ck_assert_int_eq(call(), 0);
    build->build = NUMBER + 1;
    ck_assert_int_eq(call(), -SW_EEXIST); /* the name is taken with the begin */
    ck_assert_int_eq(append(NUMBER, SW_BUILD_COMMIT, 0, 2 * STEP), 0);
    const struct sw_region_id id = last_id();
    ck_assert_str_eq(rig.service.service.engine->store.regions.regions[id.slot].name, "slowly");
    ck_assert_uint_eq(rig.service.service.engine->store.regions.regions[id.slot].priority, 9);
    ck_restored(id, 2 * STEP);
    sw_packet_rig_check_rest(&rig, 1, 0);
    sw_test_packet(&packet, SW_MSG_DISCARD, 0);
    sw_test_add_id(&packet, id);
    ck_assert_int_eq(call(), 0);
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

START_TEST(a_region_without_bytes_by_packets) {
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_BEGIN);
    add_buffer(0, 0);
    add_buffer(0, STEP);
    ck_assert_int_eq(call(), 0);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_COMMIT), 0);
    ck_assert_uint_ne(last_id().gen, 0);
    sw_packet_rig_check_rest(&rig, 1, 0);
}
END_TEST

/* ---- what goes wrong ---- */

/* An invalid append fails the build: later packets get its error, and its commit or abort ends it. */
START_TEST(a_failed_build_refuses_packets_until_its_end) {
    static const struct {
        uint64_t at, raw_bytes, offset;
        uint32_t mem, frame_bytes, order_value;
        int code;
    } rows[] = {{STEP, STEP, 0, MEM, 0, 0, -SW_EINVAL},
                {0, STEP - 1, 0, MEM, 0, 0, -SW_EINVAL},
                {0, 5 * STEP, 0, MEM, 0, 0, -SW_EINVAL},
                {0, STEP, MEMORY_BYTES, MEM, 0, 0, -SW_ERANGE},
                {0, STEP, 0, 77, 0, 0, -SW_ENOENT},
                {0, STEP, 0, MEM, 1, 0, -SW_EFRAME},
                {0, STEP, 0, MEM, 0, 1, -SW_EINVAL /* no page */}};
    for (unsigned i = 0; i < 2 * sizeof rows / sizeof rows[0]; i++) {
        const int code = rows[i / 2].code;
        begin(NUMBER, 4 * STEP);
        make_append(NUMBER, 0, rows[i / 2].at, rows[i / 2].raw_bytes);
        packet.chunks[0].offset = rows[i / 2].offset;
        packet.chunks[0].mem = rows[i / 2].mem;
        packet.chunks[0].frame_bytes = rows[i / 2].frame_bytes;
        packet.chunks[0].order_value = rows[i / 2].order_value;
        ck_assert_int_eq(call(), code);
        ck_assert_int_eq(append(NUMBER, 0, 0, STEP), code);
        ck_assert_int_eq(append(NUMBER, i % 2 ? SW_BUILD_COMMIT : 0, STEP, STEP), code);
        if (i % 2 == 0)
            ck_assert_int_eq(say(NUMBER, SW_BUILD_ABORT), code);
        sw_packet_rig_check_rest(&rig, 0, 0);
        ck_assert_int_eq(append(NUMBER, 0, 0, STEP), -SW_ENOENT);
    }
}
END_TEST

/* An append fails later, when the tenant's bytes are used up; appends that already run fail as well. */
START_TEST(an_append_that_fails_late) {
    rig.session->tenant->quota.max_bytes = 2 * STEP;
    begin(NUMBER, N_STEPS * STEP);
    uint32_t seqs[3];
    for (unsigned i = 0; i < 3; i++) {
        make_append(NUMBER, i == 2 ? SW_BUILD_COMMIT : 0, i * 4 * STEP, (i == 2 ? 8 : 4) * STEP);
        seqs[i] = send_packet();
    }
    for (unsigned i = 0; i < 3; i++) {
        ck_assert_int_eq(sw_packet_rig_await(&rig), -SW_ETENANTBYTES);
        ck_assert(rig.reply.header.seq >= seqs[0] && rig.reply.header.seq <= seqs[2]);
    }
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    ck_assert_mem_eq(rig.memory, rig.original, MEMORY_BYTES);
}
END_TEST

START_TEST(a_commit_ends_its_build_also_when_bytes_are_missing) {
    begin(NUMBER, 2 * STEP);
    ck_assert_int_eq(append(NUMBER, 0, 0, STEP), 0);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_COMMIT), -SW_EINVAL);
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_COMMIT), -SW_ENOENT);
    ck_assert_int_eq(append(NUMBER, SW_BUILD_COMMIT, STEP, STEP), -SW_ENOENT);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_ABORT), -SW_ENOENT);
}
END_TEST

START_TEST(invalid_packets_of_a_build_are_refused) {
    static const unsigned flags[] = {0, SW_BUILD_IN_PLACE, SW_BUILD_COMMIT | SW_BUILD_IN_PLACE,
                                     SW_BUILD_ABORT | SW_BUILD_COMMIT};
    begin(NUMBER, STEP);
    for (unsigned i = 0; i < sizeof flags / sizeof flags[0]; i++)
        ck_assert_int_eq(say(NUMBER, flags[i]), -SW_EINVAL);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    (void)add_chunk(0, 0, STEP);
    ck_assert_int_eq(call(), -SW_EINVAL);
    new_packet(0);
    add(NUMBER, SW_BUILD_COMMIT)->keep_priority = 1;
    ck_assert_int_eq(call(), -SW_EINVAL);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_BEGIN); /* in use */
    add_buffer(STEP, STEP);
    ck_assert_int_eq(call(), -SW_EEXIST);
    new_packet(0);
    (void)add(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT | SW_BUILD_IN_PLACE);
    add_buffer(STEP, STEP); /* the service says how long the chunks of a pack are */
    (void)add_chunk(0, 0, STEP);
    ck_assert_int_eq(call(), -SW_EINVAL);
    sw_packet_rig_check_rest(&rig, 1, 1);
    ck_assert_int_eq(append(NUMBER, SW_BUILD_COMMIT, 0, STEP), 0); /* none of that has harmed it */
    sw_packet_rig_check_rest(&rig, 1, 0);
}
END_TEST

/* A begin that is refused leaves no number behind. */
START_TEST(a_refused_begin_opens_nothing) {
    const unsigned most = rig.service.service.engine->config.max_owner_regions;
    rig.service.service.engine->config.max_owner_regions = 0;
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_BEGIN);
    add_buffer(STEP, STEP);
    ck_assert_int_eq(call(), -SW_ELIMIT);
    sw_packet_rig_check_rest(&rig, 0, 0);
    rig.service.service.engine->config.max_owner_regions = most;
    rig.service.service.draining = true;
    ck_assert_int_eq(call(), -SW_EDRAINING);
    rig.service.service.draining = false;
    ck_assert_int_eq(call(), 0);
    rig.service.service.draining = true; /* builds that have begun continue */
    ck_assert_int_eq(append(NUMBER, SW_BUILD_COMMIT, 0, STEP), 0);
    sw_packet_rig_check_rest(&rig, 1, 0);
}
END_TEST

/* Open builds have a limit of their own, and count for the tenant's memory. */
START_TEST(open_builds_are_counted) {
    const struct sw_budget *kept = &rig.session->tenant->quota.kept;
    const uint64_t before = kept->used_bytes;
    for (unsigned n = 0; n < SW_SESSION_MAX_OPEN; n++) {
        if (n % SW_PROTO_MAX_ITEMS == 0)
            new_packet(0);
        (void)add(NUMBER + n, SW_BUILD_BEGIN);
        add_buffer(STEP, STEP);
        if (n % SW_PROTO_MAX_ITEMS == SW_PROTO_MAX_ITEMS - 1)
            ck_assert_int_eq(call(), 0);
    }
    ck_assert_uint_eq(rig.session->opens.n_open, SW_SESSION_MAX_OPEN);
    ck_assert_uint_gt(kept->used_bytes, before + SW_SESSION_MAX_OPEN * sizeof(struct sw_open));
    new_packet(0);
    (void)add(1, SW_BUILD_BEGIN);
    add_buffer(STEP, STEP);
    ck_assert_int_eq(call(), -SW_ELIMIT);
    for (unsigned n = 0; n < SW_SESSION_MAX_OPEN; n += SW_PROTO_MAX_ITEMS) {
        new_packet(0);
        for (unsigned i = 0; i < SW_PROTO_MAX_ITEMS; i++)
            (void)add(NUMBER + n + i, SW_BUILD_ABORT);
        ck_assert_int_eq(call(), -SW_ECANCELED);
    }
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_uint_eq(kept->used_bytes, before);
}
END_TEST

/* ---- all or none ---- */

/* Two open builds and a whole one; the loop's index says which of them cannot be stored, 3: none. */
START_TEST(all_commits_of_a_packet_are_stored_or_none) {
    for (unsigned i = 0; i < 2; i++) {
        begin(NUMBER + i, 2 * STEP);
        ck_assert_int_eq(append(NUMBER + i, 0, 0, STEP), 0);
    }
    new_packet(SW_REQ_ALL);
    for (unsigned i = 0; i < 3; i++) {
        (void)add(NUMBER + i, i < 2 ? SW_BUILD_COMMIT : SW_BUILD_BEGIN | SW_BUILD_COMMIT);
        if (i == 2)
            add_buffer(STEP, 0);
        add_chunk(0, i < 2 ? STEP : 0, STEP)->mem = (int)i == _i ? 77 : MEM;
    }
    ck_assert_int_eq(call(), _i < 3 ? -SW_ENOENT : 0);
    for (unsigned i = 0; i < 3 && _i == 3; i++)
        ck_assert(code_of(i) == 0 && sw_test_result_id(&rig.reply, i).gen);
    ck_assert(_i == 3 || strstr((const char *)rig.reply.u.error.text, "SW_REQ") == NULL);
    sw_packet_rig_check_rest(&rig, _i == 3 ? 3 : 0, 0);
}
END_TEST

/* One fails late: a build that was already stored is dropped as well. */
START_TEST(all_or_none_when_one_fails_late) {
    begin(NUMBER, STEP);
    ck_assert_int_eq(append(NUMBER, 0, 0, STEP), 0);
    rig.session->tenant->quota.max_bytes = 2 * STEP;
    new_packet(SW_REQ_ALL);
    (void)add(NUMBER, SW_BUILD_COMMIT);
    (void)add(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT);
    add_buffer(8 * STEP, 0);
    (void)add_chunk(0, 0, 8 * STEP);
    ck_assert_int_eq(call(), -SW_ETENANTBYTES);
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
}
END_TEST

static void add_durable(unsigned n, uint64_t raw_bytes) {
    char name[16];
    for (unsigned i = 0; i < n; i++) {
        (void)snprintf(name, sizeof name, "all %u", i);
        sw_test_add_build(&packet, name)->build = NUMBER + i;
        add_buffer(raw_bytes, 0);
        (void)add_chunk(0, 0, raw_bytes);
    }
}

/* The loop's index: all succeed; the last one, or one in the middle, is refused; one fails when it is stored. Names of
 * regions that were not stored are free. */
START_TEST(durable_regions_are_stored_all_or_none) {
    enum { N = 5 };
    static const int codes[] = {0, -SW_ENOENT, -SW_EEXIST, -SW_ETENANTBYTES};
    new_packet(SW_REQ_ALL);
    add_durable(N, 2 * STEP);
    if (_i == 1)
        packet.chunks[N - 1].mem = 77;
    if (_i == 2)
        packet.names[2 * strlen("all 0") + 4] = '0'; /* of the third one: that of the first */
    rig.session->tenant->quota.max_bytes = _i == 3 ? 7 * STEP : 0;
    ck_assert_int_eq(call(), codes[_i]);
    static const char *const texts[] = {"", "request 5 of 5: ", "request 3 of 5: ", " of 5: "};
    ck_assert(_i == 0 || sw_packet_rig_says(&rig, texts[_i]));
    sw_packet_rig_check_rest(&rig, _i ? 0 : N, 0);
    if (_i == 0)
        return;
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    rig.session->tenant->quota.max_bytes = 0;
    new_packet(SW_REQ_ALL);
    add_durable(N, 2 * STEP);
    ck_assert_int_eq(call(), 0);
    for (unsigned i = 0; i < N; i++)
        ck_assert(code_of(i) == 0 && sw_test_result_id(&rig.reply, i).gen);
    sw_packet_rig_check_rest(&rig, N, 0);
}
END_TEST

/* The error of a commit without all bytes names the incomplete build; the others end as well. */
START_TEST(all_or_none_when_bytes_are_missing) {
    for (unsigned i = 0; i < 3; i++) {
        begin(NUMBER + i, 2 * STEP);
        ck_assert_int_eq(append(NUMBER + i, 0, 0, i == 1 ? STEP : 2 * STEP), 0);
    }
    new_packet(SW_REQ_ALL);
    for (unsigned i = 0; i < 3; i++)
        (void)add(NUMBER + i, SW_BUILD_COMMIT);
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "request 2 of 3: "));
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

static int settle(uint32_t seq, uint32_t flags, unsigned n) {
    sw_test_packet(&packet, SW_MSG_SETTLE, flags);
    packet.msg.u.settle.type = SW_MSG_BUILD;
    packet.msg.u.settle.seq = seq;
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, (struct sw_region_id){0});
    return call();
}

/* By the seq of the packet with the commit, as if the session had come back; other packets have stored nothing. */
START_TEST(the_packet_that_commits_is_settled) {
    struct sw_region_id ids[2];
    for (unsigned i = 0; i < 2; i++) {
        begin(NUMBER + i, STEP);
        ck_assert_int_eq(append(NUMBER + i, 0, 0, STEP), 0);
    }
    const uint32_t append_seq = rig.last_seq;
    new_packet(_i ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < 2; i++)
        (void)add(NUMBER + i, SW_BUILD_COMMIT);
    ck_assert_int_eq(call(), 0);
    const uint32_t seq = rig.last_seq;
    for (unsigned i = 0; i < 2; i++)
        ids[i] = sw_test_result_id(&rig.reply, i);
    rig.session->may_settle = true;
    ck_assert_int_eq(settle(append_seq, 0, 1), -SW_ERESTARTED);
    ck_assert_int_eq(settle(seq, _i ? SW_REQ_ALL : 0, 2), 0);
    for (unsigned i = 0; i < 2; i++) {
        const struct sw_region_id id = sw_test_result_id(&rig.reply, i);
        ck_assert(code_of(i) == 0 && id.slot == ids[i].slot && id.gen == ids[i].gen);
    }
    sw_packet_rig_check_rest(&rig, 2, 0);
}
END_TEST

START_TEST(all_or_none_applies_to_commits_only) {
    new_packet(SW_REQ_ALL); /* vacuous: each by itself */
    for (unsigned i = 0; i < 3; i++) {
        (void)add(NUMBER + (i ? i : 9), i ? SW_BUILD_BEGIN : 0);
        if (i)
            add_buffer(STEP, STEP);
        (void)add_chunk(0, 0, STEP);
    }
    ck_assert_int_eq(call(), 0);
    ck_assert(code_of(0) == -SW_ENOENT && code_of(1) == 0 && code_of(2) == 0);
    new_packet(SW_REQ_ALL);
    (void)add(NUMBER + 1, SW_BUILD_COMMIT);
    (void)add(NUMBER + 2, SW_BUILD_ABORT);
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert(sw_packet_rig_says(&rig, "request 2 of 2: "));
    sw_packet_rig_check_rest(&rig, 2, 2);
    packet.builds[1].flags = SW_BUILD_COMMIT;
    ck_assert_int_eq(call(), 0);
    sw_packet_rig_check_rest(&rig, 2, 0);
}
END_TEST

/* ---- cancel ---- */

static uint32_t wait_for_word(uint32_t number, unsigned flags, uint64_t raw_bytes) {
    new_packet(0);
    (void)add(number, flags);
    if (flags & SW_BUILD_BEGIN)
        add_buffer(raw_bytes, 0);
    add_chunk(0, 0, raw_bytes)->order_value = 1;
    return send_packet();
}

/* 0: an open build, 1: a committed one, 2: a whole one. The reply to its own packet has the result. */
START_TEST(an_abort_cancels_running_appends) {
    sw_packet_rig_add_page(&rig);
    if (_i < 2)
        begin(NUMBER, STEP);
    const unsigned flags[] = {0, SW_BUILD_COMMIT, SW_BUILD_BEGIN | SW_BUILD_COMMIT};
    const uint32_t seq = wait_for_word(NUMBER, flags[_i], STEP);
    sw_packet_rig_idle(&rig);
    rig.service.config.max_session_operations = 1; /* no limit holds it up */
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    const uint32_t abort_seq = send_packet();
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_packet_rig_await(&rig), -SW_ECANCELED);
        ck_assert(rig.reply.header.seq == seq || rig.reply.header.seq == abort_seq);
    }
    sw_packet_rig_check_rest(&rig, 0, 0);
    ck_assert_int_eq(say(NUMBER, SW_BUILD_ABORT), -SW_ENOENT);
    rig.service.config.max_session_operations = 100;
    ck_assert_mem_eq(rig.memory, rig.original, MEMORY_BYTES);
}
END_TEST

/* As the library cancels: all numbers of a packet, which hold together. */
START_TEST(an_abort_of_all_or_none) {
    sw_packet_rig_add_page(&rig);
    begin(NUMBER, STEP);
    new_packet(SW_REQ_ALL);
    (void)add(NUMBER, SW_BUILD_COMMIT);
    (void)add_chunk(0, 0, STEP);
    (void)add(NUMBER + 1, SW_BUILD_BEGIN | SW_BUILD_COMMIT);
    add_buffer(STEP, 0);
    add_chunk(0, 0, STEP)->order_value = 1;
    const uint32_t seq = send_packet();
    sw_packet_rig_idle(&rig);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    (void)add(NUMBER + 1, SW_BUILD_ABORT);
    (void)send_packet();
    bool came = false;
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_ne(sw_packet_rig_await(&rig), 0);
        came |= rig.reply.header.seq == seq;
        ck_assert(rig.reply.header.seq != seq || strcmp((const char *)rig.reply.u.error.name, "ECANCELED") == 0);
    }
    ck_assert(came);
    sw_packet_rig_check_rest(&rig, 0, 0);
}
END_TEST

START_TEST(a_read_is_canceled_by_its_end) {
    sw_packet_rig_add_page(&rig);
    make_append(NUMBER, SW_BUILD_BEGIN | SW_BUILD_COMMIT, 0, STEP);
    add_buffer(STEP, 0);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = last_id();
    sw_test_packet(&packet, SW_MSG_READ, 0);
    sw_test_add_read(&packet, id, 0)->read = NUMBER + 1;
    sw_test_add_room(&packet, MEM, 0, STEP)->order_value = 1;
    const uint32_t seq = send_packet();
    sw_packet_rig_idle(&rig);
    ck_assert_int_eq(say(NUMBER + 1, SW_BUILD_ABORT), -SW_ENOENT); /* it is no build */
    rig.service.config.max_session_operations = 1;
    sw_test_packet(&packet, SW_MSG_READ, 0);
    struct sw_wire_read *end = sw_test_add_read(&packet, (struct sw_region_id){0}, 0);
    end->read = NUMBER + 1;
    end->flags = SW_READ_END | SW_READ_KEEP;
    ck_assert_int_eq(call(), -SW_ECANCELED);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), -SW_ECANCELED);
    ck_assert_int_eq(call(), -SW_ENOENT);
    rig.service.config.max_session_operations = 100;
    sw_packet_rig_check_rest(&rig, 1, 0);
    ck_restored(id, STEP);
}
END_TEST

/* ---- a client that says nothing more ---- */

static void await_expiry(uint32_t number) {
    for (struct sw_open *open;;) {
        ck_assert_int_eq(sw_opens_find(rig.session, number, false, &open, NULL), 0);
        if (sw_build_state(open->build) == SW_BUILD_FAILED)
            return;
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    }
}

/* Its stored frames are freed; a small record stays until its client ends it. A build with running appends does not
 * expire. */
START_TEST(a_build_without_appends_expires) {
    sw_packet_rig_add_page(&rig);
    rig.service.service.open_ms = 30;
    begin(NUMBER, 4 * STEP);
    ck_assert_int_eq(append(NUMBER, 0, 0, STEP), 0);
    begin(NUMBER + 1, STEP);
    const uint32_t seq = wait_for_word(NUMBER + 1, 0, STEP);
    const uint64_t used = rig.session->tenant->quota.bytes;
    ck_assert_uint_gt(used, 0);
    await_expiry(NUMBER);
    ck_assert_uint_eq(rig.session->tenant->quota.bytes, 0);
    ck_assert_uint_eq(rig.session->opens.n_open, 2);
    ck_assert_int_eq(append(NUMBER, 0, STEP, STEP), -SW_ETIMEDOUT);
    ck_assert_int_eq(say(NUMBER, _i ? SW_BUILD_COMMIT : SW_BUILD_ABORT), -SW_ETIMEDOUT);
    ck_assert(sw_packet_rig_says(&rig, "the build was idle"));
    (void)usleep(2 * 30000);
    sw_packet_rig_idle(&rig);
    atomic_store(&rig.words[0], 1);
    ck_assert_int_eq(sw_packet_rig_await_seq(&rig, seq), 0);
    ck_assert_int_eq(say(NUMBER + 1, SW_BUILD_COMMIT), 0);
    sw_packet_rig_check_rest(&rig, 1, 0);
}
END_TEST

/* The loop's index: it is idle, works on a chunk, waits for its commit, or for its abort. */
START_TEST(a_session_ends_during_a_build) {
    sw_packet_rig_add_page(&rig);
    begin(NUMBER, STEP);
    begin(NUMBER + 1, STEP);
    ck_assert_int_eq(append(NUMBER + 1, 0, 0, STEP), 0);
    if (_i)
        (void)wait_for_word(NUMBER, _i == 2 ? SW_BUILD_COMMIT : 0, STEP);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_ABORT);
    if (_i == 3)
        (void)send_packet();
    sw_session_close(rig.session, "test");
}
END_TEST

/* Two builds in three packets, all or none; each allocation fails once. Either both regions are there or none. A packet
 * that is refused as a whole leaves the builds unchanged, so the next packets find a gap. */
START_TEST(an_allocation_that_fails_leaves_nothing_behind) {
    unsigned n_failed = 0;
    long live = 0;
    for (unsigned long nth = 0;; nth++) { /* not at first: the device keeps its first allocations */
        sw_alloc_fail_nth(nth);
        for (unsigned step = 0; step < 3; step++) {
            new_packet(step == 2 ? SW_REQ_ALL : 0);
            for (unsigned i = 0; i < 2; i++) {
                struct sw_wire_build *build = sw_test_add_build(&packet, step == 0 && i ? "a name" : NULL);
                build->build = NUMBER + i;
                build->flags = (uint16_t[]){SW_BUILD_BEGIN, 0, SW_BUILD_COMMIT}[step];
                if (step == 0)
                    add_buffer(2 * STEP, STEP);
                else
                    (void)add_chunk(0, (step - 1) * STEP, STEP);
            }
            const int rc = call();
            ck_assert_msg(rc == 0 || rc == -SW_ENOMEM || (step && (rc == -SW_ENOENT || rc == -SW_EINVAL)), "%s",
                          sw_err_name(rc));
        }
        sw_alloc_fail_nth(0);
        const bool is_stored = rig.reply.header.type == SW_MSG_RESULTS;
        const struct sw_region_id ids[] = {is_stored ? sw_test_result_id(&rig.reply, 0) : (struct sw_region_id){0},
                                           is_stored ? sw_test_result_id(&rig.reply, 1) : (struct sw_region_id){0}};
        for (unsigned i = 0; i < 2; i++)
            (void)say(NUMBER + i, SW_BUILD_ABORT); /* what a packet that was refused as a whole has left */
        sw_packet_rig_check_rest(&rig, is_stored ? 2 : 0, 0);
        sw_test_packet(&packet, SW_MSG_DISCARD, 0);
        for (unsigned i = 0; i < 2; i++)
            sw_test_add_id(&packet, ids[i]);
        ck_assert_int_eq(call(), is_stored ? 0 : -SW_ENOENT);
        live = nth ? live : sw_alloc_live();
        ck_assert_int_eq(sw_alloc_live(), live);
        n_failed += !is_stored;
        if (nth && is_stored)
            break;
    }
    ck_assert_uint_gt(n_failed, 10);
}
END_TEST

/* ---- lists ---- */

enum { N_NAMES = 300, NAME_BYTES = 16 };

/* Their order is not that in which they are built. */
static const char *name_of(unsigned i, char ret[NAME_BYTES]) {
    (void)snprintf(ret, NAME_BYTES, "name %03u", i * 7 % N_NAMES);
    return ret;
}

static void build_names(void) {
    char name[NAME_BYTES];
    for (unsigned i = 0; i < N_NAMES;) {
        new_packet(0);
        for (unsigned k = 0; k < 100; k++, i++) {
            sw_test_add_build(&packet, name_of(i, name))->build = NUMBER + i;
            add_buffer(1 + i, 0);
            (void)add_chunk(0, 0, 1 + i);
        }
        ck_assert_int_eq(call(), 0);
    }
}

static int list(const char *after, uint32_t max) {
    struct sw_msg msg = {.header.type = SW_MSG_LIST, .u.list.max = max};
    memcpy(msg.u.list.after, after, strlen(after));
    const int rc = sw_packet_rig_await_seq(&rig, sw_packet_rig_send(&rig, &msg, NULL, 0));
    ck_assert(rc != 0 || rig.reply.header.type == SW_MSG_LISTING);
    return rc;
}

START_TEST(durable_regions_are_listed_by_their_names) {
    const uint32_t max = _i ? SW_PROTO_MAX_ITEMS : 7;
    char after[SW_PROTO_NAME_BYTES] = "", name[NAME_BYTES];
    unsigned n = 0;
    ck_assert_int_eq(list("", max), 0);
    ck_assert_uint_eq(rig.reply.u.listing.n_items, 0);
    build_names();
    do {
        ck_assert_int_eq(list(after, max), 0);
        ck_assert_uint_eq(rig.reply.u.listing.n_items, N_NAMES - n < max ? N_NAMES - n : max);
        for (unsigned i = 0; i < rig.reply.u.listing.n_items; i++, n++) {
            const struct sw_wire_listed *item = &rig.reply.u.listing.items[i];
            (void)snprintf(name, sizeof name, "name %03u", n);
            ck_assert_str_eq(item->name, name);
            memcpy(after, item->name, sizeof after);
            ck_assert_str_eq(name_of((unsigned)item->raw_bytes - 1, name), after);
            ck_assert(item->gen && strcmp(item->state, "out") == 0 && strcmp(item->tier, "host") == 0);
            ck_assert_uint_gt(item->stored_bytes, 0);
        }
    } while (n < N_NAMES);
    ck_assert_int_eq(list(after, max), 0);
    ck_assert_uint_eq(rig.reply.u.listing.n_items, 0);
}
END_TEST

/* A name is taken from the begin of its build on. Only the session itself sees that it has the region. */
START_TEST(a_list_describes_its_regions) {
    struct sw_session *first = rig.session;
    const int first_peer = rig.peer;
    bool closed;
    new_packet(0);
    sw_test_add_build(&packet, "open")->flags = SW_BUILD_BEGIN;
    add_buffer(STEP, STEP);
    (void)sw_test_add_build(&packet, "there");
    add_buffer(STEP, 0);
    (void)add_chunk(0, 0, STEP);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = sw_test_result_id(&rig.reply, 1);
    ck_assert_int_eq(list("", 2), 0);
    const struct sw_wire_listed *items = rig.reply.u.listing.items;
    ck_assert_uint_eq(rig.reply.u.listing.n_items, 2);
    ck_assert(strcmp(items[0].name, "open") == 0 && strcmp(items[0].state, "staging") == 0);
    ck_assert(strcmp(items[1].name, "there") == 0 && items[1].slot == id.slot && items[1].gen == id.gen);
    rig.session = sw_test_service_session(&rig.service, &rig.peer, &closed);
    rig.session->version = SW_PROTO_VERSION;
    ck_assert_int_eq(list("open", 1), 0);
    items = rig.reply.u.listing.items;
    ck_assert(rig.reply.u.listing.n_items == 1 && strcmp(items[0].name, "there") == 0);
    ck_assert(items[0].gen == 0 && items[0].slot == 0);
    sw_session_close(rig.session, "test");
    while (!closed)
        (void)uv_run(&rig.service.loop, UV_RUN_ONCE);
    (void)close(rig.peer);
    rig.session = first;
    rig.peer = first_peer;
}
END_TEST

START_TEST(invalid_lists_are_refused) {
    struct sw_msg msg = {.header.type = SW_MSG_LIST, .u.list.max = 1};
    ck_assert_int_eq(list("", 0), -SW_EINVAL);
    ck_assert_int_eq(list("", SW_PROTO_MAX_ITEMS + 1), -SW_EINVAL);
    memset(msg.u.list.after, 'a', sizeof msg.u.list.after);
    (void)sw_packet_rig_send(&rig, &msg, NULL, 0);
    ck_assert_int_eq(sw_packet_rig_await(&rig), -SW_EINVAL);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("open");
    TCase *tcase = tcase_create("open");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_region_is_built_by_packets, 0, 8);
    tcase_add_test(tcase, packets_need_not_wait_for_replies);
    tcase_add_test(tcase, several_buffers_of_several_memories);
    tcase_add_test(tcase, builds_side_by_side_in_a_packet);
    tcase_add_test(tcase, chunks_are_no_longer_than_devices_take);
    tcase_add_test(tcase, an_append_waits_for_its_word);
    tcase_add_test(tcase, a_durable_region_by_packets);
    tcase_add_test(tcase, a_region_without_bytes_by_packets);
    tcase_add_test(tcase, a_failed_build_refuses_packets_until_its_end);
    tcase_add_test(tcase, an_append_that_fails_late);
    tcase_add_test(tcase, a_commit_ends_its_build_also_when_bytes_are_missing);
    tcase_add_test(tcase, invalid_packets_of_a_build_are_refused);
    tcase_add_test(tcase, a_refused_begin_opens_nothing);
    tcase_add_test(tcase, open_builds_are_counted);
    tcase_add_loop_test(tcase, all_commits_of_a_packet_are_stored_or_none, 0, 4);
    tcase_add_test(tcase, all_or_none_when_one_fails_late);
    tcase_add_loop_test(tcase, durable_regions_are_stored_all_or_none, 0, 4);
    tcase_add_test(tcase, all_or_none_when_bytes_are_missing);
    tcase_add_loop_test(tcase, the_packet_that_commits_is_settled, 0, 2);
    tcase_add_test(tcase, all_or_none_applies_to_commits_only);
    tcase_add_loop_test(tcase, an_abort_cancels_running_appends, 0, 3);
    tcase_add_test(tcase, an_abort_of_all_or_none);
    tcase_add_test(tcase, a_read_is_canceled_by_its_end);
    tcase_add_loop_test(tcase, a_build_without_appends_expires, 0, 2);
    tcase_add_loop_test(tcase, a_session_ends_during_a_build, 0, 4);
    tcase_add_test(tcase, an_allocation_that_fails_leaves_nothing_behind);
    tcase_add_loop_test(tcase, durable_regions_are_listed_by_their_names, 0, 2);
    tcase_add_test(tcase, a_list_describes_its_regions);
    tcase_add_test(tcase, invalid_lists_are_refused);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
