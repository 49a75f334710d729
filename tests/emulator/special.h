/* special: registers that say where a thread is, and how it was launched. */
#pragma once

#include "machine.h"

typedef uint32_t special_value(const struct warp *warp, int lane);

/* What a special register such as %tid.x holds; NULL for another name. */
special_value *special_find(const char *name);
