/* browser: a page, for the user to look at. */
#pragma once

#include "base/error.h"

/* Has the desktop's browser open a file or URL. STATUS_ENVIRONMENT when there is no desktop. */
int browser_open(const char *target, struct error *err);
