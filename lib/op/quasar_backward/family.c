/* The gradient of QuasarAttention as an entry of the table of families. */
#include "op/family.h"
#include "op/quasar_backward/config.h"
#include "op/quasar_backward/cuda.h"

extern const struct family family_quasar;

/* Sequences first: they may share memory, as equal slices of it. */
enum { Q, K, V, D_O, D_Q, D_K, D_V, BETA, INITIAL, D_FINAL, D_BETA, D_INITIAL };

/* Keys are short enough that beta counts: beside exp(-beta λ) of the operation's, rounding would be all that is left. */
static const struct family_tensor tensors[] = {
	[Q] = {"q", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[K] = {"k", "BTHK", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 0.2f}},
	[V] = {"v", "BTHV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[D_O] = {"do", "BTHV", TENSOR_INPUT, {DISTRIBUTION_NORMAL, .deviation = 1}},
	[D_Q] = {"dq", "BTHK", TENSOR_OUTPUT, {0}},
	[D_K] = {"dk", "BTHK", TENSOR_OUTPUT, {0}},
	[D_V] = {"dv", "BTHV", TENSOR_OUTPUT, {0}},
	[BETA] = {"beta", "H", TENSOR_INPUT, {DISTRIBUTION_UNIFORM, .low = 0.7f, .high = 2.8f}},
	[INITIAL] = {"initial_state", "NHKV", TENSOR_INITIAL, {DISTRIBUTION_NORMAL, .deviation = 0.5f}},
	[D_FINAL] = {"dfinal_state", "NHKV", TENSOR_INITIAL, {DISTRIBUTION_NORMAL, .deviation = 0.5f}},
	[D_BETA] = {"dbeta", "H", TENSOR_FINAL, {0}},
	[D_INITIAL] = {"dinitial_state", "NHKV", TENSOR_FINAL, {0}},
	{0},
};

/* The first of enum quasar_function. */
static const struct family_option options[] = {{{QUASAR_DIFFERENTIABLE_FUNCTIONS}}, {{0}}};

/* The problem in the family's own words, whether it makes sense or not. */
static struct quasar_gradient in_words(const struct op_problem *problem)
{
	const struct tensor *at = problem->tensors;

	return (struct quasar_gradient){
		.problem = {.semantics = problem->options[0] == QUASAR_UPSTREAM ? SEMANTICS_UPSTREAM
										: SEMANTICS_CAUSAL,
			.batch = problem->shape.batch,
			.tokens = problem->shape.tokens,
			.heads = problem->shape.heads,
			.dim = problem->shape.key_dim,
			.q = at[Q],
			.k = at[K],
			.v = at[V],
			.beta = at[BETA].data,
			.initial_state = at[INITIAL].data,
			.sequences = problem->shape.sequences},
		.d_o = at[D_O],
		.d_final_state = at[D_FINAL].data,
		.d_q = at[D_Q],
		.d_k = at[D_K],
		.d_v = at[D_V],
		.d_beta = at[D_BETA].data,
		.d_initial_state = at[D_INITIAL].data,
	};
}

/* STATUS_USAGE when it is none. */
static int gradient_of(const struct op_problem *problem, struct quasar_gradient *gradient, struct error *err)
{
	if (problem->shape.key_dim != problem->shape.value_dim)
		return error_set(err, STATUS_USAGE,
			"keys of dimension %d and values of %d: they have to be the same",
			problem->shape.key_dim, problem->shape.value_dim);
	*gradient = in_words(problem);
	return quasar_gradient_check(gradient, err);
}

static int check(const struct op_problem *problem, struct error *err)
{
	struct quasar_gradient gradient;

	return gradient_of(problem, &gradient, err);
}

static int reference(
	const struct op_problem *problem, double *const results[FAMILY_TENSORS], struct error *err)
{
	const struct quasar_gradient_results wanted = {
		results[D_Q], results[D_K], results[D_V], results[D_BETA], results[D_INITIAL]};
	struct quasar_gradient gradient;

	return gradient_of(problem, &gradient, err) < 0 ? -1
							: quasar_gradient_reference(&gradient, &wanted, err);
}

static int cpu(const struct op_problem *problem, struct error *err)
{
	struct quasar_gradient gradient;

	return gradient_of(problem, &gradient, err) < 0 ? -1 : quasar_gradient_cpu(&gradient, err);
}

static int cuda(struct gpu *gpu, struct gpu_workspace *workspace, const struct op_problem *problem,
	const struct config *config, struct error *err)
{
	struct quasar_gradient gradient;

	return gradient_of(problem, &gradient, err) < 0
		? -1
		: quasar_gradient_cuda(gpu, workspace, &gradient, config, err);
}

/* With chunks of 64 under causal semantics. A token and head: eight products with a state (K M, Kᵀ N; K E, N Eᵀ, dY Mᵀ,
 * Kᵀ dY; dO Mᵀ, Qᵀ dO), and ten with the rows of its chunk, half of which are masked (K Kᵀ, T Y; Tᵀ dN, dY Nᵀ, B K, Bᵀ K;
 * Aᵀ dO, dO Nᵀ, dA K, dAᵀ Q); T itself is a sixth of C². */
static double operations(const struct op_problem *problem)
{
	double dim = problem->shape.key_dim, chunk = UPSTREAM_CHUNK;
	double rows = (double)problem->shape.batch * (double)problem->shape.tokens * problem->shape.heads;

	return 2 * (8 * dim * dim + 10.0 / 2 * chunk * dim + chunk * chunk / 6) * rows;
}

/* --- configurations ---------------------------------------------------------------------------------- */

static int config_check(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, struct error *err)
{
	const struct quasar_gradient gradient = in_words(problem);

	return quasar_check_shape(&gradient.problem, err) < 0
		? -1
		: quasar_gradient_config_check(&gradient, properties, config, err);
}

static struct config config_usual(const struct op_problem *problem, const struct gpu_properties *properties)
{
	const struct quasar_gradient gradient = in_words(problem);

	return quasar_gradient_config_default(&gradient, properties);
}

static struct config config_adopt(
	const struct op_problem *problem, const struct gpu_properties *properties, const struct config *tuned)
{
	const struct quasar_gradient gradient = in_words(problem);

	return quasar_gradient_config_adopt(&gradient, properties, tuned);
}

static void config_values(const struct op_problem *problem, const struct gpu_properties *properties,
	const struct config *config, int parameter, int values[CONFIG_VALUES])
{
	const struct quasar_gradient gradient = in_words(problem);

	quasar_gradient_values(&gradient, properties, config, parameter, values);
}

/* As if the sequence were one part: of more, the states take a little longer. */
static int config_launches(const struct op_problem *problem, const struct config *config,
	struct config_launch launches[CONFIG_LAUNCHES])
{
	const struct quasar_gradient gradient = in_words(problem);

	return quasar_gradient_launches(
		&gradient, config, quasar_gradient_chunks(&gradient), PURPOSE_GRADIENTS, launches);
}

static const struct family_configs configs = {
	.kernel = QUASAR_GRADIENT_KERNEL,
	.source = QUASAR_GRADIENT_SOURCE,
	.parameters = quasar_gradient_parameters,
	.check = config_check,
	.usual = config_usual,
	.adopt = config_adopt,
	.values = config_values,
	.launches = config_launches,
};

const struct family family_quasar_backward = {
	.name = "quasar-backward",
	.title = "the gradient of QuasarAttention",
	.tensors = tensors,
	.options = options,
	.configs = &configs,
	.gradient_of = &family_quasar,
	.check = check,
	.reference = reference,
	.cpu = cpu,
	.cuda = cuda,
	.operations = operations,
	.least_cosine = 0.9999,
};
