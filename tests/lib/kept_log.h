/* kept_log.h - what is logged, for tests that look for it. thread: any; lines of all threads are kept. */
#ifndef SW_TEST_KEPT_LOG_H
#define SW_TEST_KEPT_LOG_H

#include <stdbool.h>

enum { SW_KEPT_LOG_BYTES = 8192 };

/* The lines so far; more than these bytes are cut off. */
extern char sw_kept_log[SW_KEPT_LOG_BYTES];

/* Keeps lines from now on, those of level `info` too, and forgets earlier ones. */
void sw_kept_log_begin(void);
void sw_kept_log_end(void);
void sw_kept_log_forget(void);
bool sw_kept_log_has(const char *part);

#endif
