/* call: functions that the compiler has not made part of their callers, and those that the driver has for kernels. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "access.h"
#include "base/memory.h"

static void transfer(const struct warp *warp, int lane, const struct transfer *transfers, size_t count)
{
	unsigned char *local = warp->local + (size_t)lane * warp->block->launch->kernel->local_bytes;

	for (size_t i = 0; i < count; i++)
		memcpy(local + transfers[i].to, local + transfers[i].from, transfers[i].bytes);
}

/* The slot says where each lane goes on when the function returns; 0: the lane is not in the function. */
OPERATION(call)
{
	uint32_t *returns = SLOT(uint32_t, 0);

	EACH_LANE(if (returns[lane]) fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_INSTRUCTION,
		"a function that calls itself cannot be emulated");
		  returns[lane] = warp->pc;
		  transfer(warp, lane, instruction->call->arguments, instruction->call->argument_count));
	warp_split(warp, instruction->target);
}

OPERATION(go_back)
{
	const struct instruction *code = warp->block->launch->kernel->code;
	uint32_t *returns = SLOT(uint32_t, 0);

	for (uint32_t left = warp->active; left; left &= left - 1) {
		int lane = __builtin_ctz(left);
		const struct call *call = code[returns[lane] - 1].call;

		transfer(warp, lane, call->results, call->result_count);
		warp->at[lane] = returns[lane];
		returns[lane] = 0;
	}
	warp_scatter(warp);
}

/* --- what the driver has ------------------------------------------------------------------------------ */

/* A pointer among the arguments. */
static uint64_t pointer_argument(
	const struct warp *warp, const struct instruction *instruction, int lane, size_t number)
{
	const unsigned char *local = warp->local + (size_t)lane * warp->block->launch->kernel->local_bytes;
	uint64_t pointer;

	memcpy(&pointer, local + instruction->call->arguments[number].from, sizeof(pointer));
	return pointer;
}

/* A text in global memory. */
static const char *text_at(
	const struct warp *warp, const struct instruction *instruction, int lane, uint64_t address)
{
	const struct allocation *found = memory_find(address, 1);

	if (!found || !memchr((const char *)address, '\0', found->bytes - (address - found->address)))
		fault(warp, instruction, lane, CUDA_ERROR_ILLEGAL_ADDRESS, "there is no text at %#llx",
			(unsigned long long)address);
	return (const char *)address;
}

/* The next of printf's arguments, which lie one behind the other, each aligned to its own size. */
static uint64_t next_argument(
	struct warp *warp, const struct instruction *instruction, int lane, uint64_t *at, size_t bytes)
{
	uint64_t value = 0;

	*at = (*at + bytes - 1) / bytes * bytes;
	memcpy(&value, reach(warp, instruction, lane, SPACE_GENERIC, *at, bytes, READ), bytes);
	*at += bytes;
	return value;
}

/* Prints what one % asks for; returns what is behind it. */
static const char *print_one(
	struct warp *warp, const struct instruction *instruction, int lane, const char *format, uint64_t *at)
{
	size_t length = 1 + strspn(format + 1, "-+ #0123456789.");
	size_t sizes = strspn(format + length, "hljzt");
	bool is_long = memchr(format + length, 'l', sizes) || memchr(format + length, 'j', sizes) ||
		memchr(format + length, 'z', sizes) || memchr(format + length, 't', sizes);
	char kind = format[length + sizes], conversion[64];
	uint64_t bits;
	double value;

	snprintf(conversion, sizeof(conversion), "%.*s%s%c", (int)length, format,
		strchr("diouxX", kind) && is_long ? "ll" : "", kind);
	if (kind == '%') {
		putchar('%');
	} else if (strchr("diouxXc", kind)) {
		bits = next_argument(warp, instruction, lane, at, is_long ? 8 : 4);
		if (is_long)
			printf(conversion, bits);
		else
			printf(conversion, (unsigned)bits);
	} else if (strchr("aAeEfFgG", kind)) {
		bits = next_argument(warp, instruction, lane, at, 8);
		memcpy(&value, &bits, sizeof(value));
		printf(conversion, value);
	} else if (kind == 's') {
		bits = next_argument(warp, instruction, lane, at, 8);
		printf(conversion, text_at(warp, instruction, lane, bits));
	} else if (kind == 'p') {
		printf(conversion, (void *)next_argument(warp, instruction, lane, at, 8));
	}
	return format + length + sizes + (kind != '\0');
}

OPERATION(print)
{
	for (uint32_t left = warp->active; left; left &= left - 1) {
		int lane = __builtin_ctz(left);
		const char *format = text_at(
			warp, instruction, lane, pointer_argument(warp, instruction, lane, 0));
		uint64_t at = pointer_argument(warp, instruction, lane, 1);

		while (*format)
			if (*format == '%')
				format = print_one(warp, instruction, lane, format, &at);
			else
				putchar(*format++);
	}
	fflush(stdout);
}

OPERATION(assertion_failed)
{
	int lane = __builtin_ctz(warp->active);

	fault(warp, instruction, lane, CUDA_ERROR_LAUNCH_FAILED, "assertion failed: %s",
		text_at(warp, instruction, lane, pointer_argument(warp, instruction, lane, 0)));
}

static const struct {
	const char *name;
	operation *execute;
	size_t arguments;
} builtins[] = {{"vprintf", print, 2}, {"__assertfail", assertion_failed, 5}};

/* --- decoding ----------------------------------------------------------------------------------------- */

/* What goes between the variables of a caller and those of a function, whose memory begins at `local`. */
static int connect(struct decoding *decoding, int group, const struct parameter *parameters, size_t count,
	size_t local, bool back, struct transfer **transfers, struct error *err)
{
	const struct statement *statement = decoding->statement;
	int first = 0;

	if (count && group_size(statement, group, &first) != (int)count)
		return not_understood(decoding, err, "not as many values as the function has");
	*transfers = xcalloc(count + 1, sizeof(**transfers));
	for (size_t i = 0; i < count; i++) {
		const struct operand *operand = &statement->operands[first + (int)i];
		size_t outside = symbol_address(decoding, operand), inside = local + parameters[i].offset;

		if (operand->kind != OPERAND_SYMBOL || operand->space != SPACE_LOCAL)
			return not_understood(decoding, err, "not a variable");
		(*transfers)[i] = back ? (struct transfer){inside, outside, parameters[i].bytes}
				       : (struct transfer){outside, inside, parameters[i].bytes};
	}
	return 0;
}

static int decode_builtin(
	struct decoding *decoding, struct call *made, const char *name, int arguments, struct error *err)
{
	static const struct parameter none[8];

	for (size_t i = 0; i < sizeof(builtins) / sizeof(*builtins); i++) {
		if (strcmp(builtins[i].name, name))
			continue;
		decoding->instruction->execute = builtins[i].execute;
		made->argument_count = builtins[i].arguments;
		return connect(
			decoding, arguments, none, made->argument_count, 0, false, &made->arguments, err);
	}
	return not_understood(decoding, err, "a function that is not there");
}

/* call (result), name, (arguments); the first and the last may be missing */
static int decode_call(struct decoding *decoding, struct error *err)
{
	const struct statement *statement = decoding->statement;
	struct kernel *kernel = decoding->kernel;
	struct call *made = xcalloc(1, sizeof(*made));
	const struct frame *frame;
	const char *name;
	int named = 0, found;

	drop_parts(decoding, "uni");
	made->next = kernel->calls;
	kernel->calls = made;
	decoding->instruction->call = made;
	while (named < statement->operand_count && statement->operands[named].kind != OPERAND_NAME)
		named++;
	if (named == statement->operand_count)
		return not_understood(decoding, err, "no such call");
	name = statement->operands[named].name;
	named = statement->operands[named].group;
	found = program_find(decoding->program, name);
	if (found < 0)
		return decode_builtin(decoding, made, name, named + 1, err);
	frame = &decoding->program->frames[found];
	decoding->instruction->execute = call;
	decoding->instruction->slot[0] = frame->returns;
	decoding->instruction->target = frame->code;
	made->argument_count = frame->function->parameter_count;
	made->result_count = frame->function->result_count;
	if (connect(decoding, named + 1, frame->function->parameters, made->argument_count, frame->local,
		    false, &made->arguments, err) < 0)
		return -1;
	return connect(decoding, 0, frame->function->results, made->result_count, frame->local, true,
		&made->results, err);
}

static int decode_return(struct decoding *decoding, struct error *err)
{
	if (decoding->frame->function->entry)
		return decode_end(decoding, err);
	drop_parts(decoding, "uni");
	decoding->instruction->execute = go_back;
	decoding->instruction->slot[0] = decoding->frame->returns;
	return no_parts_left(decoding, err);
}

void calls_free(struct call *calls)
{
	while (calls) {
		struct call *next = calls->next;

		free(calls->arguments);
		free(calls->results);
		free(calls);
		calls = next;
	}
}

const struct family call_families[] = {{"call", decode_call}, {"ret", decode_return}, {0}};
