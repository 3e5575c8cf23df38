#include "tests/lib/tpch_tables.h"

#include "tests/lib/content.h"
#include "tests/lib/tpch_text.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define TEXT_BYTES (256u * SW_TPCH_TEXT_BLOCK_BYTES)
#define MAX_LINES 7
#define PART_SUPPLIERS 4
#define MAX_STRING_BYTES 79
/* Days since 1970 of clause 4.2.2.12. */
#define START_DATE 8035   /* 1992-01-01 */
#define CURRENT_DATE 9298 /* 1995-06-17 */
#define END_DATE 10591    /* 1998-12-31 */
#define LAST_ORDER_DATE (END_DATE - 151)

struct sw_tpch {
    uint64_t orders, customers, parts, suppliers, clerks, seed;
    uint32_t text_bytes;
    char text[TEXT_BYTES];
};

struct line {
    int64_t part, supplier, quantity, price, discount, tax;
    int32_t ship, commit, receipt;
    char return_flag, status;
    uint8_t instruct, mode;
    uint64_t comment;
};

struct order {
    int64_t key, customer, total;
    int32_t date;
    uint8_t priority, n_lines;
    char status;
    uint64_t clerk, comment;
    struct line lines[MAX_LINES];
};

static const char *const priorities[] = {"1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"};
static const char *const instructs[] = {"DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"};
static const char *const modes[] = {"REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"};

static const struct {
    const char *name;
    enum sw_value_type type;
} columns[SW_TPCH_COLUMNS] = {
    [SW_O_ORDERKEY] = {"o_orderkey", SW_VALUE_I64},
    [SW_O_CUSTKEY] = {"o_custkey", SW_VALUE_I64},
    [SW_O_ORDERSTATUS] = {"o_orderstatus", SW_VALUE_NONE},
    [SW_O_TOTALPRICE] = {"o_totalprice", SW_VALUE_I64},
    [SW_O_ORDERDATE] = {"o_orderdate", SW_VALUE_I32},
    [SW_O_ORDERPRIORITY] = {"o_orderpriority", SW_VALUE_NONE},
    [SW_O_CLERK] = {"o_clerk", SW_VALUE_NONE},
    [SW_O_SHIPPRIORITY] = {"o_shippriority", SW_VALUE_I32},
    [SW_O_COMMENT] = {"o_comment", SW_VALUE_NONE},
    [SW_L_ORDERKEY] = {"l_orderkey", SW_VALUE_I64},
    [SW_L_PARTKEY] = {"l_partkey", SW_VALUE_I64},
    [SW_L_SUPPKEY] = {"l_suppkey", SW_VALUE_I64},
    [SW_L_LINENUMBER] = {"l_linenumber", SW_VALUE_I32},
    [SW_L_QUANTITY] = {"l_quantity", SW_VALUE_I64},
    [SW_L_EXTENDEDPRICE] = {"l_extendedprice", SW_VALUE_I64},
    [SW_L_DISCOUNT] = {"l_discount", SW_VALUE_I64},
    [SW_L_TAX] = {"l_tax", SW_VALUE_I64},
    [SW_L_RETURNFLAG] = {"l_returnflag", SW_VALUE_NONE},
    [SW_L_LINESTATUS] = {"l_linestatus", SW_VALUE_NONE},
    [SW_L_SHIPDATE] = {"l_shipdate", SW_VALUE_I32},
    [SW_L_COMMITDATE] = {"l_commitdate", SW_VALUE_I32},
    [SW_L_RECEIPTDATE] = {"l_receiptdate", SW_VALUE_I32},
    [SW_L_SHIPINSTRUCT] = {"l_shipinstruct", SW_VALUE_NONE},
    [SW_L_SHIPMODE] = {"l_shipmode", SW_VALUE_NONE},
    [SW_L_COMMENT] = {"l_comment", SW_VALUE_NONE},
    [SW_PS_PARTKEY] = {"ps_partkey", SW_VALUE_I64},
    [SW_PS_SUPPKEY] = {"ps_suppkey", SW_VALUE_I64},
    [SW_PS_AVAILQTY] = {"ps_availqty", SW_VALUE_I32},
    [SW_PS_SUPPLYCOST] = {"ps_supplycost", SW_VALUE_I64},
};

const char *sw_tpch_column_name(enum sw_tpch_column column) {
    return columns[column].name;
}

enum sw_value_type sw_tpch_column_type(enum sw_tpch_column column) {
    return columns[column].type;
}

/* The generator's text comes as lines; comments are cut from it as one. */
static uint32_t strip_newlines(char *text, uint32_t bytes) {
    uint32_t kept = 0;
    for (uint32_t i = 0; i < bytes; i++)
        if (text[i] != '\n')
            text[kept++] = text[i];
    return kept;
}

static uint64_t scaled(double scale_factor, double of_one) {
    const double n = scale_factor * of_one;
    return n < 1 ? 1 : (uint64_t)n;
}

struct sw_tpch *sw_tpch_new(double scale_factor, uint64_t seed) {
    struct sw_tpch *t = malloc(sizeof *t);
    if (!t)
        return NULL;
    t->orders = scaled(scale_factor, 1500000);
    t->customers = scaled(scale_factor, 150000);
    t->parts = scaled(scale_factor, 200000);
    t->suppliers = scaled(scale_factor, 10000);
    t->clerks = scaled(scale_factor, 1000);
    t->seed = seed;
    sw_tpch_text_fill(t->text, 0, TEXT_BYTES, seed);
    t->text_bytes = strip_newlines(t->text, TEXT_BYTES);
    return t;
}

void sw_tpch_free(struct sw_tpch *t) {
    free(t);
}

uint64_t sw_tpch_orders(const struct sw_tpch *t) {
    return t->orders;
}

uint64_t sw_tpch_keys(const struct sw_tpch *t, enum sw_tpch_column column) {
    return column < SW_TPCH_LINEITEM_END ? t->orders : t->parts;
}

/* A number from least to most. */
static int64_t draw(uint64_t *state, int64_t least, int64_t most) {
    return least + (int64_t)(sw_random(state) % (uint64_t)(most - least + 1));
}

/* Returns a part's price in cents. */
static int64_t retail_price(int64_t part) {
    return 90000 + part / 10 % 20001 + 100 * (part % 1000);
}

/* Supplier i of a part. */
static int64_t supplier_of(const struct sw_tpch *t, int64_t part, int64_t i) {
    const int64_t suppliers = (int64_t)t->suppliers;
    return (part + i * (suppliers / PART_SUPPLIERS + (part - 1) / suppliers)) % suppliers + 1;
}

static void make_line(const struct sw_tpch *t, uint64_t *state, int32_t order_date, struct line *ret) {
    ret->part = draw(state, 1, (int64_t)t->parts);
    ret->supplier = supplier_of(t, ret->part, draw(state, 0, PART_SUPPLIERS - 1));
    ret->quantity = 100 * draw(state, 1, 50);
    ret->price = ret->quantity / 100 * retail_price(ret->part);
    ret->discount = draw(state, 0, 10);
    ret->tax = draw(state, 0, 8);
    ret->ship = order_date + (int32_t)draw(state, 1, 121);
    ret->commit = order_date + (int32_t)draw(state, 30, 90);
    ret->receipt = ret->ship + (int32_t)draw(state, 1, 30);
    const bool is_returned = draw(state, 0, 1);
    ret->return_flag = ret->receipt > CURRENT_DATE ? 'N' : is_returned ? 'R' : 'A';
    ret->status = ret->ship > CURRENT_DATE ? 'O' : 'F';
    ret->instruct = (uint8_t)draw(state, 0, 3);
    ret->mode = (uint8_t)draw(state, 0, 6);
    ret->comment = sw_random(state);
}

static void make_order(const struct sw_tpch *t, uint64_t i, struct order *ret) {
    uint64_t state = t->seed ^ (i + 1) * 0xD1B54A32D192ED03u;
    unsigned shipped = 0;
    ret->key = (int64_t)(i / 8 * 32 + i % 8) + 1; /* 8 of 32 keys are used */
    ret->n_lines = (uint8_t)draw(&state, 1, MAX_LINES);
    do /* a third of the customers has no orders */
        ret->customer = draw(&state, 1, (int64_t)t->customers);
    while (t->customers > 3 && ret->customer % 3 == 0);
    ret->date = (int32_t)draw(&state, START_DATE, LAST_ORDER_DATE);
    ret->priority = (uint8_t)draw(&state, 0, 4);
    ret->clerk = (uint64_t)draw(&state, 1, (int64_t)t->clerks);
    ret->comment = sw_random(&state);
    ret->total = 0;
    for (unsigned l = 0; l < ret->n_lines; l++) {
        struct line *line = &ret->lines[l];
        make_line(t, &state, ret->date, line);
        shipped += line->status == 'F';
        ret->total += line->price * (100 + line->tax) * (100 - line->discount) / 10000;
    }
    ret->status = shipped == ret->n_lines ? 'F' : shipped ? 'P' : 'O';
}

static size_t put_text(const struct sw_tpch *t, uint64_t draw_bits, uint32_t least, uint32_t most, char *ret) {
    const size_t bytes = least + (uint32_t)(draw_bits >> 40) % (most - least + 1);
    memcpy(ret, t->text + (uint32_t)draw_bits % (t->text_bytes - most), bytes);
    return bytes;
}

static size_t put_string(const char *string, char *ret) {
    const size_t bytes = strlen(string);
    memcpy(ret, string, bytes);
    return bytes;
}

static size_t put_number(int64_t v, size_t bytes, char *ret) {
    memcpy(ret, &v, bytes);
    return bytes;
}

/* A value of an order to ret; returns its bytes. */
static size_t put_order(const struct sw_tpch *t, const struct order *o, enum sw_tpch_column column, char *ret) {
    char clerk[32];
    switch (column) {
    case SW_O_ORDERKEY:
        return put_number(o->key, 8, ret);
    case SW_O_CUSTKEY:
        return put_number(o->customer, 8, ret);
    case SW_O_ORDERSTATUS:
        return put_number(o->status, 1, ret);
    case SW_O_TOTALPRICE:
        return put_number(o->total, 8, ret);
    case SW_O_ORDERDATE:
        return put_number(o->date, 4, ret);
    case SW_O_ORDERPRIORITY:
        return put_string(priorities[o->priority], ret);
    case SW_O_CLERK:
        (void)snprintf(clerk, sizeof clerk, "Clerk#%09llu", (unsigned long long)o->clerk);
        return put_string(clerk, ret);
    case SW_O_SHIPPRIORITY:
        return put_number(0, 4, ret);
    default:
        return put_text(t, o->comment, 19, 78, ret);
    }
}

static size_t put_line(const struct sw_tpch *t, const struct order *o, unsigned l, enum sw_tpch_column column,
                       char *ret) {
    const struct line *line = &o->lines[l];
    switch (column) {
    case SW_L_ORDERKEY:
        return put_number(o->key, 8, ret);
    case SW_L_PARTKEY:
        return put_number(line->part, 8, ret);
    case SW_L_SUPPKEY:
        return put_number(line->supplier, 8, ret);
    case SW_L_LINENUMBER:
        return put_number(l + 1, 4, ret);
    case SW_L_QUANTITY:
        return put_number(line->quantity, 8, ret);
    case SW_L_EXTENDEDPRICE:
        return put_number(line->price, 8, ret);
    case SW_L_DISCOUNT:
        return put_number(line->discount, 8, ret);
    case SW_L_TAX:
        return put_number(line->tax, 8, ret);
    case SW_L_RETURNFLAG:
        return put_number(line->return_flag, 1, ret);
    case SW_L_LINESTATUS:
        return put_number(line->status, 1, ret);
    case SW_L_SHIPDATE:
        return put_number(line->ship, 4, ret);
    case SW_L_COMMITDATE:
        return put_number(line->commit, 4, ret);
    case SW_L_RECEIPTDATE:
        return put_number(line->receipt, 4, ret);
    case SW_L_SHIPINSTRUCT:
        return put_string(instructs[line->instruct], ret);
    case SW_L_SHIPMODE:
        return put_string(modes[line->mode], ret);
    default:
        return put_text(t, line->comment, 10, 43, ret);
    }
}

/* Writes the rows of a part. */
static size_t put_part(const struct sw_tpch *t, uint64_t i, enum sw_tpch_column column, char *ret) {
    uint64_t state = t->seed ^ (i + 1) * 0x8CB92BA72F3D8DD7u;
    size_t at = 0;
    for (int64_t k = 0; k < PART_SUPPLIERS; k++) {
        const int64_t part = (int64_t)i + 1, quantity = draw(&state, 1, 9999), cost = draw(&state, 100, 100000);
        at += column == SW_PS_PARTKEY    ? put_number(part, 8, ret + at)
              : column == SW_PS_SUPPKEY  ? put_number(supplier_of(t, part, k), 8, ret + at)
              : column == SW_PS_AVAILQTY ? put_number(quantity, 4, ret + at)
                                         : put_number(cost, 8, ret + at);
    }
    return at;
}

uint64_t sw_tpch_rows(const struct sw_tpch *t, enum sw_tpch_column column, uint64_t first, uint64_t n) {
    struct order order;
    uint64_t rows = 0;
    if (column < SW_TPCH_ORDERS_COLUMNS)
        return n;
    if (column >= SW_TPCH_LINEITEM_END)
        return PART_SUPPLIERS * n;
    for (uint64_t i = first; i < first + n; i++) {
        make_order(t, i, &order);
        rows += order.n_lines;
    }
    return rows;
}

uint64_t sw_tpch_bound_bytes(enum sw_tpch_column column, uint64_t rows) {
    const enum sw_value_type type = columns[column].type;
    return rows * (type == SW_VALUE_I64 ? 8 : type == SW_VALUE_I32 ? 4 : MAX_STRING_BYTES);
}

uint64_t sw_tpch_fill(const struct sw_tpch *t, enum sw_tpch_column column, uint64_t first, uint64_t n, void *ret,
                      int32_t *offsets) {
    char *to = ret;
    uint64_t at = 0;
    struct order order;
    if (offsets)
        *offsets++ = 0;
    for (uint64_t i = first; column >= SW_TPCH_LINEITEM_END && i < first + n; i++)
        at += put_part(t, i, column, to + at);
    if (column >= SW_TPCH_LINEITEM_END)
        return at;
    for (uint64_t i = first; i < first + n; i++) {
        make_order(t, i, &order);
        const unsigned rows = column < SW_TPCH_ORDERS_COLUMNS ? 1 : order.n_lines;
        for (unsigned l = 0; l < rows; l++) {
            at += column < SW_TPCH_ORDERS_COLUMNS ? put_order(t, &order, column, to + at)
                                                  : put_line(t, &order, l, column, to + at);
            if (offsets)
                *offsets++ = (int32_t)at;
        }
    }
    return at;
}
