#include "ipc/client/client_arena.h"

#include "base/alloc.h"
#include "base/descriptors.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static struct sw_arena *arena_of(const struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_arena, node);
}

static void arena_free(struct sw_arena *arena) {
    sw_list_remove(&arena->node);
    sw_cuda_block_free(arena->block);
    if (arena->fd >= 0)
        (void)close(arena->fd);
    sw_free(arena);
}

static void arena_opened(struct spillway_ticket *t) {
    struct sw_arena *arena = t->own.owner;
    arena->open = !t->error.code;
    arena->error = t->error;
}

static int export_host(const struct sw_arena *arena, struct sw_export *e, struct sw_err *err) {
    const int rc = sw_export_reserve(e, 1, err);
    if (rc < 0)
        return rc;
    e->fds[0] = fcntl(arena->fd, F_DUPFD_CLOEXEC, 0);
    if (e->fds[0] < 0)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "descriptor of the staging arena: %s", strerror(errno));
    e->kind = SW_MEM_MEMFD;
    e->bytes = e->part_bytes[0] = arena->bytes;
    return 0;
}

static int make_host(struct sw_arena *arena, struct sw_export *e, struct sw_err *err) {
    arena->fd = memfd_create("spillway-staging", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (arena->fd < 0 || ftruncate(arena->fd, (off_t)arena->bytes) < 0 ||
        fcntl(arena->fd, F_ADD_SEALS, F_SEAL_SHRINK) < 0)
        return sw_err_set(err, sw_is_out_of_descriptors(errno) ? -SW_ELIMIT : sw_err_from_errno(errno),
                          SW_SCOPE_REQUEST, "staging arena: %s", strerror(errno));
    return export_host(arena, e, err);
}

static int make_gpu(struct spillway *c, struct sw_arena *arena, const void *near, struct sw_export *e,
                    struct sw_err *err) {
    const int rc = sw_cuda_block_new(&arena->block, c->cuda, near, arena->bytes, err);
    if (rc < 0)
        return rc;
    return sw_export_find(e, &c->cuda, sw_cuda_block_data(arena->block), arena->bytes, err);
}

/* Makes an arena on the GPU of the memory `near`, or on the host, and hands it over. */
static int arena_new(struct spillway *c, struct sw_list *arenas, int gpu, const void *near, struct sw_arena **ret,
                     struct sw_err *err) {
    struct sw_export e = {0};
    struct sw_arena *arena = sw_alloc(sizeof *arena);
    struct spillway_ticket *t = NULL;
    if (!arena)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a staging arena");
    sw_list_init(&arena->node);
    arena->gpu = gpu;
    arena->bytes = SW_ARENA_BYTES;
    arena->fd = -1;
    arena->mem = sw_client_new_mem(c);
    const int rc = gpu == SW_ARENA_HOST ? make_host(arena, &e, err) : make_gpu(c, arena, near, &e, err);
    if (!rc)
        t = sw_client_open_memory(c, arena->mem, &e, err);
    arena->range = (struct sw_export){.kind = e.kind, .offset = e.offset};
    sw_export_fini(&e);
    if (!t) {
        arena_free(arena);
        return rc < 0 ? rc : -SW_ENOMEM;
    }
    t->own.on_done = arena_opened;
    t->own.owner = arena;
    sw_list_append(arenas, &arena->node);
    *ret = arena;
    return 0;
}

int sw_arena_get(struct spillway *c, struct sw_list *arenas, int gpu, const void *near, struct sw_arena **ret,
                 struct sw_err *err) {
    for (struct sw_list *n = arenas->next; n != arenas; n = n->next) {
        struct sw_arena *arena = arena_of(n);
        if (arena->gpu == gpu && !arena->error.code) {
            *ret = arena;
            return 0;
        }
    }
    return arena_new(c, arenas, gpu, near, ret, err);
}

/* Returns whether the arena is unused and was refused. While it is being opened, the answer is not known yet. */
static bool is_spent(const struct sw_arena *arena) {
    return !arena->n_users && arena->error.code;
}

void sw_arenas_free_unused(struct spillway *c, struct sw_list *arenas) {
    for (struct sw_list *n = arenas->next, *next; n != arenas; n = next) {
        struct sw_arena *arena = arena_of(n);
        next = n->next;
        if (!is_spent(arena))
            continue;
        sw_client_close_memory(c, arena->mem);
        arena_free(arena);
    }
}

void sw_arenas_begin_round(struct sw_list *arenas) {
    for (struct sw_list *n = arenas->next; n != arenas; n = n->next)
        arena_of(n)->wanted = arena_of(n)->freed = false;
}

bool sw_arenas_freed(const struct sw_list *arenas) {
    for (const struct sw_list *n = arenas->next; n != arenas; n = n->next)
        if (arena_of(n)->freed)
            return true;
    return false;
}

bool sw_arenas_use(const struct sw_list *arenas, uint32_t mem) {
    for (struct sw_list *n = arenas->next; n != arenas; n = n->next)
        if (arena_of(n)->mem == mem)
            return true;
    return false;
}

void sw_arenas_free(struct sw_list *arenas) {
    while (!sw_list_empty(arenas))
        arena_free(arena_of(arenas->next));
}

/* Does not wait for the answer, because the packet goes before all that use the arena. They get its error, too. */
static void reopen(struct spillway *c, struct sw_arena *arena) {
    struct sw_export e = {0};
    arena->error = (struct spillway_error){0};
    const int rc = arena->gpu == SW_ARENA_HOST
                       ? export_host(arena, &e, NULL)
                       : sw_export_find(&e, &c->cuda, sw_cuda_block_data(arena->block), arena->bytes, NULL);
    struct spillway_ticket *t = rc ? NULL : sw_client_open_memory(c, arena->mem, &e, NULL);
    if (t) {
        t->own.on_done = arena_opened;
        t->own.owner = arena;
    } else {
        struct sw_err err = {0};
        (void)sw_err_set(&err, -SW_ENOMEM, SW_SCOPE_REQUEST, "staging arena cannot be handed over again");
        arena->open = false;
        (void)sw_client_report(&arena->error, &err);
    }
    sw_export_fini(&e);
}

void sw_arenas_reopen(struct spillway *c, struct sw_list *arenas) {
    for (struct sw_list *n = arenas->next; n != arenas; n = n->next) {
        struct sw_arena *arena = arena_of(n);
        /* An arena that was being opened counts, too: packets in the outbox may use it. */
        if (arena->open || arena->error.code == -SW_ERESTARTED)
            reopen(c, arena);
    }
}

/* ---- places ------------------------------------------------------------------------------------------------------ */

int sw_arena_find_places(const struct sw_arena *arena, unsigned n) {
    for (unsigned first = 0, i = 0; i < SW_ARENA_PIECES; i++) {
        if (arena->places[i].user)
            first = i + 1;
        else if (i + 1 - first == n)
            return (int)first;
    }
    return -1;
}

void sw_arena_take(struct sw_arena *arena, unsigned first, unsigned n, const void *user, uint8_t *data) {
    for (unsigned i = first; i < first + n; i++)
        arena->places[i] = (struct sw_place){.user = user};
    arena->places[first].n = n;
    arena->places[first].data = data;
}

void sw_arena_give_back(struct sw_arena *arena, unsigned first) {
    memset(&arena->places[first], 0, arena->places[first].n * sizeof arena->places[0]);
    arena->freed |= arena->wanted;
}

#define MAKE_BYTES (SW_ARENA_BYTES / 64)

/* Works in small steps, because a signal undoes the whole step that it interrupts. */
static int make_step(const struct sw_arena *arena, uint64_t at, struct sw_err *err) {
    const uint64_t left = arena->bytes - at;
    int rc;
    do
        rc = fallocate(arena->fd, 0, (off_t)at, (off_t)(left < MAKE_BYTES ? left : MAKE_BYTES));
    while (rc < 0 && errno == EINTR);
    return rc == 0 ? 0
                   : sw_err_set(err, errno == ENOSPC || errno == ENOMEM ? -SW_ENOMEM : -SW_EIO, SW_SCOPE_REQUEST,
                                "staging arena of %llu bytes: %s", (unsigned long long)arena->bytes, strerror(errno));
}

int sw_arena_make(struct sw_arena *arena, unsigned place, uint64_t bytes, struct sw_err *err) {
    const uint64_t begin = place * SW_PIECE_BYTES;
    if (arena->gpu != SW_ARENA_HOST)
        return 0;
    for (uint64_t i = begin / MAKE_BYTES; i * MAKE_BYTES < begin + bytes; i++) {
        if (arena->made >> i & 1)
            continue;
        const int rc = make_step(arena, i * MAKE_BYTES, err);
        if (rc < 0)
            return rc;
        arena->made |= (uint64_t)1 << i;
    }
    return 0;
}

/* Copies by system calls on the memfd, which return an error if the caller's memory is gone. */
static int copy_host(const struct sw_arena *arena, uint64_t base, uint8_t *data, uint64_t bytes, bool in,
                     struct sw_err *err) {
    for (uint64_t done = 0; done < bytes;) {
        const off_t at = (off_t)(base + done);
        const ssize_t n =
            in ? pwrite(arena->fd, data + done, bytes - done, at) : pread(arena->fd, data + done, bytes - done, at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return sw_err_set(err, n < 0 && errno == ENOMEM ? -SW_ENOMEM : -SW_EIO, SW_SCOPE_REQUEST,
                              "copy of %llu bytes at %p: %s", (unsigned long long)(bytes - done), (void *)(data + done),
                              n < 0 ? strerror(errno) : "nothing is there");
        done += (uint64_t)n;
    }
    return 0;
}

int sw_arena_copy(const struct sw_arena *arena, unsigned place, uint64_t at, uint64_t bytes, bool in,
                  struct sw_err *err) {
    const uint64_t base = place * SW_PIECE_BYTES + at;
    uint8_t *data = arena->places[place].data + at;
    if (arena->gpu == SW_ARENA_HOST)
        return copy_host(arena, base, data, bytes, in, err);
    uint8_t *staged = sw_cuda_block_data(arena->block) + base;
    return in ? sw_cuda_block_copy(arena->block, staged, data, bytes, err)
              : sw_cuda_block_copy(arena->block, data, staged, bytes, err);
}

int sw_arena_mark(struct spillway *c, const struct sw_arena *arena, struct sw_export *ret, struct sw_err *err) {
    *ret = arena->range;
    if (arena->gpu == SW_ARENA_HOST)
        return 0;
    return sw_export_order(ret, &c->cuda, NULL, sw_cuda_block_data(arena->block), sw_cuda_block_stream(arena->block),
                           err);
}
