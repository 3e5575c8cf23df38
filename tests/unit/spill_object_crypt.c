/* Objects come back as they were, or not at all: every byte of body, key and name counts, and so does the order. */
#include "base/alloc.h"
#include "spill/tier/remote/object_crypt.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <ctype.h>
#include <openssl/evp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEY_A "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define KEY_B "ff0102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f\n"
#define NAME "frames/host/0123"

static char folder[SW_TEST_PATH_BYTES], path[80];
static struct sw_object_keyring *keyring;
static struct sw_object_key key;

static void write_keys(const char *text) {
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    ck_assert_int_ge(fputs(text, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_int_eq(chmod(path, 0600), 0);
}

static void open_keys(const char *text) {
    struct sw_err err = {0};
    write_keys(text);
    sw_object_keyring_close(keyring);
    ck_assert_msg(sw_object_keyring_open(&keyring, path, &err) == 0, "%s", err.msg);
}

static void setup(void) {
    sw_test_folder(folder);
    (void)snprintf(path, sizeof path, "%s/keys", folder);
    open_keys(KEY_A);
    ck_assert_int_eq(sw_object_key_make(&key, NULL), 0);
}

static void teardown(void) {
    sw_object_keyring_close(keyring);
    keyring = NULL;
    sw_test_remove(folder);
    ck_assert_int_eq(sw_alloc_live(), 0);
}

/* An object in runs of memory, none of which ends where a segment does. */
enum { RUNS = 3, MAX_BYTES = (3 << 20) + 4097 };
struct object {
    uint64_t bytes;
    uint8_t *memory, *body;
    struct sw_extent runs[RUNS];
};

static struct object object_new(uint64_t bytes) {
    struct object object = {.bytes = bytes};
    object.memory = sw_alloc(MAX_BYTES);
    object.body = sw_alloc(sw_object_body_bytes(MAX_BYTES));
    for (uint64_t i = 0; i < bytes; i++)
        object.memory[i] = (uint8_t)(i * 2654435761u >> 9);
    const uint64_t ends[RUNS + 1] = {0, 12288, (2 << 20) + 4096, MAX_BYTES};
    for (unsigned i = 0; i < RUNS; i++)
        object.runs[i] = (struct sw_extent){.memory = object.memory + ends[i], .bytes = ends[i + 1] - ends[i]};
    const struct sw_object_piece piece = {.memory = object.runs, .bytes = bytes};
    ck_assert_int_eq(sw_object_seal(&key, NAME, &piece, 1, object.body, NULL), 0);
    return object;
}

static void object_free(struct object *object) {
    sw_free(object->memory);
    sw_free(object->body);
}

/* Decrypts n segments, whose body arrives in runs of so many bytes. */
static int unseal_segments(const struct object *object, const char *name, uint64_t first, uint64_t n, uint64_t step) {
    struct sw_object_unsealing u;
    const uint64_t segment = SW_OBJECT_SEGMENT_BYTES + SW_OBJECT_TAG_BYTES, whole = sw_object_body_bytes(object->bytes);
    const uint64_t end = (first + n) * segment < whole ? (first + n) * segment : whole;
    const struct sw_object_range range = {.bytes = object->bytes, .first = first, .n = n};
    sw_object_unsealing_begin(&u, &key, name, &range, object->runs);
    for (uint64_t at = first * segment; at < end; at += step)
        sw_object_unsealing_take(&u, object->body + at, step < end - at ? step : end - at);
    return sw_object_unsealing_end(&u, NULL);
}

static int unseal(const struct object *object, const char *name) {
    return unseal_segments(object, name, 0, sw_object_segments(object->bytes), UINT64_C(1) << 40);
}

static const uint64_t lengths[] = {1, 4096, 12288, 12289, 1 << 20, (1 << 20) + 1, 2 << 20, MAX_BYTES};
enum { N_LENGTHS = sizeof lengths / sizeof lengths[0] };

START_TEST(bytes_come_back) {
    struct object object = object_new(lengths[_i]);
    uint8_t *before = sw_alloc(MAX_BYTES);
    memcpy(before, object.memory, MAX_BYTES);
    ck_assert_uint_eq(sw_object_body_bytes(object.bytes), object.bytes + 16 * sw_object_segments(object.bytes));
    memset(object.memory, 0xee, object.bytes);
    ck_assert_int_eq(unseal(&object, NAME), 0);
    ck_assert_mem_eq(object.memory, before, MAX_BYTES);
    /* Segment by segment, the last first. */
    memset(object.memory, 0xee, object.bytes);
    for (uint64_t i = sw_object_segments(object.bytes); i-- > 0;)
        ck_assert_int_eq(unseal_segments(&object, NAME, i, 1, UINT64_C(1) << 40), 0);
    ck_assert_mem_eq(object.memory, before, MAX_BYTES);
    sw_free(before);
    object_free(&object);
}
END_TEST

START_TEST(bytes_may_arrive_in_any_lengths) {
    static const uint64_t steps[] = {1, 15, 4093, 16384, SW_OBJECT_SEGMENT_BYTES, SW_OBJECT_SEGMENT_BYTES + 5};
    struct object object = object_new((1 << 20) + 12289);
    uint8_t *before = sw_alloc(object.bytes);
    memcpy(before, object.memory, object.bytes);
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        memset(object.memory, 0xee, object.bytes);
        ck_assert_int_eq(unseal_segments(&object, NAME, 0, 2, steps[i]), 0);
        ck_assert_mem_eq(object.memory, before, object.bytes);
    }
    sw_free(before);
    object_free(&object);
}
END_TEST

START_TEST(too_few_bytes_and_too_many_are_noticed) {
    struct object object = object_new(1000);
    struct sw_object_unsealing u;
    for (size_t n = 1014; n <= 1018; n++) {
        const struct sw_object_range range = {.bytes = 1000, .n = 1};
        sw_object_unsealing_begin(&u, &key, NAME, &range, object.runs);
        sw_object_unsealing_take(&u, object.body, n);
        ck_assert_int_eq(sw_object_unsealing_end(&u, NULL), n == 1016 ? 0 : -SW_ECHECKSUM);
    }
    object_free(&object);
}
END_TEST

START_TEST(a_changed_byte_is_noticed) {
    struct object object = object_new((1 << 20) + 100);
    const uint64_t body_bytes = sw_object_body_bytes(object.bytes);
    const uint64_t places[] = {0, 500000, (1 << 20) - 1, 1 << 20, (1 << 20) + 15, (1 << 20) + 16, body_bytes - 1};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        object.body[places[i]] ^= 1;
        ck_assert_int_eq(unseal(&object, NAME), -SW_ECHECKSUM);
        object.body[places[i]] ^= 1;
    }
    ck_assert_int_eq(unseal(&object, NAME), 0);
    ck_assert_int_eq(unseal(&object, NAME "4"), -SW_ECHECKSUM);
    object_free(&object);
}
END_TEST

/* The beginning of an object is none, though each of its segments is whole; and segments have their places. */
START_TEST(truncated_and_reordered_objects_are_noticed) {
    struct object object = object_new(3 << 20);
    const uint64_t step = SW_OBJECT_SEGMENT_BYTES + SW_OBJECT_TAG_BYTES;
    uint8_t *aside = sw_alloc(step);
    object.bytes = 2 << 20;
    ck_assert_int_eq(unseal(&object, NAME), -SW_ECHECKSUM);
    object.bytes = 3 << 20;
    memcpy(aside, object.body, step);
    memcpy(object.body, object.body + step, step);
    memcpy(object.body + step, aside, step);
    ck_assert_int_eq(unseal(&object, NAME), -SW_ECHECKSUM);
    sw_free(aside);
    object_free(&object);
}
END_TEST

START_TEST(a_body_is_what_the_format_says) {
    /* The one segment of an object, decrypted by direct calls of libcrypto. */
    struct object object = object_new(1000);
    uint8_t nonce[12] = {1}, plain[1000];
    int n = 0;
    EVP_CIPHER_CTX *c = EVP_CIPHER_CTX_new();
    ck_assert_int_eq(EVP_DecryptInit_ex(c, EVP_aes_256_gcm(), NULL, key.bytes, nonce), 1);
    ck_assert_int_eq(EVP_DecryptUpdate(c, NULL, &n, (const uint8_t *)"spillway object 1\0" NAME, 18 + sizeof NAME - 1),
                     1);
    ck_assert_int_eq(EVP_DecryptUpdate(c, plain, &n, object.body, 1000), 1);
    ck_assert_int_eq(EVP_CIPHER_CTX_ctrl(c, EVP_CTRL_AEAD_SET_TAG, 16, object.body + 1000), 1);
    ck_assert_int_eq(EVP_DecryptFinal_ex(c, plain + n, &n), 1);
    ck_assert_mem_eq(plain, object.memory, 1000);
    EVP_CIPHER_CTX_free(c);
    object_free(&object);
}
END_TEST

START_TEST(a_wrapped_key_is_of_one_object) {
    struct sw_object_key found;
    char meta[SW_OBJECT_META_BYTES], again[SW_OBJECT_META_BYTES];
    bool is_old = true;
    ck_assert_int_eq(sw_object_key_wrap(keyring, &key, NAME, meta, NULL), 0);
    ck_assert_int_eq(sw_object_key_wrap(keyring, &key, NAME, again, NULL), 0);
    ck_assert_str_ne(meta, again);
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, &is_old, NULL), 0);
    ck_assert_mem_eq(found.bytes, key.bytes, sizeof key.bytes);
    ck_assert(!is_old);
    ck_assert_int_eq(sw_object_key_open(keyring, NAME "4", meta, &found, NULL, NULL), -SW_ECHECKSUM);
    for (size_t i = 2 + 16 + 1; meta[i]; i++) {
        const char was = meta[i];
        meta[i] = was == '0' ? '1' : '0';
        ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, NULL, NULL), -SW_ECHECKSUM);
        meta[i] = was;
    }
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, "", &found, NULL, NULL), -SW_ECHECKSUM);
    meta[strlen(meta) - 1] = 0;
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, NULL, NULL), -SW_ECHECKSUM);
    again[0] = '2';
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, again, &found, NULL, NULL), -SW_EVERSION);
}
END_TEST

START_TEST(master_keys_are_exchanged) {
    struct sw_object_key found;
    char meta[SW_OBJECT_META_BYTES];
    struct sw_err err;
    bool is_old = false;
    ck_assert_int_eq(sw_object_key_wrap(keyring, &key, NAME, meta, NULL), 0);
    open_keys("# the new one\n" KEY_B KEY_A);
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, &is_old, NULL), 0);
    ck_assert(is_old);
    ck_assert_int_eq(sw_object_key_wrap(keyring, &found, NAME, meta, NULL), 0);
    open_keys(KEY_B);
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, &is_old, NULL), 0);
    ck_assert(!is_old);
    ck_assert_mem_eq(found.bytes, key.bytes, sizeof key.bytes);
    open_keys(KEY_A);
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, NULL, &err), -SW_EACCES);
    ck_assert_ptr_nonnull(strstr(err.msg, "a master key that is not configured"));
}
END_TEST

/* The first one and the last one open what they have wrapped. */
START_TEST(sixteen_master_keys_and_no_more) {
    enum { MOST = 16 };
    char lines[(MOST + 1) * 65 + 1], meta[2][SW_OBJECT_META_BYTES];
    struct sw_object_keyring *none = NULL;
    struct sw_object_key found;
    struct sw_err err;
    for (unsigned i = 0; i <= MOST; i++)
        (void)snprintf(lines + (size_t)i * 65, 66, "%064x\n", i + 1);
    for (unsigned i = 0; i < 2; i++) {
        open_keys(lines + (i ? MOST * 65 : 65));
        ck_assert_int_eq(sw_object_key_wrap(keyring, &key, NAME, meta[i], NULL), 0);
    }
    open_keys(lines + 65);
    for (unsigned i = 0; i < 2; i++) {
        ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta[i], &found, NULL, NULL), 0);
        ck_assert_mem_eq(found.bytes, key.bytes, sizeof key.bytes);
    }
    write_keys(lines);
    ck_assert_int_eq(sw_object_keyring_open(&none, path, &err), -SW_ECONFIG);
    ck_assert_ptr_nonnull(strstr(err.msg, "1 to 16 lines"));
}
END_TEST

/* Both cases of letters are the same key, and the last line may lack its end. */
START_TEST(master_keys_are_hexadecimal) {
    char upper[] = KEY_B;
    char meta[SW_OBJECT_META_BYTES];
    struct sw_object_key found;
    open_keys(KEY_B);
    ck_assert_int_eq(sw_object_key_wrap(keyring, &key, NAME, meta, NULL), 0);
    for (char *at = upper; *at; at++)
        *at = (char)toupper((unsigned char)*at);
    upper[strlen(upper) - 1] = 0;
    open_keys(upper);
    ck_assert_int_eq(sw_object_key_open(keyring, NAME, meta, &found, NULL, NULL), 0);
    ck_assert_mem_eq(found.bytes, key.bytes, sizeof key.bytes);
}
END_TEST

/* The characters beside the digits, as each digit of the first byte and of the last. */
START_TEST(master_keys_have_no_other_characters) {
    static const size_t places[] = {0, 1, 62, 63};
    struct sw_object_keyring *none = NULL;
    for (const char *other = "/:@G`g -"; *other; other++)
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            char line[] = KEY_A;
            line[places[i]] = *other;
            write_keys(line);
            ck_assert_msg(sw_object_keyring_open(&none, path, NULL) == -SW_ECONFIG, "%s", line);
        }
    ck_assert_ptr_null(none);
}
END_TEST

START_TEST(malformed_master_keys_are_refused) {
    struct sw_object_keyring *none = NULL;
    const char *bad[] = {"", "# none\n", "0011\n", KEY_A "x\n", "0" KEY_A, KEY_A "\n" KEY_B "junk\n"};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        write_keys(bad[i]);
        ck_assert_int_eq(sw_object_keyring_open(&none, path, NULL), -SW_ECONFIG);
    }
    write_keys(KEY_A);
    for (mode_t others = 1; others <= 4; others *= 2) {
        ck_assert_int_eq(chmod(path, 0600 | others), 0);
        ck_assert_int_eq(sw_object_keyring_open(&none, path, NULL), -SW_EACCES);
    }
    (void)unsetenv("CREDENTIALS_DIRECTORY");
    ck_assert_int_eq(sw_object_keyring_open(&none, NULL, NULL), -SW_ECONFIG);
    ck_assert_ptr_null(none);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("object_crypt");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_loop_test(tests, bytes_come_back, 0, N_LENGTHS);
    tcase_add_test(tests, bytes_may_arrive_in_any_lengths);
    tcase_add_test(tests, too_few_bytes_and_too_many_are_noticed);
    tcase_add_test(tests, a_changed_byte_is_noticed);
    tcase_add_test(tests, truncated_and_reordered_objects_are_noticed);
    tcase_add_test(tests, a_body_is_what_the_format_says);
    tcase_add_test(tests, a_wrapped_key_is_of_one_object);
    tcase_add_test(tests, master_keys_are_exchanged);
    tcase_add_test(tests, sixteen_master_keys_and_no_more);
    tcase_add_test(tests, master_keys_are_hexadecimal);
    tcase_add_test(tests, master_keys_have_no_other_characters);
    tcase_add_test(tests, malformed_master_keys_are_refused);
    Suite *suite = suite_create("spill_object_crypt");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
