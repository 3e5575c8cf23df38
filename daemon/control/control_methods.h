/* control_methods.h - every method of the control socket as one row: name, parameters, rights, help.
 *
 * Parameter checks, spillwayctl with its help and completion, and the man pages are made from this table;
 * control_handlers.c has the code of the methods. A method exists if and only if it is here. Rows describe a method,
 * and know nothing of a running service: spillwayctl links them without the daemon. thread: any, no state. */
#ifndef SW_DAEMON_CONTROL_METHODS_H
#define SW_DAEMON_CONTROL_METHODS_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct json_t; /* jansson.h */

enum sw_control_method {
    SW_CONTROL_STATUS,
    SW_CONTROL_STATS,
    SW_CONTROL_SESSIONS,
    SW_CONTROL_TENANTS,
    SW_CONTROL_REGIONS,
    SW_CONTROL_TIERS,
    SW_CONTROL_SNAPSHOT,
    SW_CONTROL_CONFIG_GET,
    SW_CONTROL_CONFIG_SET,
    SW_CONTROL_CONFIG_RELOAD,
    SW_CONTROL_DRAIN,
    SW_CONTROL_SPILL,
    SW_CONTROL_DEMOTE,
    SW_CONTROL_PROMOTE,
    SW_CONTROL_DROP,
    SW_CONTROL_REMOTE_GC,
    SW_CONTROL_REMOTE_REWRAP,
    SW_CONTROL_LOG_LEVEL,
    SW_CONTROL_EVENTS,
    SW_CONTROL_METRICS,
    SW_CONTROL_METHOD_NR
};

enum sw_param_type {
    SW_PARAM_NUMBER, /* whole, in bounds */
    SW_PARAM_BYTES,  /* whole, in bounds, or a string that size.h can read */
    SW_PARAM_TEXT,   /* 1 to `max` bytes */
    SW_PARAM_CHOICE, /* one of `choices` */
    SW_PARAM_REGION, /* "slot:generation" */
    SW_PARAM_VALUE   /* a string, a number, a boolean or a list: the value of an option */
};

struct sw_param {
    const char *name; /* NULL ends a method's rows */
    enum sw_param_type type;
    bool required;
    bool by_name; /* spillwayctl takes it only by name: --name X */
    uint64_t min, max;
    const char *choices; /* separated by ", " */
    const char *help;
};

/* The rights of a peer; each includes the earlier ones. */
enum sw_control_right { SW_CONTROL_NOTHING, SW_CONTROL_READ, SW_CONTROL_ALL };

enum { SW_CONTROL_MAX_PARAMS = 7 };

struct sw_control_row {
    const char *name;
    enum sw_control_right right; /* the least right that is needed */
    const char *help;            /* whole sentences */
    struct sw_param params[SW_CONTROL_MAX_PARAMS + 1];
    bool sets_up; /* it changes what its own connection receives, for which SW_CONTROL_READ is enough */
};
extern const struct sw_control_row sw_control_rows[SW_CONTROL_METHOD_NR];

/* Returns the method's row, or NULL. */
const struct sw_control_row *sw_control_find(const char *name);

/* Checked parameters, in the order of their rows. */
struct sw_control_args {
    struct sw_control_arg {
        bool given;
        uint64_t number;            /* NUMBER, BYTES; a REGION's slot */
        uint32_t gen;               /* REGION */
        const char *text;           /* TEXT, CHOICE: borrowed from the parameters */
        const struct json_t *value; /* VALUE: borrowed likewise */
    } arg[SW_CONTROL_MAX_PARAMS];
};
/* Checks parameters, an object by name or an array by position; NULL: none. errors: -SW_EINVAL, naming the parameter,
 * its value and the accepted values. */
int sw_control_check(const struct sw_control_row *row, const struct json_t *params, struct sw_control_args *ret,
                     struct sw_err *err);

/* Describes accepted values, such as "a whole number from 1 to 1000", for errors, help and man pages. Returns ret. */
const char *sw_param_describe(char *ret, size_t ret_bytes, const struct sw_param *param);

#endif
