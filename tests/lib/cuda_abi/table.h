/* table.h - what two headers of the CUDA driver's must have in common; see table.c. */
#ifndef SW_TEST_CUDA_ABI_TABLE_H
#define SW_TEST_CUDA_ABI_TABLE_H

struct sw_cuda_abi_row {
    const char *name; /* NULL: the end */
    unsigned long long value;
};
extern const struct sw_cuda_abi_row sw_cuda_abi_own[], sw_cuda_abi_toolkit[];

#endif
