/* screen.h - a page that is shown again and again: on a terminal cut to its window, and ended by a key.
 *
 * Without a terminal pages follow each other, whole. The terminal gets its settings back at the end, also by a signal.
 * thread: one; one screen at a time. */
#ifndef SW_CTL_SCREEN_H
#define SW_CTL_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

/* Standard input hears single keys from now on, without echo, if it is a terminal. */
void sw_screen_begin(void);
/* Shows a page in place of the one before. */
void sw_screen_show(const char *page);
/* Waits; less long if the window changes its size. True: `q` was pressed. */
bool sw_screen_wait(double seconds);
/* Not begun: no-op. */
void sw_screen_end(void);

/* The part of a page that fits, with what a terminal needs to draw it over the page before. Owned by the caller, free
 * it by free(); NULL: no memory. columns: of one character each, whatever its bytes in UTF-8. */
char *sw_screen_fit(const char *page, unsigned rows, unsigned columns);

#endif
