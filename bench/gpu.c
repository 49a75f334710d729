/* The table of `make bench-gpu`: what the kernels reach on this GPU, beside what they could at most.
 *
 * The floor of a row is its memory traffic (every input read once, every output written once) at the rate
 * of a large copy on the same GPU in the same run. Times are medians between events, after warm-up; short
 * work rotates over buffers that together exceed the L2 cache. Inputs are random. */
#include <math.h>
#include <sodium.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "gpu/gpu.h"
#include "tensor/compare.h"
#include "layer/cuda.h"
#include "measure/fixture.h"
#include "op/quasar/cuda.h"
#include "tensor/random.h"

#define HEADS 8
#define DIM 64
#define LONGEST 1000000
#define ELEMENTS ((size_t)LONGEST * HEADS * DIM)
#define BYTES (ELEMENTS * sizeof(uint16_t))
#define ROTATED ((size_t)512 << 20) /* bytes that short work rotates over */
#define RUNS 21

static struct device device;
static struct gpu *gpu; /* of the device */
static struct gpu_workspace workspace;
static struct fixture fixture; /* of LONGEST tokens */
static char *q, *k, *v, *o;    /* its tensors, each BYTES */
static float *beta;
static double copy_rate; /* bytes per second */

static void must(int result, const struct error *err)
{
	if (result == 0)
		return;
	fprintf(stderr, "bench-gpu: %s\n", err->message);
	exit((int)err->status);
}

static void *allocate(size_t bytes)
{
	struct error err;
	void *memory = gpu_allocate(gpu, bytes, &err);

	must(memory ? 0 : -1, &err);
	return memory;
}

/* The GPU rests before, so that a row does not depend on what the one before it was. */
static double median_time(int (*work)(int call, void *context, struct error *err), void *context)
{
	double seconds[RUNS];
	struct error err;

	must(clock_sleep(GPU_REST, &err), &err);
	must(gpu_time(gpu, work, context, 5, RUNS, seconds, &err), &err);
	return seconds[RUNS / 2];
}

static void row(const char *what, double seconds, double bytes, const char *note)
{
	double floor = bytes / copy_rate;
	bool is_short = seconds < 1e-3;

	printf("| %s | %.3g %s | %.3g %s | %.0f %% | %s |\n", what, seconds * (is_short ? 1e6 : 1e3),
		is_short ? "µs" : "ms", floor * (is_short ? 1e6 : 1e3), is_short ? "µs" : "ms",
		100 * floor / seconds, note);
	fflush(stdout);
}

/* --- the operation -------------------------------------------------------------------------------- */

static struct quasar_problem problem_of(enum semantics semantics, int64_t tokens, size_t offset)
{
	return (struct quasar_problem){
		.semantics = semantics,
		.batch = 1,
		.tokens = tokens,
		.heads = HEADS,
		.dim = DIM,
		.q = tensor_contiguous(q + offset, DTYPE_BF16, tokens, HEADS, DIM),
		.k = tensor_contiguous(k + offset, DTYPE_BF16, tokens, HEADS, DIM),
		.v = tensor_contiguous(v + offset, DTYPE_BF16, tokens, HEADS, DIM),
		.o = tensor_contiguous(o + offset, DTYPE_BF16, tokens, HEADS, DIM),
		.beta = beta,
	};
}

struct op_work {
	enum semantics semantics;
	int64_t tokens;
};

static int queue_op(int call, void *context, struct error *err)
{
	const struct op_work *work = context;
	size_t bytes = (size_t)work->tokens * HEADS * DIM * sizeof(uint16_t);
	size_t sets = bytes < ROTATED ? ROTATED / bytes : 1;
	struct quasar_problem problem = problem_of(
		work->semantics, work->tokens, (size_t)call % sets * bytes);

	return quasar_cuda(gpu, &workspace, &problem, NULL, err);
}

/* `key_deviation` 0: the usual keys. */
static void make_tensors(float key_deviation)
{
	const struct family *family = families[0];
	const struct fixture_plan plan = {
		.family = family,
		.shape = {1, LONGEST, HEADS, DIM, DIM, 0, 0},
		.dtype = DTYPE_BF16,
		.seed = 1,
		.key_deviation = key_deviation,
	};
	struct error err;

	if (fixture.device)
		fixture_free(&fixture);
	must(fixture_make(&fixture, &device, &plan, &err), &err);
	q = fixture.problem.tensors[family_tensor_find(family, "q")].data;
	k = fixture.problem.tensors[family_tensor_find(family, "k")].data;
	v = fixture.problem.tensors[family_tensor_find(family, "v")].data;
	o = fixture.problem.tensors[family_tensor_find(family, "o")].data;
	beta = fixture.problem.tensors[family_tensor_find(family, "beta")].data;
}

static struct comparison against_fp64(enum semantics semantics)
{
	struct quasar_problem problem = problem_of(semantics, LONGEST, 0);
	double *reference = allocate(ELEMENTS * sizeof(double)),
	       *expected = malloc(ELEMENTS * sizeof(double));
	uint16_t *output = malloc(BYTES);
	struct comparison result;
	struct error err;

	must(gpu_fill(gpu, o, 0xff, BYTES, &err), &err);
	must(quasar_cuda(gpu, &workspace, &problem, NULL, &err), &err);
	must(quasar_cuda_reference(gpu, &problem, reference, NULL, &err), &err);
	must(gpu_download(gpu, output, o, BYTES, &err), &err);
	must(gpu_download(gpu, expected, reference, ELEMENTS * sizeof(double), &err), &err);
	result = compare_bf16_double(output, expected, ELEMENTS);
	gpu_release(gpu, reference);
	free(expected);
	free(output);
	return result;
}

static void bench_op(enum semantics semantics, int64_t tokens, const char *keys)
{
	struct op_work work = {semantics, tokens};
	char what[128], note[128];
	double seconds = median_time(queue_op, &work);

	snprintf(
		what, sizeof(what), "op, %s, T = %lld%s", semantics_name(semantics), (long long)tokens, keys);
	snprintf(note, sizeof(note), "%.0f M tokens/s", (double)tokens / seconds / 1e6);
	row(what, seconds, 4.0 * 2 * HEADS * DIM * (double)tokens, note);
}

static void bench_growth(enum semantics semantics)
{
	struct op_work part = {semantics, LONGEST / 10}, whole = {semantics, LONGEST};
	double growth = median_time(queue_op, &whole) / median_time(queue_op, &part);

	printf("| growth, %s, T = %d to %d | %.2f × | | | |\n", semantics_name(semantics), LONGEST / 10,
		LONGEST, growth);
}

static void bench_accuracy(enum semantics semantics, const char *keys)
{
	struct comparison found = against_fp64(semantics);

	printf("| against fp64, %s, T = %d%s | cosine %.7f, relative error %.2e%s | | | |\n",
		semantics_name(semantics), LONGEST, keys, found.cosine, found.relative_error,
		found.finite ? "" : ", NOT FINITE");
	fflush(stdout);
}

static void bench_ops(void)
{
	static const enum semantics both[] = {SEMANTICS_CAUSAL, SEMANTICS_UPSTREAM};
	static const char slow[] = ", keys that never forget";

	for (int i = 0; i < 2; i++) {
		bench_op(both[i], LONGEST, "");
		bench_op(both[i], LONGEST / 10, "");
		bench_op(both[i], 16384, "");
		bench_op(both[i], 2048, "");
		bench_growth(both[i]);
		bench_accuracy(both[i], "");
	}
	make_tensors(0.002f);
	for (int i = 0; i < 2; i++) {
		bench_op(both[i], LONGEST, slow);
		bench_accuracy(both[i], slow);
	}
	make_tensors(0);
	printf("| workspace, T = %d | %.1f MB | | | |\n", LONGEST, (double)workspace.bytes / 1e6);
}

/* --- the parts ------------------------------------------------------------------------------------- */

#define DECODE_BATCH 1024

struct decode_work {
	float *states;
	int sets;
};

static int queue_decode(int call, void *context, struct error *err)
{
	const struct decode_work *work = context;
	struct quasar_problem problem = problem_of(SEMANTICS_CAUSAL, 1, 0);

	problem.batch = DECODE_BATCH;
	problem.final_state = work->states + (size_t)(call % work->sets) * DECODE_BATCH * HEADS * DIM * DIM;
	problem.initial_state = problem.final_state;
	return quasar_cuda_recurrent(gpu, &problem, NULL, err);
}

static void bench_decode(void)
{
	const size_t state = (size_t)DECODE_BATCH * HEADS * DIM * DIM * sizeof(float);
	struct decode_work work = {allocate(4 * state), 4};
	struct error err;

	must(gpu_fill(gpu, work.states, 0, 4 * state, &err), &err);
	row("decode step, B = 1024, H = 8", median_time(queue_decode, &work),
		2.0 * (double)state + 4.0 * 2 * DECODE_BATCH * HEADS * DIM, "state 134 MB, in place");
	gpu_release(gpu, work.states);
}

#define MATRICES 125000

static int queue_substitution(int call, void *context, struct error *err)
{
	float *lower = context;

	(void)call;
	return forward_substitution_cuda(gpu, lower, lower + (size_t)MATRICES * 64 * 64, MATRICES, 64, err);
}

static void bench_substitution(void)
{
	const size_t elements = (size_t)MATRICES * 64 * 64;
	float *lower = allocate(2 * elements * sizeof(float)), *host = malloc(elements * sizeof(float));
	struct error err;

	random_normal(1, 4, 0.125f, host, elements);
	must(gpu_upload(gpu, lower, host, elements * sizeof(float), &err), &err);
	row("forward_substitution, 125000 × 64 × 64, fp32", median_time(queue_substitution, lower),
		2.0 * (double)elements * sizeof(float), "");
	gpu_release(gpu, lower);
	free(host);
}

static int queue_gate(int call, void *context, struct error *err)
{
	struct tensor keys = tensor_contiguous(k, DTYPE_BF16, LONGEST, HEADS, DIM);

	(void)call;
	return quasar_cuda_gate(gpu, &keys, 1, LONGEST, HEADS, DIM, beta, context, err);
}

static int queue_copy(int call, void *context, struct error *err)
{
	(void)call;
	(void)context;
	return gpu_copy(gpu, o, q, BYTES, err);
}

/* --- the layer ------------------------------------------------------------------------------------ */

struct layer_work {
	struct layer_cuda *layer;
	enum semantics semantics;
	int64_t tokens;
	float *x;
	uint16_t *out;
};

static int queue_layer(int call, void *context, struct error *err)
{
	const struct layer_work *work = context;
	int64_t sets = LONGEST / work->tokens, first = call % sets * work->tokens * LAYER_HIDDEN;
	struct layer_call layer = {
		work->semantics, 1, work->tokens, work->x + first, work->out + first, NULL};

	return layer_cuda(work->layer, &layer, err);
}

/* Multiplications and additions of the operation. */
static double operations_of(int64_t tokens)
{
	const struct op_problem problem = {.shape = {1, tokens, LAYER_HEADS, LAYER_DIM, LAYER_DIM, 0, 0}};

	return families[0]->operations(&problem);
}

/* The floor: x and out through memory, or the multiplications and additions of its products and of the
 * operation, whichever takes longer. */
static void bench_layer(struct layer_work *work, double rate)
{
	double seconds = median_time(queue_layer, work), tokens = (double)work->tokens;
	double operations = 2.0 * LAYER_HIDDEN * (4 * LAYER_HIDDEN + LAYER_DIM) +
		2.0 * LAYER_DIM * LAYER_HIDDEN;
	double floor = fmax(6 * LAYER_HIDDEN * tokens / copy_rate,
		(operations * tokens + operations_of(work->tokens)) / rate);
	char what[128], note[128];

	snprintf(what, sizeof(what), "layer, %s, T = %.0f", semantics_name(work->semantics), tokens);
	snprintf(note, sizeof(note), "%.0f M tokens/s", tokens / seconds / 1e6);
	row(what, seconds, floor * copy_rate, note);
}

static void bench_layers(void)
{
	static const int64_t lengths[] = {LONGEST, LONGEST / 10, 16384, 2048};
	struct layer_fixture made;
	struct layer_work work;
	struct error err;
	double rate;
	size_t before;

	must(device.product_rate(&device, &rate, &err), &err);
	before = gpu_allocated(gpu);
	must(layer_fixture_make(&made, &device, NULL, 1, LONGEST, &err), &err);
	work = (struct layer_work){.layer = made.placed, .x = made.x, .out = made.out};
	printf("| a product of 8192³, bf16 | %.0f TFLOP/s | | | |\n", rate / 1e12);
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			work.semantics = (enum semantics)semantics;
			work.tokens = lengths[i];
			bench_layer(&work, rate);
		}
	printf("| memory of the layer beyond x and out, T = %d | %.1f GB | | | |\n", LONGEST,
		(double)(gpu_allocated(gpu) - before - made.count * (sizeof(*made.x) + sizeof(*made.out))) /
			1e9);
	layer_fixture_free(&made);
}

int main(void)
{
	struct error err = {0};
	char input[160];

	if (sodium_init() < 0)
		return 1;
	must(device_open_cuda(0, &device, &err), &err);
	gpu = device_gpu(&device);
	make_tensors(0);
	copy_rate = 2 * (double)BYTES / median_time(queue_copy, NULL);
	fixture_describe(families[0], (int[FAMILY_OPTIONS]){0}, input, sizeof(input));
	printf("%s; a copy moves %.2f TB/s, read and written. B1 H8 S64 bf16; %s; medians of %d.\n\n"
	       "| | measured | floor | of the floor's rate | |\n|---|---|---|---|---|\n",
		gpu_properties_of(gpu)->name, copy_rate / 1e12, input, RUNS);
	bench_ops();
	bench_decode();
	bench_substitution();
	row("gate, T = 1000000", median_time(queue_gate, o),
		(double)BYTES + (double)LONGEST * HEADS * sizeof(float), "");
	bench_layers();
	gpu_workspace_free(gpu, &workspace);
	fixture_free(&fixture);
	device_close(&device);
	return 0;
}
