/* orders.h - the page of words by which a session's requests wait for its client's streams (spill/worker/order.h).
 *
 * A page that could not be taken fails what waits by it, with the same error: requests follow it without waiting for
 * its answer. A second page takes the place of the first; what waits by the first one goes on. thread: loop. */
#ifndef SW_DAEMON_ORDERS_H
#define SW_DAEMON_ORDERS_H

#include "ipc/dispatch.h"
#include "spill/worker/order.h"

struct sw_orders {
    struct sw_order_page *page; /* NULL: none */
    struct sw_err err;          /* why the newest one could not be taken; code 0: it was, or there is none */
};

/* Takes the page of an ORDER_PAGE. kept: the tenant's budget, in which a page counts as long as the session or an
 * operation has it. errors: -SW_EFDS (not one descriptor), -SW_ELIMIT (no descriptor is left for it), those of
 * sw_order_page_open(). */
int sw_orders_take(struct sw_orders *orders, const struct sw_received *request, struct sw_budget *kept,
                   struct sw_err *err);
/* What a request waits for. waits: false: for nothing. errors: -SW_EINVAL (no page was handed over), why it could not
 * be taken, those of sw_order_find(). */
int sw_orders_find(const struct sw_orders *orders, bool waits, uint32_t word, uint64_t value, struct sw_order *ret,
                   struct sw_err *err);
void sw_orders_fini(struct sw_orders *orders);

#endif
