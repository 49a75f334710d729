#include "cli/connect.h"

#include "base/log.h"

#define LONGEST_TIMEOUT 86400

int arg_timeout(const struct invocation *invocation, double *timeout, struct error *err)
{
	return arg_real(invocation, "timeout", 0.1, LONGEST_TIMEOUT, timeout, err);
}

/* From a directory below one may not know which validator one signs for. */
static void tell_address(const struct invocation *invocation)
{
	const char *source, *url = settings_get(invocation->settings, "VALIDATOR_API_URL", &source);

	if (invocation->workspace_above && !arg_given(invocation, "api") && source[0] == '/')
		log_note("Signing for the validator %s, which %s names.", url, source);
}

struct api *require_api(const struct invocation *invocation, const struct keypair *keypair, struct error *err)
{
	double timeout = 0;

	if (arg_timeout(invocation, &timeout, err) < 0)
		return NULL;
	if (keypair)
		tell_address(invocation);
	return api_open(arg_string(invocation, "api"), keypair, timeout, err);
}
