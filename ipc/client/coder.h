/* coder.h - inside of libspillway: the codec in the engine's process.
 *
 * A coder is a mover (spill/mover) with a device of its own: for GPU memory in the engine's CUDA context, for memory of
 * the host the host device. One process has one coder for each context, which its connections share. Frames lie in the
 * device's frame buffers, memory that each connection hands over to the service (client_coder.c). The service copies
 * frames out of these buffers and into them; no kernel of the service runs for it.
 *
 * sw_coder_step() advances the mover for all connections. If no caller does so for 100 us while there is work, the
 * coder's own thread does. The thread wakes up late, so callers are better at it. The mover tells a connection by
 * events what to send: at most one for each slot. A few callers that wait attend to the coder: they step it, and go on
 * with the connections of the others, which sleep.
 *
 * Kernels of the engine may fill the GPU until a call has ended. If ours have not begun within 20 ms, a run fails with
 * -SW_EGPU, and later ones at once, until those have ended: the service is to do the call. A coder without users is
 * kept until then, since freeing its memory waits for kernels.
 *
 * If the engine destroys the context, all in it is gone: the coder forgets its handles and GPU memory, runs fail with
 * -SW_EGPULOST, and another context, even with the same handle, gets a coder of its own.
 *
 * Not installed. thread: any; a coder has a lock of its own. */
#ifndef SW_IPC_CODER_H
#define SW_IPC_CODER_H

#include "ipc/client/coder_users.h"
#include "spill/mover/mover.h"
#include <stdatomic.h>

struct sw_coder;
struct CUctx_st;

/* Where a coder works. */
struct sw_coder_place {
    struct CUctx_st *context; /* NULL: the host device */
    uint64_t context_id;      /* sw_coder_context_id() */
    int ordinal;              /* of the context's GPU */
};

/* A buffer on its way through the coder. All zero before sw_coder_add(); it belongs to the coder until is_over. */
struct sw_coder_run {
    struct sw_coder_user *user;
    struct sw_request request;
    struct sw_buffer buffer;
    struct sw_run_memory memory;
    struct sw_signals signals;
    struct sw_run run;
    atomic_bool is_over;      /* run.outcome and run.frames are the caller's */
    atomic_bool is_abandoned; /* it has failed: its events need not be sent */
    bool is_added;
    enum sw_prefer prefer; /* this and the rest: the caller's. SPILL: its request's */
    void *owner;
    bool goes_in_groups; /* its only chunk may share an event with those of other runs of the owner */
    uint32_t item, buffer_index;
    size_t n_sent;          /* chunks */
    bool is_taken;          /* the caller has seen that it is over */
    bool failed_at_service; /* its error is the service's */
    struct sw_err refused;  /* of a group: why the service does not send or take this frame; code 0: it does */
};

enum sw_coder_event_kind { SW_CODER_SEND, SW_CODER_FETCH };

/* Something to be sent to the service, about a slot's frame buffer: several chunks of a run, or the only chunks of
 * several runs of one owner. It belongs to the user from sw_coder_next_event() until sw_coder_event_done(). */
struct sw_coder_event {
    struct sw_list node;
    enum sw_coder_event_kind kind;
    bool is_disputed;            /* FETCH: once more, since a frame did not decode */
    bool is_pending;             /* posted, and not done */
    unsigned slot, n;            /* n: frames */
    struct sw_coder_run *run;    /* of all frames, or of the first */
    size_t chunk;                /* the first; of a group: 0 */
    struct sw_group_item *items; /* a group, the mover's; NULL: it is none */
    struct sw_err result;        /* what the user has ended it with */
    /* [SW_CODER_MOST_RUNS] each. */
    struct sw_coder_run **runs; /* of each frame */
    /* Where in the coder's frame buffers each frame begins. FETCH: its room; the user may let the frames of a group
     * begin anywhere in all of their rooms, and says where. */
    uint64_t *at;
    uint64_t *bytes;   /* of the frame; FETCH: of its room */
    uint32_t *numbers; /* the user's */
};
enum { SW_CODER_MOST_RUNS = 256 };

/* Finds the coder of a place, or makes it, which takes up to a second on a GPU. owns: the caller, sw_coder_put().
 * errors: -SW_ENOTSUP (no kernels, or no such device), -SW_ENOMEM, -SW_EGPU, -SW_EDEVICE. */
int sw_coder_get(struct sw_coder **ret, const struct sw_coder_place *place, struct sw_err *err);
/* Gives a coder up. The last user ends the coder, whose runs must all be over. NULL is a no-op. */
void sw_coder_put(struct sw_coder *coder);

/* Adds a user, which the coder's thread serves; removes it: that waits until it is not being served. */
void sw_coder_add_user(struct sw_coder *coder, struct sw_coder_user *user);
void sw_coder_remove_user(struct sw_coder *coder, struct sw_coder_user *user);

/* A caller that waits attends to the coder, until sw_coder_attend_end(): it calls sw_coder_step() and
 * sw_coder_serve_others() time and again. False: enough others do. */
bool sw_coder_attend_begin(struct sw_coder *coder);
void sw_coder_attend_end(struct sw_coder *coder);
/* Serves the users with news, but one, unless another thread is at it. */
void sw_coder_serve_others(struct sw_coder *coder, const struct sw_coder_user *self);

/* Has the coder's thread wake the user at this time of sw_clock_us(), once: for what only polling shows. Does nothing
 * if that is still to come from an earlier call. */
void sw_coder_wake_at(struct sw_coder *coder, struct sw_coder_user *user, uint64_t us);

/* Returns the memory of the frame buffers, for the service to open, and its length; for the host device also its
 * memfd. */
void *sw_coder_frames(const struct sw_coder *coder, uint64_t *ret_bytes, int *ret_fd);
/* Returns the length of the longest chunk that the coder decodes. */
uint64_t sw_coder_chunk_bytes(const struct sw_coder *coder);
/* Returns the longest chunk of new regions: short enough for a step to take several, and for smaller coders to
 * decode. */
uint64_t sw_coder_new_chunk_bytes(const struct sw_coder *coder);
/* How many steps it works on at a time. */
unsigned sw_coder_slots(const struct sw_coder *coder);

/* Adds n runs, each on memory of this process: memory.data, buffer.bytes. user, request.operation, .session and
 * .may_fill_holes, buffer.type and .chunk_bytes, and for a restore or unpack run.frames, are filled in. Packs and
 * unpacks have no events: their bytes stay where they are. */
void sw_coder_add(struct sw_coder *coder, struct sw_coder_run *const *runs, unsigned n);
/* Cancels a run that was added. */
void sw_coder_cancel(struct sw_coder *coder, struct sw_coder_run *run);
/* Frees what a run that is over still has. */
void sw_coder_run_fini(struct sw_coder_run *run);
/* Advances the mover without waiting. Returns true if steps of the device are under way, whose end only polling shows.
 * Another thread may be at it: then it returns true at once. */
bool sw_coder_step(struct sw_coder *coder);
/* Begins or ends a call that must not fail, since the service cannot do it any more: it waits for the engine's kernels.
 * While there is such a call, no run fails because kernels do not begin. */
void sw_coder_be_patient(struct sw_coder *coder, bool is_patient);
/* Lets no frame through the coder any more: the service has not answered, and may still use a frame buffer of a run
 * that was given up. Its runs fail with -SW_EIO, except packs and unpacks, and the next request for its place gets
 * another coder. */
void sw_coder_condemn(struct sw_coder *coder);
bool sw_coder_is_condemned(const struct sw_coder *coder);
/* Ends the events of an owner's runs, whether they were sent or not: the service uses no frame buffers for them any
 * more. */
void sw_coder_drop_events(struct sw_coder *coder, const void *owner);
/* Returns the user's next event; NULL: there is none. */
struct sw_coder_event *sw_coder_next_event(struct sw_coder *coder, struct sw_coder_user *user);
/* Ends an event, when the service has answered. err NULL or code 0: the frame buffer holds what was asked for, or was
 * read. After a FETCH run->run.frames has the layouts. */
void sw_coder_event_done(struct sw_coder *coder, struct sw_coder_event *event, const struct sw_err *err);

#endif
