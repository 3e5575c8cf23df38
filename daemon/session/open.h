/* open.h - a session's builds and reads by the client's numbers.
 *
 * One of several packets is *open*: it has a record here from its begin until the engine has ended it. One of a single
 * packet is here while that is under way, so that it can be canceled; its record is a part of the packet's piece
 * (operation.h).
 *
 * An open build or read on which nothing works for service->open_ms expires: it fails, what a build has stored is
 * freed, and the region of a read is free for others. Its record stays until its client ends it, so that the client
 * learns why.
 *
 * Invariant: an open build or read of the engine has exactly one record, until the session is closed. thread: loop. */
#ifndef SW_DAEMON_OPEN_H
#define SW_DAEMON_OPEN_H

#include "daemon/session/idmap.h"
#include "spill/build.h"
#include "spill/read.h"
#include <uv.h>

struct sw_session;
struct sw_piece;

enum { SW_SESSION_MAX_OPEN = 2048 }; /* as many as HELLO_OK tells the client */

struct sw_opens {
    struct sw_idmap numbers;
    struct sw_list open; /* those of several packets */
    unsigned n_open;
    uv_timer_t timer; /* runs while there are any; the session closes it */
};

struct sw_open {
    struct sw_idnode node;
    struct sw_list list;    /* of the session's open ones; alone: of one packet */
    struct sw_piece *piece; /* of the packet that ends it; NULL: there was none yet */
    struct sw_build *build; /* NULL: of one packet, or a read */
    struct sw_read *read;   /* NULL: of one packet, or a build */
    bool is_read;
};

void sw_opens_init(struct sw_session *session);
/* Forgets those that no packet ends; the others end with their packets. Before sw_owner_close(). */
void sw_opens_close(struct sw_session *session);

/* A record of an open build or read, counted until sw_open_end(). errors: -SW_EEXIST (the number is in use),
 * -SW_ELIMIT, -SW_ENOMEM, -SW_ETENANTMEMORY. */
int sw_opens_begin(struct sw_session *session, uint32_t number, bool is_read, struct sw_open **ret, struct sw_err *err);
/* The engine has ended it, or never began. */
void sw_open_end(struct sw_session *session, struct sw_open *open);

/* Makes the engine's build or read fail, if it has not ended. */
void sw_open_fail(const struct sw_open *open, const struct sw_err *cause);

/* Of one packet, whose piece has the record. errors: -SW_EEXIST. */
int sw_opens_enter(struct sw_session *session, uint32_t number, struct sw_open *whole, struct sw_err *err);
void sw_opens_leave(struct sw_session *session, struct sw_open *whole);

/* errors: -SW_ENOENT. */
int sw_opens_find(const struct sw_session *session, uint32_t number, bool is_read, struct sw_open **ret,
                  struct sw_err *err);

#endif
