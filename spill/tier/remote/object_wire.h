/* object_wire.h - a thread that runs transfers of libcurl, many at a time (its multi interface).
 *
 * One processor moves 2 to 4 GB/s between the kernel and memory, so a client has several wires. A wire decides nothing:
 * it runs what it is given until that ends, and reports the end. */
#ifndef SW_SPILL_OBJECT_WIRE_H
#define SW_SPILL_OBJECT_WIRE_H

#include "spill/tier/remote/object_http.h"
#include <pthread.h>

struct sw_object_wire {
    struct sw_list idle; /* attempts. The owner's, as n_active is */
    unsigned n_active;
    void (*ended)(void *arg, struct sw_object_attempt *attempt);
    void *arg;
    CURLM *multi;
    pthread_t thread;
    bool has_thread;
    pthread_mutex_t lock; /* guards the next two */
    struct sw_list inbox;
    bool stop;
    struct sw_list running; /* the thread's own */
};

/* Starts the thread. most: how many connections are kept. ended: called on the thread; attempt->code is set. errors:
 * -SW_ENOMEM. */
int sw_object_wire_init(struct sw_object_wire *wire, unsigned most,
                        void (*ended)(void *arg, struct sw_object_attempt *attempt), void *arg);
/* Runs an attempt that is prepared. It is the wire's until `ended`. thread: any but the wire's. */
void sw_object_wire_begin(struct sw_object_wire *wire, struct sw_object_attempt *attempt);
/* Ends the thread. Attempts that are left end with CURLE_ABORTED_BY_CALLBACK. thread: any but the wire's. */
void sw_object_wire_stop(struct sw_object_wire *wire);
/* Stops it, and frees it; also a zeroed one, or what init() left behind. */
void sw_object_wire_fini(struct sw_object_wire *wire);

#endif
