/* operation.h - a packet of builds or reads, from its admission to its reply.
 *
 * - An operation has a *task* for each build or read of the packet. A task makes one or more calls of the engine, and
 *   ends when all of them have ended.
 * - The reply is sent when the last task has ended and the packet's `once` memories are unmapped.
 * - With `all` either all tasks succeed or none: the first failure cancels the others. Regions that were built until
 *   then are dropped, and reads keep the stored copies until all regions are back. Without `all` each task has its own
 *   result.
 *
 * thread: loop. */
#ifndef SW_DAEMON_OPERATION_H
#define SW_DAEMON_OPERATION_H

#include "daemon/session/results.h"
#include "daemon/session/session.h"

struct sw_operation;

/* The task of a build or read. Its caller uses the fields above the line. */
struct sw_task {
    uint32_t seq;             /* the packet's */
    unsigned index;           /* the task's place in the packet */
    struct sw_result *result; /* its id is the region's: the engine or the caller fills it in */

    /* operation.c's */
    struct sw_operation *operation;
    struct sw_open whole; /* its record, while has_number */
    struct sw_open *ends; /* the open build or read that it ends; NULL: none, or it has ended */
    unsigned n_waiting;   /* expected callbacks of the engine */
    bool has_number, is_done;
    bool reports_end; /* sw_task_ended() gets the task's result, not sw_task_moved() */
    uint8_t keep_priority;
};

/* The request of a packet. */
struct sw_operation_spec {
    bool is_build;
    bool begins;        /* at least one build or read begins */
    bool ends;          /* at least one ends; only then is the operation's success logged */
    bool only_cancels;  /* it makes no work, so no limit applies */
    bool all;           /* all end, or none */
    bool keep;          /* reads with `all`: the stored copies stay */
    bool needs_kernels; /* some of its chunks are raw bytes */
    unsigned n;         /* builds or reads, at least 1 */
    unsigned n_buffers; /* of all of them; the chunks, if those are more */
};

/* Begins an operation: defers its reply, and counts it until the reply is sent. errors: those of
 * sw_session_defer_reply(), -SW_EDRAINING, -SW_ELIMIT, -SW_ETENANTOPS, -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_operation_begin(struct sw_session *session, const struct sw_msg *request, const struct sw_operation_spec *spec,
                       struct sw_operation **ret, struct sw_err *err);

/* Returns the next task, for the build or read with this number of the client; NULL: there are no more. keep_priority:
 * set on the region when its build has ended. */
struct sw_task *sw_operation_next(struct sw_operation *operation, uint32_t number, uint8_t keep_priority);
/* With `all`, returns the error of an earlier task, after which this task must not begin; 0: none has failed. */
int sw_task_check_others(const struct sw_task *task, struct sw_err *err);
/* Converts a chunk to a range for the engine: its memory, its place, and the word that it waits for. NULL: the range of
 * an empty buffer. n: buffers of the task. errors: those of sw_memtable_begin(), sw_memtable_begin_empty() and
 * sw_orders_find(). */
int sw_task_range(struct sw_task *task, const struct sw_wire_chunk *chunk, unsigned n, struct sw_range *ret,
                  struct sw_err *err);

/* Enters the number of a whole build or read, so that the client can cancel it. errors: those of sw_opens_enter(). */
int sw_task_enter(struct sw_task *task, bool is_read, struct sw_err *err);
/* Notes that the task ends an open build or read, which has ended when the engine calls sw_task_ended(). */
void sw_task_end(struct sw_task *task, struct sw_open *open);
/* Adds the region's buffers (copied) to the reply, for a read that continues after this packet. errors: -SW_EINVAL (the
 * reply has no room for more), -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_task_report_buffers(struct sw_task *task, const struct sw_buffer_info *buffers, unsigned n, struct sw_err *err);
/* Reports result->n_frames frames, for a read that asks for frames. The caller describes them in *ret, which is all 0.
 * The reply has them if the task succeeds. errors: -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_task_report_frames(struct sw_task *task, struct sw_wire_frame **ret, struct sw_err *err);
/* Expects one more callback from the engine: sw_task_moved() after chunks, sw_task_ended() after the build or read as a
 * whole. */
void sw_task_expect(struct sw_task *task);
sw_outcome_cb sw_task_moved, sw_task_ended; /* arg: the task */
/* Notes that the engine has done the task at once. */
void sw_task_done(struct sw_task *task, const struct sw_outcome *outcome);
/* Notes that the task has failed. The engine may still call back for it. */
void sw_task_fail(struct sw_task *task, const struct sw_err *cause);
/* Notes that the task was started (rc 0), or was refused. A started task that expects no callback has ended. */
void sw_task_started(struct sw_task *task, int rc, const struct sw_err *err);
/* Cancels a task that waits for the end of its build or read. */
void sw_task_cancel(struct sw_task *task);

/* Completes the start, after the last task. Returns SW_REPLY_LATER, or the error if no task was started; the operation
 * is then gone. */
int sw_operation_go(struct sw_operation *operation, struct sw_err *err);

#endif
