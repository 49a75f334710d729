/* family: what the operations have in common, and the table of them: what measures, verifies, tests or
 * tunes an operation goes through this table, and knows no operation by name. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "tensor/random.h"
#include "tensor/tensor.h"

enum { FAMILY_TENSORS = 16, FAMILY_OPTIONS = 3 };

struct op_shape {
	int64_t batch, tokens;
	int heads, key_dim, value_dim;
	int key_heads;     /* of k and v, each for a group of heads; 0: as many as heads */
	int64_t sequences; /* packed into a batch of 1; 0: each of the batch is one, or as many as are usual */
};

enum tensor_role {
	TENSOR_INPUT,
	TENSOR_OUTPUT,
	TENSOR_INITIAL, /* an input that may be left out: zeros */
	TENSOR_FINAL,   /* an output that may be left out */
	TENSOR_SAVED,   /* of a gradient: an input that is an output of its operation, by the same name */
};

/* A tensor of a family. */
struct family_tensor {
	const char *name; /* "q" */
	/* A letter a dimension: B(atch), T(oken), H(ead), G(roup: a head of the keys), K(ey) and V(alue)
	 * dimension; N: packed sequences, else the batch. Rows of tokens, which are what has T and then K
	 * or V, may have any strides, and their elements are of the problem's type; all others are
	 * contiguous and fp32. */
	const char *shape;
	enum tensor_role role;
	struct distribution distribution; /* of an input, where random ones are made */
};

/* Something that a family leaves open: which of several functions is meant. */
struct family_option {
	const char *values
		[6]; /* names that no other option of the family has; the first is meant where none is given */
};

/* What is asked of an operation. Memory is the caller's, and where the implementation looks for it: the
 * host's or the GPU's. */
struct op_problem {
	struct op_shape shape;
	enum dtype dtype;
	int options[FAMILY_OPTIONS];           /* for each of the family's options the number of its value */
	struct tensor tensors[FAMILY_TENSORS]; /* in the family's order; data NULL: left out */
	const int64_t *starts;                 /* [sequences + 1]: where packed ones start, and the end */
	const int32_t *cu_seqlens;             /* the same in the host's memory, wherever the tensors are */
};

/* The ways in which a family's GPU version can be built and launched. Nothing here asks a driver: properties may be
 * those of a GPU that is elsewhere, and a problem is one that family_problem() makes. */
struct family_configs {
	const char *kernel, *source; /* that they are of: "quasar_chunk" in kernels/"quasar/chunk.cu" */
	const struct parameter *parameters; /* ends with an entry without a name */
	/* Why a GPU cannot run a problem in a configuration, or why that is not worth trying: STATUS_USAGE or
	 * STATUS_ENVIRONMENT. */
	int (*check)(const struct op_problem *problem, const struct gpu_properties *properties,
		const struct config *config, struct error *err);
	/* The one that is chosen where nothing was measured. */
	struct config (*usual)(const struct op_problem *problem, const struct gpu_properties *properties);
	/* One that tuning found for a problem of this shape class (op/tuned.h), fitted to this problem;
	 * the usual one where it cannot be used. */
	struct config (*adopt)(const struct op_problem *problem, const struct gpu_properties *properties,
		const struct config *tuned);
	/* What is worth trying of a parameter whose table has no values, where those before it are as in `config`;
	 * ends with 0. */
	void (*values)(const struct op_problem *problem, const struct gpu_properties *properties,
		const struct config *config, int parameter, int values[CONFIG_VALUES]);
	/* The kernels of a call, in the order of their launches; returns how many. */
	int (*launches)(const struct op_problem *problem, const struct config *config,
		struct config_launch launches[CONFIG_LAUNCHES]);
};

struct family {
	const char *name;                     /* "quasar" */
	const char *title;                    /* "QuasarAttention" */
	const struct family_tensor *tensors;  /* ends with an entry whose name is NULL */
	const struct family_option *options;  /* ends with an entry without values */
	const struct family_configs *configs; /* of the GPU version; NULL: there is none */
	/* Whether the function that options choose has tensor number `tensor`; NULL: each has all. */
	bool (*has_tensor)(int tensor, const int options[FAMILY_OPTIONS]);
	/* A gradient, which is a family of its own, names the operation that it is of. It has the same options, maybe
	 * without the last values of them, and those of the operation's tensors that it reads, by the same names;
	 * the gradient of tensor x is "dx", an output for an input of the operation, an input for an output. NULL:
	 * this is no gradient. */
	const struct family *gradient_of;

	/* Says what is wrong with a problem, if anything. Every implementation asks first. STATUS_USAGE. */
	int (*check)(const struct op_problem *problem, struct error *err);
	/* In fp64, written as the formulas stand. `results`: for each output its numbers, contiguous, or
	 * NULL where it is not wanted; in the host's memory. STATUS_ENVIRONMENT without memory. */
	int (*reference)(
		const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err);
	int (*cpu)(const struct op_problem *problem, struct error *err);
	/* Queues the operation in a configuration. NULL: there is no GPU version. */
	int (*cuda)(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
		const struct config *config, struct error *err);
	/* As reference(), on the GPU, and waits; NULL: the host has to do it. */
	int (*cuda_reference)(struct gpu *gpu, const struct op_problem *problem,
		double *const results[FAMILY_TENSORS], struct error *err);
	/* Multiplications and additions at least, in a chunked form. */
	double (*operations)(const struct op_problem *problem);
	double least_cosine; /* of bf16 tensors with the fp64 reference */
	unsigned packed;     /* bits: values of the first option that ask for packed sequences */
};

/* All of them; ends with NULL. The first is the one that is meant where none is named. */
extern const struct family *const families[];

/* NULL when none has that name. */
const struct family *family_find(const char *name);
/* The gradient of the function that options choose; NULL: there is none. */
const struct family *family_gradient(const struct family *family, const int options[FAMILY_OPTIONS]);

/* The options that a list "causal,relu" of values asks for; NULL or "": the usual ones. STATUS_USAGE, with
 * the values that there are. */
int family_options_parse(
	const struct family *family, const char *text, int options[FAMILY_OPTIONS], struct error *err);
/* The inverse: a value of each option, "causal,elu+1,normalised". */
void family_options_format(
	const struct family *family, const int options[FAMILY_OPTIONS], char *text, size_t size);

/* A tensor's number in the family; -1: it has none of that name. */
int family_tensor_find(const struct family *family, const char *name);

/* Whether the function that options choose has a tensor. */
static inline bool function_has_tensor(
	const struct family *family, const int options[FAMILY_OPTIONS], int tensor)
{
	return !family->has_tensor || family->has_tensor(tensor, options);
}

static inline bool function_is_packed(const struct family *family, const int options[FAMILY_OPTIONS])
{
	return family->packed >> options[0] & 1;
}

static inline bool tensor_is_output(const struct family_tensor *tensor)
{
	return tensor->role == TENSOR_OUTPUT || tensor->role == TENSOR_FINAL;
}

/* Whether it has rows of tokens, any strides and the problem's type. */
bool tensor_is_sequence(const struct family_tensor *tensor);

/* The size of each of its dimensions; with fewer than 4 the first ones are 1. Returns the number of
 * elements. */
int64_t family_tensor_size(const struct family_tensor *tensor, const struct op_shape *shape, int64_t size[4]);

/* Packed sequences that are usual where no number is named, and there are tokens enough. */
#define FAMILY_SEQUENCES 5

/* The shape with as many packed sequences as it has where options ask for some. */
struct op_shape family_shape(
	const struct family *family, const struct op_shape *shape, const int options[FAMILY_OPTIONS]);

/* A problem of contiguous tensors that have no memory: for what asks only how one would be computed. */
struct op_problem family_problem(const struct family *family, const struct op_shape *shape, enum dtype dtype,
	const int options[FAMILY_OPTIONS]);

/* Strides of a contiguous tensor of that size. */
void strides_contiguous(const int64_t size[4], int64_t stride[4]);

/* Bytes of the tensors that are there, each once: the least that goes through memory. */
double family_traffic(const struct family *family, const struct op_problem *problem);
