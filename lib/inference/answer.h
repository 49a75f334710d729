/* answer: the JSON text of an answer to POST /inference, made while it is sent: a vector of logits takes megabytes
 * as text, and an answer may hold several. */
#pragma once

#include "base/buffer.h"
#include "inference/request.h"
#include "net/server.h"

struct answer {
	struct server_content content; /* its `close` is for the owner to set */
	/* what it tells of, which the owner keeps until then */
	const struct inference_request *request;
	const int32_t *tokens; /* [request->length] */
	const float *logits;   /* [request->step_count][vocabulary] */
	int vocabulary;
	double seconds; /* that it took */
	/* how far it is */
	int part;            /* the next one */
	const float *vector; /* the rest of the one that is being written; NULL: none */
	int vector_left;
	struct buffer text; /* not yet sent, from `sent` on */
	size_t sent;
};

/* Begins an answer whose first fields are filled in. */
void answer_begin(struct answer *answer);

/* Frees what it has made of itself. */
void answer_end(struct answer *answer);
