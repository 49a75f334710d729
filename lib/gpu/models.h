/* models: what is known of GPUs from their data sheets, for planning where there is none. A live query
 * (gpu.h) knows better where there is one. */
#pragma once

#include <stddef.h>

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
};

extern const struct gpu_model gpu_models[];
extern const size_t gpu_model_count;

/* The model of a GPU that the driver names so ("NVIDIA H200"); NULL when
 * none does. */
const struct gpu_model *gpu_model_find(const char *driver_name);
