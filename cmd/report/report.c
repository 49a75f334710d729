/* quasar report: everything that is known of a workspace, on one page. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "base/version.h"
#include "cli/board.h"
#include "cli/browser.h"
#include "cli/connect.h"
#include "cli/hotkey.h"
#include "cli/proposal.h"
#include "cmd/commands.h"
#include "cmd/report/report.h"
#include "fork/fork.h"
#include "score/score.h"
#include "web/html.h"

/* --- the facts ------------------------------------------------------------------------------------ */

static int read_submissions(
	const struct workspace *workspace, const char *own, struct facts *facts, struct error *err)
{
	const struct submission_filter filter = {.api_url = facts->api_url, .hotkey = *own ? own : NULL};
	size_t count;

	if (store_submissions(workspace->store, &filter, &facts->submissions, err) < 0)
		return -1;
	facts->journals = xcalloc(REPORT_WAYS, sizeof(*facts->journals));
	count = facts->submissions.count;
	for (size_t i = 0; i < REPORT_WAYS && i < count; i++)
		if (store_journal(workspace->store, facts->submissions.items[count - 1 - i].id,
			    &facts->journals[i], err) < 0)
			return -1;
	return 0;
}

/* What `quasar commit` would claim; that nothing may be is no error here. */
static void make_claim(const struct api *api, double margin, struct facts *facts)
{
	const struct claim_terms terms = {.commit = facts->commit,
		.tokens = facts->tokens,
		.margin = margin,
		.rehearsal = api_is_local(api)};
	struct error ignored;

	claim_make(&facts->benchmarks, &terms, &facts->claim, &ignored);
}

/* A page without it is worth having. */
static int ask_validator(struct api *api, const char *own, struct facts *facts, struct error *err)
{
	facts->asked = true;
	facts->answered = board_ask(api, own, &facts->board, err) == 0;
	if (facts->answered)
		return 0;
	if (err->status == STATUS_INTERRUPTED)
		return -1;
	facts->problem = xstrdup(err->message);
	log_warn("the leaderboard is left out: %s", err->message);
	return 0;
}

/* What somebody's file says, then what the user's store has. A page without the store is worth having. */
static int read_tunings(const char *path, struct facts *facts, struct error *err)
{
	struct buffer text = {0};
	struct error problem;
	cJSON *document = NULL;
	int result = path ? file_read(path, TUNE_FILE_BYTES, &text, err) : 0;

	if (!result && path) {
		document = json_parse(text.data, text.length, err);
		result = document ? tuning_read(document, &facts->tunings, err) : -1;
		if (result)
			error_context(err, "--tuning %s", path);
		err->status = result ? STATUS_ENVIRONMENT : STATUS_OK;
	}
	if (!result && tuning_load_current(&facts->tunings, &problem) < 0)
		log_warn("stored tunings are left out: %s", problem.message);
	cJSON_Delete(document);
	buffer_free(&text);
	return result;
}

static int read_facts(const struct invocation *invocation, const struct workspace *workspace, struct api *api,
	struct facts *facts, struct error *err)
{
	const struct benchmark_filter all = {0};
	struct error ignored;
	char own[SS58_SIZE];
	double margin = 0;

	hotkey_own_address(invocation, own);
	facts->directory = workspace->directory;
	facts->api_url = api_url(api);
	if (fork_head(workspace->fork_path, facts->commit, &ignored) < 0)
		facts->commit[0] = '\0';
	if (proposal_options(invocation, &facts->tokens, &margin, err) < 0 ||
		read_tunings(arg_string(invocation, "tuning"), facts, err) < 0 ||
		benchmark_list(workspace->store, &all, 0, &facts->benchmarks, err) < 0 ||
		read_submissions(workspace, own, facts, err) < 0)
		return -1;
	make_claim(api, margin, facts);
	return arg_flag(invocation, "offline") ? 0 : ask_validator(api, own, facts, err);
}

static void facts_free(struct facts *facts)
{
	for (size_t i = 0; facts->journals && i < REPORT_WAYS; i++)
		journal_free(&facts->journals[i]);
	free(facts->journals);
	benchmark_list_free(&facts->benchmarks);
	submission_list_free(&facts->submissions);
	claim_free(&facts->claim);
	board_free(&facts->board);
	tuning_list_free(&facts->tunings);
	free(facts->problem);
}

/* --- the page ------------------------------------------------------------------------------------- */

static void add_fact(struct buffer *out, const char *name, double value, const char *format, const char *more)
{
	char grouped[48];

	if (!isfinite(value))
		return;
	number_grouped(round(value), grouped);
	html_add(out, "<div><dt>%s</dt><dd>%s%s<small>%s</small></dd></div>\n", name, grouped, format, more);
}

/* The few figures that are looked for first. */
static void add_facts(const struct facts *facts, struct buffer *out)
{
	const struct claim *claim = &facts->claim;
	char tokens[48], more[96];

	number_grouped((double)facts->tokens, tokens);
	buffer_text(out, "<dl class=\"facts\">\n");
	if (claim->measured > 0) {
		snprintf(more, sizeof(more), "tokens/s at %s tokens", tokens);
		add_fact(out, "Measured", claim->measured, "", more);
		snprintf(more, sizeof(more), "tokens/s, %.1f %% less", claim->margin * 100);
		add_fact(out, "Claim", claim->tokens_per_sec, "", more);
		snprintf(more, sizeof(more), "league %s, ×%g", league_for(facts->tokens)->name,
			league_for(facts->tokens)->multiplier);
		add_fact(out, "Weighted score", score_weighted(claim->tokens_per_sec, facts->tokens), "",
			more);
	}
	if (facts->answered)
		add_fact(out, "Score to beat", facts->board.to_beat, "", "weighted");
	for (size_t i = 0; i < facts->board.entry_count; i++)
		if (facts->board.entries[i].own && facts->board.entries[i].rank) {
			double gap = board_gap(&facts->board, i);

			snprintf(more, sizeof(more),
				isfinite(gap) ? "%.1f %% to the place above" : "nobody is above", gap * 100);
			add_fact(out, "Place", (double)facts->board.entries[i].rank, "", more);
			break;
		}
	buffer_text(out, "</dl>\n");
}

static void make_page(const struct facts *facts, struct buffer *out)
{
	char *title = xprintf("Report of %s", strrchr(facts->directory, '/') + 1);
	char when[32];

	clock_minute(clock_now(), when);
	html_begin(out, title, HTML_STILL);
	html_add(out,
		"<header>\n<h1>%s</h1>\n<p class=\"quiet\">Validator %s; commit <code>%.10s</code>. Made by quasar %s "
		"on %s UTC.</p>\n</header>\n",
		title, facts->api_url, *facts->commit ? facts->commit : "none", QUASAR_VERSION, when);
	add_facts(facts, out);
	buffer_text(out, "<div class=\"beside\">\n");
	for (enum report_part which = 0; which < REPORT_PARTS; which++) {
		struct part part;

		if (which == REPORT_LEADERBOARD)
			buffer_text(out, "</div>\n");
		report_part(facts, which, &part);
		part_html(&part, out);
		part_free(&part);
	}
	html_end(out);
	free(title);
}

/* --- the forms ------------------------------------------------------------------------------------ */

/* The part that --part names; REPORT_PARTS: all. */
static enum report_part asked_part(const struct invocation *invocation)
{
	const char *name = arg_string(invocation, "part");
	enum report_part which = 0;

	while (which < REPORT_PARTS && name && strcmp(report_part_names[which], name))
		which++;
	return name ? which : REPORT_PARTS;
}

static int make_svg(const struct part *part, struct buffer *out, struct error *err)
{
	return part_svg(part, out)
		? 0
		: error_set(err, STATUS_ENVIRONMENT, "there is no picture of %s: %s", part->name,
			  part->empty && !sheet_rows(&part->sheet) ? part->empty : "it is a table");
}

static void make_json(const struct facts *facts, enum report_part asked, struct buffer *out)
{
	cJSON *document = cJSON_CreateObject();
	char *text;

	for (enum report_part which = 0; which < REPORT_PARTS; which++) {
		struct part part;

		if (asked != REPORT_PARTS && asked != which)
			continue;
		report_part(facts, which, &part);
		cJSON_AddItemToObject(document, part.name, part_json(&part));
		part_free(&part);
	}
	text = cJSON_Print(document);
	buffer_printf(out, "%s\n", text);
	cJSON_free(text);
	cJSON_Delete(document);
}

static void make_markdown(const struct facts *facts, enum report_part asked, struct buffer *out)
{
	for (enum report_part which = 0; which < REPORT_PARTS; which++) {
		struct part part;

		if (asked != REPORT_PARTS && asked != which)
			continue;
		buffer_text(out, out->length ? "\n" : "");
		report_part(facts, which, &part);
		part_markdown(&part, out);
		part_free(&part);
	}
}

static int make(const struct facts *facts, const char *format, enum report_part asked, struct buffer *out,
	struct error *err)
{
	struct part part;
	int result = 0;

	if (!strcmp(format, "html")) {
		make_page(facts, out);
		return 0;
	}
	if (!strcmp(format, "json")) {
		make_json(facts, asked, out);
		return 0;
	}
	if (!strcmp(format, "markdown")) {
		make_markdown(facts, asked, out);
		return 0;
	}
	report_part(facts, asked, &part);
	if (!strcmp(format, "csv"))
		sheet_csv(&part.sheet, out);
	else
		result = make_svg(&part, out, err);
	part_free(&part);
	return result;
}

/* --- the command ---------------------------------------------------------------------------------- */

/* --json is the format; else --format. */
static const char *asked_format(const struct invocation *invocation)
{
	return invocation->json ? "json" : arg_string(invocation, "format");
}

static int check_options(const struct invocation *invocation, struct error *err)
{
	const char *format = asked_format(invocation);
	bool page = !strcmp(format, "html"), single = arg_string(invocation, "part") != NULL;

	if (page && single)
		return error_set(err, STATUS_USAGE,
			"--part: a page has all parts; add --format svg, csv, markdown or json");
	if (!single && (!strcmp(format, "svg") || !strcmp(format, "csv")))
		return error_set(
			err, STATUS_USAGE, "--format %s is of one part: say which with --part", format);
	if (!page && arg_flag(invocation, "open"))
		return error_set(err, STATUS_USAGE, "--open is for pages, not for --format %s", format);
	return 0;
}

/* Pages go to a file, the other forms to stdout, unless --out says otherwise; "-" is stdout. */
static int deliver(const struct invocation *invocation, const struct buffer *out, struct error *err)
{
	bool page = !strcmp(asked_format(invocation), "html");
	const char *named = arg_string(invocation, "out"), *path = named ? named : page ? "report.html" : "-";
	char *whole;
	int result = 0;

	if (!strcmp(path, "-"))
		return fwrite(out->data, 1, out->length, stdout) == out->length
			? 0
			: error_set(err, STATUS_ENVIRONMENT, "cannot write to stdout");
	if (file_write(path, out->data, out->length, 0644, FILE_REPLACE, err) < 0)
		return -1;
	if (!invocation->json)
		printf("Wrote %s, %zu KiB.\n", path, (out->length + 1023) / 1024);
	whole = realpath(path, NULL);
	if (arg_flag(invocation, "open"))
		result = browser_open(whole ? whole : path, err);
	else if (page)
		puts("Next: open it in a browser, or let `quasar report --open` do that.");
	free(whole);
	return result;
}

static int run(struct invocation *invocation, struct error *err)
{
	const char *directory = require_workspace(invocation, err);
	struct workspace workspace;
	struct facts facts = {0};
	struct buffer out = {0};
	struct api *api;
	int result = -1;

	if (!directory || check_options(invocation, err) < 0 ||
		workspace_open(directory, invocation->settings, &workspace, err) < 0)
		return -1;
	api = require_api(invocation, NULL, err);
	if (api && read_facts(invocation, &workspace, api, &facts, err) == 0 &&
		make(&facts, asked_format(invocation), asked_part(invocation), &out, err) == 0)
		result = deliver(invocation, &out, err);
	buffer_free(&out);
	facts_free(&facts);
	api_close(api);
	workspace_close(&workspace);
	return result;
}

const struct command cmd_report = {
	.name = "report",
	.summary = "make a page of benchmarks, the claim, submissions and standing",
	.description =
		"Writes one HTML file that needs nothing else: the speed over the fork's commits, the throughput by "
		"length with the leagues, what may be claimed and what has to be beaten, each submission and how far it "
		"has come, the leaderboard with the gap to the place above, and what tuning found. It is as readable "
		"on a phone as on a desktop, in a light and in a dark room, and without JavaScript; each picture has its "
		"table.\n\n"
		"If the validator does not respond, the page shows what the workspace knows. With --format, a part (or, as "
		"Markdown or JSON, all of them) goes to stdout instead.",
	.opts =
		(const struct opt[]){
			{"out", 'o', "FILE", NULL, NULL, NULL,
				"File to write; -: stdout. Default: report.html for a page, otherwise stdout."},
			{"open", 0, NULL, NULL, NULL, NULL, "Open the page in the browser."},
			{"format", 0, "FORMAT", NULL, "html", "html|svg|csv|markdown|json",
				"html: the page. svg and csv: one part. markdown and json: one part, or all."},
			{"part", 0, "NAME", NULL, NULL,
				"benchmarks|lengths|claim|submissions|leaderboard|tuning",
				"Which part, with --format."},
			{"tuning", 0, "FILE", NULL, NULL, NULL,
				"Somebody's results of tuning beside the stored ones: what `quasar tune --json` prints, or "
				"--export writes."},
			{"offline", 0, NULL, NULL, NULL, NULL, "Do not ask the validator."},
			OPTS_CLAIM,
			OPTS_WALLET,
			OPTS_VALIDATOR,
			{"timeout", 0, "SECONDS", NULL, "5", NULL, "Time limit for the validator's answers."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar report --open", "write report.html, and look at it"},
			{"quasar report --part lengths --format svg >lengths.svg", "one picture"},
			{"quasar report --part benchmarks --format csv",
				"every measurement, for a spreadsheet"},
			{0},
		},
	.exits = (const enum status[]){STATUS_ENVIRONMENT, 0},
	.run = run,
};
