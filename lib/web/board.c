#include "web/board.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "score/score.h"
#include "web/html.h"

/* Room for one more of `count` items of a list. */
static void *grow(void *list, size_t count, size_t size)
{
	if (!(count & (count - 1))) /* a power of two: it is full */
		list = xrealloc(list, (2 * count + 1) * size);
	memset((char *)list + count * size, 0, size);
	return list;
}

struct board_entry *board_entry(struct board *board)
{
	board->entries = grow(board->entries, board->entry_count, sizeof(*board->entries));
	return &board->entries[board->entry_count++];
}

struct board_round *board_round(struct board *board)
{
	board->rounds = grow(board->rounds, board->round_count, sizeof(*board->rounds));
	return &board->rounds[board->round_count++];
}

struct board_share *board_share(struct board *board)
{
	board->shares = grow(board->shares, board->share_count, sizeof(*board->shares));
	return &board->shares[board->share_count++];
}

void board_free(struct board *board)
{
	for (size_t i = 0; i < board->entry_count; i++)
		free(board->entries[i].hotkey);
	for (size_t i = 0; i < board->round_count; i++) {
		free(board->rounds[i].status);
		free(board->rounds[i].winner);
	}
	for (size_t i = 0; i < board->share_count; i++)
		free(board->shares[i].hotkey);
	free(board->entries);
	free(board->rounds);
	free(board->shares);
	free(board->name);
	free(board->problem);
	*board = (struct board){0};
}

void board_rank(struct board *board)
{
	size_t count = board->entry_count, ranked, next;
	struct score_entry *scores = xcalloc(count, sizeof(*scores));
	struct board_entry *sorted = xcalloc(count, sizeof(*sorted));
	size_t *order = xcalloc(count, sizeof(*order));

	for (size_t i = 0; i < count; i++)
		scores[i] = (struct score_entry){
			.id = board->entries[i].id,
			.tokens_per_sec = board->entries[i].speed,
			.target_sequence_length = board->entries[i].tokens,
			.created_at = board->entries[i].created_at,
			.revealed = true,
			.logits = board->entries[i].excluded ? LOGITS_FAILED : LOGITS_PENDING,
		};
	ranked = next = score_rank(scores, count, isnan(board->to_beat) ? -INFINITY : board->to_beat, order);
	for (size_t i = 0; i < count; i++)
		board->entries[i].rank = 0;
	for (size_t i = 0; i < ranked; i++) {
		board->entries[order[i]].rank = i + 1;
		sorted[i] = board->entries[order[i]];
	}
	for (size_t i = 0; i < count; i++)
		if (!board->entries[i].rank)
			sorted[next++] = board->entries[i];
	if (count)
		memcpy(board->entries, sorted, count * sizeof(*sorted));
	free(sorted);
	free(order);
	free(scores);
}

/* Seconds that the current round has left; 0: none. */
static double seconds_left(const struct board *board)
{
	return board->has_round ? fmax(0, board->rounds[0].end - board->now) : 0;
}

/* NAN without a speed. */
static double weighted_score(const struct board_entry *entry)
{
	return score_weighted(entry->speed, entry->tokens);
}

double board_gap(const struct board *board, size_t entry)
{
	const struct board_entry *below = &board->entries[entry];

	if (!entry || !below->rank)
		return NAN;
	return weighted_score(&board->entries[entry - 1]) / weighted_score(below) - 1;
}

/* --- parts --------------------------------------------------------------------------------------- */

static const struct sheet_column standings_columns[] = {
	{"rank", "Rank", SHEET_COUNT},
	{"hotkey", "Hotkey", SHEET_CODE},
	{"weighted_score", "Weighted score", SHEET_SCORE},
	{"gap", "Behind", SHEET_PERCENT},
	{"tokens_per_sec", "Tokens/s", SHEET_COUNT},
	{"league", "League", SHEET_TEXT},
	{"state", "State", SHEET_TEXT},
	{"created_at", "Submitted (UTC)", SHEET_TIME},
	{"target_sequence_length", "Tokens", SHEET_COUNT},
	{"submission_id", "Id", SHEET_COUNT},
	{0},
};

static void describe_own(const struct board *board, struct buffer *out)
{
	for (size_t i = 0; i < board->entry_count; i++) {
		const struct board_entry *entry = &board->entries[i];
		char more[48];

		if (!entry->own || !entry->rank)
			continue;
		number_grouped(ceil(entry->speed * board_gap(board, i)), more);
		if (i)
			buffer_printf(out,
				" Yours is at place %zu: %s tokens/s more at its length (+%.1f %%) reach the "
				"place above.",
				entry->rank, more, board_gap(board, i) * 100);
		else
			buffer_text(out, " Yours leads.");
		return;
	}
}

void board_standings(const struct board *board, size_t first, size_t most, struct part *part)
{
	struct buffer summary = {0};

	*part = (struct part){.name = "leaderboard",
		.title = "Leaderboard",
		.empty = xstrdup("Nothing has been revealed in this round yet.")};
	sheet_begin(&part->sheet, standings_columns);
	for (size_t i = first; i < board->entry_count && (!most || i < first + most); i++) {
		const struct board_entry *entry = &board->entries[i];

		sheet_number(&part->sheet, entry->rank ? (double)entry->rank : NAN);
		sheet_text(&part->sheet, entry->hotkey);
		sheet_number(&part->sheet, weighted_score(entry));
		sheet_number(&part->sheet, board_gap(board, i));
		sheet_number(&part->sheet, entry->speed);
		sheet_text(&part->sheet, league_for(entry->tokens)->name);
		sheet_text(&part->sheet, entry->state);
		sheet_number(&part->sheet, entry->created_at);
		sheet_number(&part->sheet, (double)entry->tokens);
		sheet_number(&part->sheet, entry->id ? (double)entry->id : NAN);
		if (entry->own)
			sheet_mark(&part->sheet);
	}
	buffer_printf(&summary, "The score is tokens/s times the league's multiplier; %s.",
		board->measured ? "speeds are what validators measured" : "speeds are the miners' claims");
	describe_own(board, &summary);
	if (board->unrevealed)
		buffer_printf(&summary, " %lld committed, not revealed yet.", (long long)board->unrevealed);
	part->summary = summary.data;
}

static const struct sheet_column rounds_columns[] = {
	{"round_number", "Round", SHEET_COUNT},
	{"status", "Status", SHEET_TEXT},
	{"winner_hotkey", "Winner", SHEET_CODE},
	{"total_submissions", "Submissions", SHEET_COUNT},
	{"start_time", "Began (UTC)", SHEET_TIME},
	{"end_time", "Ends (UTC)", SHEET_TIME},
	{0},
};

static void make_rounds(const struct board *board, struct part *part)
{
	*part = (struct part){
		.name = "rounds", .title = "Rounds", .empty = xstrdup("No round has begun yet.")};
	sheet_begin(&part->sheet, rounds_columns);
	for (size_t i = 0; i < board->round_count; i++) {
		const struct board_round *round = &board->rounds[i];

		sheet_number(&part->sheet, (double)round->number);
		sheet_text(&part->sheet, round->status);
		sheet_text(&part->sheet, round->winner);
		sheet_number(&part->sheet, (double)round->submissions);
		sheet_number(&part->sheet, round->start);
		sheet_number(&part->sheet, round->end);
		if (!i && board->has_round)
			sheet_mark(&part->sheet);
	}
}

static const struct sheet_column rewards_columns[] = {
	{"hotkey", "Hotkey", SHEET_CODE},
	{"weight", "Share", SHEET_PERCENT},
	{0},
};

static void make_rewards(const struct board *board, struct part *part)
{
	*part = (struct part){.name = "rewards",
		.title = "Latest rewards",
		.empty = xstrdup("No round has had rewards yet.")};
	sheet_begin(&part->sheet, rewards_columns);
	for (size_t i = 0; i < board->share_count; i++) {
		sheet_text(&part->sheet, board->shares[i].hotkey);
		sheet_number(&part->sheet, board->shares[i].weight);
		if (board->shares[i].own)
			sheet_mark(&part->sheet);
	}
}

/* --- the page ------------------------------------------------------------------------------------ */

static void add_fact(struct buffer *out, const char *name, const char *value)
{
	html_add(out, "<div><dt>%s</dt><dd>%s</dd></div>\n", name, value);
}

static void add_facts(const struct board *board, struct buffer *out)
{
	const struct board_round *current = board->rounds;
	double length = board->has_round ? current->end - current->start : 0;
	char text[48];

	if (!board->has_round)
		return;
	buffer_text(out, "<dl class=\"facts\" id=\"facts\">\n");
	snprintf(text, sizeof(text), "%lld", (long long)current->number);
	add_fact(out, "Round", text);
	clock_duration(seconds_left(board), text);
	add_fact(out, "Time left", seconds_left(board) > 0 ? text : "its time is up");
	snprintf(text, sizeof(text), "%lld", (long long)current->submissions);
	add_fact(out, "Submissions", text);
	if (isfinite(board->to_beat)) {
		number_grouped(round(board->to_beat), text);
		add_fact(out, "Score to beat", text);
	}
	buffer_text(out, "</dl>\n");
	if (length > 0)
		html_add(out,
			"<svg class=\"progress\" id=\"progress\" aria-hidden=\"true\"><rect width=\"%.2f%%\" "
			"height=\"100%%\"/></svg>\n",
			100 * (1 - seconds_left(board) / length));
}

static void format_time(double time, char text[32])
{
	clock_format(time, text);
	text[19] = '\0';
	text[10] = ' ';
}

/* How current it is, where a reader looks first. */
static void add_condition(const struct board *board, struct buffer *out)
{
	char when[32], length[32];

	buffer_text(out, "<p id=\"condition\" role=\"status\">");
	if (board->since > 0) {
		format_time(board->since, when);
		clock_duration(fmax(0, clock_now() - board->since), length);
		html_add(out,
			"<strong class=\"outage\">The validator has not been reached since %s UTC (%s).</strong>",
			when, length);
		if (board->now > 0) {
			format_time(board->now, when);
			html_add(out, " What is below is from %s UTC.", when);
		}
	} else if (!(board->now > 0)) {
		buffer_text(out, "Asking the validator …");
	} else {
		format_time(board->now, when);
		html_add(out, "As of %s UTC.", when);
	}
	if (board->problem)
		html_add(out, " <span class=\"quiet\">%s</span>", board->problem);
	buffer_text(out, "</p>\n");
}

static void add_pages(size_t page, size_t pages, const char *query, struct buffer *out)
{
	if (pages < 2)
		return;
	buffer_text(out, "<nav aria-label=\"Pages of the leaderboard\" id=\"pages\">");
	if (page > 1)
		html_add(out, "<a rel=\"prev\" href=\"?%spage=%zu\">← Page %zu</a> ", query, page - 1,
			page - 1);
	html_add(out, "<span class=\"quiet\">Page %zu of %zu</span>", page, pages);
	if (page < pages)
		html_add(out, " <a rel=\"next\" href=\"?%spage=%zu\">Page %zu →</a>", query, page + 1,
			page + 1);
	buffer_text(out, "</nav>\n");
}

static void add_part(struct part *part, struct buffer *out)
{
	part_html(part, out);
	part_free(part);
}

static void add_notes(const struct board *board, struct buffer *out)
{
	if (!board->notes)
		return;
	buffer_text(out, "<section id=\"notes\">\n<h2>What the validator does not show</h2>\n<ul>\n");
	for (const char *const *note = board->notes; *note; note++)
		html_add(out, "<li>%s</li>\n", *note);
	buffer_text(out, "</ul>\n</section>\n");
}

void board_html(const struct board *board, size_t page, const char *query, struct buffer *out)
{
	size_t pages = (board->entry_count + BOARD_PAGE - 1) / BOARD_PAGE;
	struct part part;
	char *title = xprintf("Leaderboard of %s", board->name);

	page = page < 1 ? 1 : page > pages && pages ? pages : page;
	html_begin(out, title, HTML_LIVE);
	html_add(out, "<header>\n<h1>%s</h1>\n", board->name);
	add_condition(board, out);
	buffer_text(out, "</header>\n");
	add_facts(board, out);
	board_standings(board, (page - 1) * BOARD_PAGE, BOARD_PAGE, &part);
	add_part(&part, out);
	add_pages(page, pages, query, out);
	buffer_text(out, "<div class=\"beside uneven\">\n");
	make_rounds(board, &part);
	add_part(&part, out);
	make_rewards(board, &part);
	add_part(&part, out);
	buffer_text(out, "</div>\n");
	add_notes(board, out);
	html_end(out);
	free(title);
}
