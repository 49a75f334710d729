#include "validator/judge.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/number.h"
#include "fork/fork.h"
#include "fork/inspect.h"
#include "score/score.h"

#define CLONE_SECONDS 120
#define CLONE_BYTES ((uint64_t)512 << 20)
#define DISK_BYTES ((uint64_t)1 << 30) /* with less room, a failed clone may be this machine's fault */
#define FALLBACK_LENGTH 2048           /* measured when nothing that was asked for can be */

/* The detail of the first check that failed, or NULL. */
static const char *first_failure(const struct check_list *checks)
{
	for (size_t i = 0; i < checks->count; i++)
		if (checks->items[i].status == CHECK_FAIL)
			return checks->items[i].detail;
	return NULL;
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

/* Clone and import check. */
static int examine(const struct judge *judge, const struct api_submission *submission,
	struct check_list *checks, struct error *err)
{
	char *place = make_place(err), *path;
	struct error cleanup;
	int result;

	if (!place)
		return -1;
	path = path_join(place, "fork");
	result = clone_fork(judge, submission, place, path, checks, err);
	if (!result && !first_failure(checks))
		result = inspect_fork(path, &(struct inspect_options){0}, checks, err);
	if (directory_remove(place, &cleanup) < 0)
		log_warn("%s", cleanup.message);
	free(path);
	free(place);
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

/* Can it be measured in the seconds left? Judged by the speed at the length before. */
static bool is_feasible(const struct verdict *verdict, int64_t tokens, double seconds)
{
	const struct measurement *last = verdict->benchmark_count
		? &verdict->benchmarks[verdict->benchmark_count - 1].measurement
		: NULL;

	return tokens <= MOST_TOKENS && measure_memory(WORKLOAD_LAYER, tokens) < 0.9 * memory_available() &&
		(!last || 2 * (double)tokens / last->tokens_per_second < seconds);
}

static int measure(
	const struct judge *judge, int64_t tokens, double budget, struct verdict *verdict, struct error *err)
{
	const struct measure_plan plan = {
		.workload = WORKLOAD_LAYER,
		.semantics = SEMANTICS_UPSTREAM,
		.tokens = tokens,
		.warmups = MEASURE_WARMUPS,
		.runs = MEASURE_RUNS,
		.budget = budget,
		.seed = 1,
	};
	int result;

	result = judge->measure(
		&judge->device, &plan, &verdict->benchmarks[verdict->benchmark_count].measurement, err);
	if (!result)
		verdict->benchmarks[verdict->benchmark_count++].tokens = tokens;
	return result;
}

/* "512: 1,234 tokens/s, …" */
static void describe(const struct verdict *verdict, struct buffer *text)
{
	for (int i = 0; i < verdict->benchmark_count; i++) {
		char length[48], speed[48];

		number_grouped((double)verdict->benchmarks[i].tokens, length);
		number_grouped(round(verdict->benchmarks[i].measurement.tokens_per_second), speed);
		buffer_printf(text, "%s%s: %s tokens/s", i ? "; " : "", length, speed);
	}
}

/* Measures from the shortest length to the longest, and adds the check "benchmark". */
static int benchmark(const struct judge *judge, const struct api_submission *submission,
	struct verdict *verdict, struct error *err)
{
	int64_t lengths[JUDGE_LENGTHS];
	int count = choose_lengths(submission, lengths), left_out = 0;
	double end = clock_elapsed() + judge->budget;
	struct buffer text = {0};

	for (int i = 0; i < count; i++) {
		double left = end - clock_elapsed();

		if (!is_feasible(verdict, lengths[i], left))
			left_out++;
		else if (measure(judge, lengths[i], fmax(left, 0.1) / (count - i), verdict, err) < 0)
			return -1;
	}
	if (!verdict->benchmark_count && measure(judge, FALLBACK_LENGTH, judge->budget, verdict, err) < 0)
		return -1;
	describe(verdict, &text);
	if (left_out)
		buffer_printf(&text, "; %d longer skipped: they do not fit into memory or time", left_out);
	check_add(&verdict->checks, "benchmark", left_out ? CHECK_WARN : CHECK_OK,
		left_out ? "Allow more time with --budget SECONDS." : NULL, "%s", text.data);
	buffer_free(&text);
	return 0;
}

/* The score rule, by the speed at the target, or at the longest length measured. Adds the check "claim". */
static void score(const struct api_submission *submission, struct verdict *verdict)
{
	const int last = verdict->benchmark_count - 1;
	double actual = verdict->benchmarks[last].measurement.tokens_per_second;
	char claimed[48], measured[48], length[48];

	for (int i = 0; i < last; i++)
		if (verdict->benchmarks[i].tokens == submission->target_sequence_length)
			actual = verdict->benchmarks[i].measurement.tokens_per_second;
	verdict->score = score_claim(actual, submission->tokens_per_sec);
	number_grouped(submission->tokens_per_sec, claimed);
	number_grouped(round(actual), measured);
	number_grouped((double)verdict->benchmarks[last].tokens, length);
	check_add(&verdict->checks, "claim", verdict->score > 0 ? CHECK_OK : CHECK_FAIL, NULL,
		"%s tokens/s measured%s%s, %s claimed: score %.4f%s", measured,
		verdict->benchmarks[last].tokens < submission->target_sequence_length ? " at " : "",
		verdict->benchmarks[last].tokens < submission->target_sequence_length ? length : "", claimed,
		verdict->score, verdict->score > 0 ? "" : ", below 90 % of the claim");
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

int judge_submission(const struct judge *judge, const struct api_submission *submission,
	struct verdict *verdict, struct error *err)
{
	int result = 0;

	*verdict = (struct verdict){.checks.report = judge->report};
	check_terms(submission, &verdict->checks);
	if (!first_failure(&verdict->checks))
		result = examine(judge, submission, &verdict->checks, err);
	verdict->invalid = first_failure(&verdict->checks) != NULL;
	if (!result && !verdict->invalid)
		result = benchmark(judge, submission, verdict, err);
	if (!result && !verdict->invalid)
		score(submission, verdict);
	verdict->reason = first_failure(&verdict->checks);
	return result;
}

double verdict_normalised(const struct verdict *verdict)
{
	return fmin(verdict->score / 2, 1);
}

void verdict_free(struct verdict *verdict)
{
	check_free(&verdict->checks);
}
