/* similar.h - which known name a mistyped one may have meant: for errors that ask "did you mean ...?".
 *
 * thread: any, no state. */
#ifndef SW_BASE_SIMILAR_H
#define SW_BASE_SIMILAR_H

#include <stddef.h>

enum { SW_SIMILAR_MAX_BYTES = 48 };

/* The best candidate so far; all zero at the beginning. */
struct sw_similar {
    char name[SW_SIMILAR_MAX_BYTES + 1]; /* empty: none is similar */
    unsigned edits;
};
/* Compares `meant` with one more known name. A name is similar if few letters differ (1 and a quarter of `meant`, at
 * most 3), or if it begins with `meant`. Longer names than SW_SIMILAR_MAX_BYTES are passed over. */
void sw_similar_try(struct sw_similar *best, const char *meant, const char *known);
/* "; did you mean NAME?", or the empty text; returns ret. */
const char *sw_similar_hint(char *ret, size_t ret_bytes, const struct sw_similar *best);

#endif
