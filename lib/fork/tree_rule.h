/* tree_rule: the import rule of April 2026, which looks at the syntax tree of every .py file under fla/.
 *
 * The rule's words settle most forms. Where they do not, as for os.system under another name, the check says that it
 * is not sure, and warns. */
#pragma once

#include "base/check.h"
#include "base/error.h"

/* Adds the check imports.ast for the fork at `root`, a real path. What the rule rejects gets the status `bad`.
 * Python (a path; NULL: none) reads the files; without it, or where it gives up, python_source.h does, which cannot
 * tell that the syntax is right, so that the result is never CHECK_OK. -1 when the user asked to stop. */
int tree_rule_check(const char *root, const char *python, enum check_status bad, struct check_list *checks,
	struct error *err);
