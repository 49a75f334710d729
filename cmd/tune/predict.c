/* tune --gpu: what is to be expected of a GPU that is not here. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "cli/progress.h"
#include "cmd/tune/tune.h"
#include "gpu/cuda.h"
#include "predict/guide.h"
#include "predict/longest.h"
#include "predict/predict.h"
#include "score/score.h"
#include "tune/space.h"

enum { SHOWN = 10 }; /* rows of a table */

struct subject {
	const struct tune_request *request;
	const struct gpu_model *gpu;
	struct op_problem problem;
	struct tune_space space;
};

/* --- what comes with it ------------------------------------------------------------------------------ */

static cJSON *facts_json(const struct subject *subject, const char *source)
{
	const struct tune_request *request = subject->request;
	const struct op_shape *shape = &request->shape;
	const struct tuning_cost cost = tuning_cost_of(
		request->family, shape, request->dtype, request->options);
	int64_t longest = longest_sequence(subject->gpu);
	const struct league *league = league_for(longest);
	cJSON *facts = cJSON_CreateObject(), *memory;
	struct shape_class shapes;
	char function[64], class[160];

	cJSON_AddStringToObject(facts, "source", source);
	cJSON_AddStringToObject(facts, "op", request->family->name);
	cJSON_AddNumberToObject(facts, "seq", (double)shape->tokens);
	cJSON_AddNumberToObject(facts, "heads", shape->heads);
	cJSON_AddNumberToObject(facts, "head_dim", shape->key_dim);
	cJSON_AddStringToObject(facts, "dtype", dtype_name(request->dtype));
	family_options_format(request->family, request->options, function, sizeof(function));
	shapes = shape_class_of(function, request->dtype, shape);
	shape_class_format(&shapes, class, sizeof(class));
	cJSON_AddStringToObject(facts, "class", class);
	cJSON_AddNumberToObject(facts, "bytes", cost.bytes);
	cJSON_AddNumberToObject(facts, "operations", cost.operations);
	memory = cJSON_AddObjectToObject(facts, "memory");
	cJSON_AddNumberToObject(memory, "gib", subject->gpu->memory_gib);
	cJSON_AddNumberToObject(memory, "longest_sequence", (double)longest);
	cJSON_AddStringToObject(memory, "league", league->name);
	cJSON_AddNumberToObject(memory, "multiplier", league->multiplier);
	return facts;
}

static void print_longest(const struct subject *subject)
{
	int64_t longest = longest_sequence(subject->gpu);
	const struct league *league = league_for(longest);
	char tokens[48];

	number_grouped((double)longest, tokens);
	printf("\nIts %g GiB should hold sequences of up to %s tokens of the fork's layer, as validators time it: league %s, "
	       "x%g.\n",
		subject->gpu->memory_gib, tokens, league->name, league->multiplier);
	if (subject->request->shape.tokens > longest)
		printf("The length asked for is beyond that.\n");
}

/* --- without a compiler ------------------------------------------------------------------------------ */

static int show_guide(const struct subject *subject, const struct error *why, struct error *err)
{
	const char *const *configs = guide_configs(subject->gpu);
	struct tune_row rows[GUIDE_CONFIGS];

	for (int i = 0; i < GUIDE_CONFIGS; i++) {
		rows[i] = (struct tune_row){.kernel = "triton",
			.predicted = true,
			.ms = NAN,
			.error = NAN,
			.occupancy = NAN,
			.registers = -1,
			.shared_bytes = -1,
			.spills = -1};
		snprintf(rows[i].parameters, sizeof(rows[i].parameters), "%s", configs[i]);
	}
	log_warn("%s", why->message);
	if (why->hint[0])
		log_note("%s", why->hint);
	if (!subject->request->invocation->json) {
		printf("Nothing could be compiled for %s, so nothing is predicted. The miners' guide recommends for Triton kernels "
		       "on such a GPU:\n\n",
			subject->gpu->name);
		for (int i = 0; i < GUIDE_CONFIGS; i++)
			printf("  %s\n", configs[i]);
		print_longest(subject);
	}
	return tune_publish(subject->request,
		tuning_document(subject->gpu->name, true, rows, GUIDE_CONFIGS, facts_json(subject, "guide")),
		err);
}

/* --- with one ---------------------------------------------------------------------------------------- */

static void make_row(const struct subject *subject, const struct prediction *prediction, struct tune_row *row)
{
	const struct family_configs *configs = subject->request->family->configs;

	*row = (struct tune_row){
		.predicted = true,
		.ms = prediction->seconds * 1e3,
		.error = model_error(subject->gpu),
		.occupancy = prediction->occupancy.part,
		.limited_by = prediction->occupancy.limited_by,
		.registers = prediction->registers,
		.shared_bytes = prediction->shared_bytes,
		.spills = prediction->spilled_bytes,
		.bound = prediction->bound,
	};
	snprintf(row->kernel, sizeof(row->kernel), "%s", configs->kernel);
	config_format(configs->parameters, &prediction->config, row->parameters, sizeof(row->parameters));
}

static void print_summary(const struct subject *subject, double usual, double best)
{
	printf("\nPredicted for %s from its data sheet and the machine code; nothing was measured.\n",
		subject->gpu->name);
	if (isnan(model_error(subject->gpu)))
		printf("The model was calibrated on an H200 only: on this GPU trust the order more than the times.\n");
	printf("The best takes %.0f %% of the time of the configuration that is used without tuning, %.3g ms.\n",
		100 * best / usual, usual * 1e3);
	print_longest(subject);
}

static int show(const struct subject *subject, const struct prediction *predictions, size_t count,
	double usual, struct error *err)
{
	const struct tune_request *request = subject->request;
	struct tune_row *rows = xcalloc(count, sizeof(*rows));
	bool explain = arg_flag(request->invocation, "explain");
	cJSON *facts = facts_json(subject, "model");
	int result;

	for (size_t i = 0; i < count; i++)
		make_row(subject, &predictions[i], &rows[i]);
	cJSON_AddNumberToObject(facts, "untuned_ms", usual * 1e3);
	if (explain)
		tune_explain_json(request, subject->gpu, rows, cJSON_AddObjectToObject(facts, "explanation"));
	if (!request->invocation->json) {
		tune_print_table(rows, count, SHOWN);
		if (explain)
			tune_explain(request, subject->gpu, rows);
		print_summary(subject, usual, predictions[0].seconds);
	}
	result = tune_publish(request, tuning_document(subject->gpu->name, true, rows, count, facts), err);
	free(rows);
	return result;
}

static void show_progress(void *context, size_t done, size_t total)
{
	struct progress *progress = context;

	progress->total = (double)total;
	progress_update(progress, (double)done);
}

static int predict_all(const struct subject *subject, struct error *err)
{
	struct progress progress;
	struct predict_request request = {
		.family = subject->request->family,
		.problem = &subject->problem,
		.gpu = subject->gpu,
		.configs = subject->space.configs,
		.count = 1, /* first the one that is used without tuning */
	};
	struct prediction *predictions = xcalloc(subject->space.count, sizeof(*predictions));
	double usual;
	int count = predict_run(&request, predictions, err);

	if (count > 0) {
		usual = predictions[0].seconds;
		log_note("%s: %.3g ms predicted without tuning; %zu configurations follow",
			subject->gpu->name, usual * 1e3, subject->space.count);
		progress_begin(&progress, "compiling", 0, "builds");
		request.count = subject->space.count;
		request.progress = show_progress;
		request.context = &progress;
		count = predict_run(&request, predictions, err);
		progress_end(&progress);
	}
	if (count > 0)
		count = show(subject, predictions, (size_t)count, usual, err);
	free(predictions);
	return count < 0 ? -1 : 0;
}

int tune_predict(const struct tune_request *request, const char *gpu, struct error *err)
{
	const struct family_configs *configs = request->family->configs;
	struct subject subject = {.request = request, .gpu = gpu_model_by_name(gpu, err)};
	struct gpu_properties properties;
	struct error no_compiler;
	struct config usual;
	int result;

	if (!subject.gpu)
		return -1;
	properties = gpu_model_properties(subject.gpu);
	subject.problem = family_problem(request->family, &request->shape, request->dtype, request->options);
	usual = configs->usual(&subject.problem, &properties);
	if (configs->check(&subject.problem, &properties, &usual, err) < 0)
		return -1;
	if (kernel_compiler_check(subject.gpu->capability, &no_compiler) < 0)
		return show_guide(&subject, &no_compiler, err);
	result = tune_space_make(request->family, &subject.problem, &properties, &subject.space, err);
	if (!result)
		result = predict_all(&subject, err);
	tune_space_free(&subject.space);
	return result;
}
