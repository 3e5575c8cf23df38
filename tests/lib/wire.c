#include "tests/lib/wire.h"

#include "base/assert.h"
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool sw_wire_connect(struct sw_wire *ret, const char *path) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    SW_ASSERT(strlen(path) < sizeof address.sun_path);
    memcpy(address.sun_path, path, strlen(path) + 1);
    ret->seq = 0;
    ret->version = SW_PROTO_OLDEST_VERSION;
    ret->socket = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    SW_ASSERT(ret->socket >= 0);
    if (connect(ret->socket, (const struct sockaddr *)&address, sizeof address) == 0)
        return true;
    sw_wire_close(ret);
    return false;
}

void sw_wire_open_version(struct sw_wire *ret, const char *path, uint32_t version) {
    SW_ASSERT(sw_wire_connect(ret, path));
    SW_ASSERT(sw_wire_hello(ret, version) == 0);
}

void sw_wire_open(struct sw_wire *ret, const char *path) {
    sw_wire_open_version(ret, path, SW_PROTO_OLDEST_VERSION);
}

void sw_wire_close(struct sw_wire *wire) {
    if (wire->socket >= 0)
        (void)close(wire->socket);
    wire->socket = -1;
}

bool sw_wire_send_raw(struct sw_wire *wire, const void *packet, size_t bytes, int fd, unsigned n_fds) {
    enum { MOST = 253 }; /* the kernel's SCM_MAX_FD */
    _Alignas(struct cmsghdr) char control[CMSG_SPACE(MOST * sizeof(int))] = {0};
    struct iovec io = {.iov_base = (void *)packet, .iov_len = bytes};
    struct msghdr message = {.msg_iov = &io, .msg_iovlen = 1};
    SW_ASSERT(n_fds <= MOST);
    if (n_fds) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(n_fds * sizeof fd);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(n_fds * sizeof fd);
        for (unsigned i = 0; i < n_fds; i++)
            memcpy(CMSG_DATA(rights) + i * sizeof fd, &fd, sizeof fd);
    }
    return sendmsg(wire->socket, &message, MSG_NOSIGNAL) == (ssize_t)bytes;
}

uint32_t sw_wire_send(struct sw_wire *wire, struct sw_msg *msg, const int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = wire->version;
    msg->header.seq = ++wire->seq;
    (void)sw_packet_send(wire->socket, packet, sw_msg_encode(msg, packet), fds, n_fds);
    return wire->seq;
}

int sw_wire_receive(struct sw_wire *wire, struct sw_msg *ret) {
    static _Thread_local _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    struct pollfd poll_fd = {.fd = wire->socket, .events = POLLIN};
    if (poll(&poll_fd, 1, SW_WIRE_TIMEOUT_MS) <= 0)
        return -1;
    if (sw_packet_receive(wire->socket, packet, &bytes, fds, &n_fds) < 0 || bytes == 0)
        return 0;
    SW_ASSERT(n_fds == 0);
    SW_ASSERT(sw_msg_decode(ret, packet, bytes, NULL) == 0);
    return 1;
}

int sw_wire_await(struct sw_wire *wire, uint32_t seq, struct sw_msg *ret) {
    struct sw_err err;
    const int rc = sw_wire_receive(wire, ret);
    SW_ASSERT(rc >= 0);
    if (rc == 0)
        return -SW_ECONN;
    SW_ASSERT(ret->header.seq == seq);
    if (ret->header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &ret->u.error);
    return err.code;
}

int sw_wire_call(struct sw_wire *wire, struct sw_msg *msg, const int *fds, unsigned n_fds) {
    return sw_wire_await(wire, sw_wire_send(wire, msg, fds, n_fds), msg);
}

bool sw_wire_is_closed(struct sw_wire *wire) {
    struct sw_msg msg;
    int rc;
    while ((rc = sw_wire_receive(wire, &msg)) > 0)
        continue;
    return rc == 0;
}

int sw_wire_hello(struct sw_wire *wire, uint32_t version) {
    struct sw_msg msg = {.header = {.type = SW_MSG_HELLO}};
    wire->version = (uint16_t)version;
    msg.u.hello.version = version;
    sw_msg_set_text(msg.u.hello.client, sizeof msg.u.hello.client, "test \"wire\"\n");
    memcpy(msg.u.hello.token, wire->token, sizeof wire->token);
    const int rc = sw_wire_call(wire, &msg, NULL, 0);
    SW_ASSERT(rc != 0 || msg.header.type == SW_MSG_HELLO_OK);
    if (rc == 0)
        memcpy(wire->token, msg.u.hello_ok.token, sizeof wire->token);
    return rc;
}

bool sw_wire_resume(struct sw_wire *wire, const char *path) {
    const struct sw_wire before = *wire;
    SW_ASSERT(sw_wire_connect(wire, path));
    wire->seq = before.seq;
    memcpy(wire->token, before.token, sizeof wire->token);
    SW_ASSERT(sw_wire_hello(wire, before.version) == 0);
    return memcmp(wire->token, before.token, sizeof wire->token) == 0;
}

int sw_wire_mem_open(struct sw_wire *wire, uint32_t mem, uint32_t kind, uint32_t n_parts, uint32_t once,
                     uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_OPEN}};
    msg.u.mem_open =
        (struct sw_msg_mem_open){.mem = mem, .kind = kind, .n_parts = n_parts, .once = once, .bytes = bytes};
    return sw_wire_call(wire, &msg, NULL, 0);
}

int sw_wire_mem_parts(struct sw_wire *wire, uint32_t mem, uint32_t first, uint32_t count, uint64_t part_bytes, int fd,
                      unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    struct sw_msg msg = {.header = {.version = wire->version, .type = SW_MSG_MEM_PARTS, .seq = ++wire->seq}};
    msg.u.mem_parts = (struct sw_msg_mem_parts){.mem = mem, .first = first, .count = count};
    for (unsigned i = 0; i < SW_PROTO_MAX_FDS; i++)
        msg.u.mem_parts.part_bytes[i] = part_bytes;
    SW_ASSERT(sw_wire_send_raw(wire, packet, sw_msg_encode(&msg, packet), fd, n_fds));
    return sw_wire_await(wire, wire->seq, &msg);
}

int sw_wire_mem_close(struct sw_wire *wire, uint32_t mem) {
    struct sw_msg msg = {.header = {.type = SW_MSG_MEM_CLOSE}};
    msg.u.mem_close.mem = mem;
    return sw_wire_call(wire, &msg, NULL, 0);
}

int sw_wire_mem(struct sw_wire *wire, uint32_t mem, int fd, uint64_t bytes, bool once) {
    const int rc = sw_wire_mem_open(wire, mem, SW_MEM_MEMFD, 1, once, bytes);
    return rc < 0 ? rc : sw_wire_mem_parts(wire, mem, 0, 1, bytes, fd, 1);
}

struct sw_msg sw_wire_spill_msg(uint32_t mem, uint64_t offset, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL}};
    msg.u.spill = (struct sw_msg_spill){.mem = mem, .offset = offset, .bytes = bytes};
    return msg;
}

int sw_wire_spill(struct sw_wire *wire, uint32_t mem, uint64_t offset, uint64_t bytes, struct sw_region_id *ret) {
    struct sw_msg msg = sw_wire_spill_msg(mem, offset, bytes);
    const int rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc == 0) {
        SW_ASSERT(msg.header.type == SW_MSG_RESULT && msg.u.result.raw_bytes == bytes);
        *ret = (struct sw_region_id){.slot = msg.u.result.slot, .gen = msg.u.result.gen};
    }
    return rc;
}

struct sw_msg sw_wire_restore_msg(struct sw_region_id id, uint32_t mem, uint64_t offset, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE}};
    msg.u.restore =
        (struct sw_msg_restore){.slot = id.slot, .gen = id.gen, .mem = mem, .offset = offset, .bytes = bytes};
    return msg;
}

int sw_wire_restore(struct sw_wire *wire, struct sw_region_id id, uint32_t mem, uint64_t offset, uint64_t bytes) {
    struct sw_msg msg = sw_wire_restore_msg(id, mem, offset, bytes);
    const int rc = sw_wire_call(wire, &msg, NULL, 0);
    SW_ASSERT(rc != 0 || msg.header.type == SW_MSG_RESULT);
    return rc;
}

struct sw_msg sw_wire_spill_batch_msg(uint32_t mem, uint32_t n, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_SPILL_BATCH}};
    msg.u.spill_batch.mem = mem;
    msg.u.spill_batch.count = n;
    for (uint32_t i = 0; i < n; i++) {
        msg.u.spill_batch.offset[i] = i * bytes;
        msg.u.spill_batch.bytes[i] = bytes;
    }
    return msg;
}

struct sw_msg sw_wire_restore_batch_msg(uint32_t mem, const struct sw_region_id *ids, uint32_t n, uint64_t bytes) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESTORE_BATCH}};
    msg.u.restore_batch.mem = mem;
    msg.u.restore_batch.count = n;
    for (uint32_t i = 0; i < n; i++) {
        msg.u.restore_batch.slot[i] = ids[i].slot;
        msg.u.restore_batch.gen[i] = ids[i].gen;
        msg.u.restore_batch.offset[i] = i * bytes;
        msg.u.restore_batch.bytes[i] = bytes;
    }
    return msg;
}

int sw_wire_spill_batch(struct sw_wire *wire, uint32_t mem, uint32_t n, uint64_t bytes, struct sw_region_id *ret_ids) {
    struct sw_msg msg = sw_wire_spill_batch_msg(mem, n, bytes);
    const int rc = sw_wire_call(wire, &msg, NULL, 0);
    SW_ASSERT(rc != 0 || (msg.header.type == SW_MSG_RESULT_BATCH && msg.u.result_batch.count == n));
    for (uint32_t i = 0; rc == 0 && i < n; i++)
        ret_ids[i] = (struct sw_region_id){msg.u.result_batch.slot[i], msg.u.result_batch.gen[i]};
    return rc;
}

int sw_wire_drop(struct sw_wire *wire, struct sw_region_id id) {
    struct sw_msg msg = {.header = {.type = SW_MSG_DROP}};
    msg.u.drop = (struct sw_msg_drop){.slot = id.slot, .gen = id.gen};
    return sw_wire_call(wire, &msg, NULL, 0);
}

int sw_wire_query(struct sw_wire *wire, struct sw_region_id id, struct sw_msg_region *ret) {
    struct sw_msg msg = {.header = {.type = SW_MSG_QUERY}};
    msg.u.query = (struct sw_msg_query){.slot = id.slot, .gen = id.gen};
    const int rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc == 0)
        *ret = msg.u.region;
    return rc;
}

int sw_wire_status(struct sw_wire *wire, struct sw_msg_status_ok *ret) {
    struct sw_msg msg = {.header = {.type = SW_MSG_STATUS}};
    const int rc = sw_wire_call(wire, &msg, NULL, 0);
    if (rc == 0)
        *ret = msg.u.status_ok;
    return rc;
}

int sw_wire_memfd(const void *content, size_t bytes, int seals) {
    const int fd = memfd_create("spillway-test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    SW_ASSERT(bytes == 0 || fallocate(fd, 0, 0, (off_t)bytes) == 0);
    for (size_t done = 0; content && done < bytes;) {
        const ssize_t n = pwrite(fd, (const char *)content + done, bytes - done, (off_t)done);
        SW_ASSERT(n > 0);
        done += (size_t)n;
    }
    SW_ASSERT(seals == 0 || fcntl(fd, F_ADD_SEALS, seals) == 0);
    return fd;
}

int sw_wire_content_memfd(size_t bytes, enum sw_content kind, uint64_t seed, int seals) {
    uint8_t *content = malloc(bytes);
    SW_ASSERT(content);
    sw_content_fill(content, bytes, kind, seed);
    const int fd = sw_wire_memfd(content, bytes, seals);
    free(content);
    return fd;
}

bool sw_wire_memfd_holds(int fd, size_t bytes, enum sw_content kind, uint64_t seed) {
    uint8_t *content = malloc(bytes), *found = malloc(bytes);
    SW_ASSERT(content && found);
    sw_content_fill(content, bytes, kind, seed);
    const bool same = pread(fd, found, bytes, 0) == (ssize_t)bytes && memcmp(found, content, bytes) == 0;
    free(content);
    free(found);
    return same;
}
