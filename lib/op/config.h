/* config: how a kernel is built and launched, among the ways that give the same result. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "gpu/gpu.h"

enum { CONFIG_PARAMETERS = 8, CONFIG_VALUES = 16, CONFIG_LAUNCHES = 7, LAUNCH_PARAMETERS = 16 };

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

/* A kernel that an operation launches in a configuration. */
struct config_launch {
	const char *source, *name; /* "quasar/chunk.cu", "quasar_chunk_output" */
	struct kernel_parameter parameters[LAUNCH_PARAMETERS + 1];
	int threads, shared_bytes; /* of a block */
	int64_t blocks;
	/* With usual inputs, of a block: */
	double trips;  /* through its longest loop; 0: it has none */
	double bytes;  /* from and to memory */
	int ahead;     /* times before it that the loads of one are begun; 0: it waits for them */
	bool by_warp;  /* each warp loads for itself, and waits for no other */
	double beside; /* the part of its warps that do not go through that loop, but through one beside it */
};

/* What counts of a GPU for kernels' own choices. */
struct choice_machine machine_of(const struct gpu_properties *properties);

/* Whether a kernel's parameters have the values that a configuration gives them; those without a table have any.
 * STATUS_USAGE. */
int config_check_values(const char *source, const struct parameter *parameters, const struct config *config,
	struct error *err);
/* Adds a value to a list that ends with 0, unless it is there. */
void config_add_value(int values[CONFIG_VALUES], int value);

/* "CHUNK=64 NUM_STAGES=2 …" */
void config_format(const struct parameter *parameters, const struct config *config, char *text, size_t size);
/* The inverse: all of them, each once, in any order. STATUS_USAGE. */
int config_parse(
	const struct parameter *parameters, const char *text, struct config *config, struct error *err);
