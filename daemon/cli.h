/* cli.h - a program's command line as a table, from which getopt_long()'s arguments, --help and the man page are made.
 *
 * thread: any, no state. */
#ifndef SW_DAEMON_CLI_H
#define SW_DAEMON_CLI_H

#include <getopt.h>
#include <stdio.h>

struct sw_cli_option {
    const char *name;     /* NULL ends the table */
    char letter;          /* 0: none */
    const char *argument; /* its name in the help; NULL: it takes none */
    const char *help;
};

enum { SW_CLI_MAX_OPTIONS = 16, SW_CLI_FIRST = 256 };

/* The table as getopt_long() needs it. An option without a letter is reported as SW_CLI_FIRST plus its row's number. */
struct sw_cli_getopt {
    struct option options[SW_CLI_MAX_OPTIONS + 1];
    char letters[2 * SW_CLI_MAX_OPTIONS + 1];
};
void sw_cli_getopt(struct sw_cli_getopt *ret, const struct sw_cli_option *table);

/* Prints the options, one or more lines each. */
void sw_cli_help(FILE *out, const struct sw_cli_option *table);
/* Prints the words of `text` in lines of at most 100 columns, with all lines but the first indented. `column`: where
 * the first line begins. */
void sw_cli_wrap(FILE *out, const char *text, unsigned indent, unsigned column);

/* spillwayd's options (spillwayd_options.c); rows by number. */
enum {
    SW_SPILLWAYD_CONFIG,
    SW_SPILLWAYD_SET,
    SW_SPILLWAYD_CHECK,
    SW_SPILLWAYD_PRINT,
    SW_SPILLWAYD_DRY_RUN,
    SW_SPILLWAYD_CHECK_TIER,
    SW_SPILLWAYD_EOF,
    SW_SPILLWAYD_HELP,
    SW_SPILLWAYD_VERSION,
    SW_SPILLWAYD_NR
};
extern const struct sw_cli_option sw_spillwayd_options[SW_SPILLWAYD_NR + 1];
extern const char sw_spillwayd_summary[], sw_spillwayd_exit_codes[];

#endif
