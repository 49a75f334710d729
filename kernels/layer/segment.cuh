/* segment: where the stretches of a segment lie. */
#pragma once

#include "layer/arguments.h"

/* The first token of a stretch; `stretch` counts batch · stretches. */
static __device__ __forceinline__ long long first_token(const struct layer_segment &segment, unsigned stretch)
{
	return (stretch % segment.stretches * segment.padded + segment.first) / segment.stretches;
}

/* The row of the batch that the first token of a stretch's sequence is. */
static __device__ __forceinline__ long long first_row(const struct layer_segment &segment, unsigned stretch)
{
	return stretch / segment.stretches * segment.tokens;
}
