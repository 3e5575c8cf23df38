/* io_pipe.h - whether the kernel has done all that a process asked of it, also when that process was killed.
 *
 * Requests at io_uring go on without their process, and those that read from the disk write into the arena, which the
 * manager keeps and a successor uses. So each process with a disk has a pipe: its ring holds the one end, which the
 * kernel closes after the ring's last request; the manager keeps the other one, for whoever must know. It goes with the
 * arena: not with a folder, which may be another one, or away. thread: loop. */
#ifndef SW_DAEMON_TIERS_IO_PIPE_H
#define SW_DAEMON_TIERS_IO_PIPE_H

#include "daemon/service.h"

enum { SW_IO_PIPE_NAME_BYTES = 40 };

/* Makes one, and has the manager keep it under ret_name. Returns the end for the ring, the caller's; -1: it is not
 * kept, which is logged if somebody should have, and the name is empty. */
int sw_io_pipe_make(const struct sw_service *service, char ret_name[SW_IO_PIPE_NAME_BYTES]);
/* All requests of this process have ended, or there were none. The empty name: a no-op. */
void sw_io_pipe_forget(const char *name);

/* Those of predecessors that had not ended after a moment's wait, in an array that is the caller's (sw_free()), as are
 * the descriptors. errors: -SW_ENOMEM. */
int sw_io_pipe_take(struct sw_service *service, int **ret, unsigned *ret_n, struct sw_err *err);

#endif
