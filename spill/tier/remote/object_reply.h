/* object_reply.h - what a store's reply means, and what to do then. Pure. thread: any. */
#ifndef SW_SPILL_OBJECT_REPLY_H
#define SW_SPILL_OBJECT_REPLY_H

#include "spill/tier/remote/object.h"

struct sw_object_reply {
    int status;              /* of HTTP; 0: none came, or not all of it */
    const char *trouble;     /* status 0: why */
    char code[48];           /* the error's name in the store's words: "NoSuchKey"; "" if it did not say */
    char text[80];           /* ... and its text */
    int64_t date_s;          /* the store's clock, in seconds since 1970; 0: not known */
    uint64_t retry_after_us; /* the store asks for this pause; 0: it does not */
};

enum sw_object_outcome {
    SW_OBJECT_DONE,
    SW_OBJECT_FAILED,      /* for good */
    SW_OBJECT_AGAIN,       /* after a pause */
    SW_OBJECT_SLOW_DOWN,   /* after a pause, and with fewer requests at once */
    SW_OBJECT_CREDENTIALS, /* after a pause, with credentials that were loaded anew */
};

/* Evaluates the reply to a request of this verb. now_s: this machine's clock. *ret_err: filled unless DONE. */
enum sw_object_outcome sw_object_evaluate(enum sw_object_verb verb, const struct sw_object_reply *reply, int64_t now_s,
                                          struct sw_err *ret_err);
/* Returns whether the outcome says something about the store, not about one object: it counts towards an outage. */
bool sw_object_is_trouble(enum sw_object_outcome outcome, const struct sw_err *err);

/* Returns the pause before attempt number n + 1, n >= 1: at random from the upper half of base * 2^(n-1), which is at
 * most max; but at least what the store asks for, up to a minute. random: any number. */
uint64_t sw_object_pause_us(unsigned n, uint64_t base_us, uint64_t max_us, uint64_t retry_after_us, uint64_t random);

/* Reads an error's XML. The text ends with a zero. */
void sw_object_read_error(struct sw_object_reply *reply, const char *xml);
/* Reads the XML of a page of names; calls request->found() for those that begin with `prefix`, and sets
 * request->token. Returns false if this is no complete list. */
bool sw_object_read_page(struct sw_object_request *request, const char *prefix, const char *xml);

#endif
