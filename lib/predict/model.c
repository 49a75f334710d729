#include "predict/model.h"

#include <math.h>
#include <string.h>

#define SCHEDULERS 4       /* of a multiprocessor; each starts an instruction a cycle */
#define SHARED_PER_CYCLE 128 /* bytes, of a multiprocessor */
#define LANES 32

/* Floating-point operations a cycle and multiprocessor that mma.sync gets out of the tensor cores at most, however many
 * there are: newer GPUs ask for other instructions. Measured on an H200. */
#define MMA_SYNC_MOST 2400

/* Calibrated on an H200: 39 calls, S = 64 and 128, 2,048 to 1,000,000 tokens, by mma.sync and by wgmma, in two launches
 * and in three (docs/performance.md), and what each of the three took in one of them. The times that come out deviate
 * from the measured ones by 8 % (standard deviation), at most by 21 %. */
#define LATENCY 3.0         /* cycles an instruction, of a warp that is alone */
#define EXPONENT 2.2        /* 1: costs follow each other, large: they hide each other */
#define MEMORY_PART 0.89    /* of the data sheet's bandwidth, that a copy gets */
#define LAUNCH_SECONDS 6e-6 /* to begin and to end */
#define TAKEN 0.6           /* of the code outside of loops, that a warp does not branch around */
#define CALIBRATED "H200"
#define DEVIATION 0.08

enum { TENSOR, SHARED, MEMORY, ISSUE, WAIT, COSTS };
static const char *const cost_names[] = {
	[TENSOR] = "tensor cores",
	[SHARED] = "shared memory",
	[MEMORY] = "memory",
	[ISSUE] = "instructions",
	[WAIT] = "latency",
};

/* What runs at a time. */
struct load {
	double warps;  /* of a multiprocessor */
	double blocks; /* of all, which share the memory */
};

/* Adds seconds of each kind that code takes, `trips` times with so many bytes of a block's through memory each. */
static double add_costs(double costs[COSTS], const struct gpu_model *gpu, const struct code *code,
	const struct load *load, double trips, double bytes)
{
	double hertz = gpu->clock_mhz * 1e6;
	double tensor_rate = gpu->bf16_tflops * 1e12 / gpu->multiprocessors;
	double mma_rate = fmin(tensor_rate, MMA_SYNC_MOST * hertz);
	double on_a_scheduler = fmax(1, load->warps / SCHEDULERS), sum = 0;
	const double parts[COSTS] = {
		[TENSOR] = load->warps * (code->mma_flops / mma_rate + code->wgmma_flops / tensor_rate),
		[SHARED] = load->warps * code->shared_bytes / SHARED_PER_CYCLE / hertz,
		[MEMORY] = load->blocks * bytes / (MEMORY_PART * gpu->bandwidth_gbs * 1e9),
		[ISSUE] = on_a_scheduler * code->instructions / hertz,
		[WAIT] = LATENCY * code->instructions / hertz,
	};

	for (int i = 0; i < COSTS; i++) {
		costs[i] += parts[i] * trips;
		sum += pow(parts[i], EXPONENT);
	}
	return pow(sum, 1 / EXPONENT) * trips;
}

struct model_time model_launch(const struct gpu_model *gpu, const struct config_launch *launch,
	const struct cubin_kernel *kernel, const struct occupancy *occupancy)
{
	double blocks = (double)launch->blocks, multiprocessors = gpu->multiprocessors;
	double at_once = fmin(occupancy->blocks, ceil(blocks / multiprocessors));
	double waves = ceil(blocks / (at_once * multiprocessors));
	const struct load load = {at_once * launch->threads / LANES, fmin(blocks, at_once * multiprocessors)};
	double costs[COSTS] = {0}, seconds;
	int most = 0;

	seconds = add_costs(costs, gpu, &kernel->once, &load, TAKEN, launch->trips > 0 ? 0 : launch->bytes / TAKEN);
	if (launch->trips > 0)
		seconds += add_costs(
			costs, gpu, &kernel->loop, &load, launch->trips, launch->bytes / launch->trips);
	for (int i = 1; i < COSTS; i++)
		if (costs[i] > costs[most])
			most = i;
	return (struct model_time){LAUNCH_SECONDS + waves * seconds, cost_names[most]};
}

double model_error(const struct gpu_model *gpu)
{
	return strcmp(gpu->name, CALIBRATED) ? NAN : 2 * DEVIATION;
}
