#include "layer/cuda.h"

#include <stdlib.h>

#include "base/memory.h"
#include "gpu/gemm.h"
#include "kernels/layer/arguments.h"
#include "kernels/layer/layout.h"
#include "tensor/dtype.h"
#include "op/quasar/cuda.h"

/* Rows that go through the projections, or through gate and output, at a time. Fewer cost time
 * at each beginning and end, more cost memory: 5 KiB a row. */
#define SEGMENT 262144

#define WEIGHTS 7

struct layer_cuda {
	struct gpu *gpu;
	struct gpu_blas *blas;
	int hidden, heads, dim, width, columns; /* width: heads · dim; columns: what x is projected to */
	void *weights[WEIGHTS];
	int weight_count;
	const float *convolution, *beta, *o_norm;
	const void *wide_gate, *gate_bias;
	struct gpu_gemm *project, *output; /* x to q, k, v and the narrow gate; y to out */
	struct gpu_kernel *gather, *convolve, *gate;
	struct gpu_workspace workspace;
	void *memory;                       /* of the tensors below */
	int64_t rows;                       /* for which there is room */
	size_t segment;                     /* of them at a time */
	uint16_t *x, *projected, *y;        /* of a segment */
	uint16_t *qkv[3], *narrow_gate, *o; /* of all rows */
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
	void *projection, *wide_gate, *gate_bias, *output, *convolution, *beta, *o_norm;

	/* q, k and v are one matrix in memory */
	if (place_bf16(on_gpu, layer->q_proj, 3 * width * hidden, layer->g_proj_0, dim * hidden, &projection,
		    err) < 0 ||
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
	on_gpu->project = gpu_gemm_make(on_gpu->blas, projection, on_gpu->columns, layer->hidden, err);
	on_gpu->output = gpu_gemm_make(on_gpu->blas, output, layer->hidden, on_gpu->width, err);
	return on_gpu->project && on_gpu->output ? 0 : -1;
}

static int find_kernels(struct layer_cuda *layer, struct error *err)
{
	struct kernel_parameter parameters[] = {{"HEAD_DIM", layer->dim}, {"WIDTH", layer->width},
		{"INPUT", DTYPE_BF16}, {"VECTOR", 1}, {"FROM_F32", 1}, {0}};

	layer->gather = gpu_kernel(
		layer->gpu, "layer/gather.cu", "layer_gather", parameters, LAYER_THREADS, 0, err);
	layer->convolve = gpu_kernel(
		layer->gpu, "layer/convolve.cu", "layer_convolve", parameters, LAYER_THREADS, 0, err);
	layer->gate = gpu_kernel(
		layer->gpu, "layer/gate.cu", "layer_gate", parameters, LAYER_THREADS, 0, err);
	return layer->gather && layer->convolve && layer->gate ? 0 : -1;
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
	};
	on_gpu->blas = gpu_blas_open(gpu, err);
	if (on_gpu->blas && place_weights(on_gpu, layer, err) == 0 && find_kernels(on_gpu, err) == 0)
		return on_gpu;
	layer_cuda_free(on_gpu);
	return NULL;
}

void layer_cuda_free(struct layer_cuda *layer)
{
	if (!layer)
		return;
	gpu_gemm_free(layer->project);
	gpu_gemm_free(layer->output);
	gpu_blas_close(layer->blas);
	gpu_workspace_free(layer->gpu, &layer->workspace);
	gpu_release(layer->gpu, layer->memory);
	while (layer->weight_count)
		gpu_release(layer->gpu, layer->weights[--layer->weight_count]);
	free(layer);
}

/* --- a call ----------------------------------------------------------------------------------------- */

/* Tokens of each sequence that are projected at a time. */
static int64_t tokens_at_a_time(const struct layer_call *call)
{
	int64_t tokens = SEGMENT / call->batch - LAYER_HISTORY;

	return tokens < 1 ? 1 : tokens < call->tokens ? tokens : call->tokens;
}

/* Makes room for the tensors between the parts, which stays for later calls. */
static int reserve(struct layer_cuda *layer, const struct layer_call *call, struct error *err)
{
	int64_t needed = call->batch * call->tokens, rows = needed > layer->rows ? needed : layer->rows;
	size_t width = (size_t)layer->width;
	size_t piece = (size_t)(call->batch * (LAYER_HISTORY + tokens_at_a_time(call)));
	size_t segment = piece > layer->segment ? piece : layer->segment;
	size_t whole = (size_t)rows,
	       segments = segment * (size_t)(layer->hidden + layer->columns + layer->width);
	uint16_t *next;

	if (rows == layer->rows && segment == layer->segment)
		return 0;
	gpu_release(layer->gpu, layer->memory);
	layer->rows = 0;
	layer->segment = 0;
	layer->memory = next = gpu_allocate(
		layer->gpu, (segments + whole * (4 * width + (size_t)layer->dim)) * sizeof(*next), err);
	if (!next)
		return -1;
	layer->rows = rows;
	layer->segment = segment;
	layer->x = next;
	layer->projected = layer->x + segment * (size_t)layer->hidden;
	layer->y = layer->projected + segment * (size_t)layer->columns;
	next = layer->y + segment * width;
	for (int i = 0; i < 3; i++, next += whole * width)
		layer->qkv[i] = next;
	layer->o = next;
	layer->narrow_gate = layer->o + whole * width;
	return 0;
}

static unsigned blocks(int64_t threads)
{
	return (unsigned)((threads + LAYER_THREADS - 1) / LAYER_THREADS);
}

/* x of some tokens of every sequence, and of those before them that the convolutions look back at, to q, k, v
 * and the narrow gate. */
static int project(struct layer_cuda *layer, const struct layer_call *call, int64_t first, int64_t tokens,
	struct error *err)
{
	const struct layer_segment segment = {.tokens = call->tokens,
		.padded = call->tokens,
		.first = first,
		.stretches = 1,
		.length = (int)tokens};
	size_t at = (size_t)first * (size_t)layer->width;
	int64_t rows = LAYER_HISTORY + tokens, strips = (tokens + STRIP_ROWS - 1) / STRIP_ROWS;
	struct layer_gather_arguments gather = {call->x, layer->x, segment, layer->hidden};
	struct layer_convolve_arguments convolve = {
		.projected = layer->projected,
		.weight = layer->convolution,
		.q = layer->qkv[0] + at,
		.k = layer->qkv[1] + at,
		.v = layer->qkv[2] + at,
		.narrow = layer->narrow_gate,
		.segment = segment,
		.held = (int)call->tokens,
	};
	unsigned sequences = (unsigned)call->batch;

	if (gpu_launch(layer->gather, blocks(rows * layer->hidden / GATHER_NUMBERS), sequences, &gather,
		    err) < 0 ||
		gpu_gemm_run(layer->project, (struct gpu_rows){layer->x, layer->hidden}, call->batch * rows,
			(struct gpu_rows){layer->projected, layer->columns}, err) < 0)
		return -1;
	return gpu_launch(layer->convolve, blocks(strips * (layer->columns / STRIP_CHANNELS)), sequences,
		&convolve, err);
}

static int operate(struct layer_cuda *layer, const struct layer_call *call, struct error *err)
{
	struct tensor tensors[4];
	struct quasar_problem problem;

	for (int i = 0; i < 4; i++)
		tensors[i] = tensor_contiguous(
			i < 3 ? layer->qkv[i] : layer->o, DTYPE_BF16, call->tokens, layer->heads, layer->dim);
	problem = (struct quasar_problem){
		.semantics = call->semantics,
		.batch = call->batch,
		.tokens = call->tokens,
		.heads = layer->heads,
		.dim = layer->dim,
		.q = tensors[0],
		.k = tensors[1],
		.v = tensors[2],
		.o = tensors[3],
		.beta = layer->beta,
	};
	return quasar_cuda(layer->gpu, &layer->workspace, &problem, NULL, err);
}

/* Blocks of layer_gate for each head: as many as run at a time, for each keeps its weights. */
static unsigned gate_blocks(const struct layer_cuda *layer, int64_t rows)
{
	int64_t resident = (int64_t)gpu_kernel_occupancy(layer->gate) *
		gpu_properties_of(layer->gpu)->multiprocessors / layer->heads;
	int64_t useful = (rows + LAYER_GATE_ROWS - 1) / LAYER_GATE_ROWS;

	return (unsigned)(resident < 1 ? 1 : resident < useful ? resident : useful);
}

/* Norm, gate and output projection. */
static int finish(struct layer_cuda *layer, const struct layer_call *call, int64_t first, int64_t rows,
	struct error *err)
{
	struct layer_gate_arguments gate = {
		.o = layer->o + first * layer->width,
		.y = layer->y,
		.narrow = layer->narrow_gate + first * layer->dim,
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

int layer_cuda(struct layer_cuda *layer, const struct layer_call *call, struct error *err)
{
	int64_t rows = call->batch * call->tokens, step = tokens_at_a_time(call);
	int result = 0;

	if (call->cache)
		return error_set(err, STATUS_USAGE, "the layer has no cache on a GPU");
	if (reserve(layer, call, err) < 0)
		return -1;
	for (int64_t first = 0; first < call->tokens && !result; first += step)
		result = project(
			layer, call, first, call->tokens - first < step ? call->tokens - first : step, err);
	if (!result)
		result = operate(layer, call, err);
	step = (int64_t)layer->segment;
	for (int64_t first = 0; first < rows && !result; first += step)
		result = finish(layer, call, first, rows - first < step ? rows - first : step, err);
	return result;
}
