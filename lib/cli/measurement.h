/* measurement: benchmark results as text and JSON, for the commands that measure. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/table.h"
#include "measure/measure.h"
#include "probe/timing.h"

/* Adds seq, tokens_per_sec, seconds, spread, noise, runs, warmups, memory_mb, league, multiplier and
 * weighted_score; where a floor is known also bytes, operations, floor_seconds and floor_fraction. */
void measurement_json(cJSON *object, int64_t tokens, const struct measurement *measurement);

/* Begins a table with a row for each length, which may be printed one by one; and adds one. `with_floor`: every
 * measurement has one. */
void measurement_table(struct table *table, bool with_floor);
void measurement_row(struct table *table, int64_t tokens, const struct measurement *measurement);

/* measure_run() and timing_run(), with their progress on stderr. */
int measurement_run(const struct device *device, const struct measure_plan *plan,
	struct measurement *measurement, struct error *err);
int measurement_run_fork(const struct probe_options *options, const struct measure_plan *plan,
	struct measurement *measurement, struct error *err);
