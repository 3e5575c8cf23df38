#include "ipc/client/client_call.h"

#include "base/alloc.h"
#include "ipc/span.h"
#include <string.h>

_Static_assert(sizeof(struct spillway_buffer) == 48, "for ever");

enum { MAX_STRUCT_BYTES = 4096 };

int sw_versioned_copy(void *ret, size_t bytes, size_t least_bytes, const void *from, const char *what,
                      struct sw_err *err) {
    size_t size;
    memcpy(&size, from, sizeof size);
    if (size < least_bytes || size > MAX_STRUCT_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s: size is %zu: set it to sizeof the struct", what,
                          size);
    for (size_t i = bytes; i < size; i++)
        if (((const uint8_t *)from)[i])
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                              "%s of %zu bytes: this library knows %zu, and what follows is not 0", what, size, bytes);
    const size_t known = size < bytes ? size : bytes;
    memcpy(ret, from, known);
    memset((uint8_t *)ret + known, 0, bytes - known);
    return 0;
}

int sw_check_size(size_t size, size_t least_bytes, const char *what, struct spillway_error *error) {
    struct sw_err err = {0};
    if (size < least_bytes || size > MAX_STRUCT_BYTES)
        (void)sw_err_set(&err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s: size is %zu: set it to sizeof the struct", what,
                         size);
    return sw_client_report(error, &err);
}

void sw_versioned_fill(void *ret, const void *from, size_t bytes) {
    size_t size;
    memcpy(&size, ret, sizeof size);
    const size_t known = size < bytes ? size : bytes;
    memcpy(ret, from, known);
    memset((uint8_t *)ret + known, 0, size - known);
    memcpy(ret, &size, sizeof size);
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

static int invalid(struct sw_err *err, const char *text) {
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s", text);
}

static int check_buffer(const struct spillway_buffer *b, bool is_spill, struct sw_err *err) {
    static const uint64_t zero[2];
    if (b->source || b->stride || b->source_offset || memcmp(b->reserved, zero, sizeof zero) != 0)
        return invalid(err, "reserved fields of a buffer are not 0");
    if (!b->data && b->bytes)
        return invalid(err, "NULL memory: data is not set");
    if (is_spill && b->type > SPILLWAY_DEC128)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "type %u is none of enum spillway_value_type",
                          (unsigned)b->type);
    return 0;
}

static int check_flags(const struct spillway_request *r, bool is_spill, struct sw_err *err) {
    const uint32_t known = SPILLWAY_IN_PLACE | SPILLWAY_EACH | (is_spill ? 0u : (uint32_t)SPILLWAY_KEEP);
    if (r->flags & (SPILLWAY_PACKED | SPILLWAY_PART))
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "SPILLWAY_PACKED and SPILLWAY_PART are not there yet");
    if (r->flags & ~known)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s: unknown flags 0x%x", is_spill ? "spill" : "restore",
                          (unsigned)(r->flags & ~known));
    if (r->flags & SPILLWAY_IN_PLACE && r->flags & SPILLWAY_KEEP)
        return invalid(err, "unpacking overwrites what is packed: it cannot be kept");
    return 0;
}

static int check_name(const struct spillway_request *r, struct sw_err *err) {
    const size_t bytes = r->name ? strnlen(r->name, SW_PROTO_NAME_BYTES) : 1;
    if (bytes == 0 || bytes >= SW_PROTO_NAME_BYTES)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a region's name must have 1 to %d bytes",
                          SW_PROTO_NAME_BYTES - 1);
    if (r->name && r->flags & SPILLWAY_IN_PLACE)
        return invalid(err, "a packed region cannot be durable");
    return 0;
}

static int check_durability(const struct spillway_request *r, struct sw_err *err) {
    if (r->durability > SPILLWAY_DURABLE_REMOTE)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "durability %u is unknown", (unsigned)r->durability);
    return r->durability && !r->name ? invalid(err, "durability needs a name, by which the region is found") : 0;
}

static int check_request(const struct spillway_request *r, bool is_spill, struct sw_err *err) {
    int rc = check_flags(r, is_spill, err);
    if (!rc)
        rc = is_spill ? check_name(r, err) : 0;
    if (!rc && is_spill)
        rc = check_durability(r, err);
    if (!rc && (!r->buffers || r->n_buffers < 1 || r->n_buffers > SPILLWAY_MAX_BUFFERS))
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%u buffers, must be 1 to %d", r->n_buffers,
                        SPILLWAY_MAX_BUFFERS);
    if (!rc && r->n_buffers > 1 && r->flags & SPILLWAY_IN_PLACE)
        rc = invalid(err, "a region of several buffers cannot be packed");
    if (!rc && is_spill && r->prefer > SPILLWAY_PREFER_ROOM)
        rc = sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "preference %u is unknown", (unsigned)r->prefer);
    if (!rc && r->urgency)
        rc = invalid(err, "reserved fields of a request are not 0");
    if (!rc && is_spill && (r->region.slot || r->region.generation))
        rc = invalid(err, "spill: region is set");
    for (uint32_t i = 0; !rc && i < r->n_buffers; i++) {
        rc = check_buffer(&r->buffers[i], is_spill, err);
        if (rc < 0 && r->n_buffers > 1)
            sw_err_context(err, "buffer %u", i + 1);
    }
    if (!rc && r->n_buffers == 1 && !r->buffers[0].data)
        rc = invalid(err, "NULL memory: data is not set");
    return rc;
}

/* Checks overlaps for the whole call. The daemon checks within one packet, and does not know that two memories overlap.
 */
static int check_overlap(const struct sw_call *call, struct sw_err *err) {
    struct sw_span *spans = sw_alloc_array(call->n_buffers, sizeof *spans);
    if (!spans)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a call of %u requests", call->n);
    for (uint32_t i = 0; i < call->n_buffers; i++)
        spans[i] = (struct sw_span){(uintptr_t)call->buffers[i].data, call->buffers[i].bytes};
    const bool overlap = sw_spans_overlap(spans, call->n_buffers);
    sw_free(spans);
    return overlap ? invalid(err, "destinations overlap") : 0;
}

/* Checks the requests together. */
static int check_call(const struct sw_call *call, struct sw_err *err) {
    bool packs = false;
    for (uint32_t i = 0; i < call->n; i++)
        packs |= call->requests[i].flags & SPILLWAY_IN_PLACE;
    if (packs && call->n > 1 && !(call->flags & SPILLWAY_EACH))
        return invalid(err, "several packs or unpacks in one call need SPILLWAY_EACH: they cannot be undone together");
    return call->n_buffers > 1 && !call->is_spill ? check_overlap(call, err) : 0;
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* The length of the first version of struct spillway_request. */
#define REQUEST_BYTES sizeof(struct spillway_request)

static const void *request_at(const struct spillway_request *requests, uint32_t i) {
    return (const uint8_t *)requests + (size_t)i * requests->size;
}

/* Checks each request, and counts the buffers and the bytes of names of all. */
static int check_requests(bool is_spill, const struct spillway_request *requests, uint32_t n, uint64_t *ret_buffers,
                          uint64_t *ret_name_bytes, struct sw_err *err) {
    struct spillway_request r;
    int rc = 0;
    for (uint32_t i = 0; !rc && i < n; i++) {
        rc = sw_versioned_copy(&r, sizeof r, REQUEST_BYTES, request_at(requests, i), "struct spillway_request", err);
        if (!rc && r.size != requests->size)
            rc = invalid(err, "structs of an array differ in size");
        if (!rc)
            rc = check_request(&r, is_spill, err);
        if (!rc && (r.flags & SPILLWAY_EACH) != (requests->flags & SPILLWAY_EACH))
            rc = invalid(err, "set SPILLWAY_EACH in all requests of a call, or in none");
        if (rc < 0 && n > 1)
            sw_err_context(err, "request %u of %u", i + 1, n);
        *ret_buffers += rc ? 0 : r.n_buffers;
        *ret_name_bytes += !rc && is_spill && r.name ? strlen(r.name) : 0;
    }
    if (!rc && *ret_buffers > UINT32_MAX)
        rc = invalid(err, "too many buffers");
    return rc;
}

static void copy_request(struct sw_call *call, uint32_t i, const struct spillway_request *r, char **names) {
    struct sw_call_request *to = &call->requests[i];
    struct spillway_buffer *buffers = call->buffers + call->n_buffers;
    const char *name = call->is_spill ? r->name : NULL;
    *to = (struct sw_call_request){.buffers = buffers,
                                   .n_buffers = r->n_buffers,
                                   .flags = r->flags,
                                   .region = r->region,
                                   .name = *names,
                                   .name_bytes = (uint8_t)(name ? strlen(name) : 0),
                                   .keep_priority = r->keep_priority,
                                   .durability = call->is_spill ? r->durability : 0,
                                   .prefer = call->is_spill ? r->prefer : 0,
                                   .stream = r->stream};
    memcpy(buffers, r->buffers, r->n_buffers * sizeof *buffers);
    if (name)
        memcpy(*names, name, to->name_bytes);
    *names += to->name_bytes;
    call->n_buffers += r->n_buffers;
    for (uint32_t k = 0; k < r->n_buffers; k++)
        to->bytes += buffers[k].bytes;
    if (r->timeout_ms && (!call->timeout_ms || r->timeout_ms < call->timeout_ms))
        call->timeout_ms = r->timeout_ms;
}

void sw_call_free(struct sw_call *call) {
    if (!call)
        return;
    sw_free(call->requests);
    sw_free(call->buffers);
    sw_free(call->names);
    sw_free(call);
}

static struct sw_call *call_alloc(uint32_t n, uint64_t n_buffers, uint64_t name_bytes) {
    struct sw_call *call = sw_alloc(sizeof *call);
    if (!call)
        return NULL;
    call->requests = sw_alloc_array(n, sizeof *call->requests);
    call->buffers = sw_alloc_array(n_buffers, sizeof *call->buffers);
    call->names = sw_alloc(name_bytes + 1);
    if (call->requests && call->buffers && call->names)
        return call;
    sw_call_free(call);
    return NULL;
}

int sw_call_new(struct sw_call **ret, bool is_spill, const struct spillway_request *requests, uint32_t n,
                struct sw_err *err) {
    uint64_t n_buffers = 0, name_bytes = 0;
    if (!requests || !n)
        return invalid(err, "a call without requests");
    int rc = check_requests(is_spill, requests, n, &n_buffers, &name_bytes, err);
    if (rc < 0)
        return rc;
    struct sw_call *call = call_alloc(n, n_buffers, name_bytes);
    if (!call)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a call of %u requests", n);
    char *names = call->names;
    call->is_spill = is_spill;
    call->n = n;
    call->flags = requests->flags & SPILLWAY_EACH;
    call->user = requests->user;
    for (uint32_t i = 0; i < n; i++) {
        struct spillway_request r;
        (void)sw_versioned_copy(&r, sizeof r, REQUEST_BYTES, request_at(requests, i), "", err);
        copy_request(call, i, &r, &names);
    }
    rc = check_call(call, err);
    if (rc < 0)
        sw_call_free(call);
    else
        *ret = call;
    return rc;
}
