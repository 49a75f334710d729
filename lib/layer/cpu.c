#include "layer/layer.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "cpu/cpu.h"
#include "layer/kernel.h"
#include "op/quasar/cpu.h"

static const struct layer_kernel *const kernels[CPU_VARIANTS] = {
	[CPU_BASELINE] = &layer_kernel_baseline,
#ifdef __x86_64__
	[CPU_X86_64_V3] = &layer_kernel_x86_64_v3,
	[CPU_X86_64_V4] = &layer_kernel_x86_64_v4,
	[CPU_X86_64_AMX] = &layer_kernel_x86_64_v4, /* but for its products */
#endif
};

const struct layer_kernel *layer_kernel_in_use(void)
{
	return kernels[cpu_variant()];
}

/* Outputs worked off at a time: enough for all threads, a few tens of MB of memory. */
#define SEGMENT 4096
_Static_assert(SEGMENT % UPSTREAM_CHUNK == 0, "a segment is whole chunks");

#define HISTORY (LAYER_CONVOLUTION - 1)

/* Tokens whose q, k and v a segment needs: one slice, or, as upstream's heads each start elsewhere in the
 * sequence, one for each head. */
struct slice {
	int64_t token; /* the first */
	int tokens;
	int row;   /* of `projected` where its history starts; its first token is HISTORY rows later */
	int start; /* of q, k and v, which have no history */
};

/* What is between input and output of one segment; all tensors in bf16. */
struct work {
	const struct layer *layer;
	const struct layer_call *call;
	const struct layer_kernel *kernel;
	size_t width; /* heads · dim */
	struct slice *slices;
	int slice_count, rows, tokens; /* of all slices, with history and without */
	int64_t *first_row;            /* [heads], see struct quasar_problem */
	float *state;                  /* [B, heads, dim, dim] */
	uint16_t *projected;           /* [rows, 3 · width] */
	uint16_t *qkv[3];              /* [tokens, width] */
	uint16_t *o;                   /* [SEGMENT, width] */
	struct panel *panels;          /* of each thread */
};

/* A thread's own rows, PRODUCT_ROWS of each. */
struct panel {
	uint16_t *x, *narrow, *gate;
	float *scratch;
};

static int most_rows(const struct work *work)
{
	int heads = work->layer->heads;

	/* upstream: a slice begins and ends within a token's heads: two tokens more than its rows need */
	return work->call->semantics == SEMANTICS_CAUSAL ? SEGMENT + HISTORY
							 : SEGMENT + heads * (2 + HISTORY);
}

static size_t state_bytes(const struct work *work)
{
	return (size_t)work->call->batch * work->width * (size_t)work->layer->dim * sizeof(float);
}

static bool panel_allocate(struct panel *panel, const struct work *work)
{
	size_t hidden = (size_t)work->layer->hidden, dim = (size_t)work->layer->dim, width = work->width;
	size_t widest = hidden > width ? hidden : width;

	panel->x = malloc(PRODUCT_ROWS * hidden * sizeof(uint16_t));
	panel->narrow = malloc(PRODUCT_ROWS * dim * sizeof(uint16_t));
	panel->gate = malloc(PRODUCT_ROWS * width * sizeof(uint16_t));
	panel->scratch = malloc(PRODUCT_ROWS * (widest + 3 * width + hidden) * sizeof(float));
	return panel->x && panel->narrow && panel->gate && panel->scratch;
}

static int work_begin(struct work *work, struct error *err)
{
	size_t rows = (size_t)most_rows(work), heads = (size_t)work->layer->heads;
	bool complete;

	work->slices = calloc(heads, sizeof(*work->slices));
	work->first_row = calloc(heads, sizeof(*work->first_row));
	work->state = calloc(1, state_bytes(work));
	work->projected = malloc(rows * 3 * work->width * sizeof(uint16_t));
	work->o = malloc(SEGMENT * work->width * sizeof(uint16_t));
	work->panels = calloc((size_t)cpu_threads(), sizeof(*work->panels));
	complete = work->slices && work->first_row && work->state && work->projected && work->o &&
		work->panels;
	for (int i = 0; i < 3; i++) {
		work->qkv[i] = malloc(rows * work->width * sizeof(uint16_t));
		complete &= work->qkv[i] != NULL;
	}
	for (int i = 0; complete && i < cpu_threads(); i++)
		complete = panel_allocate(&work->panels[i], work);
	if (!complete)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for a layer");
	if (work->call->cache)
		memcpy(work->state, work->call->cache->state, state_bytes(work));
	if (product_ready(&work->layer->qkv, err) < 0 || product_ready(&work->layer->narrow_gate, err) < 0 ||
		product_ready(&work->layer->wide_gate, err) < 0 ||
		product_ready(&work->layer->output, err) < 0)
		return -1;
	return 0;
}

static void work_end(struct work *work)
{
	for (int i = 0; work->panels && i < cpu_threads(); i++) {
		free(work->panels[i].x);
		free(work->panels[i].narrow);
		free(work->panels[i].gate);
		free(work->panels[i].scratch);
	}
	free(work->panels);
	for (int i = 0; i < 3; i++)
		free(work->qkv[i]);
	free(work->o);
	free(work->projected);
	free(work->state);
	free(work->first_row);
	free(work->slices);
}

/* Which tokens the outputs first … first + tokens − 1 need. */
static void find_slices(struct work *work, int64_t first, int tokens)
{
	bool causal = work->call->semantics == SEMANTICS_CAUSAL;
	int heads = work->layer->heads;
	int64_t padded = upstream_padded(work->call->tokens);

	work->slice_count = causal ? 1 : heads;
	work->rows = work->tokens = 0;
	for (int i = 0; i < work->slice_count; i++) {
		struct slice *slice = &work->slices[i];
		int64_t flat = i * padded + first, last = flat + upstream_padded(tokens) - 1;

		slice->token = causal ? first : flat / heads;
		slice->tokens = causal ? tokens : (int)(last / heads - flat / heads + 1);
		slice->row = work->rows;
		slice->start = work->tokens;
		work->first_row[i] = flat % heads + (int64_t)slice->start * heads;
		work->rows += HISTORY + slice->tokens;
		work->tokens += slice->tokens;
	}
}

/* Small enough that every thread gets some. */
static int panel_rows(int rows)
{
	int share = (rows + cpu_threads() - 1) / cpu_threads();

	return share < PRODUCT_ROWS ? (share + 31) / 32 * 32 : PRODUCT_ROWS;
}

/* A row of x; zeros before the sequence and behind it. */
static void gather(const struct work *work, int64_t batch, int64_t token, uint16_t *to)
{
	size_t hidden = (size_t)work->layer->hidden;

	if (token < 0 || token >= work->call->tokens)
		memset(to, 0, hidden * sizeof(*to));
	else
		work->kernel->narrow(
			work->call->x + (size_t)(batch * work->call->tokens + token) * hidden, to, hidden);
}

/* The convolutions' inputs of the three tokens before the sequence. */
static float *cached_inputs(const struct work *work, int64_t batch)
{
	return work->call->cache->convolution + (size_t)batch * HISTORY * 3 * work->width;
}

/* What the convolutions read: x Wᵀ of the slices' tokens and of their history. */
static void project(const struct work *work, int64_t batch)
{
	size_t hidden = (size_t)work->layer->hidden, stride = 3 * work->width;
	int rows = panel_rows(work->rows);

#pragma omp parallel for num_threads(cpu_threads()) schedule(dynamic, 1)
	for (int first = 0; first < work->rows; first += rows) {
		const struct panel *panel = &work->panels[omp_get_thread_num()];
		int count = work->rows - first < rows ? work->rows - first : rows, slice = 0;

		for (int i = 0; i < count; i++) {
			while (slice + 1 < work->slice_count && work->slices[slice + 1].row <= first + i)
				slice++;
			gather(work, batch,
				work->slices[slice].token - HISTORY + first + i - work->slices[slice].row,
				panel->x + (size_t)i * hidden);
		}
		product_run(&work->layer->qkv, work->kernel, panel->x, count,
			work->projected + (size_t)first * stride, panel->scratch);
	}
	for (int i = 0; work->call->cache && i < work->slice_count; i++)
		for (int64_t token = work->slices[i].token - HISTORY; token < 0; token++)
			work->kernel->narrow(cached_inputs(work, batch) + (size_t)(HISTORY + token) * stride,
				work->projected +
					(size_t)(work->slices[i].row + HISTORY + token -
						work->slices[i].token) *
						stride,
				stride);
}

/* q, k and v of the slices' tokens: zeros behind the sequence, where upstream pads. */
static void convolve(const struct work *work)
{
	size_t width = work->width, stride = 3 * width;

#pragma omp parallel for num_threads(cpu_threads())
	for (int t = 0; t < work->tokens; t++) {
		int number = work->slice_count - 1;
		const struct slice *slice;

		while (work->slices[number].start > t)
			number--;
		slice = &work->slices[number];
		for (size_t i = 0; i < 3; i++) {
			uint16_t *out = work->qkv[i] + (size_t)t * width;

			if (slice->token + t - slice->start >= work->call->tokens)
				memset(out, 0, width * sizeof(*out));
			else
				work->kernel->convolve(work->projected +
						(size_t)(slice->row + t - slice->start) * stride + i * width,
					stride, work->layer->convolution + i * LAYER_CONVOLUTION * width,
					(int)width, out);
		}
	}
}

static int operate(const struct work *work, int64_t batch, int tokens, struct error *err)
{
	const struct layer *layer = work->layer;
	float *state = work->state + (size_t)batch * work->width * (size_t)layer->dim;
	struct tensor in[3];
	struct quasar_problem problem;

	for (int i = 0; i < 3; i++)
		in[i] = tensor_contiguous(work->qkv[i], DTYPE_BF16, work->tokens, layer->heads, layer->dim);
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
		.beta = layer->beta,
		.initial_state = state,
		.final_state = state,
		.first_row = work->call->semantics == SEMANTICS_UPSTREAM ? work->first_row : NULL,
	};
	return quasar_cpu(&problem, err);
}

/* Norm, gate and output projection of tokens whose o is there. */
static void finish(const struct work *work, int64_t batch, int64_t first, int tokens)
{
	const struct layer *layer = work->layer;
	size_t hidden = (size_t)layer->hidden, dim = (size_t)layer->dim, width = work->width;
	uint16_t *out = work->call->out + (size_t)(batch * work->call->tokens + first) * hidden;
	int rows = panel_rows(tokens);

#pragma omp parallel for num_threads(cpu_threads()) schedule(dynamic, 1)
	for (int start = 0; start < tokens; start += rows) {
		const struct panel *panel = &work->panels[omp_get_thread_num()];
		int count = tokens - start < rows ? tokens - start : rows;

		for (int i = 0; i < count; i++)
			gather(work, batch, first + start + i, panel->x + (size_t)i * hidden);
		product_run(
			&layer->narrow_gate, work->kernel, panel->x, count, panel->narrow, panel->scratch);
		product_run(
			&layer->wide_gate, work->kernel, panel->narrow, count, panel->gate, panel->scratch);
		for (size_t i = 0; i < (size_t)count * width; i += dim)
			work->kernel->gate(work->o + (size_t)start * width + i, layer->o_norm,
				panel->gate + i, layer->dim);
		product_run(&layer->output, work->kernel, panel->gate, count, out + (size_t)start * hidden,
			panel->scratch);
	}
}

/* The inputs of the convolutions that the next call starts from. */
static void keep_inputs(struct work *work, int64_t batch)
{
	size_t stride = 3 * work->width;

	work->slices[0] = (struct slice){work->call->tokens, 0, 0, 0};
	work->slice_count = 1;
	work->rows = HISTORY;
	project(work, batch);
	work->kernel->widen(work->projected, cached_inputs(work, batch), HISTORY * stride);
}

int layer_cpu(const struct layer *layer, const struct layer_call *call, struct error *err)
{
	struct work work = {.layer = layer,
		.call = call,
		.kernel = layer_kernel_in_use(),
		.width = (size_t)(layer->heads * layer->dim)};
	int result = work_begin(&work, err);

	for (int64_t batch = 0; batch < call->batch && !result; batch++) {
		for (int64_t first = 0; first < call->tokens && !result; first += SEGMENT) {
			int tokens = call->tokens - first < SEGMENT ? (int)(call->tokens - first) : SEGMENT;

			find_slices(&work, first, tokens);
			project(&work, batch);
			convolve(&work);
			result = operate(&work, batch, tokens, err);
			if (!result)
				finish(&work, batch, first, tokens);
			if (!result && interrupted())
				result = error_set(err, STATUS_INTERRUPTED, "interrupted");
		}
		if (call->cache && !result)
			keep_inputs(&work, batch);
	}
	if (call->cache && !result)
		memcpy(call->cache->state, work.state, state_bytes(&work));
	work_end(&work);
	return result;
}
