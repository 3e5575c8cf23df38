/* client_coder.h - inside of libspillway: connects a connection to the coder of this process (coder.h).
 *
 * A link joins a connection and the coder of one place: a CUDA context, or the host. It asks the service what frames it
 * takes, makes the coder, and hands over the coder's frame buffers, which stay open until the connection ends. Calls
 * wait until the link is ready. If it is refused, calls go the other ways. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_CODER_H
#define SW_IPC_CLIENT_CODER_H

#include "ipc/client/client.h"
#include "ipc/client/coder.h"

enum sw_coder_link_state {
    SW_CODER_ASKED,    /* the service is asked what it takes */
    SW_CODER_ANSWERED, /* the coder is to be made */
    SW_CODER_OPENING,  /* it opens the frame buffers */
    SW_CODER_READY,
    SW_CODER_REFUSED /* `error` says why */
};

struct sw_coder_link {
    struct sw_list node; /* of spillway.coders */
    struct spillway *connection;
    enum sw_coder_link_state state;
    bool is_local; /* the service has no part in it: for unpacks only */
    struct spillway_error error;
    struct sw_coder_place place;
    uint8_t device_uuid[SW_DEVICE_UUID_BYTES];
    struct sw_coder *coder; /* NULL: not made yet */
    struct sw_coder_user user;
    struct sw_list waiting; /* sw_coder_event.node: cannot be sent yet */
    uint32_t mem;           /* the frame buffers */
    uint64_t frames_offset; /* in that memory */
    uint64_t chunk_bytes;   /* the longest of new regions */
    struct sw_msg_coder_ok answer;
    uint64_t marked_us;     /* since then a call waits for the caller's streams; 0: none does */
    uint64_t active_us;     /* when something was sent to the service or came from it */
    uint64_t asks_again_us; /* REFUSED for want of room: when it may ask again; 0: never */
    atomic_bool is_woken;   /* `event` was written, or is about to be */
    int event;              /* in the connection's epoll */
};

/* Returns true if the link is of no use. After a restart of the service it is asked again. */
static inline bool sw_coder_link_is_refused(const struct sw_coder_link *link) {
    return link->state == SW_CODER_REFUSED && link->error.code != -SW_ERESTARTED;
}

/* Memory of a link. */
struct sw_coder_range {
    struct sw_coder_link *link; /* NULL: none is known */
    uintptr_t begin, end;
};

/* Finds the link for memory of this process, or begins to make it. NULL: this memory is none that a coder works on, or
 * the connection's codec is the service's; err->code is 0 then, or says what failed. ret_range: what else has the same
 * link, as far as it is known; NULL: no matter. */
struct sw_coder_link *sw_coder_link_find(struct spillway *c, const void *data, uint64_t bytes, bool is_written,
                                         struct sw_coder_range *ret_range, struct sw_err *err);
/* Finds a link whose coder works on memory of this process alone, or makes it: the service need not be there. errors:
 * -SW_EMEMKIND, -SW_ERANGE, those of sw_coder_get(), -SW_ELIMIT. */
int sw_coder_link_local(struct sw_coder_link **ret, struct spillway *c, const void *data, uint64_t bytes,
                        struct sw_err *err);
/* The caller's stream has not got to its mark, and no event tells when it does. So the coder's thread looks again, less
 * and less often. *since_us: when that began; 0: now. */
void sw_coder_link_look_again(struct sw_coder_link *link, uint64_t *since_us);
/* Steps the coders that the connection uses. */
void sw_coder_links_step(struct spillway *c);
/* Returns whether a call that waits polls a coder, instead of sleeping: it does for as long as its frames are under
 * way, if not too many calls do. It goes on with the coder's other connections, too, whose calls sleep. */
bool sw_coder_attend(struct spillway *c);
void sw_coder_unattend(struct spillway *c);
/* Hands the frame buffers over again, when the connection has come back. */
void sw_coder_links_reopen(struct spillway *c);
/* Returns true if frame buffers have that number of a memory. */
bool sw_coder_links_use(const struct spillway *c, uint32_t mem);
/* Ends the connection's use of its coders. No run of its may be left. */
void sw_coder_links_free(struct spillway *c);
/* Adds what a wait has to poll: at most `most` descriptors. Returns how many. */
struct pollfd;
unsigned sw_coder_links_poll(const struct spillway *c, struct pollfd *ret, unsigned most);
/* Makes the link for this memory, if a coder can work on it, and waits until it is ready or refused. */
void sw_coder_prepare(struct spillway *c, const void *memory);

#endif
