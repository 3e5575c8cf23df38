/* client_call.h - inside of libspillway: a call of spillway_spill() or spillway_restore() as the library keeps it.
 *
 * Requests come in structs of the caller's version; a call has them in this library's, checked, with copies of their
 * buffers and names. Not installed. thread: that of the connection. */
#ifndef SW_IPC_CLIENT_CALL_H
#define SW_IPC_CLIENT_CALL_H

#include "ipc/client/client.h"

struct sw_call_request {
    const struct spillway_buffer *buffers;
    uint32_t n_buffers, flags;
    struct spillway_region region;
    const char *name; /* without a zero */
    uint8_t name_bytes, keep_priority;
    struct CUstream_st *stream;
    uint64_t bytes; /* of all buffers */
};

struct sw_call {
    bool is_spill;
    uint32_t n, n_buffers; /* requests; buffers of all of them */
    uint32_t flags;        /* SPILLWAY_EACH, or 0 */
    uint32_t timeout_ms;   /* the shortest; 0: none */
    void *user;
    struct sw_call_request *requests;
    struct spillway_buffer *buffers;
    char *names;
};

/* Copies a struct that begins with its size as its caller knew it. errors: -SW_EINVAL (longer, and not 0 there; or
 * shorter than its first version, `least_bytes`). */
int sw_versioned_copy(void *ret, size_t bytes, size_t least_bytes, const void *from, const char *what,
                      struct sw_err *err);

/* Fills in a caller's struct that begins with its size: as much as it knows, and 0 in what this library does not. */
void sw_versioned_fill(void *ret, const void *from, size_t bytes);
/* errors: -SW_EINVAL: no struct of this name ever had this size. */
int sw_check_size(size_t size, size_t least_bytes, const char *what, struct spillway_error *error);

/* Checks and copies the requests. owns: the caller, sw_call_free(). errors: -SW_EINVAL, -SW_ENOTSUP, -SW_ENOMEM. */
int sw_call_new(struct sw_call **ret, bool is_spill, const struct spillway_request *requests, uint32_t n,
                struct sw_err *err);
/* NULL is a no-op. */
void sw_call_free(struct sw_call *call);

#endif
