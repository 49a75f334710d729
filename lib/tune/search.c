#include "tune/search.h"

#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"

#define MOST_THREADS 64
#define RUNS 10 /* calls that make a time */
#define MOST_RUNS 40
#define FIRST_RUNS 3      /* after which the hopeless ones are known, */
#define HOPELESS 1.5      /* by the fastest of them, as a part of the best configuration's time */
#define REFRESH 8         /* trials of a device between two times of the best one */
#define PORTION 24        /* trials of a device between duels */
#define DUELS 4           /* at a time, from the fastest challenger on */
#define WITHIN 1.02       /* of the best one's time: worth a duel */
#define TURNS 12          /* of a duel, which a challenger has to win by */
#define LEAST_GAIN 0.005  /* each, all but */
#define MOST_LOST 1       /* of them: an equal does so in less than one of 300 duels */
#define TRIALS_SHARE 0.85 /* of the budget; the rest is for the last duels */
#define FINALISTS 4
#define CLOCK_CHANGE 0.03 /* between two times that are compared: then both are taken again, */
#define ATTEMPTS 4        /* in all so often */

enum built { BUILT_NOT, BUILT_RUNNING, BUILT_WELL, BUILT_BADLY, BUILT_NEVER };

struct build {
	enum built state;
	char problem[240];
};

/* A device, and the best one's time there. */
struct lane {
	double reference; /* seconds; 0: to be taken */
	double mhz;       /* the clock then */
	int since;        /* trials ago */
};

struct state {
	const struct tune_search *search;
	const struct tune_work *work;
	size_t *first_of;     /* for each candidate, the first one of the same build */
	struct build *builds; /* of these */
	size_t build_count;
	size_t *lost_to; /* the best one that won the last duel with it, plus 1; 0: none */
	struct lane lanes[MOST_THREADS];
	double started, unit;                /* seconds of the first candidate, which all others count in */
	double trial_seconds, build_seconds; /* that the first one took */
	size_t best, done, planned;
	double best_score; /* its time as a part of the first one's */
	uint64_t random;
	struct error fault; /* that ended the search; STATUS_OK: none */
	pthread_mutex_t mutex;
	pthread_cond_t changed;

	/* the batch in work */
	const size_t *batch;
	size_t batch_count, next_build, next_trial;
	int runs;
	unsigned batch_number;
	int servers, busy; /* threads of the other devices; those that are not done */
	bool ended;
};

const char *tune_strategy_name(enum tune_strategy strategy)
{
	static const char *const names[] = {"auto", "exhaustive", "halving", "local"};

	return names[strategy];
}

const char *tune_outcome_name(enum tune_outcome outcome)
{
	static const char *const names[] = {"untried", "timed", "hopeless", "failed"};

	return names[outcome];
}

/* --- order and time ------------------------------------------------------------------------------ */

/* SplitMix64: the same on every machine. */
static uint64_t draw(struct state *state)
{
	uint64_t bits = state->random += UINT64_C(0x9e3779b97f4a7c15);

	bits = (bits ^ bits >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	bits = (bits ^ bits >> 27) * UINT64_C(0x94d049bb133111eb);
	return bits ^ bits >> 31;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct middle {
	double median, noise; /* half of what the middle half of them spans, as a part of the median */
	double mhz;           /* the device's clock; NAN: not known */
};

/* Whether times that were taken at these clocks can be compared; a clock that is not known raises no doubt. */
static bool is_same_clock(double a, double b)
{
	return !(fabs(a / b - 1) > CLOCK_CHANGE);
}

static struct middle middle_of(double *values, int count)
{
	qsort(values, (size_t)count, sizeof(*values), by_value);
	return (struct middle){values[count / 2],
		(values[count - 1 - count / 4] - values[count / 4]) / 2 / values[count / 2], NAN};
}

static double spent(const struct state *state)
{
	return state->work->clock() - state->started;
}

static bool is_over(const struct state *state, double share)
{
	return state->fault.status || interrupted() || spent(state) >= share * state->search->budget;
}

static double seconds_left(const struct state *state)
{
	double each = state->done ? spent(state) / (double)state->done : state->trial_seconds;
	double budget = state->search->budget - spent(state);

	return fmax(0, fmin(budget, each * (double)(state->planned - state->done)));
}

static void tell(struct state *state, const struct tune_candidate *candidate)
{
	const struct tune_work *work = state->work;

	if (work->record && candidate)
		work->record(work->context, candidate);
	if (work->progress)
		work->progress(work->context, state->done, state->planned, seconds_left(state),
			state->best_score * state->unit);
}

static struct tune_candidate *candidate_of(const struct state *state, size_t index)
{
	return &state->search->candidates[index];
}

static double score(const struct state *state, size_t index)
{
	return candidate_of(state, index)->seconds / state->unit;
}

static void set_score(const struct state *state, size_t index, double value, double noise)
{
	candidate_of(state, index)->seconds = value * state->unit;
	candidate_of(state, index)->noise = noise;
}

static void fail(struct tune_candidate *candidate, const char *problem)
{
	candidate->outcome = TUNE_FAILED;
	candidate->seconds = candidate->noise = NAN; /* of what it should not do */
	candidate->verified = false;
	snprintf(candidate->problem, sizeof(candidate->problem), "%s", problem);
}

/* The candidate's fault ends its trials, anything else the search. Returns -1. */
static int blame(struct state *state, size_t index, const struct error *err)
{
	if (err->status == STATUS_FAILED && index)
		fail(candidate_of(state, index), err->message);
	else if (!state->fault.status)
		state->fault = *err;
	return -1;
}

/* --- building ------------------------------------------------------------------------------------ */

static bool same_build(const struct parameter *parameters, const struct config *a, const struct config *b)
{
	for (int i = 0; parameters[i].name; i++)
		if (parameters[i].compiled && a->value[i] != b->value[i])
			return false;
	return true;
}

static void find_builds(struct state *state)
{
	const struct tune_search *search = state->search;

	for (size_t i = 0; i < search->count; i++) {
		size_t first = 0;

		while (!same_build(
			search->parameters, &search->candidates[first].config, &search->candidates[i].config))
			first++;
		state->first_of[i] = first;
		state->build_count += first == i;
	}
}

/* With the mutex held, which is free while the work is done. */
static void build(struct state *state, size_t first)
{
	struct build *own = &state->builds[first];
	struct tune_build found = TUNE_BUILD_UNKNOWN;
	struct error err = {0};
	int result;

	own->state = BUILT_RUNNING;
	pthread_mutex_unlock(&state->mutex);
	result = state->work->build(state->work->context, &candidate_of(state, first)->config, &found, &err);
	pthread_mutex_lock(&state->mutex);
	own->state = result ? BUILT_BADLY : BUILT_WELL;
	if (result) {
		snprintf(own->problem, sizeof(own->problem), "%s", err.message);
		if (err.status != STATUS_FAILED || !first)
			blame(state, 0, &err);
	}
	for (size_t i = 0; i < state->search->count; i++)
		if (state->first_of[i] == first)
			candidate_of(state, i)->build = found;
	pthread_cond_broadcast(&state->changed);
}

static void *builder(void *context)
{
	struct state *state = context;

	pthread_mutex_lock(&state->mutex);
	while (state->next_build < state->batch_count) {
		size_t first = state->first_of[state->batch[state->next_build++]];

		if (state->builds[first].state != BUILT_NOT)
			continue;
		if (is_over(state, TRIALS_SHARE))
			state->builds[first].state = BUILT_NEVER;
		else
			build(state, first);
		pthread_cond_broadcast(&state->changed);
	}
	pthread_mutex_unlock(&state->mutex);
	return NULL;
}

/* --- trials -------------------------------------------------------------------------------------- */

/* Without the mutex. */
static int time_calls(
	struct state *state, int device, size_t index, int runs, struct middle *time, double *least)
{
	double seconds[MOST_RUNS];
	struct error err = {0};

	if (state->work->time(state->work->context, device, &candidate_of(state, index)->config, runs,
		    seconds, &err) < 0) {
		pthread_mutex_lock(&state->mutex);
		blame(state, index == state->best ? 0 : index, &err);
		state->lanes[device].reference = 0; /* what runs now may be another process */
		pthread_mutex_unlock(&state->mutex);
		return -1;
	}
	*time = middle_of(seconds, runs);
	if (state->work->mhz)
		time->mhz = state->work->mhz(state->work->context, device);
	*least = seconds[0];
	return 0;
}

/* Takes the best one's time on a device, where that is not fresh. */
static int refresh(struct state *state, int device)
{
	struct lane *lane = &state->lanes[device];
	struct middle time;
	double least;

	if (lane->reference > 0 && lane->since++ < REFRESH)
		return 0;
	if (time_calls(state, device, state->best, RUNS, &time, &least) < 0)
		return -1;
	*lane = (struct lane){time.median, time.mhz, 0};
	return 0;
}

/* Takes a candidate's time beside the best one's: at one clock, if that can be had. */
static int time_beside(
	struct state *state, int device, size_t index, struct middle *time, enum tune_outcome *outcome)
{
	struct lane *lane = &state->lanes[device];
	double least;

	for (int attempt = 1;; attempt++) {
		if (refresh(state, device) < 0 ||
			time_calls(state, device, index, FIRST_RUNS, time, &least) < 0)
			return -1;
		*outcome = least > HOPELESS * lane->reference ? TUNE_HOPELESS : TUNE_TIMED;
		if (*outcome == TUNE_TIMED && state->runs > FIRST_RUNS &&
			time_calls(state, device, index, state->runs, time, &least) < 0)
			return -1;
		if (is_same_clock(time->mhz, lane->mhz) || attempt == ATTEMPTS)
			return 0;
		lane->reference = 0;
	}
}

static void try_out(struct state *state, int device, size_t index)
{
	struct tune_candidate *candidate = candidate_of(state, index);
	enum tune_outcome outcome;
	struct middle time;

	if (time_beside(state, device, index, &time, &outcome) < 0)
		return;
	pthread_mutex_lock(&state->mutex);
	candidate->outcome = outcome;
	set_score(state, index, time.median / state->lanes[device].reference * state->best_score, time.noise);
	pthread_mutex_unlock(&state->mutex);
}

/* A device's part of a batch. */
static void run_trials(struct state *state, int device)
{
	pthread_mutex_lock(&state->mutex);
	while (state->next_trial < state->batch_count && !is_over(state, TRIALS_SHARE)) {
		size_t index = state->batch[state->next_trial++];
		const struct build *needed = &state->builds[state->first_of[index]];

		while (needed->state == BUILT_NOT || needed->state == BUILT_RUNNING)
			pthread_cond_wait(&state->changed, &state->mutex);
		if (needed->state == BUILT_NEVER)
			continue;
		if (needed->state == BUILT_BADLY) {
			fail(candidate_of(state, index), needed->problem);
		} else {
			pthread_mutex_unlock(&state->mutex);
			try_out(state, device, index);
			pthread_mutex_lock(&state->mutex);
		}
		if (candidate_of(state, index)->outcome == TUNE_UNTRIED)
			continue; /* the search has ended in the middle of it */
		state->done++;
		tell(state, candidate_of(state, index));
	}
	pthread_mutex_unlock(&state->mutex);
}

/* Every device but the first, which the caller's thread serves, has one thread for the whole search: a process that is
 * started from a thread may be bound to end with it. */
struct server {
	struct state *state;
	int device;
	pthread_t thread;
};

static void *serve(void *context)
{
	const struct server *own = context;
	struct state *state = own->state;
	unsigned seen = 0;

	pthread_mutex_lock(&state->mutex);
	for (;;) {
		while (!state->ended && seen == state->batch_number)
			pthread_cond_wait(&state->changed, &state->mutex);
		if (state->ended)
			break;
		seen = state->batch_number;
		pthread_mutex_unlock(&state->mutex);
		run_trials(state, own->device);
		pthread_mutex_lock(&state->mutex);
		state->busy--;
		pthread_cond_broadcast(&state->changed);
	}
	pthread_mutex_unlock(&state->mutex);
	return NULL;
}

static void run_batch(struct state *state, const size_t *batch, size_t count, int runs)
{
	pthread_t builders[MOST_THREADS];
	int builder_count = 0;

	pthread_mutex_lock(&state->mutex);
	state->batch = batch;
	state->batch_count = count;
	state->next_build = state->next_trial = 0;
	state->runs = runs;
	state->batch_number++;
	state->busy = state->servers;
	pthread_cond_broadcast(&state->changed);
	pthread_mutex_unlock(&state->mutex);
	while (builder_count < state->search->builders && builder_count < MOST_THREADS &&
		!pthread_create(&builders[builder_count], NULL, builder, state))
		builder_count++;
	if (!builder_count)
		builder(state);
	run_trials(state, 0);
	for (int i = 0; i < builder_count; i++)
		pthread_join(builders[i], NULL);
	pthread_mutex_lock(&state->mutex);
	while (state->busy)
		pthread_cond_wait(&state->changed, &state->mutex);
	pthread_mutex_unlock(&state->mutex);
}

/* --- duels --------------------------------------------------------------------------------------- */

/* The best one and a challenger in turns, on the first device, for as long as the challenger may win. Who begins changes, so
 * that drift favours neither. */
static int time_in_turns(struct state *state, size_t index, struct middle *ratio, bool *won)
{
	const size_t sides[] = {state->best, index};
	struct middle times[2];
	double ratios[TURNS], least;
	int turns = 0, lost = 0;

	for (int attempts = 1; turns < TURNS && lost <= MOST_LOST; attempts++) {
		for (int i = 0; i < 2; i++) {
			int side = i ^ (turns & 1);

			if (time_calls(state, 0, sides[side], RUNS, &times[side], &least) < 0)
				return -1;
		}
		if (!is_same_clock(times[1].mhz, times[0].mhz) && attempts < ATTEMPTS * TURNS)
			continue;
		ratios[turns] = times[1].median / times[0].median;
		lost += ratios[turns++] > 1 - LEAST_GAIN;
	}
	*ratio = middle_of(ratios, turns);
	*won = lost <= MOST_LOST;
	return 0;
}

static int verify(struct state *state, size_t index)
{
	struct error err = {0};

	if (state->work->verify(state->work->context, 0, &candidate_of(state, index)->config, &err) < 0)
		return blame(state, index, &err);
	candidate_of(state, index)->verified = true;
	return 0;
}

static void duel(struct state *state, size_t index)
{
	struct tune_candidate *challenger = candidate_of(state, index);
	struct middle ratio;
	bool won;

	state->lost_to[index] = state->best + 1;
	if (time_in_turns(state, index, &ratio, &won) == 0) {
		set_score(state, index, ratio.median * state->best_score, ratio.noise);
		if (won && verify(state, index) == 0) {
			state->best = index;
			state->best_score *= ratio.median;
			memset(state->lanes, 0, sizeof(state->lanes));
		}
	}
	tell(state, challenger);
}

/* The fastest one of a list that may win, has not lost yet, and has not failed; false when there is none. */
static bool find_challenger(const struct state *state, const size_t *list, size_t count, size_t *found)
{
	double least = state->best_score * WITHIN;

	*found = state->best;
	for (size_t i = 0; i < count; i++) {
		size_t index = list[i];

		if (index == state->best || candidate_of(state, index)->outcome != TUNE_TIMED ||
			state->lost_to[index] == state->best + 1 || score(state, index) >= least)
			continue;
		least = score(state, index);
		*found = index;
	}
	return *found != state->best;
}

static void hold_duels(struct state *state, const size_t *list, size_t count)
{
	size_t index;

	for (int i = 0; i < DUELS && !is_over(state, 1) && find_challenger(state, list, count, &index); i++)
		duel(state, index);
}

/* --- strategies ---------------------------------------------------------------------------------- */

/* Those that have not been tried, in random order. The caller frees. */
static size_t *list_untried(struct state *state, size_t *count)
{
	size_t *list = xcalloc(state->search->count, sizeof(*list));

	*count = 0;
	for (size_t i = 1; i < state->search->count; i++)
		if (candidate_of(state, i)->outcome == TUNE_UNTRIED)
			list[(*count)++] = i;
	for (size_t i = *count; i > 1; i--) {
		size_t other = draw(state) % i, swapped = list[i - 1];

		list[i - 1] = list[other];
		list[other] = swapped;
	}
	return list;
}

static void try_all(struct state *state, const size_t *list, size_t count)
{
	size_t portion = PORTION * (size_t)state->search->devices;

	for (size_t first = 0; first < count && !is_over(state, TRIALS_SHARE); first += portion) {
		size_t rest = count - first;

		run_batch(state, list + first, rest < portion ? rest : portion, RUNS);
		hold_duels(state, list, first + (rest < portion ? rest : portion));
	}
}

static void exhaustive(struct state *state)
{
	size_t count, *list = list_untried(state, &count);

	state->planned = state->done + count;
	try_all(state, list, count);
	free(list);
}

/* The fastest first, the failed and hopeless ones last. Returns how many are neither. */
static size_t sort_by_score(const struct state *state, size_t *list, size_t count)
{
	size_t kept = 0;

	for (size_t i = 0; i < count; i++) {
		size_t index = list[i], at = kept;

		if (candidate_of(state, index)->outcome != TUNE_TIMED)
			continue;
		for (; at && score(state, list[at - 1]) > score(state, index); at--)
			list[at] = list[at - 1];
		list[at] = index;
		kept++;
	}
	return kept;
}

/* How many trials half of the budget has room for, should each need a build of its own as long as there are more. */
static size_t affordable(const struct state *state)
{
	double each = state->build_seconds / state->search->builders, half = state->search->budget / 2;
	double build_all = each * (double)state->build_count;
	double count = build_all + state->trial_seconds * (double)state->build_count > half
		? half / (each + state->trial_seconds)
		: (half - build_all) / state->trial_seconds;

	return count < (double)state->search->count ? (size_t)count : state->search->count;
}

static void halving(struct state *state)
{
	size_t count, *list = list_untried(state, &count), most = affordable(state);

	if (most < FINALISTS)
		most = FINALISTS;
	if (count > most)
		count = most;
	state->planned = state->done + 2 * count;
	for (int runs = FIRST_RUNS; count && !is_over(state, TRIALS_SHARE); runs *= 2) {
		run_batch(state, list, count, runs < MOST_RUNS ? runs : MOST_RUNS);
		count = sort_by_score(state, list, count);
		if (count <= FINALISTS)
			break;
		count = (count + 1) / 2;
	}
	hold_duels(state, list, count);
	free(list);
}

/* Whether the builds differ in one parameter at most. */
static bool is_neighbour(const struct state *state, size_t index)
{
	const struct config *a = &candidate_of(state, index)->config;
	const struct config *b = &candidate_of(state, state->best)->config;
	int different = 0;

	for (int i = 0; state->search->parameters[i].name; i++)
		different += state->search->parameters[i].compiled && a->value[i] != b->value[i];
	return different <= 1;
}

static void local(struct state *state)
{
	size_t before;

	do {
		size_t count, kept = 0, *list = list_untried(state, &count);

		before = state->best;
		for (size_t i = 0; i < count; i++)
			if (is_neighbour(state, list[i]))
				list[kept++] = list[i];
		state->planned = state->done + kept;
		try_all(state, list, kept);
		free(list);
	} while (state->best != before && !is_over(state, TRIALS_SHARE));
}

static void run_strategy(struct state *state)
{
	enum tune_strategy strategy = state->search->strategy;

	if (strategy == TUNE_AUTO && affordable(state) >= state->search->count)
		strategy = TUNE_EXHAUSTIVE;
	if (strategy == TUNE_EXHAUSTIVE)
		exhaustive(state);
	if (strategy == TUNE_HALVING || strategy == TUNE_AUTO)
		halving(state);
	if (strategy == TUNE_LOCAL || strategy == TUNE_AUTO)
		local(state);
}

/* --- the search ---------------------------------------------------------------------------------- */

/* Builds, times and verifies the one to beat. */
static int start(struct state *state)
{
	struct tune_candidate *first = candidate_of(state, 0);
	double began = state->work->clock();
	struct middle time;
	double least;

	pthread_mutex_lock(&state->mutex);
	build(state, 0);
	pthread_mutex_unlock(&state->mutex);
	state->build_seconds = state->work->clock() - began;
	began = state->work->clock();
	if (state->fault.status || time_calls(state, 0, 0, RUNS, &time, &least) < 0)
		return -1;
	state->trial_seconds = state->work->clock() - began;
	if (verify(state, 0) < 0)
		return -1;
	state->unit = time.median;
	state->lanes[0] = (struct lane){time.median, time.mhz, 0};
	first->outcome = TUNE_TIMED;
	set_score(state, 0, 1, time.noise);
	state->done = 1;
	tell(state, first);
	return 0;
}

/* What was measured in an earlier search counts in the units of this one. */
static void take_over(struct state *state, double first_seconds)
{
	for (size_t i = 1; i < state->search->count; i++)
		if (candidate_of(state, i)->outcome == TUNE_TIMED && first_seconds > 0)
			set_score(state, i, score(state, i) * state->unit / first_seconds,
				candidate_of(state, i)->noise);
}

/* Duels for those that an earlier search has timed. */
static void resume(struct state *state)
{
	size_t *list = xcalloc(state->search->count, sizeof(*list));

	for (size_t i = 0; i < state->search->count; i++)
		list[i] = i;
	for (size_t i = 0; i < state->search->count; i++)
		if (candidate_of(state, i)->outcome == TUNE_TIMED &&
			state->builds[state->first_of[i]].state == BUILT_NOT)
			state->builds[state->first_of[i]].state = BUILT_WELL;
	hold_duels(state, list, state->search->count);
	free(list);
}

static void count_tried(const struct tune_search *search, struct tune_found *found)
{
	for (size_t i = 0; i < search->count; i++) {
		found->tried += search->candidates[i].outcome != TUNE_UNTRIED;
		found->failed += search->candidates[i].outcome == TUNE_FAILED;
	}
}

static void start_servers(struct state *state, struct server servers[MOST_THREADS])
{
	for (int device = 1; device < state->search->devices && device < MOST_THREADS; device++) {
		struct server *own = &servers[state->servers];

		*own = (struct server){.state = state, .device = device};
		state->servers += !pthread_create(&own->thread, NULL, serve, own);
	}
}

static void stop_servers(struct state *state, struct server servers[MOST_THREADS])
{
	pthread_mutex_lock(&state->mutex);
	state->ended = true;
	pthread_cond_broadcast(&state->changed);
	pthread_mutex_unlock(&state->mutex);
	for (int i = 0; i < state->servers; i++)
		pthread_join(servers[i].thread, NULL);
}

int tune_search_run(const struct tune_search *search, struct tune_found *found, struct error *err)
{
	double earlier = search->candidates[0].outcome == TUNE_TIMED ? search->candidates[0].seconds : 0;
	struct state state = {
		.search = search,
		.work = search->work,
		.first_of = xcalloc(search->count, sizeof(*state.first_of)),
		.builds = xcalloc(search->count, sizeof(*state.builds)),
		.lost_to = xcalloc(search->count, sizeof(*state.lost_to)),
		.best_score = 1,
		.planned = search->count,
		.random = search->seed,
		.started = search->work->clock(),
		.mutex = PTHREAD_MUTEX_INITIALIZER,
		.changed = PTHREAD_COND_INITIALIZER,
	};

	struct server servers[MOST_THREADS];

	*found = (struct tune_found){0};
	find_builds(&state);
	start_servers(&state, servers);
	if (start(&state) == 0) {
		take_over(&state, earlier);
		resume(&state);
		run_strategy(&state);
		found->best = state.best;
		found->first_seconds = state.unit;
		found->best_seconds = state.unit * state.best_score;
		found->interrupted = interrupted() || state.fault.status == STATUS_INTERRUPTED;
		found->complete = !is_over(&state, TRIALS_SHARE);
		if (found->interrupted)
			state.fault = (struct error){0};
	}
	stop_servers(&state, servers);
	count_tried(search, found);
	free(state.first_of);
	free(state.builds);
	free(state.lost_to);
	if (state.fault.status)
		*err = state.fault;
	return state.fault.status ? -1 : 0;
}
