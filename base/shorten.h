/* shorten.h - values of others in errors, which have room for a few words.
 *
 * thread: any, no state. */
#ifndef SW_BASE_SHORTEN_H
#define SW_BASE_SHORTEN_H

enum { SW_SHORTENED_BYTES = 28 };

/* A value as JSON writes it. If it is long, its middle becomes "...", and a quote or bracket that opens it still closes
 * it: "/very/long/pa..."; no character is cut in two. Returns ret. */
const char *sw_shorten(char ret[SW_SHORTENED_BYTES], const char *text);

#endif
