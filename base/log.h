/* log.h - writes one logfmt line per event to stderr: time=... level=debug event=spill.done session=4 ...
 *
 * If stderr is the journal and the program has opened it (journal.h), each name=value becomes a field, and the journal
 * adds the time.
 *
 * - Library rooms return errors and log at debug only. daemon/ logs each failure once. One exception: the host tier
 *   logs when it leaves out a slab, which is no error.
 * - Pass strings that come from a client through sw_log_quote().
 * - Do not log in inner loops.
 * - Logging never waits for a reader, be it a pipe, a terminal or the journal. A line that finds no room is dropped,
 *   and the next line that finds room is preceded by the number of dropped lines (event=log.dropped). Only a write to
 *   a file may block.
 *
 * thread: any (a line is written by one write call). */
#ifndef SW_BASE_LOG_H
#define SW_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* OPERATION is for lines about each client operation: it prints as debug, but always goes to the tap. */
enum sw_log_level { SW_LOG_ERROR, SW_LOG_WARNING, SW_LOG_INFO, SW_LOG_OPERATION, SW_LOG_DEBUG, SW_LOG_NR };

/* Makes writes to stderr non-blocking if it is a pipe or a terminal, without changing the stderr that other processes
 * share. A pipe also gets a larger buffer. Call it once, before the program has threads. */
void sw_log_open(void);
/* Sets the least important level that is printed. */
void sw_log_set_level(enum sw_log_level level);
/* Sets the level by its name; false: there is no such level. */
bool sw_log_set_level_name(const char *name);
/* Returns a level's name: "error", "warning", "info", "debug". */
const char *sw_log_level_name(enum sw_log_level level);

/* Gets a line without time and newline. The line is the caller's; the function must not log. */
typedef void sw_log_tap_fn(enum sw_log_level level, const char *line, void *arg);
/* Sets the function that gets a copy of lines; NULL: none. It gets every line of level info or more important, and of
 * OPERATION, even if the line is not printed. It is called on the thread that logs, by one thread at a time. */
void sw_log_set_tap(sw_log_tap_fn *fn, void *arg);

/* Returns whether lines of this level are printed: for callers in inner loops. */
bool sw_log_prints(enum sw_log_level level);
/* Logs one line. event: a dotted name. fmt: the rest of the line, "session=%u bytes=%llu". A line is cut at 1024 bytes.
 */
void sw_log(enum sw_log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Copies text into ret as a quoted logfmt value: quotes, backslashes and control bytes are escaped. Returns ret. */
const char *sw_log_quote(char *ret, size_t ret_bytes, const char *text);

#ifdef __cplusplus
}
#endif
#endif
