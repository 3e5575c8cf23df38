#include "spill/tier/remote/remote_pack.h"

#include "base/alloc.h"
#include "base/assert.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define MOST_BODY_BYTES (UINT64_C(64) << 20)
enum { AT_ONCE = 32 };

_Static_assert(sizeof(struct sw_remote_pack_entry) == 48, "entries have no gaps");
_Static_assert(SW_REMOTE_PACK_FRAMES * sizeof(struct sw_remote_pack_entry) <= SW_OBJECT_SEGMENT_BYTES,
               "an index is one segment");

uint64_t sw_remote_pack_index_bytes(unsigned n) {
    return sw_object_body_bytes(n * sizeof(struct sw_remote_pack_entry));
}

struct sw_remote_pack *sw_remote_pack_new(const char *folder, uint64_t number, unsigned n, uint64_t body_bytes) {
    struct sw_remote_pack *pack = sw_alloc(sizeof *pack);
    if (!pack)
        return NULL;
    sw_list_init(&pack->node);
    pack->n_frames = n;
    pack->body_bytes = body_bytes;
    (void)snprintf(pack->name, sizeof pack->name, "%s%x-%" PRIx64 "-%016" PRIx64, folder, n, body_bytes, number);
    return pack;
}

bool sw_remote_pack_read_name(const char *text, unsigned *ret_n, uint64_t *ret_body_bytes) {
    uint64_t n = 0, number = 0;
    text = sw_object_name_number(text, '-', &n);
    text = sw_object_name_number(text, '-', ret_body_bytes);
    if (!sw_object_name_number(text, 0, &number) || n == 0 || n > SW_REMOTE_PACK_FRAMES)
        return false;
    *ret_n = (unsigned)n;
    return *ret_body_bytes > sw_remote_pack_index_bytes(*ret_n) && *ret_body_bytes <= MOST_BODY_BYTES;
}

int sw_remote_pack_seal(const struct sw_object_keyring *keyring, const struct sw_remote_pack_entry *entries,
                        const struct sw_extent *const *frames, unsigned n, struct sw_object_request *request,
                        struct sw_err *err) {
    struct sw_object_piece pieces[SW_REMOTE_PACK_FRAMES + 1];
    const struct sw_extent index = {.memory = (void *)entries, .bytes = n * sizeof *entries};
    SW_ASSERT(n > 0 && n <= SW_REMOTE_PACK_FRAMES);
    pieces[0] = (struct sw_object_piece){.memory = &index, .bytes = index.bytes};
    for (unsigned i = 0; i < n; i++)
        pieces[i + 1] = (struct sw_object_piece){.memory = frames[i], .bytes = entries[i].bytes};
    return sw_object_seal_request(keyring, pieces, n + 1, request, err);
}

/* ---- at the start ---- */

/* Returns whether the index is of this object: its frames fill the rest of it. */
static bool fits(const struct sw_remote_pack *pack, const struct sw_remote_pack_entry *entries) {
    uint64_t bytes = sw_remote_pack_index_bytes(pack->n_frames);
    for (unsigned i = 0; i < pack->n_frames; i++) {
        if (entries[i].bytes == 0 || entries[i].bytes > SW_REMOTE_PACK_FRAME_BYTES)
            return false;
        bytes += sw_object_body_bytes(entries[i].bytes);
    }
    return bytes == pack->body_bytes;
}

static int take(const struct sw_remote_pack_load *load, struct sw_remote_pack *pack,
                const struct sw_object_request *request, struct sw_err *err) {
    void *entries = NULL;
    size_t bytes;
    if (request->err.code == -SW_ENOENT)
        return 0;
    if (request->err.code) {
        *err = request->err;
        return err->code;
    }
    int rc = sw_object_unseal_request(load->keyring, request, &entries, &bytes, err);
    if (!rc && !fits(pack, entries))
        rc = sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_DAEMON, "remote object's index is damaged: %.80s", pack->name);
    if (!rc)
        rc = load->found(load->arg, pack, entries, err);
    sw_free(entries);
    return rc;
}

static bool ask_for(const struct sw_remote_pack *pack, struct sw_object_request *ret) {
    const uint64_t bytes = sw_remote_pack_index_bytes(pack->n_frames);
    *ret = (struct sw_object_request){
        .verb = SW_OBJECT_GET, .body = sw_alloc(bytes), .body_bytes = bytes, .is_impatient = true};
    memcpy(ret->name, pack->name, sizeof ret->name);
    return ret->body;
}

/* Reads up to AT_ONCE packs from *node on, which it moves on. */
static int read_some(const struct sw_remote_pack_load *load, const struct sw_list *packs, const struct sw_list **node,
                     struct sw_object_request *requests, struct sw_err *err) {
    const struct sw_list *first = *node;
    unsigned n = 0;
    while (n < AT_ONCE && *node != packs &&
           ask_for(SW_CONTAINER_OF(*node, struct sw_remote_pack, node), &requests[n])) {
        *node = (*node)->next;
        n++;
    }
    const bool is_out_of_memory = n < AT_ONCE && *node != packs;
    int rc = is_out_of_memory ? sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier") : 0;
    sw_object_run_all(load->client, requests, n);
    for (unsigned i = 0; i < n; i++, first = first->next) {
        if (!rc)
            rc = take(load, SW_CONTAINER_OF(first, struct sw_remote_pack, node), &requests[i], err);
        sw_free(requests[i].body);
    }
    return rc;
}

int sw_remote_pack_load(const struct sw_remote_pack_load *load, const struct sw_list *packs, struct sw_err *err) {
    const struct sw_list *node = packs->next;
    if (node == packs)
        return 0;
    struct sw_object_request *requests = sw_alloc_array(AT_ONCE, sizeof *requests);
    int rc = requests ? 0 : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the remote tier");
    while (!rc && node != packs)
        rc = read_some(load, packs, &node, requests, err);
    sw_free(requests);
    return rc;
}
