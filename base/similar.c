#include "base/similar.h"

#include <stdio.h>
#include <string.h>

static unsigned least(unsigned a, unsigned b) {
    return a < b ? a : b;
}

/* Counts the letters to insert, remove, replace or swap with their neighbor (restricted Damerau-Levenshtein distance).
 */
static unsigned edits_between(const char *a, size_t a_bytes, const char *b, size_t b_bytes) {
    unsigned rows[3][SW_SIMILAR_MAX_BYTES + 1];
    for (unsigned j = 0; j <= b_bytes; j++)
        rows[0][j] = j;
    for (unsigned i = 1; i <= a_bytes; i++) {
        unsigned *row = rows[i % 3], *above = rows[(i + 2) % 3], *two_above = rows[(i + 1) % 3];
        row[0] = i;
        for (unsigned j = 1; j <= b_bytes; j++) {
            row[j] = least(least(row[j - 1], above[j]) + 1, above[j - 1] + (a[i - 1] != b[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                row[j] = least(row[j], two_above[j - 2] + 1);
        }
    }
    return rows[a_bytes % 3][b_bytes];
}

void sw_similar_try(struct sw_similar *best, const char *meant, const char *known) {
    const size_t meant_bytes = strlen(meant), known_bytes = strlen(known);
    if (!meant_bytes || meant_bytes > SW_SIMILAR_MAX_BYTES || known_bytes > SW_SIMILAR_MAX_BYTES)
        return;
    const unsigned most = least(3, 1 + (unsigned)meant_bytes / 4);
    const unsigned edits = meant_bytes >= 3 && strncmp(known, meant, meant_bytes) == 0
                               ? most
                               : edits_between(meant, meant_bytes, known, known_bytes);
    if (edits > most || edits >= known_bytes || (best->name[0] && edits >= best->edits))
        return;
    memcpy(best->name, known, known_bytes + 1);
    best->edits = edits;
}

const char *sw_similar_hint(char *ret, size_t ret_bytes, const struct sw_similar *best) {
    ret[0] = 0;
    if (best->name[0])
        (void)snprintf(ret, ret_bytes, "; did you mean %s?", best->name);
    return ret;
}
