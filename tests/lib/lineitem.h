/* lineitem.h - TPC-H's lineitem in the host's memory, as the buffers that an engine would hold it in: of each column
 * its values, or its offsets and characters, and of one column, which may have nulls, the validity bitmap
 * (tpch_tables.h).
 *
 * Deterministic. thread: any. */
#ifndef SW_TEST_LINEITEM_H
#define SW_TEST_LINEITEM_H

#include "codec/frame.h"

enum { SW_LINEITEM_BUFFERS = 22 };
#define SW_LINEITEM_MAX_SCALE 12 /* beyond, offsets of comments would not fit into 32 bits */

struct sw_lineitem {
    uint64_t rows, bytes; /* bytes: of all buffers */
    struct sw_lineitem_buffer {
        const char *column, *role; /* "l_comment"; "values", "offsets", "characters", "validity" */
        enum sw_value_type type;
        uint64_t bytes;
        void *data;
    } buffers[SW_LINEITEM_BUFFERS];
};

/* scale_factor: above 0, at most SW_LINEITEM_MAX_SCALE. A thread makes each column. NULL without memory. _free takes
 * NULL. */
struct sw_lineitem *sw_lineitem_new(double scale_factor, uint64_t seed);
void sw_lineitem_free(struct sw_lineitem *table);

#endif
