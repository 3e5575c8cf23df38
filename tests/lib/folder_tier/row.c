#include "daemon/tiers/row.h"
#include "tests/lib/folder_tier/folder_tier.h"

char sw_folder_tier_directory[256];
bool sw_folder_tier_is_good = true;

static uint64_t bytes_of(const struct sw_config *config) {
    (void)config;
    return sw_folder_tier_directory[0] ? SW_FOLDER_TIER_BYTES : 0;
}

static int open_folder(struct sw_service *service, struct sw_tier **ret, void **ret_own, struct sw_err *err) {
    (void)ret_own;
    if (!bytes_of(service->config))
        return 0;
    return sw_folder_tier_open(ret, sw_folder_tier_directory, SW_FOLDER_TIER_BYTES, err);
}

static int check_folder(const struct sw_config *config, FILE *out, bool *ret_good, struct sw_err *err) {
    (void)config;
    (void)err;
    (void)fputs("folder tier\n", out);
    *ret_good = sw_folder_tier_is_good;
    return 0;
}

const struct sw_tier_row sw_tier_row_folder = {.kind = &sw_folder_tier_kind,
                                               .title = "folder",
                                               .option = "folder_tier_directory",
                                               .bytes = bytes_of,
                                               .open = open_folder,
                                               .check = check_folder};
