/* environment: a virtual environment of Python's with PyTorch, for the fork to run in. */
#pragma once

#include "base/error.h"

/* Makes one in the folder `path`, or adds PyTorch to the one that is there, with the python3 of the PATH
 * and its pip: as pip is set up, so that an index of one's own or a folder of wheels is used. Downloads
 * gigabytes, and says meanwhile on stderr how far it is. STATUS_ENVIRONMENT, with what Python or pip said;
 * STATUS_INTERRUPTED. A folder that was not there before is taken away again. `torch` receives PyTorch's
 * version as it was imported; the caller frees. */
int environment_make(const char *path, char **torch, struct error *err);
