#include "connect.h"

#define LONGEST_TIMEOUT 86400

int arg_timeout(const struct invocation *invocation, double *timeout, struct error *err)
{
	return arg_real(invocation, "timeout", 0.1, LONGEST_TIMEOUT, timeout, err);
}

struct api *require_api(
	const struct invocation *invocation, const struct keypair *keypair, struct error *err)
{
	double timeout = 0;

	if (arg_timeout(invocation, &timeout, err) < 0)
		return NULL;
	return api_open(arg_string(invocation, "api"), keypair, timeout, err);
}
