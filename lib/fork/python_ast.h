/* python_ast: what Python files import and call, as Python itself reads them. It runs in a child process that
 * runs and imports nothing of the files, with bounds on its time and memory. */
#pragma once

#include <cjson/cJSON.h>

#include "base/buffer.h"
#include "base/error.h"
#include "fork/python_source.h"

/* Larger files are not for Python, and as much as this makes a good batch. */
#define PYTHON_AST_BYTES ((size_t)1 << 20)

struct python_ast {
	char version[32]; /* of Python, "3.11.2"; "": it does not run */
	cJSON **reports;  /* one for each text; NULL: Python could not read that one */
	size_t count;
};

/* Runs a script of ours, alone: without the user's variables, paths and packages. `output` receives what it wrote to
 * stdout, nothing where Python does not run. -1 when the user asked to stop (STATUS_INTERRUPTED). */
int python_run_alone(
	const char *python, const char *source, const char *input, struct buffer *output, struct error *err);

/* Has the texts, UTF-8, read by a Python (a path) of version 3.8 or later. A Python that does not work, or that
 * gives up on a file, is no error: reports are missing then. -1 when the user asked to stop
 * (STATUS_INTERRUPTED). python_ast_free() is due in any case. */
int python_ast_read(const char *python, const struct buffer *texts, size_t count, struct python_ast *ast,
	struct error *err);
void python_ast_free(struct python_ast *ast);

/* Visits the facts of a report, imports first, each kind by line. */
void python_ast_visit(const cJSON *report, python_visit *visit, void *context, struct python_fault *fault);
