#include "spill/tier/remote/object_wire.h"

#include "base/thread.h"

enum { LONGEST_SLEEP_MS = 1000 };

static struct sw_object_attempt *attempt_of(struct sw_list *node) {
    return SW_CONTAINER_OF(node, struct sw_object_attempt, node);
}

static void end(struct sw_object_wire *w, struct sw_object_attempt *a, CURLcode code) {
    sw_list_remove(&a->node);
    a->code = code;
    w->ended(w->arg, a);
}

/* Returns whether the wire goes on. */
static bool take_inbox(struct sw_object_wire *w) {
    struct sw_list fresh, *node;
    sw_list_init(&fresh);
    (void)pthread_mutex_lock(&w->lock);
    sw_list_append_all(&fresh, &w->inbox);
    const bool goes_on = !w->stop;
    (void)pthread_mutex_unlock(&w->lock);
    while ((node = sw_list_take_first(&fresh))) {
        sw_list_append(&w->running, node);
        if (curl_multi_add_handle(w->multi, attempt_of(node)->easy) != CURLM_OK)
            end(w, attempt_of(node), CURLE_OUT_OF_MEMORY);
    }
    return goes_on;
}

static void collect(struct sw_object_wire *w) {
    CURLMsg *message;
    int n_left;
    while ((message = curl_multi_info_read(w->multi, &n_left))) {
        struct sw_object_attempt *a = NULL;
        const CURLcode code = message->data.result;
        (void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&a);
        (void)curl_multi_remove_handle(w->multi, a->easy); /* `message` is gone */
        end(w, a, code);
    }
}

static void *thread_main(void *arg) {
    struct sw_object_wire *w = arg;
    while (take_inbox(w)) {
        int n_running;
        (void)curl_multi_perform(w->multi, &n_running);
        collect(w);
        (void)curl_multi_poll(w->multi, NULL, 0, LONGEST_SLEEP_MS, NULL);
    }
    while (!sw_list_empty(&w->running)) {
        struct sw_object_attempt *a = attempt_of(w->running.next);
        (void)curl_multi_remove_handle(w->multi, a->easy);
        end(w, a, CURLE_ABORTED_BY_CALLBACK);
    }
    return NULL;
}

void sw_object_wire_begin(struct sw_object_wire *w, struct sw_object_attempt *a) {
    (void)pthread_mutex_lock(&w->lock);
    sw_list_append(&w->inbox, &a->node);
    (void)curl_multi_wakeup(w->multi);
    (void)pthread_mutex_unlock(&w->lock);
}

int sw_object_wire_init(struct sw_object_wire *w, unsigned most,
                        void (*ended)(void *arg, struct sw_object_attempt *attempt), void *arg) {
    w->ended = ended;
    w->arg = arg;
    (void)pthread_mutex_init(&w->lock, NULL);
    sw_list_init(&w->idle);
    sw_list_init(&w->inbox);
    sw_list_init(&w->running);
    w->multi = curl_multi_init();
    w->has_thread = w->multi && curl_multi_setopt(w->multi, CURLMOPT_MAXCONNECTS, (long)most) == CURLM_OK &&
                    sw_thread_start(&w->thread, thread_main, w) == 0;
    return w->has_thread ? 0 : -SW_ENOMEM;
}

void sw_object_wire_stop(struct sw_object_wire *w) {
    if (!w->has_thread)
        return;
    (void)pthread_mutex_lock(&w->lock);
    w->stop = true;
    (void)curl_multi_wakeup(w->multi);
    (void)pthread_mutex_unlock(&w->lock);
    (void)pthread_join(w->thread, NULL);
    w->has_thread = false;
}

void sw_object_wire_fini(struct sw_object_wire *w) {
    if (!w->ended)
        return;
    sw_object_wire_stop(w);
    if (w->multi)
        (void)curl_multi_cleanup(w->multi);
    (void)pthread_mutex_destroy(&w->lock);
    w->ended = NULL;
}
