#include "decode.h"

#include <search.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "operations.h"
#include "special.h"

static const struct row *const row_tables[] = {
	integer_rows, float_rows, half_rows, compare_rows, convert_rows, warp_rows, NULL};
static const struct family *const family_tables[] = {move_families, compare_families, convert_families,
	access_families, atomic_families, matrix_families, warpgroup_families, mbarrier_families,
	bulk_families, control_families, warp_families, call_families, NULL};

/* --- opcodes ------------------------------------------------------------------------------------------ */

int not_understood(const struct decoding *decoding, struct error *err, const char *what)
{
	const struct statement *statement = decoding->statement;

	return error_set(err, STATUS_USAGE, "line %u of the PTX: %s: %.*s", statement->line, what,
		(int)strcspn(statement->text, "\n"), statement->text);
}

static int split_opcode(struct decoding *decoding, struct error *err)
{
	const char *at = decoding->statement->opcode;

	for (;;) {
		size_t length = strcspn(at, ".");

		if (decoding->part_count == MOST_PARTS || length >= sizeof(*decoding->parts))
			return not_understood(decoding, err, "too long");
		snprintf(decoding->parts[decoding->part_count++], sizeof(*decoding->parts), "%.*s",
			(int)length, at);
		if (!at[length])
			return 0;
		at += length + 1;
	}
}

bool take_part(struct decoding *decoding, const char *part)
{
	for (int i = 1; i < decoding->part_count; i++) {
		if (strcmp(decoding->parts[i], part))
			continue;
		memmove(decoding->parts[i], decoding->parts[i + 1],
			(size_t)(--decoding->part_count - i) * sizeof(*decoding->parts));
		return true;
	}
	return false;
}

void drop_parts(struct decoding *decoding, const char *parts)
{
	while (*parts) {
		char part[PART];
		int length = (int)strcspn(parts, " ");

		snprintf(part, sizeof(part), "%.*s", length, parts);
		take_part(decoding, part);
		parts += length + (parts[length] == ' ');
	}
}

int take_one_of(struct decoding *decoding, const char *const *parts)
{
	for (int i = 0; parts[i]; i++)
		if (take_part(decoding, parts[i]))
			return i;
	return -1;
}

int no_parts_left(const struct decoding *decoding, struct error *err)
{
	return decoding->part_count == 1 ? 0 : not_understood(decoding, err, "unknown");
}

/* --- operands ----------------------------------------------------------------------------------------- */

int group_size(const struct statement *statement, int group, int *first)
{
	int count = 0;

	for (int i = statement->operand_count - 1; i >= 0; i--)
		if (statement->operands[i].group == group) {
			*first = i;
			count++;
		}
	return count;
}

static uint32_t add_register(struct kernel *kernel, int width)
{
	uint32_t slot = (uint32_t)kernel->register_bytes;

	kernel->register_bytes += (size_t)width * LANES;
	return slot;
}

uint32_t scratch_register(struct decoding *decoding, int width)
{
	return add_register(decoding->kernel, width);
}

static uint32_t initial_add(struct kernel *kernel, struct initial initial)
{
	initial.slot = add_register(kernel, initial.width);
	kernel->initials = xrealloc(
		kernel->initials, (kernel->initial_count + 1) * sizeof(*kernel->initials));
	kernel->initials[kernel->initial_count++] = initial;
	return initial.slot;
}

static uint32_t initial_slot(struct kernel *kernel, struct initial wanted)
{
	for (size_t i = 0; i < kernel->initial_count; i++) {
		const struct initial *initial = &kernel->initials[i];

		if (initial->value == wanted.value && initial->width == wanted.width &&
			initial->special == wanted.special)
			return initial->slot;
	}
	return initial_add(kernel, wanted);
}

static uint32_t zero(const struct warp *warp, int lane)
{
	(void)warp, (void)lane;
	return 0;
}

uint32_t zero_register(struct kernel *kernel)
{
	return initial_add(kernel, (struct initial){.width = 4, .special = zero});
}

uint32_t constant_slot(struct decoding *decoding, uint64_t value, int width)
{
	if (width < 8)
		value &= ((uint64_t)1 << width * 8) - 1;
	return initial_slot(decoding->kernel, (struct initial){.width = width, .value = value});
}

/* The bits of a number as an operand of so many bytes. */
static uint64_t number_bits(const struct operand *operand, int width)
{
	uint64_t bits = operand->value;

	if (operand->kind == OPERAND_DOUBLE && width == 4) {
		double value;
		float narrow;
		uint32_t narrow_bits;

		memcpy(&value, &bits, sizeof(value));
		narrow = (float)value;
		memcpy(&narrow_bits, &narrow, sizeof(narrow_bits));
		return narrow_bits;
	}
	return bits;
}

uint64_t symbol_address(const struct decoding *decoding, const struct operand *operand)
{
	uint64_t address = operand->value;

	if (operand->space == SPACE_SHARED && address == SHARED_DYNAMIC)
		address = decoding->kernel->shared_bytes;
	if (operand->space == SPACE_LOCAL)
		address += decoding->frame->local;
	return address + (uint64_t)operand->offset;
}

int operand_width(char letter)
{
	switch (letter) {
	case 'h':
		return 2;
	case 'l':
		return 8;
	case 'q':
		return 16;
	case 'a':
		return 0;
	default:
		return 4;
	}
}

int decode_slot(struct decoding *decoding, int number, int width, uint32_t *at, struct error *err)
{
	const struct operand *operand = &decoding->statement->operands[number];
	special_value *special;

	if (number >= decoding->statement->operand_count)
		return not_understood(decoding, err, "an operand is missing");
	switch (operand->kind) {
	case OPERAND_REGISTER:
		if (operand->width != width)
			return not_understood(decoding, err, "a register of another width is expected");
		*at = decoding->frame->registers + (uint32_t)operand->value;
		return 0;
	case OPERAND_INTEGER:
	case OPERAND_FLOAT:
	case OPERAND_DOUBLE:
		*at = constant_slot(decoding, number_bits(operand, width), width);
		return 0;
	case OPERAND_SYMBOL:
		*at = constant_slot(decoding, symbol_address(decoding, operand), width);
		return 0;
	case OPERAND_NOTHING:
		*at = scratch_register(decoding, width);
		return 0;
	default:
		special = special_find(operand->name);
		if (!special)
			return not_understood(decoding, err, "an unknown name");
		*at = initial_slot(decoding->kernel, (struct initial){.width = width, .special = special});
		return 0;
	}
}

int decode_operand(struct decoding *decoding, int number, int slot, int width, struct error *err)
{
	struct instruction *instruction = decoding->instruction;

	if (slot >= MOST_OPERANDS || number >= decoding->statement->operand_count)
		return not_understood(decoding, err, "not the operands that are expected");
	if (!width)
		width = decoding->statement->operands[number].width;
	if (!width)
		width = 8;
	if (slot < 2)
		instruction->width[slot] = (uint8_t)width;
	return decode_slot(decoding, number, width, &instruction->slot[slot], err);
}

/* --- rows --------------------------------------------------------------------------------------------- */

static struct hsearch_data rows;

static void index_rows(void)
{
	size_t count = 0;
	ENTRY *entry;

	for (size_t i = 0; row_tables[i]; i++)
		for (const struct row *row = row_tables[i]; row->name; row++)
			count++;
	hcreate_r(2 * count, &rows);
	for (size_t i = 0; row_tables[i]; i++)
		for (const struct row *row = row_tables[i]; row->name; row++)
			hsearch_r(
				(ENTRY){.key = (char *)row->name, .data = (void *)row}, ENTER, &entry, &rows);
}

const struct row *find_row(const char *name)
{
	ENTRY *entry;

	if (!rows.size)
		index_rows();
	return hsearch_r((ENTRY){.key = (char *)name}, FIND, &entry, &rows) ? entry->data : NULL;
}

int decode_row(struct decoding *decoding, const char *name, struct error *err)
{
	const struct row *row = find_row(name);

	if (!row)
		return not_understood(decoding, err, "an unknown instruction");
	if (decoding->statement->operand_count != row->count)
		return not_understood(decoding, err, "not the operands that are expected");
	decoding->instruction->execute = row->execute;
	for (int i = 0; i < row->count; i++)
		if (decode_operand(decoding, i, i, operand_width(row->operands[i]), err) < 0)
			return -1;
	return 0;
}

/* --- modifiers ---------------------------------------------------------------------------------------- */

/* An opcode without a family: its parts are a row's name, but for modifiers. */
static int decode_plain(struct decoding *decoding, struct error *err)
{
	char name[MOST_PARTS * PART];
	size_t length = 0;

	drop_parts(decoding, "rn approx full sync");
	modifiers_take(decoding);
	for (int i = 0; i < decoding->part_count; i++)
		length += (size_t)snprintf(
			name + length, sizeof(name) - length, "%s%s", i ? "." : "", decoding->parts[i]);
	if (decode_row(decoding, name, err) < 0)
		return -1;
	return modifiers_apply(decoding, name, err);
}

/* --- functions ---------------------------------------------------------------------------------------- */

static const struct family *find_family(const char *name)
{
	for (size_t i = 0; family_tables[i]; i++)
		for (const struct family *family = family_tables[i]; family->name; family++)
			if (!strcmp(family->name, name))
				return family;
	return NULL;
}

static int decode_statement(struct decoding *decoding, struct error *err)
{
	const struct statement *statement = decoding->statement;
	struct instruction *instruction = decoding->instruction;
	const struct family *family;

	*instruction = (struct instruction){.line = statement->line, .text = statement->text};
	if (statement->predicate.kind == OPERAND_REGISTER) {
		instruction->predicate = decoding->frame->registers + (uint32_t)statement->predicate.value;
		instruction->negated = statement->predicate.negated;
	} else if (statement->predicate.kind != OPERAND_NOTHING) {
		return not_understood(decoding, err, "not a predicate");
	}
	if (split_opcode(decoding, err) < 0)
		return -1;
	family = find_family(decoding->parts[0]);
	return family ? family->decode(decoding, err) : decode_plain(decoding, err);
}

static size_t align(size_t bytes, size_t alignment)
{
	return (bytes + alignment - 1) / alignment * alignment;
}

static size_t frame_add(struct program *program, const struct function *function)
{
	struct kernel *kernel = program->kernel;
	struct frame *frame;

	program->frames = xrealloc(program->frames, (program->count + 1) * sizeof(*program->frames));
	frame = &program->frames[program->count];
	*frame = (struct frame){.function = function,
		.code = (uint32_t)kernel->instruction_count,
		.registers = (uint32_t)kernel->register_bytes,
		.local = kernel->local_bytes};
	kernel->instruction_count += function->statement_count;
	kernel->register_bytes += function->register_bytes;
	kernel->local_bytes = align(kernel->local_bytes + function->local_bytes, 16);
	frame->returns = zero_register(kernel);
	return program->count++;
}

int program_find(struct program *program, const char *name)
{
	const struct module *module = program->module;

	for (size_t i = 0; i < program->count; i++)
		if (!strcmp(program->frames[i].function->name, name))
			return (int)i;
	for (size_t i = 0; i < module->function_count; i++)
		if (!strcmp(module->functions[i].name, name) && module->functions[i].statement_count)
			return (int)frame_add(program, &module->functions[i]);
	return -1;
}

/* The statements of one of its functions, which may bring in others. */
static int decode_frame(struct program *program, size_t index, struct error *err)
{
	const struct frame frame = program->frames[index];
	struct kernel *kernel = program->kernel;

	kernel->code = xrealloc(
		kernel->code, (frame.code + frame.function->statement_count) * sizeof(*kernel->code));
	for (size_t i = 0; i < frame.function->statement_count; i++) {
		struct decoding decoding = {.program = program,
			.kernel = kernel,
			.frame = &frame,
			.statement = &frame.function->statements[i],
			.instruction = &kernel->code[frame.code + i]};

		if (decode_statement(&decoding, err) < 0)
			return -1;
	}
	return 0;
}

static int decode_entry(struct module *module, const struct function *function, struct error *err)
{
	struct kernel *kernel = xcalloc(1, sizeof(*kernel));
	struct program program = {.module = module, .kernel = kernel};
	int result = 0;

	module->kernels = xrealloc(module->kernels, (module->kernel_count + 1) * sizeof(*module->kernels));
	module->kernels[module->kernel_count++] = kernel;
	*kernel = (struct kernel){.name = function->name,
		.parameters = function->parameters,
		.parameter_count = function->parameter_count,
		.parameter_bytes = function->parameter_bytes,
		.shared_bytes = align(SHARED_START + function->shared.bytes,
			function->shared.alignment > 16 ? function->shared.alignment : 16),
		.most_threads = function->most_threads,
		.least_blocks = function->least_blocks};
	frame_add(&program, function);
	for (size_t i = 0; i < program.count && !result; i++)
		result = decode_frame(&program, i, err);
	free(program.frames);
	return result;
}

int module_load(const char *text, struct module **module, struct error *err)
{
	int result;

	*module = xcalloc(1, sizeof(**module));
	result = ptx_parse(text, *module, err);
	for (size_t i = 0; i < (*module)->function_count && !result; i++)
		if ((*module)->functions[i].entry)
			result = decode_entry(*module, &(*module)->functions[i], err);
	if (result)
		module_unload(*module);
	return result;
}

void module_unload(struct module *module)
{
	for (size_t i = 0; i < module->kernel_count; i++) {
		calls_free(module->kernels[i]->calls);
		products_free(module->kernels[i]->products);
		free(module->kernels[i]->code);
		free(module->kernels[i]->initials);
		free(module->kernels[i]);
	}
	free(module->kernels);
	ptx_free(module);
	free(module);
}

struct kernel *module_kernel(const struct module *module, const char *name)
{
	for (size_t i = 0; i < module->kernel_count; i++)
		if (!strcmp(module->kernels[i]->name, name))
			return module->kernels[i];
	return NULL;
}
