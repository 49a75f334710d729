/* quasar leagues: the table of leagues and rewards */
#include <stdio.h>

#include "base/buffer.h"
#include "base/layout.h"
#include "base/number.h"
#include "cli/table.h"
#include "cmd/commands.h"
#include "score/score.h"

static void print_json(void)
{
	cJSON *document = cJSON_CreateObject();
	cJSON *leagues = cJSON_AddArrayToObject(document, "leagues");
	cJSON *rewards = cJSON_AddArrayToObject(document, "rewards");

	for (int i = 0; i < LEAGUE_COUNT; i++) {
		cJSON *league = cJSON_CreateObject();

		cJSON_AddStringToObject(league, "league", league_table[i].name);
		cJSON_AddNumberToObject(league, "least", (double)league_table[i].least);
		cJSON_AddNumberToObject(league, "multiplier", league_table[i].multiplier);
		cJSON_AddItemToArray(leagues, league);
	}
	for (int i = 0; i < REWARD_RANKS; i++)
		cJSON_AddItemToArray(rewards, cJSON_CreateNumber(reward_shares[i]));
	output_json(document);
}

static void print_text(int64_t target)
{
	static const char *const headings[] = {"league", "target sequence length", "multiplier", ""};
	struct buffer shares = {0};
	struct table table;

	table_begin(&table, headings, "lrrl");
	for (int i = 0; i < LEAGUE_COUNT; i++) {
		bool is_last = i + 1 == LEAGUE_COUNT;
		char bound[48];

		number_grouped((double)league_table[is_last ? i : i + 1].least, bound);
		table_cell(&table, "%s", league_table[i].name);
		table_cell(&table, "%s %s", is_last ? "from" : "below", bound);
		table_cell(&table, "x%g", league_table[i].multiplier);
		table_cell(&table, "%s", league_for(target) == &league_table[i] ? "yours" : "");
		if (league_for(target) == &league_table[i])
			table_mark_row(&table);
	}
	table_print(&table, stdout);
	for (int i = 0; i < REWARD_RANKS; i++)
		buffer_printf(&shares, "%s %.0f %%", i ? "," : "", reward_shares[i] * 100);
	layout_format(stdout, 0, "\nThe top %d of a round share the rewards:%s.", REWARD_RANKS, shares.data);
	buffer_free(&shares);
}

static int run(struct invocation *invocation, struct error *err)
{
	int64_t target = 0;

	if (arg_integer(invocation, "seq", 1, MOST_TOKENS, &target, err) < 0)
		return -1;
	if (invocation->json)
		print_json();
	else
		print_text(target);
	return 0;
}

const struct command cmd_leagues = {
	.name = "leagues",
	.summary = "list the leagues, their multipliers and the rewards",
	.opts =
		(const struct opt[]){
			{"seq", 's', "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Target sequence length, in tokens; its league is marked."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar leagues", "list the leagues, and mark the one of TARGET_SEQUENCE_LENGTH"},
			{0},
		},
	.run = run,
};
