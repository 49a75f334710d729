/* report: its parts, made from the facts. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "base/number.h"
#include "cmd/report/report.h"
#include "score/score.h"
#include "web/tuning.h"

#define SUBJECTS 4     /* drawn beside each other */
#define COMMITS 40     /* that a history shows, the newest ones */
#define LENGTHS 64     /* that a curve shows */
#define TABLE_MOST 150 /* rows of a page's tables; CSV and JSON have them all */
#define PLACES_MOST 50 /* of the leaderboard, unless the own one is further down */

const char *const report_part_names[REPORT_PARTS] = {
	"benchmarks", "lengths", "claim", "submissions", "leaderboard", "tuning"};

/* --- what was measured, apart from when and at which length ---------------------------------------- */

static bool same_text(const char *a, const char *b)
{
	return a && b ? !strcmp(a, b) : a == b;
}

static bool same_subject(const struct benchmark *a, const struct benchmark *b)
{
	return a->code == b->code && same_text(a->operation, b->operation) &&
		same_text(a->semantics, b->semantics) && same_text(a->weights, b->weights) &&
		same_text(a->device_name, b->device_name);
}

/* "the fork's layer, cuda:0 (NVIDIA H200)"; the caller frees. */
static char *describe_subject(const struct benchmark *benchmark)
{
	const char *whose = benchmark->code == BENCHMARK_FORK ? "the fork's" : "quasar's own";
	/* what the device is called, without its memory and threads */
	int device = (int)strcspn(benchmark->device_name, ",");

	return xprintf("%s %s%s%s%s, %.*s%s", whose, benchmark->operation ? benchmark->operation : "layer",
		*benchmark->semantics ? " (" : "", benchmark->semantics, *benchmark->semantics ? ")" : "",
		device, benchmark->device_name,
		memchr(benchmark->device_name, '(', (size_t)device) && benchmark->device_name[device] ? ")"
												      : "");
}

/* The first few different ones among those that `fits` takes. */
struct subjects {
	const struct benchmark *items[SUBJECTS];
	char *names[SUBJECTS];
	size_t count;
};

static size_t find_subject(const struct subjects *subjects, const struct benchmark *benchmark)
{
	size_t at = 0;

	while (at < subjects->count && !same_subject(subjects->items[at], benchmark))
		at++;
	return at;
}

/* Its place; SUBJECTS: there are too many already. */
static size_t take_subject(struct subjects *subjects, const struct benchmark *benchmark)
{
	size_t at = find_subject(subjects, benchmark);

	if (at == subjects->count && at < SUBJECTS) {
		subjects->items[at] = benchmark;
		subjects->names[subjects->count++] = describe_subject(benchmark);
	}
	return at;
}

static void subjects_free(struct subjects *subjects)
{
	for (size_t i = 0; i < subjects->count; i++)
		free(subjects->names[i]);
}

/* What is said when a point is pointed at. The caller frees. */
static char *describe_point(const struct benchmark *benchmark)
{
	char speed[48], tokens[48], when[32];

	number_grouped(round(benchmark->tokens_per_sec), speed);
	number_grouped((double)benchmark->seq, tokens);
	clock_format(benchmark->when, when);
	return xprintf("%s tokens/s at %s tokens, spread %.1f %%, %.10s", speed, tokens,
		benchmark->spread * 100, when);
}

static struct svg_point point_of(const struct benchmark *benchmark, double x)
{
	double half = benchmark->tokens_per_sec * benchmark->spread / 2;

	return (struct svg_point){x, benchmark->tokens_per_sec, benchmark->tokens_per_sec - half,
		benchmark->tokens_per_sec + half, describe_point(benchmark)};
}

/* A plot; then its points' labels are freed. */
static void draw_plot(struct part *part, const struct svg_plot *plot)
{
	part_plot(part, plot);
	for (size_t i = 0; i < plot->series_count; i++)
		for (size_t n = 0; n < plot->series[i].count; n++)
			free((char *)plot->series[i].points[n].label);
}

/* --- benchmarks over commits ----------------------------------------------------------------------- */

/* A commit's place in a history: its first ten digits, with "+" when files had changed. */
struct history {
	char names[COMMITS][12];
	const char *labels[COMMITS];
	size_t count;
};

static void name_commit(const struct benchmark *benchmark, char name[12])
{
	if (benchmark->fork_commit)
		snprintf(name, 12, "%.7s%s", benchmark->fork_commit, benchmark->dirty ? "+" : "");
	else
		snprintf(name, 12, "none");
}

static size_t find_commit(const struct history *history, const struct benchmark *benchmark)
{
	char name[12];
	size_t at = 0;

	name_commit(benchmark, name);
	while (at < history->count && strcmp(history->names[at], name))
		at++;
	return at;
}

/* The newest commits that were measured at the length, oldest first. */
static void make_history(const struct facts *facts, int64_t tokens, struct history *history)
{
	history->count = 0;
	for (size_t i = 0; i < facts->benchmarks.count && history->count < COMMITS; i++) {
		const struct benchmark *benchmark = &facts->benchmarks.items[i];

		if (benchmark->seq == tokens && find_commit(history, benchmark) == history->count)
			name_commit(benchmark, history->names[history->count++]);
	}
	for (size_t i = 0; i < history->count / 2; i++) {
		char swap[12];

		memcpy(swap, history->names[i], sizeof(swap));
		memcpy(history->names[i], history->names[history->count - 1 - i], sizeof(swap));
		memcpy(history->names[history->count - 1 - i], swap, sizeof(swap));
	}
	for (size_t i = 0; i < history->count; i++)
		history->labels[i] = history->names[i];
}

/* The length that most is known of: the target, else that of the newest benchmark. */
static int64_t main_length(const struct facts *facts)
{
	for (size_t i = 0; i < facts->benchmarks.count; i++)
		if (facts->benchmarks.items[i].seq == facts->tokens)
			return facts->tokens;
	return facts->benchmarks.count ? facts->benchmarks.items[0].seq : facts->tokens;
}

static void draw_history(const struct facts *facts, struct part *part)
{
	struct svg_point points[SUBJECTS][COMMITS] = {0};
	struct svg_series series[SUBJECTS];
	struct subjects subjects = {0};
	struct history history;
	struct svg_plot plot;
	int64_t tokens = main_length(facts);
	char grouped[48], *title;

	make_history(facts, tokens, &history);
	for (size_t i = 0; i < facts->benchmarks.count; i++) {
		const struct benchmark *benchmark = &facts->benchmarks.items[i];
		size_t commit = benchmark->seq == tokens ? find_commit(&history, benchmark) : COMMITS,
		       subject;

		if (commit >= history.count)
			continue;
		subject = take_subject(&subjects, benchmark);
		if (subject < SUBJECTS && !points[subject][commit].label) /* the newest counts */
			points[subject][commit] = point_of(benchmark, (double)commit);
	}
	for (size_t i = 0; i < subjects.count; i++) {
		size_t count = 0;

		for (size_t n = 0; n < history.count; n++)
			if (points[i][n].label)
				points[i][count++] = points[i][n];
		series[i] = (struct svg_series){subjects.names[i], points[i], count, .line = true};
	}
	number_grouped((double)tokens, grouped);
	title = xprintf("Speed over commits, at %s tokens", grouped);
	plot = (struct svg_plot){.title = title,
		.x = {.title = "commit of the fork, oldest first",
			.scale = SVG_ORDINAL,
			.names = history.labels,
			.name_count = history.count},
		.y = {.title = "tokens/s, median and spread"},
		.series = series,
		.series_count = subjects.count};
	draw_plot(part, &plot);
	subjects_free(&subjects);
	free(title);
}

static const struct sheet_column benchmark_columns[] = {
	{"when", "When (UTC)", SHEET_TIME},
	{"fork_commit", "Commit", SHEET_CODE},
	{"dirty", "Changed", SHEET_FLAG},
	{"seq", "Tokens", SHEET_COUNT},
	{"tokens_per_sec", "Tokens/s", SHEET_COUNT},
	{"noise", "Noise", SHEET_PERCENT},
	{"spread", "Spread", SHEET_PERCENT},
	{"runs", "Runs", SHEET_COUNT},
	{"memory_mb", "Memory, MiB", SHEET_COUNT},
	{"subject", "What, and on what", SHEET_TEXT},
	{0},
};

static void add_benchmark(struct sheet *sheet, const struct benchmark *benchmark)
{
	char *subject = describe_subject(benchmark);

	sheet_number(sheet, benchmark->when);
	sheet_text(sheet, benchmark->fork_commit);
	sheet_number(sheet, benchmark->dirty);
	sheet_number(sheet, (double)benchmark->seq);
	sheet_number(sheet, benchmark->tokens_per_sec);
	sheet_number(sheet, benchmark->noise);
	sheet_number(sheet, benchmark->spread);
	sheet_number(sheet, benchmark->runs);
	sheet_number(sheet, benchmark->memory_mb);
	sheet_text(sheet, subject);
	free(subject);
}

static void make_benchmarks(const struct facts *facts, struct part *part)
{
	*part = (struct part){.name = report_part_names[REPORT_BENCHMARKS],
		.title = "Benchmarks",
		.empty = xstrdup("Nothing has been measured yet. `quasar bench` measures the fork."),
		.most = TABLE_MOST};
	sheet_begin(&part->sheet, benchmark_columns);
	for (size_t i = 0; i < facts->benchmarks.count; i++)
		add_benchmark(&part->sheet, &facts->benchmarks.items[i]);
	if (facts->benchmarks.count)
		draw_history(facts, part);
}

/* --- throughput by length --------------------------------------------------------------------------- */

/* The newest at each length, of the newest benchmark's commit and subject; shortest first. */
static size_t choose_lengths(const struct facts *facts, const struct benchmark *chosen[LENGTHS])
{
	const struct benchmark *newest = facts->benchmarks.items;
	size_t count = 0;

	for (size_t i = 0; i < facts->benchmarks.count; i++) {
		const struct benchmark *benchmark = &facts->benchmarks.items[i];
		size_t at = 0;

		if (!same_subject(benchmark, newest) ||
			!same_text(benchmark->fork_commit, newest->fork_commit) ||
			benchmark->dirty != newest->dirty)
			continue;
		while (at < count && chosen[at]->seq < benchmark->seq)
			at++;
		if ((at < count && chosen[at]->seq == benchmark->seq) || count == LENGTHS)
			continue;
		memmove(&chosen[at + 1], &chosen[at], (count - at) * sizeof(*chosen));
		chosen[at] = benchmark;
		count++;
	}
	return count;
}

static const struct sheet_column length_columns[] = {
	{"seq", "Tokens", SHEET_COUNT},
	{"tokens_per_sec", "Tokens/s", SHEET_COUNT},
	{"spread", "Spread", SHEET_PERCENT},
	{"league", "League", SHEET_TEXT},
	{"multiplier", "Multiplier", SHEET_REAL},
	{"weighted_score", "Weighted score", SHEET_SCORE},
	{0},
};

/* What a length is worth by a speed, and without a label: nothing was measured there. */
static struct svg_point weighted_at(double tokens, double speed, double multiplier)
{
	return (struct svg_point){tokens, speed * multiplier, NAN, NAN, NULL};
}

/* The weighted score at the measured lengths and, in between, at the steps of the leagues, by a speed that lies between
 * the two beside it. Returns how many points that gives. */
static size_t weigh_lengths(const struct benchmark *const *chosen, size_t count, struct svg_point *out)
{
	size_t made = 0;

	for (size_t i = 0; i < count; i++) {
		const struct benchmark *now = chosen[i], *then = i ? chosen[i - 1] : now;

		for (size_t league = 1; league < LEAGUE_COUNT; league++) {
			double step = (double)league_table[league].least, part, speed;

			if (!(step > (double)then->seq && step <= (double)now->seq))
				continue;
			part = log(step / (double)then->seq) / log((double)now->seq / (double)then->seq);
			speed = then->tokens_per_sec * pow(now->tokens_per_sec / then->tokens_per_sec, part);
			out[made++] = weighted_at(step, speed, league_table[league - 1].multiplier);
			out[made++] = weighted_at(step, speed, league_table[league].multiplier);
		}
		out[made] = weighted_at((double)now->seq, score_weighted(now->tokens_per_sec, now->seq), 1);
		out[made++].label = describe_point(now);
	}
	return made;
}

static void draw_lengths(const struct benchmark *const *chosen, size_t count, struct part *part)
{
	struct svg_point points[LENGTHS], weighted[LENGTHS + 2 * LEAGUE_COUNT];
	char names[LEAGUE_COUNT][16];
	struct svg_rule rules[LEAGUE_COUNT];
	bool leagues = chosen[count - 1]->seq >= league_table[1].least;
	const struct svg_series series[] = {{"tokens/s", points, count, .line = true},
		{"weighted score", weighted, weigh_lengths(chosen, count, weighted), .line = true}};
	const struct svg_plot plot = {.title = "Tokens/s, and what the leagues make of it",
		.x = {.title = leagues ? "tokens; dashed: where a league begins" : "tokens",
			.scale = SVG_LOG},
		.y = {.title = "tokens/s, and tokens/s times the multiplier", .scale = SVG_LOG},
		.series = series,
		.series_count = 2,
		.x_rules = rules,
		.x_rule_count = leagues ? LEAGUE_COUNT - 1 : 0};

	for (size_t i = 0; i < count; i++)
		points[i] = point_of(chosen[i], (double)chosen[i]->seq);
	for (size_t i = 1; i < LEAGUE_COUNT; i++) {
		snprintf(names[i], sizeof(names[i]), "×%g", league_table[i].multiplier);
		rules[i - 1] = (struct svg_rule){(double)league_table[i].least, names[i]};
	}
	draw_plot(part, &plot);
}

static void make_lengths(const struct facts *facts, struct part *part)
{
	const struct benchmark *chosen[LENGTHS + 1];
	size_t count = choose_lengths(facts, chosen);
	char *subject;

	*part = (struct part){.name = report_part_names[REPORT_LENGTHS],
		.title = "Throughput by length",
		.empty = xstrdup(
			"Nothing has been measured yet. `quasar bench --seq 4096,64k,1M` measures several lengths.")};
	sheet_begin(&part->sheet, length_columns);
	for (size_t i = 0; i < count; i++) {
		const struct league *league = league_for(chosen[i]->seq);

		sheet_number(&part->sheet, (double)chosen[i]->seq);
		sheet_number(&part->sheet, chosen[i]->tokens_per_sec);
		sheet_number(&part->sheet, chosen[i]->spread);
		sheet_text(&part->sheet, league->name);
		sheet_number(&part->sheet, league->multiplier);
		sheet_number(&part->sheet, score_weighted(chosen[i]->tokens_per_sec, chosen[i]->seq));
	}
	if (!count)
		return;
	subject = describe_subject(chosen[0]);
	part->summary = chosen[0]->fork_commit
		? xprintf("The newest measurements of commit `%.10s`%s: %s. Between two lengths, the weighted score supposes a speed between theirs.",
			  chosen[0]->fork_commit, chosen[0]->dirty ? " with changes" : "", subject)
		: xprintf("The newest measurements: %s.", subject);
	free(subject);
	draw_lengths(chosen, count, part);
}

/* --- the claim --------------------------------------------------------------------------------------- */

static const struct sheet_column claim_columns[] = {
	{"name", "", SHEET_TEXT},
	{"tokens_per_sec", "Tokens/s", SHEET_COUNT},
	{"weighted_score", "Weighted score", SHEET_SCORE},
	{0},
};

struct claim_line {
	const char *name;
	double speed, low, high;
	bool strong;
};

static void draw_claim(const struct claim_line *lines, size_t count, struct part *part)
{
	struct svg_bar bars[8];
	char texts[8][48];

	for (size_t i = 0; i < count; i++) {
		number_grouped(round(lines[i].speed), texts[i]);
		bars[i] = (struct svg_bar){lines[i].name, lines[i].speed, lines[i].low, lines[i].high,
			lines[i].strong, texts[i]};
	}
	part_bars(part, "Measured, claimed, and what has to be beaten", bars, count);
}

static char *describe_claim(const struct facts *facts, double to_beat)
{
	const struct claim *claim = &facts->claim;
	double weighted = score_weighted(claim->tokens_per_sec, facts->tokens);
	char speed[48], score[48], least[48], tokens[48];
	struct buffer out = {0};

	number_grouped(claim->tokens_per_sec, speed);
	number_grouped(round(weighted), score);
	number_grouped((double)facts->tokens, tokens);
	buffer_printf(&out,
		"`quasar commit` would claim %s tokens/s for commit `%.10s` at %s tokens, %.1f %% below what was "
		"measured: a weighted score of %s.",
		speed, facts->commit, tokens, claim->margin * 100, score);
	if (claim->stands_in)
		buffer_text(&out, " It is a rehearsal: quasar's own layer stands in for the fork.");
	if (isfinite(to_beat)) {
		number_grouped(round(to_beat), least);
		buffer_printf(&out, " That %s the score to beat, %s, by %.1f %%.",
			weighted > to_beat ? "exceeds" : "falls short of", least,
			fabs(weighted / to_beat - 1) * 100);
	} else if (facts->answered) {
		buffer_text(&out, " The validator tells no score to beat.");
	}
	return out.data;
}

static void make_claim(const struct facts *facts, struct part *part)
{
	const struct claim *claim = &facts->claim;
	double to_beat = facts->answered ? facts->board.to_beat : NAN,
	       half = claim->measured * claim->spread / 2;
	double multiplier = league_for(facts->tokens)->multiplier;
	const struct claim_line lines[] = {
		{"measured", claim->measured, claim->measured - half, claim->measured + half, false},
		{"the claim", claim->tokens_per_sec, NAN, NAN, true},
		{"the least that still scores", 0.9 * claim->tokens_per_sec, NAN, NAN, false},
		{"to beat, at this length", to_beat / multiplier, NAN, NAN, false},
	};
	size_t count = isfinite(to_beat) ? 4 : 3;

	*part = (struct part){.name = report_part_names[REPORT_CLAIM],
		.title = "Claim",
		.empty = xprintf(
			"Nothing yet: commit `%.10s` has not been measured at %lld tokens. `quasar bench` does that.",
			*facts->commit ? facts->commit : "none", (long long)facts->tokens)};
	sheet_begin(&part->sheet, claim_columns);
	if (!(claim->tokens_per_sec > 0))
		return;
	for (size_t i = 0; i < count; i++) {
		sheet_text(&part->sheet, lines[i].name);
		sheet_number(&part->sheet, lines[i].speed);
		sheet_number(&part->sheet, lines[i].speed * multiplier);
	}
	part->summary = describe_claim(facts, to_beat);
	draw_claim(lines, count, part);
}

/* --- submissions --------------------------------------------------------------------------------------- */

static const struct sheet_column submission_columns[] = {
	{"id", "Id", SHEET_COUNT},
	{"server_id", "Server's id", SHEET_COUNT},
	{"step", "Step", SHEET_TEXT},
	{"rank", "Rank", SHEET_COUNT},
	{"league", "League", SHEET_TEXT},
	{"target_sequence_length", "Tokens", SHEET_COUNT},
	{"tokens_per_sec", "Claim", SHEET_COUNT},
	{"weighted_score", "Weighted score", SHEET_SCORE},
	{"commit", "Commit", SHEET_CODE},
	{"created_at", "Made (UTC)", SHEET_TIME},
	{"reveal_block", "Reveal block", SHEET_COUNT},
	{"reason", "Reason", SHEET_TEXT},
	{0},
};

static double count_or_none(int64_t value)
{
	return value ? (double)value : NAN;
}

/* NAN: not known, or it does not rank. */
static double rank_of(const struct facts *facts, const struct submission *submission)
{
	for (size_t i = 0; facts->answered && submission->server_id && i < facts->board.entry_count; i++)
		if (facts->board.entries[i].id == submission->server_id)
			return count_or_none((int64_t)facts->board.entries[i].rank);
	return NAN;
}

static void add_submission(
	struct sheet *sheet, const struct facts *facts, const struct submission *submission)
{
	sheet_number(sheet, (double)submission->id);
	sheet_number(sheet, count_or_none(submission->server_id));
	sheet_text(sheet, submission_step_name(submission->step));
	sheet_number(sheet, rank_of(facts, submission));
	sheet_text(sheet, league_for(submission->target_sequence_length)->name);
	sheet_number(sheet, (double)submission->target_sequence_length);
	sheet_number(sheet, submission->tokens_per_sec);
	sheet_number(sheet, score_weighted(submission->tokens_per_sec, submission->target_sequence_length));
	sheet_text(sheet, submission->commit_hash);
	sheet_number(sheet, submission->created_at);
	sheet_number(sheet, count_or_none(submission->reveal_block));
	sheet_text(sheet, submission->reason);
}

/* When the journal says that it came to a step; "" when it does not. */
static void tell_time(const struct journal *journal, const char *step, char text[24])
{
	char when[32];

	*text = '\0';
	for (size_t i = 0; i < journal->count; i++)
		if (!strncmp(journal->entries[i].text, step, strlen(step))) {
			clock_format(journal->entries[i].when, when);
			snprintf(text, 24, "%.5s %.5s", when + 5, when + 11);
		}
}

struct way {
	char label[24], times[4][24];
	const char *names[4], *texts[4];
};

static struct svg_way way_of(const struct facts *facts, const struct submission *submission,
	const struct journal *journal, struct way *way)
{
	static const char *const commit_steps[] = {"prepared", "committed", "revealed", "ranked"};
	static const char *const direct_steps[] = {"prepared", "submitted", "ranked"};
	bool direct = submission->kind == SUBMISSION_DIRECT;
	const char *const *steps = direct ? direct_steps : commit_steps;
	struct svg_way line = {
		.label = way->label, .steps = way->names, .texts = way->texts, .count = direct ? 3 : 4};
	double rank = rank_of(facts, submission);

	snprintf(way->label, sizeof(way->label), "#%lld", (long long)submission->id);
	for (size_t i = 0; i < line.count; i++) {
		way->names[i] = steps[i];
		tell_time(journal, steps[i], way->times[i]);
		if (*way->times[i])
			line.reached = i + 1;
		way->texts[i] = way->times[i];
	}
	line.failed = submission->step == STEP_REFUSED || submission->step == STEP_ABANDONED;
	if (line.failed)
		way->names[line.reached ? line.reached - 1 : 0] = submission_step_name(submission->step);
	if (isfinite(rank)) {
		line.reached = line.count;
		snprintf(way->times[line.count - 1], sizeof(way->times[0]), "place %.0f", rank);
	}
	return line;
}

static void draw_ways(const struct facts *facts, struct part *part)
{
	size_t total = facts->submissions.count, count = total < REPORT_WAYS ? total : REPORT_WAYS;
	struct svg_way lines[REPORT_WAYS];
	struct way ways[REPORT_WAYS];
	struct part_picture *picture = part_picture(part,
		count < total ? "How far the latest submissions have come"
			      : "How far each submission has come");

	for (size_t i = 0; i < count; i++)
		lines[i] = way_of(
			facts, &facts->submissions.items[total - 1 - i], &facts->journals[i], &ways[i]);
	svg_ways(picture->title, lines, count, PART_WIDE, &picture->wide);
	svg_ways(picture->title, lines, count, PART_NARROW, &picture->narrow);
}

static void make_submissions(const struct facts *facts, struct part *part)
{
	*part = (struct part){.name = report_part_names[REPORT_SUBMISSIONS],
		.title = "Submissions",
		.empty = xstrdup("None yet. `quasar commit` makes the first one."),
		.most = TABLE_MOST};
	sheet_begin(&part->sheet, submission_columns);
	for (size_t i = facts->submissions.count; i--;)
		add_submission(&part->sheet, facts, &facts->submissions.items[i]);
	if (facts->submissions.count)
		draw_ways(facts, part);
}

/* --- what the validator shows ---------------------------------------------------------------------------- */

static void make_leaderboard(const struct facts *facts, struct part *part)
{
	board_standings(&facts->board, 0, 0, part);
	part->name = report_part_names[REPORT_LEADERBOARD];
	part->most = PLACES_MOST;
	for (size_t i = PLACES_MOST; i < facts->board.entry_count && i < TABLE_MOST; i++)
		if (facts->board.entries[i].own) /* with the one below it */
			part->most = i + 2;
	if (facts->answered)
		return;
	free(part->summary);
	free(part->empty);
	part->summary = NULL;
	part->empty = facts->asked ? xprintf("The validator does not show it now: %s", facts->problem)
				   : xstrdup("The validator was not asked.");
}

static void make_tuning(const struct facts *facts, struct part *part)
{
	static const char *const any[2] = {NULL};

	tuning_part(&facts->tunings, any, part);
}

void report_part(const struct facts *facts, enum report_part which, struct part *part)
{
	static void (*const makers[REPORT_PARTS])(const struct facts *facts, struct part *part) = {
		make_benchmarks, make_lengths, make_claim, make_submissions, make_leaderboard, make_tuning};

	makers[which](facts, part);
}
