#include "spill/tier/tiers.h"

/* Returns what is wrong with the i-th tier; NULL: nothing. */
static const char *find_fault(const struct sw_tiers *tiers, unsigned i) {
    const struct sw_tier *tier = tiers->at[i];
    if (sw_tier_can(tier, SW_TIER_ADDRESSABLE) != (i == 0))
        return "the first tier, and only the first, must be addressable";
    if (sw_tier_can(tier, SW_TIER_ASYNCHRONOUS) != (i > 0) || sw_tier_can(tier, SW_TIER_VIA) != (i > 0))
        return "each tier after the first must be asynchronous, and reached through it";
    for (unsigned k = 0; k < i; k++)
        if (tiers->at[k]->kind->id == tier->kind->id)
            return "a tier of this kind is listed twice";
    return NULL;
}

int sw_tiers_settle(struct sw_tiers *tiers, struct sw_err *err) {
    if (tiers->n == 0 || tiers->n > SW_TIERS_MAX)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON, "%u tiers: one to %d are possible", tiers->n, SW_TIERS_MAX);
    for (unsigned i = 0; i < tiers->n; i++) {
        const char *why = find_fault(tiers, i);
        if (why)
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_DAEMON, "tier %s cannot be number %u: %s",
                              tiers->at[i]->kind->name, i + 1, why);
        tiers->at[i]->rank = i;
    }
    return 0;
}

struct sw_tier *sw_tiers_find(const struct sw_tiers *tiers, uint8_t id) {
    for (unsigned i = 0; i < tiers->n; i++)
        if (tiers->at[i]->kind->id == id)
            return tiers->at[i];
    return NULL;
}

const char *sw_durability_name(enum sw_durability durability) {
    static const char *const names[SW_DURABILITY_NR] = {"service", "host", "remote"};
    return (unsigned)durability < SW_DURABILITY_NR ? names[durability] : "unknown";
}

struct sw_tier *sw_tiers_keeper(const struct sw_tiers *tiers, enum sw_durability durability) {
    for (unsigned i = 0; i < tiers->n; i++)
        if (tiers->at[i]->kind->durability >= durability && tiers->at[i]->kind->durability > SW_DURABILITY_SERVICE)
            return tiers->at[i];
    return NULL;
}

struct sw_tier_stats sw_tier_stats_of(struct sw_tier *tier) {
    struct sw_tier_stats stats = {0};
    if (tier)
        tier->ops->stats(tier, &stats);
    return stats;
}
