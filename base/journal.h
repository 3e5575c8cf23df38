/* journal.h - log lines to systemd's journal, each name=value of a line as a field of its own: EVENT=spill.done
 * SESSION=4, so that `journalctl EVENT=spill.done` finds it.
 *
 * Used by log.c only. thread: any; open before others log. */
#ifndef SW_BASE_JOURNAL_H
#define SW_BASE_JOURNAL_H

#include <stdbool.h>

#define SW_JOURNAL_SOCKET "/run/systemd/journal/socket"

/* True if stderr goes to the journal, as JOURNAL_STREAM says, and its socket can be had: from now on
 * sw_journal_send() may be used. */
bool sw_journal_open(const char *socket_path);
/* FULL: there is no room for it now. ABSENT: there is no journal, or none any more, print it. */
enum sw_journal_answer { SW_JOURNAL_TAKEN, SW_JOURNAL_FULL, SW_JOURNAL_ABSENT };

/* priority: syslog's, 0 to 7. line: as log.h writes it, without newline. Does not wait. */
enum sw_journal_answer sw_journal_send(int priority, const char *line);

#endif
