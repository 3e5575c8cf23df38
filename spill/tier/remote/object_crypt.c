#include "spill/tier/remote/object_crypt.h"

#include "base/alloc.h"
#include "spill/tier/remote/secret_file.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>
#include <string.h>
#include <sys/mman.h>

enum { MAX_KEYS = 16, ID_BYTES = 8, NONCE_BYTES = 12, PAGE_BYTES = 4096, KEY_LINE_BYTES = 256 };
enum { WRAPPED_BYTES = NONCE_BYTES + SW_OBJECT_KEY_BYTES + SW_OBJECT_TAG_BYTES };
#define VERSION "1"

struct master_key {
    uint8_t id[ID_BYTES], bytes[SW_OBJECT_KEY_BYTES];
};

struct sw_object_keyring {
    unsigned n;
    struct master_key keys[MAX_KEYS];
};
_Static_assert(sizeof(struct sw_object_keyring) <= PAGE_BYTES, "one page");

/* ---- hexadecimal digits ---- */

static void write_hex(char *ret, const uint8_t *bytes, size_t n) {
    for (size_t i = 0; i < n; i++)
        (void)snprintf(ret + 2 * i, 3, "%02x", bytes[i]);
}

static int digit(char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

/* Reads exactly n bytes; the text must go on with `end`. */
static bool read_hex(const char *text, uint8_t *ret, size_t n, char end) {
    for (size_t i = 0; i < n; i++) {
        const int high = digit(text[2 * i]), low = high < 0 ? -1 : digit(text[2 * i + 1]);
        if (low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return text[2 * n] == end;
}

/* ---- AES-256-GCM ---- */

struct cipher {
    EVP_CIPHER_CTX *context;
    bool encrypts;
};

static bool cipher_init(struct cipher *ret, const uint8_t key[SW_OBJECT_KEY_BYTES], bool encrypts) {
    *ret = (struct cipher){.context = EVP_CIPHER_CTX_new(), .encrypts = encrypts};
    return ret->context && EVP_CipherInit_ex(ret->context, EVP_aes_256_gcm(), NULL, key, NULL, encrypts) == 1;
}

static void cipher_fini(struct cipher *cipher) {
    EVP_CIPHER_CTX_free(cipher->context); /* this wipes the key */
}

static bool begin(const struct cipher *cipher, const uint8_t nonce[NONCE_BYTES], const char *what, const char *name) {
    int n;
    return EVP_CipherInit_ex(cipher->context, NULL, NULL, NULL, nonce, -1) == 1 &&
           EVP_CipherUpdate(cipher->context, NULL, &n, (const uint8_t *)what, (int)strlen(what) + 1) == 1 &&
           EVP_CipherUpdate(cipher->context, NULL, &n, (const uint8_t *)name, (int)strlen(name)) == 1;
}

static bool update(const struct cipher *cipher, const uint8_t *from, uint8_t *to, size_t bytes) {
    int n;
    return EVP_CipherUpdate(cipher->context, to, &n, from, (int)bytes) == 1 && (size_t)n == bytes;
}

/* Writes the tag, or compares it. */
static bool finish(const struct cipher *cipher, uint8_t tag[SW_OBJECT_TAG_BYTES]) {
    uint8_t none[16];
    int n;
    EVP_CIPHER_CTX *context = cipher->context;
    if (cipher->encrypts)
        return EVP_CipherFinal_ex(context, none, &n) == 1 &&
               EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, SW_OBJECT_TAG_BYTES, tag) == 1;
    return EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, SW_OBJECT_TAG_BYTES, tag) == 1 &&
           EVP_CipherFinal_ex(context, none, &n) == 1;
}

/* ---- master keys ---- */

static bool add_key(struct sw_object_keyring *keyring, const char *line) {
    static const char what[] = "spillway master key";
    uint8_t text[sizeof what + SW_OBJECT_KEY_BYTES], digest[32];
    if (keyring->n == MAX_KEYS)
        return false;
    struct master_key *key = &keyring->keys[keyring->n];
    bool good = read_hex(line, key->bytes, sizeof key->bytes, '\n') || read_hex(line, key->bytes, sizeof key->bytes, 0);
    memcpy(text, what, sizeof what);
    memcpy(text + sizeof what, key->bytes, sizeof key->bytes);
    good = good && EVP_Digest(text, sizeof text, digest, NULL, EVP_sha256(), NULL) == 1;
    memcpy(key->id, digest, sizeof key->id);
    OPENSSL_cleanse(text, sizeof text);
    keyring->n += good;
    return good;
}

static int read_keys(struct sw_object_keyring *keyring, FILE *file, const char *path, struct sw_err *err) {
    char line[KEY_LINE_BYTES];
    bool good = true;
    while (good && fgets(line, sizeof line, file))
        good = line[0] == '#' || line[0] == '\n' || add_key(keyring, line);
    OPENSSL_cleanse(line, sizeof line);
    if (good && keyring->n > 0)
        return 0;
    return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                      "%.60s: must have 1 to %d lines, each a master key of 64 hexadecimal digits", path, MAX_KEYS);
}

static struct sw_object_keyring *keyring_new(void) {
    void *page = mmap(NULL, PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    if (mlock(page, PAGE_BYTES) == 0 && madvise(page, PAGE_BYTES, MADV_DONTDUMP) == 0)
        return page;
    (void)munmap(page, PAGE_BYTES);
    return NULL;
}

int sw_object_keyring_open(struct sw_object_keyring **ret, const char *path, struct sw_err *err) {
    static const struct sw_object_keyring_use use = {SW_OBJECT_KEY_CREDENTIAL_NAME, "remote"};
    return sw_object_keyring_open_for(ret, path, &use, err);
}

int sw_object_keyring_open_for(struct sw_object_keyring **ret, const char *path,
                               const struct sw_object_keyring_use *use, struct sw_err *err) {
    char where[SW_SECRET_PATH_BYTES], what[64];
    FILE *file;
    (void)snprintf(what, sizeof what, "master keys of the %s tier", use->tier);
    int rc = sw_secret_open(&file, where, path, use->credential, what, err);
    if (rc)
        return rc;
    if (!file)
        return sw_err_set(err, -SW_ECONFIG, SW_SCOPE_DAEMON,
                          "the %s tier needs a master key: a file, or the credential %s", use->tier, use->credential);
    struct sw_object_keyring *keyring = keyring_new();
    rc = keyring ? read_keys(keyring, file, where, err)
                 : sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON,
                              "master keys cannot be locked in memory (raise RLIMIT_MEMLOCK)");
    (void)fclose(file);
    if (rc)
        sw_object_keyring_close(keyring);
    else
        *ret = keyring;
    return rc;
}

void sw_object_keyring_close(struct sw_object_keyring *keyring) {
    if (!keyring)
        return;
    OPENSSL_cleanse(keyring, sizeof *keyring);
    (void)munmap(keyring, PAGE_BYTES);
}

/* ---- data keys ---- */

static const char about_key[] = "spillway object key " VERSION;

static int failed(struct sw_err *err) {
    return sw_err_set(err, -SW_EIO, SW_SCOPE_DAEMON, "libcrypto failed to encrypt for the remote tier");
}

int sw_object_key_make(struct sw_object_key *ret, struct sw_err *err) {
    return RAND_bytes(ret->bytes, sizeof ret->bytes) == 1 ? 0 : failed(err);
}

void sw_object_key_fini(struct sw_object_key *key) {
    OPENSSL_cleanse(key, sizeof *key);
}

int sw_object_key_wrap(const struct sw_object_keyring *keyring, const struct sw_object_key *key, const char *name,
                       char ret_meta[SW_OBJECT_META_BYTES], struct sw_err *err) {
    const struct master_key *master = &keyring->keys[0];
    uint8_t wrapped[WRAPPED_BYTES];
    char id[2 * ID_BYTES + 1], digits[2 * WRAPPED_BYTES + 1];
    struct cipher cipher;
    const bool good = cipher_init(&cipher, master->bytes, true) && RAND_bytes(wrapped, NONCE_BYTES) == 1 &&
                      begin(&cipher, wrapped, about_key, name) &&
                      update(&cipher, key->bytes, wrapped + NONCE_BYTES, SW_OBJECT_KEY_BYTES) &&
                      finish(&cipher, wrapped + NONCE_BYTES + SW_OBJECT_KEY_BYTES);
    cipher_fini(&cipher);
    write_hex(id, master->id, ID_BYTES);
    write_hex(digits, wrapped, WRAPPED_BYTES);
    (void)snprintf(ret_meta, SW_OBJECT_META_BYTES, VERSION ":%s:%s", id, digits);
    return good ? 0 : failed(err);
}

static const struct master_key *find_key(const struct sw_object_keyring *keyring, const uint8_t id[ID_BYTES]) {
    for (unsigned i = 0; i < keyring->n; i++)
        if (memcmp(keyring->keys[i].id, id, ID_BYTES) == 0)
            return &keyring->keys[i];
    return NULL;
}

static int altered(struct sw_err *err, const char *name, const char *what) {
    return sw_err_set(err, -SW_ECHECKSUM, SW_SCOPE_REGION, "remote object's %s was altered: %.80s", what, name);
}

int sw_object_key_open(const struct sw_object_keyring *keyring, const char *name, const char *meta,
                       struct sw_object_key *ret, bool *ret_is_old, struct sw_err *err) {
    uint8_t id[ID_BYTES], wrapped[WRAPPED_BYTES];
    const size_t n_version = strcspn(meta, ":");
    struct cipher cipher;
    if (n_version > 0 && meta[n_version] && strncmp(meta, VERSION ":", 2) != 0)
        return sw_err_set(err, -SW_EVERSION, SW_SCOPE_REQUEST, "remote object is of another version: %.80s", name);
    if (strlen(meta) != 2 + 2 * ID_BYTES + 1 + 2 * WRAPPED_BYTES || !read_hex(meta + 2, id, ID_BYTES, ':') ||
        !read_hex(meta + 3 + 2 * ID_BYTES, wrapped, WRAPPED_BYTES, 0))
        return altered(err, name, "key");
    const struct master_key *master = find_key(keyring, id);
    if (!master)
        return sw_err_set(err, -SW_EACCES, SW_SCOPE_REQUEST,
                          "remote object is encrypted with a master key that is not configured: %.16s", meta + 2);
    const bool good = cipher_init(&cipher, master->bytes, false) && begin(&cipher, wrapped, about_key, name) &&
                      update(&cipher, wrapped + NONCE_BYTES, ret->bytes, SW_OBJECT_KEY_BYTES) &&
                      finish(&cipher, wrapped + NONCE_BYTES + SW_OBJECT_KEY_BYTES);
    cipher_fini(&cipher);
    if (ret_is_old)
        *ret_is_old = master != &keyring->keys[0];
    if (good)
        return 0;
    sw_object_key_fini(ret);
    return altered(err, name, "key");
}

/* ---- segments ---- */

static const char about_segment[] = "spillway object " VERSION;

uint64_t sw_object_segments(uint64_t bytes) {
    return (bytes + SW_OBJECT_SEGMENT_BYTES - 1) / SW_OBJECT_SEGMENT_BYTES;
}

uint64_t sw_object_body_bytes(uint64_t bytes) {
    return bytes + sw_object_segments(bytes) * SW_OBJECT_TAG_BYTES;
}

/* A place in runs of memory. */
struct place {
    const struct sw_extent *run;
    uint64_t at;
};

static bool begin_segment(const struct cipher *cipher, uint64_t index, bool is_last, const char *name) {
    uint8_t nonce[NONCE_BYTES] = {is_last};
    for (unsigned i = 0; i < 8; i++)
        nonce[NONCE_BYTES - 1 - i] = (uint8_t)(index >> 8 * i);
    return begin(cipher, nonce, about_segment, name);
}

static struct place place_of(const struct sw_extent *run, uint64_t at) {
    while (at > run->bytes)
        at -= run++->bytes;
    return (struct place){.run = run, .at = at};
}

/* Some bytes of a segment between their place in memory, which is moved on, and the body. */
static bool run(const struct cipher *cipher, struct place *place, uint8_t *body, uint64_t bytes) {
    bool good = true;
    for (uint64_t done = 0; good && done < bytes;) {
        if (place->at == place->run->bytes) {
            place->run++;
            place->at = 0;
        }
        const uint64_t left = place->run->bytes - place->at, n = left < bytes - done ? left : bytes - done;
        uint8_t *memory = (uint8_t *)place->run->memory + place->at;
        good = update(cipher, cipher->encrypts ? memory : body + done, cipher->encrypts ? body + done : memory, n);
        place->at += n;
        done += n;
    }
    return good;
}

/* Returns the length of the index-th segment of a piece with so many bytes. */
static uint64_t segment_bytes(uint64_t bytes, uint64_t index) {
    const uint64_t left = bytes - index * SW_OBJECT_SEGMENT_BYTES;
    return left < SW_OBJECT_SEGMENT_BYTES ? left : SW_OBJECT_SEGMENT_BYTES;
}

/* before: segments of the pieces before this one. */
static bool seal_piece(const struct cipher *cipher, const char *name, const struct sw_object_piece *piece,
                       uint64_t before, uint8_t *body) {
    const uint64_t n = sw_object_segments(piece->bytes);
    struct place place = place_of(piece->memory, 0);
    bool good = true;
    for (uint64_t i = 0; good && i < n; i++) {
        const uint64_t length = segment_bytes(piece->bytes, i);
        good = begin_segment(cipher, before + i, i + 1 == n, name) && run(cipher, &place, body, length) &&
               finish(cipher, body + length);
        body += length + SW_OBJECT_TAG_BYTES;
    }
    return good;
}

int sw_object_seal(const struct sw_object_key *key, const char *name, const struct sw_object_piece *pieces, unsigned n,
                   uint8_t *ret_body, struct sw_err *err) {
    struct cipher cipher;
    uint64_t before = 0;
    bool good = cipher_init(&cipher, key->bytes, true);
    for (unsigned i = 0; good && i < n; i++) {
        good = seal_piece(&cipher, name, &pieces[i], before, ret_body);
        before += sw_object_segments(pieces[i].bytes);
        ret_body += sw_object_body_bytes(pieces[i].bytes);
    }
    cipher_fini(&cipher);
    return good ? 0 : failed(err);
}

void sw_object_unsealing_begin(struct sw_object_unsealing *u, const struct sw_object_key *key, const char *name,
                               const struct sw_object_range *range, const struct sw_extent *memory) {
    struct cipher cipher;
    const struct place place = place_of(memory, range->first * SW_OBJECT_SEGMENT_BYTES);
    *u = (struct sw_object_unsealing){.name = name,
                                      .bytes = range->bytes,
                                      .before = range->before,
                                      .index = range->first,
                                      .end = range->first + range->n,
                                      .run = place.run,
                                      .run_at = place.at};
    u->good = cipher_init(&cipher, key->bytes, false);
    u->context = cipher.context;
}

/* Takes at most a segment's rest, or its tag's. Returns how many bytes it has taken. */
static size_t take(struct sw_object_unsealing *u, const uint8_t *body, size_t bytes) {
    const struct cipher cipher = {.context = u->context};
    const uint64_t length = segment_bytes(u->bytes, u->index);
    const uint64_t left = u->at < length ? length - u->at : length + SW_OBJECT_TAG_BYTES - u->at;
    const size_t n = bytes < left ? bytes : (size_t)left;
    if (u->at == 0)
        u->good = begin_segment(&cipher, u->before + u->index, u->index + 1 == sw_object_segments(u->bytes), u->name);
    if (u->at < length) {
        struct place place = {.run = u->run, .at = u->run_at};
        u->good = u->good && run(&cipher, &place, (uint8_t *)body, n);
        u->run = place.run;
        u->run_at = place.at;
    } else {
        memcpy(u->tag + (u->at - length), body, n);
    }
    u->at += n;
    if (u->at == length + SW_OBJECT_TAG_BYTES) {
        u->good = u->good && finish(&cipher, u->tag);
        u->at = 0;
        u->index++;
    }
    return n;
}

void sw_object_unsealing_take(struct sw_object_unsealing *u, const void *body, size_t bytes) {
    for (const uint8_t *at = body, *end = at + bytes; u->good && at < end;) {
        u->good = u->index < u->end;
        at += u->good ? take(u, at, (size_t)(end - at)) : 0;
    }
}

int sw_object_unsealing_end(struct sw_object_unsealing *u, struct sw_err *err) {
    const bool is_whole = u->good && u->index == u->end && u->at == 0;
    EVP_CIPHER_CTX_free(u->context); /* this wipes the key */
    u->context = NULL;
    return is_whole ? 0 : altered(err, u->name, "content");
}

/* ---- whole objects ---- */

int sw_object_seal_request(const struct sw_object_keyring *keyring, const struct sw_object_piece *pieces, unsigned n,
                           struct sw_object_request *request, struct sw_err *err) {
    struct sw_object_key key;
    int rc = sw_object_key_make(&key, err);
    if (!rc)
        rc = sw_object_key_wrap(keyring, &key, request->name, request->meta, err);
    if (!rc)
        rc = sw_object_seal(&key, request->name, pieces, n, request->body, err);
    if (!rc && !sw_object_hash(request->body, request->body_bytes, request->hash))
        rc = failed(err);
    sw_object_key_fini(&key);
    return rc;
}

int sw_object_unseal_request(const struct sw_object_keyring *keyring, const struct sw_object_request *request,
                             void **ret, size_t *ret_bytes, struct sw_err *err) {
    const uint64_t step = SW_OBJECT_SEGMENT_BYTES + SW_OBJECT_TAG_BYTES, n = (request->body_bytes + step - 1) / step;
    struct sw_object_key key;
    const uint64_t bytes = request->body_bytes - n * SW_OBJECT_TAG_BYTES;
    if (request->body_bytes <= n * SW_OBJECT_TAG_BYTES || sw_object_body_bytes(bytes) != request->body_bytes)
        return altered(err, request->name, "length");
    const struct sw_extent memory = {.memory = sw_alloc(bytes), .bytes = bytes};
    if (!memory.memory)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for an object of the remote tier");
    int rc = sw_object_key_open(keyring, request->name, request->meta, &key, NULL, err);
    if (!rc) {
        struct sw_object_unsealing unsealing;
        sw_object_unsealing_begin(&unsealing, &key, request->name, &(struct sw_object_range){.bytes = bytes, .n = n},
                                  &memory);
        sw_object_unsealing_take(&unsealing, request->body, request->body_bytes);
        rc = sw_object_unsealing_end(&unsealing, err);
        sw_object_key_fini(&key);
    }
    if (rc) {
        sw_free(memory.memory);
        return rc;
    }
    *ret = memory.memory;
    *ret_bytes = memory.bytes;
    return 0;
}
