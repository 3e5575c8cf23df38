/* choice.h - tests a word against a list of choices, as options and parameters write it: "off, on".
 *
 * thread: any, no state. */
#ifndef SW_BASE_CHOICE_H
#define SW_BASE_CHOICE_H

#include <stdbool.h>

/* Returns whether `text` is one of `choices`, which are separated by ", ". The empty text is never one. */
bool sw_choice_has(const char *choices, const char *text);

#endif
