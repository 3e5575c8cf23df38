/* play.h - a daemon that a thread of the test plays, packet by packet, for the client library; and a GPU that the test
 * plays.
 *
 * What the daemon does not expect ends the process; on the client's side a failure fails the test. One play at a time.
 * thread: functions that take a socket are the daemon's, all others the test's. */
#ifndef SW_TEST_PLAY_H
#define SW_TEST_PLAY_H

#include "ipc/client/memory.h"
#include "ipc/proto.h"
#include "ipc/spillway.h"
#include "tests/lib/scratch.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/un.h>

enum { SW_PLAY_BYTES = 10000, SW_PLAY_MAX_IN_FLIGHT = 400, SW_PLAY_MAX_PIECES = 2048 };

extern struct sw_play {
    /* The client's side. */
    struct spillway *connection;
    struct spillway_error error;
    void *data; /* a memfd's, SW_PLAY_BYTES long */
    /* While `on`, all memory is the GPU's, and every operation comes with a mark, which its stream writes at once: the
     * one of the lowest unused word. The linker puts functions of play.c in the place of memory_cuda.c's (--wrap). */
    struct {
        bool on;
        struct sw_mark_page *page;
        unsigned n_held;            /* references to marks */
        uint32_t n_parts;           /* descriptors that all memory comes with; part i has i + 1 bytes */
        const void *memory;         /* of the last one */
        struct CUstream_st *stream; /* that the last operation follows */
        unsigned n_pages;           /* ORDER_PAGE packets that the daemon has had, and answered with OK, but for: */
        unsigned n_refused;         /* the first ones, with an error */
        bool has_page;              /* on this connection; a request with a mark that comes before ends the process */
    } gpu;
    uid_t stranger; /* the user who serves the socket, as the client sees it; 0: this one */
    sem_t go;       /* the test lets the daemon go on */
    /* play.c's own, but for the address. */
    struct sockaddr_un address;
    char folder[SW_TEST_PATH_BYTES];
    int listener;
    unsigned n_fds; /* of the process, before the client was there */
    pthread_t thread;
    void (*serve)(int socket);
} sw_play;

/* ---- the daemon -------------------------------------------------------------------------------------------------- */

/* serve: one connection's part; the socket is closed after it. */
void sw_play_start(void (*serve)(int socket));
/* The daemon's part must have come to its end. */
void sw_play_stop(void);

/* Receives the next request. An ORDER_PAGE is answered here. Returns false if the client is gone. Its arrays stay until
 * eight requests later. */
bool sw_play_get(int socket, struct sw_msg *ret);
/* The next request must be of that type. */
void sw_play_expect(int socket, struct sw_msg *ret, unsigned type);
/* Until the client hangs up; it must send nothing more. */
void sw_play_expect_end(int socket);
/* A MEM_CLOSE of that memory, which goes well. */
void sw_play_expect_mem_close(int socket, uint32_t mem);
/* A DISCARD of that slot, which goes well. */
void sw_play_expect_drop(int socket, uint32_t slot);

void sw_play_put(int socket, struct sw_msg *msg, unsigned type, uint32_t seq);
void sw_play_put_ok(int socket, uint32_t seq);
void sw_play_put_error(int socket, uint32_t seq, const char *name, enum sw_scope scope, const char *text);
void sw_play_put_result(int socket, uint32_t seq, uint32_t slot, uint64_t raw_bytes);
/* RESULTS of regions first_slot, first_slot + 1, ..., with all of these bytes; and of as many that are discarded. */
void sw_play_put_batch(int socket, uint32_t seq, uint32_t count, uint32_t first_slot, uint64_t raw_bytes);
void sw_play_put_discarded(int socket, uint32_t seq, uint32_t count);
/* Instead of an answer. */
void sw_play_hang_up(int socket, uint32_t seq);

/* Takes HELLO in and answers it. */
void sw_play_greet(int socket);
void sw_play_greet_with(int socket, uint32_t max_in_flight, uint32_t max_pieces);
/* Takes the three packets of a spill of all data in; returns the seq of the first. And answers them. */
uint32_t sw_play_take_spill(int socket);
void sw_play_put_spilled(int socket, uint32_t first_seq, uint32_t slot);
/* Receives the packets that register a memory; returns the seq of the first packet, its number in *ret_mem. */
uint32_t sw_play_take_registration(int socket, uint32_t *ret_mem);
/* The same, which is refused with EIMPORT: the client closes the memory. */
void sw_play_refuse_registration(int socket);
/* The same, which goes well; returns the memory's number. */
uint32_t sw_play_register(int socket);

/* ---- the client -------------------------------------------------------------------------------------------------- */

/* Makes the data, starts the daemon and connects; and the end of both, in which nothing of the library may be left, no
 * descriptor either. */
void sw_play_open(void (*serve)(int socket));
void sw_play_close(void);
/* Opens with the codec in the process, and returns memory of `bytes` bytes, which the caller frees. */
uint8_t *sw_play_open_coded(void (*serve)(int socket), size_t bytes);
/* The connection's only coder. Other threads go on with a connection that has one: it is looked at within
 * sw_client_enter(). */
struct sw_coder *sw_play_coder(void);
/* Makes the data of a connection that was opened without sw_play_open(). */
void sw_play_make_data(void);
/* Starts a spill of all data; and of one buffer, with flags of a request. */
struct spillway_ticket *sw_play_spill(void);
struct spillway_ticket *sw_play_spill_of(void *data, uint64_t bytes, uint32_t flags);
/* rc and sw_play.error are that error; its text contains `text`. */
void sw_play_ck_error(int rc, int code, enum spillway_scope scope, const char *text);

#endif
