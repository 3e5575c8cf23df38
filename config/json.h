/* json.h - reads a JSON file from a user. All of Spillway reads JSON files by it. thread: any. */
#ifndef SW_CONFIG_JSON_H
#define SW_CONFIG_JSON_H

#include "base/err.h"
#include <stdbool.h>

struct json_t; /* jansson.h */

/* Reads the one JSON value in a file. It refuses objects in which a key occurs twice. waits: true: the file may be a
 * pipe or a terminal, whose data it waits for; false: only a regular file is read. owns: the caller, until
 * json_decref(). errors: -SW_ECONFIG with "file:line: ...", or because it is no regular file; -SW_EIO. On an error *ret
 * is unchanged. */
int sw_json_load(struct json_t **ret, const char *path, bool waits, struct sw_err *err);

enum { SW_JSON_NAME_BYTES = 36 };
/* Writes a file's name for error texts: "..." and the end of the path, if the path is long. */
void sw_json_name(char ret[SW_JSON_NAME_BYTES], const char *path);
/* Puts this name and ": " before err->msg. */
void sw_json_context(struct sw_err *err, const char *path);

#endif
