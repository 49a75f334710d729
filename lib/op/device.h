/* device: where the operation and the layer run. */
#pragma once

#include "op/quasar.h"

struct layer;
struct layer_call;

struct device {
	const char *kind;      /* "cpu" */
	char description[192]; /* "cpu (AMD EPYC 7763, 2 threads, x86-64-v3)" */
	int (*quasar)(const struct quasar_problem *problem, struct error *err);
	int (*layer)(const struct layer *layer, const struct layer_call *call, struct error *err);
	/* Peak memory in MiB since the last reset. */
	void (*memory_reset)(void);
	double (*memory_peak)(void);
};

/* "auto", "cpu", "cuda" or "cuda:N", as the setting DEVICE says. STATUS_ENVIRONMENT for a device that is
 * not there, STATUS_USAGE for a name that is none. */
int device_open(const char *name, struct device *device, struct error *err);
