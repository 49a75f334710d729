/* relay: a port of this machine's loopback that leads to a port of a container that has no network. */
#pragma once

#include <sys/types.h>

#include "base/error.h"

struct relay;

/* Leads to `port` on the loopback of the process's network namespace, one connection at a time.
 * STATUS_ENVIRONMENT: only root may enter it. */
struct relay *relay_open(pid_t pid, int port, struct error *err);

/* The port of 127.0.0.1 to connect to. */
int relay_port(const struct relay *relay);

/* NULL is fine. */
void relay_close(struct relay *relay);
