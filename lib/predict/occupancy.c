#include "predict/occupancy.h"

#define LANES 32
#define PARTITIONS 4          /* of a multiprocessor, which share its registers evenly */
#define REGISTERS_AT_ONCE 256 /* that a warp is given */
#define SHARED_AT_ONCE 128    /* bytes that a block is given */
#define MOST_THREADS 1024     /* of a block */
#define MOST_REGISTERS 65536  /* of a block */

static int rounded_up(int number, int step)
{
	return (number + step - 1) / step * step;
}

static int most_warps(int capability)
{
	return capability == 80 || (capability >= 90 && capability < 110) ? 64 : 48;
}

static int most_blocks(int capability)
{
	if (capability == 80 || (capability >= 90 && capability < 110))
		return 32;
	return capability < 89 ? 16 : 24;
}

static int blocks_by_registers(const struct gpu_properties *properties, int registers, int warps)
{
	int of_warp = rounded_up(registers * LANES, REGISTERS_AT_ONCE);

	if (of_warp * rounded_up(warps, PARTITIONS) > MOST_REGISTERS)
		return 0;
	return properties->registers / PARTITIONS / of_warp * PARTITIONS / warps;
}

static int blocks_by_shared(const struct gpu_properties *properties, int shared_bytes)
{
	return shared_bytes > properties->shared_per_block ? 0
							   : properties->shared_per_multiprocessor /
			rounded_up(shared_bytes + GPU_DRIVER_SHARED, SHARED_AT_ONCE);
}

struct occupancy occupancy_of(
	const struct gpu_properties *properties, int registers, int threads, int shared_bytes)
{
	int warps = rounded_up(threads, LANES) / LANES, most = most_warps(properties->capability);
	const struct {
		int blocks;
		const char *by;
	} limits[] = {
		{threads > MOST_THREADS ? 0 : most / warps, "warps"},
		{most_blocks(properties->capability), "blocks"},
		{blocks_by_registers(properties, registers, warps), "registers"},
		{blocks_by_shared(properties, shared_bytes), "shared memory"},
	};
	int least = 0;

	for (int i = 1; i < 4; i++)
		if (limits[i].blocks < limits[least].blocks)
			least = i;
	return (struct occupancy){
		limits[least].blocks, (double)(limits[least].blocks * warps) / most, limits[least].by};
}
