#include "logits/challenge.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/memory.h"
#include "tensor/random.h"

/* Below, validators take a vector for zero. */
#define LEAST_NORM 1e-9

#define FIRST_TOKEN 10 /* of a prompt; those before have special meanings */

/* Sessions side by side: more save little time, and take memory. */
#define SIDE_BY_SIDE 8

/* --- challenges ---------------------------------------------------------------------------------- */

/* Evenly distributed in least … most. */
static void draw(uint64_t seed, uint64_t stream, int least, int most, int *numbers, int count)
{
	float drawn[CHALLENGE_PROMPT];

	random_uniform(seed, stream, 0, 1, drawn, (size_t)count);
	for (int i = 0; i < count; i++)
		numbers[i] = least + (int)((double)drawn[i] * (most - least + 1));
}

static int by_value(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b;
}

/* Different ones, ascending. */
static void draw_steps(struct challenge *challenge, uint64_t seed, uint64_t stream)
{
	bool single = challenge->kind == CHALLENGE_2026_02;
	int most = single ? 50 : challenge->length - 1, *steps = challenge->steps, count = 0;

	most = most > challenge->length ? challenge->length : most < 1 ? 1 : most;
	challenge->step_count = single ? 1 : most < CHALLENGE_STEPS ? most : CHALLENGE_STEPS;
	while (count < challenge->step_count) {
		bool known = false;

		draw(seed, stream++, 1, most, &steps[count], 1);
		for (int i = 0; i < count; i++)
			known |= steps[i] == steps[count];
		count += !known;
	}
	qsort(steps, (size_t)count, sizeof(*steps), by_value);
}

int challenge_make(enum challenge_kind kind, const struct model_info *model, uint64_t seed, int number,
	struct challenge *challenge, struct error *err)
{
	int room = model->context - CHALLENGE_PROMPT;
	uint64_t stream = (uint64_t)number << 32;

	if (model->vocabulary <= FIRST_TOKEN || room < 1)
		return error_set(err, STATUS_ENVIRONMENT,
			"a model with %d tokens and a context of %d cannot be challenged: validators send prompts of %d",
			model->vocabulary, model->context, CHALLENGE_PROMPT);
	*challenge = (struct challenge){
		.kind = kind, .length = room < CHALLENGE_LENGTH ? room : CHALLENGE_LENGTH};
	draw(seed, stream, FIRST_TOKEN, model->vocabulary - 1, challenge->prompt, CHALLENGE_PROMPT);
	draw_steps(challenge, seed, stream + 1);
	return 0;
}

/* --- a model's answers --------------------------------------------------------------------------- */

/* A model's work at one challenge. */
struct course {
	const struct challenge *challenge;
	struct challenge_answer *answer;
	struct model_session *session;
	float *logits; /* of the step under way */
};

/* How far the best is above the second. */
static float margin(const float *logits, int count)
{
	float best = -INFINITY, second = -INFINITY;

	for (int i = 0; i < count; i++) {
		if (logits[i] > best) {
			second = best;
			best = logits[i];
		} else if (logits[i] > second) {
			second = logits[i];
		}
	}
	return best - second;
}

static bool is_done(const struct course *course)
{
	return course->answer->token_count == course->challenge->length;
}

static int course_begin(struct model *model, const struct challenge *challenge,
	struct challenge_answer *answer, struct course *course, struct error *err)
{
	*course = (struct course){
		.challenge = challenge,
		.answer = answer,
		.session = model_session_open(model, CHALLENGE_PROMPT + challenge->length, err),
		.logits = malloc((size_t)model_info(model)->vocabulary * sizeof(float)),
	};
	if (!course->logits)
		error_set(err, STATUS_ENVIRONMENT, "not enough memory for logits");
	return course->session && course->logits ? 0 : -1;
}

static void course_end(struct course *course)
{
	model_session_close(course->session);
	free(course->logits);
}

static struct model_piece next_piece(const struct course *course)
{
	const struct challenge_answer *answer = course->answer;
	bool begins = !answer->token_count;

	return (struct model_piece){
		.session = course->session,
		.tokens = begins ? course->challenge->prompt : &answer->tokens[answer->token_count - 1],
		.count = begins ? CHALLENGE_PROMPT : 1,
		.predicts = true,
		.logits = course->logits,
	};
}

static int keep(struct course *course, const struct model_piece *piece, int vocabulary, struct error *err)
{
	const struct challenge *challenge = course->challenge;
	struct challenge_answer *answer = course->answer;
	int step = answer->token_count + 1;

	if (piece->next < 0)
		return error_set(err, STATUS_FAILED, "the model's logits are not finite at step %d", step);
	for (int i = 0; i < challenge->step_count; i++) {
		if (challenge->steps[i] != step)
			continue;
		answer->logits[i] = malloc((size_t)vocabulary * sizeof(float));
		if (!answer->logits[i])
			return error_set(err, STATUS_ENVIRONMENT, "not enough memory for logits");
		memcpy(answer->logits[i], course->logits, (size_t)vocabulary * sizeof(float));
		answer->logit_count[i] = vocabulary;
	}
	answer->margins[step - 1] = margin(course->logits, vocabulary);
	answer->tokens[answer->token_count++] = piece->next;
	return 0;
}

/* One step of all that are not done. Returns how many took part, or -1. */
static int advance(struct model *model, struct course *courses, int count, struct error *err)
{
	struct model_piece pieces[SIDE_BY_SIDE];
	struct course *taking[SIDE_BY_SIDE];
	int taken = 0, tokens = 0;

	for (int i = 0; i < count; i++) {
		struct model_piece piece;

		if (is_done(&courses[i]))
			continue;
		piece = next_piece(&courses[i]);
		if (tokens + piece.count > MODEL_STEP_TOKENS)
			continue;
		tokens += piece.count;
		taking[taken] = &courses[i];
		pieces[taken++] = piece;
	}
	if (taken && model_step(model, pieces, taken, interrupted, err) < 0)
		return -1;
	for (int i = 0; i < taken; i++)
		if (keep(taking[i], &pieces[i], model_info(model)->vocabulary, err) < 0)
			return -1;
	return taken;
}

/* Who wants to know how far it has come, and how far that is. */
struct pace {
	challenge_progress *progress;
	void *context;
	int done;
};

static int run_side_by_side(struct model *model, const struct challenge *challenges, int count,
	struct challenge_answer *answers, struct pace *pace, struct error *err)
{
	struct course courses[SIDE_BY_SIDE] = {0};
	double started = clock_elapsed();
	int taken = 0;

	for (int i = 0; i < count && taken >= 0; i++)
		taken = course_begin(model, &challenges[i], &answers[i], &courses[i], err);
	if (!taken)
		while ((taken = advance(model, courses, count, err)) > 0) {
			pace->done += taken;
			if (pace->progress)
				pace->progress(pace->context, pace->done);
		}
	for (int i = 0; i < count; i++) {
		answers[i].seconds = clock_elapsed() - started;
		course_end(&courses[i]);
	}
	return taken;
}

int challenge_run(struct model *model, const struct challenge *challenges, int count,
	struct challenge_answer *answers, challenge_progress *progress, void *context, struct error *err)
{
	struct pace pace = {progress, context, 0};

	memset(answers, 0, (size_t)count * sizeof(*answers));
	for (int first = 0; first < count; first += SIDE_BY_SIDE) {
		int together = count - first < SIDE_BY_SIDE ? count - first : SIDE_BY_SIDE;

		if (run_side_by_side(model, challenges + first, together, answers + first, &pace, err) < 0)
			return -1;
	}
	return 0;
}

void challenge_answer_free(struct challenge_answer *answer)
{
	for (int i = 0; i < CHALLENGE_STEPS; i++)
		free(answer->logits[i]);
	*answer = (struct challenge_answer){0};
}

/* --- judging ------------------------------------------------------------------------------------- */

static double norm(const float *x, int count)
{
	double sum = 0;

	for (int i = 0; i < count; i++)
		sum += (double)x[i] * (double)x[i];
	return sqrt(sum);
}

static void find_divergence(const struct challenge_answer *answer, const struct challenge_answer *reference,
	struct challenge_verdict *verdict)
{
	for (int i = 0; i < reference->token_count && !verdict->diverges; i++)
		if (i >= answer->token_count || answer->tokens[i] != reference->tokens[i]) {
			verdict->diverges = i + 1;
			verdict->margin = reference->margins[i];
		}
}

/* Fills in the reason when a step does not do. */
static void judge_step(const struct challenge *challenge, const struct challenge_answer *answer,
	const struct challenge_answer *reference, int index, const struct challenge_limits *limits,
	struct challenge_verdict *verdict)
{
	const float *theirs = answer->logits[index], *ours = reference->logits[index];
	int count = reference->logit_count[index], step = challenge->steps[index];
	struct comparison *found = &verdict->steps[index];

	if (!theirs) {
		snprintf(verdict->reason, sizeof(verdict->reason), "no logits of step %d", step);
		return;
	}
	if (answer->logit_count[index] != count) {
		snprintf(verdict->reason, sizeof(verdict->reason), "%d logits at step %d instead of %d",
			answer->logit_count[index], step, count);
		return;
	}
	*found = compare_float(theirs, ours, (size_t)count);
	if (!found->finite || norm(theirs, count) < LEAST_NORM || norm(ours, count) < LEAST_NORM) {
		snprintf(verdict->reason, sizeof(verdict->reason), "the logits of step %d are %s", step,
			found->finite ? "all zero" : "not all finite");
		return;
	}
	for (int i = 0; i < count; i++)
		verdict->largest = fmax(verdict->largest, fabs((double)ours[i]));
	verdict->cosine = fmin(isnan(verdict->cosine) ? 1 : verdict->cosine, found->cosine);
	verdict->difference = fmax(
		isnan(verdict->difference) ? 0 : verdict->difference, found->max_difference);
	if (found->cosine < limits->cosine)
		snprintf(verdict->reason, sizeof(verdict->reason), "cosine %.6f at step %d, below %g",
			found->cosine, step, limits->cosine);
	else if (found->max_difference > limits->difference)
		snprintf(verdict->reason, sizeof(verdict->reason), "difference %.4g at step %d, above %g",
			found->max_difference, step, limits->difference);
}

void challenge_judge(const struct challenge *challenge, const struct challenge_answer *answer,
	const struct challenge_answer *reference, const struct challenge_limits *limits,
	struct challenge_verdict *verdict)
{
	*verdict = (struct challenge_verdict){.cosine = NAN,
		.difference = NAN,
		.tokens_per_second = answer->seconds > 0 ? challenge->length / answer->seconds : NAN};
	for (int i = 0; i < challenge->step_count && !verdict->reason[0]; i++)
		judge_step(challenge, answer, reference, i, limits, verdict);
	verdict->accepted = !verdict->reason[0];
	find_divergence(answer, reference, verdict);
}
