/* What a fork could seem to be, and is not: quick by what it remembers, or whom it recognises, or what it hides. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "probe/inquiry.h"

#define MOST_OUTSIDE_MB 1024.0 /* of a GPU: kernels, handles of libraries and the driver's own */
#define SHORT_CHANCES 12       /* as CHANCES, of short calls: a busy machine takes several */

/* --- state ------------------------------------------------------------------------------------------------ */

/* Another input, the first one again, and the other's numbers in the first one's place. */
int check_state(struct inquiry *it, struct error *err)
{
	float *x = inquiry_allocate(3 * SHORT, err), *other, *again;
	int result = -1;

	if (!x)
		return -1;
	other = x + inquiry_numbers(SHORT);
	again = other + inquiry_numbers(SHORT);
	inquiry_fill(it, x, inquiry_numbers(SHORT));
	if (probe_input(it->probe, "a", it->x, SHORT, err) < 0 ||
		probe_input(it->probe, "b", x, SHORT, err) < 0 ||
		inquiry_call(it, "b", POISON_NONE, other, err) < 0 ||
		inquiry_call(it, "a", POISON_NONE, again, err) < 0)
		goto done;
	if (inquiry_same(it, it->y, other, SHORT))
		inquiry_blame(
			it->state_fault, sizeof(it->state_fault), "the same output comes back for another x");
	else if (!inquiry_same(it, it->y, again, SHORT))
		inquiry_blame(it->state_fault, sizeof(it->state_fault),
			"the output depends on the calls before it: another one comes back for the same x");
	if (probe_input(it->probe, "a", x, SHORT, err) < 0 ||
		inquiry_call(it, "a", POISON_NONE, again, err) < 0)
		goto done;
	if (!inquiry_same(it, other, again, SHORT))
		inquiry_blame(it->state_fault, sizeof(it->state_fault),
			inquiry_same(it, it->y, again, SHORT)
				? "the output of the numbers that x held before comes back: it is remembered"
				: "the output depends on where x lies in memory");
	inquiry_conclude(it, "fork.state", it->state_fault, "Every call must compute what it returns.",
		"the output depends on x and the parameters alone, whatever was called before");
	result = 0;
done:
	free(x);
	return result;
}

/* --- another name ----------------------------------------------------------------------------------------- */

/* Runs the fork elsewhere, up to its first output. */
static int call_elsewhere(struct inquiry *it, float *out, struct error *err)
{
	if (!inquiry_load_elsewhere(it, err) || probe_input(it->elsewhere, "a", it->x, SHORT, err) < 0)
		return -1;
	return probe_call(it->elsewhere, "a", SHORT, POISON_NONE, out, err);
}

/* A call's seconds in each of two sessions, one after the other, so that neither has the machine to itself. */
static int compare_speed(struct inquiry *it, double seconds[2], struct error *err)
{
	const struct probe_timing timing = {
		.tokens = SHORT,
		.inputs = (const char *const[]){"a", NULL},
		.warmups = 1,
		.calls = it->plan->device->index < 0 ? 2 : 10,
		.rounds = 3,
		.seconds = TIMED_SECONDS,
	};
	struct probe *const probes[] = {it->probe, it->elsewhere};
	struct probe_times times;
	double ratio = INFINITY;

	seconds[0] = seconds[1] = INFINITY;
	for (int attempt = 0; attempt < SHORT_CHANCES && !(ratio < MOST_SPEEDUP); attempt++) {
		for (int i = 0; i < 2; i++) {
			if (probe_time(probes[i], &timing, &times, err) < 0)
				return -1;
			seconds[i] = fmin(seconds[i], inquiry_fastest(&times));
		}
		ratio = fmax(seconds[0] / seconds[1], seconds[1] / seconds[0]);
	}
	return 0;
}

int check_name(struct inquiry *it, struct error *err)
{
	float *out;
	char fault[200] = "";
	double seconds[2] = {0};
	int result = -1;

	if (it->found->function && check_count(it->checks, CHECK_FAIL) > it->failures) {
		check_add(it->checks, "fork.name", CHECK_SKIP, NULL,
			"it computes the right function, and fails as it is");
		return 0;
	}
	out = inquiry_allocate(SHORT, err);
	if (out && call_elsewhere(it, out, err) == 0 && compare_speed(it, seconds, err) == 0) {
		if (!inquiry_same(it, it->y, out, SHORT))
			inquiry_blame(fault, sizeof(fault),
				"under another name and in another place the output is another one");
		else if (seconds[0] > MOST_SPEEDUP * seconds[1] || seconds[1] > MOST_SPEEDUP * seconds[0])
			inquiry_blame(fault, sizeof(fault),
				"a call takes %.3g s as a validator runs it, and %.3g s under another name and in "
				"another place",
				seconds[0], seconds[1]);
		inquiry_conclude(it, "fork.name", fault, "Nothing may depend on who calls.",
			"the same under another name, in another place and without a validator's environment");
		result = 0;
	}
	free(out);
	return result;
}

/* A fork that fails for a validator, and runs elsewhere, goes by the name. */
void try_elsewhere(struct inquiry *it)
{
	struct error ignored;
	float *out = inquiry_allocate(SHORT, &ignored);

	if (out && call_elsewhere(it, out, &ignored) == 0)
		inquiry_failed(it, "fork.name", "Nothing may depend on who calls.",
			"it runs under another name and in another place");
	free(out);
}

/* --- memory and clock -------------------------------------------------------------------------------------- */

int check_memory(struct inquiry *it, struct error *err)
{
	double outside;
	bool reset;
	char fault[200] = "", detail[160];

	if (it->plan->device->index < 0) {
		check_add(it->checks, "fork.memory", CHECK_SKIP, NULL,
			"PyTorch counts a GPU's memory only: look at it on a GPU");
		return 0;
	}
	if (probe_memory(it->probe, "a", &outside, &reset, err) < 0)
		return -1;
	snprintf(detail, sizeof(detail), "%.0f MiB of the GPU were taken past PyTorch's count (max %.0f)",
		outside, MOST_OUTSIDE_MB);
	if (outside > MOST_OUTSIDE_MB)
		inquiry_blame(fault, sizeof(fault), "%s", detail);
	if (reset)
		inquiry_blame(fault, sizeof(fault), "a call takes back the peak of PyTorch's count");
	inquiry_conclude(
		it, "fork.memory", fault, "Validators read torch.cuda.max_memory_allocated().", detail);
	return 0;
}

/* Only its end may have been kept, which may begin within a character. */
static bool is_utf8(const struct buffer *printed)
{
	size_t start = 0;

	while (start < printed->length && (printed->data[start] & 0xc0) == 0x80)
		start++;
	return utf8_valid(printed->data + start, printed->length - start);
}

/* A validator's script tells what it measured among what the fork prints, and validators read all of it. */
static void judge_printed(struct inquiry *it, const struct buffer *printed)
{
	static const char *const told[] = {"RESULT:", "VRAM_MB:"};

	if (!printed->length)
		return;
	for (size_t i = 0; i < sizeof(told) / sizeof(*told); i++)
		if (memmem(printed->data, printed->length, told[i], strlen(told[i])))
			inquiry_blame(it->timing_fault, sizeof(it->timing_fault),
				"it prints \"%s\" itself, which validators take for what was measured",
				told[i]);
	if (!is_utf8(printed))
		inquiry_blame(it->timing_fault, sizeof(it->timing_fault),
			"it prints what is not UTF-8, and validators then read nothing of what was measured");
}

/* What the rounds have shown, and what else would deceive a validator's clock. The session ends here. */
int check_timing(struct inquiry *it, struct error *err)
{
	bool settled;
	char *what;

	if (probe_replaced(it->probe, &what, &settled, err) < 0)
		return -1;
	if (!settled)
		inquiry_blame(it->timing_fault, sizeof(it->timing_fault),
			"an output still changed after the clock had stopped");
	if (*what)
		inquiry_blame(it->timing_fault, sizeof(it->timing_fault), "it replaces %s", what);
	free(what);
	if (strcmp(probe_output_type(it->probe), "Tensor"))
		inquiry_blame(it->timing_fault, sizeof(it->timing_fault),
			"it returns a %s, not a tensor: what is computed when that is read is not timed",
			probe_output_type(it->probe));
	if (probe_finish(it->probe, err) < 0) {
		if (err->status != STATUS_FAILED)
			return -1;
		inquiry_blame(it->timing_fault, sizeof(it->timing_fault), "%s", err->message);
	}
	judge_printed(it, probe_printed(it->probe));
	inquiry_conclude(it, "fork.timing", it->timing_fault,
		"What is timed must be all of the work, and the clock must be left alone.",
		"the clocks agree, and nothing runs when they stop");
	return 0;
}
