/* closer.h - closes descriptors that others have sent, where nobody waits for it.
 *
 * close() of a descriptor can take as long as whoever made it wants: a socket that lingers, a file of a file system in
 * user space that does not answer. So it is done by threads of their own. They have lanes: what came from one uid is
 * closed in order and by one thread at a time, so that it delays what comes from others only when more uids than there
 * are lanes have something to close.
 *
 * What waits is still in the process's table. Whoever takes more descriptors from a uid asks first how many wait.
 *
 * One for the process. Before its start, and after its stop, all is closed by the caller. thread: any. */
#ifndef SW_BASE_CLOSER_H
#define SW_BASE_CLOSER_H

#include "base/err.h"
#include <stdint.h>

enum { SW_CLOSER_LANES = 8 };

/* Starts the threads. Descriptors from max_fds up are closed by the caller: RLIMIT_NOFILE is what is meant.
 * errors: -SW_ENOMEM. */
int sw_closer_start(unsigned max_fds, struct sw_err *err);
/* Waits for what is left, a second at most: a close that takes longer is left to the end of the process, and so is what
 * waits behind it. Without a start it is a no-op. */
void sw_closer_stop(void);

/* Closes a descriptor of uid's some time. Allocates nothing. owns: takes fd; -1 is a no-op. */
void sw_closer_close(int fd, uint32_t uid);
/* As sw_closer_close(), by end(fd), which may wait as long as it likes and has to close it. */
void sw_closer_end(int fd, uint32_t uid, void (*end)(int fd));

/* Descriptors that are not closed yet: of one uid, and of all. */
unsigned sw_closer_waiting(uint32_t uid);
unsigned sw_closer_waiting_all(void);

#endif
