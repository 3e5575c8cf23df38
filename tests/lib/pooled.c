#include "tests/lib/pooled.h"

#include "base/assert.h"
#include "tests/lib/content.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MAX_BLOCKS = 512 };

/* A memfd needs its descriptor as long as it is mapped. */
static struct block {
    void *data;
    int fd;
} blocks[MAX_BLOCKS];

static void *alloc(void *user, uint64_t bytes, struct CUstream_st *stream);
static void free_block(void *user, void *data, uint64_t bytes);

struct sw_pooled_memory sw_pooled_memory = {.lock = PTHREAD_RECURSIVE_MUTEX_INITIALIZER_NP};
struct spillway_allocator sw_pooled_allocator = {alloc, free_block, &sw_pooled_memory};
struct spillway_pool *sw_pooled;
struct spillway_error sw_pooled_error;

/* ---- the allocator ----------------------------------------------------------------------------------------------- */

static void *map_block(uint64_t bytes) {
    for (unsigned i = 0; i < MAX_BLOCKS; i++) {
        if (blocks[i].data)
            continue;
        blocks[i].fd = memfd_create("pooled", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        SW_ASSERT(blocks[i].fd >= 0 && ftruncate(blocks[i].fd, (off_t)bytes) == 0);
        blocks[i].data = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, blocks[i].fd, 0);
        SW_ASSERT(blocks[i].data != MAP_FAILED);
        return blocks[i].data;
    }
    return NULL;
}

static void *try_alloc(struct sw_pooled_memory *m, uint64_t bytes, struct CUstream_st *stream) {
    void *data = NULL;
    (void)pthread_mutex_lock(&m->lock);
    m->stream = stream;
    if (!m->limit_bytes || m->used_bytes + bytes <= m->limit_bytes)
        data = map_block(bytes);
    m->used_bytes += data ? bytes : 0;
    m->n_allocs += data != NULL;
    m->n_refusals += data == NULL;
    (void)pthread_mutex_unlock(&m->lock);
    return data;
}

static void *alloc(void *user, uint64_t bytes, struct CUstream_st *stream) {
    struct sw_pooled_memory *m = user;
    void *data;
    if (m->on_full_locked)
        (void)pthread_mutex_lock(&m->lock);
    while (!(data = try_alloc(m, bytes, stream)) && m->on_full && m->on_full(bytes))
        ;
    if (m->on_full_locked)
        (void)pthread_mutex_unlock(&m->lock);
    return data;
}

static void free_block(void *user, void *data, uint64_t bytes) {
    struct sw_pooled_memory *m = user;
    unsigned i = 0;
    if (m->on_free)
        m->on_free(data);
    (void)pthread_mutex_lock(&m->lock);
    while (i < MAX_BLOCKS && blocks[i].data != data)
        i++;
    SW_ASSERT(i < MAX_BLOCKS);
    (void)munmap(data, bytes);
    (void)close(blocks[i].fd);
    blocks[i].data = NULL;
    m->used_bytes -= bytes;
    m->n_frees++;
    (void)pthread_mutex_unlock(&m->lock);
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

void sw_pooled_ok(int rc) {
    ck_assert_msg(rc == 0, "%s: %s", sw_pooled_error.name, sw_pooled_error.text);
}

void sw_pooled_ck_failed(int rc, int code, const char *text) {
    ck_assert_msg(rc == -code, "%s (%s), not %s", spillway_error_name(rc), sw_pooled_error.text,
                  spillway_error_name(code));
    ck_assert_int_eq(sw_pooled_error.code, rc);
    ck_assert_str_eq(sw_pooled_error.name, spillway_error_name(code));
    ck_assert_msg(strstr(sw_pooled_error.text, text) != NULL, "'%s' does not say '%s'", sw_pooled_error.text, text);
}

void sw_pooled_open_with(const struct spillway_pool_options *options) {
    sw_pooled_ok(spillway_pool_create(&sw_pooled, options, &sw_pooled_error));
}

void sw_pooled_close(void) {
    spillway_pool_close(sw_pooled);
    sw_pooled = NULL;
    ck_assert_uint_eq(sw_pooled_memory.used_bytes, 0);
}

struct spillway_handle *sw_pooled_new_with(const struct spillway_handle_options *options) {
    struct spillway_handle *handle = NULL;
    sw_pooled_ok(spillway_pool_new(sw_pooled, options, &handle, &sw_pooled_error));
    return handle;
}

void sw_pooled_fill(struct spillway_handle *handle, uint64_t seed) {
    void *data;
    sw_pooled_ok(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error));
    sw_content_fill(data, sw_pooled_info(handle).bytes, SW_CONTENT_MIXED, seed);
    sw_pooled_ok(spillway_handle_unpin(handle, NULL, &sw_pooled_error));
}

void sw_pooled_ck(struct spillway_handle *handle, uint64_t seed) {
    const uint64_t bytes = sw_pooled_info(handle).bytes;
    uint8_t *expected = malloc(bytes);
    void *data = NULL;
    ck_assert_ptr_nonnull(expected);
    sw_content_fill(expected, bytes, SW_CONTENT_MIXED, seed);
    sw_pooled_ok(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error));
    ck_assert_int_eq(memcmp(data, expected, bytes), 0);
    sw_pooled_ok(spillway_handle_unpin(handle, NULL, &sw_pooled_error));
    free(expected);
}

void sw_pooled_use(struct spillway_handle *handle) {
    void *data;
    sw_pooled_ok(spillway_handle_pin(handle, NULL, &data, &sw_pooled_error));
    sw_pooled_ok(spillway_handle_unpin(handle, NULL, &sw_pooled_error));
}

struct spillway_handle_info sw_pooled_info(struct spillway_handle *handle) {
    struct spillway_handle_info info = {.size = sizeof info};
    sw_pooled_ok(spillway_handle_query(handle, &info, &sw_pooled_error));
    return info;
}

bool sw_pooled_is(struct spillway_handle *handle, const char *state) {
    return strcmp(sw_pooled_info(handle).state, state) == 0;
}

struct spillway_pool_stats sw_pooled_stats(void) {
    struct spillway_pool_stats stats = {.size = sizeof stats};
    sw_pooled_ok(spillway_pool_stats(sw_pooled, &stats, &sw_pooled_error));
    return stats;
}

uint64_t sw_pooled_make_room(uint64_t bytes) {
    uint64_t freed = 0;
    sw_pooled_ok(spillway_pool_make_room(sw_pooled, bytes, &freed, &sw_pooled_error));
    return freed;
}
