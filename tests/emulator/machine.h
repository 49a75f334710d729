/* machine: what the emulated GPU is made of. A kernel is an array of instructions; a warp runs them for its 32 lanes
 * at once, on registers that are arrays of 32.
 *
 * Every operand is a slot: a place in a warp's registers, in bytes. Constants and special registers such as %tid.x
 * are slots, too, filled in when the warp starts. */
#pragma once

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

#define LANES 32
#define ALL_LANES (~0u)
#define MOST_OPERANDS 24
#define MOST_WARPS 32 /* of a block */
#define WARPGROUP 4   /* warps */
#define BARRIERS 16   /* of a block */
#define MULTIPROCESSORS 4
#define REGISTERS 65536 /* of a multiprocessor */

/* CUDA's error codes. */
enum {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_INVALID_VALUE = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_INVALID_DEVICE = 101,
	CUDA_ERROR_INVALID_PTX = 218,
	CUDA_ERROR_NOT_FOUND = 500,
	CUDA_ERROR_ILLEGAL_ADDRESS = 700,
	CUDA_ERROR_MISALIGNED_ADDRESS = 716,
	CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
	CUDA_ERROR_LAUNCH_FAILED = 719,
	CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE = 720,
};

enum space {
	SPACE_GENERIC,
	SPACE_GLOBAL,
	SPACE_SHARED,
	SPACE_LOCAL,
	SPACE_PARAM,
};

/* Generic addresses of what is not global memory: a window each, where no host address can be. */
#define WINDOW(space) ((uint64_t)(space) << 56)
#define WINDOW_OF(address) ((enum space)((address) >> 56))

/* The first bytes of a block's shared memory are the system's, as on GPUs since Ampere: no variable has address 0. */
#define SHARED_START 1024

/* Where a kernel's parameters begin, as on compute capability 9.0: they are aligned no better than they ask for. */
#define PARAMETERS_START 0x210

struct allocation;
struct warp;
struct instruction;
typedef void operation(struct warp *warp, const struct instruction *instruction);

struct instruction {
	operation *execute;
	operation *plain;             /* what `execute` does more to */
	uint32_t slot[MOST_OPERANDS]; /* destinations first */
	uint32_t predicate;           /* a slot; 0: always */
	bool negated;                 /* of the predicate */
	bool negated_source;          /* of a predicate that it works on */
	uint8_t modifiers;            /* of enum modifier */
	uint8_t width[2];             /* bytes of the first and second operand's registers */
	uint8_t address_width;        /* bytes of the register that an address is in */
	uint8_t space, bytes, count;  /* of an access to memory: where, of one element, elements */
	uint8_t variant;              /* of an operation with several */
	uint32_t target;              /* of a branch; the offset of a second address */
	int64_t immediate;            /* an offset, or what else the operation needs */
	uint32_t line;                /* of the PTX */
	const char *text;             /* the line */
	const uint32_t *targets;      /* of a branch by index */
	const struct call *call;
	const struct product *product; /* by four warps */
};

enum modifier {
	MODIFIER_SATURATE = 1, /* to [0, 1] */
	MODIFIER_FLUSH = 2,    /* subnormal numbers to zero */
	MODIFIER_TOWARDS_ZERO = 4,
	MODIFIER_DOWN = 8,
	MODIFIER_UP = 16,
	MODIFIER_RELU = 32,
};

/* A slot that is filled in when a warp starts. */
struct initial {
	uint32_t slot;
	int width;                                              /* bytes */
	uint64_t value;                                         /* of a constant */
	uint32_t (*special)(const struct warp *warp, int lane); /* NULL: a constant */
};

struct parameter {
	size_t offset, bytes;
};

/* From one place in a thread's memory to another. */
struct transfer {
	size_t from, to, bytes;
};

/* A call of a function within a kernel. */
struct call {
	struct call *next;
	struct transfer *arguments, *results;
	size_t argument_count, result_count;
};

struct kernel {
	char *name;
	struct instruction *code;
	size_t instruction_count;
	struct initial *initials;
	size_t initial_count;
	struct call *calls;
	struct product *products;
	size_t register_bytes; /* of a warp */
	struct parameter *parameters;
	size_t parameter_count, parameter_bytes;
	size_t shared_bytes;            /* the system's and what the kernel declares */
	size_t dynamic_shared;          /* that a launch may ask for */
	size_t local_bytes;             /* of a thread */
	int most_threads, least_blocks; /* of a block; on a multiprocessor */
};

struct pending_copy {
	uint32_t lanes;
	uint32_t group[LANES];
	uint32_t to[LANES];
	const void *from[LANES];
	uint8_t bytes, valid[LANES];
};

/* Lanes that go separate ways have program counters of their own. Those at the lowest one go first, as a group, so
 * that they meet the others where their ways do. */
struct warp {
	struct block *block;
	int index;
	unsigned char *registers, *local;
	uint32_t live;    /* lanes that have not ended */
	uint32_t blocked; /* of them, those that wait before an instruction for others to join them */
	uint32_t held;    /* those that wait behind a barrier until it opens */
	uint32_t group;   /* those that run now, at `pc` */
	uint32_t active;  /* of them, those whose predicate holds */
	uint32_t pc;
	uint32_t next;             /* the next program counter where lanes are that are not of the group */
	uint32_t at[LANES];        /* the program counters of the others */
	uint32_t meets[LANES];     /* the masks of those that wait behind a barrier of the warp; else 0 */
	bool waited;               /* for the launch before */
	int budget;                /* instructions until it is another's turn */
	uint32_t carry;            /* lanes whose carry flag is set */
	uint32_t committed[LANES]; /* groups of asynchronous copies */
	struct pending_copy *copies;
	size_t copy_count, copy_room;
	struct pending_product *products; /* by four warps, that have begun; in order */
	size_t product_count, product_room;
	uint32_t product_group;          /* that the next ones belong to */
	uint32_t request_count;          /* of products, so far */
	bool *taken;                     /* of registers: they are a product's; see TAKEN */
	const struct instruction *waits; /* in this turn and in vain */
	int register_count;              /* of a thread, as setmaxnreg counts them; 0: not known */
};

/* Where a slot is in warp->taken: no register is smaller. */
#define TAKEN(slot) ((slot) / (2 * LANES))

struct barrier {
	uint32_t expected, arrived; /* threads; expected 0: all that live */
	uint32_t counted;           /* those whose predicate holds */
	uint32_t lanes[MOST_WARPS]; /* those that wait */
};

/* For products, by the warps of a warpgroup. */
struct requests {
	struct request *items;
	size_t count;
};

struct block {
	struct launch *launch;
	uint32_t index[3];
	unsigned char *shared;
	int warp_count;
	struct warp *warps;
	struct barrier barriers[BARRIERS];
	struct bulk_copy *copies; /* under way */
	size_t copy_count, copy_room;
	struct requests requests[MOST_WARPS / WARPGROUP];
	uint32_t phases;          /* of its mbarriers, that have ended */
	int spare_registers;      /* of a thread of one warp, that warps have given */
	struct race_check *races; /* NULL: not looked for */
};

struct launch {
	const struct kernel *kernel;
	uint32_t grid[3], threads[3];
	size_t shared_bytes; /* the system's, static and dynamic */
	unsigned char *parameters;
	bool early;               /* begun before the launch before has ended, whose end it has to wait for */
	int slow_warp;            /* of each block; -1: none */
	struct block *blocks;     /* those that are resident */
	struct allocation *found; /* where each instruction's last access to global memory went */
	jmp_buf failed;
	int code; /* of the failure */
};

/* Ends the launch: says on stderr which kernel, block, thread and line of PTX it was, and why. */
_Noreturn void fault(const struct warp *warp, const struct instruction *instruction, int lane, int code,
	const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Runs a kernel to its end; 0 or a CUDA error. */
int run_grid(struct launch *launch, int resident_blocks);

/* The active lanes go on at `target`, the rest of the group behind this instruction. */
void warp_split(struct warp *warp, uint32_t target);
/* The active lanes go on where warp->at says. */
void warp_scatter(struct warp *warp);
/* The active lanes end. */
void warp_end(struct warp *warp);
/* The active lanes wait before this instruction for others of the warp, and then run it with them. */
void warp_wait(struct warp *warp);
/* The active lanes wait behind this instruction until all lanes of the mask are there, or at another such. */
void warp_meet(struct warp *warp, uint32_t mask);

/* What the warp waits for here may come when others have had their turn. */
void warp_waits(struct warp *warp, const struct instruction *instruction);

/* What a barrier gives its threads of their predicates. */
enum { BARRIER_PLAIN, BARRIER_COUNT, BARRIER_AND, BARRIER_OR };

/* The active lanes arrive at a barrier of its block, which expects so many threads (0: all that live). If they are to wait,
 * they do until it has them. */
void block_arrive(struct warp *warp, const struct instruction *instruction, uint32_t barrier,
	uint32_t expected, bool wait);
/* Ends the launch when this instruction has to do with a register of a product that is under way. */
void products_guard(struct warp *warp, const struct instruction *instruction);
/* Of a block that starts, and of one that is no more. */
void products_start(struct block *block);
void products_drop(struct block *block);
/* Ends the launch when bulk copies of a block that ends are under way. */
void bulk_copies_end(struct block *block);
/* Finishes asynchronous copies of these lanes, all but the newest `but` groups; -1: all, committed or not. */
void finish_copies(struct warp *warp, uint32_t lanes, int64_t but);
