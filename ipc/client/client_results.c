#include "ipc/client/client_results.h"

#include <string.h>

bool sw_results_text(const struct sw_wire_text *texts, uint32_t n_texts, uint8_t n, char *ret, size_t ret_bytes) {
    ret[0] = 0;
    if (n > n_texts)
        return false;
    if (n)
        sw_msg_text(ret, ret_bytes, (const uint8_t *)texts[n - 1].text, sizeof texts[n - 1].text);
    return true;
}

/* An unknown name of an error comes from a later version of the daemon. */
static bool read_code(const struct sw_msg_results *m, uint8_t error, int *ret) {
    char name[sizeof m->texts->text + 1];
    *ret = 0;
    if (!sw_results_text(m->texts, m->n_texts, error, name, sizeof name))
        return false;
    if (error)
        *ret = sw_err_from_name(name);
    if (error && !*ret)
        *ret = -SW_EPROTO;
    return true;
}

static bool read_texts(const struct sw_msg_results *m, const struct sw_wire_result *r, struct spillway_result *ret) {
    return read_code(m, r->error, &ret->code) &&
           sw_results_text(m->texts, m->n_texts, r->codec, ret->codec, sizeof ret->codec) &&
           sw_results_text(m->texts, m->n_texts, r->tier, ret->tier, sizeof ret->tier) &&
           sw_results_text(m->texts, m->n_texts, r->reason, ret->reason, sizeof ret->reason) &&
           sw_results_text(m->texts, m->n_texts, r->coder, ret->coder, sizeof ret->coder);
}

static bool has_texts_of(const struct sw_wire_result *r, const struct sw_wire_result *other) {
    return r->error == other->error && r->codec == other->codec && r->tier == other->tier &&
           r->reason == other->reason && r->coder == other->coder;
}

/* before: a result with the same texts, or NULL. */
static bool read_result(const struct sw_msg_results *m, uint32_t i, const struct spillway_result *before,
                        struct spillway_result *ret) {
    const struct sw_wire_result *r = &m->results[i];
    *ret = before ? *before : (struct spillway_result){.size = sizeof *ret, .service_us = m->service_us};
    ret->region = (struct spillway_region){r->slot, r->gen};
    ret->raw_bytes = r->raw_bytes;
    ret->stored_bytes = r->stored_bytes;
    ret->durability = r->durability;
    return before || read_texts(m, r, ret);
}

bool sw_results_read(const struct sw_msg_results *m, uint32_t i, struct spillway_result *ret) {
    return read_result(m, i, NULL, ret);
}

bool sw_results_read_next(const struct sw_msg_results *m, uint32_t i, const struct spillway_result *before,
                          struct spillway_result *ret) {
    return read_result(m, i, i && has_texts_of(&m->results[i], &m->results[i - 1]) ? before : NULL, ret);
}

void sw_client_result_error(struct spillway_error *ret, const struct sw_msg_results *m, uint32_t i) {
    struct spillway_result result;
    struct sw_err err = {0};
    char text[sizeof ret->text];
    const uint32_t scope = m->results[i].scope < SW_SCOPE_NR ? m->results[i].scope : SW_SCOPE_REQUEST;
    (void)sw_results_read(m, i, &result);
    (void)sw_err_set(&err, result.code, (enum sw_scope)scope, "%s", sw_err_text(result.code));
    (void)sw_client_report(ret, &err);
    if (m->text_bytes)
        memcpy(ret->text, sw_msg_text(text, sizeof text, (const uint8_t *)m->text, m->text_bytes), sizeof text);
}
