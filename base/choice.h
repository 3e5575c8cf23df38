/* choice.h - values that are one word out of a few, as options and parameters list them: "off, on". thread: any, no
 * state. */
#ifndef SW_BASE_CHOICE_H
#define SW_BASE_CHOICE_H

#include <stdbool.h>

/* Whether `text` is one of `choices`, which are separated by ", ". The empty text is none. */
bool sw_choice_has(const char *choices, const char *text);

#endif
