#include "daemon/ctl/print.h"

#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { VALUE_BYTES = 160, NAME_BYTES = 64, MAX_COLUMNS = 24 };

const char *sw_ctl_bytes(char *ret, size_t ret_bytes, double bytes) {
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    unsigned unit = 0;
    for (; bytes >= 1024 && unit + 1 < sizeof units / sizeof units[0]; unit++)
        bytes /= 1024;
    (void)snprintf(ret, ret_bytes, unit && bytes < 100 ? "%.1f %s" : "%.0f %s", bytes, units[unit]);
    return ret;
}

const char *sw_ctl_time(char *ret, size_t ret_bytes, double us) {
    if (us < 1e3)
        (void)snprintf(ret, ret_bytes, "%.0f us", us);
    else if (us < 1e6)
        (void)snprintf(ret, ret_bytes, "%.1f ms", us / 1e3);
    else if (us < 120e6)
        (void)snprintf(ret, ret_bytes, "%.1f s", us / 1e6);
    else if (us < 7200e6)
        (void)snprintf(ret, ret_bytes, "%.0f min", us / 60e6);
    else
        (void)snprintf(ret, ret_bytes, "%.1f h", us / 3600e6);
    return ret;
}

const char *sw_ctl_bar(char ret[SW_CTL_BAR_BYTES], double share) {
    enum { BAR = SW_CTL_BAR_BYTES - 1 };
    const int full = share > 1 ? BAR : (int)(share * BAR + 0.5);
    memset(ret, '.', BAR);
    memset(ret, '#', (size_t)full);
    ret[BAR] = 0;
    return ret;
}

static bool ends_with(const char *text, const char *end) {
    const size_t n = strlen(text), m = strlen(end);
    return n > m && strcmp(text + n - m, end) == 0;
}

/* Returns the length of the control character at this place, in UTF-8; 0: it is another character. */
static size_t control_bytes(const char *text) {
    const unsigned char first = (unsigned char)text[0], second = first ? (unsigned char)text[1] : 0;
    if (first == 0xc2 && second >= 0x80 && second < 0xa0)
        return 2;
    return first < 0x20 || first == 0x7f;
}

/* A value with its own unit gets a heading without unit: "stored", not "stored_bytes", above "4.0 KiB". */
static const char *heading(char *ret, const char *name, const json_t *value) {
    static const char *const units[] = {"_bytes_per_s", "_bytes", "_us"};
    (void)snprintf(ret, NAME_BYTES, "%s", strcmp(name, "bytes") == 0 && json_is_number(value) ? "size" : name);
    for (size_t i = 0; json_is_number(value) && i < sizeof units / sizeof units[0]; i++)
        if (ends_with(ret, units[i]))
            ret[strlen(ret) - strlen(units[i])] = 0;
    return ret;
}

static const char *scalar(char *ret, const char *name, const json_t *value) {
    char number[32];
    if (json_is_string(value)) {
        size_t n = 0;
        for (const char *at = json_string_value(value); *at && n + 1 < VALUE_BYTES; at++) {
            const size_t bytes = control_bytes(at);
            ret[n++] = bytes ? '?' : *at; /* it goes to a terminal */
            at += bytes > 1;
        }
        ret[n] = 0;
    } else if (json_is_boolean(value)) {
        (void)snprintf(ret, VALUE_BYTES, "%s", json_is_true(value) ? "yes" : "no");
    } else if (!json_is_number(value)) {
        (void)snprintf(ret, VALUE_BYTES, "-");
    } else if (ends_with(name, "_bytes_per_s")) {
        (void)snprintf(ret, VALUE_BYTES, "%s/s", sw_ctl_bytes(number, sizeof number, json_number_value(value)));
    } else if (strcmp(name, "bytes") == 0 || ends_with(name, "_bytes")) {
        (void)sw_ctl_bytes(ret, VALUE_BYTES, json_number_value(value));
    } else if (ends_with(name, "_us")) {
        (void)sw_ctl_time(ret, VALUE_BYTES, json_number_value(value));
    } else {
        (void)snprintf(ret, VALUE_BYTES, "%.15g", json_number_value(value));
    }
    return ret;
}

/* ---- tables ------------------------------------------------------------------------------------------------------ */

struct column {
    const char *name;
    char heading[NAME_BYTES];
    size_t width;
    bool right;
};

/* Columns are the names in all rows, in the order of their first appearance. */
static unsigned find_columns(const json_t *rows, struct column columns[MAX_COLUMNS]) {
    unsigned n = 0;
    size_t i;
    json_t *row, *value;
    const char *name;
    char text[VALUE_BYTES];
    json_array_foreach((json_t *)rows, i, row) {
        json_object_foreach(row, name, value) {
            unsigned c = 0;
            while (c < n && strcmp(columns[c].name, name) != 0)
                c++;
            if (c == n && n < MAX_COLUMNS)
                columns[n++] = (struct column){.name = name};
            if (c == n)
                continue;
            if (!columns[c].heading[0] || json_is_number(value))
                (void)heading(columns[c].heading, name, value);
            const size_t width = strlen(scalar(text, name, value));
            columns[c].width = width > columns[c].width ? width : columns[c].width;
            columns[c].right |= json_is_number(value);
        }
    }
    for (unsigned c = 0; c < n; c++) {
        const size_t width = strlen(columns[c].heading);
        columns[c].width = width > columns[c].width ? width : columns[c].width;
    }
    return n;
}

static void print_cell(FILE *out, const struct column *column, const char *text, bool last) {
    const int width = column->right || !last ? (int)column->width : 0;
    (void)fprintf(out, column->right ? "%*s%s" : "%-*s%s", width, text, last ? "\n" : "  ");
}

static void print_table(FILE *out, const json_t *rows) {
    struct column columns[MAX_COLUMNS];
    const unsigned n = find_columns(rows, columns);
    char text[VALUE_BYTES];
    size_t i;
    json_t *row;
    for (unsigned c = 0; c < n; c++)
        print_cell(out, &columns[c], columns[c].heading, c + 1 == n);
    json_array_foreach((json_t *)rows, i, row) {
        for (unsigned c = 0; c < n; c++) {
            const json_t *value = json_object_get(row, columns[c].name);
            print_cell(out, &columns[c], value ? scalar(text, columns[c].name, value) : "-", c + 1 == n);
        }
    }
}

/* ---- objects ----------------------------------------------------------------------------------------------------- */

static bool is_table(const json_t *value) {
    return json_is_array(value) && json_is_object(json_array_get(value, 0));
}

static void print_list(FILE *out, const json_t *array) {
    char text[VALUE_BYTES];
    size_t i;
    json_t *value;
    if (json_array_size(array) == 0)
        (void)fputc('-', out);
    json_array_foreach((json_t *)array, i, value)(void) fprintf(out, "%s%s", i ? ", " : "", scalar(text, "", value));
    (void)fputc('\n', out);
}

static void print_members(FILE *out, const json_t *object, int indent) {
    char text[VALUE_BYTES], shown[NAME_BYTES];
    size_t width = 0;
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)object, name, value) {
        const size_t n = strlen(heading(shown, name, value));
        width = n > width && !json_is_object(value) && !is_table(value) ? n : width;
    }
    json_object_foreach((json_t *)object, name, value) {
        if (json_is_object(value) || is_table(value))
            continue;
        (void)fprintf(out, "%*s%-*s  ", indent, "", (int)width, heading(shown, name, value));
        if (json_is_array(value))
            print_list(out, value);
        else
            (void)fprintf(out, "%s\n", scalar(text, name, value));
    }
}

void sw_ctl_print(FILE *out, const json_t *result) {
    const char *name;
    json_t *value;
    if (json_is_string(result)) {
        (void)fputs(json_string_value(result), out);
        return;
    }
    const bool alone = json_object_size(result) == 1; /* a single table needs no title */
    print_members(out, result, 0);
    json_object_foreach((json_t *)result, name, value) {
        if (!json_is_object(value) && !is_table(value))
            continue;
        if (!alone)
            (void)fprintf(out, "\n%s\n", name);
        if (json_is_object(value) && json_object_size(value) == 0)
            (void)fprintf(out, "  -\n");
        else if (json_is_object(value))
            print_members(out, value, 2);
        else
            print_table(out, value);
    }
}

void sw_ctl_print_event(FILE *out, const json_t *params) {
    char text[VALUE_BYTES], clock[32];
    const json_int_t ms = json_integer_value(json_object_get(params, "time_ms"));
    const time_t seconds = (time_t)(ms / 1000);
    struct tm local;
    const char *name;
    json_t *value;
    (void)strftime(clock, sizeof clock, "%F %T", localtime_r(&seconds, &local));
    (void)fprintf(out, "%s.%03d %s", clock, (int)(ms % 1000), scalar(text, "", json_object_get(params, "event")));
    json_object_foreach((json_t *)params, name, value) {
        if (strcmp(name, "time_ms") == 0 || strcmp(name, "event") == 0 || strcmp(name, "level") == 0)
            continue;
        (void)fprintf(out, " %s=", name);
        if (json_is_string(value))
            (void)fprintf(out, "%s", scalar(text, "", value));
        else
            (void)fprintf(out, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
    }
    (void)fputc('\n', out);
}
