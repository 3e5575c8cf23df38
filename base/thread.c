#include "base/thread.h"

#include <signal.h>
#include <unistd.h>

/* Signals that the thread itself causes stay unblocked: blocked, they would end the process without any message. */
static void block_signals(sigset_t *ret_before) {
    static const int own[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE};
    sigset_t most;
    (void)sigfillset(&most);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        (void)sigdelset(&most, own[i]);
    (void)pthread_sigmask(SIG_SETMASK, &most, ret_before);
}

static int start(pthread_t *ret, void *(*main)(void *arg), void *arg) {
    pthread_attr_t attributes;
    int rc = pthread_attr_init(&attributes);
    if (rc)
        return rc;
    (void)pthread_attr_setstacksize(&attributes, SW_THREAD_STACK_BYTES);
    rc = pthread_create(ret, &attributes, main, arg);
    (void)pthread_attr_destroy(&attributes);
    return rc;
}

int sw_thread_start(pthread_t *ret, void *(*main)(void *arg), void *arg) {
    sigset_t before;
    block_signals(&before); /* inherited by the new thread */
    const int rc = start(ret, main, arg);
    (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

unsigned sw_thread_cpus(unsigned least, unsigned most) {
    const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    return cpus < (long)least ? least : cpus < (long)most ? (unsigned)cpus : most;
}

struct program {
    int (*run)(int argc, char **argv);
    int argc;
    char **argv;
    int exit_code;
};

static void *run_program(void *arg) {
    struct program *program = arg;
    program->exit_code = program->run(program->argc, program->argv);
    return NULL;
}

static void set_least_stack(void) {
    pthread_attr_t attributes;
    size_t bytes = 0;
    if (pthread_getattr_default_np(&attributes))
        return;
    if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < SW_THREAD_STACK_BYTES &&
        pthread_attr_setstacksize(&attributes, SW_THREAD_STACK_BYTES) == 0)
        (void)pthread_setattr_default_np(&attributes);
    (void)pthread_attr_destroy(&attributes);
}

int sw_thread_run(int (*run)(int argc, char **argv), int argc, char **argv) {
    struct program program = {.run = run, .argc = argc, .argv = argv};
    pthread_t thread;
    set_least_stack();
    if (start(&thread, run_program, &program) != 0)
        return run(argc, argv);
    (void)pthread_join(thread, NULL);
    return program.exit_code;
}
