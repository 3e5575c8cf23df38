/* arguments.h - spillwayctl's command line: the method and its parameters.
 *
 * Commands are the rows of control_methods.h ("config.get" may be given as two words or as one), `top` and `help`.
 * Parameters are given by name (--limit 10) or in the order of their rows. thread: any. */
#ifndef SW_CTL_ARGUMENTS_H
#define SW_CTL_ARGUMENTS_H

#include "daemon/cli.h"
#include "daemon/control/control_methods.h"

/* Options of any command, and of the two that continue. Rows by number. */
enum {
    SW_CTL_OPTION_SOCKET,
    SW_CTL_OPTION_JSON,
    SW_CTL_OPTION_ONCE,
    SW_CTL_OPTION_INTERVAL,
    SW_CTL_OPTION_FOLLOW,
    SW_CTL_OPTION_COUNT,
    SW_CTL_OPTION_WAIT,
    SW_CTL_OPTION_HELP,
    SW_CTL_OPTION_VERSION,
    SW_CTL_OPTION_NR
};
extern const struct sw_cli_option sw_ctl_options[SW_CTL_OPTION_NR + 1];
extern const char sw_ctl_summary[], sw_ctl_exit_codes[], sw_ctl_top_help[], sw_ctl_help_help[];

struct sw_ctl_arguments {
    const char *given[SW_CTL_OPTION_NR]; /* an option's value, "" for one without a value; NULL: not given */
    bool is_top;
    bool is_help;                     /* for the named command, or for all */
    const struct sw_control_row *row; /* NULL: none, or top */
    char first[32];                   /* first word of a command of two words, until the second one follows */
    struct json_t *params;            /* an object; owned */
};
/* Parses the command line. errors: -SW_EINVAL (wrong use), -SW_ENOMEM. Free *ret in any case. */
int sw_ctl_arguments(struct sw_ctl_arguments *ret, int argc, char **argv, struct sw_err *err);
void sw_ctl_arguments_fini(struct sw_ctl_arguments *arguments);

/* Gets a command as it is typed: "config get". Returns ret. */
const char *sw_ctl_command(char *ret, size_t ret_bytes, const struct sw_control_row *row);
/* Prints the help of the named command, or of all commands. */
void sw_ctl_help(FILE *out, const struct sw_ctl_arguments *arguments);

#endif
