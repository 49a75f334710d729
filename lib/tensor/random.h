/* random: reproducible random numbers for test tensors and weights. A number depends on its seed, stream
 * and index alone, so that any number of threads fills the same tensor. Not for secrets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Normally distributed, mean 0. `stream` tells the tensors of one seed apart. */
void random_normal(uint64_t seed, uint64_t stream, float deviation, float *out, size_t count);
/* Evenly distributed in [low, high). */
void random_uniform(uint64_t seed, uint64_t stream, float low, float high, float *out, size_t count);

/* How numbers are distributed: normally with mean 0, or evenly in [low, high). */
struct distribution {
	enum { DISTRIBUTION_NORMAL, DISTRIBUTION_UNIFORM } kind;
	float deviation;
	float low, high;
};

/* `count` numbers of the sequence from number `first` on, which is even where they are normal; on the
 * calling thread alone. The same numbers as above. */
void random_fill(const struct distribution *distribution, uint64_t seed, uint64_t stream, uint64_t first,
	float *out, size_t count);

/* "normal, deviation 1" */
void distribution_describe(const struct distribution *distribution, char *text, size_t size);
