/* mem_kind.h - how a client's memory travels from libspillway to a device; the words that both sides share.
 *
 * Wire values: never renumber. */
#ifndef SW_BASE_MEM_KIND_H
#define SW_BASE_MEM_KIND_H

enum sw_mem_kind {
    SW_MEM_MEMFD,     /* one memfd, sealed with F_SEAL_SHRINK */
    SW_MEM_CUDA_IPC,  /* cudaMalloc: one legacy IPC handle of the allocation's base */
    SW_MEM_CUDA_VMM,  /* cuMemCreate: one descriptor per physical allocation, mapped one after the other */
    SW_MEM_CUDA_POOL, /* cudaMallocAsync: the pool's descriptor and the exported pointer */
    SW_MEM_KIND_NR
};

/* Longest allocation of a memory pool that is handed over. cuMemPoolImportPointer() of driver 580.159 crashes its
 * process for one of 6.0 GB (5.2 GB is fine, and so is any smaller one in a pool that holds more); half a gigabyte of
 * margin is left. */
#define SW_MEM_POOL_MAX_BYTES ((unsigned long long)4608 << 20)

enum { SW_MEM_HANDLE_BYTES = 64, SW_DEVICE_UUID_BYTES = 16, SW_MEM_MAX_PARTS = 4096 };

#endif
