/* engine: one model that many requests share. Its thread loads the model, and then takes all requests that run a step
 * further together, prompts and single tokens mixed; requests come and go between steps (continuous batching). */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"
#include "model/model.h"

struct engine_options {
	const char *model, *device; /* as model_open() takes them */
	int batch;                  /* requests that run at a time, 1 … MODEL_STEP_TOKENS */
	int queue;                  /* requests that wait beside them, at most */
};

enum generation_end {
	GENERATION_DONE,
	GENERATION_ABANDONED,  /* nobody wants it any more */
	GENERATION_CROWDED,    /* there is no memory for it */
	GENERATION_STOPPED,    /* the engine stops */
	GENERATION_NOT_FINITE, /* the model's logits are not */
	GENERATION_FAILED,     /* what failed has been logged */
};

/* A request's way through the engine. What it points to is its owner's, and stays until `ended` is called. */
struct generation {
	const int32_t *prompt; /* of the vocabulary, at least one */
	int prompt_length;
	int length;           /* tokens to generate, at least one; with the prompt within info.context */
	const int32_t *steps; /* whose logits are wanted: ascending, each once, within 1 … length */
	int step_count;
	int32_t *tokens; /* [length], gets what is generated */
	float *logits;   /* [step_count][vocabulary], gets what is wanted */

	/* Both are called in the engine's thread. `wanted` is asked before every step. `ended` is called once for
	 * what was submitted, and may free the generation. */
	bool (*wanted)(struct generation *generation);
	void (*ended)(struct generation *generation, enum generation_end end);

	/* the engine's; the times are those of clock_elapsed() */
	double submitted, started, first_token, finished;
	struct model_session *session;
	int prompt_taken, generated, captured;
	struct generation *next;
};

struct engine_counts {
	int running, waiting;
	int64_t steps, prompt_tokens, generated_tokens;
};

struct engine;

/* Looks for the model. STATUS_USAGE or STATUS_ENVIRONMENT when it is not there, with what to do. */
struct engine *engine_open(const struct engine_options *options, struct error *err);

/* Begins to load it. STATUS_ENVIRONMENT. */
int engine_load(struct engine *engine, struct error *err);

/* An eventfd: readable when the model is loaded or cannot be, and when it is lost later. */
int engine_event(const struct engine *engine);

/* 1: loaded, 0: loading, -1: it cannot be, as model_open() says it, or is lost, as model_step() says it. */
int engine_loaded(struct engine *engine, struct error *err);

/* NULL until it is loaded. */
const struct model_info *engine_info(struct engine *engine);

/* False, and `ended` will not be called, when too many wait, or the engine is not loaded or stops. */
bool engine_submit(struct engine *engine, struct generation *generation);

void engine_counts(struct engine *engine, struct engine_counts *counts);

/* Takes no more, and finishes what it has, for at most so many seconds and a step; then ends the rest. */
void engine_stop(struct engine *engine, double seconds);

/* NULL is fine. */
void engine_close(struct engine *engine);
