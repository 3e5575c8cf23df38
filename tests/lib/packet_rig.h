/* packet_rig.h - a client of version 10 that speaks in packets to a session inside the test, whose engine is real.
 *
 * What does not fit aborts the test. thread: one, the loop's. */
#ifndef SW_TEST_PACKET_RIG_H
#define SW_TEST_PACKET_RIG_H

#include "tests/lib/packets.h"
#include "tests/lib/service.h"

struct sw_packet_rig {
    struct sw_test_service service;
    struct sw_session *session;
    int peer;
    bool closed;
    uint32_t last_seq;
    struct sw_msg reply; /* borrows from received */
    _Alignas(SW_PROTO_ALIGN) uint8_t received[SW_PROTO_MAX_PACKET_BYTES];
    _Atomic uint64_t *words; /* of the order page; NULL: there is none */
    int fd;                  /* a memfd, handed over as SW_PACKET_RIG_MEM */
    size_t bytes;
    uint8_t *memory, *original; /* the same bytes at first */
};
enum { SW_PACKET_RIG_MEM = 1, SW_PACKET_RIG_WORDS = 512 };

/* bytes: of its memory. owns: *ret stays where it is until the process ends. */
void sw_packet_rig_open(struct sw_packet_rig *ret, size_t bytes);
void sw_packet_rig_close(struct sw_packet_rig *rig);

/* Returns its seq. The descriptors are taken. A message without a version gets the newest one. */
uint32_t sw_packet_rig_send(struct sw_packet_rig *rig, struct sw_msg *msg, int *fds, unsigned n_fds);
/* Takes the next reply, if there is one. */
bool sw_packet_rig_has_reply(struct sw_packet_rig *rig);
/* Waits for the next reply. Returns the code of an ERROR, else 0. */
int sw_packet_rig_await(struct sw_packet_rig *rig);
/* The same, for the reply to the request with this seq: another reply fails the test. */
int sw_packet_rig_await_seq(struct sw_packet_rig *rig, uint32_t seq);
/* Sends a request and waits for its reply. Returns its code. */
int sw_packet_rig_call_msg(struct sw_packet_rig *rig, struct sw_msg *msg);
int sw_packet_rig_call(struct sw_packet_rig *rig, struct sw_test_packet *packet);
/* Whether the last reply, an ERROR, says so. */
bool sw_packet_rig_says(const struct sw_packet_rig *rig, const char *text);
/* Lets the loop run for a while; no reply comes. */
void sw_packet_rig_idle(struct sw_packet_rig *rig);

/* Hands over the first `bytes` of a memfd under a number, to stay or for one packet. */
void sw_packet_rig_add_memory(struct sw_packet_rig *rig, uint32_t mem, int fd, uint64_t bytes, bool once);
/* Hands over an order page: its words are rig->words. */
void sw_packet_rig_add_page(struct sw_packet_rig *rig);

/* Checks the books, too. */
struct sw_engine_stats sw_packet_rig_stats(struct sw_packet_rig *rig);
/* Nothing is under way; so many regions are there, and so many builds and reads are open. */
void sw_packet_rig_check_rest(struct sw_packet_rig *rig, unsigned n_regions, unsigned n_open);

#endif
