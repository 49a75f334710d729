/* python_layer: the layer of a fork, run by the fork's own Python as validators run it: a process of its own,
 * fp32 input and weights under bf16 autocast, autograd on; warm-up calls, then calls timed together. */
#pragma once

#include <stdint.h>

#include "base/error.h"

#define PYTHON_LAYER_ROUNDS 16

struct python_layer_times {
	double seconds[PYTHON_LAYER_ROUNDS]; /* a call's, of each round */
	int rounds;                          /* one at least */
	double memory_mb;                    /* peak, in MiB; NAN: not known */
};

/* Times the layer of the fork at `fork_path` with the first python3 in the PATH, which needs torch, on the GPU of
 * that index, or on the CPU with -1: up to three rounds of `calls` calls. STATUS_ENVIRONMENT, with what Python
 * said last, when it does not run, or not within the 300 s that validators give it. */
int python_layer_time(const char *fork_path, int gpu, int64_t tokens, int warmups, int calls,
	struct python_layer_times *times, struct error *err);
