/* similar.h - finds the known name that a mistyped name may have meant, for errors that ask "did you mean ...?".
 *
 * thread: any, no state. */
#ifndef SW_BASE_SIMILAR_H
#define SW_BASE_SIMILAR_H

#include <stddef.h>

enum { SW_SIMILAR_MAX_BYTES = 48 };

/* The most similar name so far; all zero at the beginning. */
struct sw_similar {
    char name[SW_SIMILAR_MAX_BYTES + 1]; /* empty: none is similar */
    unsigned edits;
};
/* Compares the mistyped name `meant` with one more known name. A known name is similar if few letters differ (at most
 * 1 plus a quarter of the length of `meant`, and never more than 3), or if it begins with `meant` and `meant` has at
 * least 3 letters. Names longer than SW_SIMILAR_MAX_BYTES are skipped. */
void sw_similar_try(struct sw_similar *best, const char *meant, const char *known);
/* Writes "; did you mean NAME?", or the empty text if no name is similar. Returns ret. */
const char *sw_similar_hint(char *ret, size_t ret_bytes, const struct sw_similar *best);

#endif
