#include "measure/fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "layer/layer.h"

struct op_shape fixture_shape(int64_t tokens)
{
	return (struct op_shape){.batch = 1,
		.tokens = tokens,
		.heads = LAYER_HEADS,
		.key_dim = LAYER_DIM,
		.value_dim = LAYER_DIM};
}

/* --- where tensors lie ---------------------------------------------------------------------------- */

/* The strides of a tensor of that size; returns the elements of memory that it takes, and where in it the
 * first element stands. `slices`: tensors that share the memory of a packed layout. */
static size_t lay_out(
	enum layout layout, const int64_t size[4], int64_t slices, int64_t stride[4], int64_t *start)
{
	int64_t b = size[0], t = size[1], h = size[2], s = size[3], count = b * t * h * s;

	*start = 0;
	switch (layout) {
	case LAYOUT_PACKED:
		memcpy(stride, (int64_t[]){t * h * slices * s, h * slices * s, slices * s, 1},
			4 * sizeof(*stride));
		return (size_t)(slices * count);
	case LAYOUT_HEADS:
		memcpy(stride, (int64_t[]){h * t * s, s, t * s, 1}, 4 * sizeof(*stride));
		return (size_t)count;
	case LAYOUT_REVERSED:
		memcpy(stride, (int64_t[]){-t * h * s, -h * s, -s, -1}, 4 * sizeof(*stride));
		*start = count - 1;
		return (size_t)count;
	case LAYOUT_SPARSE:
		memcpy(stride, (int64_t[]){3 * h, (s * b * h + 5) * 3, 3, b * h * 3}, 4 * sizeof(*stride));
		return (size_t)((s * b * h + 5) * 3 * t);
	default:
		strides_contiguous(size, stride);
		return (size_t)count;
	}
}

/* Whether a tensor has no memory of its own, but shares the first one's. */
static bool is_slice(const struct fixture *fixture, int tensor)
{
	return tensor && fixture->plan.layout == LAYOUT_PACKED &&
		tensor_is_sequence(&fixture->plan.family->tensors[tensor]);
}

static int slice_count(const struct fixture *fixture)
{
	int slices = 1;

	for (int i = 1; fixture->plan.family->tensors[i].name; i++)
		slices += is_slice(fixture, i);
	return slices;
}

static int place_tensor(struct fixture *fixture, int number, struct error *err)
{
	const struct family_tensor *tensor = &fixture->plan.family->tensors[number];
	struct tensor *placed = &fixture->problem.tensors[number];
	const struct op_shape *shape = &fixture->plan.shape;
	int64_t size[4], start,
		widest = shape->key_dim > shape->value_dim ? shape->key_dim : shape->value_dim;
	bool sequence = tensor_is_sequence(tensor);
	size_t elements;

	placed->dtype = sequence ? fixture->plan.dtype : DTYPE_F32;
	fixture->count[number] = (size_t)family_tensor_size(tensor, &fixture->plan.shape, size);
	if (fixture->plan.layout == LAYOUT_PACKED && sequence) { /* slices are equally large */
		size[2] = shape->heads;
		size[3] = widest;
	}
	elements = lay_out(sequence ? fixture->plan.layout : LAYOUT_CONTIGUOUS, size, slice_count(fixture),
		placed->stride, &start);
	if (is_slice(fixture, number)) {
		fixture->memory[number] = fixture->memory[0];
		start = number * size[3];
	} else {
		fixture->bytes[number] = elements * dtype_size(placed->dtype);
		fixture->memory[number] = fixture->device->allocate(
			fixture->device, fixture->bytes[number], err);
	}
	if (!fixture->memory[number])
		return -1;
	placed->data = (char *)fixture->memory[number] + start * (int64_t)dtype_size(placed->dtype);
	return 0;
}

/* --- what is in them ------------------------------------------------------------------------------ */

/* Row `row` of the tensor, a row being what its last dimension counts: where it starts, in elements. */
static int64_t row_start(const struct tensor *tensor, const int64_t size[4], int64_t row)
{
	return row % size[2] * tensor->stride[2] + row / size[2] % size[1] * tensor->stride[1] +
		row / size[2] / size[1] * tensor->stride[0];
}

/* Nearly parallel keys: the same random row added to all tokens of a head. */
static void add_mean(const struct fixture_plan *plan, int64_t head, float *row, int64_t count)
{
	const struct distribution mean = {DISTRIBUTION_NORMAL, .deviation = plan->key_mean};
	float numbers[count];

	random_fill(&mean, plan->seed, FAMILY_TENSORS, (uint64_t)(head * count), numbers, (size_t)count);
	for (int64_t i = 0; i < count; i++)
		row[i] += numbers[i];
}

/* Random numbers of a tensor to the host's copy of its memory, which begins at `start` elements before the
 * first. */
static void fill(const struct fixture *fixture, int number, void *host)
{
	const struct fixture_plan *plan = &fixture->plan;
	const struct family_tensor *described = &plan->family->tensors[number];
	const struct tensor *tensor = &fixture->problem.tensors[number];
	struct distribution distribution = described->distribution;
	bool keys = !strcmp(described->name, "k");
	char *first = (char *)host + ((char *)tensor->data - (char *)fixture->memory[number]);
	int64_t size[4], count = family_tensor_size(described, &plan->shape, size);

	if (keys && plan->key_deviation > 0)
		distribution.deviation = plan->key_deviation;
#pragma omp parallel for
	for (int64_t row = 0; row < count / size[3]; row++) {
		int64_t at = row_start(tensor, size, row);
		float numbers[size[3]];

		random_fill(&distribution, plan->seed, (uint64_t)number, (uint64_t)(row * size[3]), numbers,
			(size_t)size[3]);
		if (keys && plan->key_mean > 0)
			add_mean(plan, row % size[2], numbers, size[3]);
		for (int64_t i = 0; i < size[3]; i++)
			dtype_store(first, tensor->dtype, at + i * tensor->stride[3], numbers[i]);
	}
}

static void poison(void *memory, size_t bytes)
{
	uint16_t *halves = memory;

	for (size_t i = 0; i < bytes / sizeof(*halves); i++)
		halves[i] = FIXTURE_POISON;
}

/* Everything that lies in the memory of tensor `number`, inputs or poison. */
static int upload_memory(const struct fixture *fixture, int number, struct error *err)
{
	const struct family_tensor *tensors = fixture->plan.family->tensors;
	size_t bytes = fixture->bytes[number];
	void *host = malloc(bytes);
	int result;

	if (!host)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %.0f MiB of random numbers",
			(double)bytes / 0x1p20);
	poison(host, bytes);
	for (int i = 0; tensors[i].name; i++)
		if (fixture->memory[i] == fixture->memory[number] && !tensor_is_output(&tensors[i]) &&
			tensors[i].role != TENSOR_SAVED)
			fill(fixture, i, host);
	result = fixture->device->upload(fixture->device, fixture->memory[number], host, bytes, err);
	free(host);
	return result;
}

/* What a gradient reads of its operation's outputs: computed as it is where it is used, on the same device. */
int fixture_save(const struct fixture *fixture, struct error *err)
{
	const struct family *family = fixture->plan.family, *operation = family->gradient_of;
	struct op_problem problem = fixture->problem;
	bool saved = false;

	for (int i = 0; family->tensors[i].name; i++)
		saved |= family->tensors[i].role == TENSOR_SAVED;
	if (!saved)
		return 0;
	for (int i = 0; i < FAMILY_TENSORS; i++)
		problem.tensors[i] = (struct tensor){0};
	for (int i = 0; operation->tensors[i].name; i++) {
		int here = family_tensor_find(family, operation->tensors[i].name);

		if (here >= 0)
			problem.tensors[i] = fixture->problem.tensors[here];
	}
	return fixture->device->operate(fixture->device, operation, &problem, NULL, err);
}

static int by_value(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

	return (x > y) - (x < y);
}

/* Bounds of packed sequences, anywhere: some may be empty. */
static int cut_sequences(struct fixture *fixture, struct error *err)
{
	const struct op_shape *shape = &fixture->plan.shape;
	const struct distribution even = {DISTRIBUTION_UNIFORM, .low = 0, .high = (float)shape->tokens};
	size_t count = (size_t)shape->sequences + 1, bytes = count * sizeof(*fixture->starts);
	int64_t starts[count];
	float cuts[count];

	random_fill(&even, fixture->plan.seed, FAMILY_TENSORS + 2, 0, cuts, count);
	for (size_t i = 0; i < count; i++)
		starts[i] = (int64_t)cuts[i] < shape->tokens ? (int64_t)cuts[i] : shape->tokens;
	starts[0] = 0;
	starts[count - 1] = shape->tokens;
	qsort(starts, count, sizeof(*starts), by_value);
	fixture->cu_seqlens = xcalloc(count, sizeof(*fixture->cu_seqlens));
	for (size_t i = 0; i < count; i++)
		fixture->cu_seqlens[i] = (int32_t)starts[i];
	fixture->problem.cu_seqlens = fixture->cu_seqlens;
	fixture->starts = fixture->device->allocate(fixture->device, bytes, err);
	fixture->problem.starts = fixture->starts;
	return fixture->starts ? fixture->device->upload(fixture->device, fixture->starts, starts, bytes, err)
			       : -1;
}

int fixture_make(struct fixture *fixture, const struct device *device, const struct fixture_plan *plan,
	struct error *err)
{
	const struct family_tensor *tensors = plan->family->tensors;
	struct op_shape *shape = &fixture->plan.shape;

	*fixture = (struct fixture){.plan = *plan, .device = device};
	*shape = family_shape(plan->family, shape, plan->options);
	fixture->problem = (struct op_problem){.shape = *shape, .dtype = plan->dtype};
	memcpy(fixture->problem.options, plan->options, sizeof(plan->options));
	if (shape->sequences && cut_sequences(fixture, err) < 0)
		return -1;
	for (int i = 0; tensors[i].name; i++) {
		bool optional = tensors[i].role == TENSOR_INITIAL || tensors[i].role == TENSOR_FINAL;

		if (function_has_tensor(plan->family, plan->options, i) && (plan->states || !optional) &&
			place_tensor(fixture, i, err) < 0)
			return -1;
	}
	for (int i = 0; tensors[i].name; i++)
		if (fixture->bytes[i] && upload_memory(fixture, i, err) < 0)
			return -1;
	return fixture_save(fixture, err);
}

void fixture_free(struct fixture *fixture)
{
	for (int i = 0; i < FAMILY_TENSORS; i++)
		if (fixture->bytes[i])
			fixture->device->release(fixture->device, fixture->memory[i]);
	if (fixture->starts)
		fixture->device->release(fixture->device, fixture->starts);
	free(fixture->cu_seqlens);
	*fixture = (struct fixture){0};
}

int fixture_poison(const struct fixture *fixture, struct error *err)
{
	const struct family_tensor *tensors = fixture->plan.family->tensors;

	for (int i = 0; tensors[i].name; i++)
		if (tensor_is_output(&tensors[i]) && fixture->memory[i] &&
			upload_memory(fixture, is_slice(fixture, i) ? 0 : i, err) < 0)
			return -1;
	/* what was saved lay in the same memory */
	return fixture->plan.layout == LAYOUT_PACKED ? fixture_save(fixture, err) : 0;
}

int fixture_download(const struct fixture *fixture, int number, void *elements, struct error *err)
{
	const struct family_tensor *described = &fixture->plan.family->tensors[number];
	const struct tensor *tensor = &fixture->problem.tensors[number];
	size_t bytes = fixture->bytes[is_slice(fixture, number) ? 0 : number],
	       element = dtype_size(tensor->dtype);
	char *host = malloc(bytes), *first = host + ((char *)tensor->data - (char *)fixture->memory[number]);
	int64_t size[4], count = family_tensor_size(described, &fixture->plan.shape, size);

	if (!host)
		return error_set(err, STATUS_ENVIRONMENT, "not enough memory for %.0f MiB of output",
			(double)bytes / 0x1p20);
	if (fixture->device->download(fixture->device, host, fixture->memory[number], bytes, err) < 0) {
		free(host);
		return -1;
	}
#pragma omp parallel for
	for (int64_t row = 0; row < count / size[3]; row++) {
		int64_t at = row_start(tensor, size, row);

		for (int64_t i = 0; i < size[3]; i++)
			memcpy((char *)elements + (size_t)(row * size[3] + i) * element,
				first + (at + i * tensor->stride[3]) * (int64_t)element, element);
	}
	free(host);
	return 0;
}

size_t fixture_outputs(const struct fixture *fixture)
{
	const struct family_tensor *tensors = fixture->plan.family->tensors;
	size_t count = 0;

	for (int i = 0; tensors[i].name; i++)
		count += tensors[i].role == TENSOR_OUTPUT ? fixture->count[i] : 0;
	return count;
}

int fixture_download_outputs(const struct fixture *fixture, void *elements, struct error *err)
{
	const struct family_tensor *tensors = fixture->plan.family->tensors;
	char *at = elements;

	for (int i = 0; tensors[i].name; i++) {
		if (tensors[i].role != TENSOR_OUTPUT)
			continue;
		if (fixture_download(fixture, i, at, err) < 0)
			return -1;
		at += fixture->count[i] * dtype_size(fixture->problem.tensors[i].dtype);
	}
	return 0;
}

void fixture_place_results(const struct fixture *fixture, double *numbers, double *results[FAMILY_TENSORS])
{
	const struct family_tensor *tensors = fixture->plan.family->tensors;

	for (int i = 0; tensors[i].name; i++) {
		results[i] = tensors[i].role == TENSOR_OUTPUT ? numbers : NULL;
		numbers += results[i] ? fixture->count[i] : 0;
	}
}

void fixture_describe(const struct family *family, const int options[FAMILY_OPTIONS], char *text, size_t size)
{
	const struct family_tensor *tensors = family->tensors;
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; tensors[i].name && used < size; i++) {
		const struct distribution *distribution = &tensors[i].distribution;
		bool again = tensors[i + 1].name && tensors[i + 1].role == TENSOR_INPUT &&
			!memcmp(distribution, &tensors[i + 1].distribution, sizeof(*distribution));
		char how[64];

		if (tensors[i].role != TENSOR_INPUT || !function_has_tensor(family, options, i))
			continue;
		distribution_describe(distribution, how, sizeof(how));
		used += (size_t)snprintf(
			text + used, size - used, "%s%s", tensors[i].name, again ? ", " : " ");
		if (!again && used < size)
			used += (size_t)snprintf(text + used, size - used, "%s; ", how);
	}
	if (used >= 2 && used < size)
		text[used - 2] = '\0';
}

/* --- the layer -------------------------------------------------------------------------------------- */

#define SLICE ((size_t)1 << 20)

/* Normal random numbers to the device, a slice at a time. */
static int upload_normal(
	const struct device *device, uint64_t seed, float *to, size_t count, struct error *err)
{
	const struct distribution normal = {DISTRIBUTION_NORMAL, .deviation = 1};
	float *slice = malloc(SLICE * sizeof(*slice));
	int result = slice ? 0 : error_set(err, STATUS_ENVIRONMENT, "not enough memory for random numbers");

	for (size_t at = 0; at < count && !result; at += SLICE) {
		size_t length = count - at < SLICE ? count - at : SLICE;

#pragma omp parallel for
		for (size_t part = 0; part < length; part += SLICE / 64)
			random_fill(&normal, seed, FAMILY_TENSORS + 1, at + part, slice + part,
				length - part < SLICE / 64 ? length - part : SLICE / 64);
		result = device->upload(device, to + at, slice, length * sizeof(*slice), err);
	}
	free(slice);
	return result;
}

int layer_fixture_make(struct layer_fixture *fixture, const struct device *device, const char *weights,
	uint64_t seed, int64_t tokens, struct error *err)
{
	*fixture = (struct layer_fixture){.device = device};
	fixture->layer = weights ? layer_load(weights, err)
				 : layer_random(LAYER_HIDDEN, LAYER_HEADS, LAYER_DIM, seed, err);
	fixture->placed = fixture->layer ? device->layer_place(device, fixture->layer, err) : NULL;
	if (!fixture->placed)
		return -1;
	fixture->count = (size_t)tokens * (size_t)fixture->layer->hidden;
	fixture->x = device->allocate(device, fixture->count * sizeof(*fixture->x), err);
	fixture->out = fixture->x ? device->allocate(device, fixture->count * sizeof(*fixture->out), err)
				  : NULL;
	return fixture->out ? upload_normal(device, seed, fixture->x, fixture->count, err) : -1;
}

void layer_fixture_free(struct layer_fixture *fixture)
{
	if (!fixture->device)
		return;
	fixture->device->release(fixture->device, fixture->x);
	fixture->device->release(fixture->device, fixture->out);
	fixture->device->layer_remove(fixture->device, fixture->placed);
	layer_free(fixture->layer);
	*fixture = (struct layer_fixture){0};
}
