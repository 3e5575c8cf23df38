/* client_memory.c - hands memory over to the daemon, for one call or registered.
 *
 * Registered ranges do not overlap, so an address belongs to at most one. */
#include "ipc/client/client.h"

#include "base/alloc.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>

/* Moves the export's descriptors into MEM_PARTS packets. */
static int add_parts(struct sw_list *group, uint32_t mem, struct sw_export *e, struct sw_err *err) {
    for (uint32_t first = 0; first < e->n_parts;) {
        struct sw_msg msg;
        sw_msg_init(&msg, SW_MSG_MEM_PARTS);
        msg.u.mem_parts.mem = mem;
        msg.u.mem_parts.first = first;
        const uint32_t left = e->n_parts - first, count = left < SW_PROTO_MAX_FDS ? left : SW_PROTO_MAX_FDS;
        msg.u.mem_parts.count = count;
        memcpy(msg.u.mem_parts.part_bytes, e->part_bytes + first, count * sizeof *e->part_bytes);
        struct sw_packet *p = sw_packet_new(group, &msg, err);
        if (!p)
            return -SW_ENOMEM;
        memcpy(p->fds, e->fds + first, count * sizeof *e->fds);
        p->n_fds = count;
        for (uint32_t end = first + count; first < end; first++)
            e->fds[first] = -1;
    }
    return 0;
}

int sw_client_add_memory(struct sw_list *group, uint32_t mem, bool once, struct sw_export *e, struct sw_err *err) {
    struct sw_msg msg;
    struct sw_msg_mem_open *open = &msg.u.mem_open;
    sw_msg_init(&msg, SW_MSG_MEM_OPEN);
    *open = (struct sw_msg_mem_open){
        .mem = mem, .kind = (uint32_t)e->kind, .n_parts = e->n_parts, .once = once, .bytes = e->bytes};
    memcpy(open->device_uuid, e->device_uuid, sizeof open->device_uuid);
    memcpy(open->handle, e->handle, sizeof open->handle);
    return sw_packet_new(group, &msg, err) ? add_parts(group, mem, e, err) : -SW_ENOMEM;
}

static struct sw_registered *find_number(const struct spillway *c, uint32_t mem) {
    for (struct sw_list *n = c->registered.next; n != &c->registered; n = n->next) {
        struct sw_registered *r = SW_CONTAINER_OF(n, struct sw_registered, node);
        if (r->mem == mem)
            return r;
    }
    return NULL;
}

/* Returns a number that no open memory has. Memory opened `once` is used up before the numbers start again. */
uint32_t sw_client_new_mem(struct spillway *c) {
    const uint32_t mem = c->next_mem++;
    return find_number(c, mem) || c->layers->use(c, mem) ? sw_client_new_mem(c) : mem;
}

/* Sends the page of marks. If the daemon refuses it, the next mark sends it again. */
static void marks_shared(struct spillway_ticket *t) {
    if (t->error.code)
        t->connection->has_marks = false;
}

int sw_client_share_marks(struct spillway *c, struct sw_err *err) {
    return c->link == SW_LINK_UP && !c->has_marks ? sw_client_reshare_marks(c, err) : 0;
}

int sw_client_reshare_marks(struct spillway *c, struct sw_err *err) {
    const struct sw_mark_page *page = sw_cuda_mark_page(c->cuda);
    struct sw_list group;
    struct sw_msg msg;
    if (!page)
        return 0;
    sw_list_init(&group);
    sw_msg_init(&msg, SW_MSG_ORDER_PAGE);
    msg.u.order_page.bytes = sw_mark_page_bytes(page);
    struct spillway_ticket *t = sw_ticket_new(c, SW_MSG_ORDER_PAGE, err);
    struct sw_packet *packet = t ? sw_packet_new(&group, &msg, err) : NULL;
    int fd = packet ? fcntl(sw_mark_page_fd(page), F_DUPFD_CLOEXEC, 0) : -1;
    if (fd < 0) {
        const int cause = errno;
        sw_packets_free(&group);
        sw_free(t);
        return packet
                   ? sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "descriptor of the order page: %s", strerror(cause))
                   : -SW_ENOMEM;
    }
    packet->fds[0] = fd;
    packet->n_fds = 1;
    t->own.on_done = marks_shared;
    c->has_marks = true;
    sw_client_submit(t, &group);
    return 0;
}

/* ---- registered memory ------------------------------------------------------------------------------------------- */

static struct sw_registered *first_overlap(const struct spillway *c, uintptr_t address, uint64_t bytes) {
    for (struct sw_list *n = c->registered.next; n != &c->registered; n = n->next) {
        struct sw_registered *r = SW_CONTAINER_OF(n, struct sw_registered, node);
        if (address < r->address + r->bytes && r->address < address + bytes)
            return r;
    }
    return NULL;
}

bool sw_registered_holds(const struct sw_registered *r, const void *data, uint64_t bytes) {
    const uint64_t at = (uintptr_t)data - r->address; /* wraps around for an address before the range */
    return at <= r->bytes && bytes <= r->bytes - at;
}

const struct sw_registered *sw_registered_find(const struct spillway *c, const void *data, uint64_t bytes,
                                               struct sw_export *ret) {
    const uintptr_t address = (uintptr_t)data;
    const struct sw_registered *r = first_overlap(c, address, 1);
    if (!r && !bytes) /* an empty buffer may be at the end of the range */
        r = first_overlap(c, address - 1, 1);
    if (!r || r->closing || !sw_registered_holds(r, data, bytes))
        return NULL;
    ret->kind = r->kind;
    ret->offset = r->offset + (address - r->address);
    return r;
}

static void forget(struct sw_registered *r) {
    sw_list_remove(&r->node);
    sw_free(r);
}

void sw_registered_free(struct spillway *c) {
    while (!sw_list_empty(&c->registered))
        forget(SW_CONTAINER_OF(c->registered.next, struct sw_registered, node));
}

/* Notes whether the daemon has opened the memory again. Requests that were already sent get the daemon's error, and
 * later ones try again. The memory is found by its number, because it may have been unregistered meanwhile. */
static void handed_over(struct spillway_ticket *t) {
    struct sw_registered *r = find_number(t->connection, t->transfer.mem);
    if (r && t->error.code)
        r->refused = true;
}

static void hand_over(struct spillway *c, struct sw_registered *r) {
    const bool is_first = r->unused;
    struct sw_export export = {0};
    struct sw_err err = {0};
    struct spillway_ticket *t = NULL;
    r->refused = r->unused = false;
    if (sw_export_find(&export, &c->cuda, r->data, r->bytes, &err) == 0)
        t = sw_client_open_memory(c, r->mem, &export, &err);
    if (t) {
        t->transfer.mem = r->mem;
        t->own.on_done = handed_over;
    } else {
        sw_err_context(&err, is_first ? "registered memory" : "registered memory, after a restart");
    }
    r->error = t ? (struct sw_err){0} : err;
    sw_export_fini(&export);
}

int sw_registered_ready(struct spillway *c, uint32_t mem, struct sw_err *err) {
    struct sw_registered *r = find_number(c, mem);
    if (!r || !(r->error.code || r->refused || r->unused))
        return 0;
    if (c->link != SW_LINK_UP) { /* nothing is tried; it is handed over when the connection comes back */
        r->unused = false;
        return 0;
    }
    if (r->refused)
        sw_client_close_memory(c, mem);
    hand_over(c, r);
    if (r->error.code)
        *err = r->error;
    return r->error.code;
}

/* Sets the error of the packets in the outbox that use a memory, or clears it. The daemon would only answer that it
 * does not know a memory that could not be handed over again. */
static void tell_waiting(struct spillway *c, const struct sw_registered *r) {
    for (struct sw_list *n = c->running.next; n != &c->running; n = n->next) {
        struct spillway_ticket *t = SW_CONTAINER_OF(n, struct spillway_ticket, node);
        if (t->state != SW_TICKET_SETTLING && (t->transfer.mem == r->mem || (r->error.code && t->transfer.is_of_call &&
                                                                             c->layers->packet_uses(t, r->mem))))
            (void)sw_client_report(&t->error, &r->error);
    }
}

void sw_registered_reopen(struct spillway *c) {
    for (struct sw_list *n = c->registered.next; n != &c->registered; n = n->next) {
        struct sw_registered *r = SW_CONTAINER_OF(n, struct sw_registered, node);
        if (r->unused || (r->closing && sw_ticket_is_done(r->closing))) /* closed with the old process */
            continue;
        hand_over(c, r);
        tell_waiting(c, r);
    }
}

void sw_client_close_memory(struct spillway *c, uint32_t mem) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = mem};
    if (!c->lost.code)
        (void)sw_client_submit_unattended(c, &msg);
}

struct spillway_ticket *sw_client_open_memory(struct spillway *c, uint32_t mem, struct sw_export *e,
                                              struct sw_err *err) {
    struct sw_list group;
    sw_list_init(&group);
    struct spillway_ticket *t = sw_ticket_new(c, e->n_parts ? SW_MSG_MEM_PARTS : SW_MSG_MEM_OPEN, err);
    if (!t || sw_client_add_memory(&group, mem, false, e, err) < 0) {
        sw_packets_free(&group);
        sw_free(t);
        return NULL;
    }
    sw_client_submit(t, &group);
    return t;
}

/* Hands the memory over, and waits until the daemon has mapped it. */
static int open_registered(struct spillway *c, uint32_t mem, struct sw_export *e, struct spillway_error *error) {
    struct sw_err err = {0};
    struct spillway_ticket *t = sw_client_open_memory(c, mem, e, &err);
    if (!t)
        return sw_client_report(error, &err);
    int rc = sw_client_wait_answer(c, sw_client_is_done, t, c->timeout_ms, "MEM_OPEN", &err);
    if (rc < 0) {
        sw_ticket_abandon(t);
        (void)sw_client_report(error, &err);
    } else {
        rc = sw_client_copy_error(error, &t->error);
        sw_ticket_destroy(t);
    }
    if (rc < 0) /* the daemon keeps a refused memory until it is closed */
        sw_client_close_memory(c, mem);
    return rc;
}

/* Makes a registration, on no list yet. errors: -SW_EINVAL, -SW_EEXIST, -SW_ENOMEM. */
static struct sw_registered *registered_new(struct spillway *c, const void *data, uint64_t bytes,
                                            const struct sw_export *e, struct sw_err *err) {
    const uintptr_t address = (uintptr_t)data;
    const struct sw_registered *other = first_overlap(c, address, bytes);
    if (!bytes) {
        (void)sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory of no bytes cannot be registered");
        return NULL;
    }
    if (other) {
        (void)sw_err_set(err, -SW_EEXIST, SW_SCOPE_REQUEST,
                         "0x%" PRIxPTR " and %" PRIu64 " bytes overlap the registered 0x%" PRIxPTR " and %" PRIu64,
                         address, bytes, other->address, other->bytes);
        return NULL;
    }
    struct sw_registered *r = sw_alloc(sizeof *r);
    if (!r) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a registration");
        return NULL;
    }
    *r = (struct sw_registered){.data = data,
                                .address = address,
                                .bytes = bytes,
                                .mem = sw_client_new_mem(c),
                                .kind = e->kind,
                                .offset = e->offset};
    sw_list_init(&r->node);
    return r;
}

static int try_register(struct spillway *connection, void *data, uint64_t bytes, struct spillway_error *error) {
    struct sw_err err = {0};
    struct sw_export export = {0};
    struct sw_registered *r = NULL;
    if (connection->lost.code)
        return sw_client_copy_error(error, &connection->lost);
    if (sw_export_find(&export, &connection->cuda, data, bytes, &err) == 0)
        r = registered_new(connection, data, bytes, &export, &err);
    if (r)
        r->unused = connection->layers->is_coded_here(connection, data, bytes);
    int rc = r ? 0 : sw_client_report(error, &err);
    if (r && !r->unused)
        rc = open_registered(connection, r->mem, &export, error);
    sw_export_fini(&export);
    if (r && !rc)
        sw_list_append(&connection->registered, &r->node);
    else
        sw_free(r);
    return rc;
}

int spillway_register(struct spillway *connection, void *data, uint64_t bytes, struct spillway_error *error) {
    int rc = sw_client_enter(connection, error);
    if (rc < 0)
        return rc;
    do /* a service that was restarted meanwhile does not know the memory: repeat */
        rc = try_register(connection, data, bytes, error);
    while (rc == -SW_ERESTARTED && !connection->lost.code);
    sw_client_leave(connection);
    return rc;
}

struct use {
    const struct spillway *connection;
    uint32_t mem;
};

static bool is_unused(const void *arg) {
    const struct use *use = arg;
    return !use->connection->layers->use(use->connection, use->mem);
}

/* Has the daemon close the memory. After a time-out the next call waits for the same answer. errors: -SW_ETIMEDOUT,
 * -SW_ENOMEM, the connection's error (c->lost). */
static int close_registered(struct spillway *c, struct sw_registered *r, struct sw_err *err) {
    struct sw_msg msg = {.header.type = SW_MSG_MEM_CLOSE, .u.mem_close.mem = r->mem};
    /* Wait for calls with unsent packets, for which the daemon cannot wait. */
    const struct use use = {c, r->mem};
    int rc = sw_client_wait_answer(c, is_unused, &use, c->timeout_ms, "an operation in the memory", err);
    if (!rc && !r->closing)
        r->closing = sw_client_ask(c, &msg, NULL, NULL, err);
    if (!rc && !r->closing)
        return err->code;
    return rc ? rc : sw_client_wait_answer(c, sw_client_is_done, r->closing, c->timeout_ms, "MEM_CLOSE", err);
}

static int unregister(struct spillway *connection, const void *data, struct spillway_error *error) {
    struct sw_err err = {0};
    struct sw_registered *r = first_overlap(connection, (uintptr_t)data, 1);
    if (!r || r->address != (uintptr_t)data) {
        (void)sw_err_set(&err, -SW_ENOENT, SW_SCOPE_REQUEST, "no registered memory starts at %p", data);
        return sw_client_report(error, &err);
    }
    int rc = close_registered(connection, r, &err);
    if (!r->closing && connection->lost.code) {
        forget(r);
        return sw_client_copy_error(error, &connection->lost);
    }
    if (rc < 0)
        return sw_client_report(error, &err);
    struct spillway_ticket *t = r->closing;
    if (t->error.code == -SW_ENOENT || (r->refused && !connection->lost.code))
        t->error = (struct spillway_error){0}; /* it could not be handed over again, so it is not mapped */
    forget(r);
    rc = sw_client_copy_error(error, &t->error);
    sw_ticket_destroy(t);
    return rc;
}

int spillway_unregister(struct spillway *connection, void *data, struct spillway_error *error) {
    int rc = sw_client_enter(connection, error);
    if (rc < 0)
        return rc;
    rc = unregister(connection, data, error);
    sw_client_leave(connection);
    return rc;
}
