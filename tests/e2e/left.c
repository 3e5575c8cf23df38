/* State that earlier versions left is taken over: states of a stopped service, and clients' binaries, both kept in
 * tests/golden for ever. `e2e_left --write VERSION FOLDER` makes states of this version; the README.md there says more.
 */
#include "base/assert.h"
#include "tests/lib/control.h"
#include "tests/lib/run.h"
#include "tests/lib/supervisor.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define GOLDEN SW_SOURCE_DIR "/tests/golden/"
enum { BLOCK_BYTES = 256, NAME_BYTES = 64, MOST_RUN_BYTES = 64 << 10, STEP_MS = 10, WAIT_MS = 30000 };

static const char *const versions[] = {"0.1"};
static const struct kind {
    const char *suffix, *nvme_encrypt;
} kinds[] = {{"", "nvme_encrypt=off"}, {"-encrypted", "nvme_encrypt=on"}};
enum { N_VERSIONS = sizeof versions / sizeof versions[0], N_KINDS = sizeof kinds / sizeof kinds[0] };

/* ---- the service ---- */

static struct sw_supervisor supervisor;
static char folder[SW_TEST_PATH_BYTES], nvme_folder[SW_TEST_PATH_BYTES + 8], nvme_option[SW_TEST_PATH_BYTES + 32];
static const char *options[10];

static void prepare_service(const struct kind *kind) {
    const char *const all[] = {nvme_option,
                               kind->nvme_encrypt,
                               "nvme_tier_bytes=16 MiB",
                               "host_tier_bytes=4 MiB",
                               "host_tier_initial_bytes=4 MiB",
                               "host_tier_slab_bytes=2 MiB",
                               "max_regions=1000",
                               "log_level=info",
                               NULL};
    sw_test_folder_here(folder);
    (void)snprintf(nvme_folder, sizeof nvme_folder, "%s/nvme", folder);
    (void)snprintf(nvme_option, sizeof nvme_option, "nvme_tier_directory=%s", nvme_folder);
    memcpy(options, all, sizeof all);
    sw_supervisor_init(&supervisor, SW_SPILLWAYD_PATH, options);
}

static void end_service(void) {
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGTERM), 0);
    sw_supervisor_end(&supervisor);
    sw_test_remove(folder);
}

/* ---- a client's process ---- */

struct client {
    pid_t pid;
    FILE *in, *out; /* its input and output */
};

static struct client begin_client(const char *program, const char *mode) {
    struct client client;
    int in[2], out[2];
    ck_assert(pipe2(in, O_CLOEXEC) == 0 && pipe2(out, O_CLOEXEC) == 0);
    client.pid = fork();
    if (client.pid == 0) {
        (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
        (void)dup2(in[0], STDIN_FILENO);
        (void)dup2(out[1], STDOUT_FILENO);
        (void)execl(program, program, mode, supervisor.daemon.socket, (char *)NULL);
        _exit(127);
    }
    (void)close(in[0]);
    (void)close(out[1]);
    client.in = fdopen(in[1], "w");
    client.out = fdopen(out[0], "r");
    ck_assert(client.pid > 0 && client.in && client.out);
    return client;
}

static void end_client(struct client *client) {
    int status;
    (void)fclose(client->in);
    ck_assert_int_eq(waitpid(client->pid, &status, 0), client->pid);
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == 0, "the client ended with %d", status);
    (void)fclose(client->out);
}

static void ck_says(struct client *client, const char *expected) {
    char line[256] = "";
    ck_assert_msg(fgets(line, sizeof line, client->out) && strcmp(line, expected) == 0, "the client says '%s'", line);
}

/* The version's, if it runs here: it is for one processor and C library. */
static const char *old_client(const char *version) {
    static char path[256];
    int status;
    (void)snprintf(path, sizeof path, GOLDEN "v%s-client.x86_64", version);
    const pid_t pid = fork();
    if (pid == 0) {
        (void)freopen("/dev/null", "w", stderr);
        (void)execl(path, path, (char *)NULL);
        _exit(127);
    }
    ck_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) && WEXITSTATUS(status) == 2 ? path : NULL; /* it has said how to use it */
}

/* ---- a state in a file, by gzip(1): "fd NAME BYTES", "file NAME BYTES" or "said - BYTES", each followed by the runs
 * of blocks that are not all zero, and a run of no bytes ---- */

struct run {
    uint64_t at, bytes;
};

/* Reads the run that begins at `at`, which has no bytes if the block there is zero. */
static struct run read_run(int fd, uint64_t at, uint8_t data[MOST_RUN_BYTES]) {
    static const uint8_t zeros[BLOCK_BYTES];
    struct run run = {.at = at};
    while (run.bytes < MOST_RUN_BYTES) {
        const ssize_t n = pread(fd, data + run.bytes, BLOCK_BYTES, (off_t)(at + run.bytes));
        SW_ASSERT(n >= 0);
        if (n == 0 || memcmp(data + run.bytes, zeros, (size_t)n) == 0)
            break;
        run.bytes += (uint64_t)n;
    }
    return run;
}

static void save_run(FILE *to, const struct run *run, const uint8_t *data) {
    SW_ASSERT(fwrite(run, sizeof *run, 1, to) == 1 && fwrite(data, 1, run->bytes, to) == run->bytes);
}

static void save(FILE *to, const char *what, const char *name, int fd) {
    static uint8_t data[MOST_RUN_BYTES];
    struct stat status;
    struct run run = {0};
    SW_ASSERT(fstat(fd, &status) == 0);
    (void)fprintf(to, "%s %s %" PRIu64 "\n", what, name, (uint64_t)status.st_size);
    for (uint64_t at = 0; at < (uint64_t)status.st_size; at += run.bytes ? run.bytes : BLOCK_BYTES) {
        run = read_run(fd, at, data);
        if (run.bytes)
            save_run(to, &run, data);
    }
    run = (struct run){0};
    save_run(to, &run, data);
}

static void load_runs(FILE *from, int fd, uint64_t bytes) {
    static uint8_t data[MOST_RUN_BYTES];
    struct run run;
    SW_ASSERT(fd >= 0 && ftruncate(fd, (off_t)bytes) == 0);
    while (fread(&run, sizeof run, 1, from) == 1 && run.bytes > 0) {
        SW_ASSERT(run.bytes <= sizeof data && fread(data, 1, run.bytes, from) == run.bytes);
        SW_ASSERT(pwrite(fd, data, run.bytes, (off_t)run.at) == (ssize_t)run.bytes);
    }
}

/* Makes a kept memfd like the service's own: the service checks the seals of the disk's key. */
static int new_kept(FILE *from, const char *name, uint64_t bytes) {
    const int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    load_runs(from, fd, bytes);
    SW_ASSERT(strcmp(name, "nvme-key") != 0 || fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
    return fd;
}

static int new_file(const char *name) {
    char path[SW_TEST_PATH_BYTES + NAME_BYTES + 8];
    (void)snprintf(path, sizeof path, "%s/%s", nvme_folder, name);
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

/* Puts them into the supervisor's store and the disk's folder. Returns the client's output, an open file. */
static FILE *load(const char *version, const struct kind *kind) {
    char command[512], what[8], name[NAME_BYTES];
    uint64_t bytes;
    FILE *said = tmpfile();
    (void)snprintf(command, sizeof command, "gzip -dc '" GOLDEN "v%s%s.state.gz'", version, kind->suffix);
    FILE *from = popen(command, "re");
    SW_ASSERT(from && said);
    ck_assert_int_eq(mkdir(nvme_folder, 0700), 0);
    while (fscanf(from, "%7s %63s %" SCNu64, what, name, &bytes) == 3) {
        SW_ASSERT(fgetc(from) == '\n');
        if (strcmp(what, "fd") == 0) {
            sw_supervisor_store(&supervisor, name, new_kept(from, name, bytes));
            continue;
        }
        const int fd = strcmp(what, "said") == 0 ? dup(fileno(said)) : new_file(name);
        load_runs(from, fd, bytes);
        (void)close(fd);
    }
    ck_assert(feof(from));
    ck_assert_int_eq(pclose(from), 0);
    rewind(said);
    return said;
}

/* ---- the tests ---- */

static void copy(FILE *from, FILE *to) {
    for (int c; (c = fgetc(from)) != EOF;)
        SW_ASSERT(fputc(c, to) != EOF);
}

/* Runs as root, as the earlier version did. Other users become root in a namespace of their own. */
static void become_root(void) {
    char line[32];
    const uid_t uid = getuid();
    if (uid == 0)
        return;
    (void)snprintf(line, sizeof line, "0 %u 1", (unsigned)uid);
    if (unshare(CLONE_NEWUSER) < 0)
        exit(77);
    sw_test_put("/proc/self", "/uid_map", line);
}

START_TEST(regions_are_restored) {
    const char *version = versions[_i / N_KINDS], *program = old_client(version);
    const struct kind *kind = &kinds[_i % N_KINDS];
    become_root();
    prepare_service(kind);
    FILE *said = load(version, kind);
    ck_assert(sw_supervisor_spawn(&supervisor));
    struct client client = begin_client(program ? program : SW_GOLDEN_CLIENT_PATH, "find");
    copy(said, client.in);
    (void)fclose(said);
    (void)fflush(client.in);
    ck_says(&client, "found\n");
    end_client(&client);
    ck_assert_uint_eq(sw_test_daemon_logged(&supervisor.daemon, "event=region.lost"), 0);
    end_service();
}
END_TEST

/* Today's client runs, too, so that the source stays what it is. */
START_TEST(a_client_goes_on_over_a_restart) {
    const char *program = _i < N_VERSIONS ? old_client(versions[_i]) : SW_GOLDEN_CLIENT_PATH;
    if (!program)
        return;
    prepare_service(&kinds[0]);
    ck_assert(sw_supervisor_spawn(&supervisor));
    struct client client = begin_client(program, "work");
    ck_says(&client, "half\n");
    ck_assert_int_eq(sw_supervisor_stop(&supervisor, SIGKILL), -SIGKILL);
    ck_assert(sw_supervisor_spawn(&supervisor));
    (void)fputs("go on\n", client.in);
    (void)fflush(client.in);
    ck_says(&client, "done\n");
    end_client(&client);
    end_service();
}
END_TEST

/* ---- writing states ---- */

static bool is_on_disk(struct sw_ctl *ctl, const char *region) {
    json_t *answer = sw_control_ask(ctl, "regions", "{\"limit\":1000}");
    json_t *item;
    size_t i;
    bool found = false;
    json_array_foreach(json_object_get(answer, "regions"), i,
                       item) if (strcmp(json_string_value(json_object_get(item, "region")), region) == 0) found =
        strcmp(json_string_value(json_object_get(item, "tier")), "nvme") == 0;
    json_decref(answer);
    return found;
}

static void move_to_disk(struct sw_ctl *ctl, unsigned slot, unsigned generation) {
    const struct timespec step = {.tv_nsec = STEP_MS * 1000000L};
    char region[32], params[64];
    (void)snprintf(region, sizeof region, "%u:%u", slot, generation);
    (void)snprintf(params, sizeof params, "[\"%s\"]", region);
    json_decref(sw_control_ask(ctl, "demote", params));
    for (int ms = 0; !is_on_disk(ctl, region); ms += STEP_MS) {
        SW_ASSERT(ms < WAIT_MS);
        (void)nanosleep(&step, NULL);
    }
}

/* Keeps the client's output, and moves the regions that it names for the disk. */
static FILE *take_what_is_said(struct client *client) {
    struct sw_ctl *ctl = sw_control_connect(&supervisor.daemon);
    FILE *said = tmpfile();
    char line[256], place[8];
    unsigned slot, generation;
    SW_ASSERT(said);
    while (fgets(line, sizeof line, client->out)) {
        (void)fputs(line, said);
        (void)fputs(line, stdout);
        if (sscanf(line, "%u %u %7s", &slot, &generation, place) == 3 && strcmp(place, "disk") == 0)
            move_to_disk(ctl, slot, generation);
        if (strncmp(line, "seq ", 4) == 0)
            break;
    }
    sw_ctl_close(ctl);
    (void)fflush(said);
    return said;
}

static void save_folder(FILE *to) {
    char path[SW_TEST_PATH_BYTES + 280];
    DIR *dir = opendir(nvme_folder);
    SW_ASSERT(dir);
    for (const struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "%s/%s", nvme_folder, entry->d_name);
        const int fd = open(path, O_RDONLY | O_CLOEXEC);
        SW_ASSERT(fd >= 0);
        save(to, "file", entry->d_name, fd);
        (void)close(fd);
    }
    (void)closedir(dir);
}

/* Sockets and pipes that the manager keeps are not for another machine. */
static void write_state(const char *directory, const char *version, const struct kind *kind) {
    char command[512];
    struct stat status;
    prepare_service(kind);
    SW_ASSERT(sw_supervisor_spawn(&supervisor));
    struct client client = begin_client(SW_GOLDEN_CLIENT_PATH, "leave");
    FILE *said = take_what_is_said(&client);
    SW_ASSERT(sw_supervisor_stop(&supervisor, SIGTERM) == 0);
    (void)snprintf(command, sizeof command, "gzip -9nc >'%s/v%s%s.state.gz'", directory, version, kind->suffix);
    FILE *to = popen(command, "we");
    SW_ASSERT(to);
    for (unsigned i = 0; i < supervisor.n_stored; i++)
        if (fstat(supervisor.stored[i].fd, &status) == 0 && S_ISREG(status.st_mode))
            save(to, "fd", supervisor.stored[i].name, supervisor.stored[i].fd);
    save_folder(to);
    save(to, "said", "-", fileno(said));
    SW_ASSERT(pclose(to) == 0);
    (void)fclose(said);
    end_client(&client);
    sw_supervisor_end(&supervisor);
    sw_test_remove(folder);
}

static const char *version_to_write, *write_to;

START_TEST(states_are_written) {
    write_state(write_to, version_to_write, &kinds[_i]);
}
END_TEST

int main(int argc, char **argv) {
    Suite *suite = suite_create("left");
    TCase *tcase = tcase_create("left");
    sw_test_slow(tcase, 30);
    if (argc == 4 && strcmp(argv[1], "--write") == 0) {
        version_to_write = argv[2];
        write_to = argv[3];
        tcase_add_loop_test(tcase, states_are_written, 0, N_KINDS);
    } else {
        tcase_add_loop_test(tcase, regions_are_restored, 0, N_VERSIONS * N_KINDS);
        tcase_add_loop_test(tcase, a_client_goes_on_over_a_restart, 0, N_VERSIONS + 1);
    }
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
