/* builder: the container image of the inference server, from scratch: this program, the libraries that it uses, and
 * the model. No other image is pulled for it. */
#pragma once

#include "base/error.h"

struct image_plan {
	const char *name;       /* to give it: a reference without a digest */
	const char *model;      /* folder of the model that goes into it; NULL: it is mounted at /model */
	const char *model_name; /* what the server calls it */
};

/* Writes what an image is built from into `folder`, which has to be new or empty: the Containerfile, root/ and
 * model/. Model files are hard links where that is possible. This process must have loaded all the libraries that
 * the server needs. STATUS_ENVIRONMENT. */
int image_write_context(const struct image_plan *plan, const char *folder, struct error *err);

/* Builds it with a tool of tool_find(). */
int image_build(const struct image_plan *plan, const char *tool, const char *folder, struct error *err);

/* Pushes it with the user's login, and returns its reference with the digest that the registry knows it by. The
 * caller frees. */
char *image_push(const char *tool, const char *name, struct error *err);
