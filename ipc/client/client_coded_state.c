#include "ipc/client/client_coded_state.h"

#include "spill/planner/rules.h"

bool sw_coded_take_layout(struct sw_frame_layout *ret, const struct sw_wire_frame *frame, uint64_t room_bytes) {
    const struct sw_codec_format *format = sw_codec_format_of(frame->codec);
    if (!format || frame->value_type >= SW_VALUE_NR || frame->bytes > room_bytes ||
        frame->segment_log2 < format->min_segment_log2 || frame->segment_log2 > format->max_segment_log2 ||
        frame->n_symbols > format->max_symbols || frame->dictionary16 > format->max_dictionary_bytes / SW_FRAME_ALIGN ||
        !frame->raw_bytes || frame->raw_bytes > SW_FRAME_MAX_RAW_BYTES ||
        !sw_codec_takes((enum sw_codec_id)frame->codec, (enum sw_value_type)frame->value_type))
        return false;
    sw_frame_layout_init(ret, (enum sw_codec_id)frame->codec, frame->segment_log2, frame->raw_bytes, frame->n_symbols);
    ret->value_type = (enum sw_value_type)frame->value_type;
    sw_frame_layout_add_dictionary(ret, (uint32_t)SW_FRAME_ALIGN * frame->dictionary16);
    const bool is_final = ret->frame_bytes != 0; /* known before it is encoded */
    if (frame->bytes < ret->data_offset || (is_final && frame->bytes != ret->frame_bytes))
        return false;
    ret->frame_bytes = frame->bytes;
    return true;
}

void sw_coded_drop_event(const struct sw_coded *op, struct sw_coder_event *event, int code, const char *why) {
    struct sw_err err;
    (void)sw_err_set(&err, code, SW_SCOPE_REQUEST, "%s", why);
    sw_coder_event_done(sw_coded_coder(op), event, &err);
}

/* Its call has ended, one of its runs has, or the service does not know the frame buffers any more. */
bool sw_coded_refuse_event(const struct sw_coded *op, struct sw_coder_event *event) {
    bool is_over = sw_way_must_stop(&op->way);
    for (unsigned i = 0; !is_over && i < event->n; i++)
        is_over = op->way.transfer->results[event->runs[i]->item].code || atomic_load(&event->runs[i]->is_abandoned);
    if (is_over)
        sw_coded_drop_event(op, event, -SW_ECANCELED, "the call has ended");
    else if (op->link->state == SW_CODER_REFUSED) /* by the service that was restarted meanwhile */
        sw_coded_drop_event(op, event, op->link->error.code, op->link->error.text);
    return is_over || op->link->state == SW_CODER_REFUSED;
}

/* Short enough for all slots to have some, so that one chunk is encoded while others are copied. */
uint32_t sw_coded_chunk_bytes(const struct sw_way *way, const struct sw_item_buffer *b) {
    const struct sw_coder_link *link = SW_CONTAINER_OF(way, const struct sw_coded, way)->link;
    return (uint32_t)sw_rules_chunk_bytes(b->bytes, link->chunk_bytes, sw_coder_slots(link->coder));
}
