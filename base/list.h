/* list.h - intrusive doubly linked list with a sentinel head.
 *
 * A node is embedded in its object and is on at most one list. An initialized node that is on no list points to itself,
 * so removing it twice is harmless. Not thread safe: the owner of the list guards it. */
#ifndef SW_BASE_LIST_H
#define SW_BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct sw_list {
    struct sw_list *next, *prev;
};

/* Returns the object that embeds `node` as `member`. */
#define SW_CONTAINER_OF(node, type, member) ((type *)(void *)((char *)(node)-offsetof(type, member)))

static inline void sw_list_init(struct sw_list *node) {
    node->next = node->prev = node;
}

static inline bool sw_list_empty(const struct sw_list *head) {
    return head->next == head;
}

static inline void sw_list_append(struct sw_list *head, struct sw_list *node) {
    node->prev = head->prev;
    node->next = head;
    head->prev->next = node;
    head->prev = node;
}

static inline void sw_list_prepend(struct sw_list *head, struct sw_list *node) {
    sw_list_append(head->next, node);
}

static inline void sw_list_remove(struct sw_list *node) {
    node->prev->next = node->next;
    node->next->prev = node->prev;
    sw_list_init(node);
}

/* Moves all nodes of `from` to the end of `to`. */
static inline void sw_list_append_all(struct sw_list *to, struct sw_list *from) {
    if (sw_list_empty(from))
        return;
    from->next->prev = to->prev;
    to->prev->next = from->next;
    from->prev->next = to;
    to->prev = from->prev;
    sw_list_init(from);
}

/* Removes and returns the first node; NULL: the list is empty. */
static inline struct sw_list *sw_list_take_first(struct sw_list *head) {
    if (sw_list_empty(head))
        return NULL;
    struct sw_list *node = head->next;
    sw_list_remove(node);
    return node;
}

#endif
