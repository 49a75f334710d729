#include "cli/board.h"

#include <math.h>
#include <string.h>

#include "api/standings.h"
#include "api/target.h"
#include "api/version.h"
#include "base/clock.h"
#include "base/memory.h"

/* More a dashboard does not show. */
#define LEADERS_MOST 200

static char *copy(const char *text)
{
	return text ? xstrdup(text) : NULL;
}

static void note_problem(struct board *board, const struct error *err)
{
	if (!board->problem)
		board->problem = xstrdup(err->message);
}

static int ask_dashboard(struct api *api, const char *own, struct board *board, struct error *err)
{
	struct api_leaderboard leaders;
	int result = api_dashboard_leaderboard(api, LEADERS_MOST, &leaders, err);

	board->measured = true;
	for (size_t i = 0; !result && i < leaders.count; i++)
		*board_entry(board) = (struct board_entry){
			.id = leaders.leaders[i].submission_id,
			.hotkey = copy(leaders.leaders[i].miner_hotkey),
			.tokens = leaders.leaders[i].target_sequence_length,
			.speed = leaders.leaders[i].tokens_per_sec,
			.created_at = NAN,
			.state = "validated",
			.own = !strcmp(leaders.leaders[i].miner_hotkey, own),
		};
	api_release(&leaders.memory);
	return result;
}

static int ask_standings(struct api *api, const char *own, struct board *board, struct error *err)
{
	struct standings standings;
	int result = standings_read(api, &standings, err);

	for (size_t i = 0; !result && i < standings.count; i++) {
		const struct api_submission *submission = standings.ranked[i].submission;

		*board_entry(board) = (struct board_entry){
			.id = submission->id,
			.hotkey = copy(submission->miner_hotkey),
			.tokens = submission->target_sequence_length,
			.speed = submission->tokens_per_sec,
			.created_at = submission->created_at,
			.state = standing_state_name(standings.ranked[i].state),
			.own = !strcmp(submission->miner_hotkey, own),
		};
	}
	board->unrevealed = (int64_t)standings.unrevealed;
	board->notes = standings_not_told;
	standings_free(&standings);
	return result;
}

static void take_rewards(const struct rewards *rewards, const char *own, struct board *board)
{
	for (size_t i = 0; i < rewards->weights.count; i++)
		*board_share(board) = (struct board_share){
			.hotkey = copy(rewards->weights.weights[i].hotkey),
			.weight = rewards->weights.weights[i].weight,
			.own = !strcmp(rewards->weights.weights[i].hotkey, own),
		};
}

/* The current round, what has to be beaten in it, and the latest rewards. */
static int ask_round(struct api *api, const char *own, struct board *board, struct error *err)
{
	struct api_round round = {0};
	struct target target = {0};
	struct rewards rewards = {0};
	int result = api_current_round(api, &round, err);

	if (!result) {
		*board_round(board) = (struct board_round){
			.number = round.round_number,
			.status = copy(round.status),
			.start = round.start_time,
			.end = round.end_time,
			.submissions = round.total_submissions,
			.winner = copy(round.winner_hotkey),
		};
		board->has_round = true;
		result = target_read(api, &round, &target, err);
	}
	if (!result) {
		board->to_beat = target.weighted;
		take_rewards(&target.rewards, own, board);
	}
	/* where the round knows what has to be beaten, they were not asked for */
	if (!result && !board->share_count) {
		result = rewards_read(api, &rewards, err);
		take_rewards(&rewards, own, board);
		api_release(&rewards.weights.memory);
	}
	target_free(&target);
	api_release(&round.memory);
	return result;
}

int board_ask(struct api *api, const char *own, struct board *board, struct error *err)
{
	int result;

	*board = (struct board){.to_beat = NAN};
	if (api_has_dashboard(api) && !api_shows_lists(api)) {
		result = ask_dashboard(api, own, board, err);
	} else {
		result = ask_standings(api, own, board, err);
		if (!result && ask_round(api, own, board, err) < 0) {
			if (err->status == STATUS_INTERRUPTED)
				return -1;
			note_problem(board, err);
		}
	}
	board->now = clock_now();
	board->name = xprintf("%s, version %s", api_url(api), api_version(api)->name);
	board_rank(board);
	return result;
}
