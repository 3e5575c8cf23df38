/* stats.h - the statistics that STATUS reports. thread: loop. */
#ifndef SW_DAEMON_STATS_H
#define SW_DAEMON_STATS_H

#include "daemon/service.h"
#include "ipc/proto.h"

void sw_stats_status(const struct sw_service *service, struct sw_msg_status_ok *ret);

#endif
