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

/* Tells a verdict. `assume_verified`: that the image's logits are right, which nobody has looked at.
 * STATUS_ENVIRONMENT: nothing was told, for this version asks for more than is known. */
int docket_tell(struct api *api, const struct api_submission *submission, const struct verdict *verdict,
	bool assume_verified, struct error *err);
