/* bitpack.h - vectors of numbers on the host: into rows of words, packed, and back. See bitpack_core.h.
 *
 * Row i holds word i of each lane. A vector of 8, 16 or 32-bit values has as many rows as a value has bits, one of
 * 64-bit values has 64: the lower halves are the even ones. thread: any. */
#ifndef SW_BITPACK_H
#define SW_BITPACK_H

#include "codec/bitpack/bitpack_core.h"

#define SW_VECTOR_MAX_ROWS 64
#define SW_VECTOR_MAX_BYTES (SW_VECTOR_MAX_ROWS * SW_VECTOR_LANES * 4)

struct sw_rows {
    uint32_t row[SW_VECTOR_MAX_ROWS][SW_VECTOR_LANES];
};

/* A tile of numbers as vectors: their number, and the bytes of one (the last may be shorter). */
unsigned sw_tile_vectors(unsigned value_bits, size_t tile_bytes);
size_t sw_tile_vector_bytes(unsigned value_bits, size_t tile_bytes, unsigned vector);

/* Of a full vector's content, any alignment. */
void sw_rows_load(struct sw_rows *ret, const uint8_t *content, unsigned value_bits);
void sw_rows_store(const struct sw_rows *rows, uint8_t *content, unsigned value_bits);

/* Subtracts base from, adds it to every value. */
void sw_rows_subtract(struct sw_rows *rows, unsigned value_bits, uint64_t base);
void sw_rows_add(struct sw_rows *rows, unsigned value_bits, uint64_t base);

/* width < value_bits; packed: width * 128 bytes, any alignment. Packs values below 2^width. */
void sw_rows_pack(const struct sw_rows *rows, unsigned value_bits, unsigned width, uint8_t *packed);
void sw_rows_unpack(struct sw_rows *ret, unsigned value_bits, unsigned width, const uint8_t *packed);

/* Least of the first n (1 … SW_VECTOR_VALUES) values of a vector's content, and the greatest less the least, as the
 * type orders them. */
struct sw_range {
    uint64_t base, range;
};
struct sw_range sw_vector_range(const uint8_t *content, unsigned n, enum sw_value_type type);

#endif
