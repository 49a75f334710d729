/* connect: the validator's API for a command with the options OPTS_API. */
#pragma once

#include "api/client.h"
#include "cli/command.h"

/* Makes the client that --api and --timeout describe. `keypair` signs, and may be NULL when nothing has to
 * be signed; it must outlive the client. */
struct api *require_api(
	const struct invocation *invocation, const struct keypair *keypair, struct error *err);

/* The same for the options OPTS_API_SOON: --timeout is what all that goes wrong may take together. */
struct api *require_api_soon(
	const struct invocation *invocation, const struct keypair *keypair, struct error *err);

/* The same with another time limit, for a command with the options OPTS_VALIDATOR. */
struct api *require_api_for(const struct invocation *invocation, const struct keypair *keypair,
	double timeout, struct error *err);

/* "finney" or "test", as SUBTENSOR_NETWORK says; NULL: it says something else, which only versions that keep networks
 * apart mind. */
const char *network_setting(const struct settings *settings);

/* The seconds that --timeout says. */
int arg_timeout(const struct invocation *invocation, double *timeout, struct error *err);
