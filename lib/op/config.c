#include "op/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct choice_machine machine_of(const struct gpu_properties *properties)
{
	return (struct choice_machine){properties->capability, properties->multiprocessors,
		properties->shared_per_block, properties->shared_per_multiprocessor};
}

int config_check_values(const char *source, const struct parameter *parameters, const struct config *config,
	struct error *err)
{
	for (int i = 0; parameters[i].name; i++) {
		const int *value = parameters[i].values;

		if (!*value)
			continue;
		while (*value && *value != config->value[i])
			value++;
		if (!*value)
			return error_set(err, STATUS_USAGE, "%s has no %s=%d", source, parameters[i].name,
				config->value[i]);
	}
	return 0;
}

void config_add_value(int values[CONFIG_VALUES], int value)
{
	while (*values && *values != value)
		values++;
	*values = value;
}

void config_format(const struct parameter *parameters, const struct config *config, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; parameters[i].name && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s=%d", i ? " " : "",
			parameters[i].name, config->value[i]);
}

/* The parameter that "NAME=…" names; -1: none. */
static int find(const struct parameter *parameters, const char *text, size_t length)
{
	for (int i = 0; parameters[i].name; i++)
		if (strlen(parameters[i].name) == length && !strncmp(parameters[i].name, text, length))
			return i;
	return -1;
}

int config_parse(
	const struct parameter *parameters, const char *text, struct config *config, struct error *err)
{
	unsigned seen = 0;

	*config = (struct config){0};
	for (text += strspn(text, " "); *text; text += strspn(text, " ")) {
		size_t name = strcspn(text, "= "), length = strcspn(text, " ");
		int which = find(parameters, text, name);
		char *end = (char *)text;
		long value = text[name] == '=' ? strtol(text + name + 1, &end, 10) : 0;

		if (which < 0 || seen >> which & 1 || end != text + length || value < 1 || value > 1 << 24)
			return error_set(err, STATUS_USAGE,
				"\"%.*s\" is not a parameter with a positive value, given once", (int)length,
				text);
		config->value[which] = (int)value;
		seen |= 1u << which;
		text = end;
	}
	for (int i = 0; parameters[i].name; i++)
		if (!(seen >> i & 1))
			return error_set(err, STATUS_USAGE, "parameter %s is missing", parameters[i].name);
	return 0;
}
