/* score: leagues, the rule for claims, and ranking, as validators apply them. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct league {
	const char *name; /* "100k" … "900k", "1M" */
	int64_t least;    /* shortest target sequence length */
	double multiplier;
};

/* From the lowest league to the highest. */
#define LEAGUE_COUNT 10
extern const struct league league_table[LEAGUE_COUNT];

/* Tokens that a sequence may have at most, wherever one is asked for or measured. */
#define MOST_TOKENS (INT64_C(1) << 32)

/* The league of a target sequence length. */
const struct league *league_for(int64_t target_sequence_length);
/* NULL when there is no league of that name. */
const struct league *league_by_name(const char *name);

/* tokens/s times the league's multiplier: what is ranked. */
double score_weighted(double tokens_per_sec, int64_t target_sequence_length);

/* 1 + (actual - claimed) / claimed, or 0 when actual < 0.9 * claimed. `claimed` is positive. */
double score_claim(double actual, double claimed);

/* Whether a claim exceeds what was measured (and normalised) so far that the miner is flagged for it: by more than half
 * of itself, and by more than 1000 tokens/s. */
bool score_overclaims(double claimed, double measured);

enum logit_verdict { LOGITS_PENDING, LOGITS_PASSED, LOGITS_FAILED };

struct score_entry {
	int64_t id;
	double tokens_per_sec;
	int64_t target_sequence_length;
	double created_at; /* Unix time; for commit-reveal that of the commit */
	bool revealed;
	enum logit_verdict logits;
};

/* Writes the indices of the entries that rank, best first, into `order` (room for `count`), and returns
 * how many. Left out: not revealed, logits failed, weighted score not above `baseline` (-INFINITY in the
 * first round). Sorted by weighted score descending, creation time ascending, id ascending. */
size_t score_rank(const struct score_entry *entries, size_t count, double baseline, size_t *order);

/* The shares of the reward that the first ranks get. */
#define REWARD_RANKS 4
extern const double reward_shares[REWARD_RANKS];

/* First 16 hex digits of the SHA-256 of {"benchmarks", "target_sequence_length", "tokens_per_sec"} as
 * Python's json.dumps(…, sort_keys=True) writes it, tokens/s rounded to 2 digits. `benchmarks` is an
 * object as submitted ({"4096": {"tokens_per_sec": …}}) or NULL. Equal hashes mark equal results. */
void score_solution_hash(
	double tokens_per_sec, int64_t target_sequence_length, const cJSON *benchmarks, char hash[17]);
