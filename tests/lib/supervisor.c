#include "tests/lib/supervisor.h"

#include "base/assert.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { READY_MS = 30000, POLL_MS = 20, MESSAGE_BYTES = 4096 };

static void remove_stored(struct sw_supervisor *s, const char *name) {
    for (unsigned i = 0; i < s->n_stored;) {
        if (name && strcmp(s->stored[i].name, name) != 0) {
            i++;
            continue;
        }
        (void)close(s->stored[i].fd);
        s->stored[i] = s->stored[--s->n_stored];
    }
}

static void add_stored(struct sw_supervisor *s, const char *name, int fd) {
    SW_ASSERT(s->n_stored < SW_TEST_MAX_KEPT);
    s->stored[s->n_stored].fd = fd;
    (void)snprintf(s->stored[s->n_stored].name, sizeof s->stored[0].name, "%s", name);
    s->n_stored++;
}

/* Value of a line "KEY=...", or NULL. */
static const char *value_of(const char *message, const char *key, char *ret, size_t ret_bytes) {
    const size_t bytes = strlen(key);
    for (const char *line = message; line; line = strchr(line, '\n') ? strchr(line, '\n') + 1 : NULL)
        if (strncmp(line, key, bytes) == 0 && line[bytes] == '=') {
            (void)snprintf(ret, ret_bytes, "%.*s", (int)strcspn(line + bytes + 1, "\n"), line + bytes + 1);
            return ret;
        }
    return NULL;
}

/* With the lock held. Messages of a service that was killed meanwhile are too late, and ignored. */
static bool is_last_message(struct sw_supervisor *s) {
    s->n_messages++;
    if (s->kill_at == 0 || s->n_messages < s->kill_at)
        return false;
    (void)kill(s->daemon.pid, SIGKILL);
    return true;
}

static void take(struct sw_supervisor *s, const char *message, int fd) {
    char value[64], name[64];
    const char *stored_name = value_of(message, "FDNAME", name, sizeof name);
    (void)pthread_mutex_lock(&s->lock);
    if (is_last_message(s) && (s->kills_before || s->n_messages > s->kill_at)) {
        (void)pthread_mutex_unlock(&s->lock);
        if (fd >= 0)
            (void)close(fd);
        return;
    }
    s->n_ready += value_of(message, "READY", value, sizeof value) != NULL;
    s->n_stopping += value_of(message, "STOPPING", value, sizeof value) != NULL;
    s->n_watchdog += value_of(message, "WATCHDOG", value, sizeof value) != NULL;
    s->n_reloading += value_of(message, "RELOADING", value, sizeof value) != NULL;
    if (stored_name && value_of(message, "FDSTOREREMOVE", value, sizeof value))
        remove_stored(s, stored_name);
    else if (stored_name && fd >= 0 && value_of(message, "FDSTORE", value, sizeof value))
        add_stored(s, stored_name, fd), fd = -1;
    (void)pthread_mutex_unlock(&s->lock);
    if (fd >= 0)
        (void)close(fd); /* BARRIER: that is the answer */
}

static bool receive(struct sw_supervisor *s) {
    char text[MESSAGE_BYTES + 1];
    union {
        struct cmsghdr header;
        char bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec into = {.iov_base = text, .iov_len = MESSAGE_BYTES};
    struct msghdr message = {
        .msg_iov = &into, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    int fd = -1;
    const ssize_t n = recvmsg(s->socket, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (n < 0)
        return false;
    text[n] = 0;
    const struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (header && header->cmsg_type == SCM_RIGHTS)
        memcpy(&fd, CMSG_DATA(header), sizeof fd);
    take(s, text, fd);
    return true;
}

static bool is_stopping(struct sw_supervisor *s) {
    (void)pthread_mutex_lock(&s->lock);
    const bool stop = s->stop;
    (void)pthread_mutex_unlock(&s->lock);
    return stop;
}

static void *listen_main(void *arg) {
    struct sw_supervisor *s = arg;
    (void)sem_post(&s->listens);
    while (!is_stopping(s)) {
        struct pollfd readable = {.fd = s->socket, .events = POLLIN};
        (void)poll(&readable, 1, POLL_MS);
        while (receive(s))
            ;
    }
    return NULL;
}

void sw_supervisor_init(struct sw_supervisor *ret, const char *program, const char *const *options) {
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    memset(ret, 0, sizeof *ret);
    ret->program = program;
    ret->options = options;
    sw_test_folder(ret->daemon.folder);
    (void)snprintf(ret->daemon.socket, sizeof ret->daemon.socket, "%s/data.sock", ret->daemon.folder);
    (void)snprintf(ret->daemon.control, sizeof ret->daemon.control, "%s/control.sock", ret->daemon.folder);
    (void)snprintf(ret->daemon.log, sizeof ret->daemon.log, "%s/log", ret->daemon.folder);
    (void)snprintf(ret->handover.notify, sizeof ret->handover.notify, "%s/notify", ret->daemon.folder);
    (void)snprintf(address.sun_path, sizeof address.sun_path, "%s", ret->handover.notify);
    ret->socket = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    SW_ASSERT(ret->socket >= 0 && bind(ret->socket, (struct sockaddr *)&address, sizeof address) == 0);
    (void)pthread_mutex_init(&ret->lock, NULL);
    /* Waited for: a process that forks while a thread begins may leave its child with AddressSanitizer's locks taken.
     */
    SW_ASSERT(sem_init(&ret->listens, 0, 0) == 0 && pthread_create(&ret->thread, NULL, listen_main, ret) == 0);
    while (sem_wait(&ret->listens) < 0)
        ;
}

/* Prints its log, to find out why it is not there. */
static void show_log(const struct sw_test_daemon *daemon) {
    char line[1100];
    FILE *log = fopen(daemon->log, "re");
    (void)fprintf(stderr, "%s says:\n", daemon->log);
    while (log && fgets(line, sizeof line, log))
        (void)fputs(line, stderr);
    if (log)
        (void)fclose(log);
}

void sw_supervisor_start(struct sw_supervisor *ret, const char *program, const char *const *options) {
    sw_supervisor_init(ret, program, options);
    if (sw_supervisor_spawn(ret))
        return;
    show_log(&ret->daemon);
    SW_ASSERT(false && "spillwayd did not become ready");
}

void sw_supervisor_store(struct sw_supervisor *s, const char *name, int fd) {
    (void)pthread_mutex_lock(&s->lock);
    add_stored(s, name, fd);
    (void)pthread_mutex_unlock(&s->lock);
}

/* With the lock held. */
static void prepare(struct sw_supervisor *s) {
    size_t used = 0;
    s->handover.n = s->n_stored;
    s->handover.names[0] = 0;
    for (unsigned i = 0; i < s->n_stored; i++) {
        s->handover.fds[i] = s->stored[i].fd;
        used += (size_t)snprintf(s->handover.names + used, sizeof s->handover.names - used, "%s%s", i ? ":" : "",
                                 s->stored[i].name);
    }
}

void sw_supervisor_prepare(struct sw_supervisor *s) {
    (void)pthread_mutex_lock(&s->lock);
    prepare(s);
    (void)pthread_mutex_unlock(&s->lock);
}

bool sw_supervisor_spawn(struct sw_supervisor *s) {
    const struct timespec step = {.tv_nsec = 2000000};
    (void)pthread_mutex_lock(&s->lock);
    const unsigned ready_before = s->n_ready;
    prepare(s);
    (void)pthread_mutex_unlock(&s->lock);
    s->daemon.handover = &s->handover;
    sw_test_daemon_fork(&s->daemon, s->program, s->options);
    for (int waited = 0; waited < READY_MS; waited += 2) {
        siginfo_t info = {0};
        (void)pthread_mutex_lock(&s->lock);
        const bool ready = s->n_ready > ready_before;
        (void)pthread_mutex_unlock(&s->lock);
        if (ready)
            return true;
        if (waitid(P_PID, (id_t)s->daemon.pid, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid)
            break;
        (void)nanosleep(&step, NULL);
    }
    (void)sw_test_daemon_stop(&s->daemon, SIGKILL);
    return false;
}

int sw_supervisor_stop(struct sw_supervisor *s, int signal) {
    return sw_test_daemon_stop(&s->daemon, signal);
}

unsigned sw_supervisor_n_stored(struct sw_supervisor *s) {
    (void)pthread_mutex_lock(&s->lock);
    const unsigned n = s->n_stored;
    (void)pthread_mutex_unlock(&s->lock);
    return n;
}

int sw_supervisor_take(struct sw_supervisor *s, const char *name) {
    int fd = -1;
    (void)pthread_mutex_lock(&s->lock);
    for (unsigned i = 0; i < s->n_stored && fd < 0; i++)
        if (strcmp(s->stored[i].name, name) == 0) {
            fd = s->stored[i].fd;
            s->stored[i] = s->stored[--s->n_stored];
        }
    (void)pthread_mutex_unlock(&s->lock);
    return fd;
}

void sw_supervisor_kill_at(struct sw_supervisor *s, unsigned nth, bool before) {
    (void)pthread_mutex_lock(&s->lock);
    s->n_messages = 0;
    s->kill_at = nth;
    s->kills_before = before;
    (void)pthread_mutex_unlock(&s->lock);
}

void sw_supervisor_forget(struct sw_supervisor *s) {
    (void)pthread_mutex_lock(&s->lock);
    remove_stored(s, NULL);
    (void)pthread_mutex_unlock(&s->lock);
}

void sw_supervisor_end(struct sw_supervisor *s) {
    SW_ASSERT(s->daemon.pid == 0);
    (void)pthread_mutex_lock(&s->lock);
    s->stop = true;
    (void)pthread_mutex_unlock(&s->lock);
    (void)pthread_join(s->thread, NULL);
    sw_supervisor_forget(s);
    (void)close(s->socket);
    (void)pthread_mutex_destroy(&s->lock);
    (void)sem_destroy(&s->listens);
    sw_test_daemon_clean(&s->daemon);
}
