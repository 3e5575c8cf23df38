/* closer.h - closes descriptors that clients have sent, in threads of its own, so that nobody waits for it.
 *
 * A client can make close() of its descriptor take as long as it likes: with a socket that lingers, or a file of a
 * user-space file system that does not answer. Each closer thread serves one lane. Descriptors from one uid go to one
 * lane and are closed there in order. So a uid delays another uid only if more uids than lanes have descriptors to
 * close.
 *
 * A waiting descriptor still occupies the process's descriptor table. Before you accept more descriptors from a uid,
 * ask how many of its descriptors wait.
 *
 * A process has one closer. Before its start and after its stop, the calling thread closes the descriptor itself.
 * thread: any. */
#ifndef SW_BASE_CLOSER_H
#define SW_BASE_CLOSER_H

#include "base/err.h"
#include <stdint.h>

enum { SW_CLOSER_LANES = 8 };

/* Starts the threads. max_fds: the limit RLIMIT_NOFILE; the calling thread closes descriptors from max_fds up itself.
 * errors: -SW_ENOMEM. */
int sw_closer_start(unsigned max_fds, struct sw_err *err);
/* Stops the threads. It waits up to a second until all descriptors are closed. If a close takes longer, its descriptor
 * and those that wait behind it stay open until the process ends. If the closer was not started: a no-op. */
void sw_closer_stop(void);

/* Closes a descriptor that came from uid, later. Allocates nothing. owns: takes fd; -1: a no-op. */
void sw_closer_close(int fd, uint32_t uid);
/* Like sw_closer_close(), but calls end(fd), which must close fd. It may block for any time. */
void sw_closer_end(int fd, uint32_t uid, void (*end)(int fd));

/* Counts the descriptors from one uid that are not closed yet. */
unsigned sw_closer_waiting(uint32_t uid);
/* Counts the descriptors from all uids that are not closed yet. */
unsigned sw_closer_waiting_all(void);

#endif
