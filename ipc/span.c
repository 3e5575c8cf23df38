#include "ipc/span.h"

#include <stdlib.h>

static int by_start(const void *a, const void *b) {
    const struct sw_span *x = a, *y = b;
    if (x->start != y->start)
        return x->start < y->start ? -1 : 1;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes); /* one of no bytes is before what starts there */
}

bool sw_spans_overlap(struct sw_span *spans, size_t n) {
    bool ascending = true;
    for (size_t i = 1; ascending && i < n; i++)
        ascending = by_start(&spans[i - 1], &spans[i]) <= 0;
    if (!ascending)
        qsort(spans, n, sizeof *spans, by_start);
    for (size_t i = 1; i < n; i++)
        if (spans[i].start - spans[i - 1].start < spans[i - 1].bytes && spans[i].bytes)
            return true;
    return false;
}
