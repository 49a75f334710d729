/* random: reproducible random numbers for test tensors and weights. A number depends on its seed, stream
 * and index alone, so that any number of threads fills the same tensor. Not for secrets. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* Normally distributed, mean 0. `stream` tells the tensors of one seed apart. */
void random_normal(uint64_t seed, uint64_t stream, float deviation, float *out, size_t count);
void random_normal_bf16(uint64_t seed, uint64_t stream, float deviation, uint16_t *out, size_t count);
/* Evenly distributed in [low, high). */
void random_uniform(uint64_t seed, uint64_t stream, float low, float high, float *out, size_t count);
