#include "cli/connect.h"

#include <string.h>

#include "api/version.h"
#include "base/log.h"

#define LONGEST_TIMEOUT 86400
#define LONGEST_KEY 128

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

/* "finney" or "test"; NULL: the miner has not said on which one, which only versions that keep them apart mind. */
static const char *network_setting(const struct settings *settings, const struct api *api)
{
	const char *network = settings_get(settings, "SUBTENSOR_NETWORK", NULL);

	if (!network) /* nothing is at stake in a rehearsal */
		return api_is_local(api) ? "test" : NULL;
	return strcmp(network, "finney") && strcmp(network, "test") ? NULL : network;
}

/* What else the settings say that a version of the validator may ask for. */
static int set_up(const struct invocation *invocation, struct api *api, struct error *err)
{
	const char *name = arg_string(invocation, "api-version");
	const char *key = settings_get(invocation->settings, "DASHBOARD_API_KEY", NULL);
	const struct api_version *version = api_version_named(name);

	if (!version && strcmp(name, "auto"))
		return error_set(
			err, STATUS_USAGE, "API_VERSION: \"%s\" is not one of auto|2026-04|2026-02", name);
	if (key && (strpbrk(key, "\r\n") || strlen(key) > LONGEST_KEY))
		return error_set(err, STATUS_USAGE,
			"DASHBOARD_API_KEY is too long for an API key, or has a line break");
	if (version)
		api_force_version(api, version);
	api_follow_version(api, NULL);
	api_set_network(api, network_setting(invocation->settings, api));
	api_set_dashboard_key(api, key);
	return 0;
}

struct api *require_api_for(
	const struct invocation *invocation, const struct keypair *keypair, double timeout, struct error *err)
{
	struct api *api = api_open(arg_string(invocation, "api"), keypair, timeout, err);

	if (api && set_up(invocation, api, err) < 0) {
		api_close(api);
		return NULL;
	}
	return api;
}

struct api *require_api(const struct invocation *invocation, const struct keypair *keypair, struct error *err)
{
	double timeout = 0;

	if (arg_timeout(invocation, &timeout, err) < 0)
		return NULL;
	if (keypair)
		tell_address(invocation);
	return require_api_for(invocation, keypair, timeout, err);
}

struct api *require_api_soon(
	const struct invocation *invocation, const struct keypair *keypair, struct error *err)
{
	struct api *api = require_api(invocation, keypair, err);

	if (api)
		api_share_timeout(api);
	return api;
}
