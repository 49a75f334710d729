/* mbarrier: barriers in shared memory, whose phases end when all have arrived and all bytes are there. */
#pragma once

#include "machine.h"

/* So many bytes that an mbarrier waits for are there. */
void mbarrier_complete(
	struct warp *warp, const struct instruction *instruction, uint32_t address, uint32_t bytes);
/* Makes the bulk copies of a block that complete at this mbarrier. */
void bulk_copies_finish(struct block *block, uint32_t mbarrier);
