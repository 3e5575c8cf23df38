/* object.h - requests to one bucket of a store that speaks the protocol of S3.
 *
 * A request belongs to its caller, and is borrowed by the client from submit to `done`, which is called exactly once.
 * The client repeats what may be repeated (object_client.h), so a request either succeeds or has finally failed.
 * Objects are immutable and their names unique: a PUT that is repeated writes the same bytes again. */
#ifndef SW_SPILL_OBJECT_H
#define SW_SPILL_OBJECT_H

#include "base/err.h"
#include "base/list.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum sw_object_verb {
    SW_OBJECT_PUT,    /* creates an object of `body` */
    SW_OBJECT_GET,    /* reads body_bytes from `offset` */
    SW_OBJECT_HEAD,   /* asks for length and metadata */
    SW_OBJECT_LIST,   /* lists a page of names that begin with `name` */
    SW_OBJECT_DELETE, /* succeeds, too, if there is no such object */
    SW_OBJECT_COPY,   /* replaces the metadata of an object; the store copies it onto itself */
    SW_OBJECT_VERB_NR
};

enum {
    SW_OBJECT_NAME_BYTES = 256,  /* characters of [a-z0-9/.-], which need no escape anywhere */
    SW_OBJECT_META_BYTES = 192,  /* printable characters without blanks */
    SW_OBJECT_HASH_BYTES = 65,   /* SHA-256 in hexadecimal digits */
    SW_OBJECT_TOKEN_BYTES = 1100 /* where the next page of a list begins */
};

struct sw_object_request {
    enum sw_object_verb verb;
    char name[SW_OBJECT_NAME_BYTES]; /* below the client's prefix */
    void *body;                      /* PUT: what is sent; GET: where it goes */
    size_t body_bytes;               /* GET: all of them must come */
    /* GET: takes the body's next bytes, where `body` is NULL. `at`: their place in it; 0 begins, maybe again. `meta` is
     * filled in. thread: one of the client's. */
    void (*take)(struct sw_object_request *request, const void *data, size_t bytes, size_t at);
    uint64_t offset;                   /* GET */
    char hash[SW_OBJECT_HASH_BYTES];   /* PUT: of the body (sw_object_hash()); the store checks it */
    bool if_absent;                    /* PUT: fails with -SW_EEXIST if there is an object of this name */
    bool is_impatient;                 /* it ends when the store is out; PUT and LIST always do */
    char meta[SW_OBJECT_META_BYTES];   /* PUT, COPY: kept with the object, "" for none; GET, HEAD: filled in */
    char token[SW_OBJECT_TOKEN_BYTES]; /* LIST: "" for the first page; then the next page's, "" after the last */
    /* LIST: called on the client's thread, before `done`, for each object of the page. name: below the prefix. */
    void (*found)(struct sw_object_request *request, const char *name, uint64_t bytes, int64_t modified_s);
    /* Called on the client's thread, which must not be blocked. It may submit, and free the request. */
    void (*done)(struct sw_object_request *request, void *arg);
    void *arg;
    /* Results. err.code 0: success. Codes: -SW_ENOENT, -SW_EEXIST, -SW_EACCES (not permitted, or wrong or expired
     * credentials, or a wrong clock), -SW_ENOSPACE (the bucket is full), -SW_ETIMEDOUT (the store has not answered as
     * long as the client is patient), -SW_EIO, -SW_ECANCELED (the client is closed). */
    struct sw_err err;
    uint64_t object_bytes; /* HEAD */
    bool is_unclear;       /* PUT: an attempt ended without a reply, so it may have succeeded, whatever came then */
    struct {               /* the client's, between submit and done */
        struct sw_list node;
        uint64_t begun_us, retry_us;
        unsigned n_attempts;
        bool is_probe;
    } client;
};

/* Writes the SHA-256 of a body. Returns false if libcrypto cannot. thread: any. */
bool sw_object_hash(const void *body, size_t bytes, char ret[SW_OBJECT_HASH_BYTES]);
/* Returns whether the name consists of what names may consist of. thread: any. */
bool sw_object_name_is_good(const char *name);
/* Reads a number of at most 16 hexadecimal digits, and the character `end` behind it, from a part of a name; text may
 * be NULL. Returns what follows; NULL: it is no such number. thread: any. */
const char *sw_object_name_number(const char *text, char end, uint64_t *ret);

#endif
