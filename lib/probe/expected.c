#include "probe/expected.h"

#include <math.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/memory.h"
#include "layer/layer.h"
#include "tensor/compare.h"
#include "tensor/dtype.h"

#define SHORT 512           /* tokens at which our own layer is checked */
#define LEAST_COSINE 0.9999 /* of it to fp64; bf16's rounding leaves 0.99997 */
#define FIRST_GUESS 1e-3    /* seconds a token, until a reference was computed */
#define NATIVE_SHARE 0.25   /* of what fp64 takes; an upper bound */

struct expected {
	const struct device *device;
	struct layer *layer;
	void *placed; /* on the device, once it is used there */
	bool checked[2];
	double seconds_per_token; /* in fp64, about */
};

struct expected *expected_open(const char *weights, const struct device *device, struct error *err)
{
	struct layer *layer = layer_load(weights, err);
	struct expected *expected = NULL;

	if (layer && layer->hidden == LAYER_HIDDEN && layer->heads == LAYER_HEADS) {
		expected = xcalloc(1, sizeof(*expected));
		*expected = (struct expected){
			.device = device, .layer = layer, .seconds_per_token = FIRST_GUESS};
		return expected;
	}
	if (layer)
		error_set(err, STATUS_FAILED, "the layer has %d heads and a hidden size of %d", layer->heads,
			layer->hidden);
	err->status = STATUS_FAILED;
	layer_free(layer);
	return NULL;
}

void expected_close(struct expected *expected)
{
	if (!expected)
		return;
	expected->device->layer_remove(expected->device, expected->placed);
	layer_free(expected->layer);
	free(expected);
}

struct layer *expected_layer(struct expected *expected)
{
	return expected->layer;
}

static int exactly(struct expected *expected, const struct layer_call *call, double *out, struct error *err)
{
	double started = clock_elapsed();

	if (layer_reference(expected->layer, call, out, err) < 0)
		return -1;
	expected->seconds_per_token = (clock_elapsed() - started) / (double)call->tokens;
	return 0;
}

/* By quasar's own layer, on the device. */
static int natively(struct expected *expected, const struct layer_call *call, double *out, struct error *err)
{
	const struct device *device = expected->device;
	size_t count = (size_t)call->tokens * LAYER_HIDDEN;
	struct layer_call there = *call;
	uint16_t *narrow = malloc(count * sizeof(*narrow));
	float *x = NULL;
	int result = narrow ? 0
			    : error_set(err, STATUS_ENVIRONMENT, "not enough memory to check %lld tokens",
				      (long long)call->tokens);

	if (!result && !expected->placed &&
		!(expected->placed = device->layer_place(device, expected->layer, err)))
		result = -1;
	if (!result && !(there.x = x = device->allocate(device, count * sizeof(*x), err)))
		result = -1;
	if (!result && !(there.out = device->allocate(device, count * sizeof(*narrow), err)))
		result = -1;
	if (!result)
		result = device->upload(device, x, call->x, count * sizeof(*x), err);
	if (!result)
		result = device->layer(device, expected->placed, &there, err);
	if (!result)
		result = device->download(device, narrow, there.out, count * sizeof(*narrow), err);
	for (size_t i = 0; !result && i < count; i++)
		out[i] = (double)bf16_to_float(narrow[i]);
	device->release(device, there.out);
	device->release(device, x);
	free(narrow);
	return result;
}

/* Holds our own layer against fp64, on the first tokens of x. */
static int check_native(struct expected *expected, const struct layer_call *call, struct error *err)
{
	struct layer_call first = *call;
	size_t count = SHORT * LAYER_HIDDEN;
	double *ours = xcalloc(count, sizeof(*ours)), *exact = xcalloc(count, sizeof(*exact)), ab = 0, aa = 0,
	       bb = 0;
	int result;

	first.tokens = SHORT;
	result = natively(expected, &first, ours, err);
	if (!result)
		result = exactly(expected, &first, exact, err);
	for (size_t i = 0; i < count; i++) {
		ab += ours[i] * exact[i];
		aa += ours[i] * ours[i];
		bb += exact[i] * exact[i];
	}
	if (!result && !(ab >= LEAST_COSINE * sqrt(aa * bb)))
		result = error_set(err, STATUS_ENVIRONMENT,
			"quasar's own layer is wrong on this machine (cosine %.6f to fp64): `quasar verify "
			"--native` shows more",
			ab / sqrt(aa * bb));
	free(ours);
	free(exact);
	expected->checked[call->semantics] = !result;
	return result;
}

int expected_find(struct expected *expected, enum semantics semantics, const float *x, int64_t tokens,
	double seconds, struct expected_output *output, struct error *err)
{
	const struct layer_call call = {.semantics = semantics, .batch = 1, .tokens = tokens, .x = x};
	bool exact = tokens <= SHORT || expected->seconds_per_token * (double)tokens <= seconds;
	int result = 0;

	output->from = exact ? "fp64" : "quasar's own layer";
	output->numbers = malloc((size_t)tokens * LAYER_HIDDEN * sizeof(*output->numbers));
	if (!output->numbers)
		return error_set(
			err, STATUS_ENVIRONMENT, "not enough memory to check %lld tokens", (long long)tokens);
	if (exact)
		return exactly(expected, &call, output->numbers, err);
	if (!expected->checked[semantics])
		result = check_native(expected, &call, err);
	return result ? result : natively(expected, &call, output->numbers, err);
}

double expected_seconds(const struct expected *expected, int64_t tokens, double seconds)
{
	double exact = expected->seconds_per_token * (double)tokens;

	return exact <= seconds ? exact : exact * NATIVE_SHARE;
}
