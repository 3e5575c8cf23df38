#include "tests/lib/parallel_fill.h"

#include "tests/lib/content.h"
#include "tests/lib/tpch_text.h"
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_THREADS = 64, SEED = 1 };

struct part {
    uint8_t *to;
    uint64_t offset, bytes;
    void (*fill)(struct part *part);
    pthread_t thread;
};

static void fill_tpch(struct part *part) {
    sw_tpch_text_fill(part->to, part->offset, part->bytes, SEED);
}

static void fill_random(struct part *part) {
    sw_content_fill(part->to, part->bytes, SW_CONTENT_RANDOM, SEED + part->offset);
}

static void *run_part(void *arg) {
    struct part *part = arg;
    part->fill(part);
    return NULL;
}

static int fill_in_parts(uint8_t *ret, uint64_t bytes, void (*fill)(struct part *part)) {
    struct part parts[MAX_THREADS];
    const long online = sysconf(_SC_NPROCESSORS_ONLN);
    const unsigned n = online < 1 ? 1 : online > MAX_THREADS ? MAX_THREADS : (unsigned)online;
    unsigned started = 0;
    for (; started < n; started++) {
        const uint64_t from = bytes / n * started, to = started == n - 1 ? bytes : bytes / n * (started + 1);
        parts[started] = (struct part){.to = ret + from, .offset = from, .bytes = to - from, .fill = fill};
        if (pthread_create(&parts[started].thread, NULL, run_part, &parts[started]) != 0)
            break;
    }
    for (unsigned i = 0; i < started; i++)
        (void)pthread_join(parts[i].thread, NULL);
    return started == n ? 0 : -SW_ENOMEM;
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
    for (uint64_t at = have; rc == 0 && at < bytes;) {
        const uint64_t n = at < bytes - at ? at : bytes - at;
        memcpy(ret + at, ret, n);
        at += n;
    }
    return rc;
}

int sw_parallel_fill(uint8_t *ret, uint64_t bytes, const char *column) {
    if (strcmp(column, "tpch") == 0)
        return fill_in_parts(ret, bytes, fill_tpch);
    if (strcmp(column, "random") == 0)
        return fill_in_parts(ret, bytes, fill_random);
    return fill_from_file(ret, bytes, column);
}
