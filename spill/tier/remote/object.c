#include "spill/tier/remote/object.h"

#include <openssl/evp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool sw_object_hash(const void *body, size_t bytes, char ret[SW_OBJECT_HASH_BYTES]) {
    uint8_t digest[32];
    if (EVP_Digest(body, bytes, digest, NULL, EVP_sha256(), NULL) != 1)
        return false;
    for (size_t i = 0; i < sizeof digest; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", digest[i]);
    return true;
}

bool sw_object_name_is_good(const char *name) {
    const size_t n = strlen(name);
    return n < SW_OBJECT_NAME_BYTES && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789/.-") == n;
}

const char *sw_object_name_number(const char *text, char end, uint64_t *ret) {
    const size_t n = text ? strspn(text, "0123456789abcdef") : 0;
    if (n == 0 || n > 16 || text[n] != end)
        return NULL;
    *ret = strtoull(text, NULL, 16);
    return text + n + 1;
}
