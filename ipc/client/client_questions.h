/* client_questions.h - inside of libspillway: requests that move no bytes, and whose reply is waited for. Not
 * installed. thread: that of the connection. */
#ifndef SW_IPC_CLIENT_QUESTIONS_H
#define SW_IPC_CLIENT_QUESTIONS_H

#include "ipc/client/client.h"

/* Drops up to SW_PROTO_MAX_ITEMS of the daemon's regions. errors: of the first that could not be dropped. */
int sw_client_discard(struct spillway *c, const struct spillway_region *regions, uint32_t n,
                      struct spillway_error *error);
/* Asks about one of the daemon's regions; *ret is this library's. */
int sw_client_inspect(struct spillway *c, struct spillway_region region, struct spillway_region_info *ret,
                      struct spillway_error *error);
int sw_client_advise(struct spillway *c, struct spillway_region region, uint32_t advice, uint32_t value,
                     struct spillway_error *error);

#endif
