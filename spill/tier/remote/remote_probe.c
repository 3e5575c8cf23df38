#include "spill/tier/remote/remote_probe.h"

#include "base/alloc.h"

#include <stdio.h>

struct probe {
    struct sw_object_request racers[SW_REMOTE_PROBE_RACERS];
    uint8_t bodies[SW_REMOTE_PROBE_RACERS];
};

static bool race(struct sw_object_client *client, struct probe *probe, const char *name) {
    bool can_hash = true;
    for (unsigned i = 0; i < SW_REMOTE_PROBE_RACERS; i++) {
        struct sw_object_request *racer = &probe->racers[i];
        probe->bodies[i] = (uint8_t)i;
        *racer = (struct sw_object_request){
            .verb = SW_OBJECT_PUT, .body = &probe->bodies[i], .body_bytes = 1, .if_absent = true};
        (void)snprintf(racer->name, sizeof racer->name, "%s", name);
        can_hash = can_hash && sw_object_hash(racer->body, 1, racer->hash);
    }
    if (can_hash)
        sw_object_run_all(client, probe->racers, SW_REMOTE_PROBE_RACERS);
    return can_hash;
}

/* Returns the error that does not tell which write has won; NULL: there is none. */
static const struct sw_err *find_trouble(const struct probe *probe) {
    for (unsigned i = 0; i < SW_REMOTE_PROBE_RACERS; i++) {
        const struct sw_object_request *racer = &probe->racers[i];
        if (racer->err.code && racer->err.code != -SW_EEXIST)
            return &racer->err;
    }
    return NULL;
}

static bool has_one_winner(const struct probe *probe, unsigned owner) {
    unsigned n = 0;
    for (unsigned i = 0; i < SW_REMOTE_PROBE_RACERS; i++)
        n += probe->racers[i].err.code == 0 || (i == owner && probe->racers[i].is_unclear);
    return n == 1 && owner < SW_REMOTE_PROBE_RACERS &&
           (probe->racers[owner].err.code == 0 || probe->racers[owner].is_unclear);
}

int sw_remote_probe(struct sw_object_client *client, const char *name, bool *ret, struct sw_err *err) {
    struct probe *probe = sw_alloc(sizeof *probe);
    uint8_t owner = UINT8_MAX;
    *ret = false;
    if (!probe || !race(client, probe, name)) {
        sw_free(probe);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    }
    struct sw_object_request get = {.verb = SW_OBJECT_GET, .body = &owner, .body_bytes = 1, .is_impatient = true},
                             removal = {.verb = SW_OBJECT_DELETE, .is_impatient = true};
    const struct sw_err *trouble = find_trouble(probe);
    (void)snprintf(get.name, sizeof get.name, "%s", name);
    (void)snprintf(removal.name, sizeof removal.name, "%s", name);
    if (!trouble && sw_object_run(client, &get) == 0)
        *ret = has_one_winner(probe, owner);
    (void)sw_object_run(client, &removal);
    const bool is_answer = !trouble || trouble->code == -SW_EIO || trouble->code == -SW_ENOSPACE;
    const int rc = is_answer ? 0 : trouble->code;
    if (rc && err)
        *err = *trouble;
    sw_free(probe);
    return rc;
}
