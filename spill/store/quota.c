#include "spill/store/quota.h"

#include "base/assert.h"

#include <inttypes.h>

int sw_quota_take(struct sw_quota *quota, uint64_t bytes, struct sw_err *err) {
    unsigned long long had = atomic_load(&quota->bytes);
    do
        if (quota->max_bytes && (had > quota->max_bytes || bytes > quota->max_bytes - had))
            return sw_err_set(err, -SW_ETENANTBYTES, SW_SCOPE_REQUEST,
                              "the tenant has %llu bytes stored, %" PRIu64 " more would exceed %" PRIu64, had, bytes,
                              quota->max_bytes);
    while (!atomic_compare_exchange_weak(&quota->bytes, &had, had + bytes));
    return 0;
}

void sw_quota_give(struct sw_quota *quota, uint64_t bytes) {
    SW_ASSERT(atomic_fetch_sub(&quota->bytes, bytes) >= bytes);
}
