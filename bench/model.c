/* model: a language model of Qwen2.5-0.5B's shape with random weights, beside what the memory allows.
 *
 * usage: bench-model [cpu|cuda|cuda:N]      (cpu when none is named)
 *
 * On the CPU, model and memory take turns, so that a machine's moods meet both. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cpu/cpu.h"
#include "measure/device.h"
#include "model/model.h"
#include "tests/random_model.h"

#define PROMPT 128
#define LARGEST_BATCH 64

/* What is measured on each kind of device. */
static const struct plan {
	enum dtype dtype;
	int batches[4];
	int rounds, tokens; /* of a round, a session */
} plans[] = {
	{DTYPE_BF16, {1, 2, 4, 8}, 10, 4},
	{DTYPE_F16, {1, 8, 32, LARGEST_BATCH}, 8, 64},
};

static const struct plan *plan;
static struct device device;
static struct error err;

static void must(bool good)
{
	if (good)
		return;
	fprintf(stderr, "bench: %s\n", err.message);
	exit(3);
}

/* --- reading ------------------------------------------------------------------------------------- */

typedef uint64_t line __attribute__((vector_size(64)));

static line *memory;
static size_t lines;

/* Once, so that every page is there. */
static void make_memory(size_t bytes)
{
	lines = bytes / sizeof(line);
	memory = aligned_alloc(2 << 20, (bytes + (2 << 20) - 1) >> 21 << 21);
	must(memory != NULL);
#pragma omp parallel for num_threads(cpu_threads())
	for (size_t i = 0; i < lines; i++)
		memory[i] = (line){i};
}

/* Bytes per second. Four streams at a time, which is faster than one. */
static double read_memory(void)
{
	double started = clock_elapsed();
	uint64_t total = 0;

#pragma omp parallel for num_threads(cpu_threads()) reduction(+ : total)
	for (size_t block = 0; block < lines / 1024; block++) {
		const line *from = memory + block * 1024;
		line sums[4] = {0};

		for (size_t i = 0; i < 256; i++)
			for (size_t n = 0; n < 4; n++)
				sums[n] += from[n * 256 + i];
		total += sums[0][0] + sums[1][1] + sums[2][2] + sums[3][3];
	}
	must(total != 1);
	return (double)(lines / 1024 * 1024 * sizeof(line)) / (clock_elapsed() - started);
}

/* Of the device's memory. */
static double memory_rate(void)
{
	double rate;

	if (device.index < 0)
		return read_memory();
	must(device.copy_rate(&device, &rate, &err) == 0);
	return rate;
}

/* --- the model ----------------------------------------------------------------------------------- */

struct contest {
	struct model *model;
	struct model_session *sessions[LARGEST_BATCH];
	int32_t tokens[LARGEST_BATCH]; /* the latest of each */
	int batch;
};

/* Sessions that have taken a prompt. Returns the seconds of the last one. */
static double begin(struct contest *contest, struct model *model, int batch)
{
	int32_t prompt[PROMPT];
	double seconds = 0;

	*contest = (struct contest){.model = model, .batch = batch};
	for (int i = 0; i < PROMPT; i++)
		prompt[i] = 10 + i * 997 % 150000;
	for (int i = 0; i < batch; i++) {
		double started;
		struct model_piece piece = {.tokens = prompt, .count = PROMPT, .predicts = true};

		contest->sessions[i] = model_session_open(model, PROMPT + plan->rounds * plan->tokens, &err);
		must(contest->sessions[i] != NULL);
		piece.session = contest->sessions[i];
		started = clock_elapsed();
		must(model_step(model, &piece, 1, NULL, &err) == 0);
		seconds = clock_elapsed() - started;
		contest->tokens[i] = piece.next;
	}
	return seconds;
}

static void end(struct contest *contest)
{
	for (int i = 0; i < contest->batch; i++)
		model_session_close(contest->sessions[i]);
}

/* Seconds of one step, each session by a token. */
static double step(struct contest *contest)
{
	struct model_piece pieces[LARGEST_BATCH];
	double started = clock_elapsed(), seconds;

	for (int i = 0; i < contest->batch; i++)
		pieces[i] = (struct model_piece){.session = contest->sessions[i],
			.tokens = &contest->tokens[i],
			.count = 1,
			.predicts = true};
	must(model_step(contest->model, pieces, contest->batch, NULL, &err) == 0);
	seconds = clock_elapsed() - started;
	for (int i = 0; i < contest->batch; i++)
		contest->tokens[i] = pieces[i].next;
	return seconds;
}

static void compare(struct model *model, int batch)
{
	struct contest contest;
	double prompt = begin(&contest, model, batch), best = 1e9, total = 0, bandwidth = 0, bytes;

	for (int round = 0; round < plan->rounds; round++) {
		double rate = memory_rate();

		bandwidth = rate > bandwidth ? rate : bandwidth;
		for (int i = 0; i < plan->tokens; i++) {
			double seconds = step(&contest);

			best = seconds < best ? seconds : best;
			total += seconds;
		}
	}
	bytes = (double)model_info(model)->bytes;
	printf("%7d %14.1f %14.1f %16.1f %16.1f %13.0f%% %18.2f\n", batch, batch / best,
		batch * plan->rounds * plan->tokens / total, bytes / best * 1e-9, bandwidth * 1e-9,
		100 * bytes / best / bandwidth, prompt * 1e3);
	end(&contest);
}

static char *folder;

static void remove_folder(void)
{
	struct error ignored;

	directory_remove(folder, &ignored);
	free(folder);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "cpu";
	struct random_model shape = model_half_billion;
	struct model *model;
	double started;

	must(device_open(name, &device, &err) == 0);
	plan = &plans[device.index >= 0];
	shape.dtype = plan->dtype;

	folder = path_join(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", "quasar-bench-model.XXXXXX");
	must(mkdtemp(folder) != NULL);
	atexit(remove_folder);
	must(random_model_write(&shape, folder, 1) == 0);
	model_close(model_open(folder, name, &err)); /* kernels are compiled, and pages read, once */
	started = clock_elapsed();
	model = model_open(folder, name, &err);
	must(model != NULL);
	printf("%s\n%.0f million parameters in %s, opened and checked in %.2f s.\n\n",
		model_info(model)->device, (double)model_info(model)->parameters * 1e-6,
		dtype_name(plan->dtype), clock_elapsed() - started);
	if (device.index < 0)
		make_memory(model_info(model)->bytes);
	printf("%7s %14s %14s %16s %16s %14s %18s\n", "batch", "best, tokens/s", "mean", "weights, GB/s",
		"memory, GB/s", "of memory", "128 tokens in, ms");
	for (size_t i = 0; i < sizeof(plan->batches) / sizeof(*plan->batches); i++)
		compare(model, plan->batches[i]);
	model_close(model);
	device_close(&device);
	return 0;
}
