#include "special.h"

#include <string.h>

static uint32_t thread_number(const struct warp *warp, int lane)
{
	return (uint32_t)(warp->index * LANES + lane);
}

#define SPECIALS(_)                                                                                          \
	_(tid_x, "%tid.x", thread_number(warp, lane) % launch->threads[0])                                   \
	_(tid_y, "%tid.y", thread_number(warp, lane) / launch->threads[0] % launch->threads[1])              \
	_(tid_z, "%tid.z", thread_number(warp, lane) / launch->threads[0] / launch->threads[1])              \
	_(ntid_x, "%ntid.x", launch->threads[0])                                                             \
	_(ntid_y, "%ntid.y", launch->threads[1])                                                             \
	_(ntid_z, "%ntid.z", launch->threads[2])                                                             \
	_(ctaid_x, "%ctaid.x", warp->block->index[0])                                                        \
	_(ctaid_y, "%ctaid.y", warp->block->index[1])                                                        \
	_(ctaid_z, "%ctaid.z", warp->block->index[2])                                                        \
	_(nctaid_x, "%nctaid.x", launch->grid[0])                                                            \
	_(nctaid_y, "%nctaid.y", launch->grid[1])                                                            \
	_(nctaid_z, "%nctaid.z", launch->grid[2])                                                            \
	_(laneid, "%laneid", (uint32_t)lane)                                                                 \
	_(warpid, "%warpid", (uint32_t)warp->index)                                                          \
	_(nwarpid, "%nwarpid", (uint32_t)warp->block->warp_count)                                            \
	_(smid, "%smid", (uint32_t)(warp->block - launch->blocks) % MULTIPROCESSORS)                         \
	_(nsmid, "%nsmid", MULTIPROCESSORS)                                                                  \
	_(gridid, "%gridid", 1)                                                                              \
	_(lanemask_eq, "%lanemask_eq", 1u << lane)                                                           \
	_(lanemask_lt, "%lanemask_lt", (1u << lane) - 1)                                                     \
	_(lanemask_le, "%lanemask_le", (2u << lane) - 1)                                                     \
	_(lanemask_gt, "%lanemask_gt", ~((2u << lane) - 1))                                                  \
	_(lanemask_ge, "%lanemask_ge", ~((1u << lane) - 1))                                                  \
	_(dynamic_smem_size, "%dynamic_smem_size",                                                           \
		(uint32_t)(launch->shared_bytes - launch->kernel->shared_bytes))                             \
	_(total_smem_size, "%total_smem_size", (uint32_t)launch->shared_bytes - SHARED_START)                \
	_(cluster_ctarank, "%cluster_ctarank", 0)                                                            \
	_(cluster_nctarank, "%cluster_nctarank", 1)

#define FUNCTION(function, name, x)                                                                          \
	static uint32_t function(const struct warp *warp, int lane)                                          \
	{                                                                                                    \
		const struct launch *launch = warp->block->launch;                                           \
                                                                                                             \
		(void)launch, (void)lane;                                                                    \
		return x;                                                                                    \
	}
SPECIALS(FUNCTION)

#define ENTRY(function, name, x) {name, function},
static const struct {
	const char *name;
	special_value *value;
} specials[] = {SPECIALS(ENTRY)};

special_value *special_find(const char *name)
{
	for (size_t i = 0; i < sizeof(specials) / sizeof(*specials); i++)
		if (!strcmp(specials[i].name, name))
			return specials[i].value;
	return NULL;
}
