/* The command swcodec as a user meets it: files, pipes, exit codes, messages. Each test has a folder of its own. */
#include "codec/codec.h"
#include "tests/lib/content.h"
#include "tests/lib/run.h"
#include "tests/lib/scratch.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[SW_TEST_PATH_BYTES];

static void enter_folder(void) {
    sw_test_folder(folder);
    ck_assert_int_eq(chdir(folder), 0);
    ck_assert_int_eq(setenv("SWCODEC", SW_SWCODEC_PATH, 1), 0);
}

static void leave_folder(void) {
    char command[100];
    ck_assert_int_eq(chdir("/"), 0);
    (void)snprintf(command, sizeof command, "rm -rf %s", folder);
    ck_assert_int_eq(system(command), 0);
}

/* Exit status of a shell command; its standard error goes to the file "err". */
static int run(const char *command) {
    char line[1000];
    (void)snprintf(line, sizeof line, "exec 2>err; set -o pipefail; %s", command);
    pid_t pid = fork();
    if (pid == 0) {
        execlp("bash", "bash", "-c", line, (char *)NULL);
        _exit(126);
    }
    int status;
    ck_assert(pid > 0 && waitpid(pid, &status, 0) == pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

static void expect(int status, const char *command) {
    int got = run(command);
    ck_assert_msg(got == status, "%s: exit status %d", command, got);
}

static void expect_message(const char *text) {
    char message[1000] = "";
    FILE *file = fopen("err", "r");
    ck_assert_ptr_nonnull(file);
    size_t n = fread(message, 1, sizeof message - 1, file);
    fclose(file);
    message[n] = '\0';
    ck_assert_msg(strstr(message, text) != NULL, "message is '%s', not '%s'", message, text);
}

static void write_file(const char *name, const void *data, size_t bytes) {
    FILE *file = fopen(name, "wb");
    ck_assert_ptr_nonnull(file);
    ck_assert_uint_eq(fwrite(data, 1, bytes, file), bytes);
    ck_assert_int_eq(fclose(file), 0);
}

static void make_file(const char *name, enum sw_content kind, size_t bytes) {
    uint8_t *data = malloc(bytes + 1);
    ck_assert_ptr_nonnull(data);
    sw_content_fill(data, bytes, kind, bytes);
    write_file(name, data, bytes);
    free(data);
}

static size_t file_bytes(const char *name) {
    struct stat st;
    ck_assert_msg(stat(name, &st) == 0, "%s is missing", name);
    return (size_t)st.st_size;
}

START_TEST(test_round_trips) {
    static const size_t sizes[] = {0, 1, 1000, 1 << 20, (1 << 20) + 1, (5 << 20) + 12345};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        make_file("in", i % 2 ? SW_CONTENT_MIXED : SW_CONTENT_TEXT, sizes[i]);
        expect(0, "$SWCODEC encode -f -c 1 -T 3 in stored && $SWCODEC decode -f stored out && cmp in out");
        expect(0, "cat in | $SWCODEC encode -c 1 - - | tee piped | $SWCODEC decode - - | cmp - in && cmp piped stored");
        expect(0, "$SWCODEC encode -T 1 - - < in | $SWCODEC decode -T 1 - /dev/stdout | cmp - in");
    }
    ck_assert_uint_lt(file_bytes("stored"), file_bytes("in"));
}
END_TEST

/* Lines of a few words from a large vocabulary, which v5t's 255 symbols cannot hold. */
static void make_lines(const char *name, size_t bytes) {
    enum { WORDS = 2000, WORD_BYTES = 8 };
    char *data = malloc(bytes), words[WORDS][WORD_BYTES];
    uint64_t state = 1;
    ck_assert_ptr_nonnull(data);
    for (size_t i = 0; i < sizeof words; i++)
        words[i / WORD_BYTES][i % WORD_BYTES] = (char)(i % WORD_BYTES ? 'a' + (int)(sw_random(&state) % 26) : ' ');
    for (size_t i = 0; i < bytes; i += WORD_BYTES)
        memcpy(data + i, words[sw_random(&state) % WORDS], bytes - i < WORD_BYTES ? bytes - i : WORD_BYTES);
    write_file(name, data, bytes);
    free(data);
}

START_TEST(test_dense) {
    make_lines("in", (3 << 20) + 77);
    expect(0, "$SWCODEC encode -c 1 in plain && $SWCODEC encode --dense -c 1 in stored");
    expect(0, "$SWCODEC decode stored out && cmp in out");
    ck_assert_uint_lt(file_bytes("stored"), file_bytes("plain") / 2);
    expect(0, "$SWCODEC probe -d in | grep -q 'codec *onpair'");
    make_file("short", SW_CONTENT_TEXT, 3000); /* too short for a dictionary */
    expect(0, "$SWCODEC encode short plain -f && $SWCODEC encode -d short stored -f && cmp plain stored");
    expect(0, "$SWCODEC encode -ft u8 in plain && $SWCODEC encode -dft u8 in stored && cmp plain stored");
}
END_TEST

START_TEST(test_existing_output) {
    make_file("in", SW_CONTENT_TEXT, 100000);
    write_file("out", "keep me", 7);
    expect(1, "$SWCODEC encode in out");
    expect_message("swcodec: out: already exists");
    ck_assert_uint_eq(file_bytes("out"), 7);
    expect(0, "chmod 640 in; $SWCODEC encode --force in out && $SWCODEC decode out back && cmp in back");
    expect(0, "test $(stat -c %a out) = 640");
    expect(0, "test $(ls | wc -l) = 4"); /* in, out, back, err: no temporary file stays */
}
END_TEST

/* An output has the rights of its input's file, or those that any new file has. */
START_TEST(test_rights_of_outputs) {
    expect(0, "umask 027; echo text | $SWCODEC encode - out && test $(stat -c %a out) = 640");
    expect(0, "umask 077; $SWCODEC decode out back && test $(stat -c %a back) = 640");
}
END_TEST

/* A stream is no text: it goes to a terminal only by force. */
START_TEST(test_terminal) {
    char command[200];
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    ck_assert(terminal >= 0 && grantpt(terminal) == 0 && unlockpt(terminal) == 0);
    make_file("in", SW_CONTENT_TEXT, 100);
    (void)snprintf(command, sizeof command, "$SWCODEC encode in %s", ptsname(terminal));
    expect(1, command);
    expect_message("is a terminal; use --force");
    (void)snprintf(command, sizeof command, "$SWCODEC encode in stored && $SWCODEC encode --force in %s",
                   ptsname(terminal));
    expect(0, command);
    (void)snprintf(command, sizeof command, "$SWCODEC decode stored %s", ptsname(terminal));
    expect(0, command);
    close(terminal);
}
END_TEST

/* Another process has made the pipe's end non-blocking, and the reader is slow. */
START_TEST(test_pipe_that_does_not_block) {
    int ends[2];
    make_file("in", SW_CONTENT_RANDOM, 1 << 20);
    ck_assert(pipe(ends) == 0 && fcntl(ends[1], F_SETFL, O_WRONLY | O_NONBLOCK) == 0);
    ck_assert(dup2(ends[0], 60) == 60 && dup2(ends[1], 61) == 61);
    close(ends[0]), close(ends[1]);
    expect(0, "$SWCODEC encode in stored; (sleep 0.1; head -c $(stat -c %s stored) <&60 >piped) &"
              "$SWCODEC encode in - >&61 && wait $! && cmp stored piped");
    close(60), close(61);
}
END_TEST

/* The output's temporary file is there when the input comes, and then another program makes the output. */
START_TEST(test_output_that_appears_meanwhile) {
    expect(1, "{ until ls out.* >/dev/null 2>&1; do sleep 0.01; done; printf mine >out; echo text; } |"
              " timeout 30 $SWCODEC encode - out");
    expect_message("swcodec: out: File exists");
    expect(0, "test $(cat out) = mine && test $(ls | wc -l) = 2"); /* out, err */
}
END_TEST

START_TEST(test_cut_stream) {
    enum { END_BYTES = 128 };
    make_file("in", SW_CONTENT_TEXT, (3 << 20) + 5);
    expect(0, "$SWCODEC encode -c 1 in stored");
    size_t bytes = file_bytes("stored");
    static const size_t ends[] = {0, 10, 63, 64, 100, 2000, 100000};
    char command[200];
    for (size_t i = 0; i < sizeof ends / sizeof ends[0]; i++) {
        (void)snprintf(command, sizeof command, "head -c %zu stored | $SWCODEC decode - out", ends[i]);
        expect(1, command);
        expect_message("swcodec: standard input: stream is cut");
    }
    /* The file is cut at a frame's border: only the end frame is missing. */
    (void)snprintf(command, sizeof command, "head -c %zu stored > cut; $SWCODEC decode cut out", bytes - END_BYTES);
    expect(1, command);
    expect_message("swcodec: cut: stream is cut before its end");
    /* The end frame is a frame as any other. */
    (void)snprintf(command, sizeof command, "tail -c %d stored | $SWCODEC decode - - | cmp - /dev/null", END_BYTES);
    expect(0, command);
    (void)snprintf(command, sizeof command, "head -c %zu stored > cut; $SWCODEC decode cut out", bytes - 1);
    expect(1, command);
    expect_message("swcodec: cut: stream is cut in a frame");
    expect(0, "test $(ls | wc -l) = 4"); /* in, stored, cut, err: no output, whole or part */
    expect(1, "cat stored stored | $SWCODEC decode - out");
    expect_message("bytes after the end of the stream");
}
END_TEST

/* What a header claims is not allocated beyond a stream's limits. */
START_TEST(test_chunks_beyond_the_limit) {
    static const struct {
        enum sw_codec_id codec;
        uint64_t raw_bytes, frame_bytes;
    } claims[] = {{SW_CODEC_RAW, ((uint64_t)256 << 20) + 1, 0}, {SW_CODEC_FOR, 1000, (uint64_t)1 << 20}};
    for (size_t i = 0; i < sizeof claims / sizeof claims[0]; i++) {
        struct sw_frame_layout layout;
        struct sw_frame_header header;
        sw_frame_layout_init(&layout, claims[i].codec, 10, claims[i].raw_bytes, 0);
        layout.frame_bytes = claims[i].frame_bytes ? claims[i].frame_bytes : layout.frame_bytes;
        layout.value_type = claims[i].codec == SW_CODEC_FOR ? SW_VALUE_U32 : SW_VALUE_NONE;
        sw_frame_header_init(&header, &layout, NULL);
        write_file("bad", &header, sizeof header);
        expect(1, "$SWCODEC decode bad out");
        expect_message("exceeds the limit of streams");
    }
}
END_TEST

START_TEST(test_damaged_stream) {
    make_file("in", SW_CONTENT_TEXT, (3 << 20) + 5);
    expect(0, "$SWCODEC encode -c 1 in stored");
    for (unsigned i = 0; i < 20; i++) {
        char command[300];
        size_t at = i < 5 ? i * 13 : file_bytes("stored") * i / 20;
        (void)snprintf(command, sizeof command, /* more bytes than any padding has */
                       "cp stored bad; printf 'twenty-four other bytes.' | "
                       "dd of=bad bs=1 seek=%zu conv=notrunc status=none && cmp -s bad stored",
                       at);
        expect(1, command);
        expect(1, "$SWCODEC decode bad out");
        expect_message("swcodec: bad: ");
        expect(1, "$SWCODEC decode bad - > part");
        expect(0, "cmp -n $(stat -c %s part) part in"); /* the bytes that did come out are right */
    }
    expect(1, "$SWCODEC decode in out");
    expect_message("swcodec: in: not a stream of frames");
    expect(0, "test ! -e out");
}
END_TEST

START_TEST(test_failed_files) {
    make_file("in", SW_CONTENT_TEXT, 300000);
    expect(1, "$SWCODEC encode missing out");
    expect_message("swcodec: missing: No such file or directory");
    expect(1, "$SWCODEC encode in missing/out");
    expect_message("swcodec: missing/out: No such file or directory");
    expect(1, "$SWCODEC encode . out");
    expect_message("swcodec: .: Is a directory");
    expect(1, "$SWCODEC encode in /dev/full");
    expect_message("swcodec: /dev/full: No space left on device");
    expect(1, "$SWCODEC encode in - > /dev/full");
    expect_message("swcodec: standard output: No space left on device");
    expect(1, "$SWCODEC probe in > /dev/full");
    expect_message("swcodec: standard output: No space left on device");
    expect(1, "$SWCODEC probe missing");
    expect(0, "test ! -e out");
    /* An input that stays open does not keep a failed output waiting. */
    expect(
        1,
        "mkfifo pipe; exec 9<>pipe; cat in in in in in in in >&9 & timeout 10 $SWCODEC encode -c 1 - /dev/full < pipe;"
        "status=$?; kill $!; exit $status");
    expect_message("No space left on device");
}
END_TEST

START_TEST(test_signals) {
    make_file("in", SW_CONTENT_RANDOM, 8 << 20);
    expect(141, "$SWCODEC encode in - | head -c 10 > /dev/null"); /* SIGPIPE, as any filter */
    expect(143, "mkfifo pipe; exec 9<>pipe; $SWCODEC encode - out < pipe & until ls | grep -q out; do sleep 0.01; done;"
                "kill $!; wait $!");
    expect(0, "test \"$(ls | xargs)\" = 'err in pipe'"); /* neither the output nor a temporary file */
}
END_TEST

START_TEST(test_an_ignored_signal_stays_ignored) {
    expect(0, "trap '' HUP; mkfifo pipe; exec 9<>pipe; $SWCODEC encode - out <pipe 9>&- &"
              "until ls | grep -q out; do sleep 0.01; done; kill -HUP $!; echo text >&9; exec 9>&-; wait $!");
    expect(0, "test \"$($SWCODEC decode out -)\" = text");
}
END_TEST

START_TEST(test_probe) {
    make_file("in", SW_CONTENT_TEXT, 1 << 20);
    expect(0, "$SWCODEC probe --link-gbps 10 in > report");
    expect(0, "grep -Eq '^ratio +1[0-3][.][0-9]+$' report && grep -Eq '^codec +phrase$' report");
    expect(0, "awk '/^ratio/{r=$2} /^spill rate/{s=$3} END{d=s-10*r; exit !(d<0.01 && d>-0.01)}' report");
    expect(0, "grep -q '^encode rate' report");
    /* A codec alone has about the ratio that it has in a stream. */
    expect(0, "awk '/^ratio/{r=$2} $1==\"phrase\"{d=$2/r} END{exit !(d<1.2 && d>0.8)}' report");
    make_lines("lines", 3 << 20);
    expect(0, "$SWCODEC probe --link-gbps 10 lines > report");
    /* The usual codec and the denser one, whose ratio is higher; over the link: the ratio times its rate. */
    expect(0, "awk '$1==\"v5t\"{v=$2} $1==\"onpair\"{o=$2; d=$5-10*$2} END{exit !(v>1 && o>v && d<1 && d>-1)}' report");
    expect(0, "awk '$1==\"raw\"{exit !($2<1.01 && $6<=450)}' report");
    /* And none is faster than its encoder. */
    expect(0, "seq 100000 | $SWCODEC probe -t u8 - | awk '$1==\"lz\"{found=$6} END{exit !(found==258)}'");
    expect(0, "head -c 1000000 /dev/urandom | $SWCODEC probe - > report; grep -Eq '^codec +raw$' report");
    expect(0, "test \"$(grep '^  [a-z]' report | awk '{print $1}' | xargs)\" = 'per codec raw'");
    /* Without bytes no codec has a ratio. */
    expect(0, "$SWCODEC probe /dev/null > report");
    expect(0, "grep -Eq '^bytes +0$' report && ! grep -q '^each codec' report");
}
END_TEST

/* Any bytes are numbers; digits are numbers of four bits. */
START_TEST(test_numbers) {
    expect(0, "seq 12345678 12445677 | tr -d '\\n' > in");
    expect(0, "for type in u8 u16 u32 u64 i8 i16 i32 i64; do $SWCODEC encode -f --type $type in packed &&"
              "$SWCODEC decode -f packed out && cmp in out || exit; done");
    expect(0, "$SWCODEC probe -t u8 in | grep -Eq '^codec +for$'");
    expect(0, "$SWCODEC probe -t u8 in | grep -Eq '^chunks +1 for, 0 raw$'");
    expect(0, "printf abc | $SWCODEC encode -t i64 - - | $SWCODEC decode - - | grep -q '^abc$'");
    expect(2, "$SWCODEC encode --type u24 in out");
    expect(2, "$SWCODEC encode --type none in out");
}
END_TEST

/* A column longer than 32 bits can say, most of it a hole in its file: numbers at both ends, and on either side of that
 * place. */
START_TEST(test_more_than_4_gib) {
    make_file("numbers", SW_CONTENT_MIXED, 1 << 20);
    expect(0, "for mib in 0 4095 4096 4130; do dd if=numbers of=in bs=1M seek=$mib conv=notrunc status=none; done");
    expect(0, "printf tail >>in; $SWCODEC encode -q -t i64 in stored && $SWCODEC decode -q stored - | cmp - in");
    ck_assert_uint_eq(file_bytes("in"), ((size_t)4131 << 20) + 4);
    ck_assert_uint_lt(file_bytes("stored"), (size_t)64 << 20);
}
END_TEST

/* Output must not get the number of a closed stream: the data has a descriptor of its own. */
START_TEST(test_closed_streams) {
    make_file("in", SW_CONTENT_TEXT, 1 << 20);
    expect(1, "$SWCODEC encode in - >&-");
    expect_message("Bad file descriptor");
    expect(0, "mkfifo wait; $SWCODEC encode wait out <&- >&- 2>&- & exec 3>wait; sleep 0.3; "
              "for i in 0 1 2; do [ $(readlink /proc/$!/fd/$i) = /dev/null ] || exit 1; done; "
              "cat in >&3; exec 3>&-; wait $! && $SWCODEC decode out - | cmp - in");
}
END_TEST

START_TEST(test_usage) {
    static const char *const wrong[] = {
        "$SWCODEC",
        "$SWCODEC recode in out",
        "$SWCODEC encode in",
        "$SWCODEC encode in out more",
        "$SWCODEC probe",
        "$SWCODEC encode -T 0 in out",
        "$SWCODEC encode -T -1 in out",
        "$SWCODEC encode -T 3x in out",
        "$SWCODEC encode -c 257 in out",
        "$SWCODEC encode -T 257 in out",
        "$SWCODEC probe --link-gbps 0 in",
        "$SWCODEC probe --link-gbps nan in",
        "$SWCODEC probe --link-gbps inf in",
        "$SWCODEC encode --what in out",
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        expect(2, wrong[i]);
        expect_message("--help");
    }
    expect(0, "$SWCODEC --help | grep -q '^usage: swcodec'");
    expect(0, "$SWCODEC --version | grep -Eq '^swcodec [0-9]+[.][0-9]+'");
}
END_TEST

int main(void) {
    Suite *suite = suite_create("swcodec");
    TCase *tests = tcase_create("all");
    sw_test_slow(tests, 120);
    tcase_add_checked_fixture(tests, enter_folder, leave_folder);
    tcase_add_test(tests, test_round_trips);
    tcase_add_test(tests, test_dense);
    tcase_add_test(tests, test_existing_output);
    tcase_add_test(tests, test_output_that_appears_meanwhile);
    tcase_add_test(tests, test_rights_of_outputs);
    tcase_add_test(tests, test_terminal);
    tcase_add_test(tests, test_pipe_that_does_not_block);
    tcase_add_test(tests, test_cut_stream);
    tcase_add_test(tests, test_chunks_beyond_the_limit);
    tcase_add_test(tests, test_damaged_stream);
    tcase_add_test(tests, test_failed_files);
    tcase_add_test(tests, test_signals);
    tcase_add_test(tests, test_an_ignored_signal_stays_ignored);
    tcase_add_test(tests, test_probe);
    tcase_add_test(tests, test_numbers);
    if (SW_TEST_SLOWER == 1) /* half a minute with a sanitizer */
        tcase_add_test(tests, test_more_than_4_gib);
    tcase_add_test(tests, test_closed_streams);
    tcase_add_test(tests, test_usage);
    suite_add_tcase(suite, tests);
    return sw_test_run(suite, CK_FORK);
}
