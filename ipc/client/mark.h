/* mark.h - marks in the caller's streams: words of a shared page that a stream writes after its queued work.
 *
 * - A page is a memfd of 64-bit words, sealed against shrinking and growing. The daemon reads the words, so nothing
 *   else has to be shared with it.
 * - A mark is a word and a value that this word never had. A word is used again only when it has its value, so a late
 *   stream never overwrites a newer mark.
 * - Pages are never unmapped. A stream may still write after the connection's end, and unregistering a page waits for
 *   the whole GPU. The process keeps a page for its next connection.
 *
 * thread: any; a page belongs to one connection at a time. */
#ifndef SW_IPC_MARK_H
#define SW_IPC_MARK_H

#include "base/err.h"
#include <stdbool.h>
#include <stdint.h>

struct sw_mark_page;
struct sw_mark;

enum { SW_MARK_PAGE_WORDS = 8192 };

/* Gets a page that no connection has, or a new one. owns: the caller, until sw_mark_page_put() (NULL: no-op). errors:
 * -SW_ELIMIT (no free descriptor), -SW_ENOMEM, -SW_EIO. */
int sw_mark_page_get(struct sw_mark_page **ret, struct sw_err *err);
void sw_mark_page_put(struct sw_mark_page *page);
/* Return the page's memfd, memory and length (borrowed). */
int sw_mark_page_fd(const struct sw_mark_page *page);
void *sw_mark_page_data(const struct sw_mark_page *page);
uint64_t sw_mark_page_bytes(const struct sw_mark_page *page);

/* Makes a mark, with one reference, for a stream of this context. errors (NULL): -SW_ELIMIT (every word of the page
 * waits for its stream). */
struct sw_mark *sw_mark_new(struct sw_mark_page *page, void *context, struct sw_err *err);
void *sw_mark_context(const struct sw_mark *mark);
struct sw_mark *sw_mark_ref(struct sw_mark *mark);
/* Gives a reference back, when the operation that waits for the mark has ended. NULL: no-op. */
void sw_mark_unref(struct sw_mark *mark);
/* Return the word and the value, for the daemon. */
uint32_t sw_mark_word(const struct sw_mark *mark);
uint64_t sw_mark_value(const struct sw_mark *mark);
/* Returns the address to which the stream writes the value. */
volatile void *sw_mark_address(const struct sw_mark *mark);
/* Returns whether the stream has written the value. */
bool sw_mark_is_reached(const struct sw_mark *mark);
/* Writes the value from the CPU, for a stream that cannot or does not. mark: a struct sw_mark. thread: any. */
void sw_mark_write(void *mark);

#endif
