/* fdstore.h - descriptors that the service manager keeps for the next process: its descriptor store, and sockets that
 * it listens on for us (socket activation). Both come by $LISTEN_FDS and $LISTEN_FDNAMES.
 *
 * What is kept survives a restart and a crash of this process, not the end of the unit or of the machine. Without a
 * service manager nothing comes and nothing is kept. */
#ifndef SW_DAEMON_FDSTORE_H
#define SW_DAEMON_FDSTORE_H

#include "base/err.h"
#include <stdbool.h>

struct sw_fdstore;

/* Takes over what came with the process: once, before others open descriptors. errors: -SW_ENOMEM. thread: loop. */
int sw_fdstore_open(struct sw_fdstore **ret, struct sw_err *err);
/* Closes what nobody has taken; the manager keeps it. NULL is a no-op. */
void sw_fdstore_close(struct sw_fdstore *store);
/* Has the manager forget what nobody has taken: once the start has succeeded, since it may be needed by another try. */
void sw_fdstore_forget_rest(struct sw_fdstore *store);

/* How many have come. */
unsigned sw_fdstore_count(const struct sw_fdstore *store);
/* A descriptor by its name, the caller's from now on; -1: there is none. Names that begin with `prefix`: one after the
 * other, *ret_name (valid until close) is what comes behind the prefix. */
int sw_fdstore_take(struct sw_fdstore *store, const char *name);
int sw_fdstore_take_any(struct sw_fdstore *store, const char *prefix, const char **ret_name);
/* A listening Unix socket of that type (SOCK_SEQPACKET ...) that is bound to the path, where there still is a socket,
 * whatever its name (*ret_name, valid until close); -1. */
int sw_fdstore_take_listener(struct sw_fdstore *store, int type, const char *path, const char **ret_name);

/* Most descriptors that the manager keeps; it does not tell of one that it did not take. As it says ($FDSTORE, systemd
 * 254), else as FileDescriptorStoreMax= of our unit. thread: loop. */
unsigned sw_fdstore_limit(void);
/* Has the manager keep a descriptor (borrowed) under a name, and waits until it has it. False: it is not kept, which is
 * logged, unless there is no manager. thread: any. */
bool sw_fdstore_keep(const char *name, int fd);
/* Has it forget a name. thread: any. */
void sw_fdstore_forget(const char *name);

#endif
