/* web: what others wrote stays text, tables tell the same in every form, pictures are made of numbers only. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/memory.h"
#include "web/board.h"
#include "web/html.h"
#include "web/svg.h"
#include "web/tuning.h"

#define HOSTILE "<img src=x onerror=alert(1)>\"'&"
#define ESCAPED "&#60;img src=x onerror=alert(1)&#62;&#34;&#39;&#38;"

static size_t count_of(const char *text, const char *what)
{
	size_t count = 0;

	for (; (text = strstr(text, what)); text += strlen(what))
		count++;
	return count;
}

static void only_the_format_is_markup(void **state)
{
	struct buffer out = {0};

	(void)state;
	html_add(&out, "<b title=\"%s\">%s</b> %d %zu %lld %.2f%%", HOSTILE, HOSTILE, -3, (size_t)4, 5LL,
		6.125);
	assert_string_equal(out.data, "<b title=\"" ESCAPED "\">" ESCAPED "</b> -3 4 5 6.12%");
	buffer_free(&out);
}

static void what_is_not_seen_is_taken_out(void **state)
{
	const char *volatile none = NULL;
	struct buffer out = {0};

	(void)state;
	html_add(&out, "%s",
		"a\033[31mb\001c\nd\xff"
		"e\xe2\x80\xae"
		"f");
	assert_string_equal(out.data, "ab?c d?e?f");
	buffer_free(&out);
	html_add(&out, "[%s]", none);
	assert_string_equal(out.data, "[]");
	buffer_free(&out);
}

static void prose_has_code_and_no_markup(void **state)
{
	struct buffer out = {0};

	(void)state;
	html_prose(&out, "quiet", "Run `quasar <x>`, then `");
	assert_string_equal(
		out.data, "<p class=\"quiet\">Run <code>quasar &#60;x&#62;</code>, then <code></code></p>\n");
	buffer_free(&out);
}

static void a_page_loads_nothing(void **state)
{
	struct buffer out = {0};

	(void)state;
	html_begin(&out, HOSTILE, HTML_LIVE);
	html_end(&out);
	assert_non_null(strstr(out.data, "<title>" ESCAPED "</title>"));
	assert_null(strstr(out.data, " src=\""));
	assert_int_equal(count_of(out.data, "href="), 2); /* the icon, which is data, and the content */
	assert_null(strstr(html_policy(), "unsafe"));
	assert_int_equal(count_of(html_policy(), "'sha256-"), 2);
	assert_non_null(strstr(html_policy(), "default-src 'none'"));
	buffer_free(&out);
}

/* --- tables -------------------------------------------------------------------------------------- */

static const struct sheet_column columns[] = {
	{"name", "Name", SHEET_TEXT},
	{"speed", "Speed", SHEET_SCORE},
	{"part", "Part", SHEET_PERCENT},
	{"when", "When", SHEET_TIME},
	{"good", "Good", SHEET_FLAG},
	{0},
};

static void fill(struct sheet *sheet)
{
	sheet_begin(sheet, columns);
	sheet_text(sheet, HOSTILE "|`*");
	sheet_number(sheet, 1234567.4);
	sheet_number(sheet, 0.125);
	sheet_number(sheet, 1700000000);
	sheet_number(sheet, 1);
	sheet_mark(sheet);
	sheet_text(sheet, NULL);
	for (int i = 0; i < 4; i++)
		sheet_number(sheet, NAN);
	sheet_text(sheet, "=1+1");
	sheet_number(sheet, 0);
	sheet_number(sheet, INFINITY);
	sheet_number(sheet, NAN);
	sheet_number(sheet, 0);
}

static void a_table_is_the_same_in_every_form(void **state)
{
	struct sheet sheet;
	struct buffer out = {0};
	cJSON *json;

	(void)state;
	fill(&sheet);
	assert_int_equal(sheet_rows(&sheet), 3);

	sheet_csv(&sheet, &out);
	assert_string_equal(strchr(out.data, '\n') + 1,
		"\"<img src=x onerror=alert(1)>\"\"'&|`*\",1234567.4,0.125,2023-11-14T22:13:20.000000Z,1\n,,,,\n"
		"\"'=1+1\",0,,,0\n");
	buffer_free(&out);

	sheet_markdown(&sheet, &out);
	assert_non_null(strstr(out.data,
		"| \\<img src=x onerror=alert(1)\\>\"'&\\|\\`\\* | 1,234,567 | 12.5 % | 2023-11-14 22:13 | yes |\n"));
	buffer_free(&out);

	json = sheet_json(&sheet);
	assert_int_equal(cJSON_GetArraySize(json), 3);
	assert_true(cJSON_GetObjectItem(cJSON_GetArrayItem(json, 0), "speed")->valuedouble == 1234567.4);
	assert_true(cJSON_IsTrue(cJSON_GetObjectItem(cJSON_GetArrayItem(json, 0), "good")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetArrayItem(json, 1), "name")));
	assert_true(cJSON_IsNull(cJSON_GetObjectItem(cJSON_GetArrayItem(json, 2), "part")));
	cJSON_Delete(json);

	sheet_html(&sheet, HOSTILE, 2, &out);
	assert_null(strstr(out.data, "<img"));
	assert_int_equal(count_of(out.data, "<tr"), 3);
	assert_int_equal(count_of(out.data, "class=\"marked\""), 1);
	assert_non_null(strstr(out.data, "and 1 more"));
	assert_null(strstr(out.data, "nan"));
	buffer_free(&out);
	sheet_free(&sheet);
}

static void many_rows(void **state)
{
	static const struct sheet_column one[] = {{"n", "N", SHEET_COUNT}, {0}};
	struct sheet sheet;

	(void)state;
	sheet_begin(&sheet, one);
	for (int i = 0; i < 1000; i++)
		sheet_number(&sheet, i);
	sheet_mark(&sheet);
	assert_int_equal(sheet_rows(&sheet), 1000);
	assert_true(sheet.cells[999].number == 999 && sheet.marked[999] && !sheet.marked[998]);
	sheet_free(&sheet);
}

/* --- standings ------------------------------------------------------------------------------------ */

static void add_entry(struct board *board, int64_t id, double speed, int64_t tokens, bool excluded)
{
	*board_entry(board) = (struct board_entry){.id = id,
		.hotkey = xstrdup(HOSTILE),
		.tokens = tokens,
		.speed = speed,
		.created_at = 1700000000,
		.state = "validated",
		.excluded = excluded};
}

static struct board make_board(void)
{
	struct board board = {.name = xstrdup("a validator"), .now = 1700000000, .to_beat = 100};

	add_entry(&board, 1, 1000, 300000, false);
	add_entry(&board, 2, NAN, 300000, false);
	add_entry(&board, 3, 1000, 1000000, false); /* three times the score */
	add_entry(&board, 4, 1e9, 300000, true);
	add_entry(&board, 5, 100, 300000, false); /* does not exceed what has to be beaten */
	board_rank(&board);
	return board;
}

static void standings_rank_as_validators_do(void **state)
{
	struct board board = make_board();

	(void)state;
	assert_int_equal(board.entry_count, 5);
	assert_true(board.entries[0].id == 3 && board.entries[0].rank == 1);
	assert_true(board.entries[1].id == 1 && board.entries[1].rank == 2);
	for (size_t i = 2; i < 5; i++)
		assert_int_equal(board.entries[i].rank, 0);
	assert_true(isnan(board_gap(&board, 0)) && isnan(board_gap(&board, 2)));
	assert_float_equal(board_gap(&board, 1), 2, 1e-9);
	board_free(&board);
}

static void the_leaderboard_in_pages(void **state)
{
	struct board board = make_board();
	struct buffer out = {0};

	(void)state;
	for (int i = 0; i < 2 * BOARD_PAGE; i++)
		add_entry(&board, 10 + i, 500, 300000, false);
	board_rank(&board);
	board_html(&board, 2, "a=b&", &out);
	assert_null(strstr(out.data, "<img"));
	assert_non_null(strstr(out.data, "href=\"?a=b&#38;page=1\""));
	assert_non_null(strstr(out.data, "href=\"?a=b&#38;page=3\""));
	assert_int_equal(count_of(out.data, "<tr><td"), BOARD_PAGE);
	buffer_free(&out);
	board_html(&board, 99, "", &out); /* beyond the end is the last one */
	assert_int_equal(count_of(out.data, "<tr><td"), 5);
	buffer_free(&out);
	board_free(&board);
}

static void a_board_without_anything(void **state)
{
	struct board board = {
		.name = xstrdup(HOSTILE), .to_beat = NAN, .problem = xstrdup(HOSTILE), .since = 1};
	struct buffer out = {0};

	(void)state;
	board_html(&board, 0, "", &out);
	assert_null(strstr(out.data, "<img"));
	assert_non_null(strstr(out.data, "has not been reached since 1970-01-01 00:00:01 UTC"));
	buffer_free(&out);
	board_free(&board);
}

/* --- pictures ------------------------------------------------------------------------------------- */

static void assert_numbers_only(const struct buffer *svg)
{
	assert_null(strstr(svg->data, "nan"));
	assert_null(strstr(svg->data, "inf"));
	assert_null(strstr(svg->data, "<img"));
}

static void draw(enum svg_scale scale, const struct svg_point *points, size_t count)
{
	const struct svg_series series[] = {
		{HOSTILE, points, count, .line = true, .named = true}, {"none", NULL, 0, .line = true}};
	const struct svg_rule rule = {50, HOSTILE};
	const struct svg_plot plot = {.title = HOSTILE,
		.x = {.title = HOSTILE, .scale = scale},
		.y = {.title = "y", .scale = scale},
		.series = series,
		.series_count = 2,
		.x_rules = &rule,
		.x_rule_count = 1,
		.y_rules = &rule,
		.y_rule_count = 1};
	struct buffer out = {0};

	svg_plot(&plot, 340, &out);
	assert_numbers_only(&out);
	assert_int_equal(count_of(out.data, "<title>"), count);
	buffer_free(&out);
}

static void plots_of_little(void **state)
{
	const struct svg_point one = {100, 100, NAN, NAN, HOSTILE};
	const struct svg_point same[] = {{5, 7, 6, 8, "a"}, {5, 7, 6, 8, "b"}};
	const struct svg_point large[] = {{1, 1e-9, NAN, NAN, "a"}, {1e12, 1e15, NAN, NAN, "b"}};

	(void)state;
	for (enum svg_scale scale = SVG_LINEAR; scale <= SVG_LOG; scale++) {
		draw(scale, NULL, 0);
		draw(scale, &one, 1);
		draw(scale, same, 2);
		draw(scale, large, 2);
	}
}

/* What is read from a document that somebody wrote. */
static struct tuning_list read_tunings(const char *text)
{
	cJSON *document = cJSON_Parse(text);
	struct tuning_list list = {0};
	struct error err;

	assert_int_equal(tuning_read(document, &list, &err), 0);
	cJSON_Delete(document);
	return list;
}

static const char *const any[2];

static void tuning_reads_what_makes_sense(void **state)
{
	struct tuning_list list = read_tunings(
		"{\"device\": \"H200\", \"predicted\": true, \"bytes\": 1e6, \"operations\": 1e8, \"kernels\": ["
		"{\"kernel\": \"chunk\", \"parameters\": {\"CHUNK\": 64, \"STAGES\": 1}, \"ms\": 2.5, \"error\": 0.02},"
		"{\"kernel\": \"chunk\", \"parameters\": {\"CHUNK\": 64, \"STAGES\": 2}, \"ms\": 1.5},"
		"{\"kernel\": \"chunk\", \"parameters\": {\"CHUNK\": 32, \"STAGES\": 2}, \"ms\": 4},"
		"{\"kernel\": \"chunk\", \"parameters\": {\"CHUNK\": \"x\"}, \"ms\": 1},"
		"{\"kernel\": \"chunk\", \"parameters\": {\"A B\": 1}, \"ms\": 1},"
		"{\"kernel\": \"chunk\", \"parameters\": {\"CHUNK\": 64}, \"ms\": -1},"
		"{\"kernel\": 5, \"ms\": 1}, 7, null, {\"kernel\": \"chunk\", \"ms\": \"fast\"},"
		"{\"kernel\": \"layer\", \"parameters\": {\"CHUNK\": 64}, \"ms\": 9}]}");
	struct part part;

	(void)state;
	assert_int_equal(list.count, 2);
	tuning_part(&list, any, &part);
	assert_int_equal(sheet_rows(&part.sheet), 4);
	assert_float_equal(part.sheet.cells[4].number, 1.5, 0);
	assert_int_equal(part.picture_count, 4); /* chunk's heat map, bars of both, the roofline */
	assert_non_null(strstr(part.pictures[3].wide.data, "chunk"));
	assert_non_null(strstr(part.summary, "predicted, not measured"));
	for (size_t i = 0; i < part.picture_count; i++)
		assert_numbers_only(&part.pictures[i].wide);
	part_free(&part);
	tuning_list_free(&list);
	tuning_part(&list, any, &part);
	assert_int_equal(sheet_rows(&part.sheet), 0);
	part_free(&part);
}

/* The best time of each pair of values, over the parameters that are asked for where there are such. */
static void a_grid_has_the_best_of_each_pair(void **state)
{
	struct tuning_list list = read_tunings(
		"{\"device\": \"a GPU\", \"kernels\": ["
		"{\"kernel\": \"k\", \"parameters\": {\"A\": 1, \"B\": 20, \"C\": 5, \"D\": 1}, \"ms\": 4},"
		"{\"kernel\": \"k\", \"parameters\": {\"A\": 2, \"B\": 20, \"C\": 5, \"D\": 1}, \"ms\": 3},"
		"{\"kernel\": \"k\", \"parameters\": {\"A\": 2, \"B\": 20, \"C\": 5, \"D\": 2}, \"ms\": 2},"
		"{\"kernel\": \"k\", \"parameters\": {\"A\": 3, \"B\": 10, \"C\": 5, \"D\": 2}, \"ms\": 1}]}");
	struct tuning_grid grid;
	struct tuning_best best;

	(void)state;
	assert_true(tuning_grid_make(list.items, NULL, NULL, &grid));
	assert_string_equal(grid.names[0], "A");
	assert_string_equal(grid.names[1], "B");
	assert_int_equal(grid.counts[0], 3);
	assert_int_equal(grid.counts[1], 2);
	assert_string_equal(grid.labels[1][0], "10");
	assert_true(isnan(grid.ms[0]) && grid.ms[1] == 4 && isnan(grid.ms[2]) && grid.ms[3] == 2 &&
		grid.ms[4] == 1 && isnan(grid.ms[5]));
	assert_true(tuning_grid_make(list.items, "D", "A", &grid));
	assert_string_equal(grid.names[0], "D");
	assert_true(tuning_grid_make(list.items, "C", "A", &grid)); /* which has one value */
	assert_string_equal(grid.names[0], "A");
	tuning_best_make(list.items, &best);
	assert_string_equal(best.names, "A · B · D");
	assert_string_equal(best.labels[0], "3 · 10 · 2");
	list.items->count = 1;
	assert_false(tuning_grid_make(list.items, NULL, NULL, &grid));
	list.items->count = 4;
	tuning_list_free(&list);
}

static void a_history_of_tunings(void **state)
{
	struct tune_result items[60] = {0};
	struct tune_result_list results = {items, 60};
	struct part part;

	(void)state;
	for (size_t i = 0; i < results.count; i++) {
		items[i] = (struct tune_result){.when = 1.7e9 - 1e5 * (double)i,
			.ms = 1,
			.usual_ms = i % 7 ? 1.2 : NAN,
			.noise = NAN};
		snprintf(items[i].key.kernel, sizeof(items[i].key.kernel), "kernel %zu", i % 6);
	}
	tuning_history_part(&results, &part);
	assert_int_equal(sheet_rows(&part.sheet), 60);
	assert_int_equal(part.picture_count, 1);
	assert_numbers_only(&part.pictures[0].narrow);
	part_free(&part);
	results.count = 0;
	tuning_history_part(&results, &part);
	assert_int_equal(part.picture_count, 0);
	part_free(&part);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_the_format_is_markup),
		cmocka_unit_test(what_is_not_seen_is_taken_out),
		cmocka_unit_test(prose_has_code_and_no_markup),
		cmocka_unit_test(a_page_loads_nothing),
		cmocka_unit_test(a_table_is_the_same_in_every_form),
		cmocka_unit_test(many_rows),
		cmocka_unit_test(standings_rank_as_validators_do),
		cmocka_unit_test(the_leaderboard_in_pages),
		cmocka_unit_test(a_board_without_anything),
		cmocka_unit_test(plots_of_little),
		cmocka_unit_test(tuning_reads_what_makes_sense),
		cmocka_unit_test(a_grid_has_the_best_of_each_pair),
		cmocka_unit_test(a_history_of_tunings),
	};

	return cmocka_run_group_tests_name("web", tests, NULL, NULL);
}
