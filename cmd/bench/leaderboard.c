/* bench --leaderboard: attention at a fixed shape, forward and backward, beside versions of it without some of the
 * steps that made it fast. */
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/layout.h"
#include "base/memory.h"
#include "cmd/bench/bench.h"
#include "measure/fixture.h"
#include "op/flash/ladder.h"

#define LEADERBOARD_TOKENS 16384
#define LEADERBOARD_HEADS 16
#define LEADERBOARD_DIM 64
#define MOST_RUNGS 8

enum { FORWARD, BACKWARD, BOTH, PARTS };

struct leaderboard {
	struct run *run;
	struct gpu *gpu;
	struct gpu_workspace workspace;
	struct fixture fixture; /* of the gradient, which has all tensors of the operation */
	struct flash_problem problem;
	const struct flash_rung *rung; /* in work */
	int part;
	double seconds[MOST_RUNGS][PARTS]; /* medians */
};

static int queue(int call, void *context, struct error *err)
{
	struct leaderboard *it = context;

	(void)call;
	if (it->part != BACKWARD &&
		flash_cuda_rung(it->gpu, &it->workspace, &it->problem, it->rung, false, err) < 0)
		return -1;
	return it->part == FORWARD
		? 0
		: flash_cuda_rung(it->gpu, &it->workspace, &it->problem, it->rung, true, err);
}

static int measure_rung(struct leaderboard *it, int number, struct error *err)
{
	int runs = it->run->plan.runs;
	double *seconds = xcalloc((size_t)runs, sizeof(*seconds));
	int result = 0;

	it->rung = &flash_ladder[number];
	for (it->part = 0; it->part < PARTS && !result; it->part++) {
		result = gpu_time(it->gpu, queue, it, it->run->plan.warmups, runs, seconds, err);
		it->seconds[number][it->part] = seconds[runs / 2];
		if (!result && interrupted())
			result = error_set(err, STATUS_INTERRUPTED, "interrupted");
	}
	free(seconds);
	return result;
}

/* --- what came of it ---------------------------------------------------------------------------------- */

static double speedup(const struct leaderboard *it, int number)
{
	return it->seconds[0][BOTH] / it->seconds[number][BOTH];
}

/* Floating point operations per second of the forward or the backward; both is both. */
static double rate(const struct leaderboard *it, int number, int part)
{
	const struct family *gradient = it->fixture.plan.family, *operation = gradient->gradient_of;
	const struct op_problem *problem = &it->fixture.problem;
	double count = (part != BACKWARD ? operation->operations(problem) : 0) +
		(part != FORWARD ? gradient->operations(problem) : 0);

	return count / it->seconds[number][part];
}

static void print_text(const struct leaderboard *it)
{
	static const char *const headings[] = {
		"version", "forward", "backward", "both", "of the first", "TFLOP/s"};
	struct table table;

	layout_format(stdout, 0, "%s, causal, batch 1, %d heads of %d, %lld tokens, bf16, on %s.\n",
		it->fixture.plan.family->gradient_of->title, LEADERBOARD_HEADS, LEADERBOARD_DIM,
		(long long)it->fixture.plan.shape.tokens, it->run->device.description);
	table_begin(&table, headings, "lrrrrr");
	for (int i = 0; flash_ladder[i].name; i++) {
		table_cell(&table, "%s%s", i ? "+ " : "", flash_ladder[i].name);
		for (int part = 0; part < PARTS; part++)
			table_cell(&table, "%.3f ms", it->seconds[i][part] * 1e3);
		table_cell(&table, "%.2f x", speedup(it, i));
		table_cell(&table, "%.1f", rate(it, i, BOTH) / 1e12);
	}
	table_print(&table, stdout);
	layout_format(stdout, 0,
		"\nEach version has what those above it have. Times are medians of %d run%s; TFLOP/s count the "
		"products that are needed, two forward and five backward.",
		it->run->plan.runs, it->run->plan.runs == 1 ? "" : "s");
}

static void print_document(const struct leaderboard *it)
{
	static const char *const names[] = {"forward", "backward", "both"};
	cJSON *document = cJSON_CreateObject(), *versions;

	cJSON_AddStringToObject(document, "device", it->run->device.description);
	cJSON_AddStringToObject(document, "op", it->fixture.plan.family->gradient_of->name);
	cJSON_AddStringToObject(document, "semantics", it->run->semantics);
	cJSON_AddNumberToObject(document, "batch", 1);
	cJSON_AddNumberToObject(document, "heads", LEADERBOARD_HEADS);
	cJSON_AddNumberToObject(document, "head_dim", LEADERBOARD_DIM);
	cJSON_AddNumberToObject(document, "seq", (double)it->fixture.plan.shape.tokens);
	cJSON_AddStringToObject(document, "dtype", dtype_name(it->fixture.plan.dtype));
	cJSON_AddNumberToObject(document, "runs", it->run->plan.runs);
	versions = cJSON_AddArrayToObject(document, "versions");
	for (int i = 0; flash_ladder[i].name; i++) {
		cJSON *version = cJSON_CreateObject();

		cJSON_AddStringToObject(version, "name", flash_ladder[i].name);
		for (int part = 0; part < PARTS; part++) {
			cJSON *object = cJSON_AddObjectToObject(version, names[part]);

			cJSON_AddNumberToObject(object, "seconds", it->seconds[i][part]);
			cJSON_AddNumberToObject(object, "operations_per_second", rate(it, i, part));
		}
		cJSON_AddNumberToObject(version, "speedup", speedup(it, i));
		cJSON_AddItemToArray(versions, version);
	}
	output_json(document);
}

/* --- the command -------------------------------------------------------------------------------------- */

static int check(const struct run *run, struct error *err)
{
	if (run->plan.family != family_find("flash") || run->plan.options[0] != 0)
		return error_set(
			err, STATUS_USAGE, "--leaderboard is of causal attention: it needs --op flash");
	if (run->format != FORMAT_TEXT && run->format != FORMAT_JSON)
		return error_set(err, STATUS_USAGE, "--leaderboard is text, or with --json JSON");
	if (run->device.index >= 0)
		return 0;
	error_set(err, STATUS_ENVIRONMENT,
		"--leaderboard compares kernels of a GPU, and the device is the CPU");
	return error_hint(err, "Run it where there is a GPU. `quasar bench --op flash` measures the CPU's.");
}

int bench_leaderboard(struct run *run, struct error *err)
{
	struct leaderboard it = {.run = run};
	struct fixture_plan plan = {.dtype = DTYPE_BF16, .seed = run->plan.seed};
	int result = check(run, err);

	if (result)
		return result;
	plan.family = family_gradient(run->plan.family, run->plan.options);
	plan.shape = (struct op_shape){1,
		arg_given(run->invocation, "seq") ? run->lengths[0] : LEADERBOARD_TOKENS, LEADERBOARD_HEADS,
		LEADERBOARD_DIM, LEADERBOARD_DIM, 0, 0};
	it.gpu = device_gpu(&run->device);
	result = fixture_make(&it.fixture, &run->device, &plan, err);
	if (!result)
		it.problem = flash_gradient_problem(&it.fixture.problem);
	for (int i = 0; flash_ladder[i].name && !result; i++)
		result = measure_rung(&it, i, err);
	if (!result && run->format == FORMAT_JSON)
		print_document(&it);
	else if (!result)
		print_text(&it);
	fixture_free(&it.fixture);
	gpu_workspace_free(it.gpu, &it.workspace);
	return result;
}
