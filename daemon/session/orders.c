#include "daemon/session/orders.h"

static int open_page(const struct sw_received *request, struct sw_budget *kept, struct sw_order_page **ret,
                     struct sw_err *err) {
    if (request->fds_lost)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the service has no free descriptor for an order page (LimitNOFILE=)");
    if (request->n_fds != 1)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST, "an order page has one descriptor, not %u", request->n_fds);
    return sw_order_page_open(ret, request->fds[0], request->msg->u.order_page.bytes, kept, err);
}

int sw_orders_take(struct sw_orders *orders, const struct sw_received *request, struct sw_budget *kept,
                   struct sw_err *err) {
    struct sw_order_page *page = NULL;
    struct sw_err cause = {0};
    const int rc = open_page(request, kept, &page, &cause);
    sw_order_page_unref(orders->page);
    *orders = (struct sw_orders){.page = page, .err = cause};
    if (rc < 0)
        *err = cause;
    return rc;
}

int sw_orders_find(const struct sw_orders *orders, bool waits, uint32_t word, uint64_t value, struct sw_order *ret,
                   struct sw_err *err) {
    *ret = (struct sw_order){0};
    if (!waits)
        return 0;
    if (orders->page)
        return sw_order_find(ret, orders->page, word, value, err);
    if (!orders->err.code)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "a chunk waits for a stream, but the client has sent no ORDER_PAGE");
    *err = orders->err;
    return err->code;
}

void sw_orders_fini(struct sw_orders *orders) {
    sw_order_page_unref(orders->page);
    orders->page = NULL;
}
