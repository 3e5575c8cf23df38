/* open.h - a session's builds and reads by the client's numbers.
 *
 * - A build or read of several packets is *open*. It has a record here from its begin until the engine has ended it.
 * - A build or read of a single packet has a record here while the packet is under way, so that it can be canceled. The
 *   record is part of the packet's task (operation.h).
 * - An open build or read that is idle for service->open_ms expires: it fails, the build's stored chunks are freed, and
 *   the read's region can be restored by others. Its record stays until the client ends it, and so learns the error.
 *
 * Invariant: an open build or read of the engine has exactly one record, until the session is closed. thread: loop. */
#ifndef SW_DAEMON_OPEN_H
#define SW_DAEMON_OPEN_H

#include "daemon/session/idmap.h"
#include "spill/build.h"
#include "spill/read.h"
#include <uv.h>

struct sw_session;
struct sw_task;

enum { SW_SESSION_MAX_OPEN = 2048 }; /* open builds and reads */

struct sw_opens {
    struct sw_idmap numbers;
    struct sw_list open; /* builds and reads of several packets */
    unsigned n_open;
    uv_timer_t timer; /* runs while the list is not empty; the session closes it */
};

struct sw_open {
    struct sw_idnode node;
    struct sw_list list;    /* in `open`; in no list: of one packet */
    struct sw_task *task;   /* of the packet that ends it; NULL: no packet has ended it yet */
    struct sw_build *build; /* NULL: of one packet, or it is a read */
    struct sw_read *read;   /* NULL: of one packet, or it is a build */
    bool is_read;
};

void sw_opens_init(struct sw_session *session);
/* Frees the records that no packet ends; the others end with their packets. Call it before sw_owner_close(). */
void sw_opens_close(struct sw_session *session);

/* Makes the record of an open build or read, which counts until sw_open_end(). errors: -SW_EEXIST (the number is in
 * use), -SW_ELIMIT, -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_opens_begin(struct sw_session *session, uint32_t number, bool is_read, struct sw_open **ret, struct sw_err *err);
/* Frees a record. Call it when the engine has ended the build or read, or refused to begin it. */
void sw_open_end(struct sw_session *session, struct sw_open *open);

/* Fails the engine's build or read, if it has not ended. */
void sw_open_fail(const struct sw_open *open, const struct sw_err *cause);

/* Add and remove the record of a build or read of one packet. errors: -SW_EEXIST (the number is in use). */
int sw_opens_enter(struct sw_session *session, uint32_t number, struct sw_open *whole, struct sw_err *err);
void sw_opens_leave(struct sw_session *session, struct sw_open *whole);

/* Finds a record by the client's number. errors: -SW_ENOENT. */
int sw_opens_find(const struct sw_session *session, uint32_t number, bool is_read, struct sw_open **ret,
                  struct sw_err *err);

#endif
