/* config: how a kernel is built and launched, among the ways that give the same result. */
#pragma once

#include <stdbool.h>

enum { CONFIG_PARAMETERS = 8 };

/* Something that can be tuned. The problem's own constants (head dimension, type, …) are none of these. */
struct parameter {
	const char *name;  /* as the kernel has it, "NUM_STAGES" */
	bool compiled;     /* a constant of the kernel; else a number that the launch takes */
	int values[8];     /* worth trying; ends with 0; empty: depends on the problem */
};

/* A value for each parameter of a family, in its order. */
struct config {
	int value[CONFIG_PARAMETERS];
};
