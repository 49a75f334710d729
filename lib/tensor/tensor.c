#include "tensor/tensor.h"

#include <stdlib.h>
#include <string.h>

struct tensor tensor_contiguous(void *data, enum dtype dtype, int64_t tokens, int heads, int dim)
{
	return (struct tensor){data, dtype, {tokens * heads * dim, (int64_t)heads * dim, dim, 1}};
}

bool tensor_is_vector(const struct tensor *tensor)
{
	uintptr_t bits = (uintptr_t)tensor->data;

	for (int i = 0; i < 3; i++)
		bits |= (uintptr_t)tensor->stride[i] * dtype_size(tensor->dtype);
	return tensor->stride[3] == 1 && bits % TENSOR_VECTOR_BYTES == 0;
}

struct extent {
	int64_t size, stride;
};

/* Whether the elements of a tensor are surely apart: each stride steps over all that smaller ones reach. */
static bool strides_nested(struct extent *extents, int count)
{
	int64_t reach = 0;

	for (int i = 1; i < count; i++) /* ascending by stride */
		for (int j = i; j > 0 && llabs(extents[j].stride) < llabs(extents[j - 1].stride); j--) {
			struct extent swapped = extents[j];

			extents[j] = extents[j - 1];
			extents[j - 1] = swapped;
		}
	for (int i = 0; i < count; i++) {
		if (extents[i].size > 1 && llabs(extents[i].stride) <= reach)
			return false;
		reach += llabs(extents[i].stride) * (extents[i].size - 1);
	}
	return true;
}

/* The elements that a tensor reaches, as offsets in bytes from its data. */
static void reach(const struct tensor *tensor, const int64_t size[4], int64_t *low, int64_t *high)
{
	*low = *high = 0;
	for (int i = 0; i < 4; i++)
		*(tensor->stride[i] < 0 ? low : high) += tensor->stride[i] * (size[i] - 1);
	*low *= (int64_t)dtype_size(tensor->dtype);
	*high = (*high + 1) * (int64_t)dtype_size(tensor->dtype);
}

bool tensor_overlap(
	const struct tensor *a, const int64_t a_size[4], const struct tensor *b, const int64_t b_size[4])
{
	int64_t a_low, a_high, b_low, b_high, apart = (char *)b->data - (char *)a->data;
	struct extent extents[5];

	reach(a, a_size, &a_low, &a_high);
	reach(b, b_size, &b_low, &b_high);
	if (apart + b_high <= a_low || apart + b_low >= a_high)
		return false;
	/* two slices of one tensor are apart if that is so with their distance as a fifth stride */
	if (a->dtype != b->dtype || memcmp(a->stride, b->stride, sizeof(a->stride)) ||
		apart % (int64_t)dtype_size(a->dtype))
		return true;
	for (int i = 0; i < 4; i++)
		extents[i] = (struct extent){a_size[i] > b_size[i] ? a_size[i] : b_size[i], a->stride[i]};
	extents[4] = (struct extent){2, apart / (int64_t)dtype_size(a->dtype)};
	return !strides_nested(extents, 5);
}

int tensor_check(const struct tensor *tensor, const char *name, const int64_t size[4], struct error *err)
{
	if (!tensor->data)
		return error_set(err, STATUS_USAGE, "tensor %s has no memory", name);
	if (tensor->dtype != DTYPE_F32 && tensor->dtype != DTYPE_BF16 && tensor->dtype != DTYPE_F16)
		return error_set(err, STATUS_USAGE, "tensor %s: unknown type %d", name, (int)tensor->dtype);
	if ((uintptr_t)tensor->data % dtype_size(tensor->dtype))
		return error_set(err, STATUS_USAGE, "tensor %s is not aligned to its elements", name);
	for (int i = 0; i < 4; i++)
		if (llabs(tensor->stride[i]) > TENSOR_LARGEST / size[i])
			return error_set(err, STATUS_USAGE, "tensor %s: stride %lld is too large", name,
				(long long)tensor->stride[i]);
	return 0;
}

int tensor_check_output(
	const struct tensor *tensor, const char *name, const int64_t size[4], struct error *err)
{
	struct extent extents[4];

	if (tensor_check(tensor, name, size, err) < 0)
		return -1;
	for (int i = 0; i < 4; i++)
		extents[i] = (struct extent){size[i], tensor->stride[i]};
	if (!strides_nested(extents, 4))
		return error_set(err, STATUS_USAGE, "tensor %s: its strides let elements overlap", name);
	return 0;
}

int tensors_check(const struct named_tensor *tensors, int inputs, int count, struct error *err)
{
	for (int i = 0; i < count; i++) {
		const struct named_tensor *it = &tensors[i];
		bool output = i >= inputs;

		if ((output ? tensor_check_output : tensor_check)(it->tensor, it->name, it->size, err) < 0)
			return -1;
		for (int n = 0; n < i && output; n++)
			if (tensor_overlap(tensors[n].tensor, tensors[n].size, it->tensor, it->size))
				return error_set(err, STATUS_USAGE, "tensor %s overlaps tensor %s", it->name,
					tensors[n].name);
	}
	return 0;
}
