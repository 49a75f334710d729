#include "tune/space.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"

struct making {
	const struct family_configs *configs;
	const struct op_problem *problem;
	const struct gpu_properties *properties;
	struct tune_space *space;
};

static void exclude(struct tune_space *space, const char *what)
{
	space->excluded++;
	for (int i = 0; i < TUNE_REASONS; i++) {
		struct tune_reason *reason = &space->reasons[i];

		if (!reason->count)
			snprintf(reason->what, sizeof(reason->what), "%s", what);
		if (strncmp(reason->what, what, sizeof(reason->what) - 1))
			continue;
		reason->count++;
		return;
	}
}

/* Takes a configuration that passes the check, once. */
static void consider(const struct making *making, const struct config *config)
{
	struct tune_space *space = making->space;
	struct error why;

	if (making->configs->check(making->problem, making->properties, config, &why) < 0) {
		exclude(space, why.message);
		return;
	}
	for (size_t i = 0; i < space->count; i++)
		if (!memcmp(&space->configs[i], config, sizeof(*config)))
			return;
	space->configs = xrealloc(space->configs, (space->count + 1) * sizeof(*config));
	space->configs[space->count++] = *config;
}

/* Goes through the values of a parameter, and for each of them through those of the parameters behind it. */
static void combine(const struct making *making, struct config *config, int parameter)
{
	const struct parameter *table = &making->configs->parameters[parameter];
	int own[CONFIG_VALUES];

	if (!table->name) {
		consider(making, config);
		return;
	}
	memcpy(own, table->values, sizeof(own));
	if (!own[0])
		making->configs->values(making->problem, making->properties, config, parameter, own);
	for (int i = 0; own[i]; i++) {
		config->value[parameter] = own[i];
		combine(making, config, parameter + 1);
	}
}

static int compare_reasons(const void *a, const void *b)
{
	const struct tune_reason *first = a, *second = b;

	return (first->count < second->count) - (first->count > second->count);
}

/* Tells those reasons that exclude most. */
static int nothing_left(struct tune_space *space, struct error *err)
{
	qsort(space->reasons, TUNE_REASONS, sizeof(*space->reasons), compare_reasons);
	error_set(err, STATUS_ENVIRONMENT, "none of %zu configurations can be used", space->excluded);
	for (int i = 0; i < TUNE_REASONS_TOLD && space->reasons[i].count; i++)
		error_append(
			err, "%s %zu: %s", i ? ";" : ":", space->reasons[i].count, space->reasons[i].what);
	return -1;
}

int tune_space_make(const struct family *family, const struct op_problem *problem,
	const struct gpu_properties *properties, struct tune_space *space, struct error *err)
{
	const struct making making = {family->configs, problem, properties, space};
	struct config config = family->configs->usual(problem, properties);

	*space = (struct tune_space){0};
	if (family->configs->check(problem, properties, &config, err) == 0)
		consider(&making, &config);
	config = (struct config){0};
	combine(&making, &config, 0);
	return space->count ? 0 : nothing_left(space, err);
}

void tune_space_free(struct tune_space *space)
{
	free(space->configs);
	*space = (struct tune_space){0};
}
