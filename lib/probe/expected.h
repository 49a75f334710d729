/* expected: what a fork's layer has to put out, at the weights that it has. */
#pragma once

#include "measure/device.h"

struct expected;

/* `weights`: a safetensors file, read here; `device`, which must outlive this: where quasar's own layer
 * computes when the fp64 reference would take too long. STATUS_FAILED when these are not the layer's
 * parameters. */
struct expected *expected_open(const char *weights, const struct device *device, struct error *err);
void expected_close(struct expected *expected); /* NULL is fine */

/* The layer of those weights; they may be changed, for layer_reference() alone. */
struct layer *expected_layer(struct expected *expected);

struct expected_output {
	double *numbers;  /* [tokens, LAYER_HIDDEN]; the caller frees */
	const char *from; /* "fp64", "quasar's own layer" */
};

/* The output for x [tokens, LAYER_HIDDEN]: in fp64 where that takes at most so many seconds, else by
 * quasar's own layer, which is held against fp64 at a short length before it is used. STATUS_ENVIRONMENT
 * without memory, or where it cannot be computed. */
int expected_find(struct expected *expected, enum semantics semantics, const float *x, int64_t tokens,
	double seconds, struct expected_output *output, struct error *err);

/* About how long that takes. */
double expected_seconds(const struct expected *expected, int64_t tokens, double seconds);
