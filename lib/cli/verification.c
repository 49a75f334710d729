#include "cli/verification.h"

#include <math.h>
#include <string.h>

#include "base/number.h"
#include "cli/device.h"
#include "fork/fork.h"
#include "fork/inspect.h"
#include "measure/accuracy.h"
#include "score/score.h"

static void check_git(const struct verify_request *request, struct check_list *checks)
{
	struct fork_state state = {0};
	struct error err = {0};

	if (fork_state_read(request->fork_path, &state, &err) < 0)
		check_add(checks, "git", request->submitting ? CHECK_FAIL : CHECK_WARN,
			"Validators clone your fork, so it has to be a git repository.", "%s", err.message);
	else
		inspect_git(&state, request->fork_url, request->submitting, checks);
	fork_state_free(&state);
}

int verify_static(const struct verify_request *request, struct check_list *checks, struct error *err)
{
	const struct inspect_options options = {.strict = request->strict, .python = request->python};

	if (inspect_fork(request->fork_path, &options, checks, err) < 0)
		return -1;
	check_git(request, checks);
	return 0;
}

static int threshold(const struct invocation *invocation, const char *name, double *value, struct error *err)
{
	const char *source, *text = settings_get(invocation->settings, name, &source);

	if (number_parse_real(text, value) < 0)
		return error_set(
			err, STATUS_USAGE, "%s (from %s): \"%s\" is not a number", name, source, text);
	return 0;
}

int verify_computed(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, const char *suffix, struct check_list *checks, struct error *err)
{
	struct accuracy_plan plan = {
		.semantics = (enum semantics)request->options[0], /* the layer has the first family's */
		.family = request->op ? request->op : families[0],
		.tokens = request->tokens,
		.seed = request->seed,
		.weights = request->weights,
		.suffix = suffix,
	};

	memcpy(plan.options, request->options, sizeof(plan.options));
	if (threshold(invocation, "VERIFY_COSINE_THRESHOLD", &plan.repeat_cosine, err) < 0 ||
		threshold(invocation, "VERIFY_MAX_ABS_DIFF", &plan.repeat_difference, err) < 0)
		return -1;
	if (accuracy_op(device, &plan, checks, err) < 0)
		return -1;
	return request->op ? 0 : accuracy_layer(device, &plan, checks, err);
}

void verify_claim(double measured, double claimed, struct check_list *checks)
{
	double score = score_claim(measured, claimed);
	char measured_text[48], claimed_text[48];

	number_grouped(round(measured), measured_text);
	number_grouped(round(claimed), claimed_text);
	check_add(checks, "claim", score > 0 ? CHECK_OK : CHECK_FAIL,
		score > 0 ? NULL
			  : "Claim less: below 90% of a claim the score is zero, and it counts as a failure.",
		"%s tokens/s measured, %s claimed: ratio %.3f, score %.3f", measured_text, claimed_text,
		measured / claimed, score);
}

int verify_run(const struct invocation *invocation, const struct verify_request *request,
	struct check_list *checks, struct error *err)
{
	struct verify_request seeded = *request;
	struct device device = {0};
	int result;

	if (verify_static(request, checks, err) < 0)
		return -1;
	if (request->static_only)
		return 0;
	seeded.seed = request->seed ? request->seed : command_seed();
	result = command_device(invocation, request->device, &device, err);
	if (!result)
		result = verify_computed(invocation, &seeded, &device, "", checks, err);
	if (!result && request->claimed > 0)
		verify_claim(request->measured, request->claimed, checks);
	device_close(&device);
	return result;
}
