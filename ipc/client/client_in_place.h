/* client_in_place.h - inside of libspillway: packs and unpacks by the codec in this process.
 *
 * The bytes do not leave the memory that they are in. The service is told of a region when it is packed, and when it is
 * unpacked. Not installed. thread: the connection's. */
#ifndef SW_IPC_CLIENT_IN_PLACE_H
#define SW_IPC_CLIENT_IN_PLACE_H

#include "ipc/client/client_transfer.h"

/* Makes a call one that packs or unpacks here, as far as it can: sets transfer->way. Returns 0 also if it cannot.
 * fall_back: called when what can be done here has ended, and the service has to do the items that are not done: it
 * gives these another way. errors: those of spillway_spill() about streams, -SW_ENOMEM. */
int sw_in_place_prepare(struct sw_transfer *transfer, void (*fall_back)(struct sw_transfer *transfer),
                        struct sw_err *err);
/* Refuses a call beside a running one, if one of them changes memory here that the other one uses. errors: -SW_EBUSY.
 */
int sw_in_place_check_others(const struct sw_transfer *transfer, struct sw_err *err);
/* Returns whether the call needs no service: all of its regions were packed here, and are to be unpacked. */
bool sw_in_place_is_alone(const struct spillway *c, const struct sw_call *call);

#endif
