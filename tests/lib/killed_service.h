/* killed_service.h - a service in a child process that is killed at one of its writes, or one of whose records fails.
 *
 * A point lies before each store to the catalogue's records, around and within each record of the disk's manifest, and
 * around each reply. A program that uses it wraps sw_packet_send(), sw_catalogue_put_region() and
 * sw_catalogue_put_session() (CMakeLists.txt). Where SW_STORE_TRAP is 0 (lib/store_trap.h) it is not there. */
#ifndef SW_TEST_KILLED_SERVICE_H
#define SW_TEST_KILLED_SERVICE_H

#include <stdbool.h>
#include <stdint.h>

/* Lies in memory that the processes share; the test maps it. */
struct sw_kill_plan {
    unsigned n_points, kill_at;  /* the latter 0: not at all */
    unsigned n_records, fail_at; /* the same: records that fail, this one alone or all behind it, too */
    bool goes_on;
};
extern struct sw_kill_plan *sw_kill_plan;

/* Serves one session in the catalogue and the memory of lib/lives.h until its client hangs up, and is killed then. Call
 * it in a child process. owns: takes the socket. */
__attribute__((noreturn)) void sw_killed_service_serve(int socket, uint64_t disk_bytes);

#endif
