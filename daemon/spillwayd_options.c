#include "config/config.h"
#include "daemon/cli.h"

const char sw_spillwayd_summary[] =
    "Gives GPU query engines more memory than the GPU has, as a service in the foreground.";
const char sw_spillwayd_exit_codes[] =
    "0 stopped in order, 1 the start or the service failed, or damage was found, 2 wrong use, configuration or "
    "snapshot.";

const struct sw_cli_option sw_spillwayd_options[] = {
    [SW_SPILLWAYD_CONFIG] = {"config", 'c', "FILE", "read options from a JSON file; SIGHUP reads it again"},
    [SW_SPILLWAYD_SET] = {"set", 's', "NAME=VALUE",
                          "set one option, after the files are read; may be repeated. " SW_CONFIG_SIZES},
    [SW_SPILLWAYD_CHECK] = {"check-config", 0, NULL, "check the configuration and exit"},
    [SW_SPILLWAYD_PRINT] = {"print-config", 0, NULL,
                            "print every option with its default or the given value to standard output, as a file that "
                            "can be loaded, and exit"},
    [SW_SPILLWAYD_DRY_RUN] = {"dry-run", 0, "SNAPSHOT",
                              "print which regions of a snapshot would be moved to the NVMe tier, and exit; the "
                              "snapshot is a JSON file, described in OPERATING.md, or - for standard input"},
    [SW_SPILLWAYD_CHECK_TIER] = {"check-tier", 0, NULL,
                                 "read the folder of the NVMe tier, print its damage, and exit; nothing is changed"},
    [SW_SPILLWAYD_EOF] = {"stop-at-eof", 0, NULL,
                          "stop in order when standard input, a pipe or a socket, ends: for a service that belongs to "
                          "one program"},
    [SW_SPILLWAYD_HELP] = {"help", 'h', NULL, "print this and exit"},
    [SW_SPILLWAYD_VERSION] = {"version", 'V', NULL, "print the version and exit"},
    [SW_SPILLWAYD_NR] = {.name = NULL},
};
