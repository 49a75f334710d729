#include "model/model.h"

#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "gpu/gpu.h"
#include "model/device.h"

/* Configurations are a few kB. */
#define LARGEST_CONFIG ((size_t)1 << 20)

struct model {
	struct model_info info;
	struct model_config config;
	struct model_weights weights;
	const struct model_device *device;
	struct model_place *place;
	char *name, *path, *revision;
	char description[192];
	bool broken;
};

struct model_session {
	struct model *model;
	struct model_cache *cache;
	int length, capacity;
};

/* --- the model ----------------------------------------------------------------------------------- */

static int read_config(const char *folder, struct model_config *config, struct error *err)
{
	char *path = path_join(folder, "config.json");
	struct buffer text = {0};
	int result = file_read(path, LARGEST_CONFIG, &text, err);

	if (!result) {
		result = model_config_parse(text.data, text.length, config, err);
		if (result)
			error_context(err, "%s", path);
	}
	buffer_free(&text);
	free(path);
	return result;
}

/* A folder of the cache is named by its commit. */
static char *revision_of(const char *path)
{
	char *real = realpath(path, NULL), *slash = real ? strrchr(real, '/') : NULL;
	const char *parent = "/snapshots";
	size_t length = strlen(parent);
	char *revision = NULL;

	if (slash && (size_t)(slash - real) > length && !strncmp(slash - length, parent, length))
		revision = xstrdup(slash + 1);
	free(real);
	return revision;
}

/* Puts the model on a GPU, or on the CPU. Where any will do, it is the first GPU, unless that does not work. */
static int open_place(struct model *model, int index, struct error *err)
{
	struct error no_driver;
	bool any = index == GPU_IF_ANY && gpu_count(&no_driver) > 0;

	model->device = index >= 0 || any ? &model_device_cuda : &model_device_cpu;
	model->place = model->device->open(any ? 0 : index, &model->config, &model->weights, err);
	if (!model->place && any) {
		log_warn("running on the CPU instead of the GPU: %s", err->message);
		model->device = &model_device_cpu;
		model->place = model->device->open(GPU_NONE, &model->config, &model->weights, err);
	}
	return model->place ? 0 : -1;
}

static void fill_info(struct model *model)
{
	const struct model_config *config = &model->config;

	model->revision = revision_of(model->path);
	model->device->describe(model->place, model->description, sizeof(model->description));
	model->info = (struct model_info){
		.name = model->name,
		.path = model->path,
		.revision = model->revision,
		.type = model_type_name(config->type),
		.device = model->description,
		.vocabulary = config->vocabulary,
		.hidden = config->hidden,
		.layers = config->layers,
		.heads = config->heads,
		.kv_heads = config->kv_heads,
		.head_dim = config->head_dim,
		.intermediate = config->intermediate,
		.context = config->context,
		.tied = config->tied,
		.weights = model->weights.embedding.dtype,
		.arithmetic = model->device->arithmetic,
		.parameters = model->weights.parameters,
		.bytes = model->weights.bytes,
	};
}

struct model *model_open(const char *name, const char *device, struct error *err)
{
	struct model *model = xcalloc(1, sizeof(*model));
	struct gpu_properties properties;
	int index;

	model->name = xstrdup(name);
	/* a GPU that is not there is told of before a model is read for it */
	if (gpu_parse_device(device, &index, err) == 0 &&
		(index < 0 || gpu_query(index, &properties, err) == 0))
		model->path = model_find(name, err);
	if (!model->path || read_config(model->path, &model->config, err) < 0 ||
		model_weights_open(model->path, &model->config, &model->weights, err) < 0 ||
		open_place(model, index, err) < 0) {
		model_close(model);
		return NULL;
	}
	fill_info(model);
	return model;
}

void model_close(struct model *model)
{
	if (!model)
		return;
	if (model->device)
		model->device->close(model->place);
	model_weights_free(&model->weights);
	free(model->revision);
	free(model->path);
	free(model->name);
	free(model);
}

const struct model_info *model_info(const struct model *model)
{
	return &model->info;
}

/* --- sessions ------------------------------------------------------------------------------------ */

struct model_session *model_session_open(struct model *model, int tokens, struct error *err)
{
	struct model_session *session;
	struct model_cache *cache;

	if (tokens < 1 || tokens > model->config.context) {
		error_set(err, STATUS_USAGE, "%d tokens are asked for, where the model takes 1 to %d", tokens,
			model->config.context);
		return NULL;
	}
	cache = model->device->cache_open(model->place, tokens);
	if (!cache) {
		error_set(err, STATUS_ENVIRONMENT, "not enough memory for a session of %d tokens (%.0f MiB)",
			tokens, (double)model->device->cache_bytes(&model->config, tokens) / 0x1p20);
		return NULL;
	}
	session = xmalloc(sizeof(*session));
	*session = (struct model_session){.model = model, .cache = cache, .capacity = tokens};
	return session;
}

void model_session_close(struct model_session *session)
{
	if (!session)
		return;
	session->model->device->cache_close(session->cache);
	free(session);
}

int model_session_length(const struct model_session *session)
{
	return session->length;
}

/* --- steps --------------------------------------------------------------------------------------- */

static int check_piece(const struct model *model, const struct model_piece *piece, struct error *err)
{
	const struct model_session *session = piece->session;

	if (piece->count < 1 || piece->count > session->capacity - session->length)
		return error_set(err, STATUS_USAGE,
			"%d more tokens for a session that has %d and room for %d", piece->count,
			session->length, session->capacity);
	for (int i = 0; i < piece->count; i++)
		if (piece->tokens[i] < 0 || piece->tokens[i] >= model->config.vocabulary)
			return error_set(err, STATUS_USAGE, "token %d is not in the vocabulary of %d",
				(int)piece->tokens[i], model->config.vocabulary);
	return 0;
}

int model_step(
	struct model *model, struct model_piece *pieces, int count, bool (*stop)(void), struct error *err)
{
	struct model_task tasks[MODEL_STEP_TOKENS];
	int tokens = 0;

	if (count < 1)
		return 0;
	for (int i = 0; i < count; i++) {
		struct model_session *session = pieces[i].session;

		if (check_piece(model, &pieces[i], err) < 0)
			return -1;
		tokens += pieces[i].count <= MODEL_STEP_TOKENS ? pieces[i].count : MODEL_STEP_TOKENS + 1;
		if (tokens > MODEL_STEP_TOKENS)
			return error_set(
				err, STATUS_USAGE, "a step takes %d tokens at most", MODEL_STEP_TOKENS);
		tasks[i] = (struct model_task){session->cache, session->length, &pieces[i]};
	}
	if (model->device->step(model->place, tasks, count, stop, err) < 0) {
		model->broken = model->device->breaks && err->status == STATUS_ENVIRONMENT;
		return -1;
	}
	for (int i = 0; i < count; i++)
		pieces[i].session->length += pieces[i].count;
	return 0;
}

bool model_is_broken(const struct model *model)
{
	return model->broken;
}
