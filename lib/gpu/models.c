#include "gpu/models.h"

#include <string.h>

/* NVIDIA's data sheets and architecture papers. The bf16 rate is dense and with fp32 sums, which GeForce
 * cards do at half the rate of fp16 sums. */
const struct gpu_model gpu_models[] = {
	{"A100 PCIe 40 GB", "A100-PCIE-40GB", 80, 108, 164, 65536, 40, 40, 1555, 312},
	{"A100 PCIe 80 GB", "A100 80GB PCIe", 80, 108, 164, 65536, 40, 80, 1935, 312},
	{"A100 SXM 40 GB", "A100-SXM4-40GB", 80, 108, 164, 65536, 40, 40, 1555, 312},
	{"A100 SXM 80 GB", "A100-SXM4-80GB", 80, 108, 164, 65536, 40, 80, 2039, 312},
	{"B200", "B200", 100, 148, 228, 65536, 126, 180, 7700, 2250},
	{"H100 PCIe", "H100 PCIe", 90, 114, 228, 65536, 50, 80, 2039, 756},
	{"H100 SXM", "H100 80GB HBM3", 90, 132, 228, 65536, 50, 80, 3350, 989},
	{"H200", "H200", 90, 132, 228, 65536, 60, 141, 4800, 989},
	{"L40S", "L40S", 89, 142, 100, 65536, 96, 48, 864, 362},
	{"RTX 3090", "RTX 3090", 86, 82, 100, 65536, 6, 24, 936, 71},
	{"RTX 4090", "RTX 4090", 89, 128, 100, 65536, 72, 24, 1008, 165},
	{"RTX 5090", "RTX 5090", 120, 170, 100, 65536, 96, 32, 1792, 210},
	{"RTX A6000", "RTX A6000", 86, 84, 100, 65536, 6, 48, 768, 155},
};

const size_t gpu_model_count = sizeof(gpu_models) / sizeof(*gpu_models);

const struct gpu_model *gpu_model_find(const char *driver_name)
{
	for (size_t i = 0; i < gpu_model_count; i++) {
		const char *found = strstr(driver_name, gpu_models[i].driver_name);
		char next = found ? found[strlen(gpu_models[i].driver_name)] : 'x';

		/* "RTX 4090" is not "RTX 4090 Laptop GPU", nor "RTX 3090" "RTX 3090 Ti" */
		if (next == '\0')
			return &gpu_models[i];
	}
	return NULL;
}
