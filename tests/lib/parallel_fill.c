#include "tests/lib/parallel_fill.h"

#include "base/alloc.h"
#include "codec/bitpack/bitpack_core.h"
#include "tests/lib/content.h"
#include "tests/lib/numbers.h"
#include "tests/lib/tpch_tables.h"
#include "tests/lib/tpch_text.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_THREADS = 64, SEED = 1, TABLE_ORDERS = 100000 };

struct part {
    uint8_t *to;
    uint64_t offset, bytes;
    void (*fill)(struct part *part);
    /* Of columns of numbers. */
    enum sw_value_type type;
    enum sw_numbers kind;
    unsigned bits;
    pthread_t thread;
};

static void fill_tpch(struct part *part) {
    sw_tpch_text_fill(part->to, part->offset, part->bytes, SEED);
}

static void fill_random(struct part *part) {
    sw_content_fill(part->to, part->bytes, SW_CONTENT_RANDOM, SEED + part->offset);
}

static void fill_numbers(struct part *part) {
    const uint64_t first = part->offset / (sw_value_bits(part->type) / 8);
    sw_numbers_fill(part->to, first, part->bytes, part->type, part->kind, part->bits, SEED);
}

static void *run_part(void *arg) {
    struct part *part = arg;
    part->fill(part);
    return NULL;
}

/* model: the fields that all parts share. Each begins with a value of any type. */
static int fill_in_parts(uint8_t *ret, uint64_t bytes, const struct part *model) {
    struct part parts[MAX_THREADS];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned n = online < 1 ? 1 : online > MAX_THREADS ? MAX_THREADS : (unsigned)online;
    unsigned started = 0;
    for (; started < n; started++) {
        const uint64_t share = bytes / n / 8 * 8, from = share * started;
        parts[started] = *model;
        parts[started].to = ret + from;
        parts[started].offset = from;
        parts[started].bytes = (started == n - 1 ? bytes : from + share) - from;
        if (pthread_create(&parts[started].thread, NULL, run_part, &parts[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(parts[i].thread, NULL);
    return started == n ? 0 : -SW_ENOMEM;
}

/* Repeats the first bytes. */
static void fill_by_repeating(uint8_t *ret, uint64_t have, uint64_t bytes) {
    for (uint64_t at = have; at < bytes;) {
        const uint64_t n = at < bytes - at ? at : bytes - at;
        memcpy(ret + at, ret, n);
        at += n;
    }
}

static int fill_from_table(uint8_t *ret, uint64_t bytes, enum sw_tpch_column column) {
    struct sw_tpch *tpch = sw_tpch_new(1, SEED);
    uint64_t have = 0;
    int rc = tpch ? 0 : -SW_ENOMEM;
    for (uint64_t first = 0; rc == 0 && have < bytes && first < sw_tpch_orders(tpch); first += TABLE_ORDERS) {
        const uint64_t rows = sw_tpch_rows(tpch, column, first, TABLE_ORDERS);
        uint8_t *data = sw_alloc(sw_tpch_bound_bytes(column, rows));
        int32_t *offsets = sw_alloc((rows + 1) * sizeof *offsets);
        rc = data && offsets ? 0 : -SW_ENOMEM;
        const uint64_t made = rc == 0 ? sw_tpch_fill(tpch, column, first, TABLE_ORDERS, data, offsets) : 0;
        const uint64_t used = made < bytes - have ? made : bytes - have;
        if (used)
            memcpy(ret + have, data, used);
        have += used;
        sw_free(offsets);
        sw_free(data);
    }
    sw_tpch_free(tpch);
    if (rc == 0)
        fill_by_repeating(ret, have, bytes);
    return rc;
}

static int fill_from_file(uint8_t *ret, uint64_t bytes, const char *path) {
    struct stat st;
    FILE *file = fopen(path, "rbe");
    if (!file)
        return sw_err_from_errno(errno);
    int rc = fstat(fileno(file), &st) == 0 && st.st_size > 0 ? 0 : -SW_EINVAL;
    const uint64_t have = rc == 0 && (uint64_t)st.st_size < bytes ? (uint64_t)st.st_size : bytes;
    if (rc == 0 && fread(ret, 1, have, file) != have)
        rc = -SW_EIO;
    (void)fclose(file);
    if (rc == 0)
        fill_by_repeating(ret, have, bytes);
    return rc;
}

int sw_parallel_fill(uint8_t *ret, uint64_t bytes, const char *column) {
    struct part model = {.fill = NULL};
    if (strcmp(column, "tpch") == 0)
        model.fill = fill_tpch;
    else if (strcmp(column, "random") == 0)
        model.fill = fill_random;
    else if (sw_numbers_parse(column, &model.type, &model.kind, &model.bits))
        model.fill = fill_numbers;
    if (model.fill)
        return fill_in_parts(ret, bytes, &model);
    for (int i = 0; i < SW_TPCH_COLUMNS; i++)
        if (sw_tpch_column_type((enum sw_tpch_column)i) == SW_VALUE_NONE &&
            strcmp(column, sw_tpch_column_name((enum sw_tpch_column)i)) == 0)
            return fill_from_table(ret, bytes, (enum sw_tpch_column)i);
    return fill_from_file(ret, bytes, column);
}
