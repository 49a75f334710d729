/* challenge: what validators ask of an inference server, and how they judge what it says. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"
#include "tensor/compare.h"

#define CHALLENGE_PROMPT 128
#define CHALLENGE_LENGTH 512 /* tokens to be generated */
#define CHALLENGE_STEPS 3

/* Which version of the validators' protocol: one step in the first 50, or three anywhere. */
enum challenge_kind { CHALLENGE_2026_02, CHALLENGE_2026_04 };

struct challenge {
	enum challenge_kind kind;
	int32_t prompt[CHALLENGE_PROMPT];
	int length;                 /* tokens to be generated */
	int steps[CHALLENGE_STEPS]; /* whose logits are wanted, ascending; 1: what follows the prompt */
	int step_count;
};

struct challenge_answer {
	int32_t tokens[CHALLENGE_LENGTH];
	int token_count;
	float *logits[CHALLENGE_STEPS]; /* [logit_count[…]] each, of the challenge's steps; NULL: none */
	int logit_count[CHALLENGE_STEPS];
	float margins[CHALLENGE_LENGTH]; /* of a model's answer: how far the best token is above the second */
	double seconds;
};

/* What validators demand. */
struct challenge_limits {
	double cosine, difference;
};

struct challenge_verdict {
	bool accepted;
	char reason[160];                         /* why it is not; else "" */
	struct comparison steps[CHALLENGE_STEPS]; /* of those before the reason */
	double cosine, difference;                /* the worst of them; NAN: none was compared */
	double largest;                           /* logit of the reference, in magnitude */
	int diverges; /* the first step, from 1, whose token is another one; 0: none */
	float margin; /* of the reference there */
	double tokens_per_second;
};

/* A random challenge for a model; the same seed and number give the same. It is shorter than CHALLENGE_LENGTH only if
 * the model's context is. STATUS_ENVIRONMENT: the model cannot take any. */
int challenge_make(enum challenge_kind kind, const struct model_info *model, uint64_t seed, int number,
	struct challenge *challenge, struct error *err);

/* How far challenge_run() has come, in tokens. */
typedef void challenge_progress(void *context, int done);

/* Has a model answer challenges, several side by side. -1: as model_step(); answers are to be freed in any case. */
int challenge_run(struct model *model, const struct challenge *challenges, int count,
	struct challenge_answer *answers, challenge_progress *progress, void *context, struct error *err);

/* Judges an answer by the reference's. Tokens are compared, but do not count. */
void challenge_judge(const struct challenge *challenge, const struct challenge_answer *answer,
	const struct challenge_answer *reference, const struct challenge_limits *limits,
	struct challenge_verdict *verdict);

/* Frees what the answer holds; the struct is the caller's. */
void challenge_answer_free(struct challenge_answer *answer);
