/* Compares lib/predict/occupancy.c with the calculator of the CUDA toolkit, cuda_occupancy.h, for all registers, sizes of
 * blocks and many amounts of shared memory on all known GPUs. Prints the first differences; ends with 1 if there are any. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include <cuda_occupancy.h>

#include "gpu/models.h"
#include "predict/occupancy.h"

static cudaOccDeviceProp calculators_gpu(const struct gpu_properties *gpu, int threads)
{
	cudaOccDeviceProp device;

	memset(&device, 0, sizeof(device));
	device.computeMajor = gpu->capability / 10;
	device.computeMinor = gpu->capability % 10;
	device.maxThreadsPerBlock = 1024;
	device.maxThreadsPerMultiprocessor = threads;
	device.regsPerBlock = 65536;
	device.regsPerMultiprocessor = gpu->registers;
	device.warpSize = 32;
	device.sharedMemPerBlock = 49152;
	device.sharedMemPerMultiprocessor = (size_t)gpu->shared_per_multiprocessor;
	device.numSms = gpu->multiprocessors;
	device.sharedMemPerBlockOptin = (size_t)gpu->shared_per_block;
	device.reservedSharedMemPerBlock = 1024;
	return device;
}

/* -1: the calculator knows no answer. */
static int calculated(const cudaOccDeviceProp *device, int registers, int threads, int shared)
{
	cudaOccFuncAttributes kernel;
	cudaOccDeviceState state;
	cudaOccResult result;

	memset(&kernel, 0, sizeof(kernel));
	memset(&state, 0, sizeof(state));
	state.carveoutConfig = SHAREDMEM_CARVEOUT_MAX_SHARED;
	kernel.maxThreadsPerBlock = INT_MAX;
	kernel.numRegs = registers;
	kernel.maxDynamicSharedSizeBytes = (size_t)shared;
	kernel.shmemLimitConfig = FUNC_SHMEM_LIMIT_OPTIN;
	if (cudaOccMaxActiveBlocksPerMultiprocessor(
		    &result, device, &kernel, &state, threads, (size_t)shared) != CUDA_OCC_SUCCESS)
		return -1;
	return result.activeBlocksPerMultiprocessor;
}

int main(void)
{
	long compared = 0, different = 0;

	for (size_t i = 0; i < gpu_model_count; i++) {
		struct gpu_properties gpu = gpu_model_properties(&gpu_models[i]);
		/* what the driver says of such a GPU */
		int most = gpu.capability == 80 || gpu.capability == 90 || gpu.capability == 100 ? 2048
												 : 1536;
		cudaOccDeviceProp device = calculators_gpu(&gpu, most);

		for (int registers = 16; registers <= 255; registers++)
			for (int threads = 32; threads <= 1024; threads += 32)
				for (int shared = 0; shared <= gpu.shared_per_block;
					shared += 5000 + shared % 777) {
					struct occupancy ours = occupancy_of(
						&gpu, registers, threads, shared);
					int theirs = calculated(&device, registers, threads, shared);

					compared++;
					if (ours.blocks == theirs || different++ >= 10)
						continue;
					printf("%s, %d registers, %d threads, %d bytes: %d blocks, the calculator says %d\n",
						gpu.name, registers, threads, shared, ours.blocks, theirs);
				}
	}
	printf("%ld compared, %ld different\n", compared, different);
	return different || compared < 1000000;
}
