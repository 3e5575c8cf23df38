#include "spill/tier/remote/remote_buffers.h"

#include "base/alloc.h"

static struct sw_remote_buffer *buffer_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_remote_buffer, node);
}

void sw_remote_buffers_init(struct sw_remote_buffers *b) {
    sw_list_init(&b->spare);
    b->spare_bytes = 0;
}

struct sw_remote_buffer *sw_remote_buffers_find(const struct sw_remote_buffers *b, uint64_t bytes) {
    for (struct sw_list *node = b->spare.next; node != &b->spare; node = node->next) {
        struct sw_remote_buffer *buffer = buffer_of(node);
        if (buffer->bytes >= bytes && buffer->bytes / 2 <= bytes)
            return buffer;
    }
    return NULL;
}

void sw_remote_buffers_take(struct sw_remote_buffers *b, struct sw_remote_buffer *spare) {
    sw_list_remove(&spare->node);
    b->spare_bytes -= spare->bytes;
}

void sw_remote_buffers_give(struct sw_remote_buffers *b, struct sw_remote_buffer *buffer) {
    sw_list_prepend(&b->spare, &buffer->node);
    b->spare_bytes += buffer->bytes;
}

void sw_remote_buffers_cut(struct sw_remote_buffers *b, uint64_t most_bytes, struct sw_list *ret) {
    while (b->spare_bytes > most_bytes) {
        struct sw_remote_buffer *last = buffer_of(b->spare.prev);
        sw_remote_buffers_take(b, last);
        sw_list_append(ret, &last->node);
    }
}

struct sw_remote_buffer *sw_remote_buffer_new(uint64_t bytes) {
    struct sw_remote_buffer *buffer = sw_realloc(NULL, sizeof *buffer + bytes); /* not set: it would take time */
    if (!buffer)
        return NULL;
    sw_list_init(&buffer->node);
    buffer->bytes = bytes;
    return buffer;
}

void sw_remote_buffers_free(struct sw_list *list) {
    struct sw_list *node;
    while ((node = sw_list_take_first(list)))
        sw_free(buffer_of(node));
}
