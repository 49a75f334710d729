/* inquiry: what the checks of a fork share, while they are made. */
#pragma once

#include "base/buffer.h"
#include "probe/checks.h"
#include "probe/expected.h"
#include "tensor/compare.h"

#define SHORT 512   /* tokens; where a fork is looked at closely, at little cost */
#define SHORTEST 64 /* where it is looked at many times */

#define MOST_SPEEDUP 2    /* by a name, or by having seen an input: noise stays below */
#define CHANCES 4         /* for noise to do so */
#define TIMED_SECONDS 0.3 /* of rounds that are compared with each other */

enum poison { POISON_NONE = 0, POISON_HUGE = 0x7f, POISON_NEGATIVE = 0xfe }; /* as bytes of any float */

struct inquiry {
	const struct checks_plan *plan;
	struct check_list *checks;
	struct checks_found *found;
	struct probe *probe;
	struct probe *elsewhere; /* under another name; NULL until it is needed, on one processor */
	bool loaded_elsewhere;
	int compiled; /* 0, or why there is no probe, or fork.compile fails: */
	struct error fault;
	struct expected *expected;
	const char *weights;
	size_t failures; /* before any of these checks */
	double started, seconds_per_token;
	float *x, *y;             /* of SHORT tokens: an input and its output */
	uint64_t stream;          /* of random numbers */
	enum semantics semantics; /* that it computes; only with found->function */
	/* found on the way, for checks that are made from several findings */
	char state_fault[200], timing_fault[300], lengths_fault[300];
};

/* The numbers of so many tokens. */
size_t inquiry_numbers(int64_t tokens);
/* Room for them; NULL: STATUS_ENVIRONMENT. */
float *inquiry_allocate(int64_t tokens, struct error *err);
/* New random numbers, never seen before. */
void inquiry_fill(struct inquiry *it, float *x, size_t count);

double inquiry_time_left(const struct inquiry *it);
/* Seconds of a call in the fastest round, by the slower of the clocks. */
double inquiry_fastest(const struct probe_times *times);

/* Whether two outputs are as near to each other as those of two runs have to be. */
bool inquiry_agree(const struct inquiry *it, const struct comparison *pair);
bool inquiry_same(const struct inquiry *it, const float *a, const float *b, int64_t tokens);

/* A call on an input of SHORT tokens. */
int inquiry_call(struct inquiry *it, const char *input, enum poison poison, float *out, struct error *err);

/* Opens a session as a validator would, or one under a name, in a place and with an environment that no
 * validator has. */
struct probe *inquiry_open_probe(const struct inquiry *it, const char *script, struct error *err);
struct probe *inquiry_open_probe_elsewhere(const struct inquiry *it, struct error *err);
/* The latter, with the layer in it and the other session's parameters; NULL on error. */
struct probe *inquiry_load_elsewhere(struct inquiry *it, struct error *err);

/* What one of the functions gives for x, to be freed, and how near an output comes to it. */
struct closeness {
	struct comparison all;
	double token_cosine; /* the worst token's */
};
int inquiry_expect(struct inquiry *it, enum semantics semantics, const float *x, int64_t tokens,
	struct expected_output *expected, struct error *err);
double inquiry_expect_seconds(const struct inquiry *it, int64_t tokens);
struct closeness inquiry_hold_against(const float *out, const double *reference, int64_t tokens);
bool inquiry_is_close(const struct closeness *found);

void inquiry_passed(struct inquiry *it, const char *name, const char *detail);
void inquiry_failed(struct inquiry *it, const char *name, const char *remedy, const char *detail);
/* Passed without a fault, which is text otherwise. */
void inquiry_conclude(
	struct inquiry *it, const char *name, const char *fault, const char *remedy, const char *detail);
/* Keeps the first fault, which tells most. */
void inquiry_blame(char *fault, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The checks, each in its file. They add what they find; -1 for what kept them from it, STATUS_FAILED when
 * that is the fork. */
int check_finite(struct inquiry *it, struct error *err); /* check_output.c */
int check_written(struct inquiry *it, struct error *err);
int check_repeat(struct inquiry *it, struct error *err);
int check_reference(struct inquiry *it, struct error *err);
int check_inputs(struct inquiry *it, struct error *err);
int check_gradient(struct inquiry *it, struct error *err); /* check_gradient.c */
int check_lengths(struct inquiry *it, struct error *err);  /* check_lengths.c */
int check_state(struct inquiry *it, struct error *err);    /* check_deceit.c */
int check_name(struct inquiry *it, struct error *err);
int check_memory(struct inquiry *it, struct error *err);
int check_timing(struct inquiry *it, struct error *err);

/* fork.name of a fork that fails as a validator runs it: whether it runs elsewhere. */
void try_elsewhere(struct inquiry *it);
