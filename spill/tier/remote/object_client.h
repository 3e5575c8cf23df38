/* object_client.h - sends requests to an object store, on threads of its own (libcurl's multi interface). "The
 * client's thread" is the one that calls back.
 *
 * - A failed attempt is repeated after a pause (object_reply.h), until the client's patience ends. Each attempt may
 *   take as long as bytes flow. A read without bytes is soon tried again, since a second connection often answers.
 * - Reads, writes and deletions take turns. At most max_requests are under way; while the store asks for fewer
 *   (SlowDown), half as many, and then slowly more again.
 * - If no request has succeeded for outage_us although some were tried, the store is out. PUTs and LISTs then fail at
 *   once, so their callers can store elsewhere, or start without it. All other requests wait as long as the client is
 *   patient. A small request asks every few seconds if the store is back.
 *
 * Requests are signed (SigV4), and the store checks the hash of each body. Replies are not signed: encryption has to
 * detect changes of what was read (object_crypt.h). */
#ifndef SW_SPILL_OBJECT_CLIENT_H
#define SW_SPILL_OBJECT_CLIENT_H

#include "spill/tier/remote/object.h"

struct sw_object_client;

/* Memory of libcurl for what has come of a reply. */
enum { SW_OBJECT_BUFFER_BYTES = 256 << 10 };

struct sw_object_config {
    const char *endpoint;            /* "https://host:port" */
    const char *bucket;              /* addressed by path: endpoint/bucket/name */
    const char *prefix;              /* of all names: "" or "some/path/" */
    const char *region;              /* "us-east-1" */
    const char *ca_file;             /* certificates to trust; NULL: the system's */
    const char *credentials;         /* a file; NULL: of the unit, or of the environment (object_credentials.h) */
    unsigned max_requests;           /* at once; 1 ... 256 */
    uint64_t bytes_per_s;            /* at most, in each direction; 0: no limit */
    uint64_t connect_us, stall_us;   /* an attempt ends if it does not connect, or if no byte flows, for so long */
    uint64_t first_read_us;          /* ... the first attempt of a read; each further one twice as long */
    uint64_t pause_us, max_pause_us; /* between attempts */
    uint64_t outage_us, patience_us;
};
/* Sets limits and times to what fits a store in the same region. */
void sw_object_config_init(struct sw_object_config *ret);

struct sw_object_stats {
    uint64_t n_attempts[SW_OBJECT_VERB_NR];  /* requests that the store may charge for */
    uint64_t n_failed, n_repeated;           /* attempts */
    uint64_t sent_bytes, received_bytes;     /* bodies */
    unsigned n_waiting, n_active, n_allowed; /* requests; allowed: at once, at the moment */
    uint64_t failing_us;                     /* since when no request has succeeded; 0: the last one did */
    bool is_out;
    struct sw_err last; /* the last failed attempt's */
};

/* Starts the threads. The store is not asked for anything. config: borrowed for the call. errors: -SW_ECONFIG (a name
 * or the endpoint is malformed), those of sw_object_credentials_load(), -SW_ENOMEM, -SW_ENOTSUP (built without
 * libcurl). */
int sw_object_client_open(struct sw_object_client **ret, const struct sw_object_config *config, struct sw_err *err);
/* Ends the threads. Requests that are left get two seconds, and none if the store does not answer; then they end with
 * -SW_ECANCELED. NULL: a no-op. thread: any but the client's. */
void sw_object_client_close(struct sw_object_client *client);

/* Queues a request. thread: any. */
void sw_object_submit(struct sw_object_client *client, struct sw_object_request *request);
/* Submits a request and waits for its end; `done` and `arg` are overwritten. Returns err.code. thread: any but the
 * client's, and the loop. */
int sw_object_run(struct sw_object_client *client, struct sw_object_request *request);
/* Runs n requests at the same time. */
void sw_object_run_all(struct sw_object_client *client, struct sw_object_request *requests, unsigned n);
/* Lists all objects whose names begin with `prefix`. found() returns false to end the list. errors: its request's. */
int sw_object_list(struct sw_object_client *client, const char *prefix,
                   bool (*found)(void *arg, const char *name, uint64_t bytes, int64_t modified_s), void *arg,
                   struct sw_err *err);
void sw_object_client_stats(struct sw_object_client *client, struct sw_object_stats *ret);

#endif
