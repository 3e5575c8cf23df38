/* main.c - options, configuration, signals and the loop of spillwayd. */
#include "base/log.h"
#include "config/config.h"
#include "daemon/daemon.h"
#include "daemon/dry_run.h"
#include <getopt.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

struct program {
    struct sw_config config;
    bool check_config, print_config;
    const char *snapshot; /* --dry-run; NULL: not asked for */
    uv_signal_t signals[2];
    struct sw_daemon *daemon;
    int exit_code;
};

static void print_help(void) {
    (void)printf(
        "Usage: spillwayd [OPTION]...\n"
        "Gives GPU query engines more memory than the GPU has, as a service in the foreground.\n\n"
        "  -c, --config FILE      read options from a JSON file\n"
        "  -s, --set NAME=VALUE   set one option, after the files; may be repeated\n"
        "      --check-config     check the configuration and exit\n"
        "      --print-config     print the configuration as a file that can be loaded, and exit\n"
        "      --dry-run SNAPSHOT print which regions of a snapshot would be moved to the NVMe tier, and exit;\n"
        "                         a JSON file, described in daemon/README.md, or -\n"
        "  -h, --help             print this and exit\n"
        "  -V, --version          print the version and exit\n\n"
        "Exit codes: 0 stopped in order, 1 failed while starting or running, 2 wrong use, configuration\n"
        "or snapshot.\n\n"
        "Options in the configuration:\n");
    sw_config_help(stdout);
}

static int usage_error(const struct sw_err *err) {
    if (err)
        (void)fprintf(stderr, "spillwayd: %s\n", err->msg);
    (void)fprintf(stderr, "Try 'spillwayd --help'.\n");
    return EXIT_USAGE;
}

/* Returns -1 to go on, or the exit code. `--set` wins over files wherever it stands, so files are read first. */
static int parse_options(struct program *program, int argc, char **argv) {
    enum { OPTION_CHECK = 256, OPTION_PRINT, OPTION_DRY_RUN };
    static const struct option options[] = {
        {"config", required_argument, NULL, 'c'},
        {"set", required_argument, NULL, 's'},
        {"check-config", no_argument, NULL, OPTION_CHECK},
        {"print-config", no_argument, NULL, OPTION_PRINT},
        {"dry-run", required_argument, NULL, OPTION_DRY_RUN},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    struct sw_err err;
    for (int pass = 0; pass < 2; pass++) {
        int option;
        optind = 0; /* glibc: start anew */
        opterr = pass == 0;
        while ((option = getopt_long(argc, argv, "c:s:hV", options, NULL)) >= 0) {
            if (option == 'c' && pass == 0 && sw_config_load(&program->config, optarg, &err) < 0)
                return usage_error(&err);
            if (option == 's' && pass == 1 && sw_config_set(&program->config, optarg, &err) < 0)
                return usage_error(&err);
            program->check_config |= option == OPTION_CHECK;
            program->print_config |= option == OPTION_PRINT;
            if (option == OPTION_DRY_RUN)
                program->snapshot = optarg;
            if (option == 'h')
                return print_help(), EXIT_SUCCESS;
            if (option == 'V')
                return (void)printf("spillwayd %s\n", SW_VERSION), EXIT_SUCCESS;
            if (option == '?')
                return usage_error(NULL);
        }
    }
    if (optind < argc) {
        (void)fprintf(stderr, "spillwayd: unexpected argument '%s'\n", argv[optind]);
        return usage_error(NULL);
    }
    return sw_config_check(&program->config, &err) < 0 ? usage_error(&err) : -1;
}

static void set_log_level(const char *name) {
    for (int level = 0; level < SW_LOG_NR; level++)
        if (strcmp(name, sw_log_level_name((enum sw_log_level)level)) == 0)
            sw_log_set_level((enum sw_log_level)level);
}

static void on_signal(uv_signal_t *handle, int number) {
    static bool asked;
    struct program *program = handle->data;
    if (asked || !program->daemon) {
        sw_log(SW_LOG_WARNING, "signal", "number=%d then=\"exit without waiting\"", number);
        sw_daemon_abandon(program->daemon);
        _exit(EXIT_RUNTIME);
    }
    asked = true;
    sw_log(SW_LOG_INFO, "signal", "number=%d then=\"orderly stop\"", number);
    sw_daemon_stop(program->daemon);
}

static void watch_signals(struct program *program, uv_loop_t *loop) {
    static const int numbers[] = {SIGTERM, SIGINT};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)uv_signal_init(loop, &program->signals[i]);
        program->signals[i].data = program;
        (void)uv_signal_start(&program->signals[i], on_signal, numbers[i]);
    }
}

static void on_stopped(int exit_code, void *arg) {
    struct program *program = arg;
    program->daemon = NULL;
    program->exit_code = exit_code;
    for (size_t i = 0; i < sizeof program->signals / sizeof program->signals[0]; i++)
        uv_close((uv_handle_t *)&program->signals[i], NULL);
}

static int run(struct program *program) {
    uv_loop_t loop;
    struct sw_err err;
    (void)signal(SIGPIPE, SIG_IGN);
    int rc = uv_loop_init(&loop);
    if (rc < 0) {
        sw_log(SW_LOG_ERROR, "start.failed", "cause=\"loop: %s\"", uv_strerror(rc));
        return EXIT_RUNTIME;
    }
    watch_signals(program, &loop);
    if (sw_daemon_start(&program->daemon, &loop, &program->config, on_stopped, program, &err) < 0) {
        char text[300], detail[300];
        sw_log(SW_LOG_ERROR, "start.failed", "name=%s text=%s detail=%s", sw_err_name(err.code),
               sw_log_quote(text, sizeof text, err.msg), sw_log_quote(detail, sizeof detail, err.detail));
        on_stopped(EXIT_RUNTIME, program);
    }
    (void)uv_run(&loop, UV_RUN_DEFAULT);
    (void)uv_loop_close(&loop);
    return program->exit_code;
}

static int dry_run(const struct program *program) {
    struct sw_err err;
    if (sw_dry_run(&program->config, program->snapshot, stdout, &err) == 0)
        return EXIT_SUCCESS;
    (void)usage_error(&err);
    return err.code == -SW_ENOMEM ? EXIT_RUNTIME : EXIT_USAGE;
}

int main(int argc, char **argv) {
    static struct program program;
    sw_config_init(&program.config);
    const int code = parse_options(&program, argc, argv);
    if (code >= 0)
        return code;
    if (program.print_config)
        sw_config_print(&program.config, stdout);
    if (program.snapshot)
        return dry_run(&program);
    if (program.check_config || program.print_config)
        return EXIT_SUCCESS;
    set_log_level(program.config.log_level);
    return run(&program);
}
