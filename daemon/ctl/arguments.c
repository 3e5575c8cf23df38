#include "daemon/ctl/arguments.h"

#include "daemon/ctl/connection.h"
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

const char sw_ctl_summary[] = "Looks after a spillwayd that runs.";
const char sw_ctl_exit_codes[] = "0 done, 1 the service refused (also a wrong parameter of a command) or failed, "
                                 "2 wrong use of the command line, 3 no service answers, or one that is not trusted.";
const char sw_ctl_top_help[] = "Shows rates, tiers and sessions, again and again, also over a restart. It takes no "
                               "--json: use stats, tiers and sessions for that.";

const struct sw_cli_option sw_ctl_options[] = {
    [SW_CTL_OPTION_SOCKET] =
        {"socket", 's', "PATH",
         "the service's control socket; $SPILLWAY_CONTROL_SOCKET, or " SW_CTL_SOCKET
         ", if it is left out. It must be served by root, by this user, by the owner of its folder "
         "or by the user whose uid is in $SPILLWAY_SERVICE_UID"},
    [SW_CTL_OPTION_JSON] = {"json", 'j', NULL, "print what the service answers as JSON; not for top"},
    [SW_CTL_OPTION_ONCE] = {"once", 0, NULL, "top: print one snapshot and exit"},
    [SW_CTL_OPTION_INTERVAL] = {"interval", 0, "SECONDS",
                                "top: time between two looks, 0.05 to 3600; 1 if it is left out"},
    [SW_CTL_OPTION_FOLLOW] = {"follow", 'f', NULL, "events: go on until interrupted, also over a restart"},
    [SW_CTL_OPTION_COUNT] = {"count", 'n', "NUMBER", "events: exit after so many, at least 1; 1 if it is left out"},
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

/* "4GiB" as bytes; what is none stays text, and the service says what it would have taken. */
static json_t *bytes_value(const char *text) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    char *end;
    const uint64_t number = strtoull(text, &end, 10);
    const char *unit = end + strspn(end, " ");
    for (unsigned i = 0; i < sizeof units / sizeof units[0] && text[0] >= '0' && text[0] <= '9'; i++)
        if (strcmp(unit, units[i]) == 0 && number <= (uint64_t)INT64_MAX >> (10 * i))
            return json_integer((json_int_t)number << (10 * i));
    return json_string(text);
}

static json_t *to_json(enum sw_param_type type, const char *text) {
    if (type != SW_PARAM_TEXT && type != SW_PARAM_CHOICE && is_whole(text))
        return json_integer(strtoll(text, NULL, 10));
    return type == SW_PARAM_BYTES ? bytes_value(text) : json_string(text);
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

/* The command's first or second word. */
static int take_command(struct sw_ctl_arguments *ret, char *first, size_t first_bytes, const char *word,
                        struct sw_err *err) {
    char name[48];
    (void)snprintf(name, sizeof name, "%.20s%s%.20s", first, first[0] ? "." : "", word);
    ret->row = sw_control_find(name);
    ret->is_top = strcmp(name, "top") == 0;
    if (ret->row || ret->is_top)
        return 0;
    if (first[0])
        return wrong(err, "there is no command", name);
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        if (strncmp(sw_control_rows[i].name, word, strlen(word)) == 0 && sw_control_rows[i].name[strlen(word)] == '.') {
            (void)snprintf(first, first_bytes, "%s", word);
            return 0;
        }
    return wrong(err, "there is no command", word);
}

static int take_positional(struct sw_ctl_arguments *ret, const char *word, struct sw_err *err) {
    for (const struct sw_param *param = ret->row ? ret->row->params : NULL; param && param->name; param++)
        if (!json_object_get(ret->params, param->name))
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

/* -x, --name, --name=value; *at: the word, moved to the value if that is a word of its own. */
static int take_option(struct sw_ctl_arguments *ret, char **argv, int argc, int *at, struct sw_err *err) {
    const char *word = argv[*at], *name = word + (word[1] == '-' ? 2 : 1);
    const size_t bytes = word[1] == '-' ? strcspn(name, "=") : 1;
    const int option = find_option(name, bytes);
    const struct sw_param *param = word[1] == '-' ? find_param(ret->row, name, bytes) : NULL;
    const char *value = name[bytes] ? name + bytes + (name[bytes] == '=') : NULL;
    if ((!param && option < 0) || (word[1] != '-' && option >= 0 && !sw_ctl_options[option].argument && name[1]))
        return wrong(err, "unknown option", word);
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
    char first[32] = "";
    int rc = 0;
    *ret = (struct sw_ctl_arguments){.params = json_object()};
    if (!ret->params)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory");
    for (int i = 1; i < argc && rc == 0; i++) {
        if (argv[i][0] == '-' && argv[i][1])
            rc = take_option(ret, argv, argc, &i, err);
        else if (!ret->row && !ret->is_top)
            rc = take_command(ret, first, sizeof first, argv[i], err);
        else
            rc = take_positional(ret, argv[i], err);
    }
    if (rc == 0 && first[0] && !ret->row)
        rc = wrong(err, "a word is missing behind", first);
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
                  param->required ? "; needed" : "");
    sw_cli_wrap(out, param->help, 10, (unsigned)n + (unsigned)strlen(accepted) + (param->required ? 10 : 2));
}

void sw_ctl_help(FILE *out) {
    char command[48];
    (void)fprintf(out, "Usage: spillwayctl [OPTION]... COMMAND [ARGUMENT]...\n%s\n\n", sw_ctl_summary);
    sw_cli_help(out, sw_ctl_options);
    (void)fprintf(out, "\nExit codes: ");
    sw_cli_wrap(out, sw_ctl_exit_codes, 0, 12);
    (void)fprintf(out, "\nCommands, with parameters by name or in this order:\n");
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        const struct sw_control_row *row = &sw_control_rows[i];
        (void)fprintf(out, "  %s\n      ", sw_ctl_command(command, sizeof command, row));
        sw_cli_wrap(out, row->help, 6, 6);
        for (const struct sw_param *param = row->params; param->name; param++)
            help_param(out, param);
    }
    (void)fprintf(out, "  top\n      ");
    sw_cli_wrap(out, sw_ctl_top_help, 6, 6);
}
