#include "codec/params.h"

#include "base/err.h"
#include "codec/frame.h"

#include <string.h>

void sw_params_write(const struct sw_params *params, void *section) {
    uint8_t *p = section;
    const size_t used = (size_t)9 * params->n_symbols;
    memcpy(p, params->value, (size_t)8 * params->n_symbols);
    memcpy(p + (size_t)8 * params->n_symbols, params->length, params->n_symbols);
    memset(p + used, 0, sw_frame_table_bytes(params->n_symbols) - used);
}

int sw_params_read(struct sw_params *ret, const void *section, uint32_t n_symbols, unsigned max_length) {
    const uint8_t *values = section, *lengths = values + (size_t)8 * n_symbols;
    if (n_symbols > SW_FRAME_MAX_SYMBOLS)
        return -SW_EFRAME;
    for (uint32_t c = 0; c < n_symbols; c++)
        if (lengths[c] < 1 || lengths[c] > max_length)
            return -SW_EFRAME;

    memset(ret, 0, sizeof *ret);
    ret->n_symbols = n_symbols;
    memcpy(ret->value, values, (size_t)8 * n_symbols);
    memcpy(ret->length, lengths, n_symbols);
    return 0;
}
