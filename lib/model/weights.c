#include "model/weights.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "cpu/cpu.h"
#include "model/kernel.h"

#define SINGLE "model.safetensors"
#define INDEX "model.safetensors.index.json"
#define LARGEST_INDEX ((size_t)64 << 20)
#define MOST_FILES 4096

struct weights_file {
	char *name; /* in the folder */
	struct safetensors *file;
};

/* The opening of a model's weights. */
struct opening {
	const char *folder;
	cJSON *index;        /* NULL: there is one file */
	const cJSON *places; /* tensor: file; of the index */
	struct model_weights *weights;
};

/* --- files --------------------------------------------------------------------------------------- */

static int open_file(struct opening *opening, const char *name, struct safetensors **file, struct error *err)
{
	struct model_weights *weights = opening->weights;
	char *path;

	for (size_t i = 0; i < weights->file_count; i++)
		if (!strcmp(weights->files[i].name, name)) {
			*file = weights->files[i].file;
			return 0;
		}
	if (weights->file_count == MOST_FILES)
		return error_set(
			err, STATUS_ENVIRONMENT, "%s/" INDEX " names too many files", opening->folder);
	path = path_join(opening->folder, name);
	*file = safetensors_open(path, err);
	free(path);
	if (!*file)
		return -1;
	if (safetensors_map(*file, err) < 0) {
		safetensors_close(*file);
		return -1;
	}
	weights->files = xrealloc(weights->files, (weights->file_count + 1) * sizeof(*weights->files));
	weights->files[weights->file_count++] = (struct weights_file){xstrdup(name), *file};
	return 0;
}

static int read_index(struct opening *opening, const char *path, struct error *err)
{
	struct buffer text = {0};
	int result = file_read(path, LARGEST_INDEX, &text, err);

	if (!result) {
		opening->index = json_parse(text.data, text.length, err);
		result = opening->index
			? json_object(opening->index, "weight_map", JSON_REQUIRED, &opening->places, err)
			: -1;
		if (result) {
			error_context(err, "%s", path);
			err->status = STATUS_ENVIRONMENT;
		}
	}
	buffer_free(&text);
	return result;
}

/* Like transformers: one file, if it is there, is all of it. */
static int find_files(struct opening *opening, struct error *err)
{
	char *single = path_join(opening->folder, SINGLE), *index = path_join(opening->folder, INDEX);
	int result = 0;

	if (path_exists(single))
		opening->index = NULL;
	else if (path_exists(index))
		result = read_index(opening, index, err);
	else
		result = error_set(
			err, STATUS_ENVIRONMENT, "%s has neither " SINGLE " nor " INDEX, opening->folder);
	free(single);
	free(index);
	return result;
}

/* The file that holds a tensor. An index names files of its own folder only. */
static int file_of(struct opening *opening, const char *tensor, struct safetensors **file, struct error *err)
{
	const char *name;

	if (!opening->index)
		return open_file(opening, SINGLE, file, err);
	if (json_string(opening->places, tensor, JSON_REQUIRED, &name, err) < 0)
		return error_set(err, STATUS_ENVIRONMENT, "%s/" INDEX " has no tensor \"%s\"",
			opening->folder, tensor);
	if (strchr(name, '/') || name[0] == '.') {
		error_set(err, STATUS_ENVIRONMENT,
			"%s/" INDEX " has tensor \"%s\" in \"%.100s\", which is no file beside it",
			opening->folder, tensor, name);
		text_clean(err->message);
		return -1;
	}
	return open_file(opening, name, file, err);
}

/* --- tensors ------------------------------------------------------------------------------------- */

/* Pieces of a tensor that threads look through. */
#define PIECE ((size_t)1 << 20)

static bool all_finite(const struct safetensors_tensor *tensor)
{
	const struct model_kernel *kernel = model_kernel();
	const char *data = tensor->data;
	size_t size = dtype_size(tensor->dtype);
	bool finite = true;

#pragma omp parallel for num_threads(cpu_threads()) schedule(dynamic, 1) reduction(&& : finite)
	for (size_t first = 0; first < tensor->count; first += PIECE) {
		size_t left = tensor->count - first;

		finite = finite &&
			kernel->all_finite(data + first * size, tensor->dtype, left < PIECE ? left : PIECE);
	}
	return finite;
}

/* A tensor of that shape; `columns` 0: of one axis. */
static int find_tensor(struct opening *opening, const char *name, int rows, int columns,
	struct safetensors_tensor *tensor, struct error *err)
{
	struct safetensors *file;
	int axes = columns ? 2 : 1;

	if (interrupted())
		return error_set(err, STATUS_INTERRUPTED, "interrupted");
	if (file_of(opening, name, &file, err) < 0 || safetensors_find(file, name, tensor, err) < 0)
		return -1;
	if (tensor->axes != axes || tensor->shape[0] != rows || tensor->shape[1] != columns)
		return columns
			? error_set(err, STATUS_ENVIRONMENT,
				  "tensor \"%s\" of %s should be [%d, %d], but is [%lld, %lld]%s", name,
				  opening->folder, rows, columns, (long long)tensor->shape[0],
				  (long long)tensor->shape[1], tensor->axes > 2 ? " and more" : "")
			: error_set(err, STATUS_ENVIRONMENT,
				  "tensor \"%s\" of %s should be [%d], but has %d dimensions, the first of %lld",
				  name, opening->folder, rows, tensor->axes, (long long)tensor->shape[0]);
	if ((uintptr_t)tensor->data % dtype_size(tensor->dtype)) {
		error_set(err, STATUS_ENVIRONMENT, "tensor \"%s\" of %s is not aligned in its file", name,
			opening->folder);
		return error_hint(err, "Save the model again with a current version of safetensors.");
	}
	if (!all_finite(tensor))
		return error_set(err, STATUS_ENVIRONMENT,
			"tensor \"%s\" of %s has numbers that are not finite (NaN or infinity)", name,
			opening->folder);
	opening->weights->parameters += (int64_t)tensor->count;
	opening->weights->bytes += tensor->count * dtype_size(tensor->dtype);
	return 0;
}

static int take_matrix(struct opening *opening, struct matrix *matrix, int rows, int columns,
	struct error *err, const char *name)
{
	struct safetensors_tensor tensor;

	if (find_tensor(opening, name, rows, columns, &tensor, err) < 0)
		return -1;
	*matrix = (struct matrix){tensor.data, tensor.dtype, rows, columns};
	return 0;
}

static int take_vector(
	struct opening *opening, const float **vector, int count, struct error *err, const char *name)
{
	struct model_weights *weights = opening->weights;
	struct safetensors_tensor tensor;
	float *copy;

	if (find_tensor(opening, name, count, 0, &tensor, err) < 0)
		return -1;
	copy = xmalloc((size_t)count * sizeof(*copy));
	model_kernel()->widen(tensor.data, tensor.dtype, tensor.count, copy);
	weights->vectors = xrealloc(
		weights->vectors, (weights->vector_count + 1) * sizeof(*weights->vectors));
	weights->vectors[weights->vector_count++] = copy;
	*vector = copy;
	return 0;
}

/* --- layers -------------------------------------------------------------------------------------- */

static int take_linear(struct opening *opening, struct linear *linear, int rows, int columns, bool bias,
	struct error *err, int layer, const char *part)
{
	char weight[96], added[96];

	snprintf(weight, sizeof(weight), "model.layers.%d.%s.weight", layer, part);
	snprintf(added, sizeof(added), "model.layers.%d.%s.bias", layer, part);
	return take_matrix(opening, &linear->weight, rows, columns, err, weight) < 0 ||
			(bias && take_vector(opening, &linear->bias, rows, err, added) < 0)
		? -1
		: 0;
}

static int take_norm(struct opening *opening, const float **norm, int count, struct error *err, int layer,
	const char *part)
{
	char name[96];

	snprintf(name, sizeof(name), "model.layers.%d.%s.weight", layer, part);
	return take_vector(opening, norm, count, err, name);
}

static int take_layer(
	struct opening *opening, const struct model_config *config, int index, struct error *err)
{
	struct model_layer *layer = &opening->weights->layers[index];
	int hidden = config->hidden, wide = config->heads * config->head_dim,
	    narrow = config->kv_heads * config->head_dim, inner = config->intermediate;
	const struct {
		const char *part;
		struct linear *linear;
		int rows, columns;
		bool bias;
	} linears[] = {
		{"self_attn.q_proj", &layer->q, wide, hidden, config->qkv_bias},
		{"self_attn.k_proj", &layer->k, narrow, hidden, config->qkv_bias},
		{"self_attn.v_proj", &layer->v, narrow, hidden, config->qkv_bias},
		{"self_attn.o_proj", &layer->o, hidden, wide, config->o_bias},
		{"mlp.gate_proj", &layer->gate, inner, hidden, config->mlp_bias},
		{"mlp.up_proj", &layer->up, inner, hidden, config->mlp_bias},
		{"mlp.down_proj", &layer->down, hidden, inner, config->mlp_bias},
	};

	for (size_t i = 0; i < sizeof(linears) / sizeof(*linears); i++)
		if (take_linear(opening, linears[i].linear, linears[i].rows, linears[i].columns,
			    linears[i].bias, err, index, linears[i].part) < 0)
			return -1;
	if (take_norm(opening, &layer->attention_norm, hidden, err, index, "input_layernorm") < 0 ||
		take_norm(opening, &layer->mlp_norm, hidden, err, index, "post_attention_layernorm") < 0)
		return -1;
	if (!config->head_norms)
		return 0;
	return take_norm(opening, &layer->q_norm, config->head_dim, err, index, "self_attn.q_norm") < 0 ||
			take_norm(opening, &layer->k_norm, config->head_dim, err, index, "self_attn.k_norm") <
				0
		? -1
		: 0;
}

static int take_all(struct opening *opening, const struct model_config *config, struct error *err)
{
	struct model_weights *weights = opening->weights;

	if (take_matrix(opening, &weights->embedding, config->vocabulary, config->hidden, err,
		    "model.embed_tokens.weight") < 0)
		return -1;
	weights->output = weights->embedding;
	if (!config->tied &&
		take_matrix(opening, &weights->output, config->vocabulary, config->hidden, err,
			"lm_head.weight") < 0)
		return -1;
	if (take_vector(opening, &weights->norm, config->hidden, err, "model.norm.weight") < 0)
		return -1;
	weights->layers = xcalloc((size_t)config->layers, sizeof(*weights->layers));
	for (int i = 0; i < config->layers; i++)
		if (take_layer(opening, config, i, err) < 0)
			return -1;
	return 0;
}

int model_weights_open(const char *folder, const struct model_config *config, struct model_weights *weights,
	struct error *err)
{
	struct opening opening = {.folder = folder, .weights = weights};
	int result;

	*weights = (struct model_weights){0};
	result = find_files(&opening, err);
	if (!result)
		result = take_all(&opening, config, err);
	cJSON_Delete(opening.index);
	return result;
}

void model_weights_free(struct model_weights *weights)
{
	for (size_t i = 0; i < weights->file_count; i++) {
		safetensors_close(weights->files[i].file);
		free(weights->files[i].name);
	}
	for (size_t i = 0; i < weights->vector_count; i++)
		free(weights->vectors[i]);
	free(weights->files);
	free(weights->vectors);
	free(weights->layers);
	*weights = (struct model_weights){0};
}
