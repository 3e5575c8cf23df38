/* idmap.h - finds objects by a number that the client chose: a hash of fixed size with intrusive chains.
 *
 * An object embeds a node; the map owns nothing. Numbers are unique: look before you add. A client that picks numbers
 * that collide slows down its own session only. thread: loop. */
#ifndef SW_DAEMON_IDMAP_H
#define SW_DAEMON_IDMAP_H

#include "base/list.h"
#include <stdint.h>

enum { SW_IDMAP_BUCKETS = 256 };

struct sw_idnode {
    struct sw_list list;
    uint32_t id;
};

struct sw_idmap {
    struct sw_list buckets[SW_IDMAP_BUCKETS];
    unsigned n;
};

static inline void sw_idmap_init(struct sw_idmap *map) {
    for (unsigned i = 0; i < SW_IDMAP_BUCKETS; i++)
        sw_list_init(&map->buckets[i]);
    map->n = 0;
}

static inline void sw_idmap_add(struct sw_idmap *map, struct sw_idnode *node, uint32_t id) {
    node->id = id;
    sw_list_append(&map->buckets[id % SW_IDMAP_BUCKETS], &node->list);
    map->n++;
}

/* Removes a node, which must be in the map. */
static inline void sw_idmap_remove(struct sw_idmap *map, struct sw_idnode *node) {
    sw_list_remove(&node->list);
    map->n--;
}

/* Returns the object of a number; NULL: there is none. */
static inline struct sw_idnode *sw_idmap_find(const struct sw_idmap *map, uint32_t id) {
    const struct sw_list *head = &map->buckets[id % SW_IDMAP_BUCKETS];
    for (struct sw_list *at = head->next; at != head; at = at->next) {
        struct sw_idnode *node = SW_CONTAINER_OF(at, struct sw_idnode, list);
        if (node->id == id)
            return node;
    }
    return NULL;
}

/* Unlinks and returns any node; NULL: the map is empty. */
static inline struct sw_idnode *sw_idmap_take_any(struct sw_idmap *map) {
    for (unsigned i = 0; map->n && i < SW_IDMAP_BUCKETS; i++)
        if (!sw_list_empty(&map->buckets[i])) {
            struct sw_idnode *node = SW_CONTAINER_OF(map->buckets[i].next, struct sw_idnode, list);
            sw_idmap_remove(map, node);
            return node;
        }
    return NULL;
}

#endif
