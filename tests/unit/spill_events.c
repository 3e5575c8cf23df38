/* Clients' events that stay open: which are opened and closed when, and what a device is told about whose they are. */
#include "spill/device/event_cache.h"
#include "spill/engine_state.h"
#include "tests/lib/engine_fixture.h"
#include "tests/lib/run.h"

#include <check.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>

/* ---- the cache --------------------------------------------------------------------------------------------------- */

enum { MAX_EVENTS = 4 * SW_EVENT_CACHE_ENTRIES };

static struct opener {
    int code; /* what the next open returns instead of an event */
    unsigned n_opened, n_open;
    struct event {
        bool is_open;
        uint8_t handle[SW_MEM_HANDLE_BYTES];
    } events[MAX_EVENTS];
} opener;

static int open_event(void *arg, const uint8_t handle[SW_MEM_HANDLE_BYTES], void **ret, struct sw_err *err) {
    ck_assert_ptr_eq(arg, &opener);
    if (opener.code)
        return sw_err_set(err, opener.code, SW_SCOPE_REQUEST, "no such event");
    struct event *event = &opener.events[opener.n_opened++];
    event->is_open = true;
    memcpy(event->handle, handle, sizeof event->handle);
    ck_assert_uint_le(++opener.n_open, SW_EVENT_CACHE_ENTRIES + 1);
    *ret = event;
    return 0;
}

static void close_event(void *arg, void *closed) {
    struct event *event = closed;
    ck_assert_ptr_eq(arg, &opener);
    ck_assert(event->is_open);
    event->is_open = false;
    opener.n_open--;
}

static struct sw_event_cache cache;

static void setup(void) {
    memset(&opener, 0, sizeof opener);
    cache = (struct sw_event_cache){.open = open_event, .close = close_event, .arg = &opener};
}

/* Handles differ in their last byte only. */
static struct event *get(uint64_t session, unsigned number) {
    uint8_t handle[SW_MEM_HANDLE_BYTES] = {0};
    void *event = NULL;
    handle[sizeof handle - 1] = (uint8_t)number;
    ck_assert_int_eq(sw_event_cache_get(&cache, session, handle, &event, NULL), 0);
    ck_assert(((struct event *)event)->is_open);
    ck_assert_mem_eq(((struct event *)event)->handle, handle, sizeof handle);
    return event;
}

START_TEST(test_an_event_is_opened_once_for_a_session) {
    const struct event *first = get(1, 7), *second = get(1, 8);
    ck_assert_ptr_ne(first, second);
    for (int i = 0; i < 1000; i++) {
        ck_assert_ptr_eq(get(1, 7), first);
        ck_assert_ptr_eq(get(1, 8), second);
    }
    ck_assert_uint_eq(opener.n_opened, 2);
    ck_assert_ptr_ne(get(2, 7), first); /* another session's, of the same handle */
    ck_assert_uint_eq(opener.n_opened, 3);
    sw_event_cache_fini(&cache);
    ck_assert_uint_eq(opener.n_open, 0);
}
END_TEST

START_TEST(test_the_event_unused_for_longest_makes_room) {
    for (unsigned i = 0; i < SW_EVENT_CACHE_ENTRIES; i++)
        (void)get(1, i);
    (void)get(1, 0); /* now number 1 is the oldest */
    (void)get(1, SW_EVENT_CACHE_ENTRIES);
    ck_assert_uint_eq(opener.n_open, SW_EVENT_CACHE_ENTRIES);
    ck_assert(!opener.events[1].is_open);
    for (unsigned i = 0; i <= SW_EVENT_CACHE_ENTRIES; i++)
        if (i != 1)
            (void)get(1, i);
    ck_assert_uint_eq(opener.n_opened, SW_EVENT_CACHE_ENTRIES + 1);
    (void)get(1, 1); /* opened anew */
    ck_assert_uint_eq(opener.n_opened, SW_EVENT_CACHE_ENTRIES + 2);
    ck_assert(!opener.events[0].is_open);
    ck_assert_uint_eq(opener.n_open, SW_EVENT_CACHE_ENTRIES);
    sw_event_cache_fini(&cache);
    ck_assert_uint_eq(opener.n_open, 0);
}
END_TEST

START_TEST(test_what_cannot_be_opened_displaces_nothing) {
    static const uint8_t handle[SW_MEM_HANDLE_BYTES] = {1};
    struct sw_err err = {0};
    void *event = NULL;
    for (unsigned i = 0; i < SW_EVENT_CACHE_ENTRIES; i++)
        (void)get(1, i);
    opener.code = -SW_EIMPORT;
    for (int i = 0; i < 3; i++)
        ck_assert_int_eq(sw_event_cache_get(&cache, 1, handle, &event, &err), -SW_EIMPORT);
    ck_assert_int_eq(err.code, -SW_EIMPORT);
    ck_assert_ptr_null(event);
    for (unsigned i = 0; i < SW_EVENT_CACHE_ENTRIES; i++)
        (void)get(1, i);
    opener.code = 0; /* a failure is not remembered */
    ck_assert_int_eq(sw_event_cache_get(&cache, 1, handle, &event, &err), 0);
    ck_assert_uint_eq(opener.n_opened, SW_EVENT_CACHE_ENTRIES + 1);
    sw_event_cache_fini(&cache);
    ck_assert_uint_eq(opener.n_open, 0);
}
END_TEST

/* ---- the engine -------------------------------------------------------------------------------------------------- */

static struct {
    unsigned n;
    uint64_t sessions[8];
} seen;

static int see_event(struct sw_device *device, unsigned s, uint64_t session, const uint8_t handle[SW_MEM_HANDLE_BYTES],
                     struct sw_err *err) {
    (void)device, (void)s, (void)err;
    ck_assert_uint_eq(handle[0], 0xE7);
    seen.sessions[seen.n++] = session;
    return 0;
}

static uint64_t session_seen(struct sw_fixture *f, struct sw_owner *owner, const struct sw_memory *memory) {
    static const uint8_t event[SW_MEM_HANDLE_BYTES] = {0xE7};
    struct sw_test_op op = {0};
    struct sw_range range = {.mem = sw_fixture_mem(f, owner, memory, true), .bytes = memory->bytes, .event = event};
    const unsigned before = seen.n;
    ck_assert_int_eq(sw_engine_spill(owner, &range, sw_test_op_done, &op, &op.id, NULL), 0);
    sw_fixture_until(f, &op.done);
    ck_assert_int_eq(op.outcome.err.code, 0);
    ck_assert_uint_eq(seen.n, before + 1);
    return seen.sessions[before];
}

/* Clients' events that are late until the session's have been released, and slots that wait for one, which go on once
 * everybody's have been. */
static const uint8_t late[SW_MEM_HANDLE_BYTES] = {0xBB}, early[SW_MEM_HANDLE_BYTES] = {0xEE},
                     wrong[SW_MEM_HANDLE_BYTES] = {0xFF};
#define EVERYBODY UINT64_MAX
static struct {
    const struct sw_device_ops *real;
    struct sw_device_ops ops;
    _Atomic uint64_t released; /* session; 0: nobody's */
    atomic_bool hangs[16];
    atomic_uint n_asked, n_slept; /* slept: on a slot that waits for a client */
} events;

static bool is_released(uint64_t session) {
    const uint64_t released = atomic_load(&events.released);
    return released == session || released == EVERYBODY;
}

static int ask_event(struct sw_device *device, uint64_t session, const uint8_t handle[SW_MEM_HANDLE_BYTES],
                     struct sw_err *err) {
    (void)device;
    atomic_fetch_add(&events.n_asked, 1);
    return handle[0] == 0xFF ? sw_err_set(err, -SW_EIMPORT, SW_SCOPE_REQUEST, "no such event")
                             : handle[0] != 0xBB || is_released(session);
}

static int wait_event(struct sw_device *device, unsigned s, uint64_t session, const uint8_t handle[SW_MEM_HANDLE_BYTES],
                      struct sw_err *err) {
    const int rc = ask_event(device, session, handle, err);
    if (rc == 0)
        atomic_store(&events.hangs[s], true);
    return rc < 0 ? rc : !rc;
}

static bool slot_hangs(unsigned s) {
    return atomic_load(&events.hangs[s]) && !is_released(EVERYBODY);
}

static int poll_slot(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    if (slot_hangs(s))
        return -SW_EAGAIN;
    atomic_store(&events.hangs[s], false);
    return events.real->slot_poll(device, s, ret, err);
}

static int wait_slot(struct sw_device *device, unsigned s, struct sw_slot_result *ret, struct sw_err *err) {
    atomic_fetch_add(&events.n_slept, slot_hangs(s));
    return events.real->slot_wait(device, s, ret, err);
}

enum { N_LATE = 40, LATE_BYTES = 5000 };

static void spill_after(struct sw_fixture *f, struct sw_owner *owner, const struct sw_memory *memory,
                        const uint8_t *event, struct sw_test_op *op) {
    struct sw_range range = {.mem = sw_fixture_mem(f, owner, memory, true), .bytes = memory->bytes, .event = event};
    ck_assert_int_eq(sw_engine_spill(owner, &range, sw_test_op_done, op, &op->id, NULL), 0);
    sw_mem_close(range.mem, NULL, NULL);
}

/* On an engine whose worker rests. */
static void late_open(struct sw_fixture *f, unsigned n_slots, struct sw_memory *ret) {
    struct sw_fixture_config config = sw_fixture_defaults;
    struct sw_test_op op;
    config.n_slots = n_slots;
    sw_fixture_open(f, &config);
    *ret = sw_memory_new(LATE_BYTES);
    ck_assert_int_eq(sw_fixture_spill(f, ret, 0, ret->bytes, &op), 0);
    memset(&events, 0, sizeof events);
    events.real = f->device->ops;
    events.ops = *events.real;
    events.ops.wait_event = wait_event;
    events.ops.has_reached = ask_event;
    events.ops.slot_poll = poll_slot;
    events.ops.slot_wait = wait_slot;
    f->device->ops = &events.ops;
}

static void late_close(struct sw_fixture *f, struct sw_memory *memory) {
    f->device->ops = events.real;
    sw_memory_free(memory);
    sw_fixture_close(f);
}

static void await_success(struct sw_fixture *f, const struct sw_test_op *ops, unsigned n) {
    for (unsigned i = 0; i < n; i++) {
        sw_fixture_until(f, &ops[i].done);
        ck_assert_int_eq(ops[i].outcome.err.code, 0);
    }
}

/* However many operations of one client wait for a kernel of its own, others' go on: those without an event, those
 * whose event has been reached, and those whose event is none are told. */
START_TEST(test_nobody_waits_for_a_client_that_is_late) {
    struct sw_fixture f;
    struct sw_memory memory;
    struct sw_owner *other;
    struct sw_test_op late_ops[N_LATE] = {0}, ops[3] = {0};
    late_open(&f, (unsigned[]){2, 3, 4, 16}[_i], &memory);
    ck_assert_int_eq(sw_owner_open(f.engine, &other, NULL), 0);
    for (int i = 0; i < N_LATE; i++)
        spill_after(&f, f.owner, &memory, late, &late_ops[i]);
    for (int round = 0; round < 3; round++) {
        static const uint8_t *const which[] = {NULL, early, wrong};
        memset(ops, 0, sizeof ops);
        for (int i = 0; i < 3; i++) {
            spill_after(&f, other, &memory, which[i], &ops[i]);
            sw_fixture_until(&f, &ops[i].done);
            ck_assert_int_eq(ops[i].outcome.err.code, i == 2 ? -SW_EIMPORT : 0);
        }
    }
    for (int i = 0; i < N_LATE; i++)
        ck_assert(!late_ops[i].done);
    /* One that is asked for stands for all that wait for the same. */
    const unsigned n_before = atomic_load(&events.n_asked);
    atomic_store(&events.released, EVERYBODY);
    await_success(&f, late_ops, N_LATE);
    ck_assert_uint_le(atomic_load(&events.n_asked) - n_before, N_LATE);
    sw_fixture_close_owner(&f, other);
    late_close(&f, &memory);
}
END_TEST

/* When it returns, whoever could be served has been. */
static void pass_line(struct sw_fixture *f, struct sw_owner *owner, const struct sw_memory *memory) {
    struct sw_test_op op = {0};
    spill_after(f, owner, memory, NULL, &op);
    await_success(f, &op, 1);
}

/* Events are their session's, whatever the bytes that name them: two clients that are late with equal ones are asked
 * for one by one. The first one has the slot in which a client may be waited for. */
START_TEST(test_an_event_says_nothing_of_another_sessions) {
    enum { N_OTHERS = 4 };
    struct sw_fixture f;
    struct sw_memory memory;
    struct sw_owner *second, *third;
    struct sw_test_op firsts[N_LATE] = {0}, seconds[N_OTHERS] = {0};
    late_open(&f, 2, &memory);
    ck_assert_int_eq(sw_owner_open(f.engine, &second, NULL), 0);
    ck_assert_int_eq(sw_owner_open(f.engine, &third, NULL), 0);
    for (int i = 0; i < N_LATE; i++)
        spill_after(&f, f.owner, &memory, late, &firsts[i]);
    for (int i = 0; i < N_OTHERS; i++)
        spill_after(&f, second, &memory, late, &seconds[i]);
    pass_line(&f, third, &memory);
    ck_assert(!firsts[N_LATE - 1].done);
    atomic_store(&events.released, f.owner->number);
    await_success(&f, &firsts[N_LATE - 1], 1);
    pass_line(&f, third, &memory);
    for (int i = 0; i < N_OTHERS; i++)
        ck_assert(!seconds[i].done);
    atomic_store(&events.released, EVERYBODY);
    await_success(&f, firsts, N_LATE);
    await_success(&f, seconds, N_OTHERS);
    sw_fixture_close_owner(&f, second);
    sw_fixture_close_owner(&f, third);
    late_close(&f, &memory);
}
END_TEST

/* A group waits for each of its members' events; one of them that has been reached is no reason to sleep until the
 * others are: that would keep everybody waiting. */
START_TEST(test_nobody_sleeps_for_a_group_with_an_event_that_is_late) {
    enum { LONG_BYTES = 20 * 65536 };
    static const uint8_t *const which[] = {late, early};
    struct sw_fixture f;
    struct sw_memory memory, more;
    struct sw_owner *other;
    struct sw_test_op ops[2] = {0}, op = {0};
    late_open(&f, 2, &memory);
    more = sw_memory_new(LONG_BYTES);
    ck_assert_int_eq(sw_owner_open(f.engine, &other, NULL), 0);
    sw_engine_hold(f.engine); /* so that they meet */
    for (int i = 0; i < 2; i++)
        spill_after(&f, f.owner, &memory, which[(_i + i) % 2], &ops[i]);
    sw_engine_release(f.engine);
    spill_after(&f, other, &more, NULL, &op);
    await_success(&f, &op, 1);
    const unsigned n_slept = atomic_load(&events.n_slept);
    ck_assert_uint_eq(n_slept, 0);
    ck_assert(!ops[0].done && !ops[1].done);
    atomic_store(&events.released, EVERYBODY);
    await_success(&f, ops, 2);
    sw_fixture_close_owner(&f, other);
    sw_memory_free(&more);
    late_close(&f, &memory);
}
END_TEST

START_TEST(test_no_session_has_the_number_of_another) {
    struct sw_fixture f;
    struct sw_owner *second, *third;
    struct sw_test_op op;
    sw_fixture_open(&f, NULL);
    struct sw_memory memory = sw_memory_new(5000);
    /* The worker's thread has looked at the device, and will not before its next job: now its steps can be changed. */
    ck_assert_int_eq(sw_fixture_spill(&f, &memory, 0, memory.bytes, &op), 0);
    struct sw_device_ops ops = *f.device->ops;
    const struct sw_device_ops *real = f.device->ops;
    ops.wait_event = see_event;
    f.device->ops = &ops;
    ck_assert_int_eq(sw_owner_open(f.engine, &second, NULL), 0);
    const uint64_t a = session_seen(&f, f.owner, &memory), b = session_seen(&f, second, &memory);
    ck_assert_uint_ne(a, b);
    ck_assert_uint_eq(session_seen(&f, f.owner, &memory), a);
    ck_assert_uint_eq(session_seen(&f, second, &memory), b);
    sw_fixture_close_owner(&f, second);
    ck_assert_int_eq(sw_owner_open(f.engine, &third, NULL), 0); /* may well lie where the second one was */
    const uint64_t c = session_seen(&f, third, &memory);
    ck_assert(c != a && c != b);
    sw_fixture_close_owner(&f, third);
    f.device->ops = real;
    sw_memory_free(&memory);
    sw_fixture_close(&f);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("events");
    TCase *tcase = tcase_create("events");
    tcase_add_checked_fixture(tcase, setup, NULL);
    tcase_add_test(tcase, test_an_event_is_opened_once_for_a_session);
    tcase_add_test(tcase, test_the_event_unused_for_longest_makes_room);
    tcase_add_test(tcase, test_what_cannot_be_opened_displaces_nothing);
    tcase_add_test(tcase, test_no_session_has_the_number_of_another);
    tcase_add_loop_test(tcase, test_nobody_waits_for_a_client_that_is_late, 0, 4);
    tcase_add_test(tcase, test_an_event_says_nothing_of_another_sessions);
    tcase_add_loop_test(tcase, test_nobody_sleeps_for_a_group_with_an_event_that_is_late, 0, 2);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
