#include "tests/lib/child.h"

#include "base/assert.h"
#include "tests/lib/content.h"
#include "tests/lib/must.h"

#include <check.h>
#include <signal.h>
#include <stdbool.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct sw_child sw_child_begin(void (*live)(unsigned i, int socket), unsigned i) {
    int ends[2];
    ck_assert_int_eq(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const pid_t parent = getpid();
    const struct sw_child child = {.pid = fork(), .socket = ends[0]};
    ck_assert_int_ge(child.pid, 0);
    if (child.pid == 0) {
        (void)close(ends[0]);
        SW_ASSERT(prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && getppid() == parent);
        live(i, ends[1]);
        SW_ASSERT(false && "a child's life returns");
    }
    (void)close(ends[1]);
    return child;
}

void sw_child_tell(const struct sw_child *child, const void *packet, size_t bytes) {
    ck_assert_int_eq(send(child->socket, packet, bytes, MSG_NOSIGNAL), (ssize_t)bytes);
}

void sw_child_hear(const struct sw_child *child, void *ret, size_t bytes, const char *who) {
    const ssize_t n = recv(child->socket, ret, bytes, MSG_TRUNC);
    ck_assert_msg(n == (ssize_t)bytes, "%s: ended by itself, or says something else (%zd bytes)", who, n);
}

void sw_child_end(struct sw_child *child, const char *who) {
    int status = -1;
    (void)shutdown(child->socket, SHUT_WR); /* a close() would not do: later children have the descriptor, too */
    ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
    ck_assert_msg(status == 0, "%s: ended with status %#x", who, (unsigned)status);
    (void)close(child->socket);
    child->pid = 0;
}

/* ---- clients that die -------------------------------------------------------------------------------------------- */

void sw_mortal_is_there(int socket) {
    SW_ASSERT(write(socket, "x", 1) == 1);
}

static void die(const struct sw_child *child, const char *doing, uint64_t delay_us) {
    int status;
    char byte;
    sw_child_hear(child, &byte, 1, doing);
    sleep_us(delay_us);
    ck_assert_msg(waitpid(child->pid, &status, WNOHANG) == 0, "%s: ended by itself", doing);
    (void)kill(child->pid, SIGKILL);
    ck_assert_int_eq(waitpid(child->pid, &status, 0), child->pid);
    (void)close(child->socket);
}

unsigned sw_mortals_for_cores(unsigned least) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    if (cores <= (long)least)
        return least;
    return cores > SW_MORTALS_AT_ONCE ? SW_MORTALS_AT_ONCE : (unsigned)cores;
}

void sw_mortals_die(const struct sw_mortals *how, unsigned from, unsigned n, uint64_t *random) {
    struct sw_child children[SW_MORTALS_AT_ONCE];
    for (unsigned done = 0; done < n;) {
        unsigned k = 0;
        for (; k < how->at_once && done + k < n; k++)
            children[k] = sw_child_begin(how->live, from + done + k);
        for (unsigned i = 0; i < k; i++)
            die(&children[i], how->doing(from + done + i), sw_random(random) % how->max_delay_us);
        done += k;
    }
}
