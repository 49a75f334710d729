/* recurrence: the published recurrence as one would first write it, token by token in fp32: what the chunked
 * kernels are compared with. Compiled with the flags of each instruction set. */
#pragma once

#include <stdint.h>

struct recurrence {
	const char *name; /* of the instruction set */
	/* One head: rows of 64 floats, `stride` apart; state [64, 64] starts as it is. */
	void (*run)(const float *q, const float *k, const float *v, float *o, int64_t tokens, int64_t stride,
		float beta, float *state);
	/* Multiply-adds on registers alone, as many as it returns. */
	double (*peak)(void);
};

extern const struct recurrence recurrence_baseline;
#ifdef __x86_64__
extern const struct recurrence recurrence_x86_64_v3, recurrence_x86_64_v4, recurrence_x86_64_amx;
#endif
