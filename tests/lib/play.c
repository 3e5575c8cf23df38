#include "tests/lib/play.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/requests.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/client/client_coder.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

struct sw_play sw_play;

/* ---- the played daemon ------------------------------------------------------------------------------------------- */

static void *run(void *arg) {
    (void)arg;
    const int socket = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(socket >= 0);
    sw_play.serve(socket);
    (void)close(socket);
    return NULL;
}

void sw_play_start(void (*serve)(int socket)) {
    sw_test_folder(sw_play.folder);
    sw_play.address.sun_family = AF_UNIX;
    (void)snprintf(sw_play.address.sun_path, sizeof sw_play.address.sun_path, "%s/s", sw_play.folder);
    sw_play.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(sw_play.listener, (const struct sockaddr *)&sw_play.address, sizeof sw_play.address), 0);
    ck_assert_int_eq(listen(sw_play.listener, 1), 0);
    ck_assert_int_eq(sem_init(&sw_play.go, 0, 0), 0);
    sw_play.serve = serve;
    ck_assert_int_eq(pthread_create(&sw_play.thread, NULL, run, NULL), 0);
}

void sw_play_stop(void) {
    ck_assert_int_eq(pthread_join(sw_play.thread, NULL), 0);
    (void)close(sw_play.listener);
    (void)unlink(sw_play.address.sun_path);
    (void)rmdir(sw_play.folder);
}

/* The last packets, from which messages borrow. */
static bool get(int socket, struct sw_msg *ret) {
    static _Alignas(SW_PROTO_ALIGN) uint8_t packets[8][SW_PROTO_MAX_PACKET_BYTES];
    static unsigned next;
    uint8_t *packet = packets[next++ % 8];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes;
    unsigned n_fds = 0;
    if (sw_packet_receive(socket, packet, &bytes, fds, &n_fds) < 0 || !bytes)
        return false;
    while (n_fds)
        (void)close(fds[--n_fds]);
    SW_ASSERT(sw_msg_decode(ret, packet, bytes, NULL) == 0);
    return true;
}

bool sw_play_get(int socket, struct sw_msg *ret) {
    while (get(socket, ret)) {
        if (ret->header.type == SW_MSG_HELLO)
            sw_play.gpu.has_page = false;
        if (ret->header.type == SW_MSG_BUILD && ret->u.build.n_chunks && ret->u.build.chunks[0].order_value)
            SW_ASSERT(sw_play.gpu.has_page);
        if (ret->header.type != SW_MSG_ORDER_PAGE)
            return true;
        SW_ASSERT(ret->u.order_page.bytes == sw_mark_page_bytes(sw_play.gpu.page));
        sw_play.gpu.n_pages++;
        sw_play.gpu.has_page = true;
        if (sw_play.gpu.n_pages > sw_play.gpu.n_refused)
            sw_play_put_ok(socket, ret->header.seq);
        else
            sw_play_put_error(socket, ret->header.seq, "ELIMIT", SW_SCOPE_REQUEST, "no room for the page");
    }
    return false;
}

void sw_play_expect(int socket, struct sw_msg *ret, unsigned type) {
    SW_ASSERT(sw_play_get(socket, ret) && ret->header.type == type);
}

void sw_play_put(int socket, struct sw_msg *msg, unsigned type, uint32_t seq) {
    _Alignas(SW_PROTO_ALIGN) uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.type = (uint16_t)type;
    msg->header.seq = seq;
    const size_t bytes = sw_msg_encode(msg, packet);
    (void)sw_packet_send(socket, packet, bytes, NULL, 0);
}

void sw_play_put_ok(int socket, uint32_t seq) {
    struct sw_msg msg = {0};
    sw_play_put(socket, &msg, SW_MSG_OK, seq);
}

void sw_play_put_error(int socket, uint32_t seq, const char *name, enum sw_scope scope, const char *text) {
    struct sw_msg msg = {.u.error = {.scope = (uint32_t)scope, .cuda = 700}};
    sw_msg_set_text(msg.u.error.name, sizeof msg.u.error.name, name);
    sw_msg_set_text(msg.u.error.text, sizeof msg.u.error.text, text);
    sw_play_put(socket, &msg, SW_MSG_ERROR, seq);
}

void sw_play_put_result(int socket, uint32_t seq, uint32_t slot, uint64_t raw_bytes) {
    static const struct sw_wire_text texts[] = {{"sixteen letters!"}, {"host"}, {"pays"}, {"daemon"}};
    const struct sw_wire_result result = {.slot = slot,
                                          .gen = 9,
                                          .codec = 1,
                                          .tier = 2,
                                          .reason = 3,
                                          .coder = 4,
                                          .raw_bytes = raw_bytes,
                                          .stored_bytes = 5};
    struct sw_msg msg = {
        .u.results = {.n_results = 1, .n_texts = 4, .service_us = 7, .results = &result, .texts = texts}};
    sw_play_put(socket, &msg, SW_MSG_RESULTS, seq);
}

void sw_play_greet_with(int socket, uint32_t max_in_flight, uint32_t max_pieces) {
    struct sw_msg msg,
        reply = {
            .u.hello_ok = {.version = SW_PROTO_VERSION, .max_in_flight = max_in_flight, .max_buffers = max_pieces}};
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    SW_ASSERT(msg.u.hello.version == SW_PROTO_VERSION && msg.header.seq != 0);
    sw_play_put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

void sw_play_greet(int socket) {
    sw_play_greet_with(socket, SW_PLAY_MAX_IN_FLIGHT, SW_PLAY_MAX_PIECES);
}

uint32_t sw_play_take_spill(int socket) {
    struct sw_msg open, parts, spill;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    sw_play_expect(socket, &spill, SW_MSG_BUILD);
    const struct sw_msg_build *m = &spill.u.build;
    SW_ASSERT(m->n_builds == 1 && m->n_buffers == 1 && m->n_chunks == 1 && m->flags == SW_REQ_ALL);
    SW_ASSERT(open.u.mem_open.once == 1 && open.u.mem_open.mem == m->chunks[0].mem);
    SW_ASSERT(parts.header.seq == open.header.seq + 1 && spill.header.seq == open.header.seq + 2);
    SW_ASSERT(m->builds[0].flags == (SW_BUILD_BEGIN | SW_BUILD_COMMIT) && m->buffers[0].raw_bytes == SW_PLAY_BYTES);
    SW_ASSERT(m->chunks[0].raw_bytes == SW_PLAY_BYTES && m->chunks[0].order_value == 0);
    return open.header.seq;
}

void sw_play_put_spilled(int socket, uint32_t first_seq, uint32_t slot) {
    sw_play_put_ok(socket, first_seq);
    sw_play_put_ok(socket, first_seq + 1);
    sw_play_put_result(socket, first_seq + 2, slot, SW_PLAY_BYTES);
}

void sw_play_expect_end(int socket) {
    struct sw_msg msg;
    SW_ASSERT(!sw_play_get(socket, &msg));
}

void sw_play_expect_mem_close(int socket, uint32_t mem) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_MEM_CLOSE);
    SW_ASSERT(msg.u.mem_close.mem == mem);
    sw_play_put_ok(socket, msg.header.seq);
}

void sw_play_expect_drop(int socket, uint32_t slot) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_DISCARD);
    SW_ASSERT(msg.u.discard.n_ids == 1 && msg.u.discard.flags == 0);
    SW_ASSERT(msg.u.discard.ids[0].slot == slot && msg.u.discard.ids[0].gen == 9);
    sw_play_put_discarded(socket, msg.header.seq, 1);
}

uint32_t sw_play_take_registration(int socket, uint32_t *ret_mem) {
    struct sw_msg open, parts;
    sw_play_expect(socket, &open, SW_MSG_MEM_OPEN);
    sw_play_expect(socket, &parts, SW_MSG_MEM_PARTS);
    SW_ASSERT(open.u.mem_open.once == 0 && open.u.mem_open.mem == parts.u.mem_parts.mem);
    SW_ASSERT(parts.header.seq == open.header.seq + 1);
    *ret_mem = open.u.mem_open.mem;
    return open.header.seq;
}

void sw_play_refuse_registration(int socket) {
    uint32_t mem;
    const uint32_t seq = sw_play_take_registration(socket, &mem);
    sw_play_put_ok(socket, seq);
    sw_play_put_error(socket, seq + 1, "EIMPORT", SW_SCOPE_REQUEST, "cannot be opened");
    sw_play_expect_mem_close(socket, mem);
}

uint32_t sw_play_register(int socket) {
    uint32_t mem;
    const uint32_t seq = sw_play_take_registration(socket, &mem);
    sw_play_put_ok(socket, seq);
    sw_play_put_ok(socket, seq + 1);
    return mem;
}

void sw_play_put_batch(int socket, uint32_t seq, uint32_t count, uint32_t first_slot, uint64_t raw_bytes) {
    static const struct sw_wire_text texts[] = {{"v5t"}, {"raw"}, {"host"}};
    struct sw_wire_result results[SW_PROTO_MAX_ITEMS];
    struct sw_msg msg = {
        .u.results = {.n_results = (uint16_t)count, .n_texts = 3, .service_us = 5, .results = results, .texts = texts}};
    for (uint32_t i = 0; i < count; i++)
        results[i] = (struct sw_wire_result){.slot = first_slot + i,
                                             .gen = 9,
                                             .codec = first_slot > 1 ? 2 : 1,
                                             .tier = 3,
                                             .raw_bytes = raw_bytes / count + (i ? 0 : raw_bytes % count),
                                             .stored_bytes = 1};
    sw_play_put(socket, &msg, SW_MSG_RESULTS, seq);
}

void sw_play_put_discarded(int socket, uint32_t seq, uint32_t count) {
    static const struct sw_wire_result results[SW_PROTO_MAX_ITEMS];
    struct sw_msg msg = {.u.results = {.n_results = (uint16_t)count, .results = results}};
    sw_play_put(socket, &msg, SW_MSG_RESULTS, seq);
}

void sw_play_hang_up(int socket, uint32_t seq) {
    (void)seq;
    (void)shutdown(socket, SHUT_RDWR);
}

/* ---- the played server's user --------------------------------------------------------------------------------------
 */

int __wrap_getsockopt(int socket, int level, int name, void *value, socklen_t *bytes);
int __real_getsockopt(int socket, int level, int name, void *value, socklen_t *bytes);

int __wrap_getsockopt(int socket, int level, int name, void *value, socklen_t *bytes) {
    const int rc = __real_getsockopt(socket, level, name, value, bytes);
    if (rc == 0 && level == SOL_SOCKET && name == SO_PEERCRED && sw_play.stranger)
        ((struct ucred *)value)->uid = sw_play.stranger;
    return rc;
}

/* ---- the played GPU ---------------------------------------------------------------------------------------------- */

int __wrap_sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *memory, uint64_t bytes,
                          struct sw_err *err);
int __wrap_sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *memory,
                         struct CUstream_st *stream, struct sw_err *err);
const struct sw_mark_page *__wrap_sw_cuda_mark_page(const struct sw_cuda *cuda);
struct sw_mark *__real_sw_mark_ref(struct sw_mark *mark);
struct sw_mark *__wrap_sw_mark_ref(struct sw_mark *mark);
void __real_sw_mark_unref(struct sw_mark *mark);
void __wrap_sw_mark_unref(struct sw_mark *mark);

int __wrap_sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *memory, uint64_t bytes,
                          struct sw_err *err) {
    (void)cuda, (void)memory;
    if (!sw_play.gpu.on)
        return 0;
    ret->kind = sw_play.gpu.n_parts ? SW_MEM_CUDA_VMM : SW_MEM_CUDA_IPC;
    ret->bytes = bytes;
    if (sw_play.gpu.n_parts && sw_export_reserve(ret, sw_play.gpu.n_parts, err) < 0)
        return -SW_ENOMEM;
    for (uint32_t i = 0; i < ret->n_parts; i++) {
        ret->fds[i] = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);
        ret->part_bytes[i] = i + 1;
    }
    return 1;
}

int __wrap_sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const struct sw_marks *known, const void *memory,
                         struct CUstream_st *stream, struct sw_err *err) {
    (void)cuda;
    sw_play.gpu.memory = memory;
    sw_play.gpu.stream = stream;
    e->mark = known && known->n > 0 ? __real_sw_mark_ref(known->marks[0]) : sw_mark_new(sw_play.gpu.page, NULL, err);
    sw_mark_write(e->mark);
    sw_play.gpu.n_held++;
    return 0;
}

const struct sw_mark_page *__wrap_sw_cuda_mark_page(const struct sw_cuda *cuda) {
    (void)cuda;
    return sw_play.gpu.on ? sw_play.gpu.page : NULL;
}

struct sw_mark *__wrap_sw_mark_ref(struct sw_mark *mark) {
    sw_play.gpu.n_held++;
    return __real_sw_mark_ref(mark);
}

void __wrap_sw_mark_unref(struct sw_mark *mark) {
    sw_play.gpu.n_held -= mark != NULL;
    __real_sw_mark_unref(mark);
}

/* ---- the client's side ------------------------------------------------------------------------------------------- */

void sw_play_make_data(void) {
    const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, SW_PLAY_BYTES) == 0);
    sw_play.data = mmap(NULL, SW_PLAY_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(sw_play.data, MAP_FAILED);
}

void sw_play_open(void (*serve)(int socket)) {
    sw_play_make_data();
    ck_assert_int_eq(sw_mark_page_get(&sw_play.gpu.page, NULL), 0);
    sw_play.n_fds = sw_count_fds();
    sw_play_start(serve);
    ck_assert_int_eq(
        spillway_open(&sw_play.connection, SW_OPTIONS(.socket_path = sw_play.address.sun_path), &sw_play.error), 0);
    ck_assert_int_eq(sw_play.error.code, 0);
}

void sw_play_close(void) {
    spillway_close(sw_play.connection);
    sw_play.connection = NULL;
    sw_play_stop();
    ck_assert_uint_eq(sw_count_fds(), sw_play.n_fds);
    ck_assert_uint_eq(sw_play.gpu.n_held, 0);
    sw_mark_page_put(sw_play.gpu.page);
    ck_assert_int_eq(sw_alloc_live(), 1); /* the page, which the process keeps */
}

uint8_t *sw_play_open_coded(void (*serve)(int socket), size_t bytes) {
    uint8_t *memory = calloc(1, bytes);
    ck_assert_ptr_nonnull(memory);
    ck_assert_int_eq(setenv("SPILLWAY_CODEC", "client", 1), 0);
    sw_play_open(serve);
    return memory;
}

struct sw_coder *sw_play_coder(void) {
    ck_assert_int_eq(sw_client_enter(sw_play.connection, NULL), 0);
    ck_assert(!sw_list_empty(&sw_play.connection->coders));
    const struct sw_coder_link *link =
        SW_CONTAINER_OF(sw_play.connection->coders.next, const struct sw_coder_link, node);
    struct sw_coder *ret = link->coder;
    sw_client_leave(sw_play.connection);
    return ret;
}

struct spillway_ticket *sw_play_spill_of(void *data, uint64_t bytes, uint32_t flags) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(
        spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(data, bytes), .flags = flags), 1, &ticket, &sw_play.error),
        0);
    ck_assert_ptr_nonnull(ticket);
    return ticket;
}

struct spillway_ticket *sw_play_spill(void) {
    return sw_play_spill_of(sw_play.data, SW_PLAY_BYTES, 0);
}

void sw_play_ck_error(int rc, int code, enum spillway_scope scope, const char *text) {
    ck_assert_int_eq(rc, -code);
    ck_assert_int_eq(sw_play.error.code, rc);
    ck_assert_int_eq(sw_play.error.scope, scope);
    ck_assert_str_eq(sw_play.error.name, spillway_error_name(code));
    ck_assert_msg(strstr(sw_play.error.text, text), "'%s' is not in '%s'", text, sw_play.error.text);
}
