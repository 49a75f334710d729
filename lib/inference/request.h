/* request: what a validator asks of an inference server: tokens to go on from, how many to generate, and the steps
 * whose logits it wants to see. Step 1 is what follows the prompt. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "net/server.h"

/* Vectors of logits that one request may ask for. */
#define INFERENCE_STEPS_MOST 16

struct inference_limits {
	int vocabulary; /* tokens are 0 … vocabulary − 1 */
	int tokens;     /* of prompt and answer together */
};

struct inference_request {
	int32_t *prompt; /* at least one token */
	int prompt_length;
	int length;     /* tokens to generate; may be 0 */
	int32_t *steps; /* to capture: ascending, each once, within 1 … length */
	int step_count;
	bool several; /* it asked by `logits_at_steps`, and gets `captured_logits_multi` */
};

/* Reads the body of POST /inference. False: the reply is made (422), and there is nothing to free. */
bool inference_request_read(const struct server_request *request, const struct inference_limits *limits,
	struct inference_request *out, struct server_reply *reply);
void inference_request_free(struct inference_request *request);
