/* results.h - the results of a packet's builds, reads or ids, and the reply with them: RESULTS in version 10, else the
 * reply that version 9 has for the request (results9.h).
 *
 * Invariant: a reply borrows its arrays from struct sw_results_reply, and copies everything else. thread: loop. */
#ifndef SW_DAEMON_RESULTS_H
#define SW_DAEMON_RESULTS_H

#include "daemon/session/session.h"
#include "ipc/dispatch.h"
#include "spill/engine.h"

/* The result of one build, read or id. Texts are static; NULL: none. */
struct sw_result {
    uint32_t number; /* the client's; 0 for an id */
    struct sw_region_id id;
    int code; /* 0: success */
    enum sw_scope scope;
    enum sw_durability durability;
    const char *codec, *tier, *reason, *coder, *state;
    uint64_t raw_bytes, stored_bytes;
    unsigned n_buffers; /* of a read that begins; else 0 */
    struct sw_buffer_info *buffers;
    unsigned n_frames;            /* that a read asked for */
    struct sw_wire_frame *frames; /* NULL: none has come */
};

/* The results of a packet, in its order. */
struct sw_results {
    struct sw_result *all; /* borrowed */
    unsigned n, n_failed;
    struct sw_err err; /* the first error; its text names the request */
    uint64_t service_us;
};

/* Fails the result all[i]. */
void sw_results_fail(struct sw_results *results, unsigned i, const struct sw_err *cause);

/* Fails all, with one error. */
void sw_results_fail_all(struct sw_results *results, const struct sw_err *cause);

/* Fills in a region's description. */
void sw_result_of_region(struct sw_result *ret, struct sw_region_id id, const struct sw_region_info *info);

struct sw_results_reply {
    struct sw_msg msg;
    struct sw_wire_result results[SW_PROTO_MAX_ITEMS];
    struct sw_wire_buffer buffers[SW_PROTO_MAX_ITEMS];
    struct sw_wire_frame frames[SW_PROTO_MAX_ITEMS];
    struct sw_wire_text texts[SW_PROTO_MAX_TEXTS];
    uint8_t text[sizeof((struct sw_msg_error *)NULL)->text];
};
/* Makes the reply to a request of this type, in this version. Needs at least one result that is a success. */
void sw_results_fill(struct sw_results_reply *ret, unsigned version, unsigned request,
                     const struct sw_results *results);

/* Answers a request now. Returns SW_REPLY_SENT, or the first error if all have failed. */
int sw_results_reply(struct sw_session *session, const struct sw_msg *request, const struct sw_results *results,
                     struct sw_err *err);

/* The texts of one reply, without duplicates. */
struct sw_texts {
    struct sw_wire_text *all; /* borrowed, SW_PROTO_MAX_TEXTS */
    unsigned n;
    struct sw_result last; /* most results of a reply have the texts of the one before */
    struct sw_wire_result last_wire;
};
struct sw_wire_buffer sw_wire_buffer_of(const struct sw_buffer_info *buffer, struct sw_texts *texts);
struct sw_wire_result sw_wire_result_of(const struct sw_result *result, struct sw_texts *texts);

#endif
