/* What a Python file imports and calls, by our own reader: of any bytes at all. */
#include "fuzz.h"

#include <ctype.h>
#include <stdbool.h>

#include "fork/python_source.h"

struct reading {
	size_t facts, lines;
};

/* Names and dots. An alias or a name without dots may not have them. */
static bool is_dotted(const char *text, bool dots)
{
	for (; *text; text++)
		if (!isalnum((unsigned char)*text) && *text != '_' && (unsigned char)*text < 0x80 &&
			!(dots && *text == '.'))
			return false;
	return true;
}

static void visit(const struct python_fact *fact, void *context)
{
	struct reading *reading = context;

	reading->facts++;
	REQUIRE(fact->line >= 1 && fact->line <= reading->lines);
	REQUIRE(is_dotted(fact->module, true) && (!fact->alias || is_dotted(fact->alias, false)));
	switch (fact->kind) {
	case PYTHON_IMPORT:
		REQUIRE(*fact->module && !fact->name && !fact->level);
		break;
	case PYTHON_FROM:
		REQUIRE(fact->level >= 0);
		REQUIRE(!strcmp(fact->name, "*") || (*fact->name && is_dotted(fact->name, false)));
		break;
	case PYTHON_CALL:
		REQUIRE(*fact->name && is_dotted(fact->name, true) && !fact->level);
		break;
	}
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	char *text = fuzz_string(data, size);
	struct reading reading = {.lines = 1};
	struct python_fault fault;

	for (size_t i = 0; i < size; i++)
		reading.lines += text[i] == '\n' || text[i] == '\r';
	python_source_read(text, size, visit, &reading, &fault);
	REQUIRE(reading.facts <= size); /* each has a bracket, an import or a comma of its own */
	REQUIRE(fault.line <= reading.lines && !fault.line == !*fault.what);
	free(text);
	return 0;
}
