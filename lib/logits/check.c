#include "logits/check.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/buffer.h"
#include "base/memory.h"
#include "logits/responder.h"

static const char *const kind_names[] = {[CHALLENGE_2026_02] = "2026-02", [CHALLENGE_2026_04] = "2026-04"};

#define KINDS 2

/* A plan under way. */
struct work {
	const struct logits_plan *plan;
	struct challenge *challenges;
	struct challenge_answer *references;
	int count;
};

static void show_progress(void *context, int done)
{
	const struct work *work = context;

	if (work->plan->progress)
		work->plan->progress(work->plan->context, done, work->count * work->challenges[0].length);
}

static int make_challenges(struct work *work, struct error *err)
{
	const struct logits_plan *plan = work->plan;

	for (int kind = 0; kind < KINDS; kind++)
		for (int i = 0; plan->kinds[kind] && i < plan->count; i++) {
			if (challenge_make((enum challenge_kind)kind, model_info(plan->reference), plan->seed,
				    work->count, &work->challenges[work->count], err) < 0)
				return -1;
			work->count++;
		}
	return 0;
}

static int check_health(const struct logits_plan *plan, struct check_list *checks, struct error *err)
{
	int result = responder_wait(plan->url, RESPONDER_HEALTH_SECONDS, plan->starting, err);

	if (result && err->status == STATUS_FAILED) {
		check_problem(checks, "logits.health", CHECK_FAIL, err);
		return 1;
	}
	if (!result)
		check_add(checks, "logits.health", CHECK_OK, NULL, "%s is healthy", plan->url);
	return result;
}

/* 1: no answer that could be judged, for the reason in `err`. */
static int get_answer(const struct work *work, int number, struct challenge_answer *answer, struct error *err)
{
	const struct logits_plan *plan = work->plan;
	const struct challenge *challenge = &work->challenges[number];
	int result = plan->url
		? responder_ask(plan->url, challenge, model_info(plan->reference)->vocabulary, answer, err)
		: challenge_run(plan->model, challenge, 1, answer, NULL, NULL, err);

	return result && (err->status == STATUS_FAILED || err->status == STATUS_NETWORK) ? 1 : result;
}

/* "steps 17, 203, 444: cosine 0.999998, difference 0.0012 of 18.2; 512 tokens the same; 1812 tokens/s" */
static char *describe(const struct challenge *challenge, const struct challenge_verdict *verdict)
{
	struct buffer text = {0};

	for (int i = 0; i < challenge->step_count; i++)
		buffer_printf(&text, "%s%d",
			i                                   ? ", "
				: challenge->step_count > 1 ? "steps "
							    : "step ",
			challenge->steps[i]);
	buffer_text(&text, ": ");
	if (verdict->reason[0])
		buffer_printf(&text, "%s; ", verdict->reason);
	else
		buffer_printf(&text, "cosine %.6f, difference %.3g (largest logit %.3g); ", verdict->cosine,
			verdict->difference, verdict->largest);
	if (verdict->diverges)
		buffer_printf(&text,
			"another token at step %d, where the reference's best two are %.3g apart",
			verdict->diverges, (double)verdict->margin);
	else
		buffer_printf(&text, "all %d tokens the same", challenge->length);
	buffer_printf(&text, "; %.*f tokens/s", verdict->tokens_per_second < 100 ? 1 : 0,
		verdict->tokens_per_second);
	return text.data;
}

static void report(const struct work *work, const struct challenge *challenge, const char *name,
	const struct challenge_verdict *verdict, struct check_list *checks)
{
	/* where the best two are that far apart, no difference that is allowed can have swapped them */
	bool odd = verdict->diverges && verdict->margin > 2 * work->plan->limits.difference;
	char *text = describe(challenge, verdict);

	check_add(checks, name,
		!verdict->accepted ? CHECK_FAIL
			: odd      ? CHECK_WARN
				   : CHECK_OK,
		NULL, "%s", text);
	free(text);
}

static void take_worst(struct logits_result *result, const struct challenge_verdict *verdict)
{
	result->accepted &= verdict->accepted;
	result->cosine = fmin(result->cosine, verdict->cosine); /* of NAN and a number, the number */
	result->difference = fmax(result->difference, verdict->difference);
	result->tokens_per_second = fmin(result->tokens_per_second, verdict->tokens_per_second);
}

static int challenge_one(const struct work *work, int number, struct check_list *checks,
	struct logits_result *result, struct error *err)
{
	const struct challenge *challenge = &work->challenges[number];
	struct challenge_answer answer = {0};
	struct challenge_verdict verdict;
	char name[48];
	int got = get_answer(work, number, &answer, err);

	snprintf(name, sizeof(name), "logits.%s.%d", kind_names[challenge->kind],
		number % work->plan->count + 1);
	if (got == 1) {
		check_problem(checks, name, CHECK_FAIL, err);
		result->accepted = false;
	} else if (!got) {
		challenge_judge(challenge, &answer, &work->references[number], &work->plan->limits, &verdict);
		report(work, challenge, name, &verdict, checks);
		take_worst(result, &verdict);
	}
	challenge_answer_free(&answer);
	return got < 0 ? -1 : 0;
}

int logits_check(const struct logits_plan *plan, struct check_list *checks, struct logits_result *result,
	struct error *err)
{
	struct work work = {
		.plan = plan,
		.challenges = xcalloc((size_t)(KINDS * plan->count), sizeof(*work.challenges)),
		.references = xcalloc((size_t)(KINDS * plan->count), sizeof(*work.references)),
	};
	int done = make_challenges(&work, err);

	*result = (struct logits_result){
		.accepted = true, .cosine = NAN, .difference = NAN, .tokens_per_second = NAN};
	if (!done && plan->url)
		done = check_health(plan, checks, err);
	if (!done)
		done = challenge_run(plan->reference, work.challenges, work.count, work.references,
			show_progress, &work, err);
	for (int i = 0; !done && i < work.count; i++)
		done = challenge_one(&work, i, checks, result, err);
	result->accepted &= !done;
	for (int i = 0; i < work.count; i++)
		challenge_answer_free(&work.references[i]);
	free(work.references);
	free(work.challenges);
	return done < 0 ? -1 : 0;
}
