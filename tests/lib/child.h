/* child.h - processes that a test forks, each with a socket to the test; and clients that it kills.
 *
 * A child dies with the test. What goes wrong here fails the test, in a child it ends the child. thread: one. */
#ifndef SW_TEST_CHILD_H
#define SW_TEST_CHILD_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct sw_child {
    pid_t pid;
    int socket; /* packets; its other end is the child's */
};

/* live(i, socket) is all that the child does; it must not return. */
struct sw_child sw_child_begin(void (*live)(unsigned i, int socket), unsigned i);
/* Sends a packet. */
void sw_child_tell(const struct sw_child *child, const void *packet, size_t bytes);
/* Waits for a packet of exactly that length. The child must not end instead; `who`: its name in the failure's text. */
void sw_child_hear(const struct sw_child *child, void *ret, size_t bytes, const char *who);
/* The child reads the end of the file and must exit with 0. */
void sw_child_end(struct sw_child *child, const char *who);

/* Clients that live and die. */
struct sw_mortals {
    void (*live)(unsigned i, int socket); /* says sw_mortal_is_there() and goes on until it is killed */
    const char *(*doing)(unsigned i);     /* for the failure's text */
    unsigned at_once;                     /* at most SW_MORTALS_AT_ONCE */
    unsigned max_delay_us;
};
enum { SW_MORTALS_AT_ONCE = 16 };

/* Returns how many to run at once: as many as the machine has cores, but at least `least`. */
unsigned sw_mortals_for_cores(unsigned least);
void sw_mortal_is_there(int socket);
/* Runs clients from ... from + n - 1, so many at once, and kills one after the other: each when it is there and the one
 * before it is dead, after a random delay. None may end by itself. */
void sw_mortals_die(const struct sw_mortals *how, unsigned from, unsigned n, uint64_t *random);

#endif
