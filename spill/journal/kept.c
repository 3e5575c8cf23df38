#include "spill/journal/kept.h"

#include <string.h>

enum { VERSION = 1 };

struct header {
    uint32_t version, generation, n_entries;
    uint8_t priority, zeros[3];
    uint64_t epoch;
};
_Static_assert(sizeof(struct header) == 24, "the format");

int sw_kept_encode(struct sw_catalogue_content *ret, const struct sw_kept_ids *ids,
                   const struct sw_catalogue_region *region) {
    const struct header header = {.version = VERSION,
                                  .generation = ids->generation,
                                  .n_entries = ids->n_entries,
                                  .priority = region->hints.priority,
                                  .epoch = ids->epoch};
    const int rc = sw_catalogue_add(ret, &header, sizeof header);
    return rc ? rc : sw_catalogue_add_region(ret, region, 0);
}

static int take_header(const struct sw_tier_record *record, struct header *ret, struct sw_err *err) {
    if (record->bytes < sizeof *ret)
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "a durable region's record is too short");
    memcpy(ret, record->content, sizeof *ret);
    if (ret->version != VERSION)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON,
                          "a durable region's record has version %u, this program reads %d: start the later version",
                          (unsigned)ret->version, VERSION);
    return 0;
}

int sw_kept_decode(const struct sw_tier_record *record, struct sw_catalogue_region *ret,
                   char ret_name[SW_REGION_NAME_BYTES], struct sw_err *err) {
    struct header header;
    int rc = take_header(record, &header, err);
    if (rc)
        return rc;
    rc = sw_catalogue_read_region(&sw_catalogue_v3, (const uint8_t *)record->content + sizeof header,
                                  record->bytes - sizeof header, ret, ret_name);
    if (!rc && !ret->name) {
        sw_catalogue_frames_free(ret->frames);
        rc = -SW_EFRAME;
    }
    if (rc)
        return sw_err_set(err, rc, SW_SCOPE_DAEMON, "the record of durable region %llu cannot be read",
                          (unsigned long long)record->number);
    ret->batch = 0;
    ret->hints.priority = header.priority;
    return 0;
}

static int note(void *arg, const struct sw_tier_record *record, struct sw_err *err) {
    struct sw_kept_ids *ids = arg;
    struct header header;
    const int rc = take_header(record, &header, err);
    if (rc)
        return rc;
    if (ids->n && ids->epoch != header.epoch)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "durable regions of two services are in the tiers");
    ids->n++;
    ids->epoch = header.epoch;
    ids->generation = header.generation > ids->generation ? header.generation : ids->generation;
    ids->n_entries = header.n_entries > ids->n_entries ? header.n_entries : ids->n_entries;
    return 0;
}

int sw_kept_ids(const struct sw_tiers *tiers, struct sw_kept_ids *ret, struct sw_err *err) {
    int rc = 0;
    *ret = (struct sw_kept_ids){0};
    for (unsigned i = 0; !rc && i < tiers->n; i++)
        if (tiers->at[i]->kind->durability > SW_DURABILITY_SERVICE)
            rc = tiers->at[i]->ops->visit_kept(tiers->at[i], note, ret, err);
    return rc;
}
