/* spillway.h - client API of Spillway: park GPU memory in spillwayd, compressed, and get the same bytes back.
 *
 * What a client must not do
 *   - write to, or free, memory between spillway_spill*() and the completion of its ticket: the daemon reads it;
 *   - read from, write to, or free memory between spillway_restore*() and the completion of its ticket, or, if that
 *     was freed before, the return of spillway_close();
 *   - free, unmap or remap registered memory before spillway_unregister() has returned: the daemon keeps it open, and
 *     would go on with what it was;
 *   - use a connection from two threads at once without its own lock (different connections are independent);
 *   - use a connection after fork(): calls on an inherited one are refused with EINVAL, and the child must open its
 *     own. spillway_close() there closes the child's copies of the descriptors and frees nothing, since CUDA cannot be
 *     called; without it, if the parent dies, its session lasts until such a child has ended or called exec();
 *   - change or free the front of packed memory between spillway_pack() and the completion of spillway_unpack(), or
 *     give memory of a running operation to another one, unless both only spill it (a pack or unpack in registered
 *     memory notices, and is EBUSY);
 *   - keep a region id across connections: a region lives as long as the connection that spilled it; but see
 *     spillway_spill_durable().
 *
 * A connection outlives a restart or a crash of the service where its service manager keeps the stored memory (systemd
 * does): the library connects again by itself, in the next call that waits or takes replies in (it has no thread: a
 * client that makes none for an hour after a restart has lost its regions, so watch spillway_fd()), for up to as long
 * as the service told (reconnect_grace_s there, or spillway_set_reconnect()), regions keep their ids, and registered
 * memory is handed over again (where that fails, for want of descriptors, say, an operation in it has that error, and
 * the next one tries again). Calls made meanwhile wait. What was in flight is settled: it completes as it would have,
 * or with ERESTARTED: a spill has stored nothing and its memory is as it was, a restored region is still stored; both
 * may be repeated. A pack or unpack at work in that moment ends with ELOST: its bytes are neither packed nor unpacked.
 * If the service does not come back, or has kept nothing, the connection is lost, and every region with it. All calls
 * then fail with one error of scope SESSION: ESHUTDOWN if the service was stopped in order, ERESTARTED if another
 * process serves and knows nothing of it, ECONN if it has died.
 *
 * Calls that wait for an answer wait for 30 seconds, or as long as spillway_set_timeout() says, and then fail with
 * ETIMEDOUT: the service hangs. The connection is still there, and what was asked for may still be carried out. Time in
 * which the library tries to come back does not count.
 *
 * Life of a region: spill -> ticket completes -> the client frees or reuses its memory -> restore into memory of at
 * least the same length -> ticket completes -> the same bytes are there, and the id is used up (unless kept).
 *
 * Memory that the daemon cannot open (the default pool of cudaMallocAsync, VMM memory without exportable handles,
 * managed memory; of the host's all but memfds: malloc, mmap, page-locked memory; memfds of huge pages, MFD_HUGETLB,
 * and those that cannot be sealed; ranges that lie in several mappings) is copied. The library has a staging arena of
 * 64 MiB for the host's memory and one on each GPU, made when it is first needed and kept until the connection ends;
 * data goes through it in pieces of 16 MiB, several at a time. The calls and promises are the same, but:
 *   - pieces are moved on by spillway_wait(), spillway_dispatch() and whatever else takes replies in; the host's memory
 *     is copied in there, by the calling thread, a piece at a time. spillway_fd() tells when there is something to do;
 *   - the pieces count as operations of their own against the daemon's limits, of which ELIMIT tells;
 *   - a GPU without room for the arena: ENOMEM. Who fills a GPU to the last byte spills something of the kind early;
 *   - a region spilled from memory that can be shared, and restored into memory that cannot, needs an arena of its own
 *     for the time of the restore if it has more than 64 MiB: as much memory again, of the same kind (ENOMEM);
 *   - spillway_pack(), spillway_unpack(), spillway_register(), spillway_spill_durable() and the calls of several
 *     buffers refuse it with EMEMKIND, or EUNSEALED; batches refuse all memory that is not registered.
 *
 * Units are bytes. Functions that can fail return a negative SPILLWAY_E... code, else 0 or what their comment says; the
 * last argument, if not NULL, says what failed and what is unusable now; other outputs are untouched after an error,
 * but for chunks that spillway_query_packed() had been told. Other pointers must not be NULL but where it is said what
 * that means; NULL as memory, pieces or buffers is EINVAL. Calls take up to 48 KiB of stack, and what the CUDA driver's
 * take. The header is plain C and needs no CUDA header; the library, if it was built where nvcc was, finds the CUDA
 * driver at run time, and works without one for memory of the host. Built without nvcc it takes a GPU's memory for none
 * (EMEMKIND). */
#ifndef SPILLWAY_H
#define SPILLWAY_H

#include "spillway_errors.h"
#include "spillway_packed.h"
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define SPILLWAY_VERSION_MAJOR 0
#define SPILLWAY_VERSION_MINOR 1

enum spillway_error_code {
#define SPILLWAY_ERROR_ENUM(name, code, text) SPILLWAY_E##name = (code),
    SPILLWAY_ERROR_LIST(SPILLWAY_ERROR_ENUM)
#undef SPILLWAY_ERROR_ENUM
};

/* The largest thing that is unusable after an error. */
enum spillway_scope {
    SPILLWAY_SCOPE_REQUEST, /* this call only */
    SPILLWAY_SCOPE_REGION,  /* the region named in the call */
    SPILLWAY_SCOPE_SESSION, /* the connection: close it */
    SPILLWAY_SCOPE_DEVICE,  /* this GPU, for the daemon */
    SPILLWAY_SCOPE_DAEMON
};

struct spillway_error {
    int code; /* negative SPILLWAY_E..., 0: none */
    enum spillway_scope scope;
    int cuda;       /* CUDA driver's code, or 0 */
    char name[16];  /* "ENOSPACE" */
    char text[256]; /* what failed, with which arguments */
};

struct spillway;        /* a connection; opaque */
struct spillway_ticket; /* an operation in flight; opaque */
struct CUstream_st;     /* CUstream, cudaStream_t */

/* Name of a region in the daemon; copy it freely. All zero is never a valid id. */
struct spillway_region {
    uint32_t slot, generation;
};

/* Connects and agrees on the protocol version. socket_path NULL: $SPILLWAY_SOCKET, else /run/spillway/data.sock.
 * Waits for the service, 10 seconds at most. owns: the caller, until spillway_close(). errors: EINVAL (path too long),
 * ENOSERVICE (nobody listens there), ETIMEDOUT (the service hangs), ECONN (it hung up), ESHUTDOWN, EACCES, EUNMAPPED
 * (the service runs in a user namespace that does not map this user), EUNTRUSTED, EVERSION, ELIMIT (of the service, or
 * no descriptor is left), ETENANTSESSIONS, ETENANTMEMORY, EPROTO, ENOMEM.
 *
 * Whoever serves the socket gets this program's memory, so it must be root (also where systemd has made the socket),
 * this program's own user, the owner of the socket's folder, or the user whose uid is in $SPILLWAY_SERVICE_UID; else
 * EUNTRUSTED, before anything is sent. The folder's owner counts only if no folder above may be written to by groups or
 * others, so not in /tmp, where anybody can make it. In a user namespace that does not map the service's user it has
 * the overflow uid (65534), which is trusted only if it is named. A connection that comes back is checked again. */
int spillway_open(struct spillway **ret, const char *socket_path, struct spillway_error *error);
/* As spillway_open(), with the service's uid in place of $SPILLWAY_SERVICE_UID. */
int spillway_open_served_by(struct spillway **ret, const char *socket_path, uint32_t service_uid,
                            struct spillway_error *error);
/* How long the library tries to come back after the connection was lost, in milliseconds from the loss. -1, the
 * default: as long as the service waits (reconnect_grace_s); longer is of no use. 0: not at all, and an attempt under
 * way ends; regions that the service has kept stay with it until it gives them up, see spillway_close(). Without effect
 * where the service keeps nothing over a restart. */
void spillway_set_reconnect(struct spillway *connection, int timeout_ms);
/* How long calls that wait for an answer wait, in milliseconds; -1: without end. At first 30000. */
void spillway_set_timeout(struct spillway *connection, int timeout_ms);
/* Ends the session, also if a forked child has a copy of the connection: running operations are canceled, regions
 * dropped, tickets freed: none has to be before, and none may be used after. If any operation runs, also one whose
 * ticket was freed, waits until the service has let go of its memory, which then is the caller's again; but for 10
 * seconds at most: where the service does not answer, that is not known. Regions of a
 * connection that is closed while the service is away last until that gives them up, an hour at most. NULL is a no-op.
 */
void spillway_close(struct spillway *connection);

/* Starts a spill of data[0..bytes) and returns at once. The kind of memory is found from the pointer: cudaMalloc (also
 * the middle of a block), VMM allocations with exportable handles, cudaMallocAsync from a pool made with POSIX
 * descriptor export, or a memfd mapped MAP_SHARED in this process (sealed against shrinking by the library); any other
 * is copied, see above. stream: work queued on it before this call is waited for without blocking the caller; NULL: the
 * default stream; ignored for memory of the host that is not page-locked, and for memfds even if they are: wait for the
 * stream first if it copies from or to one. A non-blocking stream that has run dry costs least: nothing has to be
 * waited for, and the GPU need not switch to this process and back. *ret_ticket: owned by the caller until
 * spillway_ticket_free(). When it completes with success the memory is no longer mapped by the daemon, unless it is
 * registered, and may be freed; with an error it is untouched. errors: EINVAL (NULL; a stream that is being captured;
 * the default stream works while other streams are captured), EMEMKIND (no accessible memory), ENOPROC (/proc is not
 * mounted), ERANGE (not all of it), ELIMIT, ECONN, EGPU, EIO, ENOMEM; by ticket also EDEVICE (the service does not use
 * the GPU of this memory), ENOTSUP (its driver cannot open such memory; an allocation from a pool that is longer than
 * can be imported), ENOSPACE, EIMPORT, ETENANTBYTES, ETENANTREGIONS, ETENANTOPS, ETENANTMEMORY, EDRAINING, ERESTARTED,
 * ESHUTDOWN, EGPULOST. */
int spillway_spill(struct spillway *connection, const void *data, uint64_t bytes, struct CUstream_st *stream,
                   struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* As spillway_spill(), of numbers, little endian, one behind the other: the daemon chooses among the codecs of that
 * type, and stores bytes as they are where none of them gains. data may have any alignment. errors: as
 * spillway_spill(); by ticket also EINVAL (no such type, or a length that is no multiple of the type's). */
int spillway_spill_typed(struct spillway *connection, const void *data, uint64_t bytes, enum spillway_value_type type,
                         struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* As spillway_spill(), and the region is durable: it does not end with the connection but stays for other connections
 * of the same user (uid), which find it by its name, of 1 to 63 bytes. It ends by spillway_drop() or by an operator
 * only; a restore keeps it whatever its flags say; it counts for the user's limits. It survives a restart or a crash of
 * the service under systemd as regions do, without anybody having to come back for it, but not `systemctl stop`, the
 * end of the machine, or that of a service in the foreground. Memory that has to be copied cannot be spilled so
 * (EMEMKIND). If the ticket is freed before spillway_wait() has told of its success, the region is dropped, unless the
 * connection ends first. errors: as spillway_spill(), EINVAL (name), EMEMKIND; by ticket also EEXIST (the user has a
 * durable region of this name), ETENANTREGIONS. */
int spillway_spill_durable(struct spillway *connection, const char *name, const void *data, uint64_t bytes,
                           struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                           struct spillway_error *error);
/* Finds a durable region of this user by its name, and takes it over: from now on it is this connection's, as if it had
 * spilled it, and when the connection ends it is there for the next one. spillway_query() tells its length. Waits for
 * the reply. errors: EINVAL (name), ENOENT (this user has none of this name), EBUSY (another connection has it, for a
 * moment also after its spillway_close(), or may come back for it after a restart, for up to reconnect_grace_s, or it
 * is being spilled, or moved between tiers; or a durable spill still runs on this connection whose ticket was freed:
 * try again), ELIMIT, ENOMEM, ECONN, ETIMEDOUT (call again). */
int spillway_adopt(struct spillway *connection, const char *name, struct spillway_region *ret,
                   struct spillway_error *error);

#define SPILLWAY_RESTORE_KEEP 1u /* the region stays stored and its id valid; it has one restore at a time (EBUSY) */

/* Starts a restore of a region into data[0..bytes), bytes being at least the region's length. stream: as for
 * spillway_spill(); when the ticket completes, the bytes are visible to any work queued afterwards. A memfd is written
 * to also where this process has mapped it for reading only. The call makes pages that the memfd does not have yet, so
 * that they are charged to this process; the service makes none. errors: as spill; by ticket: EACCES (a memfd that is
 * sealed against writing, or opened for appending; the region is still stored), EUNALLOCATED (holes were punched into
 * the memfd after the call; the region is still stored, part of data may have been written), ENOENT, ESTALE, ESTATE,
 * EBUSY, ETOOSMALL, ELOST, ECHECKSUM, EFRAME, EVERSION, ETENANTOPS, ERESTARTED, EGPULOST, ENOTSUP (also chunks longer
 * than this service takes). */
int spillway_restore(struct spillway *connection, struct spillway_region region, void *data, uint64_t bytes,
                     struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret_ticket,
                     struct spillway_error *error);

/* Starts to compress data[0..bytes) in its own memory: nothing leaves the GPU, and no second buffer is needed. When the
 * ticket completes with success, result.stored_bytes (at most `bytes`) at the front of data hold the packed region and
 * must not be touched; what comes behind them is free for any use, and for VMM memory whole granules there may be
 * unmapped and released. With an error the bytes are as they were, except after ELOST: then they are lost. The region's
 * id is the only key to the packed bytes: if it is dropped, if the connection ends, or if the ticket is freed before it
 * has completed, they cannot be unpacked any more. errors: as spill; by ticket also EACCES (as restore), EBUSY (memory
 * of another operation), ELOST (also for holes punched into a memfd after the call). */
int spillway_pack(struct spillway *connection, void *data, uint64_t bytes, struct CUstream_st *stream,
                  struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* As spillway_pack(), of numbers, which are as spillway_spill_typed() takes them. */
int spillway_pack_typed(struct spillway *connection, void *data, uint64_t bytes, enum spillway_value_type type,
                        struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* Starts to unpack a packed region, which uses its id up. data[0..bytes), at least the region's length, starts with the
 * packed bytes, in the memory where they were packed or in a copy, and must not be written to meanwhile.
 *
 * Packed bytes that are not this region's are refused with ECHECKSUM before anything is written: another region's, or
 * another chunk's. Bytes that have changed within a chunk are found when it is unpacked (ECHECKSUM, EFRAME). The region
 * stays in both cases: put the right bytes back, and call again. After an error all of data belongs to the region: some
 * of it may be unpacked already, spillway_query_packed() says what is not, and calling again goes on from there.
 * errors: as restore, EINVAL (not packed). */
int spillway_unpack(struct spillway *connection, struct spillway_region region, void *data, uint64_t bytes,
                    struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* Has the daemon open data[0..bytes) (at least 1) once and keep it open, instead of opening it for each operation,
 * which for memory from cudaMalloc costs 7 ms per GB of the whole allocation, and for a memfd a look through all of the
 * process's mappings and descriptors, 1.4 ms where it has 1000 other memfds open. From then on a spill or restore of
 * any range that lies wholly inside it uses it; what it promises is the same, but that the memory may be freed. Waits
 * until the daemon has mapped it, so that memory that cannot be shared is told here. Ranges must not overlap. Ends with
 * the connection. errors: those of spillway_spill() on memory, EUNSEALED (a memfd that cannot be sealed), EDEVICE,
 * ENOTSUP, EINVAL (no bytes), EEXIST (overlap), ELIMIT, EIMPORT,
 * ETIMEDOUT (not registered; the service may have it open until the connection ends). */
int spillway_register(struct spillway *connection, void *data, uint64_t bytes, struct spillway_error *error);
/* Ends it; `data` is the pointer that was registered. Waits until the operations in it have ended and the daemon has
 * unmapped it: the memory then may be freed. errors: ENOENT (no registered memory starts there), ETIMEDOUT (it still is
 * the service's: call again, which goes on waiting), ECONN (no longer registered, either), ENOMEM (nothing has
 * changed). */
int spillway_unregister(struct spillway *connection, void *data, struct spillway_error *error);

/* One of a batch: bytes in registered memory, and their region. */
struct spillway_piece {
    void *data;
    uint64_t bytes;
    struct spillway_region region; /* filled in by a spill that succeeds; read by a restore */
};

/* Starts to spill n pieces (at least 1), each to a region of its own, for what one call of spillway_spill() costs: many
 * small regions travel in one message and are worked on together. All or nothing: with an error none of them is stored.
 * The pieces must lie in registered memory, which need not be the same for all. pieces[] must stay alive until the
 * ticket completes or is freed. The regions are the caller's once spillway_wait() has reported success; if the ticket
 * is freed before, they are dropped. The result says what became of all: sums of bytes, no region. More than 256
 * pieces, or pieces in several registered memories, are several messages, each an operation that counts against the
 * daemon's limits; texts of errors count pieces from 1, the library's those of the batch, the service's those of a
 * message. stream: as in spillway_spill(), for the batch as a whole. errors: those of spillway_spill(), EINVAL (no
 * pieces), EMEMKIND (not registered). */
int spillway_spill_batch(struct spillway *connection, struct spillway_piece *pieces, uint32_t n,
                         struct CUstream_st *stream, struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* Starts to restore n regions (at least 1), each into its piece's data[0..bytes), bytes being at least its length; the
 * pieces must not overlap. With an error what the pieces hold is undefined, and every region is still stored, but for
 * one that was found damaged. pieces[] is only read, and only by this call. Regions that were copied in pieces
 * (spilled from memory that the daemon cannot open) and packed ones are restored one by one: EINVAL. Otherwise as
 * above. errors: those of spillway_restore(), EINVAL, EMEMKIND. */
int spillway_restore_batch(struct spillway *connection, struct spillway_piece *pieces, uint32_t n,
                           struct CUstream_st *stream, unsigned flags, struct spillway_ticket **ret_ticket,
                           struct spillway_error *error);

/* One of several buffers that make a region together, as the columns of a table do, or a column's offsets, characters
 * and validity. What its type should be: of Arrow's fixed width values and of a dictionary's indices their own; of
 * offsets SPILLWAY_I32 or SPILLWAY_I64, wherever they begin; of characters and validity bitmaps SPILLWAY_BYTES. */
struct spillway_buffer {
    void *data; /* anything if there are no bytes */
    uint64_t bytes;
    enum spillway_value_type type; /* of a spill */
};
enum { SPILLWAY_MAX_BUFFERS = 64 };

/* Starts to spill buffers[0..n) as one region, which is spilled, restored, kept and dropped as a whole, and whose
 * buffers have codecs of their own. buffers[] is only read, and only by this call. Memory as of spillway_spill(), each
 * buffer in any, but none that would have to be copied: EMEMKIND. stream: that on which all of them were filled. When
 * the ticket completes with an error nothing is stored. errors: those of spillway_spill() and _spill_typed(), EINVAL
 * (n, or no bytes in any), ELIMIT also if more than 2048 buffers, and pieces of batches, would be in flight. */
int spillway_spill_buffers(struct spillway *connection, const struct spillway_buffer *buffers, uint32_t n,
                           struct CUstream_st *stream, struct spillway_ticket **ret_ticket,
                           struct spillway_error *error);
/* Starts to restore such a region into as many buffers, in the same order, each at least as long as it was, none
 * overlapping another. flags, and what holds after an error: as of spillway_restore(). A region of several buffers is
 * restored by this call only. errors: those of spillway_restore(), EINVAL (n, or buffers that overlap), EMEMKIND. */
int spillway_restore_buffers(struct spillway *connection, struct spillway_region region,
                             const struct spillway_buffer *buffers, uint32_t n, struct CUstream_st *stream,
                             unsigned flags, struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* What a completed operation did. */
struct spillway_result {
    struct spillway_region region;    /* all zero for a batch */
    uint64_t raw_bytes, stored_bytes; /* packed: stored_bytes at the front of the data are in use */
    uint64_t
        service_us;  /* from the daemon's receipt to its reply; the sum over pieces; of a batch the longest message's */
    char codec[16];  /* "v5t", "for", ..., "raw", of most bytes; "mixed": not that of all pieces */
    char tier[16];   /* "host", "nvme", "device" (packed) */
    char reason[32]; /* why it was spilled compressed, or was not: "pays", "does not shrink", ... */
};

/* Waits for one ticket (others complete meanwhile): polls for 0.2 ms, and for 0.5 around the time when it should be
 * done by what the last ones of its kind took, if that is steady; else sleeps. timeout_ms -1: no limit; 0: only looks.
 * Returns 0 (success, *ret filled), -SPILLWAY_EAGAIN (not yet), or the operation's error. May be called again. ret
 * NULL: the result is not wanted; a region that was spilled then has no id that anybody knows, see below. */
int spillway_wait(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *ret,
                  struct spillway_error *error);
/* Forgets a ticket; an operation that still runs goes on (a spill of memory that is copied, or of a batch, stops). A
 * region whose id spillway_wait() has not put into a *ret is dropped, also if its spill had completed; of a batch, and
 * of a durable region, it is enough that it has reported success. NULL is a no-op. */
void spillway_ticket_free(struct spillway_ticket *ticket);

/* For event loops: a descriptor that becomes readable when spillway_dispatch() has something to do (owned by the
 * connection; once that is lost it stays readable: look at all tickets, then close it), and the call that takes in
 * replies without blocking; returns the number of tickets that completed and that no call has told of yet (also those
 * whose replies another call took in), or an error of the connection. */
int spillway_fd(const struct spillway *connection);
int spillway_dispatch(struct spillway *connection, struct spillway_error *error);
/* The next ticket that has completed, in that order, and that neither spillway_wait() nor this call has told of; NULL:
 * there is none. Takes no replies in, spillway_dispatch() does; whether that one has counted the ticket makes no
 * difference, but what is told of here before is not counted any more. spillway_wait() then has its result at once. A
 * ticket that was freed is not told of; when the connection is lost, all that ran are. Takes the same time however many
 * tickets there are. */
struct spillway_ticket *spillway_next_done(struct spillway *connection);
/* What the caller keeps with a ticket, so that it knows it again; NULL at first. The library does not look at it. */
void spillway_ticket_set_user(struct spillway_ticket *ticket, void *user);
void *spillway_ticket_user(const struct spillway_ticket *ticket);

/* Forgets a stored region. Waits for the reply. errors: ENOENT (never was, or is another connection's), ESTALE (is
 * gone), EBUSY, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_drop(struct spillway *connection, struct spillway_region region, struct spillway_error *error);

struct spillway_region_info {
    uint64_t raw_bytes, stored_bytes;
    char state[16]; /* "staging", "encoding", "storing", "out" (stored, or packed), "restoring", "lost" */
    char codec[16], tier[16];
};
/* Asks about a region. Waits for the reply. errors: ENOENT, ESTALE, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_query(struct spillway *connection, struct spillway_region region, struct spillway_region_info *ret,
                   struct spillway_error *error);

/* As spillway_query(), of each buffer of a stored region, one if it was spilled as one. ret: room for
 * SPILLWAY_MAX_BUFFERS. errors: as spillway_query(), EBUSY (it is being spilled), ELOST. */
struct spillway_buffer_info {
    uint64_t raw_bytes, stored_bytes;
    char codec[16];
    char reason[32]; /* as in spillway_result; after a restart of the daemon the region's; empty: spilled in pieces */
};
int spillway_query_buffers(struct spillway *connection, struct spillway_region region, struct spillway_buffer_info *ret,
                           uint32_t *ret_n, struct spillway_error *error);

/* Tells where the chunks of a packed region lie in its memory (spillway_packed.h), so that kernels can read them there
 * (spillway_device.cuh). ret: room for `max` chunks, of which the first ones are told; *ret_n: how many there are. It
 * holds, for the memory or a copy of its front, until spillway_unpack() or spillway_drop() is called for the region:
 * whoever reads has ended before. An unpack that failed half-way leaves the region as it is then: ask again. Waits for
 * the replies, one for each 64 chunks. errors: as spillway_query(), EINVAL (not packed), EBUSY (being packed or
 * unpacked), ELOST. */
int spillway_query_packed(struct spillway *connection, struct spillway_region region, struct spillway_packed_chunk *ret,
                          uint32_t max, uint32_t *ret_n, struct spillway_error *error);

enum spillway_advice {
    SPILLWAY_ADVICE_PRIORITY, /* value 0 (as spilled) to 255: those of lower priority leave the host tier first */
    SPILLWAY_ADVICE_PIN,      /* value 1: is not moved out of the host tier; 0: as spilled */
    SPILLWAY_ADVICE_PREFETCH  /* value 0: is moved from the NVMe tier to the host tier, in the background */
};
/* Says what is known about the future of a stored region. Waits for the reply, not for a region that is fetched; that
 * one can be restored at any moment all the same. What is in the host tier already needs no fetching. errors: EINVAL,
 * ENOENT, ESTALE, ELOST, ENOSPACE (no room to fetch it to), EBUSY (being restored or moved), ECONN, ETIMEDOUT,
 * ENOMEM. */
int spillway_advise(struct spillway *connection, struct spillway_region region, enum spillway_advice advice,
                    unsigned value, struct spillway_error *error);

/* How many spills of all connections, since the daemon's start, were compressed or not for one reason; each
 * piece of a batch, and of memory that is copied, counts. */
struct spillway_reason {
    char text[32]; /* as in struct spillway_result */
    uint64_t spills;
};
enum { SPILLWAY_MAX_REASONS = 16 };

struct spillway_status {
    char version[32];
    char device[64]; /* first GPU's name, or "host" */
    uint32_t n_gpus, sessions, regions;
    uint64_t scratch_bytes;       /* GPU memory that the daemon holds for its work, all GPUs */
    uint64_t scratch_limit_bytes; /* configured bound, all GPUs */
    uint64_t tier_capacity_bytes, tier_backed_bytes, tier_used_bytes; /* host memory */
    uint64_t nvme_capacity_bytes, nvme_used_bytes;                    /* 0: no NVMe tier */
    uint64_t mapped_memories;                                         /* client memories mapped by the daemon now */
    uint32_t n_reasons;                                               /* known to this daemon, also those of 0 spills */
    struct spillway_reason reasons[SPILLWAY_MAX_REASONS];
};
/* Asks the daemon about itself. Waits for the reply. errors: ECONN, ETIMEDOUT, ENOMEM. */
int spillway_status(struct spillway *connection, struct spillway_status *ret, struct spillway_error *error);

/* "ENOSPACE" and its text for a code of either sign. */
const char *spillway_error_name(int code);
const char *spillway_error_text(int code);

#ifdef __cplusplus
}
#endif
#endif
