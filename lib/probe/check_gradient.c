/* Gradients against slopes: how fast the fp64 reference changes along them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "layer/layer.h"
#include "probe/inquiry.h"
#include "tensor/safetensors.h"

#define STEP 1e-3 /* relative, of what a gradient is of */
#define TOLERANCE 0.1

/* The output's product with a direction, in fp64; NAN when memory runs out. */
static double product(struct inquiry *it, const float *x, const float *direction)
{
	const struct layer_call call = {.semantics = it->semantics, .batch = 1, .tokens = SHORTEST, .x = x};
	double *out = malloc(inquiry_numbers(SHORTEST) * sizeof(*out)), sum = 0;
	struct error ignored;

	if (!out || layer_reference(expected_layer(it->expected), &call, out, &ignored) < 0)
		sum = NAN;
	for (size_t i = 0; isfinite(sum) && i < inquiry_numbers(SHORTEST); i++)
		sum += out[i] * (double)direction[i];
	free(out);
	return sum;
}

/* Whether `gradient`, of `variable` which it moves, is how fast the product changes along it. */
static bool gradient_is_right(struct inquiry *it, float *variable, const float *gradient, size_t count,
	const float *x, const float *direction)
{
	float *before = malloc(count * sizeof(*before));
	double squares = 0, sizes = 0, step, slope = NAN;

	for (size_t i = 0; i < count; i++) {
		squares += (double)gradient[i] * (double)gradient[i];
		sizes += (double)variable[i] * (double)variable[i];
	}
	step = STEP * sqrt(sizes / squares);
	if (before && squares > 0 && isfinite(squares)) {
		double values[2];

		memcpy(before, variable, count * sizeof(*before));
		for (int side = 0; side < 2; side++) {
			for (size_t i = 0; i < count; i++)
				variable[i] = before[i] +
					(float)((side ? step : -step) * (double)gradient[i]);
			values[side] = product(it, x, direction);
		}
		memcpy(variable, before, count * sizeof(*before));
		slope = (values[1] - values[0]) / (2 * step);
	}
	free(before);
	return fabs(slope - squares) <= TOLERANCE * squares;
}

/* One of a file's gradients; false also when it is not there. */
static bool check_one_gradient(struct inquiry *it, const struct safetensors *file, const char *name,
	float *variable, size_t count, const float *x, const float *direction)
{
	float *gradient = malloc(count * sizeof(*gradient));
	struct error ignored;
	bool right = gradient && safetensors_read(file, name, gradient, count, &ignored) == 0 &&
		gradient_is_right(it, variable, gradient, count, x, direction);

	free(gradient);
	return right;
}

/* The gradients that are not there or wrong, by their names. */
static void find_wrong_gradients(struct inquiry *it, const struct safetensors *file, float *x,
	const float *direction, struct buffer *wrong)
{
	const char *name;
	size_t count;
	float *variable;

	for (int i = 0; (variable = layer_parameter(expected_layer(it->expected), i, &name, &count)); i++)
		if (!check_one_gradient(it, file, name, variable, count, x, direction))
			buffer_printf(wrong, "%s%s", wrong->length ? ", " : "", name);
	if (!check_one_gradient(it, file, "x", x, inquiry_numbers(SHORTEST), x, direction))
		buffer_printf(wrong, "%sx", wrong->length ? ", " : "");
}

/* In the session elsewhere, for a backward pass may end its process, and validators make none. */
static int find_gradients(
	struct inquiry *it, const float *x, const float *direction, const char **path, struct error *err)
{
	struct probe *probe = inquiry_load_elsewhere(it, err);

	if (!probe || probe_input(probe, "short", x, SHORTEST, err) < 0)
		return -1;
	return probe_gradients(probe, "short", SHORTEST, direction, path, err);
}

int check_gradient(struct inquiry *it, struct error *err)
{
	float *x, *direction;
	struct buffer wrong = {0};
	struct safetensors *file = NULL;
	const char *path;
	int result;

	if (!it->found->function)
		return 0; /* of what? */
	x = inquiry_allocate(2 * SHORTEST, err);
	if (!x)
		return -1;
	direction = x + inquiry_numbers(SHORTEST);
	inquiry_fill(it, x, 2 * inquiry_numbers(SHORTEST));
	result = find_gradients(it, x, direction, &path, err);
	if (!result && !(file = safetensors_open(path, err)))
		result = error_set(err, STATUS_FAILED, "its process did not write the gradients");
	if (!result) {
		find_wrong_gradients(it, file, x, direction, &wrong);
		check_add(it->checks, "fork.gradient", wrong.length ? CHECK_WARN : CHECK_OK,
			wrong.length ? "Validators do not look at gradients; whoever trains with it does."
				     : NULL,
			wrong.length ? "zero or wrong: %s" : "those of x and of all parameters are right%s",
			wrong.length ? wrong.data : "");
	} else if (err->status == STATUS_FAILED) {
		check_add(it->checks, "fork.gradient", CHECK_WARN,
			"Validators do not look at gradients; whoever trains with it does.", "%s",
			err->message);
		result = 0;
	}
	safetensors_close(file);
	buffer_free(&wrong);
	free(x);
	return result;
}
