/* terminal: asking the person in front of it. */
#pragma once

#include <stdbool.h>

#include "base/error.h"

/* Asks on the terminal itself, whatever stdin and stdout are, and reads a line without echo; spaces around
 * it are dropped. The answer lies in locked memory: free it with sodium_free. NULL with STATUS_ENVIRONMENT
 * when there is no terminal, STATUS_INTERRUPTED when the user gave up. */
char *terminal_ask_secret(const char *prompt, struct error *err);
