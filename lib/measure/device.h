/* device: where operations and the layer run. */
#pragma once

#include "op/family.h"
#include "op/quasar/problem.h"

struct layer;
struct layer_call;

/* Functions take the device itself. What operations and layer work on lies in the device's memory, which on
 * the CPU is the host's. A call returns when its work is done. Several devices may be open at once, each
 * used by one thread at a time. */
struct device {
	int index;              /* of the GPU; -1: the CPU */
	char description[192];  /* "cpu (AMD EPYC 7763, 2 threads, x86_64_v3)", "cuda:0 (NVIDIA H200, …)" */
	struct device_gpu *gpu; /* what a GPU has of its own; NULL: the CPU */

	/* An operation. STATUS_ENVIRONMENT where the family has no version for this device. */
	int (*operate)(const struct device *device, const struct family *family,
		const struct op_problem *problem, const struct config *config, struct error *err);
	/* The same, and the seconds that it took: of a GPU's own clock, on which the host's part of a call, which
	 * callers with more than one would not wait for, does not show. */
	int (*time)(const struct device *device, const struct family *family,
		const struct op_problem *problem, double *seconds, struct error *err);
	/* In fp64; results as family->reference() has them, in the host's memory. */
	int (*reference)(const struct device *device, const struct family *family,
		const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err);
	/* The layer as the device keeps it: made from one that stays the caller's and must outlive it. */
	void *(*layer_place)(const struct device *device, const struct layer *layer, struct error *err);
	void (*layer_remove)(const struct device *device, void *placed); /* NULL is fine */
	int (*layer)(
		const struct device *device, void *placed, const struct layer_call *call, struct error *err);

	void *(*allocate)(
		const struct device *device, size_t bytes, struct error *err); /* NULL: STATUS_ENVIRONMENT */
	void (*release)(const struct device *device, void *memory);            /* NULL is fine */
	int (*upload)(
		const struct device *device, void *to, const void *from, size_t bytes, struct error *err);
	int (*download)(
		const struct device *device, void *to, const void *from, size_t bytes, struct error *err);
	/* Bytes per second, read and written together, of a large copy in the device's memory. */
	int (*copy_rate)(const struct device *device, double *rate, struct error *err);
	/* Multiplications and additions per second of a large product of bf16 matrices. STATUS_ENVIRONMENT where the
	 * library is missing that makes it: OpenBLAS, or on a GPU cuBLASLt. */
	int (*product_rate)(const struct device *device, double *rate, struct error *err);

	/* Peak memory in MiB since the last reset. */
	void (*memory_reset)(const struct device *device);
	double (*memory_peak)(const struct device *device);
	void (*close)(const struct device *device); /* see device_close() */
};

/* "auto", "cpu", "cuda" or "cuda:N", as the setting DEVICE says; "auto" is the first GPU that works, else
 * the CPU. STATUS_ENVIRONMENT for a device that is not there, STATUS_USAGE for a name that is none. */
int device_open(const char *name, struct device *device, struct error *err);

/* Gives back what the device holds, kernels included. A device of zeros is fine. */
void device_close(struct device *device);

/* The CPU. */
void device_open_cpu(struct device *device);

/* A GPU, whose operations run in the configurations that tuning has found for it. */
int device_open_cuda(int index, struct device *device, struct error *err);
struct gpu *device_gpu(const struct device *device); /* as lib/gpu knows it; NULL: the CPU */
