/* check: named findings, in the order they were made. */
#pragma once

#include <cjson/cJSON.h>
#include <stddef.h>

#include "base/error.h"

enum check_status { CHECK_OK, CHECK_WARN, CHECK_FAIL, CHECK_SKIP };

struct check {
	char *name; /* "imports.deployed" */
	enum check_status status;
	char *detail; /* what was found, one line */
	char *remedy; /* what to do about it; NULL when nothing */
};

typedef void check_report(const struct check *check, void *context);

struct check_list {
	struct check *items;
	size_t count;
	/* called with each check as it is added, so that a person sees long work proceed; may be NULL */
	check_report *report;
	void *context;
};

/* `remedy` may be NULL. Copies its strings, the detail as text_clean() leaves it. */
void check_add(struct check_list *list, const char *name, enum check_status status, const char *remedy,
	const char *detail_format, ...) __attribute__((format(printf, 5, 6)));

/* A check that an error decides: its message, and its hint as the remedy. */
void check_problem(
	struct check_list *list, const char *name, enum check_status status, const struct error *err);

size_t check_count(const struct check_list *list, enum check_status status);
const char *check_status_name(enum check_status status); /* "ok", "warn", "fail", "skip" */

/* [{"name","status","detail"[,"remedy"]}, …] */
cJSON *check_json(const struct check_list *list);
void check_free(struct check_list *list);
