/* models: what is known of GPUs from their data sheets, for planning where there is none. A live query
 * (gpu.h) knows better where there is one. */
#pragma once

#include <stddef.h>

#include "gpu/gpu.h"

struct gpu_model {
	const char *name;        /* "H200" */
	const char *driver_name; /* a part of what the driver calls it: "H200" */
	int capability;          /* 90 is compute capability 9.0 */
	int multiprocessors;
	int shared_kib; /* per multiprocessor, for kernels */
	int registers;  /* per multiprocessor, of 32 bits */
	double l2_mib;
	double memory_gib;
	double bandwidth_gbs; /* of the memory, 10^9 bytes per second */
	double bf16_tflops;   /* dense, with fp32 sums */
	int clock_mhz;        /* boost */
};

extern const struct gpu_model gpu_models[];
extern const size_t gpu_model_count;

/* The model of a GPU that the driver names so ("NVIDIA H200"); NULL when none does. */
const struct gpu_model *gpu_model_find(const char *driver_name);

/* The model that a person means: "a100", "4090", "rtx-3090", "h100-pcie", or what the driver says. Of
 * several that a name begins alike ("a100") the one with the most bandwidth. STATUS_USAGE for a name that
 * fits none, or several that differ, with those that come near. */
const struct gpu_model *gpu_model_by_name(const char *name, struct error *err);

/* What the driver would say of it. */
struct gpu_properties gpu_model_properties(const struct gpu_model *model);
