/* main.c - options, configuration, signals and the loop of spillwayd. */
#include "base/descriptors.h"
#include "base/journal.h"
#include "base/log.h"
#include "base/thread.h"
#include "config/config.h"
#include "daemon/cli.h"
#include "daemon/control/control_rights.h"
#include "daemon/daemon.h"
#include "daemon/dry_run.h"
#include "daemon/tiers/tiers.h"
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_RUNTIME = 1, EXIT_USAGE = 2 };

struct program {
    int argc;
    char **argv;
    struct sw_config config;
    bool check_config, check_tier, print_config;
    const char *snapshot; /* --dry-run; NULL: not given */
    uv_signal_t signals[3];
    uv_poll_t input; /* --stop-at-eof */
    bool stop_at_eof;
    struct sw_daemon *daemon;
    int exit_code;
};

static void print_help(void) {
    (void)printf("Usage: spillwayd [OPTION]...\n%s\n\n", sw_spillwayd_summary);
    sw_cli_help(stdout, sw_spillwayd_options);
    (void)printf("\nExit codes: ");
    sw_cli_wrap(stdout, sw_spillwayd_exit_codes, 0, 12);
    (void)printf("\nOptions in the configuration:\n");
    sw_config_help(stdout);
}

static int usage_error(const struct sw_err *err) {
    if (err)
        (void)fprintf(stderr, "spillwayd: %s\n", err->msg);
    (void)fprintf(stderr, "Try 'spillwayd --help'.\n");
    return EXIT_USAGE;
}

/* Reads defaults, then files, then `--set`, which overrides files wherever it stands. */
static int read_config(struct sw_config *ret, void *arg, struct sw_err *err) {
    const struct program *program = arg;
    struct sw_cli_getopt cli;
    int rc = 0;
    sw_cli_getopt(&cli, sw_spillwayd_options);
    sw_config_init(ret);
    opterr = 0;
    for (int pass = 0; pass < 2; pass++) {
        optind = 0; /* glibc: start anew */
        for (int option;
             rc == 0 && (option = getopt_long(program->argc, program->argv, cli.letters, cli.options, NULL)) >= 0;) {
            if (option == 'c' && pass == 0)
                rc = sw_config_load(ret, optarg, !program->daemon, err); /* clients do not wait for a slow file */
            if (option == 's' && pass == 1)
                rc = sw_config_set(ret, optarg, err);
        }
    }
    return rc < 0 ? rc : sw_config_check(ret, err);
}

static void open_log(void) {
    sw_log_open();
    (void)sw_journal_open(SW_JOURNAL_SOCKET);
}

/* This event is logged for every failed start, whatever the reason. */
static void log_failed_start(const struct sw_err *err) {
    char text[300], detail[300];
    sw_log(SW_LOG_ERROR, "start.failed", "name=%s text=%s detail=%s", sw_err_name(err->code),
           sw_log_quote(text, sizeof text, err->msg), sw_log_quote(detail, sizeof detail, err->detail));
}

/* Returns -1 to continue, or the exit code. */
static int parse_options(struct program *program) {
    struct sw_cli_getopt cli;
    struct sw_err err;
    int option;
    sw_cli_getopt(&cli, sw_spillwayd_options);
    while ((option = getopt_long(program->argc, program->argv, cli.letters, cli.options, NULL)) >= 0) {
        program->check_config |= option == SW_CLI_FIRST + SW_SPILLWAYD_CHECK;
        program->check_tier |= option == SW_CLI_FIRST + SW_SPILLWAYD_CHECK_TIER;
        program->print_config |= option == SW_CLI_FIRST + SW_SPILLWAYD_PRINT;
        program->stop_at_eof |= option == SW_CLI_FIRST + SW_SPILLWAYD_EOF;
        if (option == SW_CLI_FIRST + SW_SPILLWAYD_DRY_RUN)
            program->snapshot = optarg;
        if (option == 'h')
            return print_help(), EXIT_SUCCESS;
        if (option == 'V')
            return (void)printf("spillwayd %s\n", SW_VERSION), EXIT_SUCCESS;
        if (option == '?')
            return usage_error(NULL);
    }
    if (optind < program->argc) {
        (void)fprintf(stderr, "spillwayd: unexpected argument '%s'\n", program->argv[optind]);
        return usage_error(NULL);
    }
    if (read_config(&program->config, program, &err) == 0)
        return -1;
    if (program->check_config || program->check_tier || program->print_config || program->snapshot)
        return usage_error(&err);
    open_log();
    log_failed_start(&err);
    return usage_error(NULL);
}

static void on_signal(uv_signal_t *handle, int number) {
    static bool asked;
    struct program *program = handle->data;
    if (number == SIGHUP) {
        if (program->daemon)
            sw_daemon_reload(program->daemon);
        return;
    }
    if (asked || !program->daemon) {
        sw_log(SW_LOG_WARNING, "signal.received", "number=%d then=\"exit without waiting\"", number);
        sw_daemon_abandon(program->daemon);
        _exit(EXIT_RUNTIME);
    }
    asked = true;
    sw_log(SW_LOG_INFO, "signal.received", "number=%d then=\"orderly stop\"", number);
    sw_daemon_stop(program->daemon);
}

static void watch_signals(struct program *program, uv_loop_t *loop) {
    static const int numbers[] = {SIGTERM, SIGINT, SIGHUP};
    for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
        (void)uv_signal_init(loop, &program->signals[i]);
        program->signals[i].data = program;
        (void)uv_signal_start(&program->signals[i], on_signal, numbers[i]);
    }
}

static void on_input(uv_poll_t *handle, int status, int events) {
    struct program *program = handle->data;
    char ignored[256];
    (void)events;
    const ssize_t n = status < 0 ? 0 : read(STDIN_FILENO, ignored, sizeof ignored);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR)))
        return;
    (void)uv_poll_stop(handle);
    sw_log(SW_LOG_INFO, "input.ended", "then=\"orderly stop\"");
    if (program->daemon)
        sw_daemon_stop(program->daemon);
}

/* The kernel closes the other end of the pipe whatever ends the process that has it. */
static int watch_input(struct program *program, uv_loop_t *loop, struct sw_err *err) {
    if (!program->stop_at_eof)
        return 0;
    int rc = uv_poll_init(loop, &program->input, STDIN_FILENO);
    if (rc < 0) {
        program->stop_at_eof = false;
        return sw_err_set(err, sw_err_from_errno(-rc), SW_SCOPE_DAEMON,
                          "--stop-at-eof: standard input must be a pipe or a socket: %s", uv_strerror(rc));
    }
    program->input.data = program;
    return uv_poll_start(&program->input, UV_READABLE, on_input);
}

static void on_stopped(int exit_code, void *arg) {
    struct program *program = arg;
    program->daemon = NULL;
    program->exit_code = exit_code;
    for (size_t i = 0; i < sizeof program->signals / sizeof program->signals[0]; i++)
        uv_close((uv_handle_t *)&program->signals[i], NULL);
    if (program->stop_at_eof)
        uv_close((uv_handle_t *)&program->input, NULL);
}

static int run(struct program *program) {
    uv_loop_t loop;
    struct sw_err err;
    (void)signal(SIGPIPE, SIG_IGN);
    (void)signal(SIGXFSZ, SIG_IGN); /* beyond RLIMIT_FSIZE: becomes an error (EFBIG) */
    int rc = uv_loop_init(&loop);
    if (rc < 0) {
        (void)sw_err_set(&err, sw_err_from_errno(-rc), SW_SCOPE_DAEMON, "loop: %s%s", uv_strerror(rc),
                         sw_is_out_of_descriptors(-rc) ? ": raise RLIMIT_NOFILE (LimitNOFILE=, ulimit -n)" : "");
        log_failed_start(&err);
        return EXIT_RUNTIME;
    }
    watch_signals(program, &loop);
    const struct sw_daemon_hooks hooks = {.stopped = on_stopped, .load = read_config, .arg = program};
    if (watch_input(program, &loop, &err) < 0 ||
        sw_daemon_start(&program->daemon, &loop, &program->config, &hooks, &err) < 0) {
        log_failed_start(&err);
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

static int check_tier(const struct program *program) {
    struct sw_err err;
    bool good = false;
    if (sw_tiers_check(&program->config, stdout, &good, &err) == 0)
        return good ? EXIT_SUCCESS : EXIT_RUNTIME;
    (void)usage_error(&err);
    return err.code == -SW_ECONFIG ? EXIT_USAGE : EXIT_RUNTIME;
}

/* Checks what the start would refuse although the configuration itself is valid. */
static int check_config(const struct program *program) {
    struct sw_control_groups groups;
    struct sw_userns userns;
    struct sw_err err;
    sw_userns_read(&userns, "");
    return sw_control_groups(&groups, &program->config, &userns, &err) < 0 ? usage_error(&err) : EXIT_SUCCESS;
}

static int act(struct program *program) {
    const int code = parse_options(program);
    if (code >= 0)
        return code;
    if (program->print_config)
        sw_config_print(&program->config, stdout);
    if (program->snapshot)
        return dry_run(program);
    if (program->check_tier)
        return check_tier(program);
    if (program->check_config)
        return check_config(program);
    if (program->print_config)
        return EXIT_SUCCESS;
    open_log();
    (void)sw_log_set_level_name(program->config.log_level);
    return run(program);
}

static int spillwayd(int argc, char **argv) {
    static struct program program;
    program.argc = argc;
    program.argv = argv;
    const int code = act(&program);
    if (fflush(stdout) == 0 && !ferror(stdout))
        return code;
    (void)fprintf(stderr, "spillwayd: standard output: %s\n", strerror(errno));
    return code ? code : EXIT_RUNTIME;
}

int main(int argc, char **argv) {
    sw_descriptors_begin();
    return sw_thread_run(spillwayd, argc, argv);
}
