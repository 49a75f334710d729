/* model: a language model of Qwen2.5-0.5B's shape with random weights, beside what this machine's memory allows. The
 * contestants take turns, so that a machine's moods meet both; the best of each is shown. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "cpu/cpu.h"
#include "model/model.h"
#include "tests/random_model.h"

#define ROUNDS 10
#define TOKENS 4 /* of a round */
#define PROMPT 128
#define LARGEST_BATCH 8

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

/* --- the model ----------------------------------------------------------------------------------- */

struct contest {
	struct model *model;
	struct model_session *sessions[LARGEST_BATCH];
	int32_t tokens[LARGEST_BATCH]; /* the latest of each */
	int batch;
};

/* Sessions that have taken a prompt. Returns the seconds of the last one's. */
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

		contest->sessions[i] = model_session_open(model, PROMPT + ROUNDS * TOKENS, &err);
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
	double prompt = begin(&contest, model, batch), best = 1e9, bandwidth = 0, bytes;

	for (int round = 0; round < ROUNDS; round++) {
		double read = read_memory();

		bandwidth = read > bandwidth ? read : bandwidth;
		for (int i = 0; i < TOKENS; i++) {
			double seconds = step(&contest);

			best = seconds < best ? seconds : best;
		}
	}
	bytes = (double)model_info(model)->bytes;
	printf("%7d %14.1f %16.1f %16.1f %13.0f%% %16.0f\n", batch, batch / best, bytes / best * 1e-9,
		bandwidth * 1e-9, 100 * bytes / best / bandwidth, PROMPT / prompt);
	end(&contest);
}

static char *folder;

static void remove_folder(void)
{
	struct error ignored;

	directory_remove(folder, &ignored);
	free(folder);
}

int main(void)
{
	struct model *model;
	char cpu[192];
	double started;

	folder = path_join(getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp", "quasar-bench-model.XXXXXX");
	must(mkdtemp(folder) != NULL);
	atexit(remove_folder);
	must(random_model_write(&model_half_billion, folder, 1) == 0);
	started = clock_elapsed();
	model = model_open(folder, "cpu", &err);
	must(model != NULL);
	cpu_describe(cpu, sizeof(cpu));
	printf("%s\n%.0f million parameters in bf16, opened and checked in %.2f s.\n\n", cpu,
		(double)model_info(model)->parameters * 1e-6, clock_elapsed() - started);
	make_memory(model_info(model)->bytes);
	printf("%7s %14s %16s %16s %14s %16s\n", "batch", "tokens/s", "weights, GB/s", "memory, GB/s",
		"of memory", "prompt tokens/s");
	compare(model, 1);
	compare(model, 2);
	compare(model, 4);
	compare(model, LARGEST_BATCH);
	model_close(model);
	return 0;
}
