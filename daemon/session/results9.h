/* results9.h - the replies of version 9 to requests that version 10 answers with RESULTS. thread: loop. */
#ifndef SW_DAEMON_RESULTS9_H
#define SW_DAEMON_RESULTS9_H

#include "daemon/session/results.h"

/* Makes RESULT, RESULT_BATCH or OK, by the request's type. */
void sw_results9_fill(struct sw_msg *ret, unsigned request, const struct sw_results *results);

#endif
