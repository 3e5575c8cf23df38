#include "daemon/session/coder.h"

#include "base/log.h"
#include <inttypes.h>
#include <string.h>

_Static_assert(SW_CODEC_NR < 64, "CODER_OK has a bit for each codec");

static uint64_t least(uint64_t a, uint64_t b) {
    return a < b ? a : b;
}

static uint64_t left_of(uint64_t most, uint64_t used) {
    return most > used ? most - used : 0;
}

static int find_device(const struct sw_service *service, const uint8_t uuid[SW_DEVICE_UUID_BYTES], unsigned *ret,
                       struct sw_err *err) {
    for (unsigned i = 0; i < service->n_devices; i++) {
        if (memcmp(service->devices[i]->ops->info(service->devices[i])->uuid, uuid, SW_DEVICE_UUID_BYTES) != 0)
            continue;
        *ret = i;
        return 0;
    }
    return sw_err_set(err, -SW_EDEVICE, SW_SCOPE_REQUEST, "no device in use has this uuid");
}

/* The most that another session of the same process has. One process has one set of frame buffers on a GPU, which each
 * of its sessions hands over. */
static uint64_t granted_to_others(const struct sw_session *session, unsigned device) {
    const struct sw_list *all = session->service->sessions;
    uint64_t most = 0;
    if (!all || session->peer.pid <= 0)
        return 0;
    for (const struct sw_list *n = all->next; n != all; n = n->next) {
        const struct sw_session *other = SW_CONTAINER_OF(n, struct sw_session, node);
        if (other != session && other->tenant == session->tenant && other->peer.pid == session->peer.pid &&
            other->grants.bytes[device] > most)
            most = other->grants.bytes[device];
    }
    return most;
}

static uint64_t greatest(uint64_t a, uint64_t b) {
    return a > b ? a : b;
}

/* A process counts once, with the most that one of its sessions has. */
static void set_grant(struct sw_session *session, unsigned device, uint64_t bytes) {
    const uint64_t others = granted_to_others(session, device),
                   more = greatest(bytes, others) - greatest(session->grants.bytes[device], others);
    session->grants.bytes[device] = bytes;
    session->tenant->grants.bytes[device] += more; /* modulo 2^64: it may be less */
    session->service->grants.bytes[device] += more;
}

/* Three quarters of what others leave: as much as sw_share_allows(), and also for the first one, since a grant cannot
 * be taken back. */
static uint64_t share_of(uint64_t limit, uint64_t of_others) {
    const uint64_t left = left_of(limit, of_others);
    return left - (left + 3) / 4;
}

/* The session's own grant is replaced, so it does not count. */
static uint64_t allowed_bytes(const struct sw_session *session, unsigned device) {
    const uint64_t others = granted_to_others(session, device),
                   of_process = greatest(session->grants.bytes[device], others),
                   of_tenant = session->tenant->grants.bytes[device], of_all = session->service->grants.bytes[device],
                   limit = session->service->config->gpu_frame_bytes,
                   of_tenant_most = share_of(limit, of_all - of_tenant), fits = left_of(limit, of_all - of_process);
    return greatest(others, least(fits, share_of(of_tenant_most, of_tenant - of_process)));
}

int sw_on_coder(void *arg, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    struct sw_session *session = arg;
    const struct sw_msg_coder *coder = &request->msg->u.coder;
    unsigned device = 0;
    const int rc = find_device(session->service, coder->device_uuid, &device, err);
    if (rc < 0)
        return rc;
    set_grant(session, device, least(coder->bytes, allowed_bytes(session, device)));
    sw_msg_init(ret_reply, SW_MSG_CODER_OK);
    ret_reply->u.coder_ok = (struct sw_msg_coder_ok){.bytes = session->grants.bytes[device],
                                                     .codecs = (UINT64_C(1) << SW_CODEC_NR) - 1,
                                                     .chunk_bytes = sw_coder_chunk_bytes(session->service)};
    sw_log(SW_LOG_DEBUG, "coder.granted", "session=%" PRIu32 " dev=%u asked_bytes=%" PRIu64 " bytes=%" PRIu64,
           session->id, device, coder->bytes, session->grants.bytes[device]);
    return SW_REPLY_NOW;
}

void sw_coder_release(struct sw_session *session) {
    for (unsigned i = 0; i < session->service->n_devices; i++)
        set_grant(session, i, 0);
}

uint64_t sw_coder_granted_bytes(const struct sw_service *service) {
    uint64_t bytes = 0;
    for (unsigned i = 0; i < service->n_devices; i++)
        bytes += service->grants.bytes[i];
    return bytes;
}

uint64_t sw_coder_chunk_bytes(const struct sw_service *service) {
    uint64_t most = sw_engine_chunk_bytes(service->engine);
    for (unsigned i = 0; i < service->n_devices; i++)
        most = least(most, service->devices[i]->ops->info(service->devices[i])->chunk_bytes);
    return most;
}
