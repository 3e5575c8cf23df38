/* choice.h - finds a word in a list of choices, as options and parameters write it: "off, on".
 *
 * thread: any, no state. */
#ifndef SW_BASE_CHOICE_H
#define SW_BASE_CHOICE_H

#include <stdbool.h>
#include <stddef.h>

/* Returns whether `text` is one of `choices`, which are separated by ", ". The empty text is never one. */
bool sw_choice_has(const char *choices, const char *text);
/* Returns the choice's number, from 0; -1: `text` is none. */
int sw_choice_number(const char *choices, const char *text);
/* Copies the choice of this number; "": there is none, or it does not fit. */
void sw_choice_text(char *ret, size_t ret_bytes, const char *choices, unsigned number);

#endif
