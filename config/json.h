/* json.h - reading a JSON file, as everything of Spillway that takes one from a user does. thread: any. */
#ifndef SW_CONFIG_JSON_H
#define SW_CONFIG_JSON_H

#include "base/err.h"
#include <stdbool.h>

struct json_t; /* jansson.h */

/* Reads the one value that a file holds; a key that occurs twice in an object is refused. owns: the caller, until
 * json_decref(). waits: also for what a pipe or a terminal will say; false: only a file is read. errors: -SW_ECONFIG
 * with "file:line: ...", or since it is no file, -SW_EIO; *ret is untouched. */
int sw_json_load(struct json_t **ret, const char *path, bool waits, struct sw_err *err);

/* A file's name as errors have it: by its end if it is long. */
enum { SW_JSON_NAME_BYTES = 36 };
void sw_json_name(char ret[SW_JSON_NAME_BYTES], const char *path);
/* Puts it before err->msg. */
void sw_json_context(struct sw_err *err, const char *path);

#endif
