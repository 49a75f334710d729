/* quasar tune: the fastest configurations of kernels on a GPU: found, checked, remembered. */
#include "cmd/tune/tune.h"

#include <string.h>

#include "cli/device.h"
#include "cmd/commands.h"
#include "measure/fixture.h"
#include "score/score.h"

/* The option's choices are the names that types have. */
static enum dtype read_dtype(const struct invocation *invocation)
{
	enum dtype dtype = DTYPE_F32;

	while (strcmp(dtype_name(dtype), arg_string(invocation, "dtype")))
		dtype++;
	return dtype;
}

static int read_request(const struct invocation *invocation, struct tune_request *request, struct error *err)
{
	int64_t dim = 64, heads = 8, seed = 1;

	*request = (struct tune_request){.invocation = invocation, .family = command_family(invocation)};
	request->shape = fixture_shape(0);
	if (arg_integer(invocation, arg_given(invocation, "seq") ? "seq" : "target", 1, MOST_TOKENS,
		    &request->shape.tokens, err) < 0 ||
		arg_integer(invocation, "head-dim", 1, 1024, &dim, err) < 0 ||
		arg_integer(invocation, "heads", 1, 1024, &heads, err) < 0 ||
		arg_integer(invocation, "seed", 0, (int64_t)1 << 53, &seed, err) < 0 ||
		arg_real(invocation, "budget", 1, 1e9, &request->budget, err) < 0 ||
		command_semantics(invocation, request->family, request->options, err) < 0)
		return -1;
	request->shape.heads = (int)heads;
	request->shape.key_dim = request->shape.value_dim = (int)dim;
	request->seed = (uint64_t)seed;
	request->dtype = read_dtype(invocation);
	return 0;
}

static int run(struct invocation *invocation, struct error *err)
{
	struct tune_request request;
	struct device device;

	if (read_request(invocation, &request, err) < 0)
		return -1;
	if (!request.family->configs)
		return error_set(err, STATUS_USAGE, "%s has no GPU version yet, and nothing to tune",
			request.family->title);
	if (arg_given(invocation, "gpu"))
		return tune_predict(&request, arg_string(invocation, "gpu"), err);
	if (command_device(invocation, "cuda", &device, err) < 0)
		return error_hint(err,
			"Tuning measures on a GPU: run it on the machine that has one. For a GPU that is not here, "
			"name it with --gpu, for example --gpu a100: its best configurations are predicted then.");
	device_close(&device);
	return error_set(err, STATUS_USAGE, "measured tuning is not built in yet");
}

const struct command cmd_tune = {
	.name = "tune",
	.summary = "find the fastest configurations of the kernels on a GPU",
	.description = "Finds the fastest configurations of the kernels on this machine's GPU.",
	.opts =
		(const struct opt[]){
			{"gpu", 0, "NAME", NULL, NULL, NULL,
				"Predict for a GPU that is not here: a100, h100-pcie, 4090, rtx5090."},
			OPT_OP("Operation to tune."),
			OPT_SEMANTICS,
			{"seq", 's', "N", NULL, NULL, NULL,
				"Sequence length in tokens. Default: the target."},
			{"target", 0, "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Sequence length without --seq."},
			{"head-dim", 0, "N", NULL, "64", NULL, "Size of a head."},
			{"heads", 0, "N", NULL, "8", NULL, "Number of heads."},
			{"dtype", 0, "TYPE", NULL, "bf16", "bf16|fp16|fp32", "Type of the tensors."},
			{"budget", 0, "SECONDS", NULL, "240", NULL, "Time limit."},
			{"seed", 0, "N", NULL, "1", NULL, "Seed for the input and for random choices."},
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar tune", "tune the operation at the target length"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run,
};
