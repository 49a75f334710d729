/* gpu: the cache, the table of models, and compiling, as far as they go without a GPU */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <fcntl.h>
#include <math.h>
#include <sodium.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/memory.h"
#include "gpu/cache.h"
#include "gpu/clock.h"
#include "gpu/compile.h"
#include "gpu/cuda.h"
#include "gpu/gpu.h"
#include "gpu/models.h"
#include "predict/predict.h"
#include "directory.h"

#define LIMIT ((size_t)1 << 30)

static void key_of(char key[CACHE_KEY], const char *first, const char *second)
{
	cache_key(key, (const char *const[]){first, second, NULL});
}

static void keys_differ_where_texts_do(void **state)
{
	char a[CACHE_KEY], b[CACHE_KEY];

	(void)state;
	key_of(a, "ab", "c");
	key_of(b, "a", "bc");
	assert_string_not_equal(a, b);
	key_of(b, "ab", "c");
	assert_string_equal(a, b);
	assert_int_equal(strlen(a), CACHE_KEY - 1);
}

static void an_entry_comes_back_whole(void **state)
{
	const char data[] = "machine\0code";
	struct buffer out = {0};
	struct error err;
	char key[CACHE_KEY];

	key_of(key, "a", "b");
	assert_false(cache_get(*state, key, &out));
	assert_int_equal(cache_put(*state, key, data, sizeof(data), LIMIT, &err), 0);
	assert_true(cache_get(*state, key, &out));
	assert_int_equal(out.length, sizeof(data));
	assert_memory_equal(out.data, data, sizeof(data));
	buffer_free(&out);
}

/* Every length that a torn write could leave, and every byte changed. */
static void a_damaged_entry_counts_as_missing(void **state)
{
	const char data[] = "machine code";
	struct buffer out = {0}, file = {0};
	struct error err;
	char key[CACHE_KEY];
	char *path;

	key_of(key, "a", "b");
	path = xprintf("%s/%s.kernel", (char *)*state, key);
	assert_int_equal(cache_put(*state, key, data, sizeof(data), LIMIT, &err), 0);
	assert_int_equal(file_read(path, 4096, &file, &err), 0);
	for (size_t length = 0; length < file.length; length++) {
		assert_int_equal(file_write(path, file.data, length, 0600, FILE_REPLACE, &err), 0);
		assert_false(cache_get(*state, key, &out));
	}
	for (size_t i = 0; i < file.length; i++) {
		file.data[i] ^= 1;
		assert_int_equal(file_write(path, file.data, file.length, 0600, FILE_REPLACE, &err), 0);
		assert_false(cache_get(*state, key, &out));
		file.data[i] ^= 1;
	}
	assert_int_equal(file_write(path, file.data, file.length, 0600, FILE_REPLACE, &err), 0);
	assert_true(cache_get(*state, key, &out));
	buffer_free(&out);
	buffer_free(&file);
	free(path);
}

static void the_oldest_entries_go(void **state)
{
	char keys[4][CACHE_KEY], data[1000] = {0};
	const struct timespec old[2] = {{1000, 0}, {1000, 0}};
	struct buffer out = {0};
	struct error err;

	for (int i = 0; i < 3; i++) {
		char *path;

		key_of(keys[i], "entry", (const char *[]){"0", "1", "2"}[i]);
		assert_int_equal(cache_put(*state, keys[i], data, sizeof(data), LIMIT, &err), 0);
		path = xprintf("%s/%s.kernel", (char *)*state, keys[i]);
		assert_int_equal(utimensat(AT_FDCWD, path, old, 0), 0);
		free(path);
	}
	assert_true(cache_get(*state, keys[0], &out)); /* so that it is no longer old */
	key_of(keys[3], "entry", "3");
	assert_int_equal(cache_put(*state, keys[3], data, sizeof(data), 2500, &err), 0);
	assert_true(cache_get(*state, keys[0], &out));
	assert_false(cache_get(*state, keys[1], &out));
	assert_false(cache_get(*state, keys[2], &out));
	assert_true(cache_get(*state, keys[3], &out));
	buffer_free(&out);
}

static void an_unwritable_cache_is_reported(void **state)
{
	struct error err;
	char *file = path_join(*state, "file"), *below = path_join(file, "cache"), key[CACHE_KEY];

	key_of(key, "a", "b");
	assert_int_equal(file_write(file, "x", 1, 0600, FILE_NEW, &err), 0);
	assert_int_equal(cache_put(below, key, "x", 1, LIMIT, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	free(below);
	free(file);
}

/* Many writers and readers of one key at once: a reader sees the whole entry or none. */
static void processes_share_the_cache(void **state)
{
	static char data[100000];
	char key[CACHE_KEY];
	int status, failures = 0;

	key_of(key, "a", "b");
	memset(data, 'x', sizeof(data));
	for (int process = 0; process < 4; process++) {
		if (fork())
			continue;
		for (int i = 0; i < 20; i++) {
			struct buffer out = {0};
			struct error err;

			if (cache_put(*state, key, data, sizeof(data), LIMIT, &err) < 0 ||
				!cache_get(*state, key, &out) || out.length != sizeof(data) ||
				memcmp(out.data, data, sizeof(data)) != 0)
				_exit(1);
			buffer_free(&out);
		}
		_exit(0);
	}
	while (wait(&status) > 0)
		failures += status != 0;
	assert_int_equal(failures, 0);
}

static void models_are_found_by_the_drivers_names(void **state)
{
	(void)state;
	assert_string_equal(gpu_model_find("NVIDIA H200")->name, "H200");
	assert_string_equal(gpu_model_find("NVIDIA H100 80GB HBM3")->name, "H100 SXM");
	assert_string_equal(gpu_model_find("NVIDIA A100-SXM4-40GB")->name, "A100 SXM 40 GB");
	assert_string_equal(gpu_model_find("NVIDIA GeForce RTX 4090")->name, "RTX 4090");
	assert_string_equal(gpu_model_find("NVIDIA RTX A6000")->name, "RTX A6000");
	assert_null(gpu_model_find("NVIDIA GeForce RTX 4090 Laptop GPU"));
	assert_null(gpu_model_find("NVIDIA GeForce RTX 3090 Ti"));
	assert_null(gpu_model_find("Tesla V100-SXM2-16GB"));
}

static void devices_have_names(void **state)
{
	static const struct {
		const char *name;
		int index;
	} good[] = {{"auto", GPU_IF_ANY}, {"cpu", GPU_NONE}, {"cuda", 0}, {"cuda:0", 0}, {"cuda:12", 12}};
	static const char *const bad[] = {
		"", "gpu", "CUDA", "cuda:", "cuda:x", "cuda:-1", "cuda: 1", "cuda:1k", "cuda:1024", "cuda1"};
	struct error err = {0};
	int index;

	(void)state;
	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++) {
		assert_int_equal(gpu_parse_device(good[i].name, &index, &err), 0);
		assert_int_equal(index, good[i].index);
	}
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++) {
		assert_int_equal(gpu_parse_device(bad[i], &index, &err), -1);
		assert_int_equal(err.status, STATUS_USAGE);
		assert_non_null(strstr(err.hint, "cuda:N"));
	}
}

static void a_missing_driver_is_explained(void **state)
{
	struct error err = {0};

	(void)state;
	if (cuda_driver(&err))
		skip();
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "driver"));
	assert_true(err.hint[0]);
	assert_null(gpu_open(0, &err));
	assert_int_equal(gpu_count(&err), -1);
}

/* --- compiling, where NVRTC is ------------------------------------------------------------------- */

static const int capabilities[] = {80, 86, 89, 90, 100, 120};

/* Whether the compiler knows the architecture itself: CUDA 12's first ones do not know 100 and 120. */
static bool compiler_knows(const struct nvrtc *nvrtc, int capability)
{
	int count = 0, known[64] = {0};
	bool found = false;

	nvrtc->nvrtcGetNumSupportedArchs(&count);
	assert_in_range(count, 1, 64);
	nvrtc->nvrtcGetSupportedArchs(known);
	for (int i = 0; i < count; i++)
		found |= known[i] == capability;
	return found;
}

/* Where NVML is not there, or there is no GPU at that place, nothing is known; which ends nothing. */
static void a_clock_that_is_not_there_is_not_known(void **state)
{
	const struct gpu_properties nowhere = {.name = "NVIDIA H200", .pci = "ffff:ff:1f.0"};
	struct gpu_clock *clock = gpu_clock_open(&nowhere);

	(void)state;
	assert_null(clock);
	assert_true(isnan(gpu_clock_mhz(clock)));
	gpu_clock_close(clock);
}

/* While it is there, it is one that a GPU can have. */
static void the_clock_of_a_gpu(void **state)
{
	struct gpu_properties properties;
	struct gpu_clock *clock;
	struct error err;

	(void)state;
	if (gpu_query(0, &properties, &err) < 0)
		skip();
	clock = gpu_clock_open(&properties);
	if (!clock)
		skip(); /* a driver without NVML */
	assert_in_range(gpu_clock_mhz(clock), 100, 5000);
	gpu_clock_close(clock);
}

/* What was compiled before comes from the cache of whoever runs this. */
static void compile(const char *source, const struct kernel_parameter *parameters, int capability)
{
	struct error err = {0};
	const struct nvrtc *nvrtc = nvrtc_library(&err);
	struct buffer image = {0};

	if (!nvrtc)
		skip();
	if (kernel_compile(source, parameters, capability, &image, &err) < 0)
		fail_msg("sm_%d: %s", capability, err.message);
	assert_int_equal(!memcmp(image.data, "\177ELF", 4), compiler_knows(nvrtc, capability));
	buffer_free(&image);
}

#define CAPABILITIES (sizeof(capabilities) / sizeof(*capabilities))

static void compile_chunk(const int values[12], int capability)
{
	const struct kernel_parameter parameters[] = {{"HEAD_DIM", values[0]}, {"CHUNK", values[1]},
		{"UPSTREAM", values[2]}, {"INPUT", values[3]}, {"VECTOR", values[4]}, {"COMPACT", values[5]},
		{"NUM_STAGES", values[6]}, {"MIN_BLOCKS", values[7]}, {"PRODUCT_WARPS", values[8]},
		{"NUM_LAUNCHES", values[9]}, {"GATED", values[10]}, {"PACKED", values[11]}, {0}};

	compile("quasar/chunk.cu", parameters, capability);
}

static void quasar_chunk_compiles(void **state)
{
	/* HEAD_DIM, CHUNK, UPSTREAM, INPUT, VECTOR, COMPACT, NUM_STAGES, MIN_BLOCKS,
	 * PRODUCT_WARPS, NUM_LAUNCHES, GATED, PACKED: the usual case, for smaller GPUs further down, and every other value of each once */
	static const int usual[] = {64, 64, 0, 1, 1, 0, 2, 3, 1, 2, 0, 0};
	static const int others[][12] = {
		{64, 64, 1, 1, 1, 1, 2, 2, 1, 3, 0, 0},
		{32, 64, 1, 0, 0, 0, 1, 1, 1, 2, 0, 0},
		{128, 32, 0, 2, 1, 0, 1, 1, 1, 2, 1, 1},
	};
	static const int hopper[][12] = {
		{64, 64, 0, 1, 1, 0, 3, 2, 4, 2, 0, 0},
		{128, 64, 0, 1, 1, 0, 2, 1, 4, 3, 1, 0},
	};

	(void)state;
	compile_chunk(usual, 90);
	compile_chunk(usual, 100);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		compile_chunk(others[i], capabilities[i + 1]);
	for (size_t i = 0; i < sizeof(hopper) / sizeof(*hopper); i++)
		compile_chunk(hopper[i], 90);
}

/* Each function, dimension and layout once; the usual case of smaller GPUs further down. */
static void quasar_gradient_compiles(void **state)
{
	static const int cases[][4] = {{64, 0, 1, 0}, {128, 1, 1, 1}, {32, 1, 0, 0}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const int *values = cases[i];
		const struct kernel_parameter parameters[] = {{"HEAD_DIM", values[0]},
			{"UPSTREAM", values[1]}, {"INPUT", DTYPE_BF16}, {"VECTOR", values[2]},
			{"COMPACT", values[3]}, {0}};

		compile("quasar/gradient.cu", parameters, 90);
	}
}

/* Every pass, type and dimension for some architecture. */
static void linear_attention_compiles(void **state)
{
	(void)state;
	for (size_t i = 0; i < CAPABILITIES; i++) {
		const int number = (int)i;
		const struct kernel_parameter parameters[] = {{"PASS", number % 4}, {"FEATURE", number % 5},
			{"KEY_DIM", 32 << number % 3}, {"VALUE_DIM", 32 << (number + 1) % 3},
			{"CAUSAL", number % 2}, {"NORMALISED", number < 4}, {"INPUT", number % 3},
			{"VECTOR", number != 3}, {"VALUE_TILE", 16 << number % 2}, {"NUM_WARPS", 4},
			{"NUM_STAGES", 2}, {"MIN_BLOCKS", 1}, {0}};

		compile("linear/attention.cu", parameters, capabilities[i]);
	}
}

static void the_other_kernels_compile(void **state)
{
	static const struct kernel_parameter usual[] = {
		{"HIDDEN", 512}, {"WIDTH", 512}, {"HEAD_DIM", 64}, {"INPUT", 1}, {"FROM_F32", 1}, {0}};
	static const struct kernel_parameter wide[] = {
		{"HIDDEN", 64}, {"WIDTH", 256}, {"HEAD_DIM", 128}, {"INPUT", 1}, {"FROM_F32", 0}, {0}};

	(void)state;
	compile("layer/project.cu", usual, 90); /* Hopper's alone */
	compile("layer/project.cu", wide, 90);
	for (size_t i = 0; i < CAPABILITIES; i++) {
		const int dim = 32 << i % 3;
		const struct kernel_parameter parameters[] = {{"HEAD_DIM", dim}, {"INPUT", (int)i % 3},
			{"UPSTREAM", (int)i % 2}, {"VECTOR", (int)i / 3}, {"GATED", (int)i / 2 % 2},
			{"PACKED", (int)i / 3}, {"CACHED", (int)i % 2}, {0}};
		const struct kernel_parameter size[] = {{"SIZE", 16 << i % 3}, {0}};
		const struct kernel_parameter layer[] = {{"HEAD_DIM", dim}, {"WIDTH", 3 * dim}, {"INPUT", 1},
			{"VECTOR", 1}, {"FROM_F32", (int)i % 2}, {0}};

		compile("quasar/gate.cu", parameters, capabilities[i]);
		compile("quasar/recurrent.cu", parameters, capabilities[i]);
		compile("quasar/reference.cu", parameters, capabilities[i]);
		compile("quasar/forward_substitution.cu", size, capabilities[i]);
		compile("layer/gather.cu", layer, capabilities[i]);
		compile("layer/convolve.cu", layer, capabilities[i]);
		compile("layer/gate.cu", layer, capabilities[i]);
		compile("common/delay.cu", NULL, capabilities[i]);
	}
}

static void attention_compiles(void **state)
{
	const struct kernel_parameter parameters[] = {{"HEAD_DIM", 64}, {"CAUSAL", 1}, {"INPUT", 1},
		{"VECTOR", 1}, {"EARLY_END", 1}, {"ATOMICS", 0}, {"BLOCK_M", 128}, {"BLOCK_N", 64},
		{"NUM_WARPS", 8}, {"NUM_STAGES", 4}, {"PRODUCT_WARPS", 4}, {0}};

	(void)state;
	compile("flash/forward.cu", parameters, 90);
	compile("flash/backward.cu", parameters, 90);
}

/* Cards that are not here, one of each architecture that has no wgmma: every family's usual configuration compiles for
 * them, and a block finds room. What it takes is printed. */
static void usual_configurations_fit_smaller_gpus(void **state)
{
	static const char *const cards[] = {"a100", "a40", "4090", "5090"};
	struct error err = {0};
	const struct nvrtc *nvrtc = nvrtc_library(&err);

	(void)state;
	if (!nvrtc)
		skip();
	for (size_t i = 0; i < sizeof(cards) / sizeof(*cards); i++)
		for (size_t f = 0; families[f]; f++) {
			const struct gpu_model *gpu = gpu_model_by_name(cards[i], &err);
			const struct gpu_properties properties = gpu_model_properties(gpu);
			const struct op_shape shape = {1, 100000, 8, 64, 64, 8, 0};
			const int options[FAMILY_OPTIONS] = {0};
			const struct op_problem problem = family_problem(
				families[f], &shape, DTYPE_BF16, options);
			const struct config config = families[f]->configs->usual(&problem, &properties);
			const struct predict_request request = {.family = families[f],
				.problem = &problem,
				.gpu = gpu,
				.configs = &config,
				.count = 1};
			struct prediction found;

			if (!compiler_knows(nvrtc, properties.capability))
				continue;
			if (families[f]->configs->check(&problem, &properties, &config, &err) < 0 ||
				predict_run(&request, &found, &err) < 0)
				fail_msg("%s on %s: %s", families[f]->name, gpu->name, err.message);
			print_message(
				"%s on %s: %d registers and %d bytes spilled a thread, %d bytes of shared memory a "
				"block, %d blocks on a multiprocessor, limited by %s\n",
				families[f]->name, gpu->name, found.registers, found.spilled_bytes,
				found.shared_bytes, found.occupancy.blocks, found.occupancy.limited_by);
			assert_true(found.occupancy.blocks > 0);
		}
}

static void model_step_compiles(void **state)
{
	/* of small models, as the devices' memory allows: few tokens and many */
	static const struct {
		int input, head_dim, head_norms, kv_heads, group, tokens, stage, slots, chunk, blocks;
	} values[] = {{0, 20, 0, 4, 1, 8, 21, 0, 0, 108}, {1, 128, 1, 1, 4, 64, 19, 0, 0, 132},
		{2, 64, 0, 2, 1, 1, 76, 6, 5, 170}};
	static const int capability[] = {80, 90, 120};

	(void)state;
	for (size_t i = 0; i < sizeof(values) / sizeof(*values); i++) {
		const struct kernel_parameter parameters[] = {{"INPUT", values[i].input}, {"HIDDEN", 160},
			{"INTERMEDIATE", 2432}, {"HEADS", 4}, {"KV_HEADS", values[i].kv_heads},
			{"HEAD_DIM", values[i].head_dim}, {"HEAD_NORMS", values[i].head_norms},
			{"VOCABULARY", 4100}, {"GROUP", values[i].group}, {"TOKENS", values[i].tokens},
			{"STAGE", values[i].stage}, {"SLOTS", values[i].slots}, {"CHUNK", values[i].chunk},
			{"BLOCKS", values[i].blocks}, {0}};

		compile("model/step.cu", parameters, capability[i]);
	}
}

static void a_compiler_error_shows_log_and_parameters(void **state)
{
	struct error err = {0};
	struct buffer image = {0};

	if (!nvrtc_library(&err))
		skip();
	setenv("XDG_CACHE_HOME", *state, 1);
	assert_int_equal(kernel_compile("quasar/forward_substitution.cu",
				 (const struct kernel_parameter[]){{"SIZE", -5}, {0}}, 90, &image, &err),
		-1);
	assert_non_null(strstr(err.message, "quasar/forward_substitution.cu"));
	assert_non_null(strstr(err.message, "-DSIZE=-5"));
	assert_non_null(strstr(err.message, "error"));
	assert_int_equal(kernel_compile("quasar/gate.cu", NULL, 10, &image, &err), -1);
	assert_non_null(strstr(err.message, "1.0"));
}

static void what_cannot_be_a_kernel_is_refused(void **state)
{
	struct kernel_parameter many[64] = {{0}};
	struct error err = {0};
	struct buffer image = {0};

	assert_int_equal(kernel_compile("quasar/none.cu", NULL, 90, &image, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "kernels/quasar/none.cu"));
	assert_int_equal(kernel_compile("common/tile.cuh", NULL, 90, &image, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	if (!nvrtc_library(&err))
		skip();
	setenv("XDG_CACHE_HOME", *state, 1);
	for (int i = 0; i < 63; i++)
		many[i] = (struct kernel_parameter){"SIZE", 16};
	assert_int_equal(kernel_compile("quasar/forward_substitution.cu", many, 90, &image, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "-DSIZE=16"));
	assert_int_equal(image.length, 0);
}

static void ptx_is_made_where_it_is_asked_for(void **state)
{
	const struct kernel_parameter parameters[] = {{"SIZE", 16}, {0}};
	struct buffer image = {0};
	struct error err = {0};

	if (!nvrtc_library(&err))
		skip();
	setenv("XDG_CACHE_HOME", *state, 1);
	setenv("CUDA_FORCE_PTX_JIT", "1", 1);
	assert_int_equal(kernel_compile("quasar/forward_substitution.cu", parameters, 90, &image, &err), 0);
	unsetenv("CUDA_FORCE_PTX_JIT");
	assert_non_null(memmem(image.data, image.length, ".target sm_90a", 14));
	buffer_free(&image);
}

static void the_second_compilation_comes_from_the_cache(void **state)
{
	const struct kernel_parameter parameters[] = {{"SIZE", 16}, {0}};
	struct buffer first = {0}, second = {0};
	struct error err = {0};
	char *directory, *pattern;

	if (!nvrtc_library(&err))
		skip();
	setenv("XDG_CACHE_HOME", *state, 1);
	assert_int_equal(kernel_compile("quasar/forward_substitution.cu", parameters, 80, &first, &err), 0);
	directory = cache_directory();
	pattern = xprintf("ls %s | wc -l | grep -qx 1", directory);
	assert_int_equal(system(pattern), 0);
	assert_int_equal(kernel_compile("quasar/forward_substitution.cu", parameters, 80, &second, &err), 0);
	assert_int_equal(system(pattern), 0);
	assert_int_equal(first.length, second.length);
	assert_memory_equal(first.data, second.data, first.length);
	free(pattern);
	free(directory);
	buffer_free(&first);
	buffer_free(&second);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(keys_differ_where_texts_do),
		cmocka_unit_test_setup_teardown(an_entry_comes_back_whole, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			a_damaged_entry_counts_as_missing, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(the_oldest_entries_go, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			an_unwritable_cache_is_reported, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(processes_share_the_cache, make_directory, remove_directory),
		cmocka_unit_test(models_are_found_by_the_drivers_names),
		cmocka_unit_test(devices_have_names),
		cmocka_unit_test(a_missing_driver_is_explained),
		cmocka_unit_test(a_clock_that_is_not_there_is_not_known),
		cmocka_unit_test(the_clock_of_a_gpu),
		cmocka_unit_test(quasar_chunk_compiles),
		cmocka_unit_test(quasar_gradient_compiles),
		cmocka_unit_test(linear_attention_compiles),
		cmocka_unit_test(the_other_kernels_compile),
		cmocka_unit_test(attention_compiles),
		cmocka_unit_test(usual_configurations_fit_smaller_gpus),
		cmocka_unit_test(model_step_compiles),
		cmocka_unit_test_setup_teardown(
			a_compiler_error_shows_log_and_parameters, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			what_cannot_be_a_kernel_is_refused, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			ptx_is_made_where_it_is_asked_for, make_directory, remove_directory),
		cmocka_unit_test_setup_teardown(
			the_second_compilation_comes_from_the_cache, make_directory, remove_directory),
	};

	if (sodium_init() < 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
