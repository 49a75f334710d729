/* A model on a GPU: weights as the files have them, everything else in fp32. A step is one launch for every MODEL_ROWS
 * tokens (kernels/model/step.cu). */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "gpu/gpu.h"
#include "kernels/model/arguments.h"
#include "model/device.h"
#include "tensor/dtype.h"

/* Weights that are not in the files as the GPU wants them go there in pieces of this. */
#define PIECE_BYTES ((size_t)4 << 20)
#define ALIGNMENT 256

/* Steps are numbered from shortly before the end of what 32 bits count: so what has to be done there is done by every
 * process, and every test. */
#define FIRST_NUMBER (UINT_MAX - 10)

/* From here on, weights of a single token's step pass through shared memory. */
#define STREAMING_CAPABILITY 90

/* The kernel for up to so many tokens. */
static const int variants[] = {1, 8, 32, MODEL_ROWS};
#define VARIANTS (sizeof(variants) / sizeof(*variants))

struct model_place {
	const struct model_config *config;
	int index;
	struct gpu *gpu;
	enum dtype dtype; /* of all matrices here */
	void *weights, *memory;
	struct gpu_kernel *kernels[VARIANTS];
	struct model_step_arguments arguments; /* what all launches have in common */
	unsigned next_number;                  /* of a step's parcels (kernels/model/parcel.cuh) */
	unsigned long long *best;              /* [MODEL_ROWS] */
	float *logits;                         /* [MODEL_ROWS, vocabulary] */
};

struct model_cache {
	struct gpu *gpu;
	float *memory;
	int capacity;
};

/* --- weights -------------------------------------------------------------------------------------- */

/* Weights on their way into one piece of memory; without it, they are only counted. */
struct upload {
	struct gpu *gpu;
	enum dtype dtype; /* that matrices get */
	char *memory;
	size_t used;
	bool failed;
	struct error *err;
};

static void *reserve(struct upload *upload, size_t bytes)
{
	void *place = upload->memory ? upload->memory + upload->used : NULL;

	upload->used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	return place;
}

static void copy(struct upload *upload, void *to, const void *from, size_t bytes)
{
	if (to && !upload->failed)
		upload->failed = gpu_upload(upload->gpu, to, from, bytes, upload->err) < 0;
}

static const float *put_vector(struct upload *upload, const float *values, int count)
{
	size_t bytes = (size_t)count * sizeof(*values);
	float *place = values ? reserve(upload, bytes) : NULL;

	copy(upload, place, values, bytes);
	return place;
}

/* Columns of a row on the GPU. */
static size_t padded(int columns)
{
	return ((size_t)columns + MODEL_SLICE - 1) / MODEL_SLICE * MODEL_SLICE;
}

/* Rows of another type, or whose columns do not fill slices. */
static void copy_converted(struct upload *upload, char *to, const struct matrix *matrix)
{
	size_t columns = (size_t)matrix->columns, width = padded(matrix->columns),
	       row_bytes = width * dtype_size(upload->dtype), rows = (size_t)matrix->rows,
	       most = PIECE_BYTES / row_bytes + 1;
	char *piece = xcalloc(most, row_bytes);

	for (size_t first = 0; first < rows && !upload->failed; first += most) {
		size_t count = rows - first < most ? rows - first : most;

		for (size_t row = 0; row < count; row++)
			for (size_t i = 0; i < columns; i++)
				dtype_store(piece, upload->dtype, (int64_t)(row * width + i),
					dtype_load(matrix->data, matrix->dtype,
						(int64_t)((first + row) * columns + i)));
		copy(upload, to + first * row_bytes, piece, count * row_bytes);
	}
	free(piece);
}

static void copy_rows(struct upload *upload, char *to, const struct matrix *matrix)
{
	size_t bytes = (size_t)matrix->rows * padded(matrix->columns) * dtype_size(upload->dtype);

	if (!to)
		return;
	if (matrix->dtype == upload->dtype && matrix->columns % MODEL_SLICE == 0)
		copy(upload, to, matrix->data, bytes);
	else
		copy_converted(upload, to, matrix);
}

/* Maps of the same input, one below the other. */
static void put_linears(struct upload *upload, const struct linear *const *linears, int count,
	struct model_device_product *product)
{
	size_t row_bytes = padded(linears[0]->weight.columns) * dtype_size(upload->dtype);
	int rows = 0;
	char *weights;
	float *bias;

	for (int i = 0; i < count; i++)
		rows += linears[i]->weight.rows;
	weights = reserve(upload, (size_t)rows * row_bytes);
	bias = linears[0]->bias ? reserve(upload, (size_t)rows * sizeof(*bias)) : NULL;
	for (int i = 0, row = 0; weights && i < count; row += linears[i++]->weight.rows) {
		copy_rows(upload, weights + (size_t)row * row_bytes, &linears[i]->weight);
		if (bias)
			copy(upload, bias + row, linears[i]->bias,
				(size_t)linears[i]->weight.rows * sizeof(*bias));
	}
	product->weights = weights;
	product->bias = bias;
}

static void put_matrix(
	struct upload *upload, const struct matrix *matrix, struct model_device_product *product)
{
	const struct linear linear = {.weight = *matrix}, *const one = &linear;

	put_linears(upload, &one, 1, product);
}

static void put_layer(struct upload *upload, const struct model_config *config,
	const struct model_layer *layer, struct model_step_arguments *arguments)
{
	const struct linear *const qkv[] = {&layer->q, &layer->k, &layer->v}, *const output[] = {&layer->o},
				   *const gate_up[] = {&layer->gate, &layer->up},
				   *const down[] = {&layer->down};
	struct model_device_product *products = arguments->products;

	products[QKV].norm = put_vector(upload, layer->attention_norm, config->hidden);
	products[GATE_UP].norm = put_vector(upload, layer->mlp_norm, config->hidden);
	arguments->q_norm = put_vector(upload, layer->q_norm, config->head_dim);
	arguments->k_norm = put_vector(upload, layer->k_norm, config->head_dim);
	put_linears(upload, qkv, 3, &products[QKV]);
	put_linears(upload, output, 1, &products[OUTPUT]);
	put_linears(upload, gate_up, 2, &products[GATE_UP]);
	put_linears(upload, down, 1, &products[DOWN]);
}

static void put_frequencies(
	struct upload *upload, const struct model_config *config, struct model_step_arguments *arguments)
{
	float frequencies[MODEL_HEAD_DIM / 2];

	for (int i = 0; i < config->head_dim / 2; i++)
		frequencies[i] = (float)model_config_frequency(config, i);
	arguments->frequencies = put_vector(upload, frequencies, config->head_dim / 2);
}

/* Once to count, and once to copy. */
static void put_weights(struct upload *upload, const struct model_config *config,
	const struct model_weights *weights, struct model_step_arguments *arguments)
{
	struct model_device_product embedding;

	upload->used = 0;
	put_matrix(upload, &weights->embedding, &embedding);
	arguments->embedding = embedding.weights;
	if (config->tied)
		arguments->products[LOGITS] = embedding;
	else
		put_matrix(upload, &weights->output, &arguments->products[LOGITS]);
	arguments->products[LOGITS].norm = put_vector(upload, weights->norm, config->hidden);
	put_frequencies(upload, config, arguments);
	for (int i = 0; i < config->layers; i++) {
		struct model_step_arguments other = *arguments;
		size_t before = upload->used;

		put_layer(upload, config, &weights->layers[i], i ? &other : arguments);
		arguments->layer_bytes = (long long)(upload->used - before); /* layers are alike */
	}
}

/* The type of all matrices; where they differ, the one that can hold all. */
static enum dtype common_dtype(const struct model_config *config, const struct model_weights *weights)
{
	enum dtype dtype = weights->embedding.dtype;
	bool differ = weights->output.dtype != dtype;

	for (int i = 0; i < config->layers; i++) {
		const struct model_layer *layer = &weights->layers[i];
		const struct linear *const linears[] = {
			&layer->q, &layer->k, &layer->v, &layer->o, &layer->gate, &layer->up, &layer->down};

		for (size_t n = 0; n < sizeof(linears) / sizeof(*linears); n++)
			differ |= linears[n]->weight.dtype != dtype;
	}
	return differ ? DTYPE_F32 : dtype;
}

static int place_weights(struct model_place *place, const struct model_weights *weights, struct error *err)
{
	struct upload upload = {.gpu = place->gpu, .dtype = place->dtype, .err = err};

	put_weights(&upload, place->config, weights, &place->arguments);
	place->weights = gpu_allocate(place->gpu, upload.used, err);
	upload.memory = place->weights;
	if (upload.memory)
		put_weights(&upload, place->config, weights, &place->arguments);
	return upload.memory && !upload.failed ? 0 : -1;
}

/* --- memory and kernels --------------------------------------------------------------------------- */

/* Of so many activations of a row, as they are staged. */
static size_t plane_bytes(const struct model_place *place, int columns)
{
	return padded(columns) * (size_t)MODEL_PLANES((int)place->dtype) * 2;
}

/* What blocks send each other in a single token's step. */
static size_t parcel_bytes(const struct model_place *place)
{
	const struct model_config *config = place->config;

	return 16 *
		(size_t)MODEL_PARCELS(config->hidden, config->intermediate, config->heads, config->kv_heads,
			config->head_dim, (int)place->dtype, gpu_properties_of(place->gpu)->multiprocessors);
}

/* Gives each part its place in `memory`, where there is some. Returns how many bytes that takes. */
static size_t arrange(struct model_place *place, char *memory)
{
	const struct model_config *config = place->config;
	struct model_step_arguments *arguments = &place->arguments;
	size_t heads = (size_t)config->heads, dim = (size_t)config->head_dim, used = 0,
	       pieces = MODEL_PIECES_COUNT(gpu_properties_of(place->gpu)->multiprocessors, MODEL_ROWS / 8);
	int attended = config->heads * config->head_dim,
	    wider = attended > config->hidden ? attended : config->hidden;
	const struct {
		void **part;
		size_t bytes; /* of a row; what is for all rows is shared out */
	} parts[] = {
		{(void **)&arguments->barrier, 2 * sizeof(unsigned)},
		{&arguments->parcels, (parcel_bytes(place) + MODEL_ROWS - 1) / MODEL_ROWS},
		{(void **)&arguments->x, (size_t)config->hidden * sizeof(float)},
		{(void **)&arguments->squares, ((size_t)config->hidden + 7) / 8 * sizeof(float)},
		{(void **)&arguments->angles, dim * sizeof(float)},
		{(void **)&arguments->heads_at, (heads + (size_t)config->kv_heads) * dim * sizeof(float)},
		{(void **)&arguments->partial, heads * MODEL_SPLITS * dim * sizeof(float)},
		{(void **)&arguments->partial_of, heads * MODEL_SPLITS * 2 * sizeof(float)},
		{(void **)&arguments->activated, (size_t)config->intermediate * sizeof(float)},
		{&arguments->planes[0], plane_bytes(place, wider)},
		{&arguments->planes[1], plane_bytes(place, config->intermediate)},
		{&arguments->pieces, pieces * 512 / MODEL_ROWS},
		{(void **)&arguments->finished, pieces * sizeof(unsigned) / MODEL_ROWS},
		{(void **)&place->best, sizeof(*place->best)},
		{(void **)&place->logits, (size_t)config->vocabulary * sizeof(float)},
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		*parts[i].part = memory ? memory + used : NULL;
		used += (MODEL_ROWS * parts[i].bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
	}
	return used;
}

static int place_memory(struct model_place *place, struct error *err)
{
	size_t bytes = arrange(place, NULL);

	place->memory = gpu_allocate(place->gpu, bytes, err);
	if (!place->memory)
		return -1;
	arrange(place, place->memory);
	return gpu_fill(place->gpu, place->memory, 0, bytes, err);
}

/* Heads that share keys, which a block takes at a time: with few tokens one, so that there is something to do for many
 * blocks; else as many as it can. */
static int head_group(const struct model_config *config, int tokens)
{
	int shared = config->heads / config->kv_heads, group = tokens <= 8 ? 1 : MODEL_GROUP;

	while (shared % group)
		group--;
	return group;
}

/* Slices of `columns`. */
static int slices_of(int columns)
{
	return (int)(padded(columns) / MODEL_SLICE);
}

/* How a kernel uses the shared memory of a block. */
struct layout {
	int stage;        /* slices of activations */
	int chunk, slots; /* of weights: slices of a slot, and slots; 0: they do not pass through it */
	int bytes;
};

static int larger(int a, int b)
{
	return a > b ? a : b;
}

static struct layout lay_out(const struct model_place *place, int tokens)
{
	const struct model_config *config = place->config;
	const struct gpu_properties *gpu = gpu_properties_of(place->gpu);
	int input = (int)place->dtype, shared = gpu->shared_per_block,
	    attention = MODEL_ATTENTION_BYTES(tokens, config->head_dim, head_group(config, tokens)), slices,
	    chunks, slot_bytes, rest;
	struct layout layout = {
		.stage = (shared - MODEL_PRODUCT_BYTES(tokens, 0, input)) / MODEL_SLICE_BYTES(tokens, input)};

	layout.bytes = larger(MODEL_PRODUCT_BYTES(tokens, layout.stage, input), attention);
	if (tokens > 1 || gpu->capability < STREAMING_CAPABILITY)
		return layout;
	slices = slices_of(
		larger(larger(config->hidden, config->intermediate), config->heads * config->head_dim));
	chunks = MODEL_SLOT_BYTES(slices_of(config->hidden), input) / MODEL_SLOT_TARGET + 1;
	layout.chunk = (slices_of(config->hidden) + chunks - 1) / chunks;
	slot_bytes = MODEL_SLOT_BYTES(layout.chunk, input) + MODEL_SLOT_BARRIERS;
	rest = (larger(MODEL_PRODUCT_BYTES(tokens, slices, input), attention) + 127) / 128 * 128;
	layout.slots = (shared - rest - MODEL_ORDERS_BYTES) / slot_bytes;
	if (layout.slots < 2) {
		layout.slots = 0;
		return layout;
	}
	layout.stage = slices;
	layout.bytes = rest + layout.slots * slot_bytes + MODEL_ORDERS_BYTES;
	return layout;
}

static struct gpu_kernel *find_kernel(struct model_place *place, int tokens, struct error *err)
{
	const struct model_config *config = place->config;
	struct layout layout = lay_out(place, tokens);
	const struct kernel_parameter parameters[] = {{"INPUT", (int)place->dtype},
		{"HIDDEN", config->hidden}, {"INTERMEDIATE", config->intermediate}, {"HEADS", config->heads},
		{"KV_HEADS", config->kv_heads}, {"HEAD_DIM", config->head_dim},
		{"HEAD_NORMS", config->head_norms}, {"VOCABULARY", config->vocabulary},
		{"GROUP", head_group(config, tokens)}, {"TOKENS", tokens}, {"STAGE", layout.stage},
		{"SLOTS", layout.slots}, {"CHUNK", layout.chunk},
		{"BLOCKS", gpu_properties_of(place->gpu)->multiprocessors}, {0}};

	return gpu_kernel(place->gpu, "model/step.cu", "model_step", parameters, MODEL_LAUNCHED(layout.slots),
		layout.bytes, err);
}

static int find_kernels(struct model_place *place, struct error *err)
{
	for (size_t i = 0; i < VARIANTS; i++) {
		place->kernels[i] = find_kernel(place, variants[i], err);
		if (!place->kernels[i])
			return -1;
	}
	return 0;
}

/* --- opening -------------------------------------------------------------------------------------- */

static int check_shape(const struct model_config *config, struct error *err)
{
	if (config->hidden % 4 == 0 && config->head_dim % 4 == 0 && config->intermediate % 4 == 0)
		return 0;
	error_set(err, STATUS_ENVIRONMENT,
		"a model with %d, %d and %d numbers (hidden_size, head_dim, intermediate_size), which are not all "
		"multiples of 4, does not run on GPUs",
		config->hidden, config->head_dim, config->intermediate);
	return error_hint(err, "Use --device cpu.");
}

static void close_place(struct model_place *place)
{
	if (!place)
		return;
	if (place->gpu) {
		gpu_release(place->gpu, place->weights);
		gpu_release(place->gpu, place->memory);
	}
	gpu_close(place->gpu);
	free(place);
}

static struct model_place *open_place(
	int index, const struct model_config *config, const struct model_weights *weights, struct error *err)
{
	struct model_place *place = xcalloc(1, sizeof(*place));

	*place = (struct model_place){.config = config,
		.index = index,
		.dtype = common_dtype(config, weights),
		.next_number = FIRST_NUMBER,
		.arguments = {.layer_count = config->layers, .epsilon = config->epsilon}};
	if (check_shape(config, err) == 0)
		place->gpu = gpu_open(index, err);
	if (place->gpu && find_kernels(place, err) == 0 && place_weights(place, weights, err) == 0 &&
		place_memory(place, err) == 0)
		return place;
	close_place(place);
	return NULL;
}

static void describe_place(const struct model_place *place, char *text, size_t size)
{
	gpu_describe(place->index, gpu_properties_of(place->gpu), text, size);
}

/* --- sessions ------------------------------------------------------------------------------------- */

static size_t cache_bytes(const struct model_config *config, int tokens)
{
	return 2 * sizeof(float) * (size_t)config->layers * (size_t)config->kv_heads *
		(size_t)config->head_dim * (size_t)tokens;
}

static struct model_cache *open_cache(struct model_place *place, int tokens)
{
	struct error no_memory;
	float *memory = gpu_allocate(place->gpu, cache_bytes(place->config, tokens), &no_memory);
	struct model_cache *cache;

	if (!memory)
		return NULL;
	cache = xmalloc(sizeof(*cache));
	*cache = (struct model_cache){place->gpu, memory, tokens};
	return cache;
}

static void close_cache(struct model_cache *cache)
{
	gpu_release(cache->gpu, cache->memory);
	free(cache);
}

/* --- steps ---------------------------------------------------------------------------------------- */

struct launch {
	struct model_step_arguments arguments;
	struct model_piece *pieces[MODEL_ROWS]; /* of its outputs */
};

static void add_row(
	const struct model_place *place, struct launch *launch, const struct model_task *task, int index)
{
	struct model_step_arguments *arguments = &launch->arguments;
	struct model_piece *piece = task->piece;
	int row = arguments->row_count++, output = arguments->output_count;

	arguments->rows[row] = (struct model_device_row){.cache = task->cache->memory,
		.capacity = task->cache->capacity,
		.token = piece->tokens[index],
		.position = task->length + index};
	if (!piece->predicts || index < piece->count - 1)
		return;
	launch->pieces[output] = piece;
	arguments->outputs[output] = (struct model_device_output){
		.best = place->best + output,
		.logits = piece->logits ? place->logits + (size_t)output * (size_t)place->config->vocabulary
					: NULL,
		.row = row,
	};
	arguments->output_count++;
}

static int take_results(const struct model_place *place, const struct launch *launch, struct error *err)
{
	unsigned long long best[MODEL_ROWS];
	int count = launch->arguments.output_count;

	if (count && gpu_download(place->gpu, best, place->best, (size_t)count * sizeof(*best), err) < 0)
		return -1;
	for (int i = 0; i < count; i++) {
		struct model_piece *piece = launch->pieces[i];

		piece->next = best[i] == MODEL_NOT_FINITE ? -1 : MODEL_TOKEN(best[i]);
		if (piece->logits &&
			gpu_download(place->gpu, piece->logits, launch->arguments.outputs[i].logits,
				(size_t)place->config->vocabulary * sizeof(float), err) < 0)
			return -1;
	}
	return 0;
}

/* Each step has numbers that no parcel has: where there are none left, parcels get 0, which is no step's. */
static int number_step(struct model_place *place, struct model_step_arguments *arguments, struct error *err)
{
	unsigned count = (unsigned)place->config->layers + 1;

	if (place->next_number > UINT_MAX - count) {
		if (gpu_fill(place->gpu, arguments->parcels, 0, parcel_bytes(place), err) < 0)
			return -1;
		place->next_number = 1;
	}
	arguments->number = place->next_number;
	place->next_number += count;
	return 0;
}

/* The rows that have been added, of which none are left. */
static int run(struct model_place *place, struct launch *launch, struct error *err)
{
	struct model_step_arguments *arguments = &launch->arguments;
	int blocks = gpu_properties_of(place->gpu)->multiprocessors, splits;
	size_t variant = 0;

	while (variants[variant] < arguments->row_count)
		variant++;
	splits = blocks * head_group(place->config, variants[variant]) /
		(arguments->row_count * place->config->heads);
	arguments->splits = splits < 1 ? 1 : splits > MODEL_SPLITS ? MODEL_SPLITS : splits;
	if (number_step(place, arguments, err) < 0)
		return -1;
	if (gpu_launch_together(place->kernels[variant], (unsigned)blocks, arguments, err) < 0 ||
		take_results(place, launch, err) < 0)
		return -1;
	arguments->row_count = arguments->output_count = 0;
	return 0;
}

static int take_step(struct model_place *place, const struct model_task *tasks, int count, bool (*stop)(void),
	struct error *err)
{
	struct launch launch = {.arguments = place->arguments};
	int result = 0;

	for (int i = 0; i < count && !result; i++)
		for (int token = 0; token < tasks[i].piece->count && !result; token++) {
			add_row(place, &launch, &tasks[i], token);
			if (launch.arguments.row_count < MODEL_ROWS)
				continue;
			result = stop && stop() ? error_set(err, STATUS_INTERRUPTED, "interrupted")
						: run(place, &launch, err);
		}
	if (!result && launch.arguments.row_count)
		result = run(place, &launch, err);
	/* who has got results has waited */
	return result || tasks[count - 1].piece->predicts ? result : gpu_synchronize(place->gpu, err);
}

const struct model_device model_device_cuda = {
	.arithmetic = DTYPE_F32,
	.breaks = true,
	.open = open_place,
	.close = close_place,
	.describe = describe_place,
	.cache_bytes = cache_bytes,
	.cache_open = open_cache,
	.cache_close = close_cache,
	.step = take_step,
};
