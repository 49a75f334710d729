/* occupancy: how many blocks of a kernel a multiprocessor holds at a time, as NVIDIA's calculator has it. */
#pragma once

#include "gpu/gpu.h"

struct occupancy {
	int blocks;             /* 0: a multiprocessor does not hold even one */
	double part;            /* their warps, as a part of the most there can be */
	const char *limited_by; /* "registers", "shared memory", "warps" or "blocks" */
};

/* For blocks of `threads` with so many registers a thread and so much shared memory, on a GPU of compute capability 8.0
 * or later. */
struct occupancy occupancy_of(
	const struct gpu_properties *properties, int registers, int threads, int shared_bytes);
