#include "predict/longest.h"

/* PyTorch's peak was 5.02 GB at 1,000,000 tokens, 14.6 at 4,000,000 and 21.0 at 6,000,000 (docs/performance.md): a token
 * takes 2,048 bytes of x, 1,024 of the output, and a little between them; the segments that are worked on take the rest. */
#define TOKEN_BYTES 3200
#define FIXED_BYTES (1.85e9 + 3 * 262144 * 3072.) /* those were of 2^18 tokens, and are of 2^20 now */
#define DRIVER_BYTES 1e9                          /* that the driver and its context keep for themselves */
#define STEP 10000                                /* it is not known more exactly */

int64_t longest_sequence(const struct gpu_model *gpu)
{
	double room = gpu->memory_gib * 0x1p30 - DRIVER_BYTES - FIXED_BYTES;

	return room <= 0 ? 0 : (int64_t)(room / TOKEN_BYTES / STEP) * STEP;
}
