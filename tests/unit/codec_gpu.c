/* codec_gpu.c - how libspillway-kernels.so is loaded: the errors where it is missing or of another version, and that
 * calls get through. A process loads it once, so each case has a process of its own. */
#include "codec/gpu.h"
#include "tests/lib/run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define START "cannot load the GPU kernels: libspillway-kernels.so.0"

static void expect_refusal(const char *says) {
    for (int turn = 0; turn < 2; turn++) { /* the error stays */
        struct sw_err err = {0};
        ck_assert_int_eq(sw_gpu_codec_init(&err), -SW_ENOTSUP);
        ck_assert_int_eq(err.scope, SW_SCOPE_DEVICE);
        ck_assert_msg(strncmp(err.msg, START, sizeof START - 1) == 0, "%s", err.msg);
        ck_assert_msg(strstr(err.msg, says) != NULL, "'%s' is not in '%s'", says, err.msg);
    }
}

START_TEST(test_absent) {
    expect_refusal("No such file");
}
END_TEST

START_TEST(test_other_version) {
    expect_refusal("is not of version " SW_VERSION ": install both");
}
END_TEST

START_TEST(test_lacks_a_call) {
    expect_refusal("is not of version " SW_VERSION ": install both");
}
END_TEST

START_TEST(test_calls_get_through) {
    struct sw_err err;
    ck_assert_int_eq(sw_gpu_codec_init(&err), 0);
    ck_assert_uint_eq(sw_gpu_batch_scratch_bytes(7), 700);
}
END_TEST

/* A case has the name of the folder in its process's LD_LIBRARY_PATH, which the loader reads at the start. */
static const struct {
    const char *name;
    const TTest **test;
} cases[] = {{"absent", &test_absent},
             {"other", &test_other_version},
             {"less", &test_lacks_a_call},
             {"whole", &test_calls_get_through}};
enum { N_CASES = sizeof cases / sizeof cases[0] };

static int run(const char *program, const char *name) {
    char command[512];
    (void)snprintf(command, sizeof command, "LD_LIBRARY_PATH='" SW_STAND_INS "/%s' '%s' %s", name, program, name);
    return system(command) == 0 ? 0 : 1;
}

int main(int argc, char **argv) {
    int rc = 0;
    for (int i = 0; i < N_CASES; i++) {
        if (argc == 1) {
            rc |= run(argv[0], cases[i].name);
        } else if (strcmp(argv[1], cases[i].name) == 0) {
            Suite *suite = suite_create(cases[i].name);
            TCase *tcase = tcase_create(cases[i].name);
            tcase_add_test(tcase, *cases[i].test);
            suite_add_tcase(suite, tcase);
            return sw_test_run(suite, CK_FORK);
        }
    }
    return rc;
}
