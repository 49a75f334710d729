/* timing: how fast the fork's layer is, by rounds of calls as validators time them, until the median is settled. */
#pragma once

#include "measure/measure.h"
#include "probe/probe.h"

/* Times the layer at the plan's length in a session of its own; `runs` calls make a round, and a time is
 * that of a call in a round. With `settle` there are as many rounds as it takes, within the budget, and a GPU rests before
 * each; else one. Where the budget does not suffice for a round, it has fewer calls. Validators take the first round
 * of a process: where times differ, so do a few more processes, one after the other, and their times are the
 * result; the budget does not limit that. `script` of the options is not looked at. Errors as with probe_open(). */
int timing_run(const struct probe_options *options, const struct measure_plan *plan,
	struct measurement *result, struct error *err);
