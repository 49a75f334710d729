/* search and space: the best of many configurations is found, whatever time does, and nothing that is wrong, hangs or
 * crashes is ever it. Kernels are played by a cost function, and the clock by the costs. */
#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/memory.h"
#include "tune/search.h"
#include "tune/space.h"

/* --- a machine --------------------------------------------------------------------------------------- */

static const struct parameter parameters[] = {
	{"BLOCK", true, {16, 32, 64, 128}},
	{"WARPS", true, {1, 2, 4, 8}},
	{"STAGES", true, {1, 2, 3, 4}},
	{"GROUPS", false, {1, 2, 3, 4, 5, 6}},
	{0},
};
enum { CANDIDATES = 4 * 4 * 4 * 6 };

/* Which candidates misbehave, by their number. */
struct machine {
	double now;           /* seconds, that all calls have taken */
	double build_seconds; /* that a build takes */
	double noise,
		drift; /* of a time: how far it may be off, and how much slower each call is than the last */
	double device_factor[4]; /* how much slower a device is */
	double flat_but; /* all are as fast but for one, which takes such a part of their time; 0: no */
	int hot_every, hot_calls;     /* so many of so many calls are made at 60 % of the clock; 0: none */
	int wrong, hangs, no_build;   /* -1: none */
	int interrupts_at, breaks_at; /* the call that does; 0: none */
	int calls, builds, verified;
	int timed[CANDIDATES]; /* times that each one was run */
	uint64_t random;
	pthread_mutex_t mutex;
};

static struct machine machine;

static int number_of(const struct config *config)
{
	int number = 0;

	for (int i = 0; parameters[i].name; i++) {
		int at = 0, count = 0;

		while (parameters[i].values[count])
			count++;
		while (parameters[i].values[at] != config->value[i])
			at++;
		number = number * count + at;
	}
	return number;
}

static struct config config_of(int number)
{
	struct config config = {0};

	for (int i = 3; i >= 0; i--) {
		int count = 0;

		while (parameters[i].values[count])
			count++;
		config.value[i] = parameters[i].values[number % count];
		number /= count;
	}
	return config;
}

/* A valley with its bottom at BLOCK=64 WARPS=4 STAGES=3 GROUPS=5. */
static double true_cost(const struct config *config)
{
	double block = log2(config->value[0] / 64.0), warps = log2(config->value[1] / 4.0);

	if (machine.flat_but > 0)
		return 1e-3 * (number_of(config) == CANDIDATES / 2 ? machine.flat_but : 1);
	return 1e-3 *
		(1 + 0.2 * block * block + 0.1 * warps * warps + 0.05 * fabs(config->value[2] - 3.0) +
			0.04 * fabs(config->value[3] - 5.0) + 0.03 * fabs(block) * fabs(warps));
}

static double draw(void)
{
	machine.random = machine.random * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (double)(machine.random >> 11) * 0x1p-53;
}

static double clock_of_machine(void)
{
	double now;

	pthread_mutex_lock(&machine.mutex);
	now = machine.now;
	pthread_mutex_unlock(&machine.mutex);
	return now;
}

static int build(void *context, const struct config *config, struct tune_build *found, struct error *err)
{
	bool broken = number_of(config) / 6 == machine.no_build / 6 && machine.no_build >= 0;

	(void)context;
	pthread_mutex_lock(&machine.mutex);
	machine.now += machine.build_seconds;
	machine.builds++;
	pthread_mutex_unlock(&machine.mutex);
	*found = (struct tune_build){config->value[0], 1024, 0, 0.5, "registers"};
	return broken ? error_set(err, STATUS_FAILED, "ptxas has died") : 0;
}

static bool is_hot(void)
{
	return machine.hot_every && machine.calls % machine.hot_every < machine.hot_calls;
}

static double mhz(void *context, int device)
{
	(void)context;
	(void)device;
	return is_hot() ? 0.6 * 1980 : 1980;
}

static int time_it(
	void *context, int device, const struct config *config, int runs, double *seconds, struct error *err)
{
	int number = number_of(config), result = 0;

	(void)context;
	pthread_mutex_lock(&machine.mutex);
	machine.timed[number]++;
	machine.calls++;
	if (machine.calls == machine.interrupts_at)
		result = error_set(err, STATUS_INTERRUPTED, "interrupted");
	else if (machine.calls == machine.breaks_at)
		result = error_set(err, STATUS_ENVIRONMENT, "the GPU has fallen off the bus");
	else if (number == machine.hangs)
		result = error_set(err, STATUS_FAILED, "no response within 10 s");
	for (int i = 0; i < runs && !result; i++) {
		seconds[i] = true_cost(config) * (1 + machine.drift * machine.calls) *
			(1 + machine.noise * (2 * draw() - 1)) *
			(machine.device_factor[device] > 0 ? machine.device_factor[device] : 1) /
			(is_hot() ? 0.6 : 1);
		machine.now += seconds[i];
	}
	pthread_mutex_unlock(&machine.mutex);
	return result;
}

static int verify(void *context, int device, const struct config *config, struct error *err)
{
	(void)context;
	(void)device;
	machine.verified++;
	return number_of(config) == machine.wrong
		? error_set(err, STATUS_FAILED, "it computes something else")
		: 0;
}

static size_t recorded, failures_recorded;

static void record(void *context, const struct tune_candidate *candidate)
{
	(void)context;
	recorded++;
	failures_recorded += candidate->outcome == TUNE_FAILED;
	assert_int_not_equal(candidate->outcome, TUNE_UNTRIED);
	assert_true(candidate->outcome != TUNE_FAILED || candidate->problem[0]);
}

static const struct tune_work work = {
	.build = build, .time = time_it, .verify = verify, .record = record, .clock = clock_of_machine};

static void reset(void)
{
	machine = (struct machine){
		.wrong = -1, .hangs = -1, .no_build = -1, .random = 7, .mutex = PTHREAD_MUTEX_INITIALIZER};
	recorded = failures_recorded = 0;
}

/* A search from BLOCK=16 WARPS=1 STAGES=1 GROUPS=1 through all combinations. */
static struct tune_candidate candidates[CANDIDATES];

static struct tune_search search_of(enum tune_strategy strategy, double budget)
{
	for (int i = 0; i < CANDIDATES; i++)
		candidates[i] = (struct tune_candidate){.config = config_of(i), .seconds = NAN};
	return (struct tune_search){.work = &work,
		.parameters = parameters,
		.candidates = candidates,
		.count = CANDIDATES,
		.strategy = strategy,
		.budget = budget,
		.seed = 1,
		.devices = 1,
		.builders = 1};
}

static struct tune_found run(const struct tune_search *search)
{
	struct tune_found found;
	struct error err = {0};

	if (tune_search_run(search, &found, &err) < 0)
		fail_msg("the search ended: %s", err.message);
	assert_true(candidates[found.best].verified);
	assert_true(found.best_seconds <= found.first_seconds);
	return found;
}

static double excess(const struct tune_found *found)
{
	return true_cost(&candidates[found->best].config) / 1e-3 - 1;
}

/* --- what is found ----------------------------------------------------------------------------------- */

static void the_best_is_found_by_trying_all(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	struct tune_found found;

	(void)state;
	reset();
	found = run(&search);
	assert_true(excess(&found) == 0 && found.complete && !found.interrupted);
	assert_int_equal(found.tried, CANDIDATES);
	assert_int_equal(found.failed, 0);
	assert_int_equal(machine.builds, CANDIDATES / 6); /* GROUPS needs no build of its own */
	assert_true(fabs(found.best_seconds - 1e-3) < 1e-9);
	assert_true(fabs(found.first_seconds - true_cost(&candidates[0].config)) < 1e-9);
	assert_int_equal(candidates[found.best].build.registers, 64);
}

/* The hopeless ones are not timed at length: with a start near the best most are. */
static void hopeless_ones_cost_little(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	int hopeless = 0;

	(void)state;
	reset();
	candidates[0].config = (struct config){{64, 4, 3, 4}};
	candidates[number_of(&candidates[0].config)].config = config_of(0);
	run(&search);
	for (int i = 1; i < CANDIDATES; i++) {
		double cost = true_cost(&candidates[i].config);
		bool given_up = candidates[i].outcome == TUNE_HOPELESS;

		assert_true(given_up || cost <= 1.5 * true_cost(&candidates[0].config));
		assert_true(!given_up || cost > 1.5e-3);
		assert_true(!given_up || machine.timed[number_of(&candidates[i].config)] == 1);
		hopeless += given_up;
	}
	assert_true(hopeless > CANDIDATES / 4);
}

static void halving_and_local_search_need_fewer_trials(void **state)
{
	int far = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		/* room for half of the builds */
		struct tune_search search = search_of(TUNE_AUTO, 50);
		struct tune_found found;

		reset();
		machine.build_seconds = 1;
		search.seed = seed;
		found = run(&search);
		assert_true(found.tried < CANDIDATES * 3 / 4);
		assert_true(machine.now < 55);
		far += excess(&found) > 0.01;
		assert_true(excess(&found) < 0.11);
	}
	assert_true(far <= 3);
}

static void local_search_goes_downhill(void **state)
{
	struct tune_search search = search_of(TUNE_LOCAL, 1e9);
	struct tune_found found;

	(void)state;
	reset();
	found = run(&search);
	assert_true(excess(&found) == 0);
	assert_true(found.tried < CANDIDATES);
}

static void halving_alone_comes_near(void **state)
{
	struct tune_search search = search_of(TUNE_HALVING, 1e9);
	struct tune_found found;

	(void)state;
	reset();
	machine.noise = 0.01;
	found = run(&search);
	assert_true(excess(&found) <= 0.02);
}

/* With fewer candidates than make a final, and a budget for fewer still. */
static void halving_tries_no_more_than_there_are(void **state)
{
	struct tune_search search = search_of(TUNE_HALVING, 4);
	struct tune_found found;

	(void)state;
	reset();
	machine.build_seconds = 1;
	search.count = 3;
	search.candidates = xcalloc(search.count, sizeof(*search.candidates)); /* and none beyond */
	for (int i = 0; i < 3; i++)
		search.candidates[i] = (struct tune_candidate){.config = config_of(6 * i), .seconds = NAN};
	assert_int_equal(tune_search_run(&search, &found, &(struct error){0}), 0);
	assert_int_equal(found.tried, 3);
	free(search.candidates);
}

/* --- time is not to be trusted ----------------------------------------------------------------------- */

/* A GPU that grows slower and slower: a late candidate is not worse for it, nor an early one better. */
static void drift_does_not_choose(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	struct tune_found found;

	(void)state;
	for (double drift = -5e-4; drift < 2e-3; drift += 1e-3) {
		search = search_of(TUNE_EXHAUSTIVE, 1e9);
		reset();
		machine.drift = drift;
		found = run(&search);
		assert_true(excess(&found) <= 0.001);
	}
}

/* A GPU whose clock falls now and then: who was timed then is timed again, and the best one beside it. */
static void the_clock_does_not_choose(void **state)
{
	static const struct {
		int every, calls;
		bool watched, right; /* the times of all that were tried to the end */
	} cases[] = {{0, 0, true, true}, {41, 3, true, true}, {29, 7, true, true}, {23, 1, true, true},
		{29, 7, false, false}};

	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct tune_work watched = work;
		struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
		int wrong = 0;
		double unit;

		watched.mhz = cases[i].watched ? mhz : NULL;
		search.work = &watched;
		reset();
		machine.hot_every = cases[i].every;
		machine.hot_calls = cases[i].calls;
		run(&search);
		unit = candidates[0].seconds / true_cost(&candidates[0].config);
		for (int n = 1; n < CANDIDATES; n++)
			wrong += candidates[n].outcome == TUNE_TIMED &&
				fabs(candidates[n].seconds / true_cost(&candidates[n].config) / unit - 1) >
					1e-9;
		assert_int_equal(wrong == 0, cases[i].right);
	}
}

/* One that never settles costs time, but not without end. */
static void a_restless_clock_ends_nothing(void **state)
{
	struct tune_work watched = work;
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);

	(void)state;
	watched.mhz = mhz;
	search.work = &watched;
	reset();
	machine.hot_every = 2;
	machine.hot_calls = 1;
	run(&search);
	assert_true(machine.calls < CANDIDATES * 20);
}

static void noise_does_not_choose(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
		struct tune_found found;

		reset();
		machine.noise = 0.03;
		machine.random = seed;
		found = run(&search);
		assert_true(excess(&found) <= 0.04);
	}
}

/* The one that is used anyway stays where nothing is faster by more than noise. */
static void what_is_used_stays_unless_beaten(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	const struct config bottom = {{64, 4, 3, 5}};
	struct tune_found found;

	(void)state;
	reset();
	machine.noise = 0.02;
	candidates[number_of(&bottom)].config = config_of(0);
	candidates[0].config = bottom;
	found = run(&search);
	assert_int_equal(found.best, 0);
	assert_true(found.best_seconds == found.first_seconds);
}

/* Where times are off by up to 5 % and drift by 3 %: the one that is used is replaced by one that is 4 % faster, by equals
 * hardly ever, of which there are hundreds. */
static void equals_do_not_replace_what_is_used(void **state)
{
	static const double drifts[] = {3e-6, -3e-6, 0};
	int replaced = 0, found_it = 0;

	(void)state;
	for (uint64_t seed = 1; seed <= 60; seed++) {
		for (int there_is_one = 0; there_is_one < 2; there_is_one++) {
			struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
			struct tune_found found;

			reset();
			machine.flat_but = there_is_one ? 0.96 : 1;
			machine.noise = 0.05;
			machine.drift = drifts[seed % 3];
			machine.random = seed;
			found = run(&search);
			replaced += !there_is_one && found.best;
			found_it += there_is_one && found.best == CANDIDATES / 2;
		}
	}
	assert_true(replaced <= 2);
	assert_true(found_it >= 45);
}

static void the_same_seed_makes_the_same_search(void **state)
{
	struct tune_candidate first[CANDIDATES];
	struct tune_search search = search_of(TUNE_HALVING, 1e9);

	(void)state;
	reset();
	run(&search);
	memcpy(first, candidates, sizeof(first));
	search = search_of(TUNE_HALVING, 1e9);
	reset();
	run(&search);
	for (int i = 0; i < CANDIDATES; i++)
		assert_int_equal(candidates[i].outcome, first[i].outcome);
}

static void devices_of_different_speed_agree(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	struct tune_found found;

	(void)state;
	reset();
	machine.device_factor[1] = 1.7;
	machine.device_factor[2] = 0.8;
	search.devices = 3;
	search.builders = 4;
	found = run(&search);
	assert_true(excess(&found) == 0);
	assert_int_equal(machine.builds, CANDIDATES / 6);
}

/* --- what goes wrong --------------------------------------------------------------------------------- */

/* The fastest ones compute something else, hang and do not build: the next one is it, and each is named once. */
static void failures_are_named_and_not_tried_again(void **state)
{
	const struct config wrong = {{64, 4, 3, 5}}, hangs = {{64, 4, 3, 4}}, no_build = {{64, 4, 2, 5}};
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	struct tune_found found;

	(void)state;
	reset();
	machine.wrong = number_of(&wrong);
	machine.hangs = number_of(&hangs);
	machine.no_build = number_of(&no_build);
	found = run(&search);
	assert_int_equal(
		number_of(&candidates[found.best].config), number_of(&(struct config){{64, 4, 3, 6}}));
	assert_int_equal(found.failed, 1 + 1 + 6);
	assert_int_equal(failures_recorded, found.failed);
	assert_string_equal(candidates[machine.wrong].problem, "it computes something else");
	assert_string_equal(candidates[machine.hangs].problem, "no response within 10 s");
	assert_string_equal(candidates[machine.no_build].problem, "ptxas has died");
	assert_true(
		isnan(candidates[machine.wrong].seconds)); /* it was timed, but not of what it should do */
	assert_int_equal(machine.timed[machine.hangs], 1);
	assert_int_equal(machine.timed[machine.no_build], 0);
}

static void a_first_one_that_cannot_run_is_the_error(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	struct tune_found found;
	struct error err = {0};

	(void)state;
	reset();
	machine.hangs = 0;
	assert_int_equal(tune_search_run(&search, &found, &err), -1);
	assert_string_equal(err.message, "no response within 10 s");
	reset();
	machine.wrong = 0;
	assert_int_equal(tune_search_run(&search, &found, &err), -1);
	assert_string_equal(err.message, "it computes something else");
	reset();
	machine.no_build = 0;
	assert_int_equal(tune_search_run(&search, &found, &err), -1);
	assert_string_equal(err.message, "ptxas has died");
	assert_int_equal(machine.calls, 0);
}

static void a_broken_machine_ends_the_search(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	struct tune_found found;
	struct error err = {0};

	(void)state;
	reset();
	machine.breaks_at = 100;
	search.devices = 2;
	assert_int_equal(tune_search_run(&search, &found, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_true(machine.calls <= 103); /* the other device ends its trial: three calls at most */
}

static void the_budget_holds(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 0.5);
	struct tune_found found;

	(void)state;
	reset();
	found = run(&search);
	assert_false(found.complete);
	assert_true(found.tried > 5 && found.tried < CANDIDATES);
	assert_true(machine.now < 0.5 + 0.4); /* a duel that began before is fought to its end */
	assert_true(found.best_seconds < found.first_seconds);
}

/* What was found stands, and a search that goes on with it tries nothing twice. */
static void an_interrupted_search_can_go_on(void **state)
{
	struct tune_search search = search_of(TUNE_EXHAUSTIVE, 1e9);
	int earlier[CANDIDATES];
	struct tune_found found;

	(void)state;
	reset();
	machine.interrupts_at = 300;
	found = run(&search);
	assert_true(found.interrupted && !found.complete);
	assert_true(found.tried > 50 && found.tried < CANDIDATES);
	for (int i = 0; i < CANDIDATES; i++) {
		earlier[i] = candidates[i].outcome != TUNE_UNTRIED;
		candidates[i].seconds *= 2; /* it was a slower day */
	}
	reset();
	found = run(&search);
	assert_true(excess(&found) == 0 && found.complete);
	assert_int_equal(found.tried, CANDIDATES);
	for (int i = 1; i < CANDIDATES; i++)
		if (earlier[i] && true_cost(&candidates[i].config) > 1.1e-3)
			assert_int_equal(machine.timed[i], 0);
}

/* --- the space --------------------------------------------------------------------------------------- */

static const struct gpu_properties h200 = {.name = "H200",
	.capability = 90,
	.multiprocessors = 132,
	.shared_per_multiprocessor = 233472,
	.shared_per_block = 232448};

static void a_space_holds_what_can_run(void **state)
{
	const struct family *family = families[0];
	const struct op_shape shapes[] = {
		{1, 1000000, 8, 64, 64, 0, 0}, {1, 2048, 8, 128, 128, 0, 0}, {4, 64, 16, 32, 32, 0, 0}};
	const int options[FAMILY_OPTIONS] = {0};

	(void)state;
	for (size_t s = 0; s < sizeof(shapes) / sizeof(*shapes); s++) {
		const struct op_problem problem = family_problem(family, &shapes[s], DTYPE_BF16, options);
		const struct config usual = family->configs->usual(&problem, &h200);
		struct tune_space space;
		struct error err = {0};

		assert_int_equal(tune_space_make(family, &problem, &h200, &space, &err), 0);
		assert_memory_equal(&space.configs[0], &usual, sizeof(usual));
		assert_true(space.count >= 4 && space.excluded > 0 && space.reasons[0].count > 0);
		for (size_t i = 0; i < space.count; i++) {
			assert_int_equal(family->configs->check(&problem, &h200, &space.configs[i], &err), 0);
			for (size_t j = 0; j < i; j++)
				assert_memory_not_equal(
					&space.configs[i], &space.configs[j], sizeof(*space.configs));
		}
		tune_space_free(&space);
	}
}

static void every_operation_has_a_space(void **state)
{
	const int options[FAMILY_OPTIONS] = {0};

	(void)state;
	for (int i = 0; families[i]; i++)
		for (int dim = 32; dim <= 128 && families[i]->configs; dim *= 2) {
			const struct op_shape shape = {1, 2048, 8, dim, dim, 0, 0};
			const struct op_problem problem = family_problem(
				families[i], &shape, DTYPE_BF16, options);
			struct tune_space space;
			struct error err = {0};

			if (tune_space_make(families[i], &problem, &h200, &space, &err) < 0)
				fail_msg("%s, heads of %d: %s", families[i]->name, dim, err.message);
			tune_space_free(&space);
		}
}

static void an_empty_space_says_what_emptied_it(void **state)
{
	const struct gpu_properties small = {.name = "a small GPU",
		.capability = 80,
		.multiprocessors = 4,
		.shared_per_multiprocessor = 32768,
		.shared_per_block = 32768};
	const struct op_shape shape = {1, 4096, 8, 128, 128, 0, 0};
	const int options[FAMILY_OPTIONS] = {0};
	const struct op_problem problem = family_problem(families[0], &shape, DTYPE_F32, options);
	struct tune_space space;
	struct error err = {0};

	(void)state;
	assert_int_equal(tune_space_make(families[0], &problem, &small, &space, &err), -1);
	assert_int_equal(err.status, STATUS_ENVIRONMENT);
	assert_non_null(strstr(err.message, "none of "));
	assert_non_null(strstr(err.message, "of shared memory a block; a small GPU has 32"));
	assert_non_null(strstr(err.message, "upstream semantics have chunks of 64"));
	tune_space_free(&space);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(the_best_is_found_by_trying_all),
		cmocka_unit_test(hopeless_ones_cost_little),
		cmocka_unit_test(halving_and_local_search_need_fewer_trials),
		cmocka_unit_test(local_search_goes_downhill),
		cmocka_unit_test(halving_alone_comes_near),
		cmocka_unit_test(halving_tries_no_more_than_there_are),
		cmocka_unit_test(drift_does_not_choose),
		cmocka_unit_test(the_clock_does_not_choose),
		cmocka_unit_test(a_restless_clock_ends_nothing),
		cmocka_unit_test(noise_does_not_choose),
		cmocka_unit_test(what_is_used_stays_unless_beaten),
		cmocka_unit_test(equals_do_not_replace_what_is_used),
		cmocka_unit_test(the_same_seed_makes_the_same_search),
		cmocka_unit_test(devices_of_different_speed_agree),
		cmocka_unit_test(failures_are_named_and_not_tried_again),
		cmocka_unit_test(a_first_one_that_cannot_run_is_the_error),
		cmocka_unit_test(a_broken_machine_ends_the_search),
		cmocka_unit_test(the_budget_holds),
		cmocka_unit_test(an_interrupted_search_can_go_on),
		cmocka_unit_test(a_space_holds_what_can_run),
		cmocka_unit_test(every_operation_has_a_space),
		cmocka_unit_test(an_empty_space_says_what_emptied_it),
	};

	return cmocka_run_group_tests_name("search", tests, NULL, NULL);
}
