/* size.h - parses and prints sizes as people write them: "4194304", "4MiB", "4 M", "1.5GiB".
 *
 * All options, commands and programs use it. Units are B, K, M, G and T, or KiB, MiB, GiB and TiB; both mean powers of
 * 1024. thread: any, no state. */
#ifndef SW_BASE_SIZE_H
#define SW_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SW_SIZE_EXAMPLES "a size, such as 65536, 64M or 1.5GiB" /* for errors, which are short */
#define SW_SIZE_WRITTEN "a number of bytes, or a number with K, M, G or T (KiB, MiB, GiB, TiB), such as 1.5GiB"

/* Parses the size at *text, and moves *text past it. A fraction of a byte is cut off. A size that does not fit becomes
 * UINT64_MAX. False: there is no size, and *text is unchanged. */
bool sw_size_take(const char **text, uint64_t *ret);
/* Parses a text that consists of one size only; false: it does not. */
bool sw_size_parse(const char *text, uint64_t *ret);
/* Prints a size in the largest unit that divides it: "256 MiB"; or in bytes: "1000". Returns ret. */
const char *sw_size_format(char *ret, size_t ret_bytes, uint64_t bytes);

#endif
