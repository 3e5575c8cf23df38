/* config.h - every option of spillwayd as one typed row: name, unit, bounds, default, help.
 *
 * Parser, --help, --print-config and error texts all come from the table in config.c. A file is one JSON object whose
 * keys are option names; an unknown key, a wrong type or a value out of its bounds is refused with an error that names
 * key, value and what would do, and the config is then unchanged. thread: any, no state. */
#ifndef SW_CONFIG_CONFIG_H
#define SW_CONFIG_CONFIG_H

#include "base/err.h"
#include "base/size.h"
#include "config/json.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define SW_CONFIG_DIRECTORY_BYTES 512
#define SW_CONFIG_MAX_IDS 64
#define SW_CONFIG_PATH_BYTES 108 /* sun_path's length, the longest socket path */
#define SW_CONFIG_GROUP_BYTES 64
#define SW_CONFIG_SIZES "A size is " SW_SIZE_WRITTEN "."

struct json_t; /* jansson.h */

struct sw_config_ids {
    uint32_t n, ids[SW_CONFIG_MAX_IDS]; /* those behind n are 0 */
};

struct sw_config {
    char data_socket[SW_CONFIG_PATH_BYTES];
    uint64_t data_socket_mode;                 /* permission bits */
    char control_socket[SW_CONFIG_PATH_BYTES]; /* "auto", "none", or a path */
    uint64_t control_socket_mode;
    char control_group[SW_CONFIG_GROUP_BYTES], control_read_group[SW_CONFIG_GROUP_BYTES]; /* "none", name or number */
    uint64_t metrics_port;                                                                /* 0: none */
    char device[16];                                                                      /* "auto", "cuda", "host" */
    char log_level[16];
    uint64_t scratch_bytes;   /* per GPU */
    uint64_t chunk_bytes;     /* 0: as large as scratch allows */
    uint64_t slots;           /* 0: the device's choice */
    uint64_t host_tier_bytes; /* bound of the arena */
    uint64_t host_tier_initial_bytes;
    uint64_t host_tier_ahead_pct; /* of host_tier_bytes */
    uint64_t host_tier_slab_bytes;
    char nvme_tier_directory[SW_CONFIG_DIRECTORY_BYTES]; /* "none": no such tier */
    uint64_t nvme_tier_bytes;
    char nvme_encrypt[16];                          /* "off", "on" */
    uint64_t host_tier_high_pct, host_tier_low_pct; /* watermarks, where there is an NVMe tier */
    uint64_t reconnect_grace_s;                     /* for sessions to come back after a restart */
    uint64_t max_sessions;
    uint64_t max_regions, max_session_regions;
    uint64_t max_session_operations, max_session_memories;
    struct sw_config_ids allowed_uids, allowed_gids; /* both empty: everyone */
    char unmapped_users[16];                         /* "refuse", "one_tenant" */
    uint64_t bookkeeping_bytes;                      /* of all tenants, beside a part of the tiers' length */
    /* Of one tenant, in all its sessions; 0: no limit, or a share (regions, sessions, bookkeeping). */
    uint64_t tenant_bytes, tenant_regions, tenant_durable_regions, tenant_sessions, tenant_operations;
    uint64_t tenant_bookkeeping_bytes;
    uint64_t given;     /* bit i: option i was given a value, else it has its default; config.c's own */
    uint64_t from_file; /* bit i: that value stands in `file`, the last one that was loaded; config.c's own */
    char file[SW_JSON_NAME_BYTES];
};

/* The defaults of the table. One that would exceed an option that bounds it is as much as that, for as long as it is
 * not given a value: whoever lowers a bound alone gets a configuration that holds. */
void sw_config_init(struct sw_config *ret);
/* Reads a file over *config; waits: as json.h has it. errors: -SW_ECONFIG with "file:line: key: ...", -SW_EIO. */
int sw_config_load(struct sw_config *config, const char *path, bool waits, struct sw_err *err);
/* Sets one option from "name=value" (as JSON, or a bare word for strings). errors: -SW_ECONFIG. */
int sw_config_set(struct sw_config *config, const char *assignment, struct sw_err *err);
/* Bounds between options (initial <= total, the length of a path made from another ...), which values that were given
 * may break. errors: -SW_ECONFIG, with the file in which the one that does not fit stands. */
int sw_config_check(const struct sw_config *config, struct sw_err *err);
/* The control socket's path: control.sock in the folder of data_socket, if it is "auto"; returns ret. config: checked.
 */
const char *sw_config_control_path(char ret[SW_CONFIG_PATH_BYTES], const struct sw_config *config);
/* Writes a complete, loadable JSON file. */
void sw_config_print(const struct sw_config *config, FILE *out);
/* One paragraph per option, for --help. */
void sw_config_help(FILE *out);

/* An option as its row describes it. */
struct sw_config_option {
    const char *name, *fallback, *help;
    const char *bound;  /* option that the default does not exceed; NULL: it cannot */
    char accepted[128]; /* "a whole number from 0 to 64" */
    bool live;          /* may be changed while the service runs */
};
/* The i-th option; false behind the last. */
bool sw_config_describe(unsigned i, struct sw_config_option *ret);
/* Whether two configurations have different values of the i-th option; and takes its value from one into the other, or
 * its default if `from` was given none, which then fits the bounds of `to`. */
bool sw_config_differs(const struct sw_config *a, const struct sw_config *b, unsigned i);
void sw_config_copy(struct sw_config *to, const struct sw_config *from, unsigned i);
/* Sets one option from a JSON value, as a file would. errors: -SW_ECONFIG. */
int sw_config_store(struct sw_config *config, const char *name, const struct json_t *value, struct sw_err *err);
/* -SW_ECONFIG: there is no option of this name, but perhaps a similar one. */
int sw_config_unknown(const char *name, enum sw_scope scope, struct sw_err *err);
/* All options as an object that loads again. owns: the caller, until json_decref(). NULL: no memory. */
struct json_t *sw_config_to_json(const struct sw_config *config);

#endif
