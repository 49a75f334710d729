/* random_model: a folder with a model of any shape and random weights, as Hugging Face's tools write it. For tests and
 * measurements. */
#pragma once

#include <cjson/cJSON.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "tensor/dtype.h"
#include "tensor/random.h"

struct random_model {
	const char *type; /* "qwen2", "qwen3" or "llama" */
	int vocabulary, hidden, layers, heads, kv_heads, head_dim, intermediate, context;
	bool tied;
	enum dtype dtype;
};

/* Of Qwen2.5-0.5B. */
static const struct random_model model_half_billion = {
	"qwen2", 151936, 896, 24, 14, 2, 64, 4864, 32768, true, DTYPE_BF16};

struct random_tensor {
	char name[96];
	int rows, columns; /* columns 0: one axis */
	size_t count;
};

struct random_tensors {
	struct random_tensor list[4096];
	int count;
};

static inline void random_tensor_add(struct random_tensors *tensors, int rows, int columns, const char *name)
{
	struct random_tensor *tensor = &tensors->list[tensors->count++];

	*tensor = (struct random_tensor){
		.rows = rows, .columns = columns, .count = (size_t)rows * (size_t)(columns ? columns : 1)};
	snprintf(tensor->name, sizeof(tensor->name), "%s", name);
}

static inline void random_tensors_of_layer(
	const struct random_model *model, struct random_tensors *tensors, int layer)
{
	const int hidden = model->hidden, inner = model->intermediate, wide = model->heads * model->head_dim,
		  narrow = model->kv_heads * model->head_dim;
	const bool bias = !strcmp(model->type, "qwen2"), norms = !strcmp(model->type, "qwen3");
	const struct {
		const char *part;
		int rows, columns;
		bool there;
	} parts[] = {
		{"input_layernorm.weight", hidden, 0, true},
		{"post_attention_layernorm.weight", hidden, 0, true},
		{"self_attn.q_proj.weight", wide, hidden, true},
		{"self_attn.k_proj.weight", narrow, hidden, true},
		{"self_attn.v_proj.weight", narrow, hidden, true},
		{"self_attn.o_proj.weight", hidden, wide, true},
		{"self_attn.q_proj.bias", wide, 0, bias},
		{"self_attn.k_proj.bias", narrow, 0, bias},
		{"self_attn.v_proj.bias", narrow, 0, bias},
		{"self_attn.q_norm.weight", model->head_dim, 0, norms},
		{"self_attn.k_norm.weight", model->head_dim, 0, norms},
		{"mlp.gate_proj.weight", inner, hidden, true},
		{"mlp.up_proj.weight", inner, hidden, true},
		{"mlp.down_proj.weight", hidden, inner, true},
	};

	for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
		char name[96];

		snprintf(name, sizeof(name), "model.layers.%d.%s", layer, parts[i].part);
		if (parts[i].there)
			random_tensor_add(tensors, parts[i].rows, parts[i].columns, name);
	}
}

static inline void random_tensors_of(const struct random_model *model, struct random_tensors *tensors)
{
	tensors->count = 0;
	random_tensor_add(tensors, model->vocabulary, model->hidden, "model.embed_tokens.weight");
	random_tensor_add(tensors, model->hidden, 0, "model.norm.weight");
	if (!model->tied)
		random_tensor_add(tensors, model->vocabulary, model->hidden, "lm_head.weight");
	for (int i = 0; i < model->layers; i++)
		random_tensors_of_layer(model, tensors, i);
}

/* {"name": {"dtype", "shape", "data_offsets"}, …}, padded to a multiple of 64 bytes with its length. */
static inline char *random_model_header(
	const struct random_model *model, const struct random_tensors *tensors)
{
	static const char *const names[] = {[DTYPE_F32] = "F32", [DTYPE_BF16] = "BF16", [DTYPE_F16] = "F16"};
	cJSON *header = cJSON_CreateObject();
	size_t at = 0;
	char *text, *padded;

	for (int i = 0; i < tensors->count; i++) {
		const struct random_tensor *tensor = &tensors->list[i];
		cJSON *entry = cJSON_AddObjectToObject(header, tensor->name), *shape, *offsets;

		cJSON_AddStringToObject(entry, "dtype", names[model->dtype]);
		shape = cJSON_AddArrayToObject(entry, "shape");
		cJSON_AddItemToArray(shape, cJSON_CreateNumber(tensor->rows));
		if (tensor->columns)
			cJSON_AddItemToArray(shape, cJSON_CreateNumber(tensor->columns));
		offsets = cJSON_AddArrayToObject(entry, "data_offsets");
		cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)at));
		at += tensor->count * dtype_size(model->dtype);
		cJSON_AddItemToArray(offsets, cJSON_CreateNumber((double)at));
	}
	text = cJSON_PrintUnformatted(header);
	padded = xprintf("%s%*s", text, (int)(63 - (strlen(text) + 7) % 64), "");
	free(text);
	cJSON_Delete(header);
	return padded;
}

/* Norms around 1; the rest evenly distributed, so that sums keep their size. */
static inline void random_tensor_fill(const struct random_model *model, const struct random_tensor *tensor,
	uint64_t seed, int stream, void *out)
{
	float bound = sqrtf(3.0f / (float)(tensor->columns ? tensor->columns : 100));
	float centre = strstr(tensor->name, "norm") ? 1 : 0;
	float *numbers = malloc(tensor->count * sizeof(*numbers));

	random_uniform(seed, (uint64_t)stream, centre - bound, centre + bound, numbers, tensor->count);
	for (size_t i = 0; i < tensor->count; i++)
		dtype_store(out, model->dtype, (int64_t)i, numbers[i]);
	free(numbers);
}

static inline void random_model_config(const struct random_model *model, const char *folder)
{
	cJSON *config = cJSON_CreateObject();
	char *path = xprintf("%s/config.json", folder), *text;
	FILE *file = fopen(path, "w");

	cJSON_AddStringToObject(config, "model_type", model->type);
	cJSON_AddNumberToObject(config, "vocab_size", model->vocabulary);
	cJSON_AddNumberToObject(config, "hidden_size", model->hidden);
	cJSON_AddNumberToObject(config, "num_hidden_layers", model->layers);
	cJSON_AddNumberToObject(config, "num_attention_heads", model->heads);
	cJSON_AddNumberToObject(config, "num_key_value_heads", model->kv_heads);
	cJSON_AddNumberToObject(config, "head_dim", model->head_dim);
	cJSON_AddNumberToObject(config, "intermediate_size", model->intermediate);
	cJSON_AddNumberToObject(config, "max_position_embeddings", model->context);
	cJSON_AddNumberToObject(config, "rope_theta", 1e6);
	cJSON_AddNumberToObject(config, "rms_norm_eps", 1e-6);
	cJSON_AddBoolToObject(config, "tie_word_embeddings", model->tied);
	text = cJSON_Print(config);
	fputs(text, file);
	fclose(file);
	free(text);
	free(path);
	cJSON_Delete(config);
}

/* Writes config.json and model.safetensors into a folder that is there. -1 when that fails. */
static inline int random_model_write(const struct random_model *model, const char *folder, uint64_t seed)
{
	struct random_tensors *tensors = xmalloc(sizeof(*tensors));
	char *path = xprintf("%s/model.safetensors", folder), *header;
	uint64_t length;
	FILE *file;
	int result;

	remove(path); /* which may be mapped */
	file = fopen(path, "wb");
	random_model_config(model, folder);
	random_tensors_of(model, tensors);
	header = random_model_header(model, tensors);
	length = strlen(header);
	fwrite(&length, sizeof(length), 1, file);
	fwrite(header, 1, length, file);
	for (int i = 0; i < tensors->count; i++) {
		const struct random_tensor *tensor = &tensors->list[i];
		void *numbers = malloc(tensor->count * dtype_size(model->dtype));

		random_tensor_fill(model, tensor, seed, i, numbers);
		fwrite(numbers, dtype_size(model->dtype), tensor->count, file);
		free(numbers);
	}
	result = fclose(file) ? -1 : 0;
	free(header);
	free(path);
	free(tensors);
	return result;
}
