/* fuzz_session.c - a session with a real engine on the host device, fed with any sequence of packets.
 *
 * Input: records of one type byte, one byte for descriptors (how many, of which kind), one for the length, and so many
 * bytes; each becomes the body of a well-formed request, so that handlers are reached and not just the decoder. Types
 * from 240 are no requests, and 255 sends the bytes as they are. After each input the session ends and everything must
 * have been given back. */
#include "base/assert.h"
#include "base/log.h"
#include "daemon/session.h"
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MEMFD_BYTES = 4096, MAX_PACKETS = 64, HELLO_FIRST = 8, RAW_PACKET = 255 };

static uv_loop_t loop;
static struct sw_config config;
static struct sw_service service = {.loop = &loop, .config = &config, .fds = {.limit = 256}};
static bool closed;
static struct sw_region_id ids[8]; /* of this input's spills, by turns */
static unsigned n_ids;

static void on_device_lost(void *arg) {
    (void)arg;
    SW_ASSERT(false && "the host device cannot be lost");
}

static void start(void) {
    const struct sw_device_config device = {.scratch_bytes = 64 << 20, .n_slots = 1, .chunk_bytes = 1 << 20};
    const struct sw_tier_host_config tier = {.capacity_bytes = 4 << 20,
                                             .initial_bytes = 4 << 20,
                                             .slab_bytes = 4 << 20,
                                             .devices = service.devices,
                                             .n_devices = 1};
    struct sw_err err;
    sw_log_set_level(SW_LOG_ERROR);
    sw_config_init(&config);
    config.max_session_memories = 8;
    SW_ASSERT(uv_loop_init(&loop) == 0);
    SW_ASSERT(sw_device_host_open(&service.devices[0], &device, &err) == 0);
    service.n_devices = 1;
    SW_ASSERT(sw_tier_host_open(&service.tier, &tier, &err) == 0);
    const struct sw_engine_config engine = {.devices = service.devices,
                                            .n_devices = 1,
                                            .tier = service.tier,
                                            .max_regions = 64,
                                            .max_owner_regions = 16,
                                            .max_owner_ops = 8,
                                            .max_owner_mems = 8};
    service.device_lost = on_device_lost;
    SW_ASSERT(sw_engine_open(&service.engine, &loop, &engine, &err) == 0);
}

static int new_fd(unsigned kind) {
    if (kind == 0)
        return open("/dev/null", O_RDWR | O_CLOEXEC);
    const int fd = memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    SW_ASSERT(fd >= 0 && ftruncate(fd, MEMFD_BYTES) == 0);
    if (kind > 1)
        SW_ASSERT(fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK) == 0);
    return fd;
}

/* Reads the replies and remembers the regions. */
static void read_replies(int socket) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    size_t bytes;
    unsigned n_fds;
    struct sw_msg msg;
    while (sw_packet_receive(socket, packet, &bytes, fds, &n_fds) == 0 && bytes) {
        SW_ASSERT(n_fds == 0 && sw_msg_decode(&msg, packet, bytes, NULL) == 0);
        if (msg.header.type == SW_MSG_RESULT)
            ids[n_ids++ % 8] = (struct sw_region_id){.slot = msg.u.result.slot, .gen = msg.u.result.gen};
    }
}

/* No input can guess an id: gen 0 stands for the id of an earlier spill. RESTORE, DROP and QUERY begin with slot, gen.
 */
static void name_region(uint8_t *body) {
    struct sw_region_id id;
    memcpy(&id, body, sizeof id);
    if (id.gen == 0 && id.slot < 8)
        memcpy(body, &ids[id.slot], sizeof id);
}

/* Feeds one record; returns the bytes it took, 0 at the end. */
static size_t feed(struct sw_session *session, const uint8_t *data, size_t size, uint32_t seq) {
    uint8_t packet[SW_PROTO_MAX_PACKET_BYTES];
    int fds[SW_PROTO_MAX_FDS];
    if (size < 3)
        return 0;
    const unsigned n_fds = data[1] % 4, kind = data[1] / 4 % 4;
    const size_t n = data[2] < size - 3 ? data[2] : size - 3;
    for (unsigned i = 0; i < n_fds; i++)
        fds[i] = new_fd(kind);
    if (data[0] == RAW_PACKET) {
        sw_session_packet(session, data + 3, n, fds, n_fds);
    } else {
        struct sw_msg msg;
        memset(&msg, 0, sizeof msg);
        msg.header.type = (uint16_t)(data[0] < 240 ? 1 + (data[0] + 1) % SW_MSG_STATUS : data[0]);
        msg.header.seq = seq;
        const size_t bytes = sw_msg_encode(&msg, packet), body = bytes - SW_PROTO_HEADER_BYTES;
        memcpy(packet + SW_PROTO_HEADER_BYTES, data + 3, n < body ? n : body);
        if (msg.header.type >= SW_MSG_RESTORE && msg.header.type <= SW_MSG_QUERY)
            name_region(packet + SW_PROTO_HEADER_BYTES);
        sw_session_packet(session, packet, bytes, fds, n_fds);
    }
    return n + 3;
}

/* So that later requests find regions and not only operations under way; those of the end are canceled. */
static void finish_operations(const struct sw_session *session) {
    struct sw_engine_stats stats;
    sw_engine_stats(service.engine, &stats);
    while (stats.n_ops && !session->closing) {
        (void)uv_run(&loop, UV_RUN_ONCE);
        sw_engine_stats(service.engine, &stats);
    }
}

static void on_closed(struct sw_session *session, void *arg) {
    (void)session;
    (void)arg;
    closed = true;
}

static void ck_nothing_left(void) {
    struct sw_engine_stats stats;
    sw_engine_check(service.engine);
    sw_engine_stats(service.engine, &stats);
    SW_ASSERT(stats.n_owners == 0 && stats.n_regions == 0 && stats.n_mems == 0 && stats.n_ops == 0);
    SW_ASSERT(stats.n_mapped == 0 && stats.tier.used_bytes == 0 && service.fds.used == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sw_session *session = NULL;
    struct sw_err err;
    int pair[2];
    if (!service.engine)
        start();
    SW_ASSERT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) == 0);
    SW_ASSERT(sw_session_open(&session, &service, pair[0], 1, on_closed, NULL, &err) == 0);
    session->greeted = size == 0 || data[0] != HELLO_FIRST; /* most inputs need not find HELLO first */
    closed = false;
    n_ids = 0;
    for (uint32_t seq = 1; seq <= MAX_PACKETS && !closed && !session->closing; seq++) {
        const size_t n = feed(session, data, size, seq);
        if (!n)
            break;
        data += n;
        size -= n;
        if (seq % 4 == 0)
            finish_operations(session);
        read_replies(pair[1]);
    }
    sw_session_close(session, "end of input");
    while (!closed)
        (void)uv_run(&loop, UV_RUN_ONCE);
    (void)close(pair[1]);
    ck_nothing_left();
    return 0;
}
