#include "spill/device/device_host_group.h"
#include "codec/codec.h"

#include "codec/identity.h"
#include "spill/device/stored.h"

#include <string.h>

int sw_host_group_encode(const struct sw_plan *plan, struct sw_group_item *items, unsigned n, uint8_t *raw,
                         uint8_t *frames, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++) {
        struct sw_group_item *item = &items[i];
        const uint64_t cap_bytes = sw_group_item_bytes(item->bytes);
        uint64_t frame_bytes = 0;
        rc = sw_host_read(item->mapping, raw, item->bytes, item->offset, err);
        if (!rc)
            rc = sw_codec_encode(plan, raw, item->bytes, frames, cap_bytes, &frame_bytes, err);
        if (!rc)
            rc = sw_frame_parse(&item->frame, frames, frame_bytes, frame_bytes, err);
        frames += cap_bytes;
    }
    return rc;
}

void sw_host_group_store(struct sw_group_item *items, unsigned n, const uint8_t *frames) {
    for (unsigned i = 0; i < n; i++) {
        const uint8_t *from = frames;
        if (items[i].stored->n_extents)
            items[i].identity = sw_identity_of(frames, items[i].frame.counts_offset);
        for (unsigned e = 0; e < items[i].stored->n_extents; e++) {
            const struct sw_extent *extent = &items[i].stored->extents[e];
            memcpy(extent->memory, from, extent->bytes);
            from += extent->bytes;
        }
        frames += sw_group_item_bytes(items[i].bytes);
    }
}

static void load(const struct sw_stored *stored, uint8_t *frame) {
    for (unsigned e = 0; e < stored->n_extents; e++) {
        memcpy(frame, stored->extents[e].memory, stored->extents[e].bytes);
        frame += stored->extents[e].bytes;
    }
}

void sw_host_group_gather(const struct sw_group_item *items, unsigned n, uint8_t *frames) {
    const uint8_t *from = frames;
    for (unsigned i = 0; i < n; i++) {
        if (!items[i].is_left_out)
            memcpy(frames + items[i].frame_at, from, items[i].frame.frame_bytes);
        from += sw_group_item_bytes(items[i].bytes);
    }
}

static int decode(struct sw_group_item *item, const uint8_t *frame, uint8_t *raw, struct sw_memfd_writer *writer,
                  struct sw_err *err) {
    uint64_t raw_bytes = 0;
    item->is_damaged = sw_codec_decode(frame, item->frame.frame_bytes, raw, item->bytes, &raw_bytes, NULL) != 0 ||
                       raw_bytes != item->bytes;
    writer->may_fill_holes = item->may_fill_holes;
    return item->is_damaged ? 0 : sw_host_write(writer, item->mapping, raw, raw_bytes, item->offset, err);
}

int sw_host_group_decode(struct sw_group_item *items, unsigned n, const uint8_t *frames, uint8_t *raw,
                         struct sw_memfd_writer *writer, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++)
        rc = decode(&items[i], frames + items[i].frame_at, raw, writer, err);
    return rc;
}

int sw_host_group_restore(struct sw_group_item *items, unsigned n, uint8_t *frame, uint8_t *raw,
                          struct sw_memfd_writer *writer, struct sw_err *err) {
    int rc = 0;
    for (unsigned i = 0; !rc && i < n; i++) {
        load(items[i].stored, frame);
        rc = decode(&items[i], frame, raw, writer, err);
    }
    return rc;
}
