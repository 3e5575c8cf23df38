/* The generated tables keep the rules of the specification's clause 4.2.3, and do not depend on how they are made. */
#include "tests/lib/tpch_tables.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define SCALE_FACTOR 0.02

/* A range of orders: every column of it. */
struct tables {
    struct sw_tpch *t;
    uint64_t orders, lines;
    char *values[SW_TPCH_COLUMNS];
    int32_t *offsets[SW_TPCH_COLUMNS];
};

static uint64_t rows_of(const struct tables *s, enum sw_tpch_column column) {
    return sw_tpch_rows(s->t, column, 0, sw_tpch_keys(s->t, column));
}

static struct tables make(double scale_factor) {
    struct tables s = {.t = sw_tpch_new(scale_factor, 3)};
    ck_assert_ptr_nonnull(s.t);
    s.orders = sw_tpch_orders(s.t);
    s.lines = sw_tpch_rows(s.t, SW_L_TAX, 0, s.orders);
    for (int c = 0; c < SW_TPCH_COLUMNS; c++) {
        const enum sw_tpch_column column = (enum sw_tpch_column)c;
        const uint64_t rows = rows_of(&s, column);
        const bool is_string = sw_tpch_column_type(column) == SW_VALUE_NONE;
        s.values[c] = malloc(sw_tpch_bound_bytes(column, rows));
        s.offsets[c] = is_string ? malloc((rows + 1) * sizeof(int32_t)) : NULL;
        ck_assert(s.values[c] && (s.offsets[c] || !is_string));
        const uint64_t bytes = sw_tpch_fill(s.t, column, 0, sw_tpch_keys(s.t, column), s.values[c], s.offsets[c]);
        ck_assert_uint_le(bytes, sw_tpch_bound_bytes(column, rows));
        ck_assert_uint_eq(bytes, is_string ? (uint64_t)s.offsets[c][rows] : sw_tpch_bound_bytes(column, rows));
    }
    return s;
}

static void drop(struct tables *s) {
    for (int c = 0; c < SW_TPCH_COLUMNS; c++) {
        free(s->values[c]);
        free(s->offsets[c]);
    }
    sw_tpch_free(s->t);
}

static int64_t number(const struct tables *s, enum sw_tpch_column column, uint64_t row) {
    if (sw_tpch_column_type(column) == SW_VALUE_I32)
        return ((const int32_t *)s->values[column])[row];
    return ((const int64_t *)s->values[column])[row];
}

static char letter(const struct tables *s, enum sw_tpch_column column, uint64_t row) {
    ck_assert_int_eq(s->offsets[column][row + 1] - s->offsets[column][row], 1);
    return s->values[column][s->offsets[column][row]];
}

static void check_range(const struct tables *s, enum sw_tpch_column column, int64_t least, int64_t most) {
    const uint64_t rows = rows_of(s, column);
    int64_t low = INT64_MAX, high = INT64_MIN;
    for (uint64_t i = 0; i < rows; i++) {
        const int64_t v = number(s, column, i);
        low = v < low ? v : low;
        high = v > high ? v : high;
    }
    /* With so many rows the ends occur, too, or values near them. */
    const int64_t slack = (most - least) / 200;
    ck_assert_msg(low >= least && low <= least + slack && high <= most && high >= most - slack, "%s: %lld to %lld",
                  sw_tpch_column_name(column), (long long)low, (long long)high);
}

START_TEST(test_ranges) {
    struct tables s = make(SCALE_FACTOR);
    ck_assert_uint_eq(s.orders, 30000);
    ck_assert_uint_ge(s.lines, 4 * s.orders - s.orders / 20);
    ck_assert_uint_le(s.lines, 4 * s.orders + s.orders / 20);
    check_range(&s, SW_O_ORDERKEY, 1, (int64_t)s.orders * 4);
    check_range(&s, SW_O_CUSTKEY, 1, 3000);
    check_range(&s, SW_O_ORDERDATE, 8035, 10440);
    check_range(&s, SW_O_SHIPPRIORITY, 0, 0);
    check_range(&s, SW_L_PARTKEY, 1, 4000);
    check_range(&s, SW_L_SUPPKEY, 1, 200);
    check_range(&s, SW_L_LINENUMBER, 1, 7);
    check_range(&s, SW_L_QUANTITY, 100, 5000);
    check_range(&s, SW_L_DISCOUNT, 0, 10);
    check_range(&s, SW_L_TAX, 0, 8);
    check_range(&s, SW_L_SHIPDATE, 8036, 10561);
    check_range(&s, SW_L_COMMITDATE, 8065, 10530);
    check_range(&s, SW_L_RECEIPTDATE, 8037, 10591);
    check_range(&s, SW_PS_PARTKEY, 1, 4000);
    check_range(&s, SW_PS_SUPPKEY, 1, 200);
    check_range(&s, SW_PS_AVAILQTY, 1, 9999);
    check_range(&s, SW_PS_SUPPLYCOST, 100, 100000);
    drop(&s);
}
END_TEST

static void check_strings(const struct tables *s, enum sw_tpch_column column, int32_t least, int32_t most) {
    const uint64_t rows = rows_of(s, column);
    int32_t shortest = INT32_MAX, longest = 0;
    for (uint64_t i = 0; i < rows; i++) {
        const int32_t bytes = s->offsets[column][i + 1] - s->offsets[column][i];
        shortest = bytes < shortest ? bytes : shortest;
        longest = bytes > longest ? bytes : longest;
    }
    ck_assert_int_eq(shortest, least);
    ck_assert_int_eq(longest, most);
    ck_assert_ptr_null(memchr(s->values[column], '\n', (size_t)s->offsets[column][rows]));
}

START_TEST(test_strings) {
    struct tables s = make(SCALE_FACTOR);
    check_strings(&s, SW_O_ORDERPRIORITY, 5, 15);
    check_strings(&s, SW_O_CLERK, 15, 15);
    check_strings(&s, SW_O_COMMENT, 19, 78);
    check_strings(&s, SW_L_SHIPINSTRUCT, 4, 17);
    check_strings(&s, SW_L_SHIPMODE, 3, 7);
    check_strings(&s, SW_L_COMMENT, 10, 43);
    drop(&s);
}
END_TEST

/* Fills the columns that follow from an order and its own columns; returns its price. */
static int64_t check_line(const struct tables *s, uint64_t order, uint64_t row, int64_t number_in_order) {
    const int64_t part = number(s, SW_L_PARTKEY, row), ship = number(s, SW_L_SHIPDATE, row);
    const int64_t receipt = number(s, SW_L_RECEIPTDATE, row), price = number(s, SW_L_EXTENDEDPRICE, row);
    const char flag = letter(s, SW_L_RETURNFLAG, row);
    bool is_supplier = false;
    ck_assert_int_eq(number(s, SW_L_ORDERKEY, row), number(s, SW_O_ORDERKEY, order));
    ck_assert_int_eq(number(s, SW_L_LINENUMBER, row), number_in_order);
    for (int64_t i = 0; i < 4; i++)
        is_supplier |= number(s, SW_L_SUPPKEY, row) == (part + i * (200 / 4 + (part - 1) / 200)) % 200 + 1;
    ck_assert(is_supplier);
    ck_assert_int_eq(price, number(s, SW_L_QUANTITY, row) / 100 * (90000 + part / 10 % 20001 + 100 * (part % 1000)));
    ck_assert_int_ge(ship, number(s, SW_O_ORDERDATE, order) + 1);
    ck_assert_int_le(ship, number(s, SW_O_ORDERDATE, order) + 121);
    ck_assert_int_ge(receipt, ship + 1);
    ck_assert_int_le(receipt, ship + 30);
    ck_assert(receipt <= 9298 ? flag == 'R' || flag == 'A' : flag == 'N');
    ck_assert_int_eq(letter(s, SW_L_LINESTATUS, row), ship > 9298 ? 'O' : 'F');
    return price * (100 + number(s, SW_L_TAX, row)) * (100 - number(s, SW_L_DISCOUNT, row)) / 10000;
}

/* Every order has its lines, in its place, and every line its order. */
START_TEST(test_lines_of_orders) {
    struct tables s = make(SCALE_FACTOR);
    uint64_t row = 0;
    for (uint64_t order = 0; order < s.orders; order++) {
        const int64_t key = number(&s, SW_O_ORDERKEY, order);
        int64_t total = 0, lines = 0;
        unsigned open = 0;
        ck_assert_int_le((key - 1) % 32, 7);
        ck_assert(order == 0 || key > number(&s, SW_O_ORDERKEY, order - 1));
        ck_assert_int_ne(number(&s, SW_O_CUSTKEY, order) % 3, 0);
        for (; row < s.lines && number(&s, SW_L_ORDERKEY, row) == key; row++) {
            total += check_line(&s, order, row, ++lines);
            open += letter(&s, SW_L_LINESTATUS, row) == 'O';
        }
        ck_assert(lines >= 1 && lines <= 7);
        ck_assert_int_eq(number(&s, SW_O_TOTALPRICE, order), total);
        ck_assert_int_eq(letter(&s, SW_O_ORDERSTATUS, order), open == lines ? 'O' : open ? 'P' : 'F');
    }
    ck_assert_uint_eq(row, s.lines);
    drop(&s);
}
END_TEST

/* A part has four rows, each of another supplier, and so has a part of lineitem. */
START_TEST(test_suppliers_of_parts) {
    struct tables s = make(SCALE_FACTOR);
    for (uint64_t row = 0; row < rows_of(&s, SW_PS_PARTKEY); row++) {
        const int64_t part = number(&s, SW_PS_PARTKEY, row), i = (int64_t)row % 4;
        ck_assert_int_eq(part, (int64_t)row / 4 + 1);
        ck_assert_int_eq(number(&s, SW_PS_SUPPKEY, row), (part + i * (200 / 4 + (part - 1) / 200)) % 200 + 1);
    }
    drop(&s);
}
END_TEST

START_TEST(test_ranges_make_the_whole) {
    struct tables s = make(0.001);
    char *part = malloc(sw_tpch_bound_bytes(SW_L_COMMENT, s.lines));
    ck_assert_ptr_nonnull(part);
    for (int c = 0; c < SW_TPCH_COLUMNS; c++) {
        const enum sw_tpch_column column = (enum sw_tpch_column)c;
        const uint64_t keys = sw_tpch_keys(s.t, column);
        uint64_t at = 0;
        for (uint64_t first = 0, n; first < keys; first += n) {
            n = 1 + first % 97 < keys - first ? 1 + first % 97 : keys - first;
            const uint64_t bytes = sw_tpch_fill(s.t, column, first, n, part, NULL);
            ck_assert_msg(!memcmp(part, s.values[c] + at, bytes), "%s", sw_tpch_column_name(column));
            at += bytes;
        }
    }
    free(part);
    drop(&s);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("tpch_tables");
    TCase *tests = tcase_create("all");
    sw_test_slow(tests, 90);
    tcase_add_test(tests, test_ranges);
    tcase_add_test(tests, test_strings);
    tcase_add_test(tests, test_lines_of_orders);
    tcase_add_test(tests, test_suppliers_of_parts);
    tcase_add_test(tests, test_ranges_make_the_whole);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
