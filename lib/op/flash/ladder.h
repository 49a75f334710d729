/* ladder: what the steps to FlashAttention-2 are worth: the same kernels without some of them, to be measured beside
 * those with all. For that alone; on a GPU. */
#pragma once

#include "op/family.h"
#include "op/flash/cuda.h"

struct flash_rung {
	const char *name;  /* "two passes without atomics" */
	bool small_tiles;  /* 32 × 32, none loaded in advance; else those that are chosen otherwise, too */
	bool no_early_end; /* tiles above the diagonal are computed, and masked */
	bool atomics;      /* the gradient in one pass, which adds to dQ */
	bool no_wgmma;     /* all warps load what they multiply */
};

/* Each with what it has beyond those before; the last one is what flash_cuda() does in the usual configuration. Ends with
 * a rung without a name. */
extern const struct flash_rung flash_ladder[];

/* What a problem of the family "flash-backward" says, which is a problem of "flash" too. */
struct flash_problem flash_gradient_problem(const struct op_problem *problem);

/* flash_cuda(), or flash_cuda_gradient(), on a rung. */
int flash_cuda_rung(struct gpu *gpu, struct gpu_workspace *workspace, const struct flash_problem *problem,
	const struct flash_rung *rung, bool gradient, struct error *err);
