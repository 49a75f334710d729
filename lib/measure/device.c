#include "measure/device.h"

#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "base/clock.h"
#include "base/log.h"
#include "cpu/cpu.h"
#include "layer/kernel.h"
#include "layer/layer.h"
#include "tensor/random.h"

/* The kernel keeps a process's peak of resident memory, and forgets it when told so. */
static void cpu_memory_reset(const struct device *device)
{
	FILE *file = fopen("/proc/self/clear_refs", "we");

	(void)device;
	if (!file)
		return;
	fputs("5", file);
	fclose(file);
}

static double cpu_memory_peak(const struct device *device)
{
	FILE *file = fopen("/proc/self/status", "re");
	char line[256];
	double kib = NAN;
	struct rusage usage;

	(void)device;
	while (file && fgets(line, sizeof(line), file))
		if (sscanf(line, "VmHWM: %lf", &kib) == 1)
			break;
	if (file)
		fclose(file);
	if (isnan(kib) && getrusage(RUSAGE_SELF, &usage) == 0)
		kib = (double)usage.ru_maxrss;
	return kib / 1024;
}

static int cpu_operate(const struct device *device, const struct family *family,
	const struct op_problem *problem, const struct config *config, struct error *err)
{
	(void)device;
	(void)config;
	return family->cpu(problem, err);
}

static int cpu_time(const struct device *device, const struct family *family,
	const struct op_problem *problem, double *seconds, struct error *err)
{
	double start = clock_elapsed();
	int result = cpu_operate(device, family, problem, NULL, err);

	*seconds = clock_elapsed() - start;
	return result;
}

static int cpu_reference(const struct device *device, const struct family *family,
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	(void)device;
	return family->reference(problem, results, err);
}

static void *cpu_layer_place(const struct device *device, const struct layer *layer, struct error *err)
{
	(void)device;
	(void)err;
	return (void *)layer;
}

static void cpu_layer_remove(const struct device *device, void *placed)
{
	(void)device;
	(void)placed;
}

static int cpu_layer(
	const struct device *device, void *placed, const struct layer_call *call, struct error *err)
{
	(void)device;
	return layer_cpu(placed, call, err);
}

static void *cpu_allocate(const struct device *device, size_t bytes, struct error *err)
{
	void *memory = malloc(bytes);

	(void)device;
	if (!memory)
		error_set(err, STATUS_ENVIRONMENT, "not enough memory: %.0f MiB needed",
			(double)bytes / 0x1p20);
	return memory;
}

static void cpu_release(const struct device *device, void *memory)
{
	(void)device;
	free(memory);
}

static int cpu_copy(const struct device *device, void *to, const void *from, size_t bytes, struct error *err)
{
	(void)device;
	(void)err;
	memcpy(to, from, bytes);
	return 0;
}

/* Far larger than caches. */
#define COPY_BYTES ((size_t)64 << 20)

static int cpu_copy_rate(const struct device *device, double *rate, struct error *err)
{
	char *memory = cpu_allocate(device, 2 * COPY_BYTES, err);
	double best = INFINITY;

	if (!memory)
		return -1;
	memset(memory, 1, 2 * COPY_BYTES);
	for (int run = 0; run < 3; run++) {
		double started = clock_elapsed();

#pragma omp parallel for num_threads(cpu_threads())
		for (size_t at = 0; at < COPY_BYTES; at += COPY_BYTES / 64)
			memcpy(memory + at, memory + COPY_BYTES + at, COPY_BYTES / 64);
		best = fmin(best, clock_elapsed() - started);
	}
	free(memory);
	*rate = 2.0 * (double)COPY_BYTES / best;
	return 0;
}

#define PRODUCT_SIZE 512 /* columns, and inner size */
#define PRODUCT_RUNS 40
#define PRODUCT_NUMBERS ((size_t)PRODUCT_ROWS * PRODUCT_SIZE)

/* Each thread multiplies rows of its own; `x` and `scratch` have room for two products of each. The sum of what each
 * reaches at its best: one that waits for a processor holds up no other. */
static double product_rates(const struct product *product, uint16_t *x, float *scratch)
{
	double rate = 0;

#pragma omp parallel num_threads(cpu_threads()) reduction(+ : rate)
	{
		size_t own = 2 * PRODUCT_NUMBERS * (size_t)omp_get_thread_num();
		double best = INFINITY;

		for (int run = 0; run < PRODUCT_RUNS; run++) {
			double started = clock_elapsed();

			product_run(product, layer_kernel_in_use(), x + own, PRODUCT_ROWS,
				x + own + PRODUCT_NUMBERS, scratch + own);
			best = fmin(best, clock_elapsed() - started);
		}
		rate += 2.0 * (double)PRODUCT_NUMBERS * PRODUCT_SIZE / best;
	}
	return rate;
}

static int cpu_product_rate(const struct device *device, double *rate, struct error *err)
{
	size_t count = 2 * PRODUCT_NUMBERS * (size_t)cpu_threads();
	float *weight = cpu_allocate(device, PRODUCT_SIZE * PRODUCT_SIZE * sizeof(float), err);
	float *scratch = weight ? cpu_allocate(device, count * sizeof(float), err) : NULL;
	uint16_t *x = scratch ? cpu_allocate(device, count * sizeof(uint16_t), err) : NULL;
	struct product product = {0};
	int result = x ? 0 : -1;

	if (!result) {
		random_normal(1, 0, 1, weight, PRODUCT_SIZE * PRODUCT_SIZE);
		random_normal(1, 1, 1, scratch, count);
		layer_kernel_in_use()->narrow(scratch, x, count);
		result = product_make(&product, weight, NULL, PRODUCT_SIZE, PRODUCT_SIZE, err);
	}
	if (!result)
		result = product_ready(&product, err);
	if (!result)
		*rate = product_rates(&product, x, scratch);
	product_free(&product);
	free(x);
	free(scratch);
	free(weight);
	return result;
}

static void cpu_close(const struct device *device)
{
	(void)device;
}

void device_close(struct device *device)
{
	if (device->close)
		device->close(device);
	*device = (struct device){0};
}

void device_open_cpu(struct device *device)
{
	*device = (struct device){
		.index = -1,
		.operate = cpu_operate,
		.time = cpu_time,
		.reference = cpu_reference,
		.layer_place = cpu_layer_place,
		.layer_remove = cpu_layer_remove,
		.layer = cpu_layer,
		.allocate = cpu_allocate,
		.release = cpu_release,
		.upload = cpu_copy,
		.download = cpu_copy,
		.copy_rate = cpu_copy_rate,
		.product_rate = cpu_product_rate,
		.memory_reset = cpu_memory_reset,
		.memory_peak = cpu_memory_peak,
		.close = cpu_close,
	};
	cpu_describe(device->description, sizeof(device->description));
}

int device_open(const char *name, struct device *device, struct error *err)
{
	struct error no_gpu = {0};
	int index;

	if (gpu_parse_device(name, &index, err) < 0)
		return -1;
	if (index >= 0)
		return device_open_cuda(index, device, err);
	if (index == GPU_IF_ANY) {
		if (device_open_cuda(0, device, &no_gpu) == 0)
			return 0;
		log_debug("no GPU: %s", no_gpu.message);
	}
	device_open_cpu(device);
	return 0;
}
