/* config.h - the options of spillwayd.
 *
 * Each option is one row of the table in config.c: name, type, bounds, default, help. The parser, --help,
 * --print-config and all error texts use this table. A configuration file is one JSON object whose keys are option
 * names. An unknown key, a wrong type or a value out of bounds is refused; the error names the key, the value and the
 * accepted values, and the configuration stays unchanged. thread: any, no state. */
#ifndef SW_CONFIG_CONFIG_H
#define SW_CONFIG_CONFIG_H

#include "base/err.h"
#include "base/size.h"
#include "config/json.h"
#include "config/quotas.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SW_CONFIG_DIRECTORY_BYTES 512
#define SW_CONFIG_MAX_IDS 64
#define SW_CONFIG_MAX_OPTIONS 64
#define SW_CONFIG_PATH_BYTES 108 /* sun_path's length, the longest socket path */
#define SW_CONFIG_GROUP_BYTES 64
#define SW_CONFIG_SIZES "A size is " SW_SIZE_WRITTEN "."

struct json_t; /* jansson.h */

struct sw_config_ids {
    uint32_t n, ids[SW_CONFIG_MAX_IDS]; /* entries after the n-th are 0 */
};

struct sw_config {
    char data_socket[SW_CONFIG_PATH_BYTES];
    uint64_t data_socket_mode;                 /* permission bits */
    char control_socket[SW_CONFIG_PATH_BYTES]; /* "auto", "none", or a path */
    uint64_t control_socket_mode;
    char control_group[SW_CONFIG_GROUP_BYTES], control_read_group[SW_CONFIG_GROUP_BYTES]; /* "none", name or number */
    uint64_t metrics_port;                                                                /* 0: none */
    uint64_t metrics_tenants; /* uids with metrics of their own */
    char metrics_address[16]; /* IPv4 */
    char device[16];          /* "auto", "cuda", "host" */
    char log_level[16];
    uint64_t scratch_bytes;   /* per GPU */
    uint64_t chunk_bytes;     /* 0: as large as scratch_bytes allows */
    uint64_t slots;           /* 0: the device chooses */
    uint64_t gpu_frame_bytes; /* per GPU: frame buffers of clients; 0: none */
    uint64_t host_tier_bytes; /* limit of the arena */
    uint64_t host_tier_initial_bytes;
    uint64_t host_tier_ahead_pct; /* of host_tier_bytes */
    uint64_t host_tier_slab_bytes;
    char nvme_tier_directory[SW_CONFIG_DIRECTORY_BYTES]; /* "none": there is no NVMe tier */
    uint64_t nvme_tier_bytes;
    char nvme_encrypt[16];                         /* "off", "on" */
    char nvme_key_file[SW_CONFIG_DIRECTORY_BYTES]; /* "none", "credential", or a file */
    char remote_tier_endpoint[256];                /* "none": there is no remote tier */
    char remote_tier_bucket[64], remote_tier_prefix[65], remote_tier_region[64];
    char remote_tier_host[33];     /* "auto" */
    char remote_tier_tenants[256]; /* "none", or UID=NAME ... */
    uint64_t remote_tier_bytes;
    char remote_tier_keys[SW_CONFIG_DIRECTORY_BYTES];        /* "credential", or a file */
    char remote_tier_credentials[SW_CONFIG_DIRECTORY_BYTES]; /* "auto", or a file */
    char remote_tier_ca[SW_CONFIG_DIRECTORY_BYTES];          /* "system", or a file */
    uint64_t remote_tier_requests, remote_tier_bytes_per_s;  /* bytes_per_s 0: no limit */
    uint64_t remote_tier_buffer_bytes;
    uint64_t host_tier_high_pct, host_tier_low_pct; /* watermarks, used with an NVMe tier */
    uint64_t reconnect_grace_s;                     /* time for sessions to resume after a restart */
    uint64_t max_sessions;
    uint64_t max_regions, max_session_regions;
    uint64_t max_session_operations, max_session_memories;
    struct sw_config_ids allowed_uids, allowed_gids; /* both empty: everyone */
    char unmapped_users[16];                         /* "refuse", "one_tenant" */
    uint64_t bookkeeping_bytes;                      /* limit for all tenants; a part of the tiers' size is added */
    /* Limits for one tenant in all its sessions; 0: no limit, or a share (regions, sessions, bookkeeping). */
    uint64_t tenant_bytes, tenant_regions, tenant_durable_regions, tenant_sessions, tenant_operations;
    uint64_t tenant_bookkeeping_bytes;
    char tenant_prefer[8];
    struct sw_quota_table quotas;       /* for single users and groups */
    uint64_t given;                     /* bit i: option i was set, else it has its default; private to config.c */
    uint8_t pct[SW_CONFIG_MAX_OPTIONS]; /* of memory, if a size was set so; 0: it was not; private to config.c */
    uint64_t from_file; /* bit i: the value comes from `file`, the file loaded last; private to config.c */
    char file[SW_JSON_NAME_BYTES];
};

/* Sets every option to its default. As long as an option is not set, or set to "auto", it is the smaller of its default
 * and the option that bounds it. So lowering the bound alone gives a valid configuration. */
void sw_config_init(struct sw_config *ret);
/* Loads a file into *config; options that it leaves out keep their values. waits: see sw_json_load(). errors:
 * -SW_ECONFIG with "file:line: key: ...", -SW_EIO. */
int sw_config_load(struct sw_config *config, const char *path, bool waits, struct sw_err *err);
/* Sets one option from "name=value"; the value is JSON, or a bare word for strings. errors: -SW_ECONFIG. */
int sw_config_set(struct sw_config *config, const char *assignment, struct sw_err *err);
/* Checks the rules between options, such as host_tier_initial_bytes <= host_tier_bytes. Values that were set may break
 * them. errors: -SW_ECONFIG, with the file that holds the wrong value. */
int sw_config_check(const struct sw_config *config, struct sw_err *err);
/* Writes the control socket's path: control.sock in the folder of data_socket, if the option is "auto". Returns ret.
 * config: must have passed sw_config_check(). */
const char *sw_config_control_path(char ret[SW_CONFIG_PATH_BYTES], const struct sw_config *config);
/* Returns a limit of the tenants to which a row of `quotas` applies. row: NULL: none does. */
uint64_t sw_config_limit(const struct sw_config *config, const struct sw_quota_row *row, enum sw_limit limit);
/* Prints a complete configuration file. */
void sw_config_print(const struct sw_config *config, FILE *out);
/* Prints one paragraph per option, for --help. */
void sw_config_help(FILE *out);

/* The description of an option, from its row in the table. */
struct sw_config_option {
    const char *name, *fallback, *help;
    const char *bound;  /* the option that limits the default; NULL: none does */
    char accepted[128]; /* "a whole number from 0 to 64" */
    bool live;          /* may be changed while the service runs */
};
/* Describes the i-th option; false: there are no more options. */
bool sw_config_describe(unsigned i, struct sw_config_option *ret);
/* Returns whether two configurations have different values of the i-th option. */
bool sw_config_differs(const struct sw_config *a, const struct sw_config *b, unsigned i);
/* Copies the value of the i-th option. If `from` has only the default, `to` gets a default that fits its own bounds. */
void sw_config_copy(struct sw_config *to, const struct sw_config *from, unsigned i);
/* Sets one option from a JSON value, as a file would. errors: -SW_ECONFIG. */
int sw_config_store(struct sw_config *config, const char *name, const struct json_t *value, struct sw_err *err);
/* Reports that there is no option of this name, and suggests a similar one. Returns -SW_ECONFIG. */
int sw_config_unknown(const char *name, enum sw_scope scope, struct sw_err *err);
/* Returns all options as a JSON object that loads again; NULL: out of memory. as_written: "auto" and "40%" as a file
 * has them, instead of the numbers that are in force. owns: the caller, until json_decref(). */
struct json_t *sw_config_to_json(const struct sw_config *config, bool as_written);

#endif
