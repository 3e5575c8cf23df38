/* Compares the list of events with the sources that log them, because a missing event could not be subscribed to; and
 * checks the names in subscriptions. */
#include "daemon/control/event_names.h"
#include "tests/lib/run.h"

#include <check.h>
#include <ftw.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NAMES = 256, NAME_BYTES = 48 };

static char found[MAX_NAMES][NAME_BYTES];
static unsigned n_found, n_calls;

static bool is_listed(const char *name) {
    for (const char *const *listed = sw_event_names; *listed; listed++)
        if (strcmp(*listed, name) == 0)
            return true;
    return false;
}

static void add(const char *name, size_t bytes) {
    ck_assert(n_found < MAX_NAMES && bytes < NAME_BYTES);
    (void)snprintf(found[n_found++], NAME_BYTES, "%.*s", (int)bytes, name);
}

/* The literals of a call's second argument; a call whose event is a variable has them elsewhere. */
static void take_call(const char *call) {
    const char *at = call + strcspn(call, ","), *end = at + 1 + strcspn(at + 1, ",");
    n_calls++;
    if (strncmp(call, "SW_LOG_DEBUG", 12) == 0)
        return;
    for (at = strchr(at, '"'); at && at < end; at = strchr(at + 1, '"')) {
        const size_t bytes = strcspn(at + 1, "\"");
        add(at + 1, bytes);
        at += 1 + bytes;
    }
}

static int look(const char *path, const struct stat *st, int type, struct FTW *where) {
    static char text[1 << 18];
    const size_t length = strlen(path);
    (void)st;
    (void)where;
    if (type != FTW_F || length < 2 || strcmp(path + length - 2, ".c") != 0)
        return 0;
    FILE *file = fopen(path, "r");
    ck_assert_ptr_nonnull(file);
    text[fread(text, 1, sizeof text - 1, file)] = 0;
    (void)fclose(file);
    for (const char *at = text; (at = strstr(at, "sw_log("));) {
        at += sizeof "sw_log(" - 1;
        at += strspn(at, " \n");
        take_call(at);
    }
    return 0;
}

START_TEST(every_event_is_listed) {
    static const char *const rooms[] = {"daemon", "spill", "ipc", "config", "codec"};
    char path[512];
    for (size_t i = 0; i < sizeof rooms / sizeof rooms[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", SW_SOURCE_DIR, rooms[i]);
        ck_assert_int_eq(nftw(path, look, 16, FTW_PHYS), 0);
    }
    ck_assert_uint_gt(n_calls, 40);
    for (unsigned i = 0; i < n_found; i++)
        ck_assert_msg(is_listed(found[i]), "%s is missing in daemon/control/event_names.c", found[i]);
}
END_TEST

START_TEST(list_is_sorted) {
    for (const char *const *name = sw_event_names; name[1]; name++)
        ck_assert_msg(strcmp(name[0], name[1]) < 0, "%s", name[1]);
}
END_TEST

/* Each name of a subscription, also the last one, is in the list, or is the beginning of listed names up to a dot. */
static const struct {
    const char *only, *refused; /* NULL: taken */
} filters[] = {
    {"", NULL},
    {"session", NULL},
    {"session,spill.done", NULL},
    {",session,,", NULL},
    {"sess", "there is no event 'sess'"},
    {"session.", "there is no event 'session.'"},
    {"session,nonsense", "there is no event 'nonsense'"},
    {"nonsense,session", "there is no event 'nonsense'"},
    {"session,spill,spill.doen", "there is no event 'spill.doen'; did you mean spill.done?"},
    {"a_name_that_is_longer_than_any_event_there_could_ever_be", "there is no event 'a_name_that_is_longer"},
};

START_TEST(unknown_names_are_refused) {
    struct sw_err err = {0};
    const int rc = sw_event_names_check(filters[_i].only, &err);
    ck_assert_msg(rc == (filters[_i].refused ? -SW_EINVAL : 0), "%s: %s", filters[_i].only, err.msg);
    ck_assert_msg(!filters[_i].refused || strstr(err.msg, filters[_i].refused), "%s: %s", filters[_i].only, err.msg);
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("event_names");
    tcase_add_test(tests, every_event_is_listed);
    tcase_add_test(tests, list_is_sorted);
    tcase_add_loop_test(tests, unknown_names_are_refused, 0, sizeof filters / sizeof filters[0]);
    Suite *suite = suite_create("event_names");
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
