/* event_cache.h - clients' events that stay open between operations: a small one would spend much of its time on it.
 *
 * An event is found by the session that named it and its handle, so that no session uses what another has opened, and
 * what an ended one has left is never taken for a new one's; such entries stay until others need their places. Knows
 * nothing of CUDA: the device opens and closes. thread: one at a time. */
#ifndef SW_SPILL_DEVICE_EVENT_CACHE_H
#define SW_SPILL_DEVICE_EVENT_CACHE_H

#include "base/err.h"
#include "base/mem_kind.h"
#include <stdint.h>

enum { SW_EVENT_CACHE_ENTRIES = 64 };

/* The owner sets the first three members; the others start as zero. */
struct sw_event_cache {
    /* Sets *ret to an event, not NULL, or returns an error. */
    int (*open)(void *arg, const uint8_t handle[SW_MEM_HANDLE_BYTES], void **ret, struct sw_err *err);
    /* Waits that are queued for the event are not disturbed. */
    void (*close)(void *arg, void *event);
    void *arg;
    struct sw_event_cache_entry {
        void *event; /* NULL: free */
        uint64_t session;
        uint64_t age; /* when it was used last; 0: free */
        uint8_t handle[SW_MEM_HANDLE_BYTES];
    } entries[SW_EVENT_CACHE_ENTRIES];
    uint64_t clock;
};

/* The session's event of that handle; opens it if it is not open, and then closes the one that has not been used for
 * longest if there are too many. *ret is good until the next call. session: a number that is never given to another
 * one. errors: those of `open`; nothing changes then. */
int sw_event_cache_get(struct sw_event_cache *cache, uint64_t session, const uint8_t handle[SW_MEM_HANDLE_BYTES],
                       void **ret, struct sw_err *err);
/* Closes all of them. */
void sw_event_cache_fini(struct sw_event_cache *cache);

#endif
