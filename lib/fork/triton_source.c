#include "fork/triton_source.h"

#include <git2.h>
#include <stdlib.h>
#include <string.h>

#include "base/embed.h"
#include "base/json.h"
#include "base/memory.h"
#include "base/text.h"
#include "fork/private.h"
#include "fork/python_ast.h"

EMBED(source_triton_source, "lib/fork/triton_source.py");

/* What the script answered: the new text, or why there is none. */
static char *take_answer(const struct buffer *output, const char *kernel, struct error *err)
{
	struct error bad;
	cJSON *answer = output->length ? json_parse(output->data, output->length, &bad) : NULL;
	const char *text = NULL, *fault = NULL;
	char *result = NULL, *clean;

	if (answer && json_string(answer, "text", JSON_OPTIONAL, &text, &bad) == 0 && text)
		result = xstrdup(text);
	else if (answer && json_string(answer, "fault", JSON_REQUIRED, &fault, &bad) == 0) {
		clean = xstrdup(fault);
		text_clean(clean);
		error_set(err, STATUS_FAILED, "the configurations of %s cannot be replaced: %.300s", kernel,
			clean);
		free(clean);
	} else {
		error_set(
			err, STATUS_ENVIRONMENT, "Python could not replace the configurations of %s", kernel);
	}
	cJSON_Delete(answer);
	return result;
}

char *triton_source_rewrite(
	const char *python, const char *text, const char *kernel, const cJSON *config, struct error *err)
{
	cJSON *request = cJSON_CreateObject();
	struct buffer output = {0};
	char *input, *result = NULL;

	cJSON_AddStringToObject(request, "text", text);
	cJSON_AddStringToObject(request, "kernel", kernel);
	cJSON_AddItemToObject(request, "config", cJSON_Duplicate(config, true));
	input = cJSON_PrintUnformatted(request);
	if (python_run_alone(python, source_triton_source, input, &output, err) == 0)
		result = take_answer(&output, kernel, err);
	buffer_free(&output);
	cJSON_free(input);
	cJSON_Delete(request);
	return result;
}

char *triton_source_diff(const char *path, const char *before, const char *after, struct error *err)
{
	git_patch *patch = NULL;
	git_buf text = {0};
	char *result = NULL;
	int code;

	git_begin();
	code = git_patch_from_buffers(&patch, before, strlen(before), path, after, strlen(after), path, NULL);
	if (!code)
		code = git_patch_to_buf(&text, patch);
	if (code)
		git_failed(code, "compare", path, err);
	else
		result = xstrdup(text.ptr ? text.ptr : "");
	git_buf_dispose(&text);
	git_patch_free(patch);
	return result;
}
