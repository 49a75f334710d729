/* python_layer: the layer of a fork, run by the fork's own Python as validators run it: a process of its own,
 * fp32 input and weights under bf16 autocast, autograd on; warm-up calls, then calls timed together. */
#pragma once

#include "measure/measure.h"

/* Measures plan->fork_path with the first python3 in the PATH, which needs torch, on `device`. The seconds
 * are the median of up to three rounds of plan->runs calls. STATUS_ENVIRONMENT, with what Python said last,
 * when it does not run, or not within the 300 s that validators give it. */
int python_layer_measure(const struct device *device, const struct measure_plan *plan,
	struct measurement *result, struct error *err);
