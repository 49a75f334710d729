/* export: our files, put into a fork that may be anybody's clone of flash-linear-attention, or, as quasar_ops, into any
 * folder. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "base/error.h"
#include "fork/fork.h"
#include "fork/inspect.h"

enum export_change {
	EXPORT_ADDED,
	EXPORT_CHANGED,
	EXPORT_SAME,
	EXPORT_KEPT, /* the fork has its own, and that stays */
};

struct export_file {
	const struct fork_file *file;
	const char *text; /* that is written */
	bool ours;        /* the fork's own of that name does not stay */
	enum export_change change;
	size_t added, removed; /* lines */
	mode_t permissions;
	bool uncommitted; /* it is changed, and git has no copy of what it holds now */
	bool ignored;     /* it is added, but .gitignore keeps it out of commits */
};

/* What an export would do, and why it might be regretted. */
struct export_plan {
	char *fork;                /* or folder, absolute */
	bool in_git;               /* it is part of a git repository */
	struct export_file *files; /* in the order in which they are written */
	size_t count;
	size_t written;     /* of them are added or changed */
	size_t changed;     /* of them are changed */
	size_t uncommitted; /* of them are */
	/* git's command that takes the export back before it is committed; NULL: git cannot, or nothing to */
	char *undo;
	/* import lines of ours that find nothing in the fork; ends with NULL */
	const char *unmet[INSPECT_STRICT_COUNT + 1];
};

enum export_part {
	EXPORT_EVERYTHING,
	EXPORT_OPERATION, /* without the layer */
	EXPORT_TUNED,     /* only the tuned configurations */
	EXPORT_OPS,       /* none of these: the package quasar_ops */
};

#define EXPORT_TUNED_PATH "fla/ops/quasar/tuned.py"

/* The kernels that a fork gets, as a hash of their files; its loader.py makes the same one. */
#define EXPORT_KERNELS_HASH 65 /* 64 hexadecimal digits and the zero */
void export_kernels_hash(char hash[EXPORT_KERNELS_HASH]);

/* The text of one of our files, by its path; NULL: there is none. */
const char *export_text(const char *path);

/* Compares our files with those of the fork at `path`: the operation in fla/ops/quasar/, the layer, and of
 * the modules that they import from the rest of fla/, those that are missing. `tuned`: what
 * EXPORT_TUNED_PATH is to hold, which stays the caller's and must outlive the plan; NULL: nothing was
 * tuned, and what the fork has there stays. Writes nothing. STATUS_ENVIRONMENT: no fork or folder there, a
 * link or folder in the place of a file, or git fails. */
int export_plan_make(const char *path, enum export_part part, const char *tuned, struct export_plan *plan,
	struct error *err);
void export_plan_free(struct export_plan *plan);

/* Writes what the plan adds and changes, each file whole or not at all. A failure says how far it came. */
int export_write(const struct export_plan *plan, struct error *err);
