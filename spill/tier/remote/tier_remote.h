/* tier_remote.h - frames as objects of a store that speaks the protocol of S3.
 *
 * Invariant: a frame whose write was reported done, and whose release has not begun, is found with the same bytes by
 * the next process that opens the tier with the same bucket, prefix, host and master keys.
 *
 * - A frame is one object, written by one PUT, which is atomic, under a name that is never used again:
 *   frames/HOST/KEY-LENGTH-NUMBER, where KEY is the frame's (frame_key.h). So the names are the record of what exists.
 *   The number is the offset of the frame's extent, which catalogues record. Short frames that wait for the store share
 *   an object, which has an index of them (remote_pack.h).
 * - Objects are encrypted (object_crypt.h), in memory of a bounded pool. A write takes its whole length there, because
 *   the store checks the body's hash before it commits; a read takes libcurl's buffer for each of its parts, which are
 *   read at the same time.
 * - While the store is out (object_client.h) reserve() fails with -SW_ENOSPACE, and so do writes that have begun, so
 *   nothing waits for it that could be stored elsewhere. Reads wait as long as the client is patient.
 * - A release deletes the object later, if it holds no other frame. If this cannot be done, or the process ends before,
 * the object is an orphan: the next process finds it, and releases it, since no catalogue names it.
 * - Durable regions have records in the store (remote_names.h).
 *
 * thread: as in tier.h; reserve, submit, release and stats never wait for the store. */
#ifndef SW_SPILL_TIER_REMOTE_H
#define SW_SPILL_TIER_REMOTE_H

#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/remote_record.h"
#include "spill/tier/tier.h"

extern const struct sw_tier_kind sw_tier_remote_kind;

struct sw_tier_remote_config {
    struct sw_object_config store;
    const char *host;     /* 1 to 32 characters of [a-z0-9-]: no other service of any host may have the same name */
    const char *tenants;  /* of several hosts (remote_record.h); NULL: there are none */
    const char *key_file; /* master keys; NULL: the systemd credential */
    uint64_t capacity_bytes, pool_bytes;
};

/* Opens the tier and lists its objects, for which it waits: until the store is out if it does not answer.
 * All but `host` and the texts of `store` are copied. thread: any, but the loop only before it runs. errors: those of
 * sw_object_client_open(), sw_object_keyring_open() and sw_object_list(); -SW_EBUSY (another process of this machine
 * uses the same bucket, prefix and host). */
int sw_tier_remote_open(struct sw_tier **ret, const struct sw_tier_remote_config *config, struct sw_err *err);

#endif
