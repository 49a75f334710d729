/* device: the device that a command computes on, as options and settings say. */
#pragma once

#include "command.h"
#include "op/measure.h"

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

/* What --device says; NULL: it was not given. */
const char *command_device_option(const struct invocation *invocation);

/* Opens the device named (NULL: the one of the setting DEVICE), with the threads of QUASAR_THREADS. A layer
 * that cannot run there runs on the CPU, unless a device was named. */
int command_device(const struct invocation *invocation, const char *name, enum workload workload,
	struct device *device, struct error *err);

/* The option --semantics. */
enum semantics command_semantics(const struct invocation *invocation);

/* A new seed for test tensors, short enough to be typed in again. */
uint64_t command_seed(void);
