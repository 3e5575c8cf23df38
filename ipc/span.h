/* span.h - whether ranges overlap: the destinations of a batch must not. */
#ifndef SW_IPC_SPAN_H
#define SW_IPC_SPAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sw_span {
    uint64_t start, bytes;
};

/* Whether any two have a byte in common. Sorts them, unless they ascend already, as those of a client mostly do. */
bool sw_spans_overlap(struct sw_span *spans, size_t n);

#endif
