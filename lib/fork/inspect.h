/* inspect: what a validator reads in a fork before it runs anything.
 *
 * Files are read with a bound on their size, symbolic links are not followed out of the fork, and any
 * bytes at all may stand in them. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "api/version.h"
#include "base/check.h"
#include "base/error.h"
#include "fork/fork.h"

/* Where a validator wants the five files; the list ends with NULL. */
#define INSPECT_FOLDER "fla/ops/quasar/"
extern const char *const inspect_target_files[];

/* The version of the service that the fork is for. What its rules forbid fails; what only the other's forbid
 * warns. */
enum inspect_rules { INSPECT_FEBRUARY, INSPECT_APRIL };

/* Of a version of the service (api/version.h). */
enum inspect_rules inspect_rules_of(const struct api_version *version);

struct inspect_options {
	enum inspect_rules rules;
	bool strict;        /* the twelve import lines fail instead of warning */
	const char *python; /* path of a Python that reads the syntax of the fork; NULL: none */
};

/* Adds the checks, in this order:
 *   files              the five files are there and are UTF-8 text
 *   imports.deployed   February: chunk.py names what validators ask for
 *   imports.strict     the twelve import lines, one a line: a warning, or with `strict` a failure
 *   imports.forbidden  February: none of the five files mentions fla.ops.gla or fla.ops.kda in an import
 *   imports.ast        April: what every .py file under fla/ imports and calls (tree_rule.h)
 *   cuda_source        a .cu file somewhere: a warning without
 * -1 only when `path` cannot be looked at, or the user asked to stop. */
int inspect_fork(const char *path, const struct inspect_options *options, struct check_list *checks,
	struct error *err);

/* Adds the check `git`: validators see what is committed and pushed, nothing else. `fork_url` is what
 * they will clone (NULL: none known). What they would not see is a warning, or a failure when the
 * fork is about to be submitted. */
void inspect_git(
	const struct fork_state *state, const char *fork_url, bool submitting, struct check_list *checks);

/* --- the rules on the text of one file ----------------------------------------------------------- */

#define INSPECT_DEPLOYED_COUNT 5
#define INSPECT_STRICT_COUNT 12
#define INSPECT_FORBIDDEN_COUNT 4

/* The names of the deployed rule, the lines of the strict one, and the forbidden texts. */
extern const char *const inspect_deployed_names[INSPECT_DEPLOYED_COUNT];
extern const char *const inspect_strict_lines[INSPECT_STRICT_COUNT];
extern const char *const inspect_forbidden_texts[INSPECT_FORBIDDEN_COUNT];

/* Line numbers count from 1; 0 means nowhere. Lines end with LF, CRLF or CR. */
struct import_findings {
	size_t deployed[INSPECT_DEPLOYED_COUNT]; /* where the rule finds the name */
	size_t strict[INSPECT_STRICT_COUNT];    /* where the line stands, alone but for spaces or a comment */
	size_t mentioned[INSPECT_STRICT_COUNT]; /* where the name that the line imports first occurs */
	size_t forbidden[INSPECT_FORBIDDEN_COUNT]; /* where the text first occurs */
	size_t utils;                              /* the first "from fla.utils import" */
};

/* Applies all three rules to the text of a file. Depends on nothing but the bytes, and takes time in
 * proportion to their number. */
void inspect_imports(const char *text, size_t length, struct import_findings *findings);
