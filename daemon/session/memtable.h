/* memtable.h - the memories of one session by the client's numbers, from MEM_OPEN to their end.
 *
 * - A memory is STAGED while its parts arrive, LIVE once the engine has it, and FAILED after a refusal. A failed memory
 *   stays until it is closed, so that requests that the client sent without waiting fail with the same error.
 * - A `once` memory leaves the table with the first packet that names it. The packet's operation owns it from there.
 * - The descriptors of staged and live memories count against a budget of all sessions, because a daemon runs out of
 *   descriptors first. The sessions of one uid get at most half of it. A descriptor counts when it arrives, not when it
 *   is announced.
 * - Memory for entries and their parts counts against the tenant's budget from the announcement on.
 * - Only numbers and lengths are checked here. The device checks the memory itself when it maps it.
 *
 * thread: loop. */
#ifndef SW_DAEMON_MEMTABLE_H
#define SW_DAEMON_MEMTABLE_H

#include "daemon/descriptors.h"
#include "daemon/session/idmap.h"
#include "ipc/proto.h"
#include "spill/engine.h"

struct sw_memtable {
    struct sw_idmap mems;
    struct sw_list ending;       /* memories without a number that still hold descriptors */
    struct sw_owner *owner;      /* borrowed */
    struct sw_fd_budget *budget; /* borrowed */
    struct sw_fd_share *share;   /* borrowed */
    struct sw_budget *kept;      /* borrowed: the tenant's budget of memory */
    unsigned max_mems;
    bool owner_closing; /* set before sw_owner_close(), which closes the engine's memories itself */
    uint32_t refused;   /* number of the last memory for which no entry could be made */
    struct sw_err refused_err;
};

/* One entry; opaque. */
struct sw_table_mem;

void sw_memtable_init(struct sw_memtable *ret, struct sw_owner *owner, struct sw_fd_share *share,
                      struct sw_fd_budget *budget, struct sw_budget *kept, unsigned max_mems);
/* Frees all entries. The engine's memories must be gone. */
void sw_memtable_fini(struct sw_memtable *table);

/* Enters a memory. Returns 0, or 1 if the memory is live and stays: then call sw_memtable_map(). errors: -SW_EEXIST
 * (the number is in use; its memory is unchanged), -SW_EINVAL (kind, number of parts), -SW_ELIMIT, -SW_ETENANTMEMORY,
 * -SW_ENOMEM, and sw_mem_open()'s for kinds without parts. */
int sw_memtable_open(struct sw_memtable *table, const struct sw_msg_mem_open *message, struct sw_err *err);
/* Adds parts to a memory. The last part hands the memory to the engine. Returns as sw_memtable_open() does. Descriptors
 * that the table takes are replaced by -1 in fds.
 *
 * - errors: -SW_ENOENT, -SW_EINVAL (order, too many), -SW_EFDS (count), -SW_ERANGE (lengths), -SW_ELIMIT (descriptors),
 *   sw_mem_open()'s, or the memory's earlier error. All of them but ENOENT fail the memory, unless it is live. */
int sw_memtable_parts(struct sw_memtable *table, const struct sw_msg_mem_parts *message, int *fds, unsigned n_fds,
                      struct sw_err *err);
/* Fails a memory some of whose descriptors could not be received. Replaces sw_memtable_parts(). errors: -SW_ELIMIT,
 * -SW_ENOENT, -SW_EINVAL (the memory is live, and stays live), or the memory's earlier error. */
int sw_memtable_parts_lost(struct sw_memtable *table, const struct sw_msg_mem_parts *message, struct sw_err *err);
/* Has the engine map a memory that has just become live and stays. `mapped` runs later. A memory that could not be
 * mapped stays in the table, and the engine refuses the requests that name it. */
void sw_memtable_map(struct sw_memtable *table, uint32_t number, void (*mapped)(const struct sw_err *err, void *arg),
                     void *arg);
/* Removes a memory. Returns 0 if it is gone, or 1 if the engine still has to unmap it: then `closed` runs later.
 * errors: -SW_ENOENT. */
int sw_memtable_close(struct sw_memtable *table, uint32_t number, void (*closed)(void *arg), void *arg,
                      struct sw_err *err);

/* Gets the engine's memory of a number, for an operation.
 *
 * - A `once` memory moves to the operation's list `once`, where it is found again until the operation ends.
 * - is_shared: several jobs of the operation may use the memory. It then stays mapped until sw_memtable_unmap(). Other
 *   memory is unmapped at the end of the only job that uses it.
 * - errors: -SW_ENOENT, -SW_EINVAL (parts are missing), or the memory's earlier error. */
int sw_memtable_begin(struct sw_memtable *table, struct sw_list *once, uint32_t number, bool is_shared,
                      struct sw_mem **ret, struct sw_err *err);
/* Gets a memory for empty buffers, which have no memory of the client. errors: those of sw_memtable_parts(). */
int sw_memtable_begin_empty(struct sw_memtable *table, struct sw_list *once, bool is_shared, struct sw_mem **ret,
                            struct sw_err *err);
/* Unmaps the memories that the operation's jobs shared. Call it when all jobs have ended. Returns how often `unmapped`
 * will run: never if the session is closing, because its end unmaps all memories. */
unsigned sw_memtable_unmap(struct sw_list *once, void (*unmapped)(void *arg), void *arg);
/* Closes the `once` memories of an operation that has ended or was refused. Their descriptors count until the engine
 * has closed them. */
void sw_memtable_end(struct sw_list *once);
/* Closes the `once` memories that a packet names and its operation did not take, for example because the packet was
 * refused. */
void sw_memtable_use_up(struct sw_memtable *table, const struct sw_wire_chunk *chunks, unsigned n);

#endif
