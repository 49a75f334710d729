#include "layer/cuda.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/memory.h"
#include "gpu/gemm.h"
#include "kernels/layer/arguments.h"
#include "kernels/layer/layout.h"
#include "kernels/quasar/choice.h"
#include "op/quasar/cuda.h"
#include "op/tuned.h"
#include "tensor/dtype.h"

/* Tokens that are projected at a time where that takes three launches: 4 KiB each at the usual width. Fewer cost time at each
 * beginning and end. */
#define PIECE ((int64_t)1 << 17)

#define WEIGHTS 8

struct layer_cuda {
	struct gpu *gpu;
	struct gpu_blas *blas;
	int hidden, heads, dim, width, columns; /* width: heads · dim; columns: what x is projected to */
	int64_t segment;
	void *weights[WEIGHTS];
	int weight_count;
	const float *convolution, *beta, *o_norm;
	const void *wide_gate, *gate_bias;
	void *projection, *tiles; /* weights of q, k, v and the narrow gate, as they are and for `project` */
	struct gpu_kernel *project;           /* x to those in one launch, if there is one, */
	struct gpu_kernel *gather, *convolve; /* or by these, with a product between them */
	struct gpu_gemm *multiply;
	struct gpu_kernel *gate;
	struct gpu_gemm *output;                /* y to out */
	struct gpu_workspace workspace, memory; /* of the operation; of what is between the parts */
	float *state;                           /* from a segment to the next */
	uint16_t *qkv[3];                       /* of a segment; */
	int64_t held;                           /* rows of each */
	uint16_t *narrow, *o;    /* of whole sequences; o in the output's memory where it has its shape */
	bool in_place;           /* a segment's q is first where its o will be, see takes_place_of_q() */
	uint16_t *x, *projected; /* of a piece */
	uint16_t *y;             /* of as many rows as are held */
};

/* --- weights ---------------------------------------------------------------------------------------- */

static int place(struct layer_cuda *layer, const void *values, size_t bytes, void **placed, struct error *err)
{
	*placed = gpu_allocate(layer->gpu, bytes, err);
	if (!*placed)
		return -1;
	layer->weights[layer->weight_count++] = *placed;
	return gpu_upload(layer->gpu, *placed, values, bytes, err);
}

/* Two matrices one below the other, rounded to bf16; the second may have no elements. */
static int place_bf16(struct layer_cuda *layer, const float *first, size_t first_count, const float *second,
	size_t second_count, void **placed, struct error *err)
{
	uint16_t *values = xcalloc(first_count + second_count, sizeof(*values));
	int result;

	for (size_t i = 0; i < first_count; i++)
		values[i] = bf16_of_float(first[i]);
	for (size_t i = 0; i < second_count; i++)
		values[first_count + i] = bf16_of_float(second[i]);
	result = place(layer, values, (first_count + second_count) * sizeof(*values), placed, err);
	free(values);
	return result;
}

static int place_weights(struct layer_cuda *on_gpu, const struct layer *layer, struct error *err)
{
	size_t hidden = (size_t)layer->hidden, dim = (size_t)layer->dim, width = (size_t)on_gpu->width;
	void *wide_gate, *gate_bias, *output, *convolution, *beta, *o_norm;

	/* q, k and v are one matrix in memory */
	if (place_bf16(on_gpu, layer->q_proj, 3 * width * hidden, layer->g_proj_0, dim * hidden,
		    &on_gpu->projection, err) < 0 ||
		place_bf16(on_gpu, layer->g_proj_1, width * dim, NULL, 0, &wide_gate, err) < 0 ||
		place_bf16(on_gpu, layer->g_proj_1_bias, width, NULL, 0, &gate_bias, err) < 0 ||
		place_bf16(on_gpu, layer->o_proj, hidden * width, NULL, 0, &output, err) < 0 ||
		place(on_gpu, layer->convolution, 3 * LAYER_CONVOLUTION * width * sizeof(float), &convolution,
			err) < 0 ||
		place(on_gpu, layer->beta, (size_t)layer->heads * sizeof(float), &beta, err) < 0 ||
		place(on_gpu, layer->o_norm, dim * sizeof(float), &o_norm, err) < 0)
		return -1;
	on_gpu->convolution = convolution;
	on_gpu->beta = beta;
	on_gpu->o_norm = o_norm;
	on_gpu->wide_gate = wide_gate;
	on_gpu->gate_bias = gate_bias;
	on_gpu->output = gpu_gemm_make(on_gpu->blas, output, layer->hidden, on_gpu->width, err);
	return on_gpu->output ? 0 : -1;
}

static unsigned blocks(int64_t threads)
{
	return (unsigned)((threads + LAYER_THREADS - 1) / LAYER_THREADS);
}

/* Whether one launch can project: it is for Hopper's tensor cores, and for such sizes. */
static bool can_fuse(const struct layer_cuda *layer)
{
	return gpu_properties_of(layer->gpu)->capability == WGMMA_CAPABILITY &&
		layer->hidden % PROJECT_INNER == 0 && layer->hidden <= PROJECT_MOST_HIDDEN &&
		layer->dim % PROJECT_COLUMNS == 0;
}

static int make_tiles(struct layer_cuda *layer, const struct kernel_parameter *parameters, struct error *err)
{
	int64_t count = (int64_t)layer->columns * layer->hidden;
	struct gpu_kernel *tile = gpu_kernel(
		layer->gpu, "layer/project.cu", "layer_tile", parameters, LAYER_THREADS, 0, err);
	struct layer_tile_arguments arguments = {.from = layer->projection};

	layer->tiles = tile ? gpu_allocate(layer->gpu, (size_t)count * sizeof(uint16_t), err) : NULL;
	if (!layer->tiles)
		return -1;
	layer->weights[layer->weight_count++] = layer->tiles;
	arguments.to = layer->tiles;
	return gpu_launch(tile, blocks(count / TILE_NUMBERS), 1, &arguments, err);
}

static int find_kernels(struct layer_cuda *layer, struct error *err)
{
	struct kernel_parameter parameters[] = {{"HEAD_DIM", layer->dim}, {"WIDTH", layer->width},
		{"INPUT", DTYPE_BF16}, {"VECTOR", 1}, {"FROM_F32", 1}, {"HIDDEN", layer->hidden}, {0}};

	layer->gate = gpu_kernel(
		layer->gpu, "layer/gate.cu", "layer_gate", parameters, LAYER_THREADS, 0, err);
	if (!layer->gate)
		return -1;
	layer->gather = gpu_kernel(
		layer->gpu, "layer/gather.cu", "layer_gather", parameters, LAYER_THREADS, 0, err);
	layer->convolve = gpu_kernel(
		layer->gpu, "layer/convolve.cu", "layer_convolve", parameters, LAYER_THREADS, 0, err);
	layer->multiply = gpu_gemm_make(layer->blas, layer->projection, layer->columns, layer->hidden, err);
	if (!layer->gather || !layer->convolve || !layer->multiply)
		return -1;
	if (!can_fuse(layer))
		return 0;
	layer->project = gpu_kernel(layer->gpu, "layer/project.cu", "layer_project", parameters,
		PROJECT_THREADS, PROJECT_SHARED, err);
	return layer->project ? make_tiles(layer, parameters, err) : -1;
}

struct layer_cuda *layer_cuda_make(struct gpu *gpu, const struct layer *layer, struct error *err)
{
	struct layer_cuda *on_gpu = xcalloc(1, sizeof(*on_gpu));
	int width = layer->heads * layer->dim;

	*on_gpu = (struct layer_cuda){
		.gpu = gpu,
		.hidden = layer->hidden,
		.heads = layer->heads,
		.dim = layer->dim,
		.width = width,
		.columns = 3 * width + layer->dim,
		.segment = LAYER_CUDA_SEGMENT,
	};
	on_gpu->blas = gpu_blas_open(gpu, err);
	if (on_gpu->blas && place_weights(on_gpu, layer, err) == 0 && find_kernels(on_gpu, err) == 0)
		return on_gpu;
	layer_cuda_free(on_gpu);
	return NULL;
}

void layer_cuda_set_segment(struct layer_cuda *layer, int64_t tokens)
{
	layer->segment = upstream_padded(tokens);
}

void layer_cuda_free(struct layer_cuda *layer)
{
	if (!layer)
		return;
	gpu_gemm_free(layer->multiply);
	gpu_gemm_free(layer->output);
	gpu_blas_close(layer->blas);
	gpu_workspace_free(layer->gpu, &layer->workspace);
	gpu_workspace_free(layer->gpu, &layer->memory);
	while (layer->weight_count)
		gpu_release(layer->gpu, layer->weights[--layer->weight_count]);
	free(layer);
}

/* --- a call ----------------------------------------------------------------------------------------- */

/* The segment that the outputs of tokens first … first + outputs − 1 of each sequence are made of. */
static struct layer_segment segment_of(
	const struct layer_cuda *layer, const struct layer_call *call, int64_t first, int64_t outputs)
{
	int64_t rows = upstream_padded(outputs);
	/* rows of a stretch's first token that may not be its head's */
	int before = UPSTREAM_CHUNK % layer->heads ? layer->heads - 1 : 0;
	struct layer_segment segment = {.tokens = call->tokens,
		.padded = upstream_padded(call->tokens),
		.first = first,
		.stretches = 1,
		.length = (int)outputs};

	if (call->semantics == SEMANTICS_UPSTREAM && outputs < call->tokens) {
		segment.stretches = layer->heads;
		segment.length = (int)((before + rows - 1) / layer->heads + 1);
	}
	return segment;
}

static int64_t smaller(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Tokens of each of so many stretches that are projected at a time. */
static int64_t piece_length(int64_t sequences)
{
	return sequences < PIECE ? PIECE / sequences : 1;
}

/* Whether x is projected in one launch: few tiles would leave most of the GPU idle. */
static bool is_fused(const struct layer_cuda *layer, const struct layer_call *call)
{
	return layer->project && call->batch * call->tokens >= PROJECT_LEAST_TOKENS;
}

/* Whether o can lie where q does, chunk by chunk, and finish() finds it there. Under upstream semantics a head's rows of q
 * are one behind the other, and so are then those of o: that takes stretches that hold nothing else, of one sequence. */
static bool takes_place_of_q(const struct layer_cuda *layer, const struct layer_call *call)
{
	return call->semantics == SEMANTICS_CAUSAL ||
		(call->batch == 1 && call->tokens % UPSTREAM_CHUNK == 0 &&
			(call->tokens <= layer->segment || UPSTREAM_CHUNK % layer->heads == 0));
}

/* Makes room for what is between the parts of a call; it stays for later ones. */
static int reserve(struct layer_cuda *layer, const struct layer_call *call, struct error *err)
{
	struct layer_segment largest = segment_of(layer, call, 0, smaller(call->tokens, layer->segment));
	int64_t sequences = call->batch * largest.stretches, rows = call->batch * call->tokens;
	int64_t piece = is_fused(layer, call)
		? 0
		: sequences * (LAYER_HISTORY + smaller(largest.length, piece_length(sequences)));
	int64_t wide = sequences * largest.length * layer->width;
	bool in_place = takes_place_of_q(layer, call);
	size_t state = (size_t)layer->heads * (size_t)(layer->dim * layer->dim) * sizeof(*layer->state),
	       at = state;
	const struct {
		uint16_t **place;
		int64_t count;
	} parts[] = {
		{&layer->qkv[0], in_place ? 0 : wide},
		{&layer->qkv[1], wide},
		{&layer->qkv[2], wide},
		{&layer->narrow, rows * layer->dim},
		{&layer->o, layer->hidden == layer->width ? 0 : rows * layer->width},
		{&layer->x, piece * layer->hidden},
		{&layer->projected, piece * layer->columns},
	};
	size_t bytes = state;

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++)
		bytes += (size_t)parts[i].count * sizeof(uint16_t);
	if (gpu_workspace_reserve(layer->gpu, &layer->memory, bytes, err) < 0)
		return -1;
	layer->state = layer->memory.memory;
	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		*parts[i].place = (uint16_t *)((char *)layer->memory.memory + at);
		at += (size_t)parts[i].count * sizeof(uint16_t);
	}
	if (layer->hidden == layer->width)
		layer->o = call->out;
	layer->in_place = in_place;
	layer->y = layer->qkv[in_place]; /* q or k, of no use any more by then */
	layer->held = sequences * largest.length;
	return 0;
}

static uint16_t *q_of(const struct layer_cuda *layer, const struct layer_segment *segment)
{
	return layer->in_place ? layer->o + segment->first * layer->width : layer->qkv[0];
}

/* Where a segment's o belongs: from a token to the next, and from a head to the next. */
static struct tensor o_of(
	const struct layer_cuda *layer, const struct layer_call *call, int64_t first, int64_t outputs)
{
	struct tensor o = tensor_contiguous(
		layer->o + first * layer->width, DTYPE_BF16, call->tokens, layer->heads, layer->dim);

	if (layer->in_place && call->semantics == SEMANTICS_UPSTREAM) {
		o.stride[1] = layer->dim;
		o.stride[2] = outputs * layer->dim;
	}
	return o;
}

/* The part of a segment's stretches behind their first `at` tokens. */
static int project_piece(struct layer_cuda *layer, const struct layer_call *call,
	const struct layer_segment *segment, int64_t at, struct error *err)
{
	int64_t sequences = call->batch * segment->stretches;
	struct layer_segment piece = *segment;
	size_t offset = (size_t)at * (size_t)layer->width;
	int64_t rows, strips;
	int strip;
	struct layer_gather_arguments gather;
	struct layer_convolve_arguments convolve;

	piece.first += at * piece.stretches;
	piece.length = (int)smaller(segment->length - at, piece_length(sequences));
	rows = LAYER_HISTORY + piece.length;
	strip = sequences * piece.length < FEW_ROWS ? SHORT_STRIP_ROWS : STRIP_ROWS;
	strips = (piece.length + strip - 1) / strip;
	gather = (struct layer_gather_arguments){call->x, layer->x, piece, layer->hidden};
	convolve = (struct layer_convolve_arguments){
		.projected = layer->projected,
		.weight = layer->convolution,
		.q = q_of(layer, segment) + offset,
		.k = layer->qkv[1] + offset,
		.v = layer->qkv[2] + offset,
		.narrow = layer->narrow,
		.segment = piece,
		.held = segment->length,
		.strip = strip,
	};
	if (gpu_launch(layer->gather, blocks(rows * layer->hidden / GATHER_NUMBERS), (unsigned)sequences,
		    &gather, err) < 0 ||
		gpu_gemm_run(layer->multiply, (struct gpu_rows){layer->x, layer->hidden}, sequences * rows,
			(struct gpu_rows){layer->projected, layer->columns}, err) < 0)
		return -1;
	return gpu_launch(layer->convolve, blocks(strips * (layer->columns / STRIP_CHANNELS)),
		(unsigned)sequences, &convolve, err);
}

static int project_fused(struct layer_cuda *layer, const struct layer_call *call,
	const struct layer_segment *segment, struct error *err)
{
	struct layer_project_arguments project = {
		.x = call->x,
		.weight = layer->tiles,
		.taps = layer->convolution,
		.q = q_of(layer, segment),
		.k = layer->qkv[1],
		.v = layer->qkv[2],
		.narrow = layer->narrow,
		.segment = *segment,
		.sequences = (int)call->batch * segment->stretches,
	};

	return gpu_launch(
		layer->project, (unsigned)gpu_properties_of(layer->gpu)->multiprocessors, 1, &project, err);
}

/* x of a segment to q, k, v and the narrow gate. */
static int project(struct layer_cuda *layer, const struct layer_call *call,
	const struct layer_segment *segment, struct error *err)
{
	int64_t step = piece_length(call->batch * segment->stretches);
	int result = 0;

	if (is_fused(layer, call))
		return project_fused(layer, call, segment, err);
	for (int64_t at = 0; at < segment->length && !result; at += step)
		result = project_piece(layer, call, segment, at, err);
	return result;
}

/* Of so many tokens. */
static struct config configure(const struct layer_cuda *layer, const struct layer_call *call, int64_t tokens)
{
	const struct family *family = family_find("quasar");
	const struct op_shape shape = {.batch = call->batch,
		.tokens = tokens,
		.heads = layer->heads,
		.key_dim = layer->dim,
		.value_dim = layer->dim};
	const int options[FAMILY_OPTIONS] = {(int)call->semantics};
	const struct op_problem problem = family_problem(family, &shape, DTYPE_BF16, options);

	return tuned_or_usual(family, &problem, gpu_properties_of(layer->gpu));
}

/* The outputs of so many tokens from a segment's q, k and v; the state goes on to the next one. */
static int operate(struct layer_cuda *layer, const struct layer_call *call,
	const struct layer_segment *segment, int64_t outputs, struct error *err)
{
	int64_t held = (int64_t)segment->stretches * segment->length, first = segment->first;
	int64_t *first_row = xcalloc((size_t)layer->heads, sizeof(*first_row));
	const struct config config = configure(layer, call, outputs);
	struct quasar_problem problem = {
		.semantics = call->semantics,
		.batch = call->batch,
		.tokens = outputs,
		.heads = layer->heads,
		.dim = layer->dim,
		.q = tensor_contiguous(q_of(layer, segment), DTYPE_BF16, held, layer->heads, layer->dim),
		.k = tensor_contiguous(layer->qkv[1], DTYPE_BF16, held, layer->heads, layer->dim),
		.v = tensor_contiguous(layer->qkv[2], DTYPE_BF16, held, layer->heads, layer->dim),
		.o = o_of(layer, call, first, outputs),
		.beta = layer->beta,
		.initial_state = first ? layer->state : NULL,
		.final_state = first + outputs < call->tokens ? layer->state : NULL,
	};
	int result;

	/* where the stretches are just the heads' rows they are found without */
	if (segment->stretches > 1 && held != outputs)
		problem.first_row = first_row;
	for (int head = 0; head < layer->heads; head++)
		first_row[head] = head * (int64_t)segment->length * layer->heads +
			(head * segment->padded + first) % layer->heads;
	result = quasar_cuda(layer->gpu, &layer->workspace, &problem, &config, err);
	free(first_row);
	return result;
}

/* Blocks of layer_gate for each head: as many as run at a time, for each keeps its weights. */
static unsigned gate_blocks(const struct layer_cuda *layer, int64_t rows)
{
	int64_t resident = (int64_t)gpu_kernel_occupancy(layer->gate) *
		gpu_properties_of(layer->gpu)->multiprocessors / layer->heads;
	int64_t useful = (rows + LAYER_GATE_ROWS - 1) / LAYER_GATE_ROWS;

	return (unsigned)(resident < 1 ? 1 : smaller(resident, useful));
}

/* Norm, gate and output projection. */
static int finish(struct layer_cuda *layer, const struct layer_call *call, int64_t first, int64_t rows,
	struct error *err)
{
	const struct tensor o = o_of(layer, call, first, rows);
	struct layer_gate_arguments gate = {
		.o = o.data,
		.o_row = o.stride[1],
		.o_head = o.stride[2],
		.y = layer->y,
		.narrow = layer->narrow + first * layer->dim,
		.weight = layer->wide_gate,
		.bias = layer->gate_bias,
		.norm = layer->o_norm,
		.rows = rows,
		.heads = layer->heads,
		.epsilon = LAYER_EPSILON,
	};

	if (gpu_launch(layer->gate, gate_blocks(layer, rows), (unsigned)layer->heads, &gate, err) < 0)
		return -1;
	return gpu_gemm_run(layer->output, (struct gpu_rows){layer->y, layer->width}, rows,
		(struct gpu_rows){call->out + first * layer->hidden, layer->hidden}, err);
}

/* Sequences that go side by side: one, or several of which all is held at a time. */
static int run(struct layer_cuda *layer, const struct layer_call *call, struct error *err)
{
	int64_t rows = call->batch * call->tokens;
	int result = reserve(layer, call, err);

	for (int64_t first = 0; first < call->tokens && !result; first += layer->segment) {
		int64_t outputs = smaller(layer->segment, call->tokens - first);
		struct layer_segment segment = segment_of(layer, call, first, outputs);

		result = project(layer, call, &segment, err);
		if (!result)
			result = operate(layer, call, &segment, outputs, err);
	}
	for (int64_t first = 0; first < rows && !result; first += layer->held)
		result = finish(layer, call, first, smaller(layer->held, rows - first), err);
	return result;
}

int layer_cuda(struct layer_cuda *layer, const struct layer_call *call, struct error *err)
{
	int64_t step = call->tokens < layer->segment ? layer->segment / call->tokens : 1;
	int result = 0;

	if (call->cache)
		return error_set(err, STATUS_USAGE, "the layer has no cache on a GPU");
	for (int64_t first = 0; first < call->batch && !result; first += step) {
		int64_t numbers = first * call->tokens * layer->hidden;
		struct layer_call some = *call;

		some.batch = smaller(step, call->batch - first);
		some.x += numbers;
		some.out += numbers;
		result = run(layer, &some, err);
	}
	return result;
}
