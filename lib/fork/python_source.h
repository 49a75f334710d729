/* python_source: what a Python file imports and calls, read from its text without running any of it.
 *
 * There are two readers, and both tell the same facts: this one, which needs nothing but the text, and
 * Python's own (python_ast.h). This one reads the tokens: strings of every kind, the expressions within
 * f-strings, comments, continued lines, brackets. It finds what is imported and called in every file that
 * Python accepts, but of the errors that Python finds, only those in the tokens.
 *
 * The Python of both is 3.11, which validators have. Of what is newer, this reader alone knows the f-strings. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum python_fact_kind {
	PYTHON_IMPORT, /* import MODULE [as ALIAS] */
	PYTHON_FROM,   /* from MODULE import NAME [as ALIAS] */
	PYTHON_CALL,   /* NAME(…) */
};

/* Strings are the reader's, and gone when the visit is over. */
struct python_fact {
	enum python_fact_kind kind;
	size_t line;        /* from 1; of a call, where its name ends */
	int level;          /* PYTHON_FROM: the dots before the module */
	const char *module; /* dotted; "" in "from . import name" */
	const char *name;   /* PYTHON_FROM: one name, or "*"; PYTHON_CALL: dotted, "os.system" */
	const char *alias;  /* NULL: none */
	/* PYTHON_CALL: the name is what follows another expression: "eval" of "f().eval()" */
	bool of_expression;
};

typedef void python_visit(const struct python_fact *fact, void *context);

/* Why Python does not take the file. */
struct python_fault {
	size_t line; /* 0: no fault was found */
	char what[160];
};

/* Visits the facts as they stand in the text, which is UTF-8; up to the fault, if there is one. Names are
 * told as they are written: Python makes some letters beyond ASCII into others. Takes time in proportion to
 * the length, and memory for the longest name. */
void python_source_read(
	const char *text, size_t length, python_visit *visit, void *context, struct python_fault *fault);
