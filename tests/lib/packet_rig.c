#include "tests/lib/packet_rig.h"

#include "base/assert.h"
#include "tests/lib/content.h"
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static void add_own_memory(struct sw_packet_rig *rig, size_t bytes) {
    rig->bytes = bytes;
    rig->fd = memfd_create("packets", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(ftruncate(rig->fd, (off_t)bytes) == 0 && fcntl(rig->fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    rig->memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, rig->fd, 0);
    rig->original = malloc(bytes);
    SW_ASSERT(rig->memory != MAP_FAILED && rig->original);
    sw_content_fill(rig->original, bytes, SW_CONTENT_RANDOM, 5);
    memcpy(rig->memory, rig->original, bytes);
    sw_packet_rig_add_memory(rig, SW_PACKET_RIG_MEM, rig->fd, bytes, false);
}

void sw_packet_rig_open(struct sw_packet_rig *ret, size_t bytes) {
    memset(ret, 0, sizeof *ret);
    sw_test_service_start_large(&ret->service);
    ret->session = sw_test_service_session(&ret->service, &ret->peer, &ret->closed);
    ret->session->version = SW_PROTO_VERSION;
    ret->last_seq = 100;
    add_own_memory(ret, bytes);
}

void sw_packet_rig_close(struct sw_packet_rig *rig) {
    sw_test_service_end(&rig->service, rig->session, &rig->closed);
    (void)close(rig->peer);
    (void)munmap(rig->memory, rig->bytes);
    (void)close(rig->fd);
    free(rig->original);
    if (rig->words)
        (void)munmap((void *)(uintptr_t)rig->words, SW_PACKET_RIG_WORDS * sizeof *rig->words);
}

uint32_t sw_packet_rig_send(struct sw_packet_rig *rig, struct sw_msg *msg, int *fds, unsigned n_fds) {
    _Alignas(SW_PROTO_ALIGN) uint8_t sent[2 * SW_PROTO_MAX_PACKET_BYTES];
    msg->header.version = msg->header.version ? msg->header.version : SW_PROTO_VERSION;
    msg->header.seq = ++rig->last_seq;
    sw_session_packet(rig->session, sent, sw_msg_encode(msg, sent), fds, n_fds);
    return rig->last_seq;
}

bool sw_packet_rig_has_reply(struct sw_packet_rig *rig) {
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes = 0;
    unsigned n_fds = 0;
    const int rc = sw_packet_receive(rig->peer, rig->received, &bytes, fds, &n_fds);
    if (rc == -SW_EAGAIN)
        return false;
    SW_ASSERT(rc == 0 && bytes > 0 && sw_msg_decode(&rig->reply, rig->received, bytes, NULL) == 0);
    SW_ASSERT(rig->reply.header.version == rig->session->version);
    return true;
}

int sw_packet_rig_await(struct sw_packet_rig *rig) {
    struct sw_err err;
    while (!sw_packet_rig_has_reply(rig))
        (void)uv_run(&rig->service.loop, UV_RUN_ONCE);
    if (rig->reply.header.type != SW_MSG_ERROR)
        return 0;
    sw_msg_to_err(&err, &rig->reply.u.error);
    return err.code;
}

int sw_packet_rig_await_seq(struct sw_packet_rig *rig, uint32_t seq) {
    const int rc = sw_packet_rig_await(rig);
    SW_ASSERT(rig->reply.header.seq == seq);
    return rc;
}

int sw_packet_rig_call_msg(struct sw_packet_rig *rig, struct sw_msg *msg) {
    return sw_packet_rig_await_seq(rig, sw_packet_rig_send(rig, msg, NULL, 0));
}

int sw_packet_rig_call(struct sw_packet_rig *rig, struct sw_test_packet *packet) {
    return sw_packet_rig_call_msg(rig, &packet->msg);
}

bool sw_packet_rig_says(const struct sw_packet_rig *rig, const char *text) {
    SW_ASSERT(rig->reply.header.type == SW_MSG_ERROR);
    return strstr((const char *)rig->reply.u.error.text, text) != NULL;
}

void sw_packet_rig_idle(struct sw_packet_rig *rig) {
    for (int turn = 0; turn < 20; turn++) {
        (void)uv_run(&rig->service.loop, UV_RUN_NOWAIT);
        (void)usleep(500);
        SW_ASSERT(!sw_packet_rig_has_reply(rig));
    }
}

void sw_packet_rig_add_memory(struct sw_packet_rig *rig, uint32_t mem, int fd, uint64_t bytes, bool once) {
    struct sw_msg open = {.header.type = SW_MSG_MEM_OPEN,
                          .u.mem_open = {.mem = mem, .kind = SW_MEM_MEMFD, .n_parts = 1, .once = once, .bytes = bytes}},
                  parts = {.header.type = SW_MSG_MEM_PARTS,
                           .u.mem_parts = {.mem = mem, .count = 1, .part_bytes = {bytes}}};
    int sent = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    SW_ASSERT(sw_packet_rig_await_seq(rig, sw_packet_rig_send(rig, &open, NULL, 0)) == 0);
    SW_ASSERT(sw_packet_rig_await_seq(rig, sw_packet_rig_send(rig, &parts, &sent, 1)) == 0);
}

void sw_packet_rig_add_page(struct sw_packet_rig *rig) {
    const size_t bytes = SW_PACKET_RIG_WORDS * sizeof *rig->words;
    struct sw_msg msg = {.header.type = SW_MSG_ORDER_PAGE, .u.order_page.bytes = bytes};
    int page = memfd_create("order", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(ftruncate(page, (off_t)bytes) == 0 && fcntl(page, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    void *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, page, 0);
    SW_ASSERT(words != MAP_FAILED);
    rig->words = words;
    SW_ASSERT(sw_packet_rig_await_seq(rig, sw_packet_rig_send(rig, &msg, &page, 1)) == 0);
}

struct sw_engine_stats sw_packet_rig_stats(struct sw_packet_rig *rig) {
    struct sw_engine_stats stats;
    sw_engine_check(rig->service.service.engine);
    sw_engine_stats(rig->service.service.engine, &stats);
    return stats;
}

void sw_packet_rig_check_rest(struct sw_packet_rig *rig, unsigned n_regions, unsigned n_open) {
    const struct sw_engine_stats stats = sw_packet_rig_stats(rig);
    const struct sw_session *session = rig->session;
    SW_ASSERT(stats.n_regions == n_regions && stats.n_ops == 0);
    SW_ASSERT(session->n_operations == 0 && session->n_buffers == 0 && session->tenant->n_operations == 0);
    SW_ASSERT(session->deferred.n == 0 && !session->closing);
    SW_ASSERT(session->opens.n_open == n_open && session->opens.numbers.n == n_open);
}
