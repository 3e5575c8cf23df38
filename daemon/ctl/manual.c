/* manual.c - writes the manual pages and the completion for bash at build time, from the tables behind --help: manual
 * PAGE FILE. Pages from a text, a header or another program's --help, have it as standard input. Not installed. */
#include "config/config.h"
#include "daemon/control/event_names.h"
#include "daemon/ctl/arguments.h"
#include "daemon/ctl/text_pages.h"
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

static void title(const char *name, const char *section, const char *summary) {
    (void)printf(".TH %s %s \"\" \"Spillway %s\"\n.SH NAME\n", name, section, SW_VERSION);
    for (const char *at = name; *at; at++)
        (void)fputc(tolower((unsigned char)*at), stdout);
    (void)printf(" \\- ");
    sw_roff_put(summary);
    (void)printf("\n");
}

static void section(const char *name) {
    (void)printf(".SH %s\n", name);
}

static void paragraph(const char *text) {
    sw_roff_put(text);
    (void)printf("\n");
}

static void options(const struct sw_cli_option *table) {
    section("OPTIONS");
    for (; table->name; table++) {
        (void)printf(".TP\n");
        if (table->letter)
            (void)printf("\\fB\\-%c\\fR, ", table->letter);
        (void)printf("\\fB\\-\\-");
        sw_roff_put(table->name);
        (void)printf("\\fR%s%s%s\n", table->argument ? " \\fI" : "", table->argument ? table->argument : "",
                     table->argument ? "\\fR" : "");
        paragraph(table->help);
    }
}

static void spillwayd_page(void) {
    title("SPILLWAYD", "8", "GPU memory offload service");
    section("SYNOPSIS");
    (void)printf("\\fBspillwayd\\fR [\\fIOPTION\\fR]...\n");
    section("DESCRIPTION");
    paragraph(sw_spillwayd_summary);
    paragraph("It compresses GPU memory on the GPU, stores it in host memory or on an NVMe disk, and puts the same "
              "bytes back. Clients use libspillway; operators use spillwayctl.");
    options(sw_spillwayd_options);
    section("SIGNALS");
    (void)printf(".TP\nSIGTERM, SIGINT\nStops the service in order; a second signal exits at once.\n.TP\nSIGHUP\n"
                 "Reads the configuration again and applies the options that may change at run time.\n");
    section("\"EXIT STATUS\"");
    paragraph(sw_spillwayd_exit_codes);
    section("FILES");
    (void)printf(".TP\n" SW_CONFIG_FILE "\nThe configuration that the systemd unit uses.\n"
                 ".TP\n/run/spillway/data.sock, /run/spillway/control.sock\nThe sockets of clients and operators.\n");
    section("\"SEE ALSO\"");
    (void)printf(".BR spillwayctl (1),\n.BR spillwayd.json (5),\n.BR libspillway (3)\n");
}

static void config_page(void) {
    struct sw_config_option option;
    title("SPILLWAYD.JSON", "5", "configuration of spillwayd");
    section("DESCRIPTION");
    paragraph("The file is one JSON object whose keys are the options below. An omitted option has its default. An "
              "unknown or repeated key, a wrong type or a value out of bounds is refused with an error that names it. "
              "A size is " SW_SIZE_WRITTEN "; with a unit it is a string: \"256 MiB\".");
    section("OPTIONS");
    for (unsigned i = 0; sw_config_describe(i, &option); i++) {
        (void)printf(".TP\n\\fB");
        sw_roff_put(option.name);
        (void)printf("\\fR\n");
        sw_roff_put(option.help);
        (void)printf("\n.br\nAccepted: ");
        sw_roff_put(option.accepted);
        (void)printf(". Default: ");
        sw_roff_put(option.bound ? "auto, which is " : "");
        sw_roff_put(option.fallback);
        if (option.bound) {
            (void)printf(", or ");
            sw_roff_put(option.bound);
            (void)printf(" if that is less");
        }
        (void)printf(".%s\n", option.live ? " May be changed at run time." : "");
    }
    section("EXAMPLE");
    (void)printf(".nf\n{\"host_tier_bytes\": \"64 GiB\", \"control_group\": \"spillway-admin\"}\n.fi\n");
    section("\"SEE ALSO\"");
    (void)printf(".BR spillwayd (8),\n.BR spillwayctl (1)\n");
}

static void parameter(const struct sw_param *param) {
    char accepted[96];
    (void)printf(".RS\n.TP\n\\fB\\-\\-");
    sw_roff_put(param->name);
    (void)printf("\\fR%s\n", param->required ? " (required)" : "");
    paragraph(param->help);
    (void)printf("Accepted: ");
    sw_roff_put(sw_param_describe(accepted, sizeof accepted, param));
    (void)printf(".\n.RE\n");
}

static void spillwayctl_page(void) {
    char command[48];
    title("SPILLWAYCTL", "1", "manages a running spillwayd");
    section("SYNOPSIS");
    (void)printf("\\fBspillwayctl\\fR [\\fIOPTION\\fR]... \\fICOMMAND\\fR [\\fIARGUMENT\\fR]...\n");
    section("DESCRIPTION");
    paragraph("spillwayctl talks to the control socket of spillwayd. root, the service's own user and members of "
              "control_group may use every command; members of control_read_group may use the commands that change "
              "nothing. Give parameters by name, or in the order below.");
    options(sw_ctl_options);
    section("COMMANDS");
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        const struct sw_control_row *row = &sw_control_rows[i];
        (void)printf(".TP\n\\fB");
        sw_roff_put(sw_ctl_command(command, sizeof command, row));
        (void)printf("\\fR\n");
        paragraph(row->help);
        for (const struct sw_param *param = row->params; param->name; param++)
            parameter(param);
    }
    (void)printf(".TP\n\\fBtop\\fR\n");
    paragraph(sw_ctl_top_help);
    (void)printf(".TP\n\\fBhelp\\fR [\\fICOMMAND\\fR]\n");
    paragraph(sw_ctl_help_help);
    section("EVENTS");
    paragraph("The option --only of `events` takes these names. The part of a name before a dot stands for all events "
              "that begin so:");
    for (const char *const *name = sw_event_names; *name; name++) {
        sw_roff_put(*name);
        (void)printf("%s\n", name[1] ? "," : ".");
    }
    section("\"EXIT STATUS\"");
    paragraph(sw_ctl_exit_codes);
    section("PROTOCOL");
    paragraph("The socket speaks JSON-RPC 2.0, one object or batch per line; the methods are the commands, with a "
              "dot between their words.");
    section("\"SEE ALSO\"");
    (void)printf(".BR spillwayd (8),\n.BR spillwayd.json (5)\n");
}

static const struct sw_control_row *same_command(const char *first, size_t bytes) {
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        if (strncmp(sw_control_rows[i].name, first, bytes) == 0)
            return &sw_control_rows[i];
    return NULL;
}

/* Prints the words after a command: the names of its parameters, and the choices of one that takes a choice. */
static void completion_case(const struct sw_control_row *row) {
    char command[48];
    (void)printf("    '%s') words='", sw_ctl_command(command, sizeof command, row));
    for (const struct sw_param *param = row->params; param->name; param++) {
        (void)printf("--%s ", param->name);
        for (const char *at =
                 param->type == SW_PARAM_CHOICE && (param->required || !row->params[1].name) ? param->choices : "";
             *at; at++)
            if (*at != ',')
                (void)fputc(*at, stdout);
        (void)fputc(' ', stdout);
    }
    (void)printf("' ;;\n");
}

/* Prints the second words of commands of two. */
static void completion_first(const struct sw_control_row *row) {
    const size_t n = strcspn(row->name, ".");
    if (!row->name[n] || same_command(row->name, n) != row)
        return;
    (void)printf("    %.*s) words='", (int)n, row->name);
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        if (strncmp(sw_control_rows[i].name, row->name, n + 1) == 0)
            (void)printf("%s ", sw_control_rows[i].name + n + 1);
    (void)printf("' ;;\n");
}

static void completion(void) {
    (void)printf("# Completion of spillwayctl for bash, made from its tables.\n_spillwayctl() {\n"
                 "  local current=${COMP_WORDS[COMP_CWORD]} command= word words i\n"
                 "  for ((i = 1; i < COMP_CWORD; i++)); do\n    word=${COMP_WORDS[i]}\n"
                 "    [[ $word == -s || $word == --socket ]] && ((i++))\n"
                 "    [[ $word == -* ]] || command=\"$command${command:+ }$word\"\n  done\n"
                 "  case \"$command\" in\n    '' | help) words='top help ");
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        const size_t n = strcspn(sw_control_rows[i].name, ".");
        if (same_command(sw_control_rows[i].name, n) == &sw_control_rows[i])
            (void)printf("%.*s ", (int)n, sw_control_rows[i].name);
    }
    (void)printf("' ;;\n");
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        completion_first(&sw_control_rows[i]);
    for (size_t i = 0; i < SW_CONTROL_METHOD_NR; i++)
        completion_case(&sw_control_rows[i]);
    (void)printf("    *) words= ;;\n  esac\n  words=\"$words");
    for (size_t i = 0; i < SW_CTL_OPTION_NR; i++)
        (void)printf(" --%s", sw_ctl_options[i].name);
    (void)printf("\"\n  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n}\n"
                 "complete -F _spillwayctl spillwayctl\n");
}

static void from_text(const char *name, const char *section_number, const char *summary, void (*write)(FILE *text)) {
    title(name, section_number, summary);
    write(stdin);
    section("\"SEE ALSO\"");
    (void)printf(".BR spillwayd (8),\n.BR spillwayctl (1),\n.BR libspillway (3)\n");
}

static void library_page(void) {
    from_text("SPILLWAY", "3", "the functions and types of libspillway (spillway.h)", sw_header_page);
}

static void pool_page(void) {
    from_text("SPILLWAY_POOL", "3", "manages an engine's buffers by libspillway (spillway_pool.h)", sw_header_page);
}

static void bench_page(void) {
    from_text("SPILLWAY-BENCH", "1", "measures spills and restores of a running spillwayd", sw_help_page);
}

static void codec_page(void) {
    from_text("SWCODEC", "1", "compresses files as spillwayd compresses memory", sw_help_page);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*write)(void);
    } pages[] = {{"spillwayd.8", spillwayd_page},   {"spillwayctl.1", spillwayctl_page},
                 {"spillwayd.json.5", config_page}, {"spillway.3", library_page},
                 {"spillway_pool.3", pool_page},    {"spillway-bench.1", bench_page},
                 {"swcodec.1", codec_page},         {"completion", completion}};
    for (size_t i = 0; i < sizeof pages / sizeof pages[0]; i++)
        if (argc == 3 && strcmp(argv[1], pages[i].name) == 0) {
            if (!freopen(argv[2], "w", stdout))
                return EXIT_FAILURE;
            pages[i].write();
            return fflush(stdout) == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
        }
    (void)fprintf(stderr, "usage: manual PAGE FILE\n");
    return EXIT_FAILURE;
}
