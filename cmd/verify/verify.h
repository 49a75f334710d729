/* verify: what stands in files of its own. */
#pragma once

#include "cli/command.h"

/* `quasar verify --logits`: the logits of an inference server, or of another model, against the reference's. */
int verify_logits(struct invocation *invocation, struct error *err);
