#include "spill/tier/frame_key.h"

#include "codec/checksum.h"

#define IS_CHECK (UINT64_C(1) << 63)
#define MOST_CHECKED_BYTES ((UINT64_C(1) << 31) - 1)

static uint32_t hash_beginning(const struct sw_stored *in_memory, uint64_t bytes) {
    uint32_t hash = 1;
    for (unsigned i = 0; i < in_memory->n_extents && bytes > 0; i++) { /* all extents but the last are whole blocks */
        const struct sw_extent *extent = &in_memory->extents[i];
        const uint64_t n = extent->bytes < bytes ? extent->bytes : bytes;
        hash = sw_hash_update(hash, extent->memory, (size_t)n);
        bytes -= n;
    }
    return sw_hash_finish(hash);
}

uint64_t sw_tier_key_check(const struct sw_stored *in_memory, const struct sw_frame_layout *layout) {
    uint64_t bytes = layout->counts_offset < in_memory->bytes ? layout->counts_offset : in_memory->bytes;
    bytes = bytes < MOST_CHECKED_BYTES ? bytes : MOST_CHECKED_BYTES;
    return IS_CHECK | bytes << 32 | hash_beginning(in_memory, bytes);
}

bool sw_tier_key_has_check(uint64_t check) {
    return check & IS_CHECK;
}

bool sw_tier_key_matches(const struct sw_stored *in_memory, uint64_t check) {
    const uint64_t bytes = check >> 32 & MOST_CHECKED_BYTES;
    return !sw_tier_key_has_check(check) ||
           (bytes <= in_memory->bytes && hash_beginning(in_memory, bytes) == (uint32_t)check);
}
