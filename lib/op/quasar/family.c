/* QuasarAttention as an entry of the table of families. */
#include "gpu/gpu.h"
#include "op/family.h"
#include "op/quasar/config.h"
#include "op/quasar/cpu.h"
#include "op/quasar/cuda.h"
#include "op/quasar/reference.h"

enum { Q, K, V, O, BETA, INITIAL, FINAL, LOG_GATE };

/* Functions, as bits. */
#define WITH_GATE (1u << QUASAR_GATED | 1u << QUASAR_PACKED_GATED)
#define WITH_PACKS (1u << QUASAR_PACKED | 1u << QUASAR_PACKED_GATED)

static const struct family_tensor tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[K] = {"k", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[V] = {"v", "BTHV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[O] = {"o", "BTHV", TENSOR_OUTPUT, {0}},
	[BETA] = {"beta", "H", TENSOR_INPUT, {DISTRIBUTION_UNIFORM, .low = 0.7f, .high = 2.8f}},
	[INITIAL] = {"initial_state", "NHKV", TENSOR_INITIAL, {DISTRIBUTION_NORMAL, .deviation = 0.5f}},
	[FINAL] = {"final_state", "NHKV", TENSOR_FINAL, {0}},
	[LOG_GATE] = {"log_gate", "BTH", TENSOR_INPUT, {DISTRIBUTION_UNIFORM, .low = -0.1f, .high = 0}},
	{0},
};

/* enum quasar_function */
static const struct family_option options[] = {{{QUASAR_FUNCTIONS}}, {{0}}};

static bool has_tensor(int tensor, const int choice[FAMILY_OPTIONS])
{
	return tensor != LOG_GATE || WITH_GATE >> choice[0] & 1;
}

/* The problem in the family's own words, whether it makes sense or not. */
static struct quasar_problem in_words(const struct op_problem *problem)
{
	const struct tensor *at = problem->tensors;

	return (struct quasar_problem){
		.semantics = problem->options[0] == QUASAR_UPSTREAM ? SEMANTICS_UPSTREAM : SEMANTICS_CAUSAL,
		.batch = problem->shape.batch,
		.tokens = problem->shape.tokens,
		.heads = problem->shape.heads,
		.dim = problem->shape.key_dim,
		.q = at[Q],
		.k = at[K],
		.v = at[V],
		.o = at[O],
		.beta = at[BETA].data,
		.initial_state = at[INITIAL].data,
		.final_state = at[FINAL].data,
		.gated = WITH_GATE >> problem->options[0] & 1,
		.log_gate = at[LOG_GATE].data,
		.sequences = problem->shape.sequences,
		.starts = problem->starts,
	};
}

/* STATUS_USAGE when it is none. */
static int quasar_of(const struct op_problem *problem, struct quasar_problem *quasar, struct error *err)
{
	if (problem->shape.key_dim != problem->shape.value_dim)
		return error_set(err, STATUS_USAGE,
			"keys of dimension %d and values of %d: they have to be the same",
			problem->shape.key_dim, problem->shape.value_dim);
	if ((WITH_PACKS >> problem->options[0] & 1) != (problem->shape.sequences > 0))
		return error_set(err, STATUS_USAGE, "%lld packed sequences, %s semantics",
			(long long)problem->shape.sequences, options[0].values[problem->options[0]]);
	*quasar = in_words(problem);
	return quasar_check(quasar, err);
}

static int check(const struct op_problem *problem, struct error *err)
{
	struct quasar_problem quasar;

	return quasar_of(problem, &quasar, err);
}

static int reference(
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	struct quasar_problem quasar;

	return quasar_of(problem, &quasar, err) < 0
		? -1
		: quasar_reference(&quasar, results[O], results[FINAL], err);
}

static int cpu(const struct op_problem *problem, struct error *err)
{
	struct quasar_problem quasar;

	return quasar_of(problem, &quasar, err) < 0 ? -1 : quasar_cpu(&quasar, err);
}

static int cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	struct quasar_problem quasar;

	return quasar_of(problem, &quasar, err) < 0 ? -1 : quasar_cuda(gpu, workspace, &quasar, config, err);
}

static int cuda_reference(struct gpu *gpu, const struct op_problem *problem,
	double *const results[FAMILY_TENSORS], struct error *err)
{
	struct quasar_problem quasar;
	const struct op_shape *shape = &problem->shape;
	size_t bytes[2] = {0}, count = (size_t)(shape->heads * shape->value_dim);
	double *o, *final = NULL;
	int result;

	if (quasar_of(problem, &quasar, err) < 0)
		return -1;
	bytes[0] = count * (size_t)(shape->batch * shape->tokens) * sizeof(*o);
	bytes[1] = count * (size_t)(quasar_sequences(&quasar) * shape->key_dim) * sizeof(*final);
	o = gpu_allocate(gpu, bytes[0], err);
	final = o && results[FINAL] ? gpu_allocate(gpu, bytes[1], err) : NULL;
	result = o && (final || !results[FINAL]) ? quasar_cuda_reference(gpu, &quasar, o, final, err) : -1;
	if (!result)
		result = gpu_download(gpu, results[O], o, bytes[0], err);
	if (!result && final)
		result = gpu_download(gpu, results[FINAL], final, bytes[1], err);
	gpu_release(gpu, o);
	gpu_release(gpu, final);
	return result;
}

/* With chunks of 64. A token and head: three products with the state (K St, Kᵀ N, Q St), and four with the
 * rows of its chunk, half of which are masked (K Kᵀ, T Y, Q Kᵀ, and that times N); T itself is a sixth of
 * C². */
static double operations(const struct op_problem *problem)
{
	double dim = problem->shape.key_dim, chunk = UPSTREAM_CHUNK;
	double rows = (double)problem->shape.batch * (double)problem->shape.tokens * problem->shape.heads;

	return 2 * (3 * dim * dim + 4.0 / 2 * chunk * dim + chunk * chunk / 6) * rows;
}

/* --- configurations ---------------------------------------------------------------------------------- */

static int config_check(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	const struct quasar_problem quasar = in_words(problem);

	return quasar_check_shape(&quasar, err) < 0 ||
			quasar_config_check(&quasar, properties, config, err) < 0
		? -1
		: quasar_config_worthwhile(&quasar, properties, config, err);
}

static struct config config_usual(const struct op_problem *problem, const struct gpu_properties *properties)
{
	const struct quasar_problem quasar = in_words(problem);

	return quasar_config_default(&quasar, properties);
}

static struct config config_adopt(
	const struct op_problem *problem, const struct gpu_properties *properties, const struct config *tuned)
{
	const struct quasar_problem quasar = in_words(problem);

	return quasar_config_adopt(&quasar, properties, tuned);
}

static void config_values(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, int parameter, int values[CONFIG_VALUES])
{
	const struct quasar_problem quasar = in_words(problem);

	(void)parameter; /* there is only one */
	quasar_groups_values(&quasar, properties, config, values);
}

static int config_launches(const struct op_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	const struct quasar_problem quasar = in_words(problem);

	return quasar_launches(&quasar, config, launches);
}

static const struct family_configs configs = {
	.kernel = QUASAR_TUNED_KERNEL,
	.source = QUASAR_SOURCE,
	.parameters = quasar_parameters,
	.check = config_check,
	.usual = config_usual,
	.adopt = config_adopt,
	.values = config_values,
	.launches = config_launches,
};

const struct family family_quasar = {
	.name = "quasar",
	.title = "QuasarAttention",
	.tensors = tensors,
	.options = options,
	.configs = &configs,
	.has_tensor = has_tensor,
	.check = check,
	.reference = reference,
	.cpu = cpu,
	.cuda = cuda,
	.cuda_reference = cuda_reference,
	.operations = operations,
	.least_cosine = 0.9999,
	.packed = WITH_PACKS,
};
