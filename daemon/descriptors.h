/* descriptors.h - the process's file descriptors: every memory and every client needs some, and if none is left, a
 * packet loses the descriptors that it carries. Clients' memories get the descriptors that nothing else can need.
 * thread: loop. */
#ifndef SW_DAEMON_DESCRIPTORS_H
#define SW_DAEMON_DESCRIPTORS_H

#include <stdint.h>

struct sw_service;

struct sw_fd_budget {
    unsigned limit, used;  /* descriptors of all sessions' memories */
    unsigned max_closing;  /* descriptors that may wait to be closed (base/closer.h); half of them for one uid */
    unsigned max_sessions; /* sessions that leave room for all of these */
};

/* One uid's share. */
struct sw_fd_share {
    uint32_t uid;
    unsigned used;
};

/* Raises the limit as far as permitted, and shares the descriptors out. */
void sw_descriptors_take(struct sw_service *service);
/* Shares them out again, by the configuration in force, which may have changed. */
void sw_descriptors_share(struct sw_service *service);

#endif
