/* away_sink.h - a frame sink that works as another process does: a thread of its own reads and writes the device's
 * frame buffers, after a while, in any order, and keeps the frames.
 *
 * While it has a buffer it checks that nobody else writes to it: all of the buffer hashes to the same before and after.
 * It can be made to fail, to answer from inside the call, or to hold back until it is released. */
#ifndef SW_TESTS_MOVER_AWAY_SINK_H
#define SW_TESTS_MOVER_AWAY_SINK_H

#include "spill/mover/frame_sink.h"
#include <pthread.h>

enum { SW_AWAY_ORDERS = 32 };

/* The frames of one buffer, from its spill on. All zero at first. */
struct sw_away_frames {
    size_t n;
    struct sw_away_frame {
        uint8_t *bytes; /* NULL: never arrived */
        struct sw_frame_layout layout;
    } * frames; /* [n] */
};
void sw_away_frames_free(struct sw_away_frames *frames);

/* Every run has to lie in one of these. */
struct sw_away_run {
    struct sw_run run;
    struct sw_away_frames *frames;
};

enum sw_away_how { SW_AWAY_LATER, SW_AWAY_INSIDE, SW_AWAY_HELD };

struct sw_away_sink {
    struct sw_frame_sink sink;
    uint8_t *buffers; /* the device's frame buffers */
    uint64_t stride;
    enum sw_away_how how;  /* for what is new */
    enum sw_prefer prefer; /* of all runs */
    unsigned fail_nth;     /* the nth send or fetch from now on fails; 0: none */
    int fail_code;
    unsigned n_to_spoil; /* so many sends or fetches from now on; frames that are fetched get a wrong byte */
    unsigned n_sends, n_sent, n_fetched, n_disputed, n_chunks_fetched, n_abandoned, n_ended, n_out, n_out_of_order;
    uint64_t max_sent, max_step; /* most chunks of a send, of a fetch */

    pthread_t thread;
    pthread_mutex_t lock; /* guards all below */
    pthread_cond_t work;
    bool stop;
    uint64_t random;
    struct sw_away_order {
        enum { SW_AWAY_FREE, SW_AWAY_HELD_BACK, SW_AWAY_QUEUED, SW_AWAY_AT_WORK, SW_AWAY_DONE } state;
        bool is_send, fails, spoils;
        unsigned slot, n;
        size_t chunk;
        uint64_t at[SW_DECODE_MAX], number, hash;
        struct sw_frame_layout layouts[SW_DECODE_MAX];
        struct sw_away_run *run;
    } orders[SW_AWAY_ORDERS];
    uint64_t n_orders, n_done;
};

void sw_away_sink_init(struct sw_away_sink *sink, uint8_t *buffers, uint64_t stride, enum sw_away_how how);
/* Lets go of what it holds back. */
void sw_away_sink_release(struct sw_away_sink *sink);
void sw_away_sink_fini(struct sw_away_sink *sink);

#endif
