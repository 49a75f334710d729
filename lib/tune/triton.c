#include "tune/triton.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/json.h"
#include "base/memory.h"
#include "tune/results.h"

EMBED(source_triton, "lib/tune/triton.py");

const char *const triton_compiler = source_triton;

#define MOST_DECLARED 256
#define MOST_CONFIGS 20000
#define LARGEST_BLOCK 1024

static const char *const launch_names[] = {"num_warps", "num_stages", "maxnreg"};
enum { NUM_WARPS, NUM_STAGES, MAXNREG, LAUNCH_COUNT };

/* What is tried besides what a fork declares. */
static const int wider[LAUNCH_COUNT][CONFIG_VALUES] = {
	{1, 2, 4, 8, 16}, {1, 2, 3, 4, 5}, {TRITON_NO_BOUND, 168, 128, 96}};

static int cannot(const struct triton_kernel *kernel, const char *why, struct error *err)
{
	return error_set(err, STATUS_FAILED, "%s cannot be tuned: %s", kernel->name, why);
}

/* --- reading --------------------------------------------------------------------------------------- */

/* "fla/ops/quasar/chunk.py:kernel": a Python file below the fork's root, and a function. */
static bool is_name(const char *text)
{
	const char *colon = strchr(text, ':');
	size_t path = colon ? (size_t)(colon - text) : 0;

	return colon && strlen(text) < TRITON_NAME && text[0] != '/' && !strstr(text, "..") && path > 3 &&
		!strncmp(colon - 3, ".py", 3) &&
		strspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-./") == path &&
		tune_is_name(colon + 1);
}

/* Its own parameters, by the names that a configuration gives values to. */
static int read_names(const cJSON *kwargs, struct triton_kernel *kernel, struct error *err)
{
	const cJSON *item;

	cJSON_ArrayForEach (item, kwargs) {
		if (kernel->own_count == CONFIG_PARAMETERS - LAUNCH_COUNT)
			return cannot(kernel, "its configurations have too many parameters", err);
		if (!tune_is_name(item->string) || strlen(item->string) >= sizeof(kernel->parameter_names[0]))
			return cannot(kernel, "a parameter has no plain name", err);
		strcpy(kernel->parameter_names[kernel->own_count++], item->string);
	}
	for (int i = 0; i < LAUNCH_COUNT; i++)
		strcpy(kernel->parameter_names[kernel->own_count + i], launch_names[i]);
	for (int i = 0; i < kernel->own_count + LAUNCH_COUNT; i++)
		kernel->parameters[i] = (struct parameter){
			.name = kernel->parameter_names[i], .compiled = true};
	return 0;
}

static int read_value(const cJSON *object, const char *name, int otherwise, int *value,
	const struct triton_kernel *kernel, struct error *err)
{
	const cJSON *item = cJSON_GetObjectItemCaseSensitive(object, name);

	*value = otherwise;
	if (otherwise && (!item || cJSON_IsNull(item)))
		return 0;
	if (!cJSON_IsNumber(item) || item->valuedouble != item->valueint || item->valueint < 1 ||
		item->valueint > 1 << 20)
		return cannot(kernel, "a parameter has another value than a positive whole number", err);
	*value = item->valueint;
	return 0;
}

static int read_config(
	const cJSON *item, struct triton_kernel *kernel, struct config *config, struct error *err)
{
	const cJSON *kwargs = cJSON_GetObjectItemCaseSensitive(item, "kwargs");
	int ctas;

	*config = (struct config){0};
	if (cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(item, "more")))
		return cannot(kernel, "a configuration has a hook or code of its own", err);
	if (cJSON_GetArraySize(kwargs) != kernel->own_count)
		return cannot(kernel, "its configurations have different parameters", err);
	for (int i = 0; i < kernel->own_count; i++)
		if (read_value(kwargs, kernel->parameter_names[i], 0, &config->value[i], kernel, err) < 0)
			return -1;
	if (read_value(item, "num_warps", 4, &config->value[kernel->own_count + NUM_WARPS], kernel, err) <
			0 ||
		read_value(item, "num_stages", 3, &config->value[kernel->own_count + NUM_STAGES], kernel,
			err) < 0 ||
		read_value(item, "maxnreg", TRITON_NO_BOUND, &config->value[kernel->own_count + MAXNREG],
			kernel, err) < 0 ||
		read_value(item, "num_ctas", 1, &ctas, kernel, err) < 0)
		return -1;
	if (kernel->num_ctas && ctas != kernel->num_ctas)
		return cannot(kernel, "its configurations differ in num_ctas", err);
	kernel->num_ctas = ctas;
	return 0;
}

/* --- the space ------------------------------------------------------------------------------------- */

static void add_value(struct parameter *parameter, int value)
{
	int count = 0;

	while (parameter->values[count] && parameter->values[count] != value)
		count++;
	if (count < CONFIG_VALUES - 1)
		parameter->values[count] = value;
}

static bool is_power(int value)
{
	return value >= 1 && !(value & (value - 1));
}

/* Half and twice of what a fork declares of its own, where all of that are powers of two. */
static void widen_own(struct parameter *parameter)
{
	int declared[CONFIG_VALUES];

	memcpy(declared, parameter->values, sizeof(declared));
	for (int i = 0; declared[i]; i++)
		if (!is_power(declared[i]) || declared[i] < 16 || declared[i] > LARGEST_BLOCK)
			return;
	for (int i = 0; declared[i]; i++) {
		if (declared[i] > 16)
			add_value(parameter, declared[i] / 2);
		if (declared[i] < LARGEST_BLOCK)
			add_value(parameter, declared[i] * 2);
	}
}

static void make_values(struct triton_kernel *kernel)
{
	for (size_t n = 0; n < kernel->count; n++)
		for (int i = 0; kernel->parameters[i].name; i++)
			add_value(&kernel->parameters[i], kernel->configs[n].value[i]);
	for (int i = 0; i < kernel->own_count; i++)
		widen_own(&kernel->parameters[i]);
	for (int i = 0; i < LAUNCH_COUNT; i++)
		for (int n = 0; wider[i][n]; n++)
			add_value(&kernel->parameters[kernel->own_count + i], wider[i][n]);
}

static void add_config(struct triton_kernel *kernel, const struct config *config)
{
	/* behind what is declared each is made once */
	for (size_t i = 0; i < (kernel->declared ? kernel->declared : kernel->count); i++)
		if (!memcmp(&kernel->configs[i], config, sizeof(*config)))
			return;
	kernel->configs = xrealloc(kernel->configs, (kernel->count + 1) * sizeof(*config));
	kernel->configs[kernel->count++] = *config;
}

static void combine(struct triton_kernel *kernel, struct config *config, int parameter)
{
	const struct parameter *table = &kernel->parameters[parameter];

	if (!table->name) {
		add_config(kernel, config);
		return;
	}
	for (int i = 0; table->values[i] && kernel->count < MOST_CONFIGS; i++) {
		config->value[parameter] = table->values[i];
		combine(kernel, config, parameter + 1);
	}
}

int triton_kernel_read(const cJSON *item, struct triton_kernel *kernel, struct error *err)
{
	const cJSON *declared, *one, *chosen, *builds;
	struct config config;
	const char *name;

	*kernel = (struct triton_kernel){0};
	if (json_string(item, "kernel", JSON_REQUIRED, &name, err) < 0 || !is_name(name) ||
		json_array(item, "configs", JSON_REQUIRED, &declared, err) < 0 ||
		json_object(item, "chosen", JSON_REQUIRED, &chosen, err) < 0 ||
		cJSON_GetArraySize(declared) > MOST_DECLARED)
		return error_set(
			err, STATUS_FAILED, "the fork's process tells of a kernel that cannot be one");
	strcpy(kernel->name, name);
	if (read_names(cJSON_GetObjectItemCaseSensitive(chosen, "kwargs"), kernel, err) < 0 ||
		read_config(chosen, kernel, &config, err) < 0)
		return -1;
	add_config(kernel, &config);
	cJSON_ArrayForEach (one, declared) {
		if (read_config(one, kernel, &config, err) < 0)
			return -1;
		add_config(kernel, &config);
	}
	kernel->declared = kernel->count;
	make_values(kernel);
	combine(kernel, &config, 0);
	builds = cJSON_GetObjectItemCaseSensitive(item, "builds");
	if (cJSON_IsArray(builds) && cJSON_GetArraySize(builds))
		kernel->builds = cJSON_Duplicate(builds, true);
	return 0;
}

void triton_kernel_free(struct triton_kernel *kernel)
{
	free(kernel->configs);
	kernel->configs = NULL;
	cJSON_Delete(kernel->builds);
	kernel->builds = NULL;
}

/* --- in other forms -------------------------------------------------------------------------------- */

cJSON *triton_config_json(const struct triton_kernel *kernel, const struct config *config)
{
	cJSON *object = cJSON_CreateObject(), *kwargs = cJSON_AddObjectToObject(object, "kwargs");
	const int *launch = config->value + kernel->own_count;

	for (int i = 0; i < kernel->own_count; i++)
		cJSON_AddNumberToObject(kwargs, kernel->parameter_names[i], config->value[i]);
	cJSON_AddNumberToObject(object, "num_warps", launch[NUM_WARPS]);
	cJSON_AddNumberToObject(object, "num_stages", launch[NUM_STAGES]);
	if (kernel->num_ctas > 1)
		cJSON_AddNumberToObject(object, "num_ctas", kernel->num_ctas);
	if (launch[MAXNREG] < TRITON_NO_BOUND)
		cJSON_AddNumberToObject(object, "maxnreg", launch[MAXNREG]);
	return object;
}

cJSON *triton_build_request(const struct triton_kernel *kernel, const struct config *config)
{
	cJSON *request = kernel->builds ? cJSON_CreateObject() : NULL;

	if (!request)
		return NULL;
	cJSON_AddStringToObject(request, "do", "build");
	cJSON_AddItemToObject(request, "builds", cJSON_Duplicate(kernel->builds, true));
	cJSON_AddItemToObject(request, "config", triton_config_json(kernel, config));
	return request;
}

const char *triton_function(const struct triton_kernel *kernel, size_t *path_length)
{
	const char *colon = strchr(kernel->name, ':');

	*path_length = (size_t)(colon - kernel->name);
	return colon + 1;
}
