/* The option table: a wrong file or assignment is refused with a text that says where and why, and leaves the
 * configuration unchanged. Printed configurations load again. */
#include "config/config.h"
#include "base/log.h"
#include "base/memory.h"
#include "tests/lib/descriptors.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char path[SW_TEST_PATH_BYTES];
static uint64_t memory_bytes; /* of the machine; 0: what it has */

uint64_t __real_sw_memory_bytes(const char *root);
uint64_t __wrap_sw_memory_bytes(const char *root);
uint64_t __wrap_sw_memory_bytes(const char *root) {
    return memory_bytes ? memory_bytes : __real_sw_memory_bytes(root);
}

static void write_file(const char *text, size_t bytes) {
    const int fd = sw_test_file(path);
    ck_assert_int_eq(write(fd, text, bytes), (ssize_t)bytes);
    ck_assert_int_eq(close(fd), 0);
}

static int load(struct sw_config *config, const char *text, struct sw_err *err) {
    write_file(text, strlen(text));
    int rc = sw_config_load(config, path, true, err);
    ck_assert_int_eq(unlink(path), 0);
    return rc;
}

static void print_to(char *ret, size_t ret_bytes, const struct sw_config *config) {
    FILE *out = fmemopen(ret, ret_bytes, "w");
    ck_assert_ptr_nonnull(out);
    sw_config_print(config, out);
    ck_assert_int_eq(fclose(out), 0);
}

START_TEST(defaults) {
    struct sw_config config;
    struct sw_err err;
    sw_config_init(&config);
    ck_assert_str_eq(config.data_socket, "/run/spillway/data.sock");
    ck_assert_uint_eq(config.data_socket_mode, 0660);
    ck_assert_str_eq(config.device, "auto");
    ck_assert_str_eq(config.log_level, "info");
    ck_assert_uint_eq(config.scratch_bytes, 256u << 20);
    ck_assert_uint_eq(config.chunk_bytes, 0);
    ck_assert_uint_eq(config.slots, 0);
    ck_assert_uint_eq(config.gpu_frame_bytes, UINT64_C(4) << 30);
    ck_assert_uint_eq(config.host_tier_bytes, UINT64_C(8) << 30);
    ck_assert_uint_eq(config.host_tier_initial_bytes, 256u << 20);
    ck_assert_uint_eq(config.host_tier_ahead_pct, 10);
    ck_assert_uint_eq(config.host_tier_slab_bytes, 256u << 20);
    ck_assert_str_eq(config.nvme_tier_directory, "none");
    ck_assert_uint_eq(config.nvme_tier_bytes, UINT64_C(64) << 30);
    ck_assert_uint_eq(config.host_tier_high_pct, 90);
    ck_assert_uint_eq(config.host_tier_low_pct, 80);
    ck_assert_uint_eq(config.max_sessions, 256);
    ck_assert_uint_eq(config.max_regions, 1048576);
    ck_assert_uint_eq(config.max_session_regions, 65536);
    ck_assert_uint_eq(config.max_session_operations, 256);
    ck_assert_uint_eq(config.max_session_memories, 1024);
    ck_assert_uint_eq(config.allowed_uids.n + config.allowed_gids.n, 0);
    ck_assert_uint_eq(config.tenant_bytes + config.tenant_regions, 0);
    ck_assert_uint_eq(config.tenant_sessions + config.tenant_operations, 0);
    ck_assert_int_eq(sw_config_check(&config, &err), 0);
}
END_TEST

START_TEST(shipped_file_is_the_defaults) {
    char printed[4096] = "", shipped[4096] = "";
    struct sw_config config;
    sw_config_init(&config);
    print_to(printed, sizeof printed, &config);
    FILE *file = fopen(SW_SOURCE_DIR "/config/spillwayd.json", "r");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_gt(fread(shipped, 1, sizeof shipped - 1, file), 0);
    ck_assert_int_eq(fclose(file), 0);
    ck_assert_str_eq(shipped, printed);
}
END_TEST

/* The values are the same, from whatever source. */
static void ck_same_values(const struct sw_config *a, const struct sw_config *b) {
    struct sw_config_option option;
    for (unsigned i = 0; sw_config_describe(i, &option); i++)
        ck_assert_msg(!sw_config_differs(a, b, i), "%s differs", option.name);
}

START_TEST(print_and_load_round_trip) {
    static const char *const assignments[] = {
        "data_socket=/tmp/with \"quotes\" and \\.sock",
        "data_socket_mode=0777",
        "device=host",
        "log_level=debug",
        "scratch_bytes=100000000",
        "chunk_bytes=32 KiB",
        "slots=16",
        "host_tier_bytes=64 TiB",
        "host_tier_initial_bytes=1",
        "host_tier_ahead_pct=100",
        "host_tier_slab_bytes=2MiB",
        "max_sessions=1",
        "max_regions=1073741824",
        "max_session_regions=1",
        "max_session_operations=65536",
        "max_session_memories=\t7",
        "allowed_uids=[0, 1000, 4294967294]",
        "allowed_gids=1000",
        "tenant_bytes=1.5G",
        "tenant_regions=1073741824",
        "tenant_sessions=3",
        "tenant_operations=4",
        "quotas=[{\"uid\": 1000, \"bytes\": \"1.5 GiB\"}, {\"gid\": 0, \"sessions\": 0, \"regions\": 7}]",
    };
    struct sw_config config, loaded;
    struct sw_err err;
    char printed[4096] = "";
    sw_config_init(&config);
    for (size_t i = 0; i < sizeof assignments / sizeof assignments[0]; i++)
        ck_assert_msg(sw_config_set(&config, assignments[i], &err) == 0, "%s: %s", assignments[i], err.msg);
    ck_assert_uint_eq(config.data_socket_mode, 0777);
    ck_assert_uint_eq(config.scratch_bytes, 100000000);
    ck_assert_uint_eq(config.host_tier_bytes, UINT64_C(64) << 40);
    ck_assert_uint_eq(config.tenant_bytes, UINT64_C(3) << 29);
    ck_assert_uint_eq(config.allowed_uids.n, 3);
    ck_assert_uint_eq(config.allowed_uids.ids[2], 4294967294);
    ck_assert_uint_eq(config.allowed_gids.n, 1);
    ck_assert_uint_eq(config.quotas.n, 2);
    ck_assert_uint_eq(sw_config_limit(&config, &config.quotas.rows[0], SW_LIMIT_BYTES), UINT64_C(3) << 29);
    ck_assert_uint_eq(sw_config_limit(&config, &config.quotas.rows[1], SW_LIMIT_OPERATIONS), 4);
    ck_assert_uint_eq(sw_config_limit(&config, &config.quotas.rows[1], SW_LIMIT_SESSIONS), 0);
    ck_assert_uint_eq(sw_config_limit(&config, NULL, SW_LIMIT_SESSIONS), 3);
    print_to(printed, sizeof printed, &config);
    sw_config_init(&loaded);
    ck_assert_msg(load(&loaded, printed, &err) == 0, "%s", err.msg);
    ck_same_values(&loaded, &config);
}
END_TEST

static const struct {
    const char *text, *says;
} bad_files[] = {
    {"{\"nonsense\": 1}", "nonsense: unknown option"},
    {"{\"max_sessions\": \"12\"}", "max_sessions: \"12\" is not a whole number from 1 to 65536"},
    {"{\"max_sessions\": 1.5}", "max_sessions: 1.5 is not a whole number"},
    {"{\"max_sessions\": true}", "max_sessions: true is not"},
    {"{\"max_sessions\": null}", "max_sessions: null is not"},
    {"{\"max_sessions\": [1]}", "max_sessions: [1] is not"},
    {"{\"max_sessions\": {}}", "max_sessions: {} is not"},
    {"{\"max_sessions\": 0}", "from 1 to 65536"},
    {"{\"max_sessions\": -1}", "max_sessions: -1 is not"},
    {"{\"max_sessions\": 65537}", "max_sessions: 65537 is not"},
    {"{\"scratch_bytes\": 67108863}", "scratch_bytes: 67108863 is not a size from 64 MiB to 16 GiB"},
    {"{\"scratch_bytes\": 17179869185}", "17179869185 is not a size"},
    {"{\"scratch_bytes\": -268435456}", "-268435456 is not a size"},
    {"{\"scratch_bytes\": \"256 MB\"}", "\"256 MB\" is not a size, such as 65536, 64M or 1.5GiB"},
    {"{\"scratch_bytes\": \"\"}", "\"\" is not a size"},
    {"{\"scratch_bytes\": \"MiB\"}", "\"MiB\" is not a size"},
    {"{\"scratch_bytes\": \" 256 MiB\"}", "is not a size"},
    {"{\"scratch_bytes\": \"-1 MiB\"}", "is not a size"},
    {"{\"scratch_bytes\": \"0x10000000\"}", "is not a size"},
    {"{\"scratch_bytes\": \"256 MiB more\"}", "is not a size"},
    {"{\"scratch_bytes\": \"99999999999 TiB\"}", "\"99999999999 TiB\" is not a size from 64 MiB to 16 GiB"},
    {"{\"scratch_bytes\": \"18446744073709551615 TiB\"}", "is not a size from 64 MiB to 16 GiB"},
    {"{\"scratch_bytes\": \"18446744073709551616\"}", "is not a size from 64 MiB to 16 GiB"},
    {"{\"scratch_bytes\": \"18446744073709551616 MB\"}", "is not a size, such as 65536"},
    {"\xef\xbb\xbf{\"slots\": 3}", ":1: begins with a byte order mark (BOM): remove it"},
    {"{\"scratch_bytes\": 268435456.0}", "is not a size"},
    {"{\"chunk_bytes\": 32767}", "in steps of 32 KiB"},
    {"{\"slots\": 17}", "slots: 17 is not"},
    {"{\"slots\": 99999999999999999999}", "too big integer"},
    {"{\"host_tier_bytes\": 0}", "host_tier_bytes: 0 is not"},
    {"{\"host_tier_bytes\": 2097153}", "in steps of 2 MiB"},
    {"{\"host_tier_bytes\": \"3 MiB\"}",
     "host_tier_bytes: \"3 MiB\" is not a size from 2 MiB to 64 TiB in steps of 2 MiB"},
    {"{\"data_socket\": \"\"}", "data_socket: \"\" is not a string of 1 to 107 bytes"},
    {"{\"data_socket\": 7}", "data_socket: 7 is not a string"},
    {"{\"data_socket\": \"/aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
     "aaaaaaaaaaaaaaaaaaa\"}",
     "data_socket: \"/aaaaaaaaaaaaaaaaaaaaa...\" is not a string of 1 to 107 bytes"},
    {"{\"data_socket_mode\": 660}", "data_socket_mode: 660 is not a string of octal digits"},
    {"{\"data_socket_mode\": \"0680\"}", "\"0680\" is not"},
    {"{\"data_socket_mode\": \"1777\"}", "\"1777\" is not"},
    {"{\"data_socket_mode\": \"\"}", "data_socket_mode: \"\" is not"},
    {"{\"device\": \"Host\"}", "device: \"Host\" is not one of auto, cuda, host"},
    {"{\"device\": \"\"}", "device: \"\" is not one of"},
    {"{\"device\": \"auto, cuda\"}", "is not one of"},
    {"{\"log_level\": 3}", "log_level: 3 is not one of"},
    {"{\"allowed_uids\": \"1000\"}", "allowed_uids: \"1000\" is not a list of up to 64 numbers"},
    {"{\"allowed_uids\": [1000, \"root\"]}", "is not a list"},
    {"{\"allowed_uids\": [-1]}", "allowed_uids: [-1] is not a list"},
    {"{\"allowed_gids\": [4294967295]}", "is not a list"},
    {"{\"allowed_gids\": [[]]}", "is not a list"},
    {"{\"allowed_gids\": "
     "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,"
     "0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]}",
     "is not a list"},
    {"", ":1: "},
    {"{\n\"slots\": 1,\n}", ":3: "},
    {"{\n\n\"slots\"", ":3: "},
    {"{\"slots\": 1, \"slots\": 2}", "duplicate"},
    {"{\"slots\": 1} x", ":1: "},
    {"[]", "must be one JSON object"},
    {"{\"device\": \"\xff\"}", ":1: "},
};

START_TEST(bad_file_is_refused_whole) {
    struct sw_config config, before;
    struct sw_err err = {0};
    char text[512];
    sw_config_init(&config);
    before = config;
    /* A good option ahead of the bad one must not stick. */
    const char *bad = bad_files[_i].text;
    (void)snprintf(text, sizeof text, "%s%s", strncmp(bad, "{\"", 2) == 0 ? "{\"max_regions\": 5, " : bad,
                   strncmp(bad, "{\"", 2) == 0 ? bad + 1 : "");
    ck_assert_int_eq(load(&config, text, &err), -SW_ECONFIG);
    ck_assert_int_eq(err.code, -SW_ECONFIG);
    ck_assert_msg(strstr(err.msg, bad_files[_i].says) != NULL, "'%s' does not say '%s'", err.msg, bad_files[_i].says);
    ck_assert_msg(strstr(err.msg, path + sizeof "/tmp" - 1) != NULL, "'%s' does not name the file", err.msg);
    ck_assert_mem_eq(&config, &before, sizeof config);
}
END_TEST

START_TEST(unreadable_files) {
    struct sw_config config, before;
    struct sw_err err = {0};
    sw_config_init(&config);
    before = config;
    const unsigned n_fds = sw_count_fds();
    ck_assert_int_eq(sw_config_load(&config, "/nonexistent/spillwayd.json", true, &err), -SW_EIO);
    ck_assert_str_eq(err.msg, "/nonexistent/spillwayd.json: No such file or directory");
    ck_assert_int_eq(sw_config_load(&config, "/tmp", true, &err), -SW_EIO);
    ck_assert_str_eq(err.msg, "/tmp: Is a directory");
    ck_assert_int_eq(sw_config_load(&config, "/tmp", false, &err), -SW_ECONFIG);
    ck_assert_str_eq(err.msg, "/tmp: cannot be read again: not a regular file");
    ck_assert_uint_eq(sw_count_fds(), n_fds);
    static const char zeros[64];
    write_file(zeros, sizeof zeros);
    ck_assert_int_eq(sw_config_load(&config, path, true, &err), -SW_ECONFIG);
    ck_assert_int_eq(unlink(path), 0);
    ck_assert_mem_eq(&config, &before, sizeof config);
}
END_TEST

static const struct {
    const char *assignment, *says;
} bad_assignments[] = {
    {"", "must be NAME=VALUE"},
    {"slots", "must be NAME=VALUE"},
    {"=1", "must be NAME=VALUE"},
    {"slot=1", "slot: unknown option; did you mean slots?"},
    {"host_teir_bytes=4G", "host_teir_bytes: unknown option; did you mean host_tier_bytes?"},
    {"nonsense=1", "nonsense: unknown option"},
    {"slots_and_a_name_that_is_longer_than_any_option_could_be=1", "unknown option"},
    {"slots=", "slots: \"\" is not"},
    {"slots=two", "slots: \"two\" is not"},
    {"slots=\"2\"", "slots: \"2\" is not"},
    {"slots=17", "slots: 17 is not"},
    {"slots=-1", "slots: -1 is not"},
    {"device=gpu", "device: \"gpu\" is not one of"},
    {"data_socket=", "data_socket: \"\" is not"},
    {"data_socket=\xff\xfe", "not UTF-8"},
    {"scratch_bytes=1MiB", "scratch_bytes: \"1MiB\" is not a size from 64 MiB"},
    {"quotas=1000", "quotas: is not a list of up to 64 rows"},
    {"quotas=[{\"uid\": 1, \"bytes\": \"x\"}]", "quotas[0]: tenant_bytes: \"x\" is not a size"},
    {"quotas=[{\"uid\": 1, \"bytes\": 1}, 7]", "quotas[1]: is not an object"},
    {"quotas=[{\"uid\": 1}]", "quotas[0]: has no limit"},
    {"quotas=[{\"bytes\": 1}]", "quotas[0]: must have a uid or a gid"},
    {"quotas=[{\"uid\": 1, \"gid\": 1, \"bytes\": 1}]", "and not both"},
    {"quotas=[{\"gid\": 4294967295, \"bytes\": 1}]", "gid: is not a number from 0 to 4294967294"},
    {"quotas=[{\"gid\": 1, \"bites\": 1}]", "bites: there is no such limit"},
    {"host_tier_bytes=0%", "\"0%\" is not a size"},
    {"host_tier_bytes=101%", "\"101%\" is not a size"},
    {"host_tier_bytes=40 %", "\"40 %\" is not a size, such as 65536, 64M or 1.5GiB, or 1% to 100% of memory"},
    {"host_tier_bytes=%", "\"%\" is not a size"},
    {"scratch_bytes=40%", "\"40%\" is not a size, such as"},
    {"max_sessions=auto", "max_sessions: \"auto\" is not a whole number"},
    {"data_socket_mode=888", "data_socket_mode: \"888\" is not"},
};

#define MIB UINT64_C(1048576)

/* A bound that is lowered alone lowers the defaults that depend on it; raising it raises them again. */
static const struct {
    const char *bound, *low, *high, *follower;
    size_t at; /* of the follower */
    uint64_t followed, fallback;
} followers[] = {
    {"host_tier_bytes", "64 MiB", "1 GiB", "host_tier_initial_bytes",
     offsetof(struct sw_config, host_tier_initial_bytes), 64 * MIB, 256 * MIB},
    {"host_tier_bytes", "2 MiB", "256 MiB", "host_tier_slab_bytes", offsetof(struct sw_config, host_tier_slab_bytes),
     2 * MIB, 256 * MIB},
    {"max_regions", "1000", "65537", "max_session_regions", offsetof(struct sw_config, max_session_regions), 1000,
     65536},
    {"host_tier_high_pct", "50", "81", "host_tier_low_pct", offsetof(struct sw_config, host_tier_low_pct), 50, 80},
};
enum { FOLLOWERS = sizeof followers / sizeof followers[0] };

static uint64_t follower_of(const struct sw_config *config, int i) {
    uint64_t value;
    memcpy(&value, (const char *)config + followers[i].at, sizeof value);
    return value;
}

static void set(struct sw_config *config, const char *name, const char *value) {
    char assignment[96];
    struct sw_err err;
    (void)snprintf(assignment, sizeof assignment, "%s=%s", name, value);
    ck_assert_msg(sw_config_set(config, assignment, &err) == 0, "%s: %s", assignment, err.msg);
}

static unsigned index_of(const char *name) {
    struct sw_config_option option;
    unsigned i = 0;
    while (sw_config_describe(i, &option) && strcmp(option.name, name) != 0)
        i++;
    return i;
}

/* The shipped file has every option; an operator changes one value in it. */
START_TEST(one_value_of_the_shipped_file_may_be_lowered) {
    char printed[4096] = "", text[4096], line[96];
    struct sw_config config, loaded;
    struct sw_err err;
    sw_config_init(&config);
    print_to(printed, sizeof printed, &config);
    (void)snprintf(line, sizeof line, "\"%s\": ", followers[_i].bound);
    char *at = strstr(printed, line);
    ck_assert_ptr_nonnull(at);
    const char *quote = strchr(followers[_i].low, ' ') ? "\"" : "";
    (void)snprintf(text, sizeof text, "%.*s%s%s%s%s%s", (int)(at - printed), printed, line, quote, followers[_i].low,
                   quote, at + strcspn(at, ","));
    sw_config_init(&loaded);
    ck_assert_msg(load(&loaded, text, &err) == 0, "%s", err.msg);
    ck_assert_msg(sw_config_check(&loaded, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(follower_of(&loaded, _i), followers[_i].followed);
}
END_TEST

/* "auto" undoes a value, also one of the file before it. */
START_TEST(auto_follows_again) {
    struct sw_config config;
    struct sw_err err;
    char text[96], printed[4096] = "";
    sw_config_init(&config);
    (void)snprintf(text, sizeof text, "{\"%s\": 1}", followers[_i].follower);
    set(&config, followers[_i].bound, followers[_i].low);
    if (strcmp(followers[_i].follower, "host_tier_slab_bytes") != 0) /* which must be larger */
        ck_assert_msg(load(&config, text, &err) == 0, "%s", err.msg);
    set(&config, followers[_i].follower, "auto");
    ck_assert_uint_eq(follower_of(&config, _i), followers[_i].followed);
    print_to(printed, sizeof printed, &config);
    (void)snprintf(text, sizeof text, "\"%s\": \"auto\"", followers[_i].follower);
    ck_assert_msg(strstr(printed, text) != NULL, "%s", printed);
    (void)snprintf(text, sizeof text, "%s=auto", followers[_i].bound);
    ck_assert_int_eq(sw_config_set(&config, text, &err), -SW_ECONFIG);
}
END_TEST

/* A share is of the memory of the machine or the control group; it is printed as it was written. */
START_TEST(sizes_are_shares_of_memory) {
    struct sw_config config, loaded, copied;
    struct sw_err err;
    char printed[4096] = "";
    const uint64_t all = sw_memory_bytes(""), tier = all / 100 * 40;
    sw_config_init(&config);
    sw_config_init(&copied);
    set(&config, "host_tier_bytes", "40%");
    set(&config, "bookkeeping_bytes", "\"100%\"");
    ck_assert_uint_eq(config.host_tier_bytes, tier - tier % (2 * MIB));
    ck_assert_uint_eq(config.bookkeeping_bytes, all / 100 * 100);
    print_to(printed, sizeof printed, &config);
    ck_assert_ptr_nonnull(strstr(printed, "\"host_tier_bytes\": \"40%\""));
    sw_config_init(&loaded);
    ck_assert_msg(load(&loaded, printed, &err) == 0, "%s", err.msg);
    ck_same_values(&loaded, &config);
    sw_config_copy(&copied, &loaded, index_of("bookkeeping_bytes"));
    print_to(printed, sizeof printed, &copied);
    ck_assert_ptr_nonnull(strstr(printed, "\"bookkeeping_bytes\": \"100%\""));
    set(&config, "host_tier_bytes", "64 MiB");
    print_to(printed, sizeof printed, &config);
    ck_assert_ptr_nonnull(strstr(printed, "\"host_tier_bytes\": \"64 MiB\""));
}
END_TEST

/* A share of little or of very much memory becomes the option's bound. */
START_TEST(shares_stay_within_the_bounds) {
    struct sw_config config;
    struct sw_err err = {0};
    sw_config_init(&config);
    memory_bytes = 100 * MIB;
    set(&config, "host_tier_bytes", "1%");
    ck_assert_uint_eq(config.host_tier_bytes, 2 * MIB);
    set(&config, "bookkeeping_bytes", "1%");
    ck_assert_uint_eq(config.bookkeeping_bytes, 16 * MIB);
    set(&config, "host_tier_bytes", "50%");
    ck_assert_uint_eq(config.host_tier_bytes, 50 * MIB);
    memory_bytes = UINT64_C(128) << 40;
    set(&config, "host_tier_bytes", "90%");
    ck_assert_uint_eq(config.host_tier_bytes, UINT64_C(64) << 40);
    memory_bytes = UINT64_MAX; /* not known */
    ck_assert_int_eq(sw_config_set(&config, "host_tier_bytes=1%", &err), -SW_ECONFIG);
    ck_assert_uint_eq(config.host_tier_bytes, UINT64_C(64) << 40);
}
END_TEST

/* A number is none of these, whichever it is: 432 is "0660" in another base. */
START_TEST(numbers_are_no_texts) {
    static const char *const options[] = {"data_socket_mode", "device", "data_socket", "log_level", "control_group"};
    static const int numbers[] = {0, 1, 432};
    struct sw_config config, before;
    struct sw_err err = {0};
    char text[64];
    sw_config_init(&config);
    before = config;
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
        for (size_t n = 0; n < sizeof numbers / sizeof numbers[0]; n++) {
            (void)snprintf(text, sizeof text, "{\"%s\": %d}", options[i], numbers[n]);
            ck_assert_msg(load(&config, text, &err) == -SW_ECONFIG, "%s", text);
            ck_assert_msg(strstr(err.msg, options[i]) != NULL, "%s", err.msg);
            ck_assert_mem_eq(&config, &before, sizeof config);
        }
}
END_TEST

/* An option whose default follows another one says which. */
START_TEST(options_say_what_they_follow) {
    struct sw_config_option option;
    unsigned n = 0;
    for (unsigned i = 0; sw_config_describe(i, &option); i++)
        for (size_t k = 0; k < FOLLOWERS; k++)
            if (strcmp(option.name, followers[k].follower) == 0) {
                ck_assert_msg(option.bound && strcmp(option.bound, followers[k].bound) == 0, "%s", option.name);
                n++;
            }
    ck_assert_uint_eq(n, FOLLOWERS);
}
END_TEST

START_TEST(bad_assignment_is_refused) {
    struct sw_config config, before;
    struct sw_err err = {0};
    sw_config_init(&config);
    before = config;
    ck_assert_int_eq(sw_config_set(&config, bad_assignments[_i].assignment, &err), -SW_ECONFIG);
    ck_assert_msg(strstr(err.msg, bad_assignments[_i].says) != NULL, "'%s' does not say '%s'", err.msg,
                  bad_assignments[_i].says);
    ck_assert_mem_eq(&config, &before, sizeof config);
}
END_TEST

/* The error of a size offers a share of the memory only where that is accepted. */
START_TEST(a_share_is_offered_where_it_is_accepted) {
    static const char *const options[] = {"scratch_bytes", "host_tier_bytes"};
    for (unsigned i = 0; i < 2; i++) {
        struct sw_config config;
        struct sw_err err = {0};
        char assignment[64];
        (void)snprintf(assignment, sizeof assignment, "%s=large", options[i]);
        sw_config_init(&config);
        ck_assert_int_eq(sw_config_set(&config, assignment, &err), -SW_ECONFIG);
        ck_assert_msg(!strstr(err.msg, "of memory") == !i, "%s", err.msg);
    }
}
END_TEST

START_TEST(assignments_take_json_and_bare_words) {
    struct sw_config config;
    struct sw_err err;
    sw_config_init(&config);
    ck_assert_int_eq(sw_config_set(&config, "device=\"host\"", &err), 0);
    ck_assert_str_eq(config.device, "host");
    ck_assert_int_eq(sw_config_set(&config, "device=cuda", &err), 0);
    ck_assert_str_eq(config.device, "cuda"); /* the longer word before it leaves nothing behind */
    struct sw_config other;
    sw_config_init(&other);
    ck_assert_int_eq(sw_config_set(&other, "device=cuda", &err), 0);
    ck_assert_int_eq(sw_config_set(&other, "control_group=operators_of_the_house", &err), 0);
    ck_assert_int_eq(sw_config_set(&other, "control_group=none", &err), 0);
    struct sw_config_option option;
    for (unsigned i = 0; sw_config_describe(i, &option); i++) /* or a reload would say that it has changed */
        ck_assert_msg(!sw_config_differs(&config, &other, i), "%s", option.name);
    ck_assert_int_eq(sw_config_set(&config, "data_socket=12", &err), 0);
    ck_assert_str_eq(config.data_socket, "12");
    ck_assert_int_eq(sw_config_set(&config, "data_socket=a=b", &err), 0);
    ck_assert_str_eq(config.data_socket, "a=b");
    ck_assert_int_eq(sw_config_set(&config, "data_socket_mode=600", &err), 0);
    ck_assert_uint_eq(config.data_socket_mode, 0600);
    ck_assert_int_eq(sw_config_set(&config, "scratch_bytes=1GiB", &err), 0);
    ck_assert_uint_eq(config.scratch_bytes, 1u << 30);
    ck_assert_int_eq(sw_config_set(&config, "scratch_bytes=\"65536  KiB\"", &err), 0);
    ck_assert_uint_eq(config.scratch_bytes, 64u << 20);
    ck_assert_int_eq(sw_config_set(&config, "slots=3", &err), 0);
    ck_assert_uint_eq(config.slots, 3);
}
END_TEST

/* Each element in turn, so that the list has n. */
static char *list_of(const char *name, const char *element, unsigned n) {
    char *ret = NULL;
    size_t bytes;
    FILE *text = open_memstream(&ret, &bytes);
    ck_assert_ptr_nonnull(text);
    (void)fprintf(text, "%s=[", name);
    for (unsigned i = 0; i < n; i++)
        (void)fprintf(text, element, i ? ", " : "", i);
    (void)fprintf(text, "]");
    (void)fclose(text);
    return ret;
}

START_TEST(lists_have_a_bound) {
    static const struct {
        const char *name, *element;
        unsigned most;
    } lists[] = {{"quotas", "%s{\"uid\": %u, \"sessions\": 1}", SW_QUOTA_ROWS},
                 {"allowed_uids", "%s%u", SW_CONFIG_MAX_IDS},
                 {"allowed_gids", "%s%u", SW_CONFIG_MAX_IDS}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (unsigned more = 0; more < 3; more++) {
            struct sw_config config;
            struct sw_err err = {0};
            char *list = list_of(lists[i].name, lists[i].element, lists[i].most + more);
            sw_config_init(&config);
            ck_assert_int_eq(sw_config_set(&config, list, &err), more ? -SW_ECONFIG : 0);
            ck_assert(!more || strstr(err.msg, "a list of up to"));
            free(list);
        }
}
END_TEST

START_TEST(options_bound_each_other) {
    static const char *const sets[] = {"host_tier_initial_bytes=8193 MiB", "host_tier_slab_bytes=16 GiB",
                                       "chunk_bytes=1 GiB", "max_session_regions=1048577"};
    for (size_t i = 0; i < sizeof sets / sizeof sets[0]; i++) {
        struct sw_config config;
        struct sw_err err = {0};
        sw_config_init(&config);
        ck_assert_int_eq(sw_config_set(&config, sets[i], &err), 0);
        ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
        ck_assert_int_eq(strncmp(err.msg, sets[i], strcspn(sets[i], "=")), 0);
        ck_assert_ptr_nonnull(strstr(err.msg, "exceeds"));
    }
}
END_TEST

START_TEST(defaults_follow_their_bounds) {
    struct sw_config config, loaded;
    struct sw_err err;
    char text[96];
    sw_config_init(&config);
    set(&config, followers[_i].bound, followers[_i].low);
    ck_assert_uint_eq(follower_of(&config, _i), followers[_i].followed);
    ck_assert_msg(sw_config_check(&config, &err) == 0, "%s", err.msg);
    set(&config, followers[_i].bound, followers[_i].high);
    ck_assert_uint_eq(follower_of(&config, _i), followers[_i].fallback);
    sw_config_init(&loaded);
    const char *quote = strchr(followers[_i].low, ' ') ? "\"" : "";
    (void)snprintf(text, sizeof text, "{\"%s\": %s%s%s}", followers[_i].bound, quote, followers[_i].low, quote);
    ck_assert_msg(load(&loaded, text, &err) == 0, "%s", err.msg);
    ck_assert_uint_eq(follower_of(&loaded, _i), followers[_i].followed);
}
END_TEST

/* This holds in either order, and also for a default that is written out: two written values both count. */
START_TEST(given_values_do_not_follow) {
    for (int given_first = 0; given_first < 2; given_first++) {
        struct sw_config config;
        struct sw_err err = {0};
        char fallback[32];
        (void)snprintf(fallback, sizeof fallback, "%llu", (unsigned long long)followers[_i].fallback);
        sw_config_init(&config);
        set(&config, given_first ? followers[_i].follower : followers[_i].bound,
            given_first ? fallback : followers[_i].low);
        set(&config, given_first ? followers[_i].bound : followers[_i].follower,
            given_first ? followers[_i].low : fallback);
        ck_assert_uint_eq(follower_of(&config, _i), followers[_i].fallback);
        ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
        ck_assert_int_eq(strncmp(err.msg, followers[_i].follower, strlen(followers[_i].follower)), 0);
        ck_assert_msg(strstr(err.msg, "exceeds") && strstr(err.msg, "lower it or leave it out"), "%s", err.msg);
    }
}
END_TEST

/* Options are taken over one by one at run time: a default then fits the bound that is in force. */
START_TEST(copied_defaults_follow_their_bounds) {
    for (int bound_first = 0; bound_first < 2; bound_first++) {
        const unsigned bound = index_of(followers[_i].bound), follower = index_of(followers[_i].follower);
        struct sw_config config, loaded;
        sw_config_init(&config);
        sw_config_init(&loaded);
        set(&loaded, followers[_i].bound, followers[_i].low);
        sw_config_copy(&config, &loaded, follower); /* the bound stays */
        ck_assert_uint_eq(follower_of(&config, _i), followers[_i].fallback);
        sw_config_copy(&config, &loaded, bound_first ? bound : follower);
        sw_config_copy(&config, &loaded, bound_first ? follower : bound);
        ck_assert_uint_eq(follower_of(&config, _i), followers[_i].followed);
        sw_config_init(&loaded);
        sw_config_copy(&config, &loaded, bound_first ? bound : follower);
        sw_config_copy(&config, &loaded, bound_first ? follower : bound);
        ck_same_values(&config, &loaded);
    }
}
END_TEST

/* A value that was given and then taken over stays a given value: it does not follow its bound, and a bound below it is
 * refused. A default that is taken over in its place follows the bound again. */
START_TEST(copied_values_do_not_follow) {
    const unsigned bound = index_of(followers[_i].bound), follower = index_of(followers[_i].follower);
    struct sw_config config, given, unset, lower;
    struct sw_err err = {0};
    char fallback[32];
    (void)snprintf(fallback, sizeof fallback, "%llu", (unsigned long long)followers[_i].fallback);
    sw_config_init(&config);
    sw_config_init(&given);
    sw_config_init(&unset);
    sw_config_init(&lower);
    set(&given, followers[_i].follower, fallback);
    set(&lower, followers[_i].bound, followers[_i].low);
    sw_config_copy(&config, &given, follower);
    sw_config_copy(&config, &lower, bound);
    ck_assert_uint_eq(follower_of(&config, _i), followers[_i].fallback);
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    sw_config_copy(&config, &unset, follower);
    ck_assert_uint_eq(follower_of(&config, _i), followers[_i].followed);
    ck_assert_msg(sw_config_check(&config, &err) == 0, "%s", err.msg);
}
END_TEST

/* An error names the place of the value: the file, unless the command line has another value. */
START_TEST(an_error_names_the_file_that_has_the_value) {
    struct sw_config config;
    struct sw_err err = {0};
    sw_config_init(&config);
    ck_assert_int_eq(load(&config, "{\"chunk_bytes\": \"512 MiB\", \"slots\": 2}", &err), 0);
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    ck_assert_msg(strstr(err.msg, path + sizeof "/tmp" - 1) != NULL, "'%s' does not name the file", err.msg);
    ck_assert_int_eq(sw_config_set(&config, "chunk_bytes=1 GiB", &err), 0);
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    ck_assert_msg(strncmp(err.msg, "chunk_bytes: 1 GiB exceeds", 26) == 0, "%s", err.msg);
    ck_assert_int_eq(load(&config, "{\"slots\": 3}", &err), 0); /* another file says nothing of it */
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    ck_assert_msg(strncmp(err.msg, "chunk_bytes: 1 GiB exceeds", 26) == 0, "%s", err.msg);
}
END_TEST

/* Each of these is found only when all options are there. _i counts the file's texts. */
static const struct {
    const char *text, *says;
} contradictions[] = {
    {"{\"metrics_address\": \"here\"}", "metrics_address: \"here\" is not an IPv4 address"},
    {"{\"data_socket\": \"/x/control.sock\"}", "control_socket: auto is the path of data_socket"},
    {"{\"control_socket\": \"/run/spillway/data.sock\"}", "control_socket: this is the path of data_socket"},
};
enum { CONTRADICTIONS = sizeof contradictions / sizeof contradictions[0] };

START_TEST(an_error_of_a_socket_names_the_file) {
    struct sw_config config;
    struct sw_err err = {0};
    sw_config_init(&config);
    ck_assert_int_eq(load(&config, contradictions[_i].text, &err), 0);
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    const char *name = strstr(err.msg, path + sizeof "/tmp" - 1), *says = strstr(err.msg, contradictions[_i].says);
    ck_assert_msg(name && says && name < says, "%s", err.msg);
}
END_TEST

/* Only the last file's name is kept, and it is none of the files before. */
START_TEST(an_error_does_not_name_another_file) {
    struct sw_config config;
    struct sw_err err = {0};
    sw_config_init(&config);
    ck_assert_int_eq(load(&config, "{\"chunk_bytes\": \"512 MiB\"}", &err), 0);
    ck_assert_int_eq(load(&config, "{\"slots\": 3}", &err), 0);
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    ck_assert_msg(strncmp(err.msg, "chunk_bytes: 512 MiB exceeds", 28) == 0, "%s", err.msg);
    ck_assert_int_eq(load(&config, "{\"chunk_bytes\": \"1 GiB\"}", &err), 0);
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    ck_assert_msg(strstr(err.msg, path + sizeof "/tmp" - 1) != NULL, "'%s' does not name the file", err.msg);
}
END_TEST

/* The path of a configuration that holds: as it was given, or control.sock behind data_socket's folder. */
static void ck_control_path(const struct sw_config *config, unsigned folder_bytes) {
    char found[SW_CONFIG_PATH_BYTES], expected[SW_CONFIG_PATH_BYTES];
    if (strcmp(config->control_socket, "auto") == 0)
        (void)snprintf(expected, sizeof expected, "%.*scontrol.sock", (int)folder_bytes, config->data_socket);
    else
        (void)snprintf(expected, sizeof expected, "%s", config->control_socket);
    ck_assert_str_eq(sw_config_control_path(found, config), expected);
}

/* A path that is made from another one must fit, too: 107 bytes, as given ones. */
START_TEST(control_socket_beside_data_socket) {
    static const struct {
        unsigned folder_bytes; /* of data_socket, with its slashes */
        const char *control_socket;
        int rc;
    } cases[] = {
        {95, "auto", 0}, {96, "auto", -SW_ECONFIG}, {105, "auto", -SW_ECONFIG}, {105, "none", 0}, {105, "/c", 0},
        {0, "auto", 0}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct sw_config config;
        struct sw_err err = {0};
        sw_config_init(&config);
        memset(config.data_socket, '/', cases[i].folder_bytes);
        (void)strcpy(config.data_socket + cases[i].folder_bytes, "d");
        (void)strcpy(config.control_socket, cases[i].control_socket);
        ck_assert_int_eq(sw_config_check(&config, &err), cases[i].rc);
        ck_assert(cases[i].rc == 0 || strstr(err.msg, "control_socket: auto is a path of"));
        if (cases[i].rc == 0)
            ck_control_path(&config, cases[i].folder_bytes);
    }
}
END_TEST

/* A text of the table's length is taken; one byte more is refused. */
START_TEST(texts_have_the_lengths_of_the_table) {
    struct sw_config_option option;
    unsigned n = 0;
    for (unsigned i = 0; sw_config_describe(i, &option); i++) {
        static char assignment[4096];
        struct sw_config config;
        struct sw_err err;
        size_t most;
        if (sscanf(option.accepted, "a string of 1 to %zu bytes", &most) != 1)
            continue;
        n++;
        const int head = snprintf(assignment, sizeof assignment, "%s=/", option.name);
        memset(assignment + head, 'x', most);
        assignment[(size_t)head + most] = 0;
        sw_config_init(&config);
        const struct sw_config before = config;
        ck_assert_int_eq(sw_config_set(&config, assignment, &err), -SW_ECONFIG);
        ck_assert_mem_eq(&config, &before, sizeof config);
        assignment[(size_t)head + most - 1] = 0;
        ck_assert_msg(sw_config_set(&config, assignment, &err) == 0, "%s: %s", option.name, err.msg);
    }
    ck_assert_uint_gt(n, 2);
}
END_TEST

START_TEST(metrics_need_an_address) {
    struct sw_config config;
    struct sw_err err = {0};
    sw_config_init(&config);
    set(&config, "metrics_address", "0.0.0.0");
    ck_assert_int_eq(sw_config_check(&config, &err), 0);
    set(&config, "metrics_address", "localhost");
    ck_assert_int_eq(sw_config_check(&config, &err), -SW_ECONFIG);
    ck_assert_str_eq(err.msg, "metrics_address: \"localhost\" is not an IPv4 address such as 127.0.0.1");
}
END_TEST

START_TEST(help_names_every_option) {
    char help[20480] = "", printed[4096] = "";
    struct sw_config config;
    sw_config_init(&config);
    FILE *out = fmemopen(help, sizeof help, "w");
    ck_assert_ptr_nonnull(out);
    sw_config_help(out);
    ck_assert_int_eq(fclose(out), 0);
    print_to(printed, sizeof printed, &config);
    unsigned n = 0;
    for (char *key = strtok(printed, "\""); key; key = strtok(NULL, "\"")) {
        if (!strchr(key, '_') || strchr(key, '/') || strchr(key, ' '))
            continue;
        n++;
        ck_assert_msg(strstr(help, key) != NULL, "%s is not in the help", key);
    }
    ck_assert_uint_gt(n, 10);
    /* Levels that the table offers are levels that the log knows. */
    for (int level = 0; level < SW_LOG_NR; level++)
        ck_assert_ptr_nonnull(strstr(help, sw_log_level_name((enum sw_log_level)level)));
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("config");
    tcase_add_test(tests, defaults);
    tcase_add_test(tests, shipped_file_is_the_defaults);
    tcase_add_test(tests, print_and_load_round_trip);
    tcase_add_loop_test(tests, bad_file_is_refused_whole, 0, (int)(sizeof bad_files / sizeof bad_files[0]));
    tcase_add_test(tests, unreadable_files);
    tcase_add_loop_test(tests, bad_assignment_is_refused, 0, (int)(sizeof bad_assignments / sizeof bad_assignments[0]));
    tcase_add_loop_test(tests, one_value_of_the_shipped_file_may_be_lowered, 0, FOLLOWERS);
    tcase_add_loop_test(tests, auto_follows_again, 0, FOLLOWERS);
    tcase_add_test(tests, sizes_are_shares_of_memory);
    tcase_add_test(tests, numbers_are_no_texts);
    tcase_add_test(tests, options_say_what_they_follow);
    tcase_add_test(tests, shares_stay_within_the_bounds);
    tcase_add_test(tests, a_share_is_offered_where_it_is_accepted);
    tcase_add_test(tests, assignments_take_json_and_bare_words);
    tcase_add_test(tests, options_bound_each_other);
    tcase_add_test(tests, lists_have_a_bound);
    tcase_add_loop_test(tests, defaults_follow_their_bounds, 0, FOLLOWERS);
    tcase_add_loop_test(tests, given_values_do_not_follow, 0, FOLLOWERS);
    tcase_add_loop_test(tests, copied_defaults_follow_their_bounds, 0, FOLLOWERS);
    tcase_add_loop_test(tests, copied_values_do_not_follow, 0, FOLLOWERS);
    tcase_add_test(tests, an_error_names_the_file_that_has_the_value);
    tcase_add_loop_test(tests, an_error_of_a_socket_names_the_file, 0, CONTRADICTIONS);
    tcase_add_test(tests, an_error_does_not_name_another_file);
    tcase_add_test(tests, control_socket_beside_data_socket);
    tcase_add_test(tests, texts_have_the_lengths_of_the_table);
    tcase_add_test(tests, metrics_need_an_address);
    tcase_add_test(tests, help_names_every_option);
    Suite *suite = suite_create("config");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
