/* remote.c - the tier in an object store: its options, and what a start without the store does. */
#include "daemon/tiers/row.h"

#include "base/log.h"
#include "spill/tier/remote/tier_remote.h"
#include <inttypes.h>
#include <string.h>

/* Descriptors beside the connections, and a second connection for each that is being closed. */
enum { OWN_DESCRIPTORS = 16 };

static bool is_configured(const struct sw_config *config) {
    return strcmp(config->remote_tier_endpoint, "none") != 0;
}

static uint64_t bytes_of(const struct sw_config *config) {
    return is_configured(config) ? config->remote_tier_bytes : 0;
}

static uint64_t buffer_bytes_of(const struct sw_config *config) {
    return is_configured(config) ? config->remote_tier_buffer_bytes : 0;
}

static uint64_t count_connections(const struct sw_config *config) {
    return is_configured(config) ? OWN_DESCRIPTORS + 2 * config->remote_tier_requests : 0;
}

/* Derives a name from the machine's id, which is not to leave the host itself (machine-id(5)). */
static int derive_host(char ret[SW_REMOTE_HOST_BYTES], struct sw_err *err) {
    static const char what[] = "spillway remote host ";
    char text[sizeof what + 33], hash[SW_OBJECT_HASH_BYTES];
    FILE *file = fopen("/etc/machine-id", "re");
    memcpy(text, what, sizeof what);
    const bool good = file && fgets(text + sizeof what - 1, 33, file) && strlen(text) == sizeof what - 1 + 32;
    if (file)
        (void)fclose(file);
    if (!good || !sw_object_hash(text, strlen(text), hash))
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "remote_tier_host is auto, but /etc/machine-id has no id; set a name");
    (void)snprintf(ret, SW_REMOTE_HOST_BYTES, "%.16s", hash);
    return 0;
}

/* Returns an option's file; NULL: the option has this word instead. */
static const char *file_or(const char *value, const char *word) {
    return strcmp(value, word) == 0 ? NULL : value;
}

/* The service works without a store that does not answer. One that refuses is a wrong configuration, and fails the
 * start, unless regions would be lost when the manager gives up on it. Nothing is changed in the store. */
static bool goes_on_without(const struct sw_service *service, int rc, const struct sw_err *err) {
    char text[300];
    const bool is_silent = rc == -SW_ETIMEDOUT || rc == -SW_EIO;
    if (!is_silent && !sw_catalogue_is_adopted(service->catalogue))
        return false;
    sw_log(SW_LOG_ERROR, "tier.unreadable",
           "tier=remote name=%s text=%s then=\"the service works without it: regions in it are lost, unless a restart "
           "can reach it\"",
           sw_err_name(rc), sw_log_quote(text, sizeof text, err->msg));
    return true;
}

static void log_remote(const struct sw_config *config, struct sw_tier *tier, const char *host) {
    struct sw_tier_store_stats stats;
    char endpoint[600];
    tier->ops->store_stats(tier, &stats);
    sw_log(SW_LOG_INFO, "tier.ready",
           "tier=remote endpoint=%s bucket=%s prefix=%s host=%s bytes=%" PRIu64 " frames=%" PRIu64 " foreign=%" PRIu64
           " writers=%s",
           sw_log_quote(endpoint, sizeof endpoint, config->remote_tier_endpoint), config->remote_tier_bucket,
           config->remote_tier_prefix, host, config->remote_tier_bytes, sw_tier_stats_of(tier).committed_frames,
           stats.foreign, stats.is_exclusive ? "several" : "single");
}

static int open_remote(struct sw_service *service, struct sw_tier **ret, void **ret_own, struct sw_err *err) {
    const struct sw_config *config = service->config;
    char host[SW_REMOTE_HOST_BYTES];
    (void)ret_own;
    if (!is_configured(config))
        return 0;
    (void)snprintf(host, sizeof host, "%s", config->remote_tier_host);
    int rc = strcmp(host, "auto") == 0 ? derive_host(host, err) : 0;
    if (rc)
        return rc;
    struct sw_tier_remote_config remote = {.host = host,
                                           .tenants = config->remote_tier_tenants,
                                           .key_file = file_or(config->remote_tier_keys, "credential"),
                                           .capacity_bytes = config->remote_tier_bytes,
                                           .pool_bytes = config->remote_tier_buffer_bytes};
    sw_object_config_init(&remote.store);
    remote.store.endpoint = config->remote_tier_endpoint;
    remote.store.bucket = config->remote_tier_bucket;
    remote.store.prefix = config->remote_tier_prefix;
    remote.store.region = config->remote_tier_region;
    remote.store.ca_file = file_or(config->remote_tier_ca, "system");
    remote.store.credentials = file_or(config->remote_tier_credentials, "auto");
    remote.store.max_requests = (unsigned)config->remote_tier_requests;
    remote.store.bytes_per_s = config->remote_tier_bytes_per_s;
    rc = sw_tier_remote_open(ret, &remote, err);
    if (!rc)
        log_remote(config, *ret, host);
    else
        sw_err_context(err, "remote_tier_endpoint %.60s", config->remote_tier_endpoint);
    return rc && goes_on_without(service, rc, err) ? 0 : rc;
}

const struct sw_tier_row sw_tier_row_remote = {.kind = &sw_tier_remote_kind,
                                               .title = "remote",
                                               .option = "remote_tier_endpoint",
                                               .bytes = bytes_of,
                                               .buffer_bytes = buffer_bytes_of,
                                               .n_descriptors = count_connections,
                                               .open = open_remote};
