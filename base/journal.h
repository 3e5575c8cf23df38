/* journal.h - sends log lines to systemd's journal, and each name=value of a line as a field of its own.
 *
 * The line's event=spill.done becomes the field EVENT=spill.done, so that `journalctl EVENT=spill.done` finds it.
 * Used by log.c only. thread: any, but open the journal before other threads log. */
#ifndef SW_BASE_JOURNAL_H
#define SW_BASE_JOURNAL_H

#include <stdbool.h>

#define SW_JOURNAL_SOCKET "/run/systemd/journal/socket"

/* Connects to the journal if JOURNAL_STREAM says that stderr goes there. False: it does not, or the connection failed;
 * sw_journal_send() then returns ABSENT. */
bool sw_journal_open(const char *socket_path);

/* FULL: the journal has no room now. ABSENT: there is no journal (any more), so print the line instead. */
enum sw_journal_answer { SW_JOURNAL_TAKEN, SW_JOURNAL_FULL, SW_JOURNAL_ABSENT };

/* Sends a line without waiting. priority: as in syslog.h, 0 to 7. line: as log.h writes it, without newline. */
enum sw_journal_answer sw_journal_send(int priority, const char *line);

#endif
