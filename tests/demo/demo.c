/* demo.c - the client of `make demo`: parks real columns in a running spillwayd and proves that every byte comes back.
 *
 * For each column: the bytes are put into memory that is then handed over, parked and freed; they come back into new
 * memory, set to something else before, and are compared with the original, which stays in this process. */
#include "base/alloc.h"
#include "base/clock.h"
#include "ipc/spillway.h"
#include "tests/demo/columns.h"
#include "tests/lib/buffer.h"
#include <errno.h>
#include <getopt.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MAX_COLUMNS = 32, EXIT_USAGE = 2 };
static const uint64_t compare_bytes = 32u << 20; /* a piece of the restored column, downloaded and compared */

enum source { SOURCE_TPCH, SOURCE_USR_PATHS, SOURCE_FILE };

struct row {
    enum source source;
    const char *name, *path;
    uint64_t bytes, stored_bytes, spill_us, restore_us;
    char tier[16];
    bool done, verified;
};

struct demo {
    const char *socket_path;
    struct spillway *spillway;
    enum sw_buffer_kind kind;
    char device[64];
    uint64_t max_bytes; /* of a column */
    bool progress;
    struct row rows[MAX_COLUMNS];
    size_t n_rows;
};

static void say(const struct demo *demo, const struct row *row, const char *step) {
    if (demo->progress)
        (void)fprintf(stderr, "\r\033[K%s: %s ...", row->name, step);
}

static void say_done(const struct demo *demo) {
    if (demo->progress)
        (void)fputs("\r\033[K", stderr);
}

static int failed(const struct demo *demo, const char *name, const char *step, const char *error, const char *text) {
    say_done(demo);
    (void)fprintf(stderr, "spillway-demo: %s: %s: %s: %s\n", name, step, error, text);
    return -1;
}

static int failed_here(const struct demo *demo, const struct row *row, const char *step, const struct sw_err *err) {
    return failed(demo, row->name, step, sw_err_name(err->code), err->msg);
}

static int failed_there(const struct demo *demo, const struct row *row, const char *step,
                        const struct spillway_error *error) {
    return failed(demo, row->name, step, error->name, error->text);
}

/* Waits, and forgets the ticket in any case. */
static int finish(struct spillway_ticket *ticket, struct spillway_result *ret, struct spillway_error *error) {
    const int rc = spillway_wait(ticket, -1, ret, 1, error);
    spillway_ticket_free(ticket);
    return rc;
}

/* Puts the column into new memory and parks it; the memory is gone afterwards, whatever happened. */
static int spill(const struct demo *demo, struct row *row, const struct column *column, struct spillway_region *ret) {
    struct sw_buffer *buffer = NULL;
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    struct sw_err err;
    int rc = sw_buffer_new(&buffer, demo->kind, column->bytes, &err);
    if (rc == 0)
        rc = sw_buffer_upload(buffer, 0, column->data, column->bytes, &err);
    if (rc < 0) {
        sw_buffer_free(buffer);
        return failed_here(demo, row, "memory to spill", &err);
    }
    say(demo, row, "spilling");
    const uint64_t start_us = sw_clock_us();
    const struct spillway_buffer memory = {.data = buffer->data, .bytes = column->bytes};
    const struct spillway_request request = {.size = sizeof request, .buffers = &memory, .n_buffers = 1};
    rc = spillway_spill(demo->spillway, &request, 1, &ticket, &error);
    if (rc == 0)
        rc = finish(ticket, &result, &error);
    row->spill_us = sw_clock_us() - start_us;
    sw_buffer_free(buffer);
    if (rc < 0)
        return failed_there(demo, row, "spill", &error);
    row->stored_bytes = result.stored_bytes;
    memcpy(row->tier, result.tier, sizeof row->tier);
    *ret = result.region;
    return 0;
}

/* Compares all of a buffer, piece by piece. */
static int verify(const struct demo *demo, struct row *row, const struct column *column,
                  const struct sw_buffer *buffer) {
    struct sw_err err;
    uint8_t *piece = sw_alloc(compare_bytes);
    if (!piece)
        return failed(demo, row->name, "compare", sw_err_name(-SW_ENOMEM), sw_err_text(-SW_ENOMEM));
    int rc = 0;
    for (uint64_t at = 0; rc == 0 && at < column->bytes; at += compare_bytes) {
        const uint64_t bytes = column->bytes - at < compare_bytes ? column->bytes - at : compare_bytes;
        if (sw_buffer_download(buffer, at, piece, bytes, &err) < 0)
            rc = failed_here(demo, row, "compare", &err);
        else if (memcmp(piece, column->data + at, bytes) != 0)
            rc = failed(demo, row->name, "compare", "MISMATCH", "the restored bytes are not the original ones");
    }
    sw_free(piece);
    row->verified = rc == 0;
    return rc;
}

static int restore(const struct demo *demo, struct row *row, const struct column *column,
                   struct spillway_region region) {
    enum { OTHER_BYTE = 0xdb }; /* so that memory that still holds the old bytes proves nothing */
    struct sw_buffer *buffer = NULL;
    struct spillway_ticket *ticket = NULL;
    struct spillway_error error;
    struct sw_err err;
    int rc = sw_buffer_new(&buffer, demo->kind, column->bytes, &err);
    if (rc == 0)
        rc = sw_buffer_fill(buffer, OTHER_BYTE, &err);
    if (rc < 0) {
        sw_buffer_free(buffer);
        return failed_here(demo, row, "memory to restore into", &err);
    }
    say(demo, row, "restoring");
    const uint64_t start_us = sw_clock_us();
    struct spillway_result result = {.size = sizeof result};
    const struct spillway_buffer memory = {.data = buffer->data, .bytes = column->bytes};
    const struct spillway_request request = {
        .size = sizeof request, .buffers = &memory, .n_buffers = 1, .region = region};
    rc = spillway_restore(demo->spillway, &request, 1, &ticket, &error);
    if (rc == 0)
        rc = finish(ticket, &result, &error);
    row->restore_us = sw_clock_us() - start_us;
    if (rc < 0) {
        rc = failed_there(demo, row, "restore", &error);
    } else {
        row->done = true;
        say(demo, row, "comparing");
        rc = verify(demo, row, column, buffer);
    }
    sw_buffer_free(buffer);
    return rc;
}

static int make_column(const struct demo *demo, const struct row *row, struct column *ret, struct sw_err *err) {
    switch (row->source) {
    case SOURCE_TPCH:
        return column_tpch(ret, row->bytes, demo->max_bytes, err);
    case SOURCE_USR_PATHS:
        return column_paths(ret, row->path, demo->max_bytes, err);
    case SOURCE_FILE:
        break;
    }
    return column_file(ret, row->path, demo->max_bytes, err);
}

static int run_row(const struct demo *demo, struct row *row) {
    struct column column = {0};
    struct spillway_region region = {0};
    struct sw_err err;
    say(demo, row, "reading");
    if (make_column(demo, row, &column, &err) < 0)
        return failed_here(demo, row, "column", &err);
    row->bytes = column.bytes;
    int rc = spill(demo, row, &column, &region);
    if (rc == 0)
        rc = restore(demo, row, &column, region);
    column_fini(&column);
    say_done(demo);
    return rc;
}

static double gigabytes_per_s(uint64_t bytes, uint64_t us) {
    return us ? (double)bytes / (double)us / 1e3 : 0;
}

static int column_width(const struct demo *demo) {
    size_t width = strlen("column");
    for (size_t i = 0; i < demo->n_rows; i++)
        if (strlen(demo->rows[i].name) > width)
            width = strlen(demo->rows[i].name);
    return (int)width;
}

static void print_table(const struct demo *demo) {
    const int name_width = column_width(demo);
    const int device_width = (int)strlen(demo->device) > 6 ? (int)strlen(demo->device) : 6;
    (void)printf("\n%-*s %14s %14s %6s %11s %13s  %-*s %-5s %s\n", name_width, "column", "bytes", "stored", "ratio",
                 "spill GB/s", "restore GB/s", device_width, "device", "tier", "verified");
    for (size_t i = 0; i < demo->n_rows; i++) {
        const struct row *row = &demo->rows[i];
        if (!row->done) {
            (void)printf("%-*s %14s %14s %6s %11s %13s  %-*s %-5s NO\n", name_width, row->name, "-", "-", "-", "-", "-",
                         device_width, demo->device, "-");
            continue;
        }
        const double ratio = row->stored_bytes ? (double)row->bytes / (double)row->stored_bytes : 1;
        (void)printf("%-*s %14" PRIu64 " %14" PRIu64 " %6.3f %11.2f %13.2f  %-*s %-5s %s\n", name_width, row->name,
                     row->bytes, row->stored_bytes, ratio, gigabytes_per_s(row->bytes, row->spill_us),
                     gigabytes_per_s(row->bytes, row->restore_us), device_width, demo->device, row->tier,
                     row->verified ? "yes" : "NO");
    }
}

/* Decides where the columns live, and says so. */
static int choose_device(struct demo *demo) {
    struct spillway_status status = {.size = sizeof status};
    struct spillway_error error;
    const char *reason = NULL;
    if (spillway_status(demo->spillway, &status, &error) < 0)
        return failed(demo, "status", demo->socket_path, error.name, error.text);
    const unsigned kinds = sw_buffer_usable_kinds(&reason);
    if (status.n_gpus && kinds > SW_BUFFER_CUDA_MALLOC) {
        demo->kind = SW_BUFFER_CUDA_MALLOC;
        (void)snprintf(demo->device, sizeof demo->device, "%s", status.device);
        (void)printf(
            "Using the GPU (%s), with cudaMalloc memory, because spillwayd serves it and this program can use it.\n",
            demo->device);
        return 0;
    }
    demo->kind = SW_BUFFER_MEMFD;
    (void)strcpy(demo->device, "host");
    (void)printf("Using the host device, with memfd memory in place of a GPU's, because %s.\n",
                 reason ? reason : "spillwayd serves no GPU");
    return 0;
}

/* The original and the frames are in host memory at once, on the host device the column as well. */
static uint64_t longest_column(const struct demo *demo) {
    const uint64_t memory = (uint64_t)sysconf(_SC_PHYS_PAGES) * (uint64_t)sysconf(_SC_PAGESIZE);
    return memory / (demo->kind == SW_BUFFER_MEMFD ? 3 : 2);
}

static int run(struct demo *demo) {
    const struct spillway_options options = {.size = sizeof options, .socket_path = demo->socket_path};
    struct spillway_error error;
    int rc = 0;
    if (spillway_open(&demo->spillway, &options, &error) < 0)
        return failed(demo, "connect", demo->socket_path, error.name, error.text);
    if (choose_device(demo) < 0) {
        spillway_close(demo->spillway);
        return -1;
    }
    (void)fflush(stdout);
    demo->max_bytes = longest_column(demo);
    for (size_t i = 0; i < demo->n_rows; i++)
        if (run_row(demo, &demo->rows[i]) < 0)
            rc = -1;
    spillway_close(demo->spillway);
    print_table(demo);
    return rc;
}

static struct row *add_row(struct demo *demo, enum source source, const char *name, const char *path) {
    if (demo->n_rows == MAX_COLUMNS) {
        (void)fprintf(stderr, "spillway-demo: more than %d columns\n", MAX_COLUMNS);
        exit(EXIT_USAGE);
    }
    struct row *row = &demo->rows[demo->n_rows++];
    *row = (struct row){.source = source, .name = name, .path = path};
    return row;
}

static uint64_t parse_bytes(const char *text) {
    char *end = NULL;
    errno = 0;
    const unsigned long long value = strtoull(text, &end, 10);
    if (errno || *end || *text < '0' || *text > '9') {
        (void)fprintf(stderr, "spillway-demo: '%s' is not a number of bytes\n", text);
        exit(EXIT_USAGE);
    }
    return value;
}

static const char *base_name(const char *path) {
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

static void print_help(void) {
    (void)printf("Usage: spillway-demo --socket PATH [COLUMN]...\n"
                 "Parks columns in a running spillwayd, restores them and compares every byte.\n\n"
                 "  --socket PATH   spillwayd's data socket\n"
                 "  --tpch BYTES    column: generated TPC-H l_comment text of this length\n"
                 "  --usr-paths     column: the path of every file under /usr, one per line\n"
                 "  --file PATH     column: a file\n"
                 "  --help          print this and exit\n\n"
                 "Exit codes: 0 every byte verified, 1 an error or a difference, 2 wrong use.\n");
}

int main(int argc, char **argv) {
    enum { OPTION_SOCKET = 256, OPTION_TPCH, OPTION_USR_PATHS, OPTION_FILE, OPTION_HELP };
    static const struct option options[] = {
        {"socket", required_argument, NULL, OPTION_SOCKET}, {"tpch", required_argument, NULL, OPTION_TPCH},
        {"usr-paths", no_argument, NULL, OPTION_USR_PATHS}, {"file", required_argument, NULL, OPTION_FILE},
        {"help", no_argument, NULL, OPTION_HELP},           {NULL, 0, NULL, 0},
    };
    static struct demo demo;
    int option;
    while ((option = getopt_long(argc, argv, "", options, NULL)) >= 0) {
        if (option == OPTION_SOCKET)
            demo.socket_path = optarg;
        else if (option == OPTION_TPCH)
            add_row(&demo, SOURCE_TPCH, "l_comment", NULL)->bytes = parse_bytes(optarg);
        else if (option == OPTION_USR_PATHS)
            (void)add_row(&demo, SOURCE_USR_PATHS, "paths in /usr", "/usr");
        else if (option == OPTION_FILE)
            (void)add_row(&demo, SOURCE_FILE, base_name(optarg), optarg);
        else if (option == OPTION_HELP)
            return print_help(), EXIT_SUCCESS;
        else
            return EXIT_USAGE;
    }
    if (!demo.socket_path || optind < argc || demo.n_rows == 0) {
        (void)fprintf(stderr, "spillway-demo: wants --socket and at least one column; see --help\n");
        return EXIT_USAGE;
    }
    demo.progress = isatty(STDERR_FILENO);
    return run(&demo) < 0 || fflush(stdout) != 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
