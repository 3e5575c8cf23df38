/* scratch.h - files and folders of a test, under unique names.
 *
 * A test removes its own when it ends. When the program's last test has ended, sw_test_run() removes the files that
 * failed, crashed or timed-out tests have left: names carry a mark of the program. A file that cannot be made aborts
 * the test. thread: one at a time; the mark belongs to the process that runs the suite; the children that it forks use
 * it, too. */
#ifndef SW_TEST_SCRATCH_H
#define SW_TEST_SCRATCH_H

#define SW_TEST_PATH_BYTES 48

/* Makes an empty folder in /tmp (short enough for a socket in it), in memory if there is a file system of it, or where
 * the program runs. */
void sw_test_folder(char ret[SW_TEST_PATH_BYTES]);
void sw_test_folder_in_memory(char ret[SW_TEST_PATH_BYTES]);
void sw_test_folder_here(char ret[SW_TEST_PATH_BYTES]);
/* Writes a file below `root`, an absolute path, as a /proc or a /sys of the test's own has it; folders are made. */
void sw_test_put(const char *root, const char *path, const char *text);
/* Removes a folder with all that is in it. */
void sw_test_remove(const char *folder);
/* Makes an empty file in /tmp. Returns a descriptor, owned by the caller. */
int sw_test_file(char ret[SW_TEST_PATH_BYTES]);

/* Removes all files with the program's mark, and folders with their content; before any were made: sets the mark. For
 * sw_test_run(). */
void sw_test_scratch_begin(void);
void sw_test_scratch_end(void);

#endif
