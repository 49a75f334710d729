#include "cli/verification.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/number.h"
#include "cli/device.h"
#include "cli/python.h"
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

int verify_static(const struct verify_request *request, const struct fork_verification *verification,
	struct check_list *checks, struct error *err)
{
	const struct inspect_options options = {
		.rules = inspect_rules_of(request->version),
		.strict = request->strict,
		.python = verification->python.path,
	};
	int result = inspect_fork(request->fork_path, &options, checks, err);

	if (!result)
		check_git(request, checks);
	return result;
}

const char *verify_reference(const struct invocation *invocation, const struct api_version *version)
{
	const char *source = NULL;

	settings_get(invocation->settings, "REFERENCE_MODEL", &source);
	if (arg_given(invocation, "reference") || !source || strcmp(source, "default"))
		return arg_string(invocation, "reference");
	return version->reference_model;
}

int verify_threshold(const struct invocation *invocation, const char *name, double *value, struct error *err)
{
	const char *source, *text = settings_get(invocation->settings, name, &source);

	if (number_parse_real(text, value) < 0)
		return error_set(
			err, STATUS_USAGE, "%s (from %s): \"%s\" is not a number", name, source, text);
	return 0;
}

/* VERIFY_COSINE_THRESHOLD and VERIFY_MAX_ABS_DIFF. */
static int thresholds(
	const struct invocation *invocation, double *cosine, double *difference, struct error *err)
{
	if (verify_threshold(invocation, "VERIFY_COSINE_THRESHOLD", cosine, err) < 0)
		return -1;
	return verify_threshold(invocation, "VERIFY_MAX_ABS_DIFF", difference, err);
}

int verify_open(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, struct fork_verification *verification, struct error *err)
{
	struct checks_plan *plan = &verification->plan;

	*verification = (struct fork_verification){0};
	*plan = (struct checks_plan){
		.fork = request->fork_path,
		.device = device,
		.tokens = request->tokens,
		.target = request->target,
		.target_required = request->target_required,
		.more_lengths = request->more_lengths,
		.wanted = request->wanted,
		.budget = request->budget,
		.seed = request->seed,
	};
	if (thresholds(invocation, &plan->repeat_cosine, &plan->repeat_difference, err) < 0)
		return -1;
	if (command_python(invocation, request->foreign ? NULL : request->fork_path, &verification->python,
		    &verification->missing) < 0)
		return 0; /* fork.compile tells of it */
	plan->python = verification->python.path;
	if (request->static_only || !verification->python.torch)
		return 0;
	verification->inquiry = checks_open(plan, err);
	return verification->inquiry ? 0 : -1;
}

void verify_close(struct fork_verification *verification)
{
	checks_close(verification->inquiry);
	python_free(&verification->python);
}

int verify_fork(const struct verify_request *request, const struct fork_verification *verification,
	struct check_list *checks, struct checks_found *found, struct error *err)
{
	const struct python *python = &verification->python;
	struct error missing;

	if (verification->inquiry)
		return checks_run(verification->inquiry, checks, found, err);
	*found = (struct checks_found){0};
	if (!python->path) {
		checks_not_run(found, checks, "fork.compile", &verification->missing);
		return 0;
	}
	if (checks_compile(&verification->plan, checks, err) < 0)
		return -1;
	if (!request->static_only && python_require_torch(python, &missing) < 0)
		checks_not_run(found, checks, "fork.import", &missing);
	return 0;
}

int verify_native(const struct invocation *invocation, const struct verify_request *request,
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
	if (thresholds(invocation, &plan.repeat_cosine, &plan.repeat_difference, err) < 0)
		return -1;
	for (; plan.family; plan.family = family_gradient(plan.family, plan.options))
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

/* The fork was not run, and the checks do not say that it is at fault: what then? */
static int stand_in(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, const char *why, struct check_list *checks, struct error *err)
{
	if (!request->rehearsal) {
		check_add(checks, "fork.run", CHECK_FAIL,
			"Validators run it. Run it here first, or send it unseen with --no-verify.",
			"the fork was not run: %s", why);
		return 0;
	}
	check_add(checks, "fork.run", CHECK_WARN, NULL,
		"rehearsal: quasar's own layer stands in for the fork, which was not run: %s", why);
	return verify_native(invocation, request, device, "", checks, err);
}

/* The checks that compute. What will not be sent for others need not be run. */
static int verify_computed(const struct invocation *invocation, const struct verify_request *request,
	const struct device *device, const struct fork_verification *verification, struct check_list *checks,
	struct error *err)
{
	struct checks_found found = {0};

	if (request->submitting && !request->static_only && check_count(checks, CHECK_FAIL))
		return 0;
	if (verify_fork(request, verification, checks, &found, err) < 0)
		return -1;
	if (request->static_only)
		return 0;
	if (*found.why_not && stand_in(invocation, request, device, found.why_not, checks, err) < 0)
		return -1;
	if (request->claimed > 0)
		verify_claim(request->measured, request->claimed, checks);
	return 0;
}

int verify_run(const struct invocation *invocation, const struct verify_request *request,
	struct check_list *checks, struct error *err)
{
	struct verify_request seeded = *request;
	struct fork_verification verification = {0};
	struct device device = {0};
	int result;

	seeded.seed = request->seed ? request->seed : command_seed();
	result = request->static_only ? 0 : command_device(invocation, request->device, &device, err);
	if (!result)
		result = verify_open(invocation, &seeded, &device, &verification, err);
	if (!result)
		result = verify_static(&seeded, &verification, checks, err);
	if (!result)
		result = verify_computed(invocation, &seeded, &device, &verification, checks, err);
	verify_close(&verification);
	device_close(&device);
	return result;
}
