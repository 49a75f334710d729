#include "op/tuned.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "base/number.h"

/* --- classes --------------------------------------------------------------------------------------- */

struct shape_class shape_class_of(const char *function, enum dtype dtype, const struct op_shape *shape)
{
	struct shape_class class = {
		.dtype = dtype,
		.sequences = shape->batch * shape->heads,
		.key_dim = shape->key_dim,
		.value_dim = shape->value_dim,
	};

	snprintf(class.function, sizeof(class.function), "%s", function);
	while (shape->tokens >> class.length > 1)
		class.length++;
	return class;
}

bool shape_class_equal(const struct shape_class *a, const struct shape_class *b)
{
	return !strcmp(a->function, b->function) && a->dtype == b->dtype && a->sequences == b->sequences &&
		a->key_dim == b->key_dim && a->value_dim == b->value_dim && a->length == b->length;
}

void shape_class_format(const struct shape_class *class, char *text, size_t size)
{
	char least[48], dims[48];

	number_grouped((double)(INT64_C(1) << class->length), least);
	if (class->key_dim == class->value_dim)
		snprintf(dims, sizeof(dims), "%d", class->key_dim);
	else
		snprintf(dims, sizeof(dims), "%d and %d", class->key_dim, class->value_dim);
	snprintf(text, size, "%s, %s, %lld head%s of %s, %s tokens and more", class->function,
		dtype_name(class->dtype), (long long)class->sequences, class->sequences == 1 ? "" : "s", dims,
		least);
}

/* --- configurations -------------------------------------------------------------------------------- */

struct tuned {
	char *device, *kernel;
	struct shape_class class;
	struct config config;
};

static struct tuned *list;
static size_t count;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* With the mutex held; NULL: there is none. */
static struct tuned *find(const char *device, const char *kernel, const struct shape_class *class)
{
	for (size_t i = 0; i < count; i++)
		if (shape_class_equal(&list[i].class, class) && !strcmp(list[i].device, device) &&
			!strcmp(list[i].kernel, kernel))
			return &list[i];
	return NULL;
}

void tuned_put(
	const char *device, const char *kernel, const struct shape_class *class, const struct config *config)
{
	struct tuned *found;

	pthread_mutex_lock(&mutex);
	found = find(device, kernel, class);
	if (!found) {
		list = xrealloc(list, (count + 1) * sizeof(*list));
		found = &list[count++];
		*found = (struct tuned){
			.device = xstrdup(device), .kernel = xstrdup(kernel), .class = *class};
	}
	found->config = *config;
	pthread_mutex_unlock(&mutex);
}

bool tuned_find(
	const char *device, const char *kernel, const struct shape_class *class, struct config *config)
{
	const struct tuned *found;

	pthread_mutex_lock(&mutex);
	found = find(device, kernel, class);
	if (found)
		*config = found->config;
	pthread_mutex_unlock(&mutex);
	return found != NULL;
}

struct config tuned_or_usual(const struct family *family, const struct op_problem *problem,
	const struct gpu_properties *properties)
{
	const struct family_configs *configs = family->configs;
	struct shape_class class;
	struct config tuned;
	char function[sizeof(class.function)];

	family_options_format(family, problem->options, function, sizeof(function));
	class = shape_class_of(function, problem->dtype, &problem->shape);
	return tuned_find(properties->name, configs->kernel, &class, &tuned)
		? configs->adopt(problem, properties, &tuned)
		: configs->usual(problem, properties);
}

int tuned_run(const struct family *family, struct gpu *gpu, struct gpu_workspace *workspace,
	const struct op_problem *problem, const struct config *config, struct error *err)
{
	struct config chosen;

	if (!family->cuda) {
		error_set(err, STATUS_ENVIRONMENT, "%s has no GPU version yet", family->title);
		return error_hint(err, "Compute on the CPU: --device cpu.");
	}
	if (family->check(problem, err) < 0)
		return -1;
	if (!config) {
		chosen = tuned_or_usual(family, problem, gpu_properties_of(gpu));
		config = &chosen;
	}
	return family->cuda(gpu, workspace, problem, config, err);
}

void tuned_clear(void)
{
	pthread_mutex_lock(&mutex);
	for (size_t i = 0; i < count; i++) {
		free(list[i].device);
		free(list[i].kernel);
	}
	free(list);
	list = NULL;
	count = 0;
	pthread_mutex_unlock(&mutex);
}
