/* device: where the operation and the layer run. */
#pragma once

#include "op/quasar/problem.h"

struct layer;
struct layer_call;

/* What operation and layer work on lies in the device's memory, which on the CPU is the host's. A call returns
 * when its work is done. There is one device of a kind in use at a time. */
struct device {
	int index;             /* of the GPU; -1: the CPU */
	char description[192]; /* "cpu (AMD EPYC 7763, 2 threads, x86-64-v3)", "cuda:0 (NVIDIA H200, …)" */

	int (*quasar)(const struct quasar_problem *problem, struct error *err);
	/* In fp64: `o` [B, T, H, S], in the host's memory. */
	int (*reference)(const struct quasar_problem *problem, double *o, struct error *err);
	/* The layer as the device keeps it: made from one that stays the caller's and must outlive it. */
	void *(*layer_place)(const struct layer *layer, struct error *err);
	void (*layer_remove)(void *placed); /* NULL is fine */
	int (*layer)(void *placed, const struct layer_call *call, struct error *err);

	void *(*allocate)(size_t bytes, struct error *err); /* NULL: STATUS_ENVIRONMENT */
	void (*release)(void *memory);                       /* NULL is fine */
	int (*upload)(void *to, const void *from, size_t bytes, struct error *err);
	int (*download)(void *to, const void *from, size_t bytes, struct error *err);
	/* Bytes per second, read and written together, of a large copy in the device's memory. */
	int (*copy_rate)(double *rate, struct error *err);

	/* Peak memory in MiB since the last reset. */
	void (*memory_reset)(void);
	double (*memory_peak)(void);
};

/* "auto", "cpu", "cuda" or "cuda:N", as the setting DEVICE says; "auto" is the first GPU that works, else
 * the CPU. STATUS_ENVIRONMENT for a device that is not there, STATUS_USAGE for a name that is none. */
int device_open(const char *name, struct device *device, struct error *err);

/* The CPU. */
void device_open_cpu(struct device *device);

/* A GPU. */
int device_open_cuda(int index, struct device *device, struct error *err);
