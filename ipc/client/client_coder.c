/* client_coder.c - see client_coder.h. */
#include "ipc/client/client_coder.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/descriptors.h"
#include "ipc/client/coder_memory.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* A caller that waits polls for so long after the last news from the service: frames take less, and a sleeping thread
 * wakes up too late for the next step. */
#define POLL_US 2000
/* Bytes of frame buffers on a GPU that a link asks the service for: more than one coder takes. */
#define FRAME_BYTES ((uint64_t)320 << 20)
/* A refused link asks again after this time, if there is a call for it. */
#define ASK_AGAIN_US ((uint64_t)1000000)
/* The pauses between two looks at the caller's streams. */
#define LEAST_PAUSE_US ((uint64_t)100)
#define MOST_PAUSE_US ((uint64_t)5000)

static struct sw_coder_link *link_of(const struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_coder_link, node);
}

/* ---- news ---------------------------------------------------------------------------------------------------------
 */

static void wake(struct sw_coder_user *user) {
    struct sw_coder_link *link = SW_CONTAINER_OF(user, struct sw_coder_link, user);
    if (!atomic_exchange(&link->is_woken, true))
        (void)eventfd_write(link->event, 1);
}

static void take_news(struct sw_coder_link *link) {
    eventfd_t count;
    /* Nothing to read: the thread that wakes is about to write, and the next call takes that in. */
    if (atomic_load(&link->is_woken) && eventfd_read(link->event, &count) == 0)
        atomic_store(&link->is_woken, false);
    atomic_store(&link->user.has_news, false); /* what comes from now on is seen by the step that follows */
}

/* The call that sleeps has what it waits for, or has to wait for other descriptors. */
static bool must_wake(const struct spillway *c) {
    const struct sw_sleeper *s = &c->sleeper;
    return s->ended && (s->ended(s->arg) || s->link != c->link || s->socket != c->socket ||
                        memcmp(s->timers, c->timers, sizeof s->timers) != 0 || !sw_list_empty(&c->outbox));
}

static int socket_of_sleeper(struct sw_coder_user *user) {
    struct spillway *c = SW_CONTAINER_OF(user, struct sw_coder_link, user)->connection;
    if (!sw_client_step_in(c))
        return -1;
    const int ret = c->sleeper.ended && c->n_in_flight > 0 ? c->socket : -1;
    sw_client_step_out(c);
    return ret;
}

/* No call uses the connection, or one sleeps: another thread goes on with it. */
static void serve(struct sw_coder_user *user) {
    struct spillway *c = SW_CONTAINER_OF(user, struct sw_coder_link, user)->connection;
    if (!sw_client_step_in(c))
        return;
    (void)sw_client_pump(c);
    if (must_wake(c))
        wake(user);
    sw_client_step_out(c);
}

/* ---- making a link ------------------------------------------------------------------------------------------------
 */

static struct spillway_ticket *ask_for(struct sw_coder_link *link, uint64_t bytes,
                                       void (*on_done)(struct spillway_ticket *t), struct sw_err *err);

static void given_back(struct spillway_ticket *t) {
    (void)t;
}

/* Where there is no room now, some may come. What was granted is given back until then. */
static void refuse(struct sw_coder_link *link, const struct sw_err *err) {
    const bool lacks_room = err->code == -SW_ELIMIT || err->code == -SW_ENOMEM || err->code == -SW_EBUSY;
    struct sw_err ignored = {0};
    link->state = SW_CODER_REFUSED;
    (void)sw_client_report(&link->error, err);
    link->asks_again_us = lacks_room ? sw_clock_us() + ASK_AGAIN_US : 0;
    if (lacks_room && link->answer.bytes)
        (void)ask_for(link, 0, given_back, &ignored);
}

static void opened(struct spillway_ticket *t) {
    struct sw_coder_link *link = t->own.owner;
    if (t->error.code) {
        link->error = t->error;
        link->state = SW_CODER_REFUSED;
        return;
    }
    link->state = SW_CODER_READY;
}

static int export_host(int fd, uint64_t bytes, struct sw_export *e, struct sw_err *err) {
    const int rc = sw_export_reserve(e, 1, err);
    if (rc < 0)
        return rc;
    e->fds[0] = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (e->fds[0] < 0)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST, "descriptor of the frame buffers: %s", strerror(errno));
    e->kind = SW_MEM_MEMFD;
    e->bytes = e->part_bytes[0] = bytes;
    return 0;
}

/* Hands the frame buffers over. */
static int hand_over(struct sw_coder_link *link, struct sw_err *err) {
    struct spillway *c = link->connection;
    struct sw_export e = {0};
    uint64_t bytes;
    int fd;
    void *frames = sw_coder_frames(link->coder, &bytes, &fd);
    int rc = fd < 0 ? sw_export_find(&e, &c->cuda, frames, bytes, err) : export_host(fd, bytes, &e, err);
    link->frames_offset = e.offset;
    struct spillway_ticket *t = rc < 0 ? NULL : sw_client_open_memory(c, link->mem, &e, err);
    sw_export_fini(&e);
    if (!t)
        return rc < 0 ? rc : -SW_ENOMEM;
    t->own.on_done = opened;
    t->own.owner = link;
    link->state = SW_CODER_OPENING;
    return 0;
}

static uint64_t known_codecs(void) {
    return (UINT64_C(1) << SW_CODEC_NR) - 1;
}

/* Makes the coder, as the service's answer allows. */
static int make_coder(struct sw_coder_link *link, struct sw_err *err) {
    const struct sw_msg_coder_ok *ok = &link->answer;
    if ((ok->codecs & known_codecs()) != known_codecs())
        return sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_REQUEST, "the service does not know all codecs of this library");
    if (ok->bytes < FRAME_BYTES)
        return sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                          "the service allows %llu bytes of frame buffers, %llu are needed",
                          (unsigned long long)ok->bytes, (unsigned long long)FRAME_BYTES);
    const int rc = sw_coder_get(&link->coder, &link->place, err);
    if (rc < 0)
        return rc;
    sw_coder_add_user(link->coder, &link->user);
    const uint64_t most = sw_coder_new_chunk_bytes(link->coder),
                   allowed = ok->chunk_bytes / SW_CHUNK_ALIGN_BYTES * SW_CHUNK_ALIGN_BYTES;
    link->chunk_bytes = most < allowed ? most : allowed;
    return 0;
}

static bool take_answer(struct spillway_ticket *t, const struct sw_msg *msg) {
    struct sw_coder_link *link = t->own.owner;
    if (msg->header.type == SW_MSG_CODER_OK)
        link->answer = msg->u.coder_ok;
    return msg->header.type == SW_MSG_CODER_OK;
}

static void answered(struct spillway_ticket *t) {
    struct sw_coder_link *link = t->own.owner;
    link->error = t->error;
    link->state = t->error.code ? SW_CODER_REFUSED : SW_CODER_ANSWERED;
}

static struct spillway_ticket *ask_for(struct sw_coder_link *link, uint64_t bytes,
                                       void (*on_done)(struct spillway_ticket *t), struct sw_err *err) {
    struct sw_msg msg;
    sw_msg_init(&msg, SW_MSG_CODER);
    memcpy(msg.u.coder.device_uuid, link->device_uuid, sizeof msg.u.coder.device_uuid);
    msg.u.coder.bytes = bytes;
    struct spillway_ticket *t = sw_client_ask(link->connection, &msg, take_answer, NULL, err);
    if (t) {
        t->own.on_done = on_done;
        t->own.owner = link;
    }
    return t;
}

static int ask(struct sw_coder_link *link, struct sw_err *err) {
    if (!ask_for(link, FRAME_BYTES, answered, err))
        return err->code;
    link->state = SW_CODER_ASKED;
    return 0;
}

/* The coder is made, and its memory handed over, where packets may be sent. */
static void go_on(struct sw_coder_link *link) {
    struct sw_err err = {0};
    if (link->state != SW_CODER_ANSWERED)
        return;
    int rc = link->coder ? 0 : make_coder(link, &err);
    if (!rc)
        rc = hand_over(link, &err);
    if (rc < 0)
        refuse(link, &err);
}

static int watch(const struct sw_coder_link *link) {
    struct epoll_event event = {.events = EPOLLIN};
    return link->event < 0 ? -1 : epoll_ctl(link->connection->epoll, EPOLL_CTL_ADD, link->event, &event);
}

static void link_free(struct sw_coder_link *link) {
    sw_list_remove(&link->node);
    if (link->coder)
        sw_coder_remove_user(link->coder, &link->user);
    sw_coder_put(link->coder);
    if (link->event >= 0)
        (void)close(link->event);
    sw_free(link);
}

/* Closes the frame buffers of contexts that are gone, so that the service releases GPU memory that cannot be used. */
static void retire_gone(struct spillway *c) {
    for (struct sw_list *n = c->coders.next; n != &c->coders; n = n->next) {
        struct sw_coder_link *link = link_of(n);
        struct sw_err err;
        if (link->state != SW_CODER_READY || sw_coder_context_id(link->place.context) == link->place.context_id)
            continue;
        (void)sw_err_set(&err, -SW_EGPULOST, SW_SCOPE_DEVICE, "the CUDA context was destroyed");
        refuse(link, &err);
        sw_client_close_memory(c, link->mem);
    }
}

/* Makes a link that is in no list yet. NULL: no memory, or no descriptor. */
static struct sw_coder_link *link_new(struct spillway *c, const struct sw_cuda_place *place, struct sw_err *err) {
    struct sw_coder_link *link = sw_alloc(sizeof *link);
    if (!link) {
        (void)sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for a coder");
        return NULL;
    }
    sw_list_init(&link->node);
    sw_list_init(&link->user.events);
    sw_list_init(&link->waiting);
    link->connection = c;
    link->user.wake = wake;
    link->user.socket = socket_of_sleeper;
    link->user.serve = serve;
    sw_list_init(&link->user.node);
    link->place = (struct sw_coder_place){
        .context = place->context, .context_id = sw_coder_context_id(place->context), .ordinal = place->ordinal};
    memcpy(link->device_uuid, place->device_uuid, sizeof link->device_uuid);
    link->event = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (watch(link) < 0)
        (void)sw_err_set(err, sw_is_out_of_descriptors(errno) ? -SW_ELIMIT : -SW_EIO, SW_SCOPE_REQUEST,
                         "descriptor of a coder: %s", strerror(errno));
    if (err->code) {
        link_free(link);
        return NULL;
    }
    return link;
}

static struct sw_coder_link *link_with_service(struct spillway *c, const struct sw_cuda_place *place,
                                               struct sw_err *err) {
    struct sw_coder_link *link = link_new(c, place, err);
    if (link && ask(link, err) < 0) {
        link_free(link);
        return NULL;
    }
    if (!link)
        return NULL;
    link->mem = sw_client_new_mem(c);
    sw_list_append(&c->coders, &link->node);
    return link;
}

/* Finds where memory lies. Returns false if no coder works there; err->code is 0 then, or says what failed. */
static bool locate(struct spillway *c, const void *data, uint64_t bytes, bool is_written, struct sw_cuda_place *ret,
                   struct sw_err *err) {
    *ret = (struct sw_cuda_place){0};
    const int kind = sw_cuda_locate(&c->cuda, data, bytes, ret, err);
    if (kind == SW_CUDA_GPU)
        return true;
    return kind == SW_CUDA_UNKNOWN && sw_host_check(data, bytes, is_written, &ret->end, err) == 0;
}

/* Returns false if the link is refused, and it is not time to ask again. */
static bool has_hope(struct sw_coder_link *link) {
    struct sw_err err = {0};
    if (link->state == SW_CODER_READY && sw_coder_is_condemned(link->coder)) {
        (void)sw_err_set(&err, -SW_EIO, SW_SCOPE_REQUEST, "the service may still use the frame buffers");
        refuse(link, &err);
    }
    if (!sw_coder_link_is_refused(link))
        return true;
    if (!link->asks_again_us || sw_clock_us() < link->asks_again_us)
        return false;
    if (ask(link, &err) < 0)
        refuse(link, &err);
    return link->state != SW_CODER_REFUSED;
}

static struct sw_coder_link *link_at(struct spillway *c, const struct sw_cuda_place *place, struct sw_err *err) {
    const uint64_t id = sw_coder_context_id(place->context);
    for (struct sw_list *n = c->coders.next; n != &c->coders; n = n->next) {
        struct sw_coder_link *link = link_of(n);
        if (!link->is_local && link->place.context == place->context && link->place.context_id == id)
            return has_hope(link) ? link : NULL;
    }
    retire_gone(c);
    return link_with_service(c, place, err);
}

struct sw_coder_link *sw_coder_link_find(struct spillway *c, const void *data, uint64_t bytes, bool is_written,
                                         struct sw_coder_range *ret_range, struct sw_err *err) {
    struct sw_cuda_place place;
    if (!c->has_codec || !locate(c, data, bytes, is_written, &place, err))
        return NULL;
    struct sw_coder_link *link = link_at(c, &place, err);
    if (ret_range)
        *ret_range = (struct sw_coder_range){.link = link, .begin = (uintptr_t)data, .end = place.end};
    return link;
}

/* Returns a link at this place whose coder can work on the memory of this process. NULL: there is none. */
static struct sw_coder_link *with_coder(const struct spillway *c, const struct sw_cuda_place *place) {
    const uint64_t id = sw_coder_context_id(place->context);
    for (struct sw_list *n = c->coders.next; n != &c->coders; n = n->next) {
        struct sw_coder_link *link = link_of(n);
        if (link->place.context == place->context && link->place.context_id == id && link->coder &&
            !sw_coder_is_condemned(link->coder))
            return link;
    }
    return NULL;
}

static struct sw_coder_link *link_without_service(struct spillway *c, const struct sw_cuda_place *place,
                                                  struct sw_err *err) {
    struct sw_coder_link *link = link_new(c, place, err);
    if (link && sw_coder_get(&link->coder, &link->place, err) < 0) {
        link_free(link);
        return NULL;
    }
    if (!link)
        return NULL;
    link->is_local = true;
    link->state = SW_CODER_REFUSED;
    sw_coder_add_user(link->coder, &link->user);
    sw_list_append(&c->coders, &link->node);
    return link;
}

int sw_coder_link_local(struct sw_coder_link **ret, struct spillway *c, const void *data, uint64_t bytes,
                        struct sw_err *err) {
    struct sw_cuda_place place;
    if (!locate(c, data, bytes, true, &place, err))
        return err->code ? err->code
                         : sw_err_set(err, -SW_EMEMKIND, SW_SCOPE_REQUEST, "no codec of this process works there");
    struct sw_coder_link *link = with_coder(c, &place);
    if (!link)
        link = link_without_service(c, &place, err);
    if (link)
        *ret = link;
    return link ? 0 : err->code;
}

void sw_coder_link_look_again(struct sw_coder_link *link, uint64_t *since_us) {
    const uint64_t now_us = sw_clock_us();
    if (!*since_us)
        *since_us = link->marked_us = now_us;
    const uint64_t pause_us = (now_us - *since_us) / 8;
    sw_coder_wake_at(link->coder, &link->user,
                     now_us + (pause_us < LEAST_PAUSE_US  ? LEAST_PAUSE_US
                               : pause_us > MOST_PAUSE_US ? MOST_PAUSE_US
                                                          : pause_us));
}

static bool is_settled(const void *arg) {
    const struct sw_coder_link *link = arg;
    return link->state >= SW_CODER_READY;
}

void sw_coder_prepare(struct spillway *c, const void *memory) {
    struct sw_err err = {0};
    struct sw_coder_link *link = sw_coder_link_find(c, memory, 1, false, NULL, &err);
    if (link)
        (void)sw_client_wait_answer(c, is_settled, link, c->timeout_ms, "CODER", &err);
}

/* ---- of a connection ----------------------------------------------------------------------------------------------
 */

/* Frames are with the service. The host device shares its processors with the service. */
static bool is_served(const struct sw_coder_link *link) {
    return link->place.context && link->connection->n_in_flight > 0 && sw_clock_us() - link->active_us < POLL_US;
}

/* The caller's streams mostly get to the call soon. */
static bool is_marked(const struct sw_coder_link *link) {
    return link->marked_us && sw_clock_us() - link->marked_us < POLL_US;
}

void sw_coder_links_step(struct spillway *c) {
    c->polled = NULL;
    for (struct sw_list *n = c->coders.next; n != &c->coders; n = n->next) {
        struct sw_coder_link *link = link_of(n);
        go_on(link);
        if (!link->coder)
            continue;
        take_news(link);
        const bool runs = sw_coder_step(link->coder);
        if (runs || is_served(link) || is_marked(link))
            c->polled = link;
    }
}

bool sw_coder_attend(struct spillway *c) {
    if (c->attended != c->polled)
        sw_coder_unattend(c);
    if (!c->attended && c->polled && sw_coder_attend_begin(c->polled->coder))
        c->attended = c->polled;
    if (c->attended)
        sw_coder_serve_others(c->attended->coder, &c->attended->user);
    return c->attended;
}

void sw_coder_unattend(struct spillway *c) {
    if (c->attended)
        sw_coder_attend_end(c->attended->coder);
    c->attended = NULL;
}

unsigned sw_coder_links_poll(const struct spillway *c, struct pollfd *ret, unsigned most) {
    unsigned n = 0;
    for (struct sw_list *node = c->coders.next; node != &c->coders && n < most; node = node->next) {
        ret[n++] = (struct pollfd){.fd = link_of(node)->event, .events = POLLIN};
    }
    return n;
}

void sw_coder_links_reopen(struct spillway *c) {
    for (struct sw_list *n = c->coders.next; n != &c->coders; n = n->next) {
        struct sw_coder_link *link = link_of(n);
        struct sw_err err = {0};
        if (link->state != SW_CODER_READY && !(link->state == SW_CODER_REFUSED && link->error.code == -SW_ERESTARTED))
            continue;
        if (ask(link, &err) < 0)
            refuse(link, &err);
    }
}

bool sw_coder_links_use(const struct spillway *c, uint32_t mem) {
    for (const struct sw_list *n = c->coders.next; n != &c->coders; n = n->next)
        if (link_of(n)->mem == mem)
            return true;
    return false;
}

void sw_coder_links_free(struct spillway *c) {
    while (!sw_list_empty(&c->coders))
        link_free(link_of(c->coders.next));
}
