/* bench: the operation against a straightforward recurrence, for each instruction set, and the layer. The
 * contestants take turns, so that a machine's moods meet all of them; medians are shown. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "cpu/cpu.h"
#include "measure/fixture.h"
#include "measure/measure.h"
#include "recurrence.h"
#include "tensor/compare.h"

#define T 65536
#define H 8
#define S 64
#define ELEMENTS ((size_t)T * H * S)
#define ROUNDS 7

enum { Q, K, V, O }; /* of the family */

static const struct family *family; /* the first one */
static struct device cpu;
static struct fixture fixtures[3]; /* of each type */
static double *reference[2][3];    /* of each semantics and type; NULL: nobody asks */

static void *allocate(size_t size)
{
	void *memory = aligned_alloc(64, (size + 63) / 64 * 64);

	if (!memory) {
		fputs("bench: not enough memory\n", stderr);
		exit(3);
	}
	return memory;
}

static void must(int result, const struct error *err)
{
	if (!result)
		return;
	fprintf(stderr, "bench: %s\n", err->message);
	exit((int)err->status);
}

static struct op_problem problem_of(enum semantics semantics, enum dtype dtype)
{
	struct op_problem problem = fixtures[dtype].problem;

	problem.options[0] = (int)semantics;
	return problem;
}

static void make_tensors(enum dtype dtype)
{
	const struct fixture_plan plan = {
		.family = family, .shape = {1, T, H, S, S, 0, 0}, .dtype = dtype, .seed = 1};
	struct error err = {0};

	must(fixture_make(&fixtures[dtype], &cpu, &plan, &err), &err);
}

static void make_reference(enum semantics semantics, enum dtype dtype)
{
	struct op_problem problem = problem_of(semantics, dtype);
	double *results[FAMILY_TENSORS] = {0};
	struct error err = {0};

	results[O] = reference[semantics][dtype] = allocate(ELEMENTS * sizeof(double));
	must(family->reference(&problem, results, &err), &err);
}

/* --- contestants ----------------------------------------------------------------------------------- */

struct contestant {
	const char *name;
	const struct recurrence *recurrence; /* NULL: the kernels */
	enum semantics semantics;
	enum dtype dtype;
	int threads; /* 0: all */
	double times[ROUNDS], median, cosine;
};

static void run_recurrence(const struct contestant *contestant)
{
	int threads = contestant->threads ? contestant->threads : cpu_threads();
	const struct tensor *tensors = fixtures[DTYPE_F32].problem.tensors;
	const float *beta = tensors[family_tensor_find(family, "beta")].data;
	float *single[] = {tensors[Q].data, tensors[K].data, tensors[V].data, tensors[O].data};

#pragma omp parallel for num_threads(threads) schedule(dynamic, 1)
	for (int head = 0; head < H; head++) {
		float *state = allocate(S * S * sizeof(*state));
		size_t at = (size_t)head * S;

		memset(state, 0, S * S * sizeof(*state));
		contestant->recurrence->run(single[Q] + at, single[K] + at, single[V] + at, single[O] + at, T,
			H * S, beta[head], state);
		free(state);
	}
}

static double time_once(const struct contestant *contestant)
{
	double start = clock_elapsed();

	if (contestant->recurrence) {
		run_recurrence(contestant);
	} else {
		struct op_problem problem = problem_of(contestant->semantics, contestant->dtype);
		struct error err = {0};

		cpu_threads_set(contestant->threads);
		must(family->cpu(&problem, &err), &err);
		cpu_threads_set(0);
	}
	return clock_elapsed() - start;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double cosine(const struct contestant *contestant)
{
	const double *expected = reference[contestant->semantics][contestant->dtype];
	const void *o = fixtures[contestant->dtype].problem.tensors[O].data;

	return contestant->dtype == DTYPE_F32 ? compare_float_double(o, expected, ELEMENTS).cosine
					      : compare_bf16_double(o, expected, ELEMENTS).cosine;
}

static void compete(struct contestant *contestants, size_t count)
{
	for (int round = -1; round < ROUNDS; round++) /* the first one warms up */
		for (size_t i = 0; i < count; i++) {
			double seconds = time_once(&contestants[i]);

			if (round < 0)
				contestants[i].cosine = cosine(&contestants[i]);
			else
				contestants[i].times[round] = seconds;
		}
	for (size_t i = 0; i < count; i++) {
		qsort(contestants[i].times, ROUNDS, sizeof(double), by_value);
		contestants[i].median = contestants[i].times[ROUNDS / 2];
	}
}

/* --- tables ------------------------------------------------------------------------------------------ */

/* Multiply-adds of the recurrence: k S, k change and q S for each token and head; upstream goes through the
 * state twice. */
static double multiply_adds(enum semantics semantics)
{
	return (semantics == SEMANTICS_CAUSAL ? 3.0 : 5.0) * S * S * H * T;
}

static double measure_peak(const struct recurrence *recurrence)
{
	double best = 0;

	for (int i = 0; i < 5; i++) {
		double start = clock_elapsed(), done = recurrence->peak();

		best = fmax(best, done / (clock_elapsed() - start));
	}
	return best;
}

static double measure_copy(void)
{
	double best = 0;
	const struct tensor *tensors = fixtures[DTYPE_F32].problem.tensors;
	size_t part = ELEMENTS * sizeof(float) / (size_t)cpu_threads();

	for (int i = 0; i < 5; i++) {
		double start = clock_elapsed();

#pragma omp parallel for num_threads(cpu_threads())
		for (int thread = 0; thread < cpu_threads(); thread++)
			memcpy((char *)tensors[O].data + (size_t)thread * part,
				(char *)tensors[Q].data + (size_t)thread * part, part);
		best = fmax(best, 2.0 * (double)part * cpu_threads() / (clock_elapsed() - start));
	}
	return best;
}

static void show(const struct recurrence *recurrence)
{
	struct contestant list[] = {
		{"recurrence, 1 thread", recurrence, SEMANTICS_CAUSAL, DTYPE_F32, 1, {0}, 0, 0},
		{"recurrence, heads over threads", recurrence, SEMANTICS_CAUSAL, DTYPE_F32, 0, {0}, 0, 0},
		{"causal, bf16, 1 thread", NULL, SEMANTICS_CAUSAL, DTYPE_BF16, 1, {0}, 0, 0},
		{"causal, bf16", NULL, SEMANTICS_CAUSAL, DTYPE_BF16, 0, {0}, 0, 0},
		{"causal, fp32", NULL, SEMANTICS_CAUSAL, DTYPE_F32, 0, {0}, 0, 0},
		{"upstream, bf16, 1 thread", NULL, SEMANTICS_UPSTREAM, DTYPE_BF16, 1, {0}, 0, 0},
		{"upstream, bf16", NULL, SEMANTICS_UPSTREAM, DTYPE_BF16, 0, {0}, 0, 0},
	};
	size_t count = sizeof(list) / sizeof(*list);
	double peak = measure_peak(recurrence);

	cpu_variant_select(recurrence->name);
	compete(list, count);
	printf("\n%s: %.1f G multiply-adds/s of fp32 in a thread's registers\n", recurrence->name,
		peak * 1e-9);
	printf("%-32s %10s %10s %11s %11s %10s %11s\n", "", "median", "fastest", "M tokens/s", "x 1 thread",
		"x threads", "1 - cosine");
	for (size_t i = 0; i < count; i++)
		printf("%-32s %7.1f ms %7.1f ms %11.3f %11.2f %10.2f %11.1e\n", list[i].name,
			list[i].median * 1e3, list[i].times[0] * 1e3, T / list[i].median * 1e-6,
			list[0].median / list[i].median, list[1].median / list[i].median, 1 - list[i].cosine);
}

static void show_operation(void)
{
	static const struct recurrence *const all[] = {
		&recurrence_baseline,
#ifdef __x86_64__
		&recurrence_x86_64_v3,
		&recurrence_x86_64_v4,
		&recurrence_x86_64_amx,
#endif
	};
	double bytes = 4.0 * ELEMENTS * sizeof(uint16_t), copy = measure_copy();
	char input[160];

	fixture_describe(family, (int[FAMILY_OPTIONS]){0}, input, sizeof(input));
	printf("The operation: T = %d, H = %d, S = %d; %s.\n \"x 1 thread\" and \"x threads\": times as fast as the\n"
	       "recurrence (fp32 tensors, same compiler flags) on one thread, and with its heads over all; by medians.\n"
	       "Floors: q, k, v and o moved once in bf16, %.0f MB, take %.1f ms at the %.1f GB/s of a copy;\n"
	       "causal has %.1f G multiply-adds, upstream %.1f G.\n",
		T, H, S, input, bytes * 1e-6, bytes / copy * 1e3, copy * 1e-9,
		multiply_adds(SEMANTICS_CAUSAL) * 1e-9, multiply_adds(SEMANTICS_UPSTREAM) * 1e-9);
	for (const char *const *name = cpu_variants(); *name; name++)
		for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
			if (!strcmp(all[i]->name, *name))
				show(all[i]);
}

static void show_layer(void)
{
	static const int64_t lengths[] = {2048, 16384, 65536};
	struct error err = {0};

	printf("\nThe layer: batch 1, hidden 512, 8 heads of 64; projections and gate are 1.11 M multiply-adds a "
	       "token.\n%-34s %10s %8s %12s %12s\n",
		cpu.description, "median", "spread", "M tokens/s", "memory");
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
			struct measure_plan plan = {.semantics = (enum semantics)semantics,
				.tokens = lengths[i],
				.warmups = 1,
				.runs = ROUNDS,
				.budget = 20,
				.seed = 1};
			struct measurement found;
			char *name = xprintf(
				"%s, T = %lld", semantics_name(plan.semantics), (long long)lengths[i]);

			must(measure_run(&cpu, &plan, &found, &err), &err);
			printf("%-34s %7.1f ms %6.0f %% %12.3f %8.0f MiB\n", name, found.seconds * 1e3,
				found.spread * 100, found.tokens_per_second * 1e-6, found.memory_mb);
			free(name);
		}
}

int main(void)
{
	setvbuf(stdout, NULL, _IOLBF, 0);
	family = families[0];
	device_open_cpu(&cpu);
	printf("%s, compiled with %s\n", cpu.description, __VERSION__);
	make_tensors(DTYPE_F32);
	make_tensors(DTYPE_BF16);
	make_reference(SEMANTICS_CAUSAL, DTYPE_F32);
	make_reference(SEMANTICS_CAUSAL, DTYPE_BF16);
	make_reference(SEMANTICS_UPSTREAM, DTYPE_BF16);
	show_operation();
	for (int dtype = 0; dtype < 3; dtype++) {
		if (fixtures[dtype].device)
			fixture_free(&fixtures[dtype]);
		for (int semantics = 0; semantics < 2; semantics++)
			free(reference[semantics][dtype]);
	}
	show_layer();
	device_close(&cpu);
	return 0;
}
