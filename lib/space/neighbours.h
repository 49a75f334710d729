/* neighbours: the other miners of this user, as far as they have submitted from this machine: validators may allow
 * one hotkey for each GitHub name, public address and coldkey, and shut out the later one for good.
 *
 * Kept in $XDG_STATE_HOME/quasar/miners (~/.local/state without it), a line each. */
#pragma once

#include "base/check.h"
#include "base/error.h"

struct neighbour {
	const char *api_url, *hotkey;
	const char *fork_url;
	const char *wallet;    /* its name: the hotkeys of a wallet have one coldkey */
	const char *directory; /* the workspace */
};

/* Adds this miner, unless it is there. */
int neighbours_note(const struct neighbour *own, struct error *err);

/* Adds the check "flags": who else submits to the same validator from here, and what the two have in common. */
void neighbours_check(const struct neighbour *own, struct check_list *checks);
