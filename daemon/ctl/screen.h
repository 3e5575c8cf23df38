/* screen.h - a page that is updated: on a terminal it is cut to the window, and a key ends it.
 *
 * Without a terminal, whole pages follow each other. The terminal's settings are restored at the end, also after a
 * signal. thread: one; one screen at a time. */
#ifndef SW_CTL_SCREEN_H
#define SW_CTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* If standard input is a terminal, makes it deliver single keys without echo. */
void sw_screen_begin(void);
/* Shows a page in place of the previous one. */
void sw_screen_show(const char *page);
/* Waits; returns earlier if the window changes its size. Returns true if `q` was pressed. */
bool sw_screen_wait(double seconds);
/* Restores the terminal. No-op if not begun. */
void sw_screen_end(void);

/* Returns the part of a page that fits, with the control sequences that draw it over the previous page. Owned by the
 * caller, free it by free(); NULL: out of memory. columns: one character each, whatever its bytes in UTF-8. */
char *sw_screen_fit(const char *page, unsigned rows, unsigned columns);

#endif
