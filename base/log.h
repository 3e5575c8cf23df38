/* log.h - one logfmt line per event on stderr: time=... level=debug event=spill.done session=4 ...; where stderr is the
 * journal, and the program has opened that (journal.h), with each name=value as a field, and the journal's own time.
 *
 * Library folders log at debug only and return errors, but for a slab of the host tier that is left out, which is no
 * error; daemon/ logs each failure once. Strings that come from a client
 * go through sw_log_quote(). Not for inner loops. Nobody waits for whoever reads the log, be it a pipe, a terminal or
 * the journal: a line that has no room there is dropped, and counted in the next one that has (event=log.dropped). A
 * file may still be waited for. thread: any (a line is written by one write call). */
#ifndef SW_BASE_LOG_H
#define SW_BASE_LOG_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* OPERATION is for each operation of a client: printed as debug, but always handed to the tap. */
enum sw_log_level { SW_LOG_ERROR, SW_LOG_WARNING, SW_LOG_INFO, SW_LOG_OPERATION, SW_LOG_DEBUG, SW_LOG_NR };

/* For a program that shares stderr with others, once, before it has threads: a line has the room that it finds,
 * whatever the others write meanwhile. A pipe is made longer. */
void sw_log_open(void);
void sw_log_set_level(enum sw_log_level level);
/* Sets it by name; false: there is no such level. */
bool sw_log_set_level_name(const char *name);
/* "error", "warning", "info", "debug". */
const char *sw_log_level_name(enum sw_log_level level);
/* Hands every line of level info and above, and of operations, without time and newline, to `fn` as well, also those
 * that are not printed; NULL: to nobody. The line is the caller's; fn must not log. Called on the thread that logs, by
 * one at a time. */
typedef void sw_log_tap_fn(enum sw_log_level level, const char *line, void *arg);
void sw_log_set_tap(sw_log_tap_fn *fn, void *arg);
/* event is a dotted name; fmt makes the rest of the line: "session=%u bytes=%llu". A line is cut at 1024 bytes. */
void sw_log(enum sw_log_level level, const char *event, const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* Copies text into ret as a quoted logfmt value, with quotes, backslashes and control bytes escaped; returns ret. */
const char *sw_log_quote(char *ret, size_t ret_bytes, const char *text);

#ifdef __cplusplus
}
#endif
#endif
