/* device: the device that a command computes on, as options and settings say. */
#pragma once

#include "cli/command.h"
#include "measure/measure.h"

#define OPT_DEVICE                                                                                           \
	{                                                                                                    \
		"device", 0, "DEVICE", "DEVICE", NULL, NULL, "Where to compute: auto, cpu, cuda or cuda:N."  \
	}
#define OPT_SEMANTICS                                                                                        \
	{                                                                                                    \
		"semantics", 0, "NAME,...", NULL, NULL,                                                      \
			"upstream|causal|gated|packed|packed-gated|bidirectional|packed-bidirectional|"      \
			"elu+1|relu|squared-relu|exp|identity|normalised|unnormalised",                      \
			"Variant of the operation. QuasarAttention: upstream, what the reference fork "      \
			"computes (default), or causal, the published recurrence; with --op quasar also "    \
			"gated, causal with a decay for each token, and packed and packed-gated, these for " \
			"several sequences one behind the other. Linear attention: by default "              \
			"bidirectional, elu+1 and normalised. FlashAttention-2: causal (default) or "        \
			"bidirectional, and packed and packed-bidirectional, these for several sequences."   \
	}

#define OPT_OP(help)                                                                                         \
	{                                                                                                    \
		"op", 0, "[NAME]", NULL, NULL,                                                               \
			"quasar|quasar-backward|linear|linear-backward|flash|flash-backward",                \
			help " Without NAME: quasar."                                                        \
	}

#define OPT_WEIGHTS                                                                                          \
	{                                                                                                    \
		"weights", 0, "FILE", NULL, NULL, NULL,                                                      \
			"Weights of the layer: a safetensors file with the fork's parameter names. "         \
			"Default: random."                                                                   \
	}

/* Makes the settings of computing count: threads, and what CUDA, PyTorch and others read. STATUS_USAGE. */
int command_compute(const struct invocation *invocation, struct error *err);

/* Opens the device named (NULL: the one of the setting DEVICE), with the threads of QUASAR_THREADS. To be
 * closed with device_close(). */
int command_device(
	const struct invocation *invocation, const char *name, struct device *device, struct error *err);

/* The function of a family that the option --semantics asks for. STATUS_USAGE. */
int command_semantics(const struct invocation *invocation, const struct family *family,
	int options[FAMILY_OPTIONS], struct error *err);

/* What these options, of the first family, ask of the layer. STATUS_USAGE where that does not compute it. */
int command_layer_semantics(const int options[FAMILY_OPTIONS], enum semantics *semantics, struct error *err);

/* The family that the option --op names; the first one of all when it has no value, or is not given. */
const struct family *command_family(const struct invocation *invocation);

/* A new seed for test tensors, short enough to be typed in again. */
uint64_t command_seed(void);
