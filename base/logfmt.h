/* logfmt.h - parses the lines that log.h writes: name=value name="quoted \"value\"" ...
 *
 * For code that passes log lines on in another form. Not for lines from other programs: syntax errors are not detected.
 * thread: any, no state. */
#ifndef SW_BASE_LOGFMT_H
#define SW_BASE_LOGFMT_H

#include <stdbool.h>
#include <stddef.h>

struct sw_logfmt_field {
    char name[32];
    char value[512]; /* without quotes and escapes; cut to fit */
    bool quoted;
};

/* Parses the field at *at, and moves *at past it; false: the line has ended. */
bool sw_logfmt_next(const char **at, struct sw_logfmt_field *ret);
/* Returns whether a value that was not quoted is a whole number. */
bool sw_logfmt_is_number(const struct sw_logfmt_field *field);

#endif
