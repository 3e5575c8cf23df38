/* secret_file.h - files with secrets: the unit's credentials, or files that the configuration names. thread: any. */
#ifndef SW_SPILL_SECRET_FILE_H
#define SW_SPILL_SECRET_FILE_H

#include "base/err.h"
#include <stdio.h>

enum { SW_SECRET_PATH_BYTES = 512 };

/* Opens a file that not every user may access. path NULL: the systemd credential of this name (LoadCredential=), if the
 * unit has it. what: for errors. ret_path: where it is. *ret is not buffered, and NULL if there is no such credential.
 * errors: -SW_EACCES, -SW_EIO. */
int sw_secret_open(FILE **ret, char ret_path[SW_SECRET_PATH_BYTES], const char *path, const char *credential,
                   const char *what, struct sw_err *err);

#endif
