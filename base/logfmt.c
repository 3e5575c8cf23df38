#include "base/logfmt.h"

#include <string.h>

static int hex_digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Returns the byte that an escape stands for. *at points after the backslash, and is moved past the escape. */
static char unescape(const char **at) {
    const char c = *(*at)++;
    if (c != 'x' || hex_digit((*at)[0]) < 0 || hex_digit((*at)[1]) < 0)
        return c;
    const int byte = hex_digit((*at)[0]) * 16 + hex_digit((*at)[1]);
    *at += 2;
    return (char)byte;
}

static const char *take_quoted(const char *at, struct sw_logfmt_field *ret) {
    size_t n = 0;
    while (*at && *at != '"') {
        char c = *at++;
        if (c == '\\' && *at)
            c = unescape(&at);
        if (n + 1 < sizeof ret->value)
            ret->value[n++] = c;
    }
    ret->value[n] = 0;
    return *at ? at + 1 : at;
}

static const char *take_bare(const char *at, struct sw_logfmt_field *ret) {
    const size_t length = strcspn(at, " "), n = length < sizeof ret->value ? length : sizeof ret->value - 1;
    memcpy(ret->value, at, n);
    ret->value[n] = 0;
    return at + length;
}

bool sw_logfmt_next(const char **at, struct sw_logfmt_field *ret) {
    const char *start = *at + strspn(*at, " \n");
    const size_t length = strcspn(start, "= \n"), n = length < sizeof ret->name ? length : sizeof ret->name - 1;
    memcpy(ret->name, start, n);
    ret->name[n] = 0;
    ret->value[0] = 0;
    start += length;
    ret->quoted = start[0] == '=' && start[1] == '"';
    if (*start == '=')
        start = ret->quoted ? take_quoted(start + 2, ret) : take_bare(start + 1, ret);
    *at = start;
    return length > 0;
}

bool sw_logfmt_is_number(const struct sw_logfmt_field *field) {
    const size_t length = strlen(field->value);
    return !field->quoted && length > 0 && length < 19 && strspn(field->value, "0123456789") == length;
}
