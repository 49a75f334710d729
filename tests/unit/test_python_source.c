/* The two readers of Python files tell the same: our own, and Python's syntax tree. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>
#include <fts.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/buffer.h"
#include "base/file.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/python_ast.h"
#include "fork/python_source.h"

#define BATCH 64
#define CORPUS "/usr/lib"

static const char *python(void)
{
	const char *chosen = getenv("QUASAR_TEST_PYTHON");

	return chosen ? chosen : "/usr/bin/python3";
}

/* --- facts as text ------------------------------------------------------------------------------- */

struct facts {
	char **lines;
	size_t count;
	struct python_fault fault;
};

static void note(const struct python_fact *fact, void *context)
{
	struct facts *facts = context;
	char *line;

	if (fact->kind == PYTHON_CALL)
		line = xprintf("%zu: %s%s()", fact->line, fact->of_expression ? "(…)." : "", fact->name);
	else if (fact->kind == PYTHON_FROM)
		line = xprintf("%zu: from %d %s import %s as %s", fact->line, fact->level, fact->module,
			fact->name, fact->alias ? fact->alias : fact->name);
	else
		line = xprintf("%zu: import %s as %s", fact->line, fact->module,
			fact->alias ? fact->alias : fact->module);
	facts->lines = xrealloc(facts->lines, (facts->count + 1) * sizeof(*facts->lines));
	facts->lines[facts->count++] = line;
}

static int by_text(const void *left, const void *right)
{
	return strcmp(*(char *const *)left, *(char *const *)right);
}

/* In one order, whatever the reader's was. */
static char *as_text(struct facts *facts)
{
	struct buffer text = {0};

	qsort(facts->lines, facts->count, sizeof(*facts->lines), by_text);
	buffer_text(&text, "");
	for (size_t i = 0; i < facts->count; i++) {
		buffer_printf(&text, "%s\n", facts->lines[i]);
		free(facts->lines[i]);
	}
	free(facts->lines);
	return text.data;
}

static char *read_source(const struct buffer *source, struct python_fault *fault)
{
	struct facts facts = {0};

	python_source_read(source->data, source->length, note, &facts, fault);
	return as_text(&facts);
}

/* "fault: …" when Python does not take it, NULL when it cannot tell. */
static char *read_tree(const cJSON *report)
{
	struct facts facts = {0};
	struct python_fault fault;
	char *text;

	if (!report)
		return NULL;
	python_ast_visit(report, note, &facts, &fault);
	text = as_text(&facts);
	if (fault.line) {
		free(text);
		text = xprintf("fault: %s", fault.what);
	}
	return text;
}

/* Where two texts differ, said shortly. */
static void say_difference(const char *path, const char *own, const char *tree)
{
	while (*own && *own == *tree)
		own++, tree++;
	print_error("%s: own reader ‹%.200s›, syntax tree ‹%.200s›\n", path, own, tree);
}

struct tally {
	size_t read, refused, different;
};

static void compare(const char *path, const struct buffer *source, const cJSON *report, struct tally *tally)
{
	struct python_fault fault;
	char *own = read_source(source, &fault), *tree = read_tree(report);

	if (!tree) {
		print_error("unread %s\n", path);
	} else if (!strncmp(tree, "fault: ", 7)) {
		tally->refused++;
	} else {
		tally->read++;
		if (fault.line || strcmp(own, tree)) {
			tally->different++;
			print_error("%s %zu %s\n", path, fault.line, fault.what);
			say_difference(path, own, tree);
		}
	}
	free(own);
	free(tree);
}

/* --- the standard library ------------------------------------------------------------------------ */

struct batch {
	char *paths[BATCH];
	struct buffer texts[BATCH];
	size_t count, bytes;
};

static void compare_batch(struct batch *batch, struct tally *tally)
{
	struct python_ast ast;
	struct error err;

	assert_int_equal(python_ast_read(python(), batch->texts, batch->count, &ast, &err), 0);
	for (size_t i = 0; i < batch->count; i++) {
		compare(batch->paths[i], &batch->texts[i], ast.reports[i], tally);
		free(batch->paths[i]);
		buffer_free(&batch->texts[i]);
	}
	python_ast_free(&ast);
	*batch = (struct batch){0};
}

static void standard_library_reads_the_same(void **state)
{
	const char *corpus = getenv("QUASAR_TEST_CORPUS");
	char *const roots[] = {(char *)(corpus ? corpus : "/usr/lib/python3.11"), NULL};
	FTS *walk = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR, NULL);
	struct batch batch = {0};
	struct tally tally = {0};
	struct error err;
	FTSENT *entry;

	(void)state;
	assert_non_null(walk);
	while ((entry = fts_read(walk))) {
		size_t length = entry->fts_namelen;
		struct buffer *text = &batch.texts[batch.count];

		if (entry->fts_info != FTS_F || length < 3 || strcmp(entry->fts_name + length - 3, ".py") ||
			file_read(entry->fts_path, 4 << 20, text, &err) < 0)
			continue;
		if (!utf8_valid(text->data, text->length)) {
			buffer_free(text);
			continue;
		}
		batch.paths[batch.count++] = xstrdup(entry->fts_path);
		batch.bytes += text->length;
		if (batch.count == BATCH || batch.bytes >= PYTHON_AST_BYTES)
			compare_batch(&batch, &tally);
	}
	compare_batch(&batch, &tally);
	fts_close(walk);
	print_message("%zu read, %zu refused, %zu different\n", tally.read, tally.refused, tally.different);
	assert_int_equal(tally.different, 0);
	assert_true(tally.read > 100);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(standard_library_reads_the_same),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
