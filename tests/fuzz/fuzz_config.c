/* fuzz_config.c - any bytes as a configuration: as a file, and as the argument of --set. They are refused by name and
 * the configuration is unchanged, or they are taken, and then the printed configuration loads to the same again. */
#include "base/assert.h"
#include "config/config.h"
#include "tests/lib/input_file.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { MAX_ARGUMENT_BYTES = 4096 };

static int load(struct sw_config *config, const void *data, size_t size, struct sw_err *err) {
    struct sw_test_input_file file;
    sw_test_input_file_init(&file, data, size);
    const int rc = sw_config_load(config, file.path, true, err);
    sw_test_input_file_fini(&file);
    return rc;
}

static void check_printed(const struct sw_config *config) {
    struct sw_config again;
    struct sw_err err;
    char *printed = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&printed, &bytes);
    SW_ASSERT(out);
    sw_config_print(config, out);
    (void)fclose(out);
    sw_config_init(&again);
    SW_ASSERT(load(&again, printed, bytes, &err) == 0);
    struct sw_config_option option;
    for (unsigned i = 0; sw_config_describe(i, &option); i++)
        SW_ASSERT(!sw_config_differs(&again, config, i));
    free(printed);
}

static void check(int rc, const struct sw_err *err, const struct sw_config *config) {
    struct sw_config defaults;
    sw_config_init(&defaults);
    if (rc == 0) {
        check_printed(config);
        return;
    }
    SW_ASSERT(rc == -SW_ECONFIG && err->code == rc && err->msg[0]);
    SW_ASSERT(memcmp(config, &defaults, sizeof defaults) == 0);
}

static void set(const uint8_t *data, size_t size) {
    struct sw_config config;
    struct sw_err err = {0};
    if (size >= MAX_ARGUMENT_BYTES)
        return;
    char *argument = malloc(size + 1);
    SW_ASSERT(argument);
    if (size)
        memcpy(argument, data, size);
    argument[size] = 0;
    sw_config_init(&config);
    check(sw_config_set(&config, argument, &err), &err, &config);
    free(argument);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sw_config config;
    struct sw_err err = {0};
    sw_config_init(&config);
    check(load(&config, data, size, &err), &err, &config);
    const int rc = sw_config_check(&config, &err);
    SW_ASSERT(rc == 0 || rc == -SW_ECONFIG);
    set(data, size);
    return 0;
}
