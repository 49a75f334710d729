#include "ptx.h"

#include <ctype.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>

#include "base/memory.h"
#include "memory.h"

enum symbol_kind {
	SYMBOL_REGISTER,
	SYMBOL_REGISTERS, /* %r<100>: %r0 to %r99 */
	SYMBOL_VARIABLE,
	SYMBOL_LABEL,
	SYMBOL_TARGETS,
};

struct symbol {
	enum symbol_kind kind;
	int width;
	enum space space;
	uint64_t value; /* slot, address, statement */
	uint64_t count; /* of registers, of targets */
	char **names;   /* of targets */
	uint32_t *targets;
};

/* Names belong to a scope, which is a pair of braces; scope 0 is the module. */
struct symbols {
	struct hsearch_data table;
	int *parents; /* of each scope */
	int scope_count;
	char **keys;
	struct symbol **items;
	size_t count, room;
};

struct parser {
	struct module *module;
	struct function *function;
	const char *at, *line;
	uint32_t number; /* of the line */
	int scope;
	char word[1024];
	struct error *err;
};

/* --- symbols ------------------------------------------------------------------------------------------ */

static void make_key(char key[1100], int scope, const char *name)
{
	snprintf(key, 1100, "%d %s", scope, name);
}

static struct symbol *symbol_add(struct parser *parser, const char *name, struct symbol symbol)
{
	struct symbols *symbols = parser->module->symbols;
	char key[1100];
	ENTRY *entry, wanted;

	make_key(key, parser->scope, name);
	wanted = (ENTRY){.key = xstrdup(key), .data = xmalloc(sizeof(symbol))};
	*(struct symbol *)wanted.data = symbol;
	if (!hsearch_r(wanted, ENTER, &entry, &symbols->table))
		abort(); /* there is room for more symbols than the text has characters for */
	if (symbols->count == symbols->room) {
		symbols->room = symbols->room * 2 + 64;
		symbols->keys = xrealloc(symbols->keys, symbols->room * sizeof(*symbols->keys));
		symbols->items = xrealloc(symbols->items, symbols->room * sizeof(*symbols->items));
	}
	symbols->keys[symbols->count] = wanted.key;
	symbols->items[symbols->count++] = wanted.data;
	return entry->data;
}

/* Looks in one scope. */
static struct symbol *symbol_in(struct symbols *symbols, int scope, const char *name)
{
	char key[1100];
	ENTRY *entry;

	make_key(key, scope, name);
	return hsearch_r((ENTRY){.key = key}, FIND, &entry, &symbols->table) ? entry->data : NULL;
}

/* Looks in a scope, and in those around it. */
static struct symbol *symbol_find(struct symbols *symbols, int scope, const char *name)
{
	struct symbol *found = NULL;

	for (; scope >= 0 && !found; scope = symbols->parents[scope])
		found = symbol_in(symbols, scope, name);
	return found;
}

static int scope_add(struct symbols *symbols, int parent)
{
	symbols->parents = xrealloc(
		symbols->parents, (size_t)(symbols->scope_count + 1) * sizeof(*symbols->parents));
	symbols->parents[symbols->scope_count] = parent;
	return symbols->scope_count++;
}

/* --- words -------------------------------------------------------------------------------------------- */

static int failed(struct parser *parser, const char *what)
{
	return error_set(parser->err, STATUS_USAGE, "line %u of the PTX: %s: %.*s", parser->number, what,
		(int)strcspn(parser->line, "\n"), parser->line);
}

static void skip_space(struct parser *parser)
{
	for (;; parser->at++) {
		if (!strncmp(parser->at, "//", 2))
			parser->at += strcspn(parser->at, "\n");
		if (!strncmp(parser->at, "/*", 2)) {
			const char *end = strstr(parser->at, "*/");

			for (end = end ? end : parser->at + 1; parser->at <= end; parser->at++)
				parser->number += *parser->at == '\n';
		}
		if (*parser->at == '\n') {
			parser->number++;
			parser->line = parser->at + 1;
		} else if (!*parser->at || !isspace((unsigned char)*parser->at)) {
			return;
		}
	}
}

/* How many characters of a word are here: :: is two. */
static size_t word_characters(const char *at)
{
	if (at[0] == ':')
		return at[1] == ':' ? 2 : 0;
	return isalnum((unsigned char)*at) || (*at && strchr("_$%.", *at));
}

/* The next word, or "" before punctuation. A directive ends where the next begins: .reg.b16 is two. */
static const char *next_word(struct parser *parser)
{
	size_t length = 0, count;

	skip_space(parser);
	while ((count = word_characters(parser->at)) && length + count < sizeof(parser->word) &&
		!(length && *parser->at == '.' && parser->word[0] == '.')) {
		memcpy(parser->word + length, parser->at, count);
		parser->at += count;
		length += count;
	}
	parser->word[length] = '\0';
	return parser->word;
}

/* Whether this character comes next, which is then behind us. */
static bool take(struct parser *parser, char character)
{
	skip_space(parser);
	if (*parser->at != character)
		return false;
	parser->at++;
	return true;
}

static int expect(struct parser *parser, char character)
{
	char what[32];

	if (take(parser, character))
		return 0;
	snprintf(what, sizeof(what), "%c is expected", character);
	return failed(parser, what);
}

static void skip_past(struct parser *parser, char character)
{
	while (*parser->at && !take(parser, character))
		parser->at++;
}

/* 12, -12, 0x1f, 0f3F800000, 0d3FF0000000000000, 1.5 */
static int parse_number(struct parser *parser, struct operand *operand)
{
	bool negative = take(parser, '-');
	const char *word = next_word(parser);
	bool bits = word[0] == '0' && strchr("fFdD", word[1] ? word[1] : ' ');
	char *end;

	operand->kind = OPERAND_INTEGER;
	if (bits) {
		operand->kind = tolower((unsigned char)word[1]) == 'f' ? OPERAND_FLOAT : OPERAND_DOUBLE;
		operand->value = strtoull(word + 2, &end, 16);
	} else if (strchr(word, '.')) {
		double value = strtod(word, &end);

		operand->kind = OPERAND_DOUBLE;
		memcpy(&operand->value, &value, sizeof(value));
	} else {
		operand->value = strtoull(word, &end, 0);
		end += *end == 'U';
	}
	if (!word[0] || *end)
		return failed(parser, "not a number");
	if (negative && operand->kind == OPERAND_INTEGER)
		operand->value = -operand->value;
	else if (negative)
		operand->value ^= operand->kind == OPERAND_FLOAT ? 1u << 31 : (uint64_t)1 << 63;
	return 0;
}

/* Bytes of ".b32" and the like; a predicate has 4; 0 for another word. */
static int type_bytes(const char *word)
{
	static const struct {
		const char *name;
		int bytes;
	} types[] = {{".pred", 4}, {".b8", 1}, {".u8", 1}, {".s8", 1}, {".b16", 2}, {".u16", 2}, {".s16", 2},
		{".f16", 2}, {".bf16", 2}, {".b32", 4}, {".u32", 4}, {".s32", 4}, {".f32", 4}, {".f16x2", 4},
		{".bf16x2", 4}, {".b64", 8}, {".u64", 8}, {".s64", 8}, {".f64", 8}, {".b128", 16}};

	for (size_t i = 0; i < sizeof(types) / sizeof(*types); i++)
		if (!strcmp(types[i].name, word))
			return types[i].bytes;
	return 0;
}

/* --- operands ----------------------------------------------------------------------------------------- */

/* What a name means, %r12 of a range %r<100> (then with its index) among it, or NULL. What the innermost scope has hides
 * what has the same name around it, a range or not. */
static const struct symbol *find_operand(struct parser *parser, const char *name, uint64_t *index)
{
	struct symbols *symbols = parser->module->symbols;
	size_t prefix_length = strlen(name);
	char prefix[1024];

	while (prefix_length && isdigit((unsigned char)name[prefix_length - 1]))
		prefix_length--;
	memcpy(prefix, name, prefix_length);
	prefix[prefix_length] = '\0';
	for (int scope = parser->scope; scope >= 0; scope = symbols->parents[scope]) {
		const struct symbol *found = symbol_in(symbols, scope, name);

		*index = 0;
		if (found)
			return found;
		found = symbol_in(symbols, scope, prefix);
		*index = strtoull(name + prefix_length, NULL, 10);
		if (found && found->kind == SYMBOL_REGISTERS && name[prefix_length] && *index < found->count)
			return found;
	}
	return NULL;
}

static void resolve(struct parser *parser, struct operand *operand, const char *name)
{
	uint64_t index;
	const struct symbol *symbol = find_operand(parser, name, &index);

	if (symbol && (symbol->kind == SYMBOL_REGISTER || symbol->kind == SYMBOL_REGISTERS)) {
		operand->kind = OPERAND_REGISTER;
		operand->width = symbol->width;
		operand->value = symbol->value + index * (uint64_t)symbol->width * LANES;
	} else if (symbol && symbol->kind == SYMBOL_VARIABLE) {
		operand->kind = OPERAND_SYMBOL;
		operand->space = symbol->space;
		operand->value = symbol->value;
		operand->width = 8;
	} else if (!strcmp(name, "_")) {
		operand->kind = OPERAND_NOTHING;
	} else {
		operand->kind = OPERAND_NAME;
		operand->name = xstrdup(name);
	}
}

static struct operand *operand_add(struct statement *statement)
{
	statement->operands = xrealloc(
		statement->operands, (size_t)(statement->operand_count + 1) * sizeof(*statement->operands));
	statement->operands[statement->operand_count] = (struct operand){.group = statement->group_count};
	return &statement->operands[statement->operand_count++];
}

/* A register, a number or a name, and what is added to it. */
static int parse_simple(struct parser *parser, struct operand *operand)
{
	operand->negated = take(parser, '!');
	skip_space(parser);
	if (*parser->at == '-' || isdigit((unsigned char)*parser->at))
		return parse_number(parser, operand);
	if (!next_word(parser)[0])
		return failed(parser, "not understood");
	resolve(parser, operand, parser->word);
	if (take(parser, '+')) {
		struct operand added = {0};

		if (parse_number(parser, &added) < 0)
			return -1;
		operand->offset = (int64_t)added.value;
	}
	return 0;
}

static int parse_operand(struct parser *parser, struct statement *statement)
{
	char close = take(parser, '{') ? '}' : take(parser, '[') ? ']' : take(parser, '(') ? ')' : '\0';
	bool list = false; /* [address, {1, 2}]: it ends what is in the brackets */

	do {
		struct operand *operand = operand_add(statement);

		list |= close == ']' && take(parser, '{');
		if (parse_simple(parser, operand) < 0)
			return -1;
		operand->memory = close == ']';
	} while (close ? take(parser, ',') : take(parser, '|'));
	statement->group_count++;
	if (list && expect(parser, '}') < 0)
		return -1;
	return close ? expect(parser, close) : 0;
}

static int parse_statement(struct parser *parser)
{
	struct function *function = parser->function;
	struct statement statement = {.predicate.kind = OPERAND_NOTHING, .scope = parser->scope};

	if (take(parser, '@') && parse_simple(parser, &statement.predicate) < 0)
		return -1;
	statement.opcode = xstrdup(next_word(parser));
	statement.line = parser->number;
	statement.text = parser->line;
	function->statements = xrealloc(
		function->statements, (function->statement_count + 1) * sizeof(*function->statements));
	function->statements[function->statement_count++] = statement;
	if (take(parser, ';'))
		return 0;
	do {
		if (parse_operand(parser, &function->statements[function->statement_count - 1]) < 0)
			return -1;
	} while (take(parser, ','));
	return expect(parser, ';');
}

/* --- declarations ------------------------------------------------------------------------------------- */

struct declaration {
	enum space space;
	size_t alignment, bytes; /* of one element */
	bool constant, external;
};

static size_t align(size_t offset, size_t alignment)
{
	return (offset + alignment - 1) / alignment * alignment;
}

/* Words before a name, from `word` on: ".align 16 .b8". Leaves the name in parser->word. */
static void parse_attributes(struct parser *parser, struct declaration *declaration)
{
	declaration->alignment = 0;
	for (; parser->word[0] == '.'; next_word(parser)) {
		if (!strcmp(parser->word, ".align"))
			declaration->alignment = strtoull(next_word(parser), NULL, 10);
		else if (type_bytes(parser->word))
			declaration->bytes = (size_t)type_bytes(parser->word);
		else if (parser->word[1] == 'v' && isdigit((unsigned char)parser->word[2]))
			declaration->bytes *= strtoull(parser->word + 2, NULL, 10);
	}
	if (!declaration->alignment)
		declaration->alignment = declaration->bytes ? declaration->bytes : 1;
}

/* [4][8]; 1 without. */
static size_t parse_dimensions(struct parser *parser)
{
	size_t count = 1;

	while (take(parser, '[')) {
		count *= strtoull(next_word(parser), NULL, 10);
		take(parser, ']');
	}
	return count;
}

static int parse_initial_value(
	struct parser *parser, const struct declaration *declaration, struct variable *variable)
{
	bool list = take(parser, '{');
	unsigned char *to = (unsigned char *)variable->address;

	do {
		struct operand value = {0};

		if (parse_number(parser, &value) < 0)
			return -1;
		if (to + declaration->bytes > (unsigned char *)variable->address + variable->bytes)
			return failed(parser, "more values than there is room for");
		memcpy(to, &value.value, declaration->bytes);
		to += declaration->bytes;
	} while (take(parser, ','));
	return list ? expect(parser, '}') : 0;
}

static size_t maximum(size_t a, size_t b)
{
	return a > b ? a : b;
}

/* The places of variables in the memory of blocks and threads. An array of no size is what a launch asks for, behind
 * all others: where that is, is known in the end. */
static uint64_t place(struct parser *parser, const struct declaration *declaration, size_t bytes)
{
	struct shared_variables *shared = parser->function ? &parser->function->shared
							   : &parser->module->shared;
	size_t *used = declaration->space == SPACE_LOCAL ? &parser->function->local_bytes : &shared->bytes;
	size_t offset = align(*used, declaration->alignment);

	if (declaration->space == SPACE_SHARED)
		shared->alignment = maximum(shared->alignment, declaration->alignment);
	if (!bytes)
		return SHARED_DYNAMIC;
	*used = offset + bytes;
	return declaration->space == SPACE_LOCAL ? offset : SHARED_START + offset;
}

/* A variable of .global, .const, .shared, .local, or .param within a function. */
static int parse_variable(struct parser *parser, struct declaration declaration)
{
	struct module *module = parser->module;
	char name[sizeof(parser->word)];
	struct symbol symbol = {.kind = SYMBOL_VARIABLE, .space = declaration.space};
	size_t bytes;

	next_word(parser);
	parse_attributes(parser, &declaration);
	strcpy(name, parser->word);
	bytes = declaration.bytes * parse_dimensions(parser);
	if (declaration.space == SPACE_GLOBAL) {
		struct variable *variable;

		module->variables = xrealloc(
			module->variables, (module->variable_count + 1) * sizeof(*module->variables));
		variable = &module->variables[module->variable_count];
		*variable = (struct variable){.bytes = bytes};
		if (memory_allocate(&variable->address, bytes) != CUDA_SUCCESS)
			return failed(parser, "no memory for it");
		module->variable_count++;
		memset((void *)variable->address, 0, bytes);
		symbol.value = variable->address;
		if (take(parser, '=') && parse_initial_value(parser, &declaration, variable) < 0)
			return -1;
	} else {
		symbol.value = place(parser, &declaration, bytes);
	}
	symbol_add(parser, name, symbol);
	return expect(parser, ';');
}

/* .reg .b32 %r<100>, x; */
static int parse_registers(struct parser *parser)
{
	int width = type_bytes(next_word(parser));

	if (!width)
		return failed(parser, "a type is expected");
	width = width == 1 ? 2 : width; /* there are no registers of 8 bits in machines */
	do {
		struct symbol symbol = {.kind = SYMBOL_REGISTER, .width = width, .count = 1};
		char name[sizeof(parser->word)];

		strcpy(name, next_word(parser));
		if (take(parser, '<')) {
			symbol.kind = SYMBOL_REGISTERS;
			symbol.count = strtoull(next_word(parser), NULL, 10);
			if (expect(parser, '>') < 0)
				return -1;
		}
		symbol.value = parser->function->register_bytes;
		parser->function->register_bytes += symbol.count * (size_t)width * LANES;
		symbol_add(parser, name, symbol);
	} while (take(parser, ','));
	return expect(parser, ';');
}

/* NAME: .branchtargets A, B, C; */
static int parse_targets(struct parser *parser, const char *name)
{
	struct symbol symbol = {.kind = SYMBOL_TARGETS};

	do {
		symbol.names = xrealloc(symbol.names, (symbol.count + 1) * sizeof(*symbol.names));
		symbol.names[symbol.count++] = xstrdup(next_word(parser));
	} while (take(parser, ','));
	symbol_add(parser, name, symbol);
	return expect(parser, ';');
}

static int parse_label(struct parser *parser)
{
	char name[sizeof(parser->word)];
	const char *at;

	strcpy(name, parser->word);
	skip_space(parser);
	at = parser->at;
	if (*at == '.' && !strcmp(next_word(parser), ".branchtargets"))
		return parse_targets(parser, name);
	parser->at = at;
	symbol_add(parser, name,
		(struct symbol){.kind = SYMBOL_LABEL, .value = parser->function->statement_count});
	return 0;
}

/* --- functions ---------------------------------------------------------------------------------------- */

static int parse_body_item(struct parser *parser)
{
	const char *at = parser->at;
	const char *word = next_word(parser);

	if (!strcmp(word, ".reg"))
		return parse_registers(parser);
	if (!strcmp(word, ".shared"))
		return parse_variable(parser, (struct declaration){.space = SPACE_SHARED});
	if (!strcmp(word, ".local") || !strcmp(word, ".param"))
		return parse_variable(parser, (struct declaration){.space = SPACE_LOCAL});
	if (!strcmp(word, ".pragma")) {
		skip_past(parser, ';');
		return 0;
	}
	if (!strcmp(word, ".loc")) {
		parser->at += strcspn(parser->at, "\n");
		return 0;
	}
	if (word[0] && word[0] != '.' && *parser->at == ':') {
		parser->at++;
		return parse_label(parser);
	}
	if (word[0] == '.')
		return failed(parser, "not understood");
	parser->at = at;
	return parse_statement(parser);
}

/* Up to the brace that closes it. */
static int parse_body(struct parser *parser)
{
	struct symbols *symbols = parser->module->symbols;
	int outside = symbols->parents[parser->scope];

	while (parser->scope != outside) {
		skip_space(parser);
		if (!*parser->at)
			return failed(parser, "a closing brace is missing");
		if (take(parser, '{'))
			parser->scope = scope_add(symbols, parser->scope);
		else if (take(parser, '}'))
			parser->scope = symbols->parents[parser->scope];
		else if (parse_body_item(parser) < 0)
			return -1;
	}
	return 0;
}

/* .param .align 8 .b8 name[176] */
static struct parameter parse_parameter(struct parser *parser)
{
	struct function *function = parser->function;
	struct declaration declaration = {.space = function->entry ? SPACE_PARAM : SPACE_LOCAL};
	struct parameter parameter;
	char name[sizeof(parser->word)];

	next_word(parser); /* .param or .reg */
	next_word(parser);
	parse_attributes(parser, &declaration);
	strcpy(name, parser->word);
	parameter.bytes = declaration.bytes * parse_dimensions(parser);
	if (function->entry) {
		parameter.offset = align(function->parameter_bytes, declaration.alignment);
		function->parameter_bytes = parameter.offset + parameter.bytes;
	} else {
		parameter.offset = place(parser, &declaration, parameter.bytes);
	}
	symbol_add(parser, name,
		(struct symbol){
			.kind = SYMBOL_VARIABLE, .space = declaration.space, .value = parameter.offset});
	return parameter;
}

/* A list of them in parentheses, if there is one. */
static int parse_parameters(struct parser *parser, struct parameter **list, size_t *count)
{
	if (!take(parser, '(') || take(parser, ')'))
		return 0;
	do {
		*list = xrealloc(*list, (*count + 1) * sizeof(**list));
		(*list)[(*count)++] = parse_parameter(parser);
	} while (take(parser, ','));
	return expect(parser, ')');
}

static int parse_function(struct parser *parser, bool entry)
{
	struct module *module = parser->module;
	struct function *function;
	int result;

	module->functions = xrealloc(
		module->functions, (module->function_count + 1) * sizeof(*module->functions));
	function = parser->function = &module->functions[module->function_count++];
	*function = (struct function){.entry = entry,
		.symbols = module->symbols,
		.shared = module->shared,
		.parameter_bytes = entry ? PARAMETERS_START : 0,
		.register_bytes = 4 * LANES};
	parser->scope = scope_add(module->symbols, 0);
	result = parse_parameters(parser, &function->results, &function->result_count);
	function->name = xstrdup(next_word(parser));
	if (!result)
		result = parse_parameters(parser, &function->parameters, &function->parameter_count);
	while (!result && !take(parser, '{') && !take(parser, ';')) {
		if (!next_word(parser)[0])
			return failed(parser, "not understood");
		if (!strcmp(parser->word, ".maxntid") || !strcmp(parser->word, ".reqntid")) {
			function->most_threads = 1;
			do
				function->most_threads *= (int)strtol(next_word(parser), NULL, 10);
			while (take(parser, ','));
		} else if (!strcmp(parser->word, ".minnctapersm")) {
			function->least_blocks = (int)strtol(next_word(parser), NULL, 10);
		} else if (parser->word[0] == '.') {
			next_word(parser); /* .maxnreg 128, and the like */
		}
	}
	if (!result && parser->at[-1] == '{')
		result = parse_body(parser);
	parser->function = NULL;
	parser->scope = 0;
	return result;
}

static int parse_module_item(struct parser *parser)
{
	const char *word = next_word(parser);

	if (!word[0])
		return failed(parser, "not understood");
	if (!strcmp(word, ".version") || !strcmp(word, ".target") || !strcmp(word, ".address_size") ||
		!strcmp(word, ".file")) {
		parser->at += strcspn(parser->at, "\n");
		return 0;
	}
	if (!strcmp(word, ".extern") || !strcmp(word, ".visible") || !strcmp(word, ".weak") ||
		!strcmp(word, ".common"))
		return 0; /* what it says of comes next */
	if (!strcmp(word, ".entry") || !strcmp(word, ".func"))
		return parse_function(parser, !strcmp(word, ".entry"));
	if (!strcmp(word, ".shared"))
		return parse_variable(parser, (struct declaration){.space = SPACE_SHARED});
	if (!strcmp(word, ".global") || !strcmp(word, ".const"))
		return parse_variable(parser, (struct declaration){.space = SPACE_GLOBAL});
	return failed(parser, "not understood");
}

static int resolve_targets(struct symbols *symbols, struct error *err)
{
	for (size_t i = 0; i < symbols->count; i++) {
		struct symbol *list = symbols->items[i];
		int scope = atoi(symbols->keys[i]);

		if (list->kind != SYMBOL_TARGETS)
			continue;
		list->targets = xcalloc(list->count, sizeof(*list->targets));
		for (size_t j = 0; j < list->count; j++) {
			const struct symbol *label = symbol_find(symbols, scope, list->names[j]);

			if (!label || label->kind != SYMBOL_LABEL)
				return error_set(err, STATUS_USAGE, "there is no label %s", list->names[j]);
			list->targets[j] = (uint32_t)label->value;
		}
	}
	return 0;
}

int ptx_parse(const char *text, struct module *module, struct error *err)
{
	struct parser parser = {.module = module, .number = 1, .err = err};
	struct symbols *symbols = xcalloc(1, sizeof(*symbols));

	*module = (struct module){.text = xstrdup(text), .symbols = symbols};
	parser.at = parser.line = module->text;
	hcreate_r(strlen(text) / 4 + 64, &symbols->table);
	scope_add(symbols, -1);
	for (skip_space(&parser); *parser.at; skip_space(&parser))
		if (parse_module_item(&parser) < 0)
			return -1;
	return resolve_targets(symbols, err);
}

int64_t ptx_label(const struct function *function, int scope, const char *name)
{
	const struct symbol *symbol = symbol_find(function->symbols, scope, name);

	return symbol && symbol->kind == SYMBOL_LABEL ? (int64_t)symbol->value : -1;
}

const uint32_t *ptx_targets(const struct function *function, int scope, const char *name, size_t *count)
{
	const struct symbol *symbol = symbol_find(function->symbols, scope, name);

	if (!symbol || symbol->kind != SYMBOL_TARGETS)
		return NULL;
	*count = symbol->count;
	return symbol->targets;
}

static void statement_free(struct statement *statement)
{
	for (int i = 0; i < statement->operand_count; i++)
		free(statement->operands[i].name);
	free(statement->operands);
	free(statement->predicate.name);
	free(statement->opcode);
}

static void symbols_free(struct symbols *symbols)
{
	for (size_t i = 0; i < symbols->count; i++) {
		struct symbol *symbol = symbols->items[i];

		for (size_t j = 0; symbol->names && j < symbol->count; j++)
			free(symbol->names[j]);
		free(symbol->names);
		free(symbol->targets);
		free(symbol);
		free(symbols->keys[i]);
	}
	hdestroy_r(&symbols->table);
	free(symbols->parents);
	free(symbols->keys);
	free(symbols->items);
	free(symbols);
}

void ptx_free(struct module *module)
{
	for (size_t i = 0; i < module->function_count; i++) {
		struct function *function = &module->functions[i];

		for (size_t j = 0; j < function->statement_count; j++)
			statement_free(&function->statements[j]);
		free(function->statements);
		free(function->parameters);
		free(function->results);
		free(function->name);
	}
	for (size_t i = 0; i < module->variable_count; i++)
		memory_free(module->variables[i].address);
	symbols_free(module->symbols);
	free(module->functions);
	free(module->variables);
	free(module->text);
}
