/* io_pipe.h - the in-flight I/O pipe: shows whether the kernel has finished all disk requests of a process, even of one
 * that was killed.
 *
 * Requests at io_uring continue without their process, and reads among them write into the arena, which the manager
 * keeps and a successor uses. So each process with a disk has a pipe. Its ring holds the writing end, which the kernel
 * closes after the ring's last request. The manager keeps the reading end for a successor. The pipe belongs to the
 * arena, not to the folder, which may be replaced or missing. thread: loop. */
#ifndef SW_DAEMON_TIERS_IO_PIPE_H
#define SW_DAEMON_TIERS_IO_PIPE_H

#include "daemon/service.h"

enum { SW_IO_PIPE_NAME_BYTES = 40 };

/* Makes a pipe and has the manager keep it under ret_name. Returns the writing end, for the ring; it is the caller's.
 * -1: it is not kept, which is logged unless there is no manager, and the name is empty. */
int sw_io_pipe_make(const struct sw_service *service, char ret_name[SW_IO_PIPE_NAME_BYTES]);
/* Has the manager forget the pipe: all requests of this process have ended, or there were none. The empty name is a
 * no-op. */
void sw_io_pipe_forget(const char *name);

/* Takes the pipes of predecessors whose requests had not ended after a short wait. The array (sw_free()) and the
 * descriptors are the caller's. errors: -SW_ENOMEM. */
int sw_io_pipe_take(struct sw_service *service, int **ret, unsigned *ret_n, struct sw_err *err);

#endif
