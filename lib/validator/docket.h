/* docket: what waits for a validator's judgement, and how the service is told, by its version. */
#pragma once

#include "api/client.h"
#include "validator/judge.h"

struct docket {
	struct api_memory memory;
	const struct api_submission **submissions; /* oldest first; belong to it */
	size_t count;
	size_t unrevealed; /* commitments that wait, too, where the service tells of them */
	bool more;         /* others wait behind these */
};

/* Free with docket_free, also when this fails. */
int docket_read(struct api *api, struct docket *docket, struct error *err);
void docket_free(struct docket *docket);

/* What is told of the logits of a submission's image; NAN: not known. */
struct docket_logits {
	double cosine, difference, tokens_per_second;
};

/* Whether the service wants to know of the image's logits before it takes this verdict. */
bool docket_wants_logits(
	struct api *api, const struct api_submission *submission, const struct verdict *verdict);

/* Tells a verdict, whose score says what came of the logits where they were wanted.
 * STATUS_ENVIRONMENT: nothing was told, for this version asks for more than is known. */
int docket_tell(struct api *api, const struct api_submission *submission, const struct verdict *verdict,
	const struct docket_logits *logits, struct error *err);
