/* config: how a kernel is built and launched, among the ways that give the same result. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/error.h"

enum { CONFIG_PARAMETERS = 8, CONFIG_VALUES = 8 };

/* Something that can be tuned. The problem's own constants (head dimension, type, …) are none of these. */
struct parameter {
	const char *name;          /* as the kernel has it, "NUM_STAGES" */
	bool compiled;             /* a constant of the kernel; else a number that the launch takes */
	int values[CONFIG_VALUES]; /* worth trying; ends with 0; none: they depend on the problem */
};

/* A value for each parameter of a family, in its order. */
struct config {
	int value[CONFIG_PARAMETERS];
};

/* "CHUNK=64 NUM_STAGES=2 …" */
void config_format(const struct parameter *parameters, const struct config *config, char *text, size_t size);
/* The inverse: all of them, each once, in any order. STATUS_USAGE. */
int config_parse(
	const struct parameter *parameters, const char *text, struct config *config, struct error *err);
