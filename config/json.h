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

/* Puts the file's name before err->msg, by its end if it is long. */
void sw_json_context(struct sw_err *err, const char *path);

#endif
