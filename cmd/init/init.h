/* init: what is asked for, and what a person is asked. */
#pragma once

#include "cli/command.h"
#include "fork/github.h"

struct plan {
	struct invocation *invocation;
	char *directory;           /* absolute */
	char *existing;            /* --from, absolute; NULL: not given */
	struct settings *settings; /* the environment, over an .env that is there already */
	struct github_fork github; /* made by --github */
	char *torch;               /* the version that --venv installed; NULL: none was */
	cJSON *made, *kept;        /* names of files, for the report */
	cJSON *created;            /* absolute paths, to be taken away if it fails */
	cJSON *answers;            /* what a person said */
};

/* Where one can compete. */
struct network {
	const char *name, *api_url;
	const char *subtensor; /* SUBTENSOR_NETWORK; NULL: what it is otherwise */
};
#define NETWORKS "finney|test|local"

/* One of NETWORKS. */
const struct network *network_named(const char *name);

/* On a terminal, and where no options are given, asks for what settings do not say, and takes the answers
 * for options. */
int init_ask(struct plan *plan, struct error *err);
