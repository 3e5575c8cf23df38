/* input_file.h - bytes as a file with a path, for code that reads only files; nothing of it reaches a disk.
 *
 * A failed set-up aborts the test. thread: one at a time for each file. */
#ifndef SW_TEST_INPUT_FILE_H
#define SW_TEST_INPUT_FILE_H

#include <stddef.h>

struct sw_test_input_file {
    int fd;
    char path[32];
};

void sw_test_input_file_init(struct sw_test_input_file *ret, const void *data, size_t bytes);
void sw_test_input_file_fini(struct sw_test_input_file *file);

#endif
