#include "validator/judge.h"

#include <errno.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "fork/fork.h"
#include "fork/inspect.h"
#include "probe/probe.h"
#include "score/score.h"

#define CLONE_SECONDS 120
#define CLONE_BYTES ((uint64_t)512 << 20)
#define DISK_BYTES ((uint64_t)1 << 30) /* with less room, a failed clone may be this machine's fault */
#define FALLBACK_LENGTH 2048           /* measured when nothing that was asked for can be */

/* Two clocks agree that are no further apart, and this for the way of two lines. */
#define CLOCKS_APART 0.05
#define LINE_SECONDS 2e-4

#define STAND_IN "; rehearsal: quasar's own layer stands in for the fork"

/* The detail of the first check that failed, or NULL. */
static const char *first_failure(const struct check_list *checks)
{
	for (size_t i = 0; i < checks->count; i++)
		if (checks->items[i].status == CHECK_FAIL)
			return checks->items[i].detail;
	return NULL;
}

/* Adds a failing check "claim" when there is nothing to measure against. */
static void check_terms(const struct api_submission *submission, struct check_list *checks)
{
	if (submission->target_sequence_length <= 0)
		check_add(checks, "claim", CHECK_FAIL, NULL, "the target sequence length is %lld",
			(long long)submission->target_sequence_length);
	else if (submission->tokens_per_sec <= 0)
		check_add(checks, "claim", CHECK_FAIL, NULL, "%g tokens/s are claimed",
			submission->tokens_per_sec);
}

/* --- the clone --------------------------------------------------------------------------------- */

/* A new private directory; the caller frees the name. */
static char *make_place(struct error *err)
{
	const char *base = getenv("TMPDIR");
	char *place = path_join(base && *base ? base : "/tmp", "quasar-validate.XXXXXX");

	if (mkdtemp(place))
		return place;
	error_set(err, STATUS_ENVIRONMENT, "cannot create a directory for clones, %s: %s", place,
		strerror(errno));
	error_hint(err, "Set TMPDIR to another directory.");
	free(place);
	return NULL;
}

static bool has_room(const char *place)
{
	struct statvfs status;

	return statvfs(place, &status) == 0 && (uint64_t)status.f_bavail * status.f_frsize >= DISK_BYTES;
}

/* Validators clone what anybody may read; with ssh, this machine's keys would be offered to a stranger. */
static bool is_cloneable(const struct judge *judge, const char *url)
{
	return !strncmp(url, "https://", 8) || !strncmp(url, "http://", 7) ||
		(judge->local_forks && (url[0] == '/' || !strncmp(url, "file://", 7)));
}

/* Adds the check "clone". Once more when the network fails: a hiccup must not cost a submission. */
static int clone_fork(const struct judge *judge, const struct api_submission *submission, const char *place,
	const char *path, struct check_list *checks, struct error *err)
{
	const struct fork_remote remote = {.allow_local = judge->local_forks,
		.reach = judge->reach,
		.timeout = CLONE_SECONDS,
		.max_bytes = CLONE_BYTES};
	int attempts = 0, result;

	if (!is_cloneable(judge, submission->fork_url)) {
		check_add(checks, "clone", CHECK_FAIL, NULL, "%s is not a URL that validators clone",
			submission->fork_url);
		return 0;
	}
	do
		result = fork_clone(submission->fork_url, path, submission->commit_hash, &remote, err);
	while (result && err->status == STATUS_NETWORK && attempts++ == 0);
	if (!result)
		check_add(checks, "clone", CHECK_OK, NULL, "%s at %.12s", submission->fork_url,
			submission->commit_hash);
	else if (err->status == STATUS_INTERRUPTED || (err->status == STATUS_ENVIRONMENT && !has_room(place)))
		return -1;
	else
		check_add(checks, "clone", CHECK_FAIL, NULL, "%s", err->message);
	return 0;
}

static char *clone_path(const struct verdict *verdict)
{
	return path_join(verdict->place, "fork");
}

int judge_examine(const struct judge *judge, const struct api_submission *submission, struct verdict *verdict,
	struct error *err)
{
	struct check_list *checks = &verdict->checks;
	int result = 0;
	char *path;

	*verdict = (struct verdict){.checks.report = judge->report, .tokens_per_second = NAN};
	check_terms(submission, checks);
	if (!first_failure(checks)) {
		verdict->place = make_place(err);
		if (!verdict->place)
			return -1;
		path = clone_path(verdict);
		result = clone_fork(judge, submission, verdict->place, path, checks, err);
		if (!result && !first_failure(checks))
			result = inspect_fork(path,
				&(struct inspect_options){.rules = judge->rules, .python = judge->reader},
				checks, err);
		free(path);
	}
	verdict->reason = first_failure(checks);
	verdict->invalid = verdict->reason != NULL;
	return result;
}

/* --- the benchmark ----------------------------------------------------------------------------- */

static int by_length(const void *left, const void *right)
{
	int64_t a = *(const int64_t *)left, b = *(const int64_t *)right;

	return a < b ? -1 : a > b;
}

/* The target, and the lengths that the submission gives numbers for; without any, 512, 1024 and 2048. */
static int choose_lengths(const struct api_submission *submission, int64_t lengths[JUDGE_LENGTHS])
{
	static const int64_t usual[] = {512, 1024, 2048};
	const cJSON *benchmark;
	int count = 0, distinct = 0;

	cJSON_ArrayForEach (benchmark, submission->benchmarks) {
		int64_t length;

		if (count < JUDGE_LENGTHS - 1 && number_parse_integer(benchmark->string, &length) == 0 &&
			length > 0)
			lengths[count++] = length;
	}
	if (!count) {
		memcpy(lengths, usual, sizeof(usual));
		count = sizeof(usual) / sizeof(*usual);
	}
	lengths[count++] = submission->target_sequence_length;
	qsort(lengths, (size_t)count, sizeof(*lengths), by_length);
	for (int i = 0; i < count; i++)
		if (!i || lengths[i] != lengths[distinct - 1])
			lengths[distinct++] = lengths[i];
	return distinct;
}

/* MiB that so many tokens will take, by what it took so far; 0 or NAN when that tells nothing. */
static double memory_needed(const struct judge *judge, const struct verdict *verdict, int64_t tokens)
{
	const int last = verdict->benchmark_count - 1;
	double slope;

	if (!judge->python)
		return measure_memory(WORKLOAD_LAYER, tokens);
	if (last < 1)
		return 0;
	slope = (verdict->benchmarks[last].measurement.memory_mb -
			verdict->benchmarks[0].measurement.memory_mb) /
		(double)(verdict->benchmarks[last].tokens - verdict->benchmarks[0].tokens);
	return verdict->benchmarks[last].measurement.memory_mb +
		slope * (double)(tokens - verdict->benchmarks[last].tokens);
}

/* Can it be measured here? On a GPU it has to be. A CPU is not what forks are made for: there a length that memory or
 * time will not do for is left out. */
static bool is_feasible(const struct judge *judge, const struct verdict *verdict, int64_t tokens)
{
	const struct measurement *last = verdict->benchmark_count
		? &verdict->benchmarks[verdict->benchmark_count - 1].measurement
		: NULL;
	const int calls = judge->python ? MEASURE_WARMUPS + MEASURE_RUNS
					: 2; /* our own may make do with less */

	if (judge->python && judge->device.index >= 0)
		return true;
	return tokens <= MOST_TOKENS &&
		!(memory_needed(judge, verdict, tokens) > 0.8 * memory_available() / judge->share) &&
		(!last || calls * (double)tokens / last->tokens_per_second < judge->seconds);
}

static int measure_native(
	const struct judge *judge, int64_t tokens, struct measurement *measurement, struct error *err)
{
	const struct measure_plan plan = {
		.workload = WORKLOAD_LAYER,
		.semantics = SEMANTICS_UPSTREAM,
		.tokens = tokens,
		.warmups = MEASURE_WARMUPS,
		.runs = MEASURE_RUNS,
		.budget = judge->seconds,
		.seed = 1,
	};

	return judge->measure(&judge->device, &plan, measurement, err);
}

/* Of a call. The process's own clock is what validators read; where it tells less than ours, ours counts. */
static double seconds_of(const struct probe_times *times)
{
	double process = times->process[0], own = times->own[0];
	bool agree = own < (1 + CLOCKS_APART) * process + LINE_SECONDS && own < 2 * process;

	return (agree ? process : own) / times->calls;
}

/* In a process of its own, as validators do. */
static int measure_fork(const struct judge *judge, const struct verdict *verdict, int64_t tokens,
	struct measurement *measurement, struct error *err)
{
	const struct sandbox_options sandbox = {
		.places = (const char *const *)judge->python->places, .share = judge->share};
	const struct probe_timing timing = {
		.tokens = tokens, .warmups = MEASURE_WARMUPS, .calls = MEASURE_RUNS, .rounds = 1};
	char *fork = clone_path(verdict), *script = xprintf(PROBE_SCRIPT, (long long)tokens);
	struct probe_times times;
	struct probe *probe = probe_open(
		&(struct probe_options){
			.fork = fork,
			.python = judge->python->path,
			.script = script,
			.gpu = judge->device.index,
			.seconds = judge->seconds,
			.sandbox = judge->sandboxed ? &sandbox : NULL,
		},
		err);
	int result = probe && probe_load(probe, err) == 0 ? probe_time(probe, &timing, &times, err) : -1;

	if (!result) {
		double seconds = seconds_of(&times);

		*measurement = (struct measurement){
			.warmups = MEASURE_WARMUPS,
			.runs = MEASURE_RUNS,
			.seconds = seconds,
			.tokens_per_second = (double)tokens / seconds,
			.memory_mb = times.memory_mb,
		};
	} else if (probe && judge->device.index < 0 && err->status == STATUS_FAILED &&
		probe_needs_gpu(probe)) {
		err->status = STATUS_ENVIRONMENT;
		error_context(err, "the fork needs a GPU, and this machine judges on the CPU");
	}
	probe_close(probe);
	free(script);
	free(fork);
	return result;
}

/* The benchmark of a submission as it goes on. */
struct course {
	const struct judge *judge;
	struct verdict *verdict;
	struct buffer text; /* "512: 1,234 tokens/s; …" */
	int left_out, failed;
};

/* Measures one length. -1 also when the fork failed there, with STATUS_FAILED. */
static int measure_length(struct course *course, int64_t tokens, struct error *err)
{
	struct verdict *verdict = course->verdict;
	struct measurement *measurement = &verdict->benchmarks[verdict->benchmark_count].measurement;
	int result = course->judge->python ? measure_fork(course->judge, verdict, tokens, measurement, err)
					   : measure_native(course->judge, tokens, measurement, err);
	char length[48], speed[48];

	number_grouped((double)tokens, length);
	buffer_printf(&course->text, "%s%s: ", course->text.length ? "; " : "", length);
	if (result) {
		buffer_text(&course->text, err->message);
		return -1;
	}
	number_grouped(round(measurement->tokens_per_second), speed);
	buffer_printf(&course->text, "%s tokens/s", speed);
	verdict->benchmarks[verdict->benchmark_count++].tokens = tokens;
	return 0;
}

/* From the shortest length to the longest. A fork that fails somewhere has failed only if that is the target, for
 * validators score by nothing else: there it gets its chance at once. */
static int measure_lengths(struct course *course, const struct api_submission *submission, struct error *err)
{
	int64_t lengths[JUDGE_LENGTHS];
	const int count = choose_lengths(submission, lengths);

	for (int i = 0; i < count; i++) {
		bool counts = lengths[i] == submission->target_sequence_length;

		if (course->failed && !counts)
			continue;
		if (!is_feasible(course->judge, course->verdict, lengths[i]))
			course->left_out++;
		else if (measure_length(course, lengths[i], err) == 0)
			continue;
		else if (counts || err->status != STATUS_FAILED)
			return -1;
		else
			course->failed++;
	}
	return course->verdict->benchmark_count ? 0 : measure_length(course, FALLBACK_LENGTH, err);
}

/* Adds the check "benchmark". */
static int benchmark(const struct judge *judge, const struct api_submission *submission,
	struct verdict *verdict, struct error *err)
{
	struct course course = {.judge = judge, .verdict = verdict};
	int result = measure_lengths(&course, submission, err);
	bool failed = result && err->status == STATUS_FAILED;

	if (course.left_out)
		buffer_printf(&course.text, "; %d longer skipped: they do not fit into memory or time",
			course.left_out);
	if (!judge->python)
		buffer_text(&course.text, STAND_IN);
	if (!result || failed)
		check_add(&verdict->checks, "benchmark",
			failed                                     ? CHECK_FAIL
				: course.left_out || course.failed ? CHECK_WARN
								   : CHECK_OK,
			course.left_out ? "Allow more time with --budget SECONDS." : NULL, "%s",
			course.text.data);
	buffer_free(&course.text);
	return failed ? 0 : result;
}

/* The speed at the target, or at the longest length measured, which `where` then says. */
static double speed_that_counts(
	const struct api_submission *submission, const struct verdict *verdict, char where[64])
{
	const int last = verdict->benchmark_count - 1;
	char length[48];

	where[0] = '\0';
	for (int i = 0; i < last; i++)
		if (verdict->benchmarks[i].tokens == submission->target_sequence_length)
			return verdict->benchmarks[i].measurement.tokens_per_second;
	number_grouped((double)verdict->benchmarks[last].tokens, length);
	if (verdict->benchmarks[last].tokens < submission->target_sequence_length)
		snprintf(where, 64, " at %s", length);
	return verdict->benchmarks[last].measurement.tokens_per_second;
}

/* The score is how well the speed bears the claim out; half of it is told. Adds the check "claim". */
static void score_the_claim(
	const struct judge *judge, const struct api_submission *submission, struct verdict *verdict)
{
	char claimed[48], measured[48], where[64];
	double actual = speed_that_counts(submission, verdict, where);

	/* next to nothing may be claimed: what cannot be told must keep no other verdict from being told */
	verdict->score = fmin(score_claim(actual, submission->tokens_per_sec), DBL_MAX);
	verdict->told_score = fmin(verdict->score / 2, 1);
	number_grouped(submission->tokens_per_sec, claimed);
	number_grouped(round(actual), measured);
	check_add(&verdict->checks, "claim", verdict->score > 0 ? CHECK_OK : CHECK_FAIL, NULL,
		"%s tokens/s measured%s, %s claimed: score %.4f%s%s", measured, where, claimed,
		verdict->score, verdict->score > 0 ? "" : ", below 90 % of the claim",
		judge->python ? "" : STAND_IN);
}

/* Whatever runs scores 1. Adds the check "claim". */
static void score_the_speed(
	const struct judge *judge, const struct api_submission *submission, struct verdict *verdict)
{
	char claimed[48], measured[48], normalised[48], where[64];
	double actual = speed_that_counts(submission, verdict, where);
	bool overclaims;

	verdict->tokens_per_second = actual / judge->gpu_factor;
	verdict->score = verdict->told_score = 1;
	overclaims = score_overclaims(submission->tokens_per_sec, verdict->tokens_per_second);
	number_grouped(submission->tokens_per_sec, claimed);
	number_grouped(round(actual), measured);
	number_grouped(round(verdict->tokens_per_second), normalised);
	check_add(&verdict->checks, "claim", overclaims ? CHECK_WARN : CHECK_OK, NULL,
		"%s tokens/s measured%s, %s normalised (by %g), %s claimed%s%s", measured, where, normalised,
		judge->gpu_factor, claimed, overclaims ? ": so far above that it flags the miner" : "",
		judge->python ? "" : STAND_IN);
}

int judge_measure(const struct judge *judge, const struct api_submission *submission, struct verdict *verdict,
	struct error *err)
{
	if (verdict->invalid)
		return 0;
	if (benchmark(judge, submission, verdict, err) < 0)
		return -1;
	verdict->invalid = first_failure(&verdict->checks) != NULL;
	if (!verdict->invalid && judge->ranks_measured)
		score_the_speed(judge, submission, verdict);
	else if (!verdict->invalid)
		score_the_claim(judge, submission, verdict);
	verdict->reason = first_failure(&verdict->checks);
	return 0;
}

void verdict_free(struct verdict *verdict)
{
	struct error cleanup;

	if (verdict->place && directory_remove(verdict->place, &cleanup) < 0)
		log_warn("%s", cleanup.message);
	free(verdict->place);
	check_free(&verdict->checks);
}
