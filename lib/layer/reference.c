/* The layer in double precision, written as the formulas stand. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layer.h"
#include "op/quasar/reference.h"

/* y [rows, outputs] = x [rows, inputs] Wᵀ + bias, W [outputs, inputs]; `bias` may be NULL. Outputs are a
 * multiple of 4. */
static void linear(const double *x, const float *weight, const float *bias, double *y, int64_t rows,
	int inputs, int outputs)
{
#pragma omp parallel for
	for (int64_t row = 0; row < rows; row++)
		for (int out = 0; out < outputs; out += 4) { /* four sums, which do not wait for each other */
			const double *from = x + row * inputs;
			const float *w = weight + (size_t)out * (size_t)inputs;
			double s0 = 0, s1 = 0, s2 = 0, s3 = 0;

#pragma omp simd reduction(+ : s0, s1, s2, s3)
			for (int i = 0; i < inputs; i++) {
				s0 += from[i] * (double)w[i];
				s1 += from[i] * (double)w[inputs + i];
				s2 += from[i] * (double)w[2 * inputs + i];
				s3 += from[i] * (double)w[3 * inputs + i];
			}
			memcpy(y + row * outputs + out, (double[]){s0, s1, s2, s3}, 4 * sizeof(*y));
			for (int i = 0; bias && i < 4; i++)
				y[row * outputs + out + i] += (double)bias[out + i];
		}
}

static double sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

/* Depthwise causal convolution, then SiLU: x, y [B, T, channels], weight [channels, 1, 4]. */
static void convolve(
	const struct layer_call *call, const double *x, const float *weight, float *y, int channels)
{
#pragma omp parallel for
	for (int64_t row = 0; row < call->batch * call->tokens; row++)
		for (int c = 0; c < channels; c++) {
			double sum = 0;

			for (int tap = 0; tap < LAYER_CONVOLUTION; tap++) {
				int back = LAYER_CONVOLUTION - 1 - tap;

				if (row % call->tokens >= back)
					sum += (double)weight[c * LAYER_CONVOLUTION + tap] *
						x[(row - back) * channels + c];
			}
			y[row * channels + c] = (float)(sum * sigmoid(sum));
		}
}

/* RMSNorm over each head of o, times its weight, times sigmoid(gate); the result in o. */
static void norm_and_gate(const struct layer *layer, double *o, const double *gate, int64_t rows)
{
	for (int64_t head = 0; head < rows * layer->heads; head++) {
		double *x = o + head * layer->dim, squares = 0;

		for (int i = 0; i < layer->dim; i++)
			squares += x[i] * x[i];
		for (int i = 0; i < layer->dim; i++)
			x[i] *= (double)layer->o_norm[i] * sigmoid(gate[head * layer->dim + i]) /
				sqrt(squares / layer->dim + (double)LAYER_EPSILON);
	}
}

/* o = the operation on the projections of x; `projected`, `q`, `k`, `v`: [B, T, width]. */
static int operate(const struct layer *layer, const struct layer_call *call, const double *x,
	double *projected, float *qkv[3], double *o, struct error *err)
{
	const float *weights[] = {layer->q_proj, layer->k_proj, layer->v_proj};
	const float *convolutions[] = {layer->q_conv1d, layer->k_conv1d, layer->v_conv1d};
	int width = layer->heads * layer->dim;
	struct quasar_problem problem = {
		.semantics = call->semantics,
		.batch = call->batch,
		.tokens = call->tokens,
		.heads = layer->heads,
		.dim = layer->dim,
	};
	struct tensor *inputs[] = {&problem.q, &problem.k, &problem.v};
	float beta[layer->heads];

	for (int i = 0; i < 3; i++) {
		linear(x, weights[i], NULL, projected, call->batch * call->tokens, layer->hidden, width);
		convolve(call, projected, convolutions[i], qkv[i], width);
		*inputs[i] = tensor_contiguous(qkv[i], DTYPE_F32, call->tokens, layer->heads, layer->dim);
	}
	for (int i = 0; i < layer->heads; i++)
		beta[i] = (float)log1p(exp((double)layer->beta_log[i]));
	problem.beta = beta;
	problem.o = tensor_contiguous(projected, DTYPE_F32, call->tokens, layer->heads, layer->dim);
	return quasar_reference(&problem, o, NULL, err);
}

int layer_reference(const struct layer *layer, const struct layer_call *call, double *out, struct error *err)
{
	int64_t rows = call->batch * call->tokens;
	int width = layer->heads * layer->dim, result;
	size_t wide = (size_t)(rows * width), hidden = (size_t)(rows * layer->hidden);
	double *x = malloc(hidden * sizeof(*x)), *projected = malloc(wide * sizeof(*projected));
	double *o = malloc(wide * sizeof(*o)),
	       *narrow = malloc((size_t)(rows * layer->dim) * sizeof(*narrow));
	float *qkv = malloc(3 * wide * sizeof(*qkv));

	if (x && projected && o && narrow && qkv) {
		for (size_t i = 0; i < hidden; i++)
			x[i] = (double)call->x[i];
		result = operate(
			layer, call, x, projected, (float *[]){qkv, qkv + wide, qkv + 2 * wide}, o, err);
		if (!result) {
			linear(x, layer->g_proj_0, NULL, narrow, rows, layer->hidden, layer->dim);
			linear(narrow, layer->g_proj_1, layer->g_proj_1_bias, projected, rows, layer->dim,
				width);
			norm_and_gate(layer, o, projected, rows);
			linear(o, layer->o_proj, NULL, out, rows, width, layer->hidden);
		}
	} else {
		result = error_set(err, STATUS_ENVIRONMENT,
			"not enough memory for the fp64 reference of %lld tokens", (long long)rows);
	}
	free(qkv);
	free(narrow);
	free(o);
	free(projected);
	free(x);
	return result;
}
