#include "tests/lib/packets.h"

#include "base/assert.h"
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

void sw_test_packet(struct sw_test_packet *ret, unsigned type, uint32_t flags) {
    sw_msg_init(&ret->msg, type);
    ret->msg.header = (struct sw_msg_header){.version = SW_PROTO_VERSION, .type = (uint16_t)type};
    switch (type) {
    case SW_MSG_BUILD:
        ret->msg.u.build = (struct sw_msg_build){
            .flags = flags, .builds = ret->builds, .buffers = ret->buffers, .chunks = ret->chunks, .names = ret->names};
        break;
    case SW_MSG_READ:
        ret->msg.u.read = (struct sw_msg_read){.flags = flags, .reads = ret->reads, .chunks = ret->chunks};
        break;
    case SW_MSG_DISCARD:
        ret->msg.u.discard = (struct sw_msg_discard){.flags = flags, .ids = ret->ids};
        break;
    default:
        SW_ASSERT(type == SW_MSG_SETTLE);
        ret->msg.u.settle = (struct sw_msg_settle){.flags = flags, .ids = ret->ids};
    }
}

struct sw_wire_build *sw_test_add_build(struct sw_test_packet *packet, const char *name) {
    struct sw_msg_build *m = &packet->msg.u.build;
    SW_ASSERT(m->n_builds <= SW_PROTO_MAX_ITEMS);
    struct sw_wire_build *build = &packet->builds[m->n_builds++];
    *build = (struct sw_wire_build){.build = m->n_builds, .flags = SW_BUILD_BEGIN | SW_BUILD_COMMIT};
    if (name) {
        build->name_bytes = (uint8_t)strlen(name);
        memcpy(packet->names + m->name_bytes, name, build->name_bytes);
        m->name_bytes = (uint16_t)(m->name_bytes + build->name_bytes);
    }
    return build;
}

struct sw_wire_buffer *sw_test_add_buffer(struct sw_test_packet *packet, uint64_t raw_bytes, unsigned value_type) {
    struct sw_msg_build *m = &packet->msg.u.build;
    SW_ASSERT(m->n_builds && m->n_buffers <= SW_PROTO_MAX_ITEMS);
    struct sw_wire_buffer *buffer = &packet->buffers[m->n_buffers++];
    packet->builds[m->n_builds - 1].n_buffers++;
    *buffer = (struct sw_wire_buffer){.raw_bytes = raw_bytes, .value_type = (uint16_t)value_type};
    return buffer;
}

struct sw_wire_chunk *sw_test_add_chunk(struct sw_test_packet *packet, uint32_t mem, uint64_t offset,
                                        uint64_t raw_bytes) {
    struct sw_msg_build *m = &packet->msg.u.build;
    SW_ASSERT(m->n_buffers && m->n_chunks <= SW_PROTO_MAX_ITEMS);
    struct sw_wire_chunk *chunk = &packet->chunks[m->n_chunks++];
    struct sw_wire_build *build = &packet->builds[m->n_builds - 1];
    build->n_chunks++;
    *chunk = (struct sw_wire_chunk){
        .mem = mem, .offset = offset, .raw_bytes = raw_bytes, .buffer = (uint16_t)(build->n_buffers - 1)};
    return chunk;
}

struct sw_wire_read *sw_test_add_read(struct sw_test_packet *packet, struct sw_region_id id, unsigned flags) {
    struct sw_msg_read *m = &packet->msg.u.read;
    SW_ASSERT(m->n_reads <= SW_PROTO_MAX_ITEMS);
    struct sw_wire_read *read = &packet->reads[m->n_reads++];
    *read = (struct sw_wire_read){.read = 1000u + m->n_reads,
                                  .flags = (uint16_t)(SW_READ_BEGIN | SW_READ_END | flags),
                                  .slot = id.slot,
                                  .gen = id.gen};
    return read;
}

struct sw_wire_chunk *sw_test_add_room(struct sw_test_packet *packet, uint32_t mem, uint64_t offset,
                                       uint64_t raw_bytes) {
    struct sw_msg_read *m = &packet->msg.u.read;
    SW_ASSERT(m->n_reads && m->n_chunks <= SW_PROTO_MAX_ITEMS);
    struct sw_wire_chunk *chunk = &packet->chunks[m->n_chunks++];
    *chunk = (struct sw_wire_chunk){
        .mem = mem, .offset = offset, .raw_bytes = raw_bytes, .buffer = packet->reads[m->n_reads - 1].n_chunks++};
    return chunk;
}

void sw_test_add_id(struct sw_test_packet *packet, struct sw_region_id id) {
    const bool is_settle = packet->msg.header.type == SW_MSG_SETTLE;
    uint16_t *n = is_settle ? &packet->msg.u.settle.n_ids : &packet->msg.u.discard.n_ids;
    SW_ASSERT(*n <= SW_PROTO_MAX_ITEMS);
    packet->ids[(*n)++] = (struct sw_wire_id){id.slot, id.gen};
}

const char *sw_test_text(const struct sw_msg *msg, uint8_t number) {
    static _Thread_local char text[sizeof(struct sw_wire_text) + 1];
    const bool is_results = msg->header.type == SW_MSG_RESULTS;
    const unsigned n = is_results ? msg->u.results.n_texts : msg->u.details.n_texts;
    const struct sw_wire_text *texts = is_results ? msg->u.results.texts : msg->u.details.texts;
    SW_ASSERT(number <= n && (is_results || msg->header.type == SW_MSG_DETAILS));
    text[0] = 0;
    return number ? sw_msg_text(text, sizeof text, (const uint8_t *)texts[number - 1].text, sizeof texts->text) : text;
}

int sw_test_result_code(const struct sw_msg *msg, unsigned i) {
    SW_ASSERT(msg->header.type == SW_MSG_RESULTS && i < msg->u.results.n_results);
    const uint8_t error = msg->u.results.results[i].error;
    return error ? sw_err_from_name(sw_test_text(msg, error)) : 0;
}

struct sw_region_id sw_test_result_id(const struct sw_msg *msg, unsigned i) {
    SW_ASSERT(msg->header.type == SW_MSG_RESULTS && i < msg->u.results.n_results);
    return (struct sw_region_id){msg->u.results.results[i].slot, msg->u.results.results[i].gen};
}

void sw_test_send_raw(int socket, size_t bytes, unsigned n_fds) {
    static uint8_t packet[SW_PROTO_MAX_PACKET_BYTES * 2];
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(253 * sizeof(int))] = {0};
    struct iovec io = {.iov_base = packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
    if (n_fds) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof(int));
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(n_fds * sizeof(int));
        for (unsigned i = 0; i < n_fds; i++)
            memcpy(CMSG_DATA(rights) + i * sizeof(int), &socket, sizeof(int));
    }
    SW_ASSERT(sendmsg(socket, &message, MSG_NOSIGNAL) == (ssize_t)bytes);
}
