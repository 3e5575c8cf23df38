#include "base/shorten.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static const char *closing(char opening) {
    switch (opening) {
    case '"':
        return "\"";
    case '[':
        return "]";
    case '{':
        return "}";
    default:
        return "";
    }
}

static bool continues_character(char c) {
    return ((unsigned char)c & 0xc0) == 0x80;
}

const char *sw_shorten(char ret[SW_SHORTENED_BYTES], const char *text) {
    const char *close = closing(text[0]);
    const size_t bytes = strlen(text);
    size_t kept = SW_SHORTENED_BYTES - 1 - strlen("...") - strlen(close);
    while (bytes >= SW_SHORTENED_BYTES && continues_character(text[kept]))
        kept--;
    if (bytes < SW_SHORTENED_BYTES)
        (void)snprintf(ret, SW_SHORTENED_BYTES, "%s", text);
    else
        (void)snprintf(ret, SW_SHORTENED_BYTES, "%.*s...%s", (int)kept, text, close);
    return ret;
}
