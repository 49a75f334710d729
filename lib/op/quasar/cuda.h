/* quasar_cuda: the operation and its parts on a GPU. Tensors, beta and states are in the GPU's memory, a problem's
 * first_row in the host's. The starts of packed sequences are kept to the tokens that there are, but not checked. Work is
 * queued: gpu_synchronize waits for it. The kernels explain themselves, in kernels/. */
#pragma once

#include "gpu/gpu.h"
#include "op/config.h"
#include "op/quasar/problem.h"

/* Any problem that quasar_check_in_place accepts, in exactly this configuration (NULL: quasar_config_default()), with q, k, v
 * and o of one type. STATUS_USAGE for what no GPU can do, STATUS_ENVIRONMENT for what this one cannot: either says what would
 * work. Nothing is launched then. The workspace grows to 24 KiB for each group of chunks at S = 64: 10 MB for 8 heads of a
 * long sequence on an H200. With three launches it also holds T, 8 KiB for each chunk: 1 GB for a million tokens of 8 heads
 * of 128. */
int quasar_cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct quasar_problem *problem,
	const struct config *config, struct error *err);

/* Whether there are not more tokens, heads and sequences than kernels can count. STATUS_USAGE. */
int quasar_check_counts(const struct quasar_problem *problem, struct error *err);

/* The same in fp64, token by token: o [B, T, H, S] and the final state [B, H, S, S] (or NULL) as doubles.
 * About 1.3 s for a million tokens of 8 heads on an H200. Reads the problem's inputs and initial state;
 * its o, final_state and first_row are not used. */
int quasar_cuda_reference(struct gpu *gpu, const struct quasar_problem *problem, double *o,
	double *final_state, struct error *err);

/* States of sequences that are decoded, several tokens at a time, of which it shows later how many stand:
 * the state behind each token is kept, so that the next call goes on from the last one that stood. All in
 * the GPU's memory. */
struct quasar_cache {
	float *states; /* [slots, H, S, S], aligned to 16 bytes */
	/* [sequences, width]: which slot has the state behind a sequence's token 0, 1, … of a call;
	 * negative: nobody wants it. No slot is there twice. No sequence has more tokens than `width`
	 * (with packed ones the caller sees to that). */
	const int *slots;
	int width;
	/* [sequences]: of the tokens of the last call so many stood, and this one starts from the state
	 * behind them. 0: it starts from zeros. NULL: from the one slot behind which the sequence was
	 * left, its first one. */
	const int *accepted;
};

/* The recurrence token by token, for few tokens: decoding. Causal semantics; the states are aligned to 16
 * bytes, and final_state may be initial_state. With a cache (NULL: none) the problem's states are not looked at. */
int quasar_cuda_recurrent(struct gpu *gpu, const struct quasar_problem *problem,
	const struct quasar_cache *cache, struct error *err);

/* alpha [B, T, H] = (1 − exp(−beta λ)) / (λ + ε) with λ = ‖k‖². */
int quasar_cuda_gate(struct gpu *gpu, const struct tensor *k, int64_t batch, int64_t tokens, int heads,
	int dim, const float *beta, float *alpha, struct error *err);

/* Inverses of `count` unit lower triangular matrices, [count, size, size], size 16, 32 or 64; see
 * kernels/quasar/forward_substitution.cu. `lower` may be `inverse`. Both are aligned to 16 bytes. */
int forward_substitution_cuda(
	struct gpu *gpu, const float *lower, float *inverse, int64_t count, int size, struct error *err);
