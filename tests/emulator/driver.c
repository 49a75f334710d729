/* driver: CUDA's driver API, as far as lib/gpu/cuda.h has it, of a GPU that is emulated on the CPU. What is queued is
 * done at once. After a kernel's fault every call fails with its code, as it does with a real GPU. */
#include <limits.h>
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/memory.h"
#include "decode.h"
#include "gpu/cuda.h"
#include "machine.h"
#include "map.h"
#include "memory.h"

#define EXPORT __attribute__((visibility("default")))
/* The functions are declared where they are looked for, as a table. */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

#define DRIVER_VERSION 13000
#define THREADS_PER_MULTIPROCESSOR 2048
#define BLOCKS_PER_MULTIPROCESSOR 32
#define THREADS_PER_BLOCK 1024

struct CUctx_st {
	int unused;
};
struct CUstream_st {
	int unused;
};
struct CUevent_st {
	struct timespec time;
};

static struct CUctx_st context;
static _Thread_local struct CUctx_st *current;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int failure; /* of a kernel: no call works any more */

/* What it can be. Of 8.1 there is no GPU: compilers make PTX of the newest one below it, 8.0. */
struct capability {
	const char *name;
	int major, minor;
	int shared_kilobytes; /* of a multiprocessor; a block may ask for one less */
};
static const struct capability capabilities[] = {{"8.1", 8, 1, 164}, {"9.0", 9, 0, 228}};

/* That which EMULATOR_CAPABILITY names, or the first. */
static const struct capability *capability(void)
{
	const char *wanted = getenv("EMULATOR_CAPABILITY");

	for (size_t i = 0; wanted && i < sizeof(capabilities) / sizeof(*capabilities); i++)
		if (!strcmp(capabilities[i].name, wanted))
			return &capabilities[i];
	return capabilities;
}

/* Whether these bytes are memory of the device. */
static int check_memory(uint64_t address, size_t bytes)
{
	return !bytes || memory_find(address, bytes) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* --- the device --------------------------------------------------------------------------------------- */

EXPORT int cuInit(unsigned flags)
{
	/* what one launch gives back the next takes, rather than fresh pages: half of a small launch's time */
	mallopt(M_MMAP_MAX, 0);
	mallopt(M_TRIM_THRESHOLD, INT_MAX);
	return flags ? CUDA_ERROR_INVALID_VALUE : CUDA_SUCCESS;
}

EXPORT int cuDriverGetVersion(int *version)
{
	*version = DRIVER_VERSION;
	return CUDA_SUCCESS;
}

EXPORT int cuDeviceGetCount(int *count)
{
	const char *visible = getenv("CUDA_VISIBLE_DEVICES");

	*count = !visible || visible[0] == '0';
	return CUDA_SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
	int count;

	cuDeviceGetCount(&count);
	*device = ordinal;
	return ordinal >= 0 && ordinal < count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_DEVICE;
}

EXPORT int cuDeviceGetName(char *name, int size, int device)
{
	(void)device;
	snprintf(name, (size_t)size, "Emulated GPU");
	return CUDA_SUCCESS;
}

EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
	(void)device;
	switch (attribute) {
	case CUDA_MULTIPROCESSORS:
		*value = MULTIPROCESSORS;
		return CUDA_SUCCESS;
	case CUDA_CAPABILITY_MAJOR:
		*value = capability()->major;
		return CUDA_SUCCESS;
	case CUDA_CAPABILITY_MINOR:
		*value = capability()->minor;
		return CUDA_SUCCESS;
	case CUDA_SHARED_PER_MULTIPROCESSOR:
		*value = capability()->shared_kilobytes << 10;
		return CUDA_SUCCESS;
	case CUDA_SHARED_PER_BLOCK:
		*value = (capability()->shared_kilobytes - 1) << 10;
		return CUDA_SUCCESS;
	case CUDA_REGISTERS_PER_MULTIPROCESSOR:
		*value = REGISTERS;
		return CUDA_SUCCESS;
	default: /* clocks, caches and buses: it has none */
		*value = 0;
		return CUDA_SUCCESS;
	}
}

EXPORT int cuDeviceGetPCIBusId(char *id, int size, int device)
{
	snprintf(id, (size_t)size, "0000:%02X:00.0", device);
	return CUDA_SUCCESS;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
	(void)device;
	*bytes = MEMORY_BYTES;
	return CUDA_SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRetain(struct CUctx_st **retained, int device)
{
	(void)device;
	*retained = &context;
	return CUDA_SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
	(void)device;
	return CUDA_SUCCESS;
}

EXPORT int cuCtxGetCurrent(struct CUctx_st **found)
{
	*found = current;
	return CUDA_SUCCESS;
}

EXPORT int cuCtxSetCurrent(struct CUctx_st *wanted)
{
	current = wanted;
	return CUDA_SUCCESS;
}

/* What NVIDIA's libraries share with the driver. NVRTC looks for the driver, and takes a refusal for an answer. */
EXPORT int cuGetExportTable(const void **table, const void *id)
{
	(void)id;
	*table = NULL;
	return CUDA_ERROR_NOT_FOUND;
}

/* --- memory ------------------------------------------------------------------------------------------- */

EXPORT int cuMemGetInfo_v2(size_t *available, size_t *total)
{
	pthread_mutex_lock(&lock);
	*available = memory_free_bytes();
	pthread_mutex_unlock(&lock);
	*total = MEMORY_BYTES;
	return CUDA_SUCCESS;
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
	int code;

	pthread_mutex_lock(&lock);
	code = failure ? failure : memory_allocate(address, bytes);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int cuMemFree_v2(uint64_t address)
{
	int code;

	pthread_mutex_lock(&lock);
	code = address ? memory_free(address) : CUDA_SUCCESS;
	pthread_mutex_unlock(&lock);
	return code;
}

/* Copies, or with from == NULL fills, when all that is on the device is there. */
static int transfer(void *to, bool to_device, const void *from, bool from_device, int fill, size_t bytes)
{
	int code;

	pthread_mutex_lock(&lock);
	code = failure;
	if (!code && to_device)
		code = check_memory((uint64_t)to, bytes);
	if (!code && from_device)
		code = check_memory((uint64_t)from, bytes);
	if (!code && from)
		memmove(to, from, bytes);
	else if (!code)
		memset(to, fill, bytes);
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, struct CUstream_st *stream)
{
	(void)stream;
	return transfer((void *)to, true, from, false, 0, bytes);
}

EXPORT int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, struct CUstream_st *stream)
{
	(void)stream;
	return transfer(to, false, (const void *)from, true, 0, bytes);
}

EXPORT int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, struct CUstream_st *stream)
{
	(void)stream;
	return transfer((void *)to, true, (const void *)from, true, 0, bytes);
}

EXPORT int cuMemsetD8Async(uint64_t to, unsigned char value, size_t bytes, struct CUstream_st *stream)
{
	(void)stream;
	return transfer((void *)to, true, NULL, false, value, bytes);
}

/* --- streams and events ------------------------------------------------------------------------------- */

EXPORT int cuStreamCreate(struct CUstream_st **stream, unsigned flags)
{
	(void)flags;
	*stream = xcalloc(1, sizeof(**stream));
	return CUDA_SUCCESS;
}

EXPORT int cuStreamSynchronize(struct CUstream_st *stream)
{
	(void)stream;
	return failure;
}

EXPORT int cuStreamDestroy_v2(struct CUstream_st *stream)
{
	free(stream);
	return CUDA_SUCCESS;
}

EXPORT int cuEventCreate(struct CUevent_st **event, unsigned flags)
{
	(void)flags;
	*event = xcalloc(1, sizeof(**event));
	return CUDA_SUCCESS;
}

EXPORT int cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
	(void)stream;
	clock_gettime(CLOCK_MONOTONIC, &event->time);
	return CUDA_SUCCESS;
}

EXPORT int cuEventSynchronize(struct CUevent_st *event)
{
	(void)event;
	return failure;
}

/* The time that emulating took, which says nothing of any GPU. */
EXPORT int cuEventElapsedTime(float *milliseconds, struct CUevent_st *start, struct CUevent_st *end)
{
	*milliseconds = (float)((double)(end->time.tv_sec - start->time.tv_sec) * 1e3 +
		(double)(end->time.tv_nsec - start->time.tv_nsec) * 1e-6);
	return CUDA_SUCCESS;
}

EXPORT int cuEventDestroy_v2(struct CUevent_st *event)
{
	free(event);
	return CUDA_SUCCESS;
}

EXPORT int cuTensorMapEncodeTiled(struct tensor_map *map, int type, uint32_t rank, void *data,
	const uint64_t *sizes, const uint64_t *strides, const uint32_t *box, const uint32_t *steps,
	int interleave, int swizzle, int promotion, int fill)
{
	return map_encode(map, type, rank, (uint64_t)data, sizes, strides, box, steps, interleave, swizzle,
		promotion, fill);
}

/* --- kernels ------------------------------------------------------------------------------------------ */

EXPORT int cuModuleLoadData(struct CUmod_st **module, const void *image)
{
	struct error err;
	int code = CUDA_SUCCESS;

	if (!memcmp(image, "\177ELF", 4)) {
		fprintf(stderr,
			"emulated GPU: it runs PTX alone, not machine code: set CUDA_FORCE_PTX_JIT=1\n");
		return CUDA_ERROR_INVALID_PTX;
	}
	pthread_mutex_lock(&lock);
	if (module_load(image, (struct module **)module, &err) < 0) {
		fprintf(stderr, "emulated GPU: %s\n", err.message);
		*module = NULL;
		code = CUDA_ERROR_INVALID_PTX;
	}
	pthread_mutex_unlock(&lock);
	return code;
}

EXPORT int cuModuleUnload(struct CUmod_st *module)
{
	pthread_mutex_lock(&lock);
	module_unload((struct module *)module);
	pthread_mutex_unlock(&lock);
	return CUDA_SUCCESS;
}

EXPORT int cuModuleGetFunction(struct CUfunc_st **function, struct CUmod_st *module, const char *name)
{
	*function = (struct CUfunc_st *)module_kernel((struct module *)module, name);
	return *function ? CUDA_SUCCESS : CUDA_ERROR_NOT_FOUND;
}

EXPORT int cuFuncSetAttribute(struct CUfunc_st *function, int attribute, int value)
{
	struct kernel *kernel = (struct kernel *)function;

	if (attribute != CUDA_FUNCTION_SHARED_BYTES)
		return CUDA_SUCCESS;
	if (value < 0 ||
		(size_t)value + kernel->shared_bytes - SHARED_START >
			(size_t)(capability()->shared_kilobytes - 1) << 10)
		return CUDA_ERROR_INVALID_VALUE;
	kernel->dynamic_shared = (size_t)value;
	return CUDA_SUCCESS;
}

static int minimum(int a, int b)
{
	return a < b ? a : b;
}

static int occupancy(const struct kernel *kernel, int threads, size_t dynamic_shared)
{
	const int blocks = minimum(BLOCKS_PER_MULTIPROCESSOR, THREADS_PER_MULTIPROCESSOR / threads);
	const size_t shared = (size_t)capability()->shared_kilobytes << 10;

	return minimum(blocks, (int)(shared / (kernel->shared_bytes + dynamic_shared)));
}

EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(
	int *blocks, struct CUfunc_st *function, int threads, size_t shared_bytes)
{
	*blocks = threads > 0 ? occupancy((const struct kernel *)function, threads, shared_bytes) : 0;
	return threads > 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static int check_launch(const struct kernel *kernel, const struct launch *launch, size_t dynamic_shared)
{
	uint64_t threads = (uint64_t)launch->threads[0] * launch->threads[1] * launch->threads[2];
	uint64_t most = kernel->most_threads ? (uint64_t)kernel->most_threads : THREADS_PER_BLOCK;

	/* 48 KB are anyone's, more has to be asked for */
	return threads && threads <= most && launch->grid[0] && launch->grid[1] && launch->grid[2] &&
			launch->grid[1] < 65536 && launch->grid[2] < 65536 &&
			(dynamic_shared <= kernel->dynamic_shared ||
				dynamic_shared + kernel->shared_bytes - SHARED_START <= 48 << 10)
		? CUDA_SUCCESS
		: CUDA_ERROR_INVALID_VALUE;
}

/* Whether this launch ends with a fault, as the user asks for, to see what a program makes of it. */
static bool is_to_fail(const struct kernel *kernel)
{
	const char *name = getenv("EMULATOR_FAULT");

	return name && !strcmp(name, kernel->name);
}

static int launch_kernel(const struct kernel *kernel, struct launch launch, size_t dynamic_shared,
	void **arguments, bool together)
{
	uint64_t blocks = (uint64_t)launch.grid[0] * launch.grid[1] * launch.grid[2];
	int code = check_launch(kernel, &launch, dynamic_shared), resident;

	if (code)
		return code;
	resident = MULTIPROCESSORS *
		occupancy(kernel, (int)(launch.threads[0] * launch.threads[1] * launch.threads[2]),
			dynamic_shared);
	if (together && blocks > (uint64_t)resident)
		return CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE;
	launch.kernel = kernel;
	launch.shared_bytes = kernel->shared_bytes + dynamic_shared;
	launch.parameters = xmalloc(kernel->parameter_bytes + 1);
	for (size_t i = 0; i < kernel->parameter_count; i++)
		memcpy(launch.parameters + kernel->parameters[i].offset, arguments[i],
			kernel->parameters[i].bytes);
	pthread_mutex_lock(&lock);
	code = failure;
	if (!code)
		failure = is_to_fail(kernel) ? CUDA_ERROR_LAUNCH_FAILED : run_grid(&launch, resident);
	pthread_mutex_unlock(&lock);
	free(launch.parameters);
	return code;
}

EXPORT int cuLaunchKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
	unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
	struct CUstream_st *stream, void **arguments, void **extra)
{
	struct launch launch = {.grid = {grid_x, grid_y, grid_z}, .threads = {block_x, block_y, block_z}};

	(void)stream;
	return extra ? CUDA_ERROR_INVALID_VALUE
		     : launch_kernel((const struct kernel *)function, launch, shared_bytes, arguments, false);
}

EXPORT int cuLaunchKernelEx(
	const struct cuda_launch *config, struct CUfunc_st *function, void **arguments, void **extra)
{
	struct launch launch = {.grid = {config->grid[0], config->grid[1], config->grid[2]},
		.threads = {config->block[0], config->block[1], config->block[2]}};

	for (unsigned i = 0; i < config->attribute_count; i++) {
		if (config->attributes[i].kind != CUDA_LAUNCH_EARLY)
			return CUDA_ERROR_INVALID_VALUE;
		launch.early = config->attributes[i].value[0];
	}
	return extra ? CUDA_ERROR_INVALID_VALUE
		     : launch_kernel((const struct kernel *)function, launch, config->shared_bytes, arguments,
			       false);
}

EXPORT int cuLaunchCooperativeKernel(struct CUfunc_st *function, unsigned grid_x, unsigned grid_y,
	unsigned grid_z, unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared_bytes,
	struct CUstream_st *stream, void **arguments)
{
	struct launch launch = {.grid = {grid_x, grid_y, grid_z}, .threads = {block_x, block_y, block_z}};

	(void)stream;
	return launch_kernel((const struct kernel *)function, launch, shared_bytes, arguments, true);
}

EXPORT int cuGetErrorString(int code, const char **text)
{
	static const struct {
		int code;
		const char *text;
	} texts[] = {{CUDA_SUCCESS, "no error"}, {CUDA_ERROR_INVALID_VALUE, "invalid argument"},
		{CUDA_ERROR_OUT_OF_MEMORY, "out of memory"},
		{CUDA_ERROR_INVALID_DEVICE, "invalid device ordinal"},
		{CUDA_ERROR_INVALID_PTX, "the PTX cannot be emulated"},
		{CUDA_ERROR_NOT_FOUND, "named symbol not found"},
		{CUDA_ERROR_ILLEGAL_ADDRESS, "an illegal memory access was encountered"},
		{CUDA_ERROR_MISALIGNED_ADDRESS, "misaligned address"},
		{CUDA_ERROR_ILLEGAL_INSTRUCTION, "an illegal instruction was encountered"},
		{CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE, "too many blocks in cooperative launch"},
		{CUDA_ERROR_LAUNCH_FAILED, "unspecified launch failure"}};

	for (size_t i = 0; i < sizeof(texts) / sizeof(*texts); i++)
		if (texts[i].code == code) {
			*text = texts[i].text;
			return CUDA_SUCCESS;
		}
	return CUDA_ERROR_INVALID_VALUE;
}
