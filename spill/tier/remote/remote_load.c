#include "spill/tier/remote/remote_load.h"

#include "base/alloc.h"

#include <stdio.h>
#include <string.h>

enum { AT_ONCE = 32 };

struct candidate {
    struct sw_list node;
    uint64_t bytes;
    char name[SW_OBJECT_NAME_BYTES];
};

struct search {
    const struct sw_remote_load *load;
    struct sw_list candidates;
    bool is_out_of_memory;
};

static bool look_at(void *arg, const char *name, uint64_t bytes, int64_t modified_s) {
    struct search *search = arg;
    (void)modified_s;
    if (sw_remote_record_of(name, search->load->host) == SW_RECORD_FOREIGN)
        return true;
    struct candidate *candidate = sw_alloc(sizeof *candidate);
    search->is_out_of_memory = !candidate;
    if (!candidate)
        return false;
    candidate->bytes = bytes;
    (void)snprintf(candidate->name, sizeof candidate->name, "%s", name);
    sw_list_init(&candidate->node);
    sw_list_append(&search->candidates, &candidate->node);
    return true;
}

/* Returns the record if it is this host's. An object that is gone was dropped by another host meanwhile. */
static int open_one(const struct sw_remote_load *load, const struct sw_object_request *request, void **ret,
                    size_t *ret_bytes, struct sw_err *err) {
    const struct sw_remote_record *record;
    *ret = NULL;
    if (request->err.code) {
        if (err)
            *err = request->err;
        return request->err.code == -SW_ENOENT ? 0 : request->err.code;
    }
    int rc = sw_object_unseal_request(load->keyring, request, ret, ret_bytes, err);
    if (!rc)
        rc = sw_remote_record_read(*ret, *ret_bytes, &record, err);
    if (rc || strcmp(record->host, load->host) != 0) {
        sw_free(*ret);
        *ret = NULL;
    }
    return rc;
}

static int take(const struct sw_remote_load *load, const struct sw_object_request *request, struct sw_err *err) {
    void *body;
    size_t bytes = 0;
    const int rc = open_one(load, request, &body, &bytes, err);
    return body ? load->found(load->arg, request->name, body, bytes, err) : rc;
}

/* Reads up to AT_ONCE objects and removes them from the list. */
static int read_some(struct search *search, struct sw_object_request *requests, struct sw_err *err) {
    struct sw_list *node;
    unsigned n = 0;
    int rc = 0;
    while (n < AT_ONCE && !rc && (node = sw_list_take_first(&search->candidates))) {
        struct candidate *candidate = SW_CONTAINER_OF(node, struct candidate, node);
        struct sw_object_request *request = &requests[n];
        *request =
            (struct sw_object_request){.verb = SW_OBJECT_GET, .body_bytes = candidate->bytes, .is_impatient = true};
        memcpy(request->name, candidate->name, sizeof request->name);
        request->body = sw_alloc(candidate->bytes ? candidate->bytes : 1);
        rc = request->body ? 0 : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
        n += !rc;
        sw_free(candidate);
    }
    sw_object_run_all(search->load->client, requests, n);
    for (unsigned i = 0; i < n; i++) {
        if (!rc)
            rc = take(search->load, &requests[i], err);
        sw_free(requests[i].body);
    }
    return rc;
}

int sw_remote_load(const struct sw_remote_load *load, struct sw_err *err) {
    struct search search = {.load = load};
    struct sw_object_request *requests = sw_alloc_array(AT_ONCE, sizeof *requests);
    struct sw_list *node;
    sw_list_init(&search.candidates);
    int rc = requests ? sw_object_list(load->client, "names/", look_at, &search, err) : 0;
    if (!requests || search.is_out_of_memory)
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    while (!rc && !sw_list_empty(&search.candidates))
        rc = read_some(&search, requests, err);
    while ((node = sw_list_take_first(&search.candidates)))
        sw_free(SW_CONTAINER_OF(node, struct candidate, node));
    sw_free(requests);
    return rc;
}

int sw_remote_load_one(const struct sw_remote_load *load, const char *object, struct sw_remote_record **ret,
                       struct sw_err *err) {
    struct sw_object_request request = {.verb = SW_OBJECT_HEAD, .is_impatient = true};
    void *body = NULL;
    size_t bytes;
    (void)snprintf(request.name, sizeof request.name, "%s", object);
    if (sw_object_run(load->client, &request) == 0) {
        request.verb = SW_OBJECT_GET;
        request.body_bytes = request.object_bytes;
        request.body = sw_alloc(request.body_bytes + 1);
        if (!request.body)
            return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
        (void)sw_object_run(load->client, &request);
    }
    const int rc = open_one(load, &request, &body, &bytes, err);
    sw_free(request.body);
    *ret = body;
    return rc;
}
