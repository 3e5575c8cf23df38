/* arguments.h - spillwayctl's command line: which method, with which parameters.
 *
 * Commands are the rows of control_methods.h, "config.get" being said as two words or as one, and `top` and `help`.
 * Parameters are given by name (--limit 10) or in the order of their rows. thread: any. */
#ifndef SW_CTL_ARGUMENTS_H
#define SW_CTL_ARGUMENTS_H

#include "daemon/cli.h"
#include "daemon/control/control_methods.h"

/* Of any command; and of the two that stay. Rows by number. */
enum {
    SW_CTL_OPTION_SOCKET,
    SW_CTL_OPTION_JSON,
    SW_CTL_OPTION_ONCE,
    SW_CTL_OPTION_INTERVAL,
    SW_CTL_OPTION_FOLLOW,
    SW_CTL_OPTION_COUNT,
    SW_CTL_OPTION_HELP,
    SW_CTL_OPTION_VERSION,
    SW_CTL_OPTION_NR
};
extern const struct sw_cli_option sw_ctl_options[SW_CTL_OPTION_NR + 1];
extern const char sw_ctl_summary[], sw_ctl_exit_codes[], sw_ctl_top_help[], sw_ctl_help_help[];

struct sw_ctl_arguments {
    const char *given[SW_CTL_OPTION_NR]; /* an option's value, "" for one without; NULL: not given */
    bool is_top;
    bool is_help;                     /* of the command that is named, or of all */
    const struct sw_control_row *row; /* NULL: none, or top */
    char first[32];                   /* the word that several commands begin with, before the second one has come */
    struct json_t *params;            /* an object; owned */
};
/* errors: -SW_EINVAL (wrong use), -SW_ENOMEM. Free *ret in any case. */
int sw_ctl_arguments(struct sw_ctl_arguments *ret, int argc, char **argv, struct sw_err *err);
void sw_ctl_arguments_fini(struct sw_ctl_arguments *arguments);

/* A command as it is said: "config get"; returns ret. */
const char *sw_ctl_command(char *ret, size_t ret_bytes, const struct sw_control_row *row);
/* What --help and `help` print: about the command that was named, else about all. */
void sw_ctl_help(FILE *out, const struct sw_ctl_arguments *arguments);

#endif
