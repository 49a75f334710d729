/* version: what each version of the validator's service offers and asks for. Everything else asks this table, and
 * not which version it is. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

struct api_version {
	const char *name;  /* "2026-02" */
	const char *route; /* it has this one, and the versions before it do not */

	bool timestamps; /* takes signatures that cover the time */
	bool lists; /* anybody may read commitments, submissions, rounds and weights; else validators only */
	bool dashboard;     /* who has an API key may read a miner's own submissions */
	bool images;        /* ranks a submission only if it names the image of its inference server */
	bool networks;      /* keeps finney and test apart */
	bool registers;     /* registers a hotkey by itself, when it first submits */
	bool judges_hidden; /* validators also judge commitments that are not revealed yet, and cannot */
	bool docket; /* hands out to validators what waits, and takes what they measured with the score; else only a score */
	bool flags; /* shuts out hotkeys that share what may not be shared, or that claim far too much */
	bool reads_trees; /* judges a fork's imports by its syntax trees; else by its text */
	bool claims_rank; /* ranks by the claim; else by what validators measured, normalised by their GPU */
	bool pays_lowest; /* pays a hotkey that wins several places of a round for the lowest of them only */
	double claim_least; /* tokens/s that may be claimed */
	double claim_most;
	double claim_share; /* of what was measured: as much is claimed at most */
	double round_seconds;
	const char *
		reference_model; /* whose logits an inference server has to give, where nothing else is agreed on */
};

/* From the newest to the oldest; ends with an entry whose name is NULL. */
extern const struct api_version api_versions[];

/* The oldest one: what is assumed where nothing is known, for later ones understand it, too. */
const struct api_version *api_version_oldest(void);
/* NULL when there is none of that name. */
const struct api_version *api_version_named(const char *name);

/* The oldest one whose lists anybody may read, or nobody but validators. */
const struct api_version *api_version_by_lists(bool lists);
/* The version with these routes, by its /openapi.json; NULL when that is not the document of a validator. */
const struct api_version *api_version_described(const cJSON *openapi);
