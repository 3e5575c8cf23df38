/* The client library against a daemon played by a thread of the test, which answers late, out of order, wrongly, or not
 * at all. */
#include "base/alloc.h"
#include "base/assert.h"
#include "ipc/memory.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "ipc/staging.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include <check.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BYTES = 10000, MAX_IN_FLIGHT = 400 };

/* ---- the played daemon ------------------------------------------------------------------------------------------- */

static struct fake {
    char folder[SW_TEST_PATH_BYTES];
    struct sockaddr_un address;
    int listener;
    pthread_t thread;
    void (*serve)(int socket); /* one connection's part; the socket is closed after it */
    sem_t go;                  /* the test lets the daemon go on */
} fake;

static void *run(void *arg) {
    (void)arg;
    const int socket = accept(fake.listener, NULL, NULL);
    SW_ASSERT(socket >= 0);
    fake.serve(socket);
    (void)close(socket);
    return NULL;
}

static void start(void (*serve)(int socket)) {
    sw_test_folder(fake.folder);
    fake.address.sun_family = AF_UNIX;
    (void)snprintf(fake.address.sun_path, sizeof fake.address.sun_path, "%s/s", fake.folder);
    fake.listener = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(fake.listener, (const struct sockaddr *)&fake.address, sizeof fake.address), 0);
    ck_assert_int_eq(listen(fake.listener, 1), 0);
    ck_assert_int_eq(sem_init(&fake.go, 0, 0), 0);
    fake.serve = serve;
    ck_assert_int_eq(pthread_create(&fake.thread, NULL, run, NULL), 0);
}

/* The daemon's part must have come to its end. */
static void stop(void) {
    ck_assert_int_eq(pthread_join(fake.thread, NULL), 0);
    (void)close(fake.listener);
    (void)unlink(fake.address.sun_path);
    (void)rmdir(fake.folder);
}

/* Next request; false if the client is gone. */
static bool get(int socket, struct sw_msg *ret) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
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

static void expect(int socket, struct sw_msg *ret, unsigned type) {
    SW_ASSERT(get(socket, ret) && ret->header.type == type);
}

static void put(int socket, struct sw_msg *msg, unsigned type, uint32_t seq) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    msg->header.type = (uint16_t)type;
    msg->header.seq = seq;
    const size_t bytes = sw_msg_encode(msg, packet);
    (void)sw_packet_send(socket, packet, bytes, NULL, 0);
}

static void put_ok(int socket, uint32_t seq) {
    struct sw_msg msg = {0};
    put(socket, &msg, SW_MSG_OK, seq);
}

static void put_error(int socket, uint32_t seq, const char *name, enum sw_scope scope, const char *text) {
    struct sw_msg msg = {.u.error = {.scope = (uint32_t)scope, .cuda = 700}};
    sw_msg_set_text(msg.u.error.name, sizeof msg.u.error.name, name);
    sw_msg_set_text(msg.u.error.text, sizeof msg.u.error.text, text);
    put(socket, &msg, SW_MSG_ERROR, seq);
}

static void put_result(int socket, uint32_t seq, uint32_t slot, uint64_t raw_bytes) {
    struct sw_msg msg = {
        .u.result = {.slot = slot, .gen = 9, .raw_bytes = raw_bytes, .stored_bytes = 5, .service_us = 7}};
    sw_msg_set_text(msg.u.result.codec, sizeof msg.u.result.codec, "sixteen letters!");
    sw_msg_set_text(msg.u.result.tier, sizeof msg.u.result.tier, "host");
    sw_msg_set_text(msg.u.result.reason, sizeof msg.u.result.reason, "pays");
    put(socket, &msg, SW_MSG_RESULT, seq);
}

static void greet_with(int socket, uint32_t max_in_flight) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION, .max_in_flight = max_in_flight}};
    expect(socket, &msg, SW_MSG_HELLO);
    SW_ASSERT(msg.u.hello.version == SW_PROTO_VERSION && msg.header.seq != 0);
    put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

static void greet(int socket) {
    greet_with(socket, MAX_IN_FLIGHT);
}

/* Takes the three packets of a spill in; returns the seq of the first. */
static uint32_t take_spill(int socket) {
    struct sw_msg open, parts, spill;
    expect(socket, &open, SW_MSG_MEM_OPEN);
    expect(socket, &parts, SW_MSG_MEM_PARTS);
    expect(socket, &spill, SW_MSG_SPILL);
    SW_ASSERT(open.u.mem_open.once == 1 && open.u.mem_open.mem == spill.u.spill.mem);
    SW_ASSERT(parts.header.seq == open.header.seq + 1 && spill.header.seq == open.header.seq + 2);
    SW_ASSERT(spill.u.spill.bytes == BYTES && spill.u.spill.flags == 0);
    return open.header.seq;
}

static void put_spilled(int socket, uint32_t first_seq, uint32_t slot) {
    put_ok(socket, first_seq);
    put_ok(socket, first_seq + 1);
    put_result(socket, first_seq + 2, slot, BYTES);
}

/* Until the client hangs up: what it still says must be nothing. */
static void expect_end(int socket) {
    struct sw_msg msg;
    SW_ASSERT(!get(socket, &msg));
}

/* ---- the played GPU ---------------------------------------------------------------------------------------------- */

/* While `on`, all memory is the GPU's, and every operation comes with an event. The linker puts these functions in the
 * place of memory_cuda.c's (--wrap). */
struct sw_cuda_event {
    bool held;
    uint8_t handle[SW_MEM_HANDLE_BYTES];
};

static struct {
    bool on;
    struct sw_cuda_event events[2];
} gpu = {.events = {{.handle = "first"}, {.handle = "second"}}};

int __wrap_sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *memory, uint64_t bytes,
                          struct sw_err *err);
int __wrap_sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const void *memory, struct CUstream_st *stream,
                         struct sw_err *err);
const uint8_t *__wrap_sw_cuda_event_handle(const struct sw_cuda_event *event);
void __wrap_sw_cuda_event_release(struct sw_cuda_event *event);

int __wrap_sw_cuda_export(struct sw_export *ret, struct sw_cuda **cuda, const void *memory, uint64_t bytes,
                          struct sw_err *err) {
    (void)cuda, (void)memory, (void)err;
    ret->kind = SW_MEM_CUDA_IPC;
    ret->bytes = bytes;
    return gpu.on;
}

int __wrap_sw_cuda_order(struct sw_export *e, struct sw_cuda **cuda, const void *memory, struct CUstream_st *stream,
                         struct sw_err *err) {
    (void)cuda, (void)memory, (void)stream, (void)err;
    e->event = &gpu.events[gpu.events[0].held];
    ck_assert(!e->event->held);
    e->event->held = true;
    return 0;
}

const uint8_t *__wrap_sw_cuda_event_handle(const struct sw_cuda_event *event) {
    ck_assert(event->held);
    return event->handle;
}

void __wrap_sw_cuda_event_release(struct sw_cuda_event *event) {
    if (!event)
        return;
    ck_assert(event->held);
    event->held = false;
}

/* Takes the two packets of a spill that waits for the event of that name; returns the seq of the first. */
static uint32_t take_gpu_spill(int socket, const char *event) {
    struct sw_msg open, spill;
    expect(socket, &open, SW_MSG_MEM_OPEN);
    expect(socket, &spill, SW_MSG_SPILL);
    SW_ASSERT(open.u.mem_open.kind == SW_MEM_CUDA_IPC && open.u.mem_open.mem == spill.u.spill.mem);
    SW_ASSERT(spill.u.spill.flags == SW_REQ_EVENT && strcmp((const char *)spill.u.spill.event, event) == 0);
    return open.header.seq;
}

/* ---- the client's side ------------------------------------------------------------------------------------------- */

static struct spillway *connection;
static struct spillway_error error;
static void *data;

static void make_data(void) {
    const int fd = memfd_create("client", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, BYTES) == 0);
    data = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
}

static void open_to(void (*serve)(int socket)) {
    make_data();
    start(serve);
    ck_assert_int_eq(spillway_open(&connection, fake.address.sun_path, &error), 0);
    ck_assert_int_eq(error.code, 0);
}

static void close_all(void) {
    spillway_close(connection);
    connection = NULL;
    stop();
    ck_assert_int_eq(sw_alloc_live(), 0);
}

static struct spillway_ticket *spill(void) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(connection, data, BYTES, NULL, &ticket, &error), 0);
    ck_assert_ptr_nonnull(ticket);
    return ticket;
}

static void ck_error(int rc, int code, enum spillway_scope scope, const char *text) {
    ck_assert_int_eq(rc, -code);
    ck_assert_int_eq(error.code, rc);
    ck_assert_int_eq(error.scope, scope);
    ck_assert_str_eq(error.name, spillway_error_name(code));
    ck_assert_msg(strstr(error.text, text), "'%s' is not in '%s'", text, error.text);
}

static bool is_readable(int fd) {
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) == 1;
}

/* ---- connecting -------------------------------------------------------------------------------------------------- */

static void refuse_version(int socket) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_HELLO);
    put_error(socket, msg.header.seq, "EVERSION", SW_SCOPE_SESSION, "daemon speaks 2");
}

static void speak_another_version(int socket) {
    struct sw_msg msg;
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    expect(socket, &msg, SW_MSG_HELLO);
    msg.header.type = SW_MSG_HELLO_OK;
    const size_t bytes = sw_msg_encode(&msg, packet);
    packet[4] = SW_PROTO_VERSION + 1;
    (void)sw_packet_send(socket, packet, bytes, NULL, 0);
}

static void agree_on_another_version(int socket) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION + 1}};
    expect(socket, &msg, SW_MSG_HELLO);
    put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

static void refuse_connection(int socket) {
    put_error(socket, 0, "ELIMIT", SW_SCOPE_SESSION, "8 sessions are open");
}

static void hang_up_at_hello(int socket) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_HELLO);
}

static const struct {
    void (*serve)(int socket);
    int code;
    const char *text;
} refusals[] = {
    {refuse_version, SPILLWAY_EVERSION, "daemon speaks 2"},
    {speak_another_version, SPILLWAY_EVERSION, "is not supported"},
    {agree_on_another_version, SPILLWAY_EVERSION, "the daemon speaks protocol version"},
    {refuse_connection, SPILLWAY_ELIMIT, "8 sessions are open"},
    {hang_up_at_hello, SPILLWAY_ECONN, "closed"},
};

START_TEST(open_reports_why_not) {
    const unsigned before = sw_count_fds();
    start(refusals[_i].serve);
    const int rc = spillway_open(&connection, fake.address.sun_path, &error);
    ck_error(rc, refusals[_i].code, SPILLWAY_SCOPE_SESSION, refusals[_i].text);
    stop();
    ck_assert_uint_eq(sw_count_fds(), before);
    ck_assert_int_eq(sw_alloc_live(), 0);
}
END_TEST

START_TEST(open_needs_somebody_there) {
    char path[200];
    const unsigned before = sw_count_fds();
    ck_error(spillway_open(&connection, "/nonexistent/socket", &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION,
             "/nonexistent/socket");
    memset(path, 'x', sizeof path);
    path[sizeof path - 1] = 0;
    ck_error(spillway_open(&connection, path, &error), SPILLWAY_EINVAL, SPILLWAY_SCOPE_SESSION, "199 bytes");
    ck_assert_int_eq(spillway_open(&connection, "/nonexistent/socket", NULL), -SPILLWAY_ECONN);
    ck_assert_int_eq(setenv("SPILLWAY_SOCKET", "/nonexistent/other", 1), 0);
    ck_error(spillway_open(&connection, NULL, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "/nonexistent/other");
    ck_assert_uint_eq(sw_count_fds(), before);
}
END_TEST

/* ---- replies ----------------------------------------------------------------------------------------------------- */

static void answer_backwards(int socket) {
    greet(socket);
    const uint32_t first = take_spill(socket), second = take_spill(socket);
    put_result(socket, second + 2, 2, BYTES);
    put_ok(socket, first);
    put_ok(socket, second + 1);
    put_ok(socket, second);
    (void)sem_wait(&fake.go);
    put_result(socket, first + 2, 1, BYTES);
    put_ok(socket, first + 1);
    expect_end(socket);
}

START_TEST(replies_may_come_in_any_order) {
    struct spillway_result result;
    open_to(answer_backwards);
    struct spillway_ticket *first = spill(), *second = spill();
    ck_assert_int_eq(spillway_wait(second, -1, &result, &error), 0);
    ck_assert_uint_eq(result.region.slot, 2);
    ck_assert_uint_eq(result.region.generation, 9);
    ck_assert_uint_eq(result.raw_bytes, BYTES);
    ck_assert_uint_eq(result.stored_bytes, 5);
    ck_assert_uint_eq(result.service_us, 7);
    ck_assert_str_eq(result.codec, "sixteen letters"); /* cut, for want of room */
    ck_assert_str_eq(result.reason, "pays");
    ck_assert_str_eq(result.tier, "host");
    ck_assert_int_eq(spillway_wait(first, 0, &result, &error), -SPILLWAY_EAGAIN);
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_assert_int_eq(spillway_wait(first, -1, &result, &error), 0);
    ck_assert_uint_eq(result.region.slot, 1);
    ck_assert_int_eq(spillway_wait(second, 0, &result, &error), 0); /* again */
    ck_assert_uint_eq(result.region.slot, 2);
    spillway_ticket_free(first);
    spillway_ticket_free(second);
    close_all();
}
END_TEST

static void answer_late(int socket) {
    greet(socket);
    const uint32_t seq = take_spill(socket);
    (void)sem_wait(&fake.go);
    put_spilled(socket, seq, 1);
    expect_end(socket);
}

START_TEST(wait_gives_up_in_time) {
    struct spillway_result result;
    open_to(answer_late);
    struct spillway_ticket *ticket = spill();
    ck_error(spillway_wait(ticket, 0, &result, &error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST, "still runs");
    ck_error(spillway_wait(ticket, 30, &result, &error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST, "30 ms");
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, 60000, &result, &error), 0);
    close_all(); /* frees the ticket as well */
}
END_TEST

static void answer_status_last(int socket) {
    struct sw_msg msg;
    greet(socket);
    put_spilled(socket, take_spill(socket), 1);
    put_spilled(socket, take_spill(socket), 2);
    expect(socket, &msg, SW_MSG_STATUS);
    put(socket, &msg, SW_MSG_STATUS_OK, msg.header.seq);
    expect_end(socket);
}

/* Two reasons, then one that fills its field; the count is a lie: no more are taken than there is room for. */
static void answer_with_reasons(int socket) {
    struct sw_msg msg;
    greet(socket);
    for (uint32_t n = 2; n <= 1000; n += 998) {
        expect(socket, &msg, SW_MSG_STATUS);
        const uint32_t seq = msg.header.seq;
        sw_msg_init(&msg, SW_MSG_STATUS_OK);
        struct sw_msg_status_ok *status = &msg.u.status_ok;
        status->n_reasons = n;
        sw_msg_set_text(status->reasons, SW_PROTO_REASON_BYTES, "pays");
        sw_msg_set_text(status->reasons + SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES, "does not shrink");
        memset(status->reasons + 15 * SW_PROTO_REASON_BYTES, 'x', SW_PROTO_REASON_BYTES);
        status->reason_spills[0] = 7;
        status->reason_spills[1] = UINT64_MAX;
        status->reason_spills[15] = 15;
        put(socket, &msg, SW_MSG_STATUS_OK, seq);
    }
    expect_end(socket);
}

START_TEST(status_has_the_reasons) {
    struct spillway_status status;
    open_to(answer_with_reasons);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_uint_eq(status.n_reasons, 2);
    ck_assert_str_eq(status.reasons[0].text, "pays");
    ck_assert_uint_eq(status.reasons[0].spills, 7);
    ck_assert_str_eq(status.reasons[1].text, "does not shrink");
    ck_assert_uint_eq(status.reasons[1].spills, UINT64_MAX);
    ck_assert_uint_eq(status.reasons[15].spills, 0);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_uint_eq(status.n_reasons, SPILLWAY_MAX_REASONS);
    ck_assert_uint_eq(strlen(status.reasons[15].text), sizeof status.reasons[15].text - 1);
    ck_assert_uint_eq(status.reasons[15].spills, 15);
    close_all();
}
END_TEST

START_TEST(event_loop_hears_of_every_ticket) {
    struct spillway_result result;
    struct spillway_status status;
    open_to(answer_status_last);
    ck_assert_int_eq(spillway_dispatch(connection, &error), 0);
    ck_assert(!is_readable(spillway_fd(connection)));
    struct spillway_ticket *first = spill(), *second = spill();
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0); /* takes in all that comes before its reply */
    ck_assert(is_readable(spillway_fd(connection)));
    ck_assert_int_eq(spillway_dispatch(connection, &error), 2);
    ck_assert(!is_readable(spillway_fd(connection)));
    ck_assert_int_eq(spillway_dispatch(connection, &error), 0);
    ck_assert_int_eq(spillway_wait(first, 0, &result, &error), 0);
    ck_assert_int_eq(spillway_wait(second, 0, &result, &error), 0);
    close_all();
}
END_TEST

/* ---- errors ------------------------------------------------------------------------------------------------------ */

#define LONG_TEXT                                                                                                      \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "                                                \
    "sixty-four characters make one line of this text, and five lines "

static void answer_errors(int socket) {
    greet(socket);
    uint32_t seq = take_spill(socket);
    put_ok(socket, seq);
    put_ok(socket, seq + 1);
    put_error(socket, seq + 2, "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    seq = take_spill(socket);
    put_error(socket, seq + 2, "ENOENT", SW_SCOPE_REQUEST, "memory is not open");
    put_error(socket, seq + 1, "EFDS", SW_SCOPE_REQUEST, "no such memory");
    put_error(socket, seq, "EIMPORT", SW_SCOPE_DEVICE, LONG_TEXT);
    seq = take_spill(socket);
    put_ok(socket, seq);
    put_ok(socket, seq + 1);
    put_error(socket, seq + 2, "ENEWERTHANTHIS!!", (enum sw_scope)77, "");
    expect_end(socket);
}

START_TEST(errors_arrive_with_name_scope_and_text) {
    open_to(answer_errors);
    struct spillway_ticket *full = spill(), *closed = spill(), *unknown = spill();
    ck_error(spillway_wait(full, -1, NULL, &error), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "tier is full");
    ck_assert_int_eq(error.cuda, 700);
    /* The first packet's error is the cause of the others'. */
    ck_error(spillway_wait(closed, -1, NULL, &error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_DEVICE, "sixty-four");
    ck_assert_uint_eq(strlen(error.text), sizeof error.text - 1);
    ck_assert_int_eq(strncmp(error.text, LONG_TEXT, sizeof error.text - 1), 0);
    ck_error(spillway_wait(unknown, -1, NULL, &error), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    ck_assert_int_eq(spillway_wait(unknown, 0, NULL, NULL), -SPILLWAY_EPROTO);
    close_all();
}
END_TEST

static void run_out_of_memory(int socket) {
    struct sw_msg msg;
    greet(socket);
    const uint32_t seq = take_spill(socket);
    put_ok(socket, seq);
    put_ok(socket, seq + 1);
    put_error(socket, seq + 2, "ENOMEM", SW_SCOPE_REQUEST, "no memory for an operation");
    expect(socket, &msg, SW_MSG_MEM_CLOSE);
    put_error(socket, msg.header.seq, "ENOENT", SW_SCOPE_REQUEST, "memory is not open");
    expect_end(socket);
}

START_TEST(memory_of_a_spill_that_never_began_is_closed) {
    open_to(run_out_of_memory);
    struct spillway_ticket *ticket = spill();
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, &error), -SPILLWAY_ENOMEM);
    close_all();
}
END_TEST

static void die_in_mid_spill(int socket) {
    greet(socket);
    put_ok(socket, take_spill(socket));
    put_error(socket, take_spill(socket), "EIMPORT", SW_SCOPE_REQUEST, "said before the end");
    (void)sem_wait(&fake.go);
}

START_TEST(a_dead_daemon_fails_everything) {
    struct spillway_status status;
    struct spillway_ticket *none = NULL;
    open_to(die_in_mid_spill);
    struct spillway_ticket *first = spill(), *second = spill();
    ck_assert_int_eq(spillway_wait(first, 0, NULL, &error), -SPILLWAY_EAGAIN);
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_error(spillway_wait(first, -1, NULL, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "closed the connection");
    ck_error(spillway_wait(second, -1, NULL, &error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST, "before the end");
    ck_assert(is_readable(spillway_fd(connection)));
    ck_error(spillway_dispatch(connection, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    ck_error(spillway_spill(connection, data, BYTES, NULL, &none, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    ck_error(spillway_drop(connection, (struct spillway_region){1, 1}, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION,
             "");
    ck_error(spillway_status(connection, &status, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    spillway_ticket_free(first);
    close_all();
}
END_TEST

/* ---- tickets that nobody wants ----------------------------------------------------------------------------------- */

static void expect_drop(int socket, uint32_t slot) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_DROP);
    SW_ASSERT(msg.u.drop.slot == slot && msg.u.drop.gen == 9);
    put_ok(socket, msg.header.seq);
}

static void expect_consume(int socket, uint32_t slot) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_CONSUME);
    SW_ASSERT(msg.u.consume.slot == slot && msg.u.consume.gen == 9);
    put_ok(socket, msg.header.seq);
}

static void expect_drops_of_unseen_regions(int socket) {
    struct sw_msg status;
    greet(socket);
    const uint32_t running = take_spill(socket);
    put_spilled(socket, take_spill(socket), 2);
    put_spilled(socket, take_spill(socket), 3);
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_drop(socket, 2); /* was done, and its id not seen */
    (void)sem_wait(&fake.go);
    put_spilled(socket, running, 1);
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_drop(socket, 1);
    expect_end(socket);
}

START_TEST(freeing_a_ticket_drops_what_nobody_can_name) {
    struct spillway_status status;
    struct spillway_result result;
    open_to(expect_drops_of_unseen_regions);
    struct spillway_ticket *running = spill(), *unseen = spill(), *seen = spill();
    spillway_ticket_free(running);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_int_eq(spillway_wait(seen, 0, &result, &error), 0);
    ck_assert_int_eq(spillway_wait(unseen, 0, NULL, &error), 0); /* done, but the id was not asked for */
    spillway_ticket_free(unseen);
    spillway_ticket_free(seen);
    spillway_ticket_free(NULL);
    ck_assert_int_eq(spillway_dispatch(connection, &error), 0); /* wait has told of both */
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    close_all();
}
END_TEST

/* ---- limits ------------------------------------------------------------------------------------------------------ */

static void allow_two(int socket) {
    greet_with(socket, 2);
    const uint32_t first = take_spill(socket), second = take_spill(socket);
    put_spilled(socket, second, 2);
    put_spilled(socket, first, 1);
    put_spilled(socket, take_spill(socket), 3);
    expect_end(socket);
}

START_TEST(no_more_in_flight_than_the_daemon_allows) {
    struct spillway_ticket *none = NULL;
    open_to(allow_two);
    struct spillway_ticket *first = spill();
    struct spillway_ticket *second = spill();
    ck_error(spillway_spill(connection, data, BYTES, NULL, &none, &error), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST,
             "2 operations");
    ck_assert_int_eq(spillway_wait(first, -1, NULL, &error), 0);
    ck_assert_int_eq(spillway_wait(second, -1, NULL, &error), 0);
    ck_assert_int_eq(spillway_wait(spill(), -1, NULL, &error), 0);
    close_all();
}
END_TEST

static void read_nothing_for_a_while(int socket) {
    uint32_t seqs[MAX_IN_FLIGHT];
    greet(socket);
    (void)sem_wait(&fake.go);
    for (uint32_t i = 0; i < MAX_IN_FLIGHT; i++)
        seqs[i] = take_spill(socket);
    for (uint32_t i = 0; i < MAX_IN_FLIGHT; i++)
        put_spilled(socket, seqs[i], i);
    expect_end(socket);
}

START_TEST(a_full_socket_blocks_nobody) {
    struct spillway_ticket *tickets[MAX_IN_FLIGHT];
    struct spillway_result result;
    open_to(read_nothing_for_a_while);
    const unsigned before = sw_count_fds();
    for (unsigned i = 0; i < MAX_IN_FLIGHT; i++)
        tickets[i] = spill();
    ck_assert_uint_gt(sw_count_fds(), before); /* packets wait in the library, with what they carry */
    ck_error(spillway_wait(tickets[0], 10, NULL, &error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST, "");
    ck_assert_int_eq(sem_post(&fake.go), 0);
    unsigned n_done = 0;
    while (n_done < MAX_IN_FLIGHT) { /* by the event loop's way: for room in the socket, too */
        struct pollfd p = {.fd = spillway_fd(connection), .events = POLLIN};
        ck_assert_int_eq(poll(&p, 1, 60000), 1);
        const int n = spillway_dispatch(connection, &error);
        ck_assert_int_ge(n, 0);
        n_done += (unsigned)n;
    }
    ck_assert_uint_eq(sw_count_fds(), before);
    for (unsigned i = 0; i < MAX_IN_FLIGHT; i++) {
        ck_assert_int_eq(spillway_wait(tickets[i], 0, &result, &error), 0);
        ck_assert_uint_eq(result.region.slot, i);
    }
    close_all();
}
END_TEST

static void serve_one(int socket) {
    greet(socket);
    put_spilled(socket, take_spill(socket), 1);
    expect_end(socket);
}

START_TEST(a_heap_that_fails_costs_one_call) {
    struct spillway_ticket *ticket = NULL;
    int rc = -1;
    open_to(serve_one);
    const long live = sw_alloc_live();
    const unsigned before = sw_count_fds();
    unsigned long n = 1;
    for (; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_spill(connection, data, BYTES, NULL, &ticket, &error);
        sw_alloc_fail_nth(0);
        if (rc < 0) {
            ck_assert_int_eq(rc, -SPILLWAY_ENOMEM);
            ck_assert_int_eq(sw_alloc_live(), live);
            ck_assert_uint_eq(sw_count_fds(), before);
        }
    }
    ck_assert_uint_ge(n, 6);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, &error), 0);
    close_all();
}
END_TEST

/* ---- events ------------------------------------------------------------------------------------------------------ */

static void answer_gpu_spills(int socket) {
    struct sw_msg status;
    greet(socket);
    const uint32_t first = take_gpu_spill(socket, "first"), second = take_gpu_spill(socket, "second");
    expect(socket, &status, SW_MSG_STATUS);
    put_ok(socket, second);
    put_result(socket, first + 1, 1, BYTES); /* the rest of the group is due */
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect(socket, &status, SW_MSG_STATUS);
    put_error(socket, second + 1, "EIMPORT", SW_SCOPE_REQUEST, "no such event");
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    put_ok(socket, take_gpu_spill(socket, "second"));
    expect(socket, &status, SW_MSG_STATUS);
    put_ok(socket, first);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    (void)take_gpu_spill(socket, "first");
}

static void ck_held_after_status(bool first, bool second) {
    struct spillway_status status;
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0); /* takes in all that comes before its reply */
    ck_assert_int_eq(gpu.events[0].held, first);
    ck_assert_int_eq(gpu.events[1].held, second);
}

/* An event is free as soon as its operation's whole group is answered, and no sooner, whether somebody waits or not. */
START_TEST(events_are_held_until_they_are_answered) {
    open_to(answer_gpu_spills);
    gpu.on = true;
    struct spillway_ticket *first = spill(), *second = spill();
    spillway_ticket_free(second);
    ck_held_after_status(true, true);
    ck_held_after_status(true, false);
    struct spillway_ticket *third = spill();
    ck_held_after_status(false, true);
    ck_assert_int_eq(spillway_wait(first, 0, NULL, &error), 0);
    struct spillway_ticket *fourth = spill();
    ck_assert_int_eq(spillway_wait(fourth, -1, NULL, &error), -SPILLWAY_ECONN);
    ck_assert_int_eq(spillway_wait(third, 0, NULL, &error), -SPILLWAY_ECONN);
    ck_assert(!gpu.events[0].held && !gpu.events[1].held);
    close_all();
}
END_TEST

static void take_gpu_spill_only(int socket) {
    greet(socket);
    (void)take_gpu_spill(socket, "first");
    expect_end(socket);
}

START_TEST(no_event_is_lost_where_nothing_is_answered) {
    struct spillway_ticket *ticket = NULL;
    int rc = -1;
    open_to(take_gpu_spill_only);
    gpu.on = true;
    for (unsigned long n = 1; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_spill(connection, data, BYTES, NULL, &ticket, &error);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(gpu.events[0].held, rc == 0);
    }
    close_all();
    ck_assert(!gpu.events[0].held && !gpu.events[1].held);
}
END_TEST

/* ---- registered memory ------------------------------------------------------------------------------------------- */

/* Takes in what hands memory over to stay; returns the seq of the first packet, its number in *ret_mem. */
static uint32_t take_registration(int socket, uint32_t *ret_mem) {
    struct sw_msg open, parts;
    expect(socket, &open, SW_MSG_MEM_OPEN);
    expect(socket, &parts, SW_MSG_MEM_PARTS);
    SW_ASSERT(open.u.mem_open.once == 0 && open.u.mem_open.mem == parts.u.mem_parts.mem);
    SW_ASSERT(parts.header.seq == open.header.seq + 1);
    *ret_mem = open.u.mem_open.mem;
    return open.header.seq;
}

static uint32_t register_it(int socket) {
    uint32_t mem;
    const uint32_t seq = take_registration(socket, &mem);
    put_ok(socket, seq);
    put_ok(socket, seq + 1);
    return mem;
}

static void expect_mem_close(int socket, uint32_t mem) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_MEM_CLOSE);
    SW_ASSERT(msg.u.mem_close.mem == mem);
    put_ok(socket, msg.header.seq);
}

static void serve_registered(int socket) {
    struct sw_msg msg;
    greet(socket);
    const uint32_t mem = register_it(socket);
    expect(socket, &msg, SW_MSG_SPILL);
    SW_ASSERT(msg.u.spill.mem == mem && msg.u.spill.offset == 1100 && msg.u.spill.bytes == 3900);
    put_result(socket, msg.header.seq, 1, 3900);
    expect(socket, &msg, SW_MSG_RESTORE);
    SW_ASSERT(msg.u.restore.mem == mem && msg.u.restore.offset == 1000 && msg.u.restore.bytes == 4000);
    put_error(socket, msg.header.seq, "ENOMEM", SW_SCOPE_REQUEST, "closes nothing that is registered");
    put_spilled(socket, take_spill(socket), 2); /* not inside: handed over for itself */
    expect_mem_close(socket, mem);
    put_spilled(socket, take_spill(socket), 3);
    expect_end(socket);
}

START_TEST(registered_memory_is_handed_over_once) {
    struct spillway_ticket *inside = NULL, *all = NULL;
    open_to(serve_registered);
    uint8_t *first = (uint8_t *)data + 1000;
    ck_assert_int_eq(spillway_register(connection, first, 4000, &error), 0);
    ck_assert_int_eq(spillway_spill(connection, first + 100, 3900, NULL, &inside, &error), 0);
    ck_assert_int_eq(spillway_wait(inside, -1, NULL, &error), 0);
    ck_assert_int_eq(spillway_restore(connection, (struct spillway_region){1, 9}, first, 4000, NULL, 0, &all, &error),
                     0);
    ck_assert_int_eq(spillway_wait(all, -1, NULL, &error), -SPILLWAY_ENOMEM);
    ck_assert_int_eq(spillway_wait(spill(), -1, NULL, &error), 0);
    ck_assert_int_eq(spillway_unregister(connection, first, &error), 0);
    ck_assert_int_eq(spillway_wait(spill(), -1, NULL, &error), 0);
    close_all();
}
END_TEST

static void serve_two_registrations(int socket) {
    greet(socket);
    const uint32_t first = register_it(socket), second = register_it(socket);
    SW_ASSERT(first != second);
    expect_mem_close(socket, first);
    expect_end(socket);
}

START_TEST(registered_ranges_are_kept_apart) {
    int local = 0;
    open_to(serve_two_registrations);
    uint8_t *bytes = data;
    ck_assert_int_eq(spillway_register(connection, bytes + 1000, 1000, &error), 0);
    ck_assert_int_eq(spillway_register(connection, bytes + 2000, 1000, &error), 0); /* side by side */
    ck_error(spillway_register(connection, bytes + 1000, 1000, &error), SPILLWAY_EEXIST, SPILLWAY_SCOPE_REQUEST,
             "overlap");
    ck_error(spillway_register(connection, bytes, 1001, &error), SPILLWAY_EEXIST, SPILLWAY_SCOPE_REQUEST, "overlap");
    ck_error(spillway_register(connection, bytes, BYTES, &error), SPILLWAY_EEXIST, SPILLWAY_SCOPE_REQUEST, "overlap");
    ck_error(spillway_register(connection, bytes + 2999, 1, &error), SPILLWAY_EEXIST, SPILLWAY_SCOPE_REQUEST,
             "overlap");
    ck_error(spillway_register(connection, bytes, 0, &error), SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "no bytes");
    ck_error(spillway_register(connection, NULL, 1, &error), SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "NULL");
    ck_error(spillway_register(connection, &local, 1, &error), SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST, "neither");
    ck_error(spillway_unregister(connection, bytes, &error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST, "starts at");
    ck_error(spillway_unregister(connection, bytes + 1001, &error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST, "");
    ck_assert_int_eq(spillway_unregister(connection, bytes + 1000, &error), 0);
    ck_error(spillway_unregister(connection, bytes + 1000, &error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST, "");
    close_all(); /* with one still registered */
}
END_TEST

static void refuse_registration(int socket) {
    uint32_t mem;
    greet(socket);
    const uint32_t seq = take_registration(socket, &mem);
    put_ok(socket, seq);
    put_error(socket, seq + 1, "EIMPORT", SW_SCOPE_REQUEST, "cannot be opened");
    expect_mem_close(socket, mem);
    put_spilled(socket, take_spill(socket), 1);
    (void)register_it(socket);
}

START_TEST(registering_tells_what_is_wrong_with_the_memory) {
    open_to(refuse_registration);
    ck_error(spillway_register(connection, data, BYTES, &error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST,
             "cannot be opened");
    ck_assert_int_eq(spillway_wait(spill(), -1, NULL, &error), 0);
    /* The daemon goes: so does what was registered, whatever the answer. */
    ck_assert_int_eq(spillway_register(connection, data, BYTES, &error), 0);
    ck_error(spillway_unregister(connection, data, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    ck_error(spillway_unregister(connection, data, &error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST, "");
    ck_error(spillway_register(connection, data, BYTES, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    close_all();
}
END_TEST

static void register_and_leave(int socket) {
    greet(socket);
    (void)register_it(socket);
    (void)usleep(50000); /* not so early that the registration sees it */
}

/* The first that a call sees of the connection is that it is gone. */
START_TEST(unregistering_ends_with_a_connection_that_is_lost) {
    open_to(register_and_leave);
    ck_assert_int_eq(spillway_register(connection, data, BYTES, &error), 0);
    struct pollfd gone = {.fd = spillway_fd(connection), .events = POLLIN};
    ck_assert_int_eq(poll(&gone, 1, 3000), 1);
    ck_error(spillway_unregister(connection, data, &error), SPILLWAY_ECONN, SPILLWAY_SCOPE_SESSION, "");
    ck_error(spillway_unregister(connection, data, &error), SPILLWAY_ENOENT, SPILLWAY_SCOPE_REQUEST, "");
    close_all();
}
END_TEST

static void serve_registration(int socket) {
    greet(socket);
    expect_mem_close(socket, register_it(socket));
    expect_end(socket);
}

START_TEST(a_heap_that_fails_registers_nothing) {
    int rc = -1;
    open_to(serve_registration);
    const long live = sw_alloc_live();
    const unsigned before = sw_count_fds();
    unsigned long n = 1;
    for (; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_register(connection, data, BYTES, &error);
        sw_alloc_fail_nth(0);
        ck_assert(rc == 0 || rc == -SPILLWAY_ENOMEM);
        ck_assert_int_eq(sw_alloc_live(), rc ? live : live + 1);
        ck_assert_uint_eq(sw_count_fds(), before);
    }
    ck_assert_uint_ge(n, 6);
    sw_alloc_fail_nth(1);
    ck_assert_int_eq(spillway_unregister(connection, data, &error), -SPILLWAY_ENOMEM);
    sw_alloc_fail_nth(0);
    ck_assert_int_eq(spillway_unregister(connection, data, &error), 0); /* nothing had changed */
    close_all();
}
END_TEST

/* ---- transfers in pieces ----------------------------------------------------------------------------------------- */

enum { STAGED_BYTES = (int)SW_PIECE_BYTES + 1000 };

static uint32_t take_part(int socket, unsigned type, uint32_t mem, uint64_t offset, uint64_t bytes) {
    struct sw_msg msg;
    expect(socket, &msg, type);
    if (type == SW_MSG_SPILL)
        SW_ASSERT(msg.u.spill.mem == mem && msg.u.spill.offset == offset && msg.u.spill.bytes == bytes);
    else
        SW_ASSERT(msg.u.restore.mem == mem && msg.u.restore.offset == offset && msg.u.restore.bytes == bytes &&
                  msg.u.restore.flags == SW_REQ_KEEP);
    return msg.header.seq;
}

/* Both pieces of STAGED_BYTES, side by side in the arena; returns the seq of the first, the other's is the next. */
static uint32_t take_parts(int socket, unsigned type, uint32_t mem) {
    const uint32_t seq = take_part(socket, type, mem, 0, SW_PIECE_BYTES);
    SW_ASSERT(take_part(socket, type, mem, SW_PIECE_BYTES, 1000) == seq + 1);
    return seq;
}

static void put_parts(int socket, uint32_t seq) {
    put_result(socket, seq + 1, 2, 1000);
    put_result(socket, seq, 1, SW_PIECE_BYTES);
}

static void serve_failures_half_way(int socket) {
    greet(socket);
    const uint32_t mem = register_it(socket);
    struct sw_msg status;
    uint32_t seq = take_parts(socket, SW_MSG_SPILL, mem);
    put_result(socket, seq, 7, SW_PIECE_BYTES);
    put_error(socket, seq + 1, "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    expect_drop(socket, 7);
    put_parts(socket, take_parts(socket, SW_MSG_SPILL, mem));
    seq = take_parts(socket, SW_MSG_RESTORE, mem);
    put_error(socket, seq, "EBUSY", SW_SCOPE_REQUEST, "try later");
    put_result(socket, seq + 1, 2, 1000);
    put_parts(socket, take_parts(socket, SW_MSG_RESTORE, mem));
    expect_consume(socket, 1);
    expect_consume(socket, 2);
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_end(socket);
}

static struct spillway_ticket *spill_staged(void *heap) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(connection, heap, STAGED_BYTES, NULL, &ticket, &error), 0);
    return ticket;
}

static struct spillway_ticket *restore_staged(struct spillway_region region, void *heap) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_restore(connection, region, heap, STAGED_BYTES, NULL, 0, &ticket, &error), 0);
    return ticket;
}

START_TEST(pieces_fail_and_succeed_as_one) {
    struct spillway_result result;
    struct spillway_status status;
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    open_to(serve_failures_half_way);
    ck_error(spillway_wait(spill_staged(heap), -1, &result, &error), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST,
             "tier is full");
    ck_assert_int_eq(spillway_wait(spill_staged(heap), -1, &result, &error), 0);
    ck_assert_uint_eq(result.raw_bytes, STAGED_BYTES);
    ck_assert_uint_eq(result.stored_bytes, 10);
    ck_assert_uint_eq(result.service_us, 14);
    ck_error(spillway_wait(restore_staged(result.region, heap), -1, NULL, &error), SPILLWAY_EBUSY,
             SPILLWAY_SCOPE_REQUEST, "try later");
    ck_assert_int_eq(spillway_wait(restore_staged(result.region, heap), -1, NULL, &error), 0);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0); /* takes in what else is answered */
    close_all();
    free(heap);
}
END_TEST

static void refuse_the_arena(int socket) {
    uint32_t mem;
    greet(socket);
    const uint32_t seq = take_registration(socket, &mem);
    put_ok(socket, seq);
    put_error(socket, seq + 1, "EIMPORT", SW_SCOPE_REQUEST, "cannot be opened");
    expect_mem_close(socket, mem);
    mem = register_it(socket); /* tried anew */
    put_parts(socket, take_parts(socket, SW_MSG_SPILL, mem));
    const uint32_t lie = take_parts(socket, SW_MSG_RESTORE, mem);
    put_result(socket, lie, 1, SW_PIECE_BYTES);
    put_result(socket, lie + 1, 2, 999);
    expect_end(socket);
}

START_TEST(an_arena_may_be_refused) {
    struct spillway_result result;
    void *heap = calloc(1, STAGED_BYTES);
    ck_assert_ptr_nonnull(heap);
    open_to(refuse_the_arena);
    ck_error(spillway_wait(spill_staged(heap), -1, NULL, &error), SPILLWAY_EIMPORT, SPILLWAY_SCOPE_REQUEST,
             "cannot be opened");
    ck_assert_int_eq(spillway_wait(spill_staged(heap), -1, &result, &error), 0);
    ck_error(spillway_wait(restore_staged(result.region, heap), -1, NULL, &error), SPILLWAY_EPROTO,
             SPILLWAY_SCOPE_REGION, "another length");
    close_all();
    free(heap);
}
END_TEST

/* ---- a daemon that is none --------------------------------------------------------------------------------------- */

static void put_bytes(int socket, const void *bytes, size_t n, const int *fds, unsigned n_fds) {
    (void)sw_packet_send(socket, bytes, n, fds, n_fds);
}

static void say_noise(int socket, uint32_t seq) {
    static const uint8_t noise[100] = {'n', 'o', 'i', 's', 'e'};
    (void)seq;
    put_bytes(socket, noise, sizeof noise, NULL, 0);
}

static void say_one_byte(int socket, uint32_t seq) {
    (void)seq;
    put_bytes(socket, "x", 1, NULL, 0);
}

static void say_too_much(int socket, uint32_t seq) {
    static const uint8_t packet[SW_PROTO_MAX_PACKET_BYTES + 1];
    (void)seq;
    put_bytes(socket, packet, sizeof packet, NULL, 0);
}

static void say_too_little(int socket, uint32_t seq) {
    struct sw_msg msg = {.header = {.type = SW_MSG_RESULT, .seq = seq + 2}};
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    put_bytes(socket, packet, sw_msg_encode(&msg, packet) - 1, NULL, 0);
}

static void say_it_with_a_descriptor(int socket, uint32_t seq) {
    struct sw_msg msg = {.header = {.type = SW_MSG_OK, .seq = seq}};
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    const size_t bytes = sw_msg_encode(&msg, packet);
    put_bytes(socket, packet, bytes, &socket, 1);
}

static void say_it_twice(int socket, uint32_t seq) {
    put_ok(socket, seq);
    put_ok(socket, seq);
}

static void answer_nobody(int socket, uint32_t seq) {
    put_ok(socket, seq + 3);
}

static void answer_the_dead(int socket, uint32_t seq) {
    put_ok(socket, seq - 1);
}

static void answer_something_else(int socket, uint32_t seq) {
    struct sw_msg msg = {0};
    put(socket, &msg, SW_MSG_REGION, seq + 2);
}

static void answer_early(int socket, uint32_t seq) {
    put_result(socket, seq, 1, BYTES);
}

static void ask_back(int socket, uint32_t seq) {
    struct sw_msg msg = {0};
    put(socket, &msg, SW_MSG_SPILL, seq);
}

static void lie_about_the_length(int socket, uint32_t seq) {
    put_result(socket, seq + 2, 1, BYTES + 1);
}

static void name_a_region_of_ours(int socket, uint32_t seq) {
    put_result(socket, seq + 2, SW_COMPOSITE_SLOT, BYTES);
}

static void (*const lies[])(int socket, uint32_t seq) = {
    say_noise,    say_one_byte,         say_too_much,          say_too_little,        say_it_with_a_descriptor,
    say_it_twice, answer_nobody,        answer_the_dead,       answer_something_else, answer_early,
    ask_back,     lie_about_the_length, name_a_region_of_ours,
};
static void (*lie)(int socket, uint32_t seq);

static void serve_a_lie(int socket) {
    greet(socket);
    lie(socket, take_spill(socket));
    expect_end(socket);
}

START_TEST(garbage_ends_the_connection) {
    lie = lies[_i];
    const unsigned before = sw_count_fds();
    open_to(serve_a_lie);
    struct spillway_ticket *ticket = spill();
    ck_error(spillway_wait(ticket, -1, NULL, &error), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    ck_assert_str_ne(error.text, "");
    ck_error(spillway_drop(connection, (struct spillway_region){1, 1}, &error), SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION,
             "");
    close_all();
    ck_assert_uint_eq(sw_count_fds(), before + 1); /* the data's own */
}
END_TEST

/* ---- batches ----------------------------------------------------------------------------------------------------- */

enum { PIECES = 300 };
#define PIECE_BYTES UINT64_C(30)
static struct spillway_piece pieces[PIECES];

static void lay_out_pieces(void) {
    for (uint32_t i = 0; i < PIECES; i++)
        pieces[i] = (struct spillway_piece){
            .data = (uint8_t *)data + i * PIECE_BYTES, .bytes = PIECE_BYTES, .region = {i + 1, 9}};
}

static void put_batch(int socket, uint32_t seq, uint32_t count, uint32_t first_slot, uint64_t raw_bytes) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_RESULT_BATCH);
    msg.u.result_batch =
        (struct sw_msg_result_batch){.count = count, .raw_bytes = raw_bytes, .stored_bytes = count, .service_us = 5};
    sw_msg_set_text(msg.u.result_batch.codec, sizeof msg.u.result_batch.codec, first_slot > 1 ? "raw" : "v5t");
    sw_msg_set_text(msg.u.result_batch.tier, sizeof msg.u.result_batch.tier, "host");
    for (uint32_t i = 0; i < count; i++) {
        msg.u.result_batch.slot[i] = first_slot + i;
        msg.u.result_batch.gen[i] = 9;
    }
    put(socket, &msg, SW_MSG_RESULT_BATCH, seq);
}

/* The next packet of a spill of `count` pieces from `first` on; returns its seq. */
static uint32_t take_spill_batch(int socket, uint32_t mem, uint32_t first, uint32_t count) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_SPILL_BATCH);
    const struct sw_msg_spill_batch *m = &msg.u.spill_batch;
    SW_ASSERT(m->mem == mem && m->count == count && m->offset[0] == first * PIECE_BYTES);
    SW_ASSERT(m->offset[count - 1] == (first + count - 1) * PIECE_BYTES && m->bytes[count - 1] == PIECE_BYTES);
    SW_ASSERT(m->flags == (gpu.on ? SW_REQ_EVENT : 0));
    SW_ASSERT(!gpu.on || strcmp((const char *)m->event, "first") == 0);
    return msg.header.seq;
}

static uint32_t take_restore_batch(int socket, uint32_t first, uint32_t count, uint32_t flags) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_RESTORE_BATCH);
    const struct sw_msg_restore_batch *m = &msg.u.restore_batch;
    SW_ASSERT(m->count == count && m->flags == flags && m->slot[0] == first + 1 && m->slot[count - 1] == first + count);
    SW_ASSERT(m->gen[count - 1] == 9 && m->offset[0] == first * PIECE_BYTES && m->bytes[count - 1] == PIECE_BYTES);
    return msg.header.seq;
}

static void expect_drop_batch(int socket, uint32_t count, uint32_t first_slot) {
    struct sw_msg msg;
    expect(socket, &msg, SW_MSG_DROP_BATCH);
    const struct sw_msg_drop_batch *m = &msg.u.drop_batch;
    SW_ASSERT(m->count == count && m->slot[0] == first_slot && m->slot[count - 1] == first_slot + count - 1);
    SW_ASSERT(m->gen[count - 1] == 9);
    put_ok(socket, msg.header.seq);
}

static void start_batches(void (*serve)(int socket)) {
    open_to(serve);
    ck_assert_int_eq(spillway_register(connection, data, BYTES, &error), 0);
    lay_out_pieces();
}

static struct spillway_ticket *spill_batch(uint32_t n) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill_batch(connection, pieces, n, NULL, &ticket, &error), 0);
    return ticket;
}

static struct spillway_ticket *restore_batch(uint32_t n, unsigned flags) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_restore_batch(connection, pieces, n, NULL, flags, &ticket, &error), 0);
    return ticket;
}

/* The fake's limit of pieces: as many as two packets have, or less than one. */
static void greet_for_batches(int socket, uint32_t max_in_flight, uint32_t max_pieces) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION, .max_in_flight = max_in_flight}};
    reply.u.hello_ok.max_pieces = max_pieces;
    expect(socket, &msg, SW_MSG_HELLO);
    put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

static void serve_two_packets(int socket) {
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    const uint32_t mem = register_it(socket);
    const uint32_t first = take_spill_batch(socket, mem, 0, 256), second = take_spill_batch(socket, mem, 256, 44);
    put_batch(socket, second, 44, 257, 44 * PIECE_BYTES);
    (void)sem_wait(&fake.go);
    put_batch(socket, first, 256, 1, 256 * PIECE_BYTES);
    /* Kept until both are back. */
    put_batch(socket, take_restore_batch(socket, 0, 256, SW_REQ_KEEP), 256, 1, 256 * PIECE_BYTES);
    put_batch(socket, take_restore_batch(socket, 256, 44, SW_REQ_KEEP), 44, 257, 44 * PIECE_BYTES);
    expect_drop_batch(socket, 256, 1);
    expect_drop_batch(socket, 44, 257);
    /* One packet is all or nothing by itself. */
    put_batch(socket, take_restore_batch(socket, 0, 2, 0), 2, 1, 2 * PIECE_BYTES);
    put_batch(socket, take_restore_batch(socket, 0, 2, SW_REQ_KEEP), 2, 1, 2 * PIECE_BYTES);
    expect_end(socket);
}

START_TEST(a_batch_of_two_packets_is_one) {
    struct spillway_result result;
    start_batches(serve_two_packets);
    memset(&pieces[0].region, 0, sizeof pieces[0].region);
    struct spillway_ticket *ticket = spill_batch(PIECES);
    ck_error(spillway_wait(ticket, 20, &result, &error), SPILLWAY_EAGAIN, SPILLWAY_SCOPE_REQUEST, "");
    ck_assert_uint_eq(pieces[0].region.generation, 0);
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, &error), 0);
    spillway_ticket_free(ticket);
    for (uint32_t i = 0; i < PIECES; i++)
        ck_assert(pieces[i].region.slot == i + 1 && pieces[i].region.generation == 9);
    ck_assert_uint_eq(result.raw_bytes, PIECES * PIECE_BYTES);
    ck_assert_uint_eq(result.stored_bytes, PIECES);
    ck_assert_uint_eq(result.service_us, 5);
    ck_assert_uint_eq(result.region.generation, 0);
    ck_assert_str_eq(result.codec, "mixed");
    ck_assert_str_eq(result.tier, "host");
    ck_assert_int_eq(spillway_wait(restore_batch(PIECES, 0), -1, &result, &error), 0);
    ck_assert_int_eq(spillway_wait(restore_batch(2, 0), -1, &result, &error), 0);
    ck_assert_str_eq(result.codec, "v5t");
    ck_assert_int_eq(spillway_wait(restore_batch(2, SPILLWAY_RESTORE_KEEP), -1, &result, &error), 0);
    close_all();
}
END_TEST

static void fail_second_packets(int socket) {
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    const uint32_t mem = register_it(socket);
    uint32_t first = take_spill_batch(socket, mem, 0, 256);
    put_error(socket, take_spill_batch(socket, mem, 256, 44), "ENOSPACE", SW_SCOPE_REQUEST, "tier is full");
    put_batch(socket, first, 256, 1, 256 * PIECE_BYTES);
    expect_drop_batch(socket, 256, 1);
    first = take_restore_batch(socket, 0, 256, SW_REQ_KEEP);
    put_error(socket, take_restore_batch(socket, 256, 44, SW_REQ_KEEP), "ECHECKSUM", SW_SCOPE_REGION, "bad frame");
    put_batch(socket, first, 256, 1, 256 * PIECE_BYTES);
    expect_end(socket); /* nothing is dropped */
}

START_TEST(a_batch_fails_as_one) {
    start_batches(fail_second_packets);
    memset(&pieces[0].region, 0, sizeof pieces[0].region);
    ck_error(spillway_wait(spill_batch(PIECES), -1, NULL, &error), SPILLWAY_ENOSPACE, SPILLWAY_SCOPE_REQUEST, "full");
    ck_assert_uint_eq(pieces[0].region.generation, 0);
    lay_out_pieces();
    ck_error(spillway_wait(restore_batch(PIECES, 0), -1, NULL, &error), SPILLWAY_ECHECKSUM, SPILLWAY_SCOPE_REGION,
             "bad frame");
    close_all();
}
END_TEST

/* No more pieces at a time than the daemon allows, and no more packets. */
static void allow_few_pieces(int socket) {
    greet_for_batches(socket, 2, 100);
    const uint32_t mem = register_it(socket);
    for (uint32_t first = 0; first < PIECES; first += 100)
        put_batch(socket, take_spill_batch(socket, mem, first, 100), 100, first + 1, 100 * PIECE_BYTES);
    const uint32_t one = take_spill_batch(socket, mem, 0, 1), other = take_spill_batch(socket, mem, 0, 2);
    struct sw_msg status;
    expect(socket, &status, SW_MSG_STATUS); /* and not the third */
    put_batch(socket, one, 1, 1, PIECE_BYTES);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    const uint32_t third = take_spill_batch(socket, mem, 0, 3);
    put_batch(socket, third, 3, 4, 3 * PIECE_BYTES);
    put_batch(socket, other, 2, 2, 2 * PIECE_BYTES);
    expect_end(socket);
}

START_TEST(batches_keep_to_the_daemons_limits) {
    struct spillway_status status;
    struct spillway_ticket *none = NULL;
    start_batches(allow_few_pieces);
    ck_assert_int_eq(spillway_wait(spill_batch(PIECES), -1, NULL, &error), 0);
    ck_assert_uint_eq(pieces[PIECES - 1].region.slot, PIECES);
    struct spillway_ticket *one = spill_batch(1), *other = spill_batch(2);
    ck_error(spillway_spill_batch(connection, pieces, 3, NULL, &none, &error), SPILLWAY_ELIMIT, SPILLWAY_SCOPE_REQUEST,
             "2 batches");
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_int_eq(spillway_wait(one, -1, NULL, &error), 0);
    struct spillway_ticket *third = spill_batch(3);
    ck_assert_int_eq(spillway_wait(third, -1, NULL, &error), 0);
    ck_assert_int_eq(spillway_wait(other, -1, NULL, &error), 0);
    close_all();
}
END_TEST

static void serve_gpu_batch(int socket) {
    struct sw_msg open;
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    expect(socket, &open, SW_MSG_MEM_OPEN);
    put_ok(socket, open.header.seq);
    const uint32_t first = take_spill_batch(socket, open.u.mem_open.mem, 0, 256);
    const uint32_t second = take_spill_batch(socket, open.u.mem_open.mem, 256, 44);
    put_batch(socket, first, 256, 1, 256 * PIECE_BYTES);
    struct sw_msg status;
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    (void)sem_wait(&fake.go);
    put_batch(socket, second, 44, 257, 44 * PIECE_BYTES);
    expect_end(socket);
}

START_TEST(a_batch_has_one_event) {
    struct spillway_status status;
    gpu.on = true;
    start_batches(serve_gpu_batch);
    struct spillway_ticket *ticket = spill_batch(PIECES);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert(gpu.events[0].held && !gpu.events[1].held); /* one packet is not answered yet */
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, &error), 0);
    ck_assert(!gpu.events[0].held);
    close_all();
}
END_TEST

static void drop_what_nobody_saw(int socket) {
    struct sw_msg status;
    greet_for_batches(socket, MAX_IN_FLIGHT, 256);
    const uint32_t mem = register_it(socket);
    put_batch(socket, take_spill_batch(socket, mem, 0, 10), 10, 1, 10 * PIECE_BYTES);
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_drop_batch(socket, 10, 1);
    const uint32_t first = take_spill_batch(socket, mem, 0, 256);
    (void)sem_wait(&fake.go);
    put_batch(socket, first, 256, 1, 256 * PIECE_BYTES);
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_drop_batch(socket, 256, 1); /* and no second packet */
    expect(socket, &status, SW_MSG_STATUS);
    put(socket, &status, SW_MSG_STATUS_OK, status.header.seq);
    expect_end(socket);
}

START_TEST(freeing_a_batch_drops_what_nobody_can_name) {
    struct spillway_status status;
    start_batches(drop_what_nobody_saw);
    struct spillway_ticket *done = spill_batch(10);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    spillway_ticket_free(done); /* is done, but was not waited for */
    struct spillway_ticket *running = spill_batch(PIECES);
    spillway_ticket_free(running);
    memset(pieces, 0xee, sizeof pieces); /* not looked at any more */
    ck_assert_int_eq(sem_post(&fake.go), 0);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_uint_eq(pieces[0].region.slot, 0xeeeeeeeeu);
    close_all();
}
END_TEST

static void lie_about_the_count(int socket, uint32_t seq) {
    put_batch(socket, seq, 3, 1, 2 * PIECE_BYTES);
}

static void lie_about_the_bytes(int socket, uint32_t seq) {
    put_batch(socket, seq, 2, 1, 2 * PIECE_BYTES - 1);
}

static void name_our_regions(int socket, uint32_t seq) {
    put_batch(socket, seq, 2, SW_COMPOSITE_SLOT - 1, 2 * PIECE_BYTES);
}

static void answer_with_one(int socket, uint32_t seq) {
    put_result(socket, seq, 1, 2 * PIECE_BYTES);
}

static void hang_up(int socket, uint32_t seq) {
    (void)seq;
    (void)shutdown(socket, SHUT_RDWR);
}

static const struct {
    void (*lie)(int socket, uint32_t seq);
    int code;
} batch_lies[] = {
    {lie_about_the_count, SPILLWAY_EPROTO},
    {lie_about_the_bytes, SPILLWAY_EPROTO},
    {name_our_regions, SPILLWAY_EPROTO},
    {answer_with_one, SPILLWAY_EPROTO},
    {hang_up, SPILLWAY_ECONN},
};

static void serve_a_batch_lie(int socket) {
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    lie(socket, take_spill_batch(socket, register_it(socket), 0, 2));
    expect_end(socket);
}

START_TEST(lies_about_batches_end_the_connection) {
    struct spillway_ticket *none = NULL;
    lie = batch_lies[_i].lie;
    start_batches(serve_a_batch_lie);
    ck_error(spillway_wait(spill_batch(2), -1, NULL, &error), batch_lies[_i].code, SPILLWAY_SCOPE_SESSION, "");
    ck_error(spillway_spill_batch(connection, pieces, 2, NULL, &none, &error), batch_lies[_i].code,
             SPILLWAY_SCOPE_SESSION, "");
    close_all();
}
END_TEST

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Two halves of one block of a GPU: it is opened and closed once, and one event stands for both. Returns the seq of the
 * first packet. */
static uint32_t take_buffers(int socket, unsigned type) {
    struct sw_msg open, ask, close;
    expect(socket, &open, SW_MSG_MEM_OPEN);
    expect(socket, &ask, (uint16_t)type);
    expect(socket, &close, SW_MSG_MEM_CLOSE);
    const struct sw_msg_spill_buffers *m = &ask.u.spill_buffers;
    SW_ASSERT(open.u.mem_open.once == 0 && close.u.mem_close.mem == open.u.mem_open.mem);
    SW_ASSERT(ask.header.seq == open.header.seq + 1 && close.header.seq == open.header.seq + 2);
    if (type == SW_MSG_SPILL_BUFFERS)
        SW_ASSERT(m->count == 3 && m->mem[0] == open.u.mem_open.mem && m->mem[1] == m->mem[0] &&
                  m->mem[2] == m->mem[0] && m->waits[0] && m->waits[1] && !m->waits[2] && m->bytes[1] == BYTES / 2 &&
                  m->value_type[1] == SPILLWAY_I64 && strcmp((const char *)m->event, "first") == 0);
    return open.header.seq;
}

static int start_spill_of_buffers(struct spillway_ticket **ret) {
    const struct spillway_buffer buffers[] = {
        {data, BYTES / 2, SPILLWAY_BYTES}, {(uint8_t *)data + BYTES / 2, BYTES / 2, SPILLWAY_I64}, {NULL, 0, 0}};
    return spillway_spill_buffers(connection, buffers, 3, NULL, ret, &error);
}

static void serve_buffers(int socket) {
    struct sw_msg msg;
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    const uint32_t seq = take_buffers(socket, SW_MSG_SPILL_BUFFERS);
    put_ok(socket, seq);
    put_result(socket, seq + 1, 4, BYTES);
    expect(socket, &msg, SW_MSG_STATUS); /* the client has looked, and does not believe that it is over */
    put_ok(socket, seq + 2);
    struct sw_msg status = {0};
    put(socket, &status, SW_MSG_STATUS_OK, msg.header.seq);
    expect_end(socket);
}

START_TEST(memory_of_buffers_is_closed_before_they_are_done) {
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result;
    struct spillway_status status;
    gpu.on = true;
    open_to(serve_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, 50, &result, &error), -SPILLWAY_EAGAIN);
    ck_assert_int_eq(spillway_status(connection, &status, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, &result, &error), 0);
    ck_assert_uint_eq(result.region.slot, 4);
    ck_assert(!gpu.events[0].held && !gpu.events[1].held);
    spillway_ticket_free(ticket);
    close_all();
}
END_TEST

static void fail_buffers(int socket, uint32_t seq) {
    put_error(socket, seq, "ENOMEM", SW_SCOPE_REQUEST, "cannot be mapped");
    put_error(socket, seq + 1, "ENOMEM", SW_SCOPE_REQUEST, "cannot be mapped");
    put_ok(socket, seq + 2);
}

static void lie_about_all_bytes(int socket, uint32_t seq) {
    put_result(socket, seq + 1, 1, BYTES - 1);
}

static void answer_with_a_batch(int socket, uint32_t seq) {
    put_batch(socket, seq + 1, 1, 1, BYTES);
}

static const struct {
    void (*answer)(int socket, uint32_t seq);
    int code;
} buffer_answers[] = {{fail_buffers, SPILLWAY_ENOMEM},
                      {lie_about_all_bytes, SPILLWAY_EPROTO},
                      {answer_with_a_batch, SPILLWAY_EPROTO},
                      {hang_up, SPILLWAY_ECONN}};

static void serve_bad_buffers(int socket) {
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    lie(socket, take_buffers(socket, SW_MSG_SPILL_BUFFERS));
    expect_end(socket);
}

START_TEST(buffers_that_fail) {
    struct spillway_ticket *ticket = NULL;
    lie = buffer_answers[_i].answer;
    gpu.on = true;
    open_to(serve_bad_buffers);
    ck_assert_int_eq(start_spill_of_buffers(&ticket), 0);
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, &error), -buffer_answers[_i].code);
    spillway_ticket_free(ticket);
    close_all();
    ck_assert(!gpu.events[0].held && !gpu.events[1].held);
}
END_TEST

static void serve_nothing_of_buffers(int socket) {
    struct sw_msg msg;
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    while (get(socket, &msg))
        put_ok(socket, msg.header.seq);
}

/* Whatever allocation fails: refused, and nothing of it has begun that is not ended. */
START_TEST(no_memory_for_buffers) {
    gpu.on = true;
    open_to(serve_nothing_of_buffers);
    for (unsigned nth = 1; nth < 9; nth++) {
        struct spillway_ticket *ticket = NULL;
        sw_alloc_fail_nth(nth);
        const int rc = start_spill_of_buffers(&ticket);
        sw_alloc_fail_nth(0);
        ck_assert_int_eq(rc, -SPILLWAY_ENOMEM);
    }
    close_all();
    ck_assert(!gpu.events[0].held && !gpu.events[1].held);
}
END_TEST

static void serve_bad_region(int socket) {
    struct sw_msg msg, reply = {.u.region_buffers = {.count = SW_PROTO_MAX_BUFFERS + 1}};
    greet(socket);
    expect(socket, &msg, SW_MSG_QUERY_BUFFERS);
    put(socket, &reply, SW_MSG_REGION_BUFFERS, msg.header.seq);
    expect_end(socket);
}

START_TEST(a_region_of_too_many_buffers_ends_the_connection) {
    struct spillway_buffer_info info[SPILLWAY_MAX_BUFFERS];
    uint32_t n;
    open_to(serve_bad_region);
    ck_error(spillway_query_buffers(connection, (struct spillway_region){1, 1}, info, &n, &error), SPILLWAY_EPROTO,
             SPILLWAY_SCOPE_SESSION, "");
    close_all();
}
END_TEST

/* 64 chunks, then 6. */
static void serve_a_directory(int socket) {
    greet(socket);
    for (uint32_t first = 0, n; first < 70; first += n) {
        struct sw_msg msg, reply = {.u.region_packed = {.n_chunks = 70}};
        n = first ? 6 : SW_PROTO_MAX_CHUNKS;
        expect(socket, &msg, SW_MSG_QUERY_PACKED);
        SW_ASSERT(msg.u.query_packed.slot == 1 && msg.u.query_packed.gen == 2 && msg.u.query_packed.first == first);
        reply.u.region_packed.count = n;
        for (uint32_t i = 0; i < n; i++) {
            reply.u.region_packed.offset[i] = 128 * (first + i);
            reply.u.region_packed.type[i] = SPILLWAY_F64;
            reply.u.region_packed.n_symbols[i] = first + i;
        }
        put(socket, &reply, SW_MSG_REGION_PACKED, msg.header.seq);
    }
    expect_end(socket);
}

START_TEST(a_directory_comes_in_parts) {
    struct spillway_packed_chunk chunks[80];
    uint32_t n = 0;
    open_to(serve_a_directory);
    ck_assert_int_eq(spillway_query_packed(connection, (struct spillway_region){1, 2}, chunks, 80, &n, &error), 0);
    ck_assert_uint_eq(n, 70);
    for (uint32_t i = 0; i < n; i++) {
        ck_assert_uint_eq(chunks[i].offset, 128 * i);
        ck_assert(chunks[i].type == SPILLWAY_F64 && chunks[i].n_symbols == i);
    }
    close_all();
}
END_TEST

/* More than a message has room for, more than there are, none of some, and a type and symbols that no chunk has. */
static const struct {
    uint32_t n_chunks, count, type, n_symbols;
} bad_directories[] = {
    {100, SW_PROTO_MAX_CHUNKS + 1, 0, 0}, {3, 4, 0, 0},         {3, 0, 0, 0}, {UINT32_MAX, UINT32_MAX, 0, 0},
    {3, 3, SPILLWAY_F64 + 1, 0},          {3, 3, 0, UINT32_MAX}};
static int bad_directory;

static void serve_a_bad_directory(int socket) {
    struct sw_msg msg, reply = {.u.region_packed = {.n_chunks = bad_directories[bad_directory].n_chunks,
                                                    .count = bad_directories[bad_directory].count,
                                                    .type = {0, bad_directories[bad_directory].type},
                                                    .n_symbols = {0, bad_directories[bad_directory].n_symbols}}};
    greet(socket);
    expect(socket, &msg, SW_MSG_QUERY_PACKED);
    put(socket, &reply, SW_MSG_REGION_PACKED, msg.header.seq);
    expect_end(socket);
}

START_TEST(a_directory_that_cannot_be_ends_the_connection) {
    struct spillway_packed_chunk chunks[200];
    uint32_t n;
    bad_directory = _i;
    open_to(serve_a_bad_directory);
    ck_error(spillway_query_packed(connection, (struct spillway_region){1, 1}, chunks, 200, &n, &error),
             SPILLWAY_EPROTO, SPILLWAY_SCOPE_SESSION, "");
    close_all();
}
END_TEST

static void serve_one_batch(int socket) {
    greet_for_batches(socket, MAX_IN_FLIGHT, 512);
    (void)register_it(socket);
    put_batch(socket, take_restore_batch(socket, 0, 2, 0), 2, 1, 2 * PIECE_BYTES);
    expect_end(socket);
}

START_TEST(a_heap_that_fails_costs_one_batch) {
    struct spillway_ticket *ticket = NULL;
    int rc = -1;
    start_batches(serve_one_batch);
    const long live = sw_alloc_live();
    for (unsigned long n = 1; rc < 0; n++) {
        sw_alloc_fail_nth(n);
        rc = spillway_restore_batch(connection, pieces, 2, NULL, 0, &ticket, &error);
        sw_alloc_fail_nth(0);
        if (rc == 0 && spillway_wait(ticket, 0, NULL, &error) == -SPILLWAY_ENOMEM) { /* of its packet */
            spillway_ticket_free(ticket);
            rc = -SPILLWAY_ENOMEM;
        }
        if (rc < 0) {
            ck_error(rc, SPILLWAY_ENOMEM, SPILLWAY_SCOPE_REQUEST, "");
            ck_assert_int_eq(sw_alloc_live(), live);
        }
    }
    ck_assert_int_eq(spillway_wait(ticket, -1, NULL, &error), 0);
    close_all();
}
END_TEST

START_TEST(arguments_are_checked) {
    struct spillway_ticket *none = NULL;
    open_to(serve_one);
    ck_error(spillway_restore(connection, (struct spillway_region){1, 1}, data, BYTES, NULL, 2, &none, &error),
             SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "0x2");
    ck_error(spillway_spill(connection, NULL, 1, NULL, &none, &error), SPILLWAY_EINVAL, SPILLWAY_SCOPE_REQUEST, "NULL");
    ck_error(spillway_spill(connection, (void *)4096, 8, NULL, &none, &error), SPILLWAY_EMEMKIND,
             SPILLWAY_SCOPE_REQUEST, "neither");
    ck_error(spillway_pack(connection, &none, 8, NULL, &none, &error), SPILLWAY_EMEMKIND, SPILLWAY_SCOPE_REQUEST,
             "neither");
    ck_error(spillway_spill(connection, data, 1 << 20, NULL, &none, &error), SPILLWAY_ERANGE, SPILLWAY_SCOPE_REQUEST,
             "mapping ends");
    ck_assert_int_eq(spillway_wait(spill(), -1, NULL, &error), 0); /* none of them cost the connection anything */
    close_all();
    spillway_close(NULL);
    ck_assert_str_eq(spillway_error_name(SPILLWAY_ENOSPACE), "ENOSPACE");
    ck_assert_str_eq(spillway_error_name(-SPILLWAY_ENOSPACE), "ENOSPACE");
    ck_assert_str_eq(spillway_error_text(-SPILLWAY_ENOSPACE), "tier is full");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_client");
    TCase *tcase = tcase_create("client");
    tcase_set_timeout(tcase, 120);
    tcase_add_loop_test(tcase, open_reports_why_not, 0, (int)(sizeof refusals / sizeof refusals[0]));
    tcase_add_test(tcase, open_needs_somebody_there);
    tcase_add_test(tcase, replies_may_come_in_any_order);
    tcase_add_test(tcase, wait_gives_up_in_time);
    tcase_add_test(tcase, status_has_the_reasons);
    tcase_add_test(tcase, event_loop_hears_of_every_ticket);
    tcase_add_test(tcase, errors_arrive_with_name_scope_and_text);
    tcase_add_test(tcase, memory_of_a_spill_that_never_began_is_closed);
    tcase_add_test(tcase, a_dead_daemon_fails_everything);
    tcase_add_test(tcase, freeing_a_ticket_drops_what_nobody_can_name);
    tcase_add_test(tcase, no_more_in_flight_than_the_daemon_allows);
    tcase_add_test(tcase, a_full_socket_blocks_nobody);
    tcase_add_test(tcase, a_heap_that_fails_costs_one_call);
    tcase_add_test(tcase, events_are_held_until_they_are_answered);
    tcase_add_test(tcase, no_event_is_lost_where_nothing_is_answered);
    tcase_add_test(tcase, registered_memory_is_handed_over_once);
    tcase_add_test(tcase, registered_ranges_are_kept_apart);
    tcase_add_test(tcase, registering_tells_what_is_wrong_with_the_memory);
    tcase_add_test(tcase, unregistering_ends_with_a_connection_that_is_lost);
    tcase_add_test(tcase, a_heap_that_fails_registers_nothing);
    tcase_add_test(tcase, pieces_fail_and_succeed_as_one);
    tcase_add_test(tcase, an_arena_may_be_refused);
    tcase_add_loop_test(tcase, garbage_ends_the_connection, 0, (int)(sizeof lies / sizeof lies[0]));
    tcase_add_test(tcase, a_batch_of_two_packets_is_one);
    tcase_add_test(tcase, a_batch_fails_as_one);
    tcase_add_test(tcase, batches_keep_to_the_daemons_limits);
    tcase_add_test(tcase, a_batch_has_one_event);
    tcase_add_test(tcase, freeing_a_batch_drops_what_nobody_can_name);
    tcase_add_test(tcase, memory_of_buffers_is_closed_before_they_are_done);
    tcase_add_loop_test(tcase, buffers_that_fail, 0, (int)(sizeof buffer_answers / sizeof buffer_answers[0]));
    tcase_add_test(tcase, no_memory_for_buffers);
    tcase_add_test(tcase, a_region_of_too_many_buffers_ends_the_connection);
    tcase_add_test(tcase, a_directory_comes_in_parts);
    tcase_add_loop_test(tcase, a_directory_that_cannot_be_ends_the_connection, 0, 6);
    tcase_add_loop_test(tcase, lies_about_batches_end_the_connection, 0,
                        (int)(sizeof batch_lies / sizeof batch_lies[0]));
    tcase_add_test(tcase, a_heap_that_fails_costs_one_batch);
    tcase_add_test(tcase, arguments_are_checked);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
