/* columns.h - the demo's columns as plain memory of this process.
 *
 * Each function makes *ret from nothing; an error leaves it empty. owns: the caller, until column_fini().
 * thread: any. */
#ifndef SW_DEMO_COLUMNS_H
#define SW_DEMO_COLUMNS_H

#include "base/err.h"
#include <stdint.h>

struct column {
    uint8_t *data;
    uint64_t bytes, cap_bytes;
};

/* A TPC-H l_comment column of this length. errors: -SW_ENOMEM, -SW_ELIMIT (more than max_bytes). */
int column_tpch(struct column *ret, uint64_t bytes, uint64_t max_bytes, struct sw_err *err);
/* The path of every file below `root` that is not a folder, one per line, sorted folder by folder; what cannot be read
 * is left out. errors: -SW_ENOMEM, -SW_ELIMIT (more than max_bytes), errno's of opening root. */
int column_paths(struct column *ret, const char *root, uint64_t max_bytes, struct sw_err *err);
/* A file or a pipe, whole. errors: -SW_ENOMEM, -SW_ELIMIT (more than max_bytes), errno's of opening and reading. */
int column_file(struct column *ret, const char *path, uint64_t max_bytes, struct sw_err *err);
void column_fini(struct column *column);

#endif
