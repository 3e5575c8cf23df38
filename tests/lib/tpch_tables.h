/* tpch_tables.h - the columns of TPC-H's lineitem and orders, and the numbers of partsupp, at any scale factor, as an
 * engine would hold them.
 *
 * Types and distributions are those of the TPC-H specification, revision 3, clause 4.2.3 (keys, dates, prices, flags,
 * and how they depend on each other) with the lists of 4.2.2.13; comments are pieces of a text by 4.2.2.10
 * (tpch_text.h). The rows are not those of the reference generator. Orders do not depend on each other: any range of
 * them is made alone, and several threads can make a range each. The same holds for parts, each of which has four rows
 * of partsupp; what is said of orders below holds for the parts of its columns. Deterministic: same table, same range,
 * same bytes on every machine.
 *
 * Layout, as Arrow's: keys and decimals (cents, or hundredths) int64, dates int32 days since 1970, strings as int32
 * offsets, one more than rows, and characters. thread: any, after new. */
#ifndef SW_TEST_TPCH_TABLES_H
#define SW_TEST_TPCH_TABLES_H

#include "codec/frame.h"

#ifdef __cplusplus
extern "C" {
#endif

enum sw_tpch_column {
    SW_O_ORDERKEY,
    SW_O_CUSTKEY,
    SW_O_ORDERSTATUS,
    SW_O_TOTALPRICE,
    SW_O_ORDERDATE,
    SW_O_ORDERPRIORITY,
    SW_O_CLERK,
    SW_O_SHIPPRIORITY,
    SW_O_COMMENT,
    SW_TPCH_ORDERS_COLUMNS,
    SW_L_ORDERKEY = SW_TPCH_ORDERS_COLUMNS,
    SW_L_PARTKEY,
    SW_L_SUPPKEY,
    SW_L_LINENUMBER,
    SW_L_QUANTITY,
    SW_L_EXTENDEDPRICE,
    SW_L_DISCOUNT,
    SW_L_TAX,
    SW_L_RETURNFLAG,
    SW_L_LINESTATUS,
    SW_L_SHIPDATE,
    SW_L_COMMITDATE,
    SW_L_RECEIPTDATE,
    SW_L_SHIPINSTRUCT,
    SW_L_SHIPMODE,
    SW_L_COMMENT,
    SW_TPCH_LINEITEM_END,
    SW_PS_PARTKEY = SW_TPCH_LINEITEM_END,
    SW_PS_SUPPKEY,
    SW_PS_AVAILQTY,
    SW_PS_SUPPLYCOST,
    SW_TPCH_COLUMNS
};

/* "o_orderkey" ... "ps_supplycost". */
const char *sw_tpch_column_name(enum sw_tpch_column column);
/* Returns the type of the column's values; SW_VALUE_NONE for strings. */
enum sw_value_type sw_tpch_column_type(enum sw_tpch_column column);

struct sw_tpch;
/* scale_factor: above 0; 1 has 1.5 million orders. NULL without memory. _free takes NULL. */
struct sw_tpch *sw_tpch_new(double scale_factor, uint64_t seed);
void sw_tpch_free(struct sw_tpch *t);

uint64_t sw_tpch_orders(const struct sw_tpch *t);
/* The orders, or parts, of a column's table. */
uint64_t sw_tpch_keys(const struct sw_tpch *t, enum sw_tpch_column column);
/* Rows of the column's table for orders [first, first + n). */
uint64_t sw_tpch_rows(const struct sw_tpch *t, enum sw_tpch_column column, uint64_t first, uint64_t n);
/* Bytes that so many values or characters take at most. */
uint64_t sw_tpch_bound_bytes(enum sw_tpch_column column, uint64_t rows);

/* Writes the column for orders [first, first + n): values or characters to ret, offsets of strings, which begin with 0,
 * to offsets (NULL for others). Returns the bytes in ret. At most as many rows as keep offsets below 2^31. */
uint64_t sw_tpch_fill(const struct sw_tpch *t, enum sw_tpch_column column, uint64_t first, uint64_t n, void *ret,
                      int32_t *offsets);

#ifdef __cplusplus
}
#endif
#endif
