#include "daemon/ctl/arguments.h"

#include "base/choice.h"
#include "base/similar.h"
#include "daemon/ctl/connection.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char sw_ctl_summary[] = "Manages a running spillwayd.";
const char sw_ctl_exit_codes[] = "0 success, 1 the service refused the command (also for a wrong parameter) or failed, "
                                 "2 wrong use of the command line, 3 no service answers, or it is not trusted.";
const char sw_ctl_top_help[] =
    "Shows rates, tiers and sessions, and updates them until `q` is pressed, also across a restart. On a "
    "terminal it shows what fits the window. It takes no --json: use stats, tiers and sessions instead.";
const char sw_ctl_help_help[] = "Prints what a command does and takes; without a command, for all commands.";

const struct sw_cli_option sw_ctl_options[] = {
    [SW_CTL_OPTION_SOCKET] =
        {"socket", 's', "PATH",
         "the service's control socket; if omitted, $SPILLWAY_CONTROL_SOCKET, or " SW_CTL_SOCKET
         ". It must be served by root, by this user, by the owner of its folder or by the user whose uid is in "
         "$SPILLWAY_SERVICE_UID"},
    [SW_CTL_OPTION_JSON] = {"json", 'j', NULL, "print the service's answer as JSON; not for top"},
    [SW_CTL_OPTION_ONCE] = {"once", 0, NULL, "top: print one snapshot and exit"},
    [SW_CTL_OPTION_INTERVAL] = {"interval", 0, "SECONDS", "top: time between two updates, 0.05 to 3600; 1 if omitted"},
    [SW_CTL_OPTION_FOLLOW] = {"follow", 'f', NULL, "events: continue until interrupted, also across a restart"},
    [SW_CTL_OPTION_COUNT] = {"count", 'n', "NUMBER", "events: exit after this many, at least 1; 1 if omitted"},
    [SW_CTL_OPTION_WAIT] =
        {"wait", 'w', NULL,
         "drain, spill, demote, promote: wait until it is done, and show a bar on a terminal. drain: "
         "until no region is stored; spill: until the last move has begun"},
    [SW_CTL_OPTION_HELP] = {"help", 'h', NULL, "print this and exit"},
    [SW_CTL_OPTION_VERSION] = {"version", 'V', NULL, "print the version and exit"},
    [SW_CTL_OPTION_NR] = {.name = NULL},
};

const char *sw_ctl_command(char *ret, size_t ret_bytes, const struct sw_control_row *row) {
    (void)snprintf(ret, ret_bytes, "%s", row->name);
    for (char *at = ret; *at; at++)
        if (*at == '.')
            *at = ' ';
    return ret;
}

static int wrong(struct sw_err *err, const char *fact, const char *what) {
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "%s '%.48s'", fact, what);
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

static bool is_whole(const char *text) {
    const size_t n = strlen(text);
    return n > 0 && n < 19 && strspn(text, "0123456789") == n && (text[0] != '0' || n == 1);
}

static json_t *to_json(enum sw_param_type type, const char *text) {
    if (type != SW_PARAM_TEXT && type != SW_PARAM_CHOICE && is_whole(text))
        return json_integer(strtoll(text, NULL, 10));
    json_t *list =
        type == SW_PARAM_VALUE && text[0] == '[' ? json_loads(text, 0, NULL) : NULL; /* else the service says */
    return list ? list : json_string(text);
}

static int set_param(struct sw_ctl_arguments *ret, const struct sw_param *param, const char *text, struct sw_err *err) {
    json_t *value = to_json(param->type, text);
    if (!value)
        return wrong(err, "not UTF-8:", text);
    if (json_object_get(ret->params, param->name)) {
        json_decref(value);
        return wrong(err, "given twice:", param->name);
    }
    (void)json_object_set_new(ret->params, param->name, value);
    return 0;
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

static const char *const own_commands[] = {"top", "help"};

static int unknown_command(struct sw_err *err, const char *said) {
    char hint[80], command[48];
    struct sw_similar best = {.edits = 0};
    for (size_t i = 0; i < sizeof own_commands / sizeof own_commands[0]; i++)
        sw_similar_try(&best, said, own_commands[i]);
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        sw_similar_try(&best, said, sw_ctl_command(command, sizeof command, &sw_control_rows[i]));
        command[strcspn(command, " ")] = 0; /* also the first word of commands of two */
        sw_similar_try(&best, said, command);
    }
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "there is no command '%.40s'%s", said,
                      sw_similar_hint(hint, sizeof hint, &best));
}

/* Returns whether a command of two words begins with this word. */
static bool begins_command(const char *word) {
    const size_t n = strlen(word);
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        if (strncmp(sw_control_rows[i].name, word, n) == 0 && sw_control_rows[i].name[n] == '.')
            return true;
    return false;
}

/* Takes the command's first or second word. */
static int take_command(struct sw_ctl_arguments *ret, const char *word, struct sw_err *err) {
    char name[48];
    if (!ret->first[0] && !ret->is_help && strcmp(word, "help") == 0) {
        ret->is_help = true;
        return 0;
    }
    (void)snprintf(name, sizeof name, "%.20s%s%.20s", ret->first, ret->first[0] ? "." : "", word);
    ret->row = sw_control_find(name);
    ret->is_top = strcmp(name, "top") == 0;
    if (ret->row || ret->is_top)
        return 0;
    if (!ret->first[0] && strlen(word) < sizeof ret->first && begins_command(word)) {
        (void)snprintf(ret->first, sizeof ret->first, "%s", word);
        return 0;
    }
    if (ret->first[0])
        *strchr(name, '.') = ' ';
    return unknown_command(err, ret->first[0] ? name : word);
}

static int take_positional(struct sw_ctl_arguments *ret, const char *word, struct sw_err *err) {
    for (const struct sw_param *param = ret->row ? ret->row->params : NULL; param && param->name; param++)
        if (!param->by_name && !json_object_get(ret->params, param->name))
            return set_param(ret, param, word, err);
    return wrong(err, "unexpected argument", word);
}

static int find_option(const char *name, size_t bytes) {
    for (int i = 0; i < SW_CTL_OPTION_NR; i++)
        if ((bytes == 1 && sw_ctl_options[i].letter == name[0]) ||
            (strlen(sw_ctl_options[i].name) == bytes && strncmp(sw_ctl_options[i].name, name, bytes) == 0))
            return i;
    return -1;
}

static const struct sw_param *find_param(const struct sw_control_row *row, const char *name, size_t bytes) {
    for (const struct sw_param *param = row ? row->params : NULL; param && param->name; param++)
        if (strlen(param->name) == bytes && strncmp(param->name, name, bytes) == 0)
            return param;
    return NULL;
}

static int unknown_option(const struct sw_control_row *row, const char *word, size_t bytes, struct sw_err *err) {
    char hint[80], name[48], known[48];
    struct sw_similar best = {.edits = 0};
    (void)snprintf(name, sizeof name, "%.*s", (int)(bytes < 40 ? bytes : 40), word);
    for (int i = 0; i < SW_CTL_OPTION_NR; i++) {
        (void)snprintf(known, sizeof known, "--%s", sw_ctl_options[i].name);
        sw_similar_try(&best, name, known);
    }
    for (const struct sw_param *param = row ? row->params : NULL; param && param->name; param++) {
        (void)snprintf(known, sizeof known, "--%s", param->name);
        sw_similar_try(&best, name, known);
    }
    return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "unknown option '%s'%s", name,
                      sw_similar_hint(hint, sizeof hint, &best));
}

/* Takes -x, --name, --name=value. *at: the word; moved to the value if it is a word of its own. */
static int take_option(struct sw_ctl_arguments *ret, char **argv, int argc, int *at, struct sw_err *err) {
    const char *word = argv[*at], *name = word + (word[1] == '-' ? 2 : 1);
    const size_t bytes = word[1] == '-' ? strcspn(name, "=") : 1;
    const int option = find_option(name, bytes);
    const struct sw_param *param = word[1] == '-' ? find_param(ret->row, name, bytes) : NULL;
    const char *value = name[bytes] ? name + bytes + (name[bytes] == '=') : NULL;
    if ((!param && option < 0) || (word[1] != '-' && option >= 0 && !sw_ctl_options[option].argument && name[1]))
        return unknown_option(ret->row, word, word[1] == '-' ? bytes + 2 : strlen(word), err);
    if (!param && !sw_ctl_options[option].argument) {
        ret->given[option] = "";
        return value ? wrong(err, "takes no value:", word) : 0;
    }
    if (!value && ++*at >= argc)
        return wrong(err, "needs a value:", word);
    value = value ? value : argv[*at];
    if (param)
        return set_param(ret, param, value, err);
    ret->given[option] = value;
    return 0;
}

int sw_ctl_arguments(struct sw_ctl_arguments *ret, int argc, char **argv, struct sw_err *err) {
    int rc = 0;
    *ret = (struct sw_ctl_arguments){.params = json_object()};
    if (!ret->params)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory");
    for (int i = 1; i < argc && rc == 0; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            rc = take_option(ret, argv, argc, &i, err);
        else if (!ret->row && !ret->is_top)
            rc = take_command(ret, argv[i], err);
        else
            rc = take_positional(ret, argv[i], err);
    }
    ret->is_help |= ret->given[SW_CTL_OPTION_HELP] != NULL;
    if (rc == 0 && ret->first[0] && !ret->row && !ret->is_help)
        rc = wrong(err, "a word is missing after", ret->first);
    return rc;
}

void sw_ctl_arguments_fini(struct sw_ctl_arguments *arguments) {
    json_decref(arguments->params);
    arguments->params = NULL;
}

/* ---- help -------------------------------------------------------------------------------------------------------- */

static void help_param(FILE *out, const struct sw_param *param) {
    char accepted[96];
    const int n = fprintf(out, "      --%s: ", param->name);
    (void)fprintf(out, "%s%s. ", sw_param_describe(accepted, sizeof accepted, param),
                  param->required ? "; required" : "");
    sw_cli_wrap(out, param->help, 10, (unsigned)n + (unsigned)strlen(accepted) + (param->required ? 12 : 2));
}

/* Prints the help of spillwayctl's own commands, which have no row. */
static void help_own(FILE *out, const char *name, const char *text) {
    (void)fprintf(out, "  %s\n      ", name);
    sw_cli_wrap(out, text, 6, 6);
}

static void help_row(FILE *out, const struct sw_control_row *row) {
    char command[48];
    help_own(out, sw_ctl_command(command, sizeof command, row), row->help);
    for (const struct sw_param *param = row->params; param->name; param++)
        help_param(out, param);
}

/* Returns whether the help should include a command: it was named, or it begins with the given first word, or no
 * command was named. */
static bool is_meant(const struct sw_ctl_arguments *arguments, const struct sw_control_row *row) {
    const size_t n = strlen(arguments->first);
    if (arguments->is_top)
        return false;
    return arguments->row ? row == arguments->row : strncmp(row->name, arguments->first, n) == 0;
}

/* Prints options that only this command takes. */
static void help_options_of(FILE *out, const char *command) {
    char commands[64];
    for (int i = 0; i < SW_CTL_OPTION_NR; i++) {
        const char *help = sw_ctl_options[i].help;
        const size_t n = strcspn(help, ":");
        (void)snprintf(commands, sizeof commands, "%.*s", (int)n, help);
        if (help[n] && sw_choice_has(commands, command))
            (void)fprintf(out, "      --%s%s%s:%s.\n", sw_ctl_options[i].name, sw_ctl_options[i].argument ? " " : "",
                          sw_ctl_options[i].argument ? sw_ctl_options[i].argument : "", help + n + 1);
    }
}

static void help_usage(FILE *out) {
    (void)fprintf(out, "Usage: spillwayctl [OPTION]... COMMAND [ARGUMENT]...\n%s\n\n", sw_ctl_summary);
    sw_cli_help(out, sw_ctl_options);
    (void)fprintf(out, "\nExit codes: ");
    sw_cli_wrap(out, sw_ctl_exit_codes, 0, 12);
    (void)fprintf(out, "\nCommands, with parameters by name or in this order:\n");
}

void sw_ctl_help(FILE *out, const struct sw_ctl_arguments *arguments) {
    const bool of_all = !arguments->row && !arguments->is_top && !arguments->first[0];
    if (of_all)
        help_usage(out);
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        if (is_meant(arguments, &sw_control_rows[i]))
            help_row(out, &sw_control_rows[i]);
    if (of_all || arguments->is_top)
        help_own(out, "top", sw_ctl_top_help);
    if (of_all)
        help_own(out, "help", sw_ctl_help_help);
    if (!of_all)
        help_options_of(out, arguments->is_top ? "top" : arguments->row ? arguments->row->name : arguments->first);
    if (!of_all)
        (void)fprintf(out, "Options of every command: spillwayctl --help\n");
}
