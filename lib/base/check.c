#include "base/check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/memory.h"
#include "base/text.h"

void check_add(struct check_list *list, const char *name, enum check_status status, const char *remedy,
	const char *detail_format, ...)
{
	struct check *check;
	char detail[2048];
	va_list args;

	va_start(args, detail_format);
	vsnprintf(detail, sizeof(detail), detail_format, args);
	va_end(args);
	text_clean(detail); /* strangers' words are in it, and it may be cut within a character */
	list->items = xrealloc(list->items, (list->count + 1) * sizeof(*list->items));
	check = &list->items[list->count++];
	*check = (struct check){xstrdup(name), status, xstrdup(detail), remedy ? xstrdup(remedy) : NULL};
	if (list->report)
		list->report(check, list->context);
}

void check_problem(
	struct check_list *list, const char *name, enum check_status status, const struct error *err)
{
	check_add(list, name, status, err->hint[0] ? err->hint : NULL, "%s", err->message);
}

size_t check_count(const struct check_list *list, enum check_status status)
{
	size_t count = 0;

	for (size_t i = 0; i < list->count; i++)
		count += list->items[i].status == status;
	return count;
}

const char *check_status_name(enum check_status status)
{
	static const char *const names[] = {"ok", "warn", "fail", "skip"};

	return names[status];
}

cJSON *check_json(const struct check_list *list)
{
	cJSON *array = cJSON_CreateArray();

	for (size_t i = 0; i < list->count; i++) {
		const struct check *check = &list->items[i];
		cJSON *item = cJSON_CreateObject();

		cJSON_AddStringToObject(item, "name", check->name);
		cJSON_AddStringToObject(item, "status", check_status_name(check->status));
		cJSON_AddStringToObject(item, "detail", check->detail);
		if (check->remedy)
			cJSON_AddStringToObject(item, "remedy", check->remedy);
		cJSON_AddItemToArray(array, item);
	}
	return array;
}

void check_free(struct check_list *list)
{
	for (size_t i = 0; i < list->count; i++) {
		free(list->items[i].name);
		free(list->items[i].detail);
		free(list->items[i].remedy);
	}
	free(list->items);
	list->items = NULL;
	list->count = 0;
}
