/* object_credentials.h - the credentials for an object store, and where they come from.
 *
 * They are read again when the store no longer accepts them, so an operator, or an agent, renews them by replacing the
 * file. The secrets are wiped from memory when they are replaced. thread: any. */
#ifndef SW_SPILL_OBJECT_CREDENTIALS_H
#define SW_SPILL_OBJECT_CREDENTIALS_H

#include "base/err.h"

/* The systemd credential's name (LoadCredential=). */
#define SW_OBJECT_CREDENTIAL_NAME "spillway-remote"

struct sw_object_credentials {
    char id[160], secret[160];
    char token[2048]; /* of a session; "": none */
};

/* Reads credentials from a file with lines "aws_access_key_id = ...", "aws_secret_access_key = ..." and perhaps
 * "aws_session_token = ..."; of a file with sections, the section [default]. path NULL: from the systemd credential if
 * the unit has it, else from the environment (AWS_ACCESS_KEY_ID and so on). errors: -SW_ECONFIG (incomplete), -SW_EIO,
 * -SW_EACCES (other users may read the file). *ret: unchanged then. */
int sw_object_credentials_load(struct sw_object_credentials *ret, const char *path, struct sw_err *err);
void sw_object_credentials_fini(struct sw_object_credentials *credentials);

#endif
