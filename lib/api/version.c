#include "api/version.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#define ROUND_SECONDS (48 * 3600)

const struct api_version api_versions[] = {
	{
		.name = "2026-04",
		.route = "/get_pending_validations",
		.timestamps = true,
		.dashboard = true,
		.images = true,
		.networks = true,
		.registers = true,
		.docket = true,
		.flags = true,
		.reads_trees = true,
		.pays_lowest = true,
		.claim_least = 10,
		.claim_most = 5e7,
		.claim_share = 0.5,
		.round_seconds = ROUND_SECONDS,
		.reference_model = "Qwen/Qwen3-4B-Instruct-2507",
	},
	{
		.name = "2026-02",
		.route = "/commit_submission",
		.lists = true,
		.judges_hidden = true,
		.claims_rank = true,
		.claim_most = INFINITY,
		.claim_share = 1,
		.round_seconds = ROUND_SECONDS,
		.reference_model = "Qwen/Qwen2.5-0.5B-Instruct",
	},
	{0},
};

const struct api_version *api_version_oldest(void)
{
	return &api_versions[sizeof(api_versions) / sizeof(api_versions[0]) - 2];
}

const struct api_version *api_version_named(const char *name)
{
	for (const struct api_version *version = api_versions; version->name; version++)
		if (!strcmp(version->name, name))
			return version;
	return NULL;
}

const struct api_version *api_version_by_lists(bool lists)
{
	const struct api_version *version = api_version_oldest();

	while (version->lists != lists)
		version--;
	return version;
}

const struct api_version *api_version_described(const cJSON *openapi)
{
	const cJSON *paths = cJSON_GetObjectItemCaseSensitive(openapi, "paths");

	for (const struct api_version *version = api_versions; version->name; version++)
		if (cJSON_IsObject(paths) && cJSON_GetObjectItemCaseSensitive(paths, version->route))
			return version;
	return NULL;
}
