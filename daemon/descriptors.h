/* descriptors.h - the process's descriptors: every memory and every client costs some, and without any left a packet
 * loses those that travel with it. Clients' memories get what everything else cannot need. thread: loop. */
#ifndef SW_DAEMON_DESCRIPTORS_H
#define SW_DAEMON_DESCRIPTORS_H

#include <stdint.h>

struct sw_service;

struct sw_fd_budget {
    unsigned limit, used;  /* descriptors of all sessions' memories */
    unsigned max_closing;  /* that may wait to be closed (base/closer.h), and half of it of one uid */
    unsigned max_sessions; /* that leave all of these their room */
};

/* One uid's part of it. */
struct sw_fd_share {
    uint32_t uid;
    unsigned used;
};

/* Takes as many as may be had, and shares them out. */
void sw_descriptors_take(struct sw_service *service);
/* Shares them out by the configuration in force, which may have changed. */
void sw_descriptors_share(struct sw_service *service);

#endif
