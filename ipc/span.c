#include "ipc/span.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b) {
    const struct sw_span *x = a, *y = b;
    return (x->start > y->start) - (x->start < y->start);
}

bool sw_spans_overlap(struct sw_span *spans, size_t n) {
    bool ascending = true;
    for (size_t i = 1; ascending && i < n; i++)
        ascending = spans[i - 1].start <= spans[i].start;
    if (!ascending)
        qsort(spans, n, sizeof *spans, by_start);
    const struct sw_span *last = NULL; /* the last span that is not empty */
    for (size_t i = 0; i < n; i++) {
        if (!spans[i].bytes)
            continue;
        if (last && spans[i].start - last->start < last->bytes)
            return true;
        last = &spans[i];
    }
    return false;
}
