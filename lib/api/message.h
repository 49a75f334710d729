/* message: what goes over the wire besides JSON's own rules: the commitment and the signed texts. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/buffer.h"

/* What the Signature header signs: the hotkey's address and, where a Timestamp header goes with it (else NULL),
 * ":" and that header's text. The caller frees. */
char *message_identity(const char *hotkey, const char *timestamp);

/* Seconds that such a timestamp may be off the validator's clock, either way. */
#define MESSAGE_SECONDS 120

/* 32 random bytes as 64 hex digits: that text is the salt, and it is what gets hashed. */
void message_salt(char salt[65]);

/* Lowercase hex SHA-256 of salt ‖ data, data being the fork's URL or the docker image. */
void message_commitment_hash(const char *salt, const char *data, char hash[65]);

/* Is this the salt, and the data, of that commitment? False when one of them is missing (NULL). */
bool message_salt_fits(const char *salt, const char *data, const char *commitment_hash);

/* Appends what the reference miner signs for /submit_kernel:
 * fork_url + commit_hash + repr(tokens_per_sec) + json.dumps(benchmarks, sort_keys=True) [+ repo_hash],
 * formatted as Python does. `benchmarks` is an object as submitted; the reference keys it by whole
 * numbers, so it is sorted by number, not by digit. NULL stands for {}. `repo_hash` may be NULL. */
void message_submission_text(const char *fork_url, const char *commit_hash, double tokens_per_sec,
	const cJSON *benchmarks, const char *repo_hash, struct buffer *out);
