/* Machine code that a compiler, or somebody in its name, left in the cache. */
#include "fuzz.h"

#include "predict/cubin.h"

static void require_sane(const struct code *code)
{
	REQUIRE(code->instructions >= 0 && code->mma_flops >= 0 && code->wgmma_flops >= 0 &&
		code->shared_bytes >= 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static const int capabilities[] = {80, 90, 120};

	for (size_t i = 0; i < 3; i++) {
		struct error err = {0};
		struct cubin_kernel kernel;
		int result = cubin_read(data, size, "quasar_recurrent", capabilities[i], &kernel, &err);

		REQUIRE(result == 0 || err.message[0]);
		if (result < 0)
			continue;
		REQUIRE(kernel.registers >= 1 && kernel.registers <= 255);
		REQUIRE(kernel.spilled_bytes >= 0 && kernel.shared_bytes >= 0);
		require_sane(&kernel.once);
		require_sane(&kernel.loop);
		REQUIRE((size_t)kernel.once.instructions + (size_t)kernel.loop.instructions <= size / 16);
	}
	return 0;
}
