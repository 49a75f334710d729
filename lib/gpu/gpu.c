#include "gpu/gpu.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "gpu/cuda.h"
#include "kernels/common/arguments.h"

#define OLDEST_CAPABILITY 80
#define EARLY_CAPABILITY 90 /* kernels wait for the launch before: kernels/common/launch.cuh */
#define MOST_GPUS 1024

struct allocation {
	void *memory;
	size_t bytes;
};

struct gpu_kernel {
	struct gpu_kernel *next;
	struct gpu *gpu;
	char *source;
	char *identity; /* source, name and parameters */
	struct CUmod_st *module;
	struct CUfunc_st *function;
	int threads, shared_bytes, occupancy;
};

struct gpu {
	const struct cuda_driver *driver;
	int device;
	struct CUctx_st *context;
	struct CUstream_st *own, *stream; /* its own, and the one in use */
	struct gpu_properties properties;
	struct allocation *allocations;
	size_t allocation_count, allocated, peak;
	struct gpu_kernel *kernels;
};

/* --- what there is -------------------------------------------------------------------------------- */

int gpu_count(struct error *err)
{
	const struct cuda_driver *driver = cuda_driver(err);
	int count = 0;

	if (!driver || cuda_check(driver->cuDeviceGetCount(&count), err, "counting the GPUs") < 0)
		return -1;
	return count;
}

static int attribute(const struct cuda_driver *driver, int device, enum cuda_attribute which)
{
	int value = 0;

	driver->cuDeviceGetAttribute(&value, which, device);
	return value;
}

/* The kernel module tells its version; where that cannot be seen, the CUDA version that the driver is for. */
static void find_driver_version(const struct cuda_driver *driver, char *version, size_t size)
{
	struct buffer text = {0};
	struct error none;
	int cuda = 0;

	if (file_read("/sys/module/nvidia/version", size, &text, &none) == 0 && text.length > 1) {
		snprintf(version, size, "%.*s", (int)strcspn(text.data, "\n"), text.data);
	} else {
		driver->cuDriverGetVersion(&cuda);
		snprintf(version, size, "CUDA %d.%d", cuda / 1000, cuda % 1000 / 10);
	}
	buffer_free(&text);
}

int gpu_query(int index, struct gpu_properties *properties, struct error *err)
{
	const struct cuda_driver *driver = cuda_driver(err);
	int count = gpu_count(err), device = 0;
	size_t memory = 0;

	if (count < 0)
		return -1;
	if (index < 0 || index >= count) {
		error_set(err, STATUS_ENVIRONMENT, "there is no GPU %d: the driver lists %d", index, count);
		return error_hint(err,
			count ? "They are numbered from 0; `quasar gpus` lists them."
			      : "Check `nvidia-smi` and CUDA_VISIBLE_DEVICES.");
	}
	if (cuda_check(driver->cuDeviceGet(&device, index), err, "GPU %d", index) < 0)
		return -1;
	*properties = (struct gpu_properties){
		.capability = attribute(driver, device, CUDA_CAPABILITY_MAJOR) * 10 +
			attribute(driver, device, CUDA_CAPABILITY_MINOR),
		.multiprocessors = attribute(driver, device, CUDA_MULTIPROCESSORS),
		.shared_per_multiprocessor = attribute(driver, device, CUDA_SHARED_PER_MULTIPROCESSOR),
		.shared_per_block = attribute(driver, device, CUDA_SHARED_PER_BLOCK),
		.registers = attribute(driver, device, CUDA_REGISTERS_PER_MULTIPROCESSOR),
		.clock_khz = attribute(driver, device, CUDA_CLOCK_KHZ),
		.l2_bytes = attribute(driver, device, CUDA_L2_BYTES),
		/* two transfers a clock */
		.bandwidth_gbs = 2e3 * attribute(driver, device, CUDA_MEMORY_CLOCK_KHZ) / 1e9 *
			attribute(driver, device, CUDA_MEMORY_BUS_BITS) / 8,
	};
	driver->cuDeviceGetName(properties->name, sizeof(properties->name), device);
	driver->cuDeviceGetPCIBusId(properties->pci, sizeof(properties->pci), device);
	for (char *digit = properties->pci; *digit; digit++)
		*digit = (char)tolower((unsigned char)*digit);
	find_driver_version(driver, properties->driver, sizeof(properties->driver));
	driver->cuDeviceTotalMem_v2(&memory, device);
	properties->memory_bytes = (int64_t)memory;
	return 0;
}

void gpu_describe(int index, const struct gpu_properties *properties, char *text, size_t size)
{
	snprintf(text, size, "cuda:%d (%.64s, %d multiprocessors, %.0f GiB)", index, properties->name,
		properties->multiprocessors, (double)properties->memory_bytes / 0x1p30);
}

int gpu_parse_device(const char *name, int *index, struct error *err)
{
	bool numbered = !strncmp(name, "cuda:", 5) && isdigit((unsigned char)name[5]);
	char *end = (char *)"";
	long number = numbered ? strtol(name + 5, &end, 10) : 0;

	*index = (int)number;
	if (!strcmp(name, "auto"))
		*index = GPU_IF_ANY;
	else if (!strcmp(name, "cpu"))
		*index = GPU_NONE;
	else if ((!numbered && strcmp(name, "cuda")) || *end || number >= MOST_GPUS) {
		error_set(err, STATUS_USAGE, "unknown device \"%s\"", name);
		return error_hint(err, "Devices are auto, cpu, cuda and cuda:N.");
	}
	return 0;
}

/* A GPU keeps its context for life, so making it current fails only where the driver is gone: then what follows says
 * so. */
struct CUctx_st *gpu_enter(const struct gpu *gpu)
{
	struct CUctx_st *before = NULL;

	gpu->driver->cuCtxGetCurrent(&before);
	if (before != gpu->context)
		gpu->driver->cuCtxSetCurrent(gpu->context);
	return before;
}

void gpu_leave(const struct gpu *gpu, struct CUctx_st *before)
{
	if (before != gpu->context)
		gpu->driver->cuCtxSetCurrent(before);
}

/* What needs the context. */
static int prepare(struct gpu *gpu, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	size_t available = 0, total = 0;
	int result = cuda_check(gpu->driver->cuStreamCreate(&gpu->own, CUDA_STREAM_NON_BLOCKING), err,
		"creating a stream on %s", gpu->properties.name);

	gpu->driver->cuMemGetInfo_v2(&available, &total);
	gpu->properties.memory_free = (int64_t)available;
	gpu->stream = gpu->own;
	gpu_leave(gpu, before);
	return result;
}

struct gpu *gpu_open(int index, struct error *err)
{
	struct gpu *gpu = xcalloc(1, sizeof(*gpu));

	if (gpu_query(index, &gpu->properties, err) < 0)
		goto failed;
	if (gpu->properties.capability < OLDEST_CAPABILITY) {
		error_set(err, STATUS_ENVIRONMENT, "GPU %d (%s) has compute capability %d.%d", index,
			gpu->properties.name, gpu->properties.capability / 10,
			gpu->properties.capability % 10);
		error_hint(err, "8.0 (Ampere) or later is required; use --device cpu.");
		goto failed;
	}
	gpu->driver = cuda_driver(err);
	gpu->driver->cuDeviceGet(&gpu->device, index);
	if (cuda_check(gpu->driver->cuDevicePrimaryCtxRetain(&gpu->context, gpu->device), err,
		    "opening GPU %d (%s)", index, gpu->properties.name) < 0)
		goto failed;
	if (prepare(gpu, err) == 0)
		return gpu;
	gpu->driver->cuDevicePrimaryCtxRelease_v2(gpu->device);
failed:
	free(gpu);
	return NULL;
}

static void kernel_free(struct gpu_kernel *kernel)
{
	kernel->gpu->driver->cuModuleUnload(kernel->module);
	free(kernel->source);
	free(kernel->identity);
	free(kernel);
}

void gpu_close(struct gpu *gpu)
{
	struct CUctx_st *before;

	if (!gpu)
		return;
	before = gpu_enter(gpu);
	gpu->driver->cuStreamSynchronize(gpu->stream);
	while (gpu->kernels) {
		struct gpu_kernel *kernel = gpu->kernels;

		gpu->kernels = kernel->next;
		kernel_free(kernel);
	}
	gpu->driver->cuStreamDestroy_v2(gpu->own);
	gpu_leave(gpu, before);
	gpu->driver->cuDevicePrimaryCtxRelease_v2(gpu->device);
	free(gpu->allocations);
	free(gpu);
}

void gpu_use_stream(struct gpu *gpu, struct CUstream_st *stream)
{
	gpu->stream = stream ? stream : gpu->own;
}

struct CUstream_st *gpu_stream(const struct gpu *gpu)
{
	return gpu->stream;
}

const struct gpu_properties *gpu_properties_of(const struct gpu *gpu)
{
	return &gpu->properties;
}

/* --- memory ---------------------------------------------------------------------------------------- */

void *gpu_allocate(struct gpu *gpu, size_t bytes, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	size_t available = 0, total = 0;
	uint64_t address = 0;
	int code = gpu->driver->cuMemAlloc_v2(&address, bytes);

	if (code)
		gpu->driver->cuMemGetInfo_v2(&available, &total);
	gpu_leave(gpu, before);
	if (code) {
		cuda_check(code, err, "allocating %.0f MiB on %s, where %.0f of %.0f MiB are free",
			(double)bytes / 0x1p20, gpu->properties.name, (double)available / 0x1p20,
			(double)total / 0x1p20);
		error_hint(err, "Use a shorter sequence, or free the GPU: `nvidia-smi` shows what uses it.");
		return NULL;
	}
	gpu->allocations = xrealloc(
		gpu->allocations, (gpu->allocation_count + 1) * sizeof(*gpu->allocations));
	gpu->allocations[gpu->allocation_count++] = (struct allocation){(void *)address, bytes};
	gpu->allocated += bytes;
	gpu->peak = gpu->allocated > gpu->peak ? gpu->allocated : gpu->peak;
	return (void *)address;
}

void gpu_release(struct gpu *gpu, void *memory)
{
	for (size_t i = 0; memory && i < gpu->allocation_count; i++) {
		struct CUctx_st *before;

		if (gpu->allocations[i].memory != memory)
			continue;
		before = gpu_enter(gpu);
		gpu->driver->cuStreamSynchronize(gpu->stream); /* which may still use it */
		gpu->driver->cuMemFree_v2((uint64_t)memory);
		gpu_leave(gpu, before);
		gpu->allocated -= gpu->allocations[i].bytes;
		gpu->allocations[i] = gpu->allocations[--gpu->allocation_count];
		return;
	}
}

int gpu_upload(struct gpu *gpu, void *to, const void *from, size_t bytes, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	int code = gpu->driver->cuMemcpyHtoDAsync_v2((uint64_t)to, from, bytes, gpu->stream);

	if (!code)
		code = gpu->driver->cuStreamSynchronize(gpu->stream);
	gpu_leave(gpu, before);
	return cuda_check(code, err, "copying %zu bytes to the GPU", bytes);
}

int gpu_download(struct gpu *gpu, void *to, const void *from, size_t bytes, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	int code = gpu->driver->cuMemcpyDtoHAsync_v2(to, (uint64_t)from, bytes, gpu->stream);

	if (!code)
		code = gpu->driver->cuStreamSynchronize(gpu->stream);
	gpu_leave(gpu, before);
	return cuda_check(code, err, "copying %zu bytes from the GPU", bytes);
}

int gpu_copy(struct gpu *gpu, void *to, const void *from, size_t bytes, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	int code = gpu->driver->cuMemcpyDtoDAsync_v2((uint64_t)to, (uint64_t)from, bytes, gpu->stream);

	gpu_leave(gpu, before);
	return cuda_check(code, err, "copying %zu bytes on the GPU", bytes);
}

int gpu_fill(struct gpu *gpu, void *memory, uint8_t byte, size_t bytes, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	int code = gpu->driver->cuMemsetD8Async((uint64_t)memory, byte, bytes, gpu->stream);

	gpu_leave(gpu, before);
	return cuda_check(code, err, "filling %zu bytes on the GPU", bytes);
}

size_t gpu_allocated(const struct gpu *gpu)
{
	return gpu->allocated;
}

size_t gpu_allocated_peak(const struct gpu *gpu)
{
	return gpu->peak;
}

void gpu_reset_peak(struct gpu *gpu)
{
	gpu->peak = gpu->allocated;
}

int gpu_workspace_reserve(struct gpu *gpu, struct gpu_workspace *workspace, size_t bytes, struct error *err)
{
	void *memory;

	if (workspace->bytes >= bytes)
		return 0;
	memory = gpu_allocate(gpu, bytes, err);
	if (!memory)
		return -1;
	gpu_release(gpu, workspace->memory);
	*workspace = (struct gpu_workspace){memory, bytes};
	return 0;
}

void gpu_workspace_free(struct gpu *gpu, struct gpu_workspace *workspace)
{
	gpu_release(gpu, workspace->memory);
	*workspace = (struct gpu_workspace){0};
}

/* --- kernels ---------------------------------------------------------------------------------------- */

static int load_kernel(struct gpu_kernel *kernel, const char *source, const char *name,
	const struct kernel_parameter *parameters, struct error *err)
{
	const struct gpu *gpu = kernel->gpu;
	struct CUctx_st *before = gpu_enter(gpu);
	struct buffer image = {0};
	int result = kernel_compile(source, parameters, gpu->properties.capability, &image, err);

	if (!result &&
		cuda_check(gpu->driver->cuModuleLoadData(&kernel->module, image.data), err,
			"loading kernels/%s", source) < 0)
		result = error_hint(err,
			"The driver (%s) may be older than the compiler (%s): update it, or install the "
			"compiler "
			"of the driver's CUDA version, such as nvidia-cuda-nvrtc-cu12.",
			cuda_driver_path(), nvrtc_path());
	if (!result)
		result = cuda_check(gpu->driver->cuModuleGetFunction(&kernel->function, kernel->module, name),
			err, "kernel %s", name);
	if (!result)
		result = cuda_check(gpu->driver->cuFuncSetAttribute(kernel->function,
					    CUDA_FUNCTION_SHARED_BYTES, kernel->shared_bytes),
			err, "giving kernel %s %d bytes of shared memory", name, kernel->shared_bytes);
	if (!result)
		result = cuda_check(
			gpu->driver->cuOccupancyMaxActiveBlocksPerMultiprocessor(&kernel->occupancy,
				kernel->function, kernel->threads, (size_t)kernel->shared_bytes),
			err, "occupancy of kernel %s", name);
	if (result && kernel->module)
		gpu->driver->cuModuleUnload(kernel->module);
	gpu_leave(gpu, before);
	buffer_free(&image);
	return result;
}

struct gpu_kernel *gpu_kernel(struct gpu *gpu, const char *source, const char *name,
	const struct kernel_parameter *parameters, int threads, int shared_bytes, struct error *err)
{
	struct buffer identity = {0};
	struct gpu_kernel *kernel;

	buffer_printf(&identity, "%s %s %d %d", source, name, threads, shared_bytes);
	for (const struct kernel_parameter *p = parameters; p && p->name; p++)
		buffer_printf(&identity, " %s=%d", p->name, p->value);
	for (kernel = gpu->kernels; kernel; kernel = kernel->next)
		if (!strcmp(kernel->identity, identity.data))
			break;
	if (kernel) {
		buffer_free(&identity);
		return kernel;
	}
	kernel = xcalloc(1, sizeof(*kernel));
	*kernel = (struct gpu_kernel){.gpu = gpu, .threads = threads, .shared_bytes = shared_bytes};
	if (load_kernel(kernel, source, name, parameters, err) < 0) {
		buffer_free(&identity);
		free(kernel);
		return NULL;
	}
	kernel->source = xstrdup(source);
	kernel->identity = identity.data;
	kernel->next = gpu->kernels;
	gpu->kernels = kernel;
	return kernel;
}

int gpu_unload(struct gpu *gpu, const char *source)
{
	struct CUctx_st *before = gpu_enter(gpu);
	int count = 0;

	gpu->driver->cuStreamSynchronize(gpu->stream);
	for (struct gpu_kernel **at = &gpu->kernels; *at;) {
		struct gpu_kernel *kernel = *at;

		if (strcmp(kernel->source, source)) {
			at = &kernel->next;
			continue;
		}
		*at = kernel->next;
		kernel_free(kernel);
		count++;
	}
	gpu_leave(gpu, before);
	return count;
}

int gpu_kernel_occupancy(const struct gpu_kernel *kernel)
{
	return kernel->occupancy;
}

int gpu_map_tensor(
	const struct gpu *gpu, const struct gpu_map *wanted, struct tensor_map *map, struct error *err)
{
	static const uint32_t steps[] = {1, 1, 1, 1, 1};
	struct CUctx_st *before = gpu_enter(gpu);
	int code = gpu->driver->cuTensorMapEncodeTiled(map, CUDA_MAP_U16, 5, (void *)wanted->data,
		wanted->size, wanted->stride, wanted->box, steps, CUDA_MAP_PLAIN, CUDA_MAP_SWIZZLE_128,
		CUDA_MAP_L2_128, CUDA_MAP_ZEROS);

	gpu_leave(gpu, before);
	return cuda_check(code, err, "describing a tensor to %s", gpu->properties.name);
}

int gpu_launch(const struct gpu_kernel *kernel, unsigned grid_x, unsigned grid_y, const void *arguments,
	struct error *err)
{
	const struct gpu *gpu = kernel->gpu;
	struct CUctx_st *before = gpu_enter(gpu);
	void *list[] = {(void *)arguments};
	struct cuda_launch_attribute early = {.kind = CUDA_LAUNCH_EARLY, .value = {1}};
	const struct cuda_launch launch = {.grid = {grid_x, grid_y, 1},
		.block = {(unsigned)kernel->threads, 1, 1},
		.shared_bytes = (unsigned)kernel->shared_bytes,
		.stream = gpu->stream,
		.attributes = &early,
		.attribute_count = gpu->properties.capability >= EARLY_CAPABILITY};
	int code = gpu->driver->cuLaunchKernelEx(&launch, kernel->function, list, NULL);

	gpu_leave(gpu, before);
	return cuda_check(code, err, "launching %s on %u x %u blocks", kernel->identity, grid_x, grid_y);
}

int gpu_launch_together(
	const struct gpu_kernel *kernel, unsigned blocks, const void *arguments, struct error *err)
{
	const struct gpu *gpu = kernel->gpu;
	struct CUctx_st *before = gpu_enter(gpu);
	void *list[] = {(void *)arguments};
	int code = gpu->driver->cuLaunchCooperativeKernel(kernel->function, blocks, 1, 1,
		(unsigned)kernel->threads, 1, 1, (unsigned)kernel->shared_bytes, gpu->stream, list);

	gpu_leave(gpu, before);
	return cuda_check(code, err, "launching %s on %u blocks at a time", kernel->identity, blocks);
}

int gpu_synchronize(struct gpu *gpu, struct error *err)
{
	struct CUctx_st *before = gpu_enter(gpu);
	int code = gpu->driver->cuStreamSynchronize(gpu->stream);

	gpu_leave(gpu, before);
	return cuda_check(code, err, "working on %s", gpu->properties.name);
}

/* --- time ------------------------------------------------------------------------------------------- */

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

/* Longer than the host takes to queue a call. */
#define DELAY_NANOSECONDS 100000

int gpu_time(struct gpu *gpu, int (*work)(int call, void *context, struct error *err), void *context,
	int warmups, int runs, double *seconds, struct error *err)
{
	const struct cuda_driver *driver = gpu->driver;
	struct CUevent_st *start = NULL, *end = NULL;
	const struct delay_arguments wait = {DELAY_NANOSECONDS};
	const struct gpu_kernel *delay = gpu_kernel(gpu, "common/delay.cu", "delay", NULL, 1, 0, err);
	struct CUctx_st *before = gpu_enter(gpu);
	int result = delay ? 0 : -1;

	if (!result)
		result = cuda_check(driver->cuEventCreate(&start, 0), err, "creating an event");
	if (!result)
		result = cuda_check(driver->cuEventCreate(&end, 0), err, "creating an event");
	for (int call = 0; call < warmups + runs && !result; call++) {
		float milliseconds = 0;

		result = gpu_launch(delay, 1, 1, &wait, err);
		if (result)
			break;
		driver->cuEventRecord(start, gpu->stream);
		result = work(call, context, err);
		driver->cuEventRecord(end, gpu->stream);
		if (!result)
			result = cuda_check(
				driver->cuEventSynchronize(end), err, "working on %s", gpu->properties.name);
		driver->cuEventElapsedTime(&milliseconds, start, end);
		if (call >= warmups)
			seconds[call - warmups] = milliseconds * 1e-3;
	}
	if (start)
		driver->cuEventDestroy_v2(start);
	if (end)
		driver->cuEventDestroy_v2(end);
	gpu_leave(gpu, before);
	if (!result)
		qsort(seconds, (size_t)runs, sizeof(*seconds), by_value);
	return result;
}
