#include "predict/model.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#define SCHEDULERS 4         /* of a multiprocessor; each starts an instruction a cycle */
#define SHARED_PER_CYCLE 128 /* bytes, of a multiprocessor */
#define LANES 32

/* Floating-point operations a cycle and multiprocessor that mma.sync gets out of the tensor cores at most, however many
 * there are: newer GPUs ask for other instructions. Measured on an H200. */
#define MMA_SYNC_MOST 2400

/* Calibrated on an H200: 39 calls, S = 64 and 128, 2,048 to 1,000,000 tokens, by mma.sync and by wgmma, in two launches
 * and in three (docs/performance.md, tests/vectors/h200_times.json). The times that come out deviate from the measured
 * ones by 7 % (standard deviation), at most by 20 %; those of one head size from constants that were fitted to the
 * other's by 16 %, which is what other configurations have to reckon with. How long a load takes is what attention lost
 * there for each tile when nothing was loaded ahead. What is OWN is of kernels whose warps work each by itself, from 12
 * searches of linear attention. */
#define LATENCY 2.0         /* cycles an instruction, of a warp that is alone */
#define EXPONENT 2.0        /* 1: costs follow each other, large: they hide each other */
#define MEMORY_PART 0.89    /* of the data sheet's bandwidth, that a copy gets */
#define LAUNCH_SECONDS 6e-6 /* to begin and to end */
#define LOAD_SECONDS 5e-7   /* from asking for a tile until all of a block have it */
#define OWN_LAUNCH_SECONDS 2e-6
#define OWN_LOAD_SECONDS 2e-7
#define TAKEN 0.6 /* of the code outside of loops, that a warp does not branch around */
#define CALIBRATED "H200"
#define DEVIATION 0.16

enum { TENSOR, SHARED, MEMORY, ISSUE, WAIT, LOAD, COSTS };
static const char *const cost_names[] = {
	[TENSOR] = "tensor cores",
	[SHARED] = "shared memory",
	[MEMORY] = "memory",
	[ISSUE] = "instructions",
	[WAIT] = "latency",
	[LOAD] = "latency",
};

/* What runs at a time. */
struct load {
	double at_once; /* blocks of a multiprocessor */
	double warps;   /* of these */
	double blocks;  /* of all multiprocessors, which share the memory */
};

/* What a block does several times. */
struct work {
	const struct code *code; /* of an average warp */
	double longest;          /* instructions of the warp that has the most */
	double times, bytes;     /* of memory, each time */
	double ahead;            /* times before that they are asked for; INFINITY: nothing waits for them */
	double load;             /* seconds from then until they are there */
};

/* Adds seconds of each kind that work takes. */
static double add_costs(
	double costs[COSTS], const struct gpu_model *gpu, const struct load *load, const struct work *work)
{
	const struct code *code = work->code;
	double hertz = gpu->clock_mhz * 1e6;
	double tensor_rate = gpu->bf16_tflops * 1e12 / gpu->multiprocessors;
	double mma_rate = fmin(tensor_rate, MMA_SYNC_MOST * hertz);
	double on_a_scheduler = fmax(1, load->warps / SCHEDULERS), sum = 0;
	/* while a block waits for what it has just asked for, the others have the multiprocessor to themselves */
	double exposed = work->ahead > 0 ? 0 : work->load / load->at_once;
	const double parts[COSTS] = {
		[TENSOR] = load->warps * (code->mma_flops / mma_rate + code->wgmma_flops / tensor_rate),
		[SHARED] = load->warps * code->shared_bytes / SHARED_PER_CYCLE / hertz,
		[MEMORY] = load->blocks * work->bytes / (MEMORY_PART * gpu->bandwidth_gbs * 1e9),
		[ISSUE] = on_a_scheduler * code->instructions / hertz,
		[WAIT] = LATENCY * work->longest / hertz,
		[LOAD] = work->ahead > 0 ? work->load / work->ahead : 0,
	};

	for (int i = 0; i < COSTS; i++) {
		costs[i] += parts[i] * work->times;
		sum += pow(parts[i], EXPONENT);
	}
	costs[LOAD] += exposed * work->times;
	return (pow(sum, 1 / EXPONENT) + exposed) * work->times;
}

/* So much of one and of the other. */
static struct code mixed(const struct code *a, const struct code *b, double of_a, double of_b)
{
	return (struct code){
		.instructions = (int)lround(of_a * a->instructions + of_b * b->instructions),
		.mma_flops = of_a * a->mma_flops + of_b * b->mma_flops,
		.wgmma_flops = of_a * a->wgmma_flops + of_b * b->wgmma_flops,
		.shared_bytes = of_a * a->shared_bytes + of_b * b->shared_bytes,
	};
}

struct model_time model_launch(const struct gpu_model *gpu, const struct config_launch *launch,
	const struct cubin_kernel *kernel, const struct occupancy *occupancy)
{
	double blocks = (double)launch->blocks, multiprocessors = gpu->multiprocessors;
	double at_once = fmin(occupancy->blocks, ceil(blocks / multiprocessors));
	double waves = ceil(blocks / (at_once * multiprocessors));
	const struct load load = {
		at_once, at_once * launch->threads / LANES, fmin(blocks, at_once * multiprocessors)};
	double in_loop = launch->trips > 0 ? launch->bytes : 0, beside = launch->beside;
	const struct code straight = mixed(&kernel->once, &kernel->beside, 1, beside > 0 ? 0 : 1);
	const struct code repeated = mixed(&kernel->loop, &kernel->beside, 1 - beside, beside);
	const struct work once = {
		&straight, straight.instructions, TAKEN, (launch->bytes - in_loop) / TAKEN, INFINITY, 0};
	const struct work loop = {&repeated, kernel->loop.instructions, launch->trips,
		in_loop / fmax(launch->trips, 1), launch->ahead,
		launch->by_warp ? OWN_LOAD_SECONDS : LOAD_SECONDS};
	double costs[COSTS] = {0};
	double seconds = add_costs(costs, gpu, &load, &once) + add_costs(costs, gpu, &load, &loop);
	int most = 0;

	for (int i = 1; i < COSTS; i++)
		if (costs[i] > costs[most])
			most = i;
	return (struct model_time){
		(launch->by_warp ? OWN_LAUNCH_SECONDS : LAUNCH_SECONDS) + waves * seconds, cost_names[most]};
}

double model_error(const struct gpu_model *gpu)
{
	return strcmp(gpu->name, CALIBRATED) ? NAN : 2 * DEVIATION;
}
