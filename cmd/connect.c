#include "connect.h"

#define LONGEST_TIMEOUT 86400

struct api *require_api(const struct invocation *invocation, const struct keypair *keypair, struct error *err)
{
	double timeout = 0;

	if (arg_real(invocation, "timeout", 0.1, LONGEST_TIMEOUT, &timeout, err) < 0)
		return NULL;
	return api_open(arg_string(invocation, "api"), keypair, timeout, err);
}
