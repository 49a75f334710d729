#include "op/layer.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "op/blas.h"
#include "op/cpu.h"
#include "op/cpu/kernel.h"

/* Tokens worked off at a time: enough to keep the matrix products busy, a few MB of memory. */
#define SEGMENT 2048
_Static_assert(SEGMENT % UPSTREAM_CHUNK == 0, "a segment is whole chunks");

#define HISTORY (LAYER_CONVOLUTION - 1)

/* Tokens whose q, k and v a segment needs: one slice, or, as upstream's heads each start elsewhere in the
 * sequence, one for each head. */
struct slice {
	int64_t token; /* the first */
	int tokens;
	int row; /* of `x` and `projected` where its history starts */
};

/* The weights as the products want them, and what is between input and output of one segment. */
struct work {
	const struct layer *layer;
	const struct layer_call *call;
	const struct cpu_kernel *kernel;
	int width; /* heads · dim */
	int rows;  /* of x and projected: the slices' tokens, each slice with its history */
	struct slice *slices;
	int slice_count;
	int64_t *first_row; /* [heads], see struct quasar_problem */

	float *memory; /* everything below */
	float *projections, *convolution, *g_proj_0, *g_proj_1, *bias, *o_proj, *beta;
	float *state;     /* [B, heads, dim, dim] */
	float *x;         /* [rows, hidden] */
	float *projected; /* [rows, 3 · width] */
	float *hidden;    /* [SEGMENT, dim], the gate's narrow part */
	float *gate;      /* [SEGMENT, width] */
	uint16_t *qkv[3], *o; /* [tokens of the slices, width], [SEGMENT, width] */
};

/* Gives out parts of one block of memory, or, without a block, only counts. */
struct arena {
	float *base;
	size_t used;
};

static float *take(struct arena *arena, size_t count)
{
	float *part = arena->base ? arena->base + arena->used : NULL;

	arena->used += (count + 15) / 16 * 16;
	return part;
}

static void lay_out(struct work *work, struct arena *arena)
{
	const struct layer *layer = work->layer;
	size_t width = (size_t)work->width, hidden = (size_t)layer->hidden, dim = (size_t)layer->dim;
	size_t rows = (size_t)work->rows;

	work->projections = take(arena, 3 * width * hidden);
	work->convolution = take(arena, 3 * width * LAYER_CONVOLUTION);
	work->g_proj_0 = take(arena, dim * hidden);
	work->g_proj_1 = take(arena, width * dim);
	work->bias = take(arena, width);
	work->o_proj = take(arena, hidden * width);
	work->beta = take(arena, (size_t)layer->heads);
	work->state = take(arena, (size_t)work->call->batch * width * dim);
	work->x = take(arena, rows * hidden);
	work->projected = take(arena, rows * 3 * width);
	work->hidden = take(arena, SEGMENT * dim);
	work->gate = take(arena, SEGMENT * width);
	for (int i = 0; i < 3; i++)
		work->qkv[i] = (uint16_t *)take(arena, rows * width / 2);
	work->o = (uint16_t *)take(arena, SEGMENT * width / 2);
}

static void round_weights(struct work *work)
{
	const struct layer *layer = work->layer;
	const float *convolutions[] = {layer->q_conv1d, layer->k_conv1d, layer->v_conv1d};
	size_t width = (size_t)work->width, hidden = (size_t)layer->hidden, dim = (size_t)layer->dim;

	work->kernel->round(layer->q_proj, work->projections, 3 * width * hidden);
	work->kernel->round(layer->g_proj_0, work->g_proj_0, dim * hidden);
	work->kernel->round(layer->g_proj_1, work->g_proj_1, width * dim);
	work->kernel->round(layer->g_proj_1_bias, work->bias, width);
	work->kernel->round(layer->o_proj, work->o_proj, hidden * width);
	for (size_t i = 0; i < 3; i++)
		for (size_t c = 0; c < width; c++)
			for (size_t tap = 0; tap < LAYER_CONVOLUTION; tap++)
				work->convolution[(i * LAYER_CONVOLUTION + tap) * width + c] =
					convolutions[i][c * LAYER_CONVOLUTION + tap];
	for (int i = 0; i < layer->heads; i++)
		work->beta[i] = log1pf(expf(layer->beta_log[i]));
}

static int work_begin(struct work *work, struct error *err)
{
	const struct layer *layer = work->layer;
	struct arena arena = {0};
	int heads = layer->heads;
	size_t states = (size_t)work->call->batch * (size_t)work->width * (size_t)layer->dim;

	/* a slice begins and ends within a token's heads: two tokens more than its rows need */
	work->rows = work->call->semantics == SEMANTICS_CAUSAL ? SEGMENT + HISTORY
							       : SEGMENT + heads * (2 + HISTORY);
	work->slices = calloc((size_t)heads, sizeof(*work->slices));
	work->first_row = calloc((size_t)heads, sizeof(*work->first_row));
	lay_out(work, &arena);
	arena.base = work->memory = aligned_alloc(64, arena.used * sizeof(float));
	if (!work->slices || !work->first_row || !work->memory)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for a layer: %zu MiB",
			arena.used * sizeof(float) >> 20);
	arena.used = 0;
	lay_out(work, &arena);
	round_weights(work);
	if (work->call->cache)
		memcpy(work->state, work->call->cache->state, states * sizeof(float));
	else
		memset(work->state, 0, states * sizeof(float));
	return 0;
}

static void work_end(struct work *work)
{
	free(work->memory);
	free(work->first_row);
	free(work->slices);
}

/* Which tokens the outputs first … first + tokens − 1 need. */
static void find_slices(struct work *work, int64_t first, int tokens)
{
	int heads = work->layer->heads, row = 0, before = 0;
	int64_t padded = upstream_padded(work->call->tokens);

	work->slice_count = work->call->semantics == SEMANTICS_CAUSAL ? 1 : heads;
	for (int i = 0; i < work->slice_count; i++) {
		struct slice *slice = &work->slices[i];

		if (work->call->semantics == SEMANTICS_CAUSAL) {
			*slice = (struct slice){first, tokens, 0};
		} else {
			int64_t flat = i * padded + first;
			int64_t last = flat + upstream_padded(tokens) - 1;

			*slice = (struct slice){flat / heads, (int)(last / heads - flat / heads + 1), row};
			work->first_row[i] = flat % heads + (int64_t)before * heads;
		}
		row += HISTORY + slice->tokens;
		before += slice->tokens;
	}
	work->rows = row;
}

/* Rows of x from `token` on, rounded; zeros before the sequence and behind it. */
static void gather(const struct work *work, int64_t batch, int64_t token, int count, float *to)
{
	size_t hidden = (size_t)work->layer->hidden;
	const float *x = work->call->x + (size_t)(batch * work->call->tokens) * hidden;

#pragma omp parallel for num_threads(cpu_threads())
	for (int i = 0; i < count; i++) {
		int64_t at = token + i;

		if (at >= 0 && at < work->call->tokens)
			work->kernel->round(x + (size_t)at * hidden, to + (size_t)i * hidden, hidden);
		else
			memset(to + (size_t)i * hidden, 0, hidden * sizeof(*to));
	}
}

/* The convolutions' inputs of the three tokens before the sequence. */
static float *cached_inputs(const struct work *work, int64_t batch)
{
	return work->call->cache->convolution + (size_t)(batch * HISTORY * 3 * work->width);
}

/* q, k and v of the slices' tokens. */
static int project(struct work *work, int64_t batch, struct error *err)
{
	size_t hidden = (size_t)work->layer->hidden, width = (size_t)work->width, stride = 3 * width;

	for (int i = 0; i < work->slice_count; i++) {
		const struct slice *slice = &work->slices[i];

		gather(work, batch, slice->token - HISTORY, HISTORY + slice->tokens,
			work->x + (size_t)slice->row * hidden);
	}
	if (blas_multiply(work->x, work->projections, work->projected, work->rows, (int)stride, (int)hidden,
		    err) < 0)
		return -1;
#pragma omp parallel for num_threads(cpu_threads())
	for (int i = 0; i < work->rows; i++)
		work->kernel->round(work->projected + (size_t)i * stride,
			work->projected + (size_t)i * stride, stride);
	for (int i = 0; work->call->cache && i < work->slice_count; i++)
		for (int64_t token = work->slices[i].token - HISTORY; token < 0; token++)
			memcpy(work->projected + (size_t)(work->slices[i].row + HISTORY + token -
							  work->slices[i].token) * stride,
				cached_inputs(work, batch) + (size_t)(HISTORY + token) * stride,
				stride * sizeof(float));
	return 0;
}

static void convolve_slice(const struct work *work, const struct slice *slice, int number)
{
	size_t width = (size_t)work->width, stride = 3 * width;
	/* each slice before this one has its history, which q, k and v leave out */
	size_t start = (size_t)(slice->row - number * HISTORY);

#pragma omp parallel for num_threads(cpu_threads())
	for (int t = 0; t < slice->tokens; t++)
		for (size_t i = 0; i < 3; i++) {
			uint16_t *out = work->qkv[i] + (start + (size_t)t) * width;

			if (slice->token + t >= work->call->tokens)
				memset(out, 0, width * sizeof(*out));
			else
				work->kernel->convolve(
					work->projected + (size_t)(slice->row + t) * stride + i * width,
					stride, work->convolution + i * LAYER_CONVOLUTION * width,
					(int)width, out);
		}
}

static int operate(struct work *work, int64_t batch, int tokens, struct error *err)
{
	const struct layer *layer = work->layer;
	int inputs = work->rows - work->slice_count * HISTORY;
	float *state = work->state + (size_t)batch * (size_t)(work->width * layer->dim);
	struct tensor in[3];
	struct quasar_problem problem;

	for (int i = 0; i < 3; i++)
		in[i] = tensor_contiguous(work->qkv[i], DTYPE_BF16, inputs, layer->heads, layer->dim);
	problem = (struct quasar_problem){
		.semantics = work->call->semantics,
		.batch = 1,
		.tokens = tokens,
		.heads = layer->heads,
		.dim = layer->dim,
		.q = in[0],
		.k = in[1],
		.v = in[2],
		.o = tensor_contiguous(work->o, DTYPE_BF16, tokens, layer->heads, layer->dim),
		.beta = work->beta,
		.initial_state = state,
		.final_state = state,
		.first_row = work->call->semantics == SEMANTICS_UPSTREAM ? work->first_row : NULL,
	};
	return quasar_cpu(&problem, err);
}

/* Norm, gate and output projection of tokens whose o is there. */
static int finish(struct work *work, int64_t batch, int64_t first, int tokens, struct error *err)
{
	const struct layer *layer = work->layer;
	size_t width = (size_t)work->width, hidden = (size_t)layer->hidden, dim = (size_t)layer->dim;
	uint16_t *out = work->call->out + (size_t)(batch * work->call->tokens + first) * hidden;
	float *y = work->projected;

	gather(work, batch, first, tokens, work->x);
	if (blas_multiply(work->x, work->g_proj_0, work->hidden, tokens, layer->dim, layer->hidden, err) < 0)
		return -1;
	work->kernel->round(work->hidden, work->hidden, (size_t)tokens * dim);
	if (blas_multiply(work->hidden, work->g_proj_1, work->gate, tokens, work->width, layer->dim, err) < 0)
		return -1;
#pragma omp parallel for num_threads(cpu_threads())
	for (int t = 0; t < tokens; t++) {
		float *gate = work->gate + (size_t)t * width;

		for (size_t i = 0; i < width; i++)
			gate[i] += work->bias[i];
		work->kernel->round(gate, gate, width);
		for (size_t i = 0; i < width; i += dim)
			work->kernel->gate(work->o + (size_t)t * width + i, layer->o_norm, gate + i,
				layer->dim);
	}
	if (blas_multiply(work->gate, work->o_proj, y, tokens, layer->hidden, work->width, err) < 0)
		return -1;
#pragma omp parallel for num_threads(cpu_threads())
	for (int t = 0; t < tokens; t++)
		work->kernel->narrow(y + (size_t)t * hidden, out + (size_t)t * hidden, hidden);
	return 0;
}

/* The inputs of the convolutions that the next call starts from. */
static int keep_inputs(struct work *work, int64_t batch, struct error *err)
{
	size_t stride = 3 * (size_t)work->width;

	work->slices[0] = (struct slice){work->call->tokens, 0, 0};
	work->slice_count = 1;
	work->rows = HISTORY;
	if (project(work, batch, err) < 0)
		return -1;
	memcpy(cached_inputs(work, batch), work->projected, HISTORY * stride * sizeof(float));
	return 0;
}

int layer_cpu(const struct layer *layer, const struct layer_call *call, struct error *err)
{
	struct work work = {.layer = layer,
		.call = call,
		.kernel = cpu_kernel_in_use(),
		.width = layer->heads * layer->dim};
	int result = work_begin(&work, err);

	for (int64_t batch = 0; batch < call->batch && !result; batch++) {
		for (int64_t first = 0; first < call->tokens && !result; first += SEGMENT) {
			int tokens = call->tokens - first < SEGMENT ? (int)(call->tokens - first) : SEGMENT;

			find_slices(&work, first, tokens);
			result = project(&work, batch, err);
			for (int i = 0; i < work.slice_count && !result; i++)
				convolve_slice(&work, &work.slices[i], i);
			result = result ? result : operate(&work, batch, tokens, err);
			result = result ? result : finish(&work, batch, first, tokens, err);
			if (!result && interrupted())
				result = error_set(err, STATUS_INTERRUPTED, "interrupted");
		}
		if (call->cache && !result)
			result = keep_inputs(&work, batch, err);
	}
	if (call->cache && !result)
		memcpy(call->cache->state, work.state,
			(size_t)(call->batch * work.width * layer->dim) * sizeof(float));
	work_end(&work);
	return result;
}
