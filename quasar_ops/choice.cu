/* sizes: what the kernels' headers say of a problem, for those who launch them from Python. */
#include "flash/layout.h"
#include "linear/layout.h"

struct linear_sizes_arguments {
	int input, key_dim, value_dim, tile, causal, pass, normalised;
	int *found;
};

/* Bytes of a warp's stage of the output and of the sums, of what warps exchange; numbers of a record. */
extern "C" __global__ void linear_sizes(const __grid_constant__ struct linear_sizes_arguments a)
{
	a.found[0] = LINEAR_OUTPUT_STAGE(a.input, a.key_dim, a.tile, a.causal, a.pass);
	a.found[1] = LINEAR_SUM_STAGE(a.input, a.key_dim, a.tile, a.pass, a.normalised);
	a.found[2] = a.causal ? 0 : LINEAR_EXCHANGE_BYTES(a.key_dim, a.tile);
	a.found[3] = LINEAR_RECORD(a.key_dim, a.value_dim, a.pass);
}

struct flash_sizes_arguments {
	int dim, block_m, block_n, warps, stages, roles;
	int *found;
};

/* Bytes of shared memory and registers that are left, forward; the same of the gradient. */
extern "C" __global__ void flash_sizes(const __grid_constant__ struct flash_sizes_arguments a)
{
	const int room = FLASH_ROOM(a.warps, a.roles);

	a.found[0] = FLASH_FORWARD_SHARED(a.dim, a.block_m, a.block_n, a.stages);
	a.found[1] = room - FLASH_FORWARD_REGISTERS(a.dim, a.block_m, a.block_n, a.warps, a.roles);
	a.found[2] = FLASH_BACKWARD_SHARED(a.dim, a.block_m, a.block_n, a.stages);
	a.found[3] = room - FLASH_BACKWARD_REGISTERS(a.dim, a.block_m, a.block_n, a.warps, a.roles);
}
