/* choice: how the kernels are built and launched for a problem, asked of the GPU by those who launch them from Python. */
#include "flash/choice.h"
#include "linear/choice.h"

struct ask_flash_arguments {
	int capability, multiprocessors, shared_per_block, shared_per_multiprocessor;
	int gradient, dim, causal, mapped, sequences, tokens;
	int *found;
};

extern "C" __global__ void ask_flash(const __grid_constant__ struct ask_flash_arguments a)
{
	const struct choice_machine machine = {
		a.capability, a.multiprocessors, a.shared_per_block, a.shared_per_multiprocessor};
	const struct flash_shape shape = {a.gradient, a.dim, a.causal, a.mapped, a.sequences, a.tokens};
	const struct flash_choice choice = flash_choose(&shape, &machine);
	int *found = a.found;

	*found++ = choice.block_m;
	*found++ = choice.block_n;
	*found++ = choice.num_warps;
	*found++ = choice.num_stages;
	*found++ = choice.product_warps;
	*found++ = FLASH_BOX_ROWS(a.dim, choice.block_n);
	*found++ = FLASH_THREADS(choice.num_warps, choice.product_warps);
	*found++ = flash_shared(a.gradient, a.dim, &choice);
}

struct ask_linear_arguments {
	int capability, multiprocessors, shared_per_block, shared_per_multiprocessor;
	int gradient, input, key_dim, value_dim, causal, normalised, sequences, tokens;
	int *found;
};

/* The choice, then each pass's launches. */
extern "C" __global__ void ask_linear(const __grid_constant__ struct ask_linear_arguments a)
{
	const struct choice_machine machine = {
		a.capability, a.multiprocessors, a.shared_per_block, a.shared_per_multiprocessor};
	const int order[] = LINEAR_GRADIENT_ORDER, count = a.gradient ? LINEAR_GRADIENT_PASSES : 1;
	struct linear_shape passes[LINEAR_GRADIENT_PASSES];
	int *found = a.found;

	for (int i = 0; i < count; i++)
		passes[i] = linear_pass_shape(a.gradient ? order[i] : PASS_FORWARD, a.input, a.key_dim,
			a.value_dim, a.causal, a.normalised, a.sequences, a.tokens);

	const struct linear_choice choice = linear_choose(passes, count, &machine);

	*found++ = choice.value_tile;
	*found++ = choice.num_warps;
	*found++ = choice.num_stages;
	*found++ = choice.min_blocks;
	*found++ = choice.groups;
	*found++ = linear_chunks_of_group(&passes[0], &choice);
	for (int i = 0; i < count; i++) {
		const struct linear_shape sum = linear_sum_shape(&passes[i]);

		*found++ = (int)linear_blocks(&passes[i], &choice, choice.value_tile);
		*found++ = linear_output_shared(&passes[i], &choice);
		*found++ = linear_sum_tile(&sum, &choice);
		*found++ = (int)linear_blocks(&sum, &choice, linear_sum_tile(&sum, &choice));
		*found++ = linear_sum_shared(&sum, &choice);
		*found++ = (int)linear_scan_blocks(&sum);
		*found++ = LINEAR_RECORD(sum.key_dim, sum.value_dim, sum.pass);
	}
}
