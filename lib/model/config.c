#include "model/config.h"

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "base/json.h"
#include "base/text.h"

/* Far beyond any model, and far below where arithmetic on sizes would overflow. */
#define MOST_LAYERS 1024
#define LARGEST_SIZE (1 << 20)
#define LARGEST_VOCABULARY (1 << 24)
#define LARGEST_CONTEXT (1 << 24)
#define LEAST_TURNS 1e-3

static const char *const types[] = {
	[MODEL_QWEN2] = "qwen2", [MODEL_QWEN3] = "qwen3", [MODEL_LLAMA] = "llama"};

const char *model_type_name(enum model_type type)
{
	return types[type];
}

static int parse_type(const cJSON *document, enum model_type *type, struct error *err)
{
	const char *name;

	if (json_string(document, "model_type", JSON_REQUIRED, &name, err) < 0)
		return -1;
	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(name, types[i])) {
			*type = (enum model_type)i;
			return 0;
		}
	return error_set(err, STATUS_ENVIRONMENT,
		"the architecture \"%.40s\" is not known: qwen2, qwen3 and llama are", name);
}

/* A whole number from 1 to `most`. Without one, `size` stays; 0 there makes it an error. */
static int parse_size(const cJSON *document, const char *name, int most, int *size, struct error *err)
{
	int64_t value = *size;

	if (json_integer(document, name, *size ? JSON_OPTIONAL : JSON_REQUIRED, &value, err) < 0)
		return -1;
	if (value < 1 || value > most)
		return error_set(err, STATUS_ENVIRONMENT, "\"%s\" is %lld instead of 1 to %d", name,
			(long long)value, most);
	*size = (int)value;
	return 0;
}

static int parse_sizes(const cJSON *document, struct model_config *config, struct error *err)
{
	if (parse_size(document, "vocab_size", LARGEST_VOCABULARY, &config->vocabulary, err) < 0 ||
		parse_size(document, "hidden_size", LARGEST_SIZE, &config->hidden, err) < 0 ||
		parse_size(document, "intermediate_size", LARGEST_SIZE, &config->intermediate, err) < 0 ||
		parse_size(document, "num_hidden_layers", MOST_LAYERS, &config->layers, err) < 0 ||
		parse_size(document, "num_attention_heads", LARGEST_SIZE, &config->heads, err) < 0 ||
		parse_size(document, "max_position_embeddings", LARGEST_CONTEXT, &config->context, err) < 0)
		return -1;
	config->kv_heads = config->heads;
	config->head_dim = config->type == MODEL_QWEN3 ? 128 : config->hidden / config->heads;
	if (parse_size(document, "num_key_value_heads", config->heads, &config->kv_heads, err) < 0 ||
		parse_size(document, "head_dim", MODEL_HEAD_DIM, &config->head_dim, err) < 0)
		return -1;
	if (config->heads % config->kv_heads)
		return error_set(err, STATUS_ENVIRONMENT, "%d heads cannot share %d heads of keys",
			config->heads, config->kv_heads);
	if (config->head_dim % 2)
		return error_set(
			err, STATUS_ENVIRONMENT, "\"head_dim\" is %d, which is odd", config->head_dim);
	if ((int64_t)config->heads * config->head_dim > LARGEST_SIZE)
		return error_set(err, STATUS_ENVIRONMENT, "%d heads of %d are too many", config->heads,
			config->head_dim);
	return 0;
}

/* A number of `least` or more. Without one, `value` stays; 0 there makes it an error. */
static int parse_number(const cJSON *object, const char *name, double least, double *value, struct error *err)
{
	if (json_real(object, name, *value ? JSON_OPTIONAL : JSON_REQUIRED, value, err) < 0)
		return -1;
	if (!(*value >= least))
		return error_set(
			err, STATUS_ENVIRONMENT, "\"%s\" is %g, which is below %g", name, *value, least);
	return 0;
}

static int parse_scaling(const cJSON *scaling, struct model_rope *rope, struct error *err)
{
	const char *kind = "default";
	double partial = 1;

	if (json_string(scaling, "type", JSON_OPTIONAL, &kind, err) < 0 ||
		json_string(scaling, "rope_type", JSON_OPTIONAL, &kind, err) < 0 ||
		json_real(scaling, "partial_rotary_factor", JSON_OPTIONAL, &partial, err) < 0 ||
		parse_number(scaling, "rope_theta", 1, &rope->theta, err) < 0)
		return -1;
	if (partial != 1)
		return error_set(err, STATUS_ENVIRONMENT, "heads that turn in part are not known");
	if (!strcmp(kind, "default"))
		return 0;
	if (!strcmp(kind, "linear")) {
		rope->kind = ROPE_LINEAR;
		return parse_number(scaling, "factor", 1, &rope->factor, err);
	}
	if (strcmp(kind, "llama3"))
		return error_set(err, STATUS_ENVIRONMENT,
			"positions of the kind \"%.40s\" are not known: default, linear and llama3 are",
			kind);
	rope->kind = ROPE_LLAMA3;
	if (parse_number(scaling, "factor", 1, &rope->factor, err) < 0 ||
		parse_number(scaling, "low_freq_factor", LEAST_TURNS, &rope->low_freq, err) < 0 ||
		parse_number(scaling, "high_freq_factor", LEAST_TURNS, &rope->high_freq, err) < 0 ||
		parse_number(scaling, "original_max_position_embeddings", 1, &rope->original, err) < 0)
		return -1;
	if (rope->low_freq >= rope->high_freq)
		return error_set(
			err, STATUS_ENVIRONMENT, "\"low_freq_factor\" is not below \"high_freq_factor\"");
	return 0;
}

/* Newer files have all of it in "rope_parameters", older ones theta beside "rope_scaling". */
static int parse_rope(const cJSON *document, struct model_rope *rope, struct error *err)
{
	const cJSON *scaling = NULL;

	rope->theta = 10000;
	if (parse_number(document, "rope_theta", 1, &rope->theta, err) < 0 ||
		json_object(document, "rope_scaling", JSON_OPTIONAL, &scaling, err) < 0 ||
		json_object(document, "rope_parameters", JSON_OPTIONAL, &scaling, err) < 0)
		return -1;
	return scaling ? parse_scaling(scaling, rope, err) : 0;
}

static int parse_switches(const cJSON *document, struct model_config *config, struct error *err)
{
	double epsilon = 1e-6;
	bool bias = false;

	if (json_bool(document, "tie_word_embeddings", JSON_OPTIONAL, &config->tied, err) < 0 ||
		json_bool(document, "attention_bias", JSON_OPTIONAL, &bias, err) < 0 ||
		json_bool(document, "mlp_bias", JSON_OPTIONAL, &config->mlp_bias, err) < 0 ||
		parse_number(document, "rms_norm_eps", 0, &epsilon, err) < 0)
		return -1;
	config->epsilon = (float)epsilon;
	config->qkv_bias = config->type == MODEL_QWEN2 || bias;
	config->o_bias = config->type != MODEL_QWEN2 && bias;
	config->mlp_bias = config->type == MODEL_LLAMA && config->mlp_bias;
	config->head_norms = config->type == MODEL_QWEN3;
	return 0;
}

/* What would make another function of the same weights. */
static int refuse_unknown(const cJSON *document, struct error *err)
{
	const cJSON *layer_types = NULL, *item;
	const char *activation = "silu";
	bool sliding = false;

	if (json_string(document, "hidden_act", JSON_OPTIONAL, &activation, err) < 0 ||
		json_bool(document, "use_sliding_window", JSON_OPTIONAL, &sliding, err) < 0 ||
		json_array(document, "layer_types", JSON_OPTIONAL, &layer_types, err) < 0)
		return -1;
	cJSON_ArrayForEach (item, layer_types)
		sliding |= !cJSON_IsString(item) || strcmp(item->valuestring, "full_attention");
	if (strcmp(activation, "silu"))
		return error_set(err, STATUS_ENVIRONMENT, "the activation \"%.40s\" is not known: silu is",
			activation);
	if (sliding)
		return error_set(err, STATUS_ENVIRONMENT, "attention in sliding windows is not known");
	item = cJSON_GetObjectItemCaseSensitive(document, "quantization_config");
	if (item && !cJSON_IsNull(item))
		return error_set(err, STATUS_ENVIRONMENT, "quantised weights are not read");
	return 0;
}

int model_config_parse(const char *text, size_t length, struct model_config *config, struct error *err)
{
	cJSON *document = json_parse(text, length, err);
	int result = -1;

	*config = (struct model_config){0};
	if (document && parse_type(document, &config->type, err) == 0 &&
		parse_sizes(document, config, err) == 0 && parse_rope(document, &config->rope, err) == 0 &&
		parse_switches(document, config, err) == 0 && refuse_unknown(document, err) == 0)
		result = 0;
	cJSON_Delete(document);
	if (result) {
		err->status = STATUS_ENVIRONMENT;
		text_clean(err->message);
	}
	return result;
}

double model_config_frequency(const struct model_config *config, int index)
{
	const struct model_rope *rope = &config->rope;
	double frequency = pow(rope->theta, -2.0 * index / config->head_dim), turns, keep;

	if (rope->kind == ROPE_PLAIN)
		return frequency;
	if (rope->kind == ROPE_LINEAR)
		return frequency / rope->factor;
	turns = rope->original * frequency / (2 * M_PI);
	keep = (turns - rope->low_freq) / (rope->high_freq - rope->low_freq);
	keep = fmin(fmax(keep, 0), 1);
	return keep * frequency + (1 - keep) * frequency / rope->factor;
}
