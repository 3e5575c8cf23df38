#include "spill/order.h"

#include "base/alloc.h"
#include "base/assert.h"
#include "spill/device/memfd.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

struct sw_order_page {
    unsigned n_refs;
    uint64_t bytes;
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

int sw_order_page_open(struct sw_order_page **ret, int fd, uint64_t bytes, struct sw_err *err) {
    const int rc = check(fd, bytes, err);
    if (rc < 0)
        return rc;
    struct sw_order_page *page = sw_alloc(sizeof *page);
    if (!page)
        return sw_err_set(err, -SW_ENOMEM, SW_SCOPE_REQUEST, "no memory for an order page");
    void *words = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    if (words == MAP_FAILED) {
        const int cause = errno;
        sw_free(page);
        return sw_err_set(err, cause == ENOMEM ? -SW_ENOMEM : -SW_EFDS, SW_SCOPE_REQUEST, "map the order page: %s",
                          strerror(cause));
    }
    page->n_refs = 1;
    page->bytes = bytes;
    page->words = words;
    *ret = page;
    return 0;
}

void sw_order_page_ref(struct sw_order_page *page) {
    if (page)
        page->n_refs++;
}

void sw_order_page_unref(struct sw_order_page *page) {
    if (!page || --page->n_refs > 0)
        return;
    void *words;
    memcpy(&words, &page->words, sizeof words); /* munmap wants it without its qualifiers */
    SW_ASSERT(munmap(words, page->bytes) == 0);
    sw_free(page);
}

int sw_order_find(struct sw_order *ret, struct sw_order_page *page, uint32_t word, uint64_t value, struct sw_err *err) {
    if (word >= page->bytes / sizeof page->words[0])
        return sw_err_set(err, -SW_ERANGE, SW_SCOPE_REQUEST, "the order page has %llu words: there is no word %u",
                          (unsigned long long)(page->bytes / sizeof page->words[0]), word);
    if (value == 0)
        return sw_err_set(err, -SW_EINVAL, SW_SCOPE_REQUEST, "nothing waits for the value 0, which a word starts with");
    *ret = (struct sw_order){.page = page, .word = &page->words[word], .value = value};
    return 0;
}
