/* easy.h - calls of the client API for tests: one buffer, or many small regions, without the structs around them.
 *
 * Each makes a struct spillway_request and calls the API; results and errors are the API's. A batch's ticket is known
 * by its address until easy_wait() has put its regions into the pieces. thread: any. */
#ifndef SW_TEST_EASY_H
#define SW_TEST_EASY_H

#include "ipc/spillway.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EASY __attribute__((unused)) static

/* One of a batch: bytes in registered memory, and their region. */
struct easy_piece {
    void *data;
    uint64_t bytes;
    struct spillway_region region; /* filled in by easy_wait(); read by a restore */
};

EASY int easy_open(struct spillway **ret, const char *path, struct spillway_error *error) {
    const struct spillway_options options = {.size = sizeof options, .socket_path = path};
    return spillway_open(ret, &options, error);
}

EASY int easy_open_served_by(struct spillway **ret, const char *path, uint32_t uid, struct spillway_error *error) {
    const struct spillway_options options = {
        .size = sizeof options, .socket_path = path, .flags = SPILLWAY_SERVED_BY, .server_uid = uid};
    return spillway_open(ret, &options, error);
}

/* ---- batches whose pieces easy_wait() fills in ---- */

static struct easy_batch {
    struct easy_batch *next;
    const struct spillway_ticket *ticket;
    struct easy_piece *pieces;
    uint32_t n;
} * easy_batches;
static pthread_mutex_t easy_lock = PTHREAD_MUTEX_INITIALIZER;

/* What is known of a ticket by its address, which may have been another one's before. */
EASY void easy_forget(const struct spillway_ticket *ticket) {
    (void)pthread_mutex_lock(&easy_lock);
    for (struct easy_batch **at = &easy_batches, *b; (b = *at);) {
        if (b->ticket == ticket) {
            *at = b->next;
            free(b);
        } else {
            at = &b->next;
        }
    }
    (void)pthread_mutex_unlock(&easy_lock);
}

EASY void easy_note(const struct spillway_ticket *ticket, struct easy_piece *pieces, uint32_t n) {
    struct easy_batch *b = malloc(sizeof *b);
    easy_forget(ticket);
    if (!b)
        abort();
    (void)pthread_mutex_lock(&easy_lock);
    *b = (struct easy_batch){easy_batches, ticket, pieces, n};
    easy_batches = b;
    (void)pthread_mutex_unlock(&easy_lock);
}

/* pieces: NULL of a restore. False: it is no batch. */
EASY int easy_find(const struct spillway_ticket *ticket, struct easy_batch *ret) {
    int found = 0;
    (void)pthread_mutex_lock(&easy_lock);
    for (const struct easy_batch *b = easy_batches; b && !found; b = b->next)
        if ((found = b->ticket == ticket))
            *ret = *b;
    (void)pthread_mutex_unlock(&easy_lock);
    return found;
}

/* ---- spill and restore ---- */

EASY int easy_start(int is_spill, struct spillway *c, const struct spillway_request *requests, uint32_t n,
                    struct spillway_ticket **ret, struct spillway_error *error) {
    const int rc = is_spill ? spillway_spill(c, requests, n, ret, error) : spillway_restore(c, requests, n, ret, error);
    if (!rc)
        easy_forget(*ret);
    return rc;
}

/* One region of one buffer, with whatever else `request` says. */
EASY int easy_one(int is_spill, struct spillway *c, struct spillway_request request, const void *data, uint64_t bytes,
                  int type, struct spillway_ticket **ret, struct spillway_error *error) {
    const struct spillway_buffer buffer = {.data = (void *)(uintptr_t)data, .bytes = bytes, .type = (uint16_t)type};
    request.size = sizeof request;
    request.buffers = &buffer;
    request.n_buffers = 1;
    return easy_start(is_spill, c, &request, 1, ret, error);
}

EASY int easy_spill_typed(struct spillway *c, const void *data, uint64_t bytes, enum spillway_value_type type,
                          struct CUstream_st *stream, struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_one(1, c, (struct spillway_request){.stream = stream}, data, bytes, (int)type, ret, error);
}

EASY int easy_spill(struct spillway *c, const void *data, uint64_t bytes, struct CUstream_st *stream,
                    struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_spill_typed(c, data, bytes, SPILLWAY_BYTES, stream, ret, error);
}

EASY int easy_spill_durable(struct spillway *c, const char *name, const void *data, uint64_t bytes,
                            struct CUstream_st *stream, struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_one(1, c, (struct spillway_request){.stream = stream, .name = name}, data, bytes, 0, ret, error);
}

EASY int easy_pack_typed(struct spillway *c, void *data, uint64_t bytes, enum spillway_value_type type,
                         struct CUstream_st *stream, struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_one(1, c, (struct spillway_request){.stream = stream, .flags = SPILLWAY_IN_PLACE}, data, bytes,
                    (int)type, ret, error);
}

EASY int easy_pack(struct spillway *c, void *data, uint64_t bytes, struct CUstream_st *stream,
                   struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_pack_typed(c, data, bytes, SPILLWAY_BYTES, stream, ret, error);
}

EASY int easy_restore(struct spillway *c, struct spillway_region region, void *data, uint64_t bytes,
                      struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret,
                      struct spillway_error *error) {
    return easy_one(0, c, (struct spillway_request){.stream = stream, .region = region, .flags = flags}, data, bytes, 0,
                    ret, error);
}

EASY int easy_unpack(struct spillway *c, struct spillway_region region, void *data, uint64_t bytes,
                     struct CUstream_st *stream, struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_restore(c, region, data, bytes, stream, SPILLWAY_IN_PLACE, ret, error);
}

EASY int easy_spill_buffers(struct spillway *c, const struct spillway_buffer *buffers, uint32_t n,
                            struct CUstream_st *stream, struct spillway_ticket **ret, struct spillway_error *error) {
    const struct spillway_request request = {
        .size = sizeof request, .buffers = buffers, .n_buffers = n, .stream = stream};
    return easy_start(1, c, &request, 1, ret, error);
}

EASY int easy_restore_buffers(struct spillway *c, struct spillway_region region, const struct spillway_buffer *buffers,
                              uint32_t n, struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret,
                              struct spillway_error *error) {
    const struct spillway_request request = {
        .size = sizeof request, .buffers = buffers, .n_buffers = n, .region = region, .stream = stream, .flags = flags};
    return easy_start(0, c, &request, 1, ret, error);
}

EASY int easy_batch(int is_spill, struct spillway *c, struct easy_piece *pieces, uint32_t n, struct CUstream_st *stream,
                    unsigned flags, struct spillway_ticket **ret, struct spillway_error *error) {
    struct spillway_request *requests = calloc(n ? n : 1, sizeof *requests);
    struct spillway_buffer *buffers = calloc(n ? n : 1, sizeof *buffers);
    if (!requests || !buffers)
        abort();
    for (uint32_t i = 0; pieces && i < n; i++) {
        buffers[i] = (struct spillway_buffer){.data = pieces[i].data, .bytes = pieces[i].bytes};
        requests[i] = (struct spillway_request){
            .size = sizeof *requests, .buffers = &buffers[i], .n_buffers = 1, .stream = stream, .flags = flags};
        if (!is_spill)
            requests[i].region = pieces[i].region;
    }
    const int rc = easy_start(is_spill, c, pieces ? requests : NULL, n, ret, error);
    if (!rc)
        easy_note(*ret, is_spill ? pieces : NULL, n);
    free(requests);
    free(buffers);
    return rc;
}

EASY int easy_spill_batch(struct spillway *c, struct easy_piece *pieces, uint32_t n, struct CUstream_st *stream,
                          struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_batch(1, c, pieces, n, stream, 0, ret, error);
}

EASY int easy_restore_batch(struct spillway *c, struct easy_piece *pieces, uint32_t n, struct CUstream_st *stream,
                            unsigned flags, struct spillway_ticket **ret, struct spillway_error *error) {
    return easy_batch(0, c, pieces, n, stream, flags, ret, error);
}

/* The text of all: the same, or "mixed". */
EASY void easy_combine(char *ret, size_t ret_bytes, const char *part) {
    if (strcmp(ret, part) != 0)
        (void)snprintf(ret, ret_bytes, "%s", *ret ? "mixed" : part);
}

/* Of a batch the sums, without a region; ret may be NULL. */
EASY int easy_wait_batch(struct spillway_ticket *ticket, const struct easy_batch *batch, int timeout_ms,
                         struct spillway_result *ret, struct spillway_error *error) {
    struct spillway_result *results = calloc(batch->n, sizeof *results), sum = {.size = sizeof sum};
    if (!results)
        abort();
    results->size = sizeof *results;
    const int rc = spillway_wait(ticket, timeout_ms, results, batch->n, error);
    for (uint32_t i = 0; !rc && i < batch->n; i++) {
        if (batch->pieces)
            batch->pieces[i].region = results[i].region;
        sum.raw_bytes += results[i].raw_bytes;
        sum.stored_bytes += results[i].stored_bytes;
        if (results[i].service_us > sum.service_us)
            sum.service_us = results[i].service_us;
        easy_combine(sum.codec, sizeof sum.codec, results[i].codec);
        easy_combine(sum.tier, sizeof sum.tier, results[i].tier);
        easy_combine(sum.reason, sizeof sum.reason, results[i].reason);
    }
    if (!rc && ret)
        *ret = sum;
    free(results);
    return rc;
}

/* ret NULL: the result is not wanted. Unchanged after an error. */
EASY int easy_wait(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *ret,
                   struct spillway_error *error) {
    struct spillway_result result = {.size = sizeof result};
    struct easy_batch batch;
    if (easy_find(ticket, &batch))
        return easy_wait_batch(ticket, &batch, timeout_ms, ret, error);
    const int rc = spillway_wait(ticket, timeout_ms, ret ? &result : NULL, ret ? 1 : 0, error);
    if (!rc && ret)
        *ret = result;
    return rc;
}

/* ---- questions ---- */

EASY int easy_drop(struct spillway *c, struct spillway_region region, struct spillway_error *error) {
    return spillway_drop(c, &region, 1, error);
}

EASY int easy_query(struct spillway *c, struct spillway_region region, struct spillway_region_info *ret,
                    struct spillway_error *error) {
    struct spillway_region_info info = {.size = sizeof info};
    const int rc = spillway_query(c, region, &info, error);
    if (!rc)
        *ret = info;
    return rc;
}

EASY int easy_status(struct spillway *c, struct spillway_status *ret, struct spillway_error *error) {
    struct spillway_status status = {.size = sizeof status};
    const int rc = spillway_status(c, &status, error);
    if (!rc)
        *ret = status;
    return rc;
}

#endif
