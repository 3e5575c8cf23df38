#include "ipc/client/mark.h"

#include "base/alloc.h"
#include "base/descriptors.h"
#include "base/list.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct sw_mark {
    struct sw_list node; /* in the page's list `unused` or `late`, or in none */
    struct sw_mark_page *page;
    unsigned n_refs;
    void *context;
    uint64_t value;
};

struct sw_mark_page {
    struct sw_list node; /* in `pages`, while no connection has it */
    pid_t process;       /* made it; a forked child must not use its parent's words */
    int fd;
    _Atomic uint64_t *words;
    struct sw_list unused; /* marks whose word has its value */
    struct sw_list late;   /* marks without a waiter whose stream has not written yet */
    struct sw_mark marks[SW_MARK_PAGE_WORDS];
};

static pthread_mutex_t pages_lock = PTHREAD_MUTEX_INITIALIZER;
static struct sw_list pages = {&pages, &pages};

/* ---- pages ------------------------------------------------------------------------------------------------------- */

/* Makes the memfd with all of its pages, which are charged to this process. */
static int make_file(struct sw_mark_page *page, struct sw_err *err) {
    const size_t bytes = SW_MARK_PAGE_WORDS * sizeof page->words[0];
    page->fd = memfd_create("spillway-order", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (page->fd < 0)
        return sw_err_set(err, sw_is_out_of_descriptors(errno) ? -SW_ELIMIT : sw_err_from_errno(errno),
                          SW_SCOPE_REQUEST, "memfd for an order page: %s", strerror(errno));
    if (ftruncate(page->fd, (off_t)bytes) < 0 || fcntl(page->fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) < 0)
        return sw_err_set(err, sw_err_from_errno(errno), SW_SCOPE_REQUEST, "order page: %s", strerror(errno));
    void *words = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, page->fd, 0);
    if (words == MAP_FAILED)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "map an order page: %s", strerror(errno));
    page->words = words;
    return 0;
}

static int page_new(struct sw_mark_page **ret, struct sw_err *err) {
    struct sw_mark_page *page = sw_alloc(sizeof *page);
    if (!page)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for an order page");
    const int rc = make_file(page, err);
    if (rc < 0) {
        if (page->fd >= 0)
            (void)close(page->fd);
        sw_free(page);
        return rc;
    }
    page->process = getpid();
    sw_list_init(&page->node);
    sw_list_init(&page->unused);
    sw_list_init(&page->late);
    for (unsigned i = 0; i < SW_MARK_PAGE_WORDS; i++) {
        page->marks[i].page = page;
        sw_list_append(&page->unused, &page->marks[i].node);
    }
    *ret = page;
    return 0;
}

static struct sw_mark_page *find_page(void) {
    struct sw_mark_page *found = NULL;
    (void)pthread_mutex_lock(&pages_lock);
    for (struct sw_list *n = pages.next; n != &pages && !found; n = n->next)
        if (SW_CONTAINER_OF(n, struct sw_mark_page, node)->process == getpid())
            found = SW_CONTAINER_OF(n, struct sw_mark_page, node);
    if (found)
        sw_list_remove(&found->node);
    (void)pthread_mutex_unlock(&pages_lock);
    return found;
}

int sw_mark_page_get(struct sw_mark_page **ret, struct sw_err *err) {
    struct sw_mark_page *page = find_page();
    if (!page)
        return page_new(ret, err);
    *ret = page;
    return 0;
}

void sw_mark_page_put(struct sw_mark_page *page) {
    if (!page)
        return;
    (void)pthread_mutex_lock(&pages_lock);
    sw_list_append(&pages, &page->node);
    (void)pthread_mutex_unlock(&pages_lock);
}

int sw_mark_page_fd(const struct sw_mark_page *page) {
    return page->fd;
}

void *sw_mark_page_data(const struct sw_mark_page *page) {
    return page->words;
}

uint64_t sw_mark_page_bytes(const struct sw_mark_page *page) {
    return SW_MARK_PAGE_WORDS * sizeof page->words[0];
}

/* ---- marks ------------------------------------------------------------------------------------------------------- */

static _Atomic uint64_t *word_of(const struct sw_mark *mark) {
    return &mark->page->words[sw_mark_word(mark)];
}

/* Frees the late marks that streams have written. */
static void collect_late(struct sw_mark_page *page) {
    for (struct sw_list *n = page->late.next, *next; n != &page->late; n = next) {
        next = n->next;
        if (!sw_mark_is_reached(SW_CONTAINER_OF(n, struct sw_mark, node)))
            continue;
        sw_list_remove(n);
        sw_list_append(&page->unused, n);
    }
}

struct sw_mark *sw_mark_new(struct sw_mark_page *page, void *context, struct sw_err *err) {
    if (sw_list_empty(&page->unused))
        collect_late(page);
    struct sw_list *node = sw_list_take_first(&page->unused);
    if (!node) {
        (void)sw_err_set(err, -SW_ELIMIT, SW_SCOPE_REQUEST,
                         "%d operations of this connection wait for their streams, the most possible",
                         (int)SW_MARK_PAGE_WORDS);
        return NULL;
    }
    struct sw_mark *mark = SW_CONTAINER_OF(node, struct sw_mark, node);
    mark->n_refs = 1;
    mark->context = context;
    mark->value++;
    return mark;
}

void *sw_mark_context(const struct sw_mark *mark) {
    return mark->context;
}

struct sw_mark *sw_mark_ref(struct sw_mark *mark) {
    mark->n_refs++;
    return mark;
}

void sw_mark_unref(struct sw_mark *mark) {
    if (!mark || --mark->n_refs > 0)
        return;
    if (sw_mark_is_reached(mark))
        sw_list_prepend(&mark->page->unused, &mark->node);
    else
        sw_list_append(&mark->page->late, &mark->node);
}

uint32_t sw_mark_word(const struct sw_mark *mark) {
    return (uint32_t)(mark - mark->page->marks);
}

uint64_t sw_mark_value(const struct sw_mark *mark) {
    return mark->value;
}

volatile void *sw_mark_address(const struct sw_mark *mark) {
    return word_of(mark);
}

bool sw_mark_is_reached(const struct sw_mark *mark) {
    return atomic_load_explicit(word_of(mark), memory_order_acquire) >= mark->value;
}

void sw_mark_write(void *mark) {
    atomic_store_explicit(word_of(mark), ((const struct sw_mark *)mark)->value, memory_order_release);
}
