/* quasar score: what a speed is worth */
#include <math.h>
#include <stdio.h>

#include "base/number.h"
#include "cmd/commands.h"
#include "score/score.h"

static void print_json(int64_t seq, double tokens_per_sec, double claimed)
{
	const struct league *league = league_for(seq);
	cJSON *document = cJSON_CreateObject();

	cJSON_AddNumberToObject(document, "target_sequence_length", (double)seq);
	cJSON_AddNumberToObject(document, "tokens_per_sec", tokens_per_sec);
	cJSON_AddStringToObject(document, "league", league->name);
	cJSON_AddNumberToObject(document, "multiplier", league->multiplier);
	cJSON_AddNumberToObject(document, "weighted_score", score_weighted(tokens_per_sec, seq));
	if (isnan(claimed)) {
		cJSON_AddNullToObject(document, "claimed");
		cJSON_AddNullToObject(document, "score");
	} else {
		cJSON_AddNumberToObject(document, "claimed", claimed);
		cJSON_AddNumberToObject(document, "score", score_claim(tokens_per_sec, claimed));
	}
	output_json(document);
}

static void print_text(int64_t seq, double tokens_per_sec, double claimed)
{
	const struct league *league = league_for(seq);
	char text[48];

	printf("league          %s (x%g)\n", league->name, league->multiplier);
	number_grouped(score_weighted(tokens_per_sec, seq), text);
	printf("weighted score  %s\n", text);
	if (isnan(claimed))
		return;
	number_grouped(claimed, text);
	printf("score           %.4f for a claim of %s tokens/s%s\n", score_claim(tokens_per_sec, claimed),
		text,
		tokens_per_sec >= 0.9 * claimed ? "" : ": more than 10% short, which counts as a failure");
}

static int run(struct invocation *invocation, struct error *err)
{
	int64_t seq = 0;
	double tokens_per_sec = NAN, claimed = NAN;

	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, &seq, err) < 0 ||
		arg_real(invocation, "tokens-per-sec", 0, 1e15, &tokens_per_sec, err) < 0 ||
		arg_real(invocation, "claimed", 1e-9, 1e15, &claimed, err) < 0)
		return -1;
	if (isnan(tokens_per_sec))
		return error_set(err, STATUS_USAGE, "missing option --tokens-per-sec");
	if (invocation->json)
		print_json(seq, tokens_per_sec, claimed);
	else
		print_text(seq, tokens_per_sec, claimed);
	return 0;
}

const struct command cmd_score = {
	.name = "score",
	.summary = "show what a speed is worth: league, weighted score, score of a claim",
	.description =
		"Submissions are ranked by tokens/s times the multiplier of their league, which depends "
		"on the target sequence length. If a validator measures less than 90% of the claim, the "
		"score is 0, and a failure is counted against the submitter's address; otherwise the "
		"score is 1 + (measured - claimed) / claimed.",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Target sequence length, in tokens."},
			{"tokens-per-sec", 't', "X", NULL, NULL, NULL, "Measured speed."},
			{"claimed", 'c', "X", NULL, NULL, NULL, "Claimed speed."},
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
