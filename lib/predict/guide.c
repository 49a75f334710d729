#include "predict/guide.h"

static const char *const hopper[GUIDE_CONFIGS] = {
	"BLOCK_M=256 BLOCK_N=128 BLOCK_K=64 num_stages=4 num_warps=8",
	"BLOCK_M=128 BLOCK_N=256 BLOCK_K=64 num_stages=4 num_warps=8",
	"BLOCK_M=128 BLOCK_N=128 BLOCK_K=64 num_stages=4 num_warps=4",
};
static const char *const ampere[GUIDE_CONFIGS] = {
	"BLOCK_M=128 BLOCK_N=128 BLOCK_K=32 num_stages=3 num_warps=8",
	"BLOCK_M=128 BLOCK_N=64 BLOCK_K=32 num_stages=4 num_warps=4",
	"BLOCK_M=64 BLOCK_N=128 BLOCK_K=32 num_stages=4 num_warps=4",
};
static const char *const consumer[GUIDE_CONFIGS] = {
	"BLOCK_M=64 BLOCK_N=64 BLOCK_K=32 num_stages=2 num_warps=4",
	"BLOCK_M=128 BLOCK_N=64 BLOCK_K=32 num_stages=2 num_warps=4",
	"BLOCK_M=64 BLOCK_N=128 BLOCK_K=32 num_stages=2 num_warps=4",
};

/* It tells them apart by name; what matters is how much shared memory there is. */
const char *const *guide_configs(const struct gpu_model *gpu)
{
	return gpu->shared_kib >= 228 ? hopper : gpu->shared_kib >= 164 ? ampere : consumer;
}
