#include "score/gpu.h"

#include <stddef.h>
#include <string.h>
#include <strings.h>

/* In the order that validators look through it; ends with a name that is NULL. */
static const struct gpu_rating gpu_table[] = {
	{"RTX 5090", 1.00},
	{"RTX PRO 6000 Blackwell", 1.10},
	{"H100", 1.30},
	{"H200", 1.45},
	{"RTX 4090", 0.65},
	{"RTX 4080 SUPER", 0.48},
	{"RTX 4080", 0.45},
	{"RTX 6000 Ada", 0.60},
	{"L40S", 0.55},
	{"L40", 0.50},
	{"A100", 0.70},
	{"A100-SXM4-80GB", 0.75},
	{"A100-PCIE-40GB", 0.65},
	{"RTX A6000", 0.45},
	{"A40", 0.40},
	{"RTX 3090", 0.40},
	{"RTX 3090 Ti", 0.42},
	{"RTX 3080 Ti", 0.35},
	{"RTX 3080", 0.32},
	{0},
};

static const char *skip_word(const char *text, const char *word)
{
	size_t length = strlen(word);

	if (strncasecmp(text, word, length) || (text[length] && text[length] != ' '))
		return text;
	return text + length + strspn(text + length, " ");
}

const struct gpu_rating *gpu_find(const char *name)
{
	const char *model = skip_word(skip_word(name, "NVIDIA"), "GeForce");

	if (!*model)
		return NULL;
	for (const struct gpu_rating *gpu = gpu_table; gpu->name; gpu++)
		if (!strcasecmp(gpu->name, model))
			return gpu;
	for (const struct gpu_rating *gpu = gpu_table; gpu->name; gpu++)
		if (strcasestr(gpu->name, model) || strcasestr(model, gpu->name))
			return gpu;
	return NULL;
}

double gpu_factor(const char *name)
{
	const struct gpu_rating *gpu = gpu_find(name);

	return gpu ? gpu->factor : 1;
}
