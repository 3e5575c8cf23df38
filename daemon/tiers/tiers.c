#include "daemon/tiers/tiers.h"

#include "daemon/tiers/row.h"
#include "spill/operator.h"
#include <string.h>

/* Frames on their way, for each GPU. */
enum { STAGED_FRAMES = 16 };

int sw_tiers_open(struct sw_service *service, struct sw_err *err) {
    struct sw_tiers *tiers = &service->tiers;
    int rc = 0;
    for (unsigned i = 0; !rc && i < sw_tier_n_rows; i++) {
        struct sw_tier *tier = NULL;
        rc = sw_tier_rows[i]->open(service, &tier, &service->tier_own[i], err);
        if (!rc && tier)
            tiers->at[tiers->n++] = tier;
    }
    return rc;
}

void sw_tiers_close(struct sw_service *service) {
    for (unsigned i = 0; i < service->tiers.n; i++)
        service->tiers.at[i]->ops->close(service->tiers.at[i]);
    service->tiers.n = 0;
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        if (service->tier_own[i])
            sw_tier_rows[i]->closed(service->tier_own[i]);
    memset(service->tier_own, 0, sizeof service->tier_own);
}

uint64_t sw_tiers_staging_bytes(const struct sw_service *service) {
    if (service->tiers.n < 2)
        return 0;
    const struct sw_device_info *info = service->devices[0]->ops->info(service->devices[0]);
    const uint64_t n_frames = (uint64_t)STAGED_FRAMES * (service->n_gpus ? service->n_gpus : 1);
    const uint64_t wanted = n_frames * sw_frame_bound_bytes(info->chunk_bytes),
                   half = sw_tier_rows[0]->bytes(service->config) / 2;
    return wanted < half ? wanted : half;
}

uint64_t sw_tiers_bytes(const struct sw_config *config) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        bytes += sw_tier_rows[i]->bytes(config);
    return bytes;
}

uint64_t sw_tiers_buffer_bytes(const struct sw_config *config) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        bytes += sw_tier_rows[i]->buffer_bytes ? sw_tier_rows[i]->buffer_bytes(config) : 0;
    return bytes;
}

uint64_t sw_tiers_descriptors(const struct sw_config *config) {
    uint64_t n = 0;
    for (unsigned i = 0; i < sw_tier_n_rows; i++)
        n += sw_tier_rows[i]->n_descriptors ? sw_tier_rows[i]->n_descriptors(config) : 0;
    return n;
}

/* The options are named after the host tier, which was once the only one with another tier behind it. */
struct sw_tiers_marks sw_tiers_marks(const struct sw_config *config) {
    return (struct sw_tiers_marks){(unsigned)config->host_tier_high_pct, (unsigned)config->host_tier_low_pct};
}

bool sw_tiers_show(const struct sw_service *service, unsigned i, struct sw_tier_shown *ret) {
    if (i == sw_tier_n_rows)
        *ret = (struct sw_tier_shown){.name = SW_PACKED_TIER_NAME, .flows = SW_STATISTICS_PACKED};
    if (i >= sw_tier_n_rows)
        return i == sw_tier_n_rows;
    struct sw_tier *tier = sw_tiers_find(sw_engine_tiers(service->engine), sw_tier_rows[i]->kind->id);
    *ret = (struct sw_tier_shown){.name = sw_tier_rows[i]->kind->name,
                                  .tier = tier,
                                  .stats = sw_tier_stats_of(tier),
                                  .has_store = (sw_tier_rows[i]->kind->capabilities & SW_TIER_SHARED) != 0,
                                  .flows = tier ? tier->rank : SW_STATISTICS_TIER_NR};
    if (tier && ret->has_store)
        tier->ops->store_stats(tier, &ret->store);
    return true;
}

int sw_tiers_check(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err) {
    int rc = 0;
    *ret_good = true;
    for (unsigned i = 0; !rc && i < sw_tier_n_rows; i++) {
        bool good = true;
        if (sw_tier_rows[i]->check)
            rc = sw_tier_rows[i]->check(config, out, &good, err);
        *ret_good &= good;
    }
    return rc;
}
