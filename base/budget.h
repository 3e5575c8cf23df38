/* budget.h - bounds on what many users share, so that no one of them can have all of it.
 *
 * A share is not a fixed number: one user may have at most three times as much as is left free. So a user who is alone
 * gets up to three quarters, two get up to three sevenths each, and n users 3 / (3n + 1) each; there is always some
 * left for one who comes later. (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory packet
 * switches, 1998.)
 *
 * A budget counts bytes of memory of one user against a pool of all users. Invariant: what budgets have taken from a
 * pool by sw_budget_take() never exceeds the pool's limit. thread: any. */
#ifndef SW_BASE_BUDGET_H
#define SW_BASE_BUDGET_H

#include "base/err.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Whether a user may have `more` beside `mine`, of `limit`, of which all users, this one included, have `used`. A user
 * who has nothing gets something as long as it is there. Pure. */
bool sw_share_allows(uint64_t mine, uint64_t used, uint64_t limit, uint64_t more);

struct sw_budget_pool {
    atomic_ullong limit_bytes; /* 0: no bound */
    atomic_ullong used_bytes;
};

/* All zero: counts, and has no bound. */
struct sw_budget {
    struct sw_budget_pool *pool; /* borrowed; NULL: none */
    atomic_ullong limit_bytes;   /* of this one; 0: a share of the pool */
    atomic_ullong used_bytes;
};

/* Takes bytes for `what`, which the error names; NULL budget: a no-op. errors: -SW_ETENANTMEMORY: nothing is taken. */
int sw_budget_take(struct sw_budget *budget, uint64_t bytes, const char *what, struct sw_err *err);
/* Counts what is there already, beyond the bounds if need be: what a process has from its predecessor. */
void sw_budget_take_anyway(struct sw_budget *budget, uint64_t bytes);
void sw_budget_give(struct sw_budget *budget, uint64_t bytes);

#endif
