/* image: the container image of a miner's inference server, which validators pull and run. */
#pragma once

#include <stdbool.h>

#include "base/check.h"
#include "base/error.h"

/* Whether `reference` is written as registries take it: [HOST[:PORT]/]NAME[:TAG][@sha256:DIGEST]. STATUS_USAGE,
 * saying what is wrong, when it is not. */
int image_check_syntax(const char *reference, struct error *err);

/* Whether it names one image for good, by its digest; a tag may be moved to another one. */
bool image_is_pinned(const char *reference);

/* Adds what can be said of it: "image.syntax", "image.pinned" and, with a `timeout` above 0, in seconds, "image.pull": whether
 * it can be pulled without the user's logins, as validators do. `tool`: of tool_find(); NULL: the first that works. */
void image_check(const char *reference, const char *tool, double timeout, struct check_list *checks);

/* Whether the tool has it already. */
bool image_is_here(const char *tool, const char *reference);
