/* span.h - checks whether ranges of bytes overlap. */
#ifndef SW_IPC_SPAN_H
#define SW_IPC_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_span {
    uint64_t start, bytes;
};

/* Returns whether two spans share a byte. Sorts the spans, unless they are sorted already. */
bool sw_spans_overlap(struct sw_span *spans, size_t n);

#endif
