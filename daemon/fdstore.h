/* fdstore.h - descriptors that the service manager keeps for the next process: its descriptor store, and sockets that
 * it listens on for us (socket activation). Both arrive by $LISTEN_FDS and $LISTEN_FDNAMES.
 *
 * Kept descriptors survive a restart and a crash of this process, but not the end of the unit or of the machine.
 * Without a service manager none arrive and none are kept. */
#ifndef SW_DAEMON_FDSTORE_H
#define SW_DAEMON_FDSTORE_H

#include "base/err.h"
#include <stdbool.h>

struct sw_fdstore;

/* Takes over the descriptors that the process was started with: once, before others are opened. errors: -SW_ENOMEM.
 * thread: loop. */
int sw_fdstore_open(struct sw_fdstore **ret, struct sw_err *err);
/* Closes the descriptors that were not taken; the manager still keeps them. NULL is a no-op. */
void sw_fdstore_close(struct sw_fdstore *store);
/* Has the manager forget the descriptors that were not taken. Call it once the start has succeeded, since another start
 * may need them. */
void sw_fdstore_forget_rest(struct sw_fdstore *store);

/* Returns how many have arrived. */
unsigned sw_fdstore_count(const struct sw_fdstore *store);
/* Take a descriptor by its name; it is the caller's from now on; -1: there is none. _any: takes one whose name begins
 * with `prefix`; *ret_name (valid until close) is the rest of its name. */
int sw_fdstore_take(struct sw_fdstore *store, const char *name);
int sw_fdstore_take_any(struct sw_fdstore *store, const char *prefix, const char **ret_name);
/* Takes a listening Unix socket of this type (SOCK_SEQPACKET ...), under any name (*ret_name, valid until close), that
 * is bound to the path and whose socket file still exists. -1: there is none. */
int sw_fdstore_take_listener(struct sw_fdstore *store, int type, const char *path, const char **ret_name);

/* Returns the most descriptors that the manager keeps; it does not report one that it refused. From $FDSTORE (systemd
 * 254), else FileDescriptorStoreMax= of our unit. thread: loop. */
unsigned sw_fdstore_limit(void);
/* Has the manager keep a descriptor (borrowed) under a name, and waits until it does. Returns false if it is not kept,
 * which is logged unless there is no manager. thread: any. */
bool sw_fdstore_keep(const char *name, int fd);
/* Has the manager forget a name. thread: any. */
void sw_fdstore_forget(const char *name);

#endif
