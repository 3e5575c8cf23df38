#include "spill/tier/remote/remote_record.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { VERSION = 1, DIGITS = 16 };
static const char magic[8] = "SPWNAMED";
static const char folder[] = "names/";

_Static_assert(sizeof(struct sw_remote_record) == 136, "the format");

/* ---- tenants ---- */

static bool read_tenant(struct sw_remote_tenants *ret, const char *word, size_t n) {
    char *end = NULL;
    const unsigned long long uid = word[0] >= '0' && word[0] <= '9' ? strtoull(word, &end, 10) : 0;
    const size_t n_name = end && *end == '=' ? n - (size_t)(end + 1 - word) : 0;
    if (n_name == 0 || n_name >= SW_REMOTE_HOST_BYTES || uid > UINT32_MAX || ret->n == SW_REMOTE_TENANTS ||
        strspn(end + 1, "abcdefghijklmnopqrstuvwxyz0123456789-") < n_name || sw_remote_tenants_find(ret, (uint32_t)uid))
        return false;
    ret->at[ret->n].uid = (uint32_t)uid;
    (void)snprintf(ret->at[ret->n++].name, SW_REMOTE_HOST_BYTES, "%.*s", (int)n_name, end + 1);
    return true;
}

int sw_remote_tenants_read(struct sw_remote_tenants *ret, const char *text, struct sw_err *err) {
    *ret = (struct sw_remote_tenants){.n = 0};
    if (strcmp(text, "none") == 0)
        return 0;
    for (size_t n; *(text += strspn(text, " ")); text += n) {
        n = strcspn(text, " ");
        if (!read_tenant(ret, text, n))
            return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                              "remote tier: \"%.*s\" is no tenant: must be UID=NAME, NAME of 1 to 32 [a-z0-9-]", (int)n,
                              text);
    }
    return 0;
}

const char *sw_remote_tenants_find(const struct sw_remote_tenants *tenants, uint32_t uid) {
    for (unsigned i = 0; i < tenants->n; i++)
        if (tenants->at[i].uid == uid)
            return tenants->at[i].name;
    return NULL;
}

/* ---- content ---- */

void sw_remote_record_init(struct sw_remote_record *ret, const char *host, uint32_t uid, const char *name) {
    *ret = (struct sw_remote_record){.version = VERSION, .uid = uid};
    memcpy(ret->magic, magic, sizeof magic);
    (void)snprintf(ret->host, sizeof ret->host, "%s", host);
    (void)snprintf(ret->name, sizeof ret->name, "%s", name);
}

int sw_remote_record_read(const void *body, size_t bytes, const struct sw_remote_record **ret, struct sw_err *err) {
    const struct sw_remote_record *record = body;
    if (bytes < sizeof *record || memcmp(record->magic, magic, sizeof magic) != 0 || record->number == 0 ||
        !memchr(record->host, 0, sizeof record->host) || !memchr(record->name, 0, sizeof record->name))
        return sw_err_set(err, -SW_EFRAME, SW_SCOPE_DAEMON, "a durable region's record makes no sense");
    if (record->version != VERSION)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_DAEMON,
                          "a durable region's record has version %u, this program reads %d: start the later version",
                          (unsigned)record->version, VERSION);
    *ret = record;
    return 0;
}

/* ---- names ---- */

void sw_remote_record_folder(char ret[SW_OBJECT_NAME_BYTES], const struct sw_remote_record *record,
                             const char *tenant) {
    char hash[SW_OBJECT_HASH_BYTES] = "";
    (void)sw_object_hash(record->name, strlen(record->name), hash);
    if (tenant)
        (void)snprintf(ret, SW_OBJECT_NAME_BYTES, "%s%s/%s/", folder, tenant, hash);
    else
        (void)snprintf(ret, SW_OBJECT_NAME_BYTES, "%s%s.%" PRIu32 "/%s/", folder, record->host, record->uid, hash);
}

void sw_remote_record_number(char name[SW_OBJECT_NAME_BYTES], uint64_t number) {
    const size_t n = strlen(name);
    (void)snprintf(name + n, SW_OBJECT_NAME_BYTES - n, "%016" PRIx64, number);
}

uint64_t sw_remote_record_read_number(const char *name) {
    const char *slash = strrchr(name, '/');
    const bool is_number = slash && strlen(slash + 1) == DIGITS && strspn(slash + 1, "0123456789abcdef") == DIGITS;
    return is_number ? strtoull(slash + 1, NULL, 16) : 0;
}

enum sw_remote_record_of sw_remote_record_of(const char *name, const char *host) {
    const char *tenant = name + sizeof folder - 1;
    if (strncmp(name, folder, sizeof folder - 1) != 0 || !sw_remote_record_read_number(name))
        return SW_RECORD_FOREIGN;
    if (strcspn(tenant, ".") > strcspn(tenant, "/"))
        return SW_RECORD_SHARED;
    return strncmp(tenant, host, strlen(host)) == 0 && tenant[strlen(host)] == '.' ? SW_RECORD_OURS : SW_RECORD_FOREIGN;
}
