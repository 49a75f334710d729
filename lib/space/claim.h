/* claim: what may be claimed of a commit of the fork. A validator measures the fork's own layer and scores nothing
 * for less than 0.9 of the claim, so this is a rule about money. It is pure: it looks at the benchmarks it is
 * given, and at nothing else.
 *
 * What counts, the first that there is at the target length:
 *   1. the fork's own layer on a GPU, as validators run it
 *   2. the fork's own layer on the CPU
 *   3. in a rehearsal alone, quasar's layer on the CPU, with what the fork computes and the shape that validators time
 * Elsewhere quasar's layer never counts, for the fork may be slower; nor does an operation by itself, or what was
 * measured of files that were not committed.
 *
 * A measurement whose runs differ by more than the margin widens it, so that the slow runs keep the claim, too. */
#pragma once

#include <cjson/cJSON.h>
#include <stdbool.h>

#include "base/error.h"
#include "space/benchmarks.h"

/* What is said wherever something rests on a benchmark of quasar's layer. */
#define CLAIM_REHEARSAL "rehearsal: quasar's own layer stands in for the fork"

struct claim_terms {
	const char *commit;
	int64_t tokens; /* the target length */
	double margin;  /* the part of the median that is left out at least */
	bool rehearsal; /* the validator is on this machine, and the fork cannot run here */
};

struct claim {
	double tokens_per_sec; /* what may be claimed: `measured` less the margin, in whole tokens; 0: nothing */
	double measured;       /* the newest median at the target length; 0: none */
	double margin;         /* that was left out of it */
	double spread;         /* the largest there, as a part of the median */
	double memory_mb;      /* the peak of the newest; NAN: not known */
	int runs;              /* of the newest */
	bool stands_in;        /* it was measured of quasar's layer: a rehearsal */
	cJSON *benchmarks; /* {"4096": {"tokens_per_sec": …, "vram_mb": …}, …}: the newest at each length */
};

/* The part of the median that a claim leaves out: `margin`, or as much as makes a run keep it that takes longer than
 * the median by the spread, whichever is more. Below 1. */
double claim_margin(double margin, double spread);

/* Fills `claim` from the benchmarks, newest first; those of other commits are passed over. -1 with STATUS_ENVIRONMENT,
 * saying why, when nothing may be claimed; `claim` is filled all the same, for a claim that is made by hand. Free it
 * with claim_free. */
int claim_make(const struct benchmark_list *benchmarks, const struct claim_terms *terms, struct claim *claim,
	struct error *err);
void claim_free(struct claim *claim);

/* Why nothing is claimed while files of the fork differ from its commit, `changed` among them. Returns -1, with
 * STATUS_ENVIRONMENT. */
int claim_refuse_changes(const char *changed, struct error *err);
