#include "cmd/validate/verification.h"

#include <math.h>
#include <stdlib.h>

#include "api/http.h"
#include "api/version.h"
#include "cli/device.h"
#include "cli/verification.h"
#include "gpu/gpu.h"
#include "image/container.h"
#include "image/image.h"
#include "image/tool.h"

#define PULL_SECONDS 1800.0 /* weights of 8 GB at 5 MB/s */
#define REMOVE_SECONDS 60

static int open_reference(struct verification *verification, struct error *err)
{
	if (!verification->plan.reference) /* the version is the one that has images verified */
		verification->plan.reference = model_open(
			verify_reference(verification->invocation, api_versions), verification->device, err);
	return verification->plan.reference ? 0 : -1;
}

int verification_open(const struct invocation *invocation, const char *device,
	struct verification *verification, struct error *err)
{
	const char *url = arg_string(invocation, "inference");
	struct challenge_limits *limits = &verification->plan.limits;
	bool plain;

	*verification = (struct verification){
		.plan = {.kinds = {[CHALLENGE_2026_04] = true}, .count = 1, .starting = !url},
		.invocation = invocation,
		.device = device,
	};
	if (verify_threshold(invocation, "LOGIT_COSINE_THRESHOLD", &limits->cosine, err) < 0 ||
		verify_threshold(invocation, "LOGIT_MAX_ABS_DIFF", &limits->difference, err) < 0)
		return -1;
	if (!url)
		return 0;
	verification->url = http_check_base(url, &plain, err);
	return verification->url ? open_reference(verification, err) : -1;
}

void verification_close(struct verification *verification)
{
	model_close(verification->plan.reference);
	free(verification->url);
}

static bool fails(const struct check_list *checks)
{
	return check_count(checks, CHECK_FAIL) > 0;
}

static int challenge(const struct verification *verification, const char *url, struct check_list *checks,
	struct docket_logits *logits, struct error *err)
{
	struct logits_plan plan = verification->plan;
	struct logits_result found;

	plan.url = url;
	plan.seed = command_seed(); /* what one server was asked tells nothing to the next */
	if (logits_check(&plan, checks, &found, err) < 0)
		return -1;
	*logits = (struct docket_logits){found.cosine, found.difference, found.tokens_per_second};
	return 0;
}

/* Starts it, and challenges it. That it does not start is its own fault, once such a container could be made. */
static int run_image(const struct verification *verification, const char *tool, const char *reference,
	struct check_list *checks, struct docket_logits *logits, struct error *err)
{
	struct container container;
	struct error ignored;
	int rights = CONTAINER_APART | (gpu_count(&ignored) > 0 ? CONTAINER_GPU : 0);
	int result = container_start(tool, reference, rights, &container, err);

	if (!result)
		result = challenge(verification, container.url, checks, logits, err);
	else if (err->status == STATUS_FAILED) {
		check_problem(checks, "image.start", CHECK_FAIL, err);
		result = 0;
	}
	container_end(&container);
	return result;
}

/* What is pulled for it is removed again: strangers' images would fill the disk. */
static int verify_image(const struct verification *verification, const char *reference,
	struct check_list *checks, struct docket_logits *logits, struct error *err)
{
	const char *tool;
	bool kept;
	int result = 0;

	if (image_check_syntax(reference, err) < 0) { /* it could be an option: "--all" */
		check_problem(checks, "image.syntax", CHECK_FAIL, err);
		return 0;
	}
	tool = tool_find(NULL, TOOL_RUNS, err);
	if (!tool)
		return -1;
	kept = image_is_here(tool, reference);
	image_check(reference, tool, PULL_SECONDS, checks);
	if (!fails(checks))
		result = run_image(verification, tool, reference, checks, logits, err);
	if (!kept)
		tool_clear(tool, "image rm", reference, REMOVE_SECONDS);
	return result;
}

int verification_run(struct verification *verification, const struct api_submission *submission,
	struct verdict *verdict, struct docket_logits *logits, struct error *err)
{
	struct check_list *checks = &verdict->checks;

	if (open_reference(verification, err) < 0 ||
		(verification->url ? challenge(verification, verification->url, checks, logits, err)
				   : verify_image(verification, submission->docker_image, checks, logits,
					     err)) < 0)
		return -1;
	if (!fails(checks))
		return 0;
	verdict->score = verdict->told_score = 0;
	for (size_t i = 0; i < checks->count; i++)
		if (checks->items[i].status == CHECK_FAIL)
			verdict->reason = checks->items[i].detail;
	return 0;
}
