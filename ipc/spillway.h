/* spillway.h - client API of Spillway: park GPU memory in spillwayd, compressed, and get the same bytes back.
 *
 * The simplest program (cc program.c $(pkg-config --cflags --libs spillway)):
 *
 *     struct spillway *c;
 *     struct spillway_ticket *t;
 *     struct spillway_buffer buffer = {.data = memory, .bytes = n};
 *     struct spillway_request request = {.size = sizeof request, .buffers = &buffer, .n_buffers = 1};
 *     struct spillway_result result = {.size = sizeof result};
 *
 *     spillway_open(&c, NULL, NULL);
 *     spillway_spill(c, &request, 1, &t, NULL);
 *     spillway_wait(t, -1, &result, 1, NULL);      // 0: the bytes are stored, and the memory may be freed or reused
 *     spillway_ticket_free(t);
 *
 *     request.region = result.region;
 *     spillway_restore(c, &request, 1, &t, NULL);  // into the same memory, or other memory of at least its length
 *     spillway_wait(t, -1, &result, 1, NULL);      // 0: the bytes are back, and the region is gone
 *     spillway_ticket_free(t);
 *     spillway_close(c);
 *
 * `memory` comes from cudaMalloc, or from malloc: see "Memory". A real program passes a struct spillway_error in place
 * of the last NULL, and looks at each return value:
 *
 *     if (spillway_open(&c, NULL, &error) < 0)
 *         fprintf(stderr, "%s: %s\n", error.name, error.text);
 *
 * Terms
 *   - A region is what one request spills: one or more buffers. It has an id.
 *   - A ticket stands for one call of spillway_spill() or spillway_restore(). Free it after its end, even if
 *     the call has failed.
 *   - A durable region has a name and outlives the connection. It survives a reboot only with `durability`. A packed
 *     region is compressed in its own memory.
 *   - A tier is where regions are stored: host memory, the disk (NVMe), or an object store.
 *   - A tenant is a user (uid) with all of its connections.
 *
 * What a program must not do
 *   - Write to or free memory between spillway_spill() and the end of its ticket: the service reads it.
 *   - Read, write or free memory between spillway_restore() and the end of its ticket. If you free the ticket earlier,
 *     wait for spillway_close() to return.
 *   - Free, unmap or remap registered memory before spillway_unregister() has returned: the service keeps it open.
 *   - Use a connection from two threads at once without a lock of your own. Different connections are independent.
 *   - Use a connection after fork(). The child opens its own. On the parent's connection its calls fail with EINVAL,
 *     and spillway_close() only closes descriptors, because CUDA cannot be called in the child.
 *   - Change the front of packed memory before it is unpacked.
 *   - Use the memory of a running operation in another one, unless both only spill it.
 *   - Use a region's id on another connection. Give the region a name instead (spillway_request.name).
 *
 * Conventions
 *   - Units are bytes, times are milliseconds.
 *   - A function that can fail returns 0 or more, or a negative code: -SPILLWAY_ENOSPACE (spillway_errors.h has all).
 *     Its last argument, if not NULL, says what failed, why, and what is unusable now. Other outputs are unchanged
 *     after an error.
 *   - Pointers must not be NULL unless the function says what NULL means. NULL memory is EINVAL.
 *   - Some structs begin with `size`. Set it to the sizeof the struct, also in an output. Then a program works with
 *     another version of the library: fields that the program does not have count as 0, and bytes that the library does
 *     not know must be 0 (EINVAL). Structs without `size` keep their length. Reserved fields must be 0.
 *   - In an array of requests each element needs its `size`, and all must be equal. In an array of outputs only the
 *     first `size` is read. It is the distance of the elements, and the library sets the others.
 *   - The library copies requests, their arrays of buffers and their names during the call. Only the memory that the
 *     buffers name must stay.
 *   - Calls take up to 48 KiB of stack, besides the CUDA driver's.
 *   - spillway_errors.h and spillway_packed.h are installed beside this header. The source tree has them in base/public
 *     and codec/public.
 *   - The header is plain C and C++ and needs no CUDA header. The library finds the CUDA driver at run time, and works
 *     without it for host memory. A library that was built without nvcc hands GPU memory over as well,
 *     but leaves encoding to the service, even with SPILLWAY_CODEC_CLIENT.
 *
 * Memory
 *   - The service opens these kinds of memory itself, and they move at full speed:
 *       - cudaMalloc, also the middle of an allocation
 *       - VMM allocations (cuMemCreate) with POSIX descriptors as handles
 *       - cudaMallocAsync from a pool with POSIX descriptors as handles
 *       - memfds, mapped MAP_SHARED and made with MFD_ALLOW_SEALING, because the library seals them against shrinking.
 *         Keep the descriptor open while calls name the memory, and while it is registered.
 *   - All other memory works as well, but the library copies it: malloc, mmap, page-locked and managed memory, default
 *     pools of cudaMallocAsync, memfds of huge pages or that cannot be sealed. It goes through a staging arena of
 *     64 MiB, one for the host and one on each GPU, which is made when it is first needed. Calls and promises are the
 *     same, except:
 *       - Calls that wait or dispatch copy host memory, 16 MiB each. So keep calling them; spillway_fd() says when.
 *       - An arena that does not fit on a full GPU is ENOMEM: see spillway_prepare().
 *       - spillway_register() refuses this memory (EMEMKIND, EUNSEALED), and so do packs and unpacks, unless the codec
 *         of this process works on it (SPILLWAY_CODEC_CLIENT).
 *   - Before the service writes to a memfd the library allocates the missing pages, so that they are charged to this
 *     process.
 *
 * When the service goes away
 *   - If its service manager keeps the stored memory (systemd does), a connection outlives a restart or a crash of the
 *     service. The library connects again in the next call that waits or dispatches. Regions keep their ids, and
 *     registered memory is handed over again. A program that calls nothing for an hour loses its regions, and already
 *     after reconnect_grace_s if others need the room: watch spillway_fd().
 *   - Running calls complete as they would have, or fail with ERESTARTED and scope REQUEST: repeat them. A spill has
 *     then stored nothing, and the region of a restore is still stored. The first call after the crash can fail in the
 *     same way, because the library notices the crash only then. A pack or unpack that the service is doing ends with
 *     ELOST; what is packed in this process is not lost.
 *   - If the service does not come back, all calls fail with one error of scope SESSION: ESHUTDOWN if it was stopped,
 *     ERESTARTED if another process serves and does not know this connection, ECONN if it died. A spill or restore
 *     that starts before the library has noticed returns 0, and its ticket has the error.
 *   - Calls other than spill and restore wait for an answer for call_ms (ETIMEDOUT). The connection stays, and the
 *     service may still carry out the call. Time in which the library reconnects does not count. */
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

/* Describes the error of a call. The return value says whether there is one. */
struct spillway_error {
    int code; /* negative SPILLWAY_E..., 0: none */
    enum spillway_scope scope;
    int cuda;       /* CUDA driver's code, or 0 */
    char name[16];  /* "ENOSPACE" */
    char text[256]; /* what failed, and why; without the name, so print both */
};

struct spillway;        /* a connection; opaque */
struct spillway_ticket; /* one call of spillway_spill() or spillway_restore(); opaque */
struct CUstream_st;     /* CUstream, cudaStream_t */

/* Id of a region, unique in the service. All zero is not a valid id. It may be copied. */
struct spillway_region {
    uint32_t slot, generation;
};

/* ---- connections ---- */

/* Flags of spillway_options. */
enum {
    SPILLWAY_SERVED_BY = 1,     /* server_uid is set */
    SPILLWAY_CODEC_CLIENT = 2,  /* encode and decode in this process where that is possible */
    SPILLWAY_CODEC_SERVICE = 4, /* encode and decode in the service. Neither: $SPILLWAY_CODEC, or else the service */
};

struct spillway_options {
    size_t size;
    const char *socket_path; /* NULL: $SPILLWAY_SOCKET, else /run/spillway/data.sock */
    int connect_ms;          /* limit of spillway_open(); 0: 10 s, -1: no limit */
    int call_ms;             /* limit of calls that wait for an answer; 0: 30 s, -1: no limit */
    int reconnect_ms;        /* limit of a reconnection; 0 or -1: as long as the service keeps the session */
    uint32_t flags;
    uint32_t server_uid; /* SPILLWAY_SERVED_BY: the user that may serve the socket */
};

/* Connects to the service.
 *
 * - options: NULL: all defaults. owns: *ret is the caller's until spillway_close().
 * - The server of the socket will get this program's memory. So the library sends nothing unless one of these users
 *   serves the socket (EUNTRUSTED). It checks again when a connection comes back.
 *     - root: systemd made the socket
 *     - this program's own user
 *     - the owner of the socket's folder, if no other user can replace the folder or one above it; so not in /tmp
 *     - the user that server_uid or $SPILLWAY_SERVICE_UID names. In a user namespace that does not map the service's
 *       user, name the overflow uid (65534).
 * - errors: EINVAL (path too long, options), ENOSERVICE (nothing listens there), ETIMEDOUT, ECONN, ESHUTDOWN, EACCES,
 *   EUNMAPPED (the service runs in a user namespace that does not map this user), EUNTRUSTED, EVERSION, ELIMIT,
 *   ETENANTSESSIONS, ETENANTMEMORY, EPROTO, ENOMEM. */
int spillway_open(struct spillway **ret, const struct spillway_options *options, struct spillway_error *error);

/* Ends the connection: cancels running calls, drops regions without a name, and frees all tickets.
 *
 * - Tickets must not be used afterwards, and need not be freed before.
 * - If calls run, waits until the service no longer uses their memory, at most 10 s. If a region has a name, waits as
 *   long until another connection can adopt it, also while the service is restarted.
 * - If the service is away, it drops the regions when it gives the connection up.
 * - NULL: no-op. */
void spillway_close(struct spillway *connection);

/* Changes reconnect_ms of a connection. 0: stop now, also a running attempt; -1: as long as the service waits. */
void spillway_set_reconnect(struct spillway *connection, int timeout_ms);

/* Changes call_ms of a connection. -1: no limit. */
void spillway_set_timeout(struct spillway *connection, int timeout_ms);

/* Allocates now what operations on this memory will need, so that they work when the GPU is full.
 *
 * - That is the staging arena of the memory's GPU, or of the host, and the page that orders operations behind streams.
 * - errors: EMEMKIND, ERANGE, ENOMEM, EGPU, ELIMIT, ETIMEDOUT, ECONN. */
int spillway_prepare(struct spillway *connection, const void *memory, struct spillway_error *error);

/* ---- spill and restore ---- */

enum { SPILLWAY_MAX_BUFFERS = 64 };

/* A range of memory. Fields after `type` are reserved and must be 0. A spill only reads `data`, so const memory may be
 * cast. */
struct spillway_buffer {
    void *data;             /* any value if bytes is 0 and another buffer of the region has bytes */
    uint64_t bytes;         /* 0 is allowed, but not in all of several buffers (EINVAL) */
    uint16_t type;          /* spill: SPILLWAY_I32, SPILLWAY_F64, ... (enum spillway_value_type in spillway_packed.h);
                               0: SPILLWAY_BYTES, text or anything; restore: ignored */
    uint16_t source;        /* 0 */
    uint32_t stride;        /* 0 */
    uint64_t source_offset; /* 0 */
    uint64_t reserved[2];
};

/* Flags of a request. */
enum {
    SPILLWAY_KEEP = 1,     /* restore: the region stays stored and its id valid */
    SPILLWAY_IN_PLACE = 2, /* spill: pack; restore: unpack, see below */
    SPILLWAY_PACKED = 4,   /* not yet: ENOTSUP */
    SPILLWAY_PART = 8,     /* not yet: ENOTSUP */
    SPILLWAY_EACH = 16     /* set in all requests of a call, or in none: each succeeds or fails by itself */
};

/* The events that a region with a name survives. */
enum spillway_durability {
    SPILLWAY_DURABLE_SERVICE = 0, /* a restart of the service under a service manager; nothing else */
    SPILLWAY_DURABLE_HOST = 1,    /* also systemctl stop, a reboot and power loss: it is on the host's disk */
    SPILLWAY_DURABLE_REMOTE = 2   /* also the loss of the host: it is in an object store */
};

/* What a region is compressed for. */
enum spillway_prefer {
    SPILLWAY_PREFER_NONE = 0, /* as the operator has set for this tenant; by default as SPILLWAY_PREFER_TIME while the
                                 tiers have room */
    SPILLWAY_PREFER_TIME = 1, /* so that spill and restore take least time */
    SPILLWAY_PREFER_ROOM = 2  /* by the densest codec, even if that takes longer */
};

/* One region to spill or to restore. A restore ignores name, keep_priority, durability and prefer: set `region`, and
 * use the spill's request again. */
struct spillway_request {
    size_t size;
    const struct spillway_buffer *buffers; /* 1 to SPILLWAY_MAX_BUFFERS; they make one region together */
    uint32_t n_buffers, flags;
    struct spillway_region region; /* restore: the region; spill: 0 */
    const char *name;              /* spill: makes the region durable; 1 to 63 bytes; NULL: not durable */
    struct CUstream_st *stream;    /* NULL: the default stream */
    uint32_t timeout_ms;           /* cancels the call; 0: never. The timeout of spillway_wait() only ends the wait. */
    uint8_t urgency;               /* 0, reserved */
    uint8_t keep_priority;         /* spill: as SPILLWAY_ADVICE_PRIORITY; 0: by age */
    uint8_t durability;            /* spill: enum spillway_durability; above 0 only with a name */
    uint8_t prefer;                /* spill: enum spillway_prefer */
    void *user;                    /* of the first request; spillway_ticket_user() returns it */
};

/* Starts to spill requests[0..n), each to a region of its own, and returns at once.
 *
 * The call
 *   - n: at least 1. Many small regions in one call cost little more than one.
 *   - All or nothing: if one request fails, none is stored. The error's text counts requests from 1. With SPILLWAY_EACH
 *     each request has its own outcome (spillway_result.code).
 *   - When the ticket completes with success, the bytes are stored, and the memory may be freed, unless it is
 *     registered. spillway_result.region is the id. When it completes with an error, the memory is unchanged.
 *   - timeout_ms: cancels the call. The ticket completes with ETIMEDOUT, and then the memory is the caller's again. The
 *     shortest time of all requests counts.
 *   - owns: *ret_ticket is the caller's until spillway_ticket_free().
 *
 * stream
 *   - The service reads the memory after the work that was queued on the stream before this call. A non-blocking stream
 *     without work costs least.
 *   - Streams do not order accesses to host memory that is not page-locked, or to memfds: synchronise first.
 *   - A stream that is being captured is EINVAL. The default stream works while others are captured.
 *
 * name
 *   - Any bytes but 0. The region does not end with the connection: any connection of the same user finds it by
 *     spillway_adopt(). A restore keeps it. It ends only by spillway_drop() or by an operator.
 *   - It survives a restart of the service as other regions do, but not `systemctl stop`, a reboot, or the end of a
 *     service in the foreground. With `durability` it does.
 *   - At most 256 requests with names, of 256 buffers together, can be all or nothing (ELIMIT).
 *
 * durability
 *   - The spill succeeds only when the region survives what the level says: its bytes and its name are flushed to the
 *     disk, or are objects of the store. spillway_result.durability is the level that was reached, which may be higher.
 *   - If the service cannot reach the level, the ticket fails with EDURABILITY, and the text says why. The operator
 *     has to set nvme_tier_directory for SPILLWAY_DURABLE_HOST, remote_tier_endpoint for SPILLWAY_DURABLE_REMOTE.
 *   - Such a region stays where it is: it is not prefetched to host memory. A restore reads it from there.
 *   - spillway_drop() is not flushed. A power cut shortly after it may bring the region back, whole.
 *
 * prefer
 *   - The densest codec for text needs at least 2 MiB of it in one buffer. A client's codec (SPILLWAY_CODEC_CLIENT)
 *     does not know what the operator has set: SPILLWAY_PREFER_NONE is as SPILLWAY_PREFER_TIME for it.
 *
 * type
 *   - The service chooses among the codecs for this type. Values are little endian, without gaps. The length must be a
 *     multiple of the value's (EINVAL). Bytes of another type come back unchanged, too.
 *
 * SPILLWAY_IN_PLACE (pack)
 *   - The bytes are compressed to the front of their own memory, stored_bytes long. The rest is free until
 *     spillway_restore() with SPILLWAY_IN_PLACE.
 *   - One buffer, no name. Several packs in one call need SPILLWAY_EACH.
 *   - Kernels can read packed memory (spillway_device.cuh, spillway_query_packed()). Packed bytes that change cannot be
 *     unpacked. Packed regions end with the connection.
 *   - With SPILLWAY_CODEC_CLIENT this process packs and unpacks, where that is possible (spillway_result.coder). If the
 *     service does not take the region, or is gone, the pack is undone. While bytes are being overwritten the codec
 *     waits for the GPU: kernels that fill it must not wait for this call.
 *
 * Errors
 *   - of the call: EINVAL, EMEMKIND (no memory, or not of a kind that this call takes), EUNSEALED, ENOPROC (/proc is
 *     not mounted), ERANGE (not all of it is memory), EBUSY (memory that this process packs or unpacks), ENOTSUP,
 *     ELIMIT (too much is under way), ECONN, EGPU, EIO, ENOMEM
 *   - of the ticket also: EDEVICE (the service does not use this GPU), ENOTSUP (its driver cannot open this memory),
 *     EEXIST (name), EDURABILITY, ENOSPACE, EIMPORT, EBUSY (packs: memory of another operation), EDRAINING
 *   - of the ticket, a limit of this user: ETENANTBYTES, ETENANTREGIONS, ETENANTOPS, ETENANTMEMORY
 *   - of the ticket, from the way it ended: ERESTARTED, ESHUTDOWN, EGPULOST, ETIMEDOUT, ECANCELED, ELOST (packs)
 */
int spillway_spill(struct spillway *connection, const struct spillway_request *requests, uint32_t n,
                   struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* Starts to restore requests[0..n).region into their buffers, and returns at once.
 *
 * - A region of several buffers needs as many, in the same order, each at least as long as before (ETOOSMALL). Bytes
 *   after that length are not written. Destinations of one call must not overlap.
 * - All or nothing: if one request fails, every region is still stored, except one that was found damaged (ELOST,
 *   ECHECKSUM, EFRAME), and the content of all destinations is undefined. With SPILLWAY_EACH each has its own outcome.
 * - When the ticket completes with success, work that is queued afterwards sees the bytes. The regions are gone, unless
 *   SPILLWAY_KEEP is set or they have names. A region has one restore at a time (EBUSY).
 * - A memfd is written to even if this process has mapped it read-only.
 * - SPILLWAY_IN_PLACE unpacks. The buffer starts with the packed bytes, in their old memory or in a copy, and has the
 *   length that the memory had before the pack. Packed bytes of another region or chunk are refused (ECHECKSUM) before
 *   anything is written. After an error put the right bytes back, and call again. A region that was packed in this
 *   process is unpacked by the same connection only (ENOTSUP), also after the service is gone: then it is the only call
 *   that still works.
 * - errors of the call: as spillway_spill(). errors of the ticket also: ENOENT, ESTALE (the region is gone), ESTATE,
 *   EBUSY, ETOOSMALL, ELOST, ECHECKSUM, EFRAME, EVERSION, EACCES (a memfd that is sealed against writing, or opened for
 *   appending), EUNALLOCATED (holes were punched into the memfd after the call), ENOTSUP (chunks that are too long for
 *   the service). */
int spillway_restore(struct spillway *connection, const struct spillway_request *requests, uint32_t n,
                     struct spillway_ticket **ret_ticket, struct spillway_error *error);

/* The outcome of one request. Texts are zero-terminated. */
struct spillway_result {
    size_t size;                      /* set by the caller */
    int code;                         /* 0, or negative: the request's error, without SPILLWAY_EACH the call's */
    struct spillway_region region;    /* all zero: its spill failed */
    uint64_t raw_bytes, stored_bytes; /* packed: stored_bytes at the front of the memory are in use */
    uint64_t service_us;              /* receipt to reply; in several packets: a spill's last, a restore's sum */
    char codec[16];                   /* of most bytes: "v5t", "for", ..., "raw" */
    char tier[16];                    /* "host", "nvme", "remote", "device" (packed) */
    char reason[32];                  /* why it was compressed, or was not: "pays", "does not shrink", ... */
    char coder[8];                    /* what has encoded all of it, or decoded it: "client", "daemon" */
    uint32_t durability, reserved;    /* enum spillway_durability that the region has reached */
};

/* Waits until a ticket completes, and returns its outcome. Other tickets can complete meanwhile.
 *
 * - timeout_ms: -1: no limit; 0: only looks. EAGAIN: not complete yet; the call goes on.
 * - results: room for n results, as many as the call has requests (EINVAL). The first has its `size` set. NULL and 0:
 *   not wanted; then spilled regions without a name are dropped with the ticket.
 * - Returns 0, or the call's error. With SPILLWAY_EACH it is the error of the first request that failed. When the
 *   ticket is complete, the results are filled in after an error, too.
 * - May be called again, also after spillway_next_done().
 * - Polls for 0.2 ms, and near the time that similar calls take. Otherwise it sleeps. */
int spillway_wait(struct spillway_ticket *ticket, int timeout_ms, struct spillway_result *results, uint32_t n,
                  struct spillway_error *error);

/* Asks to end a ticket's call early, and returns at once. No-op if the ticket has completed.
 *
 * - The ticket still completes, with ECANCELED or as it would have. Wait for it: only then the memory is the caller's.
 * - errors: EINVAL (after fork()). */
int spillway_cancel(struct spillway_ticket *ticket, struct spillway_error *error);

/* Frees a ticket. NULL: no-op.
 *
 * - A running call goes on, but a spill of copied memory, or of several requests, stops.
 * - Regions whose results spillway_wait() did not return are dropped, except durable ones for which it returned 0. */
void spillway_ticket_free(struct spillway_ticket *ticket);

/* Returns `user` of the ticket's first request. */
void *spillway_ticket_user(const struct spillway_ticket *ticket);

/* ---- event loops ----
 *
 *     whenever spillway_fd() is readable (POLLIN):
 *         if (spillway_dispatch(c, &error) < 0)
 *             ... the connection is lost: every ticket has completed, with its error
 *         while ((t = spillway_next_done(c))) {
 *             int rc = spillway_wait(t, 0, &result, 1, &error);   // at once: its outcome
 *             ... spillway_ticket_user(t) says which call it was
 *             spillway_ticket_free(t);
 *         }
 */

/* Returns a descriptor that is readable when spillway_dispatch() has something to do.
 *
 * - The connection owns it. It stays readable after the connection is lost.
 * - It is also readable if another call has seen a ticket complete that was not reported yet. */
int spillway_fd(const struct spillway *connection);

/* Takes in replies without blocking. Returns the number of newly completed tickets, or an error of the connection.
 *
 * - A ticket is counted once. Take all of them by spillway_next_done(). */
int spillway_dispatch(struct spillway *connection, struct spillway_error *error);

/* Returns the next completed ticket that neither this call nor spillway_wait() has returned; NULL: none. */
struct spillway_ticket *spillway_next_done(struct spillway *connection);

/* ---- registered memory ---- */

/* Registers memory: the service opens data[0..bytes) once, and keeps it open until spillway_unregister().
 *
 * - Saves 7 ms per GB of cudaMalloc's memory in each operation, and for a memfd a search of this process's mappings.
 * - Spills and restores of any range inside use it automatically. Registered ranges must not overlap.
 * - Waits until the service has mapped it. If the codec of this process works on the memory (SPILLWAY_CODEC_CLIENT),
 *   the service opens it only when a call needs that. If it cannot, that call fails with EIMPORT or ELIMIT.
 * - errors: those of spillway_spill() about memory, EUNSEALED, EDEVICE, ENOTSUP, EINVAL (no bytes), EEXIST (overlap),
 *   ELIMIT, EIMPORT, ETIMEDOUT (not registered; the service may keep it open until the connection ends). */
int spillway_register(struct spillway *connection, void *data, uint64_t bytes, struct spillway_error *error);

/* Unregisters the memory that starts at `data`, when the operations in it have ended. It may then be freed.
 *
 * - errors: ENOENT, ETIMEDOUT (still registered: call again), ECONN (no longer registered), ENOMEM. */
int spillway_unregister(struct spillway *connection, void *data, struct spillway_error *error);

/* ---- regions ---- */

/* Takes over a durable region of this user by its name, and gets its id. One connection has it at a time.
 *
 * - When the connection ends, the region stays for the next one.
 * - errors: EINVAL (name), ENOENT, EBUSY (another connection has it, or may come back for it; or it is being spilled or
 *   moved: try again), ELIMIT, ENOMEM, ECONN, ETIMEDOUT. */
int spillway_adopt(struct spillway *connection, const char *name, struct spillway_region *ret,
                   struct spillway_error *error);

struct spillway_list_item {
    size_t size; /* set by the caller */
    char name[64];
    struct spillway_region region; /* all zero: this connection does not have it; see spillway_adopt() */
    uint64_t raw_bytes, stored_bytes;
    char state[16], tier[16];      /* as in spillway_region_info */
    uint32_t durability, reserved; /* enum spillway_durability */
};

/* Lists this user's durable regions in the order of their names, and returns how many it has filled in.
 *
 * - Regions without a name are not listed: only spillway_result.region has their ids.
 * - after: the last name of the previous call; NULL: from the first name on.
 * - items: room for max items. The first has its `size` set. Fewer than max: there are no more.
 * - errors: EINVAL, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_list(struct spillway *connection, const char *after, struct spillway_list_item *items, uint32_t max,
                  struct spillway_error *error);

/* Drops as many of regions[0..n) as it can, with their names.
 *
 * - After a power loss a durable region that was dropped just before may be there again.
 * - errors: of the first region that it could not drop: ENOENT (this connection has no such region), ESTALE (the region
 *   is gone), EBUSY, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_drop(struct spillway *connection, const struct spillway_region *regions, uint32_t n,
                  struct spillway_error *error);

struct spillway_region_info {
    size_t size; /* set by the caller */
    uint64_t raw_bytes, stored_bytes;
    uint32_t n_buffers;
    char state[16]; /* "staging", "encoding", "storing", "out" (stored, or packed), "restoring", "lost" */
    char codec[16], tier[16];
    uint32_t durability; /* enum spillway_durability */
};

/* Describes a region. errors: ENOENT, ESTALE, ECONN, ETIMEDOUT, ENOMEM. */
int spillway_query(struct spillway *connection, struct spillway_region region, struct spillway_region_info *ret,
                   struct spillway_error *error);

struct spillway_buffer_info {
    uint64_t raw_bytes, stored_bytes;
    char codec[16];
    char reason[32]; /* as in spillway_result; after a restart of the service: of the region */
};

/* Describes each buffer of a stored region. ret: room for SPILLWAY_MAX_BUFFERS. errors: as spillway_query(), EBUSY (it
 * is being spilled), ELOST. */
int spillway_query_buffers(struct spillway *connection, struct spillway_region region, struct spillway_buffer_info *ret,
                           uint32_t *ret_n, struct spillway_error *error);

/* Gets the places of a packed region's chunks in its memory, so that kernels can read them there.
 *
 * - ret: room for max chunks. *ret_n: the number of chunks that the region has, which may be more.
 * - The places are valid until the region is unpacked or dropped. After an unpack that failed, call again.
 * - errors: as spillway_query(), EINVAL (not packed), EBUSY (being packed or unpacked), ELOST. */
int spillway_query_packed(struct spillway *connection, struct spillway_region region, struct spillway_packed_chunk *ret,
                          uint32_t max, uint32_t *ret_n, struct spillway_error *error);

enum spillway_advice {
    SPILLWAY_ADVICE_PRIORITY, /* value 0 (as spilled) to 255: regions of lower priority leave the host tier first */
    SPILLWAY_ADVICE_PIN,      /* value 1: the region stays in the host tier; 0: it may leave */
    SPILLWAY_ADVICE_PREFETCH  /* value 0: move it from the disk or the store to the host tier, in the background */
};

/* Gives advice about a stored region's future use. Does not wait for a prefetch.
 *
 * - errors: EINVAL, ENOENT, ESTALE, ELOST, ENOSPACE (no room to fetch it to), EBUSY (being restored or moved), ECONN,
 *   ETIMEDOUT, ENOMEM. */
int spillway_advise(struct spillway *connection, struct spillway_region region, enum spillway_advice advice,
                    unsigned value, struct spillway_error *error);

/* ---- the service ---- */

/* The number of spills since the service's start that were compressed, or were not, for one reason. */
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
    uint64_t scratch_bytes;       /* GPU memory that the service holds for its work, on all GPUs */
    uint64_t scratch_limit_bytes; /* its configured limit, on all GPUs */
    uint64_t tier_capacity_bytes, tier_backed_bytes, tier_used_bytes; /* host memory */
    uint64_t nvme_capacity_bytes, nvme_used_bytes;                    /* 0: no NVMe tier */
    uint64_t mapped_memories;                                         /* client memories open in the service now */
    uint32_t n_reasons;                                               /* also reasons with 0 spills */
    struct spillway_reason reasons[SPILLWAY_MAX_REASONS];
};

/* Describes the service. errors: EINVAL (size), ECONN, ETIMEDOUT, ENOMEM. */
int spillway_status(struct spillway *connection, struct spillway_status *ret, struct spillway_error *error);

/* Returns the library's version, such as "0.2.0". */
const char *spillway_version(void);

/* Return the name and the text of a code of either sign, such as "ENOSPACE". */
const char *spillway_error_name(int code);
const char *spillway_error_text(int code);

#ifdef __cplusplus
}
#endif
#endif
