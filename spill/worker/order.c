#include "spill/worker/order.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/device/memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

struct sw_order_page {
    unsigned n_refs;
    uint64_t bytes, mapped_bytes;
    struct sw_budget *kept;
    const _Atomic uint64_t *words;
};

static int check(int fd, uint64_t bytes, struct sw_err *err) {
    struct stat st;
    if (bytes < sizeof(uint64_t) || bytes > SW_ORDER_MAX_BYTES || bytes % sizeof(uint64_t))
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST,
                          "order page of %llu bytes: must be a multiple of 8, at most %llu", (unsigned long long)bytes,
                          (unsigned long long)SW_ORDER_MAX_BYTES);
    const int rc = sw_memfd_check(fd, bytes, err);
    if (rc < 0)
        return rc;
    if (!(fcntl(fd, F_GET_SEALS) & F_SEAL_GROW))
        return sw_err_set(err, -SW_EUNSEALED, SW_SCOPE_REQUEST, "memfd of the order page lacks F_SEAL_GROW");
    if (fstat(fd, &st) != 0 || (uint64_t)st.st_size != bytes)
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "memfd of the order page holds %lld bytes, not %llu",
                          (long long)st.st_size, (unsigned long long)bytes);
    return 0;
}

static int map(struct sw_order_page *page, int fd, struct sw_err *err) {
    void *words = mmap(NULL, page->mapped_bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED)
        return sw_err_set(err, errno == ENOMEM ? -SW_ENOMEM : -SW_EFDS, SW_SCOPE_REQUEST,
                          "the order page cannot be mapped: %s", strerror(errno));
    page->words = words;
    return 0;
}

static uint64_t whole_pages(uint64_t bytes) {
    const uint64_t page_bytes = (uint64_t)getpagesize();
    return (bytes + page_bytes - 1) / page_bytes * page_bytes;
}

/* Returns the most that a mapping can cost us: if the client leaves holes, reading makes pages at our expense. */
static uint64_t kept_bytes(const struct sw_order_page *page) {
    return sizeof *page + page->mapped_bytes;
}

static int page_new(struct sw_order_page **ret, uint64_t bytes, struct sw_budget *kept, struct sw_err *err) {
    struct sw_order_page new = {.n_refs = 1, .bytes = bytes, .mapped_bytes = whole_pages(bytes), .kept = kept};
    const int rc = sw_budget_take(kept, kept_bytes(&new), "an order page", err);
    if (rc)
        return rc;
    *ret = sw_alloc(sizeof new);
    if (!*ret) {
        sw_budget_give(kept, kept_bytes(&new));
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "out of memory for an order page");
    }
    **ret = new;
    return 0;
}

static void page_free(struct sw_order_page *page) {
    sw_budget_give(page->kept, kept_bytes(page));
    sw_free(page);
}

int sw_order_page_open(struct sw_order_page **ret, int fd, uint64_t bytes, struct sw_budget *kept, struct sw_err *err) {
    struct sw_order_page *page;
    int rc = check(fd, bytes, err);
    if (!rc)
        rc = page_new(&page, bytes, kept, err);
    if (rc)
        return rc;
    rc = map(page, fd, err);
    if (rc)
        page_free(page);
    else
        *ret = page;
    return rc;
}

void sw_order_page_ref(struct sw_order_page *page) {
    if (page)
        page->n_refs++;
}

void sw_order_page_unref(struct sw_order_page *page) {
    if (!page || --page->n_refs > 0)
        return;
    void *words;
    memcpy(&words, &page->words, sizeof words); /* munmap needs the pointer without its qualifiers */
    SW_ASSERT(munmap(words, page->mapped_bytes) == 0);
    page_free(page);
}

int sw_order_find(struct sw_order *ret, struct sw_order_page *page, uint32_t word, uint64_t value, struct sw_err *err) {
    if (word >= page->bytes / sizeof page->words[0])
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "the order page has %llu words, and no word %u",
                          (unsigned long long)(page->bytes / sizeof page->words[0]), word);
    if (value == 0)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST,
                          "an order cannot wait for the value 0, which each word starts with");
    *ret = (struct sw_order){.page = page, .word = &page->words[word], .value = value};
    return 0;
}

bool sw_order_is_reached(const struct sw_order *order) {
    return !order->page || atomic_load_explicit(order->word, memory_order_acquire) >= order->value;
}
