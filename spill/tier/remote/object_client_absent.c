/* object_client_absent.c - replaces object_client.c, object_http.c and object_wire.c in builds without libcurl: no
 * client is opened. */
#include "spill/tier/remote/object_client.h"

#include "base/assert.h"

void sw_object_config_init(struct sw_object_config *ret) {
    *ret = (struct sw_object_config){.prefix = ""};
}

int sw_object_client_open(struct sw_object_client **ret, const struct sw_object_config *config, struct sw_err *err) {
    (void)ret;
    (void)config;
    return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DAEMON,
                      "built without libcurl, as static builds and the Python wheel are");
}

void sw_object_client_close(struct sw_object_client *client) {
    SW_ASSERT(!client);
}

void sw_object_submit(struct sw_object_client *client, struct sw_object_request *request) {
    (void)request;
    SW_ASSERT(client);
}

void sw_object_run_all(struct sw_object_client *client, struct sw_object_request *requests, unsigned n) {
    (void)requests, (void)n;
    SW_ASSERT(client);
}

int sw_object_run(struct sw_object_client *client, struct sw_object_request *request) {
    sw_object_submit(client, request);
    return 0;
}

int sw_object_list(struct sw_object_client *client, const char *prefix,
                   bool (*found)(void *arg, const char *name, uint64_t bytes, int64_t modified_s), void *arg,
                   struct sw_err *err) {
    (void)prefix;
    (void)found;
    (void)arg;
    (void)err;
    SW_ASSERT(client);
    return 0;
}

void sw_object_client_stats(struct sw_object_client *client, struct sw_object_stats *ret) {
    (void)ret;
    SW_ASSERT(client);
}
