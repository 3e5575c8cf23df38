/* client_call.h - inside of libspillway: the requests of a call of spillway_spill() or spillway_restore().
 *
 * The caller's structs may have another version. A call has them in this library's version, checked, with copies of
 * their buffers and names. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_CALL_H
#define SW_IPC_CLIENT_CALL_H

#include "ipc/client/client.h"

struct sw_call_request {
    const struct spillway_buffer *buffers;
    uint32_t n_buffers, flags;
    struct spillway_region region;
    const char *name; /* without a terminating zero */
    uint8_t name_bytes, keep_priority, durability, prefer;
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

/* Copies a caller's struct that begins with its size. Missing fields become 0. errors: -SW_EINVAL (bytes that this
 * library does not know are not 0, or the struct is shorter than its first version, `least_bytes`). */
int sw_versioned_copy(void *ret, size_t bytes, size_t least_bytes, const void *from, const char *what,
                      struct sw_err *err);

/* Fills in a caller's struct that begins with its size. Fields that this library does not know become 0. */
void sw_versioned_fill(void *ret, const void *from, size_t bytes);
/* Checks the size of a caller's struct. errors: -SW_EINVAL (no version of the struct has this size). */
int sw_check_size(size_t size, size_t least_bytes, const char *what, struct spillway_error *error);

/* Checks and copies the requests. owns: the caller, sw_call_free(). errors: -SW_EINVAL, -SW_ENOTSUP, -SW_ENOMEM. */
int sw_call_new(struct sw_call **ret, bool is_spill, const struct spillway_request *requests, uint32_t n,
                struct sw_err *err);
/* Frees a call. NULL: no-op. */
void sw_call_free(struct sw_call *call);

#endif
