/* client_packed.h - inside of libspillway: the regions that this process has packed in its own memory.
 *
 * The service knows that they are there, but their directories are here: which chunk lies where, and what tells its
 * frame from others. So nothing but this connection unpacks them, and it needs no service for that. Not installed.
 * thread: the connection's. */
#ifndef SW_IPC_CLIENT_PACKED_H
#define SW_IPC_CLIENT_PACKED_H

#include "ipc/client/client.h"

struct sw_frames;

struct sw_packed_region {
    struct sw_list node; /* of spillway.packed */
    struct spillway_region region;
    struct sw_frames *frames; /* owned; their beginnings may lie in the heap (spill/mover/heap_places.h) */
    uint64_t stored_bytes;
    char codec[16], reason[32]; /* as in struct spillway_result */
    bool is_busy;               /* it is being unpacked */
};

/* Makes a region that is in no list, and has neither an id nor frames. NULL: no memory. */
struct sw_packed_region *sw_packed_new(void);
/* Frees a region, which may be in the list. NULL: no-op. */
void sw_packed_free(struct sw_packed_region *packed);
struct sw_packed_region *sw_packed_find(const struct spillway *c, struct spillway_region region);
/* Frees the region, unless it is busy: it was dropped. No-op if it was not packed here. */
void sw_packed_forget(struct spillway *c, struct spillway_region region);
void sw_packed_free_all(struct spillway *c);
/* Fills in what spillway_query_packed() returns. errors: -SW_EBUSY. */
int sw_packed_describe(const struct sw_packed_region *packed, struct spillway_packed_chunk *ret, uint32_t max,
                       uint32_t *ret_n, struct sw_err *err);

#endif
