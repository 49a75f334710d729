/* What the parts of `quasar leaderboard` share. */
#pragma once

#include "api/client.h"
#include "cli/command.h"

/* Serves the leaderboard as a page until interrupted; --web. */
int leaderboard_serve(
	const struct invocation *invocation, struct api *api, const char *own, struct error *err);
