/* operations: how instructions are written down. A row names one, says what runs it and what its operands are; what
 * has too many forms for rows is a family, which reads the rest of the opcode itself. */
#pragma once

#include "machine.h"
#include "ptx.h"

#define MOST_PARTS 24
#define PART 32 /* characters, with the zero */

/* The operands, destinations first: p a predicate, h, w and l registers of 16, 32 and 64
 * bits, q of 128. */
struct row {
	const char *name; /* without modifiers; NULL ends a table */
	operation *execute;
	const char *operands;
	int count; /* of operands; there may be more letters */
};

extern const struct row integer_rows[], float_rows[], half_rows[], compare_rows[], convert_rows[],
	warp_rows[];

/* A function as part of a kernel, which has its own copy: where its instructions, its registers and its threads' memory
 * begin in the kernel's. A function cannot call itself. */
struct frame {
	const struct function *function;
	uint32_t code, registers, returns; /* the latter: the slot of where each lane came from */
	size_t local;
};

struct program {
	struct module *module;
	struct kernel *kernel;
	struct frame *frames; /* the entry first */
	size_t count;
};

/* One statement on its way to an instruction. */
struct decoding {
	struct program *program;
	struct kernel *kernel;     /* the program's */
	const struct frame *frame; /* the statement's */
	const struct statement *statement;
	struct instruction *instruction;
	char parts[MOST_PARTS][PART]; /* of the opcode */
	int part_count;
};

struct family {
	const char *name; /* its first part; NULL ends a table */
	int (*decode)(struct decoding *decoding, struct error *err);
};

extern const struct family move_families[], compare_families[], convert_families[], access_families[],
	atomic_families[], matrix_families[], warpgroup_families[], mbarrier_families[], bulk_families[],
	control_families[], warp_families[], call_families[];

/* Removes a part of the opcode behind the first; false when it is not there. */
bool take_part(struct decoding *decoding, const char *part);
/* Removes all of these, which change nothing here; a space between them. */
void drop_parts(struct decoding *decoding, const char *parts);
/* Removes the first of these that is there, and says which; -1: none. The list ends with NULL. */
int take_one_of(struct decoding *decoding, const char *const *parts);
/* Fails when parts are left over behind the first: what nobody has understood must not be ignored. */
int no_parts_left(const struct decoding *decoding, struct error *err);

/* -1, with the statement and what is wrong with it. */
int not_understood(const struct decoding *decoding, struct error *err, const char *what);

const struct row *find_row(const char *name);
/* Bytes of a letter of a row's operands. */
int operand_width(char letter);
/* Makes the instruction from the row of this name, whose operands are the statement's. */
int decode_row(struct decoding *decoding, const char *name, struct error *err);
/* Gives the instruction an operand of the statement, of so many bytes; 0: as wide as it is. */
int decode_operand(struct decoding *decoding, int number, int slot, int width, struct error *err);
/* The same, where the instruction has the slot elsewhere. */
int decode_slot(struct decoding *decoding, int number, int width, uint32_t *slot, struct error *err);
/* How many operands the group of this number has, and the first of them. */
int group_size(const struct statement *statement, int group, int *first);

/* The place of a function of this name in the program; -1 when the module has none. */
int program_find(struct program *program, const char *name);
/* The address of a variable. */
uint64_t symbol_address(const struct decoding *decoding, const struct operand *operand);
/* A register that is zero when a block starts. */
uint32_t zero_register(struct kernel *kernel);
/* A register that nobody reads. */
uint32_t scratch_register(struct decoding *decoding, int width);
/* The slot of a constant. */
uint32_t constant_slot(struct decoding *decoding, uint64_t value, int width);

void calls_free(struct call *calls);
void products_free(struct product *products);
/* The end of a thread. */
int decode_end(struct decoding *decoding, struct error *err);
/* What begins with cp.async.bulk. */
int decode_bulk(struct decoding *decoding, struct error *err);

/* Takes the modifiers of arithmetic, and makes the finished instruction do them. */
void modifiers_take(struct decoding *decoding);
int modifiers_apply(struct decoding *decoding, const char *name, struct error *err);

/* Whether all lanes are here; if not, those that are wait for the others, and will be back. */
bool all_here(struct warp *warp, const struct instruction *instruction);

/* --- in the bodies of operations ------------------------------------------------------------------------ */

#define OPERATION(name)                                                                                      \
	static void name(struct warp *warp, const struct instruction *instruction __attribute__((unused)))
#define SLOT(type, number) ((type *)(warp->registers + instruction->slot[number]))

/* Does something for every active lane; all of them together are one loop for the compiler to make vectors of. */
#define EACH_LANE(...)                                                                                       \
	do {                                                                                                 \
		if (warp->active == ALL_LANES) {                                                             \
			_Pragma("GCC ivdep") for (int lane = 0; lane < LANES; lane++)                        \
			{                                                                                    \
				__VA_ARGS__;                                                                 \
			}                                                                                    \
		} else {                                                                                     \
			for (uint32_t lanes_left = warp->active; lanes_left; lanes_left &= lanes_left - 1) { \
				int lane = __builtin_ctz(lanes_left);                                        \
				__VA_ARGS__;                                                                 \
			}                                                                                    \
		}                                                                                            \
	} while (0)

/* An operation of one, two or three sources, from an expression of A, B and C. */
#define UNARY(name, type, expression)                                                                        \
	OPERATION(name)                                                                                      \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		const type *a = SLOT(type, 1);                                                               \
		EACH_LANE(const type A = a[lane]; d[lane] = (type)(expression));                             \
	}
#define BINARY(name, type, expression)                                                                       \
	OPERATION(name)                                                                                      \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		const type *a = SLOT(type, 1), *b = SLOT(type, 2);                                           \
		EACH_LANE(const type A = a[lane]; const type B = b[lane]; d[lane] = (type)(expression));     \
	}
#define TERNARY(name, type, expression)                                                                      \
	OPERATION(name)                                                                                      \
	{                                                                                                    \
		type *d = SLOT(type, 0);                                                                     \
		const type *a = SLOT(type, 1), *b = SLOT(type, 2), *c = SLOT(type, 3);                       \
		EACH_LANE(const type A = a[lane]; const type B = b[lane]; const type C = c[lane];            \
			  d[lane] = (type)(expression));                                                     \
	}
