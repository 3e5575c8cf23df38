/* object_store.h - an object store for tests, in a process of its own (object_store/store.py), and a client of it.
 *
 * With $SW_TEST_STORE, the endpoint of another store with an empty bucket "bucket", this one is used instead
 * (tests/e2e/remote_servers.sh). It takes no commands, so only some tests are possible.
 *
 * Every call checks what it does with ck_assert. thread: one at a time. */
#ifndef SW_TEST_OBJECT_STORE_H
#define SW_TEST_OBJECT_STORE_H

#include "spill/tier/remote/tier_remote.h"
#include <stdio.h>
#include <sys/types.h>

struct sw_object_store {
    pid_t pid; /* 0: not ours, or none */
    FILE *to, *from;
    char endpoint[40];
};

/* Returns false, and says so, if there is no python3, or the client was built without libcurl. */
bool sw_object_store_is_possible(void);
/* ... and exits with 77 (skipped) then. Call it first in main(). */
void sw_object_store_needed(void);
/* Returns false if $SW_TEST_STORE is used. */
bool sw_object_store_is_ours(void);
struct sw_object_store sw_object_store_begin(bool with_tls);
void sw_object_store_end(struct sw_object_store *store);
/* Sends a command of store.py. */
void sw_object_store_tell(struct sw_object_store *store, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* Gets the answer to a command. Returns ret. */
const char *sw_object_store_ask(struct sw_object_store *store, char *ret, size_t ret_bytes, const char *command);
unsigned sw_object_store_count(struct sw_object_store *store, const char *verb);

/* A configuration with the store's credentials (in the environment) and short times. */
struct sw_object_config sw_object_store_config(const struct sw_object_store *store);

/* A remote tier in the store, with a master key in a file of `folder`, which must exist. */
enum { SW_OBJECT_STORE_POOL_BYTES = 32 << 20 };
struct sw_tier_remote_config sw_object_store_tier(const struct sw_object_store *store, const char *folder);
struct sw_tier *sw_object_store_open(const struct sw_tier_remote_config *config);
/* Waits until there are exactly n objects, for some seconds; does nothing in a store that is not ours. */
void sw_object_store_await(struct sw_object_store *store, unsigned n);

#endif
