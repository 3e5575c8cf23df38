#include "codec/params.h"

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

void sw_plan_init_raw(struct sw_plan *ret) {
    memset(ret, 0, sizeof *ret);
    ret->codec = SW_CODEC_RAW;
    ret->segment_log2 = SW_RAW_SEGMENT_LOG2;
    ret->expected_ratio = 1;
}

uint32_t sw_plan_symbols(const struct sw_plan *plan) {
    return sw_codec_has_symbols(plan->codec) ? plan->params.n_symbols : 0;
}

/* The shortest chunks of a region of several chunks (spill/planner/rules.c). */
#define DICTIONARY_CONTENT_BYTES ((uint64_t)4 << 20)

double sw_plan_head_part(const struct sw_plan *plan) {
    struct sw_frame_layout layout;
    uint64_t content_bytes = plan->raw_bytes;
    if (plan->dictionary && content_bytes > DICTIONARY_CONTENT_BYTES)
        content_bytes = DICTIONARY_CONTENT_BYTES;
    sw_frame_layout_init(&layout, plan->codec, plan->segment_log2, content_bytes, sw_plan_symbols(plan));
    if (plan->dictionary)
        sw_frame_layout_add_dictionary(&layout, plan->dictionary->bytes);
    return (double)layout.data_offset / (double)content_bytes;
}

double sw_plan_data_ratio(const struct sw_plan *plan) {
    if (plan->codec == SW_CODEC_RAW)
        return 1;
    const double data_per_byte = 1 / plan->expected_ratio - sw_plan_head_part(plan);
    return data_per_byte > 0 ? 1 / data_per_byte : (double)plan->raw_bytes; /* 0 or less: all values are equal */
}
