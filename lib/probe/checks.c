#include "probe/checks.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/memory.h"
#include "probe/inquiry.h"

#define OWN_FAULT "Validators run it the same way." /* of what fails in the fork */

static int check_import(struct inquiry *it, struct error *err)
{
	if (probe_import(it->probe, err) < 0)
		return -1;
	inquiry_passed(it, "fork.import", "fla.layers.quasar has a QuasarAttention");
	return 0;
}

static int check_construct(struct inquiry *it, struct error *err)
{
	if (probe_construct(it->probe, err) < 0)
		return -1;
	inquiry_passed(it, "fork.construct", "it takes the arguments that validators give");
	return 0;
}

static int check_call(struct inquiry *it, struct error *err)
{
	struct probe_timing timing = {
		.tokens = SHORT, .inputs = (const char *const[]){"a", NULL}, .calls = 1, .rounds = 1};
	struct probe_times times;

	inquiry_fill(it, it->x, inquiry_numbers(SHORT));
	if (probe_save_weights(it->probe, &it->weights, err) < 0 ||
		probe_input(it->probe, "a", it->x, SHORT, err) < 0 ||
		inquiry_call(it, "a", POISON_NONE, it->y, err) < 0 ||
		probe_time(it->probe, &timing, &times, err) < 0)
		return -1;
	it->found->ran = true;
	it->seconds_per_token = inquiry_fastest(&times) / SHORT;
	inquiry_passed(it, "fork.call", "it returns a tensor of x's shape");
	return 0;
}

struct step {
	const char *name;
	int (*run)(struct inquiry *it, struct error *err);
	bool essential; /* nothing comes of the others when this fails */
};

/* Runs them in their order. What fails in the fork fails the check. -1 for what is not the fork's fault. */
static int take_steps(struct inquiry *it, const struct step *steps, size_t count, struct error *err)
{
	for (size_t i = 0; i < count && probe_alive(it->probe); i++) {
		size_t failures = check_count(it->checks, CHECK_FAIL);

		probe_limit(it->probe, PROBE_SECONDS);
		if (steps[i].run(it, err) < 0) {
			if (err->status != STATUS_FAILED)
				return -1;
			if (!it->found->ran && probe_needs_gpu(it->probe)) {
				snprintf(it->found->why_not, sizeof(it->found->why_not),
					"it needs a GPU (%.200s)", err->message);
				check_add(it->checks, steps[i].name, CHECK_SKIP,
					"Run it on a machine with a GPU: --device cuda", "%s",
					it->found->why_not);
				return 0;
			}
			inquiry_failed(it, steps[i].name, err->hint[0] ? err->hint : OWN_FAULT, err->message);
		}
		if (steps[i].essential && check_count(it->checks, CHECK_FAIL) > failures)
			break;
	}
	return 0;
}

static const struct step steps[] = {
	{"fork.import", check_import, true},
	{"fork.construct", check_construct, true},
	{"fork.call", check_call, true},
	{"fork.written", check_written, false},
	{"fork.finite", check_finite, true},
	{"fork.repeat", check_repeat, false},
	{"fork.reference", check_reference, false},
	{"fork.inputs", check_inputs, false},
	{"fork.lengths", check_lengths, false},
	{"fork.state", check_state, false},
	{"fork.name", check_name, false},
	{"fork.memory", check_memory, false},
	{"fork.gradient", check_gradient, false},
	{"fork.timing", check_timing, true},
};

void checks_not_run(
	struct checks_found *found, struct check_list *checks, const char *name, const struct error *why)
{
	snprintf(found->why_not, sizeof(found->why_not), "%.250s", why->message);
	check_problem(checks, name, CHECK_SKIP, why);
}

/* fork.compile. 1 when there is no Python, which is a check, too. */
static int begin(struct inquiry *it, struct error *err)
{
	it->started = clock_elapsed();
	if (!it->probe) {
		checks_not_run(it->found, it->checks, "fork.compile", &it->fault);
		return 1;
	}
	if (it->compiled < 0 && it->fault.status != STATUS_FAILED) {
		*err = it->fault;
		return -1;
	}
	if (it->compiled < 0)
		inquiry_failed(it, "fork.compile", OWN_FAULT, it->fault.message);
	else
		inquiry_passed(it, "fork.compile", "the layer and fla/ops/quasar/ are valid Python");
	return 0;
}

/* Opens the session, and has the files compiled, which needs no PyTorch; -1 when it is not only that there is no Python. */
static int open_session(struct inquiry *it, const char *script, struct error *err)
{
	it->probe = inquiry_open_probe(it, script, &it->fault);
	if (!it->probe && it->fault.status != STATUS_ENVIRONMENT) {
		*err = it->fault;
		return -1;
	}
	it->compiled = it->probe ? probe_compile(it->probe, &it->fault) : -1;
	return 0;
}

int checks_compile(const struct checks_plan *plan, struct check_list *checks, struct error *err)
{
	struct checks_found found = {0};
	struct inquiry it = {.plan = plan, .checks = checks, .found = &found};
	int result = open_session(&it, "compile.py", err);

	if (!result)
		result = begin(&it, err);
	probe_close(it.probe);
	return result < 0 ? -1 : 0;
}

struct inquiry *checks_open(const struct checks_plan *plan, struct error *err)
{
	struct inquiry *it = xcalloc(1, sizeof(*it));
	struct error ignored;
	char script[64];

	it->plan = plan;
	it->x = inquiry_allocate(2 * SHORT, err);
	snprintf(script, sizeof(script), PROBE_SCRIPT, (long long)plan->tokens);
	if (!it->x || open_session(it, script, err) < 0) {
		checks_close(it);
		return NULL;
	}
	it->y = it->x + inquiry_numbers(SHORT);
	if (it->compiled < 0) /* nothing else will be run */
		return it;
	probe_prepare(it->probe, &ignored);
	/* a second one at the same time, where it does not take the first one's processor */
	if (sysconf(_SC_NPROCESSORS_ONLN) > 1 && (it->elsewhere = inquiry_open_probe_elsewhere(it, &ignored)))
		probe_prepare(it->elsewhere, &ignored);
	return it;
}

void checks_close(struct inquiry *it)
{
	if (!it)
		return;
	expected_close(it->expected);
	probe_close(it->probe);
	probe_close(it->elsewhere);
	free(it->x);
	free(it);
}

/* All that needs PyTorch. */
static int run_layer(struct inquiry *it, struct error *err)
{
	struct error ignored;

	probe_limit(it->probe, PROBE_SECONDS);
	if (probe_start_torch(it->probe, err) < 0) {
		if (err->status != STATUS_ENVIRONMENT)
			return -1;
		checks_not_run(it->found, it->checks, "fork.import", err);
		return 0;
	}
	if (it->elsewhere) {
		probe_limit(it->elsewhere, PROBE_SECONDS);
		probe_await(it->elsewhere, &ignored); /* nothing runs beside what is timed */
	}
	snprintf(it->found->torch, sizeof(it->found->torch), "%s", probe_torch(it->probe));
	if (take_steps(it, steps, sizeof(steps) / sizeof(*steps), err) < 0)
		return -1;
	if (!it->found->ran && check_count(it->checks, CHECK_FAIL) > it->failures)
		try_elsewhere(it);
	return 0;
}

int checks_run(struct inquiry *it, struct check_list *checks, struct checks_found *found, struct error *err)
{
	int result;

	*found = (struct checks_found){0};
	it->checks = checks;
	it->found = found;
	it->failures = check_count(checks, CHECK_FAIL);
	result = begin(it, err);
	if (!result && check_count(checks, CHECK_FAIL) == it->failures)
		result = run_layer(it, err);
	return result < 0 ? -1 : 0;
}

void checks_measurement(const struct checks_length *length, struct measurement *measurement)
{
	const struct measure_plan plan = {.tokens = length->tokens};
	const struct probe_times *times = &length->times;
	struct sample sample = {0};

	for (int i = 0; i < times->rounds; i++)
		sample_add(&sample, times->process[i] / times->calls);
	*measurement = (struct measurement){
		.warmups = MEASURE_WARMUPS,
		.runs = times->calls * times->rounds,
		.memory_mb = times->memory_mb,
	};
	measure_conclude(&plan, &sample, measurement);
}
