#include "daemon/session/results.h"

#include "daemon/session/results9.h"
#include <string.h>

void sw_results_fail(struct sw_results *results, unsigned i, const struct sw_err *cause) {
    results->all[i].code = cause->code;
    results->all[i].scope = cause->scope;
    if (results->n_failed++)
        return;
    results->err = *cause;
    if (results->n > 1)
        sw_err_context(&results->err, "request %u of %u", i + 1, results->n);
}

void sw_results_fail_all(struct sw_results *results, const struct sw_err *cause) {
    for (unsigned i = 0; i < results->n; i++) {
        results->all[i].code = cause->code;
        results->all[i].scope = cause->scope;
    }
    results->n_failed = results->n;
    results->err = *cause;
}

void sw_result_of_region(struct sw_result *ret, struct sw_region_id id, const struct sw_region_info *info) {
    ret->id = id;
    ret->raw_bytes = info->raw_bytes;
    ret->stored_bytes = info->stored_bytes;
    ret->codec = sw_codec_name(info->codec);
    ret->tier = info->tier;
    ret->reason = info->reason;
    ret->coder = info->coder;
    ret->state = sw_region_state_name(info->state);
    ret->durability = info->durability;
}

/* Adds a text, if it is new, and returns its number from 1; 0: the text is NULL or empty, or there is no room. */
static uint8_t text_number(struct sw_texts *texts, const char *text) {
    unsigned i = 0;
    if (!text || !text[0])
        return 0;
    while (i < texts->n && strncmp(texts->all[i].text, text, sizeof texts->all[i].text) != 0)
        i++;
    if (i == SW_PROTO_MAX_TEXTS)
        return 0;
    if (i == texts->n)
        sw_msg_set_text((uint8_t *)texts->all[texts->n++].text, sizeof texts->all[i].text, text);
    return (uint8_t)(i + 1);
}

/* The texts are static. */
static bool has_last_texts(const struct sw_texts *texts, const struct sw_result *result) {
    const struct sw_result *last = &texts->last;
    return last->codec == result->codec && last->tier == result->tier && last->reason == result->reason &&
           last->coder == result->coder && last->state == result->state;
}

static void take_texts(struct sw_texts *texts, const struct sw_result *result) {
    texts->last = *result;
    texts->last_wire = (struct sw_wire_result){.codec = text_number(texts, result->codec),
                                               .tier = text_number(texts, result->tier),
                                               .reason = text_number(texts, result->reason),
                                               .coder = text_number(texts, result->coder),
                                               .state = text_number(texts, result->state)};
}

struct sw_wire_result sw_wire_result_of(const struct sw_result *result, struct sw_texts *texts) {
    struct sw_wire_result wire = {.number = result->number, .slot = result->id.slot, .gen = result->id.gen};
    if (result->code) {
        wire.scope = (uint16_t)result->scope;
        wire.error = text_number(texts, sw_err_name(result->code));
        return wire;
    }
    wire.durability = (uint8_t)result->durability;
    if (!has_last_texts(texts, result))
        take_texts(texts, result);
    wire.codec = texts->last_wire.codec;
    wire.tier = texts->last_wire.tier;
    wire.reason = texts->last_wire.reason;
    wire.coder = texts->last_wire.coder;
    wire.state = texts->last_wire.state;
    wire.raw_bytes = result->raw_bytes;
    wire.stored_bytes = result->stored_bytes;
    wire.n_buffers = (uint16_t)result->n_buffers;
    return wire;
}

struct sw_wire_buffer sw_wire_buffer_of(const struct sw_buffer_info *buffer, struct sw_texts *texts) {
    return (struct sw_wire_buffer){.raw_bytes = buffer->raw_bytes,
                                   .chunk_bytes = (uint32_t)buffer->chunk_bytes,
                                   .value_type = (uint16_t)buffer->type,
                                   .codec = text_number(texts, sw_codec_name(buffer->codec)),
                                   .reason = text_number(texts, buffer->reason),
                                   .stored_bytes = buffer->stored_bytes};
}

/* Makes the text that an ERROR would have. Returns its length. */
static size_t fill_text(uint8_t ret[sizeof((struct sw_msg_error *)NULL)->text], const struct sw_err *err) {
    struct sw_msg msg;
    sw_msg_from_err(&msg, 0, err);
    memcpy(ret, msg.u.error.text, sizeof msg.u.error.text);
    return strnlen((const char *)ret, sizeof msg.u.error.text);
}

/* All 0 where the read has failed. */
static void add_frames(struct sw_results_reply *ret, const struct sw_result *result) {
    static const struct sw_wire_frame none;
    for (unsigned i = 0; i < result->n_frames; i++)
        ret->frames[ret->msg.u.results.n_frames++] = result->code || !result->frames ? none : result->frames[i];
}

static void fill10(struct sw_results_reply *ret, const struct sw_results *results) {
    struct sw_msg_results *m = &ret->msg.u.results;
    struct sw_texts texts = {.all = ret->texts};
    sw_msg_init(&ret->msg, SW_MSG_RESULTS);
    for (unsigned i = 0; i < results->n; i++) {
        const struct sw_result *result = &results->all[i];
        ret->results[i] = sw_wire_result_of(result, &texts);
        for (unsigned k = 0; k < ret->results[i].n_buffers; k++)
            ret->buffers[m->n_buffers++] = sw_wire_buffer_of(&result->buffers[k], &texts);
        add_frames(ret, result);
    }
    if (results->n_failed)
        m->text_bytes = (uint16_t)fill_text(ret->text, &results->err);
    m->n_results = (uint16_t)results->n;
    m->n_texts = (uint16_t)texts.n;
    m->service_us = results->service_us < UINT32_MAX ? (uint32_t)results->service_us : UINT32_MAX;
    m->results = ret->results;
    m->buffers = ret->buffers;
    m->frames = ret->frames;
    m->texts = ret->texts;
    m->text = (const char *)ret->text;
}

void sw_results_fill(struct sw_results_reply *ret, unsigned version, unsigned request,
                     const struct sw_results *results) {
    if (version < SW_PROTO_VERSION)
        sw_results9_fill(&ret->msg, request, results);
    else
        fill10(ret, results);
}

int sw_results_reply(struct sw_session *session, const struct sw_msg *request, const struct sw_results *results,
                     struct sw_err *err) {
    struct sw_results_reply reply;
    if (results->n_failed == results->n) {
        *err = results->err;
        return err->code;
    }
    sw_results_fill(&reply, session->version, request->header.type, results);
    sw_session_reply_now(session, request, &reply.msg);
    if (results->n_failed)
        sw_session_report_failure(session, request->header.type, request->header.seq, "", &results->err);
    return SW_REPLY_SENT;
}
