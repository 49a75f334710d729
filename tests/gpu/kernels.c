/* The kernels against fp64 on the device, and fp64 on the device against fp64 on the CPU. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu/cuda.h"
#include "gpu/gpu.h"
#include "layer/cuda.h"
#include "measure/fixture.h"
#include "op/flash/config.h"
#include "op/flash/ladder.h"
#include "op/quasar/config.h"
#include "op/quasar/cuda.h"
#include "op/quasar/reference.h"
#include "tensor/compare.h"
#include "tensor/random.h"
#include "tests/gpu/gpu.h"
#include "tune/space.h"

static struct gpu *gpu; /* of the device */
static struct gpu_workspace workspace;
static bool
	emulated; /* the GPU is (tests/emulator), and takes a second for what takes others a microsecond */

/* A number that suits a GPU, and one that suits an emulated one. */
static int suited(int real, int small)
{
	return emulated ? small : real;
}

/* What is asked for; zeros mean the usual: contiguous tensors, normally distributed keys. */
struct shape {
	enum semantics semantics;
	enum dtype dtype;
	int batch, tokens, heads, dim;
	bool initial, strided;
	float key_deviation;           /* 0: 1 */
	float key_mean;                /* the same for all tokens of a head: nearly parallel keys */
	enum quasar_function function; /* 0: that of the semantics alone */
	int sequences;                 /* packed; 0: as many as usual, where the function packs */
};

enum { Q, K, V, O, BETA, INITIAL, FINAL, LOG_GATE }; /* of the family */

struct trial {
	struct shape shape;
	struct fixture made;
	struct quasar_problem problem; /* of the fixture, on the device */
	size_t count, states;          /* elements: of a tensor, of a state */
	void *memory[16];
	int memories;
	double *reference, *reference_state; /* on the host */
	float *output, *state;
};

static void *device_memory(struct trial *trial, const void *values, size_t bytes)
{
	struct error err;
	void *memory = gpu_allocate(gpu, bytes, &err);

	if (!memory || (values && gpu_upload(gpu, memory, values, bytes, &err) < 0))
		fail_msg("%s", err.message);
	trial->memory[trial->memories++] = memory;
	return memory;
}

static void prepare(struct trial *trial, struct shape shape, uint64_t seed)
{
	const struct fixture_plan plan = {
		.family = families[0],
		.shape = {shape.batch, shape.tokens, shape.heads, shape.dim, shape.dim, 0, shape.sequences},
		.dtype = shape.dtype,
		.options = {shape.function ? (int)shape.function : (int)shape.semantics},
		.layout = shape.strided ? LAYOUT_SPARSE : LAYOUT_CONTIGUOUS,
		.states = true,
		.seed = seed,
		.key_deviation = shape.key_deviation,
		.key_mean = shape.key_mean,
	};
	const struct tensor *tensors = trial->made.problem.tensors;
	struct error err;

	*trial = (struct trial){.shape = shape};
	if (fixture_make(&trial->made, &device, &plan, &err) < 0)
		fail_msg("%s", err.message);
	trial->count = trial->made.count[O];
	trial->states = trial->made.count[FINAL];
	trial->problem = (struct quasar_problem){
		.semantics = shape.semantics,
		.batch = shape.batch,
		.tokens = shape.tokens,
		.heads = shape.heads,
		.dim = shape.dim,
		.q = tensors[Q],
		.k = tensors[K],
		.v = tensors[V],
		.o = tensors[O],
		.beta = tensors[BETA].data,
		.initial_state = shape.initial ? tensors[INITIAL].data : NULL,
		.final_state = tensors[FINAL].data,
		.gated = tensors[LOG_GATE].data != NULL,
		.log_gate = tensors[LOG_GATE].data,
		.sequences = trial->made.problem.shape.sequences,
		.starts = trial->made.starts,
	};
	trial->reference = malloc(trial->count * sizeof(double));
	trial->reference_state = malloc(trial->states * sizeof(double));
	trial->output = malloc(trial->count * sizeof(float));
	trial->state = malloc(trial->states * sizeof(float));
}

static void finish(struct trial *trial)
{
	for (int i = 0; i < trial->memories; i++)
		gpu_release(gpu, trial->memory[i]);
	if (trial->made.device)
		fixture_free(&trial->made);
	free(trial->reference);
	free(trial->reference_state);
	free(trial->output);
	free(trial->state);
}

static void compute_reference(struct trial *trial)
{
	double *o = device_memory(trial, NULL, trial->count * sizeof(double));
	double *state = device_memory(trial, NULL, trial->states * sizeof(double));
	struct error err;

	must(quasar_cuda_reference(gpu, &trial->problem, o, state, &err), &err);
	must(gpu_download(gpu, trial->reference, o, trial->count * sizeof(double), &err), &err);
	must(gpu_download(gpu, trial->reference_state, state, trial->states * sizeof(double), &err), &err);
	gpu_release(gpu, trial->memory[--trial->memories]);
	gpu_release(gpu, trial->memory[--trial->memories]);
}

/* A tensor of the trial in (batch, token, head, dim) order, as floats. */
static void download_tensor(const struct trial *trial, int tensor, float *to)
{
	enum dtype dtype = trial->made.problem.tensors[tensor].dtype;
	size_t count = trial->made.count[tensor];
	char *elements = malloc(count * dtype_size(dtype));
	struct error err;

	must(fixture_download(&trial->made, tensor, elements, &err), &err);
	for (size_t i = 0; i < count; i++)
		to[i] = dtype_load(elements, dtype, (int64_t)i);
	free(elements);
}

static void download(struct trial *trial)
{
	struct error err;

	must(gpu_synchronize(gpu, &err), &err);
	download_tensor(trial, O, trial->output);
	download_tensor(trial, FINAL, trial->state);
}

/* ‖a − b‖ / ‖b‖; infinite when a holds anything that is not finite. */
static double relative_error(const float *a, const double *b, size_t count)
{
	double difference = 0, norm = 0;

	for (size_t i = 0; i < count; i++) {
		if (!isfinite(a[i]))
			return INFINITY;
		difference += (a[i] - b[i]) * (a[i] - b[i]);
		norm += b[i] * b[i];
	}
	return sqrt(difference / norm);
}

static double tolerance(enum dtype dtype)
{
	return dtype == DTYPE_BF16 ? 1e-2 : dtype == DTYPE_F16 ? 5e-4 : 1e-4;
}

static void compare(struct trial *trial)
{
	const struct shape *shape = &trial->shape;
	double most = tolerance(shape->dtype), o, state;

	download(trial);
	o = relative_error(trial->output, trial->reference, trial->count);
	state = relative_error(trial->state, trial->reference_state, trial->states);
	if (!(o <= most && state <= most))
		fail_msg("%s type %d B%d T%d H%d S%d initial %d strided %d keys %g + %g: output off by %.2e, "
			 "state "
			 "by %.2e, most %.0e",
			quasar_function_name(&trial->problem), (int)shape->dtype, shape->batch, shape->tokens,
			shape->heads, shape->dim, shape->initial, shape->strided, shape->key_deviation,
			shape->key_mean, o, state, most);
}

static void check(struct shape shape, uint64_t seed)
{
	struct trial trial;
	struct error err;

	prepare(&trial, shape, seed);
	compute_reference(&trial);
	must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
	compare(&trial);
	finish(&trial);
}

/* --- the operation ------------------------------------------------------------------------------- */

static bool is_packed(int function)
{
	return function == QUASAR_PACKED || function == QUASAR_PACKED_GATED;
}

static void the_references_agree(void **state)
{
	(void)state;
	for (int function = QUASAR_UPSTREAM; function <= QUASAR_PACKED_GATED; function++) {
		struct shape shape = {
			.semantics = function == QUASAR_UPSTREAM ? SEMANTICS_UPSTREAM : SEMANTICS_CAUSAL,
			.dtype = DTYPE_F32,
			.batch = is_packed(function) ? 1 : 2,
			.tokens = 150,
			.heads = 3,
			.dim = function == QUASAR_UPSTREAM ? 32 : 64,
			.initial = true,
			.function = (enum quasar_function)function};
		struct quasar_problem host;
		struct tensor *tensors[] = {&host.q, &host.k, &host.v};
		struct trial trial;
		struct error err;
		double *o, *final, difference = 0;
		float *initial, beta[3], log_gate[2 * 150 * 3];
		int64_t starts[FAMILY_SEQUENCES + 1];

		prepare(&trial, shape, 7);
		compute_reference(&trial);
		host = trial.problem;
		for (int i = 0; i < 3; i++) {
			void *copy = malloc(trial.count * sizeof(float));

			download_tensor(&trial, i, copy);
			tensors[i]->data = copy;
		}
		must(gpu_download(gpu, beta, host.beta, sizeof(beta), &err), &err);
		host.beta = beta;
		if (host.gated)
			must(gpu_download(gpu, log_gate, host.log_gate,
				     trial.made.count[LOG_GATE] * sizeof(float), &err),
				&err);
		host.log_gate = log_gate;
		if (host.sequences)
			must(gpu_download(gpu, starts, host.starts, sizeof(starts), &err), &err);
		host.starts = starts;
		initial = malloc(trial.states * sizeof(float));
		must(gpu_download(gpu, initial, host.initial_state, trial.states * sizeof(float), &err),
			&err);
		host.initial_state = initial;
		o = malloc(trial.count * sizeof(double));
		final = malloc(trial.states * sizeof(double));
		must(quasar_reference(&host, o, final, &err), &err);
		for (size_t i = 0; i < trial.count; i++)
			difference = fmax(difference, fabs(o[i] - trial.reference[i]));
		for (size_t i = 0; i < trial.states; i++)
			difference = fmax(difference, fabs(final[i] - trial.reference_state[i]));
		assert_true(difference < 1e-9);
		for (int i = 0; i < 3; i++)
			free(tensors[i]->data);
		free(initial);
		free(o);
		free(final);
		finish(&trial);
	}
}

static void every_length(void **state)
{
	static const int lengths[] = {1, 2, 15, 16, 17, 31, 33, 63, 64, 65, 127, 128, 129, 200, 1000, 4097};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths) && lengths[i] <= suited(4097, 200);
			i++)
			check((struct shape){(enum semantics)semantics, DTYPE_BF16, 2, lengths[i], 3, 64,
				      .initial = i % 2},
				i);
}

/* Of an emulated GPU's share: each type with each dimension once. Compiling takes longest there. */
static bool is_worth_emulating(int semantics, int dtype, int dim, int strided)
{
	return !emulated || (semantics == (dtype + dim / 32) % 2 && strided == dim / 64 % 2);
}

static void every_type_dimension_and_layout(void **state)
{
	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (int dtype = 0; dtype < 3; dtype++)
			for (int dim = 32; dim <= 128; dim *= 2)
				for (int strided = 0; strided < 2; strided++) {
					if (!is_worth_emulating(semantics, dtype, dim, strided))
						continue;
					check((struct shape){(enum semantics)semantics, (enum dtype)dtype,
						      suited(2, 1), suited(330, 70), suited(5, 2), dim,
						      .initial = true, .strided = strided},
						(uint64_t)(dim + dtype));
				}
}

/* Keys that never forget, that forget at once, that are huge, and that are nearly parallel. */
static void every_kind_of_key(void **state)
{
	static const float deviations[] = {0.002f, 0.02f, 0.2f, 1, 10, 0.3f, 0.05f};
	static const float means[] = {0, 0, 0, 0, 0, 1, 0.2f};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(means) / sizeof(*means); i++)
			check((struct shape){(enum semantics)semantics, DTYPE_BF16, 1, suited(20000, 1000),
				      suited(8, 1), 64, .initial = true, .key_deviation = deviations[i],
				      .key_mean = means[i]},
				i);
}

/* They cost any implementation with these roundings precision. What fla-org's chunk_delta_rule loses on such keys was measured
 * (docs/performance.md). */
static void nearly_parallel_keys_lose_what_is_usual(void **state)
{
	const double usual = emulated ? 2.44e-2 : 1.97e-2; /* the longer, the less */
	struct trial trial;
	struct error err;
	double o;

	(void)state;
	prepare(&trial,
		(struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, suited(8192, 1024), 2, 64,
			.key_deviation = 0.01f, .key_mean = 1},
		3);
	compute_reference(&trial);
	must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
	download(&trial);
	o = relative_error(trial.output, trial.reference, trial.count);
	if (!(o <= 1.5 * usual))
		fail_msg("output off by %.2e, usual %.2e", o, usual);
	finish(&trial);
}

static void many_heads_and_few(void **state)
{
	static const int batches[] = {1, 1, 3, 7, 40}, heads[] = {1, 2, 50, 13, 64};

	(void)state;
	for (int semantics = 0; semantics < 2; semantics++)
		for (size_t i = 0; i < sizeof(heads) / sizeof(*heads) && heads[i] <= suited(64, 50); i++)
			check((struct shape){(enum semantics)semantics, DTYPE_BF16, batches[i],
				      suited(700, 70), heads[i], 32, .initial = false},
				i);
}

/* In every way that a chunk is computed, with groups that begin and end within sequences. */
static void gates_and_packs_follow_the_recurrence(void **state)
{
	static const struct config configs[] = {{{64, 2, 1, 1, 2, 3}}, {{64, 1, 1, 1, 3, 2}},
		{{32, 1, 1, 1, 2, 3}}, {{64, 1, 1, 1, 2, 1}}, {{32, 1, 1, 1, 3, 2}}};
	static const int sequences[] = {5, 1, 40, 2, 3}, dims[] = {64, 32, 128, 32, 128};

	(void)state;
	for (int function = QUASAR_CAUSAL; function <= QUASAR_PACKED_GATED; function++)
		for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
			const struct shape shape = {SEMANTICS_CAUSAL, (enum dtype)((i + 1) % 3),
				is_packed(function) ? 1 : 2, i == 1 ? 100 : 170, 1, dims[i],
				.initial = i != 1, .strided = i == 2,
				.function = (enum quasar_function)function,
				.sequences = is_packed(function) ? sequences[i] : 0};
			struct trial trial;
			struct error err;

			/* each build takes seconds; those with both differ most from what else is tested */
			if (function != QUASAR_PACKED_GATED && (function + i) % 2)
				continue;
			prepare(&trial, shape, i);
			compute_reference(&trial);
			must(quasar_cuda(gpu, &workspace, &trial.problem, &configs[i], &err), &err);
			compare(&trial);
			finish(&trial);
		}
}

/* By themselves, as everybody's else. */
static void gates_and_packs_have_a_usual_configuration(void **state)
{
	(void)state;
	for (int function = QUASAR_GATED; function <= QUASAR_PACKED_GATED; function++)
		check((struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, 300, 2, 64, .initial = true,
			      .function = (enum quasar_function)function},
			3);
}

/* A gate of 0 is the start of a sequence of its own. */
static void a_closed_gate_forgets(void **state)
{
	enum { TOKENS = 200, HEADS = 2, CUT = 77 };
	struct shape shape = {SEMANTICS_CAUSAL, DTYPE_BF16, 1, TOKENS, HEADS, 64, .initial = false,
		.function = QUASAR_GATED};
	const int64_t starts[] = {0, CUT, TOKENS};
	float log_gate[TOKENS * HEADS] = {0};
	struct trial trial;
	struct error err;

	(void)state;
	prepare(&trial, shape, 5);
	for (int head = 0; head < HEADS; head++)
		log_gate[CUT * HEADS + head] = -INFINITY;
	must(gpu_upload(gpu, (void *)trial.problem.log_gate, log_gate, sizeof(log_gate), &err), &err);
	trial.problem.gated = false;
	trial.problem.final_state = NULL; /* there would be two */
	trial.problem.sequences = 2;
	trial.problem.starts = device_memory(&trial, starts, sizeof(starts));
	must(quasar_cuda_reference(gpu, &trial.problem,
		     device_memory(&trial, NULL, trial.count * sizeof(double)), NULL, &err),
		&err);
	must(gpu_download(gpu, trial.reference, trial.memory[trial.memories - 1],
		     trial.count * sizeof(double), &err),
		&err);
	trial.problem.sequences = 0;
	trial.problem.gated = true;
	must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
	download(&trial);
	assert_true(relative_error(trial.output, trial.reference, trial.count) < tolerance(DTYPE_BF16));
	finish(&trial);
}

static void a_hundred_thousand_tokens(void **state)
{
	(void)state;
	if (emulated)
		skip();
	for (int semantics = 0; semantics < 2; semantics++) {
		check((struct shape){(enum semantics)semantics, DTYPE_BF16, 1, 100000, 8, 64,
			      .initial = false},
			1);
		check((struct shape){(enum semantics)semantics, DTYPE_BF16, 1, 100000, 8, 64,
			      .key_deviation = 0.01f},
			2);
	}
}

/* o that takes the place of q has the same bits, under upstream semantics by heads. */
static void o_may_take_the_place_of_q(void **state)
{
	(void)state;
	for (int semantics = 0; semantics < 2; semantics++) {
		const bool upstream = semantics == SEMANTICS_UPSTREAM;
		const struct shape shape = {(enum semantics)semantics, DTYPE_BF16, upstream ? 1 : 2,
			upstream ? suited(32768, 256) : suited(10001, 200), suited(8, 3), 64,
			.initial = true};
		const int64_t tokens = shape.tokens, heads = shape.heads, dim = shape.dim;
		struct trial trial;
		struct error err;
		float *in_place;

		prepare(&trial, shape, 4);
		must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
		download(&trial);
		trial.problem.o = trial.problem.q;
		if (upstream) {
			trial.problem.o.stride[1] = dim;
			trial.problem.o.stride[2] = tokens * dim;
		}
		must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
		must(gpu_synchronize(gpu, &err), &err);
		in_place = malloc(trial.count * sizeof(float));
		download_tensor(&trial, Q, in_place);
		for (int64_t i = 0; i < (int64_t)trial.count; i++) {
			const int64_t token = i / dim / heads, head = i / dim % heads;
			const int64_t at = upstream ? (head * tokens + token) * dim + i % dim : i;

			assert_true(trial.output[i] == in_place[at]);
		}
		free(in_place);
		finish(&trial);
	}
}

static void the_same_input_gives_the_same_bits(void **state)
{
	struct trial trial;
	struct error err;
	float *first, *first_state;

	(void)state;
	prepare(&trial,
		(struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, suited(30000, 500), suited(8, 2), 64,
			.initial = false},
		3);
	first = malloc(trial.count * sizeof(float));
	first_state = malloc(trial.states * sizeof(float));
	for (int run = 0; run < 4; run++) {
		must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
		download(&trial);
		if (run == 0) {
			memcpy(first, trial.output, trial.count * sizeof(float));
			memcpy(first_state, trial.state, trial.states * sizeof(float));
		}
		assert_memory_equal(first, trial.output, trial.count * sizeof(float));
		assert_memory_equal(first_state, trial.state, trial.states * sizeof(float));
	}
	free(first);
	free(first_state);
	finish(&trial);
}

/* A causal sequence in two pieces, the state in place between them. */
static void a_sequence_continues_from_its_state(void **state)
{
	struct trial trial;
	struct quasar_problem piece;
	struct tensor *tensors[] = {&piece.q, &piece.k, &piece.v, &piece.o};
	struct error err;

	(void)state;
	prepare(&trial, (struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, 1000, 4, 64, .initial = false}, 4);
	compute_reference(&trial);
	piece = trial.problem;
	piece.tokens = 613;
	must(quasar_cuda(gpu, &workspace, &piece, NULL, &err), &err);
	for (int i = 0; i < 4; i++)
		tensors[i]->data = (char *)tensors[i]->data + 613 * 4 * 64 * 2;
	piece.tokens = 387;
	piece.initial_state = piece.final_state;
	must(quasar_cuda(gpu, &workspace, &piece, NULL, &err), &err);
	compare(&trial);
	finish(&trial);
}

/* An upstream sequence in two pieces: the second reads its rows where the whole sequence has them. */
static void an_upstream_stretch_reads_its_own_rows(void **state)
{
	const int tokens = 640, half = 320, heads = 4;
	int64_t first_row[2][4];
	struct trial trial;
	struct quasar_problem piece;
	struct error err;

	(void)state;
	prepare(&trial,
		(struct shape){SEMANTICS_UPSTREAM, DTYPE_BF16, 1, tokens, heads, 64, .initial = false}, 5);
	compute_reference(&trial);
	for (int head = 0; head < heads; head++) {
		first_row[0][head] = head * tokens;
		first_row[1][head] = head * tokens + half;
	}
	piece = trial.problem;
	piece.tokens = half;
	for (int i = 0; i < 2; i++) {
		piece.first_row = first_row[i];
		must(quasar_cuda(gpu, &workspace, &piece, NULL, &err), &err);
		piece.o.data = (char *)piece.o.data + (size_t)(half * heads * 64 * 2);
		piece.initial_state = piece.final_state;
	}
	compare(&trial);
	finish(&trial);
}

static void bad_problems_are_refused_before_a_launch(void **state)
{
	struct trial trial;
	struct quasar_problem problem;
	struct error err;

	(void)state;
	prepare(&trial, (struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, 100, 2, 64, .initial = false}, 6);
	problem = trial.problem;
	problem.dim = 48;
	assert_int_equal(quasar_cuda(gpu, &workspace, &problem, NULL, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	assert_non_null(strstr(err.message, "48"));
	problem = trial.problem;
	problem.k.dtype = DTYPE_F16;
	assert_int_equal(quasar_cuda(gpu, &workspace, &problem, NULL, &err), -1);
	assert_non_null(strstr(err.message, "one type"));
	problem = trial.problem;
	problem.o.data = problem.k.data;
	assert_int_equal(quasar_cuda(gpu, &workspace, &problem, NULL, &err), -1);
	assert_non_null(strstr(err.message, "overlap"));
	problem = trial.problem;
	problem.q.data = (char *)problem.q.data + 1;
	assert_int_equal(quasar_cuda(gpu, &workspace, &problem, NULL, &err), -1);
	assert_non_null(strstr(err.message, "align"));
	assert_null(gpu_allocate(gpu, (size_t)1 << 50, &err));
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "free"));
	must(gpu_synchronize(gpu, &err), &err);
	finish(&trial);
}

/* --- the parts ------------------------------------------------------------------------------------ */

static void decoding_follows_the_recurrence(void **state)
{
	(void)state;
	for (int dtype = 0; dtype < 3; dtype++)
		for (int dim = 32; dim <= 128; dim *= 2)
			for (int tokens = 1; tokens <= 9; tokens += 4) {
				struct trial trial;
				struct error err;

				prepare(&trial,
					(struct shape){SEMANTICS_CAUSAL, (enum dtype)dtype, 5, tokens, 3, dim,
						.initial = tokens > 1, .strided = dim == 32},
					8);
				compute_reference(&trial);
				must(quasar_cuda_recurrent(gpu, &trial.problem, NULL, &err), &err);
				compare(&trial);
				finish(&trial);
			}
}

static void decoding_knows_gates_and_packs(void **state)
{
	(void)state;
	for (int function = QUASAR_GATED; function <= QUASAR_PACKED_GATED; function++)
		for (int dim = 32; dim <= 128; dim *= 2) {
			struct trial trial;
			struct error err;

			prepare(&trial,
				(struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, is_packed(function) ? 1 : 2, 11,
					3, dim, .initial = true, .function = (enum quasar_function)function,
					.sequences = is_packed(function) ? 4 : 0},
				8);
			compute_reference(&trial);
			must(quasar_cuda_recurrent(gpu, &trial.problem, NULL, &err), &err);
			compare(&trial);
			finish(&trial);
		}
}

/* Decoding with speculation: of each call's tokens some stand, and the next call goes on behind them, as if the others had
 * never been there. */
static void decoding_goes_on_from_what_stood(void **state)
{
	enum { SEQUENCES = 3, WIDTH = 4, HEADS = 2, DIM = 64, CALLS = 3 };
	static const int accepted[CALLS + 1][SEQUENCES] = {{1, 0, 1}, {2, 1, 4}, {4, 3, 1}, {1, 1, 1}};
	const size_t square = DIM * DIM, per_state = HEADS * square;
	int slots[SEQUENCES][WIDTH];
	struct trial trial;
	struct error err;
	struct quasar_cache cache = {.width = WIDTH};
	float *states = malloc(SEQUENCES * WIDTH * per_state * sizeof(*states));

	(void)state;
	/* a sequence's tokens are those of its calls one behind the other: guesses that do not stand are among them */
	prepare(&trial,
		(struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, SEQUENCES, CALLS * WIDTH, HEADS, DIM,
			.initial = true, .function = QUASAR_GATED},
		9);
	for (int n = 0; n < SEQUENCES; n++)
		for (int t = 0; t < WIDTH; t++)
			slots[n][t] = (n * WIDTH + t) * 5 % (SEQUENCES * WIDTH); /* anywhere */
	cache.slots = device_memory(&trial, slots, sizeof(slots));
	cache.states = device_memory(&trial, NULL, SEQUENCES * WIDTH * per_state * sizeof(*states));
	for (int n = 0; n < SEQUENCES; n++)
		must(gpu_copy(gpu, cache.states + (size_t)slots[n][0] * per_state,
			     trial.problem.initial_state + (size_t)n * per_state, per_state * sizeof(*states),
			     &err),
			&err);
	for (int call = 0; call < CALLS; call++) {
		struct quasar_problem part = trial.problem;
		struct tensor *tensors[] = {&part.q, &part.k, &part.v, &part.o};
		float *gates = device_memory(&trial, NULL, SEQUENCES * WIDTH * HEADS * sizeof(*gates));

		part.tokens = WIDTH;
		for (int i = 0; i < 4; i++)
			tensors[i]->data = (uint16_t *)tensors[i]->data +
				call * WIDTH * tensors[i]->stride[1];
		for (int n = 0; n < SEQUENCES; n++)
			must(gpu_copy(gpu, gates + n * WIDTH * HEADS,
				     trial.problem.log_gate + (n * CALLS + call) * WIDTH * HEADS,
				     WIDTH * HEADS * sizeof(*gates), &err),
				&err);
		part.log_gate = gates;
		cache.accepted = device_memory(&trial, accepted[call], sizeof(accepted[call]));
		must(quasar_cuda_recurrent(gpu, &part, &cache, &err), &err);
	}
	must(gpu_synchronize(gpu, &err), &err);
	must(gpu_download(gpu, states, cache.states, SEQUENCES * WIDTH * per_state * sizeof(*states), &err),
		&err);
	/* what stands of a sequence, computed at once, ends where the cache has it */
	for (int n = 0; n < SEQUENCES; n++)
		for (int last = 1; last <= WIDTH; last++) {
			struct trial whole;
			struct quasar_problem *problem = &whole.problem;
			const struct tensor *to[] = {&problem->q, &problem->k, &problem->v};
			int tokens = 0, taken[CALLS];

			for (int call = 0; call < CALLS; call++) {
				taken[call] = call + 1 < CALLS ? accepted[call + 1][n] : last;
				tokens += taken[call];
			}
			prepare(&whole,
				(struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, tokens, HEADS, DIM,
					.initial = accepted[0][n] > 0, .function = QUASAR_GATED},
				1);
			for (int call = 0, at = 0; call < CALLS; at += taken[call++]) {
				const struct tensor *from[] = {
					&trial.problem.q, &trial.problem.k, &trial.problem.v};
				int first = (n * CALLS + call) * WIDTH;

				for (int i = 0; i < 3; i++)
					must(gpu_copy(gpu, (uint16_t *)to[i]->data + at * HEADS * DIM,
						     (uint16_t *)from[i]->data + first * HEADS * DIM,
						     (size_t)(taken[call] * HEADS * DIM) * 2, &err),
						&err);
				must(gpu_copy(gpu, (float *)problem->log_gate + at * HEADS,
					     trial.problem.log_gate + first * HEADS,
					     (size_t)(taken[call] * HEADS) * sizeof(float), &err),
					&err);
			}
			problem->beta = trial.problem.beta;
			if (problem->initial_state)
				problem->initial_state = trial.problem.initial_state + (size_t)n * per_state;
			compute_reference(&whole);
			if (relative_error(states + (size_t)slots[n][last - 1] * per_state,
				    whole.reference_state, per_state) > 1e-4)
				fail_msg("sequence %d, %d of the last call's tokens: another state", n, last);
			finish(&whole);
		}
	free(states);
	finish(&trial);
}

static void the_gate_follows_its_formula(void **state)
{
	(void)state;
	for (int dtype = 0; dtype < 3; dtype++)
		for (int dim = 32; dim <= 128; dim *= 2)
			for (int strided = 0; strided < 2; strided++) {
				const int batch = 2, tokens = 37, heads = 3, rows = batch * tokens * heads;
				struct trial trial;
				struct error err;
				float *alpha, result[2 * 37 * 3], beta[3], *keys;

				prepare(&trial,
					(struct shape){SEMANTICS_CAUSAL, (enum dtype)dtype, batch, tokens,
						heads, dim, .strided = strided, .key_deviation = 0.1f},
					9);
				alpha = device_memory(&trial, NULL, sizeof(result));
				must(quasar_cuda_gate(gpu, &trial.problem.k, batch, tokens, heads, dim,
					     trial.problem.beta, alpha, &err),
					&err);
				keys = malloc(trial.count * sizeof(*keys));
				must(gpu_download(gpu, result, alpha, sizeof(result), &err), &err);
				must(gpu_download(gpu, beta, trial.problem.beta, sizeof(beta), &err), &err);
				download_tensor(&trial, K, keys);
				for (int row = 0; row < rows; row++) {
					double lambda = 0, expected;

					for (int d = 0; d < dim; d++) {
						double k = keys[row * dim + d];

						lambda += k * k;
					}
					expected = -expm1(-beta[row % heads] * lambda) /
						(lambda + QUASAR_EPSILON);
					assert_true(fabs(result[row] - expected) <= 2e-6 * expected);
				}
				free(keys);
				finish(&trial);
			}
}

static void forward_substitution_inverts(void **state)
{
	(void)state;
	for (int size = 16; size <= 64; size *= 2) {
		const size_t count = 37, elements = count * (size_t)(size * size);
		struct trial trial = {0};
		float *host = malloc(elements * sizeof(*host)),
		      *inverse = malloc(elements * sizeof(*inverse)), *lower;
		struct error err;

		/* what lies on and above the diagonal must not matter: it is random as well */
		random_normal(10, (uint64_t)size, 0.3f, host, elements);
		lower = device_memory(&trial, host, elements * sizeof(*host));
		must(forward_substitution_cuda(gpu, lower, lower, (int64_t)count, size, &err), &err);
		must(gpu_download(gpu, inverse, lower, elements * sizeof(*inverse), &err), &err);
		for (size_t n = 0; n < count; n++)
			for (int i = 0; i < size; i++)
				for (int j = 0; j < size; j++) {
					const float *l = host + n * (size_t)(size * size);
					const float *x = inverse + n * (size_t)(size * size);
					double product = x[i * size + j], scale = fabs(product);

					for (int k = 0; k < i; k++) {
						product += (double)l[i * size + k] * x[k * size + j];
						scale += fabs((double)l[i * size + k] * x[k * size + j]);
					}
					assert_true(fabs(product - (i == j)) <= 1e-5 * (1 + scale));
					assert_true(j <= i || x[i * size + j] == 0);
				}
		assert_int_equal(forward_substitution_cuda(gpu, lower, lower, 1, 48, &err), -1);
		free(host);
		free(inverse);
		finish(&trial);
	}
}

/* --- the layer ------------------------------------------------------------------------------------ */

struct layer_shape {
	int hidden, heads, dim, batch, tokens, segment; /* 0: the usual one */
};

/* Queues a call on copies of x and out on the GPU, and brings out back. */
static void run_layer(struct layer_cuda *placed, struct layer_call call, int hidden)
{
	size_t count = (size_t)(call.batch * call.tokens * hidden);
	struct trial memory = {0};
	uint16_t *out = call.out;
	struct error err;

	call.x = device_memory(&memory, call.x, count * sizeof(*call.x));
	call.out = device_memory(&memory, out, count * sizeof(*out));
	must(layer_cuda(placed, &call, &err), &err);
	must(gpu_synchronize(gpu, &err), &err);
	must(gpu_download(gpu, out, call.out, count * sizeof(*out), &err), &err);
	finish(&memory);
}

static void check_layer(struct layer_shape shape, enum semantics semantics)
{
	size_t count = (size_t)shape.batch * (size_t)shape.tokens * (size_t)shape.hidden;
	float *x = malloc(count * sizeof(*x));
	uint16_t *out = malloc(count * sizeof(*out));
	double *expected = malloc(count * sizeof(*expected));
	struct layer_call call = {semantics, shape.batch, shape.tokens, x, out, NULL};
	struct comparison found;
	struct error err;
	struct layer *layer = layer_random(shape.hidden, shape.heads, shape.dim, 11, &err);
	struct layer_cuda *placed = layer ? layer_cuda_make(gpu, layer, &err) : NULL;

	must(placed ? 0 : -1, &err);
	if (shape.segment)
		layer_cuda_set_segment(placed, shape.segment);
	random_normal((uint64_t)shape.tokens, 12, 1, x, count);
	memset(out, 0xff, count * sizeof(*out)); /* NaN */
	run_layer(placed, call, shape.hidden);
	must(layer_reference(layer, &call, expected, &err), &err);
	found = compare_bf16_double(out, expected, count);
	if (!found.finite || found.cosine < 0.9998 || found.relative_error > 0.02)
		fail_msg("%s hidden %d H%d S%d B%d T%d by %d: cosine %.7f, relative error %.2e",
			semantics_name(semantics), shape.hidden, shape.heads, shape.dim, shape.batch,
			shape.tokens, shape.segment, found.cosine, found.relative_error);
	layer_cuda_free(placed);
	layer_free(layer);
	free(x);
	free(out);
}

/* cuBLASLt, which the layer needs, does not run on an emulated GPU. */
static void skip_without_cublaslt(void)
{
	if (emulated)
		skip();
}

/* Lengths around the convolution's history, a chunk, a tile, a segment and a piece; sequences that begin within a piece; o in
 * the place of q and not, in the output's memory and not. */
static void the_layer_follows_its_formula(void **state)
{
	static const struct layer_shape shapes[] = {
		{512, 8, 64, 1, 1, 0},
		{512, 8, 64, 1, 3, 0},
		{512, 8, 64, 2, 65, 0},
		{512, 8, 64, 5, 333, 0},
		{512, 8, 64, 1, 10001, 0},
		{512, 8, 64, 1, 8192, 0},
		{512, 8, 64, 1, 8192, 2048},
		{512, 8, 64, 1, 9003, 2048},
		{64, 1, 64, 70, 126, 0},
		{192, 5, 64, 2, 9000, 4096},
		{256, 2, 128, 9, 1000, 0},
		{64, 3, 32, 2, 700, 320},
		{64, 3, 32, 1, 640, 0},
		{64, 3, 32, 1, 640, 320},
		{64, 3, 32, 7, 300, 1000},
		{64, 3, 32, 1, 131075, 0},
	};

	(void)state;
	skip_without_cublaslt();
	for (size_t i = 0; i < sizeof(shapes) / sizeof(*shapes); i++) {
		check_layer(shapes[i], SEMANTICS_UPSTREAM);
		check_layer(shapes[i], SEMANTICS_CAUSAL);
	}
}

/* Shorter calls after longer ones use the same memory; the same input gives the same bits. */
static void a_layer_serves_many_calls(void **state)
{
	static const int lengths[] = {300, 20000, 5, 300};
	const size_t most = 20000 * 512;
	float *x = malloc(most * sizeof(*x));
	uint16_t *first = malloc(most * sizeof(*first)), *out = malloc(most * sizeof(*out));
	struct error err;
	struct layer *layer = layer_random(512, 8, 64, 11, &err);
	struct layer_cuda *placed;
	struct layer_cache cache;

	(void)state;
	skip_without_cublaslt();
	placed = layer ? layer_cuda_make(gpu, layer, &err) : NULL;
	must(placed ? 0 : -1, &err);
	random_normal(13, 14, 1, x, most);
	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		struct layer_call call = {SEMANTICS_UPSTREAM, 1, lengths[i], x, i ? out : first, NULL};

		memset(call.out, 0xff, most * sizeof(*out));
		run_layer(placed, call, 512);
	}
	assert_memory_equal(first, out, 300 * 512 * sizeof(*out));
	assert_int_equal(
		layer_cuda(placed, &(struct layer_call){SEMANTICS_UPSTREAM, 1, 5, x, out, &cache}, &err), -1);
	assert_int_equal(err.status, STATUS_USAGE);
	layer_cuda_free(placed);
	layer_free(layer);
	free(x);
	free(first);
	free(out);
}

/* --- devices -------------------------------------------------------------------------------------- */

#define SOME suited(4096, 200) /* tokens */

/* The operation on any device, through the table, as bench and verify have it. */
struct part {
	struct device device;
	struct fixture fixture;
	uint16_t *o;
	double *expected;
};

static void part_open(struct part *part, int index, uint64_t seed)
{
	struct fixture_plan plan = {
		.family = families[0], .shape = fixture_shape(SOME), .dtype = DTYPE_BF16, .seed = seed};
	double *results[FAMILY_TENSORS] = {0};
	struct error err;

	must(device_open_cuda(index, &part->device, &err), &err);
	must(fixture_make(&part->fixture, &part->device, &plan, &err), &err);
	part->o = malloc(part->fixture.count[O] * sizeof(*part->o));
	results[O] = part->expected = malloc(part->fixture.count[O] * sizeof(*part->expected));
	must(part->device.reference(&part->device, families[0], &part->fixture.problem, results, &err), &err);
}

/* Once, on an output filled with NaN. */
static bool part_runs(struct part *part)
{
	struct error err;

	if (fixture_poison(&part->fixture, &err) < 0 ||
		part->device.operate(&part->device, families[0], &part->fixture.problem, NULL, &err) < 0 ||
		fixture_download(&part->fixture, O, part->o, &err) < 0)
		return false;
	return compare_bf16_double(part->o, part->expected, part->fixture.count[O]).relative_error < 0.01;
}

static void *run_in_thread(void *part)
{
	for (int i = 0; i < suited(20, 2); i++)
		if (!part_runs(part))
			return part;
	return NULL;
}

static void part_close(struct part *part)
{
	fixture_free(&part->fixture);
	device_close(&part->device);
	free(part->o);
	free(part->expected);
}

/* Opens the devices, runs on them in turn, and then each in a thread of its own. */
static void check_side_by_side(int first, int second)
{
	struct part parts[2];
	pthread_t threads[2];

	part_open(&parts[0], first, 1);
	part_open(&parts[1], second, 2);
	for (int i = 0; i < 6; i++)
		assert_true(part_runs(&parts[i % 2]));
	for (int i = 0; i < 2; i++)
		assert_int_equal(pthread_create(&threads[i], NULL, run_in_thread, &parts[i]), 0);
	for (int i = 0; i < 2; i++) {
		void *failed;

		pthread_join(threads[i], &failed);
		assert_null(failed);
	}
	part_close(&parts[0]);
	assert_true(part_runs(&parts[1])); /* the other goes on */
	part_close(&parts[1]);
}

static void two_gpus_work_side_by_side(void **state)
{
	struct error err;

	(void)state;
	if (gpu_count(&err) < 2)
		skip();
	check_side_by_side(0, 1);
}

static void a_gpu_can_be_open_twice(void **state)
{
	(void)state;
	check_side_by_side(0, 0);
}

/* A stream of the caller's, and the context that the caller had current. */
static void a_callers_stream_is_used(void **state)
{
	struct error err;
	const struct cuda_driver *driver = cuda_driver(&err);
	struct CUstream_st *stream = NULL;
	struct CUctx_st *before, *current = NULL;
	struct trial trial;

	(void)state;
	prepare(&trial, (struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, 1000, 4, 64, .initial = true}, 21);
	compute_reference(&trial);
	before = gpu_enter(gpu);
	assert_int_equal(driver->cuStreamCreate(&stream, CUDA_STREAM_NON_BLOCKING), 0);
	gpu_leave(gpu, before);
	driver->cuCtxSetCurrent(NULL);
	gpu_use_stream(gpu, stream);
	assert_ptr_equal(gpu_stream(gpu), stream);
	must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
	before = gpu_enter(gpu);
	assert_null(before);
	assert_int_equal(driver->cuStreamSynchronize(stream), 0); /* nothing else is waited for */
	gpu_leave(gpu, before);
	gpu_use_stream(gpu, NULL);
	assert_ptr_not_equal(gpu_stream(gpu), stream);
	assert_int_equal(driver->cuCtxGetCurrent(&current), 0);
	assert_null(current);
	compare(&trial);
	before = gpu_enter(gpu);
	driver->cuStreamDestroy_v2(stream);
	gpu_leave(gpu, before);
	finish(&trial);
}

static void kernels_can_be_unloaded(void **state)
{
	struct trial trial;
	struct error err;

	(void)state;
	prepare(&trial, (struct shape){SEMANTICS_UPSTREAM, DTYPE_BF16, 1, 1000, 4, 64, .initial = true}, 22);
	compute_reference(&trial);
	must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
	assert_true(gpu_unload(gpu, "quasar/chunk.cu") >= suited(2, 1)); /* the two passes */
	assert_int_equal(gpu_unload(gpu, "quasar/chunk.cu"), 0);
	must(gpu_fill(gpu, trial.problem.o.data, 0xff, trial.count * 2, &err), &err);
	must(quasar_cuda(gpu, &workspace, &trial.problem, NULL, &err), &err);
	compare(&trial);
	finish(&trial);
}

/* What is asked for is run, and gives the same function; what cannot be is refused. */
static void configurations_are_run_as_they_are(void **state)
{
	static const struct config configs[] = {{{64, 2, 3, 1, 2, 1}}, {{64, 1, 2, 1, 2, 4}},
		{{64, 2, 1, 1, 2, 16}}, {{32, 1, 1, 1, 2, 32}}, {{32, 2, 4, 1, 2, 8}}, {{64, 2, 2, 1, 3, 4}},
		{{32, 1, 2, 1, 3, 8}}, {{64, 2, 3, 4, 2, 4}}, {{64, 1, 2, 4, 3, 16}}, {{64, 2, 2, 4, 3, 1}},
		{{64, 3, 2, 1, 2, 4}}, {{32, 3, 1, 1, 2, 8}}, {{64, 3, 1, 1, 2, 16}}, {{64, 3, 2, 1, 2, 1}},
		{{64, 3, 2, 4, 2, 4}}, {{64, 3, 1, 4, 2, 16}}, {{64, 3, 1, 1, 3, 4}}, {{64, 3, 2, 4, 3, 4}}};
	struct trial trial;
	struct error err;

	(void)state;
	prepare(&trial, (struct shape){SEMANTICS_CAUSAL, DTYPE_BF16, 1, 1000, 4, 64, .initial = true}, 23);
	compute_reference(&trial);
	for (size_t i = 0; i < sizeof(configs) / sizeof(*configs); i++) {
		if (configs[i].value[QUASAR_PRODUCT_WARPS] == 4 && gpu_properties_of(gpu)->capability != 90)
			continue;
		must(gpu_fill(gpu, trial.problem.o.data, 0xff, trial.count * 2, &err), &err);
		must(quasar_cuda(gpu, &workspace, &trial.problem, &configs[i], &err), &err);
		compare(&trial);
	}
	assert_int_equal(
		quasar_cuda(gpu, &workspace, &trial.problem, &(struct config){{64, 2, 3, 1, 2, 17}}, &err),
		-1);
	assert_int_equal(err.status, STATUS_USAGE);
	finish(&trial);
}

/* Every function, several types and kinds of keys, with the first pass stopped early and not. */
static void warps_of_their_own_make_the_matrices(void **state)
{
	static const struct {
		struct shape shape;
		int groups;
	} cases[] = {
		{{SEMANTICS_UPSTREAM, DTYPE_BF16, 1, 500, 2, 64, .initial = true}, 4},
		{{SEMANTICS_CAUSAL, DTYPE_BF16, 2, 300, 1, 64, .function = QUASAR_GATED}, 5},
		{{SEMANTICS_CAUSAL, DTYPE_BF16, 1, 400, 1, 64, .function = QUASAR_PACKED_GATED,
			 .sequences = 3},
			3},
		{{SEMANTICS_CAUSAL, DTYPE_F16, 1, 200, 1, 32, .strided = true}, 2},
		{{SEMANTICS_CAUSAL, DTYPE_BF16, 1, 2000, 1, 32, .key_deviation = 3}, 2},
		{{SEMANTICS_CAUSAL, DTYPE_BF16, 1, 500, 2, 64, .key_deviation = 0.3f, .key_mean = 1}, 8},
		{{SEMANTICS_CAUSAL, DTYPE_BF16, 1, 200, 1, 128, .initial = true}, 2},
	};
	const struct gpu_properties *properties = gpu_properties_of(gpu);
	struct trial trial;
	struct error err;

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		const bool wgmma = properties->capability == 90 && cases[i].shape.dim >= 64;
		const struct config config = {{64, 3, 1, wgmma ? 4 : 1, 2, cases[i].groups}};

		prepare(&trial, cases[i].shape, 40 + i);
		if (quasar_config_check(&trial.problem, properties, &config, &err) == 0) {
			compute_reference(&trial);
			must(gpu_fill(gpu, trial.problem.o.data, 0xff,
				     trial.count * dtype_size(cases[i].shape.dtype), &err),
				&err);
			must(quasar_cuda(gpu, &workspace, &trial.problem, &config, &err), &err);
			compare(&trial);
		} else if (err.status != STATUS_ENVIRONMENT) { /* too little shared memory */
			fail_msg("%s", err.message);
		}
		finish(&trial);
	}
}

/* --- the other families -------------------------------------------------------------------------------- */

/* Its outputs as floats, one behind the other. */
static void run_family(
	const struct fixture *made, const struct config *config, uint16_t *halves, float *outputs)
{
	size_t count = fixture_outputs(made);
	struct error err;

	must(fixture_poison(made, &err), &err);
	must(device.operate(&device, made->plan.family, &made->problem, config, &err), &err);
	must(fixture_download_outputs(made, halves, &err), &err);
	for (size_t i = 0; i < count; i++)
		outputs[i] = dtype_load(halves, made->plan.dtype, (int64_t)i);
}

/* Attention and its gradient in a configuration (NULL: the usual one) against fp64, twice, to the same bits. */
static void check_attention(const struct fixture_plan *plan, const struct config *config)
{
	struct fixture made;
	struct error err;
	double *reference, *results[FAMILY_TENSORS] = {0};
	uint16_t *halves[2];
	char how[128] = "usual configuration";
	float *outputs;
	size_t count, at = 0;

	must(fixture_make(&made, &device, plan, &err), &err);
	count = fixture_outputs(&made);
	reference = malloc(count * sizeof(*reference));
	outputs = malloc(count * sizeof(*outputs));
	fixture_place_results(&made, reference, results);
	must(device.reference(&device, plan->family, &made.problem, results, &err), &err);
	for (int i = 0; i < 2; i++) {
		halves[i] = malloc(count * sizeof(**halves));
		run_family(&made, config, halves[i], outputs);
	}
	assert_memory_equal(halves[0], halves[1], count * sizeof(**halves));
	for (int i = 0; plan->family->tensors[i].name; i++) {
		const struct comparison found = compare_float_double(
			outputs + at, reference + at, made.count[i]);

		if (plan->family->tensors[i].role != TENSOR_OUTPUT)
			continue;
		if (!comparison_agrees(&found, 0.9999, plan->dtype == DTYPE_BF16 ? 1.5e-2 : 2e-3)) {
			if (config)
				config_format(plan->family->configs->parameters, config, how, sizeof(how));
			fail_msg(
				"%s of %s, %s, option %d, B%lld T%lld H%d/%d S%d layout %d, %s: cosine %.6f, "
				"relative error %.2e%s",
				plan->family->tensors[i].name, plan->family->name, dtype_name(plan->dtype),
				plan->options[0], (long long)plan->shape.batch, (long long)plan->shape.tokens,
				plan->shape.heads, plan->shape.key_heads, plan->shape.key_dim,
				(int)plan->layout, how, found.cosine, found.relative_error,
				found.finite ? "" : ", not finite");
		}
		at += made.count[i];
	}
	for (int i = 0; i < 2; i++)
		free(halves[i]);
	free(outputs);
	free(reference);
	fixture_free(&made);
}

enum { LONG = 1 << 20 }; /* tokens, enough for the largest blocks to fill any GPU */

/* What a sequence that long has as its usual configuration. */
static struct config config_if_long(const struct family *family, struct op_problem problem)
{
	problem.shape.tokens = LONG;
	return family->configs->usual(&problem, gpu_properties_of(gpu));
}

/* In the usual configuration, and in that of a long sequence. */
static void check_usual_attention(const struct fixture_plan *plan)
{
	struct fixture made;
	struct config usual, if_long;
	struct error err;

	must(fixture_make(&made, &device, plan, &err), &err);
	usual = plan->family->configs->usual(&made.problem, gpu_properties_of(gpu));
	if_long = config_if_long(plan->family, made.problem);
	fixture_free(&made);
	check_attention(plan, NULL);
	if (memcmp(&usual, &if_long, sizeof(usual)) != 0)
		check_attention(plan, &if_long);
}

/* Every mask, forward and backward. */
static void each_attention(struct fixture_plan plan, void (*attempt)(struct fixture_plan plan))
{
	static const char *const names[] = {"flash", "flash-backward"};

	for (int i = 0; i < 4; i++) {
		plan.family = family_find(names[i / 2]);
		plan.options[0] = i % 2;
		plan.seed = 3;
		attempt(plan);
	}
}

static void try_lengths(struct fixture_plan plan)
{
	static const int64_t lengths[] = {1, 63, 64, 129, 200, 600};

	for (size_t i = 0; i < sizeof(lengths) / sizeof(*lengths); i++) {
		plan.shape.tokens = lengths[i];
		check_usual_attention(&plan);
	}
}

static void attention_of_every_length(void **state)
{
	(void)state;
	each_attention(
		(struct fixture_plan){.shape = {1, 0, 2, 64, 64, 0, 0}, .dtype = DTYPE_BF16}, try_lengths);
}

/* Compiling takes longest on an emulated GPU, which gets one case in some. */
static void try_types(struct fixture_plan plan)
{
	for (int dtype = DTYPE_BF16; dtype <= DTYPE_F16; dtype++)
		for (int dim = 32; dim <= 128; dim *= 2) {
			if ((dtype + dim / 32 + plan.options[0]) % suited(1, 2))
				continue;
			plan.dtype = (enum dtype)dtype;
			plan.shape.key_dim = plan.shape.value_dim = dim;
			check_usual_attention(&plan);
		}
}

static void attention_of_every_type_and_dimension(void **state)
{
	(void)state;
	each_attention((struct fixture_plan){.shape = {1, 100, 1, 0, 0, 0, 0}}, try_types);
}

static void try_layouts_and_heads(struct fixture_plan plan)
{
	for (int layout = 0; layout < LAYOUTS; layout++) {
		plan.layout = (enum layout)layout;
		check_usual_attention(&plan);
	}
}

static void attention_of_any_strides_and_shared_keys(void **state)
{
	(void)state;
	each_attention((struct fixture_plan){.shape = {2, 70, 4, 64, 64, 2, 0}, .dtype = DTYPE_BF16},
		try_layouts_and_heads);
}

/* O and the gradients of two fixtures of the same gradient: computed in two ways, they agree. */
static void compare_attention(struct fixture made[2], const char *what)
{
	const struct family *family = made[0].plan.family;
	size_t count = fixture_outputs(&made[0]), o = made[0].count[family_tensor_find(family, "o")];
	uint16_t *halves[2] = {malloc((count + o) * 2), malloc((count + o) * 2)};
	struct comparison found;
	struct error err;

	for (int i = 0; i < 2; i++) {
		must(fixture_download(&made[i], family_tensor_find(family, "o"), halves[i], &err), &err);
		must(fixture_download_outputs(&made[i], halves[i] + o, &err), &err);
		fixture_free(&made[i]);
	}
	found = compare_bf16(halves[1], halves[0], o);
	if (!comparison_agrees(&found, 0.9999, 1e-2))
		fail_msg("%s: o: cosine %.6f, relative error %.2e", what, found.cosine, found.relative_error);
	for (size_t at = o; at < o + count; at += count / 3) { /* dQ, dK and dV */
		found = compare_bf16(halves[1] + at, halves[0] + at, count / 3);
		if (!comparison_agrees(&found, 0.9999, 1e-2))
			fail_msg("%s: gradient %zu: cosine %.6f, relative error %.2e", what,
				(at - o) / (count / 3), found.cosine, found.relative_error);
	}
	free(halves[0]);
	free(halves[1]);
}

static const struct fixture_plan small_attention = {
	.shape = {1, 199, 2, 64, 64, 0, 0}, .dtype = DTYPE_BF16, .seed = 4};

static void attention_fixtures(struct fixture made[2], const struct device *first)
{
	struct fixture_plan plan = small_attention;
	struct error err;

	plan.family = family_find("flash-backward");
	for (int i = 0; i < 2; i++) {
		must(fixture_make(&made[i], i ? &device : first, &plan, &err), &err);
		must(fixture_poison(&made[i], &err), &err);
	}
}

/* What the GPU makes of packed sequences is what the CPU makes of them. */
static void attention_of_packed_sequences(void **state)
{
	static const int32_t cu_seqlens[] = {0, 70, 70, 71, 199};
	struct flash_problem problem;
	struct fixture made[2];
	struct config long_config;
	struct device cpu;
	struct error err;

	(void)state;
	device_open_cpu(&cpu);
	for (int as_long = 0; as_long < 2; as_long++) {
		attention_fixtures(made, &cpu);
		problem = flash_gradient_problem(&made[1].problem);
		problem.tokens = LONG;
		long_config = flash_config_default(&flash_forward_kernels, &problem, gpu_properties_of(gpu));
		for (int i = 0; i < 2; i++) {
			problem = flash_gradient_problem(&made[i].problem);
			problem.cu_seqlens = cu_seqlens;
			problem.sequences = 4;
			must(i ? flash_cuda(gpu, &workspace, &problem, as_long ? &long_config : NULL, &err)
			       : flash_cpu(&problem, &err),
				&err);
			must(i ? flash_cuda_gradient(gpu, &workspace, &problem, NULL, &err)
			       : flash_cpu_gradient(&problem, &err),
				&err);
		}
		compare_attention(made, as_long ? "packed, as if long" : "packed");
	}
}

/* Sequences see nothing of each other, were it NaN: all of another one's tokens, or rows behind the end of the last tile. */
static void attention_beside_nan(void **state)
{
	enum { LONE = 70, SEQUENCES = 4 };
	static const int32_t cu_seqlens[] = {0, LONE, LONE + 1, 130, 199};
	const size_t row = (size_t)(small_attention.shape.heads * small_attention.shape.key_dim);
	const size_t count = (size_t)small_attention.shape.tokens * row;
	uint16_t *found[2];

	(void)state;
	for (int i = 0; i < 2; i++) {
		struct fixture_plan plan = small_attention;
		struct flash_problem problem;
		const struct tensor *const inputs[] = {&problem.q, &problem.k, &problem.v, &problem.d_o};
		struct fixture made;
		struct error err;

		plan.family = family_find("flash-backward");
		must(fixture_make(&made, &device, &plan, &err), &err);
		must(fixture_poison(&made, &err), &err);
		problem = flash_gradient_problem(&made.problem);
		problem.cu_seqlens = cu_seqlens;
		problem.sequences = SEQUENCES;
		for (int t = 0; t < 4 * i; t++)
			must(gpu_fill(gpu, (uint16_t *)inputs[t]->data + LONE * row, 0xff, row * 2, &err),
				&err);
		must(flash_cuda(gpu, &workspace, &problem, NULL, &err), &err);
		must(flash_cuda_gradient(gpu, &workspace, &problem, NULL, &err), &err);
		found[i] = malloc(4 * count * 2);
		must(fixture_download(&made, family_tensor_find(plan.family, "o"), found[i], &err), &err);
		must(fixture_download_outputs(&made, found[i] + count, &err), &err);
		fixture_free(&made);
	}
	for (size_t at = 0; at < 4 * count; at += count) { /* O, dQ, dK and dV */
		assert_memory_equal(found[0] + at, found[1] + at, LONE * row * 2);
		assert_memory_not_equal(found[0] + at + LONE * row, found[1] + at + LONE * row, row * 2);
		assert_memory_equal(found[0] + at + (LONE + 1) * row, found[1] + at + (LONE + 1) * row,
			(count - (LONE + 1) * row) * 2);
	}
	free(found[0]);
	free(found[1]);
}

/* Every version of the ladder computes the same. */
static void attention_on_every_rung(void **state)
{
	(void)state;
	for (const struct flash_rung *rung = flash_ladder; rung->name; rung++) {
		struct fixture made[2];
		struct error err;

		attention_fixtures(made, &device);
		for (int i = 0; i < 2; i++) {
			const struct flash_problem problem = flash_gradient_problem(&made[i].problem);

			must(i ? flash_cuda_rung(gpu, &workspace, &problem, rung, false, &err)
			       : flash_cuda(gpu, &workspace, &problem, NULL, &err),
				&err);
			must(i ? flash_cuda_rung(gpu, &workspace, &problem, rung, true, &err)
			       : flash_cuda_gradient(gpu, &workspace, &problem, NULL, &err),
				&err);
		}
		compare_attention(made, rung->name);
	}
}

static void try_configurations(struct fixture_plan plan)
{
	const struct op_problem problem = family_problem(plan.family, &plan.shape, plan.dtype, plan.options);
	struct tune_space space;
	struct error err;

	if (plan.options[0]) /* masks are the same in all */
		return;
	must(tune_space_make(plan.family, &problem, gpu_properties_of(gpu), &space, &err), &err);
	for (size_t i = 0; i < space.count; i += (size_t)suited(1, 7))
		check_attention(&plan, &space.configs[i]);
	tune_space_free(&space);
}

static void attention_in_every_configuration(void **state)
{
	(void)state;
	each_attention((struct fixture_plan){.shape = {1, 150, 1, 64, 64, 0, 0}, .dtype = DTYPE_BF16},
		try_configurations);
}

/* An operation without a GPU version says so, and what works. */
static void what_has_no_gpu_version_says_so(void **state)
{
	struct family without = *family_find("linear");
	struct op_problem problem = {.shape = fixture_shape(1)};
	struct error err;

	(void)state;
	without.cuda = NULL;
	assert_int_equal(device.operate(&device, &without, &problem, NULL, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "linear attention has no GPU version yet"));
	assert_non_null(strstr(err.hint, "--device cpu"));
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_references_agree),
		cmocka_unit_test(every_length),
		cmocka_unit_test(every_type_dimension_and_layout),
		cmocka_unit_test(every_kind_of_key),
		cmocka_unit_test(nearly_parallel_keys_lose_what_is_usual),
		cmocka_unit_test(many_heads_and_few),
		cmocka_unit_test(gates_and_packs_follow_the_recurrence),
		cmocka_unit_test(gates_and_packs_have_a_usual_configuration),
		cmocka_unit_test(a_closed_gate_forgets),
		cmocka_unit_test(a_hundred_thousand_tokens),
		cmocka_unit_test(o_may_take_the_place_of_q),
		cmocka_unit_test(the_same_input_gives_the_same_bits),
		cmocka_unit_test(a_sequence_continues_from_its_state),
		cmocka_unit_test(an_upstream_stretch_reads_its_own_rows),
		cmocka_unit_test(bad_problems_are_refused_before_a_launch),
		cmocka_unit_test(decoding_follows_the_recurrence),
		cmocka_unit_test(decoding_knows_gates_and_packs),
		cmocka_unit_test(decoding_goes_on_from_what_stood),
		cmocka_unit_test(the_gate_follows_its_formula),
		cmocka_unit_test(forward_substitution_inverts),
		cmocka_unit_test(the_layer_follows_its_formula),
		cmocka_unit_test(a_layer_serves_many_calls),
		cmocka_unit_test(two_gpus_work_side_by_side),
		cmocka_unit_test(a_gpu_can_be_open_twice),
		cmocka_unit_test(a_callers_stream_is_used),
		cmocka_unit_test(kernels_can_be_unloaded),
		cmocka_unit_test(configurations_are_run_as_they_are),
		cmocka_unit_test(warps_of_their_own_make_the_matrices),
		cmocka_unit_test(attention_of_every_length),
		cmocka_unit_test(attention_of_every_type_and_dimension),
		cmocka_unit_test(attention_of_any_strides_and_shared_keys),
		cmocka_unit_test(attention_of_packed_sequences),
		cmocka_unit_test(attention_beside_nan),
		cmocka_unit_test(attention_on_every_rung),
		cmocka_unit_test(attention_in_every_configuration),
		cmocka_unit_test(what_has_no_gpu_version_says_so),
	};
	int status = open_gpu(argc, argv);

	if (status)
		return status;
	gpu = device_gpu(&device);
	emulated = strstr(gpu_properties_of(gpu)->name, "Emulated");
	status = cmocka_run_group_tests(tests, NULL, NULL);
	gpu_workspace_free(gpu, &workspace);
	device_close(&device);
	return status;
}
