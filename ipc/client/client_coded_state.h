/* client_coded_state.h - inside of libspillway: what the files of calls that are encoded or decoded here share:
 * client_coded.c and client_short.c. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_CODED_STATE_H
#define SW_IPC_CLIENT_CODED_STATE_H

#include "ipc/client/client_coder.h"
#include "ipc/client/client_way.h"

enum sw_coded_stage { STAGE_READY, STAGE_BEGIN, STAGE_MOVE, STAGE_GIVE_UP, STAGE_GIVEN_UP, STAGE_END, STAGE_OVER };

struct sw_coded {
    struct sw_way way;
    enum sw_coded_stage stage;
    struct sw_coder_link *link;
    void (*fall_back)(struct sw_transfer *x);
    bool is_under_way;               /* MOVE: the coder has been given something to do */
    uint32_t next_item, next_buffer; /* the next run to be added */
    uint32_t first_run;              /* the first one that is not over */
    uint32_t n_runs;                 /* that were added */
    struct sw_coder_run *runs;       /* [call->n_buffers], by the index of the buffer */
    uint64_t waits_since_us;         /* READY: for the streams; 0: not yet */
    bool is_patient;                 /* some items are committed, each by itself: only the coder can do the rest */
    bool is_short;                   /* each region is one short chunk (client_short.c) */
    bool falls_back;                 /* it cannot be done here: once nothing is left, the service does it */
    uint32_t *order;                 /* [n_runs]: the buffers in the order in which they were added */
};

static inline struct sw_coded *sw_coded_of(struct sw_way *way) {
    return SW_CONTAINER_OF(way, struct sw_coded, way);
}

static inline struct sw_coder *sw_coded_coder(const struct sw_coded *op) {
    return op->link->coder;
}

/* ---- client_short.c: calls whose regions are one short chunk each ---- */

/* Returns whether all regions of the call are so short that each is one packet's matter. */
bool sw_short_suits(const struct sw_transfer *x);
/* Sends a packet about a slot's buffer. Returns false if its time has not come. */
bool sw_short_send(struct sw_coder_event *event);

/* ---- client_coded_state.c ---- */

/* Checks the service's data about a frame against the frame's codec: the device relies on it. */
bool sw_coded_take_layout(struct sw_frame_layout *ret, const struct sw_wire_frame *frame, uint64_t room_bytes);
/* Ends an event that is not sent. */
void sw_coded_drop_event(const struct sw_coded *op, struct sw_coder_event *event, int code, const char *why);
/* Returns whether an event must not be sent any more, and ends it then. */
bool sw_coded_refuse_event(const struct sw_coded *op, struct sw_coder_event *event);
/* The length of a buffer's chunks, if it is spilled. */
uint32_t sw_coded_chunk_bytes(const struct sw_way *way, const struct sw_item_buffer *b);

#endif
