/* orders.h - a session's order page: words by which chunks wait for the client's streams (spill/worker/order.h).
 *
 * A page that was refused fails the chunks that wait by it with the same error, because the client does not wait for
 * the page's reply. A second page replaces the first one for later requests. thread: loop. */
#ifndef SW_DAEMON_ORDERS_H
#define SW_DAEMON_ORDERS_H

#include "ipc/dispatch.h"
#include "spill/worker/order.h"

struct sw_orders {
    struct sw_order_page *page; /* NULL: none */
    struct sw_err err;          /* why the newest page was refused; code 0: it was not, or there is none */
};

/* Takes the page of an ORDER_PAGE. kept: the tenant's budget, in which the page counts while the session or an
 * operation uses it. errors: -SW_EFDS (not exactly one descriptor), -SW_ELIMIT (no free descriptor), those of
 * sw_order_page_open(). */
int sw_orders_take(struct sw_orders *orders, const struct sw_received *request, struct sw_budget *kept,
                   struct sw_err *err);
/* Finds the word and value that a chunk waits for. waits: false: it does not wait. errors: -SW_EINVAL (there is no
 * page), the error of a refused page, those of sw_order_find(). */
int sw_orders_find(const struct sw_orders *orders, bool waits, uint32_t word, uint64_t value, struct sw_order *ret,
                   struct sw_err *err);
void sw_orders_fini(struct sw_orders *orders);

#endif
