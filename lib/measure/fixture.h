/* fixture: the random tensors that operations and the layer are measured and checked on: one maker for all,
 * since what a kernel costs may depend on its input (keys that forget the past sooner leave less to do).
 * Which numbers they are stands in the table of families; fixture_describe() says it to people. */
#pragma once

#include <stdbool.h>

#include "measure/device.h"

/* How sequence tensors lie in memory. */
enum layout {
	LAYOUT_CONTIGUOUS,
	LAYOUT_PACKED,   /* slices of one tensor [B, T, H, n, S] */
	LAYOUT_HEADS,    /* [B, H, T, S] */
	LAYOUT_REVERSED, /* all strides negative */
	LAYOUT_SPARSE,   /* [T, S, B, H] with gaps: no dimension is contiguous */
	LAYOUTS,
};

struct fixture_plan {
	const struct family *family;
	struct op_shape shape;
	enum dtype dtype;
	int options[FAMILY_OPTIONS];
	enum layout layout;
	bool states; /* with initial and final ones */
	uint64_t seed;
	/* For tests of other keys than the family's: their deviation (0: the family's), and that of a mean
	 * that all tokens of a head share. */
	float key_deviation, key_mean;
};

struct fixture {
	struct fixture_plan plan;
	const struct device *device;
	struct op_problem problem; /* on the device */
	/* Of each tensor the memory that it lies in, on the device, and bytes of it; the first one's in a
	 * packed layout. */
	void *memory[FAMILY_TENSORS];
	size_t bytes[FAMILY_TENSORS];
	size_t count[FAMILY_TENSORS]; /* elements */
	int64_t *starts;              /* of packed sequences, on the device; NULL: there are none */
	int32_t *cu_seqlens;          /* the same in the host's memory */
};

/* What outputs, and the gaps between their elements, are filled with: a NaN in every type that no
 * arithmetic makes. */
#define FIXTURE_POISON 0x7fa5

/* The shape that validators time: batch 1, 8 heads of 64. */
struct op_shape fixture_shape(int64_t tokens);

/* Tensors of random numbers on a device; packed sequences of random lengths. STATUS_ENVIRONMENT without
 * memory. Freed with fixture_free(), also when this fails; `device` must outlive it. */
int fixture_make(struct fixture *fixture, const struct device *device, const struct fixture_plan *plan,
	struct error *err);
void fixture_free(struct fixture *fixture);

/* Computes what a gradient reads of its operation's outputs again, for whoever has changed the inputs. */
int fixture_save(const struct fixture *fixture, struct error *err);

/* Poisons all outputs. */
int fixture_poison(const struct fixture *fixture, struct error *err);

/* A tensor, numbered as in the family, in the order of its dimensions: `elements` as they are, [count]. */
int fixture_download(const struct fixture *fixture, int tensor, void *elements, struct error *err);

/* The outputs that a family always has, TENSOR_OUTPUT, one behind the other: the elements of all, as they are, and
 * where in `numbers` a reference is to put each. */
size_t fixture_outputs(const struct fixture *fixture);
int fixture_download_outputs(const struct fixture *fixture, void *elements, struct error *err);
void fixture_place_results(const struct fixture *fixture, double *numbers, double *results[FAMILY_TENSORS]);

/* "q, k, v normal, deviation 1; beta even in 0.7 … 2.8" */
void fixture_describe(
	const struct family *family, const int options[FAMILY_OPTIONS], char *text, size_t size);

/* --- the layer -------------------------------------------------------------------------------------- */

/* A layer on a device, with an input: normal, deviation 1. */
struct layer_fixture {
	const struct device *device;
	struct layer *layer;
	void *placed;
	float *x;      /* [tokens, hidden] */
	uint16_t *out; /* the same shape */
	size_t count;  /* numbers of x, and of out */
};

/* `weights`: a safetensors file; NULL: random ones of the shape that validators time. Otherwise as
 * fixture_make(). */
int layer_fixture_make(struct layer_fixture *fixture, const struct device *device, const char *weights,
	uint64_t seed, int64_t tokens, struct error *err);
void layer_fixture_free(struct layer_fixture *fixture);
