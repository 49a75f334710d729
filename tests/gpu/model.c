/* Language models on a GPU against the same on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/model.h"
#include "tensor/compare.h"
#include "tests/gpu/gpu.h"
#include "tests/random_model.h"
#include "tests/unit/directory.h"

#define ROOM 400 /* tokens of a session */
#define REQUESTS 12

/* Of the largest logit: activations are carried in 16 bits at least. */
#define TOLERANCE 5e-5

static const struct random_model kinds[] = {
	{"qwen2", 131, 48, 2, 6, 2, 8, 80, ROOM, true, DTYPE_BF16},
	{"qwen3", 131, 40, 2, 4, 4, 20, 56, ROOM, false, DTYPE_F16},
	{"llama", 131, 64, 1, 4, 1, 16, 72, ROOM, false, DTYPE_F32},
	/* what a block cannot hold at a time, and more tiles than warps; heads in two groups */
	{"qwen2", 4100, 896, 1, 14, 2, 64, 2432, ROOM, true, DTYPE_F16},
	{"qwen3", 515, 160, 1, 10, 1, 128, 96, ROOM, true, DTYPE_BF16},
};
#define KINDS ((int)(sizeof(kinds) / sizeof(*kinds)))

enum { CPU, CUDA, BOTH };

/* A model on both devices, and a request to both. */
struct models {
	struct model *on[BOTH];
};

struct request {
	struct model_session *on[BOTH];
	int32_t tokens[ROOM];
	int count; /* in the next step */
};

static struct models open_both(const struct random_model *kind, const char *folder)
{
	static const char *const devices[BOTH] = {"cpu", "cuda"};
	struct models models;

	assert_int_equal(random_model_write(kind, folder, 3), 0);
	for (int i = 0; i < BOTH; i++) {
		struct error err = {0};

		models.on[i] = model_open(folder, devices[i], &err);
		if (!models.on[i])
			fail_msg("%s", err.message);
		assert_memory_equal(model_info(models.on[i])->device, devices[i], strlen(devices[i]));
	}
	return models;
}

static void close_both(const struct models *models)
{
	for (int i = 0; i < BOTH; i++)
		model_close(models->on[i]);
}

static struct request begin(const struct models *models, int seed, int count)
{
	struct request request = {.count = count};
	struct error err = {0};

	for (int i = 0; i < BOTH; i++) {
		request.on[i] = model_session_open(models->on[i], ROOM, &err);
		assert_non_null(request.on[i]);
	}
	for (int i = 0; i < ROOM; i++)
		request.tokens[i] = (int32_t)((unsigned)(i * 37 + seed * 11) %
			(unsigned)model_info(models->on[CPU])->vocabulary);
	return request;
}

static void end(const struct request *request)
{
	for (int i = 0; i < BOTH; i++)
		model_session_close(request->on[i]);
}

/* The same logits, as far as they can be; the same token, unless two are as good. */
static void assert_agree(const float *const logits[BOTH], const int32_t next[BOTH], int vocabulary)
{
	struct comparison found = compare_float(logits[CUDA], logits[CPU], vocabulary);
	float largest = 0;

	for (int i = 0; i < vocabulary; i++)
		largest = fmaxf(largest, fabsf(logits[CPU][i]));
	assert_true(found.finite);
	if (!(found.max_difference <= TOLERANCE * largest))
		fail_msg("logits up to %g are %g apart", largest, found.max_difference);
	assert_in_range(next[CUDA], 0, vocabulary - 1);
	assert_true(logits[CUDA][next[CUDA]] >= logits[CUDA][next[CPU]]);
	assert_true(logits[CPU][next[CPU]] - logits[CPU][next[CUDA]] <= 2 * TOLERANCE * largest);
}

/* One step of all requests. */
static void step(const struct models *models, struct request *requests, int count)
{
	size_t vocabulary = (size_t)model_info(models->on[CPU])->vocabulary;
	float *logits = calloc((size_t)count * BOTH * vocabulary, sizeof(*logits));
	int32_t next[REQUESTS][BOTH];

	for (int i = 0; i < BOTH; i++) {
		struct model_piece pieces[REQUESTS];
		struct error err = {0};

		for (int n = 0; n < count; n++)
			pieces[n] = (struct model_piece){.session = requests[n].on[i],
				.tokens = requests[n].tokens + model_session_length(requests[n].on[i]),
				.count = requests[n].count,
				.predicts = true,
				.logits = logits + (size_t)(n * BOTH + i) * vocabulary};
		if (model_step(models->on[i], pieces, count, NULL, &err) < 0)
			fail_msg("%s", err.message);
		for (int n = 0; n < count; n++)
			next[n][i] = pieces[n].next;
	}
	for (int n = 0; n < count; n++) {
		const float *both[BOTH] = {logits + (size_t)(n * BOTH) * vocabulary,
			logits + (size_t)(n * BOTH + 1) * vocabulary};

		assert_agree(both, next[n], (int)vocabulary);
	}
	free(logits);
}

/* A token, a few, and more than a launch takes. */
static void every_kind_agrees_with_the_cpu(void **state)
{
	static const int counts[] = {1, 2, 9, 70, 1};

	for (int kind = 0; kind < KINDS; kind++) {
		struct models models = open_both(&kinds[kind], *state);
		struct request request = begin(&models, kind, 0);

		for (size_t i = 0; i < sizeof(counts) / sizeof(*counts); i++) {
			request.count = counts[i];
			step(&models, &request, 1);
		}
		end(&request);
		close_both(&models);
	}
}

/* Prompts and single tokens; more tokens than the tensor cores take at a time, and more than a launch does. */
static void requests_share_steps(void **state)
{
	static const int counts[3][REQUESTS] = {{33, 1, 9, 1, 20, 1, 2, 1, 1, 5, 1, 1},
		{1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1}, {2, 3, 1, 1, 1, 1, 1, 1, 17, 1, 1, 1}};

	for (int kind = 0; kind < 3; kind++) {
		struct models models = open_both(&kinds[kind], *state);
		struct request requests[REQUESTS];

		for (int i = 0; i < REQUESTS; i++)
			requests[i] = begin(&models, i, 0);
		for (int n = 0; n < 3; n++) {
			for (int i = 0; i < REQUESTS; i++)
				requests[i].count = counts[n][i];
			step(&models, requests, REQUESTS);
		}
		for (int i = 0; i < REQUESTS; i++)
			end(&requests[i]);
		close_both(&models);
	}
}

/* All heads of this kind share their keys: so even a few multiprocessors share the sequence of one token. */
static void long_sequences_are_attended_to_in_parts(void **state)
{
	struct models models = open_both(&kinds[2], *state);
	struct request request = begin(&models, 1, 300);

	step(&models, &request, 1);
	for (int i = 0; i < 2; i++) {
		request.count = 1;
		step(&models, &request, 1);
	}
	end(&request);
	close_both(&models);
}

/* Fewer tiles than any GPU has multiprocessors, in many layers. */
static void blocks_without_work_keep_step(void **state)
{
	const struct random_model slim = {"llama", 31, 24, 12, 1, 1, 8, 16, ROOM, false, DTYPE_BF16};
	struct models models = open_both(&slim, *state);
	struct request request = begin(&models, 1, 1);

	step(&models, &request, 1);
	end(&request);
	close_both(&models);
}

static void the_same_input_gives_the_same_bits(void **state)
{
	struct models models = open_both(&kinds[0], *state);
	float logits[2][131];
	struct error err = {0};

	for (int i = 0; i < 2; i++) {
		struct request request = begin(&models, 1, 0);
		struct model_piece piece = {request.on[CUDA], request.tokens, 45, true, logits[i], -2};

		assert_int_equal(model_step(models.on[CUDA], &piece, 1, NULL, &err), 0);
		end(&request);
	}
	assert_memory_equal(logits[0], logits[1], sizeof(logits[0]));
	close_both(&models);
}

static bool at_once(void)
{
	return true;
}

static void a_step_can_be_stopped(void **state)
{
	struct models models = open_both(&kinds[0], *state);
	struct request request = begin(&models, 1, 0);
	struct model_piece piece = {.session = request.on[CUDA], .tokens = request.tokens, .count = 100};
	struct error err = {0};

	assert_int_equal(model_step(models.on[CUDA], &piece, 1, at_once, &err), -1);
	assert_int_equal(err.status, STATUS_INTERRUPTED);
	assert_int_equal(model_session_length(request.on[CUDA]), 0);
	request.count = 100;
	step(&models, &request, 1);
	end(&request);
	close_both(&models);
}

static void what_does_not_fit_is_refused(void **state)
{
	struct random_model odd = kinds[0];
	struct models models = open_both(&kinds[0], *state);
	struct error err = {0};

	assert_null(model_session_open(models.on[CUDA], ROOM + 1, &err));
	assert_int_equal(err.status, STATUS_USAGE);
	close_both(&models);
	odd.head_dim = 6;
	assert_int_equal(random_model_write(&odd, *state, 3), 0);
	assert_null(model_open(*state, "cuda", &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "head_dim"));
	assert_non_null(strstr(err.hint, "--device cpu"));
	assert_null(model_open(*state, "cuda:9", &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
}

#define WITH_DIRECTORY(test) cmocka_unit_test_setup_teardown(test, make_directory, remove_directory)

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		WITH_DIRECTORY(every_kind_agrees_with_the_cpu),
		WITH_DIRECTORY(requests_share_steps),
		WITH_DIRECTORY(long_sequences_are_attended_to_in_parts),
		WITH_DIRECTORY(blocks_without_work_keep_step),
		WITH_DIRECTORY(the_same_input_gives_the_same_bits),
		WITH_DIRECTORY(a_step_can_be_stopped),
		WITH_DIRECTORY(what_does_not_fit_is_refused),
	};
	int status = open_gpu(argc, argv);

	if (status)
		return status;
	device_close(&device); /* models open it themselves */
	return cmocka_run_group_tests(tests, NULL, NULL);
}
