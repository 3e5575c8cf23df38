#include "codec/v5t/table.h"

#include "base/err.h"

#include <string.h>

void sw_v5t_table_write(const struct sw_v5t_table *table, void *section) {
    uint8_t *p = section;
    size_t used = (size_t)9 * table->n_symbols;
    memcpy(p, table->value, (size_t)8 * table->n_symbols);
    memcpy(p + (size_t)8 * table->n_symbols, table->length, table->n_symbols);
    memset(p + used, 0, (used + 15) / 16 * 16 - used);
}

int sw_v5t_table_read(struct sw_v5t_table *ret, const void *section, uint32_t n_symbols, unsigned max_bytes) {
    const uint8_t *values = section, *lengths = values + (size_t)8 * n_symbols;
    if (n_symbols > SW_V5T_MAX_SYMBOLS)
        return -SW_EFRAME;
    for (uint32_t c = 0; c < n_symbols; c++)
        if (lengths[c] < 1 || lengths[c] > max_bytes)
            return -SW_EFRAME;

    memset(ret, 0, sizeof *ret);
    ret->n_symbols = n_symbols;
    memcpy(ret->value, values, (size_t)8 * n_symbols);
    memcpy(ret->length, lengths, n_symbols);
    for (uint32_t c = 0; c < n_symbols; c++) {
        ret->n2 += lengths[c] == 2;
        ret->n1 += lengths[c] == 1;
    }
    return 0;
}
