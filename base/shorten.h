/* shorten.h - shortens values for error texts, which have room for a few words only.
 *
 * thread: any, no state. */
#ifndef SW_BASE_SHORTEN_H
#define SW_BASE_SHORTEN_H

enum { SW_SHORTENED_BYTES = 28 };

/* Shortens a JSON value. The end of a long value becomes "...", followed by the quote or bracket that closes it:
 * "/very/long/pa..."; no UTF-8 character is cut in two. Returns ret. */
const char *sw_shorten(char ret[SW_SHORTENED_BYTES], const char *text);

#endif
