/* The codec in an engine's process (ipc/client/coder.h) on a GPU that is none (tests/lib/fake_cuda): how it treats the
 * engine's context, and what it does when the context is gone. The test is the engine and the service. */
#include "ipc/client/coder.h"
#include "base/alloc.h"
#include "base/assert.h"
#include "base/clock.h"
#include "ipc/client/coder_memory.h"
#include "spill/mover/heap_places.h"
#include "tests/lib/content.h"
#include "tests/lib/fake_cuda/coder.h"
#include "tests/lib/fake_cuda/fake_cuda.h"
#include "tests/lib/run.h"
#include "tests/lib/tpch_text.h"

#include <check.h>
#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHUNK = 256 << 10, BYTES = 5 * CHUNK + 777, MOST_CHUNKS = 8 };

static struct sw_coder *coder;
static struct sw_coder_user user;
static struct sw_coder_place place;
static uint8_t *data; /* [BYTES] on the GPU */
static uint8_t *original;
static enum sw_prefer prefer;
static atomic_bool holds_back; /* only the test's thread takes events */
/* The frames that the service has stored. */
static uint8_t *stored[MOST_CHUNKS];
static struct sw_frame_layout layouts[MOST_CHUNKS];

static void wake(struct sw_coder_user *u) {
    (void)u;
}

/* ---- the service ------------------------------------------------------------------------------------------------- */

static void carry_out(struct sw_coder_event *event) {
    uint64_t bytes;
    int fd;
    uint8_t *frames = sw_coder_frames(coder, &bytes, &fd);
    for (unsigned i = 0; i < event->n; i++) {
        const size_t chunk = event->chunk + i;
        if (event->kind == SW_CODER_SEND) {
            layouts[chunk] = event->run->run.frames->layouts[chunk];
            free(stored[chunk]);
            stored[chunk] = malloc(event->bytes[i]);
            memcpy(stored[chunk], frames + event->at[i], event->bytes[i]);
        } else {
            ck_assert_uint_le(layouts[chunk].frame_bytes, event->bytes[i]);
            memcpy(frames + event->at[i], stored[chunk], layouts[chunk].frame_bytes);
            event->run->run.frames->layouts[chunk] = layouts[chunk];
        }
    }
    sw_coder_event_done(coder, event, NULL);
}

static void take_events(struct sw_coder_user *u) {
    for (struct sw_coder_event *event; (event = sw_coder_next_event(coder, u));)
        carry_out(event);
}

/* The service's part, on the coder's thread. */
static void serve(struct sw_coder_user *u) {
    if (!atomic_load(&holds_back))
        take_events(u);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void add_part_of(struct sw_coder_user *u, struct sw_coder_run *run, enum sw_operation operation, uint64_t bytes,
                        uint64_t session) {
    memset(run, 0, sizeof *run);
    run->user = u;
    run->request = (struct sw_request){.operation = operation, .session = session};
    run->buffer.chunk_bytes = operation == SW_OP_SPILL ? CHUNK : 0;
    if (operation == SW_OP_RESTORE)
        run->run.frames = sw_frames_new(bytes, CHUNK, false);
    run->owner = run;
    run->prefer = prefer;
    run->memory.data = data;
    run->buffer.bytes = bytes;
    sw_coder_add(coder, &run, 1);
}

static void add_part(struct sw_coder_run *run, enum sw_operation operation, uint64_t bytes, uint64_t session) {
    add_part_of(&user, run, operation, bytes, session);
}

static void add(struct sw_coder_run *run, enum sw_operation operation) {
    add_part(run, operation, BYTES, 1);
}

static bool is_over(const struct sw_coder_run *run) {
    return atomic_load_explicit(&run->is_over, memory_order_acquire);
}

static int finish(struct sw_coder_run *run) {
    while (!is_over(run)) {
        (void)sw_coder_step(coder);
        take_events(&user);
        (void)sched_yield();
    }
    const int code = run->run.outcome.err.code;
    sw_coder_run_fini(run);
    return code;
}

static int spill(void) {
    struct sw_coder_run run;
    add(&run, SW_OP_SPILL);
    return finish(&run);
}

static int restore(void) {
    struct sw_coder_run run;
    memset(data, 0, BYTES);
    add(&run, SW_OP_RESTORE);
    return finish(&run);
}

static void there_and_back(void) {
    memcpy(data, original, BYTES);
    ck_assert_int_eq(spill(), 0);
    ck_assert_int_eq(restore(), 0);
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
}

/* Packs the data, or unpacks them by these frames, which stay the caller's. */
static int in_place(enum sw_operation operation, struct sw_frames **frames) {
    struct sw_coder_run run = {.user = &user,
                               .request = {.operation = operation, .session = 1},
                               .memory.data = data,
                               .buffer.bytes = BYTES,
                               .run.frames = *frames};
    struct sw_coder_run *runs[] = {&run};
    sw_coder_add(coder, runs, 1);
    while (!is_over(&run))
        (void)sw_coder_step(coder);
    *frames = run.run.frames;
    run.run.frames = NULL;
    return run.run.outcome.err.code;
}

static void pack_and_unpack(void) {
    struct sw_frames *frames = NULL;
    memcpy(data, original, BYTES);
    ck_assert_int_eq(in_place(SW_OP_PACK, &frames), 0);
    const uint64_t used = sw_frames_packed_bytes(frames);
    memset(data + used, 0xDB, BYTES - used);
    ck_assert_int_eq(in_place(SW_OP_UNPACK, &frames), 0);
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    sw_heap_free_frames(frames);
}

static void open_coder(void) {
    coder = sw_fake_coder_get(&place);
    user = (struct sw_coder_user){.wake = wake, .serve = serve};
    sw_list_init(&user.node);
    sw_list_init(&user.events);
    sw_coder_add_user(coder, &user);
    /* On a busy machine the fake's kernels begin late. A test of runs that are given up ends this patience. */
    sw_coder_be_patient(coder, true);
}

static void close_coder(void) {
    sw_coder_be_patient(coder, false);
    sw_coder_remove_user(coder, &user);
    sw_coder_put(coder);
}

static void setup(void) {
    place = (struct sw_coder_place){.context = sw_fake_context()};
    data = sw_fake_memory_new(BYTES);
    original = malloc(BYTES);
    sw_content_fill(original, BYTES, SW_CONTENT_TEXT, 7);
}

static void teardown(void) {
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->violations), 0);
    for (unsigned i = 0; i < MOST_CHUNKS; i++)
        free(stored[i]);
    free(original);
}

/* ---- what is held, and called ------------------------------------------------------------------------------------ */

/* Without the page that a process registers for good. */
static int held(void) {
    int n = 0;
    for (int thing = 0; thing < SW_FAKE_THING_NR; thing++)
        n += atomic_load(&sw_fake_cuda->held[thing]);
    return n - (atomic_load(&sw_fake_cuda->held[SW_FAKE_REGISTERED]) > 0);
}

/* Calls but that which asks whether the context is there. */
static int calls(void) {
    int n = 0;
    for (int call = 0; call < SW_FAKE_CALL_NR; call++)
        if (call != SW_FAKE_cuCtxGetId)
            n += atomic_load(&sw_fake_cuda->calls[call]);
    return n;
}

/* The number of threads of coders; ret: the status file of the last one. */
static unsigned count_threads(char *ret, size_t bytes) {
    unsigned n = 0;
    DIR *tasks = opendir("/proc/self/task");
    for (const struct dirent *task; (task = readdir(tasks));) {
        char path[300], status[4096] = "";
        (void)snprintf(path, sizeof path, "/proc/self/task/%s/status", task->d_name);
        FILE *file = task->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file)
            continue;
        status[fread(status, 1, sizeof status - 1, file)] = 0;
        (void)fclose(file);
        if (strncmp(status, "Name:\tspillway-coder\n", 21) != 0)
            continue;
        n++;
        (void)snprintf(ret, bytes, "%s", status);
    }
    (void)closedir(tasks);
    return n;
}

static uint64_t hex_of(const char *status, const char *field) {
    const char *at = strstr(status, field);
    ck_assert_ptr_nonnull(at);
    return strtoull(at + strlen(field), NULL, 16);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

START_TEST(a_guest_leaves_the_callers_context_as_it_was) {
    const int before = held();
    open_coder();
    ck_assert_ptr_null(sw_fake_current());
    there_and_back();
    ck_assert_ptr_null(sw_fake_current());
    close_coder();
    ck_assert_ptr_null(sw_fake_current());
    ck_assert_int_eq(held(), before);
    ck_assert_int_eq(sw_fake_retained(), 0);
}
END_TEST

/* In a slot's frame buffer; each slot that encodes gets a copy of its own. */
START_TEST(a_guest_learns_a_dictionary) {
    enum { TEXT_BYTES = MOST_CHUNKS * CHUNK };
    atomic_int *n_learned = &sw_fake_cuda->calls[SW_FAKE_sw_gpu_learn_async];
    uint8_t *text = malloc(TEXT_BYTES), *const usual = data;
    struct sw_coder_run run;
    const int before = held();
    open_coder();
    const int n_before = atomic_load(n_learned); /* the self-test's */
    data = sw_fake_memory_new(TEXT_BYTES);
    sw_tpch_text_fill(text, 0, TEXT_BYTES, 1);
    memcpy(data, text, TEXT_BYTES);
    prefer = SW_PREFER_ROOM;
    for (int round = 0; round < 2; round++) {
        add_part(&run, SW_OP_SPILL, TEXT_BYTES, 1);
        ck_assert_int_eq(finish(&run), 0);
        ck_assert_int_eq(atomic_load(n_learned), n_before + 1); /* the second round's plan is kept */
        for (unsigned i = 0; i < MOST_CHUNKS; i++)
            ck_assert_int_eq(layouts[i].codec, SW_CODEC_ONPAIR);
        memset(data, 0, TEXT_BYTES);
        add_part(&run, SW_OP_RESTORE, TEXT_BYTES, 1);
        ck_assert_int_eq(finish(&run), 0);
        ck_assert_int_eq(memcmp(data, text, TEXT_BYTES), 0);
    }
    sw_fake_memory_free(data);
    data = usual;
    close_coder();
    ck_assert_int_eq(held(), before);
    free(text);
}
END_TEST

/* Connections of a process share one coder, with its memory and its thread; the last one ends it. */
START_TEST(users_share_one_coder) {
    char status[4096];
    const int before = held();
    open_coder();
    const int with_one = held();
    struct sw_coder *same = sw_fake_coder_get(&place);
    ck_assert_ptr_eq(same, coder);
    ck_assert_int_eq(held(), with_one);
    ck_assert_uint_eq(count_threads(status, sizeof status), 1);
    there_and_back();
    sw_coder_put(same);
    ck_assert_uint_eq(count_threads(status, sizeof status), 1);
    there_and_back();
    close_coder();
    ck_assert_uint_eq(count_threads(status, sizeof status), 0);
    ck_assert_int_eq(held(), before);
}
END_TEST

/* A user that counts what the coder does with it; `socket` is what its call sleeps on. */
struct counted {
    struct sw_coder_user user;
    atomic_int served, woken;
    int socket;
};

static struct counted *counted_of(struct sw_coder_user *u) {
    return SW_CONTAINER_OF(u, struct counted, user);
}

static void count_served(struct sw_coder_user *u) {
    atomic_fetch_add(&counted_of(u)->served, 1);
}

static void count_woken(struct sw_coder_user *u) {
    atomic_fetch_add(&counted_of(u)->woken, 1);
}

static int counted_socket(struct sw_coder_user *u) {
    return counted_of(u)->socket;
}

static void counted_init(struct counted *ret) {
    *ret =
        (struct counted){.user = {.wake = count_woken, .serve = count_served, .socket = counted_socket}, .socket = -1};
    sw_list_init(&ret->user.node);
    sw_list_init(&ret->user.events);
}

START_TEST(few_callers_attend) {
    open_coder();
    for (int round = 0; round < 3; round++) {
        ck_assert(sw_coder_attend_begin(coder));
        ck_assert(sw_coder_attend_begin(coder));
        ck_assert(!sw_coder_attend_begin(coder));
        sw_coder_attend_end(coder);
        sw_coder_attend_end(coder);
    }
    close_coder();
}
END_TEST

/* Whoever polls goes on with the others: those with news, and those whose service has sent something; now and then with
 * all that sleep. */
START_TEST(others_with_news_are_served) {
    struct counted others[2];
    int pipe_fds[2];
    open_coder();
    ck_assert_int_eq(pipe(pipe_fds), 0);
    for (int i = 0; i < 2; i++) {
        counted_init(&others[i]);
        sw_coder_add_user(coder, &others[i].user);
    }
    others[1].socket = pipe_fds[0];
    sw_coder_serve_others(coder, &user); /* the first look at all */
    ck_assert_int_eq(atomic_load(&others[0].served), 0);
    ck_assert_int_eq(atomic_load(&others[1].served), 1);
    atomic_store(&others[0].user.has_news, true);
    sw_coder_serve_others(coder, &others[1].user); /* which has its own thread */
    atomic_store(&others[0].user.has_news, false);
    ck_assert_int_eq(atomic_load(&others[0].served), 1);
    ck_assert_int_eq(atomic_load(&others[1].served), 1);
    ck_assert_int_eq(write(pipe_fds[1], "x", 1), 1);
    sw_coder_serve_others(coder, &user);
    ck_assert_int_eq(atomic_load(&others[0].served), 1);
    ck_assert_int_eq(atomic_load(&others[1].served), 2);
    for (int i = 0; i < 2; i++) {
        sw_coder_remove_user(coder, &others[i].user);
        (void)close(pipe_fds[i]);
    }
    close_coder();
}
END_TEST

/* The frame of a caller that sleeps is sent by one that polls. So it sleeps on; with nobody there it is woken. */
START_TEST(a_frame_wakes_its_caller_if_nobody_attends) {
    struct counted caller;
    open_coder();
    counted_init(&caller);
    for (int attends = 1; attends >= 0; attends--) {
        struct sw_coder_run run;
        struct sw_coder_event *event = NULL;
        atomic_store(&caller.woken, 0);
        atomic_store(&caller.user.has_news, false);
        memcpy(data, original, BYTES);
        if (attends)
            ck_assert(sw_coder_attend_begin(coder));
        add_part_of(&caller.user, &run, SW_OP_SPILL, CHUNK, 1);
        while (!(event = sw_coder_next_event(coder, &caller.user)))
            (void)sw_coder_step(coder);
        ck_assert(atomic_load(&caller.user.has_news));
        ck_assert_int_eq(atomic_load(&caller.woken), !attends);
        carry_out(event);
        ck_assert_int_eq(finish(&run), 0);
        if (attends)
            sw_coder_attend_end(coder);
    }
    close_coder();
}
END_TEST

/* Plans are made in the frame buffers of free slots. A frame that is with the service stays as it is. */
START_TEST(plans_are_made_beside_frames_that_are_away) {
    struct sw_coder_run run, other;
    struct sw_coder_event *event = NULL;
    uint64_t bytes;
    int fd;
    open_coder();
    memcpy(data, original, BYTES);
    atomic_store(&holds_back, true);
    add_part(&run, SW_OP_SPILL, CHUNK, 1);
    while (!event) {
        (void)sw_coder_step(coder);
        event = sw_coder_next_event(coder, &user);
    }
    const uint8_t *frame = (uint8_t *)sw_coder_frames(coder, &bytes, &fd) + event->at[0];
    uint8_t *before = malloc(event->bytes[0]);
    memcpy(before, frame, event->bytes[0]);
    for (uint64_t session = 2; session < 10; session++) { /* each needs a plan of its own */
        const int trained = atomic_load(&sw_fake_cuda->calls[SW_FAKE_sw_gpu_train_async]);
        add_part(&other, SW_OP_SPILL, CHUNK, session);
        ck_assert_int_eq(finish(&other), 0);
        ck_assert_int_gt(atomic_load(&sw_fake_cuda->calls[SW_FAKE_sw_gpu_train_async]), trained);
        ck_assert_int_eq(memcmp(before, frame, event->bytes[0]), 0);
    }
    free(before);
    carry_out(event);
    ck_assert_int_eq(finish(&run), 0);
    close_coder();
}
END_TEST

/* However the calling thread is bound, and whatever it blocks. */
START_TEST(the_thread_takes_no_signals_and_runs_on_any_cpu) {
    char status[4096];
    cpu_set_t all, one;
    ck_assert_int_eq(sched_getaffinity(0, sizeof all, &all), 0);
    CPU_ZERO(&one);
    for (unsigned cpu = 0; CPU_COUNT(&one) == 0; cpu++)
        if (CPU_ISSET(cpu, &all))
            CPU_SET(cpu, &one);
    ck_assert_int_eq(sched_setaffinity(0, sizeof one, &one), 0);
    open_coder();
    ck_assert_uint_eq(count_threads(status, sizeof status), 1);
    uint64_t cpus = 0;
    for (unsigned cpu = 0; cpu < 32; cpu++)
        cpus |= (uint64_t)(CPU_ISSET(cpu, &all) != 0) << cpu;
    const char *allowed = strstr(status, "Cpus_allowed:\t");
    ck_assert_ptr_nonnull(allowed);
    const char *lowest = strchr(allowed, '\n'); /* 32 CPUs, in hexadecimal, are before the line's end */
    while (lowest > allowed && lowest[-1] != ',' && lowest[-1] != '\t')
        lowest--;
    ck_assert_uint_eq(strtoull(lowest, NULL, 16), cpus);
    const uint64_t blocked = hex_of(status, "SigBlk:\t");
    for (int signal = 1; signal < 32; signal++)
        if (signal != SIGKILL && signal != SIGSTOP)
            ck_assert_msg(blocked >> (signal - 1) & 1, "signal %d", signal);
    close_coder();
}
END_TEST

/* The loop's index: another context has the handle, or none; and of a driver that knows no numbers none. */
static void destroy_context(int how) {
    sw_fake_context_destroy(how == 1);
}

START_TEST(a_context_that_is_gone_is_forgotten) {
    char status[4096];
    if (_i == 2)
        sw_fake_hide_context_ids();
    open_coder();
    there_and_back();
    const int before = held();
    destroy_context(_i);
    const int n = calls();
    close_coder();
    ck_assert_int_eq(calls(), n);
    ck_assert_int_eq(held(), before);
    ck_assert_uint_eq(count_threads(status, sizeof status), 0);
}
END_TEST

/* Runs that are under way fail: of the loop's index / 3 events are with the service. One whose last frame the service
 * has taken needs the context no more. */
START_TEST(runs_fail_when_the_context_goes) {
    struct sw_coder_run run;
    if (_i % 3 == 2)
        sw_fake_hide_context_ids();
    open_coder();
    memcpy(data, original, BYTES);
    atomic_store(&holds_back, true);
    add(&run, SW_OP_SPILL);
    struct sw_coder_event *event = NULL;
    while (_i >= 3 && !event) {
        (void)sw_coder_step(coder);
        event = sw_coder_next_event(coder, &user);
    }
    destroy_context(_i % 3);
    const int n = calls();
    if (event)
        sw_coder_event_done(coder, event, NULL);
    const int rc = finish(&run);
    ck_assert(rc == -SW_EGPULOST || (_i >= 3 && rc == 0));
    ck_assert_int_eq(spill(), -SW_EGPULOST);
    close_coder();
    ck_assert_int_eq(calls(), n);
}
END_TEST

/* An engine that resets its GPU does this. The new context gets a coder of its own, and the old context's coder is
 * gone. */
START_TEST(another_context_with_the_same_handle_has_its_own_coder) {
    open_coder();
    there_and_back();
    struct sw_coder *old = coder;
    struct sw_coder_user old_user = user;
    sw_coder_remove_user(old, &user);
    (void)old_user;
    destroy_context(1);
    open_coder();
    ck_assert_ptr_ne(coder, old);
    there_and_back();
    const int before = held();
    sw_coder_put(old);
    ck_assert_int_eq(held(), before);
    there_and_back();
    close_coder();
}
END_TEST

/* A service that hangs may still use a frame buffer: nothing goes through the coder any more. */
START_TEST(a_condemned_coder_passes_no_frame_on) {
    struct sw_coder_run run;
    open_coder();
    there_and_back();
    add(&run, SW_OP_SPILL);
    sw_coder_condemn(coder);
    const int code = finish(&run);
    ck_assert_msg(code == 0 || code == -SW_EIO, "%d", code); /* its last frames may have been on their way */
    ck_assert_int_eq(spill(), -SW_EIO);
    ck_assert_int_eq(restore(), -SW_EIO);
    struct sw_coder *other = sw_fake_coder_get(&place);
    ck_assert_ptr_ne(other, coder);
    sw_coder_put(other);
    pack_and_unpack(); /* without the service */
    close_coder();
}
END_TEST

/* Nor is a buffer used to which the service may still write, when a fetch was given up: it changes it all the time. */
START_TEST(a_condemned_coder_packs_in_other_buffers) {
    struct sw_coder_run run;
    struct sw_coder_event *event = NULL;
    uint64_t bytes;
    int fd;
    open_coder();
    there_and_back();
    atomic_store(&holds_back, true);
    add(&run, SW_OP_RESTORE);
    while (!event) {
        (void)sw_coder_step(coder);
        event = sw_coder_next_event(coder, &user);
    }
    uint8_t *const buffer = (uint8_t *)sw_coder_frames(coder, &bytes, &fd) + event->at[0];
    sw_coder_condemn(coder);
    sw_coder_cancel(coder, &run);
    while (!is_over(&run)) {
        sw_coder_drop_events(coder, &run);
        (void)sw_coder_step(coder);
    }
    sw_coder_run_fini(&run);
    memset(buffer, 0x77, CHUNK);
    for (int i = 0; i < 8; i++)
        pack_and_unpack();
    for (size_t i = 0; i < CHUNK; i++)
        ck_assert_int_eq(buffer[i], 0x77);
    close_coder();
}
END_TEST

/* A call that ends with its connection drops its events. Those of others go on. */
START_TEST(only_the_events_of_an_owner_are_dropped) {
    struct sw_coder_run ended, other;
    struct sw_coder_event *events[2] = {NULL};
    open_coder();
    memcpy(data, original, BYTES);
    atomic_store(&holds_back, true);
    add_part(&ended, SW_OP_SPILL, CHUNK, 1);
    add_part(&other, SW_OP_SPILL, CHUNK, 1);
    for (unsigned n = 0; n < 2;) {
        (void)sw_coder_step(coder);
        struct sw_coder_event *event = sw_coder_next_event(coder, &user);
        if (event)
            events[n++] = event;
    }
    while (!is_over(&ended)) {
        sw_coder_drop_events(coder, &ended);
        (void)sw_coder_step(coder);
    }
    ck_assert(!is_over(&other));
    ck_assert_int_eq(finish(&ended), -SW_ECANCELED);
    carry_out(events[0]->run == &other ? events[0] : events[1]);
    ck_assert_int_eq(finish(&other), 0);
    close_coder();
}
END_TEST

#ifndef __SANITIZE_THREAD__ /* it lets no child of a process with threads make some */
static int code_in_the_child(struct sw_coder *of_parent) {
    struct sw_coder *own = NULL;
    if (sw_coder_get(&own, &place, NULL) || own == of_parent)
        return 1;
    sw_coder_put(own);
    return 0;
}

/* The parent's has no thread in the child, and its frame buffers are the parent's. */
START_TEST(a_forked_child_has_a_coder_of_its_own) {
    int status = -1;
    place = (struct sw_coder_place){0}; /* the host's: a child cannot call CUDA */
    struct sw_coder *own = sw_fake_coder_get(&place);
    const pid_t child = fork();
    ck_assert_int_ge(child, 0);
    if (child == 0)
        _exit(code_in_the_child(own));
    ck_assert_int_eq(waitpid(child, &status, 0), child);
    ck_assert_int_eq(status, 0);
    sw_coder_put(own);
}
END_TEST
#endif

/* ---- what only polling shows ------------------------------------------------------------------------------------- */

static atomic_int n_woken;

static void count_wake(struct sw_coder_user *u) {
    (void)u;
    atomic_fetch_add(&n_woken, 1);
}

/* Although the mover has nothing to do, and no caller comes. */
START_TEST(the_thread_wakes_a_user_once_at_its_time) {
    open_coder();
    user.wake = count_wake;
    const uint64_t begun_us = sw_clock_us();
    sw_coder_wake_at(coder, &user, begun_us + 30000);
    sw_coder_wake_at(coder, &user, begun_us + 1);
    while (!atomic_load(&n_woken))
        (void)usleep(100);
    ck_assert_uint_ge(sw_clock_us() - begun_us, 30000);
    (void)usleep(20000);
    ck_assert_int_eq(atomic_load(&n_woken), 1);
    sw_coder_wake_at(coder, &user, sw_clock_us());
    while (atomic_load(&n_woken) < 2)
        (void)usleep(100);
    close_coder();
}
END_TEST

static atomic_bool is_being_served;

static void serve_slowly(struct sw_coder_user *u) {
    (void)u;
    atomic_store(&is_being_served, true);
    (void)usleep(50000);
    atomic_store(&is_being_served, false);
}

/* Then its memory is the caller's again. */
START_TEST(a_user_is_removed_when_it_is_not_being_served) {
    open_coder();
    user.serve = serve_slowly;
    sw_coder_wake_at(coder, &user, sw_clock_us());
    while (!atomic_load(&is_being_served))
        (void)usleep(100);
    sw_coder_remove_user(coder, &user);
    ck_assert(!atomic_load(&is_being_served));
    memset(&user, 0, sizeof user);
    sw_coder_put(coder);
}
END_TEST

/* ---- other kernels fill the GPU ---------------------------------------------------------------------------------- */

static void fill_gpu(bool is_full) {
    atomic_store(&sw_fake_cuda->is_full, is_full);
    if (!is_full) /* waits for all that is queued */
        sw_fake_memory_free(sw_fake_memory_new(1));
}

/* The run's call is the service's to do, and its memory is the caller's. Returns how long that took. */
static uint64_t ck_is_given_up(enum sw_operation operation) {
    struct sw_coder_run run;
    const uint64_t begun_us = sw_clock_us();
    memcpy(data, original, BYTES);
    sw_coder_be_patient(coder, false);
    add(&run, operation);
    ck_assert_int_eq(finish(&run), -SW_EGPU);
    sw_coder_be_patient(coder, true);
    const uint64_t took_us = sw_clock_us() - begun_us;
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    return took_us;
}

/* The loop's index: a spill, or a restore. Its kernels do nothing when they begin at last: not even look at memory that
 * is no longer there. */
START_TEST(a_run_whose_kernels_do_not_begin_is_given_up) {
    const enum sw_operation operation = _i ? SW_OP_RESTORE : SW_OP_SPILL;
    open_coder();
    there_and_back();
    for (int round = 0; round < 3; round++) {
        uint8_t *const kept = data;
        fill_gpu(true);
        const uint64_t took_us = ck_is_given_up(operation);
        ck_assert_uint_ge(took_us, 20000);
        ck_assert_uint_lt(took_us, 5000000);
        for (int again = 0; again < 4; again++)
            ck_assert_uint_lt(ck_is_given_up(SW_OP_SPILL), 5000000);
        memset(data, 0xA5, BYTES);
        if (round == 1) {
            data = sw_fake_memory_new(BYTES);
            ck_assert_ptr_nonnull(data);
        }
        fill_gpu(false);
        for (size_t i = 0; i < BYTES; i++)
            ck_assert_int_eq(kept[i], 0xA5);
        if (round == 1)
            sw_fake_memory_free(kept);
        there_and_back();
    }
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->stuck), 0);
    close_coder();
}
END_TEST

/* A coder is not made while that would wait for other kernels; nothing stays of the attempt. */
START_TEST(a_coder_is_not_made_on_a_full_gpu) {
    struct sw_err err = {0};
    place.context_id = sw_coder_context_id(place.context);
    const int before = held();
    fill_gpu(true);
    const uint64_t begun_us = sw_clock_us();
    ck_assert_int_eq(sw_coder_get(&coder, &place, &err), -SW_EBUSY);
    ck_assert_uint_ge(sw_clock_us() - begun_us, 20000);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->stuck), 0);
    fill_gpu(false);
    ck_assert_int_eq(held(), before);
    open_coder();
    there_and_back();
    close_coder();
}
END_TEST

/* Runs that only the coder can do wait, until the last call that has such runs is over. */
START_TEST(a_patient_run_waits_for_the_gpu) {
    struct sw_coder_run run;
    open_coder(); /* begins a call that is patient */
    memcpy(data, original, BYTES);
    fill_gpu(true);
    sw_coder_be_patient(coder, true);
    sw_coder_be_patient(coder, false);
    add(&run, SW_OP_SPILL);
    for (const uint64_t begun_us = sw_clock_us(); sw_clock_us() - begun_us < 60000;)
        (void)sw_coder_step(coder);
    ck_assert(!is_over(&run));
    fill_gpu(false);
    ck_assert_int_eq(finish(&run), 0);
    fill_gpu(true);
    (void)ck_is_given_up(SW_OP_SPILL);
    fill_gpu(false);
    ck_assert_int_eq(restore(), 0);
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    close_coder();
}
END_TEST

/* The loop's index: the content shrinks, or some frames begin in the heap. */
START_TEST(regions_are_packed_in_the_engine_s_context) {
    const int before = held();
    if (_i)
        sw_content_fill(original, BYTES, SW_CONTENT_RANDOM, 7);
    open_coder();
    for (int i = 0; i < 3; i++)
        pack_and_unpack();
    ck_assert_ptr_null(sw_fake_current());
    close_coder();
    ck_assert_int_eq(held(), before);
}
END_TEST

/* A pack that has written nothing yet is given up. An unpack waits: nothing else can do it. */
START_TEST(packs_and_unpacks_on_a_full_gpu) {
    struct sw_frames *frames = NULL;
    open_coder();
    there_and_back();
    fill_gpu(true);
    sw_coder_be_patient(coder, false);
    ck_assert_int_eq(in_place(SW_OP_PACK, &frames), -SW_EGPU);
    ck_assert_ptr_null(frames);
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    fill_gpu(false);
    while (in_place(SW_OP_PACK, &frames) == -SW_EGPU) /* until the kernels that were given up are gone */
        ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    fill_gpu(true);
    struct sw_coder_run run = {.user = &user,
                               .request = {.operation = SW_OP_UNPACK, .session = 1},
                               .memory.data = data,
                               .buffer.bytes = BYTES,
                               .run.frames = frames};
    struct sw_coder_run *runs[] = {&run};
    sw_coder_add(coder, runs, 1);
    for (const uint64_t begun_us = sw_clock_us(); sw_clock_us() - begun_us < 60000;)
        (void)sw_coder_step(coder);
    ck_assert(!is_over(&run));
    fill_gpu(false);
    ck_assert_int_eq(finish(&run), 0);
    sw_coder_be_patient(coder, true);
    ck_assert_int_eq(memcmp(data, original, BYTES), 0);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->stuck), 0);
    close_coder();
}
END_TEST

/* Freeing the coder's memory would wait for its kernels. The loop's index: who frees it then. */
START_TEST(closing_does_not_wait_for_a_full_gpu) {
    char status[4096];
    const int before = held();
    open_coder();
    struct sw_coder *first = coder;
    const int with_one = held();
    fill_gpu(true);
    (void)ck_is_given_up(SW_OP_SPILL);
    close_coder();
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->stuck), 0);
    ck_assert_int_eq(held(), with_one);
    ck_assert_uint_eq(count_threads(status, sizeof status), 0);
    open_coder(); /* the same, as long as it is there */
    ck_assert_ptr_eq(coder, first);
    user.wake = count_wake;
    sw_coder_wake_at(coder, &user, sw_clock_us());
    while (!atomic_load(&n_woken)) /* by its thread, which is another one */
        (void)usleep(100);
    (void)ck_is_given_up(SW_OP_SPILL);
    if (_i == 0) {
        fill_gpu(false);
        there_and_back();
        close_coder();
    } else {
        struct sw_coder *host = NULL;
        struct sw_err err = {0};
        close_coder();
        ck_assert_int_eq(sw_coder_get(&host, &(struct sw_coder_place){0}, &err), 0);
        ck_assert_int_eq(held(), with_one);
        fill_gpu(false);
        sw_coder_put(host);
    }
    ck_assert_int_eq(held(), before);
    ck_assert_int_eq(atomic_load(&sw_fake_cuda->stuck), 0);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("coder");
    TCase *tcase = tcase_create("coder");
    sw_test_slow(tcase, 60);
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, a_guest_leaves_the_callers_context_as_it_was);
    tcase_add_test(tcase, a_guest_learns_a_dictionary);
    tcase_add_test(tcase, users_share_one_coder);
    tcase_add_test(tcase, few_callers_attend);
    tcase_add_test(tcase, others_with_news_are_served);
    tcase_add_test(tcase, a_frame_wakes_its_caller_if_nobody_attends);
    tcase_add_test(tcase, plans_are_made_beside_frames_that_are_away);
    tcase_add_test(tcase, the_thread_takes_no_signals_and_runs_on_any_cpu);
    tcase_add_loop_test(tcase, a_context_that_is_gone_is_forgotten, 0, 3);
    tcase_add_loop_test(tcase, runs_fail_when_the_context_goes, 0, 6);
    tcase_add_test(tcase, another_context_with_the_same_handle_has_its_own_coder);
    tcase_add_test(tcase, a_condemned_coder_passes_no_frame_on);
    tcase_add_test(tcase, a_condemned_coder_packs_in_other_buffers);
    tcase_add_test(tcase, only_the_events_of_an_owner_are_dropped);
#ifndef __SANITIZE_THREAD__
    tcase_add_test(tcase, a_forked_child_has_a_coder_of_its_own);
#endif
    tcase_add_loop_test(tcase, regions_are_packed_in_the_engine_s_context, 0, 2);
    tcase_add_test(tcase, packs_and_unpacks_on_a_full_gpu);
    tcase_add_test(tcase, the_thread_wakes_a_user_once_at_its_time);
    tcase_add_test(tcase, a_user_is_removed_when_it_is_not_being_served);
    tcase_add_loop_test(tcase, a_run_whose_kernels_do_not_begin_is_given_up, 0, 2);
    tcase_add_test(tcase, a_coder_is_not_made_on_a_full_gpu);
    tcase_add_test(tcase, a_patient_run_waits_for_the_gpu);
    tcase_add_loop_test(tcase, closing_does_not_wait_for_a_full_gpu, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
