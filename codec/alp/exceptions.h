/* exceptions.h - a vector's exceptions on the host: first their values, then their places in the vector, a u16 each,
 * ascending. thread: any. */
#ifndef SW_ALP_EXCEPTIONS_H
#define SW_ALP_EXCEPTIONS_H

#include "codec/bitpack/bitpack_core.h"
#include <stdbool.h>
#include <string.h>

/* Exceptions being written, each value_bytes long. */
struct sw_exceptions_writer {
    uint8_t *value, *place;
    size_t value_bytes;
};

static inline struct sw_exceptions_writer sw_exceptions_begin(uint8_t *to, unsigned n, size_t value_bytes) {
    return (struct sw_exceptions_writer){to, to + n * value_bytes, value_bytes};
}

static inline void sw_exceptions_put(struct sw_exceptions_writer *w, const void *value, unsigned place) {
    const uint16_t at = (uint16_t)place;
    memcpy(w->value, value, w->value_bytes);
    memcpy(w->place, &at, sizeof at);
    w->value += w->value_bytes;
    w->place += sizeof at;
}

/* Ends the exceptions: writes zeros up to the vector's end. */
static inline void sw_exceptions_end(struct sw_exceptions_writer *w, const uint8_t *end) {
    memset(w->place, 0, (size_t)(end - w->place));
}

/* Returns the place of exception i of n; SW_VECTOR_VALUES or more: the vector is malformed. */
static inline unsigned sw_exceptions_place(const uint8_t *from, unsigned n, size_t value_bytes, unsigned i) {
    uint16_t at;
    memcpy(&at, from + n * value_bytes + i * sizeof at, sizeof at);
    return at;
}

/* Replaces values by their exceptions; false: the vector is malformed. */
static inline bool sw_exceptions_replace(const uint8_t *from, unsigned n, size_t value_bytes,
                                         uint64_t value[SW_VECTOR_VALUES]) {
    for (unsigned i = 0; i < n; i++) {
        const unsigned place = sw_exceptions_place(from, n, value_bytes, i);
        if (place >= SW_VECTOR_VALUES)
            return false;
        memcpy(&value[place], from + i * value_bytes, value_bytes);
    }
    return true;
}

#endif
