#include "cmd/validate/verification.h"

#include <math.h>
#include <stdlib.h>

#include "api/http.h"
#include "cli/device.h"
#include "cli/verification.h"

int verification_open(const struct invocation *invocation, const char *device,
	struct verification *verification, struct error *err)
{
	const char *url = arg_string(invocation, "inference");
	struct challenge_limits *limits = &verification->plan.limits;
	bool plain;

	*verification = (struct verification){.plan = {.kinds = {[CHALLENGE_2026_04] = true}, .count = 1}};
	if (!url)
		return 0;
	verification->plan.url = verification->url = http_check_base(url, &plain, err);
	if (!verification->url ||
		verify_threshold(invocation, "LOGIT_COSINE_THRESHOLD", &limits->cosine, err) < 0 ||
		verify_threshold(invocation, "LOGIT_MAX_ABS_DIFF", &limits->difference, err) < 0)
		return -1;
	verification->plan.reference = model_open(arg_string(invocation, "reference"), device, err);
	return verification->plan.reference ? 0 : -1;
}

void verification_close(struct verification *verification)
{
	model_close(verification->plan.reference);
	free(verification->url);
}

int verification_run(const struct verification *verification, struct verdict *verdict,
	struct docket_logits *logits, struct error *err)
{
	struct logits_plan plan = verification->plan;
	struct logits_result found;

	plan.seed = command_seed(); /* what one server was asked tells nothing to the next */
	if (logits_check(&plan, &verdict->checks, &found, err) < 0)
		return -1;
	*logits = (struct docket_logits){found.cosine, found.difference, found.tokens_per_second};
	if (found.accepted)
		return 0;
	verdict->score = verdict->told_score = 0;
	for (size_t i = 0; i < verdict->checks.count; i++)
		if (verdict->checks.items[i].status == CHECK_FAIL)
			verdict->reason = verdict->checks.items[i].detail;
	return 0;
}
