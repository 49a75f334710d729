/* predict: GPUs by name, machine code, occupancy, and the model against what was measured. Nothing here needs a GPU, and
 * only the last test a compiler. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <elf.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "gpu/cuda.h"
#include "gpu/models.h"
#include "predict/cubin.h"
#include "predict/guide.h"
#include "predict/longest.h"
#include "predict/model.h"
#include "predict/occupancy.h"
#include "predict/predict.h"
#include "op/family.h"
#include "vectors.h"

/* --- names ------------------------------------------------------------------------------------------- */

static void people_write_names_as_they_like(void **state)
{
	static const char *const names[][2] = {
		{"a100", "A100 SXM 80 GB"},
		{"A100-PCIe-40GB", "A100 PCIe 40 GB"},
		{"a10", "A10"},
		{"h100", "H100 SXM"},
		{"h100-pcie", "H100 PCIe"},
		{"NVIDIA H100 80GB HBM3", "H100 SXM"},
		{"h200", "H200"},
		{"4090", "RTX 4090"},
		{"rtx5090", "RTX 5090"},
		{"rtx-3090", "RTX 3090"},
		{"NVIDIA GeForce RTX 3080", "RTX 3080"},
		{"a6000", "RTX A6000"},
		{"rtx pro 6000", "RTX PRO 6000"},
		{"6000 ada", "RTX 6000 Ada"},
		{"l4", "L4"},
		{"l40s", "L40S"},
	};

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		struct error err = {0};
		const struct gpu_model *model = gpu_model_by_name(names[i][0], &err);

		assert_non_null(model);
		assert_string_equal(model->name, names[i][1]);
	}
}

static void unknown_names_list_near_ones(void **state)
{
	static const char *const names[][2] = {{"rtx 3070", "RTX 3080"}, {"h300", "H200"},
		{"4080ti", "RTX 4080"}, {"6000", "RTX PRO 6000"}, {"090", "A30"}};
	static const char *const nothing[] = {"", "rtx", "nvidia", "-",
		"a very long name without any sense, longer than any name of a GPU that there is or will be"};
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++) {
		assert_null(gpu_model_by_name(names[i][0], &err));
		assert_int_equal(err.status, STATUS_USAGE);
		assert_non_null(strstr(err.message, names[i][0]));
		assert_non_null(strstr(err.hint, names[i][1]));
	}
	for (size_t i = 0; i < sizeof(nothing) / sizeof(*nothing); i++) {
		assert_null(gpu_model_by_name(nothing[i], &err));
		assert_int_equal(err.status, STATUS_USAGE);
		assert_true(err.hint[0]);
	}
}

static void every_model_is_found_by_its_names(void **state)
{
	struct error err;

	(void)state;
	for (size_t i = 0; i < gpu_model_count; i++) {
		assert_ptr_equal(gpu_model_by_name(gpu_models[i].name, &err), &gpu_models[i]);
		assert_ptr_equal(gpu_model_by_name(gpu_models[i].driver_name, &err), &gpu_models[i]);
	}
}

/* --- occupancy --------------------------------------------------------------------------------------- */

/* Registers, threads, bytes of shared memory; blocks and the limit, worked out by hand from the compute capabilities'
 * table in NVIDIA's programming guide. */
static void blocks_are_limited_by_what_runs_out_first(void **state)
{
	static const struct {
		const char *gpu;
		int registers, threads, shared, blocks;
		double part;
		const char *limited_by;
	} cases[] = {
		{"a100", 218, 128, 65536, 2, 8 / 64.0, "registers"},
		{"a100", 130, 128, 40960, 3, 12 / 64.0, "registers"},
		{"a100", 32, 128, 40960, 4, 16 / 64.0, "shared memory"},
		{"a100", 32, 1024, 0, 2, 1, "warps"},
		{"a100", 24, 1024, 0, 2, 1, "warps"},
		{"a100", 16, 32, 0, 32, 32 / 64.0, "blocks"},
		{"3090", 16, 32, 0, 16, 16 / 48.0, "blocks"},
		{"4090", 16, 32, 0, 24, 24 / 48.0, "blocks"},
		{"4090", 255, 256, 0, 1, 8 / 48.0, "registers"},
		{"h200", 255, 256, 0, 1, 8 / 64.0, "registers"},
		{"h200", 64, 128, 232448, 1, 4 / 64.0, "shared memory"},
		{"h200", 64, 128, 232449, 0, 0, "shared memory"},
		{"5090", 40, 256, 0, 6, 1, "warps"},
	};
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct gpu_properties gpu = gpu_model_properties(gpu_model_by_name(cases[i].gpu, &err));
		struct occupancy found = occupancy_of(
			&gpu, cases[i].registers, cases[i].threads, cases[i].shared);

		assert_int_equal(found.blocks, cases[i].blocks);
		assert_float_equal(found.part, cases[i].part, 1e-9);
		assert_string_equal(found.limited_by, cases[i].limited_by);
	}
}

/* --- machine code ------------------------------------------------------------------------------------ */

static void read_kept(const char *name, struct buffer *image)
{
	char path[128];
	struct error err;

	snprintf(path, sizeof(path), "tests/fuzz/corpus/cubin/%s", name);
	assert_int_equal(file_read(path, 1 << 20, image, &err), 0);
}

/* quasar_recurrent as NVRTC 13.0 made it; the numbers are those of NVIDIA's cuobjdump and nvdisasm. */
static void machine_code_tells_registers_and_loops(void **state)
{
	static const struct {
		const char *name;
		int capability, registers, instructions, in_loop;
	} cases[] = {{"recurrent-80", 80, 90, 664, 366}, {"recurrent-90", 90, 100, 680, 358},
		{"recurrent-120", 120, 96, 552, 309}};

	(void)state;
	for (size_t i = 0; i < 3; i++) {
		struct buffer image = {0};
		struct cubin_kernel kernel;
		struct error err;

		read_kept(cases[i].name, &image);
		assert_int_equal(cubin_read(image.data, image.length, "quasar_recurrent", cases[i].capability,
					 &kernel, &err),
			0);
		assert_int_equal(kernel.registers, cases[i].registers);
		assert_int_equal(kernel.spilled_bytes, 0);
		assert_int_equal(kernel.shared_bytes, 0);
		assert_int_equal(kernel.loop.instructions, cases[i].in_loop);
		assert_int_equal(kernel.once.instructions + kernel.loop.instructions, cases[i].instructions);
		assert_int_equal(
			cubin_read(image.data, image.length, "quasar", cases[i].capability, &kernel, &err),
			-1);
		assert_non_null(strstr(err.message, "no kernel quasar"));
		buffer_free(&image);
	}
}

static void damaged_machine_code_is_refused(void **state)
{
	struct buffer image = {0};
	struct cubin_kernel kernel;
	struct error err;

	(void)state;
	read_kept("recurrent-90", &image);
	for (size_t length = 0; length < image.length; length += 61) {
		uint8_t *part = malloc(length ? length : 1); /* so that a read past its end is seen */

		memcpy(part, image.data, length);
		if (cubin_read(part, length, "quasar_recurrent", 90, &kernel, &err) < 0)
			assert_int_equal(err.status, STATUS_ENVIRONMENT);
		else
			assert_int_equal(kernel.registers, 100);
		free(part);
	}
	for (size_t at = 0; at < image.length; at += 7) {
		image.data[at] ^= (char)0xff;
		cubin_read(image.data, image.length, "quasar_recurrent", 90, &kernel, &err);
		image.data[at] ^= (char)0xff;
	}
	assert_int_equal(
		cubin_read(".version 8.0\n.target sm_80\n", 27, "quasar_recurrent", 80, &kernel, &err), -1);
	buffer_free(&image);
}

/* Instructions as NVIDIA's disassembler shows them. */
static void instructions_are_weighed(void **state)
{
	static const uint64_t text[][2] = {
		{0x747068723c, 0x44fe20000041868},    /* HMMA.16816.F32.BF16 */
		{0x1e0000c58187df0, 0xfe20008701818}, /* HGMMA.64x128x16.F32.BF16 */
		{0x60000888787df0, 0xfe2000c7018ff},  /* HGMMA.64x32x16.F32.BF16 */
		{0x68274783b, 0xea20008000200},       /* LDSM.16.M88.4 */
		{0xc0005420007388, 0x3e20000000a00},  /* STS.64 */
		{0xa237fae, 0x3e2000c101c48},         /* LDGSTS.E.BYPASS.128 */
		{0x2c00010b7983, 0xf680000100800},    /* LDL */
		{0x7b1d, 0xff00000010000},            /* BAR.SYNC */
	};
	struct code once, loop, beside;

	(void)state;
	code_read((const uint8_t *)text, sizeof(text), 90, &once, &loop, &beside);
	assert_int_equal(loop.instructions, 0);
	assert_int_equal(beside.instructions, 0);
	assert_int_equal(once.instructions, 8);
	assert_float_equal(once.mma_flops, 2 * 16 * 8 * 16, 0);
	assert_float_equal(once.wgmma_flops, 2 * 16 * (128 + 32) * 16, 0);
	assert_float_equal(once.shared_bytes, 128 / 4 * 32 + 32 / 4 * 32 + 512 + 256 + 512 + 128, 0);
}

/* --- the model --------------------------------------------------------------------------------------- */

/* Like the second pass of a long sequence. */
static const struct config_launch long_launch = {
	.threads = 128, .blocks = 392, .trips = 319, .bytes = 319 * 32768, .ahead = 1};
static const struct cubin_kernel usual_kernel = {
	.registers = 168, .once = {.instructions = 1100}, .loop = {1800, 2e6, 0, 60000}};
static const struct occupancy three = {3, 0.2, "registers"};

static double seconds_on(const char *name, const struct config_launch *launch,
	const struct cubin_kernel *kernel, const struct occupancy *occupancy)
{
	struct error err;

	return model_launch(gpu_model_by_name(name, &err), launch, kernel, occupancy).seconds;
}

static void more_work_takes_longer(void **state)
{
	double usual = seconds_on("h200", &long_launch, &usual_kernel, &three);
	const struct occupancy one = {1, 0.1, "registers"};
	double usual_alone = seconds_on("h200", &long_launch, &usual_kernel, &one), waited;
	struct config_launch launch = long_launch;
	struct cubin_kernel kernel = usual_kernel;

	(void)state;
	launch.trips *= 2;
	launch.bytes *= 2;
	assert_true(seconds_on("h200", &launch, &usual_kernel, &three) > 1.9 * usual);
	launch = long_launch;
	launch.ahead = 0;
	waited = seconds_on("h200", &launch, &usual_kernel, &three) - usual;
	assert_true(waited > 0);
	/* alone, a block has no others that go on meanwhile */
	assert_true(seconds_on("h200", &launch, &usual_kernel, &one) - usual_alone > 3 * waited);
	launch = long_launch;
	launch.beside = 0.5; /* half of the warps have nothing to do */
	assert_true(seconds_on("h200", &launch, &usual_kernel, &three) < 0.7 * usual);
	kernel.beside = kernel.loop;
	assert_float_equal(seconds_on("h200", &launch, &kernel, &three), usual, 1e-9);
	kernel = usual_kernel;
	launch = long_launch;
	launch.blocks *= 2; /* they do not fit at a time */
	assert_true(seconds_on("h200", &launch, &usual_kernel, &three) > 1.9 * usual);
	kernel.loop.instructions *= 2;
	assert_true(seconds_on("h200", &long_launch, &kernel, &three) > 1.2 * usual);
	assert_true(seconds_on("l4", &long_launch, &usual_kernel, &three) > 5 * usual);
	/* three waves of one block where one of three hides what each waits for */
	assert_true(usual_alone > 1.2 * usual);
}

static void what_is_short_is_named(void **state)
{
	const struct gpu_model *gpu;
	struct cubin_kernel kernel = usual_kernel;
	struct config_launch launch = long_launch;
	struct error err;

	(void)state;
	gpu = gpu_model_by_name("h200", &err);
	launch.bytes *= 20;
	assert_string_equal(model_launch(gpu, &launch, &kernel, &three).bound, "memory");
	kernel.loop.mma_flops *= 30;
	assert_string_equal(model_launch(gpu, &long_launch, &kernel, &three).bound, "tensor cores");
	kernel.loop = (struct code){.instructions = 1800};
	launch.bytes = 0;
	launch.blocks = 1;
	assert_string_equal(model_launch(gpu, &launch, &kernel, &three).bound, "latency");
	launch.blocks = 132 * 16;
	assert_string_equal(model_launch(gpu, &launch, &kernel, &(struct occupancy){16, 1, "warps"}).bound,
		"instructions");
	assert_false(isnan(model_error(gpu)));
	assert_true(isnan(model_error(gpu_model_by_name("a100", &err))));
}

static struct code code_of(const cJSON *numbers)
{
	double at[4];

	for (int i = 0; i < 4; i++)
		at[i] = cJSON_GetArrayItem(numbers, i)->valuedouble;
	return (struct code){(int)at[0], at[1], at[2], at[3]};
}

/* Of a launch, with the machine code that is kept of it. */
static double seconds_of(const struct gpu_model *gpu, const cJSON *build, const struct config_launch *launch)
{
	struct gpu_properties properties = gpu_model_properties(gpu);
	const cJSON *item;

	cJSON_ArrayForEach (item, build) {
		struct cubin_kernel kernel = {.registers = cJSON_GetObjectItem(item, "registers")->valueint,
			.once = code_of(cJSON_GetObjectItem(item, "once")),
			.loop = code_of(cJSON_GetObjectItem(item, "loop"))};
		struct occupancy occupancy = occupancy_of(
			&properties, kernel.registers, launch->threads, launch->shared_bytes);

		if (!strcmp(cJSON_GetObjectItem(item, "kernel")->valuestring, launch->name))
			return model_launch(gpu, launch, &kernel, &occupancy).seconds;
	}
	fail_msg("no kernel %s", launch->name);
	return 0;
}

static int64_t number_of(const cJSON *item, const char *name)
{
	return (int64_t)cJSON_GetObjectItem(item, name)->valuedouble;
}

static double predicted_microseconds(
	const struct family *family, const struct gpu_model *gpu, const cJSON *builds, const cJSON *measured)
{
	int dim = (int)number_of(measured, "dim"), options[FAMILY_OPTIONS], count;
	struct op_shape shape = {
		1, number_of(measured, "tokens"), (int)number_of(measured, "heads"), dim, dim, 0, 0};
	struct config_launch launches[CONFIG_LAUNCHES];
	struct op_problem problem;
	struct config config;
	double seconds = 0;
	struct error err;

	assert_int_equal(family_options_parse(family, cJSON_GetObjectItem(measured, "semantics")->valuestring,
				 options, &err),
		0);
	assert_int_equal(config_parse(family->configs->parameters,
				 cJSON_GetObjectItem(measured, "config")->valuestring, &config, &err),
		0);
	problem = family_problem(family, &shape, DTYPE_BF16, options);
	count = family->configs->launches(&problem, &config, launches);
	for (int i = 0; i < count; i++)
		seconds += seconds_of(
			gpu, cJSON_GetArrayItem(builds, (int)number_of(measured, "build")), &launches[i]);
	return seconds * 1e6;
}

static bool is_same_shape(const cJSON *a, const cJSON *b)
{
	return number_of(a, "tokens") == number_of(b, "tokens") &&
		number_of(a, "dim") == number_of(b, "dim") &&
		number_of(a, "heads") == number_of(b, "heads") &&
		!strcmp(cJSON_GetObjectItem(a, "semantics")->valuestring,
			cJSON_GetObjectItem(b, "semantics")->valuestring);
}

/* Times on an H200 of a family's calls, beside what the machine code says of the kernels. */
struct calls {
	const char *path, *family;
	int count;
	double most, usual; /* deviation: of one, and of all as a standard deviation */
	double clearly; /* what takes so much longer than another on one shape is predicted to take longer */
	int pairs;      /* of these, at least */
};

static void assert_fits(const struct calls *calls)
{
	enum { MOST = 64 };
	cJSON *document = read_vectors(calls->path), *item;
	const cJSON *builds = cJSON_GetObjectItem(document, "builds"), *items[MOST];
	double predicted[MOST], measured[MOST], squares = 0;
	const struct gpu_model *gpu;
	int count = 0, pairs = 0;
	struct error err;

	gpu = gpu_model_by_name(cJSON_GetObjectItem(document, "gpu")->valuestring, &err);
	cJSON_ArrayForEach (item, cJSON_GetObjectItem(document, "measured")) {
		double deviation;

		items[count] = item;
		predicted[count] = predicted_microseconds(family_find(calls->family), gpu, builds, item);
		measured[count] = cJSON_GetObjectItem(item, "us")->valuedouble;
		deviation = predicted[count] / measured[count] - 1;
		assert_true(fabs(deviation) < calls->most);
		squares += deviation * deviation;
		count++;
	}
	assert_int_equal(count, calls->count);
	assert_true(sqrt(squares / count) < calls->usual);
	assert_true(model_error(gpu) > 2 * calls->usual);
	for (int i = 0; i < count; i++)
		for (int j = 0; j < count; j++)
			if (is_same_shape(items[i], items[j]) && measured[i] > calls->clearly * measured[j]) {
				assert_true(predicted[i] > predicted[j]);
				pairs++;
			}
	assert_true(pairs >= calls->pairs);
	cJSON_Delete(document);
}

/* What the model was calibrated on: times of docs/performance.md, and the fastest and the widest configuration of each
 * search of short linear attention there. */
static void the_model_fits_what_was_measured(void **state)
{
	(void)state;
	assert_fits(&(struct calls){VECTORS "h200_times.json", "quasar", 39, 0.21, 0.08, 1.1, 21});
	assert_fits(&(struct calls){VECTORS "h200_linear_times.json", "linear", 40, 0.29, 0.13, 1.25, 12});
}

/* --- what comes with it ------------------------------------------------------------------------------ */

static void memory_bounds_the_sequence(void **state)
{
	struct gpu_model tiny = {.memory_gib = 2};
	struct error err;
	int64_t longest = longest_sequence(gpu_model_by_name("4090", &err));

	(void)state;
	assert_int_equal(longest_sequence(&tiny), 0);
	assert_true(longest >= 6000000 && longest < 8000000); /* 6,000,000 ran in as much */
	assert_true(longest_sequence(gpu_model_by_name("3080", &err)) >= 1000000);
}

static void the_guide_knows_three_kinds(void **state)
{
	struct error err;

	(void)state;
	assert_non_null(strstr(guide_configs(gpu_model_by_name("h100", &err))[0], "BLOCK_M=256"));
	assert_non_null(strstr(guide_configs(gpu_model_by_name("a100", &err))[0], "num_stages=3"));
	assert_non_null(strstr(guide_configs(gpu_model_by_name("3090", &err))[0], "BLOCK_M=64"));
}

/* Its launches may be built in different ways. */
static void the_usual_configuration_is_predicted(void **state)
{
	static const int dims[] = {64, 128};
	const struct family *family = family_find("quasar");
	struct error err;
	const struct gpu_model *gpu = gpu_model_by_name("h200", &err);
	struct gpu_properties properties = gpu_model_properties(gpu);

	(void)state;
	if (!nvrtc_library(&err))
		skip();
	for (size_t i = 0; i < sizeof(dims) / sizeof(*dims); i++) {
		const struct op_shape shape = {1, 32768, 8, dims[i], dims[i], 0, 0};
		const int options[FAMILY_OPTIONS] = {0};
		const struct op_problem problem = family_problem(family, &shape, DTYPE_BF16, options);
		const struct config config = family->configs->usual(&problem, &properties);
		const struct predict_request request = {
			.family = family, .problem = &problem, .gpu = gpu, .configs = &config, .count = 1};
		struct prediction prediction;

		if (predict_run(&request, &prediction, &err) != 1)
			fail_msg("%d: %s", dims[i], err.message);
		assert_true(prediction.seconds > 5e-5 && prediction.seconds < 5e-4);
		assert_true(prediction.occupancy.blocks >= 1);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(people_write_names_as_they_like),
		cmocka_unit_test(unknown_names_list_near_ones),
		cmocka_unit_test(every_model_is_found_by_its_names),
		cmocka_unit_test(blocks_are_limited_by_what_runs_out_first),
		cmocka_unit_test(machine_code_tells_registers_and_loops),
		cmocka_unit_test(damaged_machine_code_is_refused),
		cmocka_unit_test(instructions_are_weighed),
		cmocka_unit_test(more_work_takes_longer),
		cmocka_unit_test(what_is_short_is_named),
		cmocka_unit_test(the_model_fits_what_was_measured),
		cmocka_unit_test(memory_bounds_the_sequence),
		cmocka_unit_test(the_guide_knows_three_kinds),
		cmocka_unit_test(the_usual_configuration_is_predicted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
