#include "spill/tier/remote/remote_deletion.h"

#include "base/alloc.h"

#include <stdio.h>

static void deleted(struct sw_object_request *request, void *arg) {
    atomic_ullong *n_failed = arg;
    if (request->err.code)
        (void)atomic_fetch_add(n_failed, 1);
    sw_free(request);
}

void sw_remote_delete_later(struct sw_object_client *client, const char *name, atomic_ullong *n_failed) {
    struct sw_object_request *request = sw_alloc(sizeof *request);
    if (!request) {
        (void)atomic_fetch_add(n_failed, 1);
        return;
    }
    request->verb = SW_OBJECT_DELETE;
    (void)snprintf(request->name, sizeof request->name, "%s", name);
    request->done = deleted;
    request->arg = n_failed;
    sw_object_submit(client, request);
}
