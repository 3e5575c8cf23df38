#include "tests/lib/resume_rig.h"

#include "base/assert.h"
#include "tests/lib/play.h"
#include "tests/lib/requests.h"

#include <check.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

const uint8_t sw_resume_token[16] = "of this session";
atomic_bool sw_resume_is_back;
uint32_t sw_resume_grace_ms = 600000;

void sw_resume_greet_with(int socket, bool resumed, uint32_t max_in_flight, uint32_t max_buffers) {
    struct sw_msg msg, reply = {.u.hello_ok = {.version = SW_PROTO_VERSION,
                                               .max_in_flight = max_in_flight,
                                               .max_buffers = max_buffers,
                                               .resumed = resumed,
                                               .reconnect_ms = sw_resume_grace_ms}};
    sw_play_expect(socket, &msg, SW_MSG_HELLO);
    SW_ASSERT(!resumed || memcmp(msg.u.hello.token, sw_resume_token, sizeof sw_resume_token) == 0);
    memcpy(reply.u.hello_ok.token, sw_resume_token, sizeof sw_resume_token);
    sw_play_put(socket, &reply, SW_MSG_HELLO_OK, msg.header.seq);
}

void sw_resume_greet(int socket, bool resumed) {
    sw_resume_greet_with(socket, resumed, SW_PLAY_MAX_IN_FLIGHT, 100);
}

void sw_resume_leave(int socket) {
    (void)sem_wait(&sw_play.go);
    (void)shutdown(socket, SHUT_RDWR);
}

int sw_resume_come_back(void) {
    const int again = accept(sw_play.listener, NULL, NULL);
    SW_ASSERT(again >= 0);
    sw_resume_greet(again, true);
    return again;
}

void sw_resume_expect_settled(int socket) {
    struct sw_msg msg;
    sw_play_expect(socket, &msg, SW_MSG_SETTLE);
    SW_ASSERT(msg.u.settle.type == 0);
    atomic_store(&sw_resume_is_back, true); /* before the client can have taken in all that comes */
    sw_play_put_ok(socket, msg.header.seq);
}

void sw_resume_dispatch(void) {
    struct pollfd p = {.fd = spillway_fd(sw_play.connection), .events = POLLIN};
    ck_assert_int_eq(poll(&p, 1, 60000), 1);
    ck_assert_int_ge(spillway_dispatch(sw_play.connection, &sw_play.error), 0);
}

void sw_resume_lose_connection(void) {
    ck_assert_int_eq(sem_post(&sw_play.go), 0);
    sw_resume_dispatch();
}

int sw_resume_spill(struct spillway_ticket **ret) {
    return spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES)), 1, ret, &sw_play.error);
}

int sw_resume_spill_buffers(struct spillway_ticket **ret) {
    const struct spillway_buffer buffers[] = {{.data = sw_play.data, .bytes = SW_PLAY_BYTES},
                                              {.data = sw_play.data, .bytes = SW_PLAY_BYTES}};
    return spillway_spill(sw_play.connection, SW_REQUEST(SW_SEVERAL(buffers, 2)), 1, ret, &sw_play.error);
}

struct spillway_ticket *sw_resume_spill_named(void) {
    struct spillway_ticket *ticket = NULL;
    ck_assert_int_eq(spillway_spill(sw_play.connection, SW_REQUEST(SW_ONE(sw_play.data, SW_PLAY_BYTES), .name = "name"),
                                    1, &ticket, &sw_play.error),
                     0);
    return ticket;
}
