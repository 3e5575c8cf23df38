/* remote_probe.h - finds out whether a bucket lets only the first of two writers create an object. */
#ifndef SW_SPILL_REMOTE_PROBE_H
#define SW_SPILL_REMOTE_PROBE_H

#include "spill/tier/remote/object_client.h"

enum { SW_REMOTE_PROBE_RACERS = 16 };

/* Creates one object 16 times at once with If-None-Match. *ret: exactly one has won, and the object is its own. An
 * attempt without a reply may have won, so the object is read back. The object is deleted.
 * name: of an object that no one else uses. thread: any but the client's. errors: the store's that have
 * nothing to do with the question. A store that refuses conditional requests, or is full, is `false`. */
int sw_remote_probe(struct sw_object_client *client, const char *name, bool *ret, struct sw_err *err);

#endif
