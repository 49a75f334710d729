#include "cli/browser.h"

#include <stdlib.h>

#include "base/memory.h"
#include "base/process.h"

#define PATIENCE 10.0 /* seconds for what hands it on */

/* What a desktop is found by, beside what every program is shown. */
static const char *const desktop[] = {"WAYLAND_DISPLAY", "XAUTHORITY", "BROWSER"};
#define DESKTOP (sizeof(desktop) / sizeof(*desktop))

int browser_open(const char *target, struct error *err)
{
	const char *const argv[] = {"xdg-open", target, NULL};
	char *more[DESKTOP + 1] = {0};
	size_t count = 0;
	char *said;

	for (size_t i = 0; i < DESKTOP; i++)
		if (getenv(desktop[i]))
			more[count++] = xprintf("%s=%s", desktop[i], getenv(desktop[i]));
	said = process_ask(argv, more, PATIENCE, err);
	while (count)
		free(more[--count]);
	if (said) {
		free(said);
		return 0;
	}
	if (err->status == STATUS_INTERRUPTED)
		return -1;
	error_set(err, STATUS_ENVIRONMENT, "cannot open %s in a browser: xdg-open finds none here", target);
	return error_hint(err, "Open it yourself, or copy it to a machine with a screen.");
}
