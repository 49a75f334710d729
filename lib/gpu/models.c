#include "gpu/models.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

/* NVIDIA's data sheets and architecture papers. The bf16 rate is dense and with fp32 sums, which GeForce
 * cards do at half the rate of fp16 sums; the clock is the one that it is stated for, or the boost clock. */
const struct gpu_model gpu_models[] = {
	{"A10", "A10", 86, 72, 100, 65536, 6, 24, 600, 125, 1695},
	{"A100 PCIe 40 GB", "A100-PCIE-40GB", 80, 108, 164, 65536, 40, 40, 1555, 312, 1410},
	{"A100 PCIe 80 GB", "A100 80GB PCIe", 80, 108, 164, 65536, 40, 80, 1935, 312, 1410},
	{"A100 SXM 40 GB", "A100-SXM4-40GB", 80, 108, 164, 65536, 40, 40, 1555, 312, 1410},
	{"A100 SXM 80 GB", "A100-SXM4-80GB", 80, 108, 164, 65536, 40, 80, 2039, 312, 1410},
	{"A30", "A30", 80, 56, 164, 65536, 24, 24, 933, 165, 1440},
	{"A40", "A40", 86, 84, 100, 65536, 6, 48, 696, 150, 1740},
	{"B200", "B200", 100, 148, 228, 65536, 126, 180, 7700, 2250, 1965},
	{"H100 NVL", "H100 NVL", 90, 132, 228, 65536, 50, 94, 3938, 835, 1785},
	{"H100 PCIe", "H100 PCIe", 90, 114, 228, 65536, 50, 80, 2039, 756, 1755},
	{"H100 SXM", "H100 80GB HBM3", 90, 132, 228, 65536, 50, 80, 3350, 989, 1980},
	{"H200", "H200", 90, 132, 228, 65536, 60, 141, 4800, 989, 1980},
	{"L4", "L4", 89, 58, 100, 65536, 48, 24, 300, 121, 2040},
	{"L40S", "L40S", 89, 142, 100, 65536, 96, 48, 864, 362, 2520},
	{"RTX 3080", "RTX 3080", 86, 68, 100, 65536, 5, 10, 760, 59.5, 1710},
	{"RTX 3090", "RTX 3090", 86, 82, 100, 65536, 6, 24, 936, 71, 1695},
	{"RTX 4080", "RTX 4080", 89, 76, 100, 65536, 64, 16, 717, 97.5, 2505},
	{"RTX 4090", "RTX 4090", 89, 128, 100, 65536, 72, 24, 1008, 165, 2520},
	{"RTX 5080", "RTX 5080", 120, 84, 100, 65536, 64, 16, 960, 113, 2617},
	{"RTX 5090", "RTX 5090", 120, 170, 100, 65536, 96, 32, 1792, 210, 2407},
	{"RTX 6000 Ada", "RTX 6000 Ada Generation", 89, 142, 100, 65536, 96, 48, 960, 364, 2505},
	{"RTX A6000", "RTX A6000", 86, 84, 100, 65536, 6, 48, 768, 155, 1800},
	{"RTX PRO 6000", "RTX PRO 6000 Blackwell Workstation Edition", 120, 188, 100, 65536, 128, 96, 1792,
		504, 2617},
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

struct gpu_properties gpu_model_properties(const struct gpu_model *model)
{
	struct gpu_properties properties = {
		.capability = model->capability,
		.multiprocessors = model->multiprocessors,
		.shared_per_multiprocessor = model->shared_kib * 1024,
		.shared_per_block = (model->shared_kib - 1) * 1024, /* the driver keeps one for itself */
		.registers = model->registers,
		.clock_khz = model->clock_mhz * 1000,
		.l2_bytes = (int64_t)(model->l2_mib * 0x1p20),
		.memory_bytes = (int64_t)(model->memory_gib * 0x1p30),
		.memory_free = (int64_t)(model->memory_gib * 0x1p30),
		.bandwidth_gbs = model->bandwidth_gbs,
	};

	snprintf(properties.name, sizeof(properties.name), "%s", model->name);
	return properties;
}

/* --- names as people write them -------------------------------------------------------------------- */

enum { PLAIN = 64, NEAR = 5, FAR = 3 };

/* Letters and digits alone, small, without the words that all of them have. */
static void plain_name(const char *name, char plain[PLAIN])
{
	static const char *const empty_words[] = {"nvidia", "geforce"};
	size_t length = 0;

	for (; *name && length + 1 < PLAIN; name++)
		if (isalnum((unsigned char)*name))
			plain[length++] = (char)tolower((unsigned char)*name);
	plain[length] = '\0';
	for (size_t i = 0; i < 2; i++) {
		size_t skip = strlen(empty_words[i]);

		if (!strncmp(plain, empty_words[i], skip))
			memmove(plain, plain + skip, strlen(plain + skip) + 1);
	}
}

enum likeness { UNLIKE, HOLDS, BEGINS, SAME };

/* Numbers count as wholes: "A10" is not a part of "A100". */
static enum likeness likeness(const char *name, const char *wanted)
{
	char plain[PLAIN];
	size_t length = strlen(wanted);
	const char *found;

	plain_name(name, plain);
	if (!strcmp(plain, wanted))
		return SAME;
	for (found = plain; (found = strstr(found, wanted)); found++) {
		bool cuts_before = found > plain && isdigit((unsigned char)found[-1]) &&
			isdigit((unsigned char)*wanted);
		bool cuts_behind = isdigit((unsigned char)found[length]) &&
			isdigit((unsigned char)wanted[length - 1]);

		if (!cuts_before && !cuts_behind)
			return found == plain ? BEGINS : HOLDS;
	}
	return UNLIKE;
}

static enum likeness model_likeness(const struct gpu_model *model, const char *wanted)
{
	enum likeness by_name = likeness(model->name, wanted);
	enum likeness by_driver = likeness(model->driver_name, wanted);

	return by_name > by_driver ? by_name : by_driver;
}

/* Letters to insert, delete or exchange to make one name of the other. */
static int distance(const char *a, const char *b)
{
	int row[PLAIN];

	for (int j = 0; j <= (int)strlen(b); j++)
		row[j] = j;
	for (int i = 1; a[i - 1]; i++) {
		int diagonal = row[0];

		row[0] = i;
		for (int j = 1; b[j - 1]; j++) {
			int change = diagonal + (a[i - 1] != b[j - 1]);
			int other = (row[j] < row[j - 1] ? row[j] : row[j - 1]) + 1;

			diagonal = row[j];
			row[j] = change < other ? change : other;
		}
	}
	return row[strlen(b)];
}

static int model_distance(const struct gpu_model *model, const char *wanted)
{
	char plain[PLAIN], *number;
	int whole, short_form;

	plain_name(model->name, plain);
	number = !strncmp(plain, "rtx", 3) ? plain + 3 : plain; /* people leave it out */
	whole = distance(plain, wanted);
	short_form = distance(number, wanted);
	return whole < short_form ? whole : short_form;
}

static bool is_faster(const struct gpu_model *a, const struct gpu_model *b)
{
	return a->bf16_tflops != b->bf16_tflops ? a->bf16_tflops > b->bf16_tflops
						: a->bandwidth_gbs > b->bandwidth_gbs;
}

/* Those that hold the name; where none does, the nearest ones. */
static int not_found(const char *name, const char *wanted, bool several, struct error *err)
{
	int listed = 0;

	error_set(err, STATUS_USAGE,
		several ? "\"%.64s\" may be any of several GPUs" : "no GPU is known as \"%.64s\"", name);
	error_hint(err, several ? "Which one: " : "Near it: ");
	for (int away = 0; away <= FAR && listed < NEAR; away++)
		for (size_t i = 0; i < gpu_model_count && listed < NEAR; i++) {
			const struct gpu_model *model = &gpu_models[i];

			if (several ? away == 0 && model_likeness(model, wanted) != UNLIKE
				    : model_distance(model, wanted) == away)
				snprintf(err->hint + strlen(err->hint), sizeof(err->hint) - strlen(err->hint),
					"%s%s", listed++ ? ", " : "", model->name);
		}
	if (!listed)
		return error_hint(err, "`quasar gpus` lists those that are known.");
	snprintf(err->hint + strlen(err->hint), sizeof(err->hint) - strlen(err->hint), "%s",
		several ? "?" : ". `quasar gpus` lists all.");
	return -1;
}

const struct gpu_model *gpu_model_by_name(const char *name, struct error *err)
{
	const struct gpu_model *best = NULL;
	enum likeness most = UNLIKE;
	char wanted[PLAIN];
	int holding = 0;

	plain_name(name, wanted);
	for (size_t i = 0; i < gpu_model_count && strpbrk(wanted, "0123456789"); i++) {
		enum likeness how = model_likeness(&gpu_models[i], wanted);

		holding += how == HOLDS;
		if (how > most || (how == most && how == BEGINS && is_faster(&gpu_models[i], best))) {
			most = how;
			best = &gpu_models[i];
		}
	}
	if (!best || (most == HOLDS && holding > 1)) {
		not_found(name, wanted, best != NULL, err);
		return NULL;
	}
	return best;
}
