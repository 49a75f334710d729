/* responder: a miner's inference server, as validators talk to it. */
#pragma once

#include "logits/challenge.h"

/* Seconds that validators wait for a server to become healthy, and for an answer. */
#define RESPONDER_HEALTH_SECONDS 120
#define RESPONDER_ANSWER_SECONDS 300

/* Waits until the server at `url` says that it is healthy, at most so many seconds; `starting`: nobody need listen
 * there yet. STATUS_NETWORK: nobody answers; STATUS_FAILED: it does not get healthy, or says what no server says;
 * STATUS_INTERRUPTED. */
int responder_wait(const char *url, double seconds, bool starting, struct error *err);

/* Sends a challenge and reads the answer: tokens, and the logits that it has of the steps asked for. A server may
 * say anything; what is kept of it is bounded by what a model of that vocabulary has to say. The answer is to be
 * freed in any case. STATUS_NETWORK: no answer; STATUS_FAILED: none that can be read; STATUS_INTERRUPTED. */
int responder_ask(const char *url, const struct challenge *challenge, int vocabulary,
	struct challenge_answer *answer, struct error *err);

/* Reads an answer's text. STATUS_FAILED. */
int responder_read_answer(const char *text, size_t length, const struct challenge *challenge,
	struct challenge_answer *answer, struct error *err);
