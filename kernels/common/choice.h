/* choice: for functions that choose how a kernel is built and launched, as numbers from numbers. Plain C that compiles for a
 * GPU, too: where only PyTorch is there to launch the kernels, the GPU itself is asked, and nothing is written twice. */
#pragma once

#ifdef __CUDACC__
#define CHOICE_FUNCTION static __device__
#else
#define CHOICE_FUNCTION static inline
#endif

#define WGMMA_CAPABILITY 90 /* the only one with wgmma */

#define GPU_DRIVER_SHARED 1024 /* bytes of shared memory that the driver takes beside those of each block */

/* What counts of a GPU. */
struct choice_machine {
	int capability; /* 90 is compute capability 9.0 */
	int multiprocessors;
	int shared_per_block, shared_per_multiprocessor; /* bytes */
};
