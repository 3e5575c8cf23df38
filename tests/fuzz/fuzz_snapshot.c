/* fuzz_snapshot.c - any bytes as the snapshot of a dry run: refused by name with nothing printed, or every region is in
 * the table. */
#include "base/assert.h"
#include "daemon/dry_run.h"
#include "tests/lib/input_file.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct sw_test_input_file file;
    struct sw_config config;
    struct sw_err err = {0};
    char *printed = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&printed, &bytes);
    SW_ASSERT(out);
    sw_config_init(&config);
    SW_ASSERT(sw_config_set(&config, "nvme_tier_directory=/nvme", &err) == 0);
    sw_test_input_file_init(&file, data, size);
    const int rc = sw_dry_run(&config, file.path, out, &err);
    (void)fclose(out);
    if (rc == 0)
        SW_ASSERT(strstr(printed, "moved to the NVMe tier: "));
    else
        SW_ASSERT(rc == -SW_ECONFIG && err.code == rc && err.msg[0] && bytes == 0);
    sw_test_input_file_fini(&file);
    free(printed);
    return 0;
}
