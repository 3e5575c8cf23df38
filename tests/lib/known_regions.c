#include "tests/lib/known_regions.h"

#include "daemon/session/session.h"
#include "tests/lib/content.h"
#include "tests/lib/killed_service.h"
#include "tests/lib/packets.h"

#include <check.h>
#include <string.h>
#include <unistd.h>

struct sw_known_regions sw_known;

static void fill(uint8_t *to, unsigned seed) {
    sw_content_fill(to, SW_KNOWN_BYTES, seed % 2 ? SW_CONTENT_RANDOM : SW_CONTENT_TEXT, seed + 1);
}

bool sw_known_holds(const uint8_t *data, unsigned seed) {
    static uint8_t expected[SW_KNOWN_BYTES];
    fill(expected, seed);
    return memcmp(data, expected, SW_KNOWN_BYTES) == 0;
}

static struct sw_known_region *region_new(struct sw_known_region *share) {
    struct sw_known_region *p = &sw_known.at[sw_known.n++];
    ck_assert_uint_le(sw_known.n, SW_KNOWN_REGIONS_MAX);
    *p = (struct sw_known_region){.n_buffers = 1};
    if (share) {
        p->from = share->from;
        p->to = share->to;
        p->index = (uint32_t)(p - share);
        p->offset = p->index * SW_KNOWN_BYTES;
    }
    return p;
}

/* n regions side by side. */
struct sw_known_region *sw_known_regions_new(unsigned n) {
    struct sw_known_region *first = region_new(NULL);
    first->from = sw_memory_new(n * SW_KNOWN_BYTES);
    first->to = sw_memory_new(n * SW_KNOWN_BYTES);
    for (unsigned i = 1; i < n; i++)
        (void)region_new(first);
    for (unsigned i = 0; i < n; i++)
        fill(first->from.data + i * SW_KNOWN_BYTES, (unsigned)(first + i - sw_known.at));
    return first;
}

/* Whether a request was answered, well; else the service is dead, or a record has failed. */
bool sw_known_answered(int rc) {
    sw_known.is_dead |= rc == -SW_ECONN;
    ck_assert_msg(rc == 0 || rc == -SW_ECONN || sw_kill_plan->fail_at, "%s", sw_err_name(rc));
    sw_known.n_errors += rc != 0 && rc != -SW_ECONN;
    return rc == 0;
}

static uint32_t open_mem(const struct sw_memory *memory) {
    const uint32_t mem = ++sw_known.last_mem;
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_PARTS}};
    msg.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .count = 1, .part_bytes = {memory->bytes}};
    return !sw_known.is_dead &&
                   sw_known_answered(sw_wire_mem_open(&sw_known.wire, mem, SW_MEM_MEMFD, 1, 0, memory->bytes)) &&
                   sw_known_answered(sw_wire_call(&sw_known.wire, &msg, &memory->fd, 1))
               ? mem
               : 0;
}

/* Sends a request that concerns n regions, which are in `meanwhile` from then on, and in `then` when it is answered. */
bool sw_known_ask(struct sw_msg *msg, struct sw_known_region *p, unsigned n, enum sw_known_stage meanwhile,
                  enum sw_known_stage then) {
    if (sw_known.is_dead)
        return false;
    const uint32_t seq = sw_wire_send(&sw_known.wire, msg, NULL, 0);
    for (unsigned i = 0; i < n; i++) {
        p[i].stage = meanwhile;
        if (meanwhile == SW_KNOWN_SPILLING)
            p[i].request = seq;
    }
    const bool good = sw_known_answered(sw_wire_await(&sw_known.wire, seq, msg));
    for (unsigned i = 0; i < n && !sw_known.is_dead; i++)
        p[i].stage = good ? then : meanwhile == SW_KNOWN_SPILLING ? SW_KNOWN_REFUSED : SW_KNOWN_STORED;
    return good;
}

static void note_id(struct sw_known_region *p, const struct sw_msg *reply) {
    p->id = (struct sw_region_id){reply->u.result.slot, reply->u.result.gen};
}

void sw_known_spill(struct sw_known_region *p, bool in_place) {
    struct sw_msg msg = sw_wire_spill_msg(open_mem(&p->from), 0, SW_KNOWN_BYTES);
    msg.u.spill.flags = in_place ? SW_REQ9_IN_PLACE : 0;
    p->packed = in_place;
    if (sw_known_ask(&msg, p, 1, SW_KNOWN_SPILLING, SW_KNOWN_STORED))
        note_id(p, &msg);
}

void sw_known_spill_durable(struct sw_known_region *p, const char *name) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_DURABLE}};
    msg.u.spill_durable = (struct sw_msg_spill_durable){.mem = open_mem(&p->from), .bytes = SW_KNOWN_BYTES};
    sw_msg_set_text(msg.u.spill_durable.name, sizeof msg.u.spill_durable.name, name);
    p->durable = true;
    if (sw_known_ask(&msg, p, 1, SW_KNOWN_SPILLING, SW_KNOWN_STORED))
        note_id(p, &msg);
}

/* Halves of the region as buffers. */
void sw_known_spill_buffers(struct sw_known_region *p) {
    const uint32_t mem = open_mem(&p->from);
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BUFFERS}};
    msg.u.spill_buffers =
        (struct sw_msg_spill_buffers){.count = 2,
                                      .mem = {mem, mem},
                                      .offset = {0, SW_KNOWN_BYTES / 2},
                                      .bytes = {SW_KNOWN_BYTES / 2, SW_KNOWN_BYTES - SW_KNOWN_BYTES / 2}};
    p->n_buffers = 2;
    if (sw_known_ask(&msg, p, 1, SW_KNOWN_SPILLING, SW_KNOWN_STORED))
        note_id(p, &msg);
}

void sw_known_spill_batch(struct sw_known_region *p, unsigned n) {
    struct sw_msg msg = sw_wire_spill_batch_msg(open_mem(&p->from), n, SW_KNOWN_BYTES);
    if (sw_known_ask(&msg, p, n, SW_KNOWN_SPILLING, SW_KNOWN_STORED))
        for (unsigned i = 0; i < n; i++)
            p[i].id = (struct sw_region_id){msg.u.result_batch.slot[i], msg.u.result_batch.gen[i]};
}

/* Durable and kept regions stay stored. */
void sw_known_restore(struct sw_known_region *p, uint32_t flags) {
    const bool stays = p->durable || (flags & SW_REQ9_KEEP);
    if (p->stage != SW_KNOWN_STORED)
        return;
    struct sw_msg msg = sw_wire_restore_msg(p->id, open_mem(p->packed ? &p->from : &p->to), 0, SW_KNOWN_BYTES);
    msg.u.restore.flags = flags | (p->packed ? SW_REQ9_IN_PLACE : 0);
    (void)sw_known_ask(&msg, p, 1, stays ? SW_KNOWN_STORED : SW_KNOWN_RESTORING,
                       stays ? SW_KNOWN_STORED : SW_KNOWN_GONE);
}

void sw_known_restore_buffers(struct sw_known_region *p) {
    if (p->stage != SW_KNOWN_STORED)
        return;

    const uint32_t mem = open_mem(&p->to);
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BUFFERS}};
    msg.u.restore_buffers =
        (struct sw_msg_restore_buffers){.slot = p->id.slot,
                                        .gen = p->id.gen,
                                        .count = 2,
                                        .mem = {mem, mem},
                                        .offset = {0, SW_KNOWN_BYTES / 2},
                                        .bytes = {SW_KNOWN_BYTES / 2, SW_KNOWN_BYTES - SW_KNOWN_BYTES / 2}};
    (void)sw_known_ask(&msg, p, 1, SW_KNOWN_RESTORING, SW_KNOWN_GONE);
}

void sw_known_restore_batch(struct sw_known_region *p, unsigned n) {
    struct sw_region_id ids[SW_KNOWN_REGIONS_MAX];
    if (p->stage != SW_KNOWN_STORED)
        return;
    for (unsigned i = 0; i < n; i++) {
        ids[i] = p[i].id;
        p[i].batch = (unsigned)(p - sw_known.at) + 1;
    }
    struct sw_msg msg = sw_wire_restore_batch_msg(open_mem(&p->to), ids, n, SW_KNOWN_BYTES);
    if (sw_known.is_dead)
        return;
    const uint32_t seq = sw_wire_send(&sw_known.wire, &msg, NULL, 0);
    for (unsigned i = 0; i < n; i++)
        p[i].stage = p[i].durable ? SW_KNOWN_STORED : SW_KNOWN_RESTORING;
    const bool good = sw_known_answered(sw_wire_await(&sw_known.wire, seq, &msg));
    for (unsigned i = 0; i < n && !sw_known.is_dead; i++)
        p[i].stage = p[i].durable || !good ? SW_KNOWN_STORED : SW_KNOWN_GONE;
}

/* ---- version 10: a packet of n regions, each with a result of its own ---- */

static struct sw_test_packet packet;

static void ask_packet(struct sw_known_region *p, unsigned n, enum sw_known_stage meanwhile, enum sw_known_stage then) {
    struct sw_msg *msg = &packet.msg;
    unsigned n_failed = 0;
    if (!sw_known_ask(msg, p, n, meanwhile, then))
        return;
    for (unsigned i = 0; i < n; i++)
        if (sw_test_result_code(msg, i)) {
            n_failed++;
            p[i].stage = meanwhile == SW_KNOWN_SPILLING ? SW_KNOWN_REFUSED : SW_KNOWN_STORED;
        } else if (meanwhile == SW_KNOWN_SPILLING) {
            p[i].id = sw_test_result_id(msg, i);
        } else if (p[i].durable) {
            p[i].stage = SW_KNOWN_STORED;
        }
    ck_assert(!n_failed || sw_kill_plan->fail_at);
    sw_known.n_errors += n_failed > 0;
}

/* The last one has two buffers. */
void sw_known_build_packet(struct sw_known_region *p, unsigned n, uint32_t flags, const char *name_of_first) {
    const uint32_t mem = open_mem(&p->from);
    sw_test_packet(&packet, SW_MSG_BUILD, flags);
    for (unsigned i = 0; i < n; i++) {
        p[i].n_buffers = i == n - 1 ? 2 : 1;
        p[i].durable = i == 0 && name_of_first;
        (void)sw_test_add_build(&packet, i == 0 ? name_of_first : NULL);
        for (unsigned k = 0; k < p[i].n_buffers; k++) {
            const uint64_t bytes = p[i].n_buffers == 1 ? SW_KNOWN_BYTES
                                   : k                 ? SW_KNOWN_BYTES - SW_KNOWN_BYTES / 2
                                                       : SW_KNOWN_BYTES / 2;
            (void)sw_test_add_buffer(&packet, bytes, 0);
            (void)sw_test_add_chunk(&packet, mem, p[i].offset + k * (SW_KNOWN_BYTES / 2), bytes);
        }
    }
    ask_packet(p, n, SW_KNOWN_SPILLING, SW_KNOWN_STORED);
}

/* All stored ones, if all are; with SW_REQ_ALL one that is back speaks for all. */
void sw_known_read_packet(struct sw_known_region *p, unsigned n, uint32_t flags) {
    for (unsigned i = 0; i < n; i++)
        if (p[i].stage != SW_KNOWN_STORED)
            return;
    const uint32_t mem = open_mem(&p->to);
    sw_test_packet(&packet, SW_MSG_READ, flags);
    for (unsigned i = 0; i < n; i++) {
        p[i].batch = flags & SW_REQ_ALL ? (unsigned)(p - sw_known.at) + 1 : 0;
        (void)sw_test_add_read(&packet, p[i].id, 0);
        for (unsigned k = 0; k < p[i].n_buffers; k++)
            (void)sw_test_add_room(&packet, mem, p[i].offset + k * (SW_KNOWN_BYTES / 2),
                                   p[i].n_buffers == 1 ? SW_KNOWN_BYTES
                                   : k                 ? SW_KNOWN_BYTES - SW_KNOWN_BYTES / 2
                                                       : SW_KNOWN_BYTES / 2);
    }
    ask_packet(p, n, SW_KNOWN_RESTORING, SW_KNOWN_GONE);
}

/* ---- and by several packets, all or none ---- */

enum { FIRST_BYTES = 2 * SW_BUILD_CHUNK_STEP_BYTES, FIRST_NUMBER = 100 };

/* Adds the first or the last chunk of each of n regions; of builds, or of reads. */
static void add_chunks(const struct sw_known_region *p, unsigned n, uint32_t mem, unsigned step) {
    const bool is_build = packet.msg.header.type == SW_MSG_BUILD;
    const uint64_t at = step == 1 ? 0 : FIRST_BYTES, bytes = step == 1 ? FIRST_BYTES : SW_KNOWN_BYTES - FIRST_BYTES;
    for (unsigned i = 0; step > 0 && i < n; i++) {
        packet.chunks[i] = (struct sw_wire_chunk){.mem = mem, .at = at, .offset = p[i].offset + at, .raw_bytes = bytes};
        *(is_build ? &packet.builds[i].n_chunks : &packet.reads[i].n_chunks) = 1;
        *(is_build ? &packet.msg.u.build.n_chunks : &packet.msg.u.read.n_chunks) = (uint16_t)(i + 1);
    }
}

static void make_build_step(const struct sw_known_region *p, unsigned n, uint32_t mem, unsigned step,
                            const char *name_of_first) {
    static const uint16_t flags[] = {SW_BUILD_BEGIN, 0, SW_BUILD_COMMIT};
    sw_test_packet(&packet, SW_MSG_BUILD, step == 2 ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_build *build = sw_test_add_build(&packet, i == 0 && step == 0 ? name_of_first : NULL);
        build->build = FIRST_NUMBER + (unsigned)(p + i - sw_known.at);
        build->flags = flags[step];
        if (step == 0)
            sw_test_add_buffer(&packet, SW_KNOWN_BYTES, 0)->chunk_bytes = SW_BUILD_CHUNK_STEP_BYTES;
    }
    add_chunks(p, n, mem, step);
}

/* By three packets: begin, first chunk, last chunk and commit. */
void sw_known_build_open(struct sw_known_region *p, unsigned n, const char *name_of_first) {
    const uint32_t mem = open_mem(&p->from);
    for (unsigned step = 0; step < 3; step++) {
        make_build_step(p, n, mem, step, name_of_first);
        if (step < 2 && !sw_known.is_dead)
            (void)sw_known_answered(sw_wire_call(&sw_known.wire, &packet.msg, NULL, 0));
    }
    for (unsigned i = 0; i < n; i++)
        p[i].group = (unsigned)(p - sw_known.at) + 1;
    p->durable = name_of_first;
    ask_packet(p, n, SW_KNOWN_SPILLING, SW_KNOWN_STORED);
}

static void make_read_step(const struct sw_known_region *p, unsigned n, uint32_t mem, unsigned step) {
    static const uint16_t flags[] = {SW_READ_BEGIN, 0, SW_READ_END};
    sw_test_packet(&packet, SW_MSG_READ, step == 2 ? SW_REQ_ALL : 0);
    for (unsigned i = 0; i < n; i++) {
        struct sw_wire_read *read = sw_test_add_read(&packet, step == 0 ? p[i].id : (struct sw_region_id){0}, 0);
        read->read = FIRST_NUMBER + SW_KNOWN_REGIONS_MAX + (unsigned)(p + i - sw_known.at);
        read->flags = flags[step];
    }
    add_chunks(p, n, mem, step);
}

/* The same way back. */
void sw_known_read_open(struct sw_known_region *p, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (p[i].stage != SW_KNOWN_STORED)
            return;
    const uint32_t mem = open_mem(&p->to);
    for (unsigned step = 0; step < 3; step++) {
        make_read_step(p, n, mem, step);
        if (step < 2 && !sw_known.is_dead)
            (void)sw_known_answered(sw_wire_call(&sw_known.wire, &packet.msg, NULL, 0));
    }
    for (unsigned i = 0; i < n; i++)
        p[i].batch = (unsigned)(p - sw_known.at) + 1;
    ask_packet(p, n, SW_KNOWN_RESTORING, SW_KNOWN_GONE);
}

void sw_known_discard_packet(struct sw_known_region *p, unsigned n) {
    for (unsigned i = 0; i < n; i++)
        if (p[i].stage != SW_KNOWN_STORED)
            return;
    sw_test_packet(&packet, SW_MSG_DISCARD, 0);
    for (unsigned i = 0; i < n; i++)
        sw_test_add_id(&packet, p[i].id);
    (void)sw_known_ask(&packet.msg, p, n, SW_KNOWN_DROPPING, SW_KNOWN_GONE);
}

void sw_known_drop(struct sw_known_region *p) {
    if (p->stage != SW_KNOWN_STORED)
        return;

    struct sw_msg msg = {.header = {.type = SW_MSG_DROP}};
    msg.u.drop = (struct sw_msg_drop){p->id.slot, p->id.gen};
    (void)sw_known_ask(&msg, p, 1, SW_KNOWN_DROPPING, SW_KNOWN_GONE);
}

/* Until the service has ended its moves. */
void sw_known_await_moves(void) {
    struct sw_msg_status_ok status = {0};
    uint64_t before = 1;
    for (unsigned n_same = 0; !sw_known.is_dead && n_same < 5; n_same += status.nvme_used_bytes == before) {
        before = status.nvme_used_bytes;
        (void)usleep(3000);
        (void)sw_known_answered(sw_wire_status(&sw_known.wire, &status));
    }
}
