/* ask: questions to a person. */
#pragma once

#include "cli/command.h"

/* Whether somebody is there to answer: stdin and stderr are terminals, and no JSON was asked for. */
bool ask_possible(const struct invocation *invocation);

/* Asks on stderr and reads a line: the answer without spaces around it or, when that is empty, `fallback`
 * (NULL: ""). The caller frees. `choices`: "finney|test|local"; other answers are asked for again; NULL:
 * anything. NULL with STATUS_INTERRUPTED when the user gave up. */
char *ask(const char *question, const char *choices, const char *fallback, struct error *err);

/* A question that is answered by yes or no. 1, 0, or -1 as above. */
int ask_whether(const char *question, bool fallback, struct error *err);
