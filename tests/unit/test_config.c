/* config: which configuration of quasar/chunk.cu is chosen for which GPU, what is wrong with others, and
 * their texts. Nothing here needs a GPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "op/family.h"
#include "op/quasar/config.h"
#include "tensor/random.h"
#include "op/tuned.h"

/* As their drivers say. */
static const struct gpu_properties a100 = {.name = "A100",
	.capability = 80,
	.multiprocessors = 108,
	.shared_per_multiprocessor = 167936,
	.shared_per_block = 166912};
static const struct gpu_properties rtx4090 = {.name = "RTX 4090",
	.capability = 89,
	.multiprocessors = 128,
	.shared_per_multiprocessor = 102400,
	.shared_per_block = 101376};
static const struct gpu_properties h200 = {.name = "H200",
	.capability = 90,
	.multiprocessors = 132,
	.shared_per_multiprocessor = 233472,
	.shared_per_block = 232448};
static const struct gpu_properties rtx5090 = {.name = "RTX 5090",
	.capability = 120,
	.multiprocessors = 170,
	.shared_per_multiprocessor = 102400,
	.shared_per_block = 101376};

struct choice {
	const struct gpu_properties *gpu;
	enum semantics semantics;
	enum dtype dtype;
	int dim;
	int64_t batch, tokens;
	int heads;
	struct config config;
};

/* CHUNK, NUM_STAGES, MIN_BLOCKS, PRODUCT_WARPS, NUM_LAUNCHES, GROUPS: computed from the same rules, but not by config.c. */
static const struct choice choices[] = {
	{&a100, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 1, 3, 1, 2, 40}}},
	{&a100, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 2, 2, 1, 2, 27}}},
	{&a100, SEMANTICS_CAUSAL, DTYPE_F32, 64, 1, 1000000, 8, {{64, 2, 1, 1, 2, 13}}},
	{&a100, SEMANTICS_UPSTREAM, DTYPE_F16, 64, 1, 1000000, 8, {{64, 2, 1, 1, 2, 13}}},
	{&a100, SEMANTICS_CAUSAL, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 1, 4, 1, 2, 54}}},
	{&a100, SEMANTICS_UPSTREAM, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 2, 4, 1, 2, 54}}},
	{&a100, SEMANTICS_CAUSAL, DTYPE_F16, 32, 1, 1000000, 8, {{64, 1, 2, 1, 2, 27}}},
	{&a100, SEMANTICS_CAUSAL, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 2, 1, 1, 2, 13}}},
	{&a100, SEMANTICS_UPSTREAM, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 2, 1, 1, 2, 13}}},
	{&a100, SEMANTICS_CAUSAL, DTYPE_F32, 128, 1, 1000000, 8, {{64, 1, 1, 1, 2, 13}}},
	{&a100, SEMANTICS_UPSTREAM, DTYPE_F32, 128, 1, 1000000, 8, {{64, 1, 1, 1, 2, 13}}},
	{&rtx4090, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 1, 2, 1, 2, 32}}},
	{&rtx4090, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 1, 2, 1, 2, 32}}},
	{&rtx4090, SEMANTICS_CAUSAL, DTYPE_F32, 64, 1, 1000000, 8, {{64, 1, 1, 1, 2, 16}}},
	{&rtx4090, SEMANTICS_UPSTREAM, DTYPE_F16, 64, 1, 1000000, 8, {{64, 1, 1, 1, 2, 16}}},
	{&rtx4090, SEMANTICS_CAUSAL, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 1, 2, 1, 2, 32}}},
	{&rtx4090, SEMANTICS_UPSTREAM, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 1, 3, 1, 2, 48}}},
	{&rtx4090, SEMANTICS_CAUSAL, DTYPE_F16, 32, 1, 1000000, 8, {{64, 1, 1, 1, 2, 16}}},
	{&rtx4090, SEMANTICS_CAUSAL, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 1, 1, 1, 2, 16}}},
	{&rtx4090, SEMANTICS_UPSTREAM, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 1, 1, 1, 2, 16}}},
	{&rtx4090, SEMANTICS_CAUSAL, DTYPE_F32, 128, 1, 1000000, 8, {{32, 1, 1, 1, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 3, 2, 4, 2, 33}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 2048, 8, {{64, 3, 2, 4, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 65536, 8, {{64, 3, 2, 4, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 3, 700, 50, {{64, 3, 2, 4, 2, 1}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 3, 2, 4, 2, 33}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 2048, 8, {{64, 3, 2, 4, 2, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 3, 700, 50, {{64, 3, 2, 4, 2, 1}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F32, 64, 1, 1000000, 8, {{64, 2, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F32, 64, 1, 2048, 8, {{64, 2, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F32, 64, 3, 700, 50, {{64, 2, 1, 4, 2, 1}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_F16, 64, 1, 1000000, 8, {{64, 2, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_F16, 64, 1, 2048, 8, {{64, 2, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_F16, 64, 3, 700, 50, {{64, 2, 1, 4, 2, 1}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 2, 4, 1, 2, 66}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 32, 1, 2048, 8, {{64, 2, 4, 1, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 32, 3, 700, 50, {{64, 2, 4, 1, 2, 3}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 2, 4, 1, 2, 66}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 32, 1, 2048, 8, {{64, 2, 4, 1, 2, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 32, 3, 700, 50, {{64, 2, 4, 1, 2, 3}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F16, 32, 1, 1000000, 8, {{64, 1, 3, 1, 2, 49}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F16, 32, 1, 2048, 8, {{64, 1, 3, 1, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F16, 32, 3, 700, 50, {{64, 1, 3, 1, 2, 1}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 3, 1, 4, 3, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 128, 1, 2048, 8, {{64, 3, 1, 4, 3, 8}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 128, 3, 700, 50, {{64, 3, 1, 4, 3, 1}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 3, 1, 4, 3, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 128, 1, 2048, 8, {{64, 3, 1, 4, 3, 8}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 128, 3, 700, 50, {{64, 3, 1, 4, 3, 1}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F32, 128, 1, 1000000, 8, {{64, 1, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F32, 128, 1, 2048, 8, {{64, 1, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_CAUSAL, DTYPE_F32, 128, 3, 700, 50, {{64, 1, 1, 4, 2, 1}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_F32, 128, 1, 1000000, 8, {{64, 2, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_F32, 128, 1, 2048, 8, {{64, 2, 1, 4, 2, 16}}},
	{&h200, SEMANTICS_UPSTREAM, DTYPE_F32, 128, 3, 700, 50, {{64, 2, 1, 4, 2, 1}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 1, 2, 1, 2, 42}}},
	{&rtx5090, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 1000000, 8, {{64, 1, 2, 1, 2, 42}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 100000, 8, {{64, 1, 2, 1, 2, 21}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, 8192, 8, {{64, 1, 2, 1, 2, 19}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_F32, 64, 1, 1000000, 8, {{64, 1, 1, 1, 2, 21}}},
	{&rtx5090, SEMANTICS_UPSTREAM, DTYPE_F16, 64, 1, 1000000, 8, {{64, 1, 1, 1, 2, 21}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 1, 2, 1, 2, 42}}},
	{&rtx5090, SEMANTICS_UPSTREAM, DTYPE_BF16, 32, 1, 1000000, 8, {{64, 1, 3, 1, 2, 63}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_F16, 32, 1, 1000000, 8, {{64, 1, 1, 1, 2, 21}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 1, 1, 1, 2, 21}}},
	{&rtx5090, SEMANTICS_UPSTREAM, DTYPE_BF16, 128, 1, 1000000, 8, {{64, 1, 1, 1, 2, 21}}},
	{&rtx5090, SEMANTICS_CAUSAL, DTYPE_F32, 128, 1, 1000000, 8, {{32, 1, 1, 1, 2, 21}}},
};

static struct quasar_problem problem_of(const struct choice *choice)
{
	return (struct quasar_problem){
		.semantics = choice->semantics,
		.batch = choice->batch,
		.tokens = choice->tokens,
		.heads = choice->heads,
		.dim = choice->dim,
		.q = {.dtype = choice->dtype},
	};
}

static void every_gpu_gets_its_configuration(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(choices) / sizeof(*choices); i++) {
		const struct choice *choice = &choices[i];
		struct quasar_problem problem = problem_of(choice);
		struct config chosen = quasar_config_default(&problem, choice->gpu);
		struct error err = {0};
		char found[128], expected[128];

		config_format(quasar_parameters, &chosen, found, sizeof(found));
		config_format(quasar_parameters, &choice->config, expected, sizeof(expected));
		if (strcmp(found, expected))
			fail_msg("%s %s %s S %d T %lld: %s, not %s", choice->gpu->name,
				semantics_name(choice->semantics), dtype_name(choice->dtype), choice->dim,
				(long long)choice->tokens, found, expected);
		if (quasar_config_check(&problem, choice->gpu, &chosen, &err) < 0)
			fail_msg("%s: %s", choice->gpu->name, err.message);
	}
}

/* fp32 with heads of 128 takes more than a small GPU has. */
static void what_does_not_fit_says_why(void **state)
{
	struct quasar_problem problem = problem_of(
		&(struct choice){&rtx4090, SEMANTICS_UPSTREAM, DTYPE_F32, 128, 1, 1000, 8, {{0}}});
	struct config config = quasar_config_default(&problem, &rtx4090);
	struct error err = {0};

	(void)state;
	assert_int_equal(quasar_config_check(&problem, &rtx4090, &config, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "RTX 4090"));
	assert_non_null(strstr(err.message, "head dimension 128"));
	assert_non_null(strstr(err.hint, "bf16"));
	problem.q.dtype = DTYPE_BF16;
	config = quasar_config_default(&problem, &rtx4090);
	assert_int_equal(quasar_config_check(&problem, &rtx4090, &config, &err), 0);
	/* the same problem where there is room */
	problem.q.dtype = DTYPE_F32;
	config = quasar_config_default(&problem, &h200);
	assert_int_equal(quasar_config_check(&problem, &h200, &config, &err), 0);
}

static void assert_refused(enum semantics semantics, struct config config, const char *because)
{
	struct quasar_problem problem = problem_of(
		&(struct choice){&h200, semantics, DTYPE_BF16, 64, 1, 640, 8, {{0}}}); /* ten chunks */
	struct error err = {0};

	assert_int_equal(quasar_config_check(&problem, &h200, &config, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	if (!strstr(err.message, because))
		fail_msg("\"%s\" does not say \"%s\"", err.message, because);
}

static void what_the_kernel_lacks_is_refused(void **state)
{
	(void)state;
	assert_refused(SEMANTICS_CAUSAL, (struct config){{48, 2, 3, 1, 2, 1}}, "CHUNK=48");
	assert_refused(SEMANTICS_CAUSAL, (struct config){{64, 4, 3, 1, 2, 1}}, "NUM_STAGES=4");
	assert_refused(SEMANTICS_CAUSAL, (struct config){{64, 2, 0, 1, 2, 1}}, "MIN_BLOCKS=0");
	assert_refused(SEMANTICS_CAUSAL, (struct config){{64, 2, 3, 2, 2, 1}}, "PRODUCT_WARPS=2");
	assert_refused(SEMANTICS_CAUSAL, (struct config){{64, 2, 3, 1, 4, 1}}, "NUM_LAUNCHES=4");
	assert_refused(SEMANTICS_CAUSAL, (struct config){{32, 2, 3, 4, 2, 1}}, "PRODUCT_WARPS=4 needs");
	assert_refused(SEMANTICS_UPSTREAM, (struct config){{32, 1, 1, 1, 2, 1}}, "chunks of 64, not of 32");
	assert_refused(
		SEMANTICS_CAUSAL, (struct config){{64, 2, 3, 1, 2, 0}}, "10 chunks cannot be cut into 0");
	assert_refused(SEMANTICS_CAUSAL, (struct config){{64, 2, 3, 1, 2, 11}}, "into 11 groups");
	/* groups of two chunks are five */
	assert_refused(SEMANTICS_CAUSAL, (struct config){{64, 2, 3, 1, 2, 6}}, "into 6 groups, but into 5");
}

/* Any number of tokens gives groups that can be cut exactly. */
static void groups_are_exact(void **state)
{
	(void)state;
	for (int64_t tokens = 1; tokens < 40000; tokens = tokens * 5 / 4 + 1)
		for (int heads = 1; heads <= 64; heads *= 4) {
			struct quasar_problem problem = problem_of(&(struct choice){
				&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, tokens, heads, {{0}}});
			struct config config = quasar_config_default(&problem, &h200);
			struct error err = {0};

			if (quasar_config_check(&problem, &h200, &config, &err) < 0)
				fail_msg("%lld tokens, %d heads: %s", (long long)tokens, heads, err.message);
			assert_true(config.value[QUASAR_GROUPS] * heads <= 3 * 132 ||
				config.value[QUASAR_GROUPS] == 1);
		}
}

#define USUAL "CHUNK=64 NUM_STAGES=2 MIN_BLOCKS=3 PRODUCT_WARPS=4 NUM_LAUNCHES=2"

static void texts_are_read_back(void **state)
{
	static const char *const wrong[] = {"", "CHUNK=64", "CHUNK=64 " USUAL, USUAL " GROUPS=x",
		USUAL " GROUPS=0", USUAL " GROUPS=1 OTHER=1", USUAL " GROUPS"};
	struct config config = {{64, 2, 3, 4, 2, 49}}, read;
	struct error err = {0};
	char text[128];

	(void)state;
	config_format(quasar_parameters, &config, text, sizeof(text));
	assert_string_equal(text, USUAL " GROUPS=49");
	assert_int_equal(config_parse(quasar_parameters, text, &read, &err), 0);
	assert_memory_equal(&read, &config, sizeof(read));
	assert_int_equal(config_parse(quasar_parameters, " GROUPS=49  " USUAL, &read, &err), 0);
	assert_memory_equal(&read, &config, sizeof(read));
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		assert_int_equal(config_parse(quasar_parameters, wrong[i], &read, &err), -1);
		assert_int_equal(err.status, STATUS_USAGE);
	}
}

/* What was found for one length is cut for another; what this GPU cannot run is not used. */
static void what_tuning_found_is_fitted(void **state)
{
	const struct config tuned = {{64, 1, 2, 4, 3, 40}}, shorter = {{64, 1, 2, 4, 3, 32}};
	struct quasar_problem problem = problem_of(
		&(struct choice){&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 100000, 8, {{0}}});
	struct config usual, found = quasar_config_adopt(&problem, &h200, &tuned);
	struct error err;

	(void)state;
	assert_memory_equal(&found, &tuned, sizeof(found)); /* 1563 chunks in 40 groups of 40 */
	assert_int_equal(quasar_config_check(&problem, &h200, &found, &err), 0);
	problem.tokens = 2048; /* 32 chunks */
	found = quasar_config_adopt(&problem, &h200, &tuned);
	assert_memory_equal(&found, &shorter, sizeof(found));
	assert_int_equal(quasar_config_check(&problem, &h200, &found, &err), 0);
	usual = quasar_config_default(&problem, &a100);
	found = quasar_config_adopt(&problem, &a100, &tuned); /* has no wgmma */
	assert_memory_equal(&found, &usual, sizeof(found));
	usual = quasar_config_default(&problem, &h200);
	found = quasar_config_adopt(&problem, &h200, &(struct config){{64, 7, 2, 4, 3, 40}});
	assert_memory_equal(&found, &usual, sizeof(found));
	found = quasar_config_adopt(&problem, &h200, &(struct config){{32, 1, 2, 1, 3, 40}});
	assert_memory_equal(&found, &usual, sizeof(found)); /* upstream has chunks of 64 */
}

static void what_is_launched_is_listed(void **state)
{
	const struct quasar_problem problem = problem_of(
		&(struct choice){&h200, SEMANTICS_UPSTREAM, DTYPE_BF16, 64, 1, 100000, 8, {{0}}});
	struct config_launch launches[CONFIG_LAUNCHES];

	(void)state;
	assert_int_equal(quasar_launches(&problem, &(struct config){{64, 2, 3, 4, 2, 1}}, launches), 1);
	assert_string_equal(launches[0].name, "quasar_chunk_output");
	assert_int_equal(launches[0].blocks, 8);
	assert_int_equal(quasar_launches(&problem, &(struct config){{64, 2, 2, 4, 3, 40}}, launches), 3);
	assert_string_equal(launches[0].name, "quasar_chunk_inverse");
	assert_int_equal(launches[0].blocks, 8 * 1563);
	assert_string_equal(launches[1].name, "quasar_chunk_transition");
	assert_int_equal(launches[1].blocks, 8 * 39);
	assert_int_equal(launches[2].blocks, 8 * 40);
	assert_int_equal(launches[2].threads, 128);
	assert_int_equal(launches[2].shared_bytes, 2 * (3 * 64 * 64 * 2 + 64 * 64 * 2));
	/* makers come along with carriers, but not to the launch for T */
	assert_int_equal(quasar_launches(&problem, &(struct config){{64, 3, 2, 4, 3, 40}}, launches), 3);
	assert_int_equal(launches[0].threads, 128);
	assert_int_equal(launches[1].threads, 256);
	assert_int_equal(launches[2].threads, 256);
	assert_string_equal(launches[2].parameters[0].name, "HEAD_DIM");
	assert_int_equal(launches[2].parameters[0].value, 64);
}

/* Wherever packed sequences are cut, the blocks suffice, and each finds its own by the rule of chunk.cu. */
static void packed_sequences_have_blocks_enough(void **state)
{
	enum { TOKENS = 300, SEQUENCES = 7, PART = 64 };
	struct quasar_problem problem = problem_of(
		&(struct choice){&h200, SEMANTICS_CAUSAL, DTYPE_BF16, 64, 1, TOKENS, 8, {{0}}});
	struct config_launch launches[CONFIG_LAUNCHES];

	(void)state;
	problem.sequences = SEQUENCES;
	for (uint64_t seed = 0; seed < 200; seed++)
		for (int last_too = 0; last_too < 2; last_too++) {
			int64_t starts[SEQUENCES + 1] = {0},
						   parts = quasar_parts(&problem, PART, last_too) / 8,
						   owner = 0;
			float lengths[SEQUENCES], sum = 0;
			bool taken[TOKENS] = {false};

			random_uniform(seed, 0, 0, 1, lengths, SEQUENCES);
			for (int n = 0; n < SEQUENCES; n++)
				sum += lengths[n] = lengths[n] < 0.3f ? 0 : lengths[n];
			for (int n = 0; n < SEQUENCES; n++)
				starts[n + 1] = n + 1 < SEQUENCES
					? starts[n] + (int64_t)(lengths[n] / sum * TOKENS)
					: TOKENS;
			for (int n = 0; n < SEQUENCES; n++) {
				int64_t length = starts[n + 1] - starts[n];
				int64_t count = (length + PART - 1) / PART - (last_too ? 0 : length > 0);

				for (int64_t i = 0; i < count; i++) {
					int64_t at = starts[n] / PART + (last_too ? n : 0) + i;

					assert_in_range(at, 0, parts - 1);
					assert_false(taken[at]);
					taken[at] = true;
					for (int m = 0; m < SEQUENCES; m++)
						if (starts[m] / PART + (last_too ? m : 0) <= at)
							owner = m;
					assert_int_equal(owner, n);
				}
			}
		}
	assert_int_equal(quasar_launches(&problem, &(struct config){{64, 2, 2, 4, 3, 5}}, launches), 3);
	assert_int_equal(launches[0].blocks, 8 * (TOKENS / 64 + SEQUENCES));
	assert_int_equal(launches[1].blocks, 8 * (TOKENS / 64));
	assert_int_equal(launches[2].blocks, 8 * (TOKENS / 64 + SEQUENCES));
}

static void tuned_configurations_are_found_by_class(void **state)
{
	const struct op_shape shape = {1, 100000, 8, 64, 64, 0, 0}, longer = {1, 131071, 8, 64, 64, 0, 0},
			      twice = {1, 131072, 8, 64, 64, 0, 0}, other = {2, 100000, 8, 64, 64, 0, 0},
			      same = {2, 100000, 4, 64, 64, 0, 0};
	const struct config first = {{1}}, second = {{2}};
	struct shape_class class = shape_class_of("upstream", DTYPE_BF16, &shape), another;
	struct config found;
	char text[128];

	(void)state;
	shape_class_format(&class, text, sizeof(text));
	assert_string_equal(text, "upstream, bf16, 8 heads of 64, 65,536 tokens and more");
	assert_false(tuned_find("H200", "kernel", &class, &found));
	tuned_put("H200", "kernel", &class, &first);
	tuned_put("H100", "kernel", &class, &second);
	another = shape_class_of("upstream", DTYPE_BF16, &longer);
	assert_true(tuned_find("H200", "kernel", &another, &found) && found.value[0] == 1);
	another = shape_class_of("upstream", DTYPE_BF16, &same);
	assert_true(tuned_find("H100", "kernel", &another, &found) && found.value[0] == 2);
	another = shape_class_of("upstream", DTYPE_BF16, &twice);
	assert_false(tuned_find("H200", "kernel", &another, &found));
	another = shape_class_of("upstream", DTYPE_BF16, &other);
	assert_false(tuned_find("H200", "kernel", &another, &found));
	another = shape_class_of("upstream", DTYPE_F16, &shape);
	assert_false(tuned_find("H200", "kernel", &another, &found));
	another = shape_class_of("causal", DTYPE_BF16, &shape);
	assert_false(tuned_find("H200", "kernel", &another, &found));
	assert_false(tuned_find("A100", "kernel", &class, &found));
	assert_false(tuned_find("H200", "other", &class, &found));
	tuned_put("H200", "kernel", &class, &second);
	assert_true(tuned_find("H200", "kernel", &class, &found) && found.value[0] == 2);
	tuned_clear();
	assert_false(tuned_find("H200", "kernel", &class, &found));
}

/* Of every family: what was found is taken, unless this GPU cannot run it. */
static void what_tuning_found_is_chosen(void **state)
{
	const struct op_shape shape = {1, 100000, 8, 64, 64, 0, 0};
	const int options[FAMILY_OPTIONS] = {0};
	int tried = 0;

	(void)state;
	for (int i = 0; families[i]; i++) {
		const struct family_configs *configs = families[i]->configs;
		struct op_problem problem = family_problem(families[i], &shape, DTYPE_BF16, options);
		struct config usual = configs->usual(&problem, &h200),
			      other = configs->usual(&problem, &a100), impossible = {{0}}, chosen;
		struct shape_class class;
		char function[64];

		chosen = tuned_or_usual(families[i], &problem, &h200);
		assert_memory_equal(&chosen, &usual, sizeof(usual));
		if (!memcmp(&usual, &other, sizeof(usual)))
			continue;
		family_options_format(families[i], options, function, sizeof(function));
		class = shape_class_of(function, DTYPE_BF16, &shape);
		tuned_put(h200.name, configs->kernel, &class, &other);
		chosen = tuned_or_usual(families[i], &problem, &h200);
		other = configs->adopt(&problem, &h200, &other);
		assert_memory_equal(&chosen, &other, sizeof(other));
		assert_memory_not_equal(&chosen, &usual, sizeof(usual));
		tuned_put(h200.name, configs->kernel, &class, &impossible);
		chosen = tuned_or_usual(families[i], &problem, &h200);
		assert_memory_equal(&chosen, &usual, sizeof(usual));
		tuned_clear();
		tried++;
	}
	assert_true(tried >= 3);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_gpu_gets_its_configuration),
		cmocka_unit_test(what_does_not_fit_says_why),
		cmocka_unit_test(what_the_kernel_lacks_is_refused),
		cmocka_unit_test(groups_are_exact),
		cmocka_unit_test(texts_are_read_back),
		cmocka_unit_test(what_tuning_found_is_fitted),
		cmocka_unit_test(what_is_launched_is_listed),
		cmocka_unit_test(packed_sequences_have_blocks_enough),
		cmocka_unit_test(tuned_configurations_are_found_by_class),
		cmocka_unit_test(what_tuning_found_is_chosen),
	};

	return cmocka_run_group_tests_name("config", tests, NULL, NULL);
}
