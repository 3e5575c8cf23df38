#include "spill/tier/remote/object_credentials.h"

#include "spill/tier/remote/secret_file.h"

#include <openssl/crypto.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool copy(char *to, size_t to_bytes, const char *from) {
    const size_t n = strlen(from);
    if (n >= to_bytes)
        return false;
    memcpy(to, from, n + 1);
    return true;
}

static char *trim(char *text) {
    text += strspn(text, " \t");
    size_t n = strlen(text);
    while (n > 0 && strchr(" \t\r\n", text[n - 1]))
        text[--n] = 0;
    return text;
}

static bool take_line(struct sw_object_credentials *ret, char *line) {
    char *equals = strchr(line, '=');
    if (!equals)
        return true;
    *equals = 0;
    const char *name = trim(line), *value = trim(equals + 1);
    if (strcmp(name, "aws_access_key_id") == 0)
        return copy(ret->id, sizeof ret->id, value);
    if (strcmp(name, "aws_secret_access_key") == 0)
        return copy(ret->secret, sizeof ret->secret, value);
    if (strcmp(name, "aws_session_token") == 0)
        return copy(ret->token, sizeof ret->token, value);
    return true;
}

static int incomplete(struct sw_err *err, const char *where) {
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                      "%.60s: credentials of the remote tier are incomplete or too long", where);
}

static int read_lines(struct sw_object_credentials *ret, FILE *file, const char *path, struct sw_err *err) {
    char line[sizeof ret->token + 64];
    bool is_default = true, good = true;
    while (good && fgets(line, sizeof line, file)) {
        const char *text = trim(line);
        if (text[0] == '[')
            is_default = strcmp(text, "[default]") == 0;
        else if (is_default && text[0] != '#')
            good = take_line(ret, line);
    }
    OPENSSL_cleanse(line, sizeof line);
    return good ? 0 : incomplete(err, path);
}

static bool take_variable(char *to, size_t to_bytes, const char *name) {
    const char *value = getenv(name);
    return !value || copy(to, to_bytes, value);
}

static int read_environment(struct sw_object_credentials *ret, struct sw_err *err) {
    return take_variable(ret->id, sizeof ret->id, "AWS_ACCESS_KEY_ID") &&
                   take_variable(ret->secret, sizeof ret->secret, "AWS_SECRET_ACCESS_KEY") &&
                   take_variable(ret->token, sizeof ret->token, "AWS_SESSION_TOKEN")
               ? 0
               : incomplete(err, "environment");
}

int sw_object_credentials_load(struct sw_object_credentials *ret, const char *path, struct sw_err *err) {
    struct sw_object_credentials found = {.id = ""};
    char where[SW_SECRET_PATH_BYTES];
    FILE *file;
    int rc = sw_secret_open(&file, where, path, SW_OBJECT_CREDENTIAL_NAME, "credentials of the remote tier", err);
    if (rc)
        return rc;
    rc = file ? read_lines(&found, file, where, err) : read_environment(&found, err);
    if (!rc && (!found.id[0] || !found.secret[0]))
        rc = incomplete(err, file ? where : "environment");
    if (!rc)
        *ret = found;
    if (file)
        (void)fclose(file);
    sw_object_credentials_fini(&found);
    return rc;
}

void sw_object_credentials_fini(struct sw_object_credentials *credentials) {
    OPENSSL_cleanse(credentials, sizeof *credentials);
}
