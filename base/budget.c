#include "base/budget.h"

#include "base/alloc.h"
#include "base/assert.h"

enum { SHARE = 3 }; /* a user may have this many times as much as is free */

bool sw_share_allows(uint64_t mine, uint64_t used, uint64_t limit, uint64_t more) {
    if (used > limit || more > limit - used)
        return false;
    return mine == 0 || mine + more <= SHARE * (limit - used - more);
}

static int refuse(const struct sw_budget *budget, uint64_t bytes, const char *what, struct sw_err *err) {
    return sw_err_set(err, -SW_ETENANTMEMORY, SW_SCOPE_REQUEST,
                      "%llu bytes for %s exceed this tenant's share of service memory, of which it uses %llu",
                      (unsigned long long)bytes, what, (unsigned long long)atomic_load(&budget->used_bytes));
}

/* Takes from the pool. The same compare-and-swap checks the pool's limit and the share, so neither is ever exceeded. */
static bool take_from_pool(struct sw_budget *budget, uint64_t bytes) {
    struct sw_budget_pool *pool = budget->pool;
    unsigned long long had = atomic_load(&pool->used_bytes);
    do {
        const uint64_t limit = atomic_load(&pool->limit_bytes);
        const uint64_t mine = atomic_load(&budget->used_bytes);
        if (limit && (atomic_load(&budget->limit_bytes) ? had > limit || bytes > limit - had
                                                        : !sw_share_allows(mine, had, limit, bytes)))
            return false;
    } while (!atomic_compare_exchange_weak(&pool->used_bytes, &had, had + bytes));
    return true;
}

static bool take_own(struct sw_budget *budget, uint64_t bytes) {
    unsigned long long had = atomic_load(&budget->used_bytes);
    do {
        const uint64_t limit = atomic_load(&budget->limit_bytes);
        if (limit && (had > limit || bytes > limit - had))
            return false;
    } while (!atomic_compare_exchange_weak(&budget->used_bytes, &had, had + bytes));
    return true;
}

int sw_budget_take(struct sw_budget *budget, uint64_t bytes, const char *what, struct sw_err *err) {
    if (!budget)
        return 0;
    if (budget->pool && !take_from_pool(budget, bytes))
        return refuse(budget, bytes, what, err);
    if (take_own(budget, bytes))
        return 0;
    if (budget->pool)
        (void)atomic_fetch_sub(&budget->pool->used_bytes, bytes);
    return refuse(budget, bytes, what, err);
}

void *sw_budget_alloc(struct sw_budget *budget, uint64_t bytes, const char *what, int *ret_rc, struct sw_err *err) {
    *ret_rc = sw_budget_take(budget, bytes, what, err);
    if (*ret_rc)
        return NULL;
    void *memory = sw_alloc(bytes);
    if (!memory) {
        sw_budget_give(budget, bytes);
        *ret_rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for %s", what);
    }
    return memory;
}

void sw_budget_take_anyway(struct sw_budget *budget, uint64_t bytes) {
    if (!budget)
        return;
    if (budget->pool)
        (void)atomic_fetch_add(&budget->pool->used_bytes, bytes);
    (void)atomic_fetch_add(&budget->used_bytes, bytes);
}

void sw_budget_give(struct sw_budget *budget, uint64_t bytes) {
    if (!budget)
        return;
    if (budget->pool)
        SW_ASSERT(atomic_fetch_sub(&budget->pool->used_bytes, bytes) >= bytes);
    SW_ASSERT(atomic_fetch_sub(&budget->used_bytes, bytes) >= bytes);
}
