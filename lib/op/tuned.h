/* tuned: the configurations that were measured to be fastest, for problems of a class on a GPU of a name. Those that
 * compute look here before they choose by rule. There are none until somebody puts them here (lib/tune). */
#pragma once

#include "op/family.h"

/* Problems that one configuration is right for. */
struct shape_class {
	char function[64]; /* as family_options_format() writes it */
	enum dtype dtype;
	int64_t sequences; /* batch times heads */
	int key_dim, value_dim;
	int length; /* of 2^length tokens and more, but not twice as many */
};

/* The class that a problem belongs to. */
struct shape_class shape_class_of(const char *function, enum dtype dtype, const struct op_shape *shape);
bool shape_class_equal(const struct shape_class *a, const struct shape_class *b);
/* "upstream, bf16, 8 heads of 64, 65,536 tokens and more", for people. */
void shape_class_format(const struct shape_class *class, char *text, size_t size);

/* Adds one, or puts it in the place of what is there. Any thread. */
void tuned_put(
	const char *device, const char *kernel, const struct shape_class *class, const struct config *config);
/* Whether there is one. Any thread. */
bool tuned_find(
	const char *device, const char *kernel, const struct shape_class *class, struct config *config);
/* How a problem is computed on such a GPU: as tuning found for its class, fitted to it, else as is usual. */
struct config tuned_or_usual(const struct family *family, const struct op_problem *problem,
	const struct gpu_properties *properties);
/* Checks an operation and queues it on a GPU, in a configuration; NULL: tuned_or_usual(). STATUS_ENVIRONMENT where there is
 * no GPU version. */
int tuned_run(const struct family *family, struct gpu *gpu, struct gpu_workspace *workspace,
	const struct op_problem *problem, const struct config *config, struct error *err);
/* Forgets all. */
void tuned_clear(void);
