/* operation.h - how a request to spill or restore begins, and what its reply says: what all of them have in common,
 * batches too. thread: loop. */
#ifndef SW_DAEMON_OPERATION_H
#define SW_DAEMON_OPERATION_H

#include "daemon/session/session.h"

struct sw_operation {
    uint32_t mem; /* the client's number */
    uint32_t flags, known_flags;
    unsigned n_pieces; /* of a batch, or buffers; else 0 */
    /* Buffers: in place of mem; memory that is handed over for one operation is refused. */
    const uint32_t *mems;
    unsigned n_mems;
};

/* Checks the flags, defers the reply to `request`, finds the memory, and counts the operation until the reply is
 * finished or canceled. errors: -SW_EINVAL (flags), those of sw_session_defer_reply() and sw_memtable_begin(),
 * -SW_EDRAINING, -SW_ELIMIT, -SW_ETENANTOPS. A `once` memory is used up also if a limit refuses its operation. */
int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_operation *operation,
                       struct sw_deferred_reply **ret, struct sw_mem **ret_mem, struct sw_err *err);
/* Called back by the engine at the end of an operation that is answered by a RESULT; arg: its deferred reply. */
sw_outcome_cb sw_operation_ended;
/* Cancels the deferred reply: the request is refused with rc, which is returned. Ends the `once` memory. */
int sw_operation_refused(struct sw_deferred_reply *deferred, int rc);

/* What a reply says of a region, or of all pieces of a batch. Texts: static. */
struct sw_result {
    uint64_t raw_bytes, stored_bytes;
    uint64_t service_us; /* 0: nothing was done for this reply */
    const char *codec, *tier, *reason;
};
/* Make a RESULT of it, or a RESULT_BATCH of n pieces. */
void sw_result_fill(struct sw_msg *ret, const struct sw_result *result, struct sw_region_id id);
void sw_result_fill_batch(struct sw_msg *ret, const struct sw_result *result, const struct sw_region_id *ids,
                          uint32_t n);

#endif
