/* results9.h - replies of version 9, where version 10 has RESULTS. thread: loop. */
#ifndef SW_DAEMON_RESULTS9_H
#define SW_DAEMON_RESULTS9_H

#include "daemon/session/results.h"

/* Makes the reply to a request of this type: RESULT, RESULT_BATCH or OK. */
void sw_results9_fill(struct sw_msg *ret, unsigned request, const struct sw_results *results);

#endif
