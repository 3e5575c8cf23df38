/* spillway.h - client API of Spillway: park GPU memory in spillwayd, compressed, and get the same bytes back.
 *
 * The simplest program:
 *
 *     struct spillway *c;
 *     struct spillway_ticket *t;
 *     struct spillway_buffer buffer = {.data = gpu_memory, .bytes = n};
 *     struct spillway_request request = {.size = sizeof request, .buffers = &buffer, .n_buffers = 1};
 *     struct spillway_result result = {.size = sizeof result};
 *
 *     spillway_open(&c, NULL, NULL);
 *     spillway_spill(c, &request, 1, &t, NULL);
 *     spillway_wait(t, -1, &result, 1, NULL);      // 0: the bytes are stored, and gpu_memory may be freed or reused
 *     spillway_ticket_free(t);
 *
 *     request.region = result.region;
 *     spillway_restore(c, &request, 1, &t, NULL);  // into the same memory, or other memory of at least its length
 *     spillway_wait(t, -1, &result, 1, NULL);      // 0: the bytes are back, and the region is gone
 *     spillway_ticket_free(t);
 *     spillway_close(c);
 *
 * A real program passes a struct spillway_error in place of the last NULL, and looks at each return value.
 *
 * Terms
 *   - A region is what one spill stores: one or more buffers. It has an id.
 *   - A ticket stands for a call of spillway_spill() or spillway_restore() under way. Free it after its end, also after
 *     an error.
 *   - A durable region has a name and outlives the connection. A packed region is compressed in its own memory.
 *   - A tier is where regions are stored: host memory, or the disk (NVMe).
 *
 * What a program must not do
 *   - Write to or free memory between spillway_spill() and the end of its ticket: the service reads it.
 *   - Read, write or free memory between spillway_restore() and the end of its ticket. If you free the ticket earlier,
 *     wait for spillway_close() to return.
 *   - Free, unmap or remap registered memory before spillway_unregister() has returned: the service keeps it open.
 *   - Use a connection from two threads at once without a lock of your own. Different connections are independent.
 *   - Use a connection after fork(). Calls on an inherited connection fail with EINVAL: the child opens its own. In the
 *     child spillway_close() closes the child's descriptors and frees nothing, because CUDA cannot be called there.
 *   - Change the front of packed memory between the pack and the end of its unpack, or give memory of a running
 *     operation to another one, unless both only spill it.
 *   - Keep a region's id for another connection. Give the region a name instead (spillway_request.name).
 *
 * Conventions
 *   - Units are bytes, times are milliseconds.
 *   - A function that can fail returns 0 or more, or a negative code: -SPILLWAY_ENOSPACE (spillway_errors.h has all).
 *     Its last argument, if not NULL, says what failed, why, and what is unusable now. Other outputs are unchanged
 *     after an error.
 *   - Pointers must not be NULL unless the function says what NULL means. NULL memory is EINVAL.
 *   - Some structs begin with `size`: set it to the sizeof the struct, also in an output. So the library can serve
 *     programs that were compiled with another version of this header: it takes fields that the caller does not have
 *     as 0, and refuses bytes that it does not know itself unless they are 0 (EINVAL). Structs without `size` keep
 *     their length. Reserved fields must be 0.
 *   - An array's stride is the size of its first element. Requests must all have that size. In arrays of outputs only
 *     the first size is read; the library sets the others.
 *   - The library copies requests, their arrays of buffers and their names during the call. Only the memory that the
 *     buffers name must stay.
 *   - Calls take up to 48 KiB of stack, beside what the CUDA driver takes.
 *   - The header is plain C and C++ and needs no CUDA header. The library finds the CUDA driver at run time, and works
 *     without one for memory of the host. If it was built without nvcc, GPU pointers fail with EMEMKIND.
 *
 * Memory
 *   - The service opens these kinds of memory itself, and they move at full speed: cudaMalloc (also the middle of a
 *     block), VMM allocations with exportable handles, cudaMallocAsync from a pool with POSIX descriptor export, and
 *     memfds mapped MAP_SHARED. A memfd must be made with MFD_ALLOW_SEALING, because the library seals it against
 *     shrinking, and its descriptor must stay open while calls name the memory, and while it is registered.
 *   - All other memory is copied through a staging arena of 64 MiB, which the library makes when it first needs it, one
 *     for the host and one on each GPU: default pools of cudaMallocAsync, managed memory, malloc, mmap, page-locked
 *     memory, memfds of huge pages or that cannot be sealed. Calls and promises are the same, except:
 *       - The calls that wait or take replies in copy the host's memory, 16 MiB a call, so keep calling them;
 *         spillway_fd() says when. An arena that cannot be allocated on a full GPU is ENOMEM: see spillway_prepare().
 *       - Packs, unpacks and spillway_register() refuse such memory (EMEMKIND, EUNSEALED).
 *   - Before the service writes to a memfd the library allocates the pages that are missing, so that they are
 *     charged to this process.
 *
 * When the service goes away
 *   - If its service manager keeps the stored memory (systemd does), a connection outlives a restart or a crash of the
 *     service. The library connects again in the next call that waits or takes replies in. Regions keep their ids and
 *     registered memory is handed over again. A program that calls nothing for an hour loses its regions: watch
 *     spillway_fd().
 *   - What was under way completes as it would have, or fails with ERESTARTED: the spill has stored nothing, the region
 *     is still stored, and the call can be repeated. A pack or unpack at that moment ends with ELOST.
 *   - If the service does not come back, all calls fail with one error of scope SESSION: ESHUTDOWN if it was stopped in
 *     order, ERESTARTED if another process serves and has nothing of this connection, ECONN if it died.
 *   - A call that waits for an answer gives up after call_ms with ETIMEDOUT. The connection stays, and what was asked
 *     for may still be done. Time in which the library tries to come back does not count. */
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
#define SPILLWAY_VERSION_MINOR 2

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
    SPILLWAY_SCOPE_DEVICE,  /* this GPU, for the service */
    SPILLWAY_SCOPE_DAEMON   /* the service */
};

/* Says why a call failed. Whether it has failed, its return value says. */
struct spillway_error {
    int code; /* negative SPILLWAY_E..., 0: none */
    enum spillway_scope scope;
    int cuda;       /* CUDA driver's code, or 0 */
    char name[16];  /* "ENOSPACE" */
    char text[256]; /* what failed, with which arguments; without the name: print both */
};

struct spillway;        /* a connection; opaque */
struct spillway_ticket; /* a call of spillway_spill() or spillway_restore() under way; opaque */
struct CUstream_st;     /* CUstream, cudaStream_t */

/* Id of a region, unique in the service. All zero is never a valid id. Copy it freely. */
struct spillway_region {
    uint32_t slot, generation;
};

/* ---- connections ---- */

enum { SPILLWAY_SERVED_BY = 1 }; /* flag of spillway_options: server_uid is set */

struct spillway_options {
    size_t size;
    const char *socket_path; /* NULL: $SPILLWAY_SOCKET, else /run/spillway/data.sock */
    int connect_ms;          /* how long spillway_open() waits for the service; 0: 10 s, -1: no limit */
    int call_ms;             /* how long calls wait for an answer; 0: 30 s, -1: no limit */
    int reconnect_ms; /* how long the library tries to come back; 0 or -1: as long as the service keeps the session */
    uint32_t flags;
    uint32_t server_uid; /* SPILLWAY_SERVED_BY: the user who may serve the socket */
};

/* Connects to the service and agrees on the protocol version.
 *
 * - options NULL: all defaults. owns: *ret is the caller's until spillway_close().
 * - Who serves the socket gets this program's memory, so nothing is sent before the library knows that it is root
 *   (systemd made the socket), this program's own user, the owner of the socket's folder, or the user that
 *   server_uid or $SPILLWAY_SERVICE_UID names. Else EUNTRUSTED. The folder's owner counts only if no other user can
 *   replace the folder or one above it, so not in /tmp. In a user namespace that does not map the service's user, the
 *   service has the overflow uid (65534), which must be named. A connection that comes back is checked again.
 * - errors: EINVAL (path too long, options), ENOSERVICE (nothing listens there), ETIMEDOUT, ECONN, ESHUTDOWN, EACCES,
 *   EUNMAPPED (the service runs in a user namespace that does not map this user), EUNTRUSTED, EVERSION, ELIMIT,
 *   ETENANTSESSIONS, ETENANTMEMORY, EPROTO, ENOMEM. */
int spillway_open(struct spillway **ret, const struct spillway_options *options, struct spillway_error *error);

/* Ends the connection: cancels what runs, drops its regions that have no name, frees its tickets.
 *
 * - No ticket may be used afterwards, and none has to be freed before.
 * - If anything runs, waits until the service has let go of its memory, at most 10 s.
 * - Regions of a connection that is closed while the service is away last until the service gives them up.
 * - NULL is a no-op. */
void spillway_close(struct spillway *connection);

/* Changes reconnect_ms. 0: stop at once, also an attempt under way; -1: as long as the service waits. */
void spillway_set_reconnect(struct spillway *connection, int timeout_ms);

/* Changes call_ms of a connection. -1: no limit. */
void spillway_set_timeout(struct spillway *connection, int timeout_ms);

/* Takes what operations on this GPU memory need now, so that nothing has to be allocated when the GPU is full.
 *
 * - Makes the staging arena of the memory's GPU, or of the host, and what orders operations behind streams.
 * - errors: EMEMKIND, ERANGE, ENOMEM, EGPU, ELIMIT, ETIMEDOUT, ECONN. */
int spillway_prepare(struct spillway *connection, const void *memory, struct spillway_error *error);

/* ---- spill and restore ---- */

enum { SPILLWAY_MAX_BUFFERS = 64 };

/* A range of memory. Fields behind `type` are reserved for parts of regions and must be 0. A spill only reads `data`,
 * so memory that is const may be cast. */
struct spillway_buffer {
    void *data; /* one of several buffers may be of 0 bytes: anything */
    uint64_t bytes;
    uint16_t type;   /* spill: SPILLWAY_BYTES (0), SPILLWAY_I32 ... of spillway_packed.h; restore: not looked at */
    uint16_t source; /* 0 */
    uint32_t stride; /* 0 */
    uint64_t source_offset; /* 0 */
    uint64_t reserved[2];
};

/* Flags of a request. */
enum {
    SPILLWAY_KEEP = 1,     /* restore: the region stays stored and its id valid */
    SPILLWAY_IN_PLACE = 2, /* spill: pack; restore: unpack, see below */
    SPILLWAY_PACKED = 4,   /* not yet: ENOTSUP */
    SPILLWAY_PART = 8,     /* not yet: ENOTSUP */
    SPILLWAY_EACH = 16     /* of all requests of a call, or of none: each succeeds or fails by itself */
};

/* One region to spill or to restore. A restore does not look at name and keep_priority, so the request of a spill
 * serves again once `region` is set. */
struct spillway_request {
    size_t size;
    const struct spillway_buffer *buffers; /* 1 to SPILLWAY_MAX_BUFFERS; they make one region together */
    uint32_t n_buffers, flags;
    struct spillway_region region; /* restore: which; spill: 0 */
    const char *name;              /* spill: 1 to 63 bytes, makes the region durable; NULL: it is not */
    struct CUstream_st *stream;    /* NULL: the default stream */
    uint32_t timeout_ms;           /* 0: none; cancels the call, where that of spillway_wait() only ends the wait */
    uint8_t urgency;               /* 0, reserved */
    uint8_t keep_priority;         /* spill: as SPILLWAY_ADVICE_PRIORITY, 0: by age; restore: 0 */
    uint16_t reserved;
    void *user; /* of the first request: spillway_ticket_user() */
};

/* Starts to spill requests[0..n), each to a region of its own, and returns at once.
 *
 * - n: at least 1. The library sends as many at a time as the service allows.
 * - All or nothing: if one request fails, none is stored, and the error's text counts requests from 1. With
 *   SPILLWAY_EACH each request has its own outcome (spillway_result.code). Many small regions in one call cost little
 *   more than one.
 * - stream: the service reads the memory after the work that was queued on it before this call. A non-blocking stream
 *   without work costs least. For memory of the host that is not page-locked, and for memfds, wait for the
 *   stream first. A stream that is being captured is EINVAL; the default stream works while others are captured.
 * - When the ticket completes with success, the bytes are stored, and the memory may be freed unless it is registered.
 *   The ids are in spillway_result.region. When it completes with an error the memory is as it was.
 * - name: any bytes but 0. The region does not end with the connection. Other connections of the same user find it by
 *   spillway_adopt(). It ends by spillway_drop() or by an operator only: a restore keeps it. It survives a restart of
 *   the service as regions do, but not `systemctl stop`, or a service in the foreground that ends. At most 256 requests
 *   with names, of 256 buffers together, can be stored all or nothing (ELIMIT); with SPILLWAY_EACH any number.
 * - type: the service chooses among the codecs of that type. Values are little endian, one behind the other; the length
 *   must be a multiple of the value's (EINVAL). Bytes that are not of that type come back all the same.
 * - SPILLWAY_IN_PLACE packs: the bytes are compressed to the front of their own memory, stored_bytes long, and the rest
 *   is free until spillway_restore() with SPILLWAY_IN_PLACE. One buffer, no name; several packs in one call need
 *   SPILLWAY_EACH. Kernels can read packed memory (spillway_device.cuh, spillway_query_packed()). Packed bytes that
 *   change cannot be unpacked. Packed regions end with the connection.
 * - timeout_ms: the call is canceled and its ticket completes with ETIMEDOUT once the memory is the caller's again; of
 *   several requests the shortest counts.
 * - owns: *ret_ticket is the caller's until spillway_ticket_free().
 * - errors of the call: EINVAL, EMEMKIND (not accessible memory, or none that this call takes), EUNSEALED, ENOPROC
 *   (/proc is not mounted), ERANGE (not all of it is there), ENOTSUP, ELIMIT (too much is under way), ECONN, EGPU, EIO,
 *   ENOMEM. errors of the ticket also: EDEVICE (the service does not use this GPU), ENOTSUP (its driver cannot open
 *   such memory), EEXIST (name), ENOSPACE, EIMPORT, EBUSY (packs: memory of another operation), EDRAINING,
 *   ETENANTBYTES, ETENANTREGIONS, ETENANTOPS, ETENANTMEMORY, ERESTARTED, ESHUTDOWN, EGPULOST, ETIMEDOUT, ECANCELED,
 *   ELOST (packs). */
int spillway_spill(struct spillway *connection, const struct spillway_request *requests, uint32_t n,
                   struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* Starts to restore requests[0..n).region into their buffers, and returns at once.
 *
 * - A region of several buffers needs as many, in the same order, each at least as long as it was (ETOOSMALL). Bytes
 *   behind that length are not written. Destinations of one call must not overlap.
 * - All or nothing: if one request fails, every region is still stored, except one that was found damaged (ELOST,
 *   ECHECKSUM, EFRAME), and the content of all destinations is undefined. With SPILLWAY_EACH each has its own outcome.
 * - When the ticket completes with success the bytes are visible to work queued afterwards, and the regions are gone,
 *   unless SPILLWAY_KEEP is set or they have names. A region has one restore at a time (EBUSY).
 * - A memfd is written to also where this process has mapped it for reading only.
 * - SPILLWAY_IN_PLACE unpacks: the buffer starts with the packed bytes, where they were packed or in a copy, and is as
 *   long as the memory was before the pack. Packed bytes of another region or chunk are refused with ECHECKSUM
 *   before anything is written. After an error the memory belongs to the region: put the right bytes back and call
 *   again, which goes on from there.
 * - errors of the call: as spillway_spill(). errors of the ticket also: ENOENT, ESTALE (it is gone), ESTATE, EBUSY,
 *   ETOOSMALL, ELOST, ECHECKSUM, EFRAME, EVERSION, EACCES (a memfd sealed against writing or opened for appending),
 *   EUNALLOCATED (holes were punched into the memfd after the call), ENOTSUP (chunks that are too long for it). */
int spillway_restore(struct spillway *connection, const struct spillway_request *requests, uint32_t n,
                     struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* What became of one request. Texts are zero-terminated. */
struct spillway_result {
    size_t size;                      /* set by the caller */
    int code;                         /* 0, or the request's error, negative */
    struct spillway_region region;    /* that was spilled or restored; all zero: its spill failed */
    uint64_t raw_bytes, stored_bytes; /* packed: stored_bytes at the front of the memory are in use */
    uint64_t service_us;              /* from the service's receipt to its reply */
    char codec[16];                   /* "v5t", "for", ..., "raw": of most bytes */
    char tier[16];                    /* "host", "nvme", "device" (packed) */
    char reason[32];                  /* why it was compressed, or was not: "pays", "does not shrink", ... */
    char coder[8];                    /* which process has encoded or decoded it; "": the service */
};

/* Waits for a ticket, while others complete as well.
 *
 * - timeout_ms: -1 no limit, 0 only looks. EAGAIN: not yet.
 * - results: room for n results, the first of which has its `size` set; n is the number of requests of the call, else
 *   EINVAL. NULL and 0: not wanted; then regions without a name that were spilled are dropped with the ticket.
 * - Returns 0, or the call's error; with SPILLWAY_EACH the first request's that failed, and the results are filled in
 *   all the same. May be called again, and still gives results after spillway_next_done() has told of the ticket.
 * - Polls for 0.2 ms, and near the time when similar calls took steadily long; else sleeps. */
int spillway_wait(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *results, uint32_t n,
                  struct spillway_error *error);

/* Asks to end a ticket's call early, and returns at once. The ticket still completes: with ECANCELED, or as it would
 * have. Until then the memory is not the caller's. No-op once the ticket has completed. */
int spillway_cancel(struct spillway_ticket *ticket, struct spillway_error *error);

/* Frees a ticket. What runs goes on, but a spill of memory that is copied, or of several requests, stops. Regions whose
 * results spillway_wait() has not told are dropped, except those with a name that it has reported success for.
 *
 * - NULL is a no-op. */
void spillway_ticket_free(struct spillway_ticket *ticket);

/* The `user` of the ticket's first request. */
void *spillway_ticket_user(const struct spillway_ticket *ticket);

/* ---- event loops ----
 *
 *     whenever spillway_fd() is readable (POLLIN):
 *         if (spillway_dispatch(c, &error) < 0)
 *             ... the connection is lost: every ticket has completed, with its error
 *         while ((t = spillway_next_done(c))) {
 *             int rc = spillway_wait(t, 0, &result, 1, &error);   // at once: its outcome
 *             ... spillway_ticket_user(t) says which
 *             spillway_ticket_free(t);
 *         }
 */

/* A descriptor that is readable when spillway_dispatch() has something to do, also after another call has seen a ticket
 * complete. The connection owns it. Once the connection is lost it stays readable. */
int spillway_fd(const struct spillway *connection);

/* Takes replies in without blocking. Returns how many tickets have completed of which no call has told, this one
 * included, or an error of the connection. Take all of them by spillway_next_done(): they are counted only once. */
int spillway_dispatch(struct spillway *connection, struct spillway_error *error);

/* The next ticket that has completed and that neither this call nor spillway_wait() has told of; NULL: none. Takes no
 * replies in. */
struct spillway_ticket *spillway_next_done(struct spillway *connection);

/* ---- registered memory ---- */

/* Has the service open data[0..bytes) once and keep it open until spillway_unregister().
 *
 * - Saves 7 ms per GB for memory from cudaMalloc, and for a memfd a search through this process's mappings.
 * - Operations on any range inside it use it by themselves. Registered ranges must not overlap.
 * - Waits until it is mapped. errors: those of spillway_spill() about memory, EUNSEALED, EDEVICE, ENOTSUP, EINVAL (no
 *   bytes), EEXIST (overlap), ELIMIT, EIMPORT, ETIMEDOUT (not registered; the service may have it open until the
 *   connection ends). */
int spillway_register(struct spillway *connection, void *data, uint64_t bytes, struct spillway_error *error);

/* Ends that for the memory that starts at `data`, once the operations in it have ended: it may then be freed.
 *
 * - errors: ENOENT, ETIMEDOUT (still registered: call again), ECONN (no longer registered), ENOMEM. */
int spillway_unregister(struct spillway *connection, void *data, struct spillway_error *error);

/* ---- regions ---- */

/* Takes over a durable region of this user by its name. When the connection ends it is there for the next one.
 *
 * - errors: EINVAL (name), ENOENT, EBUSY (another connection has it or may come back for it, or it is being spilled or
 *   moved: try again), ELIMIT, ENOMEM, ECONN, ETIMEDOUT. */
int spillway_adopt(struct spillway *connection, const char *name, struct spillway_region *ret,
                   struct spillway_error *error);

struct spillway_list_item {
    size_t size; /* set by the caller */
    char name[64];
    struct spillway_region region; /* all zero: another connection has it, or it was not adopted yet */
    uint64_t raw_bytes, stored_bytes;
    char state[16], tier[16]; /* as in spillway_region_info */
};

/* Lists this user's durable regions in the order of their names.
 *
 * - after: the last name of the call before; NULL: from the first. items: room for max, the first with its `size` set.
 * - Returns how many it has filled in; fewer than max: there are no more. max 0: 0. errors: EINVAL, ECONN, ETIMEDOUT,
 * ENOMEM. */
int spillway_list(struct spillway *connection, const char *after, struct spillway_list_item *items, uint32_t max,
                  struct spillway_error *error);

/* Drops regions[0..n), and the names that they have, as many as can be. Returns 0, or the error of the first that it
 * could not: ENOENT (never was, or is another connection's), ESTALE (is gone), EBUSY, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_drop(struct spillway *connection, const struct spillway_region *regions, uint32_t n,
                  struct spillway_error *error);

struct spillway_region_info {
    size_t size; /* set by the caller */
    uint64_t raw_bytes, stored_bytes;
    uint32_t n_buffers;
    char state[16]; /* "staging", "encoding", "storing", "out" (stored, or packed), "restoring", "lost" */
    char codec[16], tier[16];
};

/* Tells about a region. errors: ENOENT, ESTALE, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_query(struct spillway *connection, struct spillway_region region, struct spillway_region_info *ret,
                   struct spillway_error *error);

struct spillway_buffer_info {
    uint64_t raw_bytes, stored_bytes;
    char codec[16];
    char reason[32]; /* as in spillway_result; after a restart of the service the region's */
};

/* Tells about each buffer of a stored region. ret: room for SPILLWAY_MAX_BUFFERS. errors: as spillway_query(), EBUSY
 * (it is being spilled), ELOST. */
int spillway_query_buffers(struct spillway *connection, struct spillway_region region, struct spillway_buffer_info *ret,
                           uint32_t *ret_n, struct spillway_error *error);

/* Tells where the chunks of a packed region lie in its memory, so that kernels can read them there.
 *
 * - ret: room for max chunks, of which the first ones are filled in; *ret_n: how many the region has.
 * - True until the region is unpacked or dropped. An unpack that fails half-way leaves others: ask again.
 * - errors: as spillway_query(), EINVAL (not packed), EBUSY (being packed or unpacked), ELOST. */
int spillway_query_packed(struct spillway *connection, struct spillway_region region, struct spillway_packed_chunk *ret,
                          uint32_t max, uint32_t *ret_n, struct spillway_error *error);

enum spillway_advice {
    SPILLWAY_ADVICE_PRIORITY, /* value 0 (as spilled) to 255: regions of lower priority leave the host tier first */
    SPILLWAY_ADVICE_PIN,      /* value 1: stays in the host tier; 0: as spilled */
    SPILLWAY_ADVICE_PREFETCH  /* value 0: moves from the NVMe tier to the host tier, in the background */
};

/* Says what is known about the future of a stored region. Does not wait for a prefetch.
 *
 * - errors: EINVAL, ENOENT, ESTALE, ELOST, ENOSPACE (no room to fetch it to), EBUSY (being restored or moved), ECONN,
 *   ETIMEDOUT, ENOMEM. */
int spillway_advise(struct spillway *connection, struct spillway_region region, enum spillway_advice advice,
                    unsigned value, struct spillway_error *error);

/* ---- the service ---- */

/* How many spills since the service's start were compressed, or not, for one reason. */
struct spillway_reason {
    char text[32]; /* as in spillway_result */
    uint64_t spills;
};
enum { SPILLWAY_MAX_REASONS = 16 };

struct spillway_status {
    size_t size; /* set by the caller */
    char version[32];
    char device[64]; /* first GPU's name, or "host" */
    uint32_t n_gpus, sessions, regions;
    uint64_t scratch_bytes;       /* GPU memory that the service holds for its work, all GPUs */
    uint64_t scratch_limit_bytes; /* configured bound, all GPUs */
    uint64_t tier_capacity_bytes, tier_backed_bytes, tier_used_bytes; /* host memory */
    uint64_t nvme_capacity_bytes, nvme_used_bytes;                    /* 0: no NVMe tier */
    uint64_t mapped_memories;                                         /* client memories open in the service now */
    uint32_t n_reasons; /* known to this service, also those of 0 spills */
    struct spillway_reason reasons[SPILLWAY_MAX_REASONS];
};

/* Asks the service about itself. errors: EINVAL (size), ECONN, ETIMEDOUT, ENOMEM. */
int spillway_status(struct spillway *connection, struct spillway_status *ret, struct spillway_error *error);

/* The library's version: "0.2.0". */
const char *spillway_version(void);

/* "ENOSPACE" and its text for a code of either sign. */
const char *spillway_error_name(int code);
const char *spillway_error_text(int code);

#ifdef __cplusplus
}
#endif
#endif
