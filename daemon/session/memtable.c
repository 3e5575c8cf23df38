#include "daemon/session/memtable.h"

#include "base/alloc.h"
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { EMPTY_BYTES = 4096 };

enum state { STAGED, LIVE, FAILED };

struct sw_table_mem {
    struct sw_idnode node;
    struct sw_list ending; /* `once`: in its operation's list, then in the table's list `ending` */
    struct sw_memtable *table;
    enum state state;
    bool once;
    bool is_shared;          /* `once`: several jobs of its operation use it */
    bool is_empty;           /* for empty buffers */
    unsigned n_fds;          /* counted against the budget */
    uint64_t kept_bytes;     /* memory counted against the tenant's budget */
    uint32_t n_parts_here;   /* STAGED: parts that have arrived, in order */
    struct sw_mem_desc desc; /* STAGED */
    struct sw_mem *mem;      /* LIVE; engine's */
    struct sw_err err;       /* FAILED */
    void (*closed)(void *arg);
    void *closed_arg;
};

void sw_memtable_init(struct sw_memtable *ret, struct sw_owner *owner, struct sw_fd_share *share,
                      struct sw_fd_budget *budget, struct sw_budget *kept, unsigned max_mems) {
    memset(ret, 0, sizeof *ret);
    sw_idmap_init(&ret->mems);
    sw_list_init(&ret->ending);
    ret->owner = owner;
    ret->share = share;
    ret->budget = budget;
    ret->kept = kept;
    ret->max_mems = max_mems;
}

static struct sw_table_mem *entry_new(struct sw_memtable *table, struct sw_err *err) {
    int rc;
    struct sw_table_mem *entry = sw_budget_alloc(table->kept, sizeof *entry, "a memory", &rc, err);
    if (!entry)
        return NULL;
    entry->table = table;
    entry->kept_bytes = sizeof *entry;
    return entry;
}

static void count_fds(struct sw_table_mem *entry, unsigned n) {
    entry->n_fds += n;
    entry->table->share->used += n;
    entry->table->budget->used += n;
}

static void give_back_fds(struct sw_table_mem *entry) {
    entry->table->share->used -= entry->n_fds;
    entry->table->budget->used -= entry->n_fds;
    entry->n_fds = 0;
}

static void free_entry(struct sw_table_mem *entry) {
    give_back_fds(entry);
    sw_mem_desc_fini(&entry->desc);
    sw_budget_give(entry->table->kept, entry->kept_bytes);
    sw_free(entry);
}

void sw_memtable_fini(struct sw_memtable *table) {
    struct sw_idnode *node;
    while ((node = sw_idmap_take_any(&table->mems)))
        free_entry(SW_CONTAINER_OF(node, struct sw_table_mem, node));
    struct sw_list *ending;
    while ((ending = sw_list_take_first(&table->ending)))
        free_entry(SW_CONTAINER_OF(ending, struct sw_table_mem, ending));
}

static struct sw_table_mem *find(const struct sw_memtable *table, uint32_t number) {
    struct sw_idnode *node = sw_idmap_find(&table->mems, number);
    return node ? SW_CONTAINER_OF(node, struct sw_table_mem, node) : NULL;
}

static int not_open(const struct sw_memtable *table, uint32_t number, struct sw_err *err) {
    if (table->refused_err.code && table->refused == number) {
        *err = table->refused_err;
        return err->code;
    }
    return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "memory %" PRIu32 " is not open", number);
}

static void give_back_parts(struct sw_table_mem *entry) {
    sw_budget_give(entry->table->kept, entry->kept_bytes - sizeof *entry);
    entry->kept_bytes = sizeof *entry;
}

/* Keeps the entry, so that later requests that name it fail with the same error. */
static int fail(struct sw_table_mem *entry, const struct sw_err *err) {
    entry->state = FAILED;
    entry->err = *err;
    sw_mem_desc_fini(&entry->desc);
    give_back_fds(entry);
    give_back_parts(entry);
    return err->code;
}

static int hand_over(struct sw_table_mem *entry, struct sw_err *err) {
    if (sw_mem_open(entry->table->owner, &entry->desc, entry->once, &entry->mem, err) < 0)
        return fail(entry, err);
    entry->state = LIVE;
    return entry->once ? 0 : 1;
}

static int check_shape(const struct sw_msg_mem_open *message, struct sw_err *err) {
    static const struct {
        uint32_t min_parts, max_parts;
    } shapes[SW_MEM_KIND_NR] = {
        [SW_MEM_MEMFD] = {1, 1},
        [SW_MEM_CUDA_IPC] = {0, 0},
        [SW_MEM_CUDA_VMM] = {1, SW_MEM_MAX_PARTS},
        [SW_MEM_CUDA_POOL] = {1, 1},
    };
    if (message->kind >= SW_MEM_KIND_NR)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory %" PRIu32 ": kind %" PRIu32 " is unknown",
                          message->mem, message->kind);
    if (message->n_parts < shapes[message->kind].min_parts || message->n_parts > shapes[message->kind].max_parts)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "memory %" PRIu32 ": %s has %" PRIu32 " to %" PRIu32 " parts, not %" PRIu32, message->mem,
                          sw_mem_kind_name((enum sw_mem_kind)message->kind), shapes[message->kind].min_parts,
                          shapes[message->kind].max_parts, message->n_parts);
    if (message->once > 1)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory %" PRIu32 ": once is %" PRIu32 ", not 0 or 1",
                          message->mem, message->once);
    return 0;
}

/* Returns 0 if a reload has set the limit below the use. */
static unsigned left_of(unsigned limit, unsigned used) {
    return used < limit ? limit - used : 0;
}

static int check_budget(const struct sw_table_mem *entry, uint32_t n_fds, struct sw_err *err) {
    const struct sw_fd_budget *budget = entry->table->budget;
    const struct sw_fd_share *share = entry->table->share;
    if (n_fds <= left_of(budget->limit / 2, share->used) && n_fds <= left_of(budget->limit, budget->used))
        return 0;
    return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                      "memory %" PRIu32 ": needs %" PRIu32 " descriptors, but uid %" PRIu32
                      " has %u of %u in use, all users %u of %u",
                      entry->node.id, n_fds, share->uid, share->used, budget->limit / 2, budget->used, budget->limit);
}

/* Refuses a memory whose parts have no room now. Each part counts when it arrives. */
static int stage(struct sw_table_mem *entry, const struct sw_msg_mem_open *message, struct sw_err *err) {
    struct sw_mem_desc *desc = &entry->desc;
    if (check_budget(entry, message->n_parts, err) < 0)
        return err->code;
    desc->kind = (enum sw_mem_kind)message->kind;
    desc->bytes = message->bytes;
    desc->uid = entry->table->share->uid;
    memcpy(desc->device_uuid, message->device_uuid, sizeof desc->device_uuid);
    memcpy(desc->handle, message->handle, sizeof desc->handle);
    const uint64_t parts_bytes = message->n_parts * (sizeof *desc->fds + sizeof *desc->part_bytes);
    if (sw_budget_take(entry->table->kept, parts_bytes, "the parts of a memory", err) < 0)
        return err->code;
    entry->kept_bytes += parts_bytes;
    if (message->n_parts) {
        desc->fds = sw_alloc_array(message->n_parts, sizeof *desc->fds);
        desc->part_bytes = sw_alloc_array(message->n_parts, sizeof *desc->part_bytes);
        if (!desc->fds || !desc->part_bytes)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "memory %" PRIu32 ": out of memory", message->mem);
        memset(desc->fds, -1, message->n_parts * sizeof *desc->fds);
    }
    desc->n_parts = message->n_parts;
    return 0;
}

static int refuse(struct sw_memtable *table, uint32_t number, const struct sw_err *err) {
    table->refused = number;
    table->refused_err = *err;
    return err->code;
}

int sw_memtable_open(struct sw_memtable *table, const struct sw_msg_mem_open *message, struct sw_err *err) {
    if (find(table, message->mem))
        return sw_err_set(err, -SW_EEXIST, SW_SCOPE_REQUEST, "memory %" PRIu32 " is already open", message->mem);
    if (table->mems.n >= table->max_mems) {
        (void)sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                         "memory %" PRIu32 ": %u memories are open, the most that max_session_memories allows",
                         message->mem, table->mems.n);
        return refuse(table, message->mem, err);
    }
    struct sw_table_mem *entry = entry_new(table, err);
    if (!entry)
        return refuse(table, message->mem, err);
    entry->once = message->once == 1;
    sw_idmap_add(&table->mems, &entry->node, message->mem);
    if (table->refused == message->mem)
        table->refused_err.code = 0;
    if (check_shape(message, err) < 0 || stage(entry, message, err) < 0)
        return fail(entry, err);
    return message->n_parts == 0 ? hand_over(entry, err) : 0;
}

/* Checks that a MEM_PARTS has the parts that are due next. */
static int check_parts(const struct sw_table_mem *entry, const struct sw_msg_mem_parts *message, unsigned n_fds,
                       struct sw_err *err) {
    const uint32_t wanted = entry->desc.n_parts - entry->n_parts_here;
    if (message->first != entry->n_parts_here)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "memory %" PRIu32 ": part %" PRIu32 " was sent, part %" PRIu32 " is due", message->mem,
                          message->first, entry->n_parts_here);
    if (message->count < 1 || message->count > SW_PROTO_MAX_FDS || message->count > wanted)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "memory %" PRIu32 ": %" PRIu32 " parts in a packet, must be 1 to %" PRIu32, message->mem,
                          message->count, wanted < SW_PROTO_MAX_FDS ? wanted : SW_PROTO_MAX_FDS);
    if (message->count != n_fds)
        return sw_err_set(err, -SW_EFDS, SW_SCOPE_REQUEST,
                          "memory %" PRIu32 ": %" PRIu32 " parts announced, %u descriptors came", message->mem,
                          message->count, n_fds);
    return 0;
}

/* Checks that the parts' lengths add up to the memory's. */
static int check_lengths(const struct sw_table_mem *entry, struct sw_err *err) {
    uint64_t sum = 0;
    for (uint32_t i = 0; i < entry->desc.n_parts; i++)
        if (__builtin_add_overflow(sum, entry->desc.part_bytes[i], &sum))
            return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST,
                              "memory %" PRIu32 ": lengths of parts overflow at part %" PRIu32, entry->node.id, i);
    if (sum != entry->desc.bytes)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST,
                          "memory %" PRIu32 ": its parts have %" PRIu64 " bytes, %" PRIu64 " were announced",
                          entry->node.id, sum, entry->desc.bytes);
    return 0;
}

/* Finds a memory whose parts are due. */
static int find_staged(const struct sw_memtable *table, uint32_t number, struct sw_table_mem **ret,
                       struct sw_err *err) {
    struct sw_table_mem *entry = find(table, number);
    if (!entry)
        return not_open(table, number, err);
    if (entry->state == FAILED) {
        *err = entry->err;
        return err->code;
    }
    if (entry->state == LIVE)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "memory %" PRIu32 " has all its parts", number);
    *ret = entry;
    return 0;
}

int sw_memtable_parts_lost(struct sw_memtable *table, const struct sw_msg_mem_parts *message, struct sw_err *err) {
    struct sw_table_mem *entry = NULL;
    if (find_staged(table, message->mem, &entry, err) < 0)
        return err->code;
    (void)sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                     "memory %" PRIu32 ": the service has no free descriptors to receive it (LimitNOFILE=)",
                     message->mem);
    return fail(entry, err);
}

int sw_memtable_parts(struct sw_memtable *table, const struct sw_msg_mem_parts *message, int *fds, unsigned n_fds,
                      struct sw_err *err) {
    struct sw_table_mem *entry = NULL;
    if (find_staged(table, message->mem, &entry, err) < 0)
        return err->code;
    if (check_parts(entry, message, n_fds, err) < 0 || check_budget(entry, message->count, err) < 0)
        return fail(entry, err);
    count_fds(entry, message->count);
    for (uint32_t i = 0; i < message->count; i++) {
        entry->desc.fds[message->first + i] = fds[i];
        entry->desc.part_bytes[message->first + i] = message->part_bytes[i];
        fds[i] = -1;
    }
    entry->n_parts_here += message->count;
    if (entry->n_parts_here < entry->desc.n_parts)
        return 0;
    return check_lengths(entry, err) < 0 ? fail(entry, err) : hand_over(entry, err);
}

void sw_memtable_map(struct sw_memtable *table, uint32_t number, void (*mapped)(const struct sw_err *err, void *arg),
                     void *arg) {
    sw_mem_map(find(table, number)->mem, mapped, arg);
}

static void on_mem_closed(void *arg) {
    struct sw_table_mem *entry = arg;
    void (*closed)(void *) = entry->closed;
    void *closed_arg = entry->closed_arg;
    free_entry(entry);
    closed(closed_arg);
}

int sw_memtable_close(struct sw_memtable *table, uint32_t number, void (*closed)(void *arg), void *arg,
                      struct sw_err *err) {
    struct sw_table_mem *entry = find(table, number);
    if (!entry)
        return not_open(table, number, err);
    sw_idmap_remove(&table->mems, &entry->node);
    if (entry->state != LIVE) {
        free_entry(entry);
        return 0;
    }
    entry->closed = closed;
    entry->closed_arg = arg;
    sw_mem_close(entry->mem, on_mem_closed, entry);
    return 1;
}

/* ---- `once` memories --------------------------------------------------------------------------------------------- */

static struct sw_table_mem *find_once(const struct sw_list *once, uint32_t number, bool is_empty) {
    for (struct sw_list *at = once->next; at != once; at = at->next) {
        struct sw_table_mem *entry = SW_CONTAINER_OF(at, struct sw_table_mem, ending);
        if (entry->is_empty == is_empty && (is_empty || entry->node.id == number))
            return entry;
    }
    return NULL;
}

static int use(struct sw_table_mem *entry, struct sw_mem **ret, struct sw_err *err) {
    if (entry->state == FAILED) {
        *err = entry->err;
        return err->code;
    }
    *ret = entry->mem;
    return 0;
}

static void move_to(struct sw_list *once, struct sw_table_mem *entry, bool is_shared) {
    sw_list_append(once, &entry->ending);
    entry->is_shared = is_shared && entry->state == LIVE;
    if (entry->is_shared)
        sw_mem_share(entry->mem);
}

int sw_memtable_begin(struct sw_memtable *table, struct sw_list *once, uint32_t number, bool is_shared,
                      struct sw_mem **ret, struct sw_err *err) {
    struct sw_table_mem *entry = find_once(once, number, false);
    if (entry)
        return use(entry, ret, err);
    entry = find(table, number);
    if (!entry)
        return not_open(table, number, err);
    if (entry->state == STAGED)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "memory %" PRIu32 ": only %" PRIu32 " of %" PRIu32 " parts have arrived", number,
                          entry->n_parts_here, entry->desc.n_parts);
    if (entry->once) {
        sw_idmap_remove(&table->mems, &entry->node);
        move_to(once, entry, is_shared);
    }
    return use(entry, ret, err);
}

/* Makes a page that is never read or written. */
static int empty_page(struct sw_err *err) {
    const int fd = memfd_create("spillway-empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd >= 0 && ftruncate(fd, EMPTY_BYTES) == 0 && fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0)
        return fd;
    (void)sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                     "the service has no free descriptor for an empty buffer (LimitNOFILE=)");
    if (fd >= 0)
        (void)close(fd);
    return err->code;
}

static int open_empty(struct sw_table_mem *entry, struct sw_err *err) {
    const struct sw_msg_mem_open open = {.kind = SW_MEM_MEMFD, .n_parts = 1, .once = 1, .bytes = EMPTY_BYTES};
    if (stage(entry, &open, err) < 0)
        return fail(entry, err);
    const int fd = empty_page(err);
    if (fd < 0)
        return fail(entry, err);
    count_fds(entry, 1);
    entry->desc.fds[0] = fd;
    entry->desc.part_bytes[0] = EMPTY_BYTES;
    return hand_over(entry, err);
}

int sw_memtable_begin_empty(struct sw_memtable *table, struct sw_list *once, bool is_shared, struct sw_mem **ret,
                            struct sw_err *err) {
    struct sw_table_mem *entry = find_once(once, 0, true);
    if (entry)
        return use(entry, ret, err);
    entry = entry_new(table, err);
    if (!entry)
        return err->code;
    entry->once = entry->is_empty = true;
    const int rc = open_empty(entry, err);
    move_to(once, entry, is_shared);
    return rc < 0 ? rc : use(entry, ret, err);
}

static void on_once_closed(void *arg) {
    struct sw_table_mem *entry = arg;
    void (*closed)(void *) = entry->closed;
    void *closed_arg = entry->closed_arg;
    sw_list_remove(&entry->ending);
    free_entry(entry);
    if (closed)
        closed(closed_arg);
}

/* Moves the memory to the table's list `ending`. If the owner is closing, the engine closes all memories by itself. */
static void close_once(struct sw_table_mem *entry) {
    sw_list_remove(&entry->ending);
    if (entry->state == FAILED) {
        free_entry(entry);
        return;
    }
    sw_list_append(&entry->table->ending, &entry->ending);
    if (!entry->table->owner_closing)
        sw_mem_close(entry->mem, on_once_closed, entry);
}

unsigned sw_memtable_unmap(struct sw_list *once, void (*unmapped)(void *arg), void *arg) {
    unsigned n = 0;
    for (struct sw_list *at = once->next, *next; at != once; at = next) {
        struct sw_table_mem *entry = SW_CONTAINER_OF(at, struct sw_table_mem, ending);
        next = at->next;
        if (!entry->is_shared || entry->table->owner_closing)
            continue;
        entry->closed = unmapped;
        entry->closed_arg = arg;
        close_once(entry);
        n++;
    }
    return n;
}

void sw_memtable_end(struct sw_list *once) {
    while (!sw_list_empty(once))
        close_once(SW_CONTAINER_OF(once->next, struct sw_table_mem, ending));
}

void sw_memtable_use_up(struct sw_memtable *table, const struct sw_wire_chunk *chunks, unsigned n) {
    struct sw_list once;
    sw_list_init(&once);
    for (unsigned i = 0; i < n; i++) {
        struct sw_table_mem *entry = find(table, chunks[i].mem);
        if (!entry || !entry->once || entry->state == STAGED)
            continue;
        sw_idmap_remove(&table->mems, &entry->node);
        sw_list_append(&once, &entry->ending);
    }
    sw_memtable_end(&once);
}
