/* files.h - input and output of the command swcodec: files or pipes, "-" for standard input and output.
 *
 * A regular output file appears under its name only when it is complete. Until sw_output_commit() the bytes are in a
 * temporary file beside it, which is removed on errors and on signals that end the process. There is one output at a
 * time. errors: -SW_E... with a message that does not name the file. */
#ifndef SW_CODEC_SWCODEC_FILES_H
#define SW_CODEC_SWCODEC_FILES_H

#include "base/err.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sw_input {
    int fd;
    const char *name;     /* for messages */
    uint64_t total_bytes; /* 0: not known */
    mode_t mode;          /* permissions for a copy */
};

/* Opens a file or pipe for reading; "-": standard input. */
int sw_input_open(struct sw_input *ret, const char *path, struct sw_err *err);
/* Closes an input, unless it is standard input. */
void sw_input_close(struct sw_input *input);
/* Reads `bytes`, or fewer if the input ends or stop_fd becomes readable before. */
int sw_input_read(const struct sw_input *input, void *ret, size_t bytes, int stop_fd, size_t *ret_bytes,
                  struct sw_err *err);

struct sw_output {
    int fd;
    const char *name;     /* for messages */
    const char *path;     /* borrowed until commit or abort */
    char temporary[4096]; /* "" if the output is written in place */
    bool is_overwriting;
};

/* Opens a file or pipe for writing; "-": standard output. is_binary: refuse a terminal. is_forced: allow replacing an
 * existing file, and writing to a terminal. */
int sw_output_open(struct sw_output *ret, const char *path, mode_t mode, bool is_binary, bool is_forced,
                   struct sw_err *err);
/* Writes all bytes. */
int sw_output_write(const struct sw_output *output, const void *data, size_t bytes, struct sw_err *err);
/* Flushes and closes the output, and gives a regular file its name. On an error the temporary file is removed. */
int sw_output_commit(struct sw_output *output, struct sw_err *err);
/* Closes the output and removes the temporary file. */
void sw_output_abort(struct sw_output *output);

#endif
