/* sandbox: a program of a stranger's in a cage, made by bubblewrap.
 *
 * What runs inside sees /usr read-only, the places it was promised read-only, a /tmp of its own that lies in memory
 * and is gone afterwards, and the device files of its GPU. It has no network, no capability, no process beside its
 * own to look at or to signal, no home, and of the environment what libraries need to be found. Its memory, its
 * processes and its files are bounded: whoever takes more is ended, all of it at once, by a thread of ours that
 * watches, for the kernel's own bounds (cgroups) are rarely there for whom they are not given by the machine's owner.
 * Processes have such a bound all the same, by a limit or, for root, a cgroup: they can multiply faster than one looks.
 * How long it runs is for the caller to bound. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "base/error.h"

struct sandbox_options {
	const char *const *places; /* absolute paths that it may read, besides the system's; ends with NULL */
	const char *const
		*own; /* the same of what it has brought itself, which may hold anything; may be NULL */
	const char *directory; /* where it begins: in one of them */
	int gpu;               /* index of the only one that it sees, as its first; -1: none */
	int share; /* how many sandboxes run side by side and share this machine's memory; 1 at least */
};

struct sandbox;

/* Copies what it needs of the options. NULL with STATUS_ENVIRONMENT when this machine cannot hold one. */
struct sandbox *sandbox_open(const struct sandbox_options *options, struct error *err);
/* What was started with it must have ended. NULL is fine. */
void sandbox_close(struct sandbox *sandbox);

/* The command that runs argv inside, once: for process_talk(), which shows it nothing of ours but the files that the
 * sandbox is made by. argv[0] may be a name in the PATH. The caller frees the list; its strings stay the sandbox's and
 * argv's. */
const char **sandbox_command(const struct sandbox *sandbox, const char *const *argv);
const int *sandbox_files(const struct sandbox *sandbox);

/* To be called with the process that was started, and when it has ended: between the two it is watched.
 * sandbox_leave() gives -1 when it was ended for what it took: STATUS_FAILED for more than was its to take, and
 * STATUS_ENVIRONMENT when this machine ran out of memory, or it could not be watched. */
int sandbox_enter(struct sandbox *sandbox, pid_t process, struct error *err);
int sandbox_leave(struct sandbox *sandbox, struct error *err);

/* Whether a sandbox works on this machine: starts a program in one, and looks at it there. STATUS_ENVIRONMENT with what
 * has to be installed or allowed. Takes a twentieth of a second. */
int sandbox_works(struct error *err);
