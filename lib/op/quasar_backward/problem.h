/* problem: the gradient of QuasarAttention (op/quasar/problem.h): what is asked for. The formulas are in docs/math.md. */
#pragma once

#include "op/quasar/problem.h"

/* The gradient of a loss with respect to q, k, v, beta and the initial state, from that with respect to o and the final
 * state. */
struct quasar_gradient {
	struct quasar_problem problem; /* its o and final_state are not looked at */
	struct tensor d_o;             /* [B, T, H, S] */
	const float *d_final_state;    /* as the final state; NULL: zeros */
	struct tensor d_q, d_k, d_v;   /* as q, k and v */
	float *d_beta;                 /* [H]; NULL: not wanted */
	float *d_initial_state;        /* as the initial state; NULL: not wanted */
};

/* Says what is wrong with a problem, if anything, as quasar_check() does; there is no gradient of a gate, of packed
 * sequences or of a stretch of a sequence. Every implementation calls it first. STATUS_USAGE. */
int quasar_gradient_check(const struct quasar_gradient *gradient, struct error *err);

/* Where row `row` of a head's sequence is read from, and where its output is; token -1: nowhere, for the zeros that pad
 * the sequence to whole chunks of 64. */
struct quasar_rows {
	struct quasar_source input, output;
};
struct quasar_rows quasar_rows_at(const struct quasar_problem *problem, int head, int64_t row);

/* α = (1 − exp(−β λ)) / (λ + ε), and its derivatives: in fp64, as for short keys their numerators nearly cancel. */
struct quasar_alpha {
	double alpha, by_lambda, by_beta;
};
struct quasar_alpha quasar_alpha(double lambda, double beta);

/* In double precision, token by token. Each result is contiguous and as the gradient's, or NULL.
 * STATUS_ENVIRONMENT without memory: it holds a state for each 64 rows of a head, and for each of the 64 in work. */
struct quasar_gradient_results {
	double *d_q, *d_k, *d_v, *d_beta, *d_initial_state;
};
int quasar_gradient_reference(const struct quasar_gradient *gradient,
	const struct quasar_gradient_results *results, struct error *err);

/* On the CPU, by chunks of 64 rows; fp32, a core for each head. The same numbers for any number of threads.
 * STATUS_ENVIRONMENT without memory: it holds a state for each chunk of the heads in work. */
int quasar_gradient_cpu(const struct quasar_gradient *gradient, struct error *err);
