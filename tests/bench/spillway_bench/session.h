/* session.h - one client of the benchmark: a connection, a thread, and memory for each operation in flight.
 *
 * Each piece of memory is filled, spilled, and later wiped, restored into and compared, again and again. Only the time
 * from a call to the moment its end is noticed counts; while memory is filled or compared, the session looks every few
 * megabytes whether other operations have ended. */
#ifndef SW_BENCH_SESSION_H
#define SW_BENCH_SESSION_H

#include "tests/bench/spillway_bench/run.h"

struct sw_bench_session;

/* Connects, allocates, registers. run: borrowed until sw_bench_session_free(). thread: the one that makes all sessions
 * (buffers are made by one thread). errors: sw_buffer_new()'s, and the daemon's. */
int sw_bench_session_new(struct sw_bench_session **ret, struct sw_bench_run *run, unsigned number, struct sw_err *err);
/* Runs in a thread of its own until the run is over for it. errors: -SW_ENOMEM. */
int sw_bench_session_start(struct sw_bench_session *s);
/* Waits for it. What went wrong has been said on standard error. Returns 0, or -1 if anything did. */
int sw_bench_session_join(struct sw_bench_session *s);
const struct sw_bench_statistics *sw_bench_session_statistics(const struct sw_bench_session *s);
/* How long it went on; with --count they do not end together. */
double sw_bench_session_s(const struct sw_bench_session *s);
/* NULL, or one that was not started, is fine. */
void sw_bench_session_free(struct sw_bench_session *s);

#endif
