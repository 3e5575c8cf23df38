/* logfmt.h - reads the lines that log.h writes: name=value name="quoted \"value\"" ...
 *
 * For who passes lines on in another form. Not for lines of others: what sw_log() never writes is taken as it comes.
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

/* Takes the next field from *at, which is moved behind it; false at the line's end. */
bool sw_logfmt_next(const char **at, struct sw_logfmt_field *ret);
/* Whether a value that was not quoted is a whole number. */
bool sw_logfmt_is_number(const struct sw_logfmt_field *field);

#endif
