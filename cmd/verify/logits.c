/* quasar verify --logits: challenges as validators make them. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api/http.h"
#include "api/version.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/terminal.h"
#include "cli/device.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/verification.h"
#include "cmd/verify/verify.h"
#include "gpu/gpu.h"
#include "image/container.h"
#include "image/image.h"
#include "image/tool.h"
#include "logits/check.h"
#include "space/workspace.h"

#define MOST_CHALLENGES 1000

struct run {
	const struct invocation *invocation;
	struct logits_plan plan;
	char *url;
	struct container container; /* of --image */
	struct check_list checks;
	struct logits_result result;
	struct progress progress;
};

/* That the workspace's validator has; NULL: not known. */
static const struct api_version *known_version(const struct invocation *invocation)
{
	const char *forced = settings_get(invocation->settings, "API_VERSION", NULL);

	return forced ? api_version_named(forced) : NULL;
}

static void choose_kinds(const struct invocation *invocation, bool kinds[2])
{
	const struct api_version *version = known_version(invocation);

	kinds[CHALLENGE_2026_02] = !version || !version->images;
	kinds[CHALLENGE_2026_04] = !version || version->images;
}

static int read_options(struct run *run, struct error *err)
{
	static const char *const others[] = {"fork", "full", "target", "static", "strict", "claimed",
		"native", "op", "weights", "semantics"};
	const struct invocation *invocation = run->invocation;
	int64_t seed = (int64_t)command_seed(), count = 0;

	if (arg_given(invocation, "logits") && arg_given(invocation, "image"))
		return error_set(err, STATUS_USAGE, "use only one of --logits and --image");
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		if (arg_given(invocation, others[i]))
			return error_set(err, STATUS_USAGE, "--%s cannot be combined with --%s",
				arg_given(invocation, "image") ? "image" : "logits", others[i]);
	if (arg_integer(invocation, "seed", 0, (int64_t)1 << 53, &seed, err) < 0 ||
		arg_integer(invocation, "challenges", 1, MOST_CHALLENGES, &count, err) < 0 ||
		verify_threshold(invocation, "LOGIT_COSINE_THRESHOLD", &run->plan.limits.cosine, err) < 0 ||
		verify_threshold(invocation, "LOGIT_MAX_ABS_DIFF", &run->plan.limits.difference, err) < 0)
		return -1;
	run->plan.seed = (uint64_t)seed;
	run->plan.count = (int)count;
	choose_kinds(invocation, run->plan.kinds);
	return command_compute(invocation, err);
}

static struct model *open_model(const struct invocation *invocation, const char *name, struct error *err)
{
	return model_open(name, arg_string(invocation, "device"), err);
}

/* Runs the image that --image or the settings name; validators challenge it as those of April do. */
static int start_image(struct run *run, struct error *err)
{
	const char *named = arg_string(run->invocation, "image");
	char *name = *named ? xstrdup(named) : workspace_docker_image(run->invocation->settings);
	const char *tool = NULL;
	struct error ignored;
	int result = -1;

	if (!name)
		error_set(err, STATUS_USAGE,
			"--image needs the name of one, or the setting MINER_DOCKER_IMAGE");
	else if (image_check_syntax(name, err) == 0)
		tool = tool_find(NULL, TOOL_RUNS, err);
	if (tool) {
		log_note("Starting %s with %s …", name, tool);
		result = container_start(
			tool, name, gpu_count(&ignored) > 0 ? CONTAINER_GPU : 0, &run->container, err);
	}
	free(name);
	run->plan.url = run->container.url;
	run->plan.starting = true;
	run->plan.kinds[CHALLENGE_2026_02] = false;
	run->plan.kinds[CHALLENGE_2026_04] = true;
	return result;
}

/* What the image has to say, where the checks do not end well. */
static void show_last_words(const struct run *run)
{
	char *words;

	if (!run->container.name)
		return;
	words = container_last_words(&run->container);
	if (*words)
		log_note("The container's log ends with: %s", words);
	free(words);
}

static int open_reference(struct run *run, const struct api_version *version, struct error *err)
{
	run->plan.reference = open_model(run->invocation, verify_reference(run->invocation, version), err);
	return run->plan.reference ? 0 : -1;
}

/* The reference, and who is challenged. */
static int open_both(struct run *run, struct error *err)
{
	const struct api_version *version = known_version(run->invocation);
	const char *target = arg_string(run->invocation, "logits");
	bool plain;

	if (arg_given(run->invocation, "image"))
		return open_reference(run, api_versions, err) < 0 ? -1 : start_image(run, err);
	if (!strncmp(target, "http://", 7) || !strncmp(target, "https://", 8)) {
		run->plan.url = run->url = http_check_base(target, &plain, err);
		if (!run->url)
			return -1;
	}
	if (open_reference(run, version ? version : api_version_oldest(), err) < 0)
		return -1;
	if (run->url)
		return 0;
	run->plan.model = open_model(run->invocation, target, err);
	if (!run->plan.model)
		return -1;
	if (model_info(run->plan.model)->vocabulary != model_info(run->plan.reference)->vocabulary)
		return error_set(err, STATUS_FAILED, "%s has %d tokens, the reference %s has %d", target,
			model_info(run->plan.model)->vocabulary, model_info(run->plan.reference)->name,
			model_info(run->plan.reference)->vocabulary);
	return 0;
}

static void introduce(const struct run *run)
{
	const struct model_info *info = model_info(run->plan.reference);

	printf("Reference: %s (%s, %.1f million parameters, %s), on %s, seed %llu.\n\n", info->name,
		info->type, (double)info->parameters * 1e-6, dtype_name(info->weights), info->device,
		(unsigned long long)run->plan.seed);
}

static void show_progress(void *context, int done, int total)
{
	struct run *run = context;

	if (!run->progress.total)
		progress_begin(&run->progress, "reference", total, "tokens");
	progress_update(&run->progress, done);
	if (done == total)
		progress_end(&run->progress);
}

static void print_json(const struct run *run)
{
	const struct model_info *info = model_info(run->plan.reference);
	cJSON *document = cJSON_CreateObject(), *reference;

	cJSON_AddBoolToObject(document, "passed", run->result.accepted);
	cJSON_AddItemToObject(document, "checks", check_json(&run->checks));
	reference = cJSON_AddObjectToObject(document, "reference");
	cJSON_AddStringToObject(reference, "name", info->name);
	json_add_text(reference, "revision", info->revision);
	cJSON_AddStringToObject(reference, "type", info->type);
	cJSON_AddStringToObject(reference, "weights", dtype_name(info->weights));
	cJSON_AddStringToObject(reference, "device", info->device);
	cJSON_AddNumberToObject(document, "seed", (double)run->plan.seed);
	json_add_real(document, "cosine_similarity", run->result.cosine);
	json_add_real(document, "max_abs_diff", run->result.difference);
	json_add_real(document, "throughput", run->result.tokens_per_second);
	output_json(document);
}

static void print_result(const struct run *run)
{
	bool accepted = run->result.accepted;

	printf("\n%s%s%s: %zu of %zu checks passed\n", color(stdout, accepted ? COLOR_GREEN : COLOR_RED),
		accepted ? "accepted" : "rejected", color(stdout, COLOR_NONE),
		run->checks.count - check_count(&run->checks, CHECK_FAIL), run->checks.count);
}

static int run_checks(struct run *run, struct error *err)
{
	if (!run->invocation->json) {
		introduce(run);
		run->checks.report = report_check;
	}
	run->plan.progress = show_progress;
	run->plan.context = run;
	if (logits_check(&run->plan, &run->checks, &run->result, err) < 0)
		return -1;
	if (run->invocation->json)
		print_json(run);
	else
		print_result(run);
	return run->result.accepted ? 0 : error_set(err, STATUS_FAILED, "%s", "");
}

int verify_logits(struct invocation *invocation, struct error *err)
{
	struct run run = {.invocation = invocation};
	int result = read_options(&run, err);

	if (!result)
		result = open_both(&run, err);
	if (!result)
		result = run_checks(&run, err);
	if (result)
		show_last_words(&run);
	container_end(&run.container);
	check_free(&run.checks);
	model_close(run.plan.model);
	model_close(run.plan.reference);
	free(run.url);
	return result;
}
