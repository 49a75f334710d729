/* ptx: the text that NVRTC makes, as statements whose names are resolved. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"
#include "machine.h"

enum operand_kind {
	OPERAND_REGISTER, /* `value` is its slot */
	OPERAND_INTEGER,
	OPERAND_FLOAT,  /* 0f3F800000, in `value` */
	OPERAND_DOUBLE, /* 0d3FF0000000000000 */
	OPERAND_SYMBOL, /* `value` is its address in its space */
	OPERAND_NAME,   /* a label, a special register, a function */
	OPERAND_NOTHING /* _ */
};

struct operand {
	enum operand_kind kind;
	bool negated;     /* !%p1 */
	bool memory;      /* in brackets */
	int group;        /* operands of one vector, or one `%r1|%p1`, share theirs */
	int width;        /* bytes of a register; 4 of a predicate */
	enum space space; /* of a symbol */
	uint64_t value;
	int64_t offset; /* behind an address, and behind a symbol */
	char *name;
};

struct statement {
	char *opcode;
	struct operand *operands;
	int operand_count, group_count;
	struct operand predicate; /* NOTHING: none */
	int scope;
	uint32_t line;
	const char *text; /* the line; not ended */
};

/* Those of a module come first in the shared memory of each of its functions. */
struct shared_variables {
	size_t bytes, alignment;
};

#define SHARED_DYNAMIC ((uint64_t)1 << 32) /* the address of what a launch asks for, until it is known */

struct function {
	char *name;
	bool entry;
	/* An entry's are in the launch's parameters, another function's in the memory of its threads. */
	struct parameter *parameters, *results;
	size_t parameter_count, parameter_bytes, result_count;
	struct shared_variables shared;
	size_t local_bytes, register_bytes;
	int most_threads, least_blocks;
	struct statement *statements;
	size_t statement_count;
	struct symbols *symbols; /* the module's */
};

/* A module's own memory. */
struct variable {
	uint64_t address;
	size_t bytes;
};

struct module {
	char *text;
	struct function *functions;
	size_t function_count;
	struct variable *variables;
	size_t variable_count;
	struct shared_variables shared; /* declared outside of functions */
	struct symbols *symbols;
	struct kernel **kernels;
	size_t kernel_count;
};

/* Takes in the text. STATUS_USAGE with the line that is not understood. The module's variables are allocated. */
int ptx_parse(const char *text, struct module *module, struct error *err);
void ptx_free(struct module *module);

/* The statement that a label of a function stands before; -1 when there is none. */
int64_t ptx_label(const struct function *function, int scope, const char *name);
/* The statements that a .branchtargets list names, and how many; NULL when there is no such list. */
const uint32_t *ptx_targets(const struct function *function, int scope, const char *name, size_t *count);
