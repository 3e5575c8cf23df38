#include "daemon/session/stats.h"

_Static_assert(SW_COST_REASON_NR <= SW_PROTO_MAX_REASONS, "STATUS has room for all reasons");

void sw_stats_status(const struct sw_service *service, struct sw_msg_status_ok *ret) {
    struct sw_engine_stats stats;
    sw_engine_stats(service->engine, &stats);
    const struct sw_tier_stats behind = sw_engine_stats_behind(&stats);
    const struct sw_device *first = service->devices[0];
    sw_msg_set_text(ret->version, sizeof ret->version, SW_VERSION);
    sw_msg_set_text(ret->device, sizeof ret->device, first->ops->info(first)->name);
    ret->n_gpus = service->n_gpus;
    ret->sessions = service->n_sessions;
    ret->regions = stats.n_regions;
    ret->scratch_bytes = stats.scratch_bytes;
    ret->scratch_limit_bytes = service->config->scratch_bytes * service->n_gpus;
    ret->tier_capacity_bytes = stats.tiers[0].capacity_bytes;
    ret->tier_backed_bytes = stats.tiers[0].backed_bytes;
    ret->tier_used_bytes = stats.tiers[0].used_bytes;
    ret->nvme_capacity_bytes = behind.capacity_bytes;
    ret->nvme_used_bytes = behind.used_bytes;
    ret->mapped_memories = stats.n_mapped;
    ret->n_reasons = SW_COST_REASON_NR;
    for (int i = 0; i < SW_COST_REASON_NR; i++) {
        sw_msg_set_text(ret->reasons + (size_t)i * SW_PROTO_REASON_BYTES, SW_PROTO_REASON_BYTES,
                        sw_cost_reason_text((enum sw_cost_reason)i));
        ret->reason_spills[i] = stats.reasons[i];
    }
}
