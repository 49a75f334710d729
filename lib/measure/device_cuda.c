#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda.h"
#include "measure/device.h"
#include "layer/cuda.h"
#include "op/quasar/cuda.h"

/* The GPU in use. It stays open for the life of the process: opening one takes a tenth of a second. */
static struct gpu *gpu;
static int gpu_index;
static struct quasar_workspace workspace;

static int cuda_quasar(const struct quasar_problem *problem, struct error *err)
{
	if (quasar_cuda(gpu, &workspace, problem, err) < 0)
		return -1;
	return gpu_synchronize(gpu, err);
}

static int cuda_reference(const struct quasar_problem *problem, double *o, struct error *err)
{
	size_t bytes = (size_t)(problem->batch * problem->tokens) * (size_t)(problem->heads * problem->dim) *
		       sizeof(*o);
	double *result = gpu_allocate(gpu, bytes, err);
	int status = result ? quasar_cuda_reference(gpu, problem, result, NULL, err) : -1;

	if (!status)
		status = gpu_download(gpu, o, result, bytes, err);
	gpu_release(gpu, result);
	return status;
}

static void *cuda_layer_place(const struct layer *layer, struct error *err)
{
	return layer_cuda_make(gpu, layer, err);
}

static void cuda_layer_remove(void *placed)
{
	layer_cuda_free(placed);
}

static int cuda_layer(void *placed, const struct layer_call *call, struct error *err)
{
	if (layer_cuda(placed, call, err) < 0)
		return -1;
	return gpu_synchronize(gpu, err);
}

static void *cuda_allocate(size_t bytes, struct error *err)
{
	return gpu_allocate(gpu, bytes, err);
}

static void cuda_release(void *memory)
{
	gpu_release(gpu, memory);
}

static int cuda_upload(void *to, const void *from, size_t bytes, struct error *err)
{
	return gpu_upload(gpu, to, from, bytes, err);
}

static int cuda_download(void *to, const void *from, size_t bytes, struct error *err)
{
	return gpu_download(gpu, to, from, bytes, err);
}

#define COPY_BYTES ((size_t)512 << 20)
#define COPY_RUNS 5

static int queue_copy(int call, void *context, struct error *err)
{
	(void)call;
	return gpu_copy(gpu, context, (char *)context + COPY_BYTES, COPY_BYTES, err);
}

static int cuda_copy_rate(double *rate, struct error *err)
{
	void *memory = gpu_allocate(gpu, 2 * COPY_BYTES, err);
	double seconds[COPY_RUNS];
	int result = memory ? gpu_fill(gpu, memory, 0x5a, 2 * COPY_BYTES, err) : -1;

	if (!result)
		result = gpu_time(gpu, queue_copy, memory, 2, COPY_RUNS, seconds, err);
	if (!result)
		*rate = 2.0 * (double)COPY_BYTES / seconds[COPY_RUNS / 2];
	gpu_release(gpu, memory);
	return result;
}

static void cuda_memory_reset(void)
{
	gpu_reset_peak(gpu);
}

static double cuda_memory_peak(void)
{
	return (double)gpu_allocated_peak(gpu) / 0x1p20;
}

int device_open_cuda(int index, struct device *device, struct error *err)
{
	const struct gpu_properties *properties;

	if (gpu && gpu_index != index) {
		quasar_workspace_free(gpu, &workspace);
		gpu_close(gpu);
		gpu = NULL;
	}
	if (!gpu)
		gpu = gpu_open(index, err);
	if (!gpu || !nvrtc_library(err)) /* without a compiler there are no kernels */
		return -1;
	gpu_index = index;
	properties = gpu_properties_of(gpu);
	*device = (struct device){
		.index = index,
		.quasar = cuda_quasar,
		.reference = cuda_reference,
		.layer_place = cuda_layer_place,
		.layer_remove = cuda_layer_remove,
		.layer = cuda_layer,
		.allocate = cuda_allocate,
		.release = cuda_release,
		.upload = cuda_upload,
		.download = cuda_download,
		.copy_rate = cuda_copy_rate,
		.memory_reset = cuda_memory_reset,
		.memory_peak = cuda_memory_peak,
	};
	snprintf(device->description, sizeof(device->description),
		"cuda:%d (%.64s, %d multiprocessors, %.0f GiB)", index, properties->name,
		properties->multiprocessors, (double)properties->memory_bytes / 0x1p30);
	return 0;
}
