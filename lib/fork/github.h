/* github: a fork of the competition's repository, made through GitHub's API. */
#pragma once

#include "base/error.h"

struct github_request {
	const char *api_url;  /* "https://api.github.com" */
	const char *token;    /* sent to that host only, and shown nowhere */
	const char *upstream; /* "OWNER/NAME" of the repository to fork */
	const char *name;     /* of the fork */
	double timeout;       /* seconds until it has to be ready */
};

struct github_fork {
	char *clone_url, *owner;
};

/* Makes the fork, or finds the one that is there, and waits until it can be cloned. GitHub makes forks in
 * the background, which takes seconds to minutes.
 *
 * STATUS_USAGE: the API's address is none, or would carry the token unencrypted. STATUS_REFUSED: the token
 * is not accepted or may not do this. STATUS_NETWORK: no answer, or not ready in time. STATUS_INTERRUPTED. */
int github_fork(const struct github_request *request, struct github_fork *fork, struct error *err);
void github_fork_free(struct github_fork *fork);
