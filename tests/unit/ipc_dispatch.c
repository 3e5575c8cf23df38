/* The rules that hold for the requests of all commands, whatever the table (ipc/dispatch.h). */
#include "ipc/dispatch.h"
#include "tests/lib/run.h"

#include <check.h>
#include <string.h>

static unsigned n_run, n_older;

static int run(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    (void)request, (void)err;
    ck_assert_ptr_eq(session, &n_run);
    sw_msg_init(ret_reply, SW_MSG_OK);
    n_run++;
    return SW_REPLY_NOW;
}

static int run_older(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    n_older++;
    return run(session, request, ret_reply, err);
}

static int refuse(void *session, const struct sw_received *request, struct sw_msg *ret_reply, struct sw_err *err) {
    (void)session, (void)request, (void)ret_reply;
    return sw_err_set(err, -SW_ENOENT, SW_SCOPE_REQUEST, "refused");
}

enum { OLDER = 7, NEWER = 8 };
static const struct sw_command table[] = {{run, SW_MSG_HELLO, false, 0},      {run_older, SW_MSG_STATUS, false, OLDER},
                                          {run, SW_MSG_STATUS, false, NEWER}, {run_older, SW_MSG_LIST, false, OLDER},
                                          {run, SW_MSG_MEM_PARTS, true, 0},   {refuse, SW_MSG_DISCARD, false, 0}};

static struct sw_err err;
static int fds[1] = {-1};
static struct sw_received request = {.fds = fds};

static int send_of_version(unsigned type, bool greeted, uint16_t version) {
    struct sw_msg msg, reply;
    sw_msg_init(&msg, type);
    memset(&reply, 0, sizeof reply);
    msg.header.seq = 4711;
    msg.header.version = version;
    request.msg = &msg;
    n_run = n_older = 0;
    err = (struct sw_err){0};
    const int rc = sw_dispatch(table, sizeof table / sizeof table[0], &n_run, greeted, &request, &reply, &err);
    ck_assert_uint_eq(reply.header.seq, 4711); /* also with an error */
    ck_assert_int_eq(rc, err.code);
    ck_assert_uint_eq(n_run, rc == 0);
    return rc;
}

static int send(unsigned type, bool greeted) {
    return send_of_version(type, greeted, NEWER);
}

START_TEST(hello_comes_first_and_once) {
    ck_assert_int_eq(send(SW_MSG_STATUS, false), -SW_EPROTO);
    ck_assert_int_eq(err.scope, SW_SCOPE_SESSION);
    ck_assert_int_eq(send(SW_MSG_HELLO, false), 0);
    ck_assert_int_eq(send(SW_MSG_HELLO, true), -SW_EPROTO);
    ck_assert_int_eq(err.scope, SW_SCOPE_SESSION);
    ck_assert_int_eq(send(SW_MSG_STATUS, true), 0);
}
END_TEST

/* Of a version that has it, by that version's command. */
START_TEST(a_request_is_in_the_table) {
    ck_assert_int_eq(send_of_version(SW_MSG_STATUS, true, OLDER), 0);
    ck_assert_uint_eq(n_older, 1);
    ck_assert_int_eq(send(SW_MSG_STATUS, true), 0);
    ck_assert_uint_eq(n_older, 0);
    ck_assert_int_eq(send_of_version(SW_MSG_LIST, true, OLDER), 0);
    ck_assert_int_eq(send(SW_MSG_LIST, true), -SW_EPROTO);
    ck_assert_int_eq(send(SW_MSG_OK, true), -SW_EPROTO);
    ck_assert_int_eq(err.scope, SW_SCOPE_SESSION);
    ck_assert_int_eq(send_of_version(SW_MSG_MEM_PARTS, true, OLDER), 0); /* all versions have it */
    ck_assert_int_eq(send(SW_MSG_DISCARD, true), -SW_ENOENT);
}
END_TEST

/* Also if they were too many for this process. */
START_TEST(descriptors_come_only_where_they_are_taken) {
    request.n_fds = 1;
    ck_assert_int_eq(send(SW_MSG_STATUS, true), -SW_EFDS);
    ck_assert_int_eq(err.scope, SW_SCOPE_REQUEST);
    ck_assert_int_eq(send(SW_MSG_MEM_PARTS, true), 0);
    request.n_fds = 0;
    request.fds_lost = true;
    ck_assert_int_eq(send(SW_MSG_STATUS, true), -SW_EFDS);
    ck_assert_int_eq(send(SW_MSG_MEM_PARTS, true), 0); /* it answers itself */
}
END_TEST

int main(void) {
    Suite *suite = suite_create("ipc_dispatch");
    TCase *tcase = tcase_create("dispatch");
    tcase_add_test(tcase, hello_comes_first_and_once);
    tcase_add_test(tcase, a_request_is_in_the_table);
    tcase_add_test(tcase, descriptors_come_only_where_they_are_taken);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
