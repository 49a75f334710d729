/* claim: what may be claimed of a commit of the fork. A validator measures the fork's own layer and scores nothing
 * for less than 0.9 of the claim, so this is a rule about money. It is pure: it looks at the benchmarks it is
 * given, and at nothing else.
 *
 * What counts, the first that there is at the target length:
 *   1. the fork's own layer on a GPU, as validators run it
 *   2. the fork's own layer on the CPU
 *   3. quasar's layer on the CPU, with what the fork computes and the shape that validators time
 * Quasar's layer on a GPU never counts: the fork may be slower. Nor does an operation by itself. */
#pragma once

#include <cjson/cJSON.h>

#include "base/error.h"
#include "space/benchmarks.h"

struct claim {
	double tokens_per_sec; /* what may be claimed: `measured` less the margin, in whole tokens; 0: nothing */
	double measured;       /* the newest median at the target length; 0: none */
	double spread;         /* the largest there, as a part of the median */
	double memory_mb;      /* the peak of the newest; NAN: not known */
	cJSON *benchmarks; /* {"4096": {"tokens_per_sec": …, "vram_mb": …}, …}: the newest at each length */
};

/* Fills `claim` from the benchmarks, newest first, of `commit`; others are passed over. `margin`: the part of
 * the median that is left out. -1 with STATUS_ENVIRONMENT, saying why, when nothing may be claimed; `claim` is
 * filled all the same, for a claim that is made by hand. Free it with claim_free. */
int claim_make(const struct benchmark_list *benchmarks, const char *commit, int64_t tokens, double margin,
	struct claim *claim, struct error *err);
void claim_free(struct claim *claim);
