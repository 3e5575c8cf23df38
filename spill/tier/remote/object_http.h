/* object_http.h - one attempt of a request, as a transfer of libcurl. thread: the client's; its wire's (object_wire.h)
 * while the transfer runs. */
#ifndef SW_SPILL_OBJECT_HTTP_H
#define SW_SPILL_OBJECT_HTTP_H

#include "spill/tier/remote/object_client.h"
#include "spill/tier/remote/object_credentials.h"
#include "spill/tier/remote/object_reply.h"
#include <curl/curl.h>

struct sw_object_attempt {
    struct sw_list node;
    CURL *easy;
    CURLcode code; /* how the transfer has ended */
    struct curl_slist *headers;
    struct sw_object_request *request;
    struct sw_object_reply reply;
    size_t sent_bytes, received_bytes; /* of the body */
    bool has_sent_again;               /* libcurl began again by itself, so the store may have carried it out twice */
    char *text;                        /* a page of names, or an error's XML */
    size_t text_bytes;
    char trouble[CURL_ERROR_SIZE];
};

/* Prepares an attempt. errors: -SW_ENOMEM. */
int sw_object_attempt_init(struct sw_object_attempt *attempt);
void sw_object_attempt_fini(struct sw_object_attempt *attempt);
/* Prepares attempt->easy for the request. Returns false if there is no memory. config and credentials: borrowed until
 * the attempt ends. */
bool sw_object_attempt_begin(struct sw_object_attempt *attempt, struct sw_object_request *request,
                             const struct sw_object_config *config, const struct sw_object_credentials *credentials);
/* Ends an attempt whose transfer has ended: completes attempt->reply, and the request's results if it succeeded. */
void sw_object_attempt_end(struct sw_object_attempt *attempt, const char *prefix);

#endif
