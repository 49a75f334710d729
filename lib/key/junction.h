/* junction: the steps behind a secret, "//hard/soft", that lead from one key to another. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "base/error.h"

struct junction {
	bool hard;
	uint8_t chain_code[32];
};

/* Takes the junction that `path` points at and moves it on. 1, or 0 at the end of the path, or -1 with
 * STATUS_USAGE when what stands there is no junction. Substrate's encoding: a number as a 64-bit
 * little-endian one, anything else as a SCALE string, hashed if longer than 32 bytes. */
int junction_next(const char **path, struct junction *junction, struct error *err);
