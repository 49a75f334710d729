/* reference: the operation in double precision, written as the formulas stand. Slow, and what every other
 * implementation is measured against. */
#pragma once

#include "op/quasar/problem.h"

/* Reads q, k, v, beta and initial_state of the problem; its o and final_state are not touched. `o`:
 * [B, T, H, S] contiguous; `final_state`: [B, H, S, S] or NULL. */
int quasar_reference(const struct quasar_problem *problem, double *o, double *final_state, struct error *err);

/* A row of a tensor as doubles; zeros where the source's token is -1. */
void quasar_read_row(
	const struct tensor *tensor, int64_t batch, struct quasar_source source, int dim, double *out);
