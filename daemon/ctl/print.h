/* print.h - prints the service's answers for people: names and values in columns, lists as tables.
 *
 * It works on any answer: the end of a name (_bytes, _us) tells the unit of its value. thread: any. */
#ifndef SW_CTL_PRINT_H
#define SW_CTL_PRINT_H

#include <stddef.h>
#include <stdio.h>

struct json_t; /* jansson.h */

void sw_ctl_print(FILE *out, const struct json_t *result);
/* Prints an event as a line: time, name, and the rest as name=value. */
void sw_ctl_print_event(FILE *out, const struct json_t *params);

/* Format "1.5 GiB", "12 ms"; return ret. */
const char *sw_ctl_bytes(char *ret, size_t ret_bytes, double bytes);
const char *sw_ctl_time(char *ret, size_t ret_bytes, double us);
/* Draws a share from 0 to 1: "####......". Returns ret. */
enum { SW_CTL_BAR_BYTES = 31 };
const char *sw_ctl_bar(char ret[SW_CTL_BAR_BYTES], double share);

#endif
