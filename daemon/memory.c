#include "daemon/memory.h"

#include "daemon/tiers/tiers.h"

#include <string.h>

/* MIB: what the process has without a client: code, threads, its loop and its tables. PART: page tables and the
 * kernel's buffers, in parts of the whole. A quarter of the rest is for bookkeeping. Clients may use all of it, up to
 * the bound. */
enum { OWN_MIB = 24, KERNELS_PART = 64, BOOKKEEPING_PART = 4, LEAST_BOOKKEEPING_MIB = 16, TIER_UNIT_MIB = 2 };

static bool is_known(uint64_t memory_bytes) {
    return memory_bytes && memory_bytes != UINT64_MAX;
}

static uint64_t mib(uint64_t n) {
    return n << 20;
}

/* Returns the memory that is left for clients. The host device's scratch memory is of the host, too; a GPU's is not. */
static uint64_t left_bytes(const struct sw_config *config, uint64_t memory_bytes) {
    const uint64_t scratch = strcmp(config->device, "cuda") == 0 ? 0 : config->scratch_bytes,
                   taken = mib(OWN_MIB) + memory_bytes / KERNELS_PART + scratch + sw_tiers_buffer_bytes(config);
    return memory_bytes > taken ? memory_bytes - taken : 0;
}

static uint64_t min(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

uint64_t sw_memory_for_bookkeeping(const struct sw_config *config, uint64_t memory_bytes) {
    const uint64_t part = left_bytes(config, memory_bytes) / BOOKKEEPING_PART, least = mib(LEAST_BOOKKEEPING_MIB);
    return !is_known(memory_bytes) ? UINT64_MAX : part > least ? part : least;
}

bool sw_memory_fit_tier(struct sw_config *config, uint64_t memory_bytes) {
    const uint64_t left = left_bytes(config, memory_bytes), unit = mib(TIER_UNIT_MIB),
                   bookkeeping = min(config->bookkeeping_bytes, sw_memory_for_bookkeeping(config, memory_bytes)),
                   rest = left > bookkeeping ? (left - bookkeeping) / unit * unit : 0, most = rest ? rest : unit;
    if (!is_known(memory_bytes) || config->host_tier_bytes <= most)
        return false;
    config->host_tier_bytes = most;
    config->host_tier_initial_bytes = min(config->host_tier_initial_bytes, most);
    config->host_tier_slab_bytes = min(config->host_tier_slab_bytes, most);
    return true;
}
