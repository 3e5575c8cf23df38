/* order.h - the order between a client's GPU work and ours: a page of words that the client's streams write.
 *
 * A client makes one page of 64-bit words (a memfd) and hands it over. To make an operation wait for a stream, it takes
 * a word and a value that this word never had, queues the write of this value on the stream, and names both in its
 * request. The worker polls the word. The operation begins once the value is there, and takes neither a slot nor a
 * mapping before. So no stream of ours ever waits for a client, and users share nothing but the memfd. A client that
 * writes too early, too late or never harms only its own operations.
 *
 * Invariant: while anything refers to a page, it is mapped for reading only, and cannot shrink. */
#ifndef SW_SPILL_ORDER_H
#define SW_SPILL_ORDER_H

#include "base/budget.h"
#include "base/err.h"
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#define SW_ORDER_MAX_BYTES ((uint64_t)64 << 10) /* most bytes of a page: 8192 words */

struct sw_order_page;

/* The condition that an operation waits for: word[0] >= value. page NULL: nothing. */
struct sw_order {
    struct sw_order_page *page;
    const _Atomic uint64_t *word;
    uint64_t value;
};

/* Maps a client's page. fd: borrowed; bytes: 8 … SW_ORDER_MAX_BYTES, a multiple of 8, the length of the file. kept: the
 * budget that the page is charged to until it is unmapped, borrowed until then; NULL: none. owns: the caller has a
 * reference. errors: -SW_EFDS (not a memfd), -SW_EUNSEALED (it can shrink or grow), -SW_ERANGE (length),
 * -SW_ETENANTMEMORY, -SW_ENOMEM. thread: loop. */
int sw_order_page_open(struct sw_order_page **ret, int fd, uint64_t bytes, struct sw_budget *kept, struct sw_err *err);
/* Add and drop a reference; the last one unmaps the page. NULL is a no-op. thread: loop. */
void sw_order_page_ref(struct sw_order_page *page);
void sw_order_page_unref(struct sw_order_page *page);
/* Gets the order that a request names. errors: -SW_ERANGE (the page has no such word), -SW_EINVAL (value 0, which each
 * word starts with); *ret is then unchanged. thread: loop. */
int sw_order_find(struct sw_order *ret, struct sw_order_page *page, uint32_t word, uint64_t value, struct sw_err *err);

/* Returns whether the operation may begin. thread: any. */
bool sw_order_is_reached(const struct sw_order *order);

#endif
