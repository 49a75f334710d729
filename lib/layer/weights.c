/* The weights of a layer: random, or from a file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layer.h"
#include "tensor/random.h"
#include "tensor/safetensors.h"

struct parameter {
	const char *name; /* in a state dict */
	float **data;
	int64_t shape[3]; /* 0: no such dimension */
	size_t count;
	int inputs; /* what an output depends on, which bounds the random weights; 0: not one of those */
};

#define PARAMETERS 12

/* All parameters, in the order in which they stand in memory. */
static void list_parameters(struct layer *layer, struct parameter list[PARAMETERS])
{
	int width = layer->heads * layer->dim, hidden = layer->hidden, dim = layer->dim;
	const struct parameter all[PARAMETERS] = {
		{"q_proj.weight", &layer->q_proj, {width, hidden}, 0, hidden},
		{"k_proj.weight", &layer->k_proj, {width, hidden}, 0, hidden},
		{"v_proj.weight", &layer->v_proj, {width, hidden}, 0, hidden},
		{"q_conv1d.weight", &layer->q_conv1d, {width, 1, LAYER_CONVOLUTION}, 0, LAYER_CONVOLUTION},
		{"k_conv1d.weight", &layer->k_conv1d, {width, 1, LAYER_CONVOLUTION}, 0, LAYER_CONVOLUTION},
		{"v_conv1d.weight", &layer->v_conv1d, {width, 1, LAYER_CONVOLUTION}, 0, LAYER_CONVOLUTION},
		{"beta_log", &layer->beta_log, {layer->heads}, 0, 0},
		{"g_proj.0.weight", &layer->g_proj_0, {dim, hidden}, 0, hidden},
		{"g_proj.1.weight", &layer->g_proj_1, {width, dim}, 0, dim},
		{"g_proj.1.bias", &layer->g_proj_1_bias, {width}, 0, dim},
		{"o_norm.weight", &layer->o_norm, {dim}, 0, 0},
		{"o_proj.weight", &layer->o_proj, {hidden, width}, 0, width},
	};

	memcpy(list, all, sizeof(all));
	for (int i = 0; i < PARAMETERS; i++) {
		list[i].count = 1;
		for (int axis = 0; axis < 3 && list[i].shape[axis]; axis++)
			list[i].count *= (size_t)list[i].shape[axis];
	}
}

float *layer_parameter(struct layer *layer, int index, const char **name, size_t *count)
{
	struct parameter list[PARAMETERS];

	if (index >= PARAMETERS)
		return NULL;
	list_parameters(layer, list);
	*name = list[index].name;
	*count = list[index].count;
	return *list[index].data;
}

static struct layer *layer_allocate(int hidden, int heads, int dim, struct error *err)
{
	struct layer *layer = calloc(1, sizeof(*layer));
	struct parameter list[PARAMETERS];
	size_t total = 0;
	float *memory = NULL;

	if (layer) {
		*layer = (struct layer){.hidden = hidden, .heads = heads, .dim = dim};
		list_parameters(layer, list);
		for (int i = 0; i < PARAMETERS; i++)
			total += list[i].count;
		memory = malloc(total * sizeof(*memory));
	}
	if (!memory) {
		error_set(err, STATUS_ENVIRONMENT, "not enough memory for the weights of a layer");
		free(layer);
		return NULL;
	}
	for (int i = 0; i < PARAMETERS; i++) {
		*list[i].data = memory;
		memory += list[i].count;
	}
	return layer;
}

static void forget_prepared(struct layer *layer)
{
	product_free(&layer->qkv);
	product_free(&layer->narrow_gate);
	product_free(&layer->wide_gate);
	product_free(&layer->output);
	free(layer->convolution);
	free(layer->beta);
	layer->convolution = layer->beta = NULL;
}

void layer_free(struct layer *layer)
{
	if (!layer)
		return;
	forget_prepared(layer);
	free(layer->q_proj); /* the first parameter: where the one block of memory starts */
	free(layer);
}

int layer_prepare(struct layer *layer, struct error *err)
{
	const float *convolutions[] = {layer->q_conv1d, layer->k_conv1d, layer->v_conv1d};
	int width = layer->heads * layer->dim;

	forget_prepared(layer);
	layer->convolution = malloc((size_t)(3 * LAYER_CONVOLUTION * width) * sizeof(float));
	layer->beta = malloc((size_t)layer->heads * sizeof(float));
	if (!layer->convolution || !layer->beta)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for the weights of a layer");
	for (int i = 0; i < 3; i++)
		for (int channel = 0; channel < width; channel++)
			for (int tap = 0; tap < LAYER_CONVOLUTION; tap++)
				layer->convolution[(i * LAYER_CONVOLUTION + tap) * width + channel] =
					convolutions[i][channel * LAYER_CONVOLUTION + tap];
	for (int i = 0; i < layer->heads; i++)
		layer->beta[i] = log1pf(expf(layer->beta_log[i]));
	if (product_make(&layer->qkv, layer->q_proj, NULL, 3 * width, layer->hidden, err) < 0 ||
		product_make(&layer->narrow_gate, layer->g_proj_0, NULL, layer->dim, layer->hidden, err) <
			0 ||
		product_make(&layer->wide_gate, layer->g_proj_1, layer->g_proj_1_bias, width, layer->dim,
			err) < 0 ||
		product_make(&layer->output, layer->o_proj, NULL, layer->hidden, width, err) < 0)
		return -1;
	return 0;
}

/* The layer itself, or NULL, freed, when it cannot be prepared. */
static struct layer *prepared(struct layer *layer, struct error *err)
{
	if (layer_prepare(layer, err) == 0)
		return layer;
	layer_free(layer);
	return NULL;
}

struct layer *layer_random(int hidden, int heads, int dim, uint64_t seed, struct error *err)
{
	struct layer *layer = layer_allocate(hidden, heads, dim, err);
	struct parameter list[PARAMETERS];

	if (!layer)
		return NULL;
	list_parameters(layer, list);
	for (int i = 0; i < PARAMETERS; i++) {
		float bound = list[i].inputs ? 1 / sqrtf((float)list[i].inputs) : 0; /* torch's default */

		random_uniform(seed, (uint64_t)i, -bound, bound, *list[i].data, list[i].count);
	}
	random_uniform(seed, PARAMETERS, 1, 16, layer->beta_log, (size_t)heads);
	for (int i = 0; i < heads; i++)
		layer->beta_log[i] = logf(layer->beta_log[i]);
	for (int i = 0; i < dim; i++)
		layer->o_norm[i] = 1;
	return prepared(layer, err);
}

/* --- from a file --------------------------------------------------------------------------------- */

/* The layer's sizes, from the two tensors that tell them. */
static int read_sizes(const struct safetensors *file, struct layer *sizes, struct error *err)
{
	struct safetensors_tensor q_proj, beta_log;
	const int64_t *projection = q_proj.shape, *beta = beta_log.shape;
	int64_t dim;

	if (safetensors_find(file, "q_proj.weight", &q_proj, err) < 0 ||
		safetensors_find(file, "beta_log", &beta_log, err) < 0)
		return -1;
	dim = beta[0] > 0 ? projection[0] / beta[0] : 0;
	if (projection[0] > 1 << 20 || projection[1] < 16 || projection[1] > 1 << 20 || projection[1] % 16 ||
		projection[0] != dim * beta[0] || (dim != 32 && dim != 64 && dim != 128))
		return error_set(err, STATUS_ENVIRONMENT,
			"q_proj.weight [%lld, %lld] and beta_log [%lld] are not those of a layer with heads of "
			"32, 64 or 128",
			(long long)projection[0], (long long)projection[1], (long long)beta[0]);
	*sizes = (struct layer){.hidden = (int)projection[1], .heads = (int)beta[0], .dim = (int)dim};
	return 0;
}

static int read_parameter(
	const struct safetensors *file, const struct parameter *parameter, struct error *err)
{
	struct safetensors_tensor tensor;
	const int64_t *shape = tensor.shape;

	if (safetensors_find(file, parameter->name, &tensor, err) < 0)
		return -1;
	if (memcmp(shape, parameter->shape, sizeof(parameter->shape)) || tensor.axes > 3)
		return error_set(err, STATUS_ENVIRONMENT,
			"tensor \"%s\" is [%lld, %lld, %lld] where the layer needs [%lld, %lld, %lld]",
			parameter->name, (long long)shape[0], (long long)shape[1], (long long)shape[2],
			(long long)parameter->shape[0], (long long)parameter->shape[1],
			(long long)parameter->shape[2]);
	return safetensors_read(file, parameter->name, *parameter->data, parameter->count, err);
}

struct layer *layer_load(const char *path, struct error *err)
{
	struct safetensors *file = safetensors_open(path, err);
	struct parameter list[PARAMETERS];
	struct layer sizes = {0}, *layer = NULL;

	if (file && read_sizes(file, &sizes, err) == 0)
		layer = layer_allocate(sizes.hidden, sizes.heads, sizes.dim, err);
	if (layer)
		list_parameters(layer, list);
	for (int i = 0; i < PARAMETERS && layer; i++) {
		if (read_parameter(file, &list[i], err) == 0)
			continue;
		layer_free(layer);
		layer = NULL;
	}
	safetensors_close(file);
	return layer ? prepared(layer, err) : NULL;
}
