#include "daemon/ctl/text_pages.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

enum { LINE_BYTES = 512, COMMENT_BYTES = 1 << 15 };

void sw_roff_put(const char *text) {
    const char *start = text;
    for (; *text; text++) {
        if (*text == '\\')
            (void)fputs("\\e", stdout);
        else if (*text == '-')
            (void)fputs("\\-", stdout);
        else if (text == start && (*text == '.' || *text == '\''))
            (void)printf("\\&%c", *text);
        else if (*text != '`')
            (void)fputc(*text, stdout);
    }
}

static void put_line(const char *text) {
    sw_roff_put(text);
    (void)fputc('\n', stdout);
}

static bool read_line(FILE *in, char line[LINE_BYTES]) {
    if (!fgets(line, LINE_BYTES, in))
        return false;
    line[strcspn(line, "\n")] = 0;
    return true;
}

static bool begins(const char *text, const char *with) {
    return strncmp(text, with, strlen(with)) == 0;
}

/* ---- a help text ------------------------------------------------------------------------------------------------- */

void sw_help_page(FILE *help) {
    char line[LINE_BYTES];
    bool is_list = false;
    (void)printf(".SH DESCRIPTION\n.nf\n");
    while (read_line(help, line)) {
        const char *text = line + strspn(line, " ");
        const size_t indent = (size_t)(text - line);
        const bool is_option = indent >= 2 && indent <= 6 && *text == '-';
        const bool goes_on = is_list && indent > 6 && *text != '-';
        const char *gap = is_option ? strstr(text, "  ") : NULL;
        if (is_option && !is_list)
            (void)printf(".fi\n.SH OPTIONS\n");
        else if (is_list && !is_option && !goes_on && *text)
            (void)printf(".SH NOTES\n.nf\n");
        if (*text)
            is_list = is_option || goes_on;
        if (is_option) {
            (void)printf(".TP\n\\fB");
            if (gap)
                line[gap - line] = 0;
            sw_roff_put(text);
            (void)printf("\\fR\n");
            text = gap ? gap + 1 + strspn(gap + 1, " ") : "";
        }
        if (*text)
            put_line(is_list ? text : line);
        else if (!is_option && !is_list)
            (void)printf(".sp\n");
    }
    if (!is_list)
        (void)printf(".fi\n");
}

/* ---- a header ---------------------------------------------------------------------------------------------------- */

struct header {
    char comment[COMMENT_BYTES]; /* its lines, without the marks; "" if none waits for a declaration */
    bool in_comment, in_code;
};

/* Prints a line of a comment. was_blank: the line before it. */
static void put_comment_line(const char *line, bool was_blank, bool *in_example) {
    const char *text = line + strspn(line, " ");
    const size_t length = strlen(text), indent = (size_t)(text - line);
    const bool is_item = begins(text, "- "), is_example = !is_item && indent >= 4 && (*in_example || was_blank);
    if (is_example != *in_example && *text)
        (void)printf(is_example ? ".PP\n.nf\n" : ".fi\n");
    if (*text)
        *in_example = is_example;
    if (!*text)
        (void)printf(*in_example ? ".sp\n" : ".PP\n");
    else if (is_item)
        (void)printf(".IP \\(bu %zu\n", indent + 2);
    else if (was_blank && indent == 0 && length < 40 && isupper((unsigned char)*text) &&
             !strchr(".:,;", text[length - 1]))
        (void)printf(".SS ");
    if (*text)
        put_line(is_item ? text + 2 : is_example ? line : text);
}

static void put_comment(struct header *h) {
    bool in_example = false, was_blank = false;
    for (char *line = strtok(h->comment, "\n"); line; line = strtok(NULL, "\n")) {
        const bool is_blank = line[strspn(line, " ")] == 0;
        if (!(is_blank && was_blank))
            put_comment_line(line, was_blank, &in_example);
        was_blank = is_blank;
    }
    if (in_example)
        (void)printf(".fi\n");
    h->comment[0] = 0;
}

/* Adds a line of a comment: without its marks, a blank line as one space. */
static void take_comment(struct header *h, const char *line) {
    const char *text = begins(line, "/* ") || begins(line, " * ") ? line + 3 : " ";
    const char *end = strstr(text, " */");
    const size_t had = strlen(h->comment);
    (void)snprintf(h->comment + had, sizeof h->comment - had, "%.*s\n",
                   (int)(end ? (size_t)(end - text) : strlen(text)), text);
    h->in_comment = !strstr(line, "*/");
}

static void end_code(struct header *h) {
    if (!h->in_code)
        return;
    h->in_code = false;
    (void)printf(".fi\n");
    if (h->comment[0]) {
        (void)printf(".RS\n");
        put_comment(h);
        (void)printf(".RE\n");
    }
}

static bool is_machinery(const char *line) {
    return line[0] == '#' || begins(line, "extern \"C\"") || begins(line, "    SPILLWAY_ERROR_LIST") ||
           (begins(line, "}") && !line[1]);
}

void sw_header_page(FILE *header) {
    static struct header h;
    char line[LINE_BYTES];
    (void)printf(".SH DESCRIPTION\n");
    while (read_line(header, line)) {
        const bool is_section = begins(line, "/* ---- ");
        if (h.in_comment || (begins(line, "/*") && !h.in_code && !is_section)) {
            take_comment(&h, line);
        } else if (is_section) {
            (void)printf(".SH \"");
            for (const char *at = line + 8; *at && !begins(at, " ----"); at++)
                (void)fputc(toupper((unsigned char)*at), stdout);
            (void)printf("\"\n");
        } else if (!line[0] || is_machinery(line)) {
            end_code(&h);
            put_comment(&h);
        } else {
            if (!h.in_code)
                (void)printf(".PP\n.nf\n");
            h.in_code = true;
            put_line(line);
        }
    }
    end_code(&h);
    put_comment(&h);
}
