#include "fork/python_ast.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/text.h"

#define LIMIT_SECONDS 60.0

EMBED(source_python_ast, "lib/fork/python_ast.py");

/* A zero byte would cut off what is sent to Python, which takes no file with one. */
static bool may_read(const struct buffer *text)
{
	return text->length <= PYTHON_AST_BYTES && !memchr(text->data, '\0', text->length);
}

int python_run_alone(
	const char *python, const char *source, const char *input, struct buffer *output, struct error *err)
{
	const char *argv[] = {python, "-I", "-S", "-W", "ignore", "-c", source, NULL};
	struct process process;
	int status;

	if (process_start(&process, argv, NULL, input, err) < 0)
		return 0;
	if (process_finish(&process, LIMIT_SECONDS, &status, err) < 0)
		return err->status == STATUS_INTERRUPTED ? -1 : 0;
	*output = process.text;
	return 0;
}

/* The next line as a document; NULL when it is none, or was cut off. */
static cJSON *next_document(const char **text)
{
	const char *end = *text ? strchr(*text, '\n') : NULL;
	struct error err;
	cJSON *document;

	if (!end)
		return NULL;
	document = json_parse(*text, (size_t)(end - *text), &err);
	*text = end + 1;
	return document;
}

static void read_output(const char *text, const struct buffer *texts, struct python_ast *ast)
{
	cJSON *version = next_document(&text);

	if (cJSON_IsString(version)) {
		snprintf(ast->version, sizeof(ast->version), "%s", version->valuestring);
		text_clean(ast->version);
		for (size_t i = 0; i < ast->count; i++)
			if (may_read(&texts[i]))
				ast->reports[i] = next_document(&text);
	}
	cJSON_Delete(version);
}

int python_ast_read(const char *python, const struct buffer *texts, size_t count, struct python_ast *ast,
	struct error *err)
{
	struct buffer input = {0}, output = {0};
	int result;

	*ast = (struct python_ast){.reports = xcalloc(count, sizeof(*ast->reports)), .count = count};
	buffer_text(&input, "");
	for (size_t i = 0; i < count; i++) {
		if (may_read(&texts[i])) {
			buffer_printf(&input, "%zu\n", texts[i].length);
			buffer_append(&input, texts[i].data, texts[i].length);
		}
	}
	result = python_run_alone(python, source_python_ast, input.data, &output, err);
	read_output(output.data, texts, ast);
	for (size_t i = 0; i < count; i++) {
		if (!cJSON_GetObjectItemCaseSensitive(ast->reports[i], "calls")) {
			cJSON_Delete(ast->reports[i]);
			ast->reports[i] = NULL;
		}
	}
	buffer_free(&input);
	buffer_free(&output);
	return result;
}

void python_ast_free(struct python_ast *ast)
{
	for (size_t i = 0; i < ast->count; i++)
		cJSON_Delete(ast->reports[i]);
	free(ast->reports);
	*ast = (struct python_ast){0};
}

static const cJSON *item(const cJSON *row, int index)
{
	return cJSON_GetArrayItem(row, index);
}

static const char *string_item(const cJSON *row, int index)
{
	return cJSON_GetStringValue(item(row, index));
}

static size_t line_item(const cJSON *row)
{
	const cJSON *line = item(row, 0);

	return cJSON_IsNumber(line) && line->valuedouble >= 1 ? (size_t)line->valuedouble : 1;
}

void python_ast_visit(const cJSON *report, python_visit *visit, void *context, struct python_fault *fault)
{
	const cJSON *row, *found = cJSON_GetObjectItemCaseSensitive(report, "fault");

	cJSON_ArrayForEach (row, cJSON_GetObjectItemCaseSensitive(report, "imports")) {
		const cJSON *level = item(row, 1);
		struct python_fact fact = {
			.kind = cJSON_IsNumber(level) ? PYTHON_FROM : PYTHON_IMPORT,
			.line = line_item(row),
			.level = cJSON_IsNumber(level) ? level->valueint : 0,
			.module = string_item(row, 2),
			.name = string_item(row, 3),
			.alias = string_item(row, 4),
		};

		if (fact.module && (fact.name || fact.kind == PYTHON_IMPORT))
			visit(&fact, context);
	}
	cJSON_ArrayForEach (row, cJSON_GetObjectItemCaseSensitive(report, "calls")) {
		struct python_fact fact = {
			.kind = PYTHON_CALL,
			.line = line_item(row),
			.module = "",
			.name = string_item(row, 2),
			.of_expression = cJSON_IsTrue(item(row, 1)),
		};

		if (fact.name)
			visit(&fact, context);
	}
	*fault = (struct python_fault){0};
	if (found) {
		const char *what = string_item(found, 1);

		fault->line = line_item(found);
		snprintf(fault->what, sizeof(fault->what), "%s", what ? what : "invalid syntax");
		text_clean(fault->what);
	}
}
