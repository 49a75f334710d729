#include "cli/measurement.h"

#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/number.h"
#include "cli/progress.h"
#include "score/score.h"

void measurement_json(cJSON *object, int64_t tokens, const struct measurement *measurement)
{
	const struct league *league = league_for(tokens);

	cJSON_AddNumberToObject(object, "seq", (double)tokens);
	cJSON_AddNumberToObject(object, "tokens_per_sec", measurement->tokens_per_second);
	cJSON_AddNumberToObject(object, "seconds", measurement->seconds);
	cJSON_AddNumberToObject(object, "spread", measurement->spread);
	json_add_real(object, "noise", measurement->noise);
	cJSON_AddNumberToObject(object, "runs", measurement->runs);
	if (measurement->processes)
		cJSON_AddNumberToObject(object, "processes", measurement->processes);
	cJSON_AddNumberToObject(object, "warmups", measurement->warmups);
	json_add_real(object, "memory_mb", measurement->memory_mb);
	if (measurement->floor_seconds > 0) {
		cJSON_AddNumberToObject(object, "bytes", measurement->bytes);
		cJSON_AddNumberToObject(object, "operations", measurement->operations);
		cJSON_AddNumberToObject(object, "floor_seconds", measurement->floor_seconds);
		cJSON_AddNumberToObject(
			object, "floor_fraction", measurement->floor_seconds / measurement->seconds);
	}
	cJSON_AddStringToObject(object, "league", league->name);
	cJSON_AddNumberToObject(object, "multiplier", league->multiplier);
	cJSON_AddNumberToObject(
		object, "weighted_score", score_weighted(measurement->tokens_per_second, tokens));
}

void measurement_table(struct table *table, bool with_floor)
{
	static const char *const headings[] = {"tokens", "median", "spread", "runs", "tokens/s", "memory",
		"league", "weighted score", "of floor"};
	static const size_t widths[] = {9, 9, 6, 4, 11, 9, 6, 14, 8};
	static const int spare[] = {3, 2, 5, 6, -1};

	table_begin(table, headings, with_floor ? "rrrrrrrrr" : "rrrrrrrr");
	table_reserve(table, widths);
	table_spare(table, spare);
}

void measurement_row(struct table *table, int64_t tokens, const struct measurement *measurement)
{
	char count[48], median[32], rate[48], weighted[48], memory[32] = "?";

	number_grouped((double)tokens, count);
	clock_measured(measurement->seconds, median);
	number_grouped(round(measurement->tokens_per_second), rate);
	number_grouped(round(score_weighted(measurement->tokens_per_second, tokens)), weighted);
	if (isfinite(measurement->memory_mb))
		snprintf(memory, sizeof(memory), "%.0f MiB", measurement->memory_mb);
	table_cell(table, "%s", count);
	table_cell(table, "%s", median);
	if (measurement->spread > 0)
		table_cell(table, "%.*f %%", measurement->spread < 1, measurement->spread * 100);
	else
		table_cell(table, "-"); /* of calls that were timed as one */
	table_cell(table, "%d", measurement->runs);
	table_cell(table, "%s", rate);
	table_cell(table, "%s", memory);
	table_cell(table, "%s", league_for(tokens)->name);
	table_cell(table, "%s", weighted);
	if (measurement->floor_seconds > 0)
		table_cell(table, "%.1f %%", measurement->floor_seconds / measurement->seconds * 100);
}

static void show_progress(int done, int planned, void *context)
{
	struct progress *progress = context;

	if (!done) /* what was done does not count any more */
		progress_begin(progress, "measuring new processes", planned, progress->unit);
	/* what was planned is done, but the median is not settled: nobody knows how long that takes */
	progress->total = done < planned ? planned : 0;
	progress_update(progress, done);
}

/* `plan`, with progress shown that progress_end() ends. */
static struct measure_plan watched(const struct measure_plan *plan, struct progress *progress)
{
	struct measure_plan shown = *plan;

	shown.progress = show_progress;
	shown.context = progress;
	progress_begin(progress, "measuring", plan->warmups + plan->runs, "runs");
	return shown;
}

int measurement_run(const struct device *device, const struct measure_plan *plan,
	struct measurement *measurement, struct error *err)
{
	struct progress progress;
	const struct measure_plan with_progress = watched(plan, &progress);
	int result = measure_run(device, &with_progress, measurement, err);

	progress_end(&progress);
	return result;
}

int measurement_run_fork(const struct probe_options *options, const struct measure_plan *plan,
	struct measurement *measurement, struct error *err)
{
	struct progress progress;
	const struct measure_plan with_progress = watched(plan, &progress);
	int result = timing_run(options, &with_progress, measurement, err);

	progress_end(&progress);
	return result;
}
