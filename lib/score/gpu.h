/* gpu: how fast validators take a GPU to be. What they measure is divided by its factor before it ranks, so that it makes
 * no difference who judges a submission. */
#pragma once

struct gpu_rating {
	const char *name; /* without "NVIDIA" and "GeForce" */
	double factor;    /* of the RTX 5090's speed */
};

/* The entry of a GPU, by its name as the driver tells it or a part of that, in any case of letters. As validators do,
 * it takes the first entry that contains the name or is contained in it, unless one has that very name: "L4" is found
 * as "L40S". NULL: unknown. */
const struct gpu_rating *gpu_find(const char *name);

/* The factor of a GPU, which is 1 when it is unknown. */
double gpu_factor(const char *name);
