/* mark.h - marks in the caller's streams: words of a shared page that a stream writes when it has got that far.
 *
 * A page is a memfd of 64-bit words, sealed against shrinking and growing. The daemon reads the words, so nothing else
 * has to be shared with it. A mark is a word and a value that this word never had; a word serves the next mark only
 * once it has its value, so a late stream never writes over a newer mark. Pages are never unmapped: a stream may still
 * write when the connection is gone, and to unregister one from the driver waits for the whole GPU. Instead they are
 * kept in the process for the next connection. thread: any; a page belongs to one connection at a time. */
#ifndef SW_IPC_MARK_H
#define SW_IPC_MARK_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct sw_mark_page;
struct sw_mark;

enum { SW_MARK_PAGE_WORDS = 8192 };

/* A page that no connection has, or a new one. owns: the caller, until sw_mark_page_put(), which takes NULL. errors:
 * -SW_ELIMIT (no descriptor is left), -SW_ENOMEM, -SW_EIO. */
int sw_mark_page_get(struct sw_mark_page **ret, struct sw_err *err);
void sw_mark_page_put(struct sw_mark_page *page);
/* borrowed: the page's. */
int sw_mark_page_fd(const struct sw_mark_page *page);
void *sw_mark_page_data(const struct sw_mark_page *page);
uint64_t sw_mark_page_bytes(const struct sw_mark_page *page);

/* A mark that is to be written by a stream of that context. It has one reference. errors (NULL): -SW_ELIMIT: every word
 * of the page waits for its stream. */
struct sw_mark *sw_mark_new(struct sw_mark_page *page, void *context, struct sw_err *err);
void *sw_mark_context(const struct sw_mark *mark);
struct sw_mark *sw_mark_ref(struct sw_mark *mark);
/* The operation that waits for it has ended. NULL is a no-op. */
void sw_mark_unref(struct sw_mark *mark);
/* What the daemon is told. */
uint32_t sw_mark_word(const struct sw_mark *mark);
uint64_t sw_mark_value(const struct sw_mark *mark);
/* Where the stream has to write the value. */
volatile void *sw_mark_address(const struct sw_mark *mark);
/* Whether the stream has got there. */
bool sw_mark_is_reached(const struct sw_mark *mark);
/* Writes the value here, for a stream that cannot, or will not. mark: a struct sw_mark. thread: any. */
void sw_mark_write(void *mark);

#endif
