#include "op/family.h"

#include <stdio.h>
#include <string.h>

extern const struct family family_quasar, family_quasar_backward, family_linear, family_linear_backward,
	family_flash, family_flash_backward;

const struct family *const families[] = {&family_quasar, &family_quasar_backward, &family_linear,
	&family_linear_backward, &family_flash, &family_flash_backward, NULL};

const struct family *family_find(const char *name)
{
	for (int i = 0; families[i]; i++)
		if (!strcmp(families[i]->name, name))
			return families[i];
	return NULL;
}

static bool has_function(const struct family *family, const int options[FAMILY_OPTIONS])
{
	for (int i = 0; family->options[i].values[0]; i++)
		for (int n = 0; n <= options[i]; n++)
			if (!family->options[i].values[n])
				return false;
	return true;
}

const struct family *family_gradient(const struct family *family, const int options[FAMILY_OPTIONS])
{
	for (int i = 0; families[i]; i++)
		if (families[i]->gradient_of == family && has_function(families[i], options))
			return families[i];
	return NULL;
}

/* --- options -------------------------------------------------------------------------------------- */

/* Sets the option that has a value of this name, of `length` characters. */
static bool set_option(
	const struct family *family, const char *value, size_t length, int options[FAMILY_OPTIONS])
{
	for (int i = 0; family->options[i].values[0]; i++)
		for (int n = 0; family->options[i].values[n]; n++) {
			const char *name = family->options[i].values[n];

			if (strlen(name) != length || strncmp(name, value, length))
				continue;
			options[i] = n;
			return true;
		}
	return false;
}

/* "upstream|causal", and for each further option its values behind a comma */
static void list_values(const struct family *family, char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; family->options[i].values[0]; i++)
		for (int n = 0; family->options[i].values[n] && used < size; n++)
			used += (size_t)snprintf(text + used, size - used, "%s%s",
				n           ? "|"
					: i ? ","
					    : "",
				family->options[i].values[n]);
}

int family_options_parse(
	const struct family *family, const char *text, int options[FAMILY_OPTIONS], struct error *err)
{
	char values[256];

	memset(options, 0, FAMILY_OPTIONS * sizeof(*options));
	while (text && *text) {
		size_t length = strcspn(text, ",");

		if (!set_option(family, text, length, options)) {
			list_values(family, values, sizeof(values));
			return error_set(err, STATUS_USAGE, "%.*s: unknown semantics of %s; use %s",
				(int)length, text, family->name, values);
		}
		text += length + (text[length] == ',');
	}
	return 0;
}

void family_options_format(
	const struct family *family, const int options[FAMILY_OPTIONS], char *text, size_t size)
{
	size_t used = 0;

	text[0] = '\0';
	for (int i = 0; family->options[i].values[0] && used < size; i++)
		used += (size_t)snprintf(text + used, size - used, "%s%s", i ? "," : "",
			family->options[i].values[options[i]]);
}

/* --- tensors -------------------------------------------------------------------------------------- */

int family_tensor_find(const struct family *family, const char *name)
{
	for (int i = 0; family->tensors[i].name; i++)
		if (!strcmp(family->tensors[i].name, name))
			return i;
	return -1;
}

bool tensor_is_sequence(const struct family_tensor *tensor)
{
	return strchr(tensor->shape, 'T') && strpbrk(tensor->shape, "KV");
}

static int64_t extent(char letter, const struct op_shape *shape)
{
	switch (letter) {
	case 'N':
		return shape->sequences ? shape->sequences : shape->batch;
	case 'B':
		return shape->batch;
	case 'T':
		return shape->tokens;
	case 'H':
		return shape->heads;
	case 'G':
		return shape->key_heads ? shape->key_heads : shape->heads;
	case 'K':
		return shape->key_dim;
	default: /* V */
		return shape->value_dim;
	}
}

int64_t family_tensor_size(const struct family_tensor *tensor, const struct op_shape *shape, int64_t size[4])
{
	int64_t count = 1;
	size_t missing = 4 - strlen(tensor->shape);

	for (size_t i = 0; i < 4; i++) {
		size[i] = i < missing ? 1 : extent(tensor->shape[i - missing], shape);
		count *= size[i];
	}
	return count;
}

void strides_contiguous(const int64_t size[4], int64_t stride[4])
{
	stride[3] = 1;
	for (int i = 2; i >= 0; i--)
		stride[i] = stride[i + 1] * size[i + 1];
}

struct op_shape family_shape(
	const struct family *family, const struct op_shape *shape, const int options[FAMILY_OPTIONS])
{
	struct op_shape whole = *shape;

	if (function_is_packed(family, options) && !whole.sequences)
		whole.sequences = shape->tokens < FAMILY_SEQUENCES ? shape->tokens : FAMILY_SEQUENCES;
	return whole;
}

struct op_problem family_problem(const struct family *family, const struct op_shape *shape, enum dtype dtype,
	const int options[FAMILY_OPTIONS])
{
	struct op_problem problem = {.shape = family_shape(family, shape, options), .dtype = dtype};

	memcpy(problem.options, options, sizeof(problem.options));
	for (int i = 0; family->tensors[i].name; i++) {
		int64_t size[4];

		family_tensor_size(&family->tensors[i], shape, size);
		problem.tensors[i].dtype = tensor_is_sequence(&family->tensors[i]) ? dtype : DTYPE_F32;
		strides_contiguous(size, problem.tensors[i].stride);
	}
	return problem;
}

double family_traffic(const struct family *family, const struct op_problem *problem)
{
	double bytes = 0;

	for (int i = 0; family->tensors[i].name; i++) {
		int64_t size[4], count = family_tensor_size(&family->tensors[i], &problem->shape, size);

		if (problem->tensors[i].data)
			bytes += (double)count * (double)dtype_size(problem->tensors[i].dtype);
	}
	return bytes;
}
