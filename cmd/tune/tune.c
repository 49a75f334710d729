/* quasar tune: the fastest configurations of kernels on a GPU: found, checked, remembered. */
#include "cmd/tune/tune.h"

#include <string.h>

#include "cli/device.h"
#include "cli/python.h"
#include "cmd/commands.h"
#include "gpu/gpu.h"
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
		command_semantics(invocation, request->family, request->options, err) < 0 ||
		tune_read_axes(invocation, &request->axes, err) < 0 ||
		arg_try_file(invocation, "report", err) < 0)
		return -1;
	request->shape.heads = (int)heads;
	request->shape.key_dim = request->shape.value_dim = (int)dim;
	request->seed = (uint64_t)seed;
	request->dtype = read_dtype(invocation);
	return 0;
}

static int read_devices(const struct invocation *invocation, struct tune_request *request, struct error *err)
{
	int64_t devices[TUNE_MOST_DEVICES] = {0};

	request->device_count = arg_integers(invocation, "devices", 0, 1023, devices, TUNE_MOST_DEVICES, err);
	for (int i = 0; i < request->device_count; i++) {
		for (int other = 0; other < i; other++)
			if (devices[other] == devices[i]) /* candidates side by side would slow each other */
				return error_set(err, STATUS_USAGE, "--devices names GPU %lld twice",
					(long long)devices[i]);
		request->devices[i] = (int)devices[i];
	}
	return request->device_count < 0 ? -1 : 0;
}

static enum tune_strategy read_strategy(const struct invocation *invocation)
{
	enum tune_strategy strategy = TUNE_AUTO;

	while (strcmp(tune_strategy_name(strategy), arg_string(invocation, "strategy")))
		strategy++;
	return strategy;
}

/* The kernels that can be tuned, of which --kernel names one. */
static int check_kernel(
	const struct invocation *invocation, const struct tune_request *request, struct error *err)
{
	const char *kernel = arg_string(invocation, "kernel");

	if (!request->family->configs)
		return error_set(err, STATUS_USAGE, "%s has no GPU version yet, and nothing to tune",
			request->family->title);
	if (!kernel || !strcmp(kernel, request->family->configs->kernel))
		return 0;
	error_set(err, STATUS_USAGE, "--kernel: %s has no kernel \"%s\"", request->family->title, kernel);
	return error_hint(err, "It has %s.", request->family->configs->kernel);
}

static int run(struct invocation *invocation, struct error *err)
{
	struct tune_request request;
	bool done;

	if (invocation->positional_count && !strcmp(invocation->positionals[0], TUNE_WORKER)) {
		tune_work();
		return 0;
	}
	if (invocation->positional_count)
		return error_set(err, STATUS_USAGE, "unexpected argument \"%s\"", invocation->positionals[0]);
	if (read_request(invocation, &request, err) < 0 || read_devices(invocation, &request, err) < 0)
		return -1;
	request.strategy = read_strategy(invocation);
	if (tune_stored(&request, &done, err) < 0)
		return -1;
	if (done)
		return 0;
	if (arg_flag(invocation, "apply"))
		return tune_apply(&request, err);
	if (arg_flag(invocation, "triton"))
		return tune_triton(&request, err);
	if (arg_flag(invocation, "write"))
		return error_set(err, STATUS_USAGE,
			"--write needs --triton: it is for the sources of Triton's kernels");
	if (check_kernel(invocation, &request, err) < 0)
		return -1;
	if (arg_given(invocation, "gpu"))
		return tune_predict(&request, arg_string(invocation, "gpu"), err);
	if (gpu_count(err) < 0) {
		error_context(err, "tuning needs a GPU");
		return error_hint(err,
			"Run it on the machine that has the GPU. For one that is not here, name it with --gpu, for "
			"example --gpu a100: its best configurations are predicted then.");
	}
	return tune_measure(&request, err);
}

const struct command cmd_tune = {
	.name = "tune",
	.summary = "find the fastest configurations of the kernels on a GPU",
	.max_positionals = 1, /* TUNE_WORKER, which is nobody else's */
	.description =
		"Finds the fastest configuration of quasar's kernels on this machine's GPU, for one length, size of heads "
		"and type: chunk size, stages, blocks, warps, launches, groups. Candidates are compiled on all cores and "
		"tried in a process of their own: one that hangs, crashes or computes something else is named, and not "
		"tried again. The best one is timed again beside each challenger, which takes its place only if it is "
		"faster by more than the noise and computes the same.\n\n"
		"The result is stored for this user, GPU, driver, version of the kernel and class of shapes (lengths up to "
		"twice as long share it). Every command uses it from then on, and `quasar export` writes it into the "
		"fork. Ctrl-C keeps what was found; --resume goes on from there.\n\n"
		"--strategy auto tries all candidates if the budget suffices. Otherwise it times random ones, the better half "
		"of them longer, and so on, then the neighbours of the best.\n\n"
		"--triton tunes the Triton kernels of the fork instead: those that its layer runs and Triton's autotuner "
		"chooses configurations for. The declared configurations and others around them are timed within the whole "
		"layer, in the fork's Python, and compared with the untuned output. In the end the tuned layer and the untuned "
		"one are timed in turns; only if the tuned one wins nearly all of them, what would change in the source is "
		"shown, and --write changes it. With one configuration left, the autotuner costs validators' warm-up calls no "
		"time.\n\n"
		"--gpu NAME predicts instead, for a GPU that is not here: all candidates are compiled for it, and their times "
		"worked out from its data sheet and from their machine code. Nothing is stored. `quasar gpus` lists the names.",
	.opts =
		(const struct opt[]){
			{"gpu", 0, "NAME", NULL, NULL, NULL,
				"Predict for a GPU that is not here: a100, h100-pcie, 4090, rtx5090."},
			OPT_OP("Operation to tune."),
			OPT_SEMANTICS,
			{"kernel", 0, "NAME", NULL, NULL, NULL, "Kernel to tune. Default: all."},
			{"seq", 's', "N", NULL, NULL, NULL,
				"Sequence length in tokens. Default: the target."},
			{"target", 0, "N", "TARGET_SEQUENCE_LENGTH", NULL, NULL,
				"Sequence length without --seq."},
			{"head-dim", 0, "N", NULL, "64", NULL, "Size of a head."},
			{"heads", 0, "N", NULL, "8", NULL, "Number of heads."},
			{"dtype", 0, "TYPE", NULL, "bf16", "bf16|fp16|fp32", "Type of the tensors."},
			{"budget", 0, "SECONDS", NULL, "240", NULL, "Time limit."},
			{"strategy", 0, "NAME", NULL, "auto", "auto|exhaustive|halving|local",
				"How to choose among the candidates."},
			{"seed", 0, "N", NULL, "1", NULL, "Seed for the input and for random choices."},
			{"devices", 0, "N[,N...]", NULL, "0", NULL,
				"Numbers of the GPUs, all of one kind, that candidates are spread over."},
			{"resume", 0, NULL, NULL, NULL, NULL, "Go on with a tuning that was interrupted."},
			{"explain", 0, NULL, NULL, NULL, NULL,
				"Say why the first configuration leads, and how far it is from the roofline."},
			{"report", 0, "FILE", NULL, NULL, NULL,
				"Write a page on it: heat maps, the fastest, the roofline, the history. With --list or --show: on "
				"what is stored."},
			{"axes", 0, "NAME,NAME", NULL, NULL, NULL,
				"Parameters that heat maps are drawn over. Default: the two that have the most values."},
			{"list", 0, NULL, NULL, NULL, NULL, "List the stored results."},
			{"show", 0, "ID", NULL, NULL, NULL,
				"Show a stored result, with what was tried for it on this machine."},
			{"export", 0, "FILE", NULL, NULL, NULL,
				"Write the stored results to a file, for another machine."},
			{"import", 0, "FILE", NULL, NULL, NULL, "Add the results of such a file."},
			{"forget", 0, "ID|all", NULL, NULL, NULL, "Delete a stored result, or all."},
			{"apply", 0, NULL, NULL, NULL, NULL,
				"Write the stored results into the fork, as `quasar export` does."},
			{"triton", 0, NULL, NULL, NULL, NULL, "Tune the Triton kernels of the fork instead."},
			{"write", 0, NULL, NULL, NULL, NULL,
				"Put the configurations found into the source of the fork's Triton kernels."},
			{"fork", 0, "DIR", NULL, NULL, NULL,
				"Path of a fork other than the workspace's, for --triton and --apply."},
			OPT_PYTHON,
			{0},
		},
	.examples =
		(const struct example[]){
			{"quasar tune", "tune the operation at the target length"},
			{"quasar tune --seq 2048 --head-dim 128 --budget 60",
				"another shape, within a minute"},
			{"quasar tune --devices 0,1", "candidates on two GPUs"},
			{"quasar tune --triton --write", "the fork's Triton kernels, changed in its source"},
			{"quasar tune --gpu a100", "what to expect of a GPU that is not here"},
			{"quasar tune --list", "what was found so far"},
			{"quasar tune --list --report tuning.html",
				"the same as a page, with heat maps and the roofline"},
			{"quasar tune --export h200.json", "take the results to another machine"},
			{0},
		},
	.exits = (const enum status[]){STATUS_FAILED, STATUS_ENVIRONMENT, 0},
	.run = run,
};
