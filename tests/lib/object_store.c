#include "tests/lib/object_store.h"

#include "base/clock.h"

#include <check.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#define FOLDER SW_SOURCE_DIR "/tests/lib/object_store"

bool sw_object_store_is_possible(void) {
    const struct sw_object_config config = {.endpoint = "", .bucket = "", .prefix = ""};
    struct sw_object_client *client;
    const bool has_curl = sw_object_client_open(&client, &config, NULL) != -SW_ENOTSUP;
    if (has_curl && system("python3 -c 'import ssl' 2>/dev/null") == 0)
        return true;
    (void)fprintf(stderr, "skipped: needs %s\n", has_curl ? "python3" : "a build with libcurl");
    return false;
}

void sw_object_store_needed(void) {
    if (!sw_object_store_is_possible())
        exit(77);
}

static void be_store(int in, int out, bool with_tls) {
    (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (dup2(in, 0) == 0 && dup2(out, 1) == 1)
        (void)execlp("python3", "python3", FOLDER "/store.py", with_tls ? FOLDER : NULL, (char *)NULL);
    _exit(1);
}

static void read_line(struct sw_object_store *store, char *ret, size_t ret_bytes) {
    ck_assert_ptr_nonnull(fgets(ret, (int)ret_bytes, store->from));
    ck_assert_ptr_nonnull(strchr(ret, '\n'));
    *strchr(ret, '\n') = 0;
}

bool sw_object_store_is_ours(void) {
    return getenv("SW_TEST_STORE") == NULL;
}

struct sw_object_store sw_object_store_begin(bool with_tls) {
    struct sw_object_store store = {.pid = 0};
    int to[2], from[2];
    char port[16];
    if (!sw_object_store_is_ours()) {
        (void)snprintf(store.endpoint, sizeof store.endpoint, "%s", getenv("SW_TEST_STORE"));
        return store;
    }
    ck_assert_int_eq(pipe2(to, O_CLOEXEC), 0);
    ck_assert_int_eq(pipe2(from, O_CLOEXEC), 0);
    store.pid = fork();
    ck_assert_int_ge(store.pid, 0);
    if (store.pid == 0)
        be_store(to[0], from[1], with_tls);
    (void)close(to[0]);
    (void)close(from[1]);
    store.to = fdopen(to[1], "w");
    store.from = fdopen(from[0], "r");
    read_line(&store, port, sizeof port);
    (void)snprintf(store.endpoint, sizeof store.endpoint, "http%s://127.0.0.1:%s", with_tls ? "s" : "", port);
    return store;
}

void sw_object_store_end(struct sw_object_store *store) {
    if (!store->pid)
        return;
    (void)fclose(store->to);
    (void)kill(store->pid, SIGKILL); /* its threads may be in the middle of something */
    ck_assert_int_eq(waitpid(store->pid, NULL, 0), store->pid);
    (void)fclose(store->from);
}

const char *sw_object_store_ask(struct sw_object_store *store, char *ret, size_t ret_bytes, const char *command) {
    ck_assert_int_gt(fprintf(store->to, "%s\n", command), 0);
    ck_assert_int_eq(fflush(store->to), 0);
    read_line(store, ret, ret_bytes);
    return ret;
}

void sw_object_store_tell(struct sw_object_store *store, const char *fmt, ...) {
    char command[600], answer[64];
    va_list args;
    va_start(args, fmt);
    (void)vsnprintf(command, sizeof command, fmt, args);
    va_end(args);
    ck_assert_str_eq(sw_object_store_ask(store, answer, sizeof answer, command), "ok");
}

unsigned sw_object_store_count(struct sw_object_store *store, const char *verb) {
    char command[32], answer[32];
    (void)snprintf(command, sizeof command, "count %s", verb);
    return (unsigned)strtoul(sw_object_store_ask(store, answer, sizeof answer, command), NULL, 10);
}

struct sw_object_config sw_object_store_config(const struct sw_object_store *store) {
    struct sw_object_config config;
    sw_object_config_init(&config);
    (void)setenv("AWS_ACCESS_KEY_ID", "test-id", 1);
    (void)setenv("AWS_SECRET_ACCESS_KEY", "test-secret", 1);
    (void)unsetenv("AWS_SESSION_TOKEN");
    config.endpoint = store->endpoint;
    config.bucket = "bucket";
    config.prefix = "some/where/";
    config.ca_file = FOLDER "/certificate.pem";
    config.pause_us = 10000;
    config.max_pause_us = 100000;
    config.connect_us = 2000000;
    config.stall_us = 1000000;
    config.outage_us = 10000000;
    config.patience_us = 30000000;
    return config;
}

struct sw_tier_remote_config sw_object_store_tier(const struct sw_object_store *store, const char *folder) {
    static char path[512];
    (void)snprintf(path, sizeof path, "%s/master-keys", folder);
    if (access(path, F_OK) != 0) {
        const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        ck_assert_int_ge(fd, 0);
        ck_assert_int_eq(dprintf(fd, "%064x\n", 0x5117), 65);
        (void)close(fd);
    }
    return (struct sw_tier_remote_config){.store = sw_object_store_config(store),
                                          .host = "this-host",
                                          .key_file = path,
                                          .capacity_bytes = 64 << 20,
                                          .pool_bytes = SW_OBJECT_STORE_POOL_BYTES};
}

struct sw_tier *sw_object_store_open(const struct sw_tier_remote_config *config) {
    struct sw_tier *tier = NULL;
    struct sw_err err = {0};
    ck_assert_msg(sw_tier_remote_open(&tier, config, &err) == 0, "%s (%s)", err.msg, err.detail);
    return tier;
}

static unsigned count_objects(struct sw_object_store *store) {
    char names[16 << 10];
    unsigned n = 0;
    for (const char *at = sw_object_store_ask(store, names, sizeof names, "names"); *at; n++) {
        at += strcspn(at, " ");
        at += *at == ' ';
    }
    return n;
}

void sw_object_store_await(struct sw_object_store *store, unsigned n) {
    const uint64_t until_us = sw_clock_us() + 20000000;
    unsigned n_now;
    if (!store->pid)
        return;
    while ((n_now = count_objects(store)) != n) {
        ck_assert_msg(sw_clock_us() < until_us, "the store has %u objects, not %u", n_now, n);
        (void)usleep(1000);
    }
}
