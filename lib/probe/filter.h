/* filter: system calls that a stranger's program does without. */
#pragma once

#include "base/error.h"

/* A seccomp filter as bubblewrap reads it, in a descriptor that programs inherit. It keeps away what the namespaces of
 * a sandbox do not hold back (keyrings, sockets of the hypervisor's or the kernel's own), what takes memory that
 * belongs to no process and so is not seen, and what is seldom used and often broken into. To the program, this kernel
 * does not have these calls. -1: STATUS_ENVIRONMENT. */
int filter_open(struct error *err);
