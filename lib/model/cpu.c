/* A model on the CPU: weights as they lie in the files, everything else in fp32.
 *
 * A step is one parallel region, whose threads go through the layers together: each function below that begins with
 * "share_" is called by all of them, and shares out its work. Unless it says otherwise, it ends with a barrier. */
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "cpu/blas.h"
#include "cpu/cpu.h"
#include "model/device.h"
#include "model/kernel.h"

const struct model_kernel *model_kernel(void)
{
	static const struct model_kernel *const kernels[CPU_VARIANTS] = {
		[CPU_BASELINE] = &model_kernel_baseline,
#ifdef __x86_64__
		[CPU_X86_64_V3] = &model_kernel_x86_64_v3,
		[CPU_X86_64_V4] = &model_kernel_x86_64_v4,
		[CPU_X86_64_AMX] = &model_kernel_x86_64_v4, /* its tiles would round what is multiplied */
#endif
	};

	return kernels[cpu_variant()];
}

/* With more rows than that, products are OpenBLAS's, which has weights widened for it. */
#define FEW_ROWS 8

/* A panel: rows of a matrix that are worked on at a time. Large enough to be worth taking, small enough to be shared out
 * evenly, and to stay in a second-level cache when widened. */
#define PANEL_NUMBERS 65536
#define PANEL_ROWS 256

/* Rows whose logits are there at a time. */
#define OUTPUT_ROWS 64

struct model_place {
	const struct model_config *config;
	const struct model_weights *weights;
	float *frequencies; /* [head_dim / 2] */

	/* What a step works on: memory for so many rows, outputs and threads. */
	float *memory;
	int rows, outputs, threads;
	float *x, *normed;   /* [rows, hidden] */
	float *q, *attended; /* [rows, heads, head_dim] */
	float *k, *v;        /* [rows, kv_heads, head_dim] */
	float *activated;    /* [rows, intermediate] */
	float *angles;       /* [rows, 2, head_dim / 2]: cosines, sines */
	float *logits;       /* [outputs, vocabulary] */
	float *panels;       /* [threads, panel_size()]: a panel widened */
	float *products;     /* [threads, 2, rows, PANEL_ROWS]: of panels with all rows */
	float *own;          /* [threads, FEW_ROWS, hidden]: normed, of each thread */
};

struct model_cache {
	size_t head;   /* numbers of a head in a layer: room for so many tokens, times head_dim */
	float *keys;   /* [layers, kv_heads, tokens / KERNEL_BLOCK, head_dim, KERNEL_BLOCK] */
	float *values; /* [layers, kv_heads, tokens, head_dim] */
};

/* A token of a step. */
struct row {
	const struct model_cache *cache;
	int32_t token;
	int position;
	struct model_piece *predicts; /* the piece that wants to know what follows; NULL: none */
};

struct step {
	const struct model_place *place;
	const struct model_kernel *kernel;
	struct row rows[MODEL_STEP_TOKENS];
	int row_count;
	int outputs[MODEL_STEP_TOKENS]; /* the rows that predict */
	int output_count;
	bool apart; /* no two rows are of one session */
	bool (*stop)(void);
	bool stopped;
};

static int smaller(int a, int b)
{
	return a < b ? a : b;
}

/* --- memory -------------------------------------------------------------------------------------- */

static size_t width(const struct model_config *config)
{
	return (size_t)config->heads * (size_t)config->head_dim;
}

static size_t narrow_width(const struct model_config *config)
{
	return (size_t)config->kv_heads * (size_t)config->head_dim;
}

/* A panel is a few rows at least. */
static size_t panel_size(const struct model_config *config)
{
	size_t longest = width(config), hidden = (size_t)config->hidden, inner = (size_t)config->intermediate;

	longest = hidden > longest ? hidden : longest;
	longest = inner > longest ? inner : longest;
	return KERNEL_ROWS * longest > PANEL_NUMBERS ? KERNEL_ROWS * longest : PANEL_NUMBERS;
}

/* Gives each part its place in `memory`, where there is some. Returns how many numbers that takes. */
static size_t arrange(struct model_place *place, float *memory)
{
	const struct model_config *config = place->config;
	size_t rows = (size_t)place->rows, threads = (size_t)place->threads, used = 0;
	const struct {
		float **part;
		size_t numbers;
	} parts[] = {
		{&place->x, rows * (size_t)config->hidden},
		{&place->normed, rows * (size_t)config->hidden},
		{&place->q, rows * width(config)},
		{&place->attended, rows * width(config)},
		{&place->k, rows * narrow_width(config)},
		{&place->v, rows * narrow_width(config)},
		{&place->activated, rows * (size_t)config->intermediate},
		{&place->angles, rows * (size_t)config->head_dim},
		{&place->logits, (size_t)place->outputs * (size_t)config->vocabulary},
		{&place->panels, threads * panel_size(config)},
		{&place->products, threads * 2 * rows * PANEL_ROWS},
		{&place->own, threads * FEW_ROWS * (size_t)config->hidden},
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		if (memory)
			*parts[i].part = memory + used;
		used += (parts[i].numbers + 15) / 16 * 16; /* each in cache lines of its own */
	}
	return used;
}

static int larger(int a, int b)
{
	return a > b ? a : b;
}

static int make_room(struct model_place *place, const struct step *step, struct error *err)
{
	int rows = step->row_count, outputs = smaller(step->output_count, OUTPUT_ROWS),
	    threads = cpu_threads();

	if (rows <= place->rows && outputs <= place->outputs && threads <= place->threads)
		return 0;
	place->rows = larger(rows, place->rows);
	place->outputs = larger(outputs, place->outputs);
	place->threads = larger(threads, place->threads);
	free(place->memory);
	place->memory = aligned_alloc(64, arrange(place, NULL) * sizeof(float));
	if (place->memory) {
		arrange(place, place->memory);
		return 0;
	}
	place->rows = place->outputs = place->threads = 0;
	return error_set(err, STATUS_ENVIRONMENT, "not enough memory for a step of %d tokens", rows);
}

static struct model_place *open_place(
	int index, const struct model_config *config, const struct model_weights *weights, struct error *err)
{
	struct model_place *place = xcalloc(1, sizeof(*place));

	(void)index;
	(void)err;
	*place = (struct model_place){.config = config,
		.weights = weights,
		.frequencies = xcalloc((size_t)config->head_dim / 2, sizeof(float))};
	for (int i = 0; i < config->head_dim / 2; i++)
		place->frequencies[i] = (float)model_config_frequency(config, i);
	return place;
}

static void describe_place(const struct model_place *place, char *text, size_t size)
{
	(void)place;
	cpu_describe(text, size);
}

static void close_place(struct model_place *place)
{
	if (!place)
		return;
	free(place->memory);
	free(place->frequencies);
	free(place);
}

/* Numbers that all heads have room for in all layers. */
static size_t cache_numbers(const struct model_config *config, int tokens)
{
	size_t room = ((size_t)tokens + KERNEL_BLOCK - 1) / KERNEL_BLOCK * KERNEL_BLOCK;

	return (size_t)config->layers * narrow_width(config) * room;
}

static size_t cache_bytes(const struct model_config *config, int tokens)
{
	return 2 * cache_numbers(config, tokens) * sizeof(float);
}

static void close_cache(struct model_cache *cache)
{
	free(cache->keys);
	free(cache->values);
	free(cache);
}

static struct model_cache *open_cache(struct model_place *place, int tokens)
{
	const struct model_config *config = place->config;
	struct model_cache *cache = xmalloc(sizeof(*cache));
	size_t numbers = cache_numbers(config, tokens);

	*cache = (struct model_cache){
		.head = numbers / ((size_t)config->layers * (size_t)config->kv_heads),
		.keys = calloc(numbers, sizeof(float)),
		.values = calloc(numbers, sizeof(float)),
	};
	if (cache->keys && cache->values)
		return cache;
	close_cache(cache);
	return NULL;
}

/* --- products ------------------------------------------------------------------------------------ */

/* products [rows, count] = x [rows, columns] · `count` rows of weights, from row `first` on */
static void multiply_panel(const struct step *step, const struct matrix *matrix, int first, int count,
	const float *x, int rows, float *products)
{
	const struct model_place *place = step->place;
	int columns = matrix->columns;
	const void *weights = (const char *)matrix->data +
		(size_t)first * (size_t)columns * dtype_size(matrix->dtype);
	float *panel = place->panels + (size_t)omp_get_thread_num() * panel_size(place->config);

	if (rows <= FEW_ROWS) {
		for (int n = 0; n < rows; n += KERNEL_INPUTS)
			step->kernel->multiply(weights, matrix->dtype, count, columns,
				x + (size_t)n * (size_t)columns, smaller(rows - n, KERNEL_INPUTS),
				products + (size_t)n * (size_t)count, (size_t)count);
		return;
	}
	if (matrix->dtype != DTYPE_F32) {
		step->kernel->widen(weights, matrix->dtype, (size_t)count * (size_t)columns, panel);
		weights = panel;
	}
	blas_multiply(x, weights, products, rows, count, columns);
}

/* This thread's memory for the products of two panels. */
static float *own_products(const struct step *step)
{
	const struct model_place *place = step->place;

	return place->products + (size_t)omp_get_thread_num() * 2 * (size_t)place->rows * PANEL_ROWS;
}

static int panel_rows(const struct matrix *matrix)
{
	int rows = smaller(PANEL_NUMBERS / matrix->columns, PANEL_ROWS);

	return larger(rows / KERNEL_ROWS * KERNEL_ROWS, KERNEL_ROWS);
}

static void add_bias(const struct linear *linear, int first, int count, int rows, float *products)
{
	for (int row = 0; linear->bias && row < rows; row++)
		for (int i = 0; i < count; i++)
			products[(size_t)row * (size_t)count + (size_t)i] += linear->bias[first + i];
}

enum into { INTO_NEW, INTO_SUM }; /* y = …, or y += … */

/* y [rows, outputs] = x [rows, inputs] Wᵀ + b. No barrier: several may be under way. */
static void share_product(const struct step *step, const struct linear *linear, const float *x, int rows,
	float *y, enum into into)
{
	const struct matrix *weight = &linear->weight;
	int panel = panel_rows(weight);
	float *products = own_products(step);

#pragma omp for schedule(dynamic, 1) nowait
	for (int first = 0; first < weight->rows; first += panel) {
		int count = smaller(panel, weight->rows - first);

		multiply_panel(step, weight, first, count, x, rows, products);
		add_bias(linear, first, count, rows, products);
		for (int row = 0; row < rows; row++) {
			const float *from = products + (size_t)row * (size_t)count;
			float *to = y + (size_t)row * (size_t)weight->rows + first;

			for (int i = 0; i < count; i++)
				to[i] = from[i] + (into == INTO_SUM ? to[i] : 0);
		}
	}
}

/* activated [rows, intermediate] = silu(gate) · up, both products with x. No barrier. */
static void share_gate(const struct step *step, const struct model_layer *layer, const float *x)
{
	const struct matrix *weight = &layer->gate.weight;
	int rows = step->row_count, panel = panel_rows(weight);
	float *gate = own_products(step), *up = gate + (size_t)step->place->rows * PANEL_ROWS;

#pragma omp for schedule(dynamic, 1) nowait
	for (int first = 0; first < weight->rows; first += panel) {
		int count = smaller(panel, weight->rows - first);

		multiply_panel(step, weight, first, count, x, rows, gate);
		multiply_panel(step, &layer->up.weight, first, count, x, rows, up);
		add_bias(&layer->gate, first, count, rows, gate);
		add_bias(&layer->up, first, count, rows, up);
		step->kernel->activate(gate, up, rows * count);
		for (int row = 0; row < rows; row++)
			memcpy(step->place->activated + (size_t)row * (size_t)weight->rows + first,
				gate + (size_t)row * (size_t)count, (size_t)count * sizeof(float));
	}
}

/* --- layers -------------------------------------------------------------------------------------- */

static void normalise_row(const struct step *step, int row, const float *weight, float *out)
{
	const struct model_config *config = step->place->config;

	step->kernel->normalise(step->place->x + (size_t)row * (size_t)config->hidden, weight,
		config->epsilon, config->hidden, out);
}

/* Rows of x, normalised. Few of them each thread makes for itself, which takes less time than to wait for others. */
static const float *share_norm(const struct step *step, const int *rows, int count, const float *weight)
{
	const struct model_place *place = step->place;
	size_t hidden = (size_t)place->config->hidden;
	float *own = place->own + (size_t)omp_get_thread_num() * FEW_ROWS * hidden;

	if (count <= FEW_ROWS) {
		for (int i = 0; i < count; i++)
			normalise_row(step, rows ? rows[i] : i, weight, own + (size_t)i * hidden);
		return own;
	}
#pragma omp for
	for (int i = 0; i < count; i++)
		normalise_row(step, rows ? rows[i] : i, weight, place->normed + (size_t)i * hidden);
	return place->normed;
}

static void share_embedding(const struct step *step)
{
	const struct model_place *place = step->place;
	const struct matrix *embedding = &place->weights->embedding;
	size_t hidden = (size_t)place->config->hidden, half = (size_t)place->config->head_dim / 2;

#pragma omp for
	for (int row = 0; row < step->row_count; row++) {
		const struct row *token = &step->rows[row];
		float *angles = place->angles + (size_t)row * 2 * half;

		step->kernel->widen((const char *)embedding->data +
				(size_t)token->token * hidden * dtype_size(embedding->dtype),
			embedding->dtype, hidden, place->x + (size_t)row * hidden);
		for (size_t i = 0; i < half; i++) {
			float angle = (float)token->position * place->frequencies[i];

			angles[i] = cosf(angle);
			angles[half + i] = sinf(angle);
		}
	}
}

/* Normalises a head, if it has a norm, and turns it: its number i goes with number i + half. */
static void turn(const struct step *step, float *head, const float *norm, const float *angles)
{
	const struct model_config *config = step->place->config;
	int half = config->head_dim / 2;

	if (norm)
		step->kernel->normalise(head, norm, config->epsilon, config->head_dim, head);
	for (int i = 0; i < half; i++) {
		float x = head[i], y = head[half + i], cosine = angles[i], sine = angles[half + i];

		head[i] = x * cosine - y * sine;
		head[half + i] = y * cosine + x * sine;
	}
}

/* A head of keys, with the queries that look at it, in a row of a step. */
struct group {
	const struct row *row;
	const float *angles;
	float *q, *k, *v, *attended; /* of the first head */
	float *keys, *values;        /* that the session keeps */
};

/* Group number `index` of rows · kv_heads. */
static struct group group_of(const struct step *step, int layer, int index)
{
	const struct model_place *place = step->place;
	const struct model_config *config = place->config;
	size_t dim = (size_t)config->head_dim, at = (size_t)index * dim;
	size_t wide = at * (size_t)(config->heads / config->kv_heads);
	const struct row *row = &step->rows[index / config->kv_heads];
	size_t kept = (size_t)(layer * config->kv_heads + index % config->kv_heads) * row->cache->head;

	return (struct group){
		.row = row,
		.angles = place->angles + (size_t)(index / config->kv_heads) * dim,
		.q = place->q + wide,
		.k = place->k + at,
		.v = place->v + at,
		.attended = place->attended + wide,
		.keys = row->cache->keys + kept,
		.values = row->cache->values + kept,
	};
}

/* Turns queries and key, and puts key and value where the session keeps them. */
static void place_group(const struct step *step, const struct model_layer *layer, const struct group *group)
{
	const struct model_config *config = step->place->config;
	size_t dim = (size_t)config->head_dim, position = (size_t)group->row->position;
	float *block = group->keys + position / KERNEL_BLOCK * KERNEL_BLOCK * dim + position % KERNEL_BLOCK;

	for (int i = 0; i < config->heads / config->kv_heads; i++)
		turn(step, group->q + (size_t)i * dim, layer->q_norm, group->angles);
	turn(step, group->k, layer->k_norm, group->angles);
	for (size_t i = 0; i < dim; i++)
		block[i * KERNEL_BLOCK] = group->k[i];
	memcpy(group->values + position * dim, group->v, dim * sizeof(float));
}

static void attend_group(const struct step *step, const struct group *group)
{
	const struct model_config *config = step->place->config;
	size_t dim = (size_t)config->head_dim;

	for (int i = 0; i < config->heads / config->kv_heads; i++)
		step->kernel->attend(group->q + (size_t)i * dim, group->keys, group->values,
			group->row->position + 1, config->head_dim, 1 / sqrtf((float)dim),
			group->attended + (size_t)i * dim);
}

/* Both loops give a group to the same thread; so only rows that look at each other's keys have to wait for them. */
static void share_attention(const struct step *step, int layer)
{
	const struct model_place *place = step->place;
	int groups = step->row_count * place->config->kv_heads;

#pragma omp for schedule(static, 1) nowait
	for (int i = 0; i < groups; i++) {
		struct group group = group_of(step, layer, i);

		place_group(step, &place->weights->layers[layer], &group);
	}
	if (!step->apart) {
#pragma omp barrier
	}
#pragma omp for schedule(static, 1)
	for (int i = 0; i < groups; i++) {
		struct group group = group_of(step, layer, i);

		attend_group(step, &group);
	}
}

static void share_layer(const struct step *step, int index)
{
	const struct model_place *place = step->place;
	const struct model_layer *layer = &place->weights->layers[index];
	int rows = step->row_count;
	const float *normed = share_norm(step, NULL, rows, layer->attention_norm);

	share_product(step, &layer->q, normed, rows, place->q, INTO_NEW);
	share_product(step, &layer->k, normed, rows, place->k, INTO_NEW);
	share_product(step, &layer->v, normed, rows, place->v, INTO_NEW);
#pragma omp barrier
	share_attention(step, index);
	share_product(step, &layer->o, place->attended, rows, place->x, INTO_SUM);
#pragma omp barrier
	share_gate(step, layer, share_norm(step, NULL, rows, layer->mlp_norm));
#pragma omp barrier
	share_product(step, &layer->down, place->activated, rows, place->x, INTO_SUM);
#pragma omp barrier
}

/* What follows the rows that predict. */
static void share_output(const struct step *step)
{
	const struct model_place *place = step->place;
	const struct model_config *config = place->config;
	const struct linear output = {.weight = place->weights->output};
	size_t vocabulary = (size_t)config->vocabulary;

	for (int first = 0; first < step->output_count; first += OUTPUT_ROWS) {
		const int *outputs = step->outputs + first;
		int count = smaller(step->output_count - first, OUTPUT_ROWS);

		share_product(step, &output, share_norm(step, outputs, count, place->weights->norm), count,
			place->logits, INTO_NEW);
#pragma omp barrier
#pragma omp for
		for (int i = 0; i < count; i++) {
			struct model_piece *piece = step->rows[outputs[i]].predicts;
			const float *logits = place->logits + (size_t)i * vocabulary;

			piece->next = step->kernel->largest(logits, config->vocabulary);
			if (piece->logits)
				memcpy(piece->logits, logits, vocabulary * sizeof(*logits));
		}
	}
}

/* --- steps --------------------------------------------------------------------------------------- */

static void list_rows(struct step *step, const struct model_task *tasks, int count)
{
	step->apart = true;
	for (int i = 0; i < count; i++) {
		struct model_piece *piece = tasks[i].piece;

		step->apart &= piece->count == 1;
		for (int t = 0; t < piece->count; t++)
			step->rows[step->row_count++] = (struct row){.cache = tasks[i].cache,
				.token = piece->tokens[t],
				.position = tasks[i].length + t};
		if (!piece->predicts)
			continue;
		step->rows[step->row_count - 1].predicts = piece;
		step->outputs[step->output_count++] = step->row_count - 1;
	}
}

static void run(struct step *step)
{
	int layers = step->place->config->layers;

#pragma omp parallel num_threads(cpu_threads())
	{
		share_embedding(step);
		for (int i = 0; i < layers && !step->stopped; i++) {
			share_layer(step, i);
			if (!step->stop)
				continue;
#pragma omp single
			step->stopped = step->stop();
		}
		if (!step->stopped)
			share_output(step);
	}
}

static int take_step(struct model_place *place, const struct model_task *tasks, int count, bool (*stop)(void),
	struct error *err)
{
	struct step step = {.place = place, .kernel = model_kernel(), .stop = stop};

	list_rows(&step, tasks, count);
	if ((step.row_count > FEW_ROWS && blas_open(err) < 0) || make_room(place, &step, err) < 0)
		return -1;
	run(&step);
	return step.stopped ? error_set(err, STATUS_INTERRUPTED, "interrupted") : 0;
}

const struct model_device model_device_cpu = {
	.arithmetic = DTYPE_F32,
	.open = open_place,
	.close = close_place,
	.describe = describe_place,
	.cache_bytes = cache_bytes,
	.cache_open = open_cache,
	.cache_close = close_cache,
	.step = take_step,
};
