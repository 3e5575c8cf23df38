/* size.h - sizes as people write them: "4194304", "4MiB", "4 M", "1.5GiB". Options, commands and programs all read them
 * by this one function.
 *
 * Units are B, K, M, G and T, or KiB, MiB, GiB and TiB, which mean the same: powers of 1024. thread: any, no state. */
#ifndef SW_BASE_SIZE_H
#define SW_BASE_SIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SW_SIZE_EXAMPLES "a size, such as 65536, 64M or 1.5GiB" /* for errors, which are short */
#define SW_SIZE_WRITTEN "a number of bytes, or a number with K, M, G or T (KiB, MiB, GiB, TiB), as 1.5GiB"

/* Takes a size at *text, which is moved behind it. A fraction of a byte is cut off; a size that does not fit is
 * UINT64_MAX. False: there is none, and *text is where it was. */
bool sw_size_take(const char **text, uint64_t *ret);
/* The same of a whole text. */
bool sw_size_parse(const char *text, uint64_t *ret);
/* "256 MiB", by the largest unit that leaves no rest; "1000" for bytes. Returns ret. */
const char *sw_size_format(char *ret, size_t ret_bytes, uint64_t bytes);

#endif
