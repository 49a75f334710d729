/* segment: where the stretches of a segment lie. */
#pragma once

#include "layer/arguments.h"

/* The first token of this block's stretch; blockIdx.y counts batch · stretches. */
static __device__ __forceinline__ long long first_token(const struct layer_segment &segment)
{
	return (blockIdx.y % segment.stretches * segment.padded + segment.first) / segment.stretches;
}

/* The row of the batch that the first token of this block's sequence is. */
static __device__ __forceinline__ long long first_row(const struct layer_segment &segment)
{
	return blockIdx.y / segment.stretches * segment.tokens;
}
