/* config.c - the option table, and its four users: parser, checks, --help, --print-config.
 *
 * Defaults are written as a user would write them, and are parsed like any other value. */
#include "config/config.h"

#include "base/assert.h"
#include "base/choice.h"
#include "base/memory.h"
#include "base/shorten.h"
#include "base/similar.h"
#include "base/size.h"
#include "config/json.h"
#include <arpa/inet.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#define KIB (UINT64_C(1) << 10)
#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)
#define TIB (UINT64_C(1) << 40)

enum type {
    TYPE_COUNT,  /* JSON integer */
    TYPE_BYTES,  /* JSON integer, or a string with a unit: "512 MiB" */
    TYPE_TEXT,   /* JSON string, 1 ... size - 1 bytes */
    TYPE_CHOICE, /* JSON string out of `choices` */
    TYPE_MODE,   /* JSON string of octal digits */
    TYPE_IDS,    /* JSON array of user or group ids, or a single id */
    TYPE_QUOTAS  /* JSON array of objects: quotas.h */
};

struct option {
    const char *name;
    enum type type;
    bool live;                   /* may be changed while the service runs */
    size_t offset, size;         /* the field in struct sw_config */
    uint64_t min, max, multiple; /* numbers */
    /* Numbers: the option that this one must not exceed, or NULL. This one must accept that option's smallest value. */
    const char *at_most;
    bool is_shareable;    /* TYPE_BYTES: also a percentage of the memory that the process can have: "40%" */
    const char *choices;  /* TYPE_CHOICE: separated by ", " */
    const char *fallback; /* default, as a user writes it */
    const char *help;
};

#define FIELD(field)                                                                                                   \
    .name = #field, .offset = offsetof(struct sw_config, field), .size = sizeof((struct sw_config *)0)->field

/* clang-format off */
static const struct option options[] = {
    {FIELD(data_socket), .type = TYPE_TEXT, .fallback = "/run/spillway/data.sock",
     .help = "Path of the socket that clients connect to. The service creates its folder if it is missing."},
    {FIELD(data_socket_mode), .type = TYPE_MODE, .max = 0777, .fallback = "0660",
     .help = "Permissions of the socket. Users that may write to it may spill."},
    {FIELD(control_socket), .type = TYPE_TEXT, .fallback = "auto",
     .help = "Path of the socket that operators and spillwayctl connect to. auto: control.sock in the folder of "
             "data_socket; none: no control socket."},
    {FIELD(control_socket_mode), .type = TYPE_MODE, .max = 0777, .fallback = "0660",
     .help = "Permissions of the control socket. A user that can connect also needs the rights that the next two "
             "options give."},
    {FIELD(control_group), .type = TYPE_TEXT, .fallback = "none",
     .help = "Group that owns the control socket and whose members may use every command, as root and the service's "
             "own user may. A name or a number; none: only root and the service's user may."},
    {FIELD(control_read_group), .type = TYPE_TEXT, .fallback = "none",
     .help = "Group whose members may use commands that change nothing. They also need permission to connect: set "
             "control_socket_mode to 0666."},
    {FIELD(metrics_port), .type = TYPE_COUNT, .max = 65535, .multiple = 1, .fallback = "0",
     .help = "TCP port where Prometheus finds metrics, under /metrics, and probes find /healthz. Every user of this "
             "machine can read it. 0: no port; spillwayctl metrics prints the same text."},
    {FIELD(metrics_address), .type = TYPE_TEXT, .fallback = "127.0.0.1",
     .help = "IPv4 address of metrics_port. With an address other than the loopback's, everyone who reaches it can "
             "read uids and how much each uses; the service logs metrics.exposed. The systemd unit allows only the "
             "loopback (IPAddressAllow=)."},
    {FIELD(metrics_tenants), .type = TYPE_COUNT, .max = 1000, .multiple = 1, .fallback = "20", .live = true,
     .help = "Users (uid) that have metrics of their own: those with the most stored bytes. The sum of the others has "
             "the uid \"other\". 0: only the sum of all."},
    {FIELD(device), .type = TYPE_CHOICE, .choices = "auto, cuda, host", .fallback = "auto",
     .help = "auto: use every CUDA GPU, and host memory; cuda: the same, but at least one GPU is required; host: host "
             "memory only."},
    {FIELD(log_level), .type = TYPE_CHOICE, .choices = "error, warning, info, debug", .fallback = "info", .live = true,
     .help = "The least important level that is logged."},
    {FIELD(scratch_bytes), .type = TYPE_BYTES, .min = 64 * MIB, .max = 16 * GIB, .multiple = 1, .fallback = "256 MiB",
     .help = "Limit of the device memory that the service takes for its own work, for each GPU; for the host device, "
             "of host memory. It is taken at the start. spillwayctl status shows as scratch how much is taken on all "
             "GPUs together."},
    {FIELD(chunk_bytes), .type = TYPE_BYTES, .max = GIB, .multiple = 32 * KIB, .at_most = "scratch_bytes",
     .fallback = "0",
     .help = "Input bytes of a chunk, which is encoded and copied as one; 0: as many as scratch_bytes allows. With an "
             "NVMe tier, regions get shorter chunks if full ones would not fit into a quarter of host_tier_bytes; with a "
             "remote tier, if they would not fit into objects of 64 MiB. "
             "After a restart, chunks are longer if stored regions have longer ones."},
    {FIELD(slots), .type = TYPE_COUNT, .max = 16, .multiple = 1, .fallback = "0",
     .help = "Chunks that one device processes at the same time; 0: the device chooses. There are fewer if stored "
             "regions have longer chunks (chunk_bytes) and these leave no room for as many."},
    {FIELD(gpu_frame_bytes), .type = TYPE_BYTES, .max = 64 * TIB, .multiple = 1, .fallback = "4 GiB", .live = true,
     .help = "Limit, for each GPU, of the frame buffers of clients that compress in their own process. This is memory "
             "of the clients, and a client that gets none uses the service's codec. A tenant may have at most "
             "three quarters of what other tenants leave, and a process three quarters of what its tenant's other "
             "processes leave: of 4 GiB at most 2.25 GiB. Libspillway asks for 320 MiB for each process. A lower limit "
             "applies to new clients only. 0: no client compresses."},
    {FIELD(host_tier_bytes), .type = TYPE_BYTES, .min = 2 * MIB, .max = 64 * TIB, .multiple = 2 * MIB,
     .is_shareable = true, .fallback = "8 GiB",
     .help = "Limit of the host memory that the service takes for spilled regions. A percentage is of the host's "
             "memory, or of the limit of the service's control group if that is less. The memory is pinned, so leave "
             "enough for the rest of the host. The tier is smaller, with a warning at the start, if it does not fit into "
             "the host's memory or the service's control group (MemoryMax=) with all else that the service needs. With an "
             "NVMe tier, up to half of it is reserved for transfers to and from the disk (staging_bytes in the log "
             "line event=service.ready), and regions occupy the rest."},
    {FIELD(host_tier_initial_bytes), .type = TYPE_BYTES, .max = 64 * TIB, .multiple = 1, .at_most = "host_tier_bytes",
     .is_shareable = true, .fallback = "256 MiB",
     .help = "Part of host_tier_bytes that is taken and pinned at the start, in the background, while the service "
             "already answers. The rest is taken when it is needed, and is then kept."},
    {FIELD(host_tier_ahead_pct), .type = TYPE_COUNT, .max = 100, .multiple = 1, .fallback = "10",
     .help = "Percentage of host_tier_bytes that is taken and pinned ahead of demand and kept free, so that spills "
             "need not wait for memory; 0: memory is taken only when a spill waits for it."},
    {FIELD(host_tier_slab_bytes), .type = TYPE_BYTES, .min = 2 * MIB, .max = TIB, .multiple = 2 * MIB,
     .at_most = "host_tier_bytes", .fallback = "256 MiB",
     .help = "Size of a slab, the unit by which the host tier grows. A spill that waits for memory waits for a whole "
             "slab. Slabs are larger than this if the service manager keeps too few descriptors for all of "
             "host_tier_bytes (FileDescriptorStoreMax=)."},
    {FIELD(nvme_tier_directory), .type = TYPE_TEXT, .fallback = "none",
     .help = "Folder of the NVMe tier, on a local disk. It holds what the host tier cannot hold. The service creates "
             "the last part of the path if it is missing. No other user may write to the folder. none: there is no "
             "NVMe tier."},
    {FIELD(nvme_tier_bytes), .type = TYPE_BYTES, .min = 16 * MIB, .max = 16 * TIB, .multiple = 4 * KIB,
     .fallback = "64 GiB",
     .help = "Size of the NVMe tier. The space is taken from the file system at the start. If the file system does not "
             "support fallocate(), the service logs a warning and takes the space as it writes."},
    {FIELD(nvme_encrypt), .type = TYPE_CHOICE, .choices = "off, on", .fallback = "off",
     .help = "on: the data in the NVMe tier is encrypted (AES-256-XTS). The key is created at the start and never "
             "written to disk, so the data is unreadable on a disk that is taken away. If a restart turns encryption "
             "on, it applies to new data; old data stays unencrypted until its space is reused. Turning it off takes "
             "effect only after the unit was stopped, and not at all with nvme_key_file. Without nvme_key_file, spills "
             "that ask for durability are refused (EDURABILITY)."},
    {FIELD(nvme_key_file), .type = TYPE_TEXT, .fallback = "none",
     .help = "Master keys of the encrypted NVMe tier: a file with a line of 64 hexadecimal digits for each, which no "
             "other user may access, or credential: the unit's credential spillway-nvme-key. The first one wraps the "
             "data's key, which is then kept in the tier's folder and survives the end of the unit and of the machine; "
             "the others only open what they have wrapped. none: the data's key ends with the unit."},
    {FIELD(remote_tier_endpoint), .type = TYPE_TEXT, .fallback = "none",
     .help = "Object store of the remote tier, which holds what the tiers before it cannot hold: http:// or https://, "
             "host and perhaps port, of a store that speaks the protocol of S3, such as "
             "https://s3.eu-central-1.amazonaws.com. Objects are encrypted before they leave the host. none: there is "
             "no remote tier. The systemd unit needs a drop-in that lets it reach the network (OPERATING.md)."},
    {FIELD(remote_tier_bucket), .type = TYPE_TEXT, .fallback = "spillway",
     .help = "Bucket of the remote tier. It must exist."},
    {FIELD(remote_tier_prefix), .type = TYPE_TEXT, .fallback = "spillway/",
     .help = "What the names of all objects begin with: characters of [a-z0-9/.-], the last one a slash."},
    {FIELD(remote_tier_region), .type = TYPE_TEXT, .fallback = "us-east-1",
     .help = "Region of the bucket, which requests are signed for."},
    {FIELD(remote_tier_host), .type = TYPE_TEXT, .fallback = "auto",
     .help = "Name of this host's objects: characters of [a-z0-9-]. No other host may use the same name, bucket and "
             "prefix, because a service deletes objects of its name that it does not need. auto: derived from "
             "/etc/machine-id."},
    {FIELD(remote_tier_tenants), .type = TYPE_TEXT, .fallback = "none",
     .help = "Users whose durable regions share their names with users of other hosts on the same bucket, as "
             "UID=NAME separated by blanks: 1000=etl 1001=reports. NAME (characters of [a-z0-9-]) is the tenant's name "
             "on all hosts, which need the same remote_tier_keys. A name that another host's region has is refused "
             "(EEXIST). The bucket must tell who creates an object first (spillwayctl tiers: writers), or "
             "durability remote is refused for these users (EDURABILITY). none: regions are of one host."},
    {FIELD(remote_tier_bytes), .type = TYPE_BYTES, .min = 16 * MIB, .max = 1024 * TIB, .multiple = 4 * KIB,
     .fallback = "1 TiB", .help = "Limit of the bytes in the remote tier."},
    {FIELD(remote_tier_keys), .type = TYPE_TEXT, .fallback = "credential",
     .help = "File with the master keys of the remote tier, one to a line, 64 hexadecimal digits each. The first one "
             "is used for new objects, the others only to read older ones. Without the key the objects cannot be "
             "read. credential: the unit's credential spillway-remote-key."},
    {FIELD(remote_tier_credentials), .type = TYPE_TEXT, .fallback = "auto",
     .help = "File with the store's credentials: aws_access_key_id = ..., aws_secret_access_key = ... and perhaps "
             "aws_session_token = .... It is read again when the store says that they have expired. auto: the unit's "
             "credential spillway-remote if there is one, else the environment (AWS_ACCESS_KEY_ID and so on)."},
    {FIELD(remote_tier_ca), .type = TYPE_TEXT, .fallback = "system",
     .help = "File with the certificates that verify an https store's certificate. system: the system's own."},
    {FIELD(remote_tier_requests), .type = TYPE_COUNT, .min = 1, .max = 256, .multiple = 1, .fallback = "32",
     .help = "Limit of requests to the store at once. To use a link fully, take its rate times the time that the store "
             "needs for a request, in parts of 8 MiB. The service sends fewer while the store asks for it."},
    {FIELD(remote_tier_bytes_per_s), .type = TYPE_BYTES, .max = TIB, .multiple = 1, .fallback = "0",
     .help = "Limit of the bytes per second to the store, and from it; 0: no limit."},
    {FIELD(remote_tier_buffer_bytes), .type = TYPE_BYTES, .min = 16 * MIB, .max = TIB, .multiple = 1,
     .fallback = "512 MiB",
     .help = "Limit of the host memory for encrypted objects on their way. A frame that is longer is sent alone."},
    {FIELD(host_tier_high_pct), .type = TYPE_COUNT, .min = 1, .max = 100, .multiple = 1, .fallback = "90", .live = true,
     .help = "With an NVMe tier: when more than this percentage of the host tier is in use, the least recently used "
             "regions are moved to the NVMe tier. The part reserved for transfers (host_tier_bytes) does not count."},
    {FIELD(host_tier_low_pct), .type = TYPE_COUNT, .max = 100, .multiple = 1, .at_most = "host_tier_high_pct",
     .fallback = "80", .live = true,
     .help = "With an NVMe tier: moving ends when no more than this percentage of the host tier is in use. The part "
             "reserved for transfers does not count."},
    {FIELD(reconnect_grace_s), .type = TYPE_COUNT, .min = 1, .max = 86400, .multiple = 1, .fallback = "30",
     .help = "Seconds that a session has after a restart to resume and keep its regions, under a service manager that "
             "keeps descriptors. Clients try for as long to connect again. A session whose process still runs has up "
             "to an hour."},
    {FIELD(max_sessions), .type = TYPE_COUNT, .min = 1, .max = 65536, .multiple = 1, .fallback = "256", .live = true,
     .help = "Limit of clients connected at once; one more is refused with ELIMIT."},
    {FIELD(max_regions), .type = TYPE_COUNT, .min = 1, .max = 1u << 30, .multiple = 1, .fallback = "1048576",
     .help = "Limit of the regions of all sessions together."},
    {FIELD(max_session_regions), .type = TYPE_COUNT, .min = 1, .max = 1u << 30, .multiple = 1, .at_most = "max_regions",
     .fallback = "65536", .live = true,
     .help = "Limit of the regions of one session."},
    {FIELD(max_session_operations), .type = TYPE_COUNT, .min = 1, .max = 65536, .multiple = 1, .fallback = "256",
     .help = "Limit of spills and restores of one session in flight; a batch counts as one."},
    {FIELD(max_session_memories), .type = TYPE_COUNT, .min = 1, .max = 1u << 20, .multiple = 1, .fallback = "1024",
     .help = "Limit of the memories that one session has handed over."},
    {FIELD(bookkeeping_bytes), .type = TYPE_BYTES, .min = 16 * MIB, .max = 64 * TIB, .multiple = 1,
     .is_shareable = true, .fallback = "1 GiB", .live = true,
     .help = "Limit of the memory for bookkeeping that the service keeps for all clients together, beside the bytes of "
             "regions: sessions, memories handed over, operations, unread replies, records of regions. A 4096th of "
             "host_tier_bytes, nvme_tier_bytes and remote_tier_bytes is added to it. It is at most a quarter of what the host or the "
             "service's control group leaves for clients."},
    {FIELD(allowed_uids), .type = TYPE_IDS, .fallback = "[]",
     .help = "Users that are served, by number, in addition to allowed_gids. If both are empty, every user that can "
             "open the socket is served."},
    {FIELD(allowed_gids), .type = TYPE_IDS, .fallback = "[]",
     .help = "Groups whose members are served, by number, supplementary groups included."},
    {FIELD(unmapped_users), .type = TYPE_CHOICE, .choices = "refuse, one_tenant", .fallback = "refuse",
     .help = "If the service runs in a user namespace that maps only some users, as in a rootless container, it cannot "
             "tell the other users apart. refuse: they are not served (EUNMAPPED). one_tenant: all of them together "
             "are one tenant, so each can read and drop regions that the others have stored under a name."},
    {FIELD(tenant_bytes), .type = TYPE_BYTES, .max = 64 * TIB, .multiple = 1, .fallback = "0", .live = true,
     .help = "Limit of the bytes that the regions of one tenant (uid) occupy in all tiers; 0: no limit. A spill that "
             "exceeds it fails with ETENANTBYTES, and its memory stays unchanged."},
    {FIELD(tenant_regions), .type = TYPE_COUNT, .max = 1u << 30, .multiple = 1, .fallback = "0", .live = true,
     .help = "Limit of the regions of one tenant; one more is refused with ETENANTREGIONS. 0: its share of "
             "max_regions, which is at most three times as many as are left for others. So one tenant never has more "
             "than three quarters."},
    {FIELD(tenant_durable_regions), .type = TYPE_COUNT, .max = 1u << 20, .multiple = 1, .fallback = "1024", .live = true,
     .help = "Limit of the durable regions of one tenant, which have a name and stay when their "
             "client has gone; one more is refused with ETENANTREGIONS. 0: no durable regions at all, "
             "unlike the other tenant_* options."},
    {FIELD(tenant_sessions), .type = TYPE_COUNT, .max = 65536, .multiple = 1, .fallback = "0", .live = true,
     .help = "Limit of the sessions of one tenant; one more is refused with ETENANTSESSIONS. 0: its share of "
             "max_sessions, which is at most three times as many as are left for others."},
    {FIELD(tenant_operations), .type = TYPE_COUNT, .max = 1u << 20, .multiple = 1, .fallback = "0", .live = true,
     .help = "Limit of spills and restores of one tenant in flight, where a batch counts as one; one more is refused "
             "with ETENANTOPS. 0: no limit."},
    {FIELD(tenant_bookkeeping_bytes), .type = TYPE_BYTES, .max = 64 * TIB, .multiple = 1, .fallback = "0", .live = true,
     .help = "Limit of the memory for bookkeeping of one tenant (bookkeeping_bytes); a request that needs more is "
             "refused with ETENANTMEMORY. 0: its share, which is at most three times as much as is left for others."},
    {FIELD(tenant_prefer), .type = TYPE_CHOICE, .choices = "none, time, room", .fallback = "none", .live = true,
     .help = "What regions are compressed for, where their requests do not say. room: by the densest codec, even if that "
             "takes longer. time: as fast as possible, also when the tiers are nearly full. none: for time while there is "
             "room, and for room where raw frames would find none."},
    {FIELD(quotas), .type = TYPE_QUOTAS, .fallback = "[]", .live = true,
     .help = "Other limits for single users (uid) and for the members of a group (gid), each member alone: bytes, "
             "regions, durable_regions, sessions, operations, bookkeeping_bytes, prefer, with the meaning of the tenant_* "
             "options. The first row that fits a user applies, and what it leaves out is as in these options. The "
             "groups of a user's connections count. A lower limit applies to new requests only."},
};
/* clang-format on */
enum { OPTION_COUNT = sizeof options / sizeof options[0] };
_Static_assert(OPTION_COUNT <= SW_CONFIG_MAX_OPTIONS, "sw_config.given has a bit for each option");

static const struct option *find_option(const char *name) {
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (strcmp(options[i].name, name) == 0)
            return &options[i];
    return NULL;
}

int sw_config_unknown(const char *name, enum sw_scope scope, struct sw_err *err) {
    char hint[80];
    struct sw_similar best = {.edits = 0};
    for (size_t i = 0; i < OPTION_COUNT; i++)
        sw_similar_try(&best, name, options[i].name);
    return sw_err_set(err, -SW_ECONFIG, scope, "%.40s: unknown option%s", name,
                      sw_similar_hint(hint, sizeof hint, &best));
}

static bool is_text(const struct option *option) {
    return option->type == TYPE_TEXT || option->type == TYPE_CHOICE;
}

static bool is_list(const struct option *option) {
    return option->type == TYPE_IDS || option->type == TYPE_QUOTAS;
}

static uint64_t get_number(const struct sw_config *config, const struct option *option) {
    uint64_t value;
    memcpy(&value, (const char *)config + option->offset, sizeof value);
    return value;
}

static uint64_t given_bit(const struct option *option) {
    return UINT64_C(1) << (option - options);
}

static bool is_given(const struct sw_config *config, const struct option *option) {
    return (config->given & given_bit(option)) != 0;
}

static const char *get_text(const struct sw_config *config, const struct option *option) {
    return (const char *)config + option->offset;
}

/* Parses digits only: strtoull() alone would accept signs, spaces and hexadecimal. Returns the end of the digits, or
 * NULL if there are none. A number that is too large becomes UINT64_MAX, which no option accepts. */
static const char *parse_digits(const char *text, int base, uint64_t *ret) {
    char *end;
    if (*text < '0' || *text > '9')
        return NULL;
    *ret = strtoull(text, &end, base);
    return end;
}

static uint64_t default_number(const struct option *option) {
    uint64_t number;
    SW_ASSERT(option->type == TYPE_BYTES ? sw_size_parse(option->fallback, &number)
                                         : parse_digits(option->fallback, 10, &number) != NULL);
    return number;
}

/* Returns whether the default depends on another option, its bound. A file writes this default as "auto". */
static bool follows(const struct option *option) {
    return option->at_most && default_number(option) > find_option(option->at_most)->min;
}

#define SHARES ", or 1% to 100% of memory"

/* Describes the values that an option accepts, for errors and help. */
static const char *describe(char *ret, size_t ret_bytes, const struct option *option) {
    char min[24], max[24], multiple[24];
    const char *otherwise = follows(option) ? ", or auto" : "";
    switch (option->type) {
    case TYPE_COUNT:
        (void)snprintf(ret, ret_bytes, "a whole number from %" PRIu64 " to %" PRIu64 "%s", option->min, option->max,
                       otherwise);
        break;
    case TYPE_BYTES:
        (void)snprintf(ret, ret_bytes, "a size from %s to %s%s%s%s%s", sw_size_format(min, sizeof min, option->min),
                       sw_size_format(max, sizeof max, option->max), option->multiple > 1 ? " in steps of " : "",
                       option->multiple > 1 ? sw_size_format(multiple, sizeof multiple, option->multiple) : "",
                       option->is_shareable ? SHARES : "", otherwise);
        break;
    case TYPE_TEXT:
        (void)snprintf(ret, ret_bytes, "a string of 1 to %zu bytes", option->size - 1);
        break;
    case TYPE_CHOICE:
        (void)snprintf(ret, ret_bytes, "one of %s", option->choices);
        break;
    case TYPE_IDS:
        (void)snprintf(ret, ret_bytes, "a list of up to %d numbers, such as [1000, 1001]", SW_CONFIG_MAX_IDS);
        break;
    case TYPE_QUOTAS:
        (void)snprintf(ret, ret_bytes, SW_QUOTA_EXAMPLE);
        break;
    case TYPE_MODE:
        (void)snprintf(ret, ret_bytes, "a string of octal digits from \"0000\" to \"%04" PRIo64 "\"", option->max);
        break;
    }
    return ret;
}

static bool store_number(struct sw_config *config, const struct option *option, uint64_t value) {
    if (value < option->min || value > option->max || (option->multiple > 1 && value % option->multiple))
        return false;
    memcpy((char *)config + option->offset, &value, sizeof value);
    config->pct[option - options] = 0;
    return true;
}

/* Stores a percentage of the memory that this process can have, such as "40%". */
static bool store_share(struct sw_config *config, const struct option *option, const char *text) {
    const uint64_t memory_bytes = sw_memory_bytes("");
    uint64_t pct;
    const char *end = parse_digits(text, 10, &pct);
    if (!option->is_shareable || !end || strcmp(end, "%") != 0 || pct == 0 || pct > 100 || memory_bytes == UINT64_MAX)
        return false;
    const uint64_t bytes = memory_bytes / 100 * pct, cut = bytes - bytes % option->multiple;
    if (!store_number(config, option, cut < option->min ? option->min : cut < option->max ? cut : option->max))
        return false;
    config->pct[option - options] = (uint8_t)pct;
    return true;
}

/* Sets an option to the smaller of its default and its bound. */
static void set_default_number(struct sw_config *config, const struct option *option) {
    const uint64_t number = default_number(option), most = get_number(config, find_option(option->at_most));
    SW_ASSERT(store_number(config, option, number < most ? number : most));
}

/* Adapts the options that `bound` limits after it has changed, unless they were set. */
static void set_bounded_defaults(struct sw_config *config, const struct option *bound) {
    for (size_t i = 0; i < OPTION_COUNT; i++)
        if (options[i].at_most && strcmp(options[i].at_most, bound->name) == 0 && !is_given(config, &options[i]))
            set_default_number(config, &options[i]);
}

static bool store_text(struct sw_config *config, const struct option *option, const char *text) {
    const size_t bytes = strlen(text);
    if (bytes == 0 || bytes >= option->size || (option->type == TYPE_CHOICE && !sw_choice_has(option->choices, text)))
        return false;
    char *field = (char *)config + option->offset;
    memset(field, 0, option->size);
    memcpy(field, text, bytes + 1);
    return true;
}

/* Stores a value that is written as a string. */
static bool store_string(struct sw_config *config, const struct option *option, const char *text) {
    uint64_t number;
    const char *end;
    switch (option->type) {
    case TYPE_BYTES:
        return sw_size_parse(text, &number) ? store_number(config, option, number) : store_share(config, option, text);
    case TYPE_MODE:
        end = parse_digits(text, 8, &number);
        return end && !*end && store_number(config, option, number);
    case TYPE_TEXT:
    case TYPE_CHOICE:
        return store_text(config, option, text);
    case TYPE_COUNT:
    case TYPE_IDS:
    case TYPE_QUOTAS:
        break;
    }
    return false;
}

/* Refuses UINT32_MAX, which stands for "no id" in system calls. */
static bool store_ids(struct sw_config *config, const struct option *option, const json_t *value) {
    struct sw_config_ids ids = {.n = 0};
    const size_t n = json_is_array(value) ? json_array_size(value) : 1;
    if (n > SW_CONFIG_MAX_IDS)
        return false;
    for (size_t i = 0; i < n; i++) {
        const json_t *id = json_is_array(value) ? json_array_get(value, i) : value;
        if (!json_is_integer(id) || json_integer_value(id) < 0 || json_integer_value(id) >= UINT32_MAX)
            return false;
        ids.ids[ids.n++] = (uint32_t)json_integer_value(id);
    }
    memcpy((char *)config + option->offset, &ids, sizeof ids);
    return true;
}

/* Describes the accepted values for the error about a wrong one: how a size is written if the value is no size at all,
 * else the option's bounds. */
static const char *describe_for(char *ret, size_t ret_bytes, const struct option *option, const json_t *value) {
    uint64_t number;
    const bool is_size = json_is_string(value) ? sw_size_parse(json_string_value(value), &number)
                                               : json_is_integer(value) && json_integer_value(value) >= 0;
    if (option->type != TYPE_BYTES || is_size)
        return describe(ret, ret_bytes, option);
    return option->is_shareable ? SW_SIZE_EXAMPLES SHARES : SW_SIZE_EXAMPLES;
}

/* Returns the option that sets a limit for every tenant. */
static const struct option *limit_option(enum sw_limit limit) {
    char name[48];
    (void)snprintf(name, sizeof name, "tenant_%s", sw_limit_name(limit));
    return find_option(name);
}

static int parse_limit(enum sw_limit limit, const json_t *value, uint64_t *ret, struct sw_err *err);
static json_t *show_limit(enum sw_limit limit, uint64_t value);
static const struct sw_quota_values quota_values = {.parse = parse_limit, .show = show_limit};

static int store_json(struct sw_config *config, const struct option *option, const json_t *value, struct sw_err *err) {
    bool good = false;
    int rc_quotas = 0;
    if (follows(option) && json_is_string(value) && strcmp(json_string_value(value), "auto") == 0) {
        config->given &= ~given_bit(option);
        config->from_file &= ~given_bit(option);
        set_default_number(config, option);
        return 0;
    }
    if (option->type == TYPE_QUOTAS)
        good = (rc_quotas = sw_quotas_parse(value, &quota_values, &config->quotas, err)) == 0;
    else if (option->type == TYPE_IDS)
        good = store_ids(config, option, value);
    else if (json_is_string(value))
        good = store_string(config, option, json_string_value(value));
    else if (json_is_integer(value) && json_integer_value(value) >= 0 &&
             (option->type == TYPE_COUNT || option->type == TYPE_BYTES))
        good = store_number(config, option, (uint64_t)json_integer_value(value));
    if (good) {
        config->given |= given_bit(option);
        config->from_file &= ~given_bit(option);
        set_bounded_defaults(config, option);
        return 0;
    }
    if (rc_quotas < 0)
        return rc_quotas;
    char expected[128], shortened[SW_SHORTENED_BYTES];
    char *shown = json_dumps(value, JSON_ENCODE_ANY | JSON_COMPACT);
    int rc = sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s: %s is not %s", option->name,
                        shown ? sw_shorten(shortened, shown) : "value",
                        describe_for(expected, sizeof expected, option, value));
    free(shown);
    return rc;
}

/* A choice counts as its number. */
static uint64_t get_limit(const struct sw_config *config, const struct option *option) {
    return option->type == TYPE_CHOICE ? (uint64_t)sw_choice_number(option->choices, get_text(config, option))
                                       : get_number(config, option);
}

static int parse_limit(enum sw_limit limit, const json_t *value, uint64_t *ret, struct sw_err *err) {
    const struct option *option = limit_option(limit);
    struct sw_config scratch = {.given = 0};
    const int rc = store_json(&scratch, option, value, err);
    if (rc == 0)
        *ret = get_limit(&scratch, option);
    return rc;
}

uint64_t sw_config_limit(const struct sw_config *config, const struct sw_quota_row *row, enum sw_limit limit) {
    return row && row->given & 1u << limit ? row->limits[limit] : get_limit(config, limit_option(limit));
}

void sw_config_init(struct sw_config *ret) {
    memset(ret, 0, sizeof *ret);
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (is_list(&options[i]))
            continue; /* empty */
        if (options[i].type != TYPE_COUNT)
            SW_ASSERT(store_string(ret, &options[i], options[i].fallback));
        else
            SW_ASSERT(store_number(ret, &options[i], default_number(&options[i])));
    }
}

static int store_object(struct sw_config *config, json_t *object, struct sw_err *err) {
    const char *name;
    json_t *value;
    if (!json_is_object(object))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "must be one JSON object");
    json_object_foreach(object, name, value) {
        const struct option *option = find_option(name);
        if (!option)
            return sw_config_unknown(name, SW_SCOPE_DAEMON, err);
        int rc = store_json(config, option, value, err);
        if (rc < 0)
            return rc;
        if (is_given(config, option)) /* "auto" gives none */
            config->from_file |= given_bit(option);
    }
    return 0;
}

int sw_config_load(struct sw_config *config, const char *path, bool waits, struct sw_err *err) {
    json_t *object = NULL;
    struct sw_config changed = *config;
    changed.from_file = 0; /* only the last file's name is kept */
    sw_json_name(changed.file, path);
    int rc = sw_json_load(&object, path, waits, err);
    if (rc < 0)
        return rc;
    rc = store_object(&changed, object, err);
    if (rc < 0)
        sw_json_context(err, path);
    else
        *config = changed;
    json_decref(object);
    return rc;
}

int sw_config_set(struct sw_config *config, const char *assignment, struct sw_err *err) {
    char name[48];
    const size_t name_bytes = strcspn(assignment, "=");
    if (!assignment[name_bytes] || !name_bytes)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%.48s: must be NAME=VALUE", assignment);
    (void)snprintf(name, sizeof name, "%.*s", (int)(name_bytes < sizeof name ? name_bytes : sizeof name), assignment);
    const struct option *option = find_option(name);
    if (!option)
        return sw_config_unknown(name, SW_SCOPE_DAEMON, err);
    const char *text = assignment + name_bytes + 1;
    json_t *value = json_loads(text, JSON_DECODE_ANY, NULL);
    /* A value is taken literally if it is not JSON, or if the option needs a string and the value is none: device=host,
     * data_socket_mode=660. */
    if (!value || (!json_is_string(value) && (is_text(option) || option->type == TYPE_MODE))) {
        json_decref(value);
        value = json_string(text);
    }
    if (!value)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s: value is not UTF-8", name);
    int rc = store_json(config, option, value, err);
    json_decref(value);
    return rc;
}

#define CONTROL_NAME "control.sock"

/* Returns the length of data_socket's folder, including the slash. */
static size_t folder_bytes(const struct sw_config *config) {
    const char *slash = strrchr(config->data_socket, '/');
    return slash ? (size_t)(slash - config->data_socket) + 1 : 0;
}

static bool is_auto(const struct sw_config *config) {
    return strcmp(config->control_socket, "auto") == 0;
}

const char *sw_config_control_path(char ret[SW_CONFIG_PATH_BYTES], const struct sw_config *config) {
    if (is_auto(config))
        (void)snprintf(ret, SW_CONFIG_PATH_BYTES, "%.*s" CONTROL_NAME, (int)folder_bytes(config), config->data_socket);
    else
        (void)snprintf(ret, SW_CONFIG_PATH_BYTES, "%s", config->control_socket);
    return ret;
}

/* Checks the control socket's path. It must fit into a socket address, and differ from data_socket. */
static int check_control_socket(const struct sw_config *config, struct sw_err *err) {
    const size_t bytes = folder_bytes(config) + strlen(CONTROL_NAME);
    if (strcmp(config->control_socket, config->data_socket) == 0 ||
        (is_auto(config) && strcmp(config->data_socket + folder_bytes(config), CONTROL_NAME) == 0))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "control_socket: %s is the path of data_socket; choose another path",
                          is_auto(config) ? "auto" : "this");
    if (!is_auto(config) || bytes < SW_CONFIG_PATH_BYTES)
        return 0;
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                      "control_socket: auto is a path of %zu bytes, more than %u; shorten data_socket's folder", bytes,
                      SW_CONFIG_PATH_BYTES - 1);
}

static const char *format_number(char *ret, size_t ret_bytes, const struct sw_config *config,
                                 const struct option *option) {
    const uint64_t number = get_number(config, option);
    if (option->type == TYPE_BYTES)
        return sw_size_format(ret, ret_bytes, number);
    (void)snprintf(ret, ret_bytes, "%" PRIu64, number);
    return ret;
}

static int refuse_bound(const struct sw_config *config, const struct option *option, const struct option *bound,
                        struct sw_err *err) {
    char number[24], most[24];
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON, "%s: %s exceeds %s, which is %s; lower it or leave it out",
                      option->name, format_number(number, sizeof number, config, option), bound->name,
                      format_number(most, sizeof most, config, bound));
}

/* Returns whether an option's value comes from the file. */
static bool is_in_file(const struct sw_config *config, const char *name) {
    return (config->from_file & given_bit(find_option(name))) != 0;
}

static int check_metrics_address(const struct sw_config *config, struct sw_err *err) {
    struct in_addr address;
    if (inet_pton(AF_INET, config->metrics_address, &address) == 1)
        return 0;
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                      "metrics_address: \"%s\" is not an IPv4 address such as 127.0.0.1", config->metrics_address);
}

int sw_config_check(const struct sw_config *config, struct sw_err *err) {
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        if (!options[i].at_most)
            continue;
        const struct option *bound = find_option(options[i].at_most);
        if (get_number(config, &options[i]) <= get_number(config, bound))
            continue;
        const int rc = refuse_bound(config, &options[i], bound, err);
        if (is_in_file(config, options[i].name))
            sw_err_context(err, "%s", config->file);
        return rc;
    }
    int rc = check_metrics_address(config, err);
    if (rc < 0 && is_in_file(config, "metrics_address"))
        sw_err_context(err, "%s", config->file);
    if (rc < 0)
        return rc;
    rc = check_control_socket(config, err);
    if (rc < 0 && (is_in_file(config, "data_socket") || is_in_file(config, "control_socket")))
        sw_err_context(err, "%s", config->file);
    return rc;
}

bool sw_config_describe(unsigned i, struct sw_config_option *ret) {
    if (i >= OPTION_COUNT)
        return false;
    *ret = (struct sw_config_option){
        .name = options[i].name, .fallback = options[i].fallback, .help = options[i].help, .live = options[i].live};
    if (follows(&options[i]))
        ret->bound = options[i].at_most;
    (void)describe(ret->accepted, sizeof ret->accepted, &options[i]);
    return true;
}

bool sw_config_differs(const struct sw_config *a, const struct sw_config *b, unsigned i) {
    const size_t at = options[i].offset;
    return memcmp((const char *)a + at, (const char *)b + at, options[i].size) != 0;
}

void sw_config_copy(struct sw_config *to, const struct sw_config *from, unsigned i) {
    const struct option *option = &options[i];
    memcpy((char *)to + option->offset, (const char *)from + option->offset, option->size);
    to->given = (to->given & ~given_bit(option)) | (from->given & given_bit(option));
    to->from_file = (to->from_file & ~given_bit(option)) | (from->from_file & given_bit(option));
    memcpy(to->file, from->file, sizeof to->file);
    to->pct[i] = from->pct[i];
    if (option->at_most && !is_given(to, option))
        set_default_number(to, option);
    set_bounded_defaults(to, option);
}

int sw_config_store(struct sw_config *config, const char *name, const json_t *value, struct sw_err *err) {
    const struct option *option = find_option(name);
    if (!option)
        return sw_config_unknown(name, SW_SCOPE_REQUEST, err);
    return store_json(config, option, value, err);
}

static json_t *ids_to_json(const struct sw_config *config, const struct option *option) {
    struct sw_config_ids ids;
    memcpy(&ids, (const char *)config + option->offset, sizeof ids);
    json_t *array = json_array();
    for (uint32_t i = 0; i < ids.n; i++)
        (void)json_array_append_new(array, json_integer((json_int_t)ids.ids[i]));
    return array;
}

/* Returns a value as an operator writes it, if it is not a plain number: "auto", "40%". NULL: it is. */
static json_t *written(const struct sw_config *config, const struct option *option) {
    if (follows(option) && !is_given(config, option))
        return json_string("auto");
    const unsigned pct = config->pct[option - options];
    return pct ? json_sprintf("%u%%", pct) : NULL;
}

static json_t *to_json(const struct sw_config *config, const struct option *option) {
    char text[32];
    const bool is_number = !is_text(option) && !is_list(option);
    const uint64_t number = is_number ? get_number(config, option) : 0;
    switch (option->type) {
    case TYPE_COUNT:
        return json_integer((json_int_t)number);
    case TYPE_BYTES:
        return json_string(sw_size_format(text, sizeof text, number));
    case TYPE_MODE:
        (void)snprintf(text, sizeof text, "%04" PRIo64, number);
        return json_string(text);
    case TYPE_IDS:
        return ids_to_json(config, option);
    case TYPE_QUOTAS:
        return sw_quotas_to_json(&config->quotas, &quota_values);
    case TYPE_TEXT:
    case TYPE_CHOICE:
        break;
    }
    return json_string(get_text(config, option));
}

static json_t *show_limit(enum sw_limit limit, uint64_t value) {
    const struct option *option = limit_option(limit);
    struct sw_config scratch = {.given = 0};
    if (option->type == TYPE_CHOICE)
        sw_choice_text((char *)&scratch + option->offset, option->size, option->choices, (unsigned)value);
    else
        SW_ASSERT(store_number(&scratch, option, value));
    return to_json(&scratch, option);
}

json_t *sw_config_to_json(const struct sw_config *config, bool as_written) {
    json_t *object = json_object();
    for (size_t i = 0; i < OPTION_COUNT; i++) {
        json_t *value = as_written ? written(config, &options[i]) : NULL;
        (void)json_object_set_new(object, options[i].name, value ? value : to_json(config, &options[i]));
    }
    return object;
}

void sw_config_print(const struct sw_config *config, FILE *out) {
    json_t *object = sw_config_to_json(config, true);
    (void)json_dumpf(object, out, JSON_INDENT(4));
    (void)fputc('\n', out);
    json_decref(object);
}

/* Prints `text` in lines of at most 78 columns, indented by 6. */
static void print_wrapped(FILE *out, const char *text) {
    size_t column = 0;
    while (*text) {
        const size_t word = strcspn(text, " ");
        if (column && column + 1 + word > 78) {
            (void)fputc('\n', out);
            column = 0;
        }
        column += (size_t)fprintf(out, "%s%.*s", column ? " " : "      ", (int)word, text);
        text += word + strspn(text + word, " ");
    }
    (void)fputc('\n', out);
}

void sw_config_help(FILE *out) {
    struct sw_config_option option;
    for (unsigned i = 0; sw_config_describe(i, &option); i++) {
        (void)fprintf(out, "  %s: %s (default: %s%s", option.name, option.accepted,
                      option.bound ? "auto, which is " : "", option.fallback);
        if (option.bound)
            (void)fprintf(out, ", or %s if that is less", option.bound);
        (void)fprintf(out, "%s)\n", option.live ? "; may be changed at run time" : "");
        print_wrapped(out, option.help);
    }
}
