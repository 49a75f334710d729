/* quasar score: what a speed is worth */
#include <math.h>
#include <stdio.h>

#include "base/layout.h"
#include "base/number.h"
#include "cmd/commands.h"
#include "score/gpu.h"
#include "score/score.h"

#define FIELD 16 /* the column where values begin */

static void print_json(int64_t seq, double tokens_per_sec, double claimed, const char *gpu)
{
	double normalised = tokens_per_sec / gpu_factor(gpu);
	const struct league *league = league_for(seq);
	cJSON *document = cJSON_CreateObject();

	cJSON_AddNumberToObject(document, "target_sequence_length", (double)seq);
	cJSON_AddNumberToObject(document, "tokens_per_sec", tokens_per_sec);
	cJSON_AddStringToObject(document, "league", league->name);
	cJSON_AddNumberToObject(document, "multiplier", league->multiplier);
	cJSON_AddNumberToObject(document, "weighted_score", score_weighted(tokens_per_sec, seq));
	cJSON_AddStringToObject(document, "validator_gpu", gpu);
	cJSON_AddNumberToObject(document, "normalization_factor", gpu_factor(gpu));
	cJSON_AddNumberToObject(document, "normalized_tokens_per_sec", normalised);
	cJSON_AddNumberToObject(document, "normalized_weighted_score", score_weighted(normalised, seq));
	if (isnan(claimed)) {
		cJSON_AddNullToObject(document, "claimed");
		cJSON_AddNullToObject(document, "score");
	} else {
		cJSON_AddNumberToObject(document, "claimed", claimed);
		cJSON_AddNumberToObject(document, "score", score_claim(tokens_per_sec, claimed));
	}
	output_json(document);
}

static void print_text(int64_t seq, double tokens_per_sec, double claimed, const char *gpu)
{
	double normalised = tokens_per_sec / gpu_factor(gpu);
	const struct gpu_rating *known = gpu_find(gpu);
	const struct league *league = league_for(seq);
	char text[48], weighted[48];

	layout_field(stdout, FIELD, "league", "%s (x%g)", league->name, league->multiplier);
	number_grouped(score_weighted(tokens_per_sec, seq), text);
	layout_field(stdout, FIELD, "weighted score", "%s", text);
	number_grouped(normalised, text);
	number_grouped(score_weighted(normalised, seq), weighted);
	layout_field(stdout, FIELD, "normalised", "%s tokens/s, weighted %s, if measured on %s (%s%.2f)",
		text, weighted, known ? known->name : gpu,
		known ? "divided by " : "not known: ", gpu_factor(gpu));
	if (isnan(claimed))
		return;
	number_grouped(claimed, text);
	layout_field(stdout, FIELD, "score", "%.4f for a claim of %s tokens/s%s",
		score_claim(tokens_per_sec, claimed), text,
		tokens_per_sec >= 0.9 * claimed ? "" : ": more than 10% short, which counts as a failure");
}

static int run(struct invocation *invocation, struct error *err)
{
	int64_t seq = 0;
	double tokens_per_sec = NAN, claimed = NAN;
	const char *gpu = arg_string(invocation, "validator-gpu");

	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, &seq, err) < 0 ||
		arg_real(invocation, "tokens-per-sec", 0, 1e15, &tokens_per_sec, err) < 0 ||
		arg_real(invocation, "claimed", 1e-9, 1e15, &claimed, err) < 0)
		return -1;
	if (isnan(tokens_per_sec))
		return error_set(err, STATUS_USAGE, "missing option --tokens-per-sec");
	if (invocation->json)
		print_json(seq, tokens_per_sec, claimed, gpu);
	else
		print_text(seq, tokens_per_sec, claimed, gpu);
	return 0;
}

const struct command cmd_score = {
	.name = "score",
	.summary = "show what a speed is worth: league, weighted score, score of a claim",
	.description =
		"Submissions are ranked by tokens/s times the multiplier of their league, which depends "
		"on the target sequence length. If a validator measures less than 90% of the claim, the "
		"score is 0, and a failure is counted against the submitter's address; otherwise the "
		"score is 1 + (measured - claimed) / claimed.\n\n"
		"Versions of the validator from 2026-04 on rank what validators measure, divided by a factor "
		"of the validator's GPU; the claim does not count.",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Target sequence length, in tokens."},
			{"tokens-per-sec", 't', "X", NULL, NULL, NULL, "Measured speed."},
			{"claimed", 'c', "X", NULL, NULL, NULL, "Claimed speed."},
			{"validator-gpu", 0, "NAME", NULL, "RTX 5090", NULL,
				"GPU that the speed is measured on, as validators name it."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar score --seq 1M --tokens-per-sec 67M",
				"the weighted score of 67M tokens/s in league 1M"},
			{"quasar score --seq 1M --tokens-per-sec 60M --claimed 66M",
				"the score of a claim that was a little too high"},
			{0},
		},
	.run = run,
};
