/* device: the device that a command computes on, as options and settings say. */
#pragma once

#include "command.h"
#include "measure/measure.h"

#define OPT_DEVICE                                                                                         \
	{                                                                                                  \
		"device", 0, "NAME", "DEVICE", NULL, NULL, "Where to compute: auto, cpu, cuda or cuda:N."  \
	}
#define OPT_SEMANTICS                                                                                      \
	{                                                                                                  \
		"semantics", 0, "NAME", NULL, "upstream", "upstream|causal",                               \
			"Which function: what the reference fork computes, or the published recurrence."   \
	}

#define OPT_WEIGHTS                                                                                        \
	{                                                                                                  \
		"weights", 0, "FILE", NULL, NULL, NULL,                                                    \
			"Weights of the layer, as safetensors with the fork's names; else random."         \
	}

/* Opens the device named (NULL: the one of the setting DEVICE), with the threads of QUASAR_THREADS. */
int command_device(
	const struct invocation *invocation, const char *name, struct device *device, struct error *err);

/* The option --semantics. */
enum semantics command_semantics(const struct invocation *invocation);

/* A new seed for test tensors, short enough to be typed in again. */
uint64_t command_seed(void);
