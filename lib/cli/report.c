#include "cli/report.h"

#include <stdio.h>

#include "base/layout.h"
#include "base/terminal.h"
#include "base/text.h"

#define DETAIL 25 /* the column where it begins */

static void print_check(FILE *out, const struct check *check)
{
	static const struct {
		const char *word;
		enum color color;
	} looks[] = {
		[CHECK_OK] = {"ok", COLOR_GREEN},
		[CHECK_WARN] = {"warn", COLOR_YELLOW},
		[CHECK_FAIL] = {"FAIL", COLOR_RED},
		[CHECK_SKIP] = {"skip", COLOR_DIM},
	};
	size_t name = text_width(check->name);

	fprintf(out, "%s%-4s%s  %-18s ", color(out, looks[check->status].color), looks[check->status].word,
		color(out, COLOR_NONE), check->name);
	layout_words(out, check->detail, DETAIL + (name > 18 ? name - 18 : 0), DETAIL);
	if (check->remedy) {
		fprintf(out, "%*s", DETAIL, "");
		layout_words(out, check->remedy, DETAIL, DETAIL);
	}
}

void report_check(const struct check *check, void *context)
{
	(void)context;
	print_check(stdout, check);
}

void report_problem(const struct check *check, void *context)
{
	(void)context;
	if (check->status == CHECK_WARN || check->status == CHECK_FAIL)
		print_check(stderr, check);
}
