#include "score/score.h"

#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/buffer.h"
#include "base/hex.h"
#include "base/json.h"
#include "base/number.h"

const struct league league_table[LEAGUE_COUNT] = {
	{"100k", 0, 0.5},
	{"200k", 200000, 0.75},
	{"300k", 300000, 1.0},
	{"400k", 400000, 1.25},
	{"500k", 500000, 1.5},
	{"600k", 600000, 1.75},
	{"700k", 700000, 2.0},
	{"800k", 800000, 2.25},
	{"900k", 900000, 2.5},
	{"1M", 1000000, 3.0},
};

const double reward_shares[REWARD_RANKS] = {0.60, 0.25, 0.10, 0.05};

const struct league *league_for(int64_t target_sequence_length)
{
	int i = LEAGUE_COUNT - 1;

	while (i > 0 && target_sequence_length < league_table[i].least)
		i--;
	return &league_table[i];
}

const struct league *league_by_name(const char *name)
{
	for (int i = 0; i < LEAGUE_COUNT; i++)
		if (!strcmp(league_table[i].name, name))
			return &league_table[i];
	return NULL;
}

double score_weighted(double tokens_per_sec, int64_t target_sequence_length)
{
	return tokens_per_sec * league_for(target_sequence_length)->multiplier;
}

double score_claim(double actual, double claimed)
{
	return actual >= 0.9 * claimed ? 1 + (actual - claimed) / claimed : 0;
}

bool score_overclaims(double claimed, double measured)
{
	return claimed - measured > 0.5 * claimed && claimed - measured > 1000;
}

static int by_rank(const void *left, const void *right, void *context)
{
	const struct score_entry *entries = context;
	const struct score_entry *a = &entries[*(const size_t *)left], *b = &entries[*(const size_t *)right];
	double score_a = score_weighted(a->tokens_per_sec, a->target_sequence_length);
	double score_b = score_weighted(b->tokens_per_sec, b->target_sequence_length);

	if (score_a != score_b)
		return score_a > score_b ? -1 : 1;
	if (a->created_at != b->created_at)
		return a->created_at < b->created_at ? -1 : 1;
	return (a->id > b->id) - (a->id < b->id);
}

size_t score_rank(const struct score_entry *entries, size_t count, double baseline, size_t *order)
{
	size_t ranked = 0;

	for (size_t i = 0; i < count; i++) {
		const struct score_entry *entry = &entries[i];

		if (entry->revealed && entry->logits != LOGITS_FAILED &&
			score_weighted(entry->tokens_per_sec, entry->target_sequence_length) > baseline)
			order[ranked++] = i;
	}
	qsort_r(order, ranked, sizeof(*order), by_rank, (void *)entries);
	return ranked;
}

void score_solution_hash(
	double tokens_per_sec, int64_t target_sequence_length, const cJSON *benchmarks, char hash[17])
{
	uint8_t digest[crypto_hash_sha256_BYTES];
	char rounded[400], repr[32];
	struct buffer text = {0};

	/* printf and Python's round() both round the double's exact value */
	snprintf(rounded, sizeof(rounded), "%.2f", tokens_per_sec);
	number_repr(strtod(rounded, NULL), repr);
	buffer_text(&text, "{\"benchmarks\": ");
	if (benchmarks)
		json_python(benchmarks, &text);
	else
		buffer_text(&text, "{}");
	buffer_printf(&text, ", \"target_sequence_length\": %lld, \"tokens_per_sec\": %s}",
		(long long)target_sequence_length, repr);
	crypto_hash_sha256(digest, (const uint8_t *)text.data, text.length);
	hex_encode(digest, 8, hash);
	buffer_free(&text);
}
