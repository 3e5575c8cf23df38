#include "daemon/cli.h"

#include "base/assert.h"
#include <stdbool.h>
#include <string.h>

enum { COLUMNS = 100, HELP_COLUMN = 26 };

void sw_cli_getopt(struct sw_cli_getopt *ret, const struct sw_cli_option *table) {
    size_t n = 0;
    memset(ret, 0, sizeof *ret);
    for (int i = 0; table[i].name; i++) {
        SW_ASSERT(i < SW_CLI_MAX_OPTIONS);
        ret->options[i] = (struct option){.name = table[i].name,
                                          .has_arg = table[i].argument ? required_argument : no_argument,
                                          .val = table[i].letter ? table[i].letter : SW_CLI_FIRST + i};
        if (table[i].letter)
            ret->letters[n++] = table[i].letter;
        if (table[i].letter && table[i].argument)
            ret->letters[n++] = ':';
    }
}

void sw_cli_wrap(FILE *out, const char *text, unsigned indent, unsigned column) {
    for (bool first = true; *text; first = false) {
        const size_t word = strcspn(text, " ");
        if (!first && column + 1 + word > COLUMNS) {
            (void)fprintf(out, "\n%*s", (int)indent, "");
            column = indent;
        } else if (!first) {
            (void)fputc(' ', out);
            column++;
        }
        (void)fprintf(out, "%.*s", (int)word, text);
        column += (unsigned)word;
        text += word + strspn(text + word, " ");
    }
    (void)fputc('\n', out);
}

void sw_cli_help(FILE *out, const struct sw_cli_option *table) {
    for (; table->name; table++) {
        char letter[8] = "    ";
        if (table->letter)
            (void)snprintf(letter, sizeof letter, "-%c, ", table->letter);
        const int n = fprintf(out, "  %s--%s%s%s", letter, table->name, table->argument ? " " : "",
                              table->argument ? table->argument : "");
        (void)fprintf(out, "%*s", n < HELP_COLUMN ? HELP_COLUMN - n : 1, "");
        sw_cli_wrap(out, table->help, HELP_COLUMN, n < HELP_COLUMN ? HELP_COLUMN : (unsigned)n + 1);
    }
}
