#include "spill/device/event_cache.h"

#include <string.h>

static struct sw_event_cache_entry *find(struct sw_event_cache *cache, uint64_t session, const uint8_t *handle) {
    for (int i = 0; i < SW_EVENT_CACHE_ENTRIES; i++) {
        struct sw_event_cache_entry *entry = &cache->entries[i];
        if (entry->event && entry->session == session && memcmp(entry->handle, handle, sizeof entry->handle) == 0)
            return entry;
    }
    return NULL;
}

/* A free one if there is one. */
static struct sw_event_cache_entry *oldest(struct sw_event_cache *cache) {
    struct sw_event_cache_entry *entry = &cache->entries[0];
    for (int i = 1; i < SW_EVENT_CACHE_ENTRIES; i++)
        if (cache->entries[i].age < entry->age)
            entry = &cache->entries[i];
    return entry;
}

static void close_entry(struct sw_event_cache *cache, struct sw_event_cache_entry *entry) {
    if (entry->event)
        cache->close(cache->arg, entry->event);
    memset(entry, 0, sizeof *entry);
}

int sw_event_cache_get(struct sw_event_cache *cache, uint64_t session, const uint8_t handle[SW_MEM_HANDLE_BYTES],
                       void **ret, struct sw_err *err) {
    struct sw_event_cache_entry *entry = find(cache, session, handle);
    if (!entry) {
        void *event = NULL;
        const int rc = cache->open(cache->arg, handle, &event, err);
        if (rc < 0)
            return rc;
        entry = oldest(cache);
        close_entry(cache, entry);
        entry->event = event;
        entry->session = session;
        memcpy(entry->handle, handle, sizeof entry->handle);
    }
    entry->age = ++cache->clock;
    *ret = entry->event;
    return 0;
}

void sw_event_cache_fini(struct sw_event_cache *cache) {
    for (int i = 0; i < SW_EVENT_CACHE_ENTRIES; i++)
        close_entry(cache, &cache->entries[i]);
}
