/* choice: how attention and its gradient are built for a problem; see common/choice.h. */
#pragma once

#include "common/choice.h"
#include "flash/layout.h"

struct flash_shape {
	int gradient, dim, causal;
	int mapped;          /* tensor maps can describe what is to be loaded, which wgmma's tiles come by */
	long long sequences; /* batch · heads */
	long long tokens;    /* of the longest */
};

struct flash_choice {
	int block_m, block_n, num_warps, num_stages, product_warps;
};

/* The largest tiles first: the fewest bytes through shared memory for each product. By mma.sync, in the forward of small
 * heads, a warp has room for 32 rows, which halves them once more. The last one fits wherever any does. */
#define FLASH_CHOICES                                                                                        \
	{                                                                                                    \
		{192, 128, 12, 3, 4}, {128, 64, 8, 4, 4}, {128, 32, 8, 4, 4}, {128, 64, 4, 2, 1},            \
			{128, 64, 8, 2, 1}, {64, 64, 4, 2, 1}, {64, 32, 4, 2, 1}, {64, 32, 4, 1, 1}, {0},    \
	}

/* Bytes of a block. */
CHOICE_FUNCTION int flash_shared(int gradient, int dim, const struct flash_choice *choice)
{
	const int m = choice->block_m, n = choice->block_n, stages = choice->num_stages;

	return FLASH_BARRIER_BYTES(choice->product_warps, stages) +
		(gradient ? FLASH_BACKWARD_SHARED(dim, m, n, stages)
			  : FLASH_FORWARD_SHARED(dim, m, n, stages));
}

/* Registers of a thread that are taken by tiles alone. */
CHOICE_FUNCTION int flash_registers(int gradient, int dim, const struct flash_choice *choice)
{
	const int m = choice->block_m, n = choice->block_n, warps = choice->num_warps,
		  product_warps = choice->product_warps;

	return gradient ? FLASH_BACKWARD_REGISTERS(dim, m, n, warps, product_warps)
			: FLASH_FORWARD_REGISTERS(dim, m, n, warps, product_warps);
}

/* Whether wgmma can make the products: its tiles have rows of 64. */
CHOICE_FUNCTION int flash_has_wgmma(int dim, const struct choice_machine *machine)
{
	return machine->capability == WGMMA_CAPABILITY && dim >= 64;
}

CHOICE_FUNCTION int flash_fits(
	int gradient, int dim, const struct choice_machine *machine, const struct flash_choice *choice)
{
	return (choice->product_warps == 1 || flash_has_wgmma(dim, machine)) &&
		flash_registers(gradient, dim, choice) <=
		FLASH_ROOM(choice->num_warps, choice->product_warps) &&
		flash_shared(gradient, dim, choice) <= machine->shared_per_block;
}

/* The forward's where as many rows as wgmma's blocks have would leave multiprocessors without one, on Hopper. */
#define FLASH_SHORT_CHOICE                                                                                   \
	{                                                                                                    \
		64, 128, 4, 4, 1                                                                             \
	}

/* Whether all its blocks, of which a multiprocessor has room for one, run at a time; causal, the first ones end early. */
CHOICE_FUNCTION int flash_is_short(const struct flash_shape *shape, const struct choice_machine *machine,
	const struct flash_choice *choice)
{
	const long long blocks = shape->sequences * ((shape->tokens + choice->block_m - 1) / choice->block_m);

	return 2 * blocks <= (shape->causal ? 3 : 2) * machine->multiprocessors;
}

/* The one that is thought fastest. */
CHOICE_FUNCTION struct flash_choice flash_choose(
	const struct flash_shape *shape, const struct choice_machine *machine)
{
	const struct flash_choice choices[] = FLASH_CHOICES, few = FLASH_SHORT_CHOICE;
	int i = 0;

	if (!shape->gradient && flash_has_wgmma(shape->dim, machine) &&
		flash_fits(0, shape->dim, machine, &few) && flash_is_short(shape, machine, &few))
		return few;
	while (choices[i + 1].block_m &&
		((choices[i].product_warps == 4 && !shape->mapped) ||
			!flash_fits(shape->gradient, shape->dim, machine, &choices[i])))
		i++;
	return choices[i];
}
