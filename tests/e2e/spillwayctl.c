/* spillwayctl against a real spillwayd: its output and exit codes. */
#include "daemon/control/control_methods.h"
#include "ipc/spillway.h"
#include "tests/lib/requests.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"
#include "tests/lib/served.h"

#include <check.h>
#include <fcntl.h>
#include <pty.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <termios.h>
#include <time.h>
#include <unistd.h>

static char output[1 << 17];

static int finish(FILE *program) {
    output[fread(output, 1, sizeof output - 1, program)] = 0;
    const int status = pclose(program);
    ck_assert(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static const char *socket_path = sw_served_daemon.control;

static FILE *begin(const char *arguments) {
    char line[1024];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' %s 2>&1", SW_SPILLWAYCTL_PATH, socket_path, arguments);
    FILE *program = popen(line, "r");
    ck_assert_ptr_nonnull(program);
    return program;
}

/* Runs spillwayctl on the case's daemon; both streams go to `output`. Returns the exit code. */
static int run(const char *arguments) {
    return finish(begin(arguments));
}

static void ck_says(const char *arguments, int exit_code, const char *says) {
    const int code = run(arguments);
    ck_assert_msg(code == exit_code && strstr(output, says), "%s: %d, '%s' does not say '%s'", arguments, code, output,
                  says);
}

static const struct {
    const char *arguments;
    int exit_code;
    const char *says;
} commands[] = {
    {"--version", 0, "spillwayctl " SW_VERSION "\n"},
    {"status", 0, "\nstate            serving\n"},
    {"status --json", 0, "\"state\":\"serving\""},
    {"-j status", 0, "\"state\":\"serving\""},
    {"stats", 0, "\nlatency\nkind     stage  operations"},
    {"sessions", 0, "sessions  -\n"},
    {"regions", 0, "regions  -\n"},
    {"regions --limit 10 --tier=host", 0, "regions  -\n"},
    {"regions --limit 010", 1, "EINVAL: limit: "}, /* in no base */
    {"tiers", 0, "host  64.0 MiB"},
    {"config get", 0, "max_sessions"},
    {"config.get", 0, "max_sessions"},
    {"config get slots", 0, "slots  2\n"},
    {"config get --name slots", 0, "slots  2\n"},
    {"config set max_session_regions 1000", 0, "max_session_regions  1000\n"},
    {"config set max_session_regions 65536", 0, "max_session_regions  65536\n"},
    {"config set slots 4", 1, "spillwayctl: ENOTSUP: slots: needs a restart\n"},
    {"config set nonsense 4", 1, "spillwayctl: ECONFIG: nonsense: unknown option\n"},
    {"config reload", 0, "changed        -\nneeds_restart  -\n"},
    {"drain", 0, "draining    no\n"},
    {"drain on", 0, "draining    yes\n"},
    {"drain --mode=off", 0, "draining    no\n"},
    {"drain --to remote", 1, "ENOTSUP: there is no tier remote behind others\n"},
    {"drain off --to nvme", 1, "EINVAL: to: not with mode off\n"},
    {"drain maybe", 1, "EINVAL: mode: \"maybe\" is not one of on, off\n"},
    {"spill 4MiB", 1, "ENOTSUP: there is no tier behind host"},
    {"spill 1.5G", 1, "ENOTSUP: there is no tier behind host"},
    {"spill 4 MiB", 2, "unexpected argument 'MiB'"},
    {"spill much", 1, "EINVAL: bytes: \"much\" is not a size from 1 to 64 TiB"},
    {"spill 65T", 1, "EINVAL: bytes: \"65T\" is not a size from 1 to 64 TiB"},
    {"config set tenant_bytes 1.5GiB", 0, "tenant_bytes  1536 MiB\n"},
    {"config set tenant_bytes 0", 0, "tenant_bytes  0\n"},
    {"drop 7:3", 1, "ENOENT: there is no region 7:3"},
    {"drop seven", 1, "is not a region such as \"7:3\""},
    {"drop '[7]'", 1, "EINVAL: region: \"[7]\" is not a region"},
    {"drop", 1, "EINVAL: give a region or a name\n"},
    {"drop 7:3 --name x", 1, "EINVAL: give a region or a name, not both\n"},
    {"drop 7:3 --uid 5", 1, "EINVAL: uid: belongs to a name\n"},
    {"drop --name x", 1, "ENOENT: there is no durable region of this name\n"},
    {"drop --name 7", 1, "ENOENT: there is no durable region of this name\n"}, /* a text of digits */
    {"drop --name $(printf '\\377')", 2, "not UTF-8: "},
    {"demote --name x --uid 5", 1, "ENOENT: there is no durable region of this name\n"},
    {"spill", 1, "EINVAL: give bytes or a name\n"},
    {"spill --name x", 1, "ENOENT: there is no durable region of this name\n"},
    {"tenants", 0, "tenants  -\n"},
    {"snapshot", 0,
     "{\"host_tier\":{\"used_bytes\":0,\"capacity_bytes\":67108864,\"staging_bytes\":0},\"regions\":[]}\n"},
    {"config set quotas '[{\"uid\": 1, \"bytes\": 7}]' --json", 0, "{\"quotas\":[{\"uid\":1,\"bytes\":\"7\"}]}\n"},
    {"config set quotas '[{\"uid\": 1}]'", 1, "ECONFIG: quotas[0]: has no limit\n"},
    {"config set quotas '[{'", 1, "ECONFIG: quotas: is not a list of up to 64 rows"},
    {"config set quotas []", 0, "quotas  -\n"},
    {"drain --wait", 1, "ECANCELED: the service is not draining\n"},
    {"drain on --wait", 0, "draining    yes\n"},
    {"drain off", 0, "draining    no\n"},
    {"status --wait", 2, "--wait is for drain, spill, demote and promote only\n"},
    {"help drain", 0, "      --wait: wait until it is done"},
    {"demote 7:3", 1, "ENOENT: there is no region 7:3"},
    {"promote 7:3", 1, "ENOENT: there is no region 7:3"},
    {"log level", 0, "log_level  info\n"},
    {"log level debug", 0, "log_level  debug\n"},
    {"log level info", 0, "log_level  info\n"},
    {"metrics", 0, "# TYPE spillway_sessions gauge\nspillway_sessions 0\n"},
    {"drain on --mode off", 2, "given twice: 'mode'"},
    {"events --mode off", 0, ""},
    {"top --once", 0, "serving, up "},
    {"", 2, "a command is missing"},
    {"nonsense", 2, "there is no command 'nonsense'"},
    {"config", 2, "a word is missing after 'config'"},
    {"config nonsense", 2, "there is no command 'config nonsense'\n"},
    {"config reaload", 2, "there is no command 'config reaload'; did you mean config reload?"},
    {"config help", 2, "there is no command 'config help'"},
    {"confg", 2, "there is no command 'confg'; did you mean config?"},
    {"conf get", 2, "there is no command 'conf'; did you mean config get?"},
    {"staus", 2, "there is no command 'staus'; did you mean status?"},
    {"tpo", 2, "there is no command 'tpo'; did you mean top?"},
    {"--nonsense status", 2, "unknown option '--nonsense'\n"},
    {"--scoket=/x status", 2, "unknown option '--scoket'; did you mean --socket?"},
    {"regions --limt 3", 2, "unknown option '--limt'; did you mean --limit?"},
    {"config get max_sesions", 1, "ECONFIG: max_sesions: unknown option; did you mean max_sessions?"},
    {"config set max_sesions 3", 1, "ECONFIG: max_sesions: unknown option; did you mean max_sessions?"},
    {"events --only spil.done", 1, "EINVAL: only: there is no event 'spil.done'; did you mean spill.done?"},
    {"events --only session,spill.don --mode off", 1, "there is no event 'spill.don'; did you mean spill.done?"},
    {"events --only sess --mode off", 1, "there is no event 'sess'; did you mean session"},
    {"events --only session,tier,restore.done --mode off", 0, ""},
    {"help drop", 0, "  drop\n"},
    {"help config", 0, "  config reload\n"},
    {"help config set", 0, "      --value: a string, a number, a boolean or a list; required. "},
    {"help top", 0, "      --interval SECONDS: time between two updates"},
    {"drop --help", 0, "  drop\n"},
    {"help", 0, "Usage: spillwayctl"},
    {"help dorp", 2, "there is no command 'dorp'; did you mean drop?"},
    {"status --limit 1", 2, "unknown option '--limit'"},
    {"status -x", 2, "unknown option '-x'"},
    {"status -", 2, "unexpected argument '-'"},
    {"-jx status", 2, "unknown option '-jx'"},
    {"--jso status", 2, "unknown option '--jso'; did you mean --json?"},
    {"regions --lim 3", 2, "unknown option '--lim'"},
    {"status extra", 2, "unexpected argument 'extra'"},
    {"status --once", 2, "--once is for top only"},
    {"top --once --json", 2, "--json is not for top"},
    {"top --follow", 2, "--follow is for events only"},
    {"top --interval nan", 2, "--interval: 'nan' is not a number from 0.05 to 3600"},
    {"top --interval 1x", 2, "--interval: '1x' is not a number from 0.05 to 3600"},
    {"top --interval 3601", 2, "--interval: '3601' is not a number from 0.05 to 3600"},
    {"events --count 2x", 2, "--count: '2x' is not a number of at least 1"},
    {"top --interval 0", 2, "--interval: '0' is not a number from 0.05 to 3600"},
    {"events --count x", 2, "--count: 'x' is not a number of at least 1"},
    {"regions --limit", 2, "needs a value: '--limit'"},
    {"--json=1 status", 2, "takes no value: '--json=1'"},
    {"--socket /nonexistent/x status", 3,
     "ENOSERVICE: /nonexistent/x: No such file or directory; is spillwayd running there?"},
};

START_TEST(commands_and_mistakes) {
    ck_says(commands[_i].arguments, commands[_i].exit_code, commands[_i].says);
}
END_TEST

/* Help on one command says nothing of the others. */
START_TEST(help_on_one_command) {
    ck_assert_int_eq(run("help regions"), 0);
    ck_assert_msg(strstr(output, "--cursor") && !strstr(output, "drain") && !strstr(output, "Usage"), "%s", output);
    ck_assert_int_eq(run("help config"), 0);
    ck_assert_msg(strstr(output, "  config get\n") && strstr(output, "  config set\n") && !strstr(output, "  status\n"),
                  "%s", output);
}
END_TEST

START_TEST(help_on_top) {
    ck_assert_int_eq(run("help top"), 0);
    ck_assert_msg(strstr(output, "Shows rates") && !strstr(output, "  status\n") && !strstr(output, "Usage"), "%s",
                  output);
}
END_TEST

/* The socket of clients lies beside it, and is easily mistaken for it. */
START_TEST(socket_of_clients) {
    char line[512];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' status 2>&1", SW_SPILLWAYCTL_PATH, sw_served_daemon.socket);
    ck_assert_int_eq(finish(popen(line, "r")), 3);
    ck_assert_msg(strstr(output, "is a socket of another kind, like data.sock; use control.sock"), "%s", output);
}
END_TEST

/* The service is there, and has refused. */
START_TEST(a_user_may_not_connect) {
    const int program = open(SW_SPILLWAYCTL_PATH, O_RDONLY | O_CLOEXEC); /* where that user may not look */
    int ends[2], status;
    ck_assert(program >= 0 && pipe2(ends, O_CLOEXEC) == 0);
    ck_assert_int_eq(chmod(sw_served_daemon.control, 0), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        char *const arguments[] = {(char *)(uintptr_t) "spillwayctl", (char *)(uintptr_t) "-s",
                                   sw_served_daemon.control, (char *)(uintptr_t) "status", NULL};
        (void)setresuid(65534, 65534, 65534); /* from root only */
        (void)dup2(ends[1], STDERR_FILENO);
        (void)fexecve(program, arguments, environ);
        _exit(127);
    }
    (void)close(ends[1]);
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    const ssize_t n = read(ends[0], output, sizeof output - 1);
    output[n > 0 ? n : 0] = 0;
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 1 && strstr(output, ": Permission denied\n"), "%x %s",
                  (unsigned)status, output);
    ck_assert_int_eq(chmod(sw_served_daemon.control, 0660), 0);
    (void)close(ends[0]);
    (void)close(program);
}
END_TEST

START_TEST(help_lists_every_method) {
    char command[64];
    ck_assert_int_eq(run("--help"), 0);
    for (int i = 0; i < SW_CONTROL_METHOD_NR; i++) {
        (void)snprintf(command, sizeof command, "\n  %s\n", sw_control_rows[i].name);
        for (char *at = command; *at; at++)
            if (*at == '.')
                *at = ' ';
        ck_assert_msg(strstr(output, command) != NULL, "no help on %s", command);
    }
}
END_TEST

START_TEST(output_that_cannot_be_written) {
    char line[512];
    (void)snprintf(line, sizeof line, "'%s' --socket '%s' status 2>&1 >/dev/full", SW_SPILLWAYCTL_PATH,
                   sw_served_daemon.control);
    ck_assert_int_eq(finish(popen(line, "r")), 1);
    ck_assert_ptr_nonnull(strstr(output, "EIO: standard output: No space left on device"));
}
END_TEST

/* The connection's descriptor must not be the one that it prints to. */
START_TEST(streams_that_are_closed) {
    char line[512];
    (void)snprintf(line, sizeof line,
                   "'%s' --socket '%s' events --follow <&- >&- 2>&- & sleep 0.3; "
                   "for i in 0 1 2; do readlink /proc/$!/fd/$i; done; kill $!",
                   SW_SPILLWAYCTL_PATH, sw_served_daemon.control);
    ck_assert_int_eq(finish(popen(line, "r")), 0);
    ck_assert_str_eq(output, "/dev/null\n/dev/null\n/dev/null\n");
}
END_TEST

START_TEST(socket_by_environment) {
    char line[512];
    (void)snprintf(line, sizeof line, "SPILLWAY_CONTROL_SOCKET='%s' '%s' status", sw_served_daemon.control,
                   SW_SPILLWAYCTL_PATH);
    ck_assert_int_eq(finish(popen(line, "r")), 0);
    ck_assert_ptr_nonnull(strstr(output, "serving"));
}
END_TEST

START_TEST(sessions_and_regions_as_tables) {
    struct spillway *client = sw_served_connect(&sw_served_daemon);
    struct spillway_ticket *ticket = NULL;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    char arguments[64];
    const int fd = memfd_create("ctl", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    ck_assert(fd >= 0 && ftruncate(fd, 4096) == 0);
    void *data = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    ck_assert_ptr_ne(data, MAP_FAILED);
    ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, 4096)), 1, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error), 0);
    spillway_ticket_free(ticket);
    ck_says("sessions", 0, "session");
    ck_assert_ptr_nonnull(strstr(output, "4.0 KiB"));
    ck_assert_msg(!strstr(output, "_bytes") && !strstr(output, "_us"), "a heading has another unit: %s", output);
    ck_says("stats", 0, "spilled_raw  ");
    ck_assert_msg(!strstr(output, "_bytes ") && !strstr(output, "_us "), "a heading has another unit: %s", output);
    ck_says("regions --state out", 0, "region ");
    (void)snprintf(arguments, sizeof arguments, "%u:%u", result.region.slot, result.region.generation);
    ck_assert_ptr_nonnull(strstr(output, arguments));
    ck_says("top --once", 0, "1 sessions, 1 regions");
    (void)snprintf(arguments, sizeof arguments, "drop %u:%u", result.region.slot, result.region.generation);
    ck_says(arguments, 0, "region  ");
    ck_says("regions", 0, "regions  -\n");
    sw_served_close(client);
    (void)munmap(data, 4096);
    (void)close(fd);
}
END_TEST

/* The loop's index: encoded by the service, or in this process. */
START_TEST(a_region_says_what_has_encoded_it) {
    const struct spillway_options options = {.size = sizeof options,
                                             .socket_path = sw_served_daemon.socket,
                                             .flags = _i ? SPILLWAY_CODEC_CLIENT : SPILLWAY_CODEC_SERVICE};
    struct spillway *client;
    struct spillway_ticket *ticket;
    struct spillway_result result = {.size = sizeof result};
    struct spillway_error error;
    const size_t bytes = 2 << 20;
    void *data = calloc(1, bytes);
    ck_assert_int_eq(spillway_open(&client, &options, &error), 0);
    ck_assert_int_eq(spillway_spill(client, SW_REQUEST(SW_ONE(data, bytes)), 1, &ticket, &error), 0);
    ck_assert_int_eq(spillway_wait(ticket, SW_TEST_WAIT_MS, &result, 1, &error), 0);
    spillway_ticket_free(ticket);
    ck_says("regions --json", 0, _i ? "\"coder\":\"client\"" : "\"coder\":\"daemon\"");
    sw_served_close(client);
    free(data);
}
END_TEST

/* On a terminal (of `script`), a command that waits draws its progress. */
START_TEST(a_bar_while_it_waits) {
    char line[1024];
    (void)snprintf(line, sizeof line, "script -qec \"'%s' -s '%s' drain on --wait\" /dev/null </dev/null",
                   SW_SPILLWAYCTL_PATH, sw_served_daemon.control);
    ck_assert_int_eq(finish(popen(line, "r")), 0);
    ck_assert_msg(
        strstr(output,
               "\r[##############################] 100 %  0 regions, 0 operations left\033[K\r\ndraining    yes"),
        "%s", output);
    ck_says("drain on --wait", 0, "draining    yes\n"); /* where it is no terminal, it draws nothing */
    ck_assert_msg(!strchr(output, '\r'), "%s", output);
    ck_says("drain off", 0, "draining    no\n");
}
END_TEST

static void await_subscriber(void) {
    const struct timespec a_little = {.tv_nsec = 10000000};
    while (run("metrics") == 0 && !strstr(output, "spillway_event_subscribers 1\n"))
        (void)nanosleep(&a_little, NULL);
}

START_TEST(events_are_followed) {
    FILE *watch = begin("events --only drain --count 2");
    char says[256];
    ck_assert_ptr_nonnull(fgets(says, sizeof says, watch)); /* at once, not with the first event */
    ck_assert_str_eq(says, "spillwayctl: waiting for 2 events; Ctrl-C ends this, --follow has no end\n");
    await_subscriber();
    ck_assert_int_eq(run("drain off"), 0);
    ck_assert_int_eq(run("log level info"), 0);
    ck_assert_int_eq(run("drain off"), 0);
    ck_assert_int_eq(finish(watch), 0);
    const char *first = strstr(output, " drain.set mode=off\n");
    ck_assert_msg(first && strstr(first + 1, " drain.set mode=off\n") && !strstr(output, "config"), "%s", output);
    watch = begin("events --follow --json drain");
    await_subscriber();
    ck_assert_int_eq(run("drain off"), 0);
    char line[512];
    ck_assert_ptr_nonnull(fgets(line, sizeof line, watch));
    ck_assert_msg(strstr(line, "\"event\":\"drain.set\"") != NULL, "%s", line);
    sw_served_stop(); /* ends it */
    ck_assert_int_eq(finish(watch), 3);
}
END_TEST

/* Its input is no terminal, so nobody presses `q` there. */
START_TEST(top_runs_until_the_service_ends) {
    char line[512];
    (void)snprintf(line, sizeof line, "yes q | '%s' --socket '%s' top --interval 0.05 2>&1", SW_SPILLWAYCTL_PATH,
                   socket_path);
    FILE *watch = popen(line, "r");
    for (int looks = 0; looks < 3; looks += strncmp(line, "spillwayd ", 10) == 0)
        ck_assert_ptr_nonnull(fgets(line, sizeof line, watch));
    sw_served_stop();
    ck_assert_int_eq(finish(watch), 3);
}
END_TEST

/* ---- top on a terminal ------------------------------------------------------------------------------------------- */

enum { ROWS = 3, COLUMNS = 40 };

static int terminal;
static char screen[1 << 16];

/* spillwayctl top, on a terminal of its own that is too small for all rows. */
static pid_t begin_top(void) {
    const struct winsize window = {.ws_row = ROWS, .ws_col = COLUMNS};
    const pid_t pid = forkpty(&terminal, NULL, NULL, &window);
    if (pid == 0) {
        (void)execl(SW_SPILLWAYCTL_PATH, "spillwayctl", "--socket", sw_served_daemon.control, "top", "--interval",
                    "0.2", (char *)NULL);
        _exit(127);
    }
    ck_assert_int_gt(pid, 0);
    return pid;
}

/* A page that has begun on the screen has ended there, too. */
static bool has_a_page(void) {
    const char *page = strstr(screen, "\033[H");
    return page && strstr(page, "\033[J\033[H");
}

/* Reads pages, from one "\033[H" to the next, until a second one has begun. The output goes to `screen`, which may
 * begin with the end of a page. */
static void read_a_page(void) {
    size_t n = 0;
    screen[0] = 0;
    while (!has_a_page()) {
        const ssize_t got = read(terminal, screen + n, sizeof screen - 1 - n);
        ck_assert_int_gt(got, 0);
        n += (size_t)got;
        screen[n] = 0;
    }
}

/* Returns whether the terminal shows what is typed, and waits for whole lines: both or none. */
static bool echoes(void) {
    struct termios now;
    ck_assert_int_eq(tcgetattr(terminal, &now), 0);
    ck_assert_int_eq((now.c_lflag & ECHO) != 0, (now.c_lflag & ICANON) != 0);
    return now.c_lflag & ECHO;
}

/* Without it the settings would go with the program. */
static int keep_terminal(void) {
    const int ret = open(ptsname(terminal), O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert_int_ge(ret, 0);
    return ret;
}

static void ck_fits(const char *page, const char *end, unsigned rows, unsigned columns) {
    unsigned n_rows = 1;
    for (const char *line = page; line; n_rows += line != NULL) {
        const char *next = memmem(line, (size_t)(end - line), "\r\n", 2);
        const char *erase = strstr(line, "\033[K");
        ck_assert_msg(erase && erase <= (next ? next : end) && (size_t)(erase - line) <= columns, "%s", line);
        line = next ? next + 2 : NULL;
    }
    ck_assert_uint_eq(n_rows, rows);
}

START_TEST(top_fits_its_window_and_ends_with_q) {
    int status;
    const pid_t pid = begin_top();
    read_a_page();
    char *page = strstr(screen, "\033[H") + 3, *end = strstr(page, "\033[J");
    ck_fits(page, end, ROWS, COLUMNS);
    ck_assert_int_eq(strncmp(page, "spillwayd ", 10), 0);
    ck_assert(!echoes());
    const struct winsize wider = {.ws_row = ROWS + 2, .ws_col = 2 * COLUMNS};
    ck_assert_int_eq(ioctl(terminal, TIOCSWINSZ, &wider), 0);
    do { /* the page before */
        read_a_page();
        page = strstr(screen, "\033[H") + 3;
        end = strstr(page, "\033[J");
    } while ((size_t)(strstr(page, "\033[K") - page) == COLUMNS);
    ck_fits(page, end, ROWS + 2, 2 * COLUMNS);
    const struct timespec a_little = {.tv_nsec = 10000000};
    const int keeps = keep_terminal();
    ck_assert_int_eq(fcntl(terminal, F_SETFL, O_NONBLOCK), 0);
    ck_assert_int_eq(write(terminal, "xq", 2), 2);
    while (waitpid(pid, &status, WNOHANG) == 0) {
        (void)read(terminal, screen, sizeof screen); /* or it would not get rid of it */
        (void)nanosleep(&a_little, NULL);
    }
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    ck_assert(echoes());
    (void)close(keeps);
    (void)close(terminal);
}
END_TEST

/* A signal ends it as it would any program, but the terminal is restored. */
START_TEST(signal_gives_the_terminal_back) {
    int status;
    const struct timespec a_little = {.tv_nsec = 10000000};
    const pid_t pid = begin_top();
    read_a_page();
    ck_assert(!echoes());
    const int keeps = keep_terminal();
    ck_assert_int_eq(write(terminal, "\003", 1), 1); /* Ctrl-C */
    while (waitpid(pid, &status, WNOHANG) == 0)
        (void)nanosleep(&a_little, NULL);
    ck_assert_msg(WIFSIGNALED(status) && WTERMSIG(status) == SIGINT, "%x", (unsigned)status);
    ck_assert(echoes());
    (void)close(keeps);
    (void)close(terminal);
}
END_TEST

/* ---- a played service -------------------------------------------------------------------------------------------- */

#define MAX_PLAYED 8

/* The results of methods, in order; the last one of a method again and again. Lines may follow. NULL: the connection
 * ends. */
struct played {
    const char *method, *result;
};

static struct {
    char folder[SW_TEST_PATH_BYTES], path[SW_TEST_PATH_BYTES + 8];
    pid_t pid;
} service;

static const char *next_result(const struct played *answers, bool used[MAX_PLAYED], const char *line) {
    const char *result = NULL;
    char method[64];
    for (unsigned i = 0; answers[i].method; i++) {
        (void)snprintf(method, sizeof method, "\"method\":\"%s\"", answers[i].method);
        if (!strstr(line, method))
            continue;
        result = answers[i].result;
        if (!used[i]) {
            used[i] = true;
            break;
        }
    }
    return result;
}

/* Serves one connection after the other, until so many requests have come. */
static void serve(int listener, const struct played *answers, unsigned n_requests) {
    bool used[MAX_PLAYED] = {false};
    char line[1024];
    while (n_requests) {
        FILE *peer = fdopen(accept(listener, NULL, NULL), "r+");
        const char *result = "";
        for (; n_requests && result && peer && fgets(line, sizeof line, peer); n_requests--) {
            const char *id = strstr(line, "\"id\":");
            result = next_result(answers, used, line);
            if (result && id)
                (void)dprintf(fileno(peer), "{\"jsonrpc\":\"2.0\",\"id\":%ld,\"result\":%s\n", strtol(id + 5, NULL, 10),
                              result);
        }
        (void)fclose(peer);
    }
    _exit(0);
}

static void play(const struct played *answers, unsigned n_requests) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    sw_test_folder(service.folder);
    (void)snprintf(service.path, sizeof service.path, "%s/c.sock", service.folder);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", service.path);
    const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ck_assert_int_eq(bind(listener, (const struct sockaddr *)&address, sizeof address), 0);
    ck_assert_int_eq(listen(listener, 4), 0);
    service.pid = fork();
    if (service.pid == 0)
        serve(listener, answers, n_requests);
    (void)close(listener);
    socket_path = service.path;
}

static void end_play(void) {
    int status;
    ck_assert_int_eq(waitpid(service.pid, &status, 0), service.pid);
    ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    sw_test_remove(service.folder);
}

#define EVENT                                                                                                          \
    "{\"jsonrpc\":\"2.0\",\"method\":\"event\",\"params\":{\"time_ms\":5,\"event\":\"drain.set\",\"mode\":\"on\"}}"

START_TEST(missed_events_are_counted) {
    static const struct played answers[] = {
        {"events", "true}\n{\"jsonrpc\":\"2.0\",\"method\":\"dropped\",\"params\":{\"events\":5}}\n" EVENT},
        {NULL, NULL}};
    play(answers, 1);
    ck_assert_int_eq(run("events --count 2"), 0);
    ck_assert_msg(strstr(output, "missed 5 events\n") && strstr(output, " drain.set mode=on\n"), "%s", output);
    end_play();
}
END_TEST

/* The service was restarted meanwhile. */
START_TEST(events_are_followed_on_the_next_connection) {
    static const struct played answers[] = {{"events", NULL}, {"events", "true}\n" EVENT}, {NULL, NULL}};
    play(answers, 2);
    ck_assert_int_eq(run("events --follow"), 3);
    ck_assert_msg(strstr(output, " drain.set mode=on\n") != NULL, "%s", output);
    end_play();
}
END_TEST

START_TEST(one_look_is_not_repeated) {
    static const struct played answers[] = {{"status", NULL}, {NULL, NULL}};
    play(answers, 1);
    ck_assert_int_eq(run("top --once"), 3);
    ck_assert_msg(strstr(output, "ECONN") && !strstr(output, "ENOSERVICE"), "%s", output);
    end_play();
}
END_TEST

START_TEST(all_pages_of_a_snapshot) {
    static const struct played answers[] = {
        {"snapshot", "{\"regions\":[1],\"next\":7}}"}, {"snapshot", "{\"regions\":[2]}}"}, {NULL, NULL}};
    play(answers, 2);
    ck_says("snapshot", 0, "{\"regions\":[1,2]}\n");
    end_play();
}
END_TEST

/* A drain to a tier is waited for in any case. The bar shows how much of it is done. */
START_TEST(a_drain_to_a_tier_is_waited_for) {
    static const struct played answers[] = {{"drain", "{\"draining\":true,\"to\":\"nvme\",\"left_bytes\":4096}}"},
                                            {"drain", "{\"draining\":true,\"to\":\"nvme\",\"left_bytes\":4096}}"},
                                            {"drain", "{\"draining\":true,\"to\":\"nvme\",\"left_bytes\":2048}}"},
                                            {"drain", "{\"draining\":true,\"to\":\"nvme\",\"left_bytes\":0}}"},
                                            {NULL, NULL}};
    char line[1024];
    play(answers, 4);
    (void)snprintf(line, sizeof line, "script -qec \"'%s' -s '%s' drain on --to nvme\" /dev/null </dev/null",
                   SW_SPILLWAYCTL_PATH, service.path);
    ck_assert_int_eq(finish(popen(line, "r")), 0);
    ck_assert_msg(strstr(output, "   0 %  4.0 KiB left") && strstr(output, "  50 %  2.0 KiB left") &&
                      strstr(output, " 100 %  0 B left"),
                  "%s", output);
    end_play();
}
END_TEST

/* Rates are first those since the start, then those since the last look. */
START_TEST(top_shows_recent_rates) {
    static const struct played answers[] = {{"status", "{\"uptime_us\":1000000}}"},
                                            {"stats", "{\"spills\":7}}"},
                                            {"tiers", "{}}"},
                                            {"sessions", "{\"sessions\":[]}}"},
                                            {NULL, NULL}};
    play(answers, 8);
    ck_assert_int_eq(run("top --interval 0.05"), 3);
    const char *first = strstr(output, " 7.0/s");
    ck_assert_msg(first && strstr(first, "spills        0.0/s"), "%s", output);
    end_play();
}
END_TEST

int main(void) {
    TCase *tests = tcase_create("spillwayctl"), *alone = tcase_create("alone"), *played = tcase_create("played");
    tcase_add_unchecked_fixture(tests, sw_served_start, sw_served_stop);
    tcase_add_loop_test(tests, commands_and_mistakes, 0, (int)(sizeof commands / sizeof commands[0]));
    tcase_add_test(tests, help_lists_every_method);
    tcase_add_test(tests, help_on_one_command);
    tcase_add_test(tests, help_on_top);
    tcase_add_test(tests, socket_of_clients);
    tcase_add_test(tests, a_user_may_not_connect);
    tcase_add_test(tests, top_fits_its_window_and_ends_with_q);
    tcase_add_test(tests, signal_gives_the_terminal_back);
    tcase_add_test(tests, output_that_cannot_be_written);
    tcase_add_test(tests, streams_that_are_closed);
    tcase_add_test(tests, socket_by_environment);
    tcase_add_test(tests, sessions_and_regions_as_tables);
    tcase_add_loop_test(tests, a_region_says_what_has_encoded_it, 0, 2);
    tcase_add_test(tests, a_bar_while_it_waits);
    tcase_add_checked_fixture(alone, sw_served_start, sw_served_stop);
    tcase_add_test(alone, events_are_followed);
    tcase_add_test(alone, top_runs_until_the_service_ends);
    tcase_add_test(played, missed_events_are_counted);
    tcase_add_test(played, events_are_followed_on_the_next_connection);
    tcase_add_test(played, one_look_is_not_repeated);
    tcase_add_test(played, all_pages_of_a_snapshot);
    tcase_add_test(played, a_drain_to_a_tier_is_waited_for);
    tcase_add_test(played, top_shows_recent_rates);
    Suite *suite = suite_create("spillwayctl");
    suite_add_tcase(suite, tests);
    suite_add_tcase(suite, alone);
    suite_add_tcase(suite, played);
    return sw_test_run(suite, CK_FORK);
}
