#include "spill/tier/nvme/nvme_crypt.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "base/thread.h"
#include "spill/tier/tier.h"

#include <errno.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <string.h>

/* A core encrypts 4 to 5 GB/s (AES-NI): four are enough for any disk. Buffers: as many requests as keep it busy. */
enum { MAX_THREADS = 4, MAX_BUFFERS = 16, TWEAK_BYTES = 16, BLOCK_BYTES = SW_TIER_IO_ALIGN };
#define NO_POSITION (UINT64_MAX - BLOCK_BYTES + 1)

struct worker {
    struct crypt *crypt;
    pthread_t thread;
    EVP_CIPHER_CTX *encrypts, *decrypts;
};

struct crypt {
    struct sw_nvme_method method;
    struct sw_nvme_method *inner;
    pthread_mutex_t lock; /* guards the three lists and `stop`; held for list operations only */
    pthread_cond_t work;
    struct sw_list todo;      /* writes to encrypt, reads to decrypt */
    struct sw_list encrypted; /* to be sent to the disk */
    struct sw_list ended;     /* decrypted, or failed */
    bool stop;
    /* The owner's own: */
    struct sw_list waiting; /* writes without a buffer */
    char *buffers[MAX_BUFFERS];
    unsigned n_free;
    void *memory; /* the buffers' memory */
    unsigned n_workers;
    struct worker workers[MAX_THREADS];
};

static struct crypt *crypt_of(struct sw_nvme_method *method) {
    return SW_CONTAINER_OF(method, struct crypt, method);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static EVP_CIPHER_CTX *cipher_new(const uint8_t *key, bool encrypts) {
    EVP_CIPHER_CTX *cipher = EVP_CIPHER_CTX_new();
    if (cipher && EVP_CipherInit_ex(cipher, EVP_aes_256_xts(), NULL, key, NULL, encrypts) == 1)
        return cipher;
    EVP_CIPHER_CTX_free(cipher);
    return NULL;
}

/* Encrypts or decrypts whole blocks. from and to: the same, or apart. */
static bool run_cipher(EVP_CIPHER_CTX *cipher, const char *from, char *to, size_t bytes, uint64_t position) {
    bool good = true;
    for (size_t at = 0; good && at < bytes; at += BLOCK_BYTES) {
        const uint64_t block = (position + at) / BLOCK_BYTES;
        uint8_t tweak[TWEAK_BYTES] = {0};
        int n = 0;
        memcpy(tweak, &block, sizeof block);
        good = EVP_CipherInit_ex(cipher, NULL, NULL, NULL, tweak, -1) == 1 &&
               EVP_CipherUpdate(cipher, (uint8_t *)to + at, &n, (const uint8_t *)from + at, BLOCK_BYTES) == 1 &&
               n == BLOCK_BYTES;
    }
    return good;
}

bool sw_nvme_crypt_mark(const struct sw_nvme_key *key, uint8_t ret[SW_NVME_MARK_BYTES]) {
    char block[BLOCK_BYTES] = {0};
    EVP_CIPHER_CTX *cipher = cipher_new(key->bytes, true);
    const bool good = cipher && run_cipher(cipher, block, block, sizeof block, NO_POSITION);
    memcpy(ret, block, SW_NVME_MARK_BYTES);
    EVP_CIPHER_CTX_free(cipher);
    return good;
}

/* ---- threads ----------------------------------------------------------------------------------------------------- */

/* After a short read only the whole blocks count: the owner reads the rest again. */
static void run_request(const struct worker *w, struct sw_nvme_request *request) {
    const size_t bytes = request->write ? request->bytes : (size_t)request->result / BLOCK_BYTES * BLOCK_BYTES;
    const char *from = request->write ? request->plain : request->memory;
    if (!run_cipher(request->write ? w->encrypts : w->decrypts, from, request->memory, bytes, request->position))
        request->result = -EIO;
}

static void *thread_main(void *arg) {
    struct worker *w = arg;
    struct crypt *c = w->crypt;
    (void)pthread_mutex_lock(&c->lock);
    for (;;) {
        struct sw_list *node = sw_list_take_first(&c->todo);
        if (node) {
            struct sw_nvme_request *request = SW_CONTAINER_OF(node, struct sw_nvme_request, node);
            (void)pthread_mutex_unlock(&c->lock);
            run_request(w, request);
            (void)pthread_mutex_lock(&c->lock);
            sw_list_append(request->write && request->result == 0 ? &c->encrypted : &c->ended, node);
            /* Under the lock: this may be the last request, after which the owner closes. */
            c->inner->ops->wake(c->inner);
        } else if (c->stop) {
            break;
        } else {
            (void)pthread_cond_wait(&c->work, &c->lock);
        }
    }
    (void)pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the method -------------------------------------------------------------------------------------------------- */

static void hand_over(struct crypt *c, struct sw_nvme_request *request) {
    (void)pthread_mutex_lock(&c->lock);
    sw_list_append(&c->todo, &request->node);
    (void)pthread_cond_signal(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
}

static void encrypt(struct crypt *c, struct sw_nvme_request *request) {
    request->plain = request->memory;
    request->memory = c->buffers[--c->n_free];
    request->result = 0;
    hand_over(c, request);
}

static void crypt_start(struct sw_nvme_method *method, struct sw_nvme_request *request) {
    struct crypt *c = crypt_of(method);
    SW_ASSERT(!request->write || !request->is_plain);
    if (!request->write)
        c->inner->ops->start(c->inner, request);
    else if (c->n_free > 0)
        encrypt(c, request);
    else
        sw_list_append(&c->waiting, &request->node);
}

static void end_request(struct crypt *c, struct sw_nvme_request *request, struct sw_list *ret_ended) {
    if (request->write) {
        c->buffers[c->n_free++] = request->memory;
        request->memory = request->plain;
        struct sw_list *next = sw_list_take_first(&c->waiting);
        if (next)
            encrypt(c, SW_CONTAINER_OF(next, struct sw_nvme_request, node));
    }
    sw_list_append(ret_ended, &request->node);
}

/* Sends encrypted requests on to the disk, and collects requests that have ended. */
static void collect(struct crypt *c, struct sw_list *ret_ended) {
    struct sw_list encrypted, ended, *node;
    sw_list_init(&encrypted);
    sw_list_init(&ended);
    (void)pthread_mutex_lock(&c->lock);
    while ((node = sw_list_take_first(&c->encrypted)))
        sw_list_append(&encrypted, node);
    while ((node = sw_list_take_first(&c->ended)))
        sw_list_append(&ended, node);
    (void)pthread_mutex_unlock(&c->lock);
    while ((node = sw_list_take_first(&encrypted)))
        c->inner->ops->start(c->inner, SW_CONTAINER_OF(node, struct sw_nvme_request, node));
    while ((node = sw_list_take_first(&ended)))
        end_request(c, SW_CONTAINER_OF(node, struct sw_nvme_request, node), ret_ended);
}

/* If a thread woke it, it returns without a request, as if wake() had been called; the owner then waits again. */
static void crypt_wait(struct sw_nvme_method *method, struct sw_list *ret_ended) {
    struct crypt *c = crypt_of(method);
    struct sw_list moved, *node;
    sw_list_init(&moved);
    c->inner->ops->wait(c->inner, &moved);
    while ((node = sw_list_take_first(&moved))) {
        struct sw_nvme_request *request = SW_CONTAINER_OF(node, struct sw_nvme_request, node);
        if (!request->write && !request->is_plain && request->result >= BLOCK_BYTES)
            hand_over(c, request);
        else
            end_request(c, request, ret_ended);
    }
    collect(c, ret_ended);
}

static void crypt_wake(struct sw_nvme_method *method) {
    struct crypt *c = crypt_of(method);
    c->inner->ops->wake(c->inner);
}

/* Frees the method, also a half-opened one; `inner` stays. */
static void crypt_free(struct crypt *c) {
    (void)pthread_mutex_lock(&c->lock);
    c->stop = true;
    (void)pthread_cond_broadcast(&c->work);
    (void)pthread_mutex_unlock(&c->lock);
    while (c->n_workers > 0) {
        struct worker *w = &c->workers[--c->n_workers];
        (void)pthread_join(w->thread, NULL);
        EVP_CIPHER_CTX_free(w->encrypts); /* this clears the key schedule */
        EVP_CIPHER_CTX_free(w->decrypts);
    }
    (void)pthread_cond_destroy(&c->work);
    (void)pthread_mutex_destroy(&c->lock);
    sw_free(c->memory);
    sw_free(c);
}

static void crypt_close(struct sw_nvme_method *method) {
    struct crypt *c = crypt_of(method);
    struct sw_nvme_method *inner = c->inner;
    crypt_free(c);
    inner->ops->close(inner);
}

static const struct sw_nvme_method_ops crypt_ops = {
    .start = crypt_start,
    .wait = crypt_wait,
    .wake = crypt_wake,
    .close = crypt_close,
};

static int start_worker(struct crypt *c, const struct sw_nvme_key *key, struct sw_err *err) {
    struct worker *w = &c->workers[c->n_workers];
    *w = (struct worker){.crypt = c};
    w->encrypts = cipher_new(key->bytes, true);
    w->decrypts = cipher_new(key->bytes, false);
    int rc = 0;
    if (!w->encrypts || !w->decrypts)
        rc = sw_err_set(err, -SW_ENOTSUP, SW_SCOPE_DAEMON, "libcrypto has no AES-256-XTS");
    else if (sw_thread_start(&w->thread, thread_main, w) != 0)
        rc = sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "cannot start a thread for the NVMe tier");
    if (!rc) {
        c->n_workers++;
        return 0;
    }
    EVP_CIPHER_CTX_free(w->encrypts);
    EVP_CIPHER_CTX_free(w->decrypts);
    return rc;
}

int sw_nvme_crypt_open(struct sw_nvme_method **ret, struct sw_nvme_method *inner, unsigned depth,
                       const struct sw_nvme_key *key, struct sw_err *err) {
    const unsigned n_buffers = depth < MAX_BUFFERS ? depth : MAX_BUFFERS;
    struct crypt *c = sw_alloc(sizeof *c);
    char *memory = sw_alloc(n_buffers * SW_NVME_REQUEST_BYTES + BLOCK_BYTES);
    if (!c || !memory) {
        sw_free(c);
        sw_free(memory);
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_DAEMON, "out of memory for the NVMe tier");
    }
    c->method.ops = &crypt_ops;
    c->inner = inner;
    c->memory = memory;
    memory += BLOCK_BYTES - (uintptr_t)memory % BLOCK_BYTES; /* aligned for direct I/O */
    for (; c->n_free < n_buffers; c->n_free++)
        c->buffers[c->n_free] = memory + c->n_free * SW_NVME_REQUEST_BYTES;
    (void)pthread_mutex_init(&c->lock, NULL);
    (void)pthread_cond_init(&c->work, NULL);
    sw_list_init(&c->todo);
    sw_list_init(&c->encrypted);
    sw_list_init(&c->ended);
    sw_list_init(&c->waiting);
    for (unsigned i = 0, n = sw_thread_cpus(1, MAX_THREADS); i < n; i++) {
        const int rc = start_worker(c, key, err);
        if (rc < 0) {
            crypt_free(c);
            return rc;
        }
    }
    *ret = &c->method;
    return 0;
}
