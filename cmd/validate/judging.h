/* judging: several judges side by side, each on a device of its own, with one submission at a time. */
#pragma once

#include "validator/judge.h"

struct judging;

/* Called from the thread that calls the functions below. `problem` is what kept the judge from judging, or
 * NULL; then the verdict counts. -1 ends it all. */
typedef int judged(const struct judge *judge, const struct api_submission *submission,
	struct verdict *verdict, const struct error *problem, void *context, struct error *err);

/* The judges must outlive it. */
struct judging *judging_open(const struct judge *judges, size_t count, judged *done, void *context);

/* Waits until a judge is free, and gives it the submission, which must live until it is judged. Cloning is done when
 * this returns; measuring may go on. -1: STATUS_INTERRUPTED, or what `done` said. */
int judging_add(struct judging *judging, const struct api_submission *submission, struct error *err);

/* Waits until all are judged. Errors as above. */
int judging_finish(struct judging *judging, struct error *err);

/* Waits until nobody measures any more. What is not told by now is not told. */
void judging_close(struct judging *judging);
