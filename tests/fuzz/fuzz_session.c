/* fuzz_session.c - a session with a real engine on the host device, fed with any sequence of packets.
 *
 * Input: records of one type byte, one byte for descriptors (how many, of which kind), one for the length, and so many
 * bytes; each becomes the body of a well-formed request, so that handlers are reached and not just the decoder. Types
 * from 200 are batches, from 229 about durable regions, from 232 about buffers, from 240 no requests, and 255 sends the
 * bytes as they are.
 *
 * An input that begins with the byte 254 is of version 10. The bytes of its records say, one after the other, what
 * builds, reads and chunks a packet has; where they end the rest is zeros, which are whole and right. Types from 250
 * are parts of builds and reads of several packets.
 *
 * After each input the session ends and everything must have been given back. */
#include "base/assert.h"
#include "base/log.h"
#include "codec/plan/planning.h"
#include "tests/lib/packets.h"
#include "tests/lib/service.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum {
    MEMFD_BYTES = 4096,
    FILE_BYTES = 4 * SW_BUILD_CHUNK_STEP_BYTES, /* of which a memory may have more than MEMFD_BYTES */
    MAX_PACKETS = 64,
    HELLO_FIRST = 8,
    BATCHES = 200,
    DURABLE = 229,
    BUFFERS = 232,
    NO_REQUESTS = 240,
    VERSION_10 = 254,
    OPEN_10 = 250,
    RAW_PACKET = 255
};

static struct sw_test_service service;
static bool closed;
static struct sw_region_id ids[8]; /* of this input's spills, by turns */
static unsigned n_ids;

/* A good frame of one step of zeros. Returns its length. */
static uint64_t good_frame(const uint8_t **ret) {
    static const uint8_t zeros[SW_BUILD_CHUNK_STEP_BYTES];
    static _Alignas(16) uint8_t frame[2 * SW_BUILD_CHUNK_STEP_BYTES];
    static uint8_t sample[SW_SAMPLE_MAX_BYTES];
    static uint64_t bytes;
    struct sw_plan plan;
    if (!bytes) {
        sw_plan_make(&plan, SW_VALUE_NONE, zeros, sizeof zeros, sample);
        SW_ASSERT(sw_codec_encode(&plan, zeros, sizeof zeros, frame, sizeof frame, &bytes, NULL) == 0);
        SW_ASSERT(bytes <= MEMFD_BYTES);
    }
    *ret = frame;
    return bytes;
}

static void write_frames(int fd) {
    const uint8_t *frame;
    const uint64_t bytes = good_frame(&frame);
    for (off_t at = 0; at < FILE_BYTES; at += SW_BUILD_CHUNK_STEP_BYTES)
        SW_ASSERT(pwrite(fd, frame, bytes, at) == (ssize_t)bytes);
}

static int new_fd(unsigned kind) {
    if (kind == 0)
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, FILE_BYTES) == 0);
    if (kind > 2) {
        SW_ASSERT(fallocate(fd, 0, 0, MEMFD_BYTES) == 0);
        write_frames(fd);
    }
    if (kind > 1)
        SW_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

/* Reads the replies and remembers the regions. */
static void read_replies(int socket) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes;
    unsigned n_fds;
    struct sw_msg msg;
    while (sw_packet_receive(socket, packet, &bytes, fds, &n_fds) == 0 && bytes) {
        SW_ASSERT(n_fds == 0 && sw_msg_decode(&msg, packet, bytes, NULL) == 0);
        for (unsigned i = 0; msg.header.type == SW_MSG_RESULTS && i < msg.u.results.n_results; i++)
            if (msg.u.results.results[i].gen)
                ids[n_ids++ % 8] = sw_test_result_id(&msg, i);
        if (msg.header.type == SW_MSG_RESULT)
            ids[n_ids++ % 8] = (struct sw_region_id){.slot = msg.u.result.slot, .gen = msg.u.result.gen};
        for (uint32_t i = 0; msg.header.type == SW_MSG_RESULT_BATCH && i < msg.u.result_batch.count; i++)
            ids[n_ids++ % 8] =
                (struct sw_region_id){.slot = msg.u.result_batch.slot[i], .gen = msg.u.result_batch.gen[i]};
    }
}

/* No input can guess an id: gen 0 stands for the id of an earlier spill. RESTORE, DROP, CONSUME and questions begin
 * with slot, gen. */
static void name_region(uint8_t *body) {
    struct sw_region_id id;
    memcpy(&id, body, sizeof id);
    if (id.gen == 0 && id.slot < 8)
        memcpy(body, &ids[id.slot], sizeof id);
}

/* Batches the same; and their pieces lie side by side, which an input of 255 bytes could not say. */
static void name_regions(struct sw_msg *msg) {
    struct sw_msg_restore_batch *restore = &msg->u.restore_batch;
    struct sw_msg_drop_batch *drop = &msg->u.drop_batch;
    const bool is_drop = msg->header.type == SW_MSG_DROP_BATCH;
    const uint32_t count = is_drop ? drop->count : restore->count;
    for (uint32_t i = 0; i < count && i < SW_PROTO_MAX_BATCH; i++) {
        uint32_t *slot = is_drop ? &drop->slot[i] : &restore->slot[i],
                 *gen = is_drop ? &drop->gen[i] : &restore->gen[i];
        if (*gen == 0 && *slot < 8) {
            *gen = ids[*slot].gen;
            *slot = ids[*slot].slot;
        }
        if (!is_drop && !restore->offset[i]) {
            restore->offset[i] = i * (MEMFD_BYTES / 16);
            restore->bytes[i] = MEMFD_BYTES / 16;
        }
    }
}

/* Buffers the same; a memory's number says of what type its values are, too. */
static void lay_out_buffers(struct sw_msg *msg) {
    struct sw_msg_spill_buffers *spill = &msg->u.spill_buffers;
    struct sw_msg_restore_buffers *restore = &msg->u.restore_buffers;
    const bool is_spill = msg->header.type == SW_MSG_SPILL_BUFFERS;
    const uint32_t count = is_spill ? spill->count : restore->count;
    for (uint32_t i = 0; i < count && i < SW_PROTO_MAX_BUFFERS; i++) {
        uint32_t *mem = is_spill ? &spill->mem[i] : &restore->mem[i];
        (is_spill ? spill->offset : restore->offset)[i] = i * (MEMFD_BYTES / 16);
        (is_spill ? spill->bytes : restore->bytes)[i] = MEMFD_BYTES / 16;
        if (is_spill)
            spill->value_type[i] = *mem >> 8 & 15;
        *mem &= 0xFF;
    }
}

static unsigned type_of(uint8_t byte) {
    if (byte < BATCHES)
        return 1 + (byte + 1u) % SW_MSG_STATUS;
    if (byte < DURABLE)
        return SW_MSG_SPILL_BATCH + byte % 3u;
    if (byte < BUFFERS)
        return SW_MSG_SPILL_DURABLE + (byte - DURABLE);
    return byte < NO_REQUESTS ? SW_MSG_SPILL_BUFFERS + byte % 3u : byte;
}

/* ---- version 10 -------------------------------------------------------------------------------------------------- */

/* A record's bytes that have not been used yet. */
struct rest {
    const uint8_t *at;
    size_t n;
};

static unsigned next(struct rest *rest, unsigned base) {
    if (!rest->n)
        return 0;
    rest->n--;
    return *rest->at++ % base;
}

/* One in 32 is wrong. */
static bool is_wrong(struct rest *rest) {
    return next(rest, 256) >= 248;
}

static void shape_chunk(struct sw_wire_chunk *chunk, struct rest *rest) {
    if (next(rest, 8) == 7) {
        chunk->order_word = next(rest, 4);
        chunk->order_value = next(rest, 3);
    }
    if (is_wrong(rest))
        chunk->buffer = (uint16_t)next(rest, 256);
    if (is_wrong(rest))
        chunk->at = next(rest, 256);
    if (is_wrong(rest))
        chunk->frame_bytes = next(rest, 256);
}

static void shape_build(struct sw_test_packet *packet, struct rest *rest) {
    static const char *const names[] = {NULL, NULL, NULL, "a", "b", "a name"};
    struct sw_wire_build *build = sw_test_add_build(packet, names[next(rest, 6)]);
    build->flags ^= (uint16_t)(next(rest, 8) == 7 ? SW_BUILD_IN_PLACE : 0);
    if (is_wrong(rest))
        build->flags = (uint16_t)next(rest, 32);
    for (unsigned i = next(rest, 4) + 1; i > 0; i--) {
        const uint64_t bytes = 16ul * next(rest, 64);
        struct sw_wire_buffer *buffer = sw_test_add_buffer(packet, bytes, 0);
        buffer->value_type = (uint16_t)(next(rest, 4) == 3 ? next(rest, 32) : 0);
        if (is_wrong(rest))
            buffer->raw_bytes += next(rest, 256);
        if (!bytes && !next(rest, 2))
            continue;
        const uint32_t mem = next(rest, 4);
        const uint64_t offset = 16ul * next(rest, 256);
        shape_chunk(sw_test_add_chunk(packet, mem, offset, bytes), rest);
    }
}

static void shape_read(struct sw_test_packet *packet, struct rest *rest, unsigned at) {
    const struct sw_region_id id = ids[next(rest, 8)];
    struct sw_wire_read *read = sw_test_add_read(packet, id, 0);
    read->flags |= (uint16_t)(next(rest, 4) == 3 ? SW_READ_KEEP : 0);
    read->flags |= (uint16_t)(next(rest, 8) == 7 ? SW_READ_IN_PLACE : 0);
    if (is_wrong(rest))
        read->flags = (uint16_t)next(rest, 32);
    for (unsigned i = next(rest, 4) + 1; i > 0; i--, at += 1024) {
        const uint32_t mem = next(rest, 4);
        const uint64_t room = 16ul * (64 - next(rest, 64));
        shape_chunk(sw_test_add_room(packet, mem, at % MEMFD_BYTES, room), rest);
    }
}

/* Chunks of a step each from where the record says, of one of two buffers. */
/* One in 16 is a frame. */
static struct sw_wire_chunk *step(struct sw_wire_chunk *chunk, struct rest *rest) {
    const uint8_t *frame;
    chunk->at = (uint64_t)next(rest, 5) * SW_BUILD_CHUNK_STEP_BYTES;
    chunk->offset = chunk->at;
    const unsigned length = next(rest, 64);
    chunk->frame_bytes = length < 60 ? 0 : (uint32_t)good_frame(&frame);
    chunk->raw_bytes = (chunk->frame_bytes ? 1 : 1 + length % 4) * (uint64_t)SW_BUILD_CHUNK_STEP_BYTES;
    chunk->buffer = (uint16_t)(next(rest, 8) == 7);
    return chunk;
}

/* A part of one of eight builds. */
static void shape_open_build(struct sw_test_packet *packet, struct rest *rest) {
    static const char *const names[] = {NULL, NULL, NULL, "a"};
    const uint32_t number = next(rest, 8);
    const unsigned flags = next(rest, 8);
    const bool begins = flags & SW_BUILD_BEGIN;
    struct sw_wire_build *build = sw_test_add_build(packet, begins ? names[next(rest, 4)] : NULL);
    build->build = number;
    build->flags = (uint16_t)flags;
    for (unsigned i = begins ? 1 + next(rest, 2) : 0; i > 0; i--) {
        const uint64_t raw_bytes = (uint64_t)next(rest, 5) * SW_BUILD_CHUNK_STEP_BYTES;
        sw_test_add_buffer(packet, raw_bytes, 0)->chunk_bytes = next(rest, 4) * SW_BUILD_CHUNK_STEP_BYTES;
    }
    for (unsigned i = next(rest, 4); i > 0; i--) {
        struct sw_wire_chunk *chunk = &packet->chunks[packet->msg.u.build.n_chunks++];
        build->n_chunks++;
        *chunk = (struct sw_wire_chunk){.mem = next(rest, 4)};
        shape_chunk(step(chunk, rest), rest);
    }
}

static void shape_open_read(struct sw_test_packet *packet, struct rest *rest) {
    const uint32_t number = next(rest, 8);
    const unsigned flags = next(rest, 8);
    const struct sw_region_id id = flags & SW_READ_BEGIN ? ids[next(rest, 8)] : (struct sw_region_id){0};
    struct sw_wire_read *read = sw_test_add_read(packet, id, 0);
    read->read = number;
    read->flags = (uint16_t)flags;
    for (unsigned i = next(rest, 4); i > 0; i--) {
        const uint32_t mem = next(rest, 4);
        shape_chunk(step(sw_test_add_room(packet, mem, 0, 0), rest), rest);
    }
}

/* One to four of either. */
static struct sw_msg *shape_open(struct sw_test_packet *packet, unsigned type, struct rest *rest) {
    sw_test_packet(packet, type, next(rest, 4) == 3 ? SW_REQ_ALL : 0);
    for (unsigned i = next(rest, 4) + 1u; i > 0; i--)
        (type == SW_MSG_BUILD ? shape_open_build : shape_open_read)(packet, rest);
    return &packet->msg;
}

/* Counts that do not add up, and reserved fields. */
static void damage(struct sw_test_packet *packet, struct rest *rest) {
    struct sw_msg_build *build = &packet->msg.u.build;
    struct sw_msg_read *read = &packet->msg.u.read;
    const bool is_build = packet->msg.header.type == SW_MSG_BUILD;
    uint16_t *const counts[] = {is_build ? &build->n_builds : &read->n_reads,
                                is_build ? &build->n_chunks : &read->n_chunks,
                                is_build ? &build->n_buffers : &read->n_reads};
    if (is_wrong(rest))
        (*counts[next(rest, 3)])--;
    if (is_wrong(rest))
        packet->builds[0].reserved[0] = 1;
}

static struct sw_msg *shape(struct sw_test_packet *packet, unsigned type, struct rest *rest) {
    const uint32_t flags = next(rest, 4);
    unsigned n = next(rest, 16) + 1u;
    sw_test_packet(packet, type, flags);
    if (type == SW_MSG_SETTLE) {
        packet->msg.u.settle.type = (uint32_t[]){SW_MSG_BUILD, SW_MSG_READ, 0, SW_MSG_STATUS}[next(rest, 4)];
        packet->msg.u.settle.seq = next(rest, MAX_PACKETS);
        n = packet->msg.u.settle.type ? n : 0;
    }
    for (unsigned i = 0; i < n; i++)
        if (type == SW_MSG_BUILD)
            shape_build(packet, rest);
        else if (type == SW_MSG_READ)
            shape_read(packet, rest, 2048 * i);
        else
            sw_test_add_id(packet, ids[next(rest, 8)]);
    if (type == SW_MSG_BUILD || type == SW_MSG_READ)
        damage(packet, rest);
    return &packet->msg;
}

/* The packet's bytes, without arrays: as the record has them. */
static size_t plain_packet(uint8_t *packet, unsigned type, uint32_t seq, const struct rest *rest) {
    struct sw_msg msg;
    sw_msg_init(&msg, type);
    msg.header.seq = seq;
    const size_t bytes = sw_msg_encode(&msg, packet), body = bytes - SW_PROTO_HEADER_BYTES;
    memcpy(packet + SW_PROTO_HEADER_BYTES, rest->at, rest->n < body ? rest->n : body);
    if (type == SW_MSG_INSPECT || type == SW_MSG_ADVISE)
        name_region(packet + SW_PROTO_HEADER_BYTES);
    return bytes;
}

static void feed10(struct sw_session *session, uint8_t byte, struct rest rest, uint32_t seq, int *fds, unsigned n_fds) {
    static const unsigned types[] = {SW_MSG_BUILD,     SW_MSG_READ,       SW_MSG_DISCARD, SW_MSG_MEM_OPEN,
                                     SW_MSG_MEM_PARTS, SW_MSG_INSPECT,    SW_MSG_SETTLE,  SW_MSG_MEM_CLOSE,
                                     SW_MSG_ADVISE,    SW_MSG_ORDER_PAGE, SW_MSG_ADOPT,   SW_MSG_STATUS,
                                     SW_MSG_SPILL,     SW_MSG_LIST,       SW_MSG_CODER};
    static struct sw_test_packet made;
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const bool is_open = byte >= OPEN_10;
    const unsigned type = is_open ? types[byte % 2] : types[byte % (sizeof types / sizeof types[0])];
    size_t bytes;
    if (is_open) {
        struct sw_msg *msg = shape_open(&made, type, &rest);
        msg->header.seq = seq;
        bytes = sw_msg_encode(msg, packet);
    } else if (type == SW_MSG_BUILD || type == SW_MSG_READ || type == SW_MSG_DISCARD || type == SW_MSG_SETTLE) {
        struct sw_msg *msg = shape(&made, type, &rest);
        msg->header.seq = seq;
        bytes = sw_msg_encode(msg, packet);
    } else {
        bytes = plain_packet(packet, type, seq, &rest);
    }
    sw_session_packet(session, packet, bytes, fds, n_fds);
}

/* ---- inputs ------------------------------------------------------------------------------------------------------ */

/* Feeds one record; returns the bytes it took, 0 at the end. */
static size_t feed(struct sw_session *session, const uint8_t *data, size_t size, uint32_t seq) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    if (size < 3)
        return 0;
    const unsigned n_fds = data[1] % 4, kind = data[1] / 4 % 4;
    const size_t n = data[2] < size - 3 ? data[2] : size - 3;
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = new_fd(kind);
    if (session->version == SW_PROTO_VERSION && data[0] != RAW_PACKET) {
        feed10(session, data[0], (struct rest){data + 3, n}, seq, fds, n_fds);
    } else if (data[0] == RAW_PACKET) {
        uint8_t *copy = malloc(n ? n : 1); /* aligned, and not longer than it is */
        SW_ASSERT(copy);
        memcpy(copy, data + 3, n);
        sw_session_packet(session, copy, n, fds, n_fds);
        free(copy);
    } else {
        struct sw_msg msg;
        memset(&msg, 0, sizeof msg);
        msg.header.type = (uint16_t)type_of(data[0]);
        msg.header.seq = seq;
        msg.header.version = SW_PROTO_OLDEST_VERSION;
        const size_t bytes = sw_msg_encode(&msg, packet), body = bytes - SW_PROTO_HEADER_BYTES;
        memcpy(packet + SW_PROTO_HEADER_BYTES, data + 3, n < body ? n : body);
        if ((msg.header.type >= SW_MSG_RESTORE && msg.header.type <= SW_MSG_QUERY) ||
            msg.header.type == SW_MSG_RESTORE_BUFFERS || msg.header.type == SW_MSG_QUERY_BUFFERS ||
            msg.header.type == SW_MSG_CONSUME || msg.header.type == SW_MSG_QUERY_PACKED)
            name_region(packet + SW_PROTO_HEADER_BYTES);
        if (msg.header.type == SW_MSG_RESTORE_BATCH || msg.header.type == SW_MSG_DROP_BATCH) {
            SW_ASSERT(sw_msg_decode(&msg, packet, bytes, NULL) == 0);
            name_regions(&msg);
            (void)sw_msg_encode(&msg, packet);
        }
        if (msg.header.type == SW_MSG_SPILL_BUFFERS || msg.header.type == SW_MSG_RESTORE_BUFFERS) {
            SW_ASSERT(sw_msg_decode(&msg, packet, bytes, NULL) == 0);
            lay_out_buffers(&msg);
            (void)sw_msg_encode(&msg, packet);
        }
        sw_session_packet(session, packet, bytes, fds, n_fds);
    }
    return n + 3;
}

/* So that later requests find regions and not only operations under way; those of the end are canceled. */
static void finish_operations(const struct sw_session *session) {
    struct sw_engine_stats stats;
    sw_engine_stats(service.service.engine, &stats);
    while ((stats.n_ops || session->n_operations) && !session->closing) {
        (void)uv_run(&service.loop, UV_RUN_ONCE);
        sw_engine_stats(service.service.engine, &stats);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    int peer;
    if (!service.service.engine) {
        sw_log_set_level(SW_LOG_ERROR);
        sw_test_service_start(&service);
    }
    struct sw_session *session = sw_test_service_session(&service, &peer, &closed);
    session->greeted = size == 0 || data[0] != HELLO_FIRST; /* most inputs need not find HELLO first */
    n_ids = 0;
    memset(ids, 0, sizeof ids);
    if (size && data[0] == VERSION_10) {
        session->version = SW_PROTO_VERSION;
        session->may_settle = true;
        data++;
        size--;
    }
    for (uint32_t seq = 1; seq <= MAX_PACKETS && !closed && !session->closing; seq++) {
        const size_t n = feed(session, data, size, seq);
        if (!n)
            break;
        data += n;
        size -= n;
        if (seq % 4 == 0)
            finish_operations(session);
        read_replies(peer);
    }
    sw_test_service_end(&service, session, &closed);
    (void)close(peer);
    return 0;
}
