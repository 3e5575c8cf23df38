/* bitpack.h - packs and unpacks vectors of numbers on the host, as rows of words. See bitpack_core.h.
 *
 * Row i holds word i of each lane. A vector has as many rows as a value has bits. In a vector of 64-bit values the even
 * rows hold the lower halves. thread: any. */
#ifndef SW_BITPACK_H
#define SW_BITPACK_H

#include "codec/bitpack/bitpack_core.h"

#define SW_VECTOR_MAX_ROWS 64
#define SW_VECTOR_MAX_BYTES (SW_VECTOR_MAX_ROWS * SW_VECTOR_LANES * 4)

struct sw_rows {
    uint32_t row[SW_VECTOR_MAX_ROWS][SW_VECTOR_LANES];
};

/* Returns the number of vectors in a tile of numbers. */
unsigned sw_tile_vectors(unsigned value_bits, size_t tile_bytes);
/* Returns the length of a vector's content; the tile's last vector may be shorter than the others. */
size_t sw_tile_vector_bytes(unsigned value_bits, size_t tile_bytes, unsigned vector);

/* Loads a full vector's content, of any alignment, into rows. */
void sw_rows_load(struct sw_rows *ret, const uint8_t *content, unsigned value_bits);
/* Stores rows as a full vector's content, of any alignment. */
void sw_rows_store(const struct sw_rows *rows, uint8_t *content, unsigned value_bits);

/* Subtracts base from every value. */
void sw_rows_subtract(struct sw_rows *rows, unsigned value_bits, uint64_t base);
/* Adds base to every value. */
void sw_rows_add(struct sw_rows *rows, unsigned value_bits, uint64_t base);

/* Packs values below 2^width, where width < value_bits. packed: width * 128 bytes, of any alignment. */
void sw_rows_pack(const struct sw_rows *rows, unsigned value_bits, unsigned width, uint8_t *packed);
/* Unpacks the result of sw_rows_pack(). */
void sw_rows_unpack(struct sw_rows *ret, unsigned value_bits, unsigned width, const uint8_t *packed);

struct sw_range {
    uint64_t base, range;
};
/* Returns the smallest of the first n (1 … SW_VECTOR_VALUES) values of a vector's content, and the difference between
 * the largest and the smallest, in the type's order. */
struct sw_range sw_vector_range(const uint8_t *content, unsigned n, enum sw_value_type type);

#endif
