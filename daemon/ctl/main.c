/* main.c - spillwayctl: a command for each method of the control socket. */
#include "base/descriptors.h"
#include "base/thread.h"
#include "daemon/ctl/arguments.h"
#include "daemon/ctl/connection.h"
#include "daemon/ctl/print.h"
#include "daemon/ctl/screen.h"
#include "daemon/ctl/top.h"
#include "daemon/ctl/wait.h"
#include <errno.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { EXIT_REFUSED = 1, EXIT_USAGE = 2, EXIT_UNREACHED = 3 };

static int failed(const struct sw_err *err, int exit_code) {
    (void)fprintf(stderr, "spillwayctl: %s: %s\n", sw_err_name(err->code), err->msg);
    return exit_code;
}

static int usage_error(const struct sw_err *err) {
    (void)fprintf(stderr, "spillwayctl: %s\nTry 'spillwayctl --help'.\n", err->msg);
    return EXIT_USAGE;
}

static void print_json(const json_t *value) {
    (void)json_dumpf(value, stdout, JSON_COMPACT | JSON_ENCODE_ANY);
    (void)fputc('\n', stdout);
}

static int flush(struct sw_err *err) {
    if (fflush(stdout) == 0 && !ferror(stdout))
        return 0;
    return sw_err_set(err, -SW_EIO, SW_SCOPE_REQUEST, "standard output: %s", strerror(errno));
}

/* Prints notifications until `left` of them were printed; negative: without end. */
static int follow(struct sw_ctl *ctl, long left, bool as_json, struct sw_err *err) {
    int rc = 0;
    while (left != 0 && rc == 0) {
        const char *line;
        rc = sw_ctl_receive(ctl, -1, &line, err);
        json_t *message = rc == 0 ? json_loads(line, 0, NULL) : NULL;
        const json_t *params = json_object_get(message, "params");
        const char *method = json_string_value(json_object_get(message, "method"));
        if (as_json && message)
            print_json(message);
        else if (method && strcmp(method, "event") == 0)
            sw_ctl_print_event(stdout, params);
        else if (method)
            (void)printf("missed %.0f events\n", json_number_value(json_object_get(params, "events")));
        rc = rc ? rc : flush(err);
        left -= method && left > 0;
        json_decref(message);
    }
    return rc;
}

/* Otherwise the command would look as if it hung. */
static void say_what_is_awaited(long n) {
    if (n < 0)
        (void)fprintf(stderr, "spillwayctl: waiting for events; Ctrl-C ends this\n");
    else
        (void)fprintf(stderr, "spillwayctl: waiting for %ld event%s; Ctrl-C ends this, --follow has no end\n", n,
                      n == 1 ? "" : "s");
}

static int run_events(struct sw_ctl *ctl, const struct sw_ctl_arguments *arguments, struct sw_err *err) {
    const char *count = arguments->given[SW_CTL_OPTION_COUNT];
    const long n = arguments->given[SW_CTL_OPTION_FOLLOW] ? -1 : count ? strtol(count, NULL, 10) : 1;
    const char *mode = json_string_value(json_object_get(arguments->params, "mode"));
    if (mode && strcmp(mode, "off") == 0)
        return 0;
    if (!arguments->given[SW_CTL_OPTION_JSON])
        say_what_is_awaited(n);
    return follow(ctl, n, arguments->given[SW_CTL_OPTION_JSON], err);
}

static int run_method(struct sw_ctl *ctl, const struct sw_ctl_arguments *arguments, struct sw_err *err) {
    json_t *result = NULL;
    const bool is_events = arguments->row == &sw_control_rows[SW_CONTROL_EVENTS],
               is_snapshot = arguments->row == &sw_control_rows[SW_CONTROL_SNAPSHOT];
    int rc = sw_ctl_call(ctl, arguments->row->name, json_incref(arguments->params), &result, err);
    if (rc == 0 && is_snapshot)
        rc = sw_ctl_collect(ctl, result, err);
    const bool drains_to =
        arguments->row == &sw_control_rows[SW_CONTROL_DRAIN] && json_object_get(arguments->params, "to");
    if (rc == 0 && (arguments->given[SW_CTL_OPTION_WAIT] || drains_to))
        rc = sw_ctl_wait(ctl, arguments->row, &result, err);
    if (rc == 0 && !is_events && (is_snapshot || arguments->given[SW_CTL_OPTION_JSON]))
        print_json(result);
    else if (rc == 0 && !is_events)
        sw_ctl_print(stdout, result);
    json_decref(result);
    return rc ? rc : is_events ? run_events(ctl, arguments, err) : flush(err);
}

static int show(const struct sw_top *now, const struct sw_top *before, bool once, struct sw_err *err) {
    char *page = NULL;
    size_t bytes = 0;
    FILE *out = open_memstream(&page, &bytes);
    if (out)
        sw_top_print(out, now, before);
    if (!out || fclose(out) != 0) {
        free(page);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for a page");
    }
    if (once)
        (void)fputs(page, stdout);
    else
        sw_screen_show(page);
    free(page);
    return flush(err);
}

static int run_top(struct sw_ctl *ctl, const struct sw_ctl_arguments *arguments, struct sw_err *err) {
    const char *interval = arguments->given[SW_CTL_OPTION_INTERVAL];
    const double seconds = interval ? strtod(interval, NULL) : 1;
    const bool once = arguments->given[SW_CTL_OPTION_ONCE];
    struct sw_top now, before = {.status = NULL};
    int rc = 0;
    if (!once)
        sw_screen_begin();
    for (bool ended = false; rc == 0 && !ended;) {
        rc = sw_top_look(&now, ctl, err);
        if (rc < 0)
            break;
        rc = show(&now, before.status ? &before : NULL, once, err);
        sw_top_fini(&before);
        before = now;
        ended = once || sw_screen_wait(seconds);
    }
    sw_top_fini(&before);
    sw_screen_end();
    return rc;
}

/* Checks options that are for one command only, and numbers. */
static int check(const struct sw_ctl_arguments *arguments, struct sw_err *err) {
    const bool is_events = arguments->row == &sw_control_rows[SW_CONTROL_EVENTS];
    const char *interval = arguments->given[SW_CTL_OPTION_INTERVAL], *count = arguments->given[SW_CTL_OPTION_COUNT];
    char *end = "";
    for (int i = 0; i < SW_CTL_OPTION_NR; i++) {
        const bool for_top = i == SW_CTL_OPTION_ONCE || i == SW_CTL_OPTION_INTERVAL;
        const bool for_events = i == SW_CTL_OPTION_FOLLOW || i == SW_CTL_OPTION_COUNT;
        if (arguments->given[i] && ((for_top && !arguments->is_top) || (for_events && !is_events)))
            return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "--%s is for %s only", sw_ctl_options[i].name,
                              for_top ? "top" : "events");
    }
    if (arguments->given[SW_CTL_OPTION_WAIT] && (!arguments->row || !sw_ctl_can_wait(arguments->row)))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "--wait is for drain, spill, demote and promote only");
    if (arguments->given[SW_CTL_OPTION_JSON] && arguments->is_top)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "--json is not for top: use stats");
    if (interval && (!(strtod(interval, &end) >= 0.05 && strtod(interval, &end) <= 3600) || *end)) /* NaN fails both */
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "--interval: '%.24s' is not a number from 0.05 to 3600",
                          interval);
    if (count && (strtol(count, &end, 10) < 1 || *end))
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "--count: '%.24s' is not a number of at least 1", count);
    if (!arguments->row && !arguments->is_top)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "a command is missing");
    return 0;
}

static int run(const struct sw_ctl_arguments *arguments) {
    const char *from_environment = getenv("SPILLWAY_CONTROL_SOCKET"), *path = arguments->given[SW_CTL_OPTION_SOCKET];
    /* Commands that run until interrupted continue across a restart: the new connection waits in the service manager's
     * socket. */
    const bool goes_on =
        arguments->given[SW_CTL_OPTION_FOLLOW] || (arguments->is_top && !arguments->given[SW_CTL_OPTION_ONCE]);
    struct sw_ctl *ctl = NULL;
    struct sw_err err;
    if (check(arguments, &err) < 0)
        return usage_error(&err);
    path = path ? path : from_environment ? from_environment : SW_CTL_SOCKET;
    for (;;) {
        const int opened = sw_ctl_open(&ctl, path, &err);
        if (opened < 0)
            return failed(&err, opened == -SW_EACCES ? EXIT_REFUSED : EXIT_UNREACHED);
        const int rc = arguments->is_top ? run_top(ctl, arguments, &err) : run_method(ctl, arguments, &err);
        sw_ctl_close(ctl);
        if (rc == 0)
            return EXIT_SUCCESS;
        (void)failed(&err, rc);
        if (rc != -SW_ECONN)
            return EXIT_REFUSED;
        if (!goes_on)
            return EXIT_UNREACHED;
    }
}

static int spillwayctl(int argc, char **argv) {
    struct sw_ctl_arguments arguments;
    struct sw_err err;
    int code = EXIT_SUCCESS;
    const int rc = sw_ctl_arguments(&arguments, argc, argv, &err);
    if (rc < 0)
        code = usage_error(&err);
    else if (arguments.is_help)
        sw_ctl_help(stdout, &arguments);
    else if (arguments.given[SW_CTL_OPTION_VERSION])
        (void)printf("spillwayctl %s\n", SW_VERSION);
    else
        code = run(&arguments);
    sw_ctl_arguments_fini(&arguments);
    return code;
}

int main(int argc, char **argv) {
    sw_descriptors_begin();
    return sw_thread_run(spillwayctl, argc, argv);
}
