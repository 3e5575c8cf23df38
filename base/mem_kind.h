/* mem_kind.h - the kinds of client memory, and how the client's library hands each kind to the service.
 *
 * The numbers go over the wire: never change them. */
#ifndef SW_BASE_MEM_KIND_H
#define SW_BASE_MEM_KIND_H

enum sw_mem_kind {
    SW_MEM_MEMFD,     /* one memfd, sealed with F_SEAL_SHRINK */
    SW_MEM_CUDA_IPC,  /* cudaMalloc: one legacy IPC handle for the allocation's base */
    SW_MEM_CUDA_VMM,  /* cuMemCreate: one descriptor per physical allocation, mapped one after the other */
    SW_MEM_CUDA_POOL, /* cudaMallocAsync: the pool's descriptor and the exported pointer */
    SW_MEM_KIND_NR
};

/* The largest allocation from a memory pool that is handed over. In driver 580.159, cuMemPoolImportPointer() crashes
 * its process for an allocation of 6.0 GB. An allocation of 5.2 GB works, as does any smaller one, however much its
 * pool holds. The limit leaves half a gigabyte of margin. */
#define SW_MEM_POOL_MAX_BYTES ((unsigned long long)4608 << 20)

enum { SW_MEM_HANDLE_BYTES = 64, SW_DEVICE_UUID_BYTES = 16, SW_MEM_MAX_PARTS = 4096 };

#endif
