/* budget.h - limits how much of a shared resource one user may take, so that no user can take all of it.
 *
 * A share is not a fixed number: a user may have at most three times as much as is still free. A single user gets up
 * to three quarters, two users get up to three sevenths each, and n users get up to 3 / (3n + 1) each. So something is
 * always left for a user that comes later. (Choudhury and Hahne, Dynamic queue length thresholds for shared-memory
 * packet switches, 1998.)
 *
 * A budget counts the memory of one user, in bytes. A pool counts the memory of all users. Invariant: the bytes that
 * sw_budget_take() takes from a pool never exceed the pool's limit. thread: any. */
#ifndef SW_BASE_BUDGET_H
#define SW_BASE_BUDGET_H

#include "base/err.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Returns whether a user that has `mine` may take `more`. `limit` is the whole resource; all users together, this one
 * included, have `used` of it. A user that has nothing yet gets anything that is still free. Pure. */
bool sw_share_allows(uint64_t mine, uint64_t used, uint64_t limit, uint64_t more);

struct sw_budget_pool {
    atomic_ullong limit_bytes; /* 0: no limit */
    atomic_ullong used_bytes;
};

/* All zero: it counts, but has no limit. */
struct sw_budget {
    struct sw_budget_pool *pool; /* borrowed; NULL: none */
    atomic_ullong limit_bytes;   /* of this budget; 0: a share of the pool */
    atomic_ullong used_bytes;
};

/* Takes bytes from a budget and its pool. `what` names the use of the bytes, for the error's text. NULL budget: a
 * no-op. errors: -SW_ETENANTMEMORY: nothing is taken. */
int sw_budget_take(struct sw_budget *budget, uint64_t bytes, const char *what, struct sw_err *err);
/* Takes the bytes and allocates them, all zero. NULL: *ret_rc is the error, and nothing is taken. errors: those of
 * sw_budget_take(), -SW_ENOMEM. */
void *sw_budget_alloc(struct sw_budget *budget, uint64_t bytes, const char *what, int *ret_rc, struct sw_err *err);
/* Counts bytes that are in use already, even beyond the limits: after a restart, the memory of recovered sessions. */
void sw_budget_take_anyway(struct sw_budget *budget, uint64_t bytes);
/* Gives bytes back to a budget and its pool. NULL budget: a no-op. */
void sw_budget_give(struct sw_budget *budget, uint64_t bytes);

#endif
