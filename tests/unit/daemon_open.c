/* Builds of several packets: begin, append and commit in every division into packets, and packets that are refused. */
#include "spill/engine_state.h"
#include "tests/lib/open_builds.h"
#include "tests/lib/packet_rig.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <string.h>

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

/* Builds that are open when a drain begins go on to their end. */
START_TEST(a_drain_lets_open_builds_end) {
    begin(NUMBER, 2 * STEP);
    rig.service.service.draining = true;
    make_append(NUMBER, 0, 0, STEP);
    ck_assert_int_eq(call(), 0);
    make_append(NUMBER, SW_BUILD_COMMIT, STEP, STEP);
    ck_assert_int_eq(call(), 0);
    new_packet(0);
    (void)add(NUMBER, SW_BUILD_BEGIN);
    add_buffer(STEP, STEP);
    ck_assert_int_eq(call(), -SW_EDRAINING);
    sw_packet_rig_check_rest(&rig, 1, 0);
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
    for (unsigned field = 0; field < 5; field++) { /* of a build's begin only */
        new_packet(0);
        struct sw_wire_build *commit = sw_test_add_build(&packet, field == 0 ? "a name" : NULL);
        commit->build = NUMBER;
        commit->flags = SW_BUILD_COMMIT;
        commit->keep_priority = field == 1;
        commit->durability = field == 2;
        commit->prefer = field == 3;
        if (field == 4)
            add_buffer(STEP, STEP);
        ck_assert_msg(call() == -SW_EINVAL && sw_packet_rig_says(&rig, "belong to its begin"), "field %u", field);
    }
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

/* A client that has got the bytes of a durable region keeps the region; a plain DISCARD drops it. */
START_TEST(a_durable_region_is_not_consumed) {
    new_packet(0);
    sw_test_add_build(&packet, "a name")->build = NUMBER;
    add_buffer(STEP, 0);
    (void)add_chunk(0, 0, STEP);
    ck_assert_int_eq(call(), 0);
    const struct sw_region_id id = last_id();
    for (unsigned n_left = 2; n_left-- > 0;) {
        sw_test_packet(&packet, SW_MSG_DISCARD, n_left ? SW_REQ_CONSUME : 0);
        sw_test_add_id(&packet, id);
        ck_assert_int_eq(call(), 0);
        sw_packet_rig_check_rest(&rig, n_left, 0);
    }
}
END_TEST

/* A name has 1 to 63 bytes, none of them 0, in a build of one packet, of several, and in a batch. */
START_TEST(names_have_a_longest_length) {
    static const struct {
        uint16_t flags;
        uint32_t chunk_bytes;
        unsigned n;
    } kinds[] = {
        {SW_BUILD_BEGIN | SW_BUILD_COMMIT, 0, 1}, {SW_BUILD_BEGIN, STEP, 1}, {SW_BUILD_BEGIN | SW_BUILD_COMMIT, 0, 2}};
    rig.session->tenant->quota.max_durable = 100;
    for (unsigned k = 0; k < sizeof kinds / sizeof kinds[0]; k++)
        for (unsigned bytes = SW_PROTO_NAME_BYTES - 1; bytes <= SW_PROTO_NAME_BYTES + 1; bytes++) {
            new_packet(kinds[k].n > 1 ? SW_REQ_ALL : 0);
            memset(packet.names, 'a' + (int)k, sizeof packet.names);
            for (unsigned i = 0; i < kinds[k].n; i++) {
                struct sw_wire_build *build = add(NUMBER + 10 * k + i, kinds[k].flags);
                add_buffer(STEP, kinds[k].chunk_bytes);
                if (kinds[k].flags & SW_BUILD_COMMIT)
                    (void)add_chunk(0, 0, STEP);
                build->name_bytes = (uint8_t)(i ? 3 : bytes);
                packet.msg.u.build.name_bytes = (uint16_t)(packet.msg.u.build.name_bytes + build->name_bytes);
            }
            const int rc = call();
            ck_assert_int_eq(rc, bytes < SW_PROTO_NAME_BYTES ? 0 : -SW_EINVAL);
        }
    new_packet(0);
    add(NUMBER + 100, SW_BUILD_BEGIN)->name_bytes = 3;
    add_buffer(STEP, STEP);
    memcpy(packet.names, "a\0b", 3);
    packet.msg.u.build.name_bytes = 3;
    ck_assert_int_eq(call(), -SW_EINVAL);
    ck_assert_int_eq(say(NUMBER + 10, SW_BUILD_ABORT), -SW_ECANCELED);
    sw_packet_rig_check_rest(&rig, 3, 0);
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

/* Chunks have whole steps, in every buffer; which one has not is named, if there are several. */
START_TEST(a_begin_has_chunks_of_whole_steps) {
    static const uint32_t wrong[] = {1, STEP - 1, STEP + 1, 3 * STEP / 2, UINT32_MAX};
    char says[64];
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        for (unsigned n = 1; n <= 3; n += 2) {
            new_packet(0);
            (void)add(NUMBER, SW_BUILD_BEGIN);
            for (unsigned at = 1; at < n; at++)
                add_buffer(STEP, STEP);
            add_buffer(3 * STEP, wrong[i]);
            ck_assert_int_eq(call(), -SW_EINVAL);
            (void)snprintf(says, sizeof says, "chunks of %u bytes, must be a multiple of ", wrong[i]);
            ck_assert(sw_packet_rig_says(&rig, says));
            ck_assert_int_eq(sw_packet_rig_says(&rig, "buffer "), n > 1);
            ck_assert_int_eq(sw_packet_rig_says(&rig, "buffer 3 of 3: "), n > 1);
            sw_packet_rig_check_rest(&rig, 0, 0);
        }
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

int main(void) {
    Suite *suite = suite_create("open builds");
    TCase *tcase = tcase_create("open builds");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_loop_test(tcase, a_region_is_built_by_packets, 0, 8);
    tcase_add_test(tcase, a_drain_lets_open_builds_end);
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
    tcase_add_test(tcase, a_durable_region_is_not_consumed);
    tcase_add_test(tcase, a_refused_begin_opens_nothing);
    tcase_add_test(tcase, names_have_a_longest_length);
    tcase_add_test(tcase, a_begin_has_chunks_of_whole_steps);
    tcase_add_test(tcase, open_builds_are_counted);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
