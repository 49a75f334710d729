/* compare: the one measure of how far two tensors are apart. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct comparison {
	double cosine;         /* 1 for two tensors of zeros */
	double max_difference; /* largest |a − b| */
	double relative_error; /* ‖a − b‖ / ‖b‖ */
	double norm;           /* ‖b‖; the relative error is ‖a − b‖ where it is 0 */
	bool finite;           /* no NaN or infinity in either; else the rest means nothing */
};

/* Whether a is as near to b as that. Nothing has a direction to compare with a b of zeros. */
bool comparison_agrees(const struct comparison *comparison, double least_cosine, double most_relative_error);

/* Compare `count` elements of contiguous tensors; b is the reference. Sums are in fp64. */
struct comparison compare_bf16(const uint16_t *a, const uint16_t *b, size_t count);
struct comparison compare_bf16_double(const uint16_t *a, const double *b, size_t count);
struct comparison compare_float(const float *a, const float *b, size_t count);
struct comparison compare_float_double(const float *a, const double *b, size_t count);
