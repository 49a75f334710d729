#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gpu/cuda.h"
#include "gpu/gemm.h"
#include "gpu/gpu.h"
#include "layer/cuda.h"
#include "measure/device.h"
#include "op/tuned.h"
#include "tensor/dtype.h"
#include "tensor/random.h"
#include "tune/results.h"

struct device_gpu {
	struct gpu *gpu;
	struct gpu_workspace workspace;
};

/* Puts an operation into the GPU's queue. */
static int queue(const struct device *device, const struct family *family, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	struct device_gpu *own = device->gpu;

	return tuned_run(family, own->gpu, &own->workspace, problem, config, err);
}

static int cuda_operate(const struct device *device, const struct family *family,
	const struct op_problem *problem, const struct config *config, struct error *err)
{
	if (queue(device, family, problem, config, err) < 0)
		return -1;
	return gpu_synchronize(device->gpu->gpu, err);
}

/* What queue_timed() is called with. */
struct timed {
	const struct device *device;
	const struct family *family;
	const struct op_problem *problem;
};

static int queue_timed(int call, void *context, struct error *err)
{
	const struct timed *timed = context;

	(void)call;
	return queue(timed->device, timed->family, timed->problem, NULL, err);
}

static int cuda_time(const struct device *device, const struct family *family,
	const struct op_problem *problem, double *seconds, struct error *err)
{
	struct timed timed = {device, family, problem};

	return gpu_time(device->gpu->gpu, queue_timed, &timed, 0, 1, seconds, err);
}

/* A problem whose tensors were copied to the host's memory. */
struct copied {
	struct op_problem problem;
	void *memory[FAMILY_TENSORS];
};

/* A tensor with all that lies between its elements, which keeps its strides. */
static int copy_tensor(const struct device *device, const struct family_tensor *described,
	const struct op_shape *shape, struct tensor *tensor, void **memory, struct error *err)
{
	int64_t size[4], low = 0, high = 1, element = (int64_t)dtype_size(tensor->dtype);

	family_tensor_size(described, shape, size);
	for (int i = 0; i < 4; i++) {
		int64_t reach = (size[i] - 1) * tensor->stride[i];

		low += reach < 0 ? reach : 0;
		high += reach > 0 ? reach : 0;
	}
	*memory = malloc((size_t)((high - low) * element));
	if (!*memory)
		return error_set(
			err, STATUS_ENVIRONMENT, "not enough memory to check %s on the CPU", described->name);
	if (device->download(device, *memory, (char *)tensor->data + low * element,
		    (size_t)((high - low) * element), err) < 0)
		return -1;
	tensor->data = (char *)*memory - low * element;
	return 0;
}

/* The host's reference, for families that have none on a GPU. */
static int reference_on_host(const struct device *device, const struct family *family,
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	struct copied copied = {.problem = *problem};
	int result = 0;

	for (int i = 0; family->tensors[i].name && !result; i++)
		if (problem->tensors[i].data)
			result = copy_tensor(device, &family->tensors[i], &problem->shape,
				&copied.problem.tensors[i], &copied.memory[i], err);
	if (!result)
		result = family->reference(&copied.problem, results, err);
	for (int i = 0; i < FAMILY_TENSORS; i++)
		free(copied.memory[i]);
	return result;
}

static int cuda_reference(const struct device *device, const struct family *family,
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	return family->cuda_reference ? family->cuda_reference(device->gpu->gpu, problem, results, err)
				      : reference_on_host(device, family, problem, results, err);
}

static void *cuda_layer_place(const struct device *device, const struct layer *layer, struct error *err)
{
	return layer_cuda_make(device->gpu->gpu, layer, err);
}

static void cuda_layer_remove(const struct device *device, void *placed)
{
	(void)device;
	layer_cuda_free(placed);
}

static int cuda_layer(
	const struct device *device, void *placed, const struct layer_call *call, struct error *err)
{
	if (layer_cuda(placed, call, err) < 0)
		return -1;
	return gpu_synchronize(device->gpu->gpu, err);
}

static void *cuda_allocate(const struct device *device, size_t bytes, struct error *err)
{
	return gpu_allocate(device->gpu->gpu, bytes, err);
}

static void cuda_release(const struct device *device, void *memory)
{
	gpu_release(device->gpu->gpu, memory);
}

static int cuda_upload(
	const struct device *device, void *to, const void *from, size_t bytes, struct error *err)
{
	return gpu_upload(device->gpu->gpu, to, from, bytes, err);
}

static int cuda_download(
	const struct device *device, void *to, const void *from, size_t bytes, struct error *err)
{
	return gpu_download(device->gpu->gpu, to, from, bytes, err);
}

#define COPY_BYTES ((size_t)512 << 20)
#define RATE_RUNS 5

struct copy {
	struct gpu *gpu;
	char *memory;
};

static int queue_copy(int call, void *context, struct error *err)
{
	const struct copy *copy = context;

	(void)call;
	return gpu_copy(copy->gpu, copy->memory, copy->memory + COPY_BYTES, COPY_BYTES, err);
}

static int cuda_copy_rate(const struct device *device, double *rate, struct error *err)
{
	struct gpu *gpu = device->gpu->gpu;
	struct copy copy = {gpu, gpu_allocate(gpu, 2 * COPY_BYTES, err)};
	double seconds[RATE_RUNS];
	int result = copy.memory ? gpu_fill(gpu, copy.memory, 0x5a, 2 * COPY_BYTES, err) : -1;

	if (!result)
		result = gpu_time(gpu, queue_copy, &copy, 2, RATE_RUNS, seconds, err);
	if (!result)
		*rate = 2.0 * (double)COPY_BYTES / seconds[RATE_RUNS / 2];
	gpu_release(gpu, copy.memory);
	return result;
}

#define PRODUCT_SIZE 8192 /* rows, columns and inner size */
#define PRODUCT_NUMBERS ((size_t)PRODUCT_SIZE * PRODUCT_SIZE)

struct product_work {
	struct gpu_gemm *gemm;
	uint16_t *x, *y;
};

static int queue_product(int call, void *context, struct error *err)
{
	const struct product_work *work = context;

	(void)call;
	return gpu_gemm_run(work->gemm, (struct gpu_rows){work->x, PRODUCT_SIZE}, PRODUCT_SIZE,
		(struct gpu_rows){work->y, PRODUCT_SIZE}, err);
}

/* Random numbers, for zeros take less power, and therefore time: a few, many times. */
static int fill_randomly(struct gpu *gpu, uint16_t *to, size_t count, struct error *err)
{
	enum { FEW = 1 << 20 };
	float *numbers = xmalloc(FEW * sizeof(*numbers));
	uint16_t *rounded = xmalloc(FEW * sizeof(*rounded));
	int result = 0;

	random_normal(1, 0, 1, numbers, FEW);
	for (int i = 0; i < FEW; i++)
		rounded[i] = bf16_of_float(numbers[i]);
	for (size_t at = 0; at < count && !result; at += FEW)
		result = gpu_upload(
			gpu, to + at, rounded, (count - at < FEW ? count - at : FEW) * sizeof(*to), err);
	free(rounded);
	free(numbers);
	return result;
}

static int cuda_product_rate(const struct device *device, double *rate, struct error *err)
{
	struct gpu *gpu = device->gpu->gpu;
	struct gpu_blas *blas = gpu_blas_open(gpu, err);
	uint16_t *memory = blas ? gpu_allocate(gpu, 3 * PRODUCT_NUMBERS * sizeof(*memory), err) : NULL;
	struct product_work work = {.x = memory, .y = memory + PRODUCT_NUMBERS};
	double seconds[RATE_RUNS];
	int result = memory ? fill_randomly(gpu, memory, 3 * PRODUCT_NUMBERS, err) : -1;

	if (!result) {
		work.gemm = gpu_gemm_make(
			blas, memory + 2 * PRODUCT_NUMBERS, PRODUCT_SIZE, PRODUCT_SIZE, err);
		result = work.gemm ? 0 : -1;
	}
	if (!result)
		result = gpu_time(gpu, queue_product, &work, 2, RATE_RUNS, seconds, err);
	if (!result)
		*rate = 2.0 * (double)PRODUCT_NUMBERS * PRODUCT_SIZE / seconds[RATE_RUNS / 2];
	gpu_gemm_free(work.gemm);
	gpu_release(gpu, memory);
	gpu_blas_close(blas);
	return result;
}

static void cuda_memory_reset(const struct device *device)
{
	gpu_reset_peak(device->gpu->gpu);
}

static double cuda_memory_peak(const struct device *device)
{
	return (double)gpu_allocated_peak(device->gpu->gpu) / 0x1p20;
}

static void cuda_close(const struct device *device)
{
	gpu_workspace_free(device->gpu->gpu, &device->gpu->workspace);
	gpu_close(device->gpu->gpu);
	free(device->gpu);
}

struct gpu *device_gpu(const struct device *device)
{
	return device->gpu ? device->gpu->gpu : NULL;
}

int device_open_cuda(int index, struct device *device, struct error *err)
{
	struct gpu *gpu = gpu_open(index, err);
	const struct gpu_properties *properties;

	if (!gpu)
		return -1;
	if (!nvrtc_library(err)) { /* without a compiler there are no kernels */
		gpu_close(gpu);
		return -1;
	}
	properties = gpu_properties_of(gpu);
	*device = (struct device){
		.index = index,
		.gpu = xmalloc(sizeof(*device->gpu)),
		.operate = cuda_operate,
		.time = cuda_time,
		.reference = cuda_reference,
		.layer_place = cuda_layer_place,
		.layer_remove = cuda_layer_remove,
		.layer = cuda_layer,
		.allocate = cuda_allocate,
		.release = cuda_release,
		.upload = cuda_upload,
		.download = cuda_download,
		.copy_rate = cuda_copy_rate,
		.product_rate = cuda_product_rate,
		.memory_reset = cuda_memory_reset,
		.memory_peak = cuda_memory_peak,
		.close = cuda_close,
	};
	*device->gpu = (struct device_gpu){.gpu = gpu};
	tune_use_results(properties);
	gpu_describe(index, properties, device->description, sizeof(device->description));
	return 0;
}
