/* memory.c - the default allocator, and the end of a buffer's memory. */
#include "ipc/pool/pool.h"

#include <stdlib.h>

enum { HOST_ALIGNMENT = 256 }; /* as cudaMalloc's */

static void *alloc_gpu(void *user, uint64_t bytes, struct CUstream_st *stream) {
    (void)stream;
    return sw_pool_gpu_alloc(((struct spillway_pool *)user)->gpu, bytes);
}

static void free_gpu(void *user, void *data, uint64_t bytes) {
    (void)bytes;
    sw_pool_gpu_free(((struct spillway_pool *)user)->gpu, data);
}

/* Does not use sw_alloc(), which sets every byte. */
static void *alloc_host(void *user, uint64_t bytes, struct CUstream_st *stream) {
    void *data = NULL;
    (void)user, (void)stream;
    return posix_memalign(&data, HOST_ALIGNMENT, bytes) == 0 ? data : NULL;
}

static void free_host(void *user, void *data, uint64_t bytes) {
    (void)user, (void)bytes;
    free(data);
}

void sw_pool_default_allocator(struct spillway_pool *pool) {
    pool->has_own_allocator = true;
    pool->allocator =
        (struct spillway_allocator){pool->gpu ? alloc_gpu : alloc_host, pool->gpu ? free_gpu : free_host, pool};
}

struct sw_pool_memory sw_handle_detach(struct spillway_handle *h) {
    const struct sw_pool_memory memory = h->memory;
    h->memory = (struct sw_pool_memory){0};
    h->pool->n_freeing += memory.data != NULL;
    return memory;
}

void sw_pool_free_memory(struct spillway_pool *pool, const struct sw_pool_memory *memory) {
    if (!memory->data)
        return;
    memory->free(memory->user, memory->data, memory->bytes);
    (void)pthread_mutex_lock(&pool->lock);
    pool->n_freeing--;
    pool->held_bytes -= memory->bytes;
    pool->freed_bytes += memory->bytes;
    (void)pthread_cond_broadcast(&pool->changed);
    (void)pthread_mutex_unlock(&pool->lock);
}
