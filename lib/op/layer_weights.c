/* The weights of a layer: random, or from a file. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "op/layer.h"
#include "op/random.h"

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

void layer_free(struct layer *layer)
{
	if (layer)
		free(layer->q_proj); /* the first parameter: where the one block of memory starts */
	free(layer);
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
	return layer;
}
