/* memtable.h - the memories of one session by the client's numbers, from MEM_OPEN to their end.
 *
 * A memory is STAGED while its parts arrive, LIVE once the engine has it, FAILED after a refusal: it then stays until
 * it is closed, so that requests sent after it, without waiting, fail with the same error and not with a puzzling one.
 * A `once` memory leaves the table with the first packet that names it; the packet's operation owns it from there.
 *
 * Descriptors are what a daemon runs out of first: those that a session's memories hold, staged or live, are counted
 * against a budget of all sessions, of which the sessions of one uid get at most half. They count from when they come:
 * what was only announced takes nothing from anybody.
 *
 * Memory for entries and their parts is counted from when they are announced, against the tenant's budget.
 *
 * Only shapes are checked here; the device checks the truth when it maps. thread: loop. */
#ifndef SW_DAEMON_MEMTABLE_H
#define SW_DAEMON_MEMTABLE_H

#include "daemon/descriptors.h"
#include "daemon/session/idmap.h"
#include "ipc/proto.h"
#include "spill/engine.h"

struct sw_memtable {
    struct sw_idmap mems;
    struct sw_list ending;       /* of no number any more, but with descriptors that count */
    struct sw_owner *owner;      /* borrowed */
    struct sw_fd_budget *budget; /* borrowed */
    struct sw_fd_share *share;   /* borrowed */
    struct sw_budget *kept;      /* borrowed: memory for the tenant */
    unsigned max_mems;
    bool owner_closing; /* set before sw_owner_close(), which closes the engine's memories itself */
    uint32_t refused;   /* number of the last memory that could not even be entered */
    struct sw_err refused_err;
};

/* One entry; opaque. */
struct sw_table_mem;

void sw_memtable_init(struct sw_memtable *ret, struct sw_owner *owner, struct sw_fd_share *share,
                      struct sw_fd_budget *budget, struct sw_budget *kept, unsigned max_mems);
/* Frees what is left; the engine's memories must be gone already. */
void sw_memtable_fini(struct sw_memtable *table);

/* Returns 0, or 1 if the memory is live now and to stay: sw_memtable_map() is due.
 * errors: -SW_EEXIST (number in use; the memory of that number is unharmed), -SW_EINVAL (kind, shape), -SW_ELIMIT,
 * -SW_ETENANTMEMORY, -SW_ENOMEM, and sw_mem_open()'s for kinds without parts. */
int sw_memtable_open(struct sw_memtable *table, const struct sw_msg_mem_open *message, struct sw_err *err);
/* Adds parts; descriptors taken are replaced by -1 in fds. The last one hands the memory to the engine. Returns as
 * sw_memtable_open() does.
 * errors: -SW_ENOENT, -SW_EINVAL (order, too many), -SW_EFDS (count), -SW_ERANGE (lengths), -SW_ELIMIT
 * (descriptors), sw_mem_open()'s, or that of an earlier failure. Any of them but ENOENT fails the memory, unless it is
 * live. */
int sw_memtable_parts(struct sw_memtable *table, const struct sw_msg_mem_parts *message, int *fds, unsigned n_fds,
                      struct sw_err *err);
/* In its place, if not all of the descriptors could be received: fails the memory. errors: -SW_ELIMIT, -SW_ENOENT, or
 * that of an earlier failure; -SW_EINVAL (live: it stays so). */
int sw_memtable_parts_lost(struct sw_memtable *table, const struct sw_msg_mem_parts *message, struct sw_err *err);
/* Has the engine map a memory that has just become live and is to stay; `mapped` runs later. The memory stays in the
 * table also if it could not be mapped: what names it is then refused by the engine. */
void sw_memtable_map(struct sw_memtable *table, uint32_t number, void (*mapped)(const struct sw_err *err, void *arg),
                     void *arg);
/* Takes a memory out of the table. Returns 0 if it is gone, or 1 if the engine still has to unmap it: `closed` then
 * runs later. errors: -SW_ENOENT. */
int sw_memtable_close(struct sw_memtable *table, uint32_t number, void (*closed)(void *arg), void *arg,
                      struct sw_err *err);

/* For an operation: the engine's memory of a number. One that is `once` moves into the operation's list `once`, where
 * it is found again until the operation's end. is_shared: the operation may use it more than once: it then stays mapped
 * until sw_memtable_unmap(), else until the end of the only job that uses it. errors: -SW_ENOENT, -SW_EINVAL (parts
 * missing), or the failure of the memory itself. */
int sw_memtable_begin(struct sw_memtable *table, struct sw_list *once, uint32_t number, bool is_shared,
                      struct sw_mem **ret, struct sw_err *err);
/* A memory for buffers of no bytes that lie in none of the client's. errors: those of sw_memtable_parts(). */
int sw_memtable_begin_empty(struct sw_memtable *table, struct sw_list *once, bool is_shared, struct sw_mem **ret,
                            struct sw_err *err);
/* All jobs of the operation have ended: unmaps what it shared among them. Returns for how many of these `unmapped` will
 * run; none if the session is closing, which unmaps all. */
unsigned sw_memtable_unmap(struct sw_list *once, void (*unmapped)(void *arg), void *arg);
/* The operation has ended, or was refused: closes its `once` memories. Their descriptors count until the engine has
 * closed them, which for those of a refused operation may be after others. */
void sw_memtable_end(struct sw_list *once);
/* A packet has named these memories, and perhaps been refused before it has got as far: closes those that are `once`.
 */
void sw_memtable_use_up(struct sw_memtable *table, const struct sw_wire_chunk *chunks, unsigned n);

#endif
