/* gpu: what the programs of tests/gpu have in common: the GPU that they run on, and how they begin. They take a pattern of
 * tests' names, to run only these, and end with status 77 and a reason where there is no GPU. After cmocka.h. */
#pragma once

#include <sodium.h>
#include <stdio.h>

#include "measure/device.h"

#define NO_GPU 77

static struct device device;

static inline void must(int result, const struct error *err)
{
	if (result < 0)
		fail_msg("%s", err->message);
}

/* Opens the device, for the tests that the arguments ask for. 0, or the status that the program ends with without one. */
static int open_gpu(int argc, char **argv)
{
	struct error err = {0};

	if (sodium_init() < 0)
		return 1;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	if (device_open_cuda(0, &device, &err) == 0)
		return 0;
	printf("skipped: %s\n", err.message);
	return NO_GPU;
}
