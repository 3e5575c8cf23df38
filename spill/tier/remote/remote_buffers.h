/* remote_buffers.h - memory for objects on their way to and from a store, which is used again: the kernel takes as long
 * to provide fresh memory as a processor takes to encrypt as many bytes (README.md).
 *
 * thread: any; struct sw_remote_buffers is guarded by its owner, who makes and frees buffers without the lock. */
#ifndef SW_SPILL_REMOTE_BUFFERS_H
#define SW_SPILL_REMOTE_BUFFERS_H

#include "base/list.h"
#include <stdint.h>

struct sw_remote_buffer {
    struct sw_list node; /* in `spare` */
    uint64_t bytes;      /* of `body` */
    _Alignas(16) uint8_t body[];
};

struct sw_remote_buffers {
    struct sw_list spare; /* the one that was used last is the first */
    uint64_t spare_bytes;
};

void sw_remote_buffers_init(struct sw_remote_buffers *buffers);
/* Returns a spare buffer of at least so many bytes, but not of more than twice as many; NULL: there is none. */
struct sw_remote_buffer *sw_remote_buffers_find(const struct sw_remote_buffers *buffers, uint64_t bytes);
/* Takes a spare buffer. */
void sw_remote_buffers_take(struct sw_remote_buffers *buffers, struct sw_remote_buffer *spare);
/* buffer: moved to the spare ones. */
void sw_remote_buffers_give(struct sw_remote_buffers *buffers, struct sw_remote_buffer *buffer);
/* Moves spare buffers, the one that was used first at first, to `ret` until at most so many bytes are spare. */
void sw_remote_buffers_cut(struct sw_remote_buffers *buffers, uint64_t most_bytes, struct sw_list *ret);

/* Returns NULL if there is no memory. The body is not set. */
struct sw_remote_buffer *sw_remote_buffer_new(uint64_t bytes);
/* Frees what sw_remote_buffers_cut() has moved. */
void sw_remote_buffers_free(struct sw_list *list);

#endif
