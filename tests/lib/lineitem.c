#include "tests/lib/lineitem.h"

#include "tests/lib/tpch_tables.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { COLUMNS = SW_TPCH_LINEITEM_END - SW_TPCH_ORDERS_COLUMNS };

/* A column being made by a thread. */
struct making {
    const struct sw_tpch *tpch;
    uint64_t rows;
    struct sw_lineitem_buffer *values, *offsets; /* offsets: NULL for numbers */
    pthread_t thread;
    enum sw_tpch_column column;
    bool failed;
};

static void *make(void *arg) {
    struct making *m = arg;
    void *data = malloc(sw_tpch_bound_bytes(m->column, m->rows));
    int32_t *offsets = m->offsets ? malloc((m->rows + 1) * sizeof *offsets) : NULL;
    m->failed = !data || (m->offsets && !offsets);
    if (m->failed) {
        free(data);
        free(offsets);
        return NULL;
    }
    const uint64_t bytes = sw_tpch_fill(m->tpch, m->column, 0, sw_tpch_orders(m->tpch), data, offsets);
    void *fitting = realloc(data, bytes);
    m->values->data = fitting ? fitting : data;
    m->values->bytes = bytes;
    if (m->offsets)
        m->offsets->data = offsets;
    return NULL;
}

static struct sw_lineitem_buffer *add(struct sw_lineitem *t, unsigned *n, const char *column, const char *role,
                                      enum sw_value_type type, uint64_t bytes) {
    t->buffers[*n] = (struct sw_lineitem_buffer){.column = column, .role = role, .type = type, .bytes = bytes};
    return &t->buffers[(*n)++];
}

static void lay_out(struct sw_lineitem *t, const struct sw_tpch *tpch, struct making columns[COLUMNS]) {
    unsigned n = 0;
    for (int i = 0; i < COLUMNS; i++) {
        const enum sw_tpch_column column = (enum sw_tpch_column)(SW_TPCH_ORDERS_COLUMNS + i);
        const char *name = sw_tpch_column_name(column);
        const enum sw_value_type type = sw_tpch_column_type(column);
        const bool is_text = type == SW_VALUE_NONE;
        columns[i] = (struct making){.tpch = tpch, .column = column, .rows = t->rows};
        if (is_text)
            columns[i].offsets = add(t, &n, name, "offsets", SW_VALUE_I32, (t->rows + 1) * sizeof(int32_t));
        columns[i].values = add(t, &n, name, is_text ? "characters" : "values", type, 0);
    }
    add(t, &n, sw_tpch_column_name(SW_L_COMMENT), "validity", SW_VALUE_NONE, (t->rows + 7) / 8);
}

static bool make_all(struct sw_lineitem *t, struct making columns[COLUMNS]) {
    struct sw_lineitem_buffer *validity = &t->buffers[SW_LINEITEM_BUFFERS - 1];
    bool good = true;
    for (int i = 0; i < COLUMNS; i++)
        if (pthread_create(&columns[i].thread, NULL, make, &columns[i]) != 0) {
            columns[i].thread = pthread_self();
            (void)make(&columns[i]);
        }
    for (int i = 0; i < COLUMNS; i++) {
        if (!pthread_equal(columns[i].thread, pthread_self()))
            (void)pthread_join(columns[i].thread, NULL);
        good = good && !columns[i].failed;
    }
    validity->data = malloc(validity->bytes);
    if (validity->data)
        memset(validity->data, 0xFF, validity->bytes);
    return good && validity->data;
}

struct sw_lineitem *sw_lineitem_new(double scale_factor, uint64_t seed) {
    struct making columns[COLUMNS];
    struct sw_tpch *tpch = sw_tpch_new(scale_factor, seed);
    struct sw_lineitem *t = calloc(1, sizeof *t);
    bool good = tpch && t;
    if (good) {
        t->rows = sw_tpch_rows(tpch, SW_L_ORDERKEY, 0, sw_tpch_orders(tpch));
        lay_out(t, tpch, columns);
        good = make_all(t, columns);
    }
    for (int i = 0; good && i < SW_LINEITEM_BUFFERS; i++)
        t->bytes += t->buffers[i].bytes;
    sw_tpch_free(tpch);
    if (good)
        return t;
    sw_lineitem_free(t);
    return NULL;
}

void sw_lineitem_free(struct sw_lineitem *t) {
    for (int i = 0; t && i < SW_LINEITEM_BUFFERS; i++)
        free(t->buffers[i].data);
    free(t);
}
