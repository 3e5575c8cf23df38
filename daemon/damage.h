/* damage.h - logs what the engine finds damaged: a bad frame with its place, and the regions that a restart has not
 * found whole. thread: loop. */
#ifndef SW_DAEMON_DAMAGE_H
#define SW_DAEMON_DAMAGE_H

#include "daemon/service.h"

/* service: borrowed as long as the engine lives. */
struct sw_observer sw_damage_observer(struct sw_service *service);

#endif
