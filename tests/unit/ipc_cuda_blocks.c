/* In which context the client library works with memory that has none of its own, and its blocks of GPU memory: on a
 * CUDA driver that the test plays call by call. */
#include "tests/lib/played_cuda.h"
#include "tests/lib/run.h"

#include <string.h>

/* ---- the played driver: a device is its ordinal and 100 more, a primary context 1000 more -------------------------
 */

enum { DATA = 0x1000, BLOCK = 0x5000, CURRENT = 0x10, STREAM = 0x100, BYTES = 4096 };

static struct driver {
    int ordinal;         /* of the memory */
    uintptr_t current;   /* the context of this thread; 0: none */
    int current_ordinal; /* its device's */
    CUresult retains, allocates, creates;
    unsigned n_retained, n_released, n_pushed, n_blocks, n_streams;
    uintptr_t pushed; /* context */
    bool is_copying;  /* the stream has work */
} driver;

static CUresult attributes(unsigned n, CUpointer_attribute *names, void **values, CUdeviceptr address) {
    for (unsigned i = 0; i < n; i++) {
        if (names[i] == CU_POINTER_ATTRIBUTE_MEMORY_TYPE)
            *(unsigned *)values[i] = CU_MEMORYTYPE_DEVICE;
        if (names[i] == CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL)
            *(int *)values[i] = driver.ordinal;
    }
    return address == DATA ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult device_get(CUdevice *ret, int ordinal) {
    *ret = 100 + ordinal;
    return CUDA_SUCCESS;
}

static CUresult current(CUcontext *ret) {
    *ret = sw_played_context(driver.current);
    return CUDA_SUCCESS;
}

static CUresult current_device(CUdevice *ret) {
    *ret = 100 + driver.current_ordinal;
    return driver.current ? CUDA_SUCCESS : CUDA_ERROR_INVALID_CONTEXT;
}

static CUresult primary_retain(CUcontext *ret, CUdevice device) {
    *ret = sw_played_context((uintptr_t)device + 1000); /* also if it fails */
    driver.n_retained += driver.retains == CUDA_SUCCESS;
    return driver.retains;
}

static CUresult primary_release(CUdevice device) {
    ck_assert_int_eq(device, 100 + driver.ordinal);
    driver.n_released++;
    return CUDA_SUCCESS;
}

static CUresult push(CUcontext context) {
    memcpy(&driver.pushed, &context, sizeof context);
    driver.n_pushed++;
    return CUDA_SUCCESS;
}

static CUresult pop(CUcontext *ret) {
    *ret = sw_played_context(driver.pushed);
    driver.n_pushed--;
    return CUDA_SUCCESS;
}

static CUresult allocate(CUdeviceptr *ret, size_t bytes) {
    ck_assert(bytes == BYTES && driver.n_pushed == 1);
    *ret = BLOCK; /* also if it fails */
    driver.n_blocks += driver.allocates == CUDA_SUCCESS;
    return driver.allocates;
}

static CUresult free_block(CUdeviceptr address) {
    ck_assert(address == BLOCK && driver.n_pushed == 1 && !driver.is_copying);
    driver.n_blocks--;
    return CUDA_SUCCESS;
}

static CUresult stream_create(CUstream *ret, unsigned flags) {
    ck_assert_uint_eq(flags, CU_STREAM_NON_BLOCKING);
    *ret = sw_played_stream(STREAM); /* also if it fails */
    driver.n_streams += driver.creates == CUDA_SUCCESS;
    return driver.creates;
}

static CUresult stream_synchronize(CUstream stream) {
    ck_assert(stream == sw_played_stream(STREAM) && driver.n_pushed == 1);
    driver.is_copying = false;
    return CUDA_SUCCESS;
}

static CUresult stream_destroy(CUstream stream) {
    ck_assert(stream == sw_played_stream(STREAM));
    driver.n_streams--;
    return CUDA_SUCCESS;
}

static CUresult copy(CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) {
    ck_assert(to == BLOCK && from == DATA && bytes == BYTES && stream == sw_played_stream(STREAM));
    driver.is_copying = true;
    return CUDA_SUCCESS;
}

static struct sw_cuda *cuda;
static struct sw_err err;

static void setup(void) {
    driver = (struct driver){.ordinal = 1};
    cuda = sw_played_cuda(&(struct sw_cuda){.attributes = attributes,
                                            .device_get = device_get,
                                            .current = current,
                                            .current_device = current_device,
                                            .primary_retain = primary_retain,
                                            .primary_release = primary_release,
                                            .push = push,
                                            .pop = pop,
                                            .allocate = allocate,
                                            .free = free_block,
                                            .stream_create = stream_create,
                                            .stream_synchronize = stream_synchronize,
                                            .stream_destroy = stream_destroy,
                                            .copy = copy});
}

/* What was taken was given back. */
static void teardown(void) {
    sw_cuda_free(cuda);
    ck_assert_uint_eq(driver.n_released, driver.n_retained);
    ck_assert_uint_eq(driver.n_pushed + driver.n_blocks + driver.n_streams, 0);
}

/* ---- contexts ---------------------------------------------------------------------------------------------------- */

static int find(uintptr_t expected) {
    struct sw_cuda_pointer p = {.ordinal = driver.ordinal};
    const int rc = sw_cuda_find_context(cuda, &p, &err);
    ck_assert(rc < 0 || p.context == sw_played_context(expected));
    return rc;
}

START_TEST(the_current_context_serves_its_own_device) {
    driver.current = CURRENT;
    driver.current_ordinal = 1;
    ck_assert_int_eq(find(CURRENT), 0);
    ck_assert_uint_eq(driver.n_retained, 0);
    driver.current_ordinal = 0; /* another device's memory */
    ck_assert_int_eq(find(1101), 0);
    driver.current = 0;
    ck_assert_int_eq(find(1101), 0);
    ck_assert_uint_eq(driver.n_retained, 1); /* until the connection ends */
}
END_TEST

START_TEST(a_context_that_could_not_be_had_is_asked_for_again) {
    driver.retains = CUDA_ERROR_OUT_OF_MEMORY;
    for (unsigned i = 0; i < 2; i++)
        ck_assert_int_eq(find(0), -SW_EGPU);
    driver.retains = CUDA_SUCCESS;
    ck_assert_int_eq(find(1101), 0);
}
END_TEST

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static const void *data(void) {
    const void *ret;
    const uintptr_t address = DATA;
    memcpy(&ret, &address, sizeof ret);
    return ret;
}

static int make(struct sw_cuda_block **ret) {
    return sw_cuda_block_new(ret, cuda, data(), BYTES, &err);
}

/* And not before its last copy has ended. */
START_TEST(a_block_is_freed_with_all_it_has) {
    struct sw_cuda_block *block = NULL;
    ck_assert_int_eq(make(&block), 0);
    ck_assert_uint_eq(driver.n_pushed, 0);
    ck_assert_uint_eq(driver.pushed, 1101);
    ck_assert_int_eq(sw_cuda_block_copy(block, sw_cuda_block_data(block), data(), BYTES, &err), 0);
    sw_cuda_block_free(block);
    ck_assert(!driver.is_copying);
}
END_TEST

START_TEST(a_block_that_is_not_complete_is_none) {
    struct sw_cuda_block *block = NULL;
    driver.allocates = CUDA_ERROR_OUT_OF_MEMORY;
    ck_assert_int_eq(make(&block), -SW_ENOMEM);
    driver.allocates = CUDA_ERROR_INVALID_CONTEXT;
    ck_assert_int_eq(make(&block), -SW_EGPU);
    driver.allocates = CUDA_SUCCESS;
    driver.creates = CUDA_ERROR_OUT_OF_MEMORY;
    ck_assert_int_eq(make(&block), -SW_EGPU);
    ck_assert_ptr_null(block);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_blocks");
    TCase *tcase = tcase_create("blocks");
    tcase_add_checked_fixture(tcase, setup, teardown);
    tcase_add_test(tcase, the_current_context_serves_its_own_device);
    tcase_add_test(tcase, a_context_that_could_not_be_had_is_asked_for_again);
    tcase_add_test(tcase, a_block_is_freed_with_all_it_has);
    tcase_add_test(tcase, a_block_that_is_not_complete_is_none);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
