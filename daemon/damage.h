/* damage.h - logs damage that the engine finds: a bad frame with its place, and regions that are not whole after a
 * restart. thread: loop. */
#ifndef SW_DAEMON_DAMAGE_H
#define SW_DAEMON_DAMAGE_H

#include "daemon/service.h"

/* Returns the observer for the engine. service: borrowed as long as the engine lives. */
struct sw_observer sw_damage_observer(struct sw_service *service);

#endif
