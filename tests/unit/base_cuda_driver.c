/* Our header of the CUDA driver, which builds without the CUDA Toolkit use, against the Toolkit's. */
#include <cuda.h> /* without it there is nothing to compare */

#include "tests/lib/cuda_abi/table.h"
#include "tests/lib/run.h"
#include <check.h>
#include <stddef.h>

START_TEST(our_header_is_the_toolkits) {
    unsigned n = 0;
    for (; sw_cuda_abi_own[n].name; n++)
        ck_assert_msg(sw_cuda_abi_own[n].value == sw_cuda_abi_toolkit[n].value, "%s: %llu here, %llu there",
                      sw_cuda_abi_own[n].name, sw_cuda_abi_own[n].value, sw_cuda_abi_toolkit[n].value);
    ck_assert_uint_gt(n, 60);
    ck_assert_ptr_null(sw_cuda_abi_toolkit[n].name);
}
END_TEST

int main(void) {
    Suite *suite = suite_create("cuda_driver");
    TCase *tcase = tcase_create("header");
    tcase_add_test(tcase, our_header_is_the_toolkits);
    suite_add_tcase(suite, tcase);
    return sw_test_run(suite, CK_FORK);
}
